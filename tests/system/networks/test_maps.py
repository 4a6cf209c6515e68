# SPDX-License-Identifier: Apache-2.0
"""Outputs that are sequences of maps, as exported classifiers have them (ZipMap), beside ONNX Runtime's; names of ports
that are no UTF-8; one clear error for each map that is not served."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tessera

STRINGS, INTS = ["cat", "dog", "über"], [3, -1, 7]


def ml_model(nodes, inputs, outputs):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=8)


def of_tensor(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def of_maps(name, key):
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_map_type_proto(key, value)))


def zip_map(labels, source="p", target="maps"):
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    return helper.make_node("ZipMap", [source], [target], name="zip", domain="ai.onnx.ml", **{kind: labels})


def classifier(labels, shape=("n", 3)):
    """Probabilities, as a matrix and as maps."""
    key = TensorProto.STRING if isinstance(labels[0], str) else TensorProto.INT64
    nodes = [helper.make_node("Softmax", ["x"], ["p"], axis=-1), zip_map(labels)]
    return ml_model(nodes, [of_tensor("x", shape)], [of_tensor("p", shape), of_maps("maps", key)])


@pytest.mark.parametrize("labels", [STRINGS, INTS], ids=["strings", "integers"])
@pytest.mark.parametrize("rows", [0, 1, 4, None])
def test_zip_map_beside_onnx_runtime(labels, rows, tmp_path):
    shape = ("n", 3) if rows is not None else (3,)  # a vector is one row
    x = np.random.default_rng(1).normal(size=(3,) if rows is None else (rows, 3)).astype(np.float32)
    model = classifier(labels, shape).SerializeToString()
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    want, want_maps = oracle.run(None, {"x": x})
    sessions = [tessera.Session(model, device) for device in ("fsim", "reference")]
    if rows:
        tessera.Session(model, shapes={"x": x.shape}).save(tmp_path / "m.tsr")
        sessions.append(tessera.Session(tmp_path / "m.tsr"))
    for session in sessions:
        assert session.get_outputs()[1].type == oracle.get_outputs()[1].type
        got, maps = session.run(None, {"x": x})
        assert np.allclose(got, want, rtol=1e-6)
        assert [list(m) for m in maps] == [list(m) for m in want_maps] or set(maps[0]) == set(want_maps[0])
        assert maps == [dict(zip(labels, row)) for row in np.atleast_2d(got).tolist()]
        assert session.run(["maps"], {"x": x}) == [maps]


def refusal(model):
    with pytest.raises(tessera.Error) as caught:
        tessera.Session(model.SerializeToString())
    return caught.value.code, str(caught.value)


def test_maps_that_are_not_served():
    x, y = of_tensor("x", [2, 3]), of_tensor("y", [2, 3])
    code, text = refusal(ml_model([zip_map(["a", "b"], "x")], [x], [of_maps("maps", TensorProto.STRING)]))
    assert code == "invalid_model" and "2 labels for 3 columns" in text
    nodes = [zip_map(STRINGS, "x"), helper.make_node("Identity", ["maps"], ["y"], name="reader")]
    code, text = refusal(ml_model(nodes, [x], [y]))
    assert code == "unsupported" and "'reader'" in text and "sequence of maps" in text
    node = helper.make_node("ZipMap", ["x"], ["maps"], name="zip", domain="ai.onnx.ml")
    code, text = refusal(ml_model([node], [x], [of_maps("maps", TensorProto.STRING)]))
    assert code == "invalid_model" and "no labels" in text
    nodes = [helper.make_node("Identity", ["m"], ["y"], name="reader")]
    code, text = refusal(ml_model(nodes, [of_map("m", TensorProto.STRING, TensorProto.FLOAT)], [y]))
    assert code == "unsupported" and "'reader'" in text and "which only DictVectorizer and CastMap take" in text


def of_map(name, key, value):
    return helper.make_value_info(name, helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, [])))


WORDS = {"string_vocabulary": STRINGS}
NUMBERS = {"int64_vocabulary": INTS}
MAPS = [
    ("DictVectorizer", TensorProto.STRING, TensorProto.FLOAT, WORDS, {"über": 0.5, "cow": 3.0, "cat": -1.0}),
    ("DictVectorizer", TensorProto.STRING, TensorProto.FLOAT, WORDS, {"cow": 3.0}),
    ("DictVectorizer", TensorProto.INT64, TensorProto.FLOAT, NUMBERS, {-1: 0.5, 4: 3.0}),
    *(
        ("CastMap", TensorProto.INT64, TensorProto.FLOAT, {"cast_to": to, **form}, {3: 1.5, 1: -2.7, 0: 1e-7, 9: 1e8})
        for to in ("TO_FLOAT", "TO_INT64", "TO_STRING")
        for form in ({}, {"map_form": "SPARSE", "max_map": 6})
    ),
]


@pytest.mark.parametrize("op, key, value, attributes, given", MAPS)
def test_inputs_that_are_maps(op, key, value, attributes, given, tmp_path):
    node = helper.make_node(op, ["m"], ["y"], name="n", domain="ai.onnx.ml", **attributes)
    model = ml_model([node], [of_map("m", key, value)], [onnx.ValueInfoProto(name="y")]).SerializeToString()
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (want,) = oracle.run(None, {"m": given})
    session = tessera.Session(model)
    (port,) = session.get_inputs()
    assert (port.name, port.type) == (oracle.get_inputs()[0].name, oracle.get_inputs()[0].type)
    vectors = {"m.keys": np.array(list(given)), "m.values": np.array(list(given.values()), np.float32)}
    for feed in ({"m": given}, vectors):
        (got,) = session.run(None, feed)
        assert got.dtype == want.dtype and got.tolist() == want.tolist()


def test_a_pipeline_behind_a_map():
    """What exporters of scikit-learn write for a DictVectorizer in front of a model."""
    nodes = [
        helper.make_node("DictVectorizer", ["m"], ["v"], domain="ai.onnx.ml", string_vocabulary=STRINGS),
        helper.make_node("Scaler", ["v"], ["s"], domain="ai.onnx.ml", offset=[1.0, 2.0, 3.0], scale=[2.0] * 3),
        helper.make_node("Softmax", ["s"], ["p"]),
        zip_map(STRINGS),
    ]
    inputs = [of_map("m", TensorProto.STRING, TensorProto.FLOAT)]
    model = ml_model(nodes, inputs, [of_maps("maps", TensorProto.STRING)]).SerializeToString()
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for given in ({"dog": 2.0}, {"cat": 0.25, "dog": -1.0, "über": 4.0}):
        (want,), (got,) = oracle.run(None, {"m": given}), tessera.Session(model).run(None, {"m": given})
        assert [list(row) for row in got] == [list(row) for row in want]
        assert np.allclose(list(got[0].values()), list(want[0].values()), rtol=1e-6)


def test_names_that_are_no_utf_8():
    """They come and go as Python has the names of files."""
    nodes = [helper.make_node("Relu", ["the_in"], ["the_out"])]
    model = ml_model(nodes, [of_tensor("the_in", [2])], [of_tensor("the_out", [2])]).SerializeToString()
    session = tessera.Session(model.replace(b"the_in", b"\xff\xfee_in").replace(b"the_out", b"\xff\xfee_out"))
    (given,), (left,) = session.get_inputs(), session.get_outputs()
    assert given.name == b"\xff\xfee_in".decode(errors="surrogateescape")
    x = np.array([-1, 2], np.float32)
    assert session.run([left.name], {given.name: x})[0].tolist() == [0, 2]
    with pytest.raises(tessera.Error, match="_in"):
        session.run(None, {"other": x})
    with pytest.raises(TypeError, match="strings"):
        session.run(None, {3: x})

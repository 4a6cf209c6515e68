# SPDX-License-Identifier: Apache-2.0
"""Features of the format on generated models: tensor encodings, opsets, functions, subgraphs, dynamic shapes. Expected
values come from numpy or ONNX Runtime."""

import re

import ml_dtypes
import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, shape=None, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, initializers=(), opset=17, ir_version=8, **options):
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    opsets = options.pop("opset_imports", [helper.make_opsetid("", opset)])
    model = helper.make_model(graph, opset_imports=opsets, **options)
    model.ir_version = ir_version
    return model


def ort_run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(
        zip(
            [o.name for o in session.get_outputs()],
            session.run(None, {name: np.asarray(feed) for name, feed in feeds.items()}),
        )
    )


def same(actual, expected, tolerance=0.0):
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            same(a, e, tolerance)
        return
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if tolerance and expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(actual, expected)


def check(nn, model, feeds, tolerance=1e-6, shapes=None):
    """Reference interpreter, with and without passes, against ONNX Runtime."""
    expected = ort_run(model, feeds)
    for optimise in (False, True):
        imported = nn.Model(model.SerializeToString(), shapes or {})
        if optimise:
            imported.optimise()
        actual = imported.run(feeds)
        assert actual.keys() == expected.keys()
        for name in expected:
            same(actual[name], expected[name], tolerance)


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5

# --- tensors ------------------------------------------------------------------------------------------------

DTYPES = {
    "float32": (TensorProto.FLOAT, np.array([0.0, -1.5, 3e38, np.inf, 1e-45], np.float32)),
    "float64": (TensorProto.DOUBLE, np.array([0.1, -1e300, np.nan], np.float64)),
    "float16": (TensorProto.FLOAT16, np.array([0.1, -65504, 6e-8], np.float16)),
    "bfloat16": (TensorProto.BFLOAT16, np.array([0.1, -3e38, 7], ml_dtypes.bfloat16)),
    "float8_e4m3fn": (TensorProto.FLOAT8E4M3FN, np.array([0.1, -448, 2], ml_dtypes.float8_e4m3fn)),
    "float8_e4m3fnuz": (TensorProto.FLOAT8E4M3FNUZ, np.array([0.1, -240, 2], ml_dtypes.float8_e4m3fnuz)),
    "float8_e5m2": (TensorProto.FLOAT8E5M2, np.array([0.1, -57344, 2], ml_dtypes.float8_e5m2)),
    "float8_e5m2fnuz": (TensorProto.FLOAT8E5M2FNUZ, np.array([0.1, -57344, 2], ml_dtypes.float8_e5m2fnuz)),
    "float8_e8m0fnu": (TensorProto.FLOAT8E8M0, np.array([0.125, 2.0**127, 1], ml_dtypes.float8_e8m0fnu)),
    "int8": (TensorProto.INT8, np.array([-128, 127, -1], np.int8)),
    "uint8": (TensorProto.UINT8, np.array([0, 255, 128], np.uint8)),
    "int16": (TensorProto.INT16, np.array([-32768, 32767, -1], np.int16)),
    "uint16": (TensorProto.UINT16, np.array([0, 65535], np.uint16)),
    "int32": (TensorProto.INT32, np.array([-(2**31), 2**31 - 1], np.int32)),
    "uint32": (TensorProto.UINT32, np.array([0, 2**32 - 1], np.uint32)),
    "int64": (TensorProto.INT64, np.array([-(2**63), 2**63 - 1], np.int64)),
    "uint64": (TensorProto.UINT64, np.array([0, 2**64 - 1], np.uint64)),
    "bool": (TensorProto.BOOL, np.array([True, False, True])),
    "complex64": (TensorProto.COMPLEX64, np.array([1 + 2j, -3j], np.complex64)),
    "complex128": (TensorProto.COMPLEX128, np.array([1 + 2j, -3j], np.complex128)),
    "int4": (TensorProto.INT4, np.array([-8, 7, -1, 3, 5], ml_dtypes.int4)),
    "uint4": (TensorProto.UINT4, np.array([0, 15, 7], ml_dtypes.uint4)),
    "float4_e2m1fn": (TensorProto.FLOAT4E2M1, np.array([0.5, -6, 4], ml_dtypes.float4_e2m1fn)),
    "string": (TensorProto.STRING, np.array(["", "ä", "a b"], dtype=object)),
}


def nibbles(array):
    codes = array.view(np.uint8) & 15
    codes = np.concatenate([codes, np.zeros(len(codes) % 2, np.uint8)])
    return (codes[0::2] | codes[1::2] << 4).astype(np.uint8)


def typed_tensor(name, dtype, array):
    """The encoding in the typed field, from the format's definition."""
    tensor = TensorProto(name=name, data_type=dtype, dims=array.shape)
    if array.dtype.kind == "O":
        tensor.string_data.extend(text.encode() for text in array)
    elif dtype in (TensorProto.FLOAT, TensorProto.COMPLEX64):
        tensor.float_data.extend(array.view(np.float32))
    elif dtype in (TensorProto.DOUBLE, TensorProto.COMPLEX128):
        tensor.double_data.extend(array.view(np.float64))
    elif dtype == TensorProto.INT64:
        tensor.int64_data.extend(array)
    elif dtype in (TensorProto.UINT32, TensorProto.UINT64):
        tensor.uint64_data.extend(array)
    elif dtype in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
        tensor.int32_data.extend(nibbles(array))
    elif array.dtype.itemsize == 2 and array.dtype.name in ("float16", "bfloat16"):
        tensor.int32_data.extend(array.view(np.uint16))
    elif array.dtype.name.startswith("float8"):
        tensor.int32_data.extend(array.view(np.uint8))
    else:
        tensor.int32_data.extend(array.astype(np.int64).tolist())
    return tensor


def raw_tensor(name, dtype, array):
    packed = dtype in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)
    return TensorProto(
        name=name, data_type=dtype, dims=array.shape, raw_data=(nibbles(array) if packed else array).tobytes()
    )


@pytest.mark.parametrize("encoding", [typed_tensor, raw_tensor])
@pytest.mark.parametrize("name", DTYPES)
def test_tensor_encodings(nn, name, encoding):
    dtype, array = DTYPES[name]
    if encoding is raw_tensor and name == "string":
        pytest.skip("strings have no raw form")
    # Small tensors are kept readable, large ones as resources: both must hold.
    for content in (array, np.tile(array, 300), array[:0]):
        tensor = encoding("w", dtype, content)
        model = model_of([], [], [value("w", content.shape, dtype)], [tensor], opset=23, ir_version=11)
        actual = nn.Model(model.SerializeToString()).run({})["w"]
        assert actual.shape == content.shape
        if name == "string":
            assert list(actual) == list(content)
        else:
            assert actual.dtype == content.dtype
            if name == "int4":  # numpy's form leaves the upper four bits undefined
                actual, content = actual.astype(np.int8), content.astype(np.int8)
            assert actual.tobytes() == content.tobytes()


@pytest.mark.parametrize("times", [2, 3])
def test_initializers_of_one_name(nn, times):
    """The last one counts."""
    weights = [numpy_helper.from_array(np.arange(3, dtype=np.float32) * 10**i, "w") for i in range(times)]
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = model_of([node], [value("x", [3])], [value("y", [3])], weights)
    check(nn, model, {"x": np.ones(3, np.float32)})


def test_scalar_and_empty(nn):
    model = model_of(
        [],
        [],
        [value("s", ()), value("e", (0, 3))],
        [typed_tensor("s", FLOAT, np.array(2.5, np.float32).reshape(1))],
        ir_version=8,
    )
    model.graph.initializer[0].dims[:] = []
    model.graph.initializer.append(TensorProto(name="e", data_type=FLOAT, dims=[0, 3]))
    out = nn.Model(model.SerializeToString()).run({})
    assert out["s"].shape == () and out["s"] == 2.5 and out["e"].shape == (0, 3)


@pytest.mark.parametrize("offset", [0, 16, 7])
def test_external_data(nn, tmp_path, offset):
    array = np.arange(1000, dtype=np.float32)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"\xff" * offset + array.tobytes() + b"tail")
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[1000], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "data/w.bin"), ("offset", str(offset)), ("length", "4000")):
        tensor.external_data.add(key=key, value=text)
    model = model_of([], [], [value("w", [1000])], [tensor])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    same(nn.Model(str(tmp_path / "m.onnx")).run({})["w"], array)
    same(nn.Model(model.SerializeToString(), {}, str(tmp_path)).run({})["w"], array)


def external_model(path, location, **entries):
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": str(location), **entries}.items():
        tensor.external_data.add(key=key, value=text)
    path.write_bytes(model_of([], [], [value("w", [6])], [tensor]).SerializeToString())
    return str(path)


def test_ways_to_write_the_place_of_external_data(nn, tmp_path):
    """Every spelling of a place inside the model's folder; a length of 0 says nothing."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    array = np.arange(6, dtype=np.float32)
    (folder / "w.bin").write_bytes(array.tobytes())
    for location in ("w.bin", "./w.bin", "sub/../w.bin", "../model/w.bin", folder / "w.bin"):
        same(nn.Model(external_model(folder / "m.onnx", location)).run({})["w"], array)
    same(nn.Model(external_model(folder / "m.onnx", "w.bin", offset="0", length="0")).run({})["w"], array)


def test_links_of_a_cache_of_downloads(nn, tmp_path):
    """Model and data are links to files of another folder, as download caches keep them."""
    for name in ("blobs", "snapshot"):
        (tmp_path / name).mkdir()
    array = np.arange(6, dtype=np.float32)
    (tmp_path / "blobs" / "6f3a").write_bytes(array.tobytes())
    external_model(tmp_path / "blobs" / "91c0", "w.bin")
    for link, blob in (("m.onnx", "91c0"), ("w.bin", "6f3a")):
        (tmp_path / "snapshot" / link).symlink_to(f"../blobs/{blob}")
    same(nn.Model(str(tmp_path / "snapshot" / "m.onnx")).run({})["w"], array)


def test_sparse_tensors(nn):
    values = helper.make_tensor("w", FLOAT, [2], [5.0, -1.0])
    linear = helper.make_sparse_tensor(values, helper.make_tensor("i", INT64, [2], [1, 5]), [2, 3])
    coordinates = helper.make_sparse_tensor(
        helper.make_tensor("v", FLOAT, [2], [2.0, 3.0]), helper.make_tensor("i", INT64, [2, 2], [0, 0, 1, 1]), [2, 3]
    )
    node = helper.make_node("Constant", [], ["c"], sparse_value=coordinates)
    model = model_of([node, helper.make_node("Add", ["w", "c"], ["y"])], [], [value("y", (2, 3))])
    model.graph.sparse_initializer.append(linear)
    same(nn.Model(model.SerializeToString()).run({})["y"], np.array([[2, 5, 0], [0, 3, -1]], np.float32))


def test_constants_of_every_kind(nn):
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=1.5),
        helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0]),
        helper.make_node("Constant", [], ["c"], value_int=-3),
        helper.make_node("Constant", [], ["d"], value_ints=[4, 5]),
        helper.make_node("Constant", [], ["e"], value_string="x"),
        helper.make_node("Constant", [], ["f"], value_strings=["y", "z"]),
        helper.make_node("Constant", [], ["g"], value=numpy_helper.from_array(np.array([[7]], np.int8))),
    ]
    outputs = [
        value("a", ()),
        value("b", (2,)),
        value("c", (), INT64),
        value("d", (2,), INT64),
        value("e", (), TensorProto.STRING),
        value("f", (2,), TensorProto.STRING),
        value("g", (1, 1), TensorProto.INT8),
    ]
    out = nn.Model(model_of(nodes, [], outputs).SerializeToString()).run({})
    assert out["a"] == 1.5 and list(out["b"]) == [1.0, 2.0] and out["c"] == -3 and list(out["d"]) == [4, 5]
    assert out["e"] == "x" and list(out["f"]) == ["y", "z"] and out["g"].tolist() == [[7]] and out["g"].dtype == np.int8


# --- graphs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(7, 25))
def test_opsets(nn, opset):
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "h"], ["q"]),
        helper.make_node("Softmax", ["q"], ["y"]),
    ]
    rng = np.random.default_rng(opset)
    tensors = {"w": (4, 3, 3, 3), "b": (4,), "g": (36, 5), "h": (5,)}
    model = model_of(
        nodes,
        [value("x", (2, 3, 6, 6))],
        [value("y")],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in tensors.items()
        ],
        opset,
    )
    x = rng.standard_normal((2, 3, 6, 6)).astype(np.float32)
    expected_model = model
    if opset > 23:  # newer than the pinned ONNX Runtime; these operators did not change
        expected_model = onnx.ModelProto()
        expected_model.CopyFrom(model)
        expected_model.opset_import[0].version = 23
    expected = ort_run(expected_model, {"x": x})["y"]
    same(nn.run_reference(model.SerializeToString(), {"x": x})["y"], expected, 1e-5)


def old_network():
    """A small network as exporters of operator set 6 wrote it; weights are inputs with initializers."""
    rng = np.random.default_rng(6)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Add", ["c", "bias"], ["a"], broadcast=1, axis=1),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["n"], is_test=1),
        helper.make_node("PRelu", ["n", "slope"], ["r"]),
        helper.make_node("Dropout", ["r"], ["d"], is_test=1, ratio=0.5),
        helper.make_node("MaxPool", ["d"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sum", ["p", "p"], ["s"]),
        helper.make_node("Reshape", ["s", "size"], ["f"]),
        helper.make_node("MatMul", ["f", "g"], ["m"]),
        helper.make_node("Add", ["m", "h"], ["y"], broadcast=1),
    ]
    shapes = {"w": (4, 3, 3, 3), "g": (36, 5), "h": (5,)} | dict.fromkeys(
        ("bias", "scale", "shift", "mean", "slope"), (4,)
    )
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensors |= {"variance": np.array([1, 2, 3, 4], np.float32), "size": np.array([2, 36])}
    weights = [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()]
    kinds = {"size": TensorProto.INT64}
    inputs = [value(name, tensor.shape, kinds.get(name, FLOAT)) for name, tensor in tensors.items()]
    model = model_of(nodes, [value("x", (2, 3, 6, 6)), *inputs], [value("y", (2, 5))], weights, opset=6, ir_version=3)
    return model, rng.standard_normal((2, 3, 6, 6)).astype(np.float32)


def test_operator_sets_below_7(nn):
    """What the importer makes of a network of set 6 is what the converter of the onnx package and ONNX Runtime make of
    it. The converter leaves the slope of PRelu and refuses the axis of Add: it is given the shapes that set 7 wants."""
    model, x = old_network()
    newer = onnx.ModelProto()
    newer.CopyFrom(model)
    for tensors in (newer.graph.initializer, newer.graph.input):
        for entry in tensors:
            if entry.name not in ("slope", "bias"):
                continue
            if isinstance(entry, TensorProto):
                entry.dims.extend([1, 1])
            else:
                entry.CopyFrom(value(entry.name, (4, 1, 1)))
    del newer.graph.node[1].attribute[:]
    newer.graph.node[1].attribute.append(helper.make_attribute("broadcast", 1))
    newer = onnx.version_converter.convert_version(newer, 13)
    expected = ort_run(newer, {"x": x})["y"]
    imported = nn.Model(model.SerializeToString())
    versions = {int(v) for v in re.findall(r" opset (\d+) ", imported.text())}
    assert versions and min(versions) >= 7
    assert not re.search("is_test|broadcast", imported.text())
    same(imported.run({"x": x})["y"], expected, 1e-5)
    imported.optimise()
    same(imported.run({"x": x})["y"], expected, 1e-5)


@pytest.mark.parametrize("ir_version", [1, 2])
def test_models_without_operator_sets(nn, ir_version):
    """Before IR version 3 a model imported no operator set: it is of set 1."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], consumed_inputs=[0]),
        helper.make_node("Reshape", ["r"], ["s"], shape=[3, 2]),
        helper.make_node("Cast", ["s"], ["y"], to="INT64"),
    ]
    model = model_of(nodes, [value("x", (2, 3))], [value("y", (3, 2), TensorProto.INT64)], ir_version=ir_version)
    model.ClearField("opset_import")
    x = np.array([[-1.5, 0, 1.5], [2.5, -3, 4]], np.float32)
    actual = nn.Model(model.SerializeToString()).run({"x": x})["y"]
    same(actual, np.maximum(x, 0).reshape(3, 2).astype(np.int64))


def test_old_operators_of_unknown_rank_wait_for_the_run(nn):
    model = model_of(
        [helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=0)],
        [value("x")],
        [value("y")],
        [numpy_helper.from_array(np.array([10, 20], np.float32), "b")],
        opset=6,
    )
    x = np.ones((2, 3), np.float32)
    imported = nn.Model(model.SerializeToString())
    same(imported.run({"x": x})["y"], x + np.array([[10], [20]], np.float32))
    imported.optimise()
    same(imported.run({"x": x})["y"], x + np.array([[10], [20]], np.float32))


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_initializers_listed_as_inputs(nn, ir_version):
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [value("x", (2, 3)), value("w", (3,))],
        [value("y")],
        [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")],
        opset=9,
        ir_version=ir_version,
    )
    imported = nn.Model(model.SerializeToString())
    assert [name for name, _, _ in imported.inputs] == ["x"]
    same(imported.run({"x": X})["y"], X + np.array([1, 2, 3], np.float32))


def test_nodes_in_any_order(nn):
    nodes = [
        helper.make_node("Add", ["a", "b"], ["y"]),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
    ]
    model = model_of(nodes, [value("x", (2, 3))], [value("y")])
    same(nn.Model(model.SerializeToString()).run({"x": X})["y"], np.maximum(X, 0) + -np.maximum(X, 0))


def test_output_is_input_or_shared(nn):
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], [value("x", (2, 3))], [value("x"), value("y")])
    for optimise in (False, True):
        out = nn.run_reference(model.SerializeToString(), {"x": X}, optimise=optimise)
        same(out["x"], X), same(out["y"], X)


def test_skipped_outputs_and_inputs(nn):
    rng = np.random.default_rng(1)
    shapes = {"x": (3, 1, 4), "w": (1, 8, 4), "r": (1, 8, 2)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "", "", "", "c"], ["", "h"], hidden_size=2)]
    inputs = [value(name, shape) for name, shape in shapes.items()] + [value("c", (1, 1, 2))]
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | {
        "c": np.ones((1, 1, 2), np.float32)
    }
    check(nn, model_of(nodes, inputs, [value("h")]), feeds, 1e-5)


def test_training_information_is_ignored(nn):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (2, 3))], [value("y")])
    model.training_info.add().algorithm.node.append(helper.make_node("Nonsense", ["q"], ["r"]))
    same(nn.Model(model.SerializeToString()).run({"x": X})["y"], np.maximum(X, 0))


def test_names_need_not_be_utf8(nn):
    data = model_of(
        [helper.make_node("Relu", ["x"], ["yy"], name="NODE")], [value("x", (2, 3))], [value("yy")]
    ).SerializeToString()
    with pytest.raises(nn.TesseraError) as caught:
        nn.Model(data.replace(b"Relu", b"R\xff\xfeu").replace(b"NODE", b"N\xf0DE"))
    assert "is not known" in str(caught.value)


# --- functions ----------------------------------------------------------------------------------------------


def function(name, inputs, outputs, nodes, attributes=(), defaults=()):
    return helper.make_function(
        "custom",
        name,
        inputs,
        outputs,
        nodes,
        [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)],
        list(attributes),
        list(defaults),
    )


def referring(node, name, refers_to, kind=onnx.AttributeProto.FLOAT):
    node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=refers_to, type=kind))
    return node


def test_functions(nn):
    leaky = function(
        "Leak",
        ["a"],
        ["b"],
        [referring(helper.make_node("LeakyRelu", ["a"], ["b"]), "alpha", "slope")],
        defaults=[helper.make_attribute("slope", 0.25)],
    )
    bare = function(
        "Bare",
        ["a"],
        ["b"],
        [referring(helper.make_node("LeakyRelu", ["a"], ["b"]), "alpha", "slope")],
        attributes=["slope"],
    )
    twice = function(
        "Twice",
        ["a", "k"],
        ["b", "t"],
        [
            helper.make_node("Leak", ["a"], ["t"], domain="custom", slope=0.5),
            helper.make_node("Leak", ["t"], ["u"], domain="custom"),
            helper.make_node("Clip", ["u", "k"], ["b"]),
        ],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["p", "q"], domain="custom"),
        helper.make_node("Twice", ["x", "m"], ["r"], domain="custom"),
        helper.make_node("Bare", ["x"], ["s"], domain="custom"),
    ]
    model = model_of(
        nodes,
        [value("x", (2, 3)), value("m", ())],
        [value(n) for n in "pqrs"],
        functions=[leaky, bare, twice],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)],
    )
    leak = lambda a, slope: np.where(a < 0, a * np.float32(slope), a)
    inner = leak(X, 0.5)
    expected = {
        "p": leak(inner, 0.25),
        "q": inner,
        "r": np.maximum(leak(inner, 0.25), np.float32(-0.1)),
        "s": leak(X, 0.01),
    }
    for optimise in (False, True):
        actual = nn.run_reference(model.SerializeToString(), {"x": X, "m": np.float32(-0.1)}, optimise=optimise)
        for name in expected:
            same(actual[name], expected[name])


# --- subgraphs ----------------------------------------------------------------------------------------------


def body(nodes, inputs, outputs, initializers=()):
    return helper.make_graph(nodes, "body", list(inputs), list(outputs), list(initializers))


@pytest.mark.parametrize("condition", [True, False])
def test_if_captures(nn, condition):
    inner = helper.make_node(
        "If",
        ["c2"],
        ["t"],
        then_branch=body([helper.make_node("Add", ["x", "k"], ["i"])], [], [value("i")]),
        else_branch=body([helper.make_node("Sub", ["x", "k"], ["j"])], [], [value("j")]),
    )
    then = body([helper.make_node("Constant", [], ["k"], value_float=2.0), inner], [], [value("t")])
    otherwise = body(
        [helper.make_node("Mul", ["x", "h"], ["e"])], [], [value("e")], [numpy_helper.from_array(np.float32(3), "h")]
    )
    model = model_of(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)],
        [value("x", (2, 3)), value("c", (), BOOL), value("c2", (), BOOL)],
        [value("y")],
    )
    for second in (True, False):
        check(nn, model, {"x": X, "c": np.array(condition), "c2": np.array(second)})


def test_if_with_branches_of_different_shapes(nn):
    then = body([helper.make_node("Identity", ["x"], ["t"])], [], [value("t")])
    otherwise = body([helper.make_node("Concat", ["x", "x"], ["e"], axis=0)], [], [value("e")])
    model = model_of(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)],
        [value("x", (2, 3)), value("c", (), BOOL)],
        [value("y")],
    )
    assert nn.Model(model.SerializeToString()).outputs == [("y", "float32", [-1, 3])]
    check(nn, model, {"x": X, "c": np.array(True)})
    check(nn, model, {"x": X, "c": np.array(False)})


def loop_body(state_shape=(2, 3), growing=False):
    nodes = [
        helper.make_node("Add", ["s", "outer"], ["s1"]),
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["s1", "f"], ["scan"]),
        helper.make_node("ReduceSum", ["s1"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "limit"], ["go"]),
        (
            helper.make_node("Concat", ["s1", "outer"], ["s2"], axis=0)
            if growing
            else helper.make_node("Identity", ["s1"], ["s2"])
        ),
    ]
    return body(
        nodes,
        [value("i", (), INT64), value("k", (), BOOL), value("s", state_shape)],
        [value("go", (), BOOL), value("s2"), value("scan")],
    )


@pytest.mark.parametrize("count,limit", [(4, 1e9), (10, 30.0), (0, 1e9)])
def test_loop(nn, count, limit):
    model = model_of(
        [
            helper.make_node("Abs", ["x"], ["outer"]),
            helper.make_node("Loop", ["n", "", "x"], ["y", "z"], body=loop_body()),
        ],
        [value("x", (2, 3)), value("n", (), INT64), value("limit", ())],
        [value("y"), value("z")],
    )
    feeds = {"x": X, "n": np.int64(count), "limit": np.float32(limit)}
    if count:
        check(nn, model, feeds)
    else:
        out = nn.Model(model.SerializeToString()).run(feeds)
        same(out["y"], X)
        assert out["z"].shape[0] == 0


def test_loop_whose_state_grows(nn):
    model = model_of(
        [
            helper.make_node("Identity", ["x"], ["outer"]),
            helper.make_node(
                "Loop",
                ["n", "c", "x"],
                ["y"],
                body=body(
                    [
                        helper.make_node("Concat", ["s", "outer"], ["s2"], axis=0),
                        helper.make_node("Identity", ["k"], ["k2"]),
                    ],
                    [value("i", (), INT64), value("k", (), BOOL), value("s", (None, 3))],
                    [value("k2", (), BOOL), value("s2", (None, 3))],
                ),
            ),
        ],
        [value("x", (2, 3)), value("n", (), INT64), value("c", (), BOOL)],
        [value("y")],
    )
    assert nn.Model(model.SerializeToString()).outputs == [("y", "float32", [-1, 3])]
    check(nn, model, {"x": X, "n": np.int64(3), "c": np.array(True)})
    check(nn, model, {"x": X, "n": np.int64(3), "c": np.array(False)})


def test_loop_inside_if_inside_loop(nn):
    inner = helper.make_node(
        "Loop",
        ["three", "", "s"],
        ["t"],
        body=body(
            [helper.make_node("Add", ["a", "x"], ["a2"]), helper.make_node("Identity", ["kk"], ["kk2"])],
            [value("j", (), INT64), value("kk", (), BOOL), value("a", (2, 3))],
            [value("kk2", (), BOOL), value("a2", (2, 3))],
        ),
    )
    branch = helper.make_node(
        "If",
        ["even"],
        ["s2"],
        then_branch=body([inner], [], [value("t")]),
        else_branch=body([helper.make_node("Neg", ["s"], ["u"])], [], [value("u")]),
    )
    nodes = [
        helper.make_node("Mod", ["i", "two"], ["m"]),
        helper.make_node("Equal", ["m", "zero"], ["even"]),
        branch,
        helper.make_node("Identity", ["k"], ["k2"]),
    ]
    outer = body(
        nodes,
        [value("i", (), INT64), value("k", (), BOOL), value("s", (2, 3))],
        [value("k2", (), BOOL), value("s2", (2, 3))],
    )
    constants = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("zero", 0), ("two", 2), ("three", 3))]
    model = model_of(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=outer)],
        [value("x", (2, 3)), value("n", (), INT64)],
        [value("y")],
        constants,
    )
    check(nn, model, {"x": X, "n": np.int64(5)})


def test_scan(nn):
    scan = helper.make_node(
        "Scan",
        ["x", "a", "b"],
        ["y", "z"],
        num_scan_inputs=2,
        scan_input_axes=[0, 1],
        scan_output_axes=[1],
        scan_input_directions=[0, 1],
        body=body(
            [
                helper.make_node("Add", ["s", "p"], ["t"]),
                helper.make_node("Mul", ["t", "q"], ["t2"]),
                helper.make_node("Sub", ["t2", "w"], ["o"]),
            ],
            [value("s", (3,)), value("p", (3,)), value("q", (3,))],
            [value("t2", (3,)), value("o", (3,))],
        ),
    )
    rng = np.random.default_rng(3)
    model = model_of(
        [scan], [value("x", (3,)), value("a", (4, 3)), value("b", (3, 4)), value("w", (3,))], [value("y"), value("z")]
    )
    feeds = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in (("x", (3,)), ("a", (4, 3)), ("b", (3, 4)), ("w", (3,)))
    }
    check(nn, model, feeds)


def test_sequences(nn):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s0"]),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("SequenceInsert", ["s0", "n"], ["s1"]),
        helper.make_node("SequenceLength", ["s1"], ["length"]),
        helper.make_node("SequenceAt", ["s1", "two"], ["at"]),
        helper.make_node("ConcatFromSequence", ["s1"], ["all"], axis=1),
        helper.make_node("SplitToSequence", ["x", "parts"], ["s2"], axis=1),
    ]
    constants = [
        numpy_helper.from_array(np.array(2, np.int64), "two"),
        numpy_helper.from_array(np.array([1, 2], np.int64), "parts"),
    ]
    outputs = [
        value("length", (), INT64),
        value("at"),
        value("all"),
        helper.make_tensor_sequence_value_info("s2", FLOAT, None),
    ]
    check(nn, model_of(nodes, [value("x", (2, 3))], outputs, constants), {"x": X})


def test_loop_that_collects_a_sequence(nn):
    collect = body(
        [
            helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
            helper.make_node("Mul", ["x", "f"], ["p"]),
            helper.make_node("SequenceInsert", ["s", "p"], ["s2"]),
            helper.make_node("Identity", ["k"], ["k2"]),
        ],
        [value("i", (), INT64), value("k", (), BOOL), helper.make_tensor_sequence_value_info("s", FLOAT, None)],
        [value("k2", (), BOOL), helper.make_tensor_sequence_value_info("s2", FLOAT, None)],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["e"]),
        helper.make_node("Loop", ["n", "", "e"], ["q"], body=collect),
        helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0),
    ]
    check(nn, model_of(nodes, [value("x", (2, 3)), value("n", (), INT64)], [value("y")]), {"x": X, "n": np.int64(3)})


def test_optionals(nn):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2, 3]))
    nodes = [
        helper.make_node("Optional", ["x"], ["o"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("OptionalGetElement", ["o"], ["y"]),
        helper.make_node("Optional", [], ["none"], type=helper.make_tensor_type_proto(FLOAT, [2, 3])),
        helper.make_node("OptionalHasElement", ["none"], ["no"]),
    ]
    del kind
    model = model_of(nodes, [value("x", (2, 3))], [value("has", (), BOOL), value("y"), value("no", (), BOOL)], opset=18)
    out = nn.run_reference(model.SerializeToString(), {"x": X})
    assert out["has"] and not out["no"]
    same(out["y"], X)


# --- shapes -------------------------------------------------------------------------------------------------


def dynamic_model():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
        helper.make_node("Add", ["x", "z"], ["w"]),
    ]
    constants = [numpy_helper.from_array(np.array([0]), "zero"), numpy_helper.from_array(np.array([-1]), "rest")]
    return model_of(
        nodes,
        [value("x", ("batch", 2, "width")), value("z", ("batch", 1, 1))],
        [value("y"), value("w", ("batch", 2, "width"))],
        constants,
    )


def test_dynamic_dimensions(nn):
    model = dynamic_model()
    imported = nn.Model(model.SerializeToString())
    assert imported.outputs == [("y", "float32", [-1, -1]), ("w", "float32", [-1, 2, -1])]
    assert 'nn.dim_names = ["batch", "", "width"]' in imported.text()
    feeds = {"x": np.arange(30, dtype=np.float32).reshape(3, 2, 5), "z": np.ones((3, 1, 1), np.float32)}
    check(nn, model, feeds)
    check(nn, model, feeds, shapes={"x": [3, 2, 5]})
    fixed = nn.Model(model.SerializeToString(), {"x": [3, 2, 5]})
    assert fixed.inputs == [("x", "float32", [3, 2, 5]), ("z", "float32", [3, 1, 1])]
    assert fixed.outputs == [("y", "float32", [3, 10]), ("w", "float32", [3, 2, 5])]
    fixed.optimise()
    assert [op for _, _, op, _ in fixed.nodes()] == ["Reshape", "Add"]
    by_symbol = nn.Model(model.SerializeToString(), {"batch": [3], "width": [5]})
    assert by_symbol.outputs == fixed.outputs


def test_anonymous_dimensions_are_independent(nn):
    """Axes called "?" share no size; axes of one real name may differ, as ONNX Runtime lets them."""
    x, z = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["z"], ["w"])]
    for name in ("?", "-1", "None", "*", "n"):
        model = model_of(nodes, [value("x", (name, name)), value("z", (name, name))], [value("y"), value("w")])
        check(nn, model, {"x": x, "z": z})
        check(nn, model, {"x": x, "z": z}, shapes={"x": [2, 3], "z": [4, 3]})
        assert nn.Model(model.SerializeToString(), {"x": [2, 3]}).inputs[1] == ("z", "float32", [-1, -1])
    with pytest.raises(nn.TesseraError, match="no dimension '[?]'"):
        nn.Model(model_of(nodes[:1], [value("x", ("?", "?"))], [value("y")]).SerializeToString(), {"?": [2]})
    model = model_of(nodes[:1], [value("x", ("n", "m"))], [value("y")]).SerializeToString()
    with pytest.raises(nn.TesseraError, match="dimension 'n' is given as 4 and as 2"):
        nn.Model(model, {"n": [4], "x": [2, 3]})
    with pytest.raises(nn.TesseraError, match="dimension 'n' takes one size, 2 were given"):
        nn.Model(model, {"n": [4, 4]})


def test_observed_values_keep_their_names(nn):
    """Values of the model that survive the passes are found under their ONNX names, with their values."""
    rng = np.random.default_rng(9)
    tensors = {"w": (4, 3, 3, 3), "scale": (4,), "shift": (4,), "mean": (4,)}
    initializers = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in tensors.items()]
    initializers += [
        numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "var"),
        numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"),
    ]
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("Conv", ["p", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Abs", ["t"], ["a"]),
        helper.make_node("Transpose", ["a"], ["u"], perm=[0, 3, 1, 2]),
        helper.make_node("Div", ["u", "two"], ["y"]),
    ]
    initializers.append(numpy_helper.from_array(np.float32(2), "two"))
    model = model_of(nodes, [value("x", (1, 3, 5, 5))], [value("y")], initializers)
    x = rng.standard_normal((1, 3, 5, 5)).astype(np.float32)
    observed = model_of(nodes, [value("x", (1, 3, 5, 5))], [value(n) for n in "pcbrtauy"], initializers)
    expected = ort_run(observed, {"x": x})
    imported = nn.Model(model.SerializeToString())
    imported.optimise()
    assert [op for _, _, op, _ in imported.nodes()] == ["Conv", "Relu", "Abs", "Mul"]
    values = imported.run({"x": x}, observe=True)
    assert {"b", "r", "u", "y"} <= values.keys()
    for name, actual in values.items():
        same(actual, expected[name], 1e-5)

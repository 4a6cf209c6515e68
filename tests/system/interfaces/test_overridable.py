# SPDX-License-Identifier: Apache-2.0
"""Initializers that are inputs too: a run may give them, as with ONNX Runtime. And outputs that are declared twice."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera

onnxruntime.set_default_logger_severity(4)
FLOAT = TensorProto.FLOAT
X = np.arange(12, dtype=np.float32).reshape(1, 3, 4) - 5


def network(ir_version=8, scale_shape=(1, 3, 1)):
    """Relu(x * scale) reshaped to `shape`; both operands have a default."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Relu", ["scaled"], ["relu"]),
        helper.make_node("Reshape", ["relu", "shape"], ["y"]),
    ]
    inputs = [value("scale", FLOAT, scale_shape), value("x", FLOAT, [1, 3, 4]), value("shape", TensorProto.INT64, [2])]
    defaults = [
        numpy_helper.from_array(np.array([1, -1, 2], np.float32).reshape(1, 3, 1), "scale"),
        numpy_helper.from_array(np.array([3, 4], np.int64), "shape"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", FLOAT, None)], defaults)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = ir_version
    return model.SerializeToString()


SCALE = np.array([3, 0.5, -1], np.float32).reshape(1, 3, 1)
FEEDS = [
    {"x": X},
    {"x": X, "scale": SCALE},
    {"x": X, "shape": np.array([2, 6], np.int64)},
    {"x": X, "scale": SCALE, "shape": np.array([12, 1], np.int64)},
    {"x": X},
]


@pytest.mark.parametrize("device", ["reference", "fsim"])
@pytest.mark.parametrize("shape", [(1, 3, 1), (1, "channels", 1), None], ids=["fixed", "dynamic", "unranked"])
def test_runs_with_and_without_them(device, shape):
    content = network(scale_shape=shape)
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    session = tessera.Session(content, device)
    of = lambda s: [(port.name, port.type) for port in s.get_overridable_initializers()]
    assert of(session) == of(expected) == [("scale", "tensor(float)"), ("shape", "tensor(int64)")]
    assert [port.name for port in session.get_inputs()] == ["x"]
    for feeds in FEEDS:
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected.run(None, feeds)[0])


def test_a_binding_takes_them():
    session = tessera.Session(network())
    binding = session.io_binding()
    binding.bind_input("x", X)
    binding.bind_input("scale", session.to_device(SCALE))
    binding.bind_output("y")
    binding.run()
    np.testing.assert_array_equal(binding.get_outputs()[0], np.maximum(X * SCALE, 0).reshape(3, 4))


def test_refusals():
    with pytest.raises(tessera.Error, match=r"the model takes float32 \[1,3,1\], got float32 \[3\]") as caught:
        tessera.Session(network()).run(None, {"x": X, "scale": np.ones(3, np.float32)})
    assert caught.value.code == "invalid_argument"
    # Up to IR version 3 every initializer is listed as an input and is a constant.
    old = tessera.Session(network(ir_version=3))
    assert old.get_overridable_initializers() == []
    with pytest.raises(tessera.Error, match="no input 'scale'"):
        old.run(None, {"x": X, "scale": SCALE})


def test_an_artifact_keeps_their_values(tmp_path):
    path = tmp_path / "model.tsr"
    tessera.compile(network(), path)
    artifact = tessera.Session(path)
    assert artifact.get_overridable_initializers() == []
    assert artifact.run(None, {"x": X})[0].shape == (3, 4)


def test_weights_of_a_product(tmp_path):
    """A convolution on the NPU becomes one with weights that come at run time, and is one again."""
    rng = np.random.default_rng(3)
    value = helper.make_tensor_value_info
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "g",
        [value("x", FLOAT, [1, 3, 6, 6]), value("w", FLOAT, [4, 3, 3, 3])],
        [value("y", FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(weights, "w")],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    session, expected = tessera.Session(content), onnxruntime.InferenceSession(content)
    x = rng.standard_normal((1, 3, 6, 6)).astype(np.float32)
    for feeds in ({"x": x}, {"x": x, "w": weights[::-1].copy()}, {"x": x}):
        np.testing.assert_allclose(session.run(None, feeds)[0], expected.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


# --- outputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["reference", "fsim"])
def test_an_output_declared_twice(device, tmp_path):
    model = onnx.load_model_from_string(network())
    model.graph.output.append(model.graph.output[0])
    content = model.SerializeToString()
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    session = tessera.Session(content, device)
    names = [port.name for port in session.get_outputs()]
    assert names == [port.name for port in expected.get_outputs()] == ["y", "y"]
    for wanted in (None, ["y"], ["y", "y", "y"]):
        got, want = session.run(wanted, {"x": X}), expected.run(wanted, {"x": X})
        assert len(got) == len(want)
        for a, b in zip(got, want):
            np.testing.assert_array_equal(a, b)
    if device == "fsim":
        session.save(tmp_path / "twice.tsr")
        assert len(tessera.Session(tmp_path / "twice.tsr").run(None, {"x": X})) == 2

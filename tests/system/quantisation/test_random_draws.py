# SPDX-License-Identifier: Apache-2.0
"""Networks that draw random numbers: the distance between float and int8 is not that of two draws, and the written
model draws as the float one did."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization import measure
from tessera.quantization.forms import draws

RNG = np.random.default_rng(3)


def network(draw, dynamic):
    """A latent vector with noise of its size, and a decoder of it."""
    weights = {name: RNG.standard_normal((32, 32)).astype(np.float32) / 5 for name in ("wm", "ws", "wd")}
    rows = "rows" if dynamic else 4
    noise = {
        "RandomNormalLike": helper.make_node("RandomNormalLike", ["m"], ["e"]),
        "RandomUniformLike": helper.make_node("RandomUniformLike", ["m"], ["e"], low=-2.0, high=2.0),
        "RandomNormal": helper.make_node("RandomNormal", [], ["e"], shape=[4, 32], scale=2.0),
        "Bernoulli": helper.make_node("Bernoulli", ["p"], ["e"]),
    }[draw]
    nodes = [
        helper.make_node("MatMul", ["x", "wm"], ["m"]),
        helper.make_node("MatMul", ["x", "ws"], ["s"]),
        helper.make_node("Sigmoid", ["m"], ["p"]),
        noise,
        helper.make_node("Mul", ["e", "s"], ["es"]),
        helper.make_node("Add", ["m", "es"], ["z"]),
        helper.make_node("MatMul", ["z", "wd"], ["y"]),
    ]
    of = helper.make_tensor_value_info
    ports = [of(name, TensorProto.FLOAT, [rows, 32]) for name in "xy"]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def attributes_of(node):
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


@pytest.mark.parametrize("draw", ["RandomNormalLike", "RandomUniformLike", "RandomNormal", "Bernoulli"])
def test_distances_are_of_the_same_draws(draw):
    model = network(draw, dynamic=draw.endswith("Like"))
    samples = [{"x": RNG.standard_normal((4, 32)).astype(np.float32)} for _ in range(8)]
    made = tessera.quantize(model.SerializeToString(), samples, report=True, engine="onnxruntime")
    assert made.report["output_snr_db"] > 28 and made.macs_npu_share == 1
    of_kind = "RandomUniformLike" if draw == "Bernoulli" else draw  # by its own definition
    kept = [node for node in made.model.graph.node if node.op_type == of_kind]
    assert len(kept) == 1 and (draw == "Bernoulli" or attributes_of(kept[0]) == attributes_of(model.graph.node[3]))


def test_fixed_draws_have_the_range_and_the_moments():
    def drawn(draw):
        model = network(draw, dynamic=True)
        model.graph.output.append(helper.make_tensor_value_info("e", TensorProto.FLOAT, None))
        model.graph.output.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, None))
        session = onnxruntime.InferenceSession(
            draws.fixed(model).SerializeToString(), providers=["CPUExecutionProvider"]
        )
        x = {"x": np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)}
        first, second = session.run(["e", "p"], x), session.run(["e", "p"], x)
        assert np.array_equal(first[0], second[0])
        return first

    normal, _ = drawn("RandomNormalLike")
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02 and abs(normal).max() > 2.5
    uniform, _ = drawn("RandomUniformLike")
    assert abs(uniform.mean()) < 0.02 and -2 <= uniform.min() < -1.95 and 1.95 < uniform.max() <= 2
    ones, shares = drawn("Bernoulli")
    assert set(np.unique(ones)) == {0, 1} and abs(ones.mean() - shares.mean()) < 0.05


@pytest.mark.parametrize("draw", ["RandomNormal", "RandomUniform"])
def test_a_draw_without_operands_in_front_of_bytes(draw):
    """It ended the process: what looks for a DequantizeLinear in front of it asked for its first operand."""
    add = ["q", "s", "z", "x", "s", "z", "s", "z"]
    nodes = [
        helper.make_node(draw, [], ["r"], shape=[4, 64], name="r"),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("QLinearAdd", add, ["y"], domain="com.microsoft"),
    ]
    x, y, q = (helper.make_tensor_value_info(name, TensorProto.UINT8, [4, 64]) for name in "xyq")
    constants = [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(100), "z")]
    graph = helper.make_graph(nodes, "g", [x], [y, q], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    session = tessera.Session(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), "fsim")
    y, q = session.run(None, {"x": np.full((4, 64), 100, np.uint8)})
    assert np.array_equal(y, q) and len(np.unique(q)) > 10
    assert "npu" in {layer.placement for layer in session.stats().layers}


def test_a_model_without_draws_is_itself():
    model = onnx.load("examples/digits/digits_float.onnx")
    assert draws.fixed(model) is model


def test_tensors_that_may_be_empty_are_measured_by_one_thread(monkeypatch):
    """Several threads of ONNX Runtime ended the process where an expert of a network got no token. What the
    product asks for is looked at: sessions of tests that ask for nothing have one thread anyway."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda model, options, **others: options)
    of = helper.make_tensor_value_info
    for op, threads in (("NonZero", 1), ("Shape", 0)):
        graph = helper.make_graph(
            [helper.make_node(op, ["x"], ["y"])],
            "g",
            [of("x", TensorProto.FLOAT, ["n"])],
            [onnx.ValueInfoProto(name="y")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        assert measure.session(model).intra_op_num_threads == threads

# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear of com.microsoft, which ONNX Runtime's tools write for 4 and 16 bits below opset
21: they bound groups as ONNX's do. Reference interpreter and functional simulator = ONNX Runtime in every element."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera
from tests.oracle import oracle
from tests.system.builders import Graph

MS = "com.microsoft"
WEIGHTS = {"int4": TensorProto.INT4, "int8": TensorProto.INT8, "float": None}


def packed(graph, name, kind, shape, values):
    """An initializer of a type that NumPy may lack; its name."""
    graph.initializers.append(helper.make_tensor(name, kind, shape, values))
    return name


def pair(graph, value, scale, zero, name):
    """Q and DQ of a value; the DQ's result."""
    graph.node("QuantizeLinear", [value, scale, zero], f"{name}_q", MS)
    return graph.node("DequantizeLinear", [f"{name}_q", scale, zero], name, MS)


def quantised(op, weights, bias, activation, float_result):
    """DQ, a product by constants, Q; the product's own result is a graph output, too, where `float_result` says so."""
    g, rng = Graph(), np.random.default_rng(4)
    zero = g.constant(activation(np.iinfo(activation).max // 2 + 3))
    x_scale, y_scale, w_scale, b_scale = (g.constant(np.float32(s)) for s in (0.02, 0.03, 0.11, 0.02 * 0.11))
    x = g.input(rng.standard_normal([1, 8, 9, 9] if op == "Conv" else [5, 16]).astype(np.float32), "x")
    shape = [8, 8, 3, 3] if op == "Conv" else [16, 8]
    if weights == "float":
        w = g.constant((rng.standard_normal(shape) * 0.2).astype(np.float32))
    else:
        # From -7 on: 14 steps do not divide the 255 of a byte, so that who quantises them again is found out.
        steps = packed(g, "w", WEIGHTS[weights], shape, rng.integers(-7, 8, shape).ravel().tolist())
        w = g.node("DequantizeLinear", [steps, w_scale, packed(g, "w_zero", WEIGHTS[weights], [], [0])], "w_float", MS)
    operands = [pair(g, x, x_scale, zero, "x_float"), w]
    if bias == "float":
        operands.append(g.constant((rng.standard_normal(8) * 0.3).astype(np.float32)))
    elif bias == "int32":
        steps = [g.constant(rng.integers(-300, 300, 8).astype(np.int32)), b_scale, g.constant(np.int32(0))]
        operands.append(g.node("DequantizeLinear", steps, "b_float", MS))
    product = g.node(op, operands, "product", **({"pads": [1] * 4} if op == "Conv" else {}))
    y = pair(g, product, y_scale, zero, "y")
    model = g.finish(*([y, product] if float_result else [y]))
    model.ir_version = 10  # that of int4
    return model, g.feeds


def same_as_onnxruntime(model, feeds):
    data = model.SerializeToString()
    want = oracle.run(model, feeds, intermediates=False).outputs
    for device in ("reference", "fsim"):
        session = tessera.Session(data, device, "npu64")
        for info, got in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            assert np.array_equal(got, want[info.name]), (device, info.name)


# No tool dequantises a bias beside float weights.
OPERANDS = [(w, b) for w in WEIGHTS for b in ("none", "float", "int32") if (w, b) != ("float", "int32")]


@pytest.mark.parametrize("float_result", [False, True], ids=["quantised", "float"])
@pytest.mark.parametrize(("weights", "bias"), OPERANDS)
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_product(op, weights, bias, float_result):
    same_as_onnxruntime(*quantised(op, weights, bias, np.uint8, float_result))


@pytest.mark.parametrize("bias", ["none", "float"])
def test_float_weights_beside_sixteen_bits(bias):
    same_as_onnxruntime(*quantised("Conv", "float", bias, np.uint16, False))


def test_the_scalar_of_a_where():
    g, rng = Graph(), np.random.default_rng(5)
    scale, zero = g.constant(np.float32(0.02)), g.constant(np.uint16(32771))
    x = g.input(rng.standard_normal([4, 9]).astype(np.float32), "x")
    keep = g.constant(rng.integers(0, 2, [4, 9]).astype(bool))
    chosen = g.node("Where", [keep, pair(g, x, scale, zero, "x_float"), g.constant(np.float32(-3.0))], "chosen")
    same_as_onnxruntime(g.finish(pair(g, chosen, scale, zero, "y")), g.feeds)

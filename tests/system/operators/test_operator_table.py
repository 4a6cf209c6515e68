# SPDX-License-Identifier: Apache-2.0
"""Operators one by one: a model for each row of the table of docs/operators.md, on the part that the row names, and
products in front of float operators. The oracle is ONNX Runtime, and the reference interpreter."""

import numpy as np
import pytest
from onnx import helper

import tessera
from tests.system.builders import MS
from tests.system.conftest import ROOT
from tests.system.operators.test_npu_operators import Network, check


class Case(Network):
    """One operator behind a convolution, with fixed parameters that hold no luck: scales of 24 bits unless told
    otherwise."""

    def __init__(self, shape=(1, 8, 12, 12), opset=17):
        super().__init__(11, opset)
        self.dtype = np.int8
        self.x = self.conv(self.source(list(shape)), shape[1]) if len(shape) > 2 else self.source(list(shape))
        self.own = [self.constant(np.float32(0.043)), self.constant(np.int8(-3))]
        self.dyadic = [self.constant(np.float32(2.0**-4)), self.constant(np.int8(-3))]
        self.other = [self.constant(np.float32(0.057)), self.constant(np.int8(7))]

    def quantised(self, op_type, *operands, like=None, to=None, others=(), **attributes):
        """DQ of each operand (bytes) with `like`, the operator, Q with `to`; the model."""
        like = like or self.own
        inputs = [
            self.op("DequantizeLinear", [o, *like], self.shape.get(o, []))
            if isinstance(o, str)
            else self.op(
                "DequantizeLinear",
                [self.constant(o), self.constant(np.float32(2.0**-6)), self.constant(np.int8(0))],
                o.shape,
            )
            for o in operands
        ]
        y = self.op(op_type, [*inputs, *others], [], **attributes)
        return self.last("QuantizeLinear", [y, *(to or like)])

    def last(self, op_type, inputs, domain="", **attributes):
        self.node(op_type, inputs, "y", domain, **attributes)
        return self.finish("y")


def weights(*shape):
    return np.random.default_rng(3).integers(-90, 90, shape).astype(np.int8)


def second(g, *shape):
    return g.source(list(shape) or g.shape[g.x], "x2")


def shuffled(g):
    y = g.reshape(g.x, [1, 2, 4, 12, 12])
    y = g.op("Transpose", [y], [1, 4, 2, 12, 12], perm=[0, 2, 1, 3, 4])
    return g.last("Reshape", [y, g.ints(1, 8, 12, 12)])


def turned(g):
    y = g.op("Transpose", [g.x], [1, 12, 12, 8], perm=[0, 2, 3, 1])
    y = g.op("Unsqueeze", [g.op("Squeeze", [g.op("Flatten", [y], [1, 1152]), g.ints(0)], [1152]), g.ints(0)], [1, 1152])
    return g.last("Reshape", [y, g.ints(1, 16, 72)])


def integer_products(g):
    y = g.op("ConvInteger", [g.x, g.constant(weights(4, 8, 1, 1)), g.constant(np.int8(3))], [1, 4, 12, 12])
    y = g.op("Add", [y, g.constant(np.full((1, 4, 1, 1), 77, np.int32))], [1, 4, 12, 12])
    return g.last("QuantizeLinear", [g.op("DequantizeLinear", [y, g.constant(np.float32(2.0**-9))], []), *g.dyadic])


def concatenated(g):
    return g.last("QLinearConcat", [*g.own, g.x, *g.own, second(g), *g.other], MS, axis=1)


def split_in_two(g):
    g.nodes.append(helper.make_node("Split", [g.x, g.ints(3, 5)], ["y", "z"], name="split", axis=1))
    return g.finish("y", "z")


window = dict(kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
scales = lambda g, *v: ["", g.constant(np.array(v, np.float32))]
CASES = {
    "Conv": lambda g: g.quantised("Conv", g.x, weights(6, 8, 3, 3), to=g.other),
    "Conv, 3-D": lambda g: g.quantised("Conv", second(g, 1, 2, 3, 4, 5), weights(3, 2, 2, 1, 3), to=g.other),
    "ConvTranspose, power-of-two scales": lambda g: g.quantised(
        "ConvTranspose", g.x, weights(8, 6, 3, 3), like=g.dyadic, strides=[2, 2]
    ),
    "ConvTranspose, 3-D, power-of-two scales": lambda g: g.quantised(
        "ConvTranspose", second(g, 1, 4, 3, 4, 5), weights(4, 3, 2, 2, 3), like=g.dyadic, strides=[2, 2, 1]
    ),
    "ConvTranspose, other scales": lambda g: g.quantised("ConvTranspose", g.x, weights(8, 6, 3, 3), strides=[2, 2]),
    "MatMul, constant operand": lambda g: g.quantised("MatMul", g.x, weights(8, 12, 5), to=g.other),
    "MatMul, two activations": lambda g: g.quantised("MatMul", g.x, second(g), to=g.other),
    "Einsum, power-of-two scales": lambda g: g.quantised(
        "Einsum", g.x, second(g), like=g.dyadic, equation="bchw,bcvw->bchv"
    ),
    "Einsum, other scales": lambda g: g.quantised("Einsum", g.x, second(g), to=g.other, equation="bchw,bcvw->bchv"),
    "Gemm": lambda g: g.quantised("Gemm", second(g, 9, 4), weights(5, 9), to=g.other, transA=1, transB=1),
    "ConvInteger, MatMulInteger": integer_products,
    "Add": lambda g: g.quantised("Add", g.x, second(g), to=g.other),
    "Mul": lambda g: g.quantised("Mul", g.x, second(g, 1, 8, 1, 1), to=g.other),
    "Sub": lambda g: g.quantised("Sub", g.x, second(g), to=g.other),
    "Max": lambda g: g.quantised("Max", g.x, second(g), to=g.other),
    "Div": lambda g: g.quantised("Div", g.x, second(g), to=g.other),
    "Relu, Clip, Sigmoid, Tanh, HardSwish and other unary chains": lambda g: g.quantised("HardSwish", g.x, to=g.other),
    "PRelu, Mul, Add with a constant for each channel": lambda g: g.quantised(
        "PRelu", g.x, others=[g.constant(np.full((8, 1, 1), 0.1, np.float32))]
    ),
    "MaxPool": lambda g: g.quantised("MaxPool", g.x, to=g.other, **window),
    "GlobalMaxPool": lambda g: g.quantised("GlobalMaxPool", g.x),
    "ReduceMax": lambda g: g.quantised("ReduceMax", g.x, axes=[2, 3]),
    "ReduceMin": lambda g: g.quantised("ReduceMin", g.x, axes=[2, 3]),
    "AveragePool, 3x3": lambda g: g.quantised("AveragePool", g.x, count_include_pad=1, **window),
    "AveragePool, 2x2 of equal scales": lambda g: g.quantised("AveragePool", g.x, kernel_shape=[2, 2], strides=[2, 2]),
    "GlobalAveragePool": lambda g: g.quantised("GlobalAveragePool", g.x, to=g.other),
    "ReduceMean, power-of-two scales": lambda g: g.quantised("ReduceMean", g.x, like=g.dyadic, axes=[2, 3]),
    "ReduceMean, other scales": lambda g: g.quantised("ReduceMean", g.x, to=g.other, axes=[2, 3]),
    "Concat": concatenated,
    "Split": split_in_two,
    "Slice": lambda g: g.last("Slice", [g.x, g.ints(1, 3), g.ints(7, 11), g.ints(1, 2), g.ints(2, 3)]),
    "Slice, reversed": lambda g: g.last("Slice", [g.x, g.ints(-1), g.ints(-20), g.ints(2), g.ints(-1)]),
    "Pad": lambda g: g.last("Pad", [g.x, g.ints(0, 1, 2, 0, 0, 0, 1, 3), g.constant(np.int8(5))]),
    "Reshape, Transpose, Squeeze, Unsqueeze, Flatten": turned,
    "Channel shuffle": shuffled,
    "DepthToSpace": lambda g: g.last("DepthToSpace", [g.x], blocksize=2, mode="CRD"),
    "SpaceToDepth": lambda g: g.last("SpaceToDepth", [g.x], blocksize=2),
    "Resize, nearest": lambda g: g.last("Resize", [g.x, *scales(g, 1, 1, 2, 1.5)], mode="nearest"),
    "Resize, linear": lambda g: g.quantised("Resize", g.x, others=scales(g, 1, 1, 2, 2), mode="linear"),
    "Gather, constant indices": lambda g: g.last("Gather", [g.x, g.ints(3, 0, 5, 1)], axis=1),
    "Expand": lambda g: g.last(
        "Expand", [g.op("Slice", [g.x, g.ints(0), g.ints(1), g.ints(1)], [1, 1, 12, 12]), g.ints(1, 3, 12, 12)]
    ),
    "Tile": lambda g: g.last("Tile", [g.x, g.ints(1, 2, 1, 3)]),
    "Softmax": lambda g: g.quantised("Softmax", g.x, to=[g.constant(np.float32(1 / 256)), g.constant(np.int8(-128))]),
    "LayerNormalization": lambda g: g.quantised(
        "LayerNormalization", g.x, others=[g.constant(np.ones(12, np.float32))]
    ),
    "ArgMax": lambda g: g.last("ArgMax", [g.x], axis=1),
}


def table_of_operators():
    """case -> where, from the documentation."""
    rows = {}
    for line in (ROOT / "docs" / "operators.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            rows[cells[0].strip("`")] = cells[1]
    return rows


@pytest.mark.parametrize("case", CASES)
def test_the_table_of_operators(case, configs):
    where = table_of_operators()
    assert set(where) == set(CASES), "docs/operators.md and the cases of this test differ"
    g = Case()
    model = CASES[case](g)
    # Drop the convolution in front where the case does not read it.
    used = {name for node in g.nodes for name in node.input}
    keep = [node for node in model.graph.node if any(o in used or o in ("y", "z") for o in node.output)]
    del model.graph.node[:]
    model.graph.node.extend(keep)
    exact = case not in (
        "LayerNormalization",
        "ReduceMean, other scales",
        "ConvTranspose, other scales",
        "Einsum, other scales",
    )
    npu, cpu = check(model, g.feeds, case, configs, exact=exact)
    assert ("CPU" if cpu else "NPU") == where[case], f"{npu} nodes on the NPU, {cpu} on the CPU"


@pytest.mark.parametrize("op_type", ["Conv", "Conv, 3-D", "ConvTranspose", "Gemm"])
def test_close_products_in_front_of_float_operators(op_type, configs):
    """Quantisers for TensorRT leave what stands between a product and the next operand in float. Its bytes depend on
    the order of a float sum; with close numerics the product runs on the NPU, and they are those of the exact sum."""
    shape, kernel, axis = {
        "Conv": ((1, 8, 9, 9), (6, 8, 3, 3), 0),
        "Conv, 3-D": ((1, 3, 4, 5, 6), (6, 3, 2, 3, 1), 0),
        "ConvTranspose": ((1, 8, 5, 5), (8, 6, 2, 2), 1),
        "Gemm": ((9, 16), (6, 16), 0),
    }[op_type]
    g = Case(shape)
    x = g.op("DequantizeLinear", [g.source(list(shape), "x2"), *g.own], list(shape))
    scale = g.constant(np.linspace(0.003, 0.007, 6, dtype=np.float32))
    w = [g.constant(weights(*kernel)), scale, g.constant(np.zeros(6, np.int8))]
    w = g.op("DequantizeLinear", w, list(kernel), axis=axis)
    bias = g.constant(np.linspace(-1, 1, 6, dtype=np.float32))
    y = g.op(op_type.split(",")[0], [x, w, bias], [], **({"transB": 1} if op_type == "Gemm" else {}))
    y = g.op("Mul", [y, g.op("Sigmoid", [y], [])], [])
    model = g.last("QuantizeLinear", [y, g.constant(np.float32(0.11)), g.constant(np.int8(-20))])
    first = [node for node in model.graph.node if g.x in node.output]  # the convolution that `Case` puts in front
    for node in first:
        model.graph.node.remove(node)
    check(model, g.feeds, op_type, configs, numerics="close")
    share = lambda numerics: (
        tessera.Session(model.SerializeToString(), "fsim", configs[-1], numerics=numerics).info().macs_npu_share
    )
    assert share("exact") == 0 and share("close") == 1


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_products_with_float_results(op_type, configs):
    """A last layer that nothing quantises: the integer product on the NPU, its conversion on the CPU, bit for bit."""
    g = Case((9, 16))
    shape = (16, 5) if op_type == "MatMul" else (5, 16)
    scale = g.constant(np.linspace(0.003, 0.007, 5, dtype=np.float32))
    x = g.op("DequantizeLinear", [g.x, *g.own], [9, 16])
    w = [g.constant(weights(*shape)), scale, g.constant(np.zeros(5, np.int8))]
    w = g.op("DequantizeLinear", w, list(shape), axis=1 if op_type == "MatMul" else 0)
    model = g.last(op_type, [x, w], **({} if op_type == "MatMul" else {"transB": 1}))
    npu, _ = check(model, g.feeds, op_type, configs)
    assert npu > 0 and tessera.Session(model.SerializeToString(), "fsim", configs[-1]).info().macs_npu_share == 1.0

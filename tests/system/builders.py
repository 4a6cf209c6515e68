# SPDX-License-Identifier: Apache-2.0
"""Random quantised models of one or a few operators, in QOperator and QDQ form, with inputs that reach the hard cases:
scales that are powers of two (ties by construction), zero points at the ends of the range, prime extents, channel
counts beside the block sizes."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
CODE = {
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int32): TensorProto.INT32,
}


class Graph:
    """Collects nodes, initialisers and inputs; `finish` makes a checked model."""

    def __init__(self, opset=13):
        self.nodes, self.initializers, self.inputs, self.outputs, self.opset = [], [], [], [], opset
        self.feeds = {}

    def constant(self, array, name=None):
        name = name or f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def input(self, array, name):
        self.inputs.append(helper.make_tensor_value_info(name, CODE[array.dtype], array.shape))
        self.feeds[name] = array
        return name

    def node(self, op_type, inputs, output, domain="", **attributes):
        self.nodes.append(
            helper.make_node(op_type, inputs, [output], name=f"{output}_{op_type}", domain=domain, **attributes)
        )
        return output

    def finish(self, *outputs):
        graph = helper.make_graph(
            self.nodes, "random", self.inputs, [onnx.ValueInfoProto(name=name) for name in outputs], self.initializers
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def zero_point(rng, dtype):
    info = np.iinfo(dtype)
    middle = 0 if info.min < 0 else 128
    return np.array(rng.choice([info.min, info.max, middle, int(rng.integers(info.min, info.max + 1))]), dtype)


def scale(rng, dyadic, low=-5.0, high=-1.0):
    exponent = rng.uniform(low, high)
    return np.float32(2.0 ** round(exponent)) if dyadic else np.float32(2.0**exponent)


def values(rng, dtype, shape):
    info = np.iinfo(dtype)
    if rng.random() < 0.1:  # extremes only: the largest accumulators
        return rng.choice(np.array([info.min, info.max], dtype), shape)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def random_convolution(seed):
    """(model, feeds, description) of one QLinearConv."""
    rng = np.random.default_rng(seed)
    one_dimensional = rng.random() < 0.15
    spatial = 1 if one_dimensional else 2
    kind = rng.choice(["dense", "dense", "dense", "depthwise", "groups"])
    channels = int(rng.choice([1, 3, 17, 31, 257], p=[0.2, 0.25, 0.25, 0.2, 0.1]))
    batch = int(rng.choice([1, 1, 3]))
    primes = [1, 2, 3, 5, 7, 11, 13, 17, 19, 23] if channels < 257 else [1, 2, 3, 5, 7]
    extent = [int(rng.choice(primes)) for _ in range(spatial)]
    if kind == "depthwise":
        groups = channels
        per_group, out = 1, channels * int(rng.choice([1, 1, 1, 2]))
    elif kind == "groups":
        groups = int(rng.choice([2, 3, 5]))
        per_group = int(rng.choice([1, 3, 4, 17]))
        channels, out = groups * per_group, groups * int(rng.choice([1, 2, 5, 16]))
    else:
        groups, per_group, out = 1, channels, int(rng.choice([1, 3, 16, 17, 33, 64]))
    kernel = [int(rng.choice([1, 1, 2, 3, 3, 5, 7])) for _ in range(spatial)]
    stride = [int(rng.choice([1, 1, 2, 3, 5])) for _ in range(spatial)]
    dilation = [int(rng.choice([1, 1, 1, 2, 3])) for _ in range(spatial)]
    before = [int(rng.integers(0, k + 1)) for k in kernel]
    after = [int(rng.integers(0, k + 1)) for k in kernel]
    for i in range(spatial):  # a kernel may be larger than the image as long as padding makes up for it
        reach = (kernel[i] - 1) * dilation[i] + 1
        short = reach - (extent[i] + before[i] + after[i])
        if short > 0:
            before[i] += short // 2
            after[i] += short - short // 2
    x_type = rng.choice([np.uint8, np.int8])
    w_type = np.int8 if x_type == np.int8 or rng.random() < 0.7 else np.uint8
    per_channel = rng.random() < 0.6
    dyadic = rng.random() < 0.3
    weight_zero = np.zeros(out if per_channel else (), w_type)
    if rng.random() < 0.3 and not per_channel:
        weight_zero = zero_point(rng, w_type)
    elif w_type == np.uint8:
        weight_zero = np.full(out if per_channel else (), 128, w_type)
    g = Graph()
    x = g.input(values(rng, x_type, [batch, channels, *extent]), "x")
    weight = values(rng, w_type, [out, per_group, *kernel])
    w_scale = np.array([scale(rng, dyadic) for _ in range(out)], np.float32) if per_channel else scale(rng, dyadic)
    y_zero = zero_point(rng, x_type)
    reduction = per_group * int(np.prod(kernel))
    x_scale = scale(rng, dyadic)
    y_scale = np.float32(x_scale * np.mean(w_scale) * max(1.0, np.sqrt(reduction)) * 2.0 ** float(rng.integers(3, 8)))
    if dyadic:
        y_scale = np.float32(2.0 ** np.round(np.log2(y_scale)))
    operands = [
        x,
        g.constant(x_scale),
        g.constant(zero_point(rng, x_type)),
        g.constant(weight),
        g.constant(w_scale),
        g.constant(weight_zero),
        g.constant(y_scale),
        g.constant(y_zero),
    ]
    if rng.random() < 0.6:
        operands.append(g.constant(rng.integers(-20000, 20000, out).astype(np.int32)))
    g.node(
        "QLinearConv",
        operands,
        "y",
        kernel_shape=kernel,
        strides=stride,
        dilations=dilation,
        pads=before + after,
        group=groups,
    )
    text = (
        f"seed {seed}: {x_type.__name__} [{batch},{channels},{extent}] {kind} groups {groups} -> {out}, "
        f"{w_type.__name__} kernel {kernel} stride {stride} "
        f"dilation {dilation} pads {before}+{after} per_channel {per_channel} dyadic {dyadic}"
    )
    return g.finish("y"), g.feeds, text


def random_matmul(seed):
    rng = np.random.default_rng(seed)
    x_type = rng.choice([np.uint8, np.int8])
    w_type = np.int8 if x_type == np.int8 or rng.random() < 0.7 else np.uint8
    k, n = int(rng.choice([1, 3, 16, 31, 64, 257, 1031])), int(rng.choice([1, 10, 16, 33, 130]))
    lead = [int(v) for v in rng.choice([1, 2, 5, 17], size=int(rng.integers(1, 4)))]
    per_column = rng.random() < 0.5
    dyadic = rng.random() < 0.3
    g = Graph()
    gemm = rng.random() < 0.4
    if gemm:
        lead = lead[:1]
    x = g.input(values(rng, x_type, [*lead, k]), "x")
    transposed = gemm and rng.random() < 0.5
    w = values(rng, w_type, [n, k] if transposed else [k, n])
    w_scale = np.array([scale(rng, dyadic) for _ in range(n)], np.float32) if per_column else scale(rng, dyadic)
    w_zero = (
        np.zeros(n if per_column else (), w_type)
        if w_type == np.int8
        else np.full(n if per_column else (), 121, w_type)
    )
    x_scale = scale(rng, dyadic)
    y_scale = np.float32(x_scale * np.mean(w_scale) * np.sqrt(k) * 2.0 ** float(rng.integers(3, 8)))
    triple = [
        x,
        g.constant(x_scale),
        g.constant(zero_point(rng, x_type)),
        g.constant(w),
        g.constant(w_scale),
        g.constant(w_zero),
    ]
    if gemm:
        bias = g.constant(rng.integers(-9999, 9999, n).astype(np.int32)) if rng.random() < 0.7 else ""
        g.node(
            "QGemm",
            [*triple, bias, g.constant(y_scale), g.constant(zero_point(rng, x_type))],
            "y",
            domain=MS,
            transB=int(transposed),
            alpha=1.0,
        )
    else:
        g.node("QLinearMatMul", [*triple, g.constant(y_scale), g.constant(zero_point(rng, x_type))], "y")
    return (
        g.finish("y"),
        g.feeds,
        f"seed {seed}: {'QGemm' if gemm else 'QLinearMatMul'} {x_type.__name__} {lead}x{k} by {w_type.__name__} "
        f"{k}x{n} transposed {transposed}",
    )


def random_pointwise(seed):
    """Add and mul of two tensors (same shape or broadcast), chains of tables, concatenations."""
    rng = np.random.default_rng(seed)
    dtype = rng.choice([np.uint8, np.int8])
    dyadic = rng.random() < 0.4
    rank = int(rng.choice([2, 3, 4, 4, 4]))
    shape = [int(v) for v in rng.choice([1, 2, 3, 5, 7, 17, 31], size=rank)]
    g = Graph()
    triple = lambda name: [name, g.constant(scale(rng, dyadic)), g.constant(zero_point(rng, dtype))]
    pair = lambda: [g.constant(scale(rng, dyadic, -4, 0)), g.constant(zero_point(rng, dtype))]
    kind = rng.choice(["add", "mul", "leaky", "sigmoid", "concat", "chain"])
    a = g.input(values(rng, dtype, shape), "a")
    if kind in ("add", "mul"):
        other = list(shape)
        if rng.random() < 0.4:
            for i in range(rank):
                if rng.random() < 0.5:
                    other[i] = 1
        b = g.input(values(rng, dtype, other), "b") if rng.random() < 0.7 else g.constant(values(rng, dtype, other))
        operands = triple(a) + triple(b)
        if rng.random() < 0.5:
            operands = operands[3:] + operands[:3]
        g.node("QLinearAdd" if kind == "add" else "QLinearMul", operands + pair(), "y", domain=MS)
    elif kind == "leaky":
        g.node("QLinearLeakyRelu", triple(a) + pair(), "y", domain=MS, alpha=float(rng.uniform(0.01, 0.4)))
    elif kind == "sigmoid":
        g.node("QLinearSigmoid", triple(a) + pair(), "y", domain=MS)
    elif kind == "concat":
        axis = int(rng.integers(0, rank))
        parts = [a]
        for i in range(int(rng.integers(1, 4))):
            other = list(shape)
            other[axis] = int(rng.choice([1, 2, 5, 16]))
            parts.append(g.input(values(rng, dtype, other), f"b{i}"))
        g.node("QLinearConcat", pair() + [name for part in parts for name in triple(part)], "y", domain=MS, axis=axis)
    else:
        # DequantizeLinear -> elementwise float -> QuantizeLinear: one table
        x = g.node("DequantizeLinear", triple(a), "f0")
        for i, op in enumerate(
            rng.choice(["Relu", "Tanh", "HardSigmoid", "Abs", "Neg", "Elu", "Softplus"], size=int(rng.integers(1, 4)))
        ):
            x = g.node(str(op), [x], f"f{i + 1}")
        g.node("QuantizeLinear", [x, *pair()], "y")
    return g.finish("y"), g.feeds, f"seed {seed}: {kind} {np.dtype(dtype).name} {shape}"


def random_pool(seed):
    rng = np.random.default_rng(seed)
    dtype = rng.choice([np.uint8, np.int8])
    spatial = int(rng.choice([1, 2, 2, 2]))
    shape = [int(rng.choice([1, 1, 3])), int(rng.choice([1, 3, 17, 33]))] + [
        int(v) for v in rng.choice([3, 5, 7, 13, 19], size=spatial)
    ]
    g = Graph()
    x = g.input(values(rng, dtype, shape), "x")
    if rng.random() < 0.7:
        kernel = [int(v) for v in rng.choice([1, 2, 3], size=spatial)]
        pads = [int(rng.integers(0, k)) for k in kernel] + [int(rng.integers(0, k)) for k in kernel]
        strides = [int(v) for v in rng.choice([1, 2, 3], size=spatial)]
        ceil = int(rng.random() < 0.4)
        g.node("MaxPool", [x], "y", kernel_shape=kernel, pads=pads, strides=strides, ceil_mode=ceil)
        text = f"max pool kernel {kernel} pads {pads} strides {strides} ceil {ceil}"
    else:
        pair = lambda: [g.constant(scale(rng, False)), g.constant(zero_point(rng, dtype))]
        g.node("QLinearGlobalAveragePool", [x, *pair(), *pair()], "y", domain=MS)
        text = "global average pool"
    return g.finish("y"), g.feeds, f"seed {seed}: {text} {np.dtype(dtype).name} {shape}"

# SPDX-License-Identifier: Apache-2.0
"""Quantised ONNX models for tests, all from seeds: one operator at a time (`random_conv`, `random_matmul`, ...) and
graphs of many (`random_graph`), each in QDQ form (DequantizeLinear -> operator -> QuantizeLinear) or QOperator form
(QLinearConv, ...). A model takes fp32 inputs, quantises them first and dequantises its results, and comes with feeds
that use the whole quantised range."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.oracle.oracle import onnx_type

MS = "com.microsoft"
F32 = np.float32
TYPES = {"u8": np.uint8, "s8": np.int8}


@dataclasses.dataclass
class Quantized:
    """A quantised tensor in a graph: its name, parameters, element type and shape."""

    name: str
    scale: float
    zero: int
    dtype: type
    shape: tuple

    @property
    def lowest(self) -> float:
        return self.scale * (np.iinfo(self.dtype).min - self.zero)

    @property
    def highest(self) -> float:
        return self.scale * (np.iinfo(self.dtype).max - self.zero)


@dataclasses.dataclass
class Case:
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    name: str


class Builder:
    """Collects nodes of a graph. `form` is 'qdq' or 'qop'. Options of the style of a model: `zero_points` off omits
    zero points of value 0, `vector_parameters` makes scales and zero points vectors of one element."""

    def __init__(self, seed, *, form="qdq", opset=13, dtype="u8", zero_points=True, vector_parameters=False):
        self.rng = np.random.default_rng(seed)
        self.form, self.opset, self.dtype = form, opset, TYPES[dtype]
        self.zero_points, self.vector_parameters = zero_points, vector_parameters
        self.nodes, self.inputs, self.outputs, self.initializers, self.feeds = [], [], [], [], {}
        self.count = 0

    # --- plain ONNX
    # ----------------------------------------------------------------------------------------------------------

    def fresh(self, prefix) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    def constant(self, array, prefix="c") -> str:
        name = self.fresh(prefix)
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op_type, inputs, outputs=1, domain="", **attributes):
        names = [self.fresh(op_type.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def input(self, array, prefix="x") -> str:
        name = self.fresh(prefix)
        self.inputs.append(helper.make_tensor_value_info(name, onnx_type(array), array.shape))
        self.feeds[name] = array
        return name

    def output(self, name, shape) -> None:
        if name not in [value.name for value in self.outputs]:
            self.outputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))

    def build(self, name="graph") -> Case:
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)], ir_version=9
        )
        return Case(model, self.feeds, name)

    # --- quantisation
    # ----------------------------------------------------------------------------------------------------------

    def parameters(self, q: Quantized, optional=True) -> list[str]:
        shape = (1,) if self.vector_parameters else ()
        names = [self.constant(np.full(shape, q.scale, F32), "scale")]
        if q.zero != 0 or self.zero_points or not optional or q.dtype != np.uint8:
            names.append(self.constant(np.full(shape, q.zero, q.dtype), "zero"))
        return names

    def quantize(self, value: str, like: Quantized) -> Quantized:
        return dataclasses.replace(like, name=self.node("QuantizeLinear", [value, *self.parameters(like)]))

    def dequantize(self, q: Quantized) -> str:
        return self.node("DequantizeLinear", [q.name, *self.parameters(q)])

    def triple(self, q: Quantized) -> list[str]:
        return [q.name, *self.parameters(q, optional=False)]

    def choose(self, shape, *, span=None, dtype=None) -> Quantized:
        """Parameters for a tensor of the given shape: dyadic in two of five cases, zero points often at an end or the
        middle."""
        dtype = dtype or self.dtype
        info = np.iinfo(dtype)
        zero = int(
            self.rng.choice(
                [info.min, info.max, (info.min + info.max + 1) // 2, int(self.rng.integers(info.min, info.max + 1))]
            )
        )
        scale = span / 255 if span else float(np.exp(self.rng.uniform(-5, -2)))
        if self.rng.random() < 0.4:
            scale = 2.0 ** round(np.log2(scale))
        return Quantized("", float(F32(scale)), zero, dtype, tuple(shape))

    def activation(self, shape, like=None) -> Quantized:
        """A quantised graph input whose feed covers the range and a little more."""
        q = like or self.choose(shape)
        x = self.rng.uniform(q.lowest - 3 * q.scale, q.highest + 3 * q.scale, shape).astype(F32)
        return self.quantize(self.input(x), q)

    def result(self, q: Quantized) -> None:
        self.output(self.dequantize(q), q.shape)

    def int_weights(self, shape, dtype, *, per_channel_axis=None, zero=0):
        """An integer constant with parameters, as (name, scale name, zero name, scales)."""
        info = np.iinfo(dtype)
        w = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        count = () if per_channel_axis is None else (shape[per_channel_axis],)
        scale = np.exp(self.rng.uniform(-6, -4, count)).astype(F32)
        return (
            self.constant(w, "w"),
            self.constant(scale, "w_scale"),
            self.constant(np.full(count, zero, dtype), "w_zero"),
            scale,
        )

    def weights_dq(self, parts, axis) -> str:
        name, scale, zero, values = parts
        attributes = {"axis": axis} if values.ndim else {}
        return self.node("DequantizeLinear", [name, scale, zero], **attributes)

    def bias(self, count, x_scale, w_scale, kind):
        """'none', 'float' (a constant), 'dq' (int32 with scale x*w); returns (QDQ operand or None, int32 name or
        None)."""
        if kind == "none":
            return None, None
        scale = (F32(x_scale) * w_scale).astype(F32)
        b = self.rng.integers(-3000, 3000, count).astype(np.int32)
        name = self.constant(b, "bias")
        if self.form == "qop":
            return None, name
        if kind == "float":
            return self.constant((b * scale).astype(F32) * F32(1.0 + 1e-3), "bias"), None
        attributes = {"axis": 0} if scale.ndim else {}
        zero = self.constant(np.zeros(scale.shape, np.int32), "b_zero")
        return self.node("DequantizeLinear", [name, self.constant(scale, "b_scale"), zero], **attributes), name

    # --- operators: quantised in, quantised out
    # ----------------------------------------------------------------------------------------------------------

    def conv(
        self,
        x: Quantized,
        filters,
        kernel,
        *,
        group=1,
        strides=None,
        pads=None,
        dilations=None,
        auto_pad=None,
        weight="s8",
        w_zero=0,
        per_channel=False,
        bias="float",
        activation=None,
        out: Quantized | None = None,
    ) -> Quantized:
        """activation: None, 'relu' or 'clip6' (QDQ only; the result's range then makes it redundant)."""
        axes = len(kernel)
        w_shape = (filters, x.shape[1] // group, *kernel)
        attributes = {"kernel_shape": list(kernel), "group": group}
        strides, dilations, pads = strides or [1] * axes, dilations or [1] * axes, pads or [0] * 2 * axes
        attributes["strides"] = strides
        if auto_pad:
            attributes["auto_pad"] = auto_pad
        else:
            attributes.update(pads=pads, dilations=dilations)
        extents = []
        for i, e in enumerate(x.shape[2:]):
            span = dilations[i] * (kernel[i] - 1) + 1 if not auto_pad else kernel[i]
            same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
            extents.append(-(-e // strides[i]) if same else (e + pads[i] + pads[i + axes] - span) // strides[i] + 1)
        shape = (x.shape[0], filters, *extents)
        w = self.int_weights(w_shape, TYPES[weight], per_channel_axis=0 if per_channel else None, zero=w_zero)
        if out is None:
            span = 4 * (x.highest - x.lowest) * float(np.mean(w[3])) * 74 * np.sqrt(np.prod(w_shape[1:]))
            out = self.choose(shape, span=span)
        out = dataclasses.replace(out, shape=shape)
        if activation and not self.zero_points:
            activation = None  # the oracle's optimiser refuses a redundant activation before a Q without zero point
        if activation:
            out = dataclasses.replace(out, zero=int(np.iinfo(out.dtype).min))
        b, b_name = self.bias(filters, x.scale, w[3], bias)
        if self.form == "qop":
            inputs = [*self.triple(x), *w[:3], *self.parameters(out, optional=False)] + ([b_name] if b_name else [])
            return dataclasses.replace(out, name=self.node("QLinearConv", inputs, **attributes))
        y = self.node("Conv", [self.dequantize(x), self.weights_dq(w, 0)] + ([b] if b else []), **attributes)
        if activation == "relu":
            y = self.node("Relu", [y])
        elif activation == "clip6":
            y = self.node("Clip", [y, self.constant(F32(0)), self.constant(F32(max(out.highest, 0.0)))])
        return self.quantize(y, out)

    def matmul(
        self, a: Quantized, b_shape, *, weight="s8", per_channel=False, b: Quantized | None = None, out=None
    ) -> Quantized:
        """a times a constant, or times the quantised tensor b."""
        shape = np.matmul(np.zeros(a.shape), np.zeros(b_shape)).shape
        if b is None:
            w = self.int_weights(
                b_shape,
                TYPES[weight],
                per_channel_axis=len(b_shape) - 1 if per_channel else None,
                zero=int(self.rng.integers(-3, 4)) if weight == "s8" else 120,
            )
            step = float(np.mean(w[3])) * 74
        else:
            step = (b.highest - b.lowest) * 0.3
        out = out or self.choose(shape, span=3 * (a.highest - a.lowest) * step * np.sqrt(a.shape[-1]))
        out = dataclasses.replace(out, shape=shape)
        if self.form == "qop":
            right = list(w[:3]) if b is None else self.triple(b)
            return dataclasses.replace(
                out, name=self.node("QLinearMatMul", [*self.triple(a), *right, *self.parameters(out, optional=False)])
            )
        right = self.weights_dq(w, len(b_shape) - 1) if b is None else self.dequantize(b)
        return self.quantize(self.node("MatMul", [self.dequantize(a), right]), out)

    def gemm(
        self,
        a: Quantized,
        columns,
        *,
        weight="s8",
        per_channel=False,
        bias="float",
        trans_b=0,
        alpha=1.0,
        activation=None,
    ) -> Quantized:
        w_shape = (columns, a.shape[1]) if trans_b else (a.shape[1], columns)
        w = self.int_weights(w_shape, TYPES[weight], per_channel_axis=(0 if trans_b else 1) if per_channel else None)
        out = self.choose(
            (a.shape[0], columns), span=3 * (a.highest - a.lowest) * float(np.mean(w[3])) * 74 * np.sqrt(a.shape[1])
        )
        if activation:
            out = dataclasses.replace(out, zero=int(np.iinfo(out.dtype).min))
        b, b_name = self.bias(columns, a.scale, w[3], bias)
        if self.form == "qop":
            inputs = [*self.triple(a), *w[:3], b_name or "", *self.parameters(out, optional=False)]
            return dataclasses.replace(out, name=self.node("QGemm", inputs, domain=MS, alpha=alpha, transB=trans_b))
        y = self.node(
            "Gemm",
            [self.dequantize(a), self.weights_dq(w, 0 if trans_b else 1)] + ([b] if b else []),
            alpha=alpha,
            transB=trans_b,
        )
        if activation:
            y = self.node("Relu", [y])
        return self.quantize(y, out)

    def binary(self, op_type, a: Quantized, b: Quantized, out=None) -> Quantized:
        shape = np.broadcast_shapes(a.shape, b.shape)
        if out is None:
            span = (
                (a.highest - a.lowest) + (b.highest - b.lowest)
                if op_type == "Add"
                else (a.highest - a.lowest) * (b.highest - b.lowest) / 2
            )
            out = self.choose(shape, span=span)
        out = dataclasses.replace(out, shape=shape)
        if self.form == "qop":
            inputs = [*self.triple(a), *self.triple(b), *self.parameters(out, optional=False)]
            return dataclasses.replace(out, name=self.node("QLinear" + op_type, inputs, domain=MS))
        return self.quantize(self.node(op_type, [self.dequantize(a), self.dequantize(b)]), out)

    def unary(self, op_type, x: Quantized, shape=None, out=None, **attributes) -> Quantized:
        """AveragePool, GlobalAveragePool, LeakyRelu, Sigmoid, Softmax."""
        spans = {"Sigmoid": 1.0, "Softmax": 1.0}
        out = out or self.choose(shape or x.shape, span=spans.get(op_type, x.highest - x.lowest))
        out = dataclasses.replace(out, shape=tuple(shape or x.shape))
        if op_type in spans:
            out = dataclasses.replace(out, scale=1 / 256, zero=int(np.iinfo(out.dtype).min))
        if self.form == "qop":
            if op_type == "Softmax":
                attributes["opset"] = 13 if self.opset >= 13 else 11
            if op_type == "GlobalAveragePool":
                attributes["channels_last"] = 0
            inputs = [*self.triple(x), *self.parameters(out, optional=False)]
            return dataclasses.replace(out, name=self.node("QLinear" + op_type, inputs, domain=MS, **attributes))
        return self.quantize(self.node(op_type, [self.dequantize(x)], **attributes), out)

    def concat(self, parts: list[Quantized], axis, out=None) -> Quantized:
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        out = dataclasses.replace(out or self.choose(shape), shape=tuple(shape))
        if self.form == "qop":
            inputs = self.parameters(out, optional=False) + [name for p in parts for name in self.triple(p)]
            return dataclasses.replace(out, name=self.node("QLinearConcat", inputs, domain=MS, axis=axis))
        return self.quantize(self.node("Concat", [self.dequantize(p) for p in parts], axis=axis), out)

    def mover(self, op_type, x: Quantized, inputs, shape, **attributes) -> Quantized:
        """An operator that only moves elements: around it Q and DQ in QDQ form, none in QOperator form."""
        if self.form == "qop":
            return dataclasses.replace(x, name=self.node(op_type, [x.name, *inputs], **attributes), shape=tuple(shape))
        return self.quantize(
            self.node(op_type, [self.dequantize(x), *inputs], **attributes), dataclasses.replace(x, shape=tuple(shape))
        )


# --- one operator
# ----------------------------------------------------------------------------------------------------------

CHANNELS = [1, 3, 17, 31, 257]


def random_conv(seed, form="qdq", dtype=None, weight=None) -> Case:
    """Channels of {1, 3, 17, 31, 257}, prime sizes, kernels larger than the input with pads, asymmetric pads, strides
    beyond the kernel, groups, depthwise, batch 3, per tensor and per channel."""
    rng = np.random.default_rng([101, seed])
    dtype = dtype or str(rng.choice(["u8", "u8", "s8"]))
    weight = weight or ("s8" if dtype == "s8" else str(rng.choice(["u8", "s8"])))
    b = Builder([102, seed], form=form, dtype=dtype)
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    while True:
        kernel = [int(v) for v in rng.choice([1, 2, 3, 5, 7], axes)]
        extents = [int(v) for v in rng.choice([1, 2, 5, 7, 11, 13], axes)]
        pads = [int(v) for v in rng.integers(0, 4, 2 * axes)]
        dilations = [int(v) for v in rng.choice([1, 1, 1, 2], axes)]
        if all(e + pads[i] + pads[i + axes] >= dilations[i] * (kernel[i] - 1) + 1 for i, e in enumerate(extents)):
            break
    channels = int(rng.choice(CHANNELS if axes < 3 else CHANNELS[:3]))
    group = int(rng.choice([1, 1, channels])) if channels < 257 else int(rng.choice([1, 257]))
    filters = (
        channels if group == channels and group > 1 else int(rng.choice([1, 3, 8, 17, 33])) if group == 1 else group * 2
    )
    x = b.activation((int(rng.choice([1, 1, 3])), channels, *extents))
    auto_pad = None if rng.random() < 0.7 else str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
    y = b.conv(
        x,
        filters,
        kernel,
        group=group,
        strides=[int(v) for v in rng.choice([1, 1, 2, 3, 8], axes)],
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        weight=weight,
        w_zero=0 if weight == "s8" else int(rng.choice([0, 128, 255])),
        per_channel=bool(rng.integers(2)),
        bias=str(rng.choice(["none", "float", "dq"])),
        activation=[None, "relu", "clip6"][int(rng.integers(3))],
    )
    b.result(y)
    return b.build(f"conv_{form}_{seed}")


def random_matmul(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([103, seed])
    b = Builder([104, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    shapes = [
        ((3, 4), (4, 5)),
        ((1, 257), (257, 33)),
        ((2, 3, 17), (17, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 31), (1, 3, 31, 5)),
        ((7, 1024), (1024, 10)),
    ]
    a_shape, b_shape = shapes[int(rng.integers(len(shapes)))]
    a = b.activation(a_shape)
    if rng.random() < 0.4:
        y = b.matmul(a, b_shape, b=b.activation(b_shape))
    else:
        y = b.matmul(
            a,
            b_shape,
            weight="s8" if b.dtype == np.int8 else str(rng.choice(["u8", "s8"])),
            per_channel=len(b_shape) == 2 and bool(rng.integers(2)),
        )
    b.result(y)
    return b.build(f"matmul_{form}_{seed}")


def random_gemm(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([105, seed])
    b = Builder([106, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    a = b.activation((int(rng.choice([1, 3, 8])), int(rng.choice(CHANNELS))))
    y = b.gemm(
        a,
        int(rng.choice([1, 10, 33])),
        weight="s8" if b.dtype == np.int8 else str(rng.choice(["u8", "s8"])),
        per_channel=bool(rng.integers(2)),
        bias=str(rng.choice(["none", "float", "dq"])),
        trans_b=int(rng.integers(2)),
        activation="relu" if form == "qdq" and rng.random() < 0.3 else None,
    )
    b.result(y)
    return b.build(f"gemm_{form}_{seed}")


def random_binary(seed, op_type="Add", form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([107, seed])
    b = Builder([108, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    shapes = [
        ((2, 3, 7, 5), (2, 3, 7, 5)),
        ((2, 3, 7, 5), (1, 3, 1, 1)),
        ((3, 1, 1), (2, 3, 7, 5)),
        ((5, 70), (70,)),
        ((4, 1), (1, 9)),
        ((6, 33), (1, 1)),
    ]
    a_shape, b_shape = shapes[int(rng.integers(len(shapes)))]
    b.result(b.binary(op_type, b.activation(a_shape), b.activation(b_shape)))
    return b.build(f"{op_type.lower()}_{form}_{seed}")


def pooled(extents, kernel, strides, pads) -> list[int]:
    axes = len(extents)
    return [(e + pads[i] + pads[i + axes] - kernel[i]) // strides[i] + 1 for i, e in enumerate(extents)]


def random_pool(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([109, seed])
    b = Builder([110, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    extents = [int(v) for v in rng.choice([5, 7, 11, 13], 2)]
    x = b.activation((int(rng.choice([1, 3])), int(rng.choice([1, 3, 17, 31])), *extents))
    kind = int(rng.integers(3))
    kernel, strides = [int(v) for v in rng.integers(1, 5, 2)], [int(v) for v in rng.integers(1, 4, 2)]
    pads = [int(rng.integers(0, k)) for k in kernel + kernel]
    shape = (*x.shape[:2], *pooled(extents, kernel, strides, pads))
    if kind == 0:
        y = b.unary("GlobalAveragePool", x, (*x.shape[:2], 1, 1))
    elif kind == 1:
        y = b.unary(
            "AveragePool",
            x,
            shape,
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            count_include_pad=int(rng.integers(2)),
        )
    else:
        y = b.mover("MaxPool", x, [], shape, kernel_shape=kernel, strides=strides, pads=pads)
    b.result(y)
    return b.build(f"pool_{form}_{seed}")


def random_table(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([111, seed])
    b = Builder([112, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    x = b.activation((2, 5, 7))
    op = str(rng.choice(["LeakyRelu", "Sigmoid", "Softmax"]))
    attributes = {
        "LeakyRelu": {"alpha": float(rng.choice([0.01, 0.1, 0.25]))},
        "Softmax": {"axis": int(rng.integers(-3, 3))},
    }.get(op, {})
    b.result(b.unary(op, x, **attributes))
    return b.build(f"{op.lower()}_{form}_{seed}")


def random_concat(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([113, seed])
    b = Builder([114, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    axis = int(rng.integers(-3, 3))
    parts = []
    for _ in range(int(rng.integers(1, 5))):
        shape = [2, 3, 4]
        shape[axis] = int(rng.integers(1, 6))
        parts.append(
            b.activation(
                tuple(shape), like=dataclasses.replace(parts[0], name="") if parts and rng.random() < 0.4 else None
            )
        )
        parts[-1] = dataclasses.replace(parts[-1], shape=tuple(shape))
    b.result(b.concat(parts, axis, dataclasses.replace(parts[0], name="") if rng.random() < 0.4 else None))
    return b.build(f"concat_{form}_{seed}")


OPERATORS = {
    "conv": random_conv,
    "matmul": random_matmul,
    "gemm": random_gemm,
    "add": lambda seed, form="qdq", dtype=None: random_binary(seed, "Add", form, dtype),
    "mul": lambda seed, form="qdq", dtype=None: random_binary(seed, "Mul", form, dtype),
    "pool": random_pool,
    "table": random_table,
    "concat": random_concat,
}


# --- graphs
# ----------------------------------------------------------------------------------------------------------


def random_graph(seed, steps=8, form="qdq", dtype=None, opset=None, disorder=True) -> Case:
    """A graph of image operators over a pool of tensors that later steps read again. With `disorder` (QDQ form) it also
    holds what quantisers leave behind: shared DQ, float operators between DQ and Q, activations that a Q does not
    imply, pairs of Q and DQ in a row, transposes between DQ and Conv, tensors that are outputs as well, float weights,
    weights given as Q of a constant."""
    rng = np.random.default_rng([115, seed])
    opset = opset or int(rng.choice([13, 13, 17, 19, 21]))
    b = Builder(
        [116, seed],
        form=form,
        dtype=dtype or str(rng.choice(["u8", "u8", "s8"])),
        opset=opset,
        zero_points=form == "qop" or not disorder or rng.random() < 0.8,
        vector_parameters=False,
    )
    weight = "s8"
    size = int(rng.choice([6, 8, 9]))
    pool = [b.activation((1, int(rng.choice([1, 3, 4, 8])), size, size)) for _ in range(2)]
    disorder = disorder and form == "qdq"

    def pick():
        return pool[int(rng.integers(max(0, len(pool) - 3), len(pool)))]

    for _step in range(steps):
        x = pick()
        n, c, h, w = x.shape
        kind = str(
            rng.choice(
                [
                    "conv",
                    "conv",
                    "conv",
                    "depthwise",
                    "add",
                    "mul",
                    "concat",
                    "average",
                    "max",
                    "leaky",
                    "sigmoid",
                    "slice",
                    "resize",
                    "transpose",
                    "global",
                    "relu_float",
                    "sub",
                    "double",
                    "transposed_conv",
                    "float_chain",
                    "pad",
                    "split",
                    "conv_float_weights",
                    "conv_quantised_constant",
                    "conv_shared",
                    "clip_loose",
                    "conv_max",
                    "also_output",
                    "conv_two_q",
                    "pad_conv",
                    "resize_linear",
                ]
            )
        )
        if kind == "conv":
            k = int(rng.choice([1, 3]))
            pool.append(
                b.conv(
                    x,
                    int(rng.choice([1, 3, 4, 8])),
                    [k, k],
                    pads=[k // 2] * 4,
                    weight=weight,
                    per_channel=bool(rng.integers(2)),
                    bias=str(rng.choice(["none", "float", "dq"])),
                    activation=[None, "relu", "clip6"][int(rng.integers(3))],
                )
            )
        elif kind == "depthwise":
            pool.append(
                b.conv(
                    x,
                    c,
                    [3, 3],
                    group=c,
                    pads=[1] * 4,
                    weight=weight,
                    per_channel=bool(rng.integers(2)),
                    activation="relu",
                )
            )
        elif kind in ("add", "mul"):
            y = next((p for p in reversed(pool) if p.shape == x.shape and p.name != x.name), x)
            pool.append(b.binary(kind.capitalize(), x, y))
        elif kind == "concat":
            y = next((p for p in reversed(pool) if p.shape[2:] == x.shape[2:] and p.name != x.name), x)
            pool.append(b.concat([x, y], 1, dataclasses.replace(x, name="") if rng.random() < 0.3 else None))
        elif kind == "average" and h > 2 and w > 2:
            pool.append(b.unary("AveragePool", x, (n, c, h - 1, w - 1), kernel_shape=[2, 2]))
        elif kind == "max" and h > 2 and w > 2:
            pool.append(b.mover("MaxPool", x, [], (n, c, h - 1, w - 1), kernel_shape=[2, 2]))
        elif kind == "leaky":
            pool.append(b.unary("LeakyRelu", x, alpha=0.1))
        elif kind == "sigmoid":
            pool.append(b.unary("Sigmoid", x))
        elif kind == "slice" and h > 3:
            pool.append(
                b.mover(
                    "Slice",
                    x,
                    [b.constant(np.array([1])), b.constant(np.array([h])), b.constant(np.array([2]))],
                    (n, c, h - 1, w),
                )
            )
        elif kind == "resize" and h * w < 100:
            pool.append(
                b.mover(
                    "Resize", x, ["", b.constant(np.array([1, 1, 2, 2], F32))], (n, c, 2 * h, 2 * w), mode="nearest"
                )
            )
        elif kind == "transpose" and h == w:
            pool.append(b.mover("Transpose", x, [], (n, c, w, h), perm=[0, 1, 3, 2]))
        elif kind == "global":
            pool.append(b.binary("Mul", x, b.unary("GlobalAveragePool", x, (n, c, 1, 1))))
        elif not disorder:
            continue
        elif kind == "relu_float":  # a Relu that the Q does not imply: the convolution stays float
            out = b.choose(x.shape, span=x.highest - x.lowest)
            pool.append(b.quantize(b.node("Relu", [b.dequantize(x)]), dataclasses.replace(out, shape=x.shape)))
        elif kind == "sub":
            pool.append(
                b.quantize(
                    b.node("Sub", [b.dequantize(x), b.constant(F32(0.5))]), b.choose(x.shape, span=x.highest - x.lowest)
                )
            )
        elif kind == "double":  # two pairs of Q and DQ in a row
            y = b.quantize(b.dequantize(x), b.choose(x.shape, span=x.highest - x.lowest))
            pool.append(dataclasses.replace(y, shape=x.shape))
        elif kind == "transposed_conv":  # a transpose between DQ and Conv, as converters from channels-last leave it
            t = b.node("Transpose", [b.node("Transpose", [b.dequantize(x)], perm=[0, 2, 3, 1])], perm=[0, 3, 1, 2])
            parts = b.int_weights((3, 3, c, 4), np.int8)
            weights = b.node("Transpose", [b.weights_dq(parts, 0)], perm=[3, 2, 0, 1])
            out = b.choose((n, 4, h, w), span=3 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(9 * c))
            pool.append(b.quantize(b.node("Conv", [t, weights], pads=[1] * 4), out))
        elif kind == "float_chain":
            y = b.node("HardSigmoid", [b.dequantize(x)])
            pool.append(b.quantize(y, dataclasses.replace(b.choose(x.shape, span=1.0), shape=x.shape)))
        elif kind == "pad":
            pool.append(
                b.quantize(
                    b.node("Pad", [b.dequantize(x), b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1]))]),
                    dataclasses.replace(x, shape=(n, c, h + 1, w + 1)),
                )
            )
        elif kind == "split" and c % 2 == 0:
            first, second = b.node(
                "Split", [b.dequantize(x), b.constant(np.array([c // 2, c // 2]))], outputs=2, axis=1
            )
            half = dataclasses.replace(x, shape=(n, c // 2, h, w))
            pool += [b.quantize(first, half), b.quantize(second, half)]
        elif kind == "conv_float_weights":
            weights = b.constant(rng.normal(0, 0.3, (3, c, 3, 3)).astype(F32))
            bias = [b.constant(rng.normal(0, 1, 3).astype(F32))] if rng.random() < 0.5 else []
            out = b.choose((n, 3, h, w), span=(x.highest - x.lowest) * np.sqrt(9 * c))
            pool.append(b.quantize(b.node("Conv", [b.dequantize(x), weights, *bias], pads=[1] * 4), out))
        elif kind == "conv_quantised_constant":
            q = Quantized("", 0.01, 0, np.int8, (4, c, 1, 1))
            weights = b.dequantize(b.quantize(b.constant(rng.normal(0, 0.5, q.shape).astype(F32)), q))
            out = b.choose((n, 4, h, w), span=(x.highest - x.lowest) * np.sqrt(c))
            pool.append(b.quantize(b.node("Conv", [b.dequantize(x), weights]), out))
        elif kind == "conv_shared":  # one DQ for two consumers
            d = b.dequantize(x)
            parts = b.int_weights((4, c, 1, 1), np.int8)
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            pool.append(b.quantize(b.node("Conv", [d, b.weights_dq(parts, 0)]), out))
            pool.append(
                b.quantize(
                    b.node("LeakyRelu", [d], alpha=0.2),
                    dataclasses.replace(b.choose(x.shape, span=x.highest - x.lowest), shape=x.shape),
                )
            )
        elif kind == "clip_loose":  # a Clip inside the range of the Q
            parts = b.int_weights((4, c, 1, 1), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)])
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            pool.append(
                b.quantize(b.node("Clip", [y, b.constant(F32(out.lowest / 2)), b.constant(F32(out.highest / 2))]), out)
            )
        elif kind == "conv_max" and h > 2 and w > 2:  # Q behind the pool
            parts = b.int_weights((4, c, 3, 3), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)], pads=[1] * 4)
            out = b.choose(
                (n, 4, h - 1, w - 1), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(9 * c)
            )
            pool.append(b.quantize(b.node("MaxPool", [y], kernel_shape=[2, 2]), out))
        elif kind == "conv_two_q":  # two Q of one value: with the same parameters or with equal ones
            parts = b.int_weights((4, c, 1, 1), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)])
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            names = b.parameters(out, optional=False)
            pool.append(dataclasses.replace(out, name=b.node("QuantizeLinear", [y, *names])))
            if rng.random() < 0.5:
                names = b.parameters(out, optional=False)
            pool.append(dataclasses.replace(out, name=b.node("QuantizeLinear", [y, *names])))
        elif kind == "resize_linear" and h * w < 100:
            pool.append(
                b.mover(
                    "Resize",
                    x,
                    ["", b.constant(np.array([1, 1, 1.5, 2], F32))],
                    (n, c, int(h * 1.5), 2 * w),
                    mode="linear",
                )
            )
        elif kind == "pad_conv":  # a Pad between DQ and Conv, as converters leave it
            parts = b.int_weights((4, c, 3, 3), np.int8)
            padded = b.node("Pad", [b.dequantize(x), b.constant(np.array([0, 0, 1, 0, 0, 0, 1, 2]))])
            y = b.node("Conv", [padded, b.weights_dq(parts, 0)], pads=[0, 1, 0, 0])
            pool.append(
                b.quantize(
                    y,
                    b.choose((n, 4, h, w + 1), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(9 * c)),
                )
            )
        elif kind == "also_output":  # the float result of a convolution is an output: no fusion
            parts = b.int_weights((4, c, 1, 1), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)])
            if rng.random() < 0.5:
                b.output(y, (n, 4, h, w))
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            pool.append(b.quantize(y, out))
    read = {name for node in b.nodes for name in node.input}
    for q in pool:
        if q.name not in read:
            b.result(q)
    return b.build(f"graph_{form}_{seed}")


def random_dense_graph(seed, steps=7, dtype=None, opset=None) -> Case:
    """A QDQ graph of matrix operators: products with constants and with each other, biases as Add behind MatMul (as
    vectors, rows, matrices, float or int32), Gemm with every kind of bias, softmax, Where, reshapes and transposes,
    products without a Q."""
    rng = np.random.default_rng([117, seed])
    b = Builder(
        [118, seed], dtype=dtype or str(rng.choice(["u8", "u8", "s8"])), opset=opset or int(rng.choice([13, 17, 21]))
    )
    rows, width = int(rng.choice([1, 3, 4])), int(rng.choice([4, 6, 8]))
    pool = [b.activation((rows, width)) if rng.random() < 0.5 else b.activation((2, rows, width)) for _ in range(2)]
    results = []

    def span(x, step, depth):
        return 3 * (x.highest - x.lowest) * step * 74 * np.sqrt(depth)

    for _ in range(steps):
        x = pool[int(rng.integers(max(0, len(pool) - 3), len(pool)))]
        *lead, k = x.shape
        kind = str(
            rng.choice(
                [
                    "matmul",
                    "matmul_add",
                    "matmul_add",
                    "matmul_float",
                    "gemm",
                    "gemm",
                    "gemm_float",
                    "add",
                    "softmax",
                    "where",
                    "where_constant",
                    "transpose",
                    "reshape",
                    "dynamic",
                    "relu_matmul",
                    "gather",
                    "reduce_max",
                    "add_constant",
                    "arg_max",
                ]
            )
        )
        n = int(rng.choice([4, 6, 8]))
        if kind == "matmul":
            pool.append(b.matmul(x, (k, n), per_channel=bool(rng.integers(2))))
        elif kind in ("matmul_add", "matmul_float", "relu_matmul"):
            w = b.int_weights((k, n), np.int8, per_channel_axis=1 if rng.random() < 0.4 else None)
            y = b.node("MatMul", [b.dequantize(x), b.weights_dq(w, 1)])
            out = b.choose((*lead, n), span=span(x, float(np.mean(w[3])), k))
            if kind == "matmul_add":
                shape = (
                    [(n,), (1, n), (), (lead[0], n), (lead[0], 1), (1,)][int(rng.integers(6))]
                    if len(lead) == 1
                    else [(n,), (1, n), ()][int(rng.integers(3))]
                )
                if rng.random() < 0.7:
                    bias = b.constant(rng.normal(0, out.scale * 20, shape).astype(F32))
                else:
                    bias = b.node(
                        "DequantizeLinear",
                        [
                            b.constant(rng.integers(-3000, 3000, shape).astype(np.int32)),
                            b.constant(F32(out.scale / 100)),
                        ],
                    )
                y = b.node("Add", [y, bias] if rng.random() < 0.7 else [bias, y])
            if kind == "relu_matmul":
                y = b.node("Relu", [y])
                out = dataclasses.replace(out, zero=int(np.iinfo(out.dtype).min) if rng.random() < 0.6 else out.zero)
            if kind == "matmul_float" and rng.random() < 0.6:
                results.append((y, (*lead, n)))
            else:
                pool.append(b.quantize(y, out))
        elif kind == "gemm" and len(lead) == 1:
            pool.append(
                b.gemm(
                    x,
                    n,
                    per_channel=bool(rng.integers(2)),
                    bias=str(rng.choice(["none", "float", "dq"])),
                    trans_b=int(rng.integers(2)),
                    alpha=float(rng.choice([1.0, 0.5])),
                    activation="relu" if rng.random() < 0.3 else None,
                )
            )
        elif kind == "gemm_float" and len(lead) == 1:
            w = b.int_weights((k, n), np.int8)
            bias, _ = b.bias(n, x.scale, w[3], "dq")
            y = b.node("Gemm", [b.dequantize(x), b.weights_dq(w, 1), bias], beta=float(rng.choice([1.0, 0.5])))
            results.append((y, (lead[0], n)))
        elif kind == "add":
            y = next((p for p in reversed(pool) if p.shape == x.shape and p.name != x.name), x)
            pool.append(b.binary(str(rng.choice(["Add", "Mul"])), x, y))
        elif kind == "softmax":
            pool.append(b.unary("Softmax", x, axis=-1))
        elif kind in ("where", "where_constant"):
            condition = b.input(rng.random(x.shape) < 0.5, "mask")
            y = next((p for p in reversed(pool) if p.shape == x.shape and p.name != x.name), x)
            other = b.dequantize(y) if kind == "where" else b.constant(F32(x.lowest))
            out = dataclasses.replace(
                b.choose(x.shape, span=x.highest - x.lowest) if rng.random() < 0.6 else x, shape=x.shape, name=""
            )
            pool.append(b.quantize(b.node("Where", [condition, b.dequantize(x), other]), out))
        elif kind == "transpose":
            order = list(range(len(x.shape)))
            order[-2:] = order[:-3:-1]
            pool.append(b.mover("Transpose", x, [], tuple(x.shape[i] for i in order), perm=order))
        elif kind == "reshape":
            shape = (int(np.prod(lead)), k)
            pool.append(b.mover("Reshape", x, [b.constant(np.array(shape))], shape))
        elif kind == "dynamic":  # a product of two activations
            y = b.mover(
                "Transpose", x, [], (*lead[:-1], k, lead[-1]), perm=[*range(len(lead) - 1), len(lead), len(lead) - 1]
            )
            pool.append(b.matmul(x, y.shape, b=y))
        elif kind == "gather" and k > 1:
            pool.append(b.mover("Gather", x, [b.constant(np.array([k - 1, 0, 1]))], (*lead, 3), axis=-1))
        elif kind == "reduce_max" and b.opset < 18:
            pool.append(b.mover("ReduceMax", x, [], (*lead, 1), axes=[-1], keepdims=1))
        elif kind == "add_constant":
            out = dataclasses.replace(b.choose(x.shape, span=x.highest - x.lowest), shape=x.shape)
            pool.append(b.quantize(b.node("Add", [b.dequantize(x), b.constant(rng.normal(0, 1, k).astype(F32))]), out))
        elif kind == "arg_max":
            y = b.node("ArgMax", [b.dequantize(x)], axis=-1, keepdims=0)
            results.append((b.node("Cast", [y], to=onnx.TensorProto.FLOAT), tuple(lead)))
    for name, shape in results:
        b.output(name, shape)
    read = {name for node in b.nodes for name in node.input}
    for q in pool:
        if q.name not in read:
            b.result(q)
    return b.build(f"dense_graph_{seed}")

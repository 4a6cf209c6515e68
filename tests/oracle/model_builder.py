# SPDX-License-Identifier: Apache-2.0
"""A builder of quantised ONNX models for tests: operators in QDQ form (DequantizeLinear -> operator -> QuantizeLinear)
or QOperator form (QLinearConv, ...), with parameters and constants from a seed. A model takes fp32 inputs, quantises
them first and dequantises its results, and comes with feeds that use the whole quantised range."""

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
            activation = None  # the oldest ONNX Runtime refuses a redundant activation before a Q without zero point
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

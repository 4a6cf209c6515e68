# SPDX-License-Identifier: Apache-2.0
"""Products in 16 bits, from products of bytes. In: a product with constant weights whose operand is float, and the
range of that. Out: nodes that compute it from integer products with float results, which run on the NPU.

Operand and weights are cut into two bytes each. The high byte is the nearest step of a grid of 256 steps; the low one
is what that leaves, in steps that are 256 times finer:

    x = s (xh - z) + s / 256 (xl - 128)        w = t wh + t / 256 wl, t for each output channel
    x w = s t (xh wh + (xl wh + xh wl) / 256)  and xl wl / 65536, which is left out

So a layer costs three products of bytes instead of one (two where its operand is bytes already), their sums leave the
NPU in 32 bits, and scales, bias and what follows are computed in float on the CPU. Weights are stored as uint8 with the
zero point 128, the form of ConvInteger that ONNX Runtime computes too."""

import numpy as np
from onnx import helper

from .graph import along, attribute, channel_axis, is_onnx
from .ranges import parameters_of

WHY = "in 16 bits: it decides what the outputs say"
HEADROOM = 2  # times the observed extremes: the steps are fine enough to leave room for what was not observed
FINER = 256
MIDDLE = np.uint8(128)
CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def may_be(unit, graph, ranges):
    """Whether the unit is a product that has this form. ranges: of tensors that were observed."""
    node = unit.node
    if unit.kind != "product" or node.input[0] not in ranges or node.input[0] in graph.constants:
        return False
    array = graph.array(node.input[1])
    if array is None or not array.size or not np.all(np.isfinite(array)):
        return False
    if len(node.input) > 2 and node.input[2]:
        bias, outputs = graph.array(node.input[2]), array.shape[channel_axis(node, array.ndim) or 0]
        if bias is None or bias.size not in (1, outputs):
            return False
    if is_onnx(node, "Conv"):
        return True
    plain = is_onnx(node, "MatMul") or (is_onnx(node, "Gemm") and not attribute(node, "transA", 0))
    return plain and array.ndim == 2


def names_of_products(unit):
    """Names of the nodes that the NPU is asked for."""
    return [f"{unit.name}/16/{part}" for part in ("high", "low", "rest")]


def bytes_of(array, axis):
    """Weights as two arrays of uint8 around 128, and the scale of the first along `axis` (float64)."""
    array = array.astype(np.float64)
    peak = np.abs(array).max(tuple(a for a in range(array.ndim) if a != axis), keepdims=True)
    scale = np.maximum(peak / 127, 2.0**-100)
    high = np.rint(array / scale)
    low = np.clip(np.rint((array / scale - high) * FINER), -128, 127)
    return (high + 128).astype(np.uint8), (low + 128).astype(np.uint8), scale.reshape(-1)


class Expansion:
    """The nodes of one product. constant, fresh: functions of the writer that store an array under a name, and make a
    name its own."""

    def __init__(self, unit, node, constant, fresh):
        self.unit, self.node, self.constant, self.fresh, self.nodes = unit, node, constant, fresh, []

    def add(self, op, operands, what, name=None, **more):
        result = self.fresh(f"{self.unit.name}/{what}")
        self.nodes.append(helper.make_node(op, operands, [result], name or self.fresh(f"{result}/{op}"), **more))
        return result

    def cut(self, name, low, high):
        """The high and the low byte of a float tensor, and scale and zero point of the high one."""
        given = parameters_of(HEADROOM * low, HEADROOM * high)
        scale, zero = np.float32(given.scale), np.uint8(given.zero)
        steps = [self.constant(f"{self.unit.name}/scale", scale), self.constant(f"{self.unit.name}/zero", zero)]
        upper = self.add("QuantizeLinear", [name, *steps], "upper")
        rest = self.add("Sub", [name, self.add("DequantizeLinear", [upper, *steps], "value")], "left")
        finer = self.constant(f"{self.unit.name}/finer", np.float32(scale / FINER))
        lower = self.add("QuantizeLinear", [rest, finer, self.middle()], "lower")
        return upper, lower, steps[1], scale

    def middle(self):
        return self.constant(f"{self.unit.name}/middle", MIDDLE)

    def product(self, operand, zero, weights, name):
        """An integer product as float."""
        convolution = is_onnx(self.node, "Conv")
        kept = {a.name: helper.get_attribute_value(a) for a in self.node.attribute if a.name in CONVOLUTION}
        op, more = ("ConvInteger", kept) if convolution else ("MatMulInteger", {})
        sums = self.add(op, [operand, weights, zero, self.middle()], "sums", name, **more)
        return self.add("Cast", [sums], "real", to=1)

    def write(self, array, bias, operand):
        """Nodes whose last one makes the node's result. array: the weights; bias: a vector or None. operand: (upper,
        lower or None, name of the zero point, scale of the upper one)."""
        node, rank = self.node, array.ndim
        axis = channel_axis(node, 2) if rank == 2 and not is_onnx(node, "Conv") else 0
        array = array * np.float32(attribute(node, "alpha", 1.0)) if is_onnx(node, "Gemm") else array
        if is_onnx(node, "Gemm") and attribute(node, "transB", 0):
            array, axis = np.ascontiguousarray(array.T), 1
        high, low, scale = bytes_of(array, axis)
        high, low = self.constant(f"{node.name}/high", high), self.constant(f"{node.name}/low", low)
        upper, lower, zero, step = operand
        names = names_of_products(self.unit)
        rest = self.product(upper, zero, low, names[2])
        if lower is not None:
            rest = self.add("Add", [rest, self.product(lower, self.middle(), high, names[1])], "rests")
        shape = (lambda v: along(v, 1, rank)) if is_onnx(node, "Conv") else (lambda v: v)
        vector = lambda name, v: self.constant(f"{node.name}/{name}", shape(v.astype(np.float32)))
        made = self.add("Mul", [self.product(upper, zero, high, names[0]), vector("steps", scale * step)], "upper_sum")
        rest = self.add("Mul", [rest, vector("finer_steps", scale * step / FINER)], "lower_sum")
        made = self.add("Add", [made, rest], "sum")
        if bias is not None:
            made = self.add("Add", [made, vector("bias", np.atleast_1d(bias))], "biased")
        self.nodes[-1].output[0] = node.output[0]
        self.nodes[-1].name = node.name
        return self.nodes

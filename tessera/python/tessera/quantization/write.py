# SPDX-License-Identifier: Apache-2.0
"""Writes a quantised model. In: a plan, and scale and zero point of its tensors. Out: the model in QDQ form: one
QuantizeLinear a tensor, one DequantizeLinear for each unit that reads it, weights as int8 with one symmetric scale for
each channel, biases as int32 with the scale of their sums. These are the groups that ONNX Runtime computes in integers
(docs/numerics.md)."""

import copy

import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import attention, four_bits, sixteen
from .forms.recurrent import FLOAT_SUMS
from .graph import along, as_matrices, attribute, channel_axis, is_onnx, names_of, outer_reads, unique
from .ranges import parameters_of


def weight_scales(array, axis, *, least=None, power_of_two=False):
    """Symmetric scales along `axis` (one for all if it is None), float32; `least`: for each channel the smallest one
    allowed."""
    magnitude = np.abs(array.astype(np.float64))
    peak = magnitude.max() if axis is None else magnitude.max(axis=tuple(a for a in range(array.ndim) if a != axis))
    scale = np.maximum(np.asarray(peak) / 127, 2.0**-100)
    if least is not None:
        scale = np.maximum(scale, least)
    if power_of_two:
        scale = 2.0 ** np.ceil(np.log2(scale) - 1e-6)
    return scale.astype(np.float32)


class Writer:
    def __init__(self, plan, parameters, *, per_channel=True, power_of_two=False, scales=None, ranges=None, grid=None):
        self.plan, self.parameters, self.given, self.ranges = plan, parameters, scales or {}, ranges or {}
        self.grid, self.steps = grid, {}  # weights of 4 bits; unit's name -> m of each weight, as matrices
        self.per_channel, self.power_of_two = per_channel, power_of_two
        self.model = copy.deepcopy(plan.graph.model)
        self.nodes, self.initializers, self.done = [], {}, set()
        self.taken = names_of(plan.graph.model)
        self.inside = {name for node in plan.graph.nodes for name in outer_reads(node)}
        self.renamed = {}  # tensor -> the name of its float value before quantisation
        self.pairs = {}  # tensor -> names of the quantised tensor, its scale and its zero point
        self.weights = {}  # unit's name -> scales of its weights

    def write(self):
        by_name = {node.name: node for node in self.model.graph.node}
        for unit in self.plan.units:
            for node in unit.nodes:
                by_name[node.name].CopyFrom(node)
        for name in self.plan.graph.inputs:
            self._quantise(name)
        unit_of = {node.name: unit for unit in self.plan.units for node in unit.nodes}
        for node in self.model.graph.node:
            unit = unit_of[node.name]
            if unit.bits == 16 and node.name == unit.name:
                node = self._in_sixteen(unit, node)
            elif unit.quantised:
                self._rewire(unit, node)
            else:
                self._read_float(unit, node)
            self._emit(unit, node)
        graph = self.model.graph
        kept = list(graph.initializer) + [numpy_helper.from_array(a, n) for n, a in self.initializers.items()]
        read = {name for node in self.nodes for name in node.input} | set(self.plan.graph.held)
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(tensor for tensor in kept if tensor.name in read)
        return self.model

    # --- tensors

    def _fresh(self, name):
        return unique(name, self.taken)

    def _constant(self, name, array):
        name = self._fresh(name)
        self.initializers[name] = np.asarray(array)
        return name

    def _quantise(self, name):
        """QuantizeLinear behind the tensor, if it has parameters."""
        given = self.parameters.get(name)
        if given is None:
            return
        scale = self._constant(f"{name}/scale", np.float32(given.scale))
        zero = self._constant(f"{name}/zero_point", np.uint8(given.zero))
        result = self._fresh(f"{name}/quantised")
        source = self.renamed.get(name, name)
        self.nodes.append(helper.make_node("QuantizeLinear", [source, scale, zero], [result], self._fresh(f"{name}/Q")))
        self.done.add(name)
        self.pairs[name] = (result, scale, zero)

    def _dequantise(self, name, result=None):
        quantised, scale, zero = self.pairs[name]
        result = result or self._fresh(f"{name}/value")
        self.nodes.append(
            helper.make_node("DequantizeLinear", [quantised, scale, zero], [result], self._fresh(f"{name}/DQ"))
        )
        return result

    def _maker_is_quantised(self, name):
        unit = self.plan.unit_of.get(name)
        return unit is not None and unit.makes_bytes

    def _emit(self, unit, node):
        """The node, and the quantisation of its results."""
        ends = [name for name in node.output if name in self.parameters]
        for name in ends:
            if unit.quantised and name in self.plan.graph.held:
                # What leaves the graph keeps its name and is the dequantised value.
                self.renamed[name] = self._fresh(f"{name}/float")
                node.output[list(node.output).index(name)] = self.renamed[name]
        self.nodes.append(node)
        if unit.kind == "movement" and not unit.quantised or is_onnx(node, "If"):
            self._close_for_bodies(node)
        for name in ends:
            self._quantise(name)
            if name in self.renamed:
                self._dequantise(name, name)

    def _close_for_bodies(self, node):
        """What a movement makes and a body reads: ONNX Runtime's optimiser moves quantisation through movements, and
        has no place for it in front of a body. Movements come also out of a branch of an If that is always taken."""
        for index, name in enumerate(node.output):
            if name in self.inside and self.plan.graph.is_float(name):
                node.output[index] = self._fresh(f"{name}/moved")
                self._apart(node.output[index], name)

    # --- operands

    def _read_float(self, unit, node):
        """A float unit reads the dequantised value of what a quantised one made, itself or through movements."""
        for index, name in enumerate(node.input):
            maker = self.plan.unit_of.get(name)
            quantised = name in self.done and self._maker_is_quantised(name)
            if quantised and name not in self.plan.graph.held:
                node.input[index] = self._dequantise(name)
            moved = maker is not None and maker.kind == "movement" and self.plan.graph.is_float(name)
            if unit.kind in ("product", "binary", "other") and (quantised or moved):
                node.input[index] = self._apart(node.input[index])

    def _apart(self, name, result=None):
        """The same value behind a Clip that limits nothing: between DequantizeLinear and QuantizeLinear a product would
        have its weights quantised, and a Softmax would become an integer one, whose results can overflow."""
        lowest = self._constant(f"{name}/lowest", np.float32(np.finfo(np.float32).min))
        result = result or self._fresh(f"{name}/apart")
        self.nodes.append(helper.make_node("Clip", [name, lowest], [result], self._fresh(f"{result}/Clip")))
        return result

    def _rewire(self, unit, node):
        if unit.kind == "recurrent":
            self._read_float(unit, node)
            self._quantise_body(unit, node)
            return
        own = {name for n in unit.nodes for name in n.output}
        for index, name in enumerate(node.input):
            if name in self.done and name not in own:
                node.input[index] = self._dequantise(name)
            elif name in self.renamed and name in own:
                node.input[index] = self.renamed[name]
        if unit.kind == "product":
            self._weights(unit, node)
        elif unit.kind == "binary" and node is self._first(unit, node):
            self._constant_operand(unit, node)
        elif unit.kind in ("concat", "embedding"):
            self._constant_parts(unit, node)

    def _quantise_body(self, unit, node):
        """The products in the body of a direction take the hidden state and their weights in steps."""
        body = attribute(node, "body")
        given = self.parameters[unit.hidden]
        held, nodes = {tensor.name: tensor for tensor in body.initializer}, []

        def constant(name, array):
            body.initializer.append(numpy_helper.from_array(np.asarray(array), self._fresh(name)))
            return body.initializer[-1].name

        def add(op, operands, name, **more):
            nodes.append(helper.make_node(op, operands, [self._fresh(name)], self._fresh(f"{name}/{op}"), **more))
            return nodes[-1].output[0]

        for inner in body.node:
            if inner.doc_string == FLOAT_SUMS:
                name, weights = inner.input
                steps = [
                    constant(f"{name}/scale", np.float32(given.scale)),
                    constant(f"{name}/zero_point", np.uint8(given.zero)),
                ]
                quantised = add("QuantizeLinear", [name, *steps], f"{name}/quantised")
                inner.input[0] = add("DequantizeLinear", [quantised, *steps], f"{name}/value")
                array, axis = numpy_helper.to_array(held[weights]), 1 if self.per_channel else None
                scale = weight_scales(array, axis, power_of_two=self.power_of_two)
                values = np.clip(np.rint(array / along(scale, axis, 2)), -127, 127).astype(np.int8)
                operands = [
                    constant(f"{weights}/quantised", values),
                    constant(f"{weights}/scale", scale),
                    constant(f"{weights}/zero_point", np.zeros(scale.shape, np.int8)),
                ]
                more = {} if axis is None else {"axis": axis}
                inner.input[1] = add("DequantizeLinear", operands, f"{weights}/value", **more)
                body.initializer.remove(held[weights])
            nodes.append(inner)
        nodes = [onnx.NodeProto.FromString(inner.SerializeToString()) for inner in nodes]
        del body.node[:]
        body.node.extend(nodes)

    def _in_sixteen(self, unit, node):
        """Writes the nodes of a product in 16 bits, but for the last one, which is returned."""
        name, graph = node.input[0], self.plan.graph
        made = sixteen.Expansion(unit, node, self._constant, self._fresh)
        if name in self.done and self._maker_is_quantised(name):
            upper, _, zero = self.pairs[name]
            operand = upper, None, zero, np.float32(self.parameters[name].scale)
        else:
            operand = made.cut(self.renamed.get(name, name), *self.ranges[name])
        bias = graph.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if bias is not None and is_onnx(node, "Gemm"):
            bias = bias.reshape(-1) * np.float32(attribute(node, "beta", 1.0))
        *nodes, last = made.write(graph.array(node.input[1]), bias, operand)
        self.nodes += nodes
        return last

    def _first(self, unit, node):
        return node if node.name == unit.nodes[0].name else None

    def _constant_operand(self, unit, node):
        """A vector beside a tensor in a sum or product becomes uint8 with one scale."""
        masked = attention.masked_sum(self.plan, unit, {})
        for index, name in enumerate(node.input):
            array = self.plan.graph.array(name)
            if array is None or array.size == 1:
                continue
            if masked is not None and name == masked[1]:
                scores, total = self.parameters[masked[0]], self.parameters[unit.output]
                array = np.maximum(array, attention.lowest_of_mask((scores.low, scores.high), (total.low, total.high)))
            given = parameters_of(array.min(), array.max(), power_of_two=self.power_of_two)
            node.input[index] = self._constant_bytes(name, array, given)

    def _constant_left(self, node):
        """A constant in front of a product, such as learned queries, is an activation like others: one scale."""
        array = self.plan.graph.array(node.input[0])
        if array is not None:
            given = parameters_of(array.min(), array.max(), power_of_two=self.power_of_two)
            node.input[0] = self._constant_bytes(node.input[0], array, given)

    def _constant_parts(self, unit, node):
        """Constants that are joined with tensors, or whose rows are chosen, become uint8 with the result's scale."""
        for index, name in enumerate(node.input):
            array = self.plan.graph.array(name)
            if array is not None and self.plan.graph.is_float(name):
                node.input[index] = self._constant_bytes(name, array, self.parameters[unit.output])

    def _constant_bytes(self, name, array, given):
        values = np.clip(np.rint(array / given.scale) + given.zero, 0, 255).astype(np.uint8)
        return self._dequantised_constant(name, values, given.scale, np.uint8(given.zero))

    def _dequantised_constant(self, name, values, scale, zero, axis=None):
        operands = [
            self._constant(f"{name}/quantised", values),
            self._constant(f"{name}/scale", np.asarray(scale, np.float32)),
            self._constant(f"{name}/zero_point", zero),
        ]
        result = self._fresh(f"{name}/value")
        more = {} if axis is None else {"axis": axis}
        self.nodes.append(helper.make_node("DequantizeLinear", operands, [result], self._fresh(f"{name}/DQ"), **more))
        return result

    def _weights(self, unit, node):
        product = self._first(unit, node)
        if product is None:
            if is_onnx(node, "Add"):
                self._bias(node, 1 if node.input[1] in self.plan.graph.constants else 0, unit)
            return
        name = unit.node.input[1]
        array = self.plan.graph.array(name)
        if array is None:
            self._constant_left(product)
            return
        axis = channel_axis(node, array.ndim) if self.per_channel else None
        step = np.float64(self.parameters[unit.inputs[0]].scale)
        bias = self._bias_of(unit)
        least = None
        if bias is not None:
            # The bias must fit an int32 in steps of both scales.
            least = np.abs(bias.astype(np.float64)).reshape(-1) / step / 2.0**30
            least = least.max() if axis is None or least.size != array.shape[axis] else least
        scale = self.given.get(unit.name)
        fine = scale is not None and (least is None or not np.any(scale < least))
        packed = self.grid is not None and axis is not None and self.grid.takes(unit, array)
        if not fine and packed:
            scale, array = self._on_grid(unit, array, least)
        elif not fine:
            exact = self.power_of_two or is_onnx(node, "ConvTranspose")  # see ranges.choose
            scale = weight_scales(array, axis, least=least, power_of_two=exact)
        lowest = -128 if packed else -127
        values = np.clip(np.rint(array / along(scale, axis, array.ndim)), lowest, 127).astype(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        self.weights[unit.name] = scale
        node.input[1] = self._dequantised_constant(name, values, scale, zero, axis)
        if len(node.input) > 2 and node.input[2]:
            self._bias(node, 2, unit)

    def _on_grid(self, unit, array, least):
        """Scales of a layer of 4 bits, and its weights, each rounded for itself."""
        groups = attribute(unit.node, "group", 1) if is_onnx(unit.node, "Conv") else 1
        matrices, back = as_matrices(unit.node, array, groups)
        if least is not None:
            least = np.broadcast_to(least, (groups * matrices.shape[1],)).reshape(groups, -1)
        scale, steps = self.grid.fit(matrices, four_bits.taps_of(unit.node, array), least, self.power_of_two)
        self.steps[unit.name] = steps
        made = four_bits.rounded(matrices / scale[..., None], steps) * scale[..., None]
        return scale.reshape(-1), back(made)

    def _bias_of(self, unit):
        if len(unit.node.input) > 2 and unit.node.input[2]:
            return self.plan.graph.array(unit.node.input[2])
        if len(unit.nodes) > 1 and is_onnx(unit.nodes[1], "Add"):
            return next((a for a in map(self.plan.graph.array, unit.nodes[1].input) if a is not None), None)
        return None

    def _bias(self, node, index, unit):
        array = self.plan.graph.array(node.input[index])
        if array is None:
            return
        scale = (np.float32(self.parameters[unit.inputs[0]].scale) * self.weights[unit.name]).astype(np.float32)
        limit = 2.0**31 - 2**8
        values = np.clip(np.rint(array.astype(np.float64) / scale), -limit, limit).astype(np.int32)
        operands = [
            self._constant(f"{node.input[index]}/quantised", values),
            self._constant(f"{node.input[index]}/scale", scale),
        ]
        result = self._fresh(f"{node.input[index]}/value")
        more = {"axis": 0} if scale.ndim else {}
        self.nodes.append(helper.make_node("DequantizeLinear", operands, [result], self._fresh(f"{result}/DQ"), **more))
        node.input[index] = result


def check(model):
    """onnx.checker on the model, which need not know the shapes of its outputs."""
    copied = copy.deepcopy(model)
    for value in copied.graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(copied)


def write(plan, parameters, **options):
    model = Writer(plan, parameters, **options).write()
    check(model)
    return model

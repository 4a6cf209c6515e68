# SPDX-License-Identifier: Apache-2.0
"""Operators of exporters for language models in single operators of the standard, which quantisation works on. In: a
float model. Out: the same model, in which

- weights that are stored in blocks (MatMulNBits, DequantizeLinear of constants) are float constants,
- GroupQueryAttention is products, a softmax and the Concat that extends its cache,
- what ONNX Runtime's optimiser for transformers fuses is in single operators again (fused.py),
- RotaryEmbedding and the normalisations of sums (SkipLayerNormalization and its simplified form) are spelled out, and
  so is a LayerNormalization in an opset that does not have it, as ONNX Runtime's optimiser writes it.

A node whose form is not served stays as it is, and with it in float on the CPU: `unserved` names it and says why."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..graph import Graph, attribute, is_onnx, names_of, opset_of
from . import fused

DOMAIN = "com.microsoft"
HIDDEN = -10000.0  # what is added to the score of a position that is not to be seen
FUSED = 13  # the opset whose Unsqueeze and ReduceSum the nodes for fused operators have
LAYER_NORMALIZATION = 17  # the opset that has it; ONNX Runtime takes and writes it in any


def is_contrib(node, *types):
    return node.domain == DOMAIN and node.op_type in types


class Writer:
    """Collects the nodes that stand for one node; constants go to the graph at once."""

    def __init__(self, model):
        self.graph, self.nodes, self.count = model.graph, [], 0
        self.taken = names_of(model)

    def begin(self, name):
        self.name, self.nodes = name, []

    def _fresh(self, kind):
        while True:
            self.count += 1
            name = f"{self.name}/{kind}_{self.count}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def constant(self, array):
        name = self._fresh("constant")
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, output=None, **attributes):
        output = output or self._fresh(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [output], self._fresh("node"), **attributes))
        return output

    def shape(self, *extents):
        return self.constant(np.array(extents, np.int64))


def _replace(model, step):
    """`step` of a node: the nodes that stand for it; None keeps it."""
    nodes = []
    for node in model.graph.node:
        made = step(node)
        nodes.extend([node] if made is None else made)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


# --- weights in blocks
# -----------------------------------------------------------------------------------------------------


def _unpacked(bytes_, bits):
    """[rows, n] bytes as [rows, n * 8 / bits] numbers, from the low bits on."""
    parts = [(bytes_ >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(bytes_.shape[0], -1)


def weights_of_bits(node, graph):
    """The float weights [K, N] of a MatMulNBits; None where they are no constants, or of a form that nothing serves."""
    bits, block = attribute(node, "bits", 4), attribute(node, "block_size", 0)
    rows, depth = attribute(node, "N", 0), attribute(node, "K", 0)
    operands = [graph.array(name) if name else None for name in node.input]
    if len(operands) < 3 or any(a is None for a in operands[1:3]):
        return None
    if bits not in (2, 4, 8) or min(block, rows, depth) < 1 or operands[1].dtype != np.uint8:
        return None
    blocks = -(-depth // block)
    numbers = _unpacked(operands[1].reshape(rows * blocks, -1), bits)[:, :block].astype(np.float32)
    zeros = np.full(rows * blocks, 1 << (bits - 1), np.float32)
    if len(node.input) > 3 and node.input[3]:
        if operands[3] is None:
            return None
        if operands[3].dtype == np.uint8:
            zeros = _unpacked(operands[3].reshape(rows, -1), bits)[:, :blocks].reshape(-1).astype(np.float32)
        else:
            zeros = operands[3].reshape(-1).astype(np.float32)
    group = np.arange(depth) // block  # of each column: the block whose scale and zero point it has
    if len(node.input) > 4 and node.input[4]:
        group = None if operands[4] is None else operands[4].reshape(-1)[:depth]
        if group is None or group.size != depth or group.min() < 0 or group.max() >= blocks:
            return None
    scales = operands[2].reshape(rows, blocks).astype(np.float32)[:, group]
    weights = (numbers.reshape(rows, blocks * block)[:, :depth] - zeros.reshape(rows, blocks)[:, group]) * scales
    return np.ascontiguousarray(weights.T).astype(operands[2].dtype)


def _dequantised(node, graph):
    """The float array of a DequantizeLinear of constants, for each tensor, channel or block; else None."""
    x, scale = (graph.array(name) for name in node.input[:2])
    if x is None or scale is None:
        return None
    zero = graph.array(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros_like(scale)
    if zero is None:
        return None
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    if block:
        wide = lambda a: np.repeat(a, block, axis)[tuple(slice(0, n) for n in x.shape)]
        scale, zero = wide(scale), wide(zero)
    elif scale.size > 1:
        form = [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)]
        scale, zero = scale.reshape(form), zero.reshape(form)
    value = (x.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
    return value.astype(scale.dtype)


def weights_to_float(model):
    """MatMulNBits becomes MatMul. DequantizeLinear of a constant becomes its value, unless the model quantises
    activations too: then it is a quantised model."""
    graph = Graph(model)
    if any(node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear") for node in graph.nodes):
        return
    write = Writer(model)

    def step(node):
        if is_onnx(node, "DequantizeLinear"):
            value = _dequantised(node, graph)
            if value is not None and node.output[0] not in graph.outputs:
                model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), node.output[0]))
                return []
        if not is_contrib(node, "MatMulNBits"):
            return None
        weights = weights_of_bits(node, graph)
        if weights is None:
            return None
        write.begin(node.name or node.output[0])
        bias = node.input[5] if len(node.input) > 5 else ""
        product = write.node("MatMul", [node.input[0], write.constant(weights)], None if bias else node.output[0])
        if bias:
            write.node("Add", [product, bias], node.output[0])
        return write.nodes

    _replace(model, step)


# --- rotary positions
# ------------------------------------------------------------------------------------------------------


class _Rotary:
    """x * cos + (x with each pair of channels exchanged) * sin, where sin has the pair's sign. Tables of all positions
    are constants; rows are taken once for each tensor of positions."""

    def __init__(self, write, graph):
        self.write, self.graph, self.rows = write, graph, {}

    def rows_at(self, cos, sin, positions, size, interleaved):
        """(cosines, sines, order of channels) for heads of `size`: rows [batch, 1, tokens, size]."""
        key = (cos, sin, positions, size, interleaved)
        if key not in self.rows:
            tables = [self.graph.array(cos).astype(np.float32), self.graph.array(sin).astype(np.float32)]
            half = tables[0].shape[1]
            first = np.arange(half) * (2 if interleaved else 1)
            second = first + (1 if interleaved else half)
            order = np.arange(size)
            order[first], order[second] = second, first
            wide = np.ones((len(tables[0]), size), np.float32), np.zeros((len(tables[0]), size), np.float32)
            for channels, sign in ((first, -1), (second, 1)):
                wide[0][:, channels], wide[1][:, channels] = tables[0], sign * tables[1]
            found = [self.write.node("Gather", [self.write.constant(table), positions]) for table in wide]
            one = self.write.shape(1)
            self.rows[key] = [self.write.node("Unsqueeze", [rows, one]) for rows in found] + [order]
        return self.rows[key]

    def turn(self, x, cos, sin, order, output=None):
        """x [batch, heads, tokens, size]."""
        crossed = self.write.node("Gather", [x, self.write.constant(order.astype(np.int64))], axis=3)
        straight = self.write.node("Mul", [x, cos])
        return self.write.node("Add", [straight, self.write.node("Mul", [crossed, sin])], output)


# --- attention
# -------------------------------------------------------------------------------------------------------------


def _operand(node, index):
    return node.input[index] if len(node.input) > index else ""


class GroupQueryAttention:
    """Queries of the heads that share a key stand below each other, so that a product reads each key once."""

    def __init__(self, model, graph, write, rotary):
        self.graph, self.write, self.rotary = graph, write, rotary
        self.masks, self.positions = {}, {}
        self.ports = {value.name: value for value in model.graph.input}

    def fixed_length(self, node):
        """Of the cache that is one buffer for past and present; None where it grows or is not there."""
        shape = self.graph.shapes.get(_operand(node, 3))
        return shape[2] if shape else None

    def obstacle(self, node):
        """Why a node is not expanded; None where it is."""
        past = _operand(node, 3)
        if past and (past not in self.graph.shapes or self.fixed_length(node) is not None):
            return "its cache has a fixed length: one buffer for past and present; export it with a past that grows"
        return self.other_obstacle(node)

    def other_obstacle(self, node):
        """Like `obstacle`, whatever the length of its cache."""
        for index, name in ((10, "attention_bias"), (11, "head_sink")):
            if _operand(node, index):
                return f"its input {name} is not served"
        if any(_operand(node, index) for index in range(12, len(node.input))):
            return f"its input {next(name for name in node.input[12:] if name)} is not served"
        if attribute(node, "smooth_softmax", 0) > 0:
            return "smooth_softmax is not served"
        if attribute(node, "causal", 1) == 0:
            return "it is not causal"
        if len([name for name in node.output if name]) > 3:
            return "its result output_qk is not served"
        if self.size(node) is None:
            return "the width of its queries is not known"
        if attribute(node, "do_rotary", 0) and any(self.graph.array(_operand(node, k)) is None for k in (7, 8)):
            return "its tables of rotary positions are no constants"
        tokens = (self.graph.shapes.get(node.input[0]) or [None] * 3)[1]
        masked = tokens != 1 or attribute(node, "local_window_size", -1) > 0
        if masked and self.mask_input(node) is None:
            return "its seqlens_k is not the sum of an input attention_mask, which says what is to be seen"
        return None

    def size(self, node):
        heads, groups = attribute(node, "num_heads"), attribute(node, "kv_num_heads")
        past = self.graph.shapes.get(_operand(node, 3))
        if past and past[3] is not None:
            return past[3]
        shape = self.graph.shapes.get(node.input[0])
        width = shape[2] if shape else None
        return None if width is None else width // (heads if _operand(node, 1) else heads + 2 * groups)

    def mask_input(self, node):
        """The input of the model [batch, total] whose sum the lengths are."""
        name = _operand(node, 5)
        for _ in range(8):
            maker = self.graph.producer.get(name)
            if maker is None:
                break
            if not is_onnx(maker, "Cast", "Sub", "Add", "ReduceSum", "Reshape", "Squeeze", "Identity"):
                return None
            name = maker.input[0]
        port = self.ports.get(name)
        rank = len(port.type.tensor_type.shape.dim) if port is not None else 0
        return name if rank == 2 else None

    def positions_of(self, node):
        """Positions of the new tokens, int64 [batch, tokens]."""
        given, write = _operand(node, 9), self.write
        if given:
            return given
        lengths = _operand(node, 5)
        if lengths not in self.positions:
            last = write.node("Cast", [lengths], to=TensorProto.INT64)
            last = write.node("Reshape", [last, write.shape(-1, 1)])
            tokens = write.node("Shape", [node.input[0]])
            tokens = write.node("Gather", [tokens, write.constant(np.int64(1))])
            zero, one = write.constant(np.int64(0)), write.constant(np.int64(1))
            back = write.node("Sub", [write.node("Range", [zero, tokens, one]), tokens])
            # last - tokens + 1 + 0, 1, 2..
            self.positions[lengths] = write.node("Add", [write.node("Add", [last, back]), one])
        return self.positions[lengths]

    def mask(self, node, positions, repeat):
        """What is added to scores [batch, 1, repeat * tokens, total]."""
        source, window, write = self.mask_input(node), attribute(node, "local_window_size", -1), self.write
        if source is None:
            return None
        key = (source, positions, window, repeat)
        if key not in self.masks:
            whole = write.node("Cast", [source], to=TensorProto.INT64)
            at = write.node("CumSum", [whole, write.constant(np.int64(1))])
            at = write.node("Sub", [at, write.constant(np.int64(1))])
            at = write.node("Unsqueeze", [at, write.shape(1)])
            own = write.node("Unsqueeze", [positions, write.shape(2)])
            seen = write.node("LessOrEqual", [at, own])
            real = write.node("Unsqueeze", [write.node("Cast", [source], to=TensorProto.BOOL), write.shape(1)])
            seen = write.node("And", [seen, real])
            if window > 0:
                first = write.node("Sub", [own, write.constant(np.int64(window - 1))])
                seen = write.node("And", [seen, write.node("GreaterOrEqual", [at, first])])
            added = [write.constant(np.float32(0)), write.constant(np.float32(HIDDEN))]
            rows = write.node("Where", [seen, *added])
            rows = write.node("Concat", [rows] * repeat, axis=1) if repeat > 1 else rows
            self.masks[key] = write.node("Unsqueeze", [rows, write.shape(1)])
        return self.masks[key]

    def expand(self, node):
        write, size = self.write, self.size(node)
        write.begin(node.name or node.output[0])
        heads, groups = attribute(node, "num_heads"), attribute(node, "kv_num_heads")
        operands = [node.input[0], _operand(node, 1), _operand(node, 2)]
        if not operands[1]:
            cuts = np.cumsum([0, heads * size, groups * size, groups * size])
            operands = [
                write.node("Slice", [node.input[0], *(write.shape(n) for n in (begin, end, 2))])
                for begin, end in zip(cuts[:-1], cuts[1:])
            ]
        q, k, v = (
            write.node("Transpose", [write.node("Reshape", [x, write.shape(0, 0, count, size)])], perm=[0, 2, 1, 3])
            for x, count in zip(operands, (heads, groups, groups))
        )
        positions = self.positions_of(node)
        if attribute(node, "do_rotary", 0):
            interleaved = attribute(node, "rotary_interleaved", 0) != 0
            turn = self.rotary.rows_at(_operand(node, 7), _operand(node, 8), positions, size, interleaved)
            q, k = (self.rotary.turn(x, *turn) for x in (q, k))
        names = [node.output[i] if len(node.output) > i else "" for i in (1, 2)]
        for which, (new, name) in enumerate(((k, names[0]), (v, names[1]))):
            past = _operand(node, 3 + which)
            whole = write.node("Concat", [past, new], name or None, axis=2) if past else new
            if not past and name:
                write.node("Identity", [new], name)
            k, v = (whole, v) if which == 0 else (k, whole)
        self._attend(node, q, k, v, positions)
        return write.nodes

    def _attend(self, node, q, k, v, positions):
        write, size = self.write, self.size(node)
        heads, groups = attribute(node, "num_heads"), attribute(node, "kv_num_heads")
        scale = attribute(node, "scale", 0.0) or size**-0.5
        q = write.node("Mul", [q, write.constant(np.float32(scale))])
        q = write.node("Reshape", [q, write.shape(0, groups, -1, size)])
        scores = write.node("MatMul", [q, write.node("Transpose", [k], perm=[0, 1, 3, 2])])
        cap = attribute(node, "softcap", 0.0)
        if cap > 0:
            scores = write.node("Tanh", [write.node("Div", [scores, write.constant(np.float32(cap))])])
            scores = write.node("Mul", [scores, write.constant(np.float32(cap))])
        mask = self.mask(node, positions, heads // groups)
        if mask is not None:
            scores = write.node("Add", [scores, mask])
        mixed = write.node("MatMul", [write.node("Softmax", [scores], axis=-1), v])
        mixed = write.node("Reshape", [mixed, write.shape(0, heads, -1, size)])
        mixed = write.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        write.node("Reshape", [mixed, write.shape(0, 0, heads * size)], node.output[0])


# --- normalisations of sums, rotary positions alone
# ------------------------------------------------------------------------


def _mean(write, x, opset):
    """Along the last axis."""
    if opset >= 18:
        return write.node("ReduceMean", [x, write.shape(-1)], keepdims=1)
    return write.node("ReduceMean", [x], axes=[-1], keepdims=1)


def _normalised(write, x, gain, shift, centred, epsilon, opset, output):
    """x, less its mean where it is `centred`, over the root of the mean of its squares along the last axis, times the
    gain of each channel, plus the shift if there is one."""
    if centred:
        x = write.node("Sub", [x, _mean(write, x, opset)])
    mean = _mean(write, write.node("Mul", [x, x]), opset)
    root = write.node("Sqrt", [write.node("Add", [mean, write.constant(np.float32(epsilon))])])
    scaled = write.node("Mul", [write.node("Div", [x, root]), gain], None if shift else output)
    if shift:
        write.node("Add", [scaled, shift], output)


def _norm(node, graph, write, opset):
    """The simplified normalisation, which shape inference does not know, the one of an older opset, and those of sums.
    Outputs: the result, mean and deviation (not served), the sum."""
    statistics = [name for name in node.output[1:3] if name]
    if any(name in graph.readers or name in graph.held for name in statistics):
        return None
    write.begin(node.name or node.output[0])
    epsilon = attribute(node, "epsilon", 1e-5)
    simplified = node.op_type.endswith("SimplifiedLayerNormalization")
    if is_onnx(node, node.op_type):
        shape = graph.shapes.get(node.input[0])
        if attribute(node, "axis", -1) not in (-1, None if shape is None else len(shape) - 1):
            return None
        shift = "" if simplified else _operand(node, 2)
        _normalised(write, node.input[0], node.input[1], shift, not simplified, epsilon, opset, node.output[0])
        return write.nodes
    bias = _operand(node, 3 if simplified else 4)
    total = node.output[3] if len(node.output) > 3 and node.output[3] else None
    x = write.node("Add", list(node.input[:2]), None if bias else total)
    if bias:
        x = write.node("Add", [x, bias], total)
    shift = "" if simplified else _operand(node, 3)
    _normalised(write, x, node.input[2], shift, not simplified, epsilon, opset, node.output[0])
    return write.nodes


def _rotary_alone(node, graph, write, rotary):
    """RotaryEmbedding of [batch, tokens, heads * size] or [batch, heads, tokens, size] by positions [batch, tokens]."""
    shape = graph.shapes.get(node.input[0])
    tables = [graph.array(name) for name in node.input[2:4]]
    positions = graph.shapes.get(node.input[1])
    if shape is None or positions is None or len(positions) != 2 or any(t is None for t in tables):
        return None
    heads = attribute(node, "num_heads", 0)
    size = shape[3] if len(shape) == 4 else (shape[2] // heads if heads and shape[2] else 2 * tables[0].shape[1])
    if not size:
        return None
    write.begin(node.name or node.output[0])
    interleaved = attribute(node, "interleaved", 0) != 0
    turn = rotary.rows_at(node.input[2], node.input[3], node.input[1], size, interleaved)
    if len(shape) == 4:
        rotary.turn(node.input[0], *turn, node.output[0])
        return write.nodes
    x = write.node("Reshape", [node.input[0], write.shape(0, 0, -1, size)])
    x = rotary.turn(write.node("Transpose", [x], perm=[0, 2, 1, 3]), *turn)
    x = write.node("Transpose", [x], perm=[0, 2, 1, 3])
    joined = shape[2] if shape[2] else -1
    write.node("Reshape", [x, write.shape(0, 0, joined)], node.output[0])
    return write.nodes


def spell_out(model):
    """See the module's text. Returns what stays, as sentences."""
    for _ in model.graph.node:  # shapes behind a node of these are known when it is spelled out
        before = len(model.graph.node)
        inferred = onnx.shape_inference.infer_shapes(model)
        unserved = _spell_out_known(model, Graph(inferred))
        if len(model.graph.node) == before:
            break
    return unserved


def _spell_out_known(model, graph):
    write = Writer(model)
    rotary = _Rotary(write, graph)
    attention = GroupQueryAttention(model, graph, write, rotary)
    unserved = []

    def step(node):
        unknown = is_onnx(node, "SimplifiedLayerNormalization") or (
            is_onnx(node, "LayerNormalization") and opset_of(model) < LAYER_NORMALIZATION
        )
        if unknown or is_contrib(node, "SkipSimplifiedLayerNormalization", "SkipLayerNormalization"):
            return _norm(node, graph, write, opset_of(model))
        if is_contrib(node, "RotaryEmbedding"):
            return _rotary_alone(node, graph, write, rotary)
        if node.domain == DOMAIN and fused.is_fused(node) and opset_of(model) >= FUSED:
            made = fused.single(node, graph, write, _normalised, opset_of(model))
            if isinstance(made, str) and node.op_type in fused.ATTENTIONS:
                unserved.append(f"node '{node.name or node.output[0]}' ({node.op_type}) stays in float: {made}")
            return None if isinstance(made, str) else made
        if not is_contrib(node, "GroupQueryAttention"):
            return None
        obstacle = attention.obstacle(node)
        if obstacle:
            unserved.append(f"node '{node.name or node.output[0]}' (GroupQueryAttention) stays in float: {obstacle}")
            return None
        return attention.expand(node)

    _replace(model, step)
    return unserved

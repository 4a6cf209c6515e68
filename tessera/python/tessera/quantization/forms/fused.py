# SPDX-License-Identifier: Apache-2.0
"""Operators that ONNX Runtime's optimiser for transformers fuses, in single operators of the standard again: Attention
and MultiHeadAttention, also with a past that grows, EmbedLayerNormalization, BiasGelu, FastGelu, Gelu and QuickGelu,
FusedMatMul. In: a node, the graph that holds it, and a Writer. Out: the nodes that stand for it, or None for a form
that is not served. The products of an attention are then quantised as those of an exporter are."""

import numpy as np
from onnx import TensorProto

from ..graph import attribute

ATTENTIONS = ("Attention", "MultiHeadAttention")
PRODUCTS = (*ATTENTIONS, "FusedMatMul", "GroupQueryAttention")  # operators that become products
HIDDEN = -10000.0  # the default of mask_filter_value


def _operand(node, i):
    return node.input[i] if i < len(node.input) else ""


def _is_read(node, outputs, graph):
    return any(name and (name in graph.readers or name in graph.held) for name in node.output[outputs:])


# --- activations and products


def _erf_gelu(write, x, output):
    inner = write.node("Erf", [write.node("Div", [x, write.constant(np.float32(np.sqrt(2)))])])
    inner = write.node("Add", [inner, write.constant(np.float32(1))])
    return write.node("Mul", [write.node("Mul", [x, inner]), write.constant(np.float32(0.5))], output)


def _tanh_gelu(write, x, output):
    cube = write.node(
        "Mul", [write.node("Pow", [x, write.constant(np.float32(3))]), write.constant(np.float32(0.044715))]
    )
    inner = write.node("Mul", [write.node("Add", [x, cube]), write.constant(np.float32(np.sqrt(2 / np.pi)))])
    inner = write.node("Add", [write.node("Tanh", [inner]), write.constant(np.float32(1))])
    return write.node("Mul", [write.node("Mul", [x, inner]), write.constant(np.float32(0.5))], output)


def _activation(node, write):
    x = node.input[0]
    if _operand(node, 1):
        x = write.node("Add", [x, node.input[1]])
    if node.op_type == "QuickGelu":
        gate = write.node(
            "Sigmoid", [write.node("Mul", [x, write.constant(np.float32(attribute(node, "alpha", 1.702)))])]
        )
        write.node("Mul", [x, gate], node.output[0])
    else:
        (_tanh_gelu if node.op_type == "FastGelu" else _erf_gelu)(write, x, node.output[0])
    return write.nodes


def _product(node, graph, write):
    """FusedMatMul: alpha * A B, the last two axes of either swapped."""
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        return None
    operands = []
    for name, swap in zip(node.input, (attribute(node, "transA", 0), attribute(node, "transB", 0))):
        shape = graph.shapes.get(name)
        if swap and (shape is None or len(shape) < 2):
            return None
        if swap:
            order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            array = graph.array(name)
            name = (
                write.node("Transpose", [name], perm=order) if array is None else write.constant(array.transpose(order))
            )
        operands.append(name)
    alpha = attribute(node, "alpha", 1.0)
    y = write.node("MatMul", operands, node.output[0] if alpha == 1 else None)
    if alpha != 1:
        write.node("Mul", [y, write.constant(np.float32(alpha))], node.output[0])
    return write.nodes


# --- embeddings


def _embedding(node, graph, write, normalised, opset):
    """The sum of words, positions and segments, normalised. The second result counts what the mask shows."""
    segments, mask, positions = (_operand(node, i) for i in (1, 7, 8))
    shape = graph.shapes.get(node.input[0])
    if (
        shape is None
        or len(shape) != 2
        or (_is_read(node, 1, graph) and not mask and len(node.output) > 1 and node.output[1])
    ):
        return None
    x = write.node("Gather", [node.input[2], node.input[0]], axis=0)
    if positions:
        places = write.node("Gather", [node.input[3], positions], axis=0)
    else:
        length = write.node("Gather", [write.node("Shape", [node.input[0]]), write.constant(np.int64(1))], axis=0)
        steps = write.node("Range", [write.constant(np.int64(0)), length, write.constant(np.int64(1))])
        places = write.node("Unsqueeze", [write.node("Gather", [node.input[3], steps], axis=0), write.shape(0)])
    total = node.output[2] if len(node.output) > 2 and node.output[2] else None
    x = write.node("Add", [x, places], None if segments else total)
    if segments:
        x = write.node("Add", [x, write.node("Gather", [node.input[4], segments], axis=0)], total)
    if mask and len(node.output) > 1 and node.output[1]:
        write.node("ReduceSum", [mask, write.shape(1)], node.output[1], keepdims=0)
    epsilon = attribute(node, "epsilon", 1e-12)
    normalised(write, x, node.input[5], node.input[6], True, epsilon, opset, node.output[0])
    return write.nodes


# --- attentions


class _Attention:
    """The nodes of one attention from its queries, keys and values [batch, tokens, heads * size] on."""

    def __init__(self, node, graph, write):
        self.node, self.graph, self.write = node, graph, write
        self.heads = attribute(node, "num_heads", 0)
        self.hidden = write.constant(np.float32(attribute(node, "mask_filter_value", HIDDEN)))
        self.nothing = write.constant(np.float32(0))

    def _parts(self, x, width):
        x = self.write.node("Reshape", [x, self.write.shape(0, 0, self.heads, width // self.heads)])
        return self.write.node("Transpose", [x], perm=[0, 2, 1, 3])

    def _length(self, x, axis):
        return self.write.node("Gather", [self.write.node("Shape", [x]), self.write.constant(np.int64(axis))], axis=0)

    def _steps(self, first, end):
        return self.write.node("Range", [first, end, self.write.constant(np.int64(1))])

    def mask_rank(self, name):
        """1, 2 or 3 where the mask is served."""
        shape = self.graph.shapes.get(name)
        if shape is None or len(shape) not in (1, 2, 3):
            return None
        return len(shape)

    def _mask(self, name, keys):
        """What is added to the scores: [batch, 1, 1 or tokens, keys]."""
        write, rank = self.write, self.mask_rank(name)
        if rank == 1:
            lengths = write.node("Unsqueeze", [write.node("Cast", [name], to=TensorProto.INT64), write.shape(1)])
            steps = self._steps(write.constant(np.int64(0)), self._length(keys, 2))
            seen = write.node("Less", [write.node("Unsqueeze", [steps, write.shape(0)]), lengths])
        else:
            seen = write.node("Cast", [name], to=TensorProto.BOOL)
        rows = write.node("Where", [seen, self.nothing, self.hidden])
        return write.node("Unsqueeze", [rows, write.shape(1) if rank == 3 else write.shape(1, 2)])

    def _causal(self, queries, keys, with_past):
        """[tokens, keys]: hidden is what lies behind a query's own place. The queries are the last tokens of the keys
        where there is a past, and the first ones else."""
        write, zero, end = self.write, self.write.constant(np.int64(0)), self._length(keys, 2)
        tokens = self._length(queries, 2)
        own = self._steps(write.node("Sub", [end, tokens]), end) if with_past else self._steps(zero, tokens)
        own = write.node("Unsqueeze", [own, write.shape(1)])
        other = write.node("Unsqueeze", [self._steps(zero, end), write.shape(0)])
        return write.node("Where", [write.node("Greater", [other, own]), self.hidden, self.nothing])

    def _joined(self, new, past, present):
        """Keys or values behind those of the past; `present` names them, if anything reads them."""
        if past:
            return self.write.node("Concat", [past, new], present or None, axis=2)
        if present:
            self.write.node("Identity", [new], present)
        return new

    def attend(self, q, k, v, widths, mask, bias, pasts=("", ""), presents=("", "")):
        """pasts, presents: of keys and values [batch, heads, tokens, size], or "". Nodes of the result, and of the
        presents under the names that are given; what the keys and values are called then stands in `self.whole`."""
        write, node = self.write, self.node
        size = widths[0] // self.heads
        scale = attribute(node, "scale", 0.0) or size**-0.5
        q = write.node("Mul", [q, write.constant(np.float32(scale))])
        q, k, v = (self._parts(x, width) for x, width in zip((q, k, v), widths))
        k, v = self.whole = [self._joined(*parts) for parts in zip((k, v), pasts, presents)]
        scores = write.node("MatMul", [q, write.node("Transpose", [k], perm=[0, 1, 3, 2])])
        added = [self._mask(mask, k)] if mask else []
        added += [self._causal(q, k, pasts[0] != "")] if attribute(node, "unidirectional", 0) else []
        for term in [*added, *([bias] if bias else [])]:
            scores = write.node("Add", [scores, term])
        mixed = write.node("MatMul", [write.node("Softmax", [scores], axis=-1), v])
        mixed = write.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        write.node("Reshape", [mixed, write.shape(0, 0, widths[2])], node.output[0])
        return write.nodes


def _refusal(node, graph, attention, mask_at, past_at, buffer_at):
    """Why an attention is not served; None where it is. past_at: operands that are a past; buffer_at: those that say
    how much of a buffer is one."""
    if attention.heads < 1 or attribute(node, "do_rotary", 0):
        return "its heads are not told, or it turns them"
    if attribute(node, "past_present_share_buffer", 0) or any(_operand(node, i) for i in buffer_at):
        return "past and present are one buffer; export it with a past that grows"
    if _is_read(node, 3, graph):
        return "its scores are read"
    if len({bool(_operand(node, i)) for i in past_at}) > 1:
        return "it has a past of keys or of values alone"
    if _operand(node, mask_at) and attention.mask_rank(node.input[mask_at]) is None:
        return "the shape of its mask is not known or not served"
    return None


def _attention(node, graph, write, attention):
    """Attention of com.microsoft: one constant makes queries, keys and values."""
    weights = graph.array(node.input[1])
    bias = graph.array(node.input[2]) if _operand(node, 2) else None
    if weights is None or weights.ndim != 2 or (_operand(node, 2) and bias is None):
        return "its weights are no constants"
    widths = attribute(node, "qkv_hidden_sizes") or [weights.shape[1] // 3] * 3
    shape = graph.shapes.get(_operand(node, 3)) if _operand(node, 3) else None
    batch = (graph.shapes.get(node.input[0]) or [None])[0]
    if shape is not None and len(shape) == 1 and (batch is None or shape[0] != batch):
        known = graph.producer.get(node.input[3])
        if known is None or known.op_type != "ReduceSum":
            return "its mask of one dimension may hold more than lengths"
    ends = np.cumsum(widths)
    parts = []
    for start, end in zip(ends - widths, ends):
        x = write.node("MatMul", [node.input[0], write.constant(np.ascontiguousarray(weights[:, start:end]))])
        parts.append(x if bias is None else write.node("Add", [x, write.constant(bias[start:end])]))
    if widths[0] != widths[2] and (_operand(node, 4) or _is_read(node, 1, graph)):
        return "its past holds keys and values of two sizes"
    pasts = ("", "")
    if _operand(node, 4):
        pasts = [write.node("Gather", [node.input[4], write.constant(np.int64(i))], axis=0) for i in range(2)]
    attention.attend(*parts, widths, _operand(node, 3), _operand(node, 5), pasts)
    if _is_read(node, 1, graph):
        stacked = [write.node("Unsqueeze", [x, write.shape(0)]) for x in attention.whole]
        write.node("Concat", stacked, node.output[1], axis=0)
    return write.nodes


def _multi_head(node, graph, write, attention):
    shapes = [graph.shapes.get(_operand(node, i)) for i in range(3)]
    if any(shape is None or len(shape) != 3 or not shape[2] for shape in shapes):
        return "its queries, keys and values are packed, or their shapes are not known"
    widths, parts = [shape[2] for shape in shapes], list(node.input[:3])
    mask = graph.shapes.get(_operand(node, 4)) if _operand(node, 4) else None
    if mask is not None and len(mask) == 1 and (shapes[0][0] is None or mask[0] != shapes[0][0]):
        return "its mask of one dimension may hold more than lengths"
    if _operand(node, 3):
        bias = graph.array(node.input[3])
        if bias is None:
            return "its bias is no constant"
        ends = np.cumsum(widths)
        for i, (start, end) in enumerate(zip(ends - widths, ends)):
            parts[i] = write.node("Add", [parts[i], write.constant(bias[start:end])])
    presents = [node.output[i] if len(node.output) > i else "" for i in (1, 2)]
    pasts = [_operand(node, i) for i in (6, 7)]
    return attention.attend(*parts, widths, _operand(node, 4), _operand(node, 5), pasts, presents)


def is_fused(node):
    return node.op_type in (
        "BiasGelu",
        "FastGelu",
        "Gelu",
        "QuickGelu",
        "FusedMatMul",
        "EmbedLayerNormalization",
        *ATTENTIONS,
    )


def single(node, graph, write, normalised, opset):
    """The nodes for a fused one, or a sentence that says why it stays. `normalised` writes a layer normalisation."""
    write.begin(node.name or node.output[0])
    if node.op_type in ATTENTIONS:
        attention = _Attention(node, graph, write)
        of_weights = node.op_type == "Attention"
        places = (3, (4,), (6,)) if of_weights else (4, (6, 7), (8, 9))
        reason = _refusal(node, graph, attention, *places)
        return reason or (_attention if of_weights else _multi_head)(node, graph, write, attention)
    if node.op_type == "FusedMatMul":
        made = _product(node, graph, write)
    elif node.op_type == "EmbedLayerNormalization":
        made = _embedding(node, graph, write, normalised, opset)
    else:
        made = _activation(node, write)
    return made or "its form is not served"

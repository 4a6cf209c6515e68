# SPDX-License-Identifier: Apache-2.0
"""Other spellings of what the NPU computes. In: a float model with inferred shapes. Out: Einsum of two operands as a
MatMul between movements, constants behind what they are multiplied with, means of columns that are transposed as those
of rows, the division of rows by their length as a normalisation by their root mean square, and no guard against rows of
a softmax that hide everything."""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ..graph import Graph, attribute, is_onnx, names_of, opset_of, outer_reads, rename, unique


class _Rewriter:
    """Collects the nodes and constants of a new graph."""

    def __init__(self, model):
        self.graph, self.model, self.nodes = Graph(model), model, []
        self.taken = names_of(model)

    def name(self, wanted):
        return unique(wanted, self.taken)

    def constant(self, name, array):
        name = self.name(name)
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, name, output=None, **attributes):
        output = output or self.name(name)
        self.nodes.append(helper.make_node(op, inputs, [output], self.name(f"{name}/{op}"), **attributes))
        return output

    def finish(self):
        """Puts the nodes in the model; those that nobody reads any more go."""
        read, kept = set(self.graph.outputs), []
        for node in reversed(self.nodes):
            if any(name in read for name in node.output):
                kept.append(node)
                read |= set(node.input) | outer_reads(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(reversed(kept))


# --- Einsum
# -------------------------------------------------------------------------------------------------------------


class _Labels:
    """Of an equation of two operands: `batch` in both and the result, `inner` summed over, `rows` of the left and
    `columns` of the right operand alone. A left operand may have further axes in front (`more`), along which the right
    one is the same."""

    def __init__(self, equation):
        text = equation.decode().replace(" ", "")
        terms, _, self.result = text.partition("->")
        self.left, self.right = terms.split(",") if terms.count(",") == 1 else ("", "")
        once = all(len(set(term)) == len(term) for term in (self.left, self.right, self.result))
        self.ok = bool(self.left) and "->" in text and "." not in text and once
        both = [c for c in self.left if c in self.right]
        self.batch = [c for c in self.result if c in both]
        self.inner = [c for c in both if c not in self.result]
        own = [c for c in self.left if c not in self.right]
        self.columns = [c for c in self.right if c not in self.left]
        self.more, self.rows = own[:-1], own[-1:]
        self.ok &= bool(self.inner) and set(own + self.columns + self.batch) == set(self.result)


def _extents(before, behind, extent):
    """What Reshape takes to make axes `behind` of axes `before`, both lists of groups of labels; an extent may be None.
    Nothing where more than one is left open."""
    made = []
    for place, group in enumerate(behind):
        known = None not in [extent[c] for c in group]
        same = before[: place + 1] == behind[: place + 1]
        made.append(math.prod(extent[c] for c in group) if known else 0 if same else -1)
    return made if made.count(-1) <= 1 else None


def _ordered(out, operand, labels, wanted, shape, extents, name):
    """The operand with its axes in the wanted order and each group of several labels, or none, as one axis."""
    order = [labels.index(c) for group in wanted for c in group]
    array = out.graph.array(operand)
    if array is not None:
        joined = [math.prod(shape[labels.index(c)] for c in group) for group in wanted]
        return out.constant(f"{name}/constant", array.transpose(order).reshape(joined))
    if order != sorted(order):
        operand = out.node("Transpose", [operand], f"{name}/turned", perm=order)
    if any(len(group) != 1 for group in wanted):
        operand = out.node("Reshape", [operand, out.constant(f"{name}/extents", np.int64(extents))], f"{name}/shaped")
    return operand


def _einsum(out, node):
    """Whether the node has been written as a MatMul."""
    known = _Labels(attribute(node, "equation", b"")) if len(node.input) == 2 else None
    if known is None or not known.ok:
        return False
    shapes = [out.graph.shapes.get(name) for name in node.input]
    if any(shape is None for shape in shapes):
        return False
    result = node.output[0]
    extent = {}
    for label, size in zip(known.left + known.right, shapes[0] + shapes[1]):
        extent[label] = size if extent.get(label) is None else extent[label]
    batch = [[c] for c in known.batch]
    left, right = [[c] for c in known.more] + batch + [known.rows, known.inner], [*batch, known.inner, known.columns]
    joined = [[c] for c in known.more] + batch + [known.rows, known.columns]
    made = known.more + known.batch + known.rows + known.columns
    apart = lambda groups: [[c] for group in groups for c in group]
    extents = [_extents(apart(left), left, extent), _extents(apart(right), right, extent)]
    extents.append(_extents(joined, [[c] for c in made], extent))
    if None in extents:
        return False
    a = _ordered(out, node.input[0], known.left, left, shapes[0], extents[0], f"{result}/left")
    b = _ordered(out, node.input[1], known.right, right, shapes[1], extents[1], f"{result}/right")
    order = [made.index(c) for c in known.result]
    reshaped = len(known.rows) != 1 or len(known.columns) != 1
    turned = order != sorted(order)
    product = out.node("MatMul", [a, b], result, None if reshaped or turned else result)
    if reshaped:
        extents = out.constant(f"{result}/extents", np.int64(extents[2]))
        product = out.node("Reshape", [product, extents], f"{result}/shaped", None if turned else result)
    if turned:
        out.node("Transpose", [product], result, result, perm=order)
    return True


def einsums_to_products(model):
    """Einsum of two operands, in which no label repeats and none is summed in one operand alone, as MatMul."""
    out = _Rewriter(model)
    for node in out.graph.nodes:
        if not (is_onnx(node, "Einsum") and out.graph.is_float(node.output[0]) and _einsum(out, node)):
            out.nodes.append(node)
    out.finish()


# --- constants in front
# -----------------------------------------------------------------------------------------------------


def _swaps_last(node, rank):
    """Whether a Transpose changes the places of the last two axes alone."""
    order = attribute(node, "perm") or list(range(rank))[::-1]
    return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]


def _constant_behind(out, node):
    """Whether the node has been written with its constant as weights."""
    array, made = out.graph.array(node.input[0]), out.graph.producer.get(node.input[1])
    if array is None or array.ndim < 2 or made is None or not is_onnx(made, "Transpose"):
        return False
    order, shape = attribute(made, "perm"), out.graph.shapes.get(made.input[0])
    rank = len(order) if order else len(shape or [])
    if not _swaps_last(made, rank) or (array.ndim > 2 and rank > 2):
        return False
    result, inner = node.output[0], array.shape[-1]
    weights = out.constant(f"{result}/weights", array.reshape(-1, inner).T)
    product = out.node("MatMul", [made.input[0], weights], result)
    if array.ndim > 2:
        extents = out.constant(f"{result}/extents", np.int64([0, *array.shape[:-1]]))
        product = out.node("Reshape", [product, extents], f"{result}/shaped")
        out.node("Transpose", [product], result, result, perm=[*range(1, array.ndim), 0])
    else:
        out.node("Transpose", [product], result, result, perm=[*range(rank - 2), rank - 1, rank - 2])
    return True


def constants_to_weights(model):
    """The product of a constant with a transposed tensor, as TensorFlow's exporter writes a Fourier transform, as the
    transposed product of the tensor with weights: they have a scale for each output, and 16 bits where they decide."""
    out = _Rewriter(model)
    for node in out.graph.nodes:
        if not (is_onnx(node, "MatMul") and out.graph.is_float(node.output[0]) and _constant_behind(out, node)):
            out.nodes.append(node)
    out.finish()


# --- differences from means of columns
# ----------------------------------------------------------------------------------------------------


def _order_behind(graph, node):
    """The order of the axes in which every reader of a node's result wants them, each for the rest of a normalisation;
    nothing where they do not agree."""
    readers = [reader for reader, _ in graph.readers.get(node.output[0], [])]
    behind = [r for reader in readers for name in reader.output for r, _ in graph.readers.get(name, [])]
    orders = {tuple(attribute(r, "perm") or ()) if is_onnx(r, "Transpose") else () for r in readers}
    alone = node.output[0] not in graph.held and all(is_onnx(r, "Cast", "Pow", "Mul", "Div") for r in behind)
    return list(orders.pop()) if alone and len(orders) == 1 else []


def _mean_of_columns(graph, node):
    """Of x - mean(x) whose readers transpose it: (order of the axes, node of the mean, its axes in that order)."""
    mean = graph.producer.get(node.input[1]) if is_onnx(node, "Sub") else None
    if mean is None or not is_onnx(mean, "ReduceMean") or mean.input[0] != node.input[0]:
        return None
    order, axes = _order_behind(graph, node), _known_axes(graph, mean)
    if not order or not axes or not attribute(mean, "keepdims", 1) or not _only_in(graph, mean, 1):
        return None
    return order, mean, sorted(order.index(axis % len(order)) for axis in axes)


def _transposed(out, x, order, name):
    """x with its axes in this order: by a Transpose that stands there, or a new one."""
    for reader, _ in out.graph.readers[x]:
        if is_onnx(reader, "Transpose") and attribute(reader, "perm") == order and reader in out.nodes:
            return reader.output[0]
    return out.node("Transpose", [x], name, perm=order)


def means_to_rows(model):
    """Transpose(x - mean(x)) as y - mean(y) of y = Transpose(x). ONNX Runtime's optimiser moves a Transpose behind the
    first half of a layer normalisation, where nobody would know it any more."""
    out, turned, same = _Rewriter(model), set(), {}
    for node in out.graph.nodes:
        form = _mean_of_columns(out.graph, node)
        if form is None:
            out.nodes.append(node)
            continue
        order, mean, axes = form
        result = node.output[0]
        x = _transposed(out, node.input[0], order, f"{result}/rows")
        middle = _mean(out, x, f"{result}/mean", opset_of(model), axes)
        behind = out.node("Sub", [x, middle], f"{result}/apart")
        readers = [reader for reader, _ in out.graph.readers[result]]
        turned |= {id(reader) for reader in readers}
        same |= {reader.output[0]: behind for reader in readers}
    out.nodes = [node for node in out.nodes if id(node) not in turned]
    for name in out.graph.held & same.keys():
        out.node("Identity", [same.pop(name)], name, name)
    rename(model.graph, same)
    out.finish()


# --- rows of length 1
# ----------------------------------------------------------------------------------------------------


def _is_least_length(graph, node):
    """Whether a Clip or Max keeps lengths from 0, and does nothing else to them."""
    least = [graph.array(name) for name in node.input[1:] if name]
    return len(least) == 1 and least[0] is not None and least[0].size == 1 and 0 <= least[0].reshape(-1)[0] <= 1e-6


def _known_axes(graph, node):
    """The axes of a reduction, by attribute or operand; None where they are not known."""
    axes = attribute(node, "axes")
    if axes is None and len(node.input) > 1 and graph.array(node.input[1]) is not None:
        axes = graph.array(node.input[1]).reshape(-1).tolist()
    return axes


def _divided_by_lengths(graph, node):
    """Whether a Div divides its first operand by the lengths of that operand's rows, through a least length, copies and
    a Transpose of both."""
    x, made, order = node.input[0], graph.producer.get(node.input[1]), None
    while made is not None and is_onnx(made, "Expand", "Clip", "Max", "Transpose"):
        if is_onnx(made, "Transpose"):
            before = graph.producer.get(x)
            if order is not None or before is None or not is_onnx(before, "Transpose"):
                return False
            order, x = attribute(made, "perm"), before.input[0]
            if order is None or attribute(before, "perm") != order:
                return False
        if is_onnx(made, "Clip", "Max") and not _is_least_length(graph, made):
            return False
        made = graph.producer.get(made.input[0])
    if made is None or not is_onnx(made, "ReduceL2") or not attribute(made, "keepdims", 1) or made.input[0] != x:
        return False
    axes = _known_axes(graph, made)
    rank = len(graph.shapes.get(x) or [])
    last = rank - 1 if order is None else order[-1]
    return bool(rank and axes) and [a % rank for a in axes] == [last]


def _mean(out, x, name, opset, axes=(-1,)):
    if opset < 18:
        return out.node("ReduceMean", [x], name, axes=axes, keepdims=1)
    return out.node("ReduceMean", [x, out.constant(f"{name}/axes", np.int64(axes))], name, keepdims=1)


def lengths_to_normalisations(model):
    """x over the length of its rows is x over their root mean square, divided by the root of their extent. The least
    length keeps rows of zeros from a division by 0, which epsilon does here."""
    out = _Rewriter(model)
    for node in out.graph.nodes:
        shape = out.graph.shapes.get(node.output[0]) if is_onnx(node, "Div", "LpNormalization") else None
        if is_onnx(node, "LpNormalization"):
            last = shape is not None and attribute(node, "axis", -1) % len(shape) == len(shape) - 1
            x = node.input[0] if last and attribute(node, "p", 2) == 2 else None
        else:
            x = node.input[0] if shape is not None and _divided_by_lengths(out.graph, node) else None
        if x is None or not shape or not shape[-1]:
            out.nodes.append(node)
            continue
        result = node.output[0]
        square = out.node("Mul", [x, x], f"{result}/square")
        mean = _mean(out, square, f"{result}/mean", opset_of(model))
        least = out.constant(f"{result}/epsilon", np.float32(1e-24))
        root = out.node("Sqrt", [out.node("Add", [mean, least], f"{result}/above")], f"{result}/root")
        shares = out.constant(f"{result}/shares", np.full(shape[-1], 1 / math.sqrt(shape[-1]), np.float32))
        out.node("Mul", [out.node("Div", [x, root], f"{result}/unit"), shares], result, result)
    out.finish()


# --- rows that hide everything
# -------------------------------------------------------------------------------------------


def _guarded(graph, node):
    """Of Where(IsNaN(p), number, p), and of the standard's Where(largest of the mask = minus infinity, number, p), also
    where a constant says so of no row: the softmax p, how often it is read, and the node of the test or None."""
    made = graph.producer.get(node.input[2]) if is_onnx(node, "Where") else None
    if made is None or not is_onnx(made, "Softmax"):
        return None
    test, known = graph.producer.get(node.input[0]), graph.array(node.input[0])
    if known is not None:
        return None if known.any() else (made, 1, None)
    if test is not None and is_onnx(test, "IsNaN") and test.input[0] == node.input[2]:
        return made, 2, test
    if test is not None and is_onnx(test, "Equal"):
        largest, limit = graph.producer.get(test.input[0]), graph.array(test.input[1])
        if largest is not None and is_onnx(largest, "ReduceMax") and limit is not None and np.isneginf(limit).all():
            return made, 1, test
    return None


def without_empty_windows(model, shaped):
    """ceil_mode goes from pools with a last window that would begin behind the input. ONNX Runtime leaves such a window
    out, but ONNX's inference below opset 22 counts it, and so gives wrong shapes to what follows."""
    pools = [node for node in model.graph.node if is_onnx(node, "MaxPool", "AveragePool")]
    pools = [node for node in pools if attribute(node, "ceil_mode", 0) and not attribute(node, "count_include_pad", 0)]
    for node in pools:
        sizes = (Graph(shaped(model)).shapes.get(node.input[0]) or [])[2:]
        pads = _pads_without_empty_windows(node, sizes) if sizes and all(isinstance(n, int) for n in sizes) else None
        if pads is not None:
            kept = [entry for entry in node.attribute if entry.name not in ("ceil_mode", "pads")]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("pads", pads)])


def _pads_without_empty_windows(node, sizes):
    """Pads with which as many windows are there as ONNX Runtime has; None where ceil_mode says the same."""
    kernel, rank, empty = attribute(node, "kernel_shape"), len(sizes), False
    strides, dilations = (attribute(node, name, [1] * rank) for name in ("strides", "dilations"))
    if attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b""):
        return None
    pads = list(attribute(node, "pads", [0] * 2 * rank))
    for axis, (size, taps, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations)):
        reach = dilation * (taps - 1) + 1
        count = -((reach - size - pads[axis] - pads[rank + axis]) // stride) + 1
        if (count - 1) * stride >= size + pads[axis]:
            count, empty = count - 1, True
        behind = (count - 1) * stride + reach - size - pads[axis]
        pads[rank + axis] = max(pads[rank + axis], behind)
    return pads if empty else None


def without_guards(model):
    """A softmax of a row that hides everything is 0 / 0, which a guard behind it replaces. Masks are finite behind
    quantisation, so such a row has equal shares and the guard never acts."""
    out, removed = _Rewriter(model), set()
    for node in out.graph.nodes:
        softmax, reads, test = _guarded(out.graph, node) or (None, 0, None)
        if softmax is None or not _only_in(out.graph, softmax, reads) or (test and not _only_in(out.graph, test, 1)):
            out.nodes.append(node)
            continue
        removed |= {id(node), id(test)}
        softmax.output[0] = node.output[0]
    out.nodes = [node for node in out.nodes if id(node) not in removed]
    out.finish()
    if removed:
        _finite_masks(model)


def _only_in(graph, node, count):
    """Whether the node's result is read as often and does not leave the graph."""
    name = node.output[0]
    return name not in graph.held and len(graph.readers[name]) == count


def _finite_masks(model):
    """Constants that sums and choices take have the lowest number in the place of minus infinity."""
    read = {name for node in model.graph.node if is_onnx(node, "Where", "Add") for name in node.input}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name in read:
            array = numpy_helper.to_array(tensor)
            if np.isneginf(array).any():
                tensor.CopyFrom(numpy_helper.from_array(np.maximum(array, np.finfo(np.float32).min), tensor.name))

# SPDX-License-Identifier: Apache-2.0
"""Scores of attention in one form: scaled, summed with their mask, and a softmax right behind. In: a float model with
inferred shapes. Out: the same function, in which

- exponentials over their sum, with or without the largest one taken off, are a Softmax,
- factors behind a mask stand in front of it, on both sides of the sum,
- a mask that is subtracted is added,
- a lower limit that hidden scores alone reach is gone,
- scores that are multiplied by zeros where a constant hides them are only summed with it,
- Where(hidden, 0, shares) behind a softmax is a product.

Scores in one scale with their mask would otherwise all be the same step, or stay float."""

import numpy as np

from ..graph import attribute, is_onnx
from .spellings import _Rewriter

HIDDEN = -1000.0  # what is added to scores that are not to be seen is below this
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")
MOST = 16  # nodes between a sum and its softmax; passes over the model


def _scalar(graph, name):
    """The value of a constant of one element; None for others."""
    array = graph.array(name)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _factor(graph, node):
    """(the operand, the positive number that it is multiplied by) of Mul and Div by a constant; else None."""
    if is_onnx(node, "Mul", "Div"):
        for side in (0, 1) if node.op_type == "Mul" else (1,):
            value = _scalar(graph, node.input[side])
            if value is not None and value > 0 and np.isfinite(value) and node.input[1 - side] not in graph.constants:
                return node.input[1 - side], value if node.op_type == "Mul" else 1 / value
    return None


def _limited(graph, node):
    """The operand of Max and Clip that only hidden scores can reach the limits of; else None."""
    if is_onnx(node, "Max") and len(node.input) == 2:
        for side in (0, 1):
            low = _scalar(graph, node.input[side])
            if low is not None and low <= HIDDEN:
                return node.input[1 - side]
    if is_onnx(node, "Clip"):
        ends = [node.input[k] if len(node.input) > k and node.input[k] else None for k in (1, 2)]
        low, high = (_scalar(graph, end) if end else (-np.inf, np.inf)[k] for k, end in enumerate(ends))
        if low is not None and high is not None and low <= HIDDEN and high >= -HIDDEN:
            return node.input[0]
    return None


def softmax_behind(graph, name):
    """The softmax that alone reads the tensor, perhaps through sums, factors, limits and movements; else None."""
    for _ in range(MOST):
        reader = graph.only_reader(name)
        if reader is None or is_onnx(reader, "Softmax"):
            return reader
        passes = is_onnx(reader, "Add", "Sub", *MOVES) or _factor(graph, reader) or _limited(graph, reader)
        if not passes:
            return None
        name = reader.output[0]
    return None


def _axes(graph, node):
    axes = attribute(node, "axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        array = graph.array(node.input[1])
        axes = None if array is None else array.reshape(-1).tolist()
    rank = len(graph.shapes.get(node.input[0]) or [])
    return None if axes is None or not rank else [axis % rank for axis in axes]


def _reduced(graph, name, op, source):
    """The one axis along which the tensor is a reduction of `source`, with the axis kept; else None."""
    node = graph.producer.get(name)
    if node is None or not is_onnx(node, op) or node.input[0] != source or not attribute(node, "keepdims", 1):
        return None
    axes = _axes(graph, node)
    return axes[0] if axes is not None and len(axes) == 1 else None


def _exponentials(out, node):
    """exp(x) over its sum as Softmax."""
    graph = out.graph
    made = graph.producer.get(node.input[0]) if is_onnx(node, "Div") else None
    if made is None or not is_onnx(made, "Exp"):
        return False
    axis = _reduced(graph, node.input[1], "ReduceSum", made.output[0])
    if axis is None:
        return False
    out.node("Softmax", [made.input[0]], node.output[0], node.output[0], axis=axis)
    return True


def _without_largest(out, node):
    """Softmax of scores less the largest one."""
    graph = out.graph
    made = graph.producer.get(node.input[0]) if is_onnx(node, "Softmax") else None
    if made is None or not is_onnx(made, "Sub"):
        return False
    rank = len(graph.shapes.get(node.input[0]) or [])
    if not rank or _reduced(graph, made.input[1], "ReduceMax", made.input[0]) != attribute(node, "axis", -1) % rank:
        return False
    out.node("Softmax", [made.input[0]], node.output[0], node.output[0], axis=attribute(node, "axis", -1))
    return True


def _shares(out, node):
    """Where(hidden, 0, shares) as shares times Where(hidden, 0, 1)."""
    graph = out.graph
    if not is_onnx(node, "Where"):
        return False
    for side in (1, 2):
        made = graph.producer.get(node.input[side])
        if _scalar(graph, node.input[3 - side]) != 0 or made is None or not is_onnx(made, "Softmax"):
            continue
        name = node.output[0]
        ends = [out.constant(f"{name}/{what}", np.float32(v)) for what, v in (("kept", 1), ("hidden", 0))]
        kept = out.node("Where", [node.input[0], *(ends if side == 1 else ends[::-1])], f"{name}/mask")
        out.node("Mul", [node.input[side], kept], name, name)
        return True
    return False


def _added(out, node):
    """Scores less a mask as a sum."""
    graph = out.graph
    if not is_onnx(node, "Sub") or node.input[0] in graph.constants or softmax_behind(graph, node.output[0]) is None:
        return False
    scores, mask = node.input
    array = graph.array(mask)
    if _reduced(graph, mask, "ReduceMax", scores) is not None:
        return False
    name = node.output[0]
    negative = out.node("Neg", [mask], f"{name}/mask") if array is None else out.constant(f"{name}/mask", -array)
    out.node("Add", [scores, negative], name, name)
    return True


def _unlimited(out, node):
    source = _limited(out.graph, node)
    if source is None or softmax_behind(out.graph, node.output[0]) is None:
        return False
    made = out.graph.producer.get(source)
    if made is None or not is_onnx(made, "Add", *MOVES):  # there is no mask in front
        return False
    out.node("Identity", [source], node.output[0], node.output[0])
    return True


def _factor_in_front(out, node):
    """(scores + mask) * c as scores * c + mask * c."""
    graph, found = out.graph, _factor(out.graph, node)
    if found is None or softmax_behind(graph, node.output[0]) is None:
        return False
    made = graph.producer.get(found[0])
    if made is None or not is_onnx(made, "Add") or graph.only_reader(found[0]) is None:
        return False
    name, parts = node.output[0], []
    for k, operand in enumerate(made.input):
        array = graph.array(operand)
        if array is not None:
            parts.append(out.constant(f"{name}/part{k}", (array * np.float32(found[1])).astype(np.float32)))
        else:
            factor = out.constant(f"{name}/factor{k}", np.float32(found[1]))
            parts.append(out.node("Mul", [operand, factor], f"{name}/part{k}"))
    out.node("Add", parts, name, name)
    return True


def _multiplied_mask(out, node):
    """scores * t + c, where c hides what the constant t of zeros and ones takes away, as scores + c."""
    graph = out.graph
    if not is_onnx(node, "Add") or softmax_behind(graph, node.output[0]) is None:
        return False
    for side in (0, 1):
        made, hiding = graph.producer.get(node.input[side]), graph.array(node.input[1 - side])
        if made is None or hiding is None or not is_onnx(made, "Mul"):
            continue
        for k in (0, 1):
            taken = graph.array(made.input[k])
            if taken is None or taken.size == 1 or not np.all((taken == 0) | (taken == 1)):
                continue
            if np.all(np.where(taken == 0, hiding, HIDDEN) <= HIDDEN):
                out.node("Add", [made.input[1 - k], node.input[1 - side]], node.output[0], node.output[0])
                return True
    return False


STEPS = (
    (_exponentials,),
    (_without_largest, _shares),
    (_added,),
    (_unlimited,),
    (_factor_in_front,),
    (_multiplied_mask,),
)


def scores_in_one_form(model, infer):
    """Changes the model. infer: gives it its shapes, of which new tensors have none."""
    for rewrites in STEPS:
        for _ in range(MOST):
            out, changed = _Rewriter(model), False
            for node in out.graph.nodes:
                if any(rewrite(out, node) for rewrite in rewrites):
                    changed = True
                else:
                    out.nodes.append(node)
            if not changed:
                break
            out.finish()
            _drop_identities(model)
            model = infer(model)
    return model


def _drop_identities(model):
    """Those that limits have become: their readers read what they read."""
    out = _Rewriter(model)
    names = {
        n.output[0]: n.input[0] for n in out.graph.nodes if is_onnx(n, "Identity") and n.output[0] not in out.graph.held
    }
    for node in out.graph.nodes:
        if node.output and node.output[0] in names:
            continue
        for index, name in enumerate(node.input):
            while name in names:
                name = names[name]
            node.input[index] = name
        out.nodes.append(node)
    out.finish()

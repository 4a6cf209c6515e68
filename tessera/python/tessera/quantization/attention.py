# SPDX-License-Identifier: Apache-2.0
"""What is particular about transformers. In: a prepared float model, its plan, ranges of its tensors. Out: masks of
scores as sums, normalisations of rows as one group of nodes, and ranges that masks do not spoil.

A mask adds a number far below every score, so that the softmax behind it gives 0. In steps that reach down to such a
number all scores would be the same. A hidden score needs to lie only so far below the others that its share vanishes:
MARGIN below the lowest one."""

import math

import numpy as np
from onnx import TensorProto, helper

from .forms.scores import HIDDEN, softmax_behind
from .graph import attribute, is_onnx, unique

MARGIN = 8.0  # exp(-8) is a third of a thousandth


# --- masks
# -------------------------------------------------------------------------------------------------------------


def _softmax_behind(graph, name):
    """Whether a softmax alone reads the tensor, a further sum and movements in between aside."""
    reader, sums = graph.only_reader(name), 0
    while reader is not None and is_onnx(reader, "Add", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"):
        sums += reader.op_type == "Add"
        reader = graph.only_reader(reader.output[0]) if sums < 2 else None
    return reader is not None and is_onnx(reader, "Softmax")


def _hiding(graph, node):
    """(scores, number, whether the condition says what is seen) of a Where that hides scores; else None."""
    if not is_onnx(node, "Where") or softmax_behind(graph, node.output[0]) is None:
        return None
    for scores, hidden, seen in ((1, 2, True), (2, 1, False)):
        array = graph.array(node.input[hidden])
        low = array is not None and array.size == 1 and float(array.reshape(-1)[0]) <= HIDDEN
        if low and node.input[scores] not in graph.constants:
            return node.input[scores], array.reshape(-1)[0], seen
    return None


def masks_to_sums(model, graph, add_constant):
    """Where(seen, scores, number) in front of a softmax becomes scores + Where(seen, 0, number): the softmax of both is
    the same, as the number hides everything. Where(hidden, number, scores) likewise. add_constant: of (name, array),
    returns the name that it gave the constant; its `taken` are the model's names."""
    nodes = []
    for node in model.graph.node:
        hiding = _hiding(graph, node)
        if hiding is None:
            nodes.append(node)
            continue
        scores, hidden, seen = hiding
        condition = graph.array(node.input[0])
        lowest = np.float32(np.maximum(hidden, np.finfo(np.float32).min))
        mask = f"{node.output[0]}/mask"
        if condition is not None:
            mask = add_constant(mask, np.where(condition == seen, np.float32(0), lowest))
        else:
            operands = [add_constant(f"{mask}/seen", np.float32(0)), add_constant(f"{mask}/hidden", lowest)]
            inputs = [node.input[0], *(operands if seen else operands[::-1])]
            mask = unique(mask, add_constant.taken)
            named = unique(f"{node.name or node.output[0]}/mask", add_constant.taken)
            nodes.append(helper.make_node("Where", inputs, [mask], named))
        nodes.append(helper.make_node("Add", [scores, mask], list(node.output), node.name))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _range_of(plan, ranges, name):
    array = plan.graph.array(name)
    return ranges.get(name) if array is None else (float(array.min()), float(array.max()))


def masked_sum(plan, unit, ranges):
    """(tensor of scores, tensor of their mask) of a quantised sum of both in front of a softmax; else None."""
    node = unit.nodes[0]
    if unit.kind != "binary" or len(unit.nodes) != 1 or not is_onnx(node, "Add"):
        return None
    if not _softmax_behind(plan.graph, unit.output):
        return None
    for scores, mask in (tuple(node.input), tuple(node.input)[::-1]):
        given = _range_of(plan, ranges, mask)
        if scores not in plan.graph.constants and given is not None and given[0] <= HIDDEN:
            return scores, mask
    return None


def lowest_of_mask(scores, total):
    """The number that a mask adds to hidden scores, for Parameters or ranges of the scores and of the sum."""
    return total[0] - scores[1]


def _steps_of_one(share):
    """The steps in a share of 1, for shares up to `share` of an integer softmax. It multiplies by the whole part of one
    divided by the scale, so powers of two lose nothing: with the scale 1/256 it gives 255 for a share of 1, with 1/255
    it gives 254. Shares of many tokens are small and get finer steps."""
    return 256 * 2 ** int(math.floor(-math.log2(min(max(share, 2.0**-16), 1.0))))


def ranges_of(plan, ranges):
    """`ranges` with those of masks, of sums with masks, and of embeddings as they have to be."""
    found, masks = dict(ranges), {}
    for unit in plan.units:
        if unit.kind == "embedding":
            array = plan.graph.array(unit.node.input[0])
            found[unit.output] = (float(array.min()), float(array.max()))
        if unit.quantised and is_onnx(unit.nodes[-1], "Softmax") and unit.output in found:
            found[unit.output] = (0.0, 255 / _steps_of_one(found[unit.output][1]))
        pair = masked_sum(plan, unit, ranges)
        if pair is None or pair[0] not in found:
            continue
        low, high = found[pair[0]]
        above = max(0.0, _range_of(plan, ranges, pair[1])[1])
        found[unit.output] = (low - MARGIN, high + above)
        if pair[1] not in plan.graph.constants:
            # Layers share a mask.
            lowest = lowest_of_mask(found[pair[0]], found[unit.output])
            masks[pair[1]] = (min(lowest, masks.get(pair[1], (0.0,))[0]), above)
    return {**found, **masks}


# --- normalisations
# ----------------------------------------------------------------------------------------------------


class _Group:
    """The nodes of a normalisation that is spelled out, found from its root on."""

    def __init__(self, graph, root):
        self.graph, self.nodes = graph, [root]

    def made_by(self, name, *types):
        """The node of one of the types that makes the tensor; it belongs to the group."""
        node = self.graph.producer.get(name)
        if node is None or not is_onnx(node, *types):
            return None
        if not any(node is n for n in self.nodes):
            self.nodes.append(node)
        return node

    def constant_beside(self, node):
        """(the other operand, the constant's array) of a node with one constant operand."""
        for k in (0, 1):
            array = self.graph.array(node.input[k])
            if array is not None:
                return node.input[1 - k], array
        return None

    def mean_of(self, name):
        """What the tensor is the mean of along the last axis."""
        node = self.made_by(name, "ReduceMean")
        if node is None or not attribute(node, "keepdims", 1):
            return None
        axes = attribute(node, "axes")
        if axes is None and len(node.input) > 1:
            array = self.graph.array(node.input[1])
            axes = None if array is None else array.reshape(-1).tolist()
        rank = len(self.graph.shapes.get(node.input[0]) or [])
        return node.input[0] if rank and axes is not None and [a % rank for a in axes] == [rank - 1] else None

    def deviating(self):
        """Of sqrt(mean(a * a) + epsilon): a."""
        added = self.made_by(self.nodes[0].input[0], "Add")
        beside = added is not None and self.constant_beside(added)
        if not beside or beside[1].size != 1:
            return None
        square = self.mean_of(beside[0])
        node = square and self.made_by(square, "Mul", "Pow")
        if not node:
            return None
        if node.op_type == "Mul":
            return node.input[0] if node.input[0] == node.input[1] else None
        power = self.graph.array(node.input[1])
        return node.input[0] if power is not None and power.size == 1 and power.reshape(-1)[0] == 2 else None

    def follow(self, name, *types):
        """The only reader of the tensor, of one of the types; it belongs to the group."""
        node = self.graph.only_reader(name)
        if node is None or not is_onnx(node, *types):
            return None
        self.nodes.append(node)
        return node

    def divided(self, a):
        """The tensor of a over the root."""
        root = self.nodes[0].output[0]
        node = self.follow(root, "Div", "Reciprocal")
        if node is None:
            return None
        if node.op_type == "Div" and list(node.input) == [a, root]:
            return node.output[0]
        one = self.graph.array(node.input[0])
        if node.op_type == "Div" and (one is None or one.size != 1 or one.reshape(-1)[0] != 1):
            return None
        product = self.follow(node.output[0], "Mul")
        return product.output[0] if product is not None and a in product.input else None

    def with_constants(self, name, centred):
        """The result with the factor, and behind a centred one the addend, of each channel."""
        for op in ("Mul", "Add") if centred else ("Mul",):
            reader = self.graph.only_reader(name)
            beside = self.constant_beside(reader) if reader is not None and is_onnx(reader, op) else None
            if beside is None:
                break
            self.nodes.append(reader)
            name = reader.output[0]
        return name

    def closed(self, result):
        """Whether nobody outside of the group reads what its nodes make, the result aside."""
        own = {id(node) for node in self.nodes}
        return all(
            name == result
            or (
                name not in self.graph.held and all(id(reader) in own for reader, _ in self.graph.readers.get(name, []))
            )
            for node in self.nodes
            for name in node.output
        )


def _normalisation(graph, root):
    """(nodes in topological order, what is normalised, the result) of the normalisation around a Sqrt; else None."""
    group = _Group(graph, root)
    a = group.deviating()
    result = a and group.divided(a)
    if not result:
        return None
    centre, x = graph.producer.get(a), a
    if centre is not None and is_onnx(centre, "Sub"):
        before = len(group.nodes)
        if group.mean_of(centre.input[1]) == centre.input[0]:
            group.nodes.append(centre)
            x = centre.input[0]
        else:
            del group.nodes[before:]
    result = group.with_constants(result, x != a)
    order = {id(node): k for k, node in enumerate(graph.nodes)}
    return (sorted(group.nodes, key=lambda n: order[id(n)]), x, result) if group.closed(result) else None


def normalisations(graph):
    """id of a node -> (nodes, what is normalised, the result) of the group that begins with it."""
    found = {}
    for node in graph.nodes:
        group = None
        if is_onnx(node, "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
            if len([name for name in node.output if name]) == 1 and node.input[0] not in graph.constants:
                group = ([node], node.input[0], node.output[0])
        elif is_onnx(node, "Sqrt"):
            group = _normalisation(graph, node)
        if group is not None and graph.is_float(group[1]):
            found[id(group[0][0])] = group
    return found


# --- embeddings
# --------------------------------------------------------------------------------------------------------


def is_embedding(graph, node):
    """Rows of a float constant, chosen at run time."""
    return (
        is_onnx(node, "Gather")
        and attribute(node, "axis", 0) == 0
        and node.input[1] not in graph.constants
        and graph.types.get(node.input[0]) == TensorProto.FLOAT
        and node.input[0] in graph.constants
        and len(graph.shapes[node.input[0]]) > 1
    )

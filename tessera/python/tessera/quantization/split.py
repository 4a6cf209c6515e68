# SPDX-License-Identifier: Apache-2.0
"""Splits a convolution whose output channels have very different sizes into several, each with a scale of its own. In:
a prepared model and calibration data. Out: the same function in float, with the convolution in parts.

It is for convolutions behind which stands a function that no factor moves through, such as SiLU (equalise.py serves the
others). A part holds channels of similar sizes, has its own scale in front of the function, and a factor behind it that
brings it to the size of the largest part; the compiler makes one table of function and factor. The parts are joined
again, and the readers' weights take the factors back:

    conv -> f -> y -> readers   becomes   conv 0 -> f ----------+-> y' -> readers
                                          conv 1 -> f -> * k1 --+

y' has another order of channels. It is followed forward through operators that treat channels alike, until convolutions
take it back (`follow`). A split costs cycles, so there must be a gain in the network's outputs (quantise.py)."""

import copy
import dataclasses

import numpy as np
from onnx import helper, numpy_helper

from .graph import attribute, drop_unread, is_onnx, shaped_like
from .plan import Plan

MOST_PARTS = 4
LEAST_GAIN = 4.0  # by which a split must lower the predicted noise of what the readers compute
NEXT_GAIN = 1.5  # and one more part
ALIKE = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")  # a positive factor moves through them
MARK = 2  # in place of a factor: MARK + channel, to see where the channels of a tensor come to
EXPONENTS = (0.5, 0.75, 1.0)  # of the ratio of sizes: a factor taken back makes weights unequal


@dataclasses.dataclass
class Moved:
    """A tensor with channels in another order: place j holds channel order[j], times factor[j]."""

    order: np.ndarray
    factor: np.ndarray

    @property
    def plain(self):
        return bool(np.all(self.factor == 1))

    def same_order(self, other):
        return np.array_equal(self.order, other.order)


@dataclasses.dataclass
class Place:
    """Where a split may be made: the product, the function behind it, and how the predicted noise would fall."""

    product: object
    chain: object
    parts: list = None  # arrays of channels
    factors: list = None
    low: dict = None  # tensor in front of and behind the function -> least and largest value of each channel
    high: dict = None
    before: float = 0.0
    after: float = 0.0


# --- following a tensor forward


def follow(graph, elementwise, name, moved):
    """[(Conv node, Moved)]: convolutions that read the tensor and take order and factors back, or hand the order on.
    None if something else reads it for which the order matters."""
    known, edits = {name: moved}, []
    for node in graph.nodes:
        if not any(operand in known for operand in node.input):
            continue
        if is_onnx(node, "Conv"):
            result = _through_convolution(graph, node, known, edits)
        elif is_onnx(node, *ALIKE):
            result = known[node.input[0]]
        elif is_onnx(node, "Concat") and attribute(node, "axis") == 1:
            result = _through_concat(graph, node, known)
        else:
            result = _through_function(graph, node, known, elementwise)
        if result is None or (result is not True and len(node.output) != 1):
            return None
        if result is not True:
            known[node.output[0]] = result
    return None if graph.held & set(known) else edits


def _through_convolution(graph, node, known, edits):
    """True where the order ends; None where the convolution cannot take it back."""
    weights = graph.constants.get(node.input[1])
    biased = len(node.input) > 2 and node.input[2]
    if node.input[0] not in known or weights is None or (biased and node.input[2] not in graph.constants):
        return None
    moved, groups = known[node.input[0]], attribute(node, "group", 1)
    out, each = weights.dims[:2]
    edits.append((node, moved))
    if groups == 1:
        return True
    if groups == out and each == 1 and out == len(moved.order):
        return Moved(moved.order, np.ones_like(moved.factor))
    return None


def _through_concat(graph, node, known):
    orders, factors, start = [], [], 0
    for name in node.input:
        shape = graph.shapes.get(name)
        if shape is None or len(shape) < 2 or shape[1] is None:
            return None
        moved = known.get(name) or Moved(np.arange(shape[1]), np.ones(shape[1], np.float32))
        orders.append(moved.order + start)
        factors.append(moved.factor)
        start += shape[1]
    return Moved(np.concatenate(orders), np.concatenate(factors))


def _through_function(graph, node, known, elementwise):
    """An operator that computes each element alone, of tensors in the same order and of scalars."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in elementwise:
        return None
    operands = [name for name in node.input if name and not graph.is_scalar(name)]
    if not all(name in known for name in operands):
        return None
    moved = [known[name] for name in operands]
    if not all(other.same_order(moved[0]) for other in moved):
        return None
    if all(other.plain for other in moved) or (is_onnx(node, "Relu") and len(moved) == 1):
        return moved[0]
    return None


# --- choosing


def places_of(model, names):
    """Convolutions of one group with a function behind them that readers let be split: the plan, the Place, and the
    readers with their operand marked (`origins`)."""
    plan = Plan(model, names)
    graph = plan.graph
    for chain in plan.units:
        if chain.kind != "elementwise" or len(chain.outputs) != 1 or chain.inputs[0] not in plan.unit_of:
            continue
        product, name = plan.unit_of[chain.inputs[0]], chain.inputs[0]
        own = {id(node) for node in chain.nodes}
        if product.kind != "product" or not is_onnx(product.node, "Conv") or len(product.nodes) != 1:
            continue
        constant = all(operand in graph.constants for operand in product.node.input[1:] if operand)
        alone = all(id(node) in own for node, _ in graph.readers.get(name, []))
        shape = graph.shapes.get(chain.output)
        if name in graph.held or not alone or not constant or attribute(product.node, "group", 1) != 1:
            continue
        if shape is None or len(shape) < 2 or shape[1] is None:
            continue
        still = Moved(np.arange(shape[1]), MARK + np.arange(shape[1]))
        edits = follow(graph, plan.names["elementwise"], chain.output, still)
        if edits:
            yield plan, Place(product, chain), [(node, moved) for node, moved in edits if not moved.plain]


def origins(moved):
    """Of a marked tensor: which channels come from the one that was split, and from which of its channels."""
    inner = moved.factor >= MARK
    return inner, (moved.factor[inner] - MARK).astype(int)


def importances(graph, statistics, readers, channels):
    """For each channel of the tensor the noise that an error of 1 makes in what the readers compute, each of their
    channels measured by its own variance, and averaged over the readers' channels."""
    weight = np.zeros(channels)
    count = 0
    for node, moved in readers:
        array = graph.array(node.input[1]).astype(np.float64)
        variance = statistics.variance(node.output[0])
        floor = 1e-3 * variance.mean() + 1e-12
        gain = np.square(array).sum(tuple(range(2, array.ndim))) / np.maximum(variance, floor)[:, None]
        gain = gain[:, 0] if attribute(node, "group", 1) > 1 else gain.sum(0)
        inner, source = origins(moved)
        np.add.at(weight, source, gain[inner])
        count += array.shape[0]
    return weight / max(1, count)


def partition(sizes, weight, parts):
    """Channels, largest first, cut into `parts` so that the sum of weight * (largest size of its part)^2 is least;
    and that sum."""
    order = np.argsort(-sizes, kind="stable")
    size, total = sizes[order].astype(np.float64), np.concatenate([[0], np.cumsum(weight[order])])
    count = len(order)
    cost = np.full((parts + 1, count + 1), np.inf)
    cut = np.zeros((parts + 1, count + 1), int)
    cost[0, 0] = 0
    for part in range(1, parts + 1):
        for end in range(part, count + 1):
            starts = np.arange(part - 1, end)
            sums = cost[part - 1, starts] + (total[end] - total[starts]) * size[starts] ** 2
            best = int(np.argmin(sums))
            cost[part, end], cut[part, end] = sums[best], starts[best]
    found, end = [], count
    for part in range(parts, 0, -1):
        found.append(np.sort(order[cut[part, end] : end]))
        end = cut[part, end]
    return found[::-1], float(cost[parts, count])


def choose_parts(place, sizes, weight):
    """Fills in the parts of a place. True if a split is worth a trial."""
    place.before = float((weight * sizes.max() ** 2).sum())
    place.parts, place.after = partition(sizes, weight, 1)
    for parts in range(2, min(MOST_PARTS, len(sizes)) + 1):
        found, cost = partition(sizes, weight, parts)
        if cost * NEXT_GAIN > place.after:
            break
        place.parts, place.after = found, cost
    return place.before > LEAST_GAIN * place.after


def choose_factors(place, graph, readers, sizes, squares):
    """Factors of the parts: the exponent of the ratio of sizes by which activations and weights together make the
    least noise in what the readers compute."""
    top = [max(float(sizes[part].max()), float(sizes.max()) / 4096, 1e-12) for part in place.parts]
    least = np.inf
    for exponent in EXPONENTS:
        factors = np.asarray([(top[0] / own) ** exponent for own in top], np.float32)
        each = np.ones(len(sizes))
        for part, factor in zip(place.parts, factors):
            each[part] = factor
        noise = sum(_noise(graph, node, moved, each, top[0], squares) for node, moved in readers)
        if noise < least:
            least, place.factors = noise, factors


def _noise(graph, node, moved, factor, size, squares):
    array = graph.array(node.input[1]).astype(np.float64)
    inner, source = origins(moved)
    factor, squares = factor[source], squares[source]
    if attribute(node, "group", 1) > 1:
        return float((np.square(array[inner]).sum(tuple(range(1, array.ndim))) * (size / 255 / factor) ** 2).sum())
    own = array[:, inner]
    shape = (1, -1) + (1,) * (array.ndim - 2)
    scaled = np.abs(own / factor.reshape(shape)).reshape(len(own), -1).max(1)
    rest = np.abs(array[:, ~inner]).reshape(len(own), -1).max(1, initial=0)
    step = np.maximum(scaled, rest) / 127
    taps = int(np.prod(array.shape[2:]))
    weights = (step**2).sum() * taps * (squares * factor**2).sum()
    return float((np.square(own).sum((0, *range(2, array.ndim))) * (size / 255 / factor) ** 2).sum() + weights)


def tensors_of(model, names):
    """Tensors whose channels' statistics `proposals` asks for."""
    found = list(places_of(model, names))
    readers = {node.output[0] for _, _, edits in found for node, _ in edits}
    return readers | {name for _, place, _ in found for name in (place.chain.inputs[0], place.chain.output)}


def proposals(model, names, statistics):
    """Places where a split is predicted to lower the noise, those with the most noise first. statistics: of the tensors
    of `tensors_of`."""
    chosen = []
    for plan, place, readers in places_of(model, names):
        if not all(name in statistics.low for name in (place.chain.inputs[0], place.chain.output)):
            continue
        sizes = statistics.range_of(place.chain.output)
        weight = importances(plan.graph, statistics, readers, len(sizes))
        if choose_parts(place, sizes, weight):
            squares = statistics.square(place.chain.output)
            choose_factors(place, plan.graph, readers, sizes, squares)
            names = (place.chain.inputs[0], place.chain.output)
            place.low = {name: statistics.low[name] for name in names}
            place.high = {name: statistics.high[name] for name in names}
            chosen.append(place)
    return sorted(chosen, key=lambda place: place.after - place.before)


def ranges_of(place):
    """Ranges of the tensors that a split makes."""
    inner, outer = place.chain.inputs[0], place.chain.output
    found, lows, highs = {}, [], []
    for k, (part, factor) in enumerate(zip(place.parts, place.factors)):
        for name in (inner, outer):
            found[f"{name}/part{k}"] = float(place.low[name][part].min()), float(place.high[name][part].max())
        low, high = (float(factor) * bound for bound in found[f"{outer}/part{k}"])
        found[f"{outer}/part{k}/scaled"] = low, high
        lows.append(low)
        highs.append(high)
    found[outer] = min(lows), max(highs)
    return found


# --- changing the model


def split(model, names, place):
    """A copy of the model with the place split."""
    before, model = model, copy.deepcopy(model)
    plan = Plan(model, names)
    order = np.concatenate(place.parts)
    factor = np.concatenate([np.full(len(part), k, np.float32) for part, k in zip(place.parts, place.factors)])
    edits = follow(plan.graph, plan.names["elementwise"], place.chain.output, Moved(order, factor))
    for node, moved in edits:
        _take_back(model, plan.graph, node, moved)
    graph = model.graph
    own = {node.name for node in place.chain.nodes}
    nodes = []
    for node in graph.node:
        if node.name == place.product.name:
            for k, part in enumerate(place.parts):
                nodes.append(_part_of(graph, plan.graph, node, part, k))
        elif node.name in own:
            nodes += [_renamed(node, place, k) for k in range(len(place.parts))]
            if node.name == place.chain.name:
                nodes += _joined(graph, place)
        else:
            nodes.append(node)
    kept = [copy.deepcopy(node) for node in nodes]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(kept)
    drop_unread(model)
    return shaped_like(model, before)


def _store(graph, name, array):
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    return name


def _take_back(model, graph, node, moved):
    """Weights for operands in another order and with factors."""
    array = graph.array(node.input[1])
    grouped = attribute(node, "group", 1) > 1
    axis = 0 if grouped else 1
    shape = [1] * array.ndim
    shape[axis] = -1
    array = np.take(array, moved.order, axis) / moved.factor.reshape(shape)
    fresh = f"{node.name}/reordered{len(model.graph.initializer)}"
    node.input[1] = _store(model.graph, f"{fresh}/weights", array.astype(np.float32))
    if grouped and len(node.input) > 2 and node.input[2]:
        node.input[2] = _store(model.graph, f"{fresh}/bias", graph.array(node.input[2])[moved.order])


def _part_of(graph, view, node, part, k):
    made = _copied(node, k, {node.output[0]})
    made.input[1] = _store(graph, f"{made.name}/weights", view.array(node.input[1])[part])
    if len(node.input) > 2 and node.input[2]:
        made.input[2] = _store(graph, f"{made.name}/bias", view.array(node.input[2])[part])
    return made


def _renamed(node, place, k):
    inner = {name for own in place.chain.nodes for name in own.output} | set(place.chain.inputs)
    return _copied(node, k, inner)


def _copied(node, k, inner):
    made = copy.deepcopy(node)
    made.name = f"{node.name}/part{k}"
    for names in (made.input, made.output):
        for index, name in enumerate(names):
            if name in inner:
                names[index] = f"{name}/part{k}"
    return made


def _joined(graph, place):
    """The factors behind the parts, and the concatenation, which is named after the tensor."""
    nodes, parts = [], []
    for k, factor in enumerate(place.factors):
        name = f"{place.chain.output}/part{k}"
        if factor != 1:
            scalar = _store(graph, f"{name}/factor", np.float32(factor))
            nodes.append(helper.make_node("Mul", [name, scalar], [f"{name}/scaled"], f"{place.chain.name}/factor{k}"))
            name = f"{name}/scaled"
        parts.append(name)
    joined = helper.make_node("Concat", parts, [place.chain.output], f"{place.chain.name}/joined", axis=1)
    return [*nodes, joined]

# SPDX-License-Identifier: Apache-2.0
"""Rounds weights so that what a layer computes stays near, in place of each weight for itself. In: a quantised
candidate and calibration data. Out: the float model with weights that lie on the grid of int8 and biases that take up
the rest of the mean error, and the scales of that grid.

The columns of a layer's weights are rounded one after the other, and the error of each is spread over those still to
come, as far as the layer's inputs move together (their covariance): Frantar et al., GPTQ (2022), after Hassibi and
Stork, Optimal Brain Surgeon (1993). Inputs are those that the quantised candidate gives the layer. Means and
covariances are sums over the data, so memory does not grow with it; of a large tensor some places are drawn."""

import copy
import dataclasses

import numpy as np
from onnx import numpy_helper

from . import measure
from .graph import attribute, is_onnx
from .write import channel_axis

ROUND_SAMPLES = 64
DRAWN = 512  # places of one tensor and sample
MOST_COLUMNS = 1536  # of a covariance; layers with more keep their rounding and have their bias corrected
MOST_VALUES = 1 << 26  # of all covariances held at a time
DAMPING = 0.01  # of the mean variance, added to each


@dataclasses.dataclass
class Layer:
    """A product with constant weights, as matrices: for each group [outputs, columns]."""

    unit: object
    source: str  # tensor of the operand
    groups: int
    columns: int
    sums: np.ndarray = None  # [groups, columns]
    squares: np.ndarray = None  # [groups, columns, columns]
    count: int = 0


def layers_of(state):
    """Quantised products with constant weights whose operand is a quantised tensor."""
    graph = state.plan.graph
    for unit in state.plan.units:
        if unit.kind != "product" or not unit.quantised or unit.node.input[0] not in state.writer.pairs:
            continue
        array, node = graph.array(unit.node.input[1]), unit.node
        if array is None or not (is_onnx(node, "Conv") or array.ndim == 2) or attribute(node, "transA", 0):
            continue
        if is_onnx(node, "Conv"):
            groups = attribute(node, "group", 1)
            yield Layer(unit, node.input[0], groups, int(np.prod(array.shape[1:])))
        else:
            yield Layer(unit, node.input[0], 1, array.shape[1 - channel_axis(node, 2)])


# --- statistics


def columns_of(node, value, weights, rng):
    """Operands of the layer's sums at some places: [places, groups, columns]."""
    if not is_onnx(node, "Conv"):
        rows = value.reshape(-1, value.shape[-1])
        if len(rows) > DRAWN:
            rows = rows[rng.choice(len(rows), DRAWN, replace=False)]
        return rows[:, None, :]
    kernel, groups = weights.shape[2:], attribute(node, "group", 1)
    rank = len(kernel)
    strides = attribute(node, "strides", [1] * rank)
    dilations = attribute(node, "dilations", [1] * rank)
    pads = pads_of(node, value.shape[2:], kernel, strides, dilations)
    padded = np.pad(value, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    extents = [
        (size - dilation * (taps - 1) - 1) // stride + 1
        for size, taps, stride, dilation in zip(padded.shape[2:], kernel, strides, dilations)
    ]
    total = len(value) * int(np.prod(extents))
    drawn = rng.choice(total, DRAWN, replace=False) if total > DRAWN else np.arange(total)
    batch, *places = np.unravel_index(drawn, (len(value), *extents))
    taps = np.indices(kernel).reshape(rank, -1)
    where = tuple(
        place[:, None] * stride + tap[None] * dilation
        for place, stride, tap, dilation in zip(places, strides, taps, dilations)
    )
    found = padded[(batch[:, None], slice(None), *where)]  # [places, taps, channels]
    return found.transpose(0, 2, 1).reshape(len(drawn), groups, -1)


def pads_of(node, sizes, kernel, strides, dilations):
    """Explicit pads: first of all axes the fronts, then the ends."""
    mode = attribute(node, "auto_pad", b"NOTSET").decode()
    if mode in ("NOTSET", ""):
        return attribute(node, "pads", [0] * 2 * len(kernel))
    fronts, ends = [], []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations):
        reach = (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1
        total = max(0, reach - size) if mode != "VALID" else 0
        less = total // 2
        fronts.append(total - less if mode == "SAME_LOWER" else less)
        ends.append(less if mode == "SAME_LOWER" else total - less)
    return fronts + ends


def collect(state, layers, feeds, seed=0):
    """Fills in sums and products of the layers' operands."""
    rng = np.random.default_rng(seed)
    pairs = {layer.source: state.writer.pairs[layer.source][0] for layer in layers}
    session, outputs = measure.observed(state.model, pairs.values())
    for layer in layers:
        layer.sums = np.zeros((layer.groups, layer.columns))
        if layer.columns <= MOST_COLUMNS:
            layer.squares = np.zeros((layer.groups, layer.columns, layer.columns), np.float32)
    wanted = list(dict.fromkeys(pairs.values()))
    for feed in feeds:
        integers = dict(zip(wanted, session.run(wanted, feed)))
        for layer in layers:
            given = state.parameters[layer.source]
            value = (integers[pairs[layer.source]].astype(np.float32) - np.float32(given.zero)) * given.scale
            weights = state.plan.graph.array(layer.unit.node.input[1])
            found = columns_of(layer.unit.node, value, weights, rng).transpose(1, 0, 2)
            layer.sums += found.sum(1, dtype=np.float64)
            layer.count += found.shape[1]
            if layer.squares is not None:
                layer.squares += found.transpose(0, 2, 1) @ found


# --- rounding


def round_columns(weights, scales, covariance):
    """weights [groups, outputs, columns] in steps of scales [groups, outputs]; covariance [groups, columns, columns].
    Returns integers from -127 to 127, of the same shape."""
    rest = weights.astype(np.float64) / scales[..., None]
    covariance = covariance.astype(np.float64)
    each = np.diagonal(covariance, axis1=1, axis2=2)
    damping = DAMPING * each.mean(1) + 1e-12
    order = np.argsort(-each, axis=1, kind="stable")
    index = np.arange(len(order))[:, None]
    ordered = covariance[index[:, :, None], order[:, :, None], order[:, None, :]]
    ordered += damping[:, None, None] * np.eye(order.shape[1])
    spread = np.linalg.cholesky(np.linalg.inv(ordered)).transpose(0, 2, 1)  # upper: of a column over the later ones
    rest = np.take_along_axis(rest, order[:, None, :], 2)
    result = np.empty_like(rest)
    for k in range(rest.shape[2]):
        result[..., k] = np.clip(np.rint(rest[..., k]), -127, 127)
        error = (rest[..., k] - result[..., k]) / spread[:, k, k][:, None]
        rest[..., k + 1 :] -= error[..., None] * spread[:, None, k, k + 1 :]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(result, back[:, None, :], 2)


def as_matrices(node, array, groups):
    """Weights as [groups, outputs, columns], and the way back."""
    if is_onnx(node, "Conv"):
        return array.reshape(groups, len(array) // groups, -1), lambda made: made.reshape(array.shape)
    if channel_axis(node, 2) == 0:
        return array[None], lambda made: made[0]
    return array.T[None], lambda made: made[0].T


def round_layer(layer, array, scale, centred):
    """New weights on the grid, and the change of the bias that keeps the mean: [outputs]."""
    node, mean = layer.unit.node, layer.sums / layer.count
    weights, back = as_matrices(node, array, layer.groups)
    scales = np.broadcast_to(np.asarray(scale, np.float64), (weights.shape[0] * weights.shape[1],))
    scales = scales.reshape(weights.shape[:2])
    if layer.squares is None:
        rounded = np.clip(np.rint(weights / scales[..., None]), -127, 127)
    else:
        covariance = layer.squares / layer.count
        if centred:
            covariance = covariance - mean[:, :, None] * mean[:, None, :]
        rounded = round_columns(weights, scales, covariance)
    made = rounded * scales[..., None]
    shift = np.einsum("gok,gk->go", weights - made, mean).reshape(-1)
    return back(made).astype(np.float32), shift.astype(np.float32)


def bias_operand(unit, graph):
    """(node, operand index) of the layer's constant bias, or where a convolution's can be added; None if there is no
    such place."""
    if len(unit.nodes) > 1 and is_onnx(unit.nodes[1], "Add"):
        node = unit.nodes[1]
        return node, next(k for k, name in enumerate(node.input) if name in graph.constants)
    node = unit.node
    if len(node.input) > 2 and node.input[2]:
        plain = attribute(node, "beta", 1.0) == 1 and attribute(node, "alpha", 1.0) == 1
        return (node, 2) if plain and node.input[2] in graph.constants else None
    return (node, 2) if is_onnx(node, "Conv") else None


def batches(layers):
    """Layers whose covariances fit into memory together."""
    batch, held = [], 0
    for layer in layers:
        size = layer.groups * layer.columns**2 if layer.columns <= MOST_COLUMNS else 0
        if batch and held + size > MOST_VALUES:
            yield batch
            batch, held = [], 0
        batch.append(layer)
        held += size
    if batch:
        yield batch


def reround(state, data, *, progress=None):
    """The candidate's float model with rounded weights, and for each layer's name the scales of them. data: a function
    that gives an iterator of feeds."""
    layers = list(layers_of(state))
    model = copy.deepcopy(state.plan.graph.model)
    nodes = {node.name: node for node in model.graph.node}
    scales = {}
    for batch in batches(layers):
        collect(state, batch, data())
        for layer in batch:
            if progress:
                progress("rounding weights", len(scales) + 1, len(layers))
            scales[layer.unit.name] = _replace(model, state, layer, nodes)
            layer.squares = None
    read = {name for node in model.graph.node for name in node.input} | state.plan.graph.held
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model, scales


def _replace(model, state, layer, nodes):
    """Writes a layer's new weights and bias into the model; its scales."""
    unit, graph = layer.unit, state.plan.graph
    array = graph.array(unit.node.input[1])
    scale = state.writer.weights[unit.name]
    biased = bias_operand(unit, graph)
    made, shift = round_layer(layer, array, scale, biased is not None)
    nodes[unit.name].input[1] = _store(model, f"{unit.name}/rounded", made)
    if biased is not None:
        node, index = nodes[biased[0].name], biased[1]
        old = graph.array(node.input[index]) if len(node.input) > index and node.input[index] else None
        name = _store(model, f"{unit.name}/shifted", shift if old is None else old.reshape(-1) + shift)
        if len(node.input) > index:
            node.input[index] = name
        else:
            node.input.append(name)
    return scale


def _store(model, name, array):
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    return name

# SPDX-License-Identifier: Apache-2.0
"""What each product loses by itself. In: a quantised candidate and samples. Out: for each product the noise of its
result, were all before it exact: of its operand's steps, its weights' and its result's, on places that are drawn, over
the variance of the result; and how many multiply-accumulates it takes. One run of the float model gives all of them, so
the price does not grow with the number of layers."""

import numpy as np

from . import measure, rounding
from .deciding import Alone
from .graph import attribute, channel_axis, is_onnx
from .write import weight_scales

PLACES = 256


def losses(state, products, feeds, seed=0):
    """An Alone for each unit of `products`; those of which nothing was seen are left out."""
    rng, graph = np.random.default_rng(seed), state.plan.graph
    readers, sums, costs = {}, {}, {}
    for unit in products:
        readers.setdefault(unit.node.input[0], []).append(unit)
    for _, values in measure.observed_runs(graph.model, list(readers), feeds):
        for name, value in values.items():
            for unit in readers.get(name, []) if value.size else ():
                signal, noise, count = loss(state, unit, value, rng)
                known = sums.get(unit.name, (0.0, 0.0))
                sums[unit.name], costs[unit.name] = (known[0] + signal, known[1] + noise), count
    found = [unit.name for unit in products if sums.get(unit.name, (0.0, 0.0))[0] > 0]
    return [Alone(name, sums[name][1] / sums[name][0], costs[name]) for name in found]


def loss(state, unit, value, rng):
    """(squared distance from the mean, squared error, multiply-accumulates) of the unit's result for the operand."""
    graph, node = state.plan.graph, unit.node
    array = graph.array(node.input[1])
    groups = attribute(node, "group", 1) if is_onnx(node, "Conv") else 1
    weights, _ = rounding.as_matrices(node, array, groups)  # [groups, outputs, columns]
    columns = rounding.columns_of(node, value, array, rng, PLACES)  # [places, groups, columns]
    scale = state.writer.weights.get(unit.name)
    if scale is None:
        scale = weight_scales(array, channel_axis(node, array.ndim))
    scale = np.broadcast_to(np.asarray(scale, np.float32), (weights.shape[0] * weights.shape[1],))
    scale = scale.reshape(*weights.shape[:2], 1)
    rounded = np.clip(np.rint(weights / scale), -127, 127) * scale
    real = np.einsum("pgc,goc->pgo", columns, weights, optimize=True)
    steps = _in_steps(columns, state.parameters.get(node.input[0]))
    other = np.einsum("pgc,goc->pgo", steps, rounded, optimize=True)
    place = rounding.bias_operand(unit, graph)
    bias = graph.array(place[0].input[place[1]]) if place is not None and len(place[0].input) > place[1] else None
    bias = 0 if bias is None else bias.reshape(-1) if bias.size == 1 else bias.reshape(1, *real.shape[1:])
    real, other = (np.clip(sums + bias, unit.low, unit.high) for sums in (real, other))
    other = _in_steps(other, state.parameters.get(unit.output))
    middle = real.mean() if real.size > 1 else 0
    return float(((real - middle) ** 2).sum()), float(((real - other) ** 2).sum()), _work(node, value, array)


def _in_steps(value, given):
    if given is None:
        return value
    return np.clip(np.rint(value / given.scale), -given.zero, 255 - given.zero) * given.scale


def _work(node, value, array):
    if not is_onnx(node, "Conv"):
        return value.size // value.shape[-1] * array.size
    strides = attribute(node, "strides", [1] * (array.ndim - 2))
    return value.size / value.shape[1] / float(np.prod(strides)) * array.size

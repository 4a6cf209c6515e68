# SPDX-License-Identifier: Apache-2.0
"""Narrower ranges than the observed extremes, by the smallest squared error. In: a plan, ranges, data. Out: for each
tensor the range, among shares of the observed one, with the smallest error, weighed by a histogram of its values.

A tensor that only one chain of elementwise operators reads, such as the sums of a convolution in front of SiLU, is
judged by the error behind that chain. What the function maps to nearly one value needs no steps: SiLU is nearly 0
below -8, HardSwish is 0 below -3. Only the lower end is cut there. Other tensors are judged by their own error
(`everywhere`): few extreme values then no longer cost all others their steps, but are clipped. It trusts the data to
show all extremes that matter, so whoever takes that compares the outputs first."""

import numpy as np
from onnx import TensorProto, helper

from . import measure
from .ranges import parameters_of

BINS = 2048
LOW_SHARES = (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
HIGH_SHARES = (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


def chains_of(plan):
    """tensor -> the quantised elementwise unit that alone reads it."""
    found = {}
    for unit in plan.units:
        if unit.kind != "elementwise" or not unit.quantised or unit.inputs[0] not in plan.unit_of:
            continue
        name, own = unit.inputs[0], {id(node) for node in unit.nodes}
        readers = plan.graph.readers.get(name, [])
        maker = plan.unit_of[name]
        if maker.kind == "product" and name not in plan.graph.held and all(id(node) in own for node, _ in readers):
            found[name] = unit
    return found


def function_of(plan, unit):
    """The unit as a function of a vector."""
    names = {name for node in unit.nodes for name in node.input}
    constants = [plan.graph.constants[name] for name in names if name in plan.graph.constants]
    flat = []
    for tensor in constants:
        copy = type(tensor)()
        copy.CopyFrom(tensor)
        if int(np.prod(copy.dims)) == 1:
            del copy.dims[:]
        flat.append(copy)
    graph = helper.make_graph(
        unit.nodes,
        "function",
        [helper.make_tensor_value_info(unit.inputs[0], TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info(unit.output, TensorProto.FLOAT, None)],
        flat,
    )
    opsets = plan.graph.model.opset_import
    session = measure.session(helper.make_model(graph, opset_imports=opsets, ir_version=8), optimise=False)
    return lambda x: (
        session.run([unit.output], {unit.inputs[0]: x.astype(np.float32)})[0].astype(np.float64).reshape(-1)
    )


def histograms(model, ranges, names, feeds):
    """tensor -> counts of its values in BINS equal parts of its range."""
    names = [name for name in names if ranges[name][0] < ranges[name][1]]  # a constant has no shares
    counts = {name: np.zeros(BINS) for name in names}
    for _, values in measure.observed_runs(model, names, feeds):
        for name, value in values.items():
            counts[name] += _counted(value, *ranges[name])
    return counts


def _counted(value, low, high):
    """How many values lie in each of BINS equal parts from low to high; a third of numpy.histogram's time."""
    value = np.asarray(value, np.float32).reshape(-1)
    places = (value - np.float32(low)) * np.float32(BINS / (high - low))
    inside = (places >= 0) & (places <= BINS)  # as values that are not finite are not
    places = places if inside.all() else places[inside]
    return np.bincount(np.minimum(places.astype(np.int32), BINS - 1), minlength=BINS)


def best_range(function, low, high, counts, *, highs=(1,), power_of_two=False):
    """Of the shares LOW_SHARES of the lower end and `highs` of the upper one, those with the smallest error."""
    middles = low + (np.arange(BINS) + 0.5) * (high - low) / BINS
    wanted = function(middles)
    best, least = (low, high), np.inf
    for a in LOW_SHARES if low < 0 else (1,):
        for b in highs if high > 0 else (1,):
            given = parameters_of(a * low, b * high, power_of_two=power_of_two)
            steps = np.clip(np.rint(middles / given.scale) + given.zero, 0, 255)
            error = (counts * (function((steps - given.zero) * given.scale) - wanted) ** 2).sum()
            if error < least:
                best, least = (a * low, b * high), error
    return best


def narrow(plan, ranges, feeds, *, everywhere=False, only=None, power_of_two=False):
    """`ranges` with those replaced that a chain reads (`only`: of these tensors), or all of quantised tensors."""
    chains = {name: unit for name, unit in chains_of(plan).items() if name in (ranges if only is None else only)}
    functions = {name: function_of(plan, unit) for name, unit in chains.items()}
    if everywhere:
        for name in plan.quantised_tensors():
            functions.setdefault(name, lambda x: x)
    if not functions:
        return ranges
    counts = histograms(plan.graph.model, ranges, [n for n in functions if n in plan.unit_of], feeds)
    found = dict(ranges)
    for name, count in counts.items():
        low, high = ranges[name]
        highs = HIGH_SHARES if everywhere else (1,)
        found[name] = best_range(functions[name], low, high, count, highs=highs, power_of_two=power_of_two)
    return found

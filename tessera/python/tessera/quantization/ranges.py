# SPDX-License-Identifier: Apache-2.0
"""From ranges of tensors to scales and zero points. In: for each tensor the smallest and largest value that shall be
told apart. Out: for each tensor one scale (float32) and one zero point of uint8; tensors that only differ by position
share both, so that moving them costs nothing."""

import dataclasses
import math

import numpy as np

from . import attention
from .errors import argument
from .forms.recurrent import hidden_tensors
from .graph import is_onnx


@dataclasses.dataclass(frozen=True)
class Parameters:
    """real = (integer - zero) * scale, integer from 0 to 255."""

    scale: np.float32
    zero: int

    @property
    def low(self):
        return float((0 - self.zero) * np.float64(self.scale))

    @property
    def high(self):
        return float((255 - self.zero) * np.float64(self.scale))


def parameters_of(low, high, *, power_of_two=False):
    """The finest uint8 grid that holds 0 and the range from low to high (the reals it stands for may exceed it by half
    a step). power_of_two: the scale is the next power of two."""
    low, high = min(0.0, float(low)), max(0.0, float(high))
    scale = (high - low) / 255
    if not math.isfinite(scale) or scale <= 0:
        scale = 1 / 255
    scale = max(scale, 2.0**-100)
    if power_of_two:
        scale = 2.0 ** math.ceil(math.log2(scale) - 1e-6)
    scale = np.float32(scale)
    return Parameters(scale, int(np.clip(np.rint(-low / np.float64(scale)), 0, 255)))


def shared(plan, wanted):
    """tensor -> representative of the tensors with which it shares scale and zero point."""
    parent = {name: name for name in wanted}

    def find(name):
        while parent[name] != name:
            name = parent[name]
        return name

    for unit in plan.units:
        if not unit.quantised or unit.output not in parent:
            continue
        if unit.kind == "movement":
            for name in unit.outputs:
                if name in parent:
                    parent[find(name)] = find(unit.inputs[0])
        if unit.kind == "concat":
            for name in unit.inputs:
                source = plan.unit_of.get(name)
                limited = source is not None and math.isfinite(source.low)
                alone = plan.graph.only_reader(name) is not None and source is not None and source.kind != "movement"
                if (alone and not limited and source.quantised) or _is_cache(plan, unit, name):
                    parent[find(name)] = find(unit.output)
    return {name: find(name) for name in wanted}


def _is_cache(plan, concat, name):
    """Whether the operand `name` is the graph's input and the concatenation its output: what one run gives, the next
    one takes, as decoders do with keys and values."""
    graph = plan.graph
    return name in graph.inputs and graph.only_reader(name) is not None and concat.output in graph.outputs


DECIDED = 4.0  # what a Sigmoid reads: beyond that the answer is no longer open


def with_both_answers(plan, ranges):
    """`ranges` in which what a Sigmoid at the end of the network reads may come out either way. Few samples show one
    answer alone, as of a word that is rare, and the other one must not be cut off."""
    found, graph = dict(ranges), plan.graph

    def behind_movements(name):
        node = graph.producer.get(name)
        while node is not None and len(node.input) and node.op_type in plan.names["movements"]:
            yield name
            name = node.input[0]
            node = graph.producer.get(name)
        yield name

    def widen(names, low, high):
        for name in names:
            if name in found:
                found[name] = min(found[name][0], low), max(found[name][1], high)

    for output in graph.outputs:
        made = list(behind_movements(output))
        node = graph.producer.get(made[-1])
        if node is not None and is_onnx(node, "Sigmoid"):
            widen(made, 0.0, 1 / (1 + math.exp(-DECIDED)))
            widen(behind_movements(node.input[0]), -DECIDED, DECIDED)
    return found


def leave_unseen(plan, ranges):
    """Units beside a tensor that holds nothing in any sample stay float, as an expert does that no token of the samples
    is sent to. A graph's input that holds nothing is left to choose()."""
    while True:
        groups = shared(plan, plan.quantised_tensors())
        told = {group for name, group in groups.items() if name in ranges}
        if any(group not in told for name, group in groups.items() if name in plan.graph.inputs):
            return
        unseen = {name for name, group in groups.items() if group not in told}
        beside = [unit for unit in plan.units if unit.quantised and unseen & {*unit.inputs, *unit.outputs}]
        if not beside:
            return
        for unit in beside:
            unit.quantised, unit.why = False, "a tensor of it holds nothing in any sample"
        plan.settle()


def _common_range(plan, ranges, members, wanted):
    """(low, high) of tensors that share their parameters. A movement's result lies in the range of what it moves: the
    source decides."""
    moved = {n for n in members if n in plan.unit_of and plan.unit_of[n].kind == "movement"}
    deciding = [n for n in members if n not in moved] or members
    deciding = [n for n in deciding if n in ranges] or [n for n in members if n in ranges]
    if not deciding:
        unseen = sorted(n for n in wanted if n not in ranges)
        name = next((n for n in unseen if n in plan.graph.inputs), unseen[0])
        raise argument(
            f"tensor '{name}' holds nothing in any sample, so there is no range for it; give samples in which "
            "it holds something"
        )
    low = min(ranges[n][0] for n in deciding)
    high = max(ranges[n][1] for n in deciding)
    for name in deciding:
        unit = plan.unit_of.get(name)
        if unit is not None and unit.quantised:
            low, high = max(low, unit.low), min(high, unit.high)
    return low, high


def choose(plan, ranges, *, power_of_two=False):
    """tensor -> Parameters for all tensors that are quantised. ranges: tensor -> (low, high). Changes the plan where a
    tensor holds nothing in any sample. What a ConvTranspose reads and makes gets a power of two: the NPU computes one
    with such scales alone, as its float sums are exact then."""
    ranges = with_both_answers(plan, attention.ranges_of(plan, ranges))
    leave_unseen(plan, ranges)
    wanted = plan.quantised_tensors()
    groups = shared(plan, wanted)
    makers = {}
    for name, group in groups.items():
        makers.setdefault(group, []).append(name)
    transposed = [unit for unit in plan.units if unit.quantised and is_onnx(unit.node, "ConvTranspose")]
    ends = {name for unit in transposed for name in (unit.inputs[0], unit.output)}
    exact = {group for name, group in groups.items() if power_of_two or name in ends}
    chosen = {}
    for group, members in makers.items():
        low, high = _common_range(plan, ranges, members, wanted)
        parameters = parameters_of(low, high, power_of_two=group in exact)
        chosen.update(dict.fromkeys(members, parameters))
    _scale_steps(plan, groups, makers, chosen, exact)
    for unit in plan.units:
        if unit.quantised and unit.kind == "recurrent":
            ends = [end for name in hidden_tensors(unit.node) for end in _ends(plan, ranges, name)]
            chosen[unit.hidden] = parameters_of(min(ends), max(ends), power_of_two=power_of_two)
    return chosen


def _ends(plan, ranges, name):
    array = plan.graph.array(name)
    return ranges[name] if array is None else (float(array.min()), float(array.max()))


def _factor(plan, unit):
    """The positive number that a unit multiplies its tensor by; None where it does something else."""
    if unit.kind != "elementwise" or len(unit.outputs) != 1:
        return None
    factor, at = 1.0, unit.inputs[0]
    for node in unit.nodes:
        if not is_onnx(node, "Mul", "Div") or at not in node.input:
            return None
        side = list(node.input).index(at)
        array = plan.graph.array(node.input[1 - side])
        if array is None or (node.op_type == "Div" and side == 1):
            return None
        value = float(array.reshape(-1)[0])
        if not value > 0 or not math.isfinite(value):
            return None
        factor, at = factor * value if node.op_type == "Mul" else factor / value, node.output[0]
    return factor


def _scale_steps(plan, groups, makers, chosen, exact):
    """What only multiplies a quantised tensor gets the same steps, multiplied: the bytes stay as they are, and a finer
    grid would tell no more values apart. exact: groups whose scales are powers of two and stay so."""
    for unit in plan.units:
        factor = _factor(plan, unit) if unit.quantised else None
        if (
            factor is None
            or not {unit.inputs[0], unit.output} <= chosen.keys()
            or (groups[unit.output] in exact and not (groups[unit.inputs[0]] in exact and math.frexp(factor)[0] == 0.5))
        ):
            continue
        members = makers[groups[unit.output]]
        alone = all(
            name == unit.output or (name in plan.unit_of and plan.unit_of[name].kind == "movement") for name in members
        )
        given = chosen[unit.inputs[0]]
        scale = np.float32(np.float64(given.scale) * factor)
        if alone and np.isfinite(scale) and scale > 2.0**-100:
            chosen.update(dict.fromkeys(members, Parameters(scale, given.zero)))

# SPDX-License-Identifier: Apache-2.0
"""One quantised candidate of a calibrated float model: what is asked for, what the compiler leaves to the CPU of it,
and which layers a user names to stay float."""

import copy
import dataclasses

import _tessera
import onnx

from . import deciding, engines, four_bits, keeping, place, ranges, sixteen, write
from .errors import argument
from .forms.recurrent import is_part_of_cell
from .graph import graphs_of
from .plan import Plan

MOVES = ("movement", "embedding")  # units that cost little wherever they run
TURNS = 64  # of asking the compiler


@dataclasses.dataclass
class Options:
    engine: str = "nncf"
    method: str = "minmax"
    accurate_bias: bool = True  # of the engine nncf: the slower bias correction
    power_of_two: bool = False
    per_channel: bool = True
    equalise: bool = True
    float_nodes: tuple = ()  # names that stay float
    config: str = "npu256"
    numerics: str = "exact"  # that the model will be compiled with
    least_snr: float = deciding.LEAST_DECIBELS
    sixteen: float = None  # the share of the products that may be in 16 bits; None: the default of keeping.py
    shapes: dict = dataclasses.field(default_factory=dict)
    grid: four_bits.Grid = None  # weights of 4 bits
    mixed: float = 0.0  # the share of the weights that may keep 8 bits beside them


@dataclasses.dataclass
class State:
    """One quantised candidate and what it was made of."""

    plan: Plan
    parameters: dict
    model: onnx.ModelProto
    writer: write.Writer
    placement: place.Placement = None
    left: dict = dataclasses.field(default_factory=dict)  # unit's name -> why it is float


def _plan(model, options):
    return Plan(model, _tessera.operator_names(), power_of_two=options.power_of_two)


def candidate(calibrated, options, float_nodes):
    plan = _plan(calibrated.model, options)
    alone = {
        node.name for unit in plan.units if float_nodes.keys() & {n.name for n in unit.nodes} for node in unit.nodes
    }
    if alone and calibrated.original is not None:
        model = copy.deepcopy(calibrated.model)
        engines.restore(model, calibrated.original, alone)
        plan = _plan(model, options)
    for unit in plan.units:
        why = next((float_nodes[n.name] for n in unit.nodes if n.name in float_nodes), None)
        if why is not None:
            unit.quantised, unit.why = False, why
            if why == sixteen.WHY:
                unit.bits = 16 if sixteen.may_be(unit, plan.graph, calibrated.ranges) else 0
                unit.why = why if unit.bits else keeping.FLOAT
    plan.settle()
    parameters = ranges.choose(plan, calibrated.ranges, power_of_two=options.power_of_two)
    writer = write.Writer(
        plan,
        parameters,
        per_channel=options.per_channel,
        power_of_two=options.power_of_two,
        scales=calibrated.scales,
        ranges=calibrated.ranges,
        grid=options.grid,
    )
    model = writer.write()
    return State(plan, parameters, model, writer)


def settle_with_compiler(calibrated, options, float_nodes):
    """The candidate of which all quantised units run on the NPU, those that only move bytes aside. Its `left` tells
    what is float, and why."""
    float_nodes = dict(float_nodes)
    for _ in range(TURNS):
        state = candidate(calibrated, options, float_nodes)
        if not any(unit.quantised or unit.bits for unit in state.plan.units) and not holds_quantised(state.model):
            raise argument(f"nothing of the model can be quantised{_why_float(float_nodes)}; run it as it is")
        state.placement = place.place(state.model, options.config, options.shapes, options.numerics)
        refused = [unit for unit in state.plan.units if _is_refused(unit, state.placement.cpu)]
        if not refused:
            break
        for unit in refused:
            float_nodes[unit.name] = "the compiler leaves it to the CPU"
    state.left = float_nodes
    write.check(state.model)
    return state


def _why_float(float_nodes):
    """The first node that stays float, and its reason."""
    name, why = next(iter(float_nodes.items()), (None, None))
    more = f", and {len(float_nodes) - 1} more stay float" if len(float_nodes) > 1 else ""
    return f": node '{name}' stays float ({why}){more}" if name else ": every product stays float"


def _is_refused(unit, on_cpu):
    """Whether the compiler leaves to the CPU what the NPU is asked for."""
    if unit.bits == 16:
        return any(name in on_cpu for name in sixteen.names_of_products(unit))
    return unit.quantised and unit.kind not in MOVES and any(name in on_cpu for name in unit.computing)


def holds_quantised(model):
    """Whether a graph of the model, or a body, is quantised."""
    return any(node.op_type == "QuantizeLinear" for graph in graphs_of(model.graph) for node in graph.node)


def resolve_layers(model, names):
    """Node names of layers given by node or by one of its results."""
    found = {}
    by_name = {node.name: node.name for node in model.graph.node}
    by_name.update({name: node.name for node in model.graph.node for name in node.output})
    # ONNX Runtime's optimiser appends to the name of a node what it has folded into it.
    by_name.update({node.name.split("/MatMulAddFusion")[0]: node.name for node in model.graph.node})
    for name in names:
        parts = [node.name for node in model.graph.node if node.name.startswith(f"{name}/") and is_part_of_cell(node)]
        if name not in by_name and parts:  # of a recurrent cell that was spelled out
            found.update(dict.fromkeys(parts, "kept float"))
            continue
        if name not in by_name:
            near = [n for n in by_name if name.lower() in n.lower()][:3] or list(by_name)[:3]
            raise argument(
                f"--keep-float: the model has no layer '{name}'; it has {', '.join(repr(n) for n in near)} ..."
            )
        found[by_name[name]] = "kept float"
    return found

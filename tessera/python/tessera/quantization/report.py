# SPDX-License-Identifier: Apache-2.0
"""What a quantisation says of itself: where the model comes from, and a row for each of its layers."""

import math
import warnings

import _tessera

from . import measure, place, sixteen
from .data import take


def origin(work):
    return {
        "engine": work.calibrated.version,
        "weights": work.calibrated.note,
        "equalised_tensors": work.equalised,
        "split_layers": work.splits,
        "ranges": work.how_ranged,
        "not_rounded": work.not_rounded,
        "weights_in_4_bits": packed_layers(work),
        "in_16_bits": [unit.name for unit in work.state.plan.units if unit.bits == 16],
        "not_finite": sorted(work.statistics.broken),
        "calibration": work.data.text,
        "synthetic": work.data.synthetic,
        "samples": work.calibrated.samples,
        "seed": work.seed,
        "scales": "powers of two" if work.options.power_of_two else "any",
        "config": place.text_of_machine(work.options.config),
        "numerics": work.options.numerics,
        "shapes": {name: list(shape) for name, shape in work.options.shapes.items()},
    }


def packed_layers(work):
    """Names of the layers whose weights are of 4 bits."""
    grid, plan = work.options.grid, work.state.plan
    found = [unit for unit in plan.units if unit.kind == "product" and unit.quantised] if grid else []
    arrays = {unit.name: plan.graph.array(unit.node.input[1]) for unit in found}
    return [u.name for u in found if arrays[u.name] is not None and grid.takes(u, arrays[u.name])]


def report_of(work, *, sensitivity=True):
    """A dict: origin, totals, and a row for each unit. See docs/quantize.md."""
    state = work.state
    feeds = take(work.data, work.judges)
    distances = measure.layer_distances(work.same, state.model, state.plan, state.parameters, feeds)
    gains = work.keeping.gains_of_layers() if sensitivity else {}
    told = description(work)
    cycles = cycles_of(work, told)
    rows, packed = [], set(packed_layers(work))
    for unit in state.plan.units:
        name = unit.output
        distance = distances.get(name)
        given = state.parameters.get(name) if unit.quantised else None
        rows.append(
            {
                "layer": unit.name,
                "op": "+".join(node.op_type for node in unit.nodes),
                "kind": unit.kind,
                "int8": unit.quantised,
                "bits": 8 if unit.quantised else unit.bits or 32,
                "weight_bits": 4 if unit.name in packed else None,
                "why_float": unit.why,
                "snr_db": _finite(distance.snr) if distance else None,
                "scale": float(given.scale) if given else None,
                "zero_point": given.zero if given else None,
                "clipped": distance.clipped / distance.count if distance and distance.count else None,
                "sensitivity_db": _finite(gains.get(unit.name)),
                "predicted_cycles": cycles.get(unit.name),
            }
        )
    for part in work.parts:
        rows += report_of(part, sensitivity=sensitivity)["layers"]
    return {
        **origin(work),
        "macs": state.placement.macs_npu + state.placement.macs_cpu,
        "macs_npu_share": state.placement.macs_share,
        "predicted_cycles": sum(layer.get("predicted_cycles") or 0 for layer in told),
        "output_snr_db": _finite(measure.output_distance(state.model, feeds, work.reference)),
        "answer_snr_db": _finite(work.distance(state.model, feeds)),
        "layers": rows,
    }


def description(work):
    """The layers that the compiler makes of the model; none, with a line, where it makes no program of it."""
    options = work.options
    try:
        told = place.describe(work.state.model, options.config, options.shapes, options.numerics)
    except _tessera.Error as e:
        warnings.warn(f"no cycles are predicted, as the quantised model does not compile: {e}", stacklevel=5)
        return []
    return told.get("layers", [])


def cycles_of(work, layers):
    """Unit's name -> predicted cycles; a layer of the NPU counts for the first of its nodes that names a unit."""
    unit_of = {node.name: unit.name for unit in work.state.plan.units for node in unit.nodes}
    fine = [unit for unit in work.state.plan.units if unit.bits == 16]
    unit_of.update({name: unit.name for unit in fine for name in sixteen.names_of_products(unit)})
    cycles = {}
    for layer in layers:
        if layer["placement"] != "npu":
            continue
        found = [unit_of[n] for n in [layer["name"], *layer["nodes"]] if n in unit_of]
        if found:
            cycles[found[0]] = cycles.get(found[0], 0) + layer["predicted_cycles"]
    return cycles


def _finite(value):
    return None if value is None or not math.isfinite(value) else round(float(value), 2)

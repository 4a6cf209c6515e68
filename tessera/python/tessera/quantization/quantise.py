# SPDX-License-Identifier: Apache-2.0
"""From a float model to a quantised one: prepare, calibrate, choose, write, ask the compiler, measure. The compiler
decides what is quantised: after each writing the model is compiled, and whatever it leaves to the CPU becomes float
again, until nothing changes."""

import copy
import dataclasses
import json
import math
import os
import warnings

import _tessera
import numpy as np
import onnx

from . import byte_io, caches, engines, equalise, measure, place, ranges, rounding, split, tables, write
from .data import open_data, ports_of
from .errors import argument
from .plan import Plan
from .prepare import spelled, standard

METADATA = "tessera.quantization"
MOVES = ("movement", "embedding")  # units that cost little wherever they run
SHAPE_SAMPLES = 8
SENSITIVITY_SAMPLES = 8
DISTANCE_SAMPLES = 16
SPLIT_SAMPLES = 6
FEWEST_HELD = 4  # samples that can judge; where fewer are left over, all judge and all are fitted to
SPLIT_TRIALS = 3  # in a row without success, then the search for splits ends
MARGIN_DECIBELS = 1.0  # by which a change must bring the outputs nearer to be kept: less says nothing of other data


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
    shapes: dict = dataclasses.field(default_factory=dict)


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
    plan.settle()
    parameters = ranges.choose(plan, calibrated.ranges, power_of_two=options.power_of_two)
    writer = write.Writer(
        plan, parameters, per_channel=options.per_channel, power_of_two=options.power_of_two, scales=calibrated.scales
    )
    model = writer.write()
    return State(plan, parameters, model, writer)


def settle_with_compiler(calibrated, options, float_nodes, progress=None):
    """The candidate of which all quantised units run on the NPU, those that only move bytes aside."""
    float_nodes = dict(float_nodes)
    for turn in range(64):
        if progress:
            progress("asking the compiler", turn + 1)
        state = candidate(calibrated, options, float_nodes)
        if not any(unit.quantised for unit in state.plan.units):
            raise argument("nothing of the model can be quantised: every product is kept float; run it as it is")
        state.placement = place.place(state.model, options.config, options.shapes, options.numerics)
        refused = [
            unit
            for unit in state.plan.units
            if unit.quantised and unit.kind not in MOVES and any(n.name in state.placement.cpu for n in unit.nodes)
        ]
        if not refused:
            break
        for unit in refused:
            float_nodes[unit.name] = "the compiler leaves it to the CPU"
    write.check(state.model)
    return state


def resolve_layers(model, names):
    """Node names of layers given by node or by one of its results."""
    found = {}
    by_name = {node.name: node.name for node in model.graph.node}
    by_name.update({name: node.name for node in model.graph.node for name in node.output})
    # ONNX Runtime's optimiser appends to the name of a node what it has folded into it.
    by_name.update({node.name.split("/MatMulAddFusion")[0]: node.name for node in model.graph.node})
    for name in names:
        if name not in by_name:
            near = [n for n in by_name if name.lower() in n.lower()][:3] or list(by_name)[:3]
            raise argument(
                f"--keep-float: the model has no layer '{name}'; it has {', '.join(repr(n) for n in near)} ..."
            )
        found[by_name[name]] = "kept float"
    return found


def fix_shapes(model, shapes):
    """Gives dynamic dimensions of inputs the given extents."""
    known = {value.name: value for value in model.graph.input}
    symbols = {d.dim_param for value in known.values() for d in value.type.tensor_type.shape.dim if d.dim_param}
    for name, shape in shapes.items():
        if name in symbols and name not in known and len(shape) == 1:
            for value in known.values():
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param == name:
                        dim.Clear()
                        dim.dim_value = int(shape[0])
            continue
        if name not in known:
            raise argument(f"--shape: the model has no input '{name}'; it takes {', '.join(known)}")
        dims = known[name].type.tensor_type.shape.dim
        if len(dims) != len(shape):
            raise argument(f"--shape: input '{name}' has {len(dims)} dimensions, got {len(shape)}")
        for dim, extent in zip(dims, shape):
            dim.Clear()
            dim.dim_value = int(extent)
    if shapes:
        del model.graph.value_info[:]
        for value in model.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                if not dim.HasField("dim_value"):
                    dim.Clear()
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return model


def take(data, count):
    return list(data.limited(count if data.limit is None else min(count, data.limit)))


class Quantization:
    """The work of one call of tessera.quantize."""

    def __init__(self, model, calibrate, options, *, preprocess="", seed=0, samples=300, progress=None):
        self.options, self.progress, self.seed = options, progress, seed
        self.preprocess, self.caches = preprocess, None
        self._take_model(model, calibrate, set(_tessera.operator_names()["products"]), samples)
        # Shapes that the compiler is asked with: of a past that holds something, where a sample has one.
        feeds = take(self.data, SHAPE_SAMPLES)
        shown = next((feed for feed in feeds if all(value.size for value in feed.values())), feeds[0])
        self.options.shapes = {name: list(value.shape) for name, value in shown.items()}
        self.float_nodes = {}

    def _take_model(self, model, calibrate, products, samples):
        """The model to work on, and its samples. Caches of a fixed length become pasts that grow, if they may."""
        model, shapes = standard(model, products), self.options.shapes
        found = caches.find(model)
        if found is None:
            self.model = fix_shapes(spelled(model, products), shapes)
            self.data = self.open(calibrate, samples)
            return
        opened = found.opened(model)
        others = {name: shape for name, shape in shapes.items() if name not in [*found.pasts, found.mask]}
        grown = fix_shapes(spelled(copy.deepcopy(opened), products), others)
        data = self._read(calibrate, found.ports(ports_of(grown)), samples)
        first = found.filled(data.first()) if data.synthetic else data.first()
        why = found.obstacle(model, opened, first)
        warnings.warn(found.notice(why), stacklevel=5)
        if why is None:
            self.caches, self.model, self.data = found, grown, found.cut_data(data)
        else:
            self.model, self.data = fix_shapes(spelled(model, products), shapes), data

    def _read(self, source, ports, samples):
        return open_data(source, ports, preprocess=self.preprocess, seed=self.seed, samples=samples)

    def open(self, source, samples):
        """The samples of a source for the model."""
        ports = ports_of(self.model)
        if self.caches is None:
            return self._read(source, ports, samples)
        return self.caches.cut_data(self._read(source, self.caches.ports(ports), samples))

    def run(self, keep_float=()):
        layers = [name for name in keep_float if not str(name).isdigit()]
        most = sum(int(name) for name in keep_float if str(name).isdigit())
        self.float_nodes = resolve_layers(self.model, layers)
        self.options.float_nodes = tuple(self.float_nodes)
        feeds = take(self.data, DISTANCE_SAMPLES)
        self.reference = measure.float_outputs(self.model, feeds)
        self.same = self._split(self._equalised(feeds))
        self.calibrated = engines.calibrate(self.options.engine, self.same, self.data, self.options, self.progress)
        self._narrow(feeds)
        self.state = settle_with_compiler(self.calibrated, self.options, self.float_nodes, self.progress)
        self._choose_weights()
        if most:
            for name, _ in self.ranking()[:most]:
                self.float_nodes[name] = "kept float: among the most sensitive"
            self.state = settle_with_compiler(self.calibrated, self.options, self.float_nodes, self.progress)
        return self.state

    def _distance(self, model, feeds):
        return measure.output_distance(model, feeds, self.reference)

    def _equalised(self, feeds):
        """The float model with channels of similar ranges, if its outputs in int8 come nearer by that."""
        other, changed = equalise.equalise(self.model, _tessera.operator_names(), self.data)
        self.equalised = 0
        if not changed or self.options.float_nodes or not self.options.equalise:
            return self.model
        reached = []
        for model in (self.model, other):
            found, count = engines.measure_ranges(model, self.data.limited(DISTANCE_SAMPLES))
            trial = candidate(engines.Calibrated(model, found, count, ""), self.options, self.float_nodes)
            reached.append(self._distance(trial.model, feeds))
        if reached[1] < reached[0] + MARGIN_DECIBELS:
            return self.model
        self.equalised = changed
        return other

    def _split(self, model):
        """The float model with convolutions in parts, as far as each split brings the outputs nearer."""
        self.splits = []
        if self.options.float_nodes or not self.options.equalise:
            return model
        names, feeds = _tessera.operator_names(), take(self.data, SPLIT_SAMPLES)
        places = split.proposals(model, names, feeds)
        if not places:
            return model
        found, count = engines.measure_ranges(model, feeds)
        reached, found = self._split_distance(model, found, count, feeds, found)
        failures = 0
        for k, proposal in enumerate(places):
            if self.progress:
                self.progress("splitting", k + 1, len(places))
            other = split.split(model, names, proposal)
            own = split.ranges_of(proposal)
            distance, ranges_found = self._split_distance(other, {**found, **own}, count, feeds, own)
            if distance > reached + MARGIN_DECIBELS:
                model, reached, found, failures = other, distance, ranges_found, 0
                self.splits.append(proposal.product.name)
            else:
                failures += 1
            if failures == SPLIT_TRIALS:
                break
        return model

    def _split_distance(self, model, found, count, feeds, fresh):
        """The distance of a trial, and its ranges with those of the tensors `fresh` cut."""
        plan = candidate(engines.Calibrated(model, found, count, ""), self.options, self.float_nodes).plan
        found = tables.narrow(plan, found, feeds, only=fresh, power_of_two=self.options.power_of_two)
        trial = candidate(engines.Calibrated(model, found, count, ""), self.options, self.float_nodes)
        return measure.output_distance(trial.model, feeds, self.reference[: len(feeds)]), found

    def _narrow(self, feeds):
        """Cuts off what functions behind a product map to nearly one value, if that brings the outputs nearer; with the
        method mse every range is the one of the least squared error."""
        everywhere = self.options.method == "mse"
        options = {"everywhere": everywhere, "power_of_two": self.options.power_of_two}
        before = candidate(self.calibrated, self.options, self.float_nodes)
        extremes = self.calibrated.ranges
        self.calibrated.ranges = tables.narrow(before.plan, extremes, feeds, **options)
        self.how_ranged = "least squared error" if everywhere else self.options.method
        if everywhere or self.calibrated.ranges == extremes:
            return
        after = candidate(self.calibrated, self.options, self.float_nodes)
        if self._distance(after.model, feeds) > self._distance(before.model, feeds):
            self.how_ranged += ", flat parts of functions cut off"
        else:
            self.calibrated.ranges = extremes

    def _choose_weights(self):
        """Takes the weights and biases as rounding.py makes them. Those that the engine made, or those as they were,
        take their place if they bring the outputs clearly nearer to the float ones, on samples that rounding.py has not
        seen where there are enough: it works layer by layer, where little can go wrong, and a few samples prefer now
        one and now another. Where its weights stay, they are made once more, with the samples that have judged."""
        samples = self.calibrated.samples
        held = min(DISTANCE_SAMPLES, samples // 4)
        held = held if held >= FEWEST_HELD else 0
        count = min(samples - held, rounding.ROUND_SAMPLES)
        feeds = take(self.data.behind(count), held) if held else take(self.data, DISTANCE_SAMPLES)
        reference = measure.float_outputs(self.model, feeds)
        engine, tried = self.calibrated, []
        plain = dataclasses.replace(engine, note="as they were")
        other = self.state
        if engine.plain is not None:
            plain = dataclasses.replace(plain, model=engine.plain, plain=None)
            other = settle_with_compiler(plain, self.options, self.float_nodes, self.progress)
        tried.append((plain, other))
        if engine.plain is not None:
            tried.insert(0, (engine, self.state))
        tried.insert(0, self._rounded(plain, other, count))
        reached = [measure.output_distance(state.model, feeds, reference) for _, state in tried]
        best = self._clearly_nearest([state.model for _, state in tried], reached, feeds, reference)
        self.calibrated, self.state = tried[best]
        if best == 0 and count < min(samples, rounding.ROUND_SAMPLES):  # what has judged may teach now
            self.calibrated, self.state = self._rounded(plain, other, min(samples, rounding.ROUND_SAMPLES))
        told = [f"{made.note}: {distance:.1f} dB" for (made, _), distance in zip(tried, reached)]
        self.calibrated.note = "; ".join([told[best], *(f"not {text}" for text in told if text != told[best])])

    def _rounded(self, plain, state, count):
        """What rounding.py makes of the weights with the first `count` samples, and the candidate of that."""
        model, scales = rounding.reround(state, lambda: self.data.limited(count), progress=self.progress)
        note = "rounded layer by layer, biases corrected"
        made = dataclasses.replace(plain, model=model, scales=scales, original=plain.model, note=note)
        return made, settle_with_compiler(made, self.options, self.float_nodes, self.progress)

    @staticmethod
    def _clearly_nearest(models, reached, feeds, reference):
        """The index of the last model that is nearer than the one kept before it by the margin over all samples, and
        nearer on most of them: a mean alone may come from one sample."""
        alone = lambda k: [measure.output_distance(models[k], [f], [r]) for f, r in zip(feeds, reference)]
        best, kept = 0, alone(0)
        for k in range(1, len(models)):
            if reached[k] < reached[best] + MARGIN_DECIBELS:
                continue
            single = alone(k)
            if 2 * sum(a > b for a, b in zip(single, kept)) > len(feeds):
                best, kept = k, single
        return best

    # --- sensitivity

    def sensitivities(self):
        """Product's name -> what the SNR of the network's outputs gains, in dB, when this layer alone stays float."""
        feeds = take(self.data, SENSITIVITY_SAMPLES)
        base = self._distance(self.state.model, feeds)
        left = {unit.name: unit.why for unit in self.state.plan.units if not unit.quantised and unit.why}
        gains = {}
        products = [unit for unit in self.state.plan.units if unit.kind == "product" and unit.quantised]
        for k, unit in enumerate(products):
            if self.progress:
                self.progress("measuring sensitivity", k + 1, len(products))
            try:
                variant = candidate(self.calibrated, self.options, {**left, unit.name: "alone"})
            except ValueError:
                continue
            distance = self._distance(variant.model, feeds)
            gains[unit.name] = distance - base if math.isfinite(distance) and math.isfinite(base) else 0.0
        return gains

    def ranking(self):
        """Products with their gains, the most sensitive first."""
        self.gains = self.sensitivities()
        return sorted(self.gains.items(), key=lambda pair: -pair[1])

    def limit_drop(self, score, most):
        """Keeps the most sensitive layers float, one more at a time, until `score` (of a model; larger is better) is
        within `most` of the float model's."""
        target = score(self.model) - most
        ranking = self.ranking()
        kept = 0
        while score(self.state.model) < target:
            if kept == len(ranking):
                raise argument(
                    f"--max-drop {most}: not reached with any number of layers in float; calibrate on more data"
                )
            step = max(1, kept // 4)
            for name, _ in ranking[kept : kept + step]:
                self.float_nodes[name] = "kept float for --max-drop"
            kept += step
            if kept >= len(ranking):
                raise argument(
                    f"--max-drop {most}: not reached with all but the last of {len(ranking)} layers in float; check "
                    "the calibration data and the labels"
                )
            self.state = settle_with_compiler(self.calibrated, self.options, self.float_nodes, self.progress)
        return kept

    # --- the result

    def finish(self, byte_patterns=()):
        """The quantised model with what it was made by in its metadata."""
        model = byte_io.convert(copy.deepcopy(self.state.model), byte_patterns)
        entry = model.metadata_props.add()
        entry.key, entry.value = METADATA, json.dumps(self.origin(), sort_keys=True)
        return model

    def origin(self):
        return {
            "engine": self.calibrated.version,
            "weights": self.calibrated.note,
            "equalised_tensors": self.equalised,
            "split_layers": self.splits,
            "ranges": self.how_ranged,
            "calibration": self.data.text,
            "synthetic": self.data.synthetic,
            "samples": self.calibrated.samples,
            "seed": self.seed,
            "scales": "powers of two" if self.options.power_of_two else "any",
            "config": self.options.config,
            "numerics": self.options.numerics,
        }

    def report(self, *, sensitivity=True):
        """A dict: origin, totals, and a row for each unit. See docs/quantize.md."""
        state = self.state
        feeds = take(self.data, DISTANCE_SAMPLES)
        distances = measure.layer_distances(self.same, state.model, state.plan, state.parameters, feeds)
        gains = (getattr(self, "gains", None) or self.sensitivities()) if sensitivity else {}
        cycles = self._cycles()
        rows = []
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
                    "why_float": unit.why,
                    "snr_db": _finite(distance.snr) if distance else None,
                    "scale": float(given.scale) if given else None,
                    "zero_point": given.zero if given else None,
                    "clipped": distance.clipped / distance.count if distance and distance.count else None,
                    "sensitivity_db": _finite(gains.get(unit.name)),
                    "predicted_cycles": cycles.get(unit.name),
                }
            )
        info = state.placement.info
        return {
            **self.origin(),
            "macs": info["macs_npu"] + info["macs_cpu"],
            "macs_npu_share": info["macs_npu_share"],
            "predicted_cycles": sum(layer.get("predicted_cycles") or 0 for layer in info.get("layers", [])),
            "output_snr_db": _finite(self._distance(state.model, feeds)),
            "layers": rows,
        }

    def _cycles(self):
        """Unit's name -> predicted cycles; a layer of the NPU counts for the first of its nodes that names a unit."""
        unit_of = {node.name: unit.name for unit in self.state.plan.units for node in unit.nodes}
        cycles = {}
        for layer in self.state.placement.info.get("layers", []):
            if layer["placement"] != "npu":
                continue
            found = [unit_of[n] for n in [layer["name"], *layer["nodes"]] if n in unit_of]
            if found:
                cycles[found[0]] = cycles.get(found[0], 0) + layer["predicted_cycles"]
        return cycles


def _finite(value):
    return None if value is None or not math.isfinite(value) else round(float(value), 2)


@dataclasses.dataclass
class Quantized:
    """model: the quantised ModelProto. report: a dict (empty unless asked for). float_model: what it is compared
    with."""

    model: onnx.ModelProto
    report: dict
    float_model: onnx.ModelProto
    macs_npu_share: float
    synthetic: bool

    def save(self, path):
        onnx.save(self.model, os.fspath(path))


def quantize(
    model,
    calibrate,
    output=None,
    *,
    engine="nncf",
    method="minmax",
    config="npu256",
    numerics="exact",
    preprocess="",
    samples=300,
    seed=0,
    shapes=None,
    power_of_two=False,
    per_channel=True,
    accurate_bias=True,
    keep_float=(),
    labels=None,
    test=None,
    metric=None,
    max_drop=None,
    bytes=(),
    report=False,
    progress=None,
):
    """Quantises a float ONNX model so that its products run on the NPU.

    model: path, bytes or ModelProto. calibrate: an .npz file, a folder of pictures or .pb tensors, "random", arrays, an
    iterable of arrays or dicts, or a function that gives an iterator. output: where to write the model. engine: "nncf"
    or "onnxruntime"; method: "minmax", "mse", "entropy" or "percentile" (the last two: onnxruntime). config and
    numerics: the machine that decides what runs where, and its option ("exact" or "close"). preprocess: "imagenet",
    "unit" or a TOML file, for pictures. samples: at most so many are used. shapes: {input: shape} for dynamic
    dimensions. power_of_two: all scales are powers of two. keep_float: names of layers, or a number of the most
    sensitive ones. labels: of the samples of `test` (default: of the calibration data); metric: a function from a
    ModelProto to a score in place of top-1, larger is better. max_drop: the loss of score that is allowed; layers stay
    float until it is met. bytes: patterns of the names of inputs and outputs that are uint8 in the quantised model
    (their scales stand in its metadata `tessera.bytes`). report: whether layers are measured.
    Returns a Quantized. Errors: tessera.Error with the codes invalid_argument, invalid_model, io, unsupported."""
    keep = [keep_float] if isinstance(keep_float, (str, int)) else list(keep_float)
    options = Options(
        engine,
        method,
        accurate_bias,
        power_of_two,
        per_channel,
        config=config,
        numerics=numerics,
        shapes=dict(shapes or {}),
    )
    work = Quantization(model, calibrate, options, preprocess=preprocess, seed=seed, samples=samples, progress=progress)
    score, known, count = _scorer(work, labels, test, metric)
    if max_drop is not None and score is None:
        raise argument("--max-drop needs --labels (or a metric), to know what is lost")
    work.run(keep)
    if max_drop is not None:
        work.limit_drop(score, float(max_drop))
    made = work.finish([bytes] if isinstance(bytes, str) else bytes)
    told = work.report() if report else {}
    if score is not None:
        told["accuracy"] = {
            "float": score(work.model),
            "int8": score(work.state.model),
            "samples": count,
            "data": known,
            "synthetic": work.data.synthetic and test is None,
        }
    result = Quantized(made, told, work.model, work.state.placement.macs_share, work.data.synthetic)
    if output is not None:
        result.save(output)
    return result


def _scorer(work, labels, test, metric):
    """A function from a model to its score, the data's text, and how many samples there are."""
    if metric is not None:
        return metric, "the caller's metric", None
    if labels is None and test is None:
        return None, "", 0
    data = work.data if test is None else work.open(test, 10**9)
    known = measure.load_labels(labels) if labels is not None else data.labels
    if known is None:
        raise argument(f"{data.text} has no labels; give --labels a file with one integer for each sample")
    return (lambda model: np.divide(*measure.top1(model, data, known)).item()), data.text, len(known)

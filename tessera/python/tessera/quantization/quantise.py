# SPDX-License-Identifier: Apache-2.0
"""From a float model to a quantised one: prepare, calibrate, choose, write, ask the compiler, measure. The compiler
decides what is quantised: after each writing the model is compiled, and whatever it leaves to the CPU becomes float
again, until nothing changes."""

import copy
import dataclasses
import json
import math
import warnings

import _tessera
import numpy as np
import onnx

from ..errors import write_whole
from . import byte_io, deciding, engines, equalise, four_bits, inside, keeping, measure, rounding, split, tables
from .candidate import Options, candidate, resolve_layers, settle_with_compiler
from .data import open_data, ports_of, take
from .errors import argument
from .forms import caches, sizes
from .graph import Graph, bodies, extent_of, graphs_of, is_onnx, note_ranks
from .meter import Meter
from .prepare import spelled, standard
from .report import origin, report_of
from .steps import as_error, begin, one_line, step

METADATA = "tessera.quantization"
SHAPE_SAMPLES = 8
DISTANCE_SAMPLES = 16
SPLIT_SAMPLES = 6
ROUND_SAMPLES = 64
ELEMENTS = 1 << 31  # of float tensors, over the samples that weights are rounded for
JUDGED_ELEMENTS = 1 << 29  # the same, over those that judge: a network runs over them once for each trial
MADE_UP_ELEMENTS = 1 << 27  # the same, over all samples of random values, of which more say nothing more
MADE_UP_SAMPLES = 8  # of random values, at least
FEWEST_HELD = 4  # samples that can judge; where fewer are left over, all judge and all are fitted to
SPLIT_TRIALS = 3  # in a row without success, then the search for splits ends
MARGIN_DECIBELS = 1.0  # by which a change must bring the outputs nearer to be kept: less says nothing of other data


def _elements(model):
    """Elements of the float tensors of a sample, about: what stands in a Loop or Scan, and the constants that are read
    there, count as often as the longest axis of an input has places."""
    lengths = [extent_of(d) or 1 for value in model.graph.input for d in value.type.tensor_type.shape.dim]
    constants = {t.name: math.prod(t.dims) for graph in graphs_of(model.graph) for t in graph.initializer}

    def of(graph, times):
        floats = (
            v.type.tensor_type for v in graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        )
        count = times * sum(math.prod(extent_of(d) or 1 for d in kind.shape.dim) for kind in floats)
        for node in graph.node:
            count += times * sum(constants.get(name, 0) for name in node.input) if times > 1 else 0
            inner = times * max(lengths, default=1) if is_onnx(node, "Loop", "Scan") else times
            count += sum(of(body, inner) for body in bodies(node))
        return count

    return of(model.graph, 1)


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
        begin("reading the model")
        model, shapes = standard(model, products), self.options.shapes
        found = caches.find(model)
        if found is None:
            self.model = sizes.with_shapes(spelled(model, products), shapes)
            self.data = self.open(calibrate, samples)
            return
        opened = found.opened(model)
        others = {name: shape for name, shape in shapes.items() if name not in [*found.pasts, found.mask]}
        grown = sizes.fix_shapes(spelled(copy.deepcopy(opened), products), others)
        data = self._read(calibrate, found.ports(ports_of(grown)), samples)
        first = found.filled(data.first()) if data.synthetic else data.first()
        why = found.obstacle(model, opened, first)
        warnings.warn(found.notice(why), stacklevel=5)
        if why is None:
            self.caches, self.model, self.data = found, grown, found.cut_data(data)
        else:
            self.model, self.data = sizes.with_shapes(spelled(model, products), shapes), data

    def _read(self, source, ports, samples):
        begin("reading the samples")
        return open_data(source, ports, preprocess=self.preprocess, seed=self.seed, samples=samples)

    def open(self, source, samples):
        """The samples of a source for the model."""
        ports = ports_of(self.model)
        if self.caches is None:
            return self._read(source, self._sized(ports) if source_is_random(source) else ports, samples)
        return self.caches.cut_data(self._read(source, self.caches.ports(ports), samples))

    def _sized(self, ports):
        """The inputs with a size for each dynamic dimension, with which the float model runs."""
        known = {name: shape for name, shape in self.options.shapes.items() if len(shape) > 0}
        ports = [dataclasses.replace(port, dims=list(known.get(port.name, port.dims))) for port in ports]
        if all(None not in port.dims for port in ports):
            return ports
        with step("looking for sizes of dynamic dimensions"):
            shapes = sizes.find(self.model, ports, seed=self.seed)
        if any(shapes[port.name][k] != 1 for port in ports for k, d in enumerate(port.dims) if d is None):
            chosen = {port.name: shapes[port.name] for port in ports if None in port.dims}
            warnings.warn(
                f"sizes of dynamic dimensions were chosen, with which the float model runs: {sizes.text_of(chosen)}; "
                "--shape or samples give others",
                stacklevel=6,
            )
        return [dataclasses.replace(port, dims=shapes[port.name]) for port in ports]

    def run(self, keep_float=()):
        options = self.options
        engines.check(options.engine, options.method)
        layers = [name for name in keep_float if not str(name).isdigit()]
        within = inside.names_inside(self.model)
        inner = [name for name in layers if name in within]
        layers = [name for name in layers if name not in within]
        most = sum(int(name) for name in keep_float if str(name).isdigit())
        self.float_nodes = resolve_layers(self.model, layers)
        options.float_nodes = tuple(self.float_nodes)
        self._size()
        self.meter.begin("running in float")
        feeds = take(self.data, self.judges)
        self.reference = measure.float_outputs(self.model, feeds)
        self.answers = measure.answers_of(self.model, _tessera.operator_names()["movements"])
        self._note_ranks()
        self._quantise_bodies(inner)
        self._observe()
        self.same, found = self._split(*self._equalised(feeds))
        self.meter.begin("calibrating")
        found = engines.completed(self.same, self.data, found)
        self.calibrated = engines.with_onnxruntime(self.same, self.data, options, found, self.statistics.samples)
        self._narrow(feeds)
        self.meter.begin("asking the compiler")
        self.state = settle_with_compiler(self.calibrated, options, self.float_nodes)
        if options.grid is not None and options.mixed > 0:
            four_bits.mix(self)
        self._choose_weights()
        self.keeping = keeping.Keeping(self)
        if not keep_float:
            self.keeping.keep_near()
        if most:
            self.keeping.keep_most_sensitive(most)
        self._tell_what_is_left()
        return self.state

    def _note_ranks(self):
        """Writes into the model how many axes its tensors have, where that does not follow from the inputs' shapes."""
        graph = Graph(self.model)
        unknown = [name for name in engines.float_tensors(self.model) if graph.shapes.get(name) is None]
        for _, values in measure.observed_runs(self.model, unknown, self.data.limited(1)) if unknown else ():
            note_ranks(self.model, {name: np.ndim(value) for name, value in values.items()})

    def _quantise_bodies(self, keep):
        """Puts quantised bodies of If, Loop and Scan into the model, each quantised as a model of its own on what the
        samples give it. What cannot be had of a body leaves it in float, and a line says why."""
        self.float_model, self.parts = self.model, []
        changed = copy.deepcopy(self.model)
        found = inside.bodies_of(changed, set(_tessera.operator_names()["products"]))
        for number, body in enumerate(found):
            self.meter.at(number, len(found))
            try:
                self.parts.append(self._quantised_body(changed, body, keep))
            except Exception as e:  # of this body alone: the others, and the graph around them, go on
                self._warn(f"{body.text} stays in float on the CPU: {as_error(e)}")
        if self.parts:
            self.model = changed

    def _quantised_body(self, changed, body, keep):
        """Writes the quantised body in the place of the one in `changed`; the work that made it."""
        samples, reached = inside.samples_of(self.float_model, body, self.data)
        if not samples:
            raise argument(f"no sample {body.reached}; give samples that do")
        model = inside.model_of(self.float_model, body, samples)
        if not reached:
            how = ""
            try:
                measure.float_outputs(model, samples[:1])
            except _tessera.Error:
                try:
                    samples, how = inside.cut_to_run(model, samples, self.seed), ", cut to sizes with which it runs"
                except _tessera.Error:
                    raise argument(f"no sample {body.reached}; give samples that do") from None
            self._warn(f"{body.text}: no sample takes it; its ranges are those of what the others would give it{how}")
        options = dataclasses.replace(self.options, shapes={}, float_nodes=())
        work = Quantization(model, samples, options, seed=self.seed, samples=len(samples))
        known = inside.names_inside(work.model) | {node.name for node in work.model.graph.node}
        work.run([name for name in keep if name in known])
        inside.put_back(changed, body, work.state.model)
        return work

    @staticmethod
    def _warn(sentence):
        warnings.warn(sentence, stacklevel=6)

    def candidate(self, float_nodes):
        """The candidate of the weights and ranges as they are now."""
        return candidate(self.calibrated, self.options, float_nodes)

    def settle(self, afresh=False):
        """Writes the model anew and asks the compiler. What it has refused stays float, unless `afresh`."""
        known = {} if afresh else self.state.left
        self.state = settle_with_compiler(self.calibrated, self.options, {**known, **self.float_nodes})

    def _size(self):
        """How many samples judge and are rounded for: fewer of a network with large tensors, where each place of a
        tensor counts as a sample; and how long the steps take beside each other."""
        elements = _elements(self._at_sizes_of_samples())
        afford = lambda whole, fewest, most: int(np.clip(whole // max(1, elements), fewest, most))
        self.judges = afford(JUDGED_ELEMENTS, FEWEST_HELD, DISTANCE_SAMPLES)
        self.taught = afford(ELEMENTS, DISTANCE_SAMPLES, ROUND_SAMPLES)
        self.corrected = afford(JUDGED_ELEMENTS, FEWEST_HELD, engines.BIAS_SAMPLES)
        known = min(n for n in (self.data.size, self.data.limit, 10**6) if n is not None)
        if self.data.synthetic:
            known = min(known, max(MADE_UP_SAMPLES, MADE_UP_ELEMENTS // max(1, elements)))
            self.data, self.judges = self.data.limited(known), min(self.judges, max(FEWEST_HELD, known // 2))
        self.corrected, samples = min(known, self.corrected), min(known, self.taught)
        self.meter = Meter(
            self.progress,
            {
                "running in float": min(known, self.judges),
                "observing tensors": 3 * known,
                "equalising": 4 * self.judges,
                "splitting": 4 * SPLIT_TRIALS * SPLIT_SAMPLES,
                "calibrating": 0,
                "narrowing ranges": 6 * self.judges,
                "asking the compiler": 8 * self.judges,
                "rounding weights": 4 * samples + 4 * self.judges,
                "correcting biases": 40 * self.corrected if self.options.engine == "nncf" else 0,
                "comparing weights": 6 * self.judges,
            },
        )

    def _at_sizes_of_samples(self):
        """A copy of the model whose dynamic dimensions have the sizes of a sample, with the shapes that follow."""
        sized = copy.deepcopy(self.model)
        known = {port.name: port.dims for port in ports_of(sized)}
        fits = {n: s for n, s in self.options.shapes.items() if n in known and len(known[n]) == len(s)}
        return sizes.fix_shapes(sized, fits)

    def _observe(self):
        """Extremes of all tensors, and more of those that are looked at channel by channel."""
        self.meter.begin("observing tensors")
        names, channels = _tessera.operator_names(), set()
        if self._may_change():
            channels = equalise.tensors_of(self.model, names) | split.tensors_of(self.model, names)
        whole = self.meter.steps["observing tensors"] / 3
        self.statistics = measure.Statistics(
            self.model,
            engines.float_tensors(self.model),
            self.data,
            channels,
            lambda part, parts, number: self.meter.at(part * whole + number, parts * whole),
        )
        self._check_inputs()

    def _check_inputs(self):
        """Samples with values that are not finite are told of by the names of their inputs."""
        broken = [port.name for port in ports_of(self.model) if port.name in self.statistics.broken]
        for name in broken:
            if name not in self.statistics.finite:
                raise argument(f"no sample has a finite number for input '{name}': all are NaN or infinite")
        if broken:
            self._warn(f"samples hold NaN or infinite values for input {', '.join(repr(name) for name in broken)}")

    def _has_products(self):
        products = _tessera.operator_names()["products"]
        return any(node.op_type in products for node in self.model.graph.node)

    def _may_change(self):
        return self.options.equalise and not self.options.float_nodes

    def _tell_what_is_left(self):
        """One line for each kind of thing that a step could not do."""
        for what, names in (
            ("values that are not finite were left out of the ranges of", sorted(self.statistics.broken)),
            ("weights were rounded one by one, as nothing better could be had, of", sorted(self.not_rounded)),
        ):
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                warnings.warn(f"{what} {', '.join(repr(n) for n in names[:3])}{more}", stacklevel=5)

    def distance(self, model, feeds):
        """How near the outputs of a quantised model are to the float ones, by what they answer."""
        return measure.output_distance(model, feeds, self.reference, self.answers)

    def _equalised(self, feeds):
        """The float model with channels of similar ranges, if its outputs in int8 come nearer by that; and its
        statistics."""
        self.equalised = 0
        if not self._may_change():
            return self.model, self.statistics
        other, factors = equalise.equalise(self.model, _tessera.operator_names(), self.statistics)
        if not factors:
            return self.model, self.statistics
        self.meter.begin("equalising")
        reached, scaled = [], self.statistics.scaled(factors)
        for model, found in ((self.model, self.statistics), (other, scaled)):
            trial = candidate(
                engines.Calibrated(model, found.ranges, found.samples, ""), self.options, self.float_nodes
            )
            reached.append(self.distance(trial.model, feeds))
        if not reached[1] >= reached[0] + MARGIN_DECIBELS:
            return self.model, self.statistics
        self.equalised = len(equalise.tensors_of(self.model, _tessera.operator_names()))
        return other, scaled

    def _split(self, model, statistics):
        """The float model with convolutions in parts, as far as each split brings the outputs nearer; and the ranges of
        its tensors."""
        self.splits, found, names = [], statistics.ranges, _tessera.operator_names()
        places = split.proposals(model, names, statistics) if self._may_change() else []
        if not places:
            return model, found
        self.meter.begin("splitting")
        feeds = take(self.data, min(SPLIT_SAMPLES, max(2, self.judges // 2)))
        # What a trial narrows is narrowed for good by _narrow, with more samples.
        reached, narrowed = self._split_distance(model, found, feeds, found)
        failures = 0
        for k, proposal in enumerate(places):
            self.meter.at(k, len(places))
            other = split.split(model, names, proposal)
            own = split.ranges_of(proposal)
            distance, trial = self._split_distance(other, {**narrowed, **own}, feeds, own)
            if distance > reached + MARGIN_DECIBELS:
                model, reached, narrowed, failures = other, distance, trial, 0
                found = {**found, **own}
                self.splits.append(proposal.product.name)
            else:
                failures += 1
            if failures == SPLIT_TRIALS:
                break
        return model, found

    def _split_distance(self, model, found, feeds, fresh):
        """The distance of a trial, and its ranges with those of the tensors `fresh` cut."""
        plan = candidate(engines.Calibrated(model, found, 0, ""), self.options, self.float_nodes).plan
        found = tables.narrow(plan, found, feeds, only=fresh, power_of_two=self.options.power_of_two)
        trial = candidate(engines.Calibrated(model, found, 0, ""), self.options, self.float_nodes)
        return measure.output_distance(trial.model, feeds, self.reference[: len(feeds)], self.answers), found

    def _narrow(self, feeds):
        """Cuts off what functions behind a product map to nearly one value, if that brings the outputs nearer. Ranges
        of the least squared error take the place of that if they bring them clearly nearer, on samples that they were
        not made for; where those are few, they are not tried. The method mse takes them anyway."""
        self.meter.begin("narrowing ranges")
        power_of_two, extremes = self.options.power_of_two, self.calibrated.ranges
        before = candidate(self.calibrated, self.options, self.float_nodes)
        least = lambda data: tables.narrow(before.plan, extremes, data, everywhere=True, power_of_two=power_of_two)
        self.how_ranged = self.options.method
        if self.options.method == "mse":
            self.calibrated.ranges, self.how_ranged = least(feeds), "least squared error"
            return
        chosen, reached = extremes, measure.output_distances(before.model, feeds, self.reference, self.answers)
        trials = [
            ("flat parts of functions cut off", tables.narrow(before.plan, extremes, feeds, power_of_two=power_of_two))
        ]
        others = take(self.data.behind(len(feeds)), len(feeds)) if self.options.method == "minmax" else []
        if len(others) >= FEWEST_HELD:
            trials.append(("least squared error", least(others)))
        for k, (how, tried) in enumerate(trials):
            if tried == extremes:
                continue
            self.calibrated.ranges = tried
            trial = candidate(self.calibrated, self.options, self.float_nodes)
            found = measure.output_distances(trial.model, feeds, self.reference, self.answers)
            clearly = self._clearly_nearest([reached[0], found[0]], [reached[1], found[1]])
            if clearly if k else found[0] > reached[0]:
                chosen, reached, self.how_ranged = tried, found, f"{self.options.method}, {how}"
        self.calibrated.ranges = chosen

    def _choose_weights(self):
        """Takes the weights and biases as rounding.py makes them. Those that the engine makes, or those as they were,
        take their place if they bring the outputs clearly nearer to the float ones, on samples that rounding.py has not
        seen where there are enough: it works layer by layer, where little can go wrong, and a few samples prefer now
        one and now another. Where its weights stay, they are made once more, with the samples that have judged, unless
        all are random values."""
        samples = self.calibrated.samples
        held = min(self.judges, samples // 4)
        held = held if held >= FEWEST_HELD else 0
        count, most = min(samples - held, self.taught), min(samples, self.taught)
        feeds = take(self.data.behind(count), held) if held else take(self.data, self.judges)
        reference = measure.float_outputs(self.float_model, feeds) if held else self.reference
        measured = lambda state: measure.output_distances(state.model, feeds, reference, self.answers)
        plain, left = dataclasses.replace(self.calibrated, note="as they were"), {**self.state.left, **self.float_nodes}
        self.meter.begin("rounding weights")
        work = rounding.Rounding(self.state)
        rounded = lambda count: self._rounded(plain, left, work.round(self.data, count, self.meter.at))
        tried = [rounded(count), (plain, self.state)]
        found = [measured(state) for _, state in tried]
        if self.options.engine == "nncf" and self._has_products() and max(found)[0] < keeping.wanted(self.state):
            self.meter.begin("correcting biases")
            taught = min(samples, self.corrected)
            made = engines.with_nncf(self.same, self.data, self.options, self.calibrated.ranges, taught)
            made.samples = samples
            tried = [(dataclasses.replace(other, version=made.version), state) for other, state in tried]
            if made.plain is not None:
                tried.insert(1, (made, candidate(made, self.options, left)))
                found.insert(1, measured(tried[1][1]))
        self.meter.begin("comparing weights")
        reached = [whole for whole, _ in found]
        best = self._clearly_nearest(reached, [alone for _, alone in found])
        self.calibrated, _ = tried[best]
        if best == 0 and count < most and not self.data.synthetic:  # what has judged may teach now
            self.calibrated, _ = rounded(most)
        self.not_rounded = work.left if best == 0 else {}
        self.settle()
        told = [f"{made.note}: {distance:.1f} dB" for (made, _), distance in zip(tried, reached)]
        self.calibrated.note = "; ".join([told[best], *(f"not {text}" for text in told if text != told[best])])

    def _rounded(self, plain, left, made):
        """The weights that rounding.py has made as what an engine gives, and the candidate of that."""
        model, scales = made
        note = "rounded layer by layer, biases corrected"
        calibrated = dataclasses.replace(plain, model=model, scales=scales, original=plain.model, note=note)
        return calibrated, candidate(calibrated, self.options, left)

    @staticmethod
    def _clearly_nearest(reached, single):
        """The index of the last model that is nearer than the one kept before it by the margin over all samples
        (`reached`), and nearer on most of them (`single`): a mean alone may come from one sample."""
        best = 0
        for k in range(1, len(reached)):
            nearer = sum(a > b for a, b in zip(single[k], single[best]))
            if reached[k] >= reached[best] + MARGIN_DECIBELS and 2 * nearer > len(single[k]):
                best = k
        return best

    # --- the result

    def finish(self, byte_patterns=()):
        """The quantised model with what it was made by in its metadata."""
        model = byte_io.convert(copy.deepcopy(self.state.model), byte_patterns)
        entry = model.metadata_props.add()
        entry.key, entry.value = METADATA, json.dumps(origin(self), sort_keys=True)
        return model


def source_is_random(source):
    return isinstance(source, str) and source == "random"


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
        write_whole(path, lambda beside: onnx.save(self.model, beside))


def _least_snr(given, none):
    """What the option says. A cache of bytes needs the products beside it quantised: nothing is kept float for it, nor
    where weights of 4 bits were asked for (`none`)."""
    if given is not None:
        return float(given)
    return -math.inf if none else deciding.LEAST_DECIBELS


@one_line
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
    weights="int8",
    group=None,
    mixed=0.0,
    accurate_bias=True,
    keep_float=(),
    least_snr=None,
    sixteen=None,
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
    dimensions. power_of_two: all scales are powers of two. weights: "int8", or "int4" for bytes that a machine with
    packed_weights stores in 4 bits; group: weights along a sum that share a scale then (None: the machine's block_in);
    mixed: the share of these weights that may keep 8 bits. keep_float: names of layers, or a number of the most
    sensitive ones. least_snr: where the outputs are farther from the float ones, in dB, layers are kept float, if few
    decide; None: 14, or nothing with `bytes`; not with keep_float, nor on random data. sixteen: the largest share of
    the products that may be computed in 16 bits where outputs are not near; None: 0.1, or 64 million in a small
    network, or 0.3 where the outputs are far with these, and nothing with `bytes` or power_of_two; not with keep_float,
    nor on random data. labels: of the samples of `test` (default: of the calibration data); metric: a function from a
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
        least_snr=_least_snr(least_snr, bytes or weights == "int4"),
        sixteen=0 if sixteen is None and (bytes or power_of_two or weights == "int4") else sixteen,
        shapes=dict(shapes or {}),
        grid=four_bits.grid_of(weights, group, config, per_channel),
        mixed=float(mixed),
    )
    work = Quantization(model, calibrate, options, preprocess=preprocess, seed=seed, samples=samples, progress=progress)
    score, known, count = _scorer(work, labels, test, metric)
    if max_drop is not None and score is None:
        raise argument("--max-drop needs --labels (or a metric), to know what is lost")
    work.run(keep)
    if max_drop is not None:
        work.keeping.limit_drop(score, float(max_drop))
    begin("writing the model")
    made = work.finish([bytes] if isinstance(bytes, str) else bytes)
    told = report_of(work) if report else {}
    if score is not None:
        told["accuracy"] = {
            "float": score(work.float_model),
            "int8": score(work.state.model),
            "samples": count,
            "data": known,
            "synthetic": work.data.synthetic and test is None,
        }
    result = Quantized(made, told, work.float_model, work.state.placement.macs_share, work.data.synthetic)
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

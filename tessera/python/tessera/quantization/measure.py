# SPDX-License-Identifier: Apache-2.0
"""Measures a quantised model beside its float one. Integers are those of ONNX Runtime's integer operators, which the
NPU's equal (docs/numerics.md), so an accuracy measured here is the NPU's.

Distances are signal to noise ratios in dB: 10 log10(sum of float^2 / sum of (float - int8)^2)."""

import copy
import dataclasses
import math
import os
import re
import tempfile

import numpy as np
import onnx

from .errors import argument, refusal
from .forms import choices, draws
from .graph import Graph, graphs_of, is_onnx, outer_reads

CONFIG = {
    "session.x64quantprecision": "1",
    "session.qdqisint8allowed": "1",
    "session.disable_double_qdq_remover": "1",
    "session.intra_op.allow_spinning": "0",  # threads that wait leave the processor to others
}
RELAXED = {"session.x64quantprecision": "0"}
# Where shapes are known, ReshapeFusion writes a 0 for the rows of a list and -1 beside it, which does not run where the
# list is empty, though the model as it was does.
UNFIT = ["ReshapeFusion"]
# What leaves as many elements as values say, perhaps none. Several threads of ONNX Runtime 1.32.0 have ended the
# process in a QLinearMul of tensors without elements, as those of an expert that no token goes to; one thread does not.
OF_ANY_LENGTH = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def _options(optimise, path=None, exact=True, threads=0):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_EXTENDED if optimise else level.ORT_DISABLE_ALL
    options.log_severity_level = 4
    for key, value in CONFIG.items():
        options.add_session_config_entry(key, value if exact else RELAXED.get(key, value))
    if path is not None:
        options.optimized_model_filepath = path
    return options


def session(model, optimise=True, path=None):
    """An InferenceSession of the model, whose random numbers are the same in every run, which writes what it has made
    of it to `path`."""
    import onnxruntime as ort
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    data = draws.fixed(model).SerializeToString()
    threads = int(any(is_onnx(node, *OF_ANY_LENGTH) for graph in graphs_of(model.graph) for node in graph.node))
    make = lambda exact: ort.InferenceSession(
        data, _options(optimise, path, exact, threads), providers=["CPUExecutionProvider"], disabled_optimizers=UNFIT
    )
    try:
        return make(True)
    except NoKernel:  # as for activations of int8 beside weights by channel, which the option has made unsigned
        return make(False)


def integer_model(model):
    """The model with the integer operators that ONNX Runtime makes of its groups."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "optimised.onnx")
        session(model, path=path)
        return onnx.load(path)


def leading_to(model, names):
    """A copy of the model whose outputs are the named tensors, as far as nodes make them, with what they are made of
    alone."""
    needed, kept = set(names), []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= {*node.input} | outer_reads(node)
    graph = onnx.GraphProto(name=model.graph.name)
    graph.node.extend(reversed(kept))
    graph.input.extend(model.graph.input)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in needed)
    graph.sparse_initializer.extend(t for t in model.graph.sparse_initializer if t.values.name in needed)
    made = {name for node in kept for name in node.output}
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name in made)
    part = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    part.opset_import.extend(model.opset_import)
    part.functions.extend(model.functions)
    return part


def observed(model, names, optimise=False):
    """A session that gives the named tensors, as far as they exist, beside the model's outputs."""
    model = copy.deepcopy(model)
    made = {name for node in model.graph.node for name in node.output}
    present = {value.name for value in model.graph.output}
    for name in names:
        if name in made and name not in present:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    made_session = session(model, optimise)
    return made_session, [value.name for value in made_session.get_outputs()]


def decibels(signal, noise):
    if signal <= 0:
        return math.inf if noise <= 0 else -math.inf
    return math.inf if noise <= 0 else 10 * (math.log10(signal) - math.log10(noise))


HELD_BYTES = 1 << 29  # of tensors that one run gives


def observed_runs(model, names, data, progress=None):
    """The named tensors of the model for each feed, as dicts. Of large models a run gives a part of them, and there are
    several runs for each feed, so that memory does not grow with the network. Yields (feed's number, dict). progress: a
    function of (part, parts, number)."""
    graph = Graph(model)
    batches, held = [[]], 0
    for name in names:
        size = 4 * math.prod(d or 1 for d in graph.shapes.get(name, []))
        if batches[-1] and held + size > HELD_BYTES:
            batches.append([])
            held = 0
        batches[-1].append(name)
        held += size
    for part, batch in enumerate(batches):
        made = leading_to(model, batch)
        wanted = [value.name for value in made.graph.output]
        run = session(made, optimise=False) if wanted else None
        given = [name for name in batch if name in graph.inputs]
        for number, feed in enumerate(data):
            found = dict(zip(wanted, run.run(wanted, feed))) if wanted else {}
            yield number, {**found, **{name: feed[name] for name in given}}
            if progress:
                progress(part, len(batches), number)


class Statistics:
    """Least and largest values of tensors over the data, as floats (`ranges`), and for tensors in `channels` also those
    of each place along axis 1 (`low`, `high`: arrays) with the means of values and squares. Values that are not finite
    are left out, and their tensors named in `broken`; those of `finite` have one value at least that is."""

    def __init__(self, model, names, data, channels=(), progress=None):
        self.ranges, self.low, self.high, self.sums, self.squares, self.sizes = {}, {}, {}, {}, {}, {}
        self.broken, self.finite, self.samples, channels = set(), set(), 0, set(channels)
        for number, values in observed_runs(model, names, data, progress):
            self.samples = max(self.samples, number + 1)
            for name, value in values.items():
                if value.dtype != np.float32 or not value.size:
                    continue
                if name in channels and value.ndim >= 2:
                    low, high = self._add_channels(name, value)
                else:
                    low, high = float(value.min()), float(value.max())
                if not (math.isfinite(low) and math.isfinite(high)):
                    self.broken.add(name)
                    finite = value[np.isfinite(value)]
                    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
                    if finite.size:
                        self.finite.add(name)
                else:
                    self.finite.add(name)
                known = self.ranges.get(name, (low, high))
                self.ranges[name] = min(known[0], low), max(known[1], high)

    def _add_channels(self, name, value):
        """Adds to what is known of each channel; the least and the largest value of all."""
        axes = tuple(a for a in range(value.ndim) if a != 1)
        low, high = value.min(axes), value.max(axes)
        ends = float(low.min()), float(high.max())
        if not np.all(np.isfinite(ends)):
            value = np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
            low, high = value.min(axes), value.max(axes)
        sums = value.sum(axes, dtype=np.float64)
        letters = "abcdefgh"[: value.ndim]
        squares = np.einsum(f"{letters},{letters}->b", value, value, dtype=np.float32).astype(np.float64)
        if name not in self.low:
            self.low[name], self.high[name], self.sums[name] = low, high, sums
            self.squares[name], self.sizes[name] = squares, 0
        else:
            self.low[name], self.high[name] = np.minimum(self.low[name], low), np.maximum(self.high[name], high)
            self.sums[name] += sums
            self.squares[name] += squares
        self.sizes[name] += value.size // value.shape[1]
        return ends

    def scaled(self, factors):
        """The statistics of a model whose tensors' channels are multiplied. factors: tensor -> positive vector."""
        made = copy.copy(self)
        made.ranges, made.low, made.high = dict(self.ranges), dict(self.low), dict(self.high)
        made.sums, made.squares = dict(self.sums), dict(self.squares)
        for name, factor in factors.items():
            if name in self.low:
                made.low[name], made.high[name] = self.low[name] * factor, self.high[name] * factor
                made.sums[name], made.squares[name] = self.sums[name] * factor, self.squares[name] * factor**2
                made.ranges[name] = float(made.low[name].min()), float(made.high[name].max())
        return made

    def largest(self, name):
        """The largest magnitude of each channel."""
        return np.maximum(np.abs(self.low[name]), np.abs(self.high[name]))

    def range_of(self, name):
        """From the least (at most 0) to the largest value (at least 0) of each channel."""
        return np.maximum(self.high[name], 0) - np.minimum(self.low[name], 0)

    def variance(self, name):
        mean = self.sums[name] / self.sizes[name]
        return np.maximum(self.squares[name] / self.sizes[name] - mean**2, 0)

    def square(self, name):
        return self.squares[name] / self.sizes[name]


ROW = 4096  # values whose squares are added in float32


def as_floats(value):
    """float32 as it is, all else as float64."""
    value = np.asarray(value)
    return value if value.dtype == np.float32 else value.astype(np.float64)


def square_sum(values):
    """The sum of the squares as a float. Rows of float32 are added in float32, and their sums in float64: eight times
    as fast as float64 alone, and as exact as six digits. Squares that float32 does not hold are those of float64."""
    values = np.ascontiguousarray(values).reshape(-1)
    whole = values.size - values.size % ROW if values.dtype == np.float32 else 0
    rows, rest = values[:whole].reshape(-1, ROW), values[whole:].astype(np.float64)
    made = np.einsum("rk,rk->r", rows, rows).astype(np.float64)
    apart = ~((made > 1e-24) & (made < 1e38))
    made[apart] = np.square(rows[apart], dtype=np.float64).sum(1)
    return float(made.sum() + np.square(rest).sum())


class Distance:
    """Sums of the float values' and the differences' squares."""

    def __init__(self):
        self.signal = self.noise = 0.0
        self.count = self.clipped = 0

    def merge(self, other):
        self.signal, self.noise = self.signal + other.signal, self.noise + other.noise

    def add(self, real, other, parameters=None):
        real, other = as_floats(real), as_floats(other)
        if real.shape != other.shape:  # loops that the data end, and lists of what was found, may be of any length
            ranks = max(real.ndim, other.ndim)
            real, other = (a.reshape((1,) * (ranks - a.ndim) + a.shape) for a in (real, other))
            shape = np.maximum(real.shape, other.shape)
            real, other = (np.pad(a, [(0, n - have) for n, have in zip(shape, a.shape)]) for a in (real, other))
        self.signal += square_sum(real)
        with np.errstate(invalid="ignore"):  # of values that are not finite, which others tell of
            self.noise += square_sum(real - other)
        if parameters is not None:
            half = float(parameters.scale) / 2
            outside = (real < parameters.low - half) | (real > parameters.high + half)
            self.clipped += int(outside.sum())
        self.count += real.size

    @property
    def snr(self):
        return decibels(self.signal, self.noise)


class BesideFloat:
    """Runs a quantised model with the choices of the float one. make: what makes a session of a model. Where something
    else decides about lengths, so that the choices do not fit, the model makes its own."""

    def __init__(self, model, make=session):
        self.model, self.make, self.with_choices, self.alone = model, make, None, None

    def __call__(self, feed, given):
        """The names of the outputs, and their values."""
        from onnxruntime.capi import onnxruntime_pybind11_state as runtime

        if given:
            try:
                self.with_choices = self.with_choices or self.make(choices.given(self.model, given))
                return self._run(self.with_choices, {**feed, **given})
            except (runtime.Fail, runtime.InvalidArgument, runtime.RuntimeException):
                pass
        self.alone = self.alone or self.make(self.model)
        return self._run(self.alone, feed)

    @staticmethod
    def _run(run, feed):
        return [value.name for value in run.get_outputs()], run.run(None, feed)


def layer_distances(model, quantised, plan, parameters, feeds):
    """tensor -> Distance, for the tensors of quantised units that exist in both models."""
    wanted = {f"{name}/quantised": name for unit in plan.units if unit.quantised for name in unit.outputs}
    choosing = choices.candidates(model)
    float_session, float_names = observed(model, [*wanted.values(), *choosing])
    chosen = lambda real: choices.chosen({name: real[name] for name in choosing if name in real})
    distances, run = {}, BesideFloat(quantised, lambda model: observed(integer_model(model), wanted)[0])
    for feed in feeds:
        real = dict(zip(float_names, float_session.run(None, feed)))
        integers = dict(zip(*run(feed, chosen(real))))
        for quantised_name, name in wanted.items():
            if name not in real or quantised_name not in integers or name not in parameters:
                continue
            given = parameters[name]
            value = (integers[quantised_name].astype(np.float64) - given.zero) * float(given.scale)
            distances.setdefault(name, Distance()).add(real[name], value, given)
    return distances


class Reference(list):
    """Outputs of the float model for one feed, and its choices (forms/choices.py) by name."""

    def __init__(self, model, names, values):
        super().__init__(values[: len(model.graph.output)])
        found = dict(zip(names, values))
        self.choices = choices.chosen({name: found[name] for name in choices.candidates(model) if name in found})


def float_outputs(model, feeds):
    """The Reference for each feed, kept for several candidates. Errors: tessera.Error where the model does not run on a
    feed."""
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    run, outputs = None, []
    for number, feed in enumerate(feeds):
        try:
            if not run:  # which the shapes of the samples may be fixed in
                run, names = observed(model, choices.candidates(model), optimise=True)
            outputs.append(Reference(model, names, run.run(None, feed)))
        except (runtime.Fail, runtime.InvalidArgument, runtime.RuntimeException, runtime.NotImplemented) as e:
            shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in feed.items())
            # ONNX Runtime puts the file and line of its own source in front.
            cause = re.sub(r"^/\S+:\d+ ", "", str(e).split("Status Message: ")[-1].strip().splitlines()[0])
            cause = refusal(model, {name: list(value.shape) for name, value in feed.items()}) or cause
            raise argument(
                f"the float model does not run on sample {number} of the calibration data ({shapes}): {cause}; give "
                "samples of the shapes that it takes, or --shape with --calibrate random"
            ) from e
    return outputs


OPEN = 12.0  # what a Sigmoid read counts from -OPEN to OPEN: float32 tells hardly more apart
SIGNAL = 2.0  # that its differences are compared with: a share of 0.88
SCORES = 16  # values of a Sigmoid that are no map
MEANS = ("ReduceMean", "GlobalAveragePool")
SMALLEST = 9.0  # in the logarithm of a Softmax's shares: e^-9 and less count as none


@dataclasses.dataclass
class Answer:
    """How far an output answers: a function of its values, and the size of its signal where that is not the values'
    own. most: more values than that answer by themselves."""

    function: object = np.asarray
    signal: float = None
    most: float = math.inf

    @property
    def of_scores(self):
        """Whether a Sigmoid or a Softmax makes it."""
        return self.function is not np.asarray

    def add(self, distance, real, other):
        if np.size(real) > self.most:
            distance.add(real, other)
            return
        real, other = self.function(real), self.function(other)
        distance.add(real, other)
        if self.signal is not None:
            distance.signal += self.signal**2 * int((np.abs(real) < OPEN).sum()) - square_sum(real)


def of_sigmoid(share):
    share = np.clip(np.asarray(share, np.float64), 1e-30, 1 - 2.0**-53)
    return np.clip(np.log(share / (1 - share)), -OPEN, OPEN)


def of_softmax(share):
    share = as_floats(share)
    return np.log(np.maximum(share, share.dtype.type(math.exp(-SMALLEST)))) + share.dtype.type(SMALLEST)


def answers_of(model, movements):
    """An Answer for each output. Behind a Softmax most values are near 0 or 1 whatever was read, and where the answer
    changes they jump: there it is what was read, as far as it matters. So it is behind a Sigmoid that gives a few
    scores: samples may all be far from the other answer, and how far they are counts as no signal. In a map both
    answers are there. Elsewhere it is the value."""
    graph, found = Graph(model), []
    kinds = {"Sigmoid": Answer(of_sigmoid, SIGNAL, SCORES), "Softmax": Answer(of_softmax)}
    for name in graph.outputs:
        found.append(kinds.get(_maker(graph.producer, name, movements), Answer()))
    return found


def _maker(producer, name, movements):
    """The operator that makes a tensor, in front of movements and means, since a mean of shares is a share, and in all
    branches of an If; "" where there is none."""
    node = producer.get(name)
    while node is not None and len(node.input) and node.op_type in (*movements, *MEANS):
        name = node.input[0]
        node = producer.get(name)
    if node is None or node.domain not in ("", "ai.onnx"):
        return ""
    if node.op_type != "If":
        return node.op_type
    made = set()
    for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        inner = {**producer, **{result: part for part in body.node for result in part.output}}
        made.add(_maker(inner, body.output[list(node.output).index(name)].name, movements))
    return made.pop() if len(made) == 1 else ""


def output_distance(quantised, feeds, reference, answers=None):
    """SNR of all outputs together: noise of each output is weighed by its own signal. answers: of `answers_of`; None:
    the outputs as they are."""
    return output_distances(quantised, feeds, reference, answers)[0]


def output_distances(quantised, feeds, reference, answers=None):
    """The SNR over all feeds, and that of each feed alone. reference: outputs for each feed; those of float_outputs()
    bring choices."""
    run, sums, alone = BesideFloat(quantised), None, []
    for feed, expected in zip(feeds, reference):
        _, results = run(feed, getattr(expected, "choices", {}))
        sums, single = sums or [Distance() for _ in results], [Distance() for _ in results]
        for k, (real, other) in enumerate(zip(expected, results)):
            if np.asarray(real).dtype.kind == "f":
                (answers[k] if answers else Answer()).add(single[k], real, other)
                sums[k].merge(single[k])
        alone.append(_together(single))
    return _together(sums or []), alone


def _together(distances):
    shares = [d.noise / d.signal for d in distances if d.signal > 0]
    return decibels(1.0, float(np.mean(shares))) if shares else math.inf


def top1(model, data, labels):
    """How many of the labelled samples the first output's largest value names, and how many there are."""
    run = session(model)
    right = count = 0
    for feed, label in zip(data, labels):
        right += int(np.argmax(run.run(None, feed)[0]) == int(label))
        count += 1
    if count == 0:
        raise argument("no labelled sample to measure accuracy on")
    return right, count


def load_labels(source):
    """Integers of a .npy file, an .npz file with the array `labels`, a text file with one a line, or a sequence."""
    if not isinstance(source, (str, os.PathLike)):
        return np.asarray(source).reshape(-1)
    path = os.fspath(source)
    try:
        if path.endswith(".npz"):
            with np.load(path) as arrays:
                if "labels" not in arrays.files:
                    raise argument(f"'{path}' has no array 'labels'; it holds {', '.join(arrays.files)}")
                return arrays["labels"].reshape(-1)
        return np.load(path).reshape(-1) if path.endswith(".npy") else np.loadtxt(path, dtype=np.int64, ndmin=1)
    except (OSError, ValueError) as e:
        if hasattr(e, "code"):
            raise
        raise argument(f"'{path}' holds no labels that can be read: {e}") from None

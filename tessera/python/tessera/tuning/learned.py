# SPDX-License-Identifier: Apache-2.0
"""A learned cost model of single layers and chains. Enters: schedules whose cycles were measured. Leaves: cycles of
others, as estimates that rank them.

Gradient-boosted trees (LightGBM) learn the logarithm of measured cycles over those of the closed form, less the layer's
median, from features of nest, schedule and machine. Features are ratios and logarithms, so that what was learned on
some layers and machines says something about others. A search adds what it measures itself: a Gaussian process over the
same features interpolates the errors of the trees. A seed decides everything: the trees are grown on one thread."""

import json
import math
import pathlib
import statistics
import tomllib

import _tessera
import numpy as np

from ..errors import error

VERSION = 1  # of the features: samples of another one are not mixed with these
ENOUGH = 24  # samples that trees are grown from at least
LENGTH, NOISE = 1.0, 0.02  # of the process: of its kernel over standardised features, and the share that is noise
DIMS = ("n", "oh", "ow", "oc", "ic", "kh", "kw", "g")
OPERANDS = {  # dimensions of a tile, and the parameter of the machine that holds it
    "input": (("n", "oh", "ow", "ic", "kh", "kw", "g"), "inp_bytes"),
    "weights": (("oc", "ic", "kh", "kw", "g"), "wgt_bytes"),
    "sums": (("n", "oh", "ow", "oc", "g"), "acc_bytes"),
    "second": (("n", "oh", "ow", "oc", "g"), "out_bytes"),
    "output": (("n", "oh", "ow", "oc", "g"), "out_bytes"),
    "params": (("oc", "g"), "param_bytes"),
}
INTRINSICS = ("dense", "depthwise", "reduce", "map", "rows")
DEFAULT_LATENCY = 100
TREES = {"objective": "regression", "num_leaves": 15, "learning_rate": 0.1, "min_data_in_leaf": 5, "verbose": -1}
FIXED = {"num_threads": 1, "deterministic": True, "force_row_wise": True}


def lightgbm():
    """The package, or the error that names it."""
    try:
        import lightgbm as package
    except ImportError:
        raise error(
            "unsupported",
            "the learned cost model needs the package lightgbm: pip install -r requirements-tune.txt, or "
            "pip install tessera[tune]; --cost-model closed-form needs nothing",
        ) from None
    return package


def machine_values(config):
    """The parameters of a machine: the name of a shipped one, the text of a configuration or a .toml file."""
    text = config if "\n" in config else _tessera.shipped_configs().get(config)
    return tomllib.loads(text if text is not None else pathlib.Path(config).read_text())


class Features:
    """tuning: a _tessera.Tuning; config, options: what it was made with."""

    def __init__(self, tuning, config, options):
        self.tuning, self.machine = tuning, machine_values(config)
        self.latency = float(options.get("dram_latency", DEFAULT_LATENCY))
        bus = self.machine["axi_bytes"]
        self.bandwidth = min(bus, float(options.get("dram_bandwidth", 0)) or bus)
        if options.get("dram", "ideal") != "ideal":
            self.latency, self.bandwidth = _tessera.dram_figures(options["dram"], bus)
        batch, into, out = (self.machine[name] for name in ("batch", "block_in", "block_out"))
        entries = (batch * into, into * out, 4 * batch * out, batch * out, batch * out, 8 * out)  # bytes
        self.entry = dict(zip(OPERANDS, entries))
        self._bounds = {}

    def least(self, piece):
        """Cycles that no schedule of a single layer is below; 0 for a chain."""
        if piece not in self._bounds:
            self._bounds[piece] = min(self.tuning.bounds(piece), default=0)
        return self._bounds[piece]

    def of(self, piece, schedule):
        """(closed-form cycles, features) of a schedule as text."""
        cycles, moved = self.tuning.alone(piece, schedule, "closed-form")
        made, cycles = json.loads(schedule), max(1, cycles)
        row = [
            math.log2(cycles),
            moved / self.bandwidth / cycles,
            self.least(piece) / cycles,
            self.latency / cycles,
            *self._shape(made, cycles),
        ]
        return cycles, [round(value, 5) for value in row]

    def _shape(self, made, cycles):
        if isinstance(made, list):  # a layer of several nests has the means of theirs
            return np.mean([self._single(nest, cycles) for nest in made], axis=0).tolist()
        return self._chain(made) if "chain" in made else self._single(made, cycles)

    def _single(self, made, cycles):
        extent, inner, place, threads = (dict.fromkeys(DIMS, value) for value in (1, 1, -1, 1))
        outer = 1
        for number, level in enumerate(made["levels"]):
            dim, factor = level["dim"], level["factor"]
            extent[dim] *= factor
            place[dim] = number
            threads[dim] = max(threads[dim], level.get("threads", 1))
            if level["kind"] == "hwloop":
                inner[dim] *= factor
            else:
                outer *= factor
        row = [1.0, len(made["levels"]), math.log2(outer), outer * self.latency / cycles]
        row += [float(made["intrinsic"] == name) for name in INTRINSICS]
        row.append(float(made["input_layout"] != "nhwc"))
        row.append(math.log2(math.prod(inner.values())))
        for dim in DIMS:
            row += [math.log2(extent[dim]), math.log2(inner[dim]), place[dim], threads[dim]]
        given = {operand["operand"]: operand for operand in made["operands"]}
        for name in OPERANDS:
            operand = given.get(name, {})
            row += [operand.get("attach", -1), operand.get("copies", 0)]
        held = given.get("input", {})
        row += [float(held.get("halo") == "keep"), float(held.get("scope") == "out")]
        return row + self._volumes(made, inner, given, cycles)

    def _volumes(self, made, inner, given, cycles):
        """Of each operand's tile: cycles on the bus, how often it comes, the share of its memory; and products."""
        outer = [(level["dim"], level["factor"]) for level in made["levels"] if level["kind"] != "hwloop"]
        trips, row = math.prod(factor for _, factor in outer), []
        for name, (dims, memory) in OPERANDS.items():
            if name not in given:
                row += [0.0, 0.0, 0.0]
                continue
            attach, extent = given[name].get("attach", len(outer)), dict(inner)
            for dim, factor in outer[attach:]:
                extent[dim] *= factor
            tile = math.prod(extent[dim] for dim in dims) * self.entry[name]
            times = math.prod(factor for _, factor in outer[:attach])
            held = tile * max(1, given[name].get("copies", 1)) / self.machine[memory]
            row += [tile / self.bandwidth / cycles, math.log2(times), min(4.0, held)]
        products = math.prod(inner.values())
        return [*row, products / cycles * trips, products / max(1.0, self.latency), products / cycles]

    def _chain(self, made):
        tile = made["tile"]
        row = [0.0, len(made["chain"])]
        row += [math.log2(1 + tile.get(name, 0)) for name in ("oh", "ow", "blocks")]
        row += [float(tile.get("input") == "whole"), float(tile.get("halo") == "keep")]
        return row + [0.0] * (SINGLE - len(row))


# Features of a single layer's schedule; a chain's are filled up to as many.
SINGLE = 6 + len(INTRINSICS) + 4 * len(DIMS) + 2 * len(OPERANDS) + 2 + 3 * len(OPERANDS) + 3


def logarithm(closed, cycles):
    """What is learned of a measurement."""
    return math.log(max(0.1, cycles / closed))


def samples_of(measured):
    """Samples for training, of one layer: [features, logarithm less its median, weight]. measured: (closed-form cycles,
    features, cycles). What is far from the best counts for less."""
    best = min(cycles for *_, cycles in measured)
    found = [logarithm(closed, cycles) for closed, _, cycles in measured]
    middle = statistics.median(found)
    return [
        [row, round(value - middle, 5), round(best / max(1, cycles), 4)]
        for value, (_, row, cycles) in zip(found, measured)
    ]


class Trees:
    """Grown from samples, or read from the text of others. Without either they say 0."""

    def __init__(self, samples=(), seed=1, text=None, rounds=150):
        package = lightgbm()
        self.booster = package.Booster(model_str=text) if text else None
        if len(samples) >= ENOUGH:
            rows, target, weight = (np.array(column) for column in zip(*samples))
            data = package.Dataset(rows, target, weight=weight)
            self.booster = package.train({**TREES, **FIXED, "seed": seed % (1 << 31)}, data, num_boost_round=rounds)

    @property
    def text(self):
        return None if self.booster is None else self.booster.model_to_string()

    def logarithms(self, rows):
        """Of cycles over those of the closed form, but for a constant of the layer."""
        return np.zeros(len(rows)) if self.booster is None else self.booster.predict(np.array(rows), num_threads=1)


class Corrected:
    """Trees, and what they err by near schedules that were measured."""

    def __init__(self, trees):
        self.trees, self.rows, self.errors = trees, [], []

    def learn(self, rows, logarithms):
        self.errors += [value - said for value, said in zip(logarithms, self.trees.logarithms(rows))]
        self.rows += rows

    def logarithms(self, rows):
        found = self.trees.logarithms(rows)
        if not self.rows:
            return found
        measured, errors, asked = np.array(self.rows), np.array(self.errors), np.array(rows)
        spread = np.concatenate([measured, asked]).std(axis=0)
        differ = spread > 0
        scale = spread[differ] * math.sqrt(max(1, differ.sum()))
        measured, asked = measured[:, differ] / scale, asked[:, differ] / scale
        weights = np.linalg.solve(kernel(measured, measured) + NOISE * np.eye(len(measured)), errors - errors.mean())
        return found + errors.mean() + kernel(asked, measured) @ weights


def kernel(a, b):
    far = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.exp(-np.maximum(far, 0) / (2 * LENGTH**2))


class ClosedForm:
    """The guide without learning: the sum of what the closed form says of each unit."""

    def __init__(self, bench, _payload):
        self.bench = bench

    def costs(self, states):
        return [sum(self.bench.tuning.alone(*unit, "closed-form")[0] for unit in state) for state in states]

    def learn(self, states, cycles):
        pass

    samples = ()


class Guide:
    """The learned model in a search: it begins with what earlier rounds taught (payload["model"]), and learns from what
    the search measures."""

    def __init__(self, bench, payload):
        self.features = Features(bench.tuning, payload["config"], payload["options"])
        self.known, self.measured = {}, {}
        self.model = Corrected(Trees(text=payload.get("model")))

    def of(self, unit):
        if unit not in self.known:
            self.known[unit] = self.features.of(*unit)
        return self.known[unit]

    def costs(self, states):
        units = list(dict.fromkeys(unit for state in states for unit in state))
        found = self.model.logarithms([self.of(unit)[1] for unit in units])
        cost = {unit: self.of(unit)[0] * math.exp(value) for unit, value in zip(units, found)}
        return [sum(cost[unit] for unit in state) for state in states]

    def learn(self, states, cycles):
        """cycles: of the units of each state together, without their neighbours. Each unit has its share of them."""
        rows, found = [], []
        for state, measured in zip(states, cycles):
            whole = sum(self.of(unit)[0] for unit in state)
            for unit in state:
                closed, row = self.of(unit)
                rows.append(row)
                found.append(logarithm(whole, measured))
                self.measured.setdefault(unit[0], []).append((closed, row, closed * measured / whole))
        self.model.learn(rows, found)

    @property
    def samples(self):
        return [sample for _, measured in sorted(self.measured.items()) for sample in samples_of(measured)]


COST_MODELS = {"closed-form": ClosedForm, "learned": Guide}

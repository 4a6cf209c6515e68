# SPDX-License-Identifier: Apache-2.0
"""A unit of work: a few seconds of search around some layers of a model. Enters: the schedules of all layers, which of
them may change, a seed. Leaves: what the judge measured of the best changes that the replay liked. Nothing else enters,
so that a unit has the same result wherever and whenever it runs."""

import hashlib
import json
import math
import os
import random

import _tessera

import tessera

from .. import errors
from ..exploration.results import compiler_digest
from . import sampled
from .learned import COST_MODELS
from .learned import VERSION as FEATURES

NEIGHBOURS = 2  # on each side of what changes, in the stream that is replayed
CANDIDATES = 16
REFUSALS = ("does_not_fit", "invalid_argument", "unsupported")  # of schedules that cannot be compiled
PARENTS, CHILDREN, GENERATION = 16, 128, 16  # of an evolution: who has children, how many, how many are replayed
CHANCES = 4  # of a generation, taken without asking the cost model
WINDOWS = (1, 1, 1, 2, 4, 8)  # layers of a chip whose divisions change together
DIVISIONS = 4  # of a unit, of which some may be illegal
BENCHES = 4  # that a process keeps
BUILD = compiler_digest()  # of this process, whatever is built meanwhile
OTHER_BUILD = {"other_build": True}  # in place of a result

_benches = {}


def text_of(config):
    """A configuration as workers take it wherever they are: the name of a shipped one, or the text of a file. Errors:
    io, and those of names that nobody has."""
    if config in _tessera.shipped_configs() or not (str(config).endswith(".toml") or os.path.sep in str(config)):
        return config
    try:
        with open(config, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise errors.error("io", f"cannot read the configuration '{config}': {why}") from None
    try:
        _tessera.check_config(text)
    except tessera.Error as error:
        raise errors.error(error.code, f"{config}: {str(error).removeprefix('machine: ')}") from None
    return text + "\n"


def bench_of(shared, settings, divisions=None):
    """The model on the bench, the last ones kept in a process. settings: config as of text_of, shapes, options.
    divisions: of layers among the cores of a chip; the compiler's by default."""
    data = shared["model"]
    config, shapes, options = settings["config"], settings["shapes"], settings["options"]
    key = (
        hashlib.sha256(data).digest(),
        config,
        repr(shapes),
        *(repr(sorted(of.items())) for of in (options, divisions or {})),
    )
    if key not in _benches:
        while len(_benches) >= BENCHES:
            _benches.pop(next(iter(_benches)))
        _benches[key] = Bench(data, config, shapes, options, divisions or {})
    return _benches[key]


class Bench:
    """_tessera.Tuning with what a search asks again and again."""

    def __init__(self, model, config, shapes, options, divisions):
        self.tuning = _tessera.Tuning(model, config, shapes, options, divisions)
        self.pieces = self.tuning.pieces()
        self.divisions = self.tuning.divisions()
        self.starting = {}  # (graph, operation): numbers of the pieces that begin there
        for number, piece in enumerate(self.pieces):
            self.starting.setdefault((piece["graph"], piece["first"]), []).append(number)
        self._candidates = {}

    def candidates(self, piece):
        if piece not in self._candidates:
            self._candidates[piece] = self.tuning.candidates(piece, "exhaustive", CANDIDATES)
        return self._candidates[piece]

    def end(self, piece):
        return self.pieces[piece]["first"] + self.pieces[piece]["count"]

    def placed(self, graph, schedules):
        """The state of a graph under schedules by layer (as JSON values), or None if they are not legal for all of
        it."""
        numbers = {(piece["layers"][0], piece["count"]): n for n, piece in enumerate(self.pieces)}
        at, end = 0, max(self.end(n) for n, piece in enumerate(self.pieces) if piece["graph"] == graph)
        state = []
        while at < end:
            layer = self.pieces[self.starting[graph, at][0]]["layers"][0]
            schedule = schedules.get(layer)
            single = self.pieces[self.starting[graph, at][0]]["links"][:1]
            links = schedule.get("chain", single) if isinstance(schedule, dict) else single
            piece = numbers.get((layer, len(links)))
            if piece is None or self.pieces[piece]["links"] != links:
                return None
            text = json.dumps(schedule, separators=(",", ":"))
            if self.obstacle(piece, text):
                return None
            state.append((piece, text))
            at = self.end(piece)
        return state

    def obstacle(self, piece, schedule):
        try:
            return self.tuning.obstacle(piece, schedule)
        except tessera.Error as error:
            return str(error)

    def recut(self, units, rng):
        """The operations of some units cut anew, into pieces with candidates of the compiler's searcher."""
        graph, at = self.pieces[units[0][0]]["graph"], self.pieces[units[0][0]]["first"]
        end, result = self.end(units[-1][0]), []
        while at < end:
            pieces = [p for p in self.starting[graph, at] if self.end(p) <= end and self.candidates(p)]
            if not pieces:
                return units
            piece = rng.choice(pieces)
            result.append((piece, rng.choice(self.candidates(piece)[:8])))
            at = self.end(piece)
        return result

    def change(self, units, rng):
        """Another state of the units: another cut, or another schedule of one or a few of them."""
        units = list(units)
        if rng.random() < 0.2:
            first = rng.randrange(len(units))
            last = min(len(units), first + rng.randint(1, 3))
            return units[:first] + self.recut(units[first:last], rng) + units[last:]
        while True:
            at = rng.randrange(len(units))
            piece, schedule = units[at]
            if rng.random() < 0.15 and self.candidates(piece):
                schedule = rng.choice(self.candidates(piece))
            else:
                schedule = self.tuning.mutate(piece, schedule, rng.getrandbits(63))
            units[at] = (piece, schedule)
            if rng.random() < 0.7:
                return units

    def sample(self, units, rng):
        """Some units cut anew, each schedule drawn from the whole of its space."""
        return [(piece, self.tuning.sample(piece, rng.getrandbits(63))) for piece, _ in self.recut(units, rng)]

    def cost(self, units, judge):
        """Of neighbours: (cycles, bytes); None where a lowering refuses what the rules allow."""
        return self._judged(self.tuning.together, units, judge)

    def cost_of_graph(self, units, judge):
        """As cost, of a whole graph as it is compiled: with values that stay on the chip between its layers."""
        return self._judged(self.tuning.whole, units, judge)

    @staticmethod
    def _judged(of, units, judge):
        try:
            return of(units, judge)
        except tessera.Error as error:
            if getattr(error, "code", "") not in REFUSALS:
                raise
            return None

    def redivided(self, graph, rng):
        """Divisions of which those of a few neighbouring layers of the graph are others, as JSON by layer."""
        layers = self.tuning.chip_layers()[graph]
        count = rng.choice(WINDOWS)
        first = rng.randrange(max(1, len(layers) - count + 1))
        window = layers[first : first + count]
        result = dict(self.divisions)
        to = json.loads(rng.choice(self.tuning.ways(window[0])))
        # Whether each core makes what it reads of them is asked anew, of what stands in front of them, too.
        for layer in layers[max(0, first - 1) : first + count]:
            result[layer] = without_own(result[layer])
        for layer in window:
            ways = [to] if count == 1 else [json.loads(way) for way in self.tuning.ways(layer)]
            way = next((way for way in ways if axis_of(way) == axis_of(to)), None)
            if way is not None:
                result[layer] = json.dumps(way)
        return result

    def kept_by(self, other, state):
        """What another division leaves as it is of the schedules of a state, by layer."""
        keys = {tuple(piece["layers"]): piece["key"] for piece in other.pieces}
        kept = {}
        for number, schedule in state:
            piece = self.pieces[number]
            if keys.get(tuple(piece["layers"])) == piece["key"]:
                kept.update(dict.fromkeys(piece["layers"], schedule))
        return kept


def axis_of(division):
    return division.get("divided", division.get("core"))


def without_own(division):
    return json.dumps({key: value for key, value in json.loads(division).items() if key != "own"})


def divide(bench, payload, shared):
    """Other divisions of a chip's layers among its cores, with schedules: [[cycles, bytes, units, divisions]]."""
    rng = random.Random(payload["seed"])
    state = [tuple(unit) for unit in payload["state"]]
    graph = bench.pieces[state[0][0]]["graph"]
    found = []
    for _ in range(DIVISIONS):
        if len(found) == payload["finals"]:
            break
        divisions = bench.redivided(graph, rng)
        try:
            other = bench_of(shared, payload, divisions)
            chosen = other.tuning.chosen(bench.kept_by(other, state))
        except tessera.Error as error:
            if getattr(error, "code", "") not in REFUSALS:
                raise
            continue
        units = [tuple(unit) for unit in chosen if other.pieces[unit[0]]["graph"] == graph]
        measured = other.cost_of_graph(units, payload["judge"])
        if measured is not None:
            found.append([*measured, units, other.divisions])
    return found


def anneal(bench, units, around, payload, rng):
    """The best states that an annealing by replay comes through, best first: [(cycles, units)]."""
    before, behind = around
    cost = bench.cost(before + units + behind, "replay")[0]
    heat, at, found = 0.01 * cost, cost, {}
    for step in range(payload["steps"]):
        left = 1 - step / payload["steps"]
        other = bench.change(units, rng)
        seen = bench.cost(before + other + behind, "replay")
        if seen is None:
            continue
        if seen[0] <= at or rng.random() < math.exp((at - seen[0]) / (heat * left * left + 1e-9)):
            units, at = other, seen[0]
            if at < cost * 1.01:
                found.setdefault(tuple(units), at)
    return sorted(((cycles, list(state)) for state, cycles in found.items()), key=lambda entry: entry[0])


def draw(bench, units, around, payload, rng):
    """The best of random states by replay, best first."""
    before, behind = around
    found = []
    for _ in range(payload["steps"]):
        other = bench.sample(units, rng)
        seen = bench.cost(before + other + behind, "replay")
        if seen is not None:
            found.append((seen[0], other))
    return sorted(found, key=lambda entry: entry[0])


def descend(bench, parents, rng):
    """A child of two states: a unit that both cut alike is crossed, mostly, and then one is changed."""
    units, other = list(rng.choice(parents)), dict(rng.choice(parents))
    shared = [at for at, (piece, _) in enumerate(units) if piece in other]
    if shared and rng.random() < 0.5:
        at = rng.choice(shared)
        piece, schedule = units[at]
        units[at] = (piece, bench.tuning.cross(piece, schedule, other[piece], rng.getrandbits(63)))
    return bench.change(units, rng) if rng.random() < 0.8 else units


def evolve(bench, units, around, payload, rng):
    """The best states of an evolution, best first. Each generation has many children; a cost model chooses those that
    are replayed, and some are taken by chance, from which it learns most."""
    before, behind = around
    guide = COST_MODELS[payload["cost_model"]](bench, payload)
    first = bench.cost(before + units + behind, "replay")[0]
    alone = sum(bench.tuning.alone(*unit, "replay")[0] for unit in units)
    found, tried, left = {tuple(units): first}, {tuple(units)}, payload["steps"]
    guide.learn([tuple(units)], [alone])
    while left > 0:
        parents = sorted(found, key=found.get)[:PARENTS]
        children = {tuple(descend(bench, parents, rng)) for _ in range(CHILDREN)} - tried
        children = sorted(children)  # a set has no order of its own
        if not children:
            break
        costs = guide.costs(children)
        ranked = [child for _, child in sorted(zip(costs, children))]
        chosen = ranked[: GENERATION - CHANCES]
        rest = ranked[len(chosen) :]
        chosen = [*chosen, *rng.sample(rest, min(CHANCES, len(rest)))][:left]
        left -= len(chosen)
        tried.update(chosen)
        measured = [(child, bench.cost(before + list(child) + behind, "replay")) for child in chosen]
        measured = [(child, cost[0]) for child, cost in measured if cost is not None]
        found.update(measured)
        guide.learn([child for child, _ in measured], [max(1, cycles - first + alone) for _, cycles in measured])
    payload["samples"] = list(guide.samples)
    return sorted(((cycles, list(state)) for state, cycles in found.items()), key=lambda entry: entry[0])


SEARCHES = {"annealing": anneal, "evolutionary": evolve, "optuna": sampled.suggest, "random": draw}


def spread(found, count):
    """The best, and of those that follow such that cost something else: equal cost is mostly an equal program."""
    chosen, costs = [], set()
    for cycles, state in found:
        if cycles not in costs:
            costs.add(cycles)
            chosen.append(state)
        if len(chosen) == count:
            break
    return chosen


def run(payload, shared):
    """{"trials": [[cycles, bytes, units]]}: what the judge measured of the whole graph with the changes in place, or
    {"divided": [[cycles, bytes, units, divisions]]}, where "divide" asks for it; and "samples" for the learned cost
    model, where it guided the search."""
    if payload.get("build") != BUILD:
        return OTHER_BUILD
    payload = dict(payload)
    bench = bench_of(shared, payload, payload.get("divisions"))
    if payload.get("divide"):
        return {"trials": [], "divided": divide(bench, payload, shared)}
    state = [tuple(unit) for unit in payload["state"]]
    first, last = payload["focus"]
    rng = random.Random(payload["seed"])
    around = (state[max(0, first - NEIGHBOURS) : first], state[last : last + NEIGHBOURS])
    found = SEARCHES[payload["search"]](bench, state[first:last], around, payload, rng)
    trials = []
    for units in spread(found, payload["finals"]):
        measured = bench.cost_of_graph(state[:first] + units + state[last:], payload["judge"])
        if measured is not None:
            trials.append([*measured, units])
    taught = {"samples": payload["samples"], "features": FEATURES} if payload.get("samples") else {}
    return {"trials": trials} | taught

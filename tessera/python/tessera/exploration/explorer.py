# SPDX-License-Identifier: Apache-2.0
"""The exploration: machines of a space times networks. Enters: a Space, networks, a results file, a pool of workers.
Leaves: points with their figures, the front, what was refused and why.

Two steps save time on many machines. A machine whose figures are beaten by a compiled one even where each network takes
the least that any program can (judge "bound") is spared all else, which changes no front. For the others the screen
chooses schedules by the closed form alone; its cycles are those of a program that would run, some percent more than the
compiler's own. A screened machine's figures times the least ratio that compiled machines of its kind have shown, less a
margin, are what it may reach at best. The machines that are on the front even so are compiled in full, and this goes on
until only compiled machines are left on it."""

import collections
import dataclasses
import json
import os
import pathlib
import sys
import time

import _tessera
import numpy as np

import tessera

from .. import shapes
from .. import workers as workers_module
from ..errors import argument, error
from . import area as area_module
from . import energy, evaluate, pareto, results

UNIT_SECONDS = 2.0  # of a unit of work
MARGIN = 0.005  # beyond the best ratio of compiled and screened that was seen
BATCH = 8  # screened machines that are compiled in full before the next look, at least, so that workers are busy
FIRST_RATIO = 0.6  # before any was: short streams gain most
ALIKE = 3  # compiled machines of a kind, before whose ratios those of all count
FIRST_SCREENED = 64  # machines, the strongest; each time twice as many follow, less those that are spared by then
COMPILED = ("cycles", "milliseconds", "bytes", "microjoules")  # figures that come from compiling
SIZES = ("inp_bytes", "wgt_bytes", "acc_bytes", "out_bytes", "param_bytes")  # of a kind's machines
QUEUES = ("load_queue", "gemm_queue", "alu_queue", "store_queue", "reads_in_flight", "writes_in_flight")
MOST_GRID = 200_000


@dataclasses.dataclass(frozen=True)
class Network:
    name: str
    data: bytes
    digest: str  # of the bytes and the shapes
    shapes: dict  # of dynamic inputs; a dynamic batch that is not there is 1


def shapes_of(texts, names):
    """{network: {input: shape}} of texts "INPUT=1,3,32,32" for all networks or "NETWORK:INPUT=..." for one. Errors:
    invalid_argument."""
    found = {name: {} for name in names}
    for text in texts:
        where = text.rpartition("=")[0]
        # Names of inputs may have colons, too.
        network = max((name for name in names if where.startswith(f"{name}:")), key=len, default=None)
        try:
            given = shapes.shapes_of([text if network is None else text[len(network) + 1 :]])
        except _tessera.Error:
            raise argument(
                f"--shape takes [NETWORK:]INPUT=D0,D1,..., got '{text}'; networks are {', '.join(names)}"
            ) from None
        for each in names if network is None else [network]:
            found[each].update(given)
    return found


def networks_of(paths, given_shapes=()):
    """paths: of ONNX files. given_shapes: as of shapes_of. Errors: io, invalid_argument for two networks of one name,
    and whatever is wrong with a network on any machine."""
    found, given = {}, shapes_of(given_shapes, [pathlib.Path(path).stem for path in paths])
    for path in paths:
        name = pathlib.Path(path).stem
        if name in found:
            raise argument(f"two networks are called '{name}'; rename a file")
        try:
            data = _tessera.model_bytes(os.fspath(path))
            tessera.PredictedModel(data, given[name])
        except _tessera.Error as refused:
            raise error(refused.code, f"network '{name}': {refused}") from None
        found[name] = Network(name, data, results.digest(data, json.dumps(given[name])), given[name])
    return list(found.values())


@dataclasses.dataclass
class Point:
    """A machine with what is known of it. figures: {objective: value} of all networks together, per_network: {network:
    counts}, judge: what made them."""

    number: int
    machine: object
    area: object
    values: dict  # of the space's axes
    megahertz: float
    figures: dict = dataclasses.field(default_factory=dict)
    per_network: dict = dataclasses.field(default_factory=dict)
    judge: str = ""

    def key(self):
        """What its cycles depend on."""
        return self.machine.toml(), tuple(sorted(self.machine.options().items()))

    def without(self, names):
        """The same less some parameters."""
        kept = tuple((key, value) for key, value in self.machine.parameters.items() if key not in names)
        return kept, self.key()[1]

    def kind(self):
        """Of machines whose replays are alike."""
        return self.without(SIZES)

    def bound_key(self):
        """Of machines of one bound. How long a row may be depends on sizes."""
        return self.without(QUEUES if self.machine.parameters.get("row_lanes", 0) else SIZES + QUEUES)

    def memory(self):
        """Bytes of its scratchpads."""
        return sum(self.machine.parameters.get(key, 0) for key in SIZES)


class Ratios:
    """What compiling in full makes of screened figures."""

    def __init__(self):
        self.of_kind = collections.defaultdict(list)
        self.all = dict.fromkeys(COMPILED, FIRST_RATIO)

    def add(self, point, screened):
        ratios = {key: point.figures[key] / screened[key] for key in COMPILED}
        self.of_kind[point.kind()].append(ratios)
        self.all = {key: min(self.all[key], ratios[key]) for key in COMPILED}

    def least(self, point):
        """{figure: factor} that the point may reach."""
        alike = self.of_kind.get(point.kind(), [])
        if len(alike) < ALIKE:
            return {key: ratio - MARGIN for key, ratio in self.all.items()}
        return {key: min(ratios[key] for ratios in alike) - MARGIN for key in COMPILED}


class Progress:
    """One line on standard error, written again."""

    def __init__(self, quiet):
        self.shown = not quiet and sys.stderr.isatty()
        self.last = 0.0

    def __call__(self, text, end=False):
        if self.shown and (end or time.monotonic() - self.last > 0.2):
            self.last = time.monotonic()
            print(f"\r\033[Ktessera: {text}" + ("\r\033[K" if end else ""), end="", file=sys.stderr, flush=True)


class Explorer:
    """Errors of its methods: those of the results file; workers.Failure for a bug in a worker."""

    def __init__(self, space, networks, kept, workers="1", quiet=True):
        self.space, self.networks, self.kept, self.workers = space, networks, kept, workers
        self.progress = Progress(quiet)
        self.compiler = evaluate.COMPILER
        self.part = area_module.part_of(space.constraints["fits"]) if "fits" in space.constraints else None
        self.refused = collections.Counter()  # why machines were left out, by reason
        self.failures = {}  # {(machine's number, network): error}
        self.compiled = collections.Counter()  # by judge, in this run
        self.spared = 0  # machines that are beaten even at their bounds
        self.places = workers_module.count_of(workers) or 4  # workers, about: the last units should be small
        self.pool = None  # from the first work on
        self.known = {}  # {number: Point}, or None where it is refused
        self.cpu_seconds = 0.0  # of the workers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the workers."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    # --- machines

    def point(self, number):
        """The Point of a combination, or None; why is counted once."""
        if number not in self.known:
            self.known[number] = self._make(number)
        return self.known[number]

    def _make(self, number):
        machine, why = self.space.machine(number)
        if machine is None:
            self.refused[f"no machine: {why}"] += 1
            return None
        area = area_module.model().predict(machine.parameters)
        megahertz = machine.megahertz or area.megahertz
        if megahertz > area.megahertz:
            self.refused[f"clock of {megahertz:g} MHz is above the estimate of {area.megahertz:.0f}"] += 1
            return None
        point = Point(number, machine, area, self.space.values(number), megahertz)
        point.figures = {**area.counts(), "lut": area.lut + area.lut_memory}
        why = self.refusal(point)
        if why:
            self.refused[why] += 1
            return None
        return point

    def refusal(self, point, figures=None):
        """The constraint that the point's figures break, or None. figures: others in their place."""
        if self.part is not None and not point.judge:
            why = area_module.obstacle(point.area, self.part, self.space.constraints.get("spare", 0))
            if why:
                return f"does not fit {self.part['name']}: {why.split(': ')[1].split(' ')[0]}"
        figures = figures or point.figures
        for key, most in self.space.constraints.items():
            if key in figures and figures[key] > most:
                return f"more than {most:g} {key}"
        return None

    # --- figures

    def result_key(self, point, network, judge):
        toml, options = point.key()
        return results.digest("explore", self.compiler, network.digest, judge, toml, json.dumps(options))

    def figures_of(self, point, counts):
        """{objective: value} from {network: counts}."""
        cycles = sum(found["cycles"] for found in counts.values())
        power = [energy.microjoules(f["issued_macs"], f["bytes"], point.machine.parameters) for f in counts.values()]
        return {
            **point.area.counts(),
            "lut": point.area.lut + point.area.lut_memory,
            "cycles": cycles,
            "milliseconds": cycles / point.megahertz / 1000,
            "bytes": sum(found["bytes"] for found in counts.values()),
            "microjoules": sum(sum(parts.values()) for parts in power),
        }

    def counts(self, points, judge):
        """[{network: counts or an error}] of points."""
        keys = [{network.name: self.result_key(point, network, judge) for network in self.networks} for point in points]
        wanted = {}  # {result's key: (network, point)}
        # Machines of a kind behind each other: a worker then knows replays of the one from the other.
        for at in sorted(range(len(points)), key=lambda at: points[at].kind()):
            for network in self.networks:
                wanted.setdefault(keys[at][network.name], (network, points[at]))
        found = self.kept.find(wanted)
        self._work({key: pair for key, pair in wanted.items() if key not in found}, judge, found)
        return [{name: found[key] for name, key in of.items()} for of in keys]

    def evaluate(self, points, judge):
        """Gives the points their figures. Returns those that have some: the others do not compile."""
        done = []
        for point, counts in zip(points, self.counts(points, judge)):
            wrong = {name: counted for name, counted in counts.items() if "error" in counted}
            for name, counted in wrong.items():
                self.failures[point.number, name] = counted["error"]
            if wrong:
                continue
            point.judge, point.per_network = judge, counts
            point.figures = self.figures_of(point, counts)
            done.append(point)
        return done

    def _work(self, missing, judge, found):
        """Runs what is missing; each result is in the file before the next is looked at."""
        if not missing:
            return
        total = len(missing)
        waiting = collections.defaultdict(collections.deque)
        for key, (network, _) in missing.items():
            waiting[network.digest].append(key)
        spent = {network.digest: [0.0, 0] for network in self.networks}  # seconds, machines
        units = {}

        def next_unit():
            digest = max(waiting, key=lambda name: len(waiting[name]) * self._each(spent[name]))
            most = min(UNIT_SECONDS / self._each(spent[digest]), len(waiting[digest]) / (2 * self.places))
            keys = []
            while waiting[digest] and len(keys) < max(1, most):
                keys.append(waiting[digest].popleft())
            return unit_of(keys) if keys else None

        def unit_of(keys):
            unit = results.digest("unit", *keys)
            units[unit] = keys
            machines = [missing[key][1] for key in keys]
            payload = [(point.machine.toml(), point.machine.options()) for point in machines]
            network = missing[keys[0]][0]
            given = {"network": network.digest, "shapes": network.shapes, "judge": judge, "machines": payload}
            return unit, {**given, "compiler": self.compiler}

        def on_result(unit, result):
            keys = units.pop(unit)
            network = missing[keys[0]][0]
            if isinstance(result, workers_module.Lost):
                if len(keys) > 1:  # which machine was it?
                    alone.extend(keys)
                    return
                result = [
                    {"error": f"a worker died on it {result.tries} times", "code": "internal", "cpu_seconds": 0.0}
                ]
            if result[0].get("code") == evaluate.OTHER_COMPILER:
                raise error(
                    "unsupported",
                    "a worker has another build of Tessera than this command; give all the same one (or it was built "
                    "again meanwhile: give the command again)",
                )
            rows = []
            for key, counts in zip(keys, result):
                found[key] = counts
                spent[network.digest][0] += counts["cpu_seconds"]
                spent[network.digest][1] += 1
                self.cpu_seconds += counts["cpu_seconds"]
                if counts.get("code") != "internal":
                    rows.append((key, network.name, missing[key][1].machine.toml(), judge, counts))
            self.kept.add(rows)
            self.compiled[judge] += len(rows)
            self.progress(f"{judge}: {sum(key in found for key in missing)} of {total}")

        alone = collections.deque()
        if self.pool is None:
            shared = {network.digest: network.data for network in self.networks}
            self.pool = workers_module.open_pool(self.workers, shared)
        try:
            self.pool.run(
                "tessera.exploration.evaluate:evaluate",
                lambda: unit_of([alone.popleft()]) if alone else next_unit(),
                on_result,
            )
        except BaseException:
            self.close()  # its workers have units in hand
            raise
        self.progress("", end=True)

    @staticmethod
    def _each(spent):
        """Seconds that a machine takes of a network: a guess before any is done."""
        seconds, machines = spent
        return max(seconds / machines, 1e-3) if machines else UNIT_SECONDS

    # --- searches

    def vectors(self, points, figures=None):
        """[points, objectives]. figures: of each, in place of the points' own."""
        rows = figures if figures is not None else [point.figures for point in points]
        return np.array([[row[key] for key in self.space.objectives] for row in rows], float).reshape(
            len(points), len(self.space.objectives)
        )

    def allowed(self, points, figures=None):
        """Those that break no constraint; the others are counted. figures: {number: figures} in place of their own."""
        fine = []
        for point in points:
            why = self.refusal(point, figures and figures[point.number])
            if why is None:
                fine.append(point)
            else:
                self.refused[why] += 1
        return fine

    def grid(self, screen):
        """All machines of the space. Returns the points with figures that keep to the constraints."""
        if self.space.size > MOST_GRID:
            raise argument(
                f"the grid has {self.space.size:,} machines, more than {MOST_GRID:,}; use --method nsga2 or random, "
                "or fewer values"
            )
        points = []
        for number in range(self.space.size):
            self.progress(f"machine {number} of {self.space.size}")
            point = self.point(number)
            if point is not None:
                points.append(point)
        return self.some(points, screen)

    def some(self, points, screen):
        return self.refine(points) if screen else self.allowed(self.evaluate(points, "predict"))

    def least(self, points):
        """{number: figures} that no program is below. Machines of one array share what is found."""
        first = {}
        for point in points:
            first.setdefault(point.bound_key(), point)
        nothing = {"cycles": 0, "bytes": 0, "issued_macs": 0}  # where a network does not compile, which is found out
        found = {
            key: {name: nothing if "error" in counted else counted for name, counted in counts.items()}
            for key, counts in zip(first, self.counts(list(first.values()), "bound"))
        }
        return {point.number: self.figures_of(point, found[point.bound_key()]) for point in points}

    def refine(self, points):
        """Compiles in full whatever may be on the front. Returns all points but those that were spared: those of the
        screen as they are."""
        least = self.least(points)
        remaining = self._strongest_first(self.allowed(points, least), least)
        waiting, screened, compiled, ratios, most = {}, {}, [], Ratios(), FIRST_SCREENED
        while remaining:
            beaten = self._beaten(remaining, [least[point.number] for point in remaining], compiled)
            for point, spared in zip(remaining, beaten):
                if spared:
                    self.spared += 1
                    point.judge, point.figures = "bound", least[point.number]
            remaining = [point for point, spared in zip(remaining, beaten) if not spared]
            for point in self.evaluate(remaining[:most], "screen"):
                waiting[point.number] = point
                screened[point.number] = dict(point.figures)
            remaining, most = remaining[most:], 2 * most
            while chosen := self._hopeful(waiting.values(), compiled, ratios, least):
                for point in chosen:
                    del waiting[point.number]
                for point in self.evaluate(chosen, "predict"):
                    compiled.append(point)
                    ratios.add(point, screened[point.number])
                if remaining:
                    break  # what may beat the rest is known
        return sorted(self.allowed(compiled) + self.allowed(waiting.values()), key=lambda point: point.number)

    def _strongest_first(self, points, least):
        """By layers of the front of bounds; of machines with equal bounds one at a time, most memory first."""
        alike = collections.defaultdict(list)
        for point, row in zip(points, self.vectors(points, [least[point.number] for point in points])):
            alike[tuple(row)].append(point)
        rows = np.array(list(alike))
        groups = [sorted(group, key=lambda point: -point.memory()) for group in alike.values()]
        turns = []  # (how many of the group came before, layer, point)
        left, layer = list(range(len(groups))), 0
        while left:
            best = {left[at] for at in pareto.front(rows[left])}
            for at in sorted(best):
                turns += [(before, layer, point) for before, point in enumerate(groups[at])]
            left, layer = [at for at in left if at not in best], layer + 1
        return [point for _, _, point in sorted(turns, key=lambda turn: turn[:2])]

    def _beaten(self, points, figures, compiled):
        """Whether a compiled machine is as good in everything, and better in something, than each point's figures."""
        legal = [point for point in compiled if self.refusal(point) is None]
        best = self.vectors(legal)
        return pareto.dominated(self.vectors(points, figures), best[pareto.front(best)])

    def _hopeful(self, waiting, compiled, ratios, least):
        """Screened points, some at a time, that may be on the front."""
        points, figures = [], []
        for point in waiting:
            factors = ratios.least(point)
            may = {key: value * factors.get(key, 1) for key, value in point.figures.items()}
            may = {key: max(value, least[point.number][key]) for key, value in may.items()}
            if self.refusal(point, may) is None:
                points.append(point)
                figures.append(may)
        beaten = self._beaten(points, figures, compiled)
        vectors = self.vectors(points, figures)
        hopeful, chosen = [at for at in range(len(points)) if not beaten[at]], []
        while hopeful and len(chosen) < BATCH:
            best = {hopeful[at] for at in pareto.front(vectors[hopeful])}
            chosen += sorted(best)
            hopeful = [at for at in hopeful if at not in best]
        return [points[at] for at in chosen]

    def random(self, count, seed, screen):
        """`count` different machines of the space, uniformly."""
        generator = np.random.default_rng(seed)
        points, seen = [], set()
        for _ in range(100 * count):
            number = self.space.number([generator.integers(len(values)) for values in self.space.axes.values()])
            if number not in seen:
                seen.add(number)
                point = self.point(number)
                if point is not None:
                    points.append(point)
            if len(points) == count or len(seen) == self.space.size:
                break
        return self.some(points, screen)

    def front(self, points):
        """The compiled points that no other one dominates, by the first objective."""
        compiled = [point for point in points if point.judge == "predict"]
        return [compiled[at] for at in pareto.front(self.vectors(compiled))]

    def distinct(self, front, tolerance):
        """Of the front those machines that differ from better ones by more than `tolerance` in an objective."""
        vectors = self.vectors(front)
        return [front[at] for at in pareto.thinned(vectors, range(len(front)), tolerance)]

    def confirm(self, points, device):
        """[{network: counts on the device}] of points."""
        return self.counts(points, device)

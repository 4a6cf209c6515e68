# SPDX-License-Identifier: Apache-2.0
"""The tuner of a model. Rounds: in each one, units of work search around those layers that promise most, all from the
same state; what the judge liked is put together and measured as a whole. A round is over when all its units are, and a
unit depends on its payload alone. So a seed finds the same schedules with any number of workers, and a tuning that was
killed goes on from the results that the database has."""

import dataclasses
import hashlib
import json
import os
import random
import time

import _tessera

import tessera

from .. import errors
from ..workers import Failure, Lost, obstacle, open_pool
from . import sampled
from .database import Database, is_keys, is_object
from .learned import COST_MODELS, Trees, lightgbm
from .learned import VERSION as FEATURES
from .search import BUILD, OTHER_BUILD, SEARCHES, bench_of, text_of

JUDGES = ("replay", "sysc", "rtl")  # that measure a whole model
UNITS = 4  # of a round
FINALS = 4  # schedules that the judge measures in a unit
FRUITLESS = 8  # rounds without any schedule to measure, after which a tuning ends
STEPS = 160  # replays of a unit
WIDTH = 2  # neighbours that may change together
DEVIATION = 0.005  # by how much a state may be worse than the record, and the search still goes on from it
TEACHERS = 25  # units of the database that the learned cost model begins with at most
TAUGHT = 4000  # samples, the last ones, that it learns from


@dataclasses.dataclass
class Outcome:
    """Of a tuning. cycles and bytes are the judge's, of all graphs of the model on the NPU; schedules: by layer, as
    tessera.Session takes them."""

    cycles: int
    bytes: int
    default_cycles: int
    trials: int
    units: int
    known_units: int  # that the database had
    seconds: float
    judge: str
    schedules: dict

    def as_dict(self):
        return dataclasses.asdict(self)

    def in_words(self):
        less = 100 * (1 - self.cycles / self.default_cycles) if self.default_cycles else 0
        return (
            f"{self.cycles} cycles by {self.judge}, {less:.1f} % fewer than the default's {self.default_cycles}; "
            f"{self.trials} trials in {self.seconds:.0f} s"
            + (f", {self.known_units} of {self.units} units known before" if self.known_units else "")
        )


class Promise:
    """Divides units among layers by expected gain: for each operation the share of the run that its layers take, and
    what looking there has brought of late."""

    def __init__(self):
        self.known = {}

    def of(self, operation, cycles):
        tries, gain = self.known.get(operation, (0, 0.0))
        return gain + 0.02 * cycles / (1 + tries)

    def learn(self, operations, gain):
        for operation in operations:
            tries, before = self.known.get(operation, (0, 0.0))
            self.known[operation] = (tries + 1, 0.5 * before + 0.5 * gain / len(operations))


@dataclasses.dataclass
class Record:
    """The best that a tuner has measured of a graph."""

    cycles: int
    bytes: int
    state: list
    bench: object


class Tuner:
    """One graph of a model, by record-to-record travel: the search goes on from a state that is a little worse than the
    record where it finds none that is better. On chips other divisions of layers lead away from where it stands, and
    the record alone is gone on from. measure: counts a measurement that the tuner makes itself."""

    def __init__(self, bench, graph, state, settings, measure):
        self.bench, self.graph, self.state, self.settings, self.measure = bench, graph, state, settings, measure
        self.promise = Promise()
        self.cycles, self.bytes = bench.tuning.whole(state, settings["judge"])
        self.best = self.now()
        self.rng = random.Random(f"{settings['seed']} {graph}")

    def begin_with(self, bench, state):
        """In place of the compiler's choice, if the judge likes it better."""
        measured = bench.cost_of_graph(state, self.settings["judge"])
        if measured is not None and measured[0] < self.cycles:
            self.bench, self.state, (self.cycles, self.bytes) = bench, state, measured
            self.keep()

    def now(self):
        return Record(self.cycles, self.bytes, self.state, self.bench)

    def keep(self):
        """The state as a record, if it is one."""
        if self.cycles < self.best.cycles:
            self.best = self.now()

    def operations(self, unit):
        piece = self.bench.pieces[unit[0]]
        return range(piece["first"], piece["first"] + piece["count"])

    def share(self, unit):
        """Cycles of a unit alone, as far as the closed form knows."""
        return self.bench.tuning.alone(*unit, "closed-form")[0]

    def round(self, left):
        """Payloads of units that look at different layers. left: trials that all of them may take together."""
        weights = [
            sum(self.promise.of(op, self.share(unit) / len(self.operations(unit))) for op in self.operations(unit))
            for unit in self.state
        ]
        payloads = []
        for _ in range(min(UNITS, len(self.state))):
            finals = min(FINALS, left)
            if not any(weights) or finals == 0:
                break
            left -= finals
            at = self.rng.choices(range(len(weights)), weights)[0]
            first, last = at, min(len(self.state), at + self.rng.randint(1, WIDTH))
            for taken in range(first, last):
                weights[taken] = 0
            own = {"state": self.state, "focus": [first, last], "seed": self.rng.getrandbits(62), "finals": finals}
            payloads.append({**self.settings, **self.divisions(), **own})
        if payloads and self.bench.divisions:
            # One unit divides layers otherwise among the cores.
            payloads[-1]["divide"] = True
        return payloads

    def divisions(self):
        return {"divisions": self.bench.divisions} if self.bench.divisions else {}

    def redivide(self, results, bench_of):
        """Takes the best of other divisions, if it is better than what is known."""
        best = min(
            (row for result in results for row in result.get("divided", [])), default=None, key=lambda row: row[:2]
        )
        if best is not None and best[0] < self.cycles:
            self.cycles, self.bytes, state, divisions = best
            self.bench, self.state = bench_of(divisions), [tuple(unit) for unit in state]
            self.promise = Promise()
            self.keep()

    def take(self, payloads, results, left):
        """Puts together what the units of a round found, in so many measurements at most."""
        changes = []
        worst = self.cycles if self.bench.divisions else self.best.cycles * (1 + DEVIATION)
        for payload, result in zip(payloads, results):
            if payload.get("divide"):
                continue
            first, last = payload["focus"]
            best = min(result["trials"], default=None, key=lambda trial: trial[:2])
            gain = max(0, self.cycles - best[0]) if best else 0
            self.promise.learn([op for unit in payload["state"][first:last] for op in self.operations(unit)], gain)
            units = best and [tuple(unit) for unit in best[2]]
            if best and best[0] < worst and units != self.state[first:last]:
                changes.append((best[0], best[1], first, last, units))
        changes.sort(key=lambda change: change[:4])
        if not changes:
            return
        changes = [changes[0], *(change for change in changes[1:] if change[0] < self.cycles)]
        start = self.state
        self.cycles, self.bytes = changes[0][:2]
        kept = [changes[0]]
        self.state = self._with(start, kept)
        for change in changes[1:]:
            if left == 0:
                break
            if any(change[2] < other[3] and other[2] < change[3] for other in kept):
                continue
            state = self._with(start, [*kept, change])
            cycles, moved = self.measure(self.bench, state)
            left -= 1
            if cycles < self.cycles:
                kept.append(change)
                self.state, self.cycles, self.bytes = state, cycles, moved
        self.keep()

    @staticmethod
    def _with(state, changes):
        for _, _, first, last, units in sorted(changes, key=lambda change: -change[2]):
            state = state[:first] + units + state[last:]
        return state


def tune(
    model,
    config="",
    *,
    trials=200,
    judge="sysc",
    search="annealing",
    cost_model="closed-form",
    workers="1",
    seed=1,
    database,
    shapes=None,
    progress=None,
    dram_latency=None,
    dram_bandwidth=None,
    dram=None,
):
    """Looks for schedules of a model. model: path of an ONNX file, or its bytes. config: a machine by name or a file;
    "": what the model was quantised for, or npu256. trials: schedules of the whole model
    that the judge ("replay", "sysc", "rtl") measures. search: "annealing", "evolutionary", "optuna" or "random".
    cost_model: who chooses what an evolution replays, "closed-form" or "learned". workers: processes, or "dask",
    "dask:N", "dask:tcp://HOST:PORT". database: a path. progress: called with lines of text. Returns an Outcome; errors
    are tessera.Error."""
    say = progress or (lambda line: None)
    start = time.monotonic()
    if search not in SEARCHES:
        raise errors.argument(f"there is no search '{search}'; known: {', '.join(sorted(SEARCHES))}")
    if cost_model not in COST_MODELS:
        raise errors.argument(f"there is no cost model '{cost_model}' of a search; known: {', '.join(COST_MODELS)}")
    if cost_model == "learned":
        if search != "evolutionary":
            raise errors.argument(f"the search '{search}' asks no cost model; take evolutionary")
        lightgbm()
    if search == "optuna":
        sampled.optuna()
    if judge == "closed-form":
        raise errors.argument("the closed form judges single layers alone; take replay, sysc or rtl")
    if judge not in JUDGES:
        raise errors.argument(f"there is no judge '{judge}' of a tuning; known: {', '.join(JUDGES)}")
    if wrong := obstacle(workers):
        raise errors.argument(wrong)
    data = model if isinstance(model, bytes) else _tessera.model_bytes(os.fspath(model))
    options = {"dram_latency": dram_latency, "dram_bandwidth": dram_bandwidth, "dram": dram}
    options = {name: str(value) for name, value in options.items() if value is not None}
    settings = {
        "config": text_of(config or _tessera.machine_of(data)),
        "shapes": dict(shapes or {}),
        "options": options,
        "judge": judge,
        "search": search,
        "steps": STEPS,
        "seed": seed,
        "build": BUILD,
    }
    if search == "evolutionary":
        settings["cost_model"] = cost_model
    with Database(database) as known:
        return _Run(data, settings, trials, workers, known, say, start).run()


class _Run:
    def __init__(self, data, settings, trials, workers, known, say, start):
        self.shared, self.settings, self.limit, self.workers = {"model": data}, settings, trials, workers
        self.database, self.say, self.start = known, say, start
        self.trials = self.units = self.known_units = self.default_replay = 0
        self.samples, self.learns = [], settings.get("cost_model") == "learned"
        self._taught = (None, {})  # by how many samples; what a unit's payload has of it
        self.bench = self.bench_of()
        if not self.bench.pieces:
            raise errors.argument(
                "the NPU computes nothing of this model: there is nothing to tune; `tessera compile` says why, and "
                "`tessera quantize` quantises a float model"
            )
        tuning = self.bench.tuning
        self.compiler = _tessera.compiler_version()
        self.key = (tuning.model_key, tuning.machine_key, self.compiler)

    def bench_of(self, divisions=None):
        return bench_of(self.shared, self.settings, divisions)

    def measure(self, bench, state):
        self.trials += 1
        return bench.tuning.whole(state, self.settings["judge"])

    def run(self):
        graphs = {}
        for unit in self.bench.tuning.chosen():
            graphs.setdefault(self.bench.pieces[unit[0]]["graph"], []).append(tuple(unit))
        tuners = [Tuner(self.bench, graph, state, self.settings, self.measure) for graph, state in graphs.items()]
        self.trials = 1  # the compiler's choice, of all graphs
        default = self.total(tuners)[0]
        self.default_replay = self.replayed(tuners)
        self.say(f"default: {default} cycles by {self.settings['judge']}, {len(self.bench.pieces)} layers and chains")
        self.begin_with_known(tuners)
        if self.learns:
            self.samples = self.known_samples()
        self.keep(tuners, default)
        try:
            pool = open_pool(self.workers, self.shared)
        except (ValueError, ImportError) as error:
            raise errors.argument(str(error)) from None
        except OSError as error:
            raise errors.error("io", f"workers: {error}") from None
        with pool:
            number = fruitless = 0
            while self.trials < self.limit and fruitless < FRUITLESS:
                number += 1
                # The graph with most cycles has most to gain; each has its turn.
                tuner = tuners[number % len(tuners)] if number % 3 == 0 else max(tuners, key=lambda t: t.cycles)
                payloads = [{**payload, **self.taught()} for payload in tuner.round(self.limit - self.trials)]
                results = self.results(pool, payloads)
                self.samples += [sample for result in results for sample in result.get("samples", [])]
                measured = sum(len(result["trials"]) + len(result.get("divided", [])) for result in results)
                fruitless = 0 if measured else fruitless + 1
                self.trials += measured
                before = self.total(tuners)[0]
                tuner.take(payloads, results, self.limit - self.trials)
                tuner.redivide(results, self.bench_of)
                cycles = self.total(tuners)[0]
                if cycles < before:
                    self.keep(tuners, default)
                self.say(
                    f"round {number}: {self.trials} of {self.limit} trials, best {cycles} cycles "
                    f"({100 * (cycles / default - 1):+.1f} %), {time.monotonic() - self.start:.0f} s"
                )
            if self.trials < self.limit:
                self.say(f"{FRUITLESS} rounds found no schedule to measure; the rest of the trials is left out")
        self.keep_layers(tuners)
        cycles, moved = self.total(tuners)
        return Outcome(
            cycles,
            moved,
            default,
            self.trials,
            self.units,
            self.known_units,
            round(time.monotonic() - self.start, 1),
            self.settings["judge"],
            self.schedules(tuners),
        )

    def begin_with_known(self, tuners):
        """What another build of the compiler found is where the search begins: its schedules are measured anew. They
        are kept as a unit of this build, so that a tuning that was killed begins again where it began."""
        key = self.digest({"begin": True})
        kept = self.database.unit(key, is_object)
        if kept is None:
            record = self.database.last_network(*self.key[:2])
            if record is None or record["provenance"].get("build") == BUILD:
                return
            kept = record["schedules"]
            self.database.keep_unit(key, kept)
        count = 0
        for tuner in tuners:
            known = json.loads(self.bench.tuning.renamed(json.dumps(kept)))
            bench = self.divided_by(known)
            state = bench and bench.placed(tuner.graph, known)
            if state is None:
                self.say("another build of the compiler found schedules that are not legal now; they are left out")
            elif bench is not tuner.bench or state != tuner.state:
                tuner.begin_with(bench, state)
                count += 1
        if count:
            cycles, judge = self.total(tuners)[0], self.settings["judge"]
            self.say(f"schedules found by another build of the compiler are judged again: {cycles} cycles by {judge}")

    def divided_by(self, schedules):
        """The bench under the divisions among them, or None if these are not legal."""
        divisions = {layer: json.dumps(schedules[layer]) for layer in self.bench.divisions if layer in schedules}
        try:
            return self.bench_of(divisions) if divisions else self.bench
        except tessera.Error:
            return None

    def known_samples(self):
        """Those that tunings of any model have left in the database before this one began. Which ones they are is kept,
        so that a tuning that was killed learns from the same ones."""
        key = self.digest({**self.settings, "taught_by": True})
        kept = self.database.unit(key, is_keys)
        if kept is None:
            kept = self.database.units_with_samples(BUILD, FEATURES, TEACHERS)
            self.database.keep_unit(key, kept)
        units = [self.database.unit(unit) for unit in kept]
        samples = [sample for unit in units if unit is not None for sample in unit.get("samples", [])]
        if samples:
            self.say(f"the cost model begins with {len(samples)} samples of the database")
        return samples

    def taught(self):
        """What rounds before have taught the learned cost model, for the payload of a unit."""
        if not self.learns:
            return {}
        if len(self.samples) != self._taught[0]:
            model = Trees(self.samples[-TAUGHT:], self.settings["seed"]).text
            self._taught = (len(self.samples), {"model": model, "lightgbm": lightgbm().__version__})
        return self._taught[1]

    @staticmethod
    def total(tuners):
        return sum(tuner.best.cycles for tuner in tuners), sum(tuner.best.bytes for tuner in tuners)

    def digest(self, payload):
        text = json.dumps([*self.key, BUILD, {**payload, "config": ""}], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def known_unit(self, key, payload):
        """What the database has of a unit. Of one that may measure fewer schedules than usual, where the trials end,
        these are the first ones of the unit that measured all."""
        kept = self.database.unit(key)
        if kept is None and payload["finals"] < FINALS:
            kept = self.database.unit(self.digest({**payload, "finals": FINALS}))
        return kept and kept | {key: kept[key][: payload["finals"]] for key in ("trials", "divided") if key in kept}

    def results(self, pool, payloads):
        """In the order of the payloads; those that the database has are not run again."""
        keys = [self.digest(payload) for payload in payloads]
        self.units += len(keys)
        found = {key: self.known_unit(key, payload) for key, payload in zip(keys, payloads)}
        missing = [(key, payload) for key, payload in zip(keys, payloads) if found[key] is None]
        self.known_units += len(keys) - len(missing)
        waiting = iter(missing)

        def finished(key, result):
            if isinstance(result, Lost):
                raise errors.error(
                    "internal", f"a unit of the tuning ended {result.tries} workers; what was found before is kept"
                )
            if result == OTHER_BUILD:
                raise errors.error(
                    "unsupported",
                    "a worker has another build of Tessera than this command; give all the same one (or it was built "
                    "again meanwhile: give the command again)",
                )
            if "samples" in result:
                result = {**result, "build": BUILD}
            self.database.keep_unit(key, result)
            found[key] = result

        try:
            if missing:
                pool.run("tessera.tuning.search:run", lambda: next(waiting, None), finished)
        except OSError as error:
            raise errors.error("io", f"workers: {error}") from None
        except Failure as broken:
            raise errors.error("internal", f"a worker failed: {str(broken).strip().splitlines()[-1]}") from None
        return [found[key] for key in keys]

    def schedules(self, tuners):
        """By layer, as Session.schedules() shows them."""
        result = {}
        for tuner in tuners:
            found = {}
            for piece, schedule in tuner.best.state:
                # A unit may have been found for a model whose layers have other names.
                own = json.loads(tuner.best.bench.tuning.named(piece, schedule))
                found.update(dict.fromkeys(tuner.best.bench.pieces[piece]["layers"], own))
            layers = tuner.best.bench.tuning.chip_layers()
            for layer in layers[tuner.graph] if layers else ():
                parts = [found.pop(f"{layer}@{core}", None) for core in range(tuner.best.bench.tuning.cores)]
                result[layer] = json.loads(tuner.best.bench.divisions[layer]) | {"cores": parts}
            result |= found
        return result

    @staticmethod
    def replayed(tuners):
        return sum(tuner.best.bench.tuning.whole(tuner.best.state, "replay")[0] for tuner in tuners)

    def provenance(self, tuners):
        """`replay` and `default_replay`: by these the compiler sees whether another build has measured the record."""
        return {
            "program": f"tessera {tessera.__version__}",
            "build": BUILD,
            "judge": self.settings["judge"],
            "search": self.settings["search"],
            **({"cost_model": self.settings["cost_model"]} if "cost_model" in self.settings else {}),
            "seed": self.settings["seed"],
            "trials": self.trials,
            "replay": self.replayed(tuners),
            "default_replay": self.default_replay,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    def keep(self, tuners, default):
        cycles, moved = self.total(tuners)
        self.database.keep_network(
            self.key,
            {
                "judge": self.settings["judge"],
                "cycles": cycles,
                "bytes": moved,
                "default_cycles": default,
                "schedules": self.schedules(tuners),
                "provenance": self.provenance(tuners),
            },
        )

    def keep_layers(self, tuners):
        rows = []
        for tuner in tuners:
            for piece, schedule in tuner.best.state:
                cost = tuner.best.bench.tuning.alone(piece, schedule, "replay")
                rows.append((tuner.best.bench.pieces[piece]["key"], schedule, *cost))
        self.database.keep_layers(self.key[1], self.compiler, "replay", self.provenance(tuners), rows)

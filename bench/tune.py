# SPDX-License-Identifier: Apache-2.0
"""Tuned beside default schedules: `./dev bench tune [NETWORKS]`.

Whole networks by the judge, and each layer or chain of the default and of the tuned cut by closed form, replay and
timing model, alone. A layer alone knows no neighbours, so that a tuned one may take longer there and less where it
stands. `proofs` say of each single layer how far the best schedule that was met is from the least cycles that any
schedule of the space takes. `candidates_a_second` are calls of one process, JSON of the schedule included."""

import json
import pathlib
import sys
import tempfile
import time

import _tessera
import networks
import transformers

import tessera
from tessera import tuning

NAMES = ["resnet18", "resnet50", "mobilenetv2", "vww", "ds_cnn", "deit_tiny"]
PROVED = 60.0  # seconds for the proofs of one network
GOAL = 0.01  # of the cycles: a gap that ends a proof at first
NEAR = 0.9  # share of the time at which proofs to the cycle begin
JUDGES = ("closed-form", "replay", "sysc")


def rates(bench, units):
    """Calls a second of one core, whoever else uses it: of each judge, on the layers of a network in turn."""

    def rate(call):
        start, count = time.process_time(), 0
        while time.process_time() - start < 1:
            call(*units[count % len(units)], count)
            count += 1
        return round(count / (time.process_time() - start))

    result = {
        judge: rate(lambda piece, schedule, _, judge=judge: bench.alone(piece, schedule, judge)) for judge in JUDGES
    }
    return result | {"mutation": rate(bench.mutate)}


def layer_rows(bench, units, which):
    pieces = bench.pieces()
    return [
        {
            "layers": pieces[piece]["layers"],
            "schedules": which,
            "points": str(pieces[piece]["size"]),
            **{judge: bench.alone(piece, schedule, judge)[0] for judge in JUDGES},
        }
        for piece, schedule in units
    ]


def alike(bench, piece, found):
    """The schedules that were found for layers of the same shape and are legal for this one."""
    return [schedule for schedule in found if not bench.obstacle(piece, schedule)]


def proofs(data, config, seconds):
    """[{layers, count, kind, default, best, bound, gap, proven, tiles, closed, open, trials, programs, seconds,
    tile_bound, schedule, and the best by each judge}] of single layers, each once.

    `count`: how often the network has it; `default`: what the compiler chooses without chains; `tile_bound`: the least
    bound of a tile. Layers run alone, once, on the judge. Layers that differ in their constants alone have the same
    space of schedules: each search begins with what those before have found, and in the end each is measured under the
    best of all. Time that a layer leaves is for the others: first for those beyond the goal, those with few tiles and a
    small gap first, then for proofs to the cycle."""
    start = time.monotonic()
    bench = _tessera.Tuning(data, config, {}, {"chains": "false"})
    pieces, groups, found = bench.pieces(), {}, {}
    for number, piece in enumerate(pieces):
        if piece["count"] == 1:
            groups.setdefault(piece["key"], []).append(number)
    default, proved = dict(bench.chosen()), []
    for index, numbers in enumerate(groups.values()):
        first = next((number for number in numbers if number in default), numbers[0])
        before = default.get(first) or bench.candidates(first, "exhaustive", 1)[0]
        same = found.setdefault((pieces[first]["kind"], tuple(sorted(bench.bounds(first).items()))), [])
        known, left = alike(bench, first, same), start + seconds - time.monotonic()
        proof = tuning.prove(
            bench,
            first,
            "sysc",
            max(left, 0.2) / (len(groups) - index),
            seed=1 + index,
            known=[before, *known],
            goal=GOAL,
            exact=False,
        )
        same.append(proof.schedule)
        proved.append([first, len(numbers), before, proof, same])
    for row in proved:
        row[3] = row[3].with_known(bench, row[0], "sysc", alike(bench, row[0], row[4]))
    for share, end in ((1 - GOAL, start + NEAR * seconds), (1, start + seconds)):
        waiting = sorted(
            (row for row in proved if not row[3].proven and row[3].bound < share * row[3].cycles),
            key=lambda row: row[3].gap * len(row[3].bounds),
        )
        for index, row in enumerate(waiting):
            now = time.monotonic()
            until = now + max(0, end - now) / (len(waiting) - index)
            row[3] = row[3].closer(bench, row[0], "sysc", share, until)
    rows = []
    for first, count, before, proof, _ in proved:
        rows.append(
            {
                "layers": pieces[first]["layers"],
                "count": count,
                "kind": pieces[first]["kind"],
                "default": bench.together([(first, before)], "sysc")[0],
                "best": proof.cycles,
                "bound": proof.bound,
                "gap": round(proof.gap, 4),
                "proven": proof.proven,
                "tiles": proof.tiles,
                "closed": proof.closed,
                "open": proof.open,
                "trials": proof.trials,
                "programs": proof.programs,
                "seconds": proof.seconds,
                "tile_bound": min(proof.bounds),
                "schedule": proof.schedule,
                **{f"best_by_{judge}": bench.alone(first, proof.schedule, judge)[0] for judge in JUDGES},
            }
        )
    return rows


def build(name):
    """The model's bytes, and feeds of one inference."""
    if name in transformers.TRANSFORMERS:
        return transformers.build(name)
    return networks.build(name)


def measure(name, config, trials, workers):
    data, feeds = build(name)
    with tempfile.TemporaryDirectory() as folder:
        database = pathlib.Path(folder) / "tuned.db"
        outcome = tuning.tune(data, config=config, trials=trials, workers=workers, database=database)
        cycles, results = {}, {}
        for which, options in (("default", {}), ("tuned", {"tuned": str(database)})):
            session = tessera.Session(data, "sysc", config, **options)
            results[which] = session.run(None, feeds)
            cycles[which] = session.stats().cycles
    bench = _tessera.Tuning(data, config, {}, {})
    chosen = bench.chosen()
    numbers = {(piece["layers"][0], piece["count"]): number for number, piece in enumerate(bench.pieces())}
    tuned, seen = [], set()
    for layer, schedule in outcome.schedules.items():
        links = schedule.get("chain", [layer]) if isinstance(schedule, dict) else [layer]
        if layer not in seen:
            seen.update(links)
            tuned.append((numbers[layer, len(links)], json.dumps(schedule)))
    equal = all((a == b).all() for a, b in zip(results["default"], results["tuned"]))
    return {
        "network": name,
        "config": config,
        "default_cycles": cycles["default"],
        "tuned_cycles": cycles["tuned"],
        "ratio": round(cycles["tuned"] / cycles["default"], 4),
        "trials": outcome.trials,
        "seconds": outcome.seconds,
        "trials_a_second": round(outcome.trials / outcome.seconds, 1),
        "equal_results": equal,
        "candidates_a_second": rates(bench, chosen),
        "layers": layer_rows(bench, chosen, "default") + layer_rows(bench, tuned, "tuned"),
        "proofs": proofs(data, config, PROVED),
    }


def bench(names, config, trials=400, workers="2"):
    rows = []
    for name in names or NAMES:
        rows.append(measure(name, config or "npu256", trials, workers))
        print(f"{name}: {rows[-1]['default_cycles']} -> {rows[-1]['tuned_cycles']}", file=sys.stderr)
    return {"tune": rows}

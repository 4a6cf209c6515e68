# SPDX-License-Identifier: Apache-2.0
"""The learned cost model beside the closed form and chance: `./dev bench learned [NETWORKS]`.

A model is trained on replays of the layers and chains of some networks on some machines, and ranks schedules of others,
on machines that it has not seen. For each layer there is a pool of schedules: those of the compiler's searcher, random
changes of them, and points drawn from the whole space. Every one is replayed, so that the pool's best is known.
`trials`: how many schedules of the pool must be replayed in the order of the ranking until one is within 1 % of the
best, by each way: `random` (the expectation), `closed_form`, `learned`, and `guided`, which learns again from each
four schedules that were replayed. `recall`: the share of the best sixteen that the first sixteen hold; `correlation`:
Spearman's. The seed is fixed; nothing depends on time."""

import math
import random
import sys

import _tessera
import networks

from tessera.tuning.learned import Corrected, Features, Trees, logarithm, samples_of

TAUGHT_BY = ("ds_cnn", "resnet8", "mobilenetv2", "autoencoder")
MACHINES = ("npu64", "npu256", "pynq_z2")
NAMES = ["vww", "resnet18"]
UNSEEN = ("npu1024", "ultra96")
LAYERS = 15  # of each network and machine, spread over it
POOL, TAUGHT_POOL = 160, 96
FAR = 8  # times the closed form's best; schedules beyond are left out, as replaying them takes long
TOP, BATCH, NEAR = 16, 4, 1.01


def pieces_of(tuning, but=()):
    """One piece of each kind (by key) that the compiler's searcher knows schedules of, without those of the layers in
    `but`."""
    found = {}
    for number, piece in enumerate(tuning.pieces()):
        if tuple(piece["layers"]) not in but and tuning.candidates(number, "exhaustive", 1):
            found.setdefault(piece["key"], number)
    return list(found.values())


def spread(items, count):
    return items if len(items) <= count else [items[i * len(items) // count] for i in range(count)]


def pool_of(tuning, features, piece, count, seed):
    """[(closed-form cycles, features, replayed cycles)]"""
    rng = random.Random(f"{seed} {piece}")
    pool = dict.fromkeys(tuning.candidates(piece, "exhaustive", count // 4))
    for _ in range(20 * count):
        if len(pool) >= count:
            break
        if not pool or rng.random() < 0.25:
            pool[tuning.sample(piece, rng.getrandbits(63))] = None
        else:
            pool[tuning.mutate(piece, rng.choice(list(pool)), rng.getrandbits(63))] = None
    rows = [(schedule, *features.of(piece, schedule)) for schedule in pool]
    least = min(closed for _, closed, _ in rows)
    return [
        (closed, row, tuning.alone(piece, schedule, "replay")[0])
        for schedule, closed, row in rows
        if closed <= FAR * least
    ]


def ranks(values):
    """With the mean rank for equal values."""
    order, result, at = sorted(range(len(values)), key=lambda i: values[i]), [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for i in order[at:end]:
            result[i] = (at + end - 1) / 2
        at = end
    return result


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    below = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return top / below if below else 0.0


def trials(order, good):
    return next(at for at, number in enumerate(order, 1) if number in good)


def guided(trees, pool, good):
    """Schedules replayed where the model learns from each batch."""
    left, count, model = list(range(len(pool))), 0, Corrected(trees)
    while True:
        found = model.logarithms([pool[i][1] for i in left])
        order = [i for _, i in sorted((math.log(pool[i][0]) + value, i) for value, i in zip(found, left))]
        batch = order[:BATCH]
        if good.intersection(batch):
            return count + trials(batch, good)
        count += len(batch)
        left = [i for i in left if i not in batch]
        model.learn([pool[i][1] for i in batch], [logarithm(pool[i][0], pool[i][2]) for i in batch])


def layer_row(trees, pool):
    cycles = [entry[2] for entry in pool]
    best = min(cycles)
    good = {i for i, value in enumerate(cycles) if value <= NEAR * best}
    numbers = range(len(pool))
    learned = trees.logarithms([entry[1] for entry in pool])
    costs = {
        "closed_form": [entry[0] for entry in pool],
        "learned": [entry[0] * math.exp(value) for entry, value in zip(pool, learned)],
    }
    top = set(sorted(numbers, key=lambda i: cycles[i])[:TOP])
    row = {"pool": len(pool), "best": best, "trials": {"random": round((len(pool) + 1) / (len(good) + 1), 1)}}
    row["correlation"], row["recall"] = {}, {}
    for way, cost in costs.items():
        order = sorted(numbers, key=lambda i: cost[i])
        row["trials"][way] = trials(order, good)
        row["correlation"][way] = round(spearman(cost, cycles), 3)
        row["recall"][way] = round(len(top.intersection(order[:TOP])) / min(TOP, len(pool)), 3)
    row["trials"]["guided"] = guided(trees, pool, good)
    return row


def teach():
    """The trees, the keys of the layers that it has seen on npu256, and how many samples it had."""
    samples, seen = [], set()
    for name in TAUGHT_BY:
        data, _ = networks.build(name)
        for machine in MACHINES:
            tuning = _tessera.Tuning(data, machine, {}, {})
            features = Features(tuning, machine, {})
            if machine == "npu256":
                seen.update(piece["key"] for piece in tuning.pieces())
            for piece in spread(pieces_of(tuning), LAYERS):
                pool = pool_of(tuning, features, piece, TAUGHT_POOL, 1)
                samples += samples_of(pool)
            print(f"taught by {name} on {machine}: {len(samples)} samples", file=sys.stderr, flush=True)
    return Trees(samples), seen, len(samples)


def bench(names, config=None):
    trees, seen, samples = teach()
    rows = []
    for name in names or NAMES:
        data, _ = networks.build(name)
        here = _tessera.Tuning(data, "npu256", {}, {}).pieces()  # keys name a layer on one machine
        known = {tuple(piece["layers"]) for piece in here if piece["key"] in seen}
        for machine in [config] if config else UNSEEN:
            tuning = _tessera.Tuning(data, machine, {}, {})
            features, pieces = Features(tuning, machine, {}), tuning.pieces()
            for piece in spread(pieces_of(tuning, known), LAYERS):
                pool = pool_of(tuning, features, piece, POOL, 2)
                if len(pool) > TOP:
                    rows.append({"network": name, "config": machine, "layers": pieces[piece]["layers"]})
                    rows[-1] |= layer_row(trees, pool)
            print(f"{name} on {machine}: {len(rows)} layers", file=sys.stderr, flush=True)
    return {"learned": rows, "summary": {"samples": samples, **summary(rows)}}


def summary(rows):
    def geometric(values):
        return round(math.exp(sum(math.log(value) for value in values) / len(values)), 2)

    ways = rows[0]["trials"]
    means = {
        name: {way: round(sum(row[name][way] for row in rows) / len(rows), 3) for way in rows[0][name]}
        for name in ("correlation", "recall")
    }
    return {
        "count": len(rows),
        "trials": {way: geometric([row["trials"][way] for row in rows]) for way in ways},
    } | means

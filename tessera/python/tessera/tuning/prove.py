# SPDX-License-Identifier: Apache-2.0
"""How far a layer is from the best schedule of its space. Enters: a model on the bench, a layer, a judge, seconds.
Leaves: the best schedule that was met, the least cycles that any schedule must take, and what lies between.

The search branches on tiles. The bound of a tile is what every schedule with it needs, in whatever order and with
whatever copies (compiler/schedule/bound.h). Tiles whose bound is not below the best measured schedule are cut off. When
none is left the best schedule is proven; else the least bound that is left is the gap. Schedules of the tiles that are
left come from the compiler's searcher, from all orders and threads of the tiles with the least bounds, and from
annealing, first by replay and then by the judge. Each is measured alone and once."""

import dataclasses
import math
import random
import time

FINALS = 12  # schedules of the replay that the judge measures
SWEEP, REPLAY = 0.3, 0.6  # shares of the time at which the tiles' schedules and the annealing by replay end


@dataclasses.dataclass(frozen=True)
class Proof:
    """cycles, schedule: the best that the judge measured. bounds: how many tiles of the space have which bound. trials:
    replays and measurements. seconds: taken."""

    cycles: int
    schedule: str
    bounds: dict[int, int]
    trials: int
    seconds: float

    @property
    def bound(self):
        """Cycles that no schedule of the space is below."""
        return min(self.bounds)

    @property
    def tiles(self):
        """Tiles of the space, those that fit."""
        return sum(self.bounds.values())

    @property
    def open(self):
        """Tiles whose bound is below the best."""
        return sum(count for bound, count in self.bounds.items() if bound < self.cycles)

    @property
    def proven(self):
        """Whether no other schedule can be better. A bound above what was measured is wrong, and proves nothing."""
        return self.open == 0 and self.bound <= self.cycles

    @property
    def gap(self):
        """The share of the cycles that another schedule may save at most; below 0 where the bound is wrong."""
        return 1 - self.bound / self.cycles

    def with_known(self, tuning, piece, judge, known):
        """The same proof where one of these schedules is better."""
        best, new = self, [schedule for schedule in known if schedule != self.schedule]
        for schedule in new:
            cycles = tuning.together([(piece, schedule)], judge)[0]
            if cycles < best.cycles:
                best = dataclasses.replace(best, cycles=cycles, schedule=schedule)
        return dataclasses.replace(best, trials=self.trials + len(new))


class _Search:
    """Schedules of one piece with their cycles by one judge, until a time or until the bound is met."""

    def __init__(self, tuning, piece, judge, least, rng):
        self.tuning, self.piece, self.judge, self.least, self.rng = tuning, piece, judge, least, rng
        self.seen = {}

    def look(self, schedule):
        if schedule not in self.seen:
            self.seen[schedule] = self.tuning.together([(self.piece, schedule)], self.judge)[0]
        return self.seen[schedule]

    def best(self, count=1):
        return sorted(self.seen, key=self.seen.get)[:count]

    def sweep(self, until):
        """The schedules of one tile after the other, least bound first, while a tile may hold a better one."""
        number, least = 0, min(self.seen.values())
        while time.monotonic() < until:
            bound, schedules = self.tuning.of_tile(self.piece, number)
            if not schedules or bound >= least:
                return
            for schedule in schedules:
                least = min(least, self.look(schedule))
                if time.monotonic() > until:
                    return
            number += 1

    def anneal(self, until):
        begin, at = time.monotonic(), self.best()[0]
        best, least = at, self.seen[at]
        heat = 0.01 * least
        while (now := time.monotonic()) < until and least > self.least:
            left = (until - now) / (until - begin)
            source = at if self.rng.random() < 0.9 else best
            other = self.tuning.mutate(self.piece, source, self.rng.getrandbits(63))
            gain = self.seen[at] - self.look(other)
            if gain >= 0 or self.rng.random() < math.exp(gain / (heat * left * left + 1e-9)):
                at = other
            if self.seen[other] < least:
                best, least = other, self.seen[other]


def prove(tuning, piece, judge="sysc", seconds=2.0, seed=1, known=(), swept=False):
    """tuning: _tessera.Tuning. piece: the number of a single layer. known: schedules to begin with; swept: they come
    from a search among the tiles of the same space, which is left out. Errors: ValueError for a chain."""
    bounds = tuning.bounds(piece)
    if not bounds:
        raise ValueError(f"piece {piece} is a chain; bounds are for single layers")
    start, rng, least = time.monotonic(), random.Random(seed), min(bounds)
    replayed = _Search(tuning, piece, "replay", least, rng)
    for schedule in [*known, *tuning.candidates(piece, "exhaustive", 16)]:
        replayed.look(schedule)
    if not swept:
        replayed.sweep(start + SWEEP * seconds)
    replayed.anneal(start + REPLAY * seconds)
    measured = _Search(tuning, piece, judge, least, rng)
    for schedule in [*known, *replayed.best(FINALS)]:
        measured.look(schedule)
    measured.anneal(start + seconds)
    best = measured.best()[0]
    return Proof(
        cycles=measured.seen[best],
        schedule=best,
        bounds=bounds,
        trials=len(replayed.seen) + len(measured.seen),
        seconds=round(time.monotonic() - start, 2),
    )

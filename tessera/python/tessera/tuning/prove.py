# SPDX-License-Identifier: Apache-2.0
"""How far a layer is from the best schedule of its space. Enters: a model on the bench, a layer, a judge, seconds.
Leaves: the best schedule that was met, the least cycles that any schedule must take, and what lies between.

The search branches on tiles. The bound of a tile is what every schedule with it needs, in whatever order and with
whatever copies (compiler/schedule/bound.h). Tiles whose bound is not below the best measured schedule are cut off.
The others are closed, least bound first: each of their schedules is measured, or its program cannot take less than
the best one (compiler/npu/planning/exhaust.h). When none is left the best schedule is proven; else the least bound
that is left is the gap. At first schedules come from the compiler's searcher and from annealing, first by
replay and then by the judge, so that there is a good one to compare with. Each is measured alone and once."""

import dataclasses
import math
import random
import time

FINALS = 12  # schedules of the replay that the judge measures
EARLY, REPLAY, SEARCH = 0.05, 0.2, 0.3  # shares of the time at which a first look at tiles and both annealings end
SLICE = 0.5  # seconds that the compiler closes tiles before Python may be interrupted


@dataclasses.dataclass(frozen=True)
class Proof:
    """cycles, schedule: the best that the judge measured. bounds: how many tiles of the space have which bound. closed:
    tiles of the least bounds that were looked at as a whole; cut: the least bound of a program in them that was not
    measured, 0 where all were; programs: that were measured for it; broken: one of them took less than a bound. trials:
    replays and measurements beside these. seconds: taken."""

    cycles: int
    schedule: str
    bounds: dict[int, int]
    trials: int
    seconds: float
    closed: int = 0
    cut: int = 0
    programs: int = 0
    broken: bool = False

    @property
    def _left(self):
        """Bounds of the tiles that are not closed, and how many have each."""
        left, closed = {}, self.closed
        for bound, count in sorted(self.bounds.items()):
            if count > closed:
                left[bound] = count - closed
            closed = max(0, closed - count)
        return left

    @property
    def bound(self):
        """Cycles that no schedule of the space is below."""
        known = [self.cycles, self.cut] if self.cut else [self.cycles]
        return min([*self._left, *known]) if self.closed else min(self.bounds)

    @property
    def tiles(self):
        """Tiles of the space, those that fit."""
        return sum(self.bounds.values())

    @property
    def open(self):
        """Tiles whose bound is below the best, and that are not closed."""
        return sum(count for bound, count in self._left.items() if bound < self.cycles)

    @property
    def proven(self):
        """Whether no other schedule can be better. A bound above what was measured is wrong, and proves nothing."""
        wrong = self.broken or min(self.bounds) > self.cycles
        return not wrong and self.open == 0 and not 0 < self.cut < self.cycles

    @property
    def gap(self):
        """The share of the cycles that another schedule may save at most; below 0 where a bound is wrong."""
        return -1.0 if self.broken else 1 - self.bound / self.cycles

    def with_known(self, tuning, piece, judge, known):
        """The same proof where one of these schedules is better."""
        best, new = self, [schedule for schedule in known if schedule != self.schedule]
        for schedule in new:
            cycles = tuning.together([(piece, schedule)], judge)[0]
            if cycles < best.cycles:
                best = dataclasses.replace(best, cycles=cycles, schedule=schedule)
        return dataclasses.replace(best, trials=self.trials + len(new))

    def closer(self, tuning, piece, judge, share, until):
        """The same proof with tiles closed until a time, as far as they may have schedules that take less than `share`
        of the best. Goes on where this piece's tiles were left before."""
        start, best = time.monotonic(), self
        while (left := until - time.monotonic()) > 0:
            closing = tuning.close(piece, judge, best.cycles, share, min(SLICE, left))
            if closing is None:  # several nests
                break
            best = dataclasses.replace(best, programs=closing["programs"], broken=closing["broken"])
            if closing["schedule"] and closing["cycles"] < best.cycles:
                best = dataclasses.replace(best, cycles=closing["cycles"], schedule=closing["schedule"])
            # Tiles that are closed anew for a larger share may say less at first.
            further = dataclasses.replace(best, closed=closing["tiles"], cut=closing["cut"])
            best = further if further.bound >= best.bound else best
            if closing["done"]:
                break
        return dataclasses.replace(best, seconds=round(self.seconds + time.monotonic() - start, 2))


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


def prove(tuning, piece, judge="sysc", seconds=2.0, seed=1, known=(), goal=0.01, exact=True):
    """tuning: _tessera.Tuning. piece: the number of a single layer. known: schedules to begin with. Ends when the best
    schedule is within `goal` of what no schedule is below; `exact`: goes on from there until it is proven to the cycle
    or the time is over. Errors: ValueError for a chain."""
    bounds = tuning.bounds(piece)
    if not bounds:
        raise ValueError(f"piece {piece} is a chain; bounds are for single layers")
    start, rng, least = time.monotonic(), random.Random(seed), min(bounds)
    replayed = _Search(tuning, piece, "replay", least, rng)
    for schedule in [*known, *tuning.candidates(piece, "exhaustive", 16)]:
        replayed.look(schedule)
    measured = _Search(tuning, piece, judge, least, rng)

    def found():
        for schedule in [*known, *replayed.best(FINALS)]:
            measured.look(schedule)
        best = measured.best()[0]
        return Proof(
            cycles=measured.seen[best],
            schedule=best,
            bounds=bounds,
            trials=len(replayed.seen) + len(measured.seen),
            seconds=round(time.monotonic() - start, 2),
        )

    # Where few tiles are open there is nothing to search.
    proof = found().closer(tuning, piece, judge, 1, start + EARLY * seconds)
    if proof.proven:
        return proof
    replayed.anneal(start + REPLAY * seconds)
    found()
    measured.look(proof.schedule)
    measured.anneal(start + SEARCH * seconds)
    proof = found()
    for share in [1 - goal, 1][: 2 if exact else 1]:
        proof = proof.closer(tuning, piece, judge, share, start + seconds)
    return proof

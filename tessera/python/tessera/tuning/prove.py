# SPDX-License-Identifier: Apache-2.0
"""How far a layer is from the best schedule of its space. Enters: a model on the bench, a layer, a judge, seconds.
Leaves: the best schedule that was met, the least cycles that any schedule must take, and what lies between.

The search branches on tiles. The bound of a tile is what every schedule with it needs: issue cycles of the engines, and
compulsory bytes on the bus (compiler/schedule/bound.h). Tiles whose bound is not below the best measured schedule are
cut off. When none is left the best schedule is proven; else the least bound that is left is the gap. Schedules of the
tiles that are left come from the compiler's searcher and from annealing by replay, and the judge measures the best of
them, each alone and once."""

import dataclasses
import math
import random
import time

FINALS = 6  # schedules that the judge measures


@dataclasses.dataclass(frozen=True)
class Proof:
    """cycles, schedule: the best that the judge measured. bound: cycles that no schedule of the space is below.
    tiles: of the space, those that fit; open: those whose bound is below the best. trials: replays. seconds: taken."""

    cycles: int
    schedule: str
    bound: int
    tiles: int
    open: int
    trials: int
    seconds: float

    @property
    def proven(self):
        """Whether no other schedule can be better. A bound above what was measured is wrong, and proves nothing."""
        return self.open == 0 and self.bound <= self.cycles

    @property
    def gap(self):
        """The share of the cycles that another schedule may save at most; below 0 where the bound is wrong."""
        return 1 - self.bound / self.cycles


def prove(tuning, piece, judge="sysc", seconds=2.0, seed=1):
    """tuning: _tessera.Tuning. piece: the number of a single layer. Errors: ValueError for a chain."""
    bounds = tuning.bounds(piece)
    if not bounds:
        raise ValueError(f"piece {piece} is a chain; bounds are for single layers")
    start, rng, trials = time.monotonic(), random.Random(seed), 0
    least = min(bounds)

    def replay(schedule):
        nonlocal trials
        trials += 1
        return tuning.together([(piece, schedule)], "replay")[0]

    seen = {schedule: replay(schedule) for schedule in tuning.candidates(piece, "exhaustive", 16)}
    at = min(seen, key=seen.get)
    heat = 0.01 * seen[at]
    while (passed := time.monotonic() - start) < seconds and min(seen.values()) > least:
        other = tuning.mutate(piece, at if rng.random() < 0.9 else min(seen, key=seen.get), rng.getrandbits(63))
        if other not in seen:
            seen[other] = replay(other)
        left = 1 - passed / seconds
        if seen[other] <= seen[at] or rng.random() < math.exp((seen[at] - seen[other]) / (heat * left * left + 1e-9)):
            at = other
    finals = sorted(seen, key=seen.get)[:FINALS]
    cycles, best = min((tuning.together([(piece, schedule)], judge)[0], schedule) for schedule in finals)
    return Proof(
        cycles=cycles,
        schedule=best,
        bound=least,
        tiles=sum(bounds.values()),
        open=sum(count for bound, count in bounds.items() if bound < cycles),
        trials=trials,
        seconds=round(time.monotonic() - start, 2),
    )

# SPDX-License-Identifier: Apache-2.0
"""How far a work of several steps is. In: the steps with the time that each is expected to take beside the others, and
how far the present one is. Out: calls of a function with what is being done, the share of the whole that is done, and
the seconds that are left, if the rest goes at the speed so far."""

import time

from . import steps


class Meter:
    def __init__(self, show, expected, clock=time.monotonic):
        """show: a function of (what, share from 0 to 1, seconds left or None), or None. expected: name -> time, in any
        unit, in order."""
        self.show, self.steps, self.clock = show, dict(expected), clock
        self.start, self.what, self.share = clock(), None, 0.0

    def add(self, what, expected):
        """A step that had not been thought of; it begins."""
        self.steps[what] = expected
        self.begin(what)

    def begin(self, what):
        """The step `what` begins; those before it are over, also the ones that were not needed."""
        self.what = what
        steps.begin(what)
        self.at(0)

    def at(self, done, total=None):
        """`done` of the `total` parts of the present step (without a total: of its expected time)."""
        if self.show is None:
            return
        names = list(self.steps)
        before = sum(self.steps[name] for name in names[: names.index(self.what)])
        part = min(1.0, done / total) * self.steps[self.what] if total else 0.0
        whole = sum(self.steps.values())
        self.share = max(self.share, (before + part) / whole) if whole else 0.0
        spent = self.clock() - self.start
        left = spent / self.share - spent if self.share > 0.02 else None
        self.show(self.what, self.share, left)

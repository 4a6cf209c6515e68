# SPDX-License-Identifier: Apache-2.0
"""Synchronisation that the author of a kernel places: a statement signals an event when its work is complete, another
one waits for it. A kernel that signals or waits anywhere has no other waits than these."""

import dataclasses
import itertools
import warnings

from . import errors
from .errors import KernelError, refuse


class KernelWarning(UserWarning):
    """Something that a kernel does not need."""


@dataclasses.dataclass(eq=False)
class Event:
    """statement: the number of the one whose end it is. where: the line that made it."""

    events: object
    statement: int
    where: str
    waited: bool = False


class Events:
    """Mixed into Builder, which has statements."""

    def _events(self):
        if "events" not in self.__dict__:
            self.events, self.waits = [], []  # waits: (number of a statement, Event, line)
        return self.events

    def signal(self):
        """The Event that the statement before this is complete: its reads are done, and its writes can be seen."""
        events = self._events()
        if not self.statements:
            refuse("signal() stands behind the statement whose end it signals")
        events.append(Event(self, len(self.statements) - 1, errors.place()))
        return events[-1]

    def wait(self, *events):
        """The next statement starts when these events have happened."""
        self._events()
        for event in events:
            if not isinstance(event, Event) or event.events is not self:
                refuse(f"wait() takes what signal() of this kernel gave, not {event!r}")
            event.waited = True
            self.waits.append((len(self.statements), event, errors.place()))


class Placed:
    """The waits of a Builder, by instructions. pairs: None where the compiler is to find them."""

    def __init__(self, builder):
        self.pairs, self.unused, self._lines = None, [], {}
        if "waits" not in builder.__dict__:
            return
        counts = [len(one.instructions) for one in builder.statements]
        begins = [0, *itertools.accumulate(counts)]
        self.pairs = []
        for statement, event, where in builder.waits:
            if statement == len(counts):
                raise KernelError(f"{where}: no statement stands behind this wait()")
            pair = (begins[statement], begins[event.statement + 1] - 1)
            self.pairs.append(pair)
            self._lines.setdefault(pair, (where, event.where))
        self.unused = [event.where for event in builder.events if not event.waited]

    def tell(self, needless):
        """What nothing needs, as lines of text and as warnings. needless: pairs of instructions."""
        lines = []
        for pair in needless:
            where, signalled = self._lines[pair]
            lines.append(f"{where}: the wait for the event of {signalled} is not needed")
        lines += [f"{where}: nothing waits for this event" for where in self.unused]
        lines = list(dict.fromkeys(lines))
        for line in lines:
            warnings.warn(line, KernelWarning, stacklevel=2)
        return lines

# SPDX-License-Identifier: Apache-2.0
"""Turns of several who want the same machine."""

import collections
import threading


class Turns:
    """At most `slots` have a turn at one moment, and they come in the order of asking. Who has had one asks again
    behind those who wait, so that nobody waits for more than one turn of each other. Safe for threads."""

    def __init__(self, slots):
        self._changed = threading.Condition()
        self._free = self._slots = slots
        self._waiting = collections.deque()
        self._last = None

    def take(self, who, gone):
        """Waits for a turn. Returns None when `gone()` becomes true before, else whether somebody else had the turn
        before this one, or may have it beside."""
        with self._changed:
            self._waiting.append(who)
            while self._free == 0 or self._waiting[0] is not who:
                if gone():
                    self._waiting.remove(who)
                    self._changed.notify_all()
                    return None
                self._changed.wait(1)
            self._waiting.popleft()
            self._free -= 1
            other, self._last = self._last != id(who) or self._slots > 1, id(who)
            self._changed.notify_all()
            return other

    def give(self):
        """A turn has ended."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def wake(self):
        """Lets everybody who waits look at gone()."""
        with self._changed:
            self._changed.notify_all()

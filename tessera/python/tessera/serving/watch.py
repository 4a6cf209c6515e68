# SPDX-License-Identifier: Apache-2.0
"""Ends calls of gRPC whose client neither sends nor takes what belongs to them. A call of Python's server holds a
thread from its header on, so that a client that stalls would hold one for ever."""

import itertools
import threading
import time

LOOK_SECONDS = 0.25


class Watch:
    """One thread for all calls, which are few: it looks at each of them four times a second."""

    def __init__(self):
        self._calls = {}  # number: (when it is ended, context)
        self._numbers = itertools.count()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def begin(self, context, seconds):
        """Ends the call after so many seconds unless extend() or its own end come first. Returns its number."""
        number = next(self._numbers)
        self._calls[number] = (time.monotonic() + seconds, context)
        if not context.add_callback(lambda: self._calls.pop(number, None)):
            self._calls.pop(number, None)
        return number

    def extend(self, number, seconds):
        """Gives the call so many seconds from now."""
        call = self._calls.get(number)
        if call is not None:
            self._calls[number] = (time.monotonic() + seconds, call[1])
            if not call[1].is_active():  # it ended just now, and its callback may have run before
                self._calls.pop(number, None)

    def _run(self):
        while not self._closed.wait(LOOK_SECONDS):
            now = time.monotonic()
            for number, (end, context) in list(self._calls.items()):
                if end <= now:
                    self._calls.pop(number, None)
                    context.cancel()

    def close(self):
        self._closed.set()

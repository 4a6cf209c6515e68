# SPDX-License-Identifier: Apache-2.0
"""Requests of one model wait here and are taken as batches. A batch holds requests of the same shapes beyond the first
dimension, in the order in which they came, up to the rows of a run. It is taken when it is full, when the oldest of
its requests has waited for max_queue_delay, or when nothing can join it."""

import concurrent.futures
import threading
import time

from .refusals import Kind, Refusal


class Job:
    """A request that waits. feeds: arrays by input. rows: extent of the first dimension. key: equal for jobs that can
    run together, None for those that run alone. deadline: time.monotonic() at which nobody waits any more, or None."""

    def __init__(self, feeds, rows=1, key=None, deadline=None):
        self.feeds, self.rows, self.key, self.deadline = feeds, rows, key, deadline
        self.future = concurrent.futures.Future()
        self.entered = time.monotonic()
        self.waited = 0.0  # seconds in the queue

    def begin(self, now):
        """Whether the job is to run: nobody has left, and its time is not over."""
        self.waited = now - self.entered
        if not self.future.set_running_or_notify_cancel():
            return False
        if self.deadline is not None and now > self.deadline:
            self.future.set_exception(
                Refusal(Kind.DEADLINE, "the deadline passed while the request waited for the model")
            )
            return False
        return True


class Closed(Exception):
    """The queue takes no more; a newer version of the model may."""


class Queue:
    """Errors of put: Closed, and a Refusal when max_queue jobs wait."""

    def __init__(self, label, batching):
        self._label, self._batching = label, batching
        self._jobs = []
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self):
        return len(self._jobs)

    def put(self, job):
        with self._changed:
            if self._closed:
                raise Closed
            if len(self._jobs) >= self._batching.max_queue:
                self._jobs = [waiting for waiting in self._jobs if not waiting.future.cancelled()]
            if len(self._jobs) >= self._batching.max_queue:
                raise Refusal(
                    Kind.BUSY,
                    f"{self._label} has {len(self._jobs)} requests waiting, which is its limit (batching.max_queue); "
                    "try later",
                )
            self._jobs.append(job)
            self._changed.notify()

    def close(self):
        """Nothing more comes in; what is there is still taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self):
        """The next batch as a list of jobs that have begun, or None when the queue is closed and empty. Waits."""
        with self._changed:
            while True:
                if not self._jobs:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                now = time.monotonic()
                batch, complete = self._first_batch()
                remaining = self._jobs[0].entered + self._batching.max_queue_delay - now
                if not complete and remaining > 0 and not self._closed:
                    self._changed.wait(remaining)
                    continue
                taken = set(map(id, batch))
                self._jobs = [job for job in self._jobs if id(job) not in taken]
                begun = [job for job in batch if job.begin(now)]
                if begun:
                    return begun

    def _first_batch(self):
        """The jobs that would run with the first one, and whether no other could join them."""
        head, most = self._jobs[0], self._batching.max_batch
        if head.key is None or head.rows >= most:
            return [head], True
        batch, rows = [], 0
        for job in self._jobs:
            if job.key != head.key:
                continue
            if rows + job.rows > most:
                return batch, True
            batch.append(job)
            rows += job.rows
        return batch, rows == most

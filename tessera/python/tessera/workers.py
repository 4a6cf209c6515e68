# SPDX-License-Identifier: Apache-2.0
"""Workers: processes of this machine, or of a Dask cluster. Enters: a function by name, units of work with keys of
their own, and `shared` bytes by name, which each worker gets once. Leaves: for each key one result, as soon as it is
there.

    with open_pool("2", {"model": data}) as pool:
        pool.run("tessera.exploration.evaluate:evaluate", next_unit, on_result)

A worker that dies takes its unit along; the unit is given to another one, three times in all, and is then reported as
Lost. What a function raises is a bug of the function and ends the run: expected errors are part of its result. Results
are reported in the caller's thread, so that the caller can keep them before anything else happens.

This file is also the worker: `python -m tessera.workers FD` serves the pool of its parent process."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import importlib
import multiprocessing.connection
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import traceback

TRIES = 3
MOST = 1024  # processes of this machine


@dataclasses.dataclass(frozen=True)
class Lost:
    """In place of a result: every worker that had the unit died."""

    tries: int


class Failure(Exception):
    """A function of a worker raised (the message is its traceback), or no worker can start."""


def function_of(name):
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def count_of(workers):
    """The number of processes that --workers asks for; 0 for Dask, None for what is neither. "dask" and "dask:N" are a
    cluster of processes on this machine, "dask:ADDRESS:PORT" is one that runs."""
    text = str(workers)
    cluster = text == "dask" or text.startswith("dask:")
    number = text[5:] if cluster else text
    if re.fullmatch("[0-9]{1,4}", number):
        return (0 if cluster else int(number)) if 1 <= int(number) <= MOST else None
    address = re.fullmatch(r"((tcp|tls|wss?)://)?[^\s/]+:([0-9]{1,5})", number)
    running = address is not None and 1 <= int(address.group(3)) <= 65535
    return 0 if cluster and (text == "dask" or running) else None


def obstacle(workers):
    """What is wrong with a text for --workers, or None."""
    if count_of(workers) is not None:
        return None
    return f"--workers '{workers}': a number from 1 to {MOST}, dask, dask:N or dask:tcp://HOST:PORT"


def open_pool(workers, shared=None):
    """workers: a number of processes, "dask" or "dask:N" (a cluster of N processes here), or "dask:tcp://HOST:PORT".
    Errors: ValueError for other text, ImportError without the package dask.distributed, OSError when no scheduler
    answers."""
    if wrong := obstacle(workers):
        raise ValueError(wrong)
    count = count_of(workers)
    return LocalPool(count, shared or {}) if count else DaskPool(str(workers)[5:], shared or {})


class Pool:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        raise NotImplementedError

    def run(self, function, next_unit, on_result):
        """Runs units until there is no more. function: "module:name", called with (payload, shared) in a worker.
        next_unit(): (key, payload), or None when there is nothing to do now; it is asked again after each result.
        on_result(key, result or Lost). A key that comes again while its unit is under way is not run twice."""
        raise NotImplementedError


class Worker:
    """A process and the pipe to it."""

    def __init__(self, shared):
        self.pipe, child = multiprocessing.connection.Pipe()
        with child:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tessera.workers", str(child.fileno())],
                pass_fds=[child.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent, also while a worker starts
            )
        self.unit = None  # (key, payload, function, tries) in hand
        self.ready = False  # it has said so
        with contextlib.suppress(OSError):  # a worker that is already dead is met when its result is waited for
            self.pipe.send_bytes(shared)

    def give(self, key, payload, function, tries):
        self.unit = (key, payload, function, tries)
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(pickle.dumps((function, payload)))

    def killed(self):
        """By a signal, and not by what it met when it started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=5) < 0
        return False

    def end(self):
        self.pipe.close()
        self.process.terminate()
        self.process.wait()


class LocalPool(Pool):
    def __init__(self, count, shared):
        self.shared = pickle.dumps(shared)
        self.count = count
        self.workers = []

    def run(self, function, next_unit, on_result):
        again = collections.deque()  # units whose worker has died
        while True:
            idle = [worker for worker in self.workers if worker.unit is None]
            while idle or len(self.workers) < self.count:
                unit = again.popleft() if again else self._fresh(next_unit, function)
                if unit is None:
                    break
                if not idle:
                    self.workers.append(Worker(self.shared))
                    idle.append(self.workers[-1])
                idle.pop().give(*unit)
            busy = {worker.pipe: worker for worker in self.workers if worker.unit is not None}
            if not busy:
                return
            for pipe in multiprocessing.connection.wait(list(busy)):
                self._take(busy[pipe], again, on_result)

    def _fresh(self, next_unit, function):
        while (unit := next_unit()) is not None:
            if all(worker.unit is None or worker.unit[0] != unit[0] for worker in self.workers):
                return (*unit, function, 1)
        return None

    def _take(self, worker, again, on_result):
        key, payload, function, tries = worker.unit
        try:
            message = pickle.loads(worker.pipe.recv_bytes())
            if not worker.ready:
                worker.ready = True
                return
            worker.unit = None
            fine, result = message
        except (EOFError, OSError, pickle.UnpicklingError):
            if not worker.ready and not worker.killed():
                raise Failure("a worker process cannot start; what it said stands above") from None
            self.workers.remove(worker)
            worker.end()
            if tries < TRIES:
                again.append((key, payload, function, tries + 1))
            else:
                on_result(key, Lost(tries))
            return
        if not fine:
            raise Failure(result)
        on_result(key, result)

    def close(self):
        for worker in self.workers:
            worker.end()
        self.workers = []


class DaskPool(Pool):
    """Workers of a Dask cluster. Bytes of `shared` are scattered to all of them, once; a unit's key is the digest that
    Dask knows it by."""

    AHEAD = 2  # units for each worker, so that none waits
    LOOK_SECONDS = 2.0  # between two looks at how many workers there are
    CONNECT_SECONDS = 10.0  # for the scheduler to answer
    START_SECONDS = 60.0  # for the first worker to come

    def __init__(self, where, shared):
        try:
            import distributed
        except ImportError:
            raise ImportError(
                "workers on Dask need the package 'distributed': pip install -r requirements-explore.txt"
            ) from None
        self.distributed, self.shared, self.cluster = distributed, shared, None
        if not where or where.isdigit():
            self.cluster = distributed.LocalCluster(
                n_workers=int(where or os.cpu_count() or 1), threads_per_worker=1, dashboard_address=None
            )
            where = self.cluster.scheduler_address
        try:
            self.client = distributed.Client(where, timeout=self.CONNECT_SECONDS, set_as_default=False)
        except OSError as refused:
            raise ConnectionError(
                f"no scheduler of Dask answers at {where} ({refused}); start one there with `dask scheduler`, or give "
                f"--workers a number from 1 to {MOST} for processes on this machine"
            ) from None
        self.scattered = None

    def _scatter(self):
        return self.client.scatter([self.shared], broadcast=True, hash=False)[0]

    def run(self, function, next_unit, on_result):
        try:
            self._run(function, next_unit, on_result)
        except OSError:  # of a connection that broke in the middle of a question, among others
            self._look_for_scheduler()
            raise

    def _run(self, function, next_unit, on_result):
        try:
            self.client.wait_for_workers(1, timeout=self.START_SECONDS)
        except TimeoutError:
            raise ConnectionError(
                f"no worker of Dask came within {self.START_SECONDS:.0f} s; start some for this scheduler, with "
                "`dask worker ADDRESS`"
            ) from None
        self.scattered = self._scatter()
        waiting = self.distributed.as_completed(loop=self.client.loop)
        flying, tries, names = {}, collections.Counter(), {}  # key: (future, payload); Dask's name: key

        def submit(key, payload):
            tries[key] += 1
            future = self.client.submit(
                call, function, payload, self.scattered, key=f"{key}-{tries[key]}", pure=False, retries=0
            )
            flying[key] = (future, payload)
            names[future.key] = key
            waiting.add(future)

        places, looked = 1, 0.0  # workers that the cluster has, and when it was asked

        def fill():
            nonlocal places, looked
            if time.monotonic() - looked > self.LOOK_SECONDS:
                places, looked = max(1, sum(self.client.nthreads().values())), time.monotonic()
            while len(flying) < self.AHEAD * places:
                unit = next_unit()
                if unit is None:
                    return
                if unit[0] not in flying:
                    submit(*unit)

        fill()
        while flying:
            future = next(waiting)
            key = names.pop(future.key)
            payload = flying.pop(key)[1]
            try:
                fine, result = future.result()
            except self.distributed.KilledWorker:
                if tries[key] >= TRIES:
                    on_result(key, Lost(tries[key]))
                else:
                    submit(key, payload)
            except (self.distributed.client.FutureCancelledError, concurrent.futures.CancelledError):
                self._look_for_scheduler()
                self.scattered = self._scatter()  # it was lost with its last holder
                submit(key, payload)
            else:
                if not fine:
                    raise Failure(result)
                on_result(key, result)
            fill()

    def _look_for_scheduler(self):
        """Errors: ConnectionError when it is gone."""
        try:
            self.client.sync(self.client.scheduler.identity, callback_timeout=10)
        except Exception:
            raise ConnectionError(
                "the scheduler of Dask is gone; what it had reported is kept, and the same command goes on from there"
            ) from None

    def close(self):
        self.scattered = None
        with contextlib.suppress(Exception):  # a scheduler that is gone cannot be told
            self.client.close(timeout=5)
        if self.cluster is not None:
            self.cluster.close(timeout=5)


def call(function, payload, shared):
    """(True, result), or (False, traceback)."""
    try:
        return True, function_of(function)(payload, shared)
    except Exception:
        return False, traceback.format_exc()


def serve(descriptor):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    pipe = multiprocessing.connection.Connection(descriptor)
    os.dup2(2, 1)  # what a function prints must not look like the command's result
    try:
        shared = pickle.loads(pipe.recv_bytes())
        pipe.send_bytes(pickle.dumps("ready"))
        while True:
            function, payload = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(pickle.dumps(call(function, payload, shared)))
    except (EOFError, OSError):
        return  # the parent is gone, or has closed the pool


if __name__ == "__main__":
    serve(int(sys.argv[1]))

# SPDX-License-Identifier: Apache-2.0
"""A pool of child processes that judge cases. A child that dies or takes too long is replaced, and its case says so."""

import multiprocessing
import os
import time
from multiprocessing.connection import wait

from tests.conformance import judge

SECONDS = 120


def serve(connection, device, config):
    """A child's life: cases come in, verdicts go out, until None comes."""
    judge.limit_memory()
    while (job := connection.recv()) is not None:
        case, chance = job
        try:
            verdict = judge.judge(case, device, config, chance)
        except Exception as error:  # a fault of the runner or of NumPy is the case's verdict, and not the pool's end
            verdict = judge.Verdict("died", f"{type(error).__name__}: {error}")
        connection.send(verdict)


class Worker:
    def __init__(self, device, config):
        context = multiprocessing.get_context("spawn")
        self.connection, child = context.Pipe()
        self.process = context.Process(target=serve, args=(child, device, config), daemon=True)
        self.process.start()
        child.close()
        self.case, self.deadline = None, 0.0

    def give(self, case, chance, seconds):
        self.case, self.deadline = case, time.monotonic() + seconds
        self.connection.send((case, chance))

    def take(self):
        """The verdict on the case at hand, or None while it runs. A verdict of a lost child ends the worker."""
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return judge.Verdict("died", f"the process ended with {self.process.exitcode}")
        if time.monotonic() < self.deadline:
            return None
        self.stop()
        return judge.Verdict("too slow", "the limit of time was reached")

    def stop(self):
        self.process.kill()
        self.process.join()
        self.connection.close()


def run(cases, device="fsim", config="", chance=lambda case: False, jobs=None, seconds=SECONDS, progress=None):
    """{case: verdict} of all cases, those that take long first. chance(case): see judge.judge. progress(case, verdict)
    is called as they end."""
    waiting = sorted(cases, key=lambda case: (case.kind == "light", case.model.stat().st_size))
    workers = [Worker(device, config) for _ in range(max(1, min(len(waiting), jobs or os.cpu_count() or 1)))]
    verdicts = {}
    try:
        while len(verdicts) < len(cases):
            for i, worker in enumerate(workers):
                if worker.case is None:
                    if waiting:
                        case = waiting.pop()
                        worker.give(case, chance(case), seconds)
                    continue
                verdict = worker.take()
                if verdict is None:
                    continue
                case, worker.case = worker.case, None
                verdicts[case] = verdict
                if progress:
                    progress(case, verdict)
                if verdict.outcome in ("died", "too slow"):
                    worker.stop()
                    workers[i] = Worker(device, config)
            if not any(worker.case is None and waiting for worker in workers):
                wait([w.connection for w in workers if w.case is not None], timeout=0.5)
    finally:
        for worker in workers:
            worker.stop()
    return {case: verdicts[case] for case in cases}

# SPDX-License-Identifier: Apache-2.0
"""Latency of an urgent model under the load of another one, on a chip of four cores (timing model): alone, beside the
other on its own two cores, and on the same two cores with and without priority. Latency is that of requests in this
process, in the time of the host, so that it measures waiting for programs; the programs' cycles stand beside it."""

import pathlib
import statistics
import threading
import time

import numpy as np

import tessera

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "examples" / "digits"
CASES = (  # name, cores and priority of the urgent model, cores of the other; None: there is no load
    ("alone on two cores", [0, 1], 0, None),
    ("beside the load, on other cores", [0, 1], 0, [2, 3]),
    ("on the load's cores, same priority", [0, 1], 0, [0, 1]),
    ("on the load's cores, higher priority", [0, 1], 1, [0, 1]),
)
PROGRAMS = 4  # sessions of the load, so that as many of its programs wait
ROWS = 64  # of a run of the load


def row_of(name, cores, priority, load, requests):
    images = np.load(DIGITS / "digits_test.npz")["images"]
    urgent_feeds, load_feeds = {"image": images[:4]}, {"image": images[:ROWS]}
    chip = tessera.Chip("npu256x4", "sysc")
    urgent = tessera.Session(DIGITS / "digits.onnx", chip=chip, cores=cores, priority=priority, profile=False)
    urgent.run(None, urgent_feeds)
    others = []
    if load:
        for _ in range(PROGRAMS):
            others.append(tessera.Session(DIGITS / "digits.onnx", chip=chip, cores=load, profile=False))
            others[-1].run(None, load_feeds)
    ended, answered = threading.Event(), [0] * PROGRAMS

    def ask(number):
        while not ended.is_set():
            others[number].run(None, load_feeds)
            answered[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(others))]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    times = []
    for _ in range(requests):
        start = time.perf_counter()
        urgent.run(None, urgent_feeds)
        times.append(time.perf_counter() - start)
        time.sleep(0.002)
    seconds = time.perf_counter() - begun
    ended.set()
    for thread in threads:
        thread.join()
    times.sort()
    return {
        "urgent_model": name,
        "median_ms": round(1000 * statistics.median(times), 2),
        "p99_ms": round(1000 * times[min(len(times) - 1, int(0.99 * len(times)))], 2),
        "cycles": urgent.stats().cycles,
        "load_runs_a_second": round(sum(answered) / seconds, 1),
    }


def rows(requests=100):
    return [row_of(*case, requests) for case in CASES]

# SPDX-License-Identifier: Apache-2.0
"""What a unit of work costs beside the work, and how far that scales. Enters: nothing. Leaves: milliseconds of the
client for a unit on processes and on Dask (units that do nothing), for keeping a result; and a simulation of one client
with up to ten thousand workers, whose units take the time of real ones and whose client computes for the measured
time."""

import heapq
import pathlib
import random
import sys
import tempfile
import time

UNITS = 400
SIMULATED_UNITS = 20_000
SECONDS = (0.5, 4.0)  # of a unit, uniformly: about the two seconds that the explorer aims at


def nothing(payload, _):
    return payload


def overhead(kind):
    """(milliseconds, those of them in which this process computes) for a unit that does nothing, workers started. The
    scheduler of a Dask cluster of this machine is in this process."""
    from tessera import workers

    with workers.open_pool(kind, {"network": b"x" * 4_000_000}) as pool:

        def run(count):
            left = iter(range(count))
            seen = []
            start, busy = time.perf_counter(), time.process_time()
            pool.run("scale:nothing", lambda: next(((f"u{i}", i) for i in left), None), lambda *one: seen.append(one))
            assert len(seen) == count
            return tuple(
                round(1000 * seconds / count, 3)
                for seconds in (time.perf_counter() - start, time.process_time() - busy)
            )

        run(8)
        return run(UNITS)


def keeping(folder):
    """Milliseconds to keep a unit's results: four machines, a transaction."""
    from tessera.exploration import results

    kept = results.Results(pathlib.Path(folder) / "kept.db")
    text = "x" * 500
    start = time.perf_counter()
    for unit in range(UNITS):
        kept.add([(f"{unit}-{at}", "network", text, "predict", {"cycles": at}) for at in range(4)])
    return 1000 * (time.perf_counter() - start) / UNITS


def simulated(workers, client_seconds, seed=1):
    """Speed-up of `workers` with one client that takes `client_seconds` for each result, in turn, before the worker
    gets its next unit. Each worker has one unit in hand."""
    generator = random.Random(seed)
    units = [generator.uniform(*SECONDS) for _ in range(SIMULATED_UNITS)]
    events, free, done = [], 0.0, 0.0
    left = iter(units)
    for _, seconds in zip(range(workers), left):
        free += client_seconds
        heapq.heappush(events, free + seconds)
    while events:
        ready = heapq.heappop(events)
        free = max(free, ready) + client_seconds
        done = free
        seconds = next(left, None)
        if seconds is not None:
            heapq.heappush(events, free + seconds)
    return sum(units) / done


def bench():
    kinds = ["1", "2"]
    try:
        import distributed  # noqa: F401

        kinds += ["dask:1", "dask:2"]
    except ImportError:
        print("no package distributed: Dask is left out", file=sys.stderr)
    costs = {kind: overhead(kind) for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        kept = round(keeping(folder), 3)
    rows = []
    for workers in (1, 2, 10, 100, 1000, 10_000):
        row = {"workers": workers}
        for kind in (kinds[1], kinds[-1]):
            row[f"speed-up, client as with {kind}"] = round(simulated(workers, (costs[kind][1] + kept) / 1000), 1)
        rows.append(row)
    return {"simulated": rows, "milliseconds_a_unit_and_busy": costs, "milliseconds_to_keep": kept}

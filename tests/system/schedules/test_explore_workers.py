# SPDX-License-Identifier: Apache-2.0
"""`tessera explore` on several processes and on Dask: workers that die, schedulers that go away or do not answer."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from tessera import workers

# --- workers


def units(keys):
    left = iter(keys)
    return lambda: next(((f"unit{key}", key) for key in left), None)


@pytest.mark.parametrize("kind", ["2", "dask:2"])
def test_each_unit_is_reported_once_though_workers_die(tmp_path, kind):
    if kind.startswith("dask"):
        pytest.importorskip("distributed")
    seen = []
    shared = {"folder": str(tmp_path).encode()}
    with workers.open_pool(kind, shared) as pool:
        pool.run(
            "tests.system.explore_worker:dies_once", units(range(12)), lambda key, result: seen.append((key, result))
        )
    assert sorted(seen) == sorted((f"unit{key}", key * key) for key in range(12))


def started(line, file, environment):
    """A process that writes its scheduler's address into a file, and the address."""
    child = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        time.sleep(0.05)
        if file.exists() and file.stat().st_size:
            break
    return child, json.loads(file.read_text())["address"]


def test_killed_scheduler_loses_no_result(exploring, tmp_path):
    pytest.importorskip("distributed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    file, cli = tmp_path / "scheduler.json", [sys.executable, "-m"]
    line = [*cli, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    scheduler, address = started([*line, "--scheduler-file", str(file)], file, environment)
    line = [*cli, "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    worker = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        found = exploring(workers=f"dask:{address}")
        kept = found.kept.add

        def kill(rows):
            kept(rows)
            scheduler.kill()

        found.kept.add = kill
        with pytest.raises(ConnectionError, match="scheduler of Dask is gone"):
            found.grid(screen=False)
        before = found.kept.count()
        assert 0 < before < 8
        other = exploring()
        assert len(other.grid(screen=False)) == 8 and other.compiled["predict"] == 8 - before
    finally:
        for child in (scheduler, worker):
            child.kill()
            child.wait()


def test_a_scheduler_without_workers_is_told(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(workers.DaskPool, "START_SECONDS", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        workers.open_pool(f"dask:{cluster.scheduler_address}") as pool,
        pytest.raises(ConnectionError, match="no worker of Dask came"),
    ):
        pool.run("tests.system.explore_worker:raises", units([1]), lambda *_: None)


def test_a_scheduler_that_does_not_answer_is_named_with_the_way_out(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers.DaskPool, "CONNECT_SECONDS", 0.5)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"no scheduler of Dask answers at {address}.*dask scheduler.*number"):
            workers.open_pool(f"dask:{address}")


def test_a_unit_that_kills_every_worker_is_lost_and_no_other(tmp_path):
    seen = {}
    with workers.open_pool("2", {}) as pool:
        pool.run("tests.system.explore_worker:dies_on_three", units(range(6)), seen.__setitem__)
    assert seen.pop("unit3") == workers.Lost(workers.TRIES)
    assert seen == {f"unit{key}": key for key in range(6) if key != 3}


def test_what_a_function_raises_is_shown():
    with workers.open_pool("1", {}) as pool, pytest.raises(workers.Failure, match="on purpose"):
        pool.run("tests.system.explore_worker:raises", units([1]), lambda *_: None)


def test_workers_that_cannot_start_end_the_run(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with workers.open_pool("2", {}) as pool, pytest.raises(workers.Failure, match="cannot start"):
        pool.run("tests.system.explore_worker:raises", units([1, 2]), lambda *_: None)


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "many", "dask2", "\u00b2", "9" * 5000, "dask:0", "dask:\u00b2", "dask:host", "dask:carrier://host:8786"]
    + ["dask:tcp://host:0", "dask:tcp://host:65536", "dask:tcp://host/path:8786"],
)
def test_bad_workers_are_refused(text):
    with pytest.raises(ValueError, match="dask"):
        workers.open_pool(text)

# SPDX-License-Identifier: Apache-2.0
"""`tessera tune`: that a seed finds the same schedules with any number of workers, that what was killed goes on and
loses nothing, that every interface takes what was found, and what is refused. The oracle of results is the same model
without tuned schedules, of cycles the device that runs them."""

import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import _tessera
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tessera
from tessera import tuning, workers
from tessera.tuning.database import NETWORKS, Database

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import networks  # noqa: E402

from .tuned_digits import DIGITS, as_another_build_wrote_it, feeds, session_of, timed  # noqa: E402

BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release"))
SMALL = {"config": "npu64", "trials": 20, "judge": "replay"}

LONG = bool(os.environ.get("TESSERA_LONG"))


def line(database, *more):
    words = [sys.executable, "-m", "tessera.tuning", str(DIGITS), "--config", "npu64", "--db", str(database)]
    return [*words, "--judge", "replay", "--json", *more]


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def units(database):
    try:
        with sqlite3.connect(database, timeout=10) as connection:
            return connection.execute("SELECT COUNT(*) FROM units").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    database = tmp_path_factory.mktemp("tuned") / "tuned.db"
    return database, tuning.tune(DIGITS, database=database, **SMALL)


@timed
@pytest.mark.parametrize("config", ["npu256", "npu1024"])
def test_a_tuning_begins_with_what_a_compilation_chooses(tmp_path, config):
    """Short streams are compiled in several ways, and layouts of a chain's input belong to its schedule."""
    model, feeds = networks.build("ds_cnn")
    session = tessera.Session(model, "fsim", config, profile=False)
    session.run(None, feeds)
    path = tmp_path / "ds_cnn.onnx"
    path.write_bytes(model)
    bench = _tessera.Tuning(str(path), config, {}, {})
    chosen = bench.chosen()
    assert not [why for piece, text in chosen if (why := bench.obstacle(piece, text))]
    assert bench.whole(chosen, "replay")[0] == session.stats().predicted_cycles
    # Weights that are equal stand in memory once, as in a program.
    session = tessera.Session(model, "sysc", config)
    session.run(None, feeds)
    assert bench.whole(chosen, "sysc")[0] == session.stats().cycles


@timed
def test_strips_change_cycles_and_no_result():
    """Of every layer and chain of the compiler's choice; the oracle is the same model with whole tiles."""
    session = session_of("sysc", "npu64")
    values, cycles = feeds(session), {}
    for strips in (0, 8, 64):
        schedules = json.loads(json.dumps(session.schedules()))
        for schedule in schedules.values():
            for part in schedule if isinstance(schedule, list) else [schedule.get("tile", schedule)]:
                part["strips"] = strips
        other = session_of("sysc", "npu64", schedules=schedules)
        results = other.run(None, values)
        cycles[strips] = other.stats().cycles
        if strips == 0:
            expected = results
        assert all(np.array_equal(a, b) for a, b in zip(results, expected))
    assert cycles[8] != cycles[0]


def test_every_interface_takes_what_was_found(tuned, command, tmp_path):
    database, found = tuned
    assert found.cycles <= found.default_cycles
    session = session_of("fsim", "npu64", tuned=str(database))
    assert session.schedules() == found.schedules
    plain = session_of("fsim", "npu64")
    values = feeds(plain)
    assert all(np.array_equal(a, b) for a, b in zip(session.run(None, values), plain.run(None, values)))
    assert session.stats().predicted_cycles == found.cycles
    for words in (["compile", DIGITS, "-o", tmp_path / "a.tsr", "-q"], ["schedule", DIGITS, "-o", tmp_path / "s.json"]):
        done = command(*words, "--config", "npu64", "--shape", "image=1,1,8,8", "--tuned", database)
        assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "s.json").read_text()) == found.schedules
    session.save(tmp_path / "b.tsr")
    assert (tmp_path / "a.tsr").read_bytes() == (tmp_path / "b.tsr").read_bytes()
    # Another machine, another memory: nothing is known, and nothing changes.
    for config, options in (("npu256", {}), ("npu64", {"dram_latency": 300})):
        known = session_of("fsim", config, tuned=str(database), **options)
        assert known.schedules() == session_of("fsim", config, **options).schedules()
    # What the user gives comes first.
    layer = next(iter(plain.schedules()))
    own = {layer: plain.schedules()[layer]}
    assert session_of("fsim", "npu64", tuned=str(database), schedules=own).schedules()[layer] == own[layer]


@pytest.mark.parametrize("names", ["other{}", "same", ""])
def test_a_model_whose_layers_have_other_names_takes_what_was_found(tuned, tmp_path, names):
    """The same network as another exporter writes it: chains name their layers, and a record has them by name."""
    database, found = tuned
    copy, path = tmp_path / "names.db", tmp_path / "named.onnx"
    copy.write_bytes(database.read_bytes())
    model = onnx.load(DIGITS)
    for number, node in enumerate(model.graph.node):
        node.name = names.format(number)
    onnx.save(model, path)
    shapes = {"image": [1, 1, 8, 8]}
    plain, values = tessera.Session(path, "fsim", "npu64", shapes=shapes), feeds(session_of("fsim", "npu64"))
    expected = plain.run(None, values)

    def cycles():
        session = tessera.Session(path, "fsim", "npu64", shapes=shapes, tuned=str(copy))
        assert all(np.array_equal(a, b) for a, b in zip(session.run(None, values), expected))
        return session.stats().predicted_cycles

    assert any("chain" in schedule for schedule in found.schedules.values())
    assert cycles() == found.cycles
    outcome = tuning.tune(path, database=copy, **{**SMALL, "trials": 60})
    assert cycles() == outcome.cycles <= found.default_cycles
    with sqlite3.connect(copy) as connection:
        connection.execute("DELETE FROM networks")
    assert cycles() <= found.default_cycles
    again = tuning.tune(path, database=copy, **SMALL)
    assert set(again.schedules) == set(plain.schedules()) and again.cycles == found.cycles
    assert tessera.Session(path, "fsim", "npu64", shapes=shapes, schedules=again.schedules).schedules()


def test_what_another_build_found_for_other_names_is_judged_again(tuned, tmp_path):
    database, found = tuned
    path, lines = tmp_path / "old.db", []
    schedules = {f"old {number}": schedule for number, schedule in enumerate(found.schedules.values())}
    as_another_build_wrote_it(database, path, schedules=json.dumps(schedules))
    tuning.tune(DIGITS, progress=lines.append, **{**SMALL, "trials": 2}, database=path)
    assert any(f"judged again: {found.cycles} cycles by replay" in text for text in lines), lines


def test_a_model_with_external_data(tuned, tmp_path):
    _, found = tuned
    path = tmp_path / "external.onnx"
    onnx.save_model(
        onnx.load(DIGITS), path, save_as_external_data=True, location="w.bin", size_threshold=0, convert_attribute=True
    )
    read = onnx.load_model_from_string(_tessera.model_bytes(str(path)))
    given, whole = onnx.load(DIGITS), {tensor.name: numpy_helper.to_array(tensor) for tensor in read.graph.initializer}
    assert given.graph.initializer and len(whole) == len(given.graph.initializer)
    for tensor in given.graph.initializer:
        assert np.array_equal(whole[tensor.name], numpy_helper.to_array(tensor))
    assert _tessera.model_bytes(str(DIGITS)) == DIGITS.read_bytes()
    outcome = tuning.tune(path, database=tmp_path / "t.db", workers="2", **SMALL)
    assert outcome.schedules == found.schedules
    (tmp_path / "w.bin").write_bytes(b"few")
    with pytest.raises(tessera.Error, match="external.onnx.*initializer.*'w.bin' has 3 bytes"):
        _tessera.model_bytes(str(path))


def test_external_data_in_subgraphs_and_attributes(tmp_path):
    """Of an If: an initializer of one branch, and the value of a Constant in the other."""
    values = {name: np.arange(3, dtype=np.float32) + at for at, name in enumerate(("first", "second"))}
    result = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])]
    first = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["first"], ["y"])], "a", [], result,
        [numpy_helper.from_array(values["first"], "first")],
    )  # fmt: skip
    constant = onnx.helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(values["second"], "second"))
    second = onnx.helper.make_graph([constant], "b", [], result)
    chosen = onnx.helper.make_node("If", ["c"], ["y"], then_branch=first, else_branch=second)
    condition = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    model = onnx.helper.make_model(onnx.helper.make_graph([chosen], "g", [condition], result))
    path = tmp_path / "if.onnx"
    onnx.save(model, path)
    for tensor in (first.initializer[0], constant.attribute[0].t):
        (tmp_path / f"{tensor.name}.bin").write_bytes(tensor.raw_data)
    outside = onnx.load(path)
    branches = [attribute.g for attribute in outside.graph.node[0].attribute]
    for graph in branches:
        for tensor in [*graph.initializer, *(a.t for node in graph.node for a in node.attribute)]:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=f"{tensor.name}.bin")
    onnx.save(outside, path)
    whole = onnx.load_model_from_string(_tessera.model_bytes(str(path)))
    assert whole == model
    for condition in (True, False):
        feed = {"c": np.array(condition)}
        (got,) = tessera.Session(whole.SerializeToString(), "fsim", "npu64").run(None, feed)
        assert np.array_equal(got, values["first" if condition else "second"])


def test_a_machine_that_is_a_file_comes_as_its_text(tmp_path, monkeypatch, odd_config):
    """Workers need not find the file: it has gone before they are started."""
    path = tmp_path / "machine.toml"
    path.write_bytes(pathlib.Path(odd_config).read_bytes())
    monkeypatch.chdir(tmp_path)
    few = {**SMALL, "trials": 6}
    gone = tuning.tune(
        DIGITS,
        database=tmp_path / "a.db",
        progress=lambda _: path.unlink(missing_ok=True),
        **{**few, "config": "machine.toml"},
    )
    kept = tuning.tune(DIGITS, database=tmp_path / "b.db", **{**few, "config": odd_config})
    assert gone.schedules == kept.schedules and not path.exists()
    path.write_text("batch = 1")
    with pytest.raises(tessera.Error, match="^machine.toml: .*missing"):
        tuning.tune(DIGITS, database=tmp_path / "a.db", **{**few, "config": "machine.toml"})


def test_layers_are_known_beyond_their_model(tuned, tmp_path):
    database, found = tuned
    copy = tmp_path / "layers.db"
    copy.write_bytes(database.read_bytes())
    with sqlite3.connect(copy) as connection:
        connection.execute("DELETE FROM networks")
    session = session_of("fsim", "npu64", tuned=str(copy))
    values = feeds(session)
    session.run(None, values)
    assert session.stats().predicted_cycles <= found.default_cycles


def test_a_seed_decides_and_nothing_is_done_twice(tuned, tmp_path):
    database, found = tuned
    other = tuning.tune(DIGITS, database=tmp_path / "other.db", workers="2", **SMALL)
    assert (other.schedules, other.trials) == (found.schedules, found.trials)
    again = tuning.tune(DIGITS, database=tmp_path / "other.db", **SMALL)
    assert again.schedules == found.schedules and again.known_units == again.units == units(tmp_path / "other.db")
    different = tuning.tune(DIGITS, database=tmp_path / "third.db", seed=2, **{**SMALL, "trials": 8})
    assert different.units > 0 and different.known_units == 0


@pytest.mark.parametrize("trials", [1, 2, 3, 7, 18])
def test_as_many_schedules_are_measured_as_was_said(tmp_path, trials):
    lines = []
    outcome = tuning.tune(DIGITS, database=tmp_path / "t.db", progress=lines.append, **{**SMALL, "trials": trials})
    assert outcome.trials == trials
    assert trials == 1 or f" {trials} of {trials} trials" in lines[-1]


def killed_after_two_units(words, database):
    """Starts a tuning and kills it when its database has two units; the number of units that it then has."""
    child = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None and units(database) < 2:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return units(database)


def test_killed_in_the_middle_goes_on(tuned, tmp_path):
    _, found = tuned
    database = tmp_path / "killed.db"
    words = line(database, "--trials", "20", "--workers", "2")
    kept = killed_after_two_units(words, database)
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["schedules"] == found.schedules and outcome["known_units"] >= kept >= 2


@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.3, 1.0])
def test_ctrl_c_at_any_moment_ends_in_order(tmp_path, seconds):
    """Also while Python imports, and while workers start."""
    words = [BUILD / "bin" / "tessera", "tune", DIGITS, "--trials", "100000", "--config", "npu64"]
    child = subprocess.Popen(
        [*words, "--db", tmp_path / "t.db", "--workers", "2", "-q"],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(child.pid, signal.SIGINT)  # as the terminal does
    _, said = child.communicate(timeout=60)
    assert child.returncode in (-signal.SIGINT, 130) and "Traceback" not in said, said
    assert said in ("", "tessera: ended; the same command goes on from here\n")


def test_a_worker_that_dies_loses_nothing(tuned, tmp_path):
    _, found = tuned
    killed, database = [], tmp_path / "dying.db"

    def kill():
        mine = f"/proc/{os.getpid()}/task"
        for _ in range(2000):
            time.sleep(0.005)
            if units(database) == 0:
                continue  # the workers may not have begun
            children = [pid for task in os.listdir(mine) for pid in read(f"{mine}/{task}/children").split()]
            for pid in children:
                if "tessera.workers" in read(f"/proc/{pid}/cmdline"):
                    os.kill(int(pid), signal.SIGKILL)
                    killed.append(pid)
                    return

    thread = threading.Thread(target=kill)
    thread.start()
    outcome = tuning.tune(DIGITS, database=database, workers="2", **SMALL)
    thread.join()
    assert killed and outcome.schedules == found.schedules
    assert units(database) == outcome.units - outcome.known_units


def test_a_worker_that_is_killed_while_it_starts_loses_nothing(tuned, tmp_path, monkeypatch):
    _, found = tuned
    start, killed = workers.Worker.__init__, []

    def start_and_kill(self, shared):
        start(self, shared)
        if not killed:
            self.process.kill()
            killed.append(self.process)

    monkeypatch.setattr(workers.Worker, "__init__", start_and_kill)
    outcome = tuning.tune(DIGITS, database=tmp_path / "starting.db", workers="2", **SMALL)
    assert killed and outcome.schedules == found.schedules


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


@pytest.fixture
def cluster(tmp_path):
    """(address, scheduler, two workers) of Dask: processes of their own."""
    pytest.importorskip("distributed")
    file, quiet = tmp_path / "scheduler.json", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    line = [sys.executable, "-m", *words, "--scheduler-file", str(file)]
    children = [subprocess.Popen(line, env=environment(), **quiet)]
    try:
        for _ in range(600):
            if file.exists() and file.stat().st_size:
                break
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        words = ["distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        for _ in range(2):
            children.append(subprocess.Popen([sys.executable, "-m", *words], env=environment(), **quiet))
        yield address, *children
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.parametrize("victim", ["worker", "scheduler"])
def test_a_cluster_whose_parts_die_loses_nothing(tuned, tmp_path, cluster, monkeypatch, victim):
    _, found = tuned
    address, scheduler, worker, _ = cluster
    keep, dying = Database.keep_unit, worker if victim == "worker" else scheduler

    def keep_and_kill(self, key, result):
        keep(self, key, result)
        dying.kill()

    monkeypatch.setattr(Database, "keep_unit", keep_and_kill)
    database = tmp_path / "cluster.db"
    if victim == "worker":
        outcome = tuning.tune(DIGITS, database=database, workers=f"dask:{address}", **SMALL)
        assert outcome.known_units == 0
    else:
        with pytest.raises(tessera.Error, match="scheduler of Dask is gone") as caught:
            tuning.tune(DIGITS, database=database, workers=f"dask:{address}", **SMALL)
        assert caught.value.code == "io"
        kept = units(database)
        outcome = tuning.tune(DIGITS, database=database, **SMALL)
        assert outcome.known_units >= kept >= 1
    assert outcome.schedules == found.schedules and units(database) == outcome.units


def test_a_client_of_a_cluster_that_is_killed_loses_nothing(tuned, tmp_path, cluster):
    """The client, and then the cluster that it left in the middle of its units; another cluster is not needed."""
    _, found = tuned
    address, *parts = cluster
    database = tmp_path / "client.db"
    words = [*line(database, "--trials", "20"), "--workers", f"dask:{address}"]
    kept = killed_after_two_units(words, database)
    assert kept >= 2 and all(part.poll() is None for part in parts)
    on_the_cluster = tuning.tune(DIGITS, database=database, workers=f"dask:{address}", **{**SMALL, "trials": 14})
    assert on_the_cluster.known_units >= kept
    for part in parts:
        part.kill()
    outcome = tuning.tune(DIGITS, database=database, **SMALL)
    assert outcome.schedules == found.schedules and outcome.known_units >= kept
    assert units(database) >= outcome.units  # and those that ended where 14 trials did


def test_two_tuners_share_a_database(tmp_path):
    database = tmp_path / "shared.db"
    children = [
        subprocess.Popen(line(database, "--trials", "8", "--seed", seed), env=environment(), stdout=subprocess.PIPE)
        for seed in ("1", "2")
    ]
    outcomes = [json.loads(child.communicate()[0]) for child in children]
    assert all(child.returncode == 0 for child in children)
    session = session_of("fsim", "npu64", tuned=str(database))
    session.run(None, feeds(session))
    assert session.stats().predicted_cycles == min(outcome["cycles"] for outcome in outcomes)


def test_bad_databases_are_told(tuned, tmp_path, command):
    database, _ = tuned
    noise, other, missing = tmp_path / "noise.db", tmp_path / "other.db", tmp_path / "missing.db"
    noise.write_bytes(bytes(range(256)) * 64)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    for path, words in ((noise, "not a database"), (other, "something else|no tuning database")):
        for use in (lambda p=path: Database(p), lambda p=path: session_of("fsim", "npu64", tuned=str(p))):
            with pytest.raises(tessera.Error, match=words) as caught:
                use()
            assert caught.value.code == "io"
        before = path.read_bytes()
        done = subprocess.run(line(path), env=environment(), capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and path.read_bytes() == before
    done = command("compile", DIGITS, "-o", tmp_path / "x.tsr", "--config", "npu64", "--tuned", missing)
    assert done.returncode == 1 and "no such file" in done.stderr and not missing.exists()
    with pytest.raises(tessera.Error, match="unable to open.*its folder"):
        Database(tmp_path / "no" / "folder.db")
    with pytest.raises(tessera.Error, match="needs a name"):
        Database("")
    broken = tmp_path / "broken.db"
    content = bytearray(database.read_bytes())
    content[4096 : len(content)] = b"\xa5" * (len(content) - 4096)
    broken.write_bytes(bytes(content))
    with pytest.raises(tessera.Error, match="malformed|not a database"):
        session_of("fsim", "npu64", tuned=str(broken))


@pytest.mark.parametrize(
    "statement, words",
    [
        ("UPDATE units SET result='{'", "a unit of work is damaged: '{'"),
        ("UPDATE units SET result='[]'", "a unit of work is damaged"),
        ("UPDATE units SET result='{\"trials\": 3}'", "a unit of work is damaged"),
        ('UPDATE units SET result=\'{"trials": [[1, 2, [["a", 3]]]]}\'', "a unit of work is damaged"),
        ("UPDATE units SET result=x'fffe'", "a unit of work is damaged"),
        ('UPDATE units SET result=\'{"trials": [], "divided": [[1, 2, [[1, "a"]], 3]]}\'', "a unit of work is damaged"),
        ("UPDATE networks SET schedules='[]'", "a record's schedules is damaged"),
        ("UPDATE networks SET schedules='{'", "a record's schedules is damaged"),
        ("UPDATE networks SET provenance='7'", "a record's provenance is damaged"),
        ("UPDATE networks SET provenance='{'", "malformed"),
        ("DROP TABLE units", "no such table"),
    ],
)
def test_a_damaged_row_is_told(tuned, tmp_path, statement, words):
    path = tmp_path / "damaged.db"
    path.write_bytes(tuned[0].read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    with pytest.raises(tessera.Error, match=f"damaged.db': {words}.*move the file away") as caught:
        tuning.tune(DIGITS, database=path, **SMALL)
    assert caught.value.code == "io"


def test_a_database_that_takes_nothing_is_told(tmp_path):
    with Database(tmp_path / "kept.db") as database:
        database._file.execute("PRAGMA query_only=1")  # as a file that may only be read
        with pytest.raises(tessera.Error, match="readonly.*make it writable"):
            database.keep_unit("first", {"trials": []})


def test_a_worker_of_another_build_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("tessera.tuning.tuner.BUILD", "another")
    with pytest.raises(tessera.Error, match="another build of Tessera") as caught:
        tuning.tune(DIGITS, database=tmp_path / "t.db", **SMALL)
    assert caught.value.code == "unsupported" and units(tmp_path / "t.db") == 0


def test_workers_that_cannot_start_end_the_tuning(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(tessera.Error, match="a worker failed: .*cannot start"):
        tuning.tune(DIGITS, database=tmp_path / "t.db", **SMALL)


def test_a_scheduler_without_workers_is_told(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(workers.DaskPool, "START_SECONDS", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        pytest.raises(tessera.Error, match="no worker of Dask came") as caught,
    ):
        tuning.tune(DIGITS, database=tmp_path / "t.db", workers=f"dask:{cluster.scheduler_address}", **SMALL)
    assert caught.value.code == "io"


@pytest.mark.parametrize("changes", [{}, {"compiler": "0.0.1"}])
def test_what_another_build_found_is_judged_again(tuned, tmp_path, changes):
    database, found = tuned
    path, lines = tmp_path / "old.db", []
    as_another_build_wrote_it(database, path, **changes)
    if not changes:
        assert session_of("fsim", "npu64", tuned=str(path)).schedules() == found.schedules
    few = {**SMALL, "trials": 6, "database": path}
    outcome = tuning.tune(DIGITS, progress=lines.append, **few)
    assert any(f"judged again: {found.cycles} cycles by replay" in text for text in lines), lines
    assert 1 < outcome.cycles <= found.cycles and outcome.default_cycles == found.default_cycles
    with Database(path) as written:
        bench = _tessera.Tuning(str(DIGITS), "npu64", {}, {})
        key = (bench.model_key, bench.machine_key, _tessera.compiler_version())
        assert written.network(*key)["cycles"] == outcome.cycles
        assert written.network(*key)["provenance"]["build"]
        assert written.layer(bench.pieces()[0]["key"], *key[1:])[1] > 1
    again = tuning.tune(DIGITS, **few)  # as one that was killed: it begins where the first one began
    assert (again.schedules, again.known_units) == (outcome.schedules, outcome.units)


def test_records_of_other_judges_stand_beside_each_other(tuned, tmp_path):
    path, key = tmp_path / "judges.db", ("model", "machine", "compiler")
    tuned_by = {"bytes": 1, "default_cycles": 9, "schedules": {}, "provenance": {"build": "one"}}
    with Database(path) as database:
        for judge, cycles in (("replay", 5), ("sysc", 7), ("mine", 2), ("replay", 3), ("sysc", 8), ("replay", 4)):
            database.keep_network(key, {**tuned_by, "judge": judge, "cycles": cycles})
        found = [(record["judge"], record["cycles"]) for record in database.networks(*key)]
        assert found == [("sysc", 7), ("replay", 3), ("mine", 2)] and database.network(*key)["cycles"] == 7
        database.keep_network(key, {**tuned_by, "judge": "sysc", "cycles": 8, "provenance": {"build": "two"}})
        assert database.network(*key)["cycles"] == 8 and database.networks(*key)[1]["cycles"] == 3


def test_a_database_of_the_form_before_is_read_and_written(tuned, tmp_path):
    database, found = tuned
    path = tmp_path / "before.db"
    path.write_bytes(database.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE networks RENAME TO later")
        connection.execute(NETWORKS.replace(", judge))", "))"))
        connection.execute("INSERT INTO networks SELECT * FROM later")
        connection.execute("DROP TABLE later")
        connection.execute("PRAGMA user_version=1")
    assert session_of("fsim", "npu64", tuned=str(path)).schedules() == found.schedules
    again = tuning.tune(DIGITS, database=path, **SMALL)
    assert again.schedules == found.schedules and again.known_units == again.units
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_what_another_build_found_is_judged_before_it_is_taken(tuned, tmp_path):
    """A record is worse than the compiler's choice: it is taken while it tells of this build, and else left out. A
    better one is taken in any case."""
    database, found = tuned
    bench = _tessera.Tuning(str(DIGITS), "npu64", {}, {})
    chosen = bench.chosen()
    default = bench.whole(chosen, "replay")[0]
    worse = max(
        ([(piece, bench.sample(piece, seed)) for piece, _ in chosen] for seed in range(8)),
        key=lambda state: bench.whole(state, "replay")[0],
    )
    cycles = bench.whole(worse, "replay")[0]
    assert cycles > default
    schedules = {layer: json.loads(text) for piece, text in worse for layer in bench.pieces()[piece]["layers"]}
    path, plain = tmp_path / "worse.db", session_of("fsim", "npu64").schedules()

    def taken(replay, default_replay):
        as_another_build_wrote_it(database, path, schedules=json.dumps(schedules))
        told = json.dumps({"replay": replay, "default_replay": default_replay})
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE networks SET provenance=?", (told,))
        return session_of("fsim", "npu64", tuned=str(path)).schedules()

    assert taken(cycles, default) == schedules
    assert taken(cycles - 1, default) == taken(cycles, default + 1) == taken(None, None) == plain
    schedules = found.schedules
    assert taken(None, None) == found.schedules


def test_what_another_build_found_may_be_illegal_now(tuned, tmp_path):
    database, found = tuned
    path, lines = tmp_path / "old.db", []
    schedules = json.loads(json.dumps(found.schedules))
    for level in next(schedule for schedule in schedules.values() if "levels" in schedule)["levels"]:
        level["factor"] = 100000
    as_another_build_wrote_it(database, path, schedules=json.dumps(schedules))
    outcome = tuning.tune(DIGITS, progress=lines.append, **{**SMALL, "trials": 2}, database=path)
    assert any("not legal now" in text for text in lines) and outcome.cycles <= outcome.default_cycles


def test_a_full_disk_is_told_and_what_was_kept_stays(tmp_path):
    with Database(tmp_path / "kept.db") as database:
        database.keep_unit("first", {"trials": []})
        pages = database._one("PRAGMA page_count")
        database._file.execute(f"PRAGMA max_page_count={pages}")  # as a disk without room
        with pytest.raises(tessera.Error, match="full.*make room"):
            database.keep_unit("second", {"trials": ["x" * 100000]})
        assert database.unit("first") == {"trials": []} and database.unit("second") is None


@pytest.mark.parametrize(
    "options, words",
    [
        ({"search": "luck"}, "there is no search 'luck'"),
        ({"judge": "closed-form"}, "alone"),
        ({"judge": "jury"}, "there is no judge 'jury' of a tuning; known: replay, sysc, rtl"),
        ({"workers": "many"}, "workers 'many'"),
        ({"workers": "dask:0"}, "workers 'dask:0'"),
        ({"config": "npu0"}, "npu0"),
    ],
)
def test_what_is_refused(tmp_path, options, words):
    with pytest.raises(tessera.Error, match=words):
        tuning.tune(DIGITS, database=tmp_path / "t.db", **{**SMALL, **options})


def test_a_record_that_is_illegal_is_refused_like_a_given_schedule(tuned, tmp_path):
    database, found = tuned
    copy = tmp_path / "wrong.db"
    copy.write_bytes(database.read_bytes())
    layer, schedule = next((k, v) for k, v in found.schedules.items() if "levels" in v)
    for level in schedule["levels"]:
        level["factor"] = 100000
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE networks SET schedules=?", (json.dumps({layer: schedule}),))
    with pytest.raises(tessera.Error, match=f"'{layer}'.*illegal"):
        session_of("fsim", "npu64", tuned=str(copy))

# SPDX-License-Identifier: Apache-2.0
"""The command `tessera explore`: table, JSON and pictures, what is refused, kept results, and interruptions."""

import concurrent.futures
import errno
import json
import os
import pathlib
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import xml.dom.minidom

import _tessera
import pytest

from tessera.exploration import command as command_module
from tessera.exploration import results, space
from tests.system.schedules.explored import DIGITS, SMALL

# --- the command


def space_file(tmp_path, **changes):
    content = {**SMALL, **changes}
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for section, entries in content.items():
        if isinstance(entries, dict):
            lines += [f"[{section}]"] + [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
    path = tmp_path / "space.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_command_writes_table_and_json(command, tmp_path):
    output = tmp_path / "front.json"
    done = command(
        "explore", space_file(tmp_path), "--network", DIGITS, "-o", output, "--db", tmp_path / "kept.db", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(output.read_text())
    assert content["schema"] == "tessera.explore/1" and len(content["points"]) == 8
    numbers = {point["number"] for point in content["points"]}
    assert content["front"] and set(content["front"]) <= numbers
    assert "The best machine for digits by milliseconds is" in done.stdout and "LUT" in done.stdout


def test_command_draws(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    from tessera.exploration import command as module

    monkeypatch.chdir(tmp_path)
    line = [str(space_file(tmp_path)), "--network", str(DIGITS), "-q", "--picture", "front.svg", "--picture", "a.png"]
    assert module.main(line) == 0 and not capsys.readouterr().err
    assert "<svg" in (tmp_path / "front.svg").read_text() and (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


def test_names_in_pictures_are_text(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    path = space_file(tmp_path, name="$\\frac$ \x01 <&> \u6f22 " + "long " * 40)
    line = [str(path), "--network", str(DIGITS), "-q", "--picture", "front.svg", "--picture", "a.png"]
    assert command_module.main(line) == 0 and not capsys.readouterr().err
    assert xml.dom.minidom.parse("front.svg").documentElement.tagName == "svg"
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_database_of_something_else_is_left_as_it_is(tmp_path, version):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute(f"PRAGMA user_version={version}")
    before = path.read_bytes()
    with pytest.raises(_tessera.Error, match="something else"):
        results.Results(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "changes, arguments, says",
    [
        ({"constraints": {"lut": 10}}, [], "no machine of the space is left: 8 more than 10 lut"),
        ({"machine": {"block_in": [7]}}, [], "block_in = 7"),
        ({}, ["--network", "missing.onnx"], "network 'missing': cannot read 'missing.onnx'"),
        ({}, ["--workers", "none"], "--workers 'none'"),
        ({}, ["--method", "random", "--seed", "-1"], "--seed takes a number from 0 on, not -1"),
        ({}, ["--method", "nsga2", "--screen", "yes"], "leave --screen out"),
        ({}, ["-o", "no/such/folder/x.json"], "there is no such folder"),
        ({}, ["-o", "."], "it is a folder"),
        ({}, ["--picture", "x.gif"], ".png or .svg"),
    ],
)
def test_command_refuses_in_one_line(command, tmp_path, changes, arguments, says):
    done = command("explore", space_file(tmp_path, **changes), "--network", DIGITS, *arguments, cwd=tmp_path)
    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_broken_results_file_is_told(command, tmp_path):
    kept = tmp_path / "kept.db"
    kept.write_bytes(b"this is no database" * 100)
    done = command("explore", space_file(tmp_path), "--network", DIGITS, "--db", kept)
    assert done.returncode == 1 and str(kept) in done.stderr and "delete it" in done.stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"cycles": "many", "bytes": 2, "issued_macs": 3}', None])
def test_result_that_is_none_is_told(tmp_path, text):
    kept = results.Results(tmp_path / "kept.db")
    kept.add([("first", "n", "m", "predict", {"cycles": 1, "bytes": 2, "issued_macs": 3})])
    kept.connection.execute("PRAGMA ignore_check_constraints = 1")
    kept.connection.execute("UPDATE evaluations SET result = ?", (text if text is not None else b"\xff\xfe",))
    with pytest.raises(_tessera.Error, match="kept.db.*is no result.*--db"):
        kept.find(["first"])


def test_output_that_cannot_be_written_leaves_what_stood_there(tmp_path, monkeypatch):
    path = tmp_path / "front.json"
    path.write_text("before")

    def full(self, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    with pytest.raises(_tessera.Error, match="front.json.*No space"):
        command_module.write(path, "after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_full_disk_takes_no_picture_away_and_hides_no_table(tmp_path, capsys, monkeypatch):
    """Files of at most 40 KB, as a disk with so much room: the results fit, and the picture does not."""
    pytest.importorskip("matplotlib")
    line = [str(space_file(tmp_path)), "--network", str(DIGITS), "-q", "--db", str(tmp_path / "kept.db")]
    assert command_module.main(line) == 0
    table = capsys.readouterr().out
    drawn = tmp_path / "front.png"
    drawn.write_bytes(b"before")
    line = ["-m", "tessera.exploration", *line, "--picture", str(drawn)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40960, 40960))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, *line], capture_output=True, text=True, preexec_fn=limit, env=environment, timeout=120
    )
    assert done.returncode == 1 and done.stdout == table
    assert "cannot write" in done.stderr and len(done.stderr.splitlines()) == 1
    assert drawn.read_bytes() == b"before" and not list(tmp_path.glob("*.part"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_standard_output_that_takes_nothing_is_told(tmp_path):
    line = ["-m", "tessera.exploration", str(space_file(tmp_path)), "--network", str(DIGITS), "-q"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, *line], stdout=full, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
        )
    assert done.returncode != 0 and done.stderr.startswith("tessera: error (io): cannot write to the standard output")


def test_full_disk_is_told_and_what_was_kept_stays(tmp_path):
    kept = results.Results(tmp_path / "kept.db")
    counts = {"cycles": 1, "bytes": 2, "issued_macs": 3}
    kept.add([("first", "n", "m", "predict", counts)])
    pages = kept.connection.execute("PRAGMA page_count").fetchone()[0]
    kept.connection.execute(f"PRAGMA max_page_count = {pages}")  # as a disk without room
    with pytest.raises(_tessera.Error, match="full.*make room"):
        kept.add([(str(number), "n", "m" * 1000, "predict", {}) for number in range(100)])
    assert kept.find(["first"]) == {"first": counts}


def test_two_explorations_share_a_results_file(tmp_path):
    path, database = space_file(tmp_path), tmp_path / "kept.db"
    line = [sys.executable, "-m", "tessera.exploration", str(path), "--network", str(DIGITS), "--db", str(database)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*line, "--json", "-q"], env=environment, cwd=tmp_path, **pipes) for _ in range(2)]
    ends = [child.communicate(timeout=120) for child in both]
    assert [child.returncode for child in both] == [0, 0], ends
    one, two = (json.loads(output) for output, _ in ends)
    assert one["front"] == two["front"] and kept_rows(database) == 8


def test_a_results_file_may_be_made_by_several_at_once(tmp_path):
    def make(path, start):
        start.wait()
        results.Results(path).close()

    for attempt in range(20):
        start = threading.Barrier(6)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            made = [pool.submit(make, tmp_path / f"{attempt}.db", start) for _ in range(6)]
            for future in made:
                future.result()


def test_killed_in_the_middle_goes_on(exploring, tmp_path):
    """The client is killed after the first results; the second run makes the rest and ends with the same front."""
    wide = {"machine": {**SMALL["machine"], "inp_bytes": "4k..16k by 2x"}}
    path, database = space_file(tmp_path, **wide), tmp_path / "kept.db"
    line = [sys.executable, "-m", "tessera.exploration", str(path), "--network", str(DIGITS), "--db", str(database)]
    line += ["--screen", "no", "--json", "-q"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, cwd=tmp_path)
    for _ in range(3000):
        time.sleep(0.01)
        if child.poll() is not None or (database.exists() and kept_rows(database) > 3):
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = kept_rows(database)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert 3 < before <= len(content["points"]) == kept_rows(database)
    fresh = exploring(space.load(path))
    assert content["front"] == [point.number for point in fresh.front(fresh.grid(screen=False))]


def kept_rows(database):
    try:
        with sqlite3.connect(database, timeout=10) as connection:
            return connection.execute("SELECT COUNT(*) FROM evaluations").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def test_an_interrupted_search_ends_as_the_shell_expects(monkeypatch, capsys):
    def interrupted(given):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_module, "run", interrupted)
    assert command_module.main(["space.toml", "--network", "model.onnx"]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""Which tests `./dev test ROOM` runs and what it builds for them, on a build that is written down here."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "any"
sys.path.insert(0, str(ROOT / "tests"))

import rooms  # noqa: E402


def ctest(name, folder, *command, labels=()):
    """A test as CTest describes it, declared by a function in the CMakeLists.txt of a folder."""
    files = [str(ROOT / "cmake" / "TesseraRooms.cmake"), str(ROOT / folder / "CMakeLists.txt")]
    graph = {"files": files, "nodes": [{"file": 0, "parent": 1}, {"file": 1}]}
    properties = [{"name": "LABELS", "value": list(labels)}] if labels else []
    return rooms.CTest({"name": name, "command": list(command), "backtrace": 0, "properties": properties}, graph, BUILD)


CHECK = f"{ROOT}/hw/synth/check.py"
LIT = ("python3", "-c", "from lit.main import main; main()", "-sv", f"{ROOT}/compiler/graph/tests")
TESTS = [
    ctest("npu_test_1", "compiler/npu", f"{BUILD}/bin/npu_test"),
    ctest("npu_test_2", "compiler/npu", f"{BUILD}/bin/npu_test"),
    ctest("graph_lit", "compiler/tools", *LIT),
    ctest("ops_test", "ops", f"{BUILD}/bin/ops_test"),
    ctest("ops_python", "ops", "python3", "-m", "pytest", "-q", f"{ROOT}/ops/tests"),
    ctest("driver_test", "driver", f"{BUILD}/bin/driver_test"),
    ctest("hw_packages", "hw", "python3", f"{ROOT}/hw/packages.py"),
    ctest("hw_synth_tables", "hw", "python3", f"{ROOT}/hw/synth/tests/test_synth.py"),
    ctest("hw_synth_forms", "hw", "python3", CHECK, "forms", labels=["minutes"]),
    ctest("random_programs_rows", "tests/random_programs", f"{BUILD}/bin/random_programs", f"{ROOT}/tests/rows.toml"),
]


def chosen(name, everything=False):
    room = rooms.find(name, TESTS)
    return [one.name for one in room.chosen(everything)], [entry for group in room.python for entry in group]


@pytest.mark.parametrize(
    ("name", "ctests", "python"),
    [
        ("compiler/npu", ["npu_test_1", "npu_test_2"], []),
        ("compiler/npu/tests", ["npu_test_1", "npu_test_2"], []),  # as the folder above has them
        ("./compiler/graph/", ["graph_lit"], []),  # declared elsewhere, named by the command
        ("compiler", ["npu_test_1", "npu_test_2", "graph_lit"], []),
        ("ops", ["ops_test"], ["ops/tests"]),  # Python tests once, by pytest
        ("driver/litex", ["driver_test"], []),
        ("hw", ["hw_packages", "hw_synth_tables"], []),
        ("hw/synth", ["hw_synth_tables"], []),
        ("tests/random_programs", ["random_programs_rows"], []),
        ("tests/tile", [], ["tests/tile"]),
        ("tests/tile/test_waits.py", [], ["tests/tile/test_waits.py"]),
        ("tessera/python/tessera/tile", [], ["tests/tile"]),  # which stand elsewhere
    ],
)
def test_tests_of_a_room(name, ctests, python):
    assert chosen(name) == (ctests, python)


def test_what_takes_minutes_runs_when_all_is_wanted():
    assert chosen("hw/synth", everything=True)[0] == ["hw_synth_tables", "hw_synth_forms"]


@pytest.mark.parametrize("name", ["compiler/nope", "..", ".", "", "/", "build/nope"])
def test_a_folder_without_tests_is_refused_with_those_that_have_some(name):
    with pytest.raises(rooms.UnknownRoom, match="there is no room .*; there are "):
        rooms.find(name, TESTS)


def test_a_part_of_a_name_is_answered_with_rooms_that_have_it():
    with pytest.raises(rooms.UnknownRoom, match="there are compiler/npu$"):
        rooms.find("npu", TESTS)
    with pytest.raises(rooms.UnknownRoom, match="compiler/npu"):
        rooms.find("compiler/npux", TESTS)


def test_targets_are_those_that_the_tests_run(tmp_path):
    edges = ("bin/npu_test", "bin/tessera-opt", "tessera", "_tessera", "rtl_npu64")
    (tmp_path / "build.ninja").write_text("".join(f"build {edge}: phony\n" for edge in edges))

    def targets(*names):
        return rooms.targets_of([rooms.find(name, TESTS) for name in names], tmp_path)

    assert targets("compiler/npu", "compiler/graph") == ["bin/npu_test", "bin/tessera-opt"]
    assert targets("hw/synth") == targets("tests/tests") == []
    # Without Verilator's machine of 256 lanes.
    assert targets("tests/tile") == ["_tessera", "rtl_npu64", "tessera", "tessera_nn_python", "tessera_ops_python"]
    assert targets("tests/fuzz", "ops") == ["all"]


def test_what_the_tables_name_is_there():
    entries = [entry for group in rooms.PYTHON for entry in group]
    named = [*entries, *rooms.TARGETS, *rooms.ELSEWHERE, *(one for many in rooms.ELSEWHERE.values() for one in many)]
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert [name for name in rooms.TARGETS if name not in entries] == []


def test_the_command_says_which_rooms_there_are():
    command = [sys.executable, ROOT / "tests" / "run.py", "--room", "compiler/nope"]
    build = os.environ.get("TESSERA_BUILD", ROOT / "build" / "release")
    if not (pathlib.Path(build) / "CTestTestfile.cmake").exists():
        pytest.skip("there is no build")
    done = subprocess.run([*command, "--build", build], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("dev: there is no room 'compiler/nope'; there are ") and done.stderr.count("\n") == 1

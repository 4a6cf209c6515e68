# SPDX-License-Identifier: Apache-2.0
"""The tests of one room, for `./dev test ROOM`. Enters: folders of the project and a configured build. Leaves: what has
to be built for their tests, the CTests, and what pytest runs.

A CTest belongs to the folder that its command names, else to the one whose CMakeLists.txt declares it. A Python test
belongs to the folder in which it stands. ELSEWHERE says which tests of other folders a room has besides. A folder
without any test has those of the folder that holds it."""

import difflib
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folders and files for pytest, a process for each group: those of the second group load other copies of what the first
# one loads.
SYSTEM = "system cpu import conformance oracle litert fuzz tile bare_metal litex torch"
COPIES = ["isa/tests", "tests/new_instruction", "tests/tests"]  # their tests copy or read the sources
PYTHON = [[*(f"tests/{room}" for room in SYSTEM.split()), "ops/tests", *COPIES], ["tests/pt2e", "tests/executorch"]]
# What the Python tests of a folder need of the build; the others need PACKAGE. What is OPTIONAL a build without
# Verilator, gRPC or XRT cannot make, and its tests say what they miss.
PACKAGE = ("tessera", "_tessera", "tessera_ops_python", "tessera_nn_python")
MACHINES = ("rtl_npu64", "rtl_npu256", "rtl_odd2x4x8")
LIBRARIES = ("libtessera.so", "libtessera_onnxruntime_ep.so", "libtessera_example_plugin.so")
OPTIONAL = ("libtessera_grpc.so", "libxrt_hwemu.so", "board_test", *MACHINES)
TARGETS = {
    "isa/tests": (),
    "tests/tests": (),
    "tests/new_instruction": (),
    "ops/tests": ("tessera_ops_python",),
    "tests/import": ("tessera_nn_python",),
    "tests/tile": (*PACKAGE, *MACHINES),
    "tests/litert": (*PACKAGE, *MACHINES),
    "tests/fuzz": ("all",),
    "tests/system": (*PACKAGE, "tessera-opt", *LIBRARIES, *OPTIONAL),
}
# Room -> rooms and files with further tests of it.
ELSEWHERE = {
    "base": ("ops", "isa"),
    "bench": ("tests/system/reports/test_bench.py",),
    "compiler/litert": ("tests/litert/test_schema.py", "tests/litert/test_table.py", "tests/litert/test_states.py"),
    "compiler/nn": ("tests/import/test_passes.py",),
    "compiler/onnx": ("tests/import",),
    "compiler/onnx_schema": ("tests/import", "tests/litert/test_schema.py"),
    "compiler/pipeline": ("tests/cpu",),
    "compiler/tile": ("tests/tile/test_layouts.py", "tests/tile/test_embedding.py"),
    "docs": ("tests/tests", "tests/system/documents/test_tutorials.py", "tests/system/documents/test_walkthrough.py"),
    "examples": ("tests/system/networks/test_digits.py", "tests/system/networks/test_text_example.py"),
    "hw/litex": ("tests/litex",),
    "hw/prim": ("tests/alu_arithmetic",),
    "hw/rtl": ("sim/verilator", "tests/rtl_engines", "tests/rtl_assert"),
    "runtime/bare_metal": ("tests/bare_metal",),
    "tessera/bare_metal": ("tests/bare_metal",),
    "tessera/executorch": ("tests/executorch",),
    "tessera/python/tessera/app": ("tests/system/interfaces/test_app.py",),
    "tessera/python/tessera/executorch": ("tests/executorch",),
    "tessera/python/tessera/exploration": (
        "tests/system/schedules/test_explore.py",
        "tests/system/schedules/test_explore_command.py",
        "tests/system/schedules/test_explore_workers.py",
        "tests/system/schedules/test_learned.py",
    ),
    "tessera/python/tessera/pt2e": ("tests/pt2e",),
    "tessera/python/tessera/quantization": ("tests/system/quantisation",),
    "tessera/python/tessera/serving": ("tests/system/servers",),
    "tessera/python/tessera/tile": ("tests/tile",),
    "tessera/python/tessera/torch": ("tests/torch",),
    "tessera/python/tessera/tuning": (
        "tests/system/schedules/test_chip_tuning.py",
        "tests/system/schedules/test_tuning.py",
        "tests/system/schedules/test_tuning_bench.py",
    ),
    "web": ("tests/system/reports/test_report_page.py",),
}


class UnknownRoom(Exception):
    """No folder of that name has tests."""


def inside(path, room):
    """Whether a path is a folder or something in it."""
    return path == room or path.startswith(f"{room}/")


def folder_of(test, graph):
    """The folder of a CTest, as a path from the root; None where it lies outside. `graph`: CTest's backtraces."""

    def relative(path):
        path = pathlib.Path(path)
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None

    node = graph["nodes"][test["backtrace"]]
    while "parent" in node:
        node = graph["nodes"][node["parent"]]
    declared = relative(pathlib.Path(graph["files"][node["file"]]).parent)
    for word in test.get("command", []):
        named = relative(word) if word.startswith("/") else None
        if named and not re.match(r"build/|\.venv/", named) and not named.endswith(".toml") and (ROOT / named).exists():
            return named if (ROOT / named).is_dir() else str(pathlib.PurePosixPath(named).parent)
    return declared


class CTest:
    """One test that CTest knows: its name, its folder, the targets that it runs, how many minutes it may take."""

    def __init__(self, entry, graph, build):
        self.name, self.folder = entry["name"], folder_of(entry, graph)
        command = entry.get("command", [])
        binaries = build / "bin"
        self.targets = {f"bin/{pathlib.Path(word).name}" for word in command if pathlib.Path(word).parent == binaries}
        if any("lit.main" in word for word in command):
            self.targets.add("bin/tessera-opt")
        labels = [one["value"] for one in entry.get("properties", []) if one["name"] == "LABELS"]
        self.takes_minutes = any("minutes" in label for label in labels)
        self.is_python = any("pytest" in word for word in command)  # those run in PYTHON


def known_to_ctest(build):
    """What CTest knows of a configured build, as it describes it (json-v1)."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def ctests(build):
    """The tests of a configured build."""
    found = known_to_ctest(build)
    return [CTest(entry, found["backtraceGraph"], build) for entry in found["tests"]]


class Room:
    """A folder and its tests: `ctests`, and `python`, groups of folders and files for pytest."""

    def __init__(self, name, tests):
        self.name, self.ctests, self.python = name, [], [[] for _ in PYTHON]
        self.add(name, tests)
        for other in ELSEWHERE.get(name, ()):
            self.add(other, tests)

    def add(self, name, tests):
        self.ctests += [one for one in tests if inside(one.folder or "", name) and not one.is_python]
        for group, entries in zip(self.python, PYTHON, strict=True):
            group += [entry for entry in entries if inside(entry, name)]
            if any(inside(name, entry) and name != entry for entry in entries):
                group += [name] if has_python(name) else []

    def __bool__(self):
        return bool(self.ctests) or any(self.python)

    def targets(self, everything=False):
        """What the build has to make, if it can."""
        wanted = {target for one in self.chosen(everything) for target in one.targets}
        for entry in (entry for group in self.python for entry in group):
            folder = next((folder for folder in TARGETS if inside(entry, folder)), None)
            wanted |= set(TARGETS.get(folder, PACKAGE))
        return wanted

    def chosen(self, everything=False):
        """The CTests that run: without those that take minutes, unless everything is wanted or there are no others."""
        short = [one for one in self.ctests if not one.takes_minutes]
        return self.ctests if everything or not (short or any(self.python)) else short


def has_python(name):
    path = ROOT / name
    return path.is_file() or any(path.rglob("test_*.py"))


def targets_of(rooms, build, everything=False):
    """What a build in Ninja has to make for the tests of rooms."""
    wanted = set().union(*(room.targets(everything) for room in rooms))
    known = set(re.findall(r"^build ([^ :]+)", (build / "build.ninja").read_text(), re.M))
    return ["all"] if "all" in wanted else sorted(name for name in wanted if name in known or name not in OPTIONAL)


def names():
    """Rooms that have a README, a CMakeLists.txt or Python tests, for messages."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    rooms = {
        str(pathlib.PurePosixPath(file).parent) for file in files if file.endswith(("README.md", "CMakeLists.txt"))
    }
    return sorted((rooms | {entry for group in PYTHON for entry in group}) - {"."})


def near(name):
    """Rooms with a name like this one, or else those at the top."""
    known, last = names(), name.rpartition("/")[2]
    found = [room for room in known if last and last in room] or difflib.get_close_matches(name, known)
    return found or [room for room in known if "/" not in room]


def find(name, tests):
    """The room of a folder, which may be that of a folder above it. Errors: UnknownRoom."""
    wanted = name.rstrip("/").removeprefix("./")
    path = (ROOT / wanted).resolve()
    if not wanted or not path.exists() or not path.is_relative_to(ROOT) or path == ROOT:
        raise UnknownRoom(f"there is no room '{name}'; there are {', '.join(near(wanted))}")
    relative = path.relative_to(ROOT)
    for folder in (relative, *relative.parents):
        room = Room(str(folder), tests) if str(folder) != "." else None
        if room:
            return room
    raise UnknownRoom(f"room '{name}' has no tests; `./dev test` runs all")

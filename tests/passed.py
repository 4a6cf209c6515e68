# SPDX-License-Identifier: Apache-2.0
"""What has passed and what it was made of, so that `./dev test` need not run it again. Enters: the tests of a build.
Leaves: those that could end otherwise than when they last passed.

A test is known by a digest of its command, of the environment that it reads, of its program with the build's shared
libraries, and of the files that it may open. A file without content stands for each digest that has passed, in
BUILD/tests/passed. What this file does not know how to describe always runs. `./dev test --fresh` runs everything."""

import functools
import hashlib
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Their content reaches a compiled test through its program, or not at all.
COMPILED = (".cc", ".h", ".c", ".md", ".py", ".ts", ".sv")
# What proofs by Yosys and Verilator's lint read: the machine, its configurations, and the scripts in between.
HARDWARE = (
    *("hw/", "isa/", "sim/verilator/configs/", "tessera/python/tessera/exploration/area_points.json"),
    *("requirements", "packages"),  # versions of the tools
)
TOOLS = ("yosys", "verilator", "verilator_bin", "python3")
VARIABLES = re.compile(r"(TESSERA|GTEST)_")


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def output(folder, *command):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


class Passed:
    """Digests of what has passed in a build, under the variables of `env` that tests read. Files are read once."""

    def __init__(self, build, env, root=ROOT):
        self.build, self.root, self.folder = build, root, build / "tests" / "passed"
        self.env = sorted((name, value) for name, value in env.items() if VARIABLES.match(name))
        self.contents = {}

    def content(self, path):
        """Digest of a file; of nothing where there is none."""
        path = pathlib.Path(path)
        if path not in self.contents:
            self.contents[path] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        return self.contents[path]

    @functools.cached_property
    def sources(self):
        """Files of the project that Git knows or would add; none outside of a repository."""
        return sorted(set(output(self.root, "git", "ls-files", "-co", "--exclude-standard").splitlines()))

    @functools.cached_property
    def data(self):
        """Of the files that a compiled test may open beside its program: configurations, models, texts."""
        return [(name, self.content(self.root / name)) for name in self.sources if not name.endswith(COMPILED)]

    @functools.cached_property
    def hardware(self):
        """Of the machine's sources and of the tools that read them."""
        tools = [(tool, self.content(shutil.which(tool) or "")) for tool in TOOLS]
        return tools, [(name, self.content(self.root / name)) for name in self.sources if name.startswith(HARDWARE)]

    @functools.cached_property
    def machines(self):
        """Of the libraries that programs of the build open by name: machines verilated, the simulated board."""
        found = sorted((self.build / "lib" / "tessera").rglob("*.so*"))
        return [(str(path), self.content(path)) for path in found]

    def libraries(self, program):
        """Of the shared libraries that a program names: the build's by content, the system's by size and time."""
        named = sorted(pathlib.Path(word) for word in output(self.root, "ldd", program).split() if word[0] == "/")
        own = [(str(path), self.content(path)) for path in named if path.is_relative_to(self.build)]
        others = [path.stat() for path in named if not path.is_relative_to(self.build)]
        return own, [(one.st_size, one.st_mtime_ns) for one in others]

    def key_of(self, entry):
        """The digest of a test as CTest describes it (`--show-only=json-v1`); None where what it reads is not known."""
        command = entry.get("command", []) if self.sources else []
        common = (command, sorted(str(one) for one in entry.get("properties", [])), self.env)
        if command and pathlib.Path(command[0]).parent == self.build / "bin":
            program = command[0]
            return digest(common, self.content(program), self.libraries(program), self.machines, self.data)
        scripts = tuple(str(self.root / folder) for folder in ("hw/synth/", "hw/prim/"))
        return digest(common, self.hardware) if any(word.startswith(scripts) for word in command) else None

    def key_of_hardware(self, name):
        """The digest of a check that reads the machine's sources alone; None where they are not known."""
        return digest(name, self.env, self.hardware) if self.sources else None

    def has(self, key):
        return key is not None and (self.folder / key).exists()

    def keep(self, key):
        if key is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / key).touch()

    def wanted(self, entries, fresh=False):
        """Of CTest's entries: names and digests of those that could end otherwise than when they last passed."""
        keys = {entry["name"]: self.key_of(entry) for entry in entries}
        return {name: key for name, key in keys.items() if fresh or not self.has(key)}


def passes(report):
    """Names of the tests that passed, from CTest's report (`--output-junit`)."""
    if not report.exists():
        return []
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return [case.get("name") for case in cases if case.get("status") == "run" and case.find("failure") is None]

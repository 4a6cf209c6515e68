# SPDX-License-Identifier: Apache-2.0
"""What has passed and what it was made of, so that `./dev test` need not run it again. Enters: the tests of a build.
Leaves: those that could end otherwise than when they last passed.

A compiled test is known by a digest of its command, of the environment that it reads, of its program with the build's
shared libraries, and of the files that it may open. A file of Python tests is known by a digest of itself and of the
files of tests that it names, of everything else in the project, of what the build has made, and of what is installed;
documents count only where one of these, or a helper that they name, opens one. A file stands for each digest that has
passed, in BUILD/tests/passed, and says how many tests there were. What this file does not know how to describe always
runs. `./dev test --fresh` runs everything. How long each file of Python tests took stands in BUILD/tests/seconds.json,
so that the longest ones start first."""

import ast
import functools
import hashlib
import importlib.metadata
import json
import math
import os
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
DOCUMENT = re.compile(r"\.md\b|README|^docs(/|$)")
# Beside the project: models and data of others, which tests read where they stand.
BESIDE = ("../shared/models", "../shared/data")


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def of_tests(name):
    """Whether a file of the project holds Python tests."""
    return re.search(r"(^|/)test_\w+\.py$", name) is not None


def opens_documents(text):
    """Whether a source has the name of a document among its strings; what explains the source does not count."""
    tree = ast.parse(text)
    explained = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in explained)
    return any(isinstance(node.value, str) and DOCUMENT.search(node.value) for node in strings)


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

    @functools.cached_property
    def installed(self):
        """Python's packages; when folders of commands changed last; what stands beside the project."""
        packages = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
        commands = [pathlib.Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
        own = [folder for folder in commands if not folder.is_relative_to(self.root)]
        beside = sorted(path for folder in BESIDE for path in (self.root / folder).rglob("*"))
        return packages, *([stamp(path) for path in paths if path.exists()] for paths in (own, beside))

    @functools.cached_property
    def made(self):
        """What the build has made for tests to run or to load."""
        found = sorted(path for folder in ("bin", "lib") for path in (self.build / folder).rglob("*"))
        return [(str(path), stamp(path)) for path in found if path.is_file() and "__pycache__" not in path.parts]

    @functools.cached_property
    def project(self):
        """Two digests of what a file of Python tests may read of the project: without documents, and of these."""
        names = [name for name in self.sources if not of_tests(name)]
        parts = [
            [(name, self.content(self.root / name)) for name in names if name.endswith(".md") == document]
            for document in (False, True)
        ]
        return digest(parts[0], self.made, self.installed), digest(parts[1])

    @functools.cached_property
    def readers(self):
        """Names of modules beside the tests that open documents."""
        names = [name for name in self.sources if name.endswith(".py") and not of_tests(name)]
        texts = {name: (self.root / name).read_text() for name in names if (self.root / name).is_file()}
        return {pathlib.Path(name).stem for name, text in texts.items() if opens_documents(text)} - {"conftest"}

    @functools.cached_property
    def tests(self):
        """By module the files of Python tests, which others may name: they take functions of each other."""
        found = {}
        for name in filter(of_tests, self.sources):
            found.setdefault(pathlib.Path(name).stem, []).append(name)
        return found

    def words(self, name):
        path = self.root / name
        return set(re.findall(r"\w+", path.read_text())) if path.is_file() else set()

    def with_named(self, name):
        """A file of Python tests and those that it names, and so on."""
        found, left = set(), [name]
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += [other for word in self.words(one) & self.tests.keys() for other in self.tests[word]]
        return sorted(found)

    def key_of_file(self, name, copies=False):
        """The digest of a file of Python tests; None outside of a repository. `copies`: it copies or reads the sources,
        all tests among them."""
        if not self.sources or not (self.root / name).is_file():
            return None
        named = filter(of_tests, self.sources) if copies else self.with_named(name)
        files = [one for one in named if (self.root / one).is_file()]
        others, documents = self.project
        reads = any(opens_documents((self.root / one).read_text()) or self.words(one) & self.readers for one in files)
        contents = [(one, self.content(self.root / one)) for one in files]
        return digest(name, self.env, contents, others, documents if reads else "")

    def python(self, folders, fresh=False, copies=()):
        """Of the files of Python tests in these folders: digests of those that could end otherwise than when they last
        passed, the longest ones first, and how many tests the others have. `copies`: the folders whose tests copy the
        sources."""
        inside, copying = (tuple(f"{folder}/" for folder in names) for names in (folders, copies))
        names = [name for name in self.sources if of_tests(name) and name.startswith(inside)]
        seconds = self.seconds()
        # A new one may take long; of those the largest file is likely to.
        names.sort(key=lambda name: (-seconds.get(name, math.inf), -(self.root / name).stat().st_size))
        keys = {name: self.key_of_file(name, name.startswith(copying)) for name in names}
        old = {name: 0 if fresh else self.count(key) for name, key in keys.items()}
        return {name: key for name, key in keys.items() if not old[name]}, {
            n: count for n, count in old.items() if count
        }

    def seconds(self):
        """How long files of Python tests took when they last ran."""
        path = self.folder.parent / "seconds.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def keep_seconds(self, seconds):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder.parent / "seconds.json").write_text(json.dumps(self.seconds() | seconds, indent=0, sort_keys=True))

    def count(self, key):
        """How many tests the file had that has passed under this digest."""
        text = (self.folder / key).read_text() if self.has(key) else ""
        return int(text) if text.isdigit() else 0

    def has(self, key):
        return key is not None and (self.folder / key).exists()

    def keep(self, key, count=None):
        if key is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / key).write_text("" if count is None else str(count))

    def wanted(self, entries, fresh=False):
        """Of CTest's entries: names and digests of those that could end otherwise than when they last passed."""
        keys = {entry["name"]: self.key_of(entry) for entry in entries}
        return {name: key for name, key in keys.items() if fresh or not self.has(key)}


def stamp(path):
    one = path.stat()
    return str(path), one.st_size, one.st_mtime_ns


def cases_by_file(report):
    """The cases of pytest's report (`--junitxml`), each with its file of Python tests; none without a report."""
    if not report.exists():
        return
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        words = case.get("classname", "").split(".")
        last = next((k for k, word in enumerate(words) if word.startswith("test_")), len(words) - 1)
        yield "/".join(words[: last + 1]) + ".py", case


def files_that_passed(report):
    """Counts of tests by file of Python tests, from pytest's report, of files of which none failed."""
    counts, failed = {}, set()
    for name, case in cases_by_file(report):
        counts[name] = counts.get(name, 0) + (case.find("skipped") is None)
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
    return {name: count for name, count in counts.items() if name not in failed}


def seconds_of_files(report):
    """How long each file of Python tests took, from pytest's report."""
    seconds = {}
    for name, case in cases_by_file(report):
        seconds[name] = seconds.get(name, 0) + float(case.get("time", 0))
    return {name: took for name, took in seconds.items() if took > 0}


def passes(report):
    """Names of the tests that passed, from CTest's report (`--output-junit`)."""
    if not report.exists():
        return []
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return [case.get("name") for case in cases if case.get("status") == "run" and case.find("failure") is None]

# SPDX-License-Identifier: Apache-2.0
"""Runs every test of the project in stages: lint, unit tests (CTest, FileCheck tests of the passes among them),
system tests (pytest). With --room it runs the tests of folders (rooms.py), without lint.

clang-tidy reads what the last commits changed: all sources take it longer than all tests (`./dev lint --all` has them).
Each stage prints as it goes and all stages run even when one fails; the last line counts them together. Tests do not
run again of which all is as it was when they last passed: a unit test's program and data, a file of Python tests and
what it may read (passed.py; --fresh runs them).
Options that this script does not know go to pytest (`./dev test -k conv`), which has one process more than there
are processors.
--random and --seed reach the random programs and models through the environment, --long turns on the long variants.

--oldest runs the tests of exactness alone, with the onnx package and the ONNX Runtime of requirements-oldest.txt in a
virtual environment of their own, build/oldest; --long has them behind everything else.
"""

import argparse
import dataclasses
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing

import passed
import rooms

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Stage:
    """What runs as one process: `kind` says how to count, `finish` what to do behind it, `unchanged` how many tests
    need not run because they would end as before. What runs `beside` the next stage is shown behind that one."""

    kind: str
    command: list
    unchanged: int = 0
    finish: typing.Callable = lambda: None
    beside: bool = False


def start(command, env, output=subprocess.PIPE):
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


def stream(process, kept):
    """Shows a process's output as it comes, or what is kept of it when it ends. Returns (status, output)."""
    if kept is not None:
        process.wait()
        kept.seek(0)
    lines = []
    for line in kept or process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    return process.wait(), "".join(lines)


def sanitized(build):
    """Whether the build carries the address sanitizer."""
    cache = build / "CMakeCache.txt"
    return cache.exists() and re.search(r"^TESSERA_SANITIZE:BOOL=(ON|1|TRUE)$", cache.read_text(), re.M) is not None


def sanitizer_environment(env):
    """For the sanitized modules in a Python that is not: the runtime comes first, then libstdc++, whose throw it wraps.
    Python itself keeps memory until its end (no leak check), and LLVM's libraries are not instrumented, so that vectors
    that cross the border have no annotations."""
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    return dict(
        env,
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS="detect_leaks=0:detect_container_overflow=0:" + env.get("ASAN_OPTIONS", ""),
        UBSAN_OPTIONS="print_stacktrace=1:" + env.get("UBSAN_OPTIONS", ""),
    )


SHOWN = 200  # characters of a word of a command
EXACTNESS = ["ops/tests", "tests/oracle", "tests/import", "tests/conformance"]


def oldest_environment():
    """The interpreter of build/oldest, which is made anew when requirements-oldest.txt has changed."""
    wanted, folder = ROOT / "requirements-oldest.txt", ROOT / "build" / "oldest"
    python, stamp = folder / "bin" / "python", folder / "requirements.stamp"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)]
        subprocess.run(pip, check=True)
        stamp.write_text(wanted.read_text())
    return str(python)


def oldest_stage(build, arguments):
    """The tests of exactness on the oldest versions. The package comes from this tree and its build. The lists of
    tests/oracle/departures.toml are those of the short variants."""
    path = os.pathsep.join([str(ROOT / "tessera" / "python"), str(build / "lib")])
    short = ["TESSERA_LONG=", "TESSERA_RANDOM=0", "TESSERA_SEED=0"]
    command = ["env", *short, f"PYTHONPATH={path}", oldest_environment(), "-m", "pytest", "-q", "-rs", "--durations=5"]
    return Stage("system", [*command, *arguments, *EXACTNESS])


# Options with which somebody looks at one process of pytest.
ALONE = {"-s", "--capture=no", "--pdb", "--trace", "-n"}


def workers(arguments):
    """Processes of pytest: one more than processors, as tests of servers and boards wait, as long as there are three
    gigabytes for each. A file's tests share one, with what they prepare for each other; files start in the order in
    which they are given. None without pytest-xdist, on a single processor, and for single tests."""
    single = ALONE & set(arguments) or any("::" in argument for argument in arguments)
    if single or importlib.util.find_spec("xdist") is None:
        return []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    processors = int(os.environ.get("TESSERA_JOBS") or os.cpu_count() or 1)
    count = min(processors + 1, max(1, memory // 3))
    return ["-n", str(count), "--dist", "loadfile", "--no-loadscope-reorder"] if min(count, processors) > 1 else []


def pytest_stage(arguments, **keywords):
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--durations=5", *workers(arguments), *arguments]
    return Stage("system", command, **keywords)


def python_stage(build, folders, options, memory):
    """All files of Python tests in these folders that could end otherwise than when they last passed, the longest ones
    first: a long one that starts last keeps one processor busy alone."""
    wanted, unchanged = memory.python(folders, options.fresh, rooms.COPIES)
    report = build / "tests" / "pytest.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)

    def finish():
        for name, count in passed.files_that_passed(report).items():
            memory.keep(wanted.get(name), count)
        memory.keep_seconds(passed.seconds_of_files(report))

    files = wanted or [*(f"--ignore={name}" for name in unchanged), *folders]
    return pytest_stage([f"--junitxml={report}", *files], unchanged=sum(unchanged.values()), finish=finish)


def ctest_stage(build, names, unchanged=0, **keywords):
    """The CTests of these names, and how many there are besides that would end as before."""
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "-j", str(os.cpu_count() or 1)]
    selected = "|".join(re.escape(name) for name in names)
    report = ["--output-junit", str(build / "tests" / "ctest.xml")]
    return Stage("unit", [*command, *report, "-R", f"^({selected})$"], unchanged, **keywords)


def unit_stage(build, options, env):
    """All CTests that could end otherwise than when they last passed."""
    graph = rooms.known_to_ctest(build)
    left_out = ("ops_python", "import_python")  # pytest runs them
    entries = [one for one in graph["tests"] if one["name"] not in left_out]
    if options.random is not None:
        entries = [one for one in entries if re.search("random|functional|npu", one["name"])]
    memory = passed.Passed(build, env)
    wanted = memory.wanted(entries, options.fresh)
    report = build / "tests" / "ctest.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)

    def finish():
        for name in passed.passes(report):
            memory.keep(wanted.get(name))

    return ctest_stage(build, wanted, len(entries) - len(wanted), finish=finish)


def room_stages(found, options, extra):
    """Of rooms: their CTests, unless pytest has options, and their Python tests. What takes minutes is left out."""
    tests = {one.name: one for room in found for one in room.chosen(options.all)}
    left_out = {one.name: one for room in found for one in room.ctests if one.name not in tests}
    if left_out and not extra:
        print(f"left out, because they take minutes (--all runs them): {', '.join(left_out)}", flush=True)
    if tests and not extra:
        yield ctest_stage((ROOT / options.build).resolve(), tests)
    for entries in zip(*(room.python for room in found), strict=True):
        if group := dict.fromkeys(entry for one in entries for entry in one):
            yield pytest_stage([*extra, *group])


def all_stages(options, extra, env):
    """Of the whole project; what `extra` says to pytest alone is no matter of lint and of unit tests."""
    build = (ROOT / options.build).resolve()
    if options.oldest:
        yield oldest_stage(build, extra)
        return
    drawn = options.random is not None
    if not extra:
        if not drawn:
            lint = [sys.executable, "tests/lint.py", "--all", "--tidy-last", "20", "--build", str(build)]
            yield Stage("lint", [*lint, *(["--fresh"] if options.fresh else [])], beside=True)
        yield unit_stage(build, options, env)
    files = [argument for argument in extra if pathlib.Path(argument.split("::")[0]).exists()]
    others = [argument for argument in extra if argument not in files]
    if options.fresh:
        shutil.rmtree(build / "tests" / "named", ignore_errors=True)  # what compilers said in tests/new_instruction
    memory = passed.Passed(build, env)
    for group in [files] if files else rooms.PYTHON:
        if not extra and not drawn:
            yield python_stage(build, group, options, memory)
            continue
        yield pytest_stage([*(["-k", "random"] if drawn and not extra else others), *group])
    if options.long and not extra and not drawn and not sanitized(build):
        yield oldest_stage(build, [])


def count(pattern, text):
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def outcome(name, text):
    """(passed, failed, skipped) of a stage, by what it printed."""
    if name == "lint":
        return count(r"lint: (\d+) checks passed", text), count(r"checks passed, (\d+) failed", text), 0
    if name == "unit":
        failed = count(r"(\d+) tests? failed out of", text)
        return count(r"out of (\d+)", text) - failed, failed, 0
    failed = count(r"(\d+) failed", text) + count(r"(\d+) errors?", text)
    return count(r"(\d+) passed", text), failed, count(r"(\d+) skipped", text)


def run(stages, options, env):
    """Runs stages one after the other, but for those that run beside the next one. Returns the exit status."""
    build = (ROOT / options.build).resolve()
    total, beside = [0, 0, 0, 0], []

    def end(stage, process, kept, begun):
        status, text = stream(process, kept)
        stage.finish()
        p, f, s = outcome(stage.kind, text)
        if stage.kind == "system" and status == 5:
            status = 0  # pytest: the options select no test of this group
        if status != 0 and f == 0:
            f = 1
        same = f", {stage.unchanged} unchanged since they passed" if stage.unchanged else ""
        seconds = time.monotonic() - begun
        print(f"=== {stage.kind}: {p} passed, {f} failed, {s} skipped{same}, {seconds:.0f} s", flush=True)
        total[:] = [sum(pair) for pair in zip(total, (p, f, s, stage.unchanged), strict=True)]

    for stage in stages:
        if options.only and stage.kind != options.only:
            continue
        shown = [word if len(word) < SHOWN else f"{word[:SHOWN]}..." for word in stage.command]
        print(f"\n=== {stage.kind}: {' '.join(shown)}", flush=True)
        special = stage.kind == "system" and sanitized(build)
        kept = tempfile.TemporaryFile("w+", errors="replace") if stage.beside else None  # noqa: SIM115  a pipe fills
        process = start(stage.command, sanitizer_environment(env) if special else env, kept or subprocess.PIPE)
        begun = stage, process, kept, time.monotonic()
        if stage.beside:
            beside.append(begun)
            continue
        end(*begun)
        while beside:
            end(*beside.pop())
    while beside:
        end(*beside.pop())
    good, failed, skipped, unchanged = total
    same = f", {unchanged} unchanged since they passed (--fresh runs them)" if unchanged else ""
    print(f"\n{good} passed, {failed} failed, {skipped} skipped{same}", flush=True)
    return 1 if failed or good + unchanged == 0 else 0


def arguments():
    parser = argparse.ArgumentParser(prog="./dev test")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--room", action="append", default=[], help="the tests of this folder alone, repeatable")
    parser.add_argument("--targets", action="store_true", help="print what the build has to make for the rooms")
    parser.add_argument("--all", action="store_true", help="with rooms: also those of their tests that take minutes")
    parser.add_argument("--random", type=int, metavar="N", help="random programs and models to run")
    parser.add_argument("--seed", type=int, metavar="S", help="seed of the random tests")
    parser.add_argument("--long", action="store_true", help="run the long variants too")
    parser.add_argument("--fresh", action="store_true", help="also the tests that are unchanged since they passed")
    parser.add_argument("--oldest", action="store_true", help="the tests of exactness, on requirements-oldest.txt")
    parser.add_argument("--only", choices=["lint", "unit", "system"], help="run one stage")
    return parser.parse_known_args()


def main():
    options, extra = arguments()
    build = (ROOT / options.build).resolve()
    env = dict(os.environ, TESSERA_BUILD=str(build), TESSERA_CACHE="off")  # programs are compiled, not found
    if options.random is not None:
        env["TESSERA_RANDOM"] = str(options.random)
    if options.seed is not None:
        env["TESSERA_SEED"] = str(options.seed)
    if options.long:
        env["TESSERA_LONG"] = "1"
    if not options.room:
        return run(all_stages(options, extra, env), options, env)
    try:
        tests = rooms.ctests(build)
        found = [rooms.find(name, tests) for name in options.room]
    except rooms.UnknownRoom as unknown:
        print(f"dev: {unknown}", file=sys.stderr)
        return 1
    if options.targets:
        print(*rooms.targets_of(found, build, options.all))
        return 0
    return run(room_stages(found, options, extra), options, env)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Checks of the sources that change nothing: format, layering, circles, complexity, prose, ruff, Verilator's lint,
clang-tidy.

    tests/lint.py [--build build/release]     what differs from main (on main: from the last commit)
    tests/lint.py --all                       every file
    tests/lint.py --all --tidy-last 20        every file; clang-tidy reads what the last 20 commits changed
    tests/lint.py --deep                      clang's static analyzer too: minutes more, findings to be judged

clang-tidy reads several sources of a room as one, because most of its time goes into headers; where sources of one such
group do not go together, each is read alone. A source that passed is not read again until it, a header of the project
that it includes, its flags or the checks change: what passed stands in the build folder. A changed header is read
through one source that includes it. Exit status 1 if a check finds something; the last line counts the checks.
"""

import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import passed

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"
INCLUDED = re.compile(r"[+-](#include .*|\s*)$")  # a changed line that says nothing
FORMAT = "clang-format-19"
GROUP = 10
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
KEPT_FLAGS = re.compile(r"-(I|isystem|D|U|std=|march=|f(no-)?(exceptions|rtti)|iquote)")


def lines_of(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def changed_files():
    """Since the branch left main, committed or not; on main itself, since the last commit."""
    base = "HEAD"
    for name in ("main", "origin/main"):
        found = subprocess.run(
            ["git", "merge-base", "HEAD", name], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            base = found.stdout.strip()
            break
    changed, name = set(lines_of("git", "ls-files", "-o", "--exclude-standard")), None
    for line in lines_of("git", "diff", "-M", "-U0", base):
        if line.startswith("+++ "):
            name = line.removeprefix("+++ b/")
        elif re.match(r"[+-](?!--)", line) and not INCLUDED.match(line):
            changed.add(name)
    return changed


def changed_by_last(commits):
    """What the last commits changed, and what is not committed, but for files of which only the place or includes
    changed; None where the history is shorter."""
    base = f"HEAD~{commits}"
    if subprocess.run(
        ["git", "rev-parse", "--verify", "-q", base], cwd=ROOT, capture_output=True, check=False
    ).returncode:
        return None
    changed, name = set(lines_of("git", "ls-files", "-o", "--exclude-standard")), None
    for line in lines_of("git", "diff", "-M", "-U0", base):
        if line.startswith("+++ "):
            name = line.removeprefix("+++ b/")
        elif re.match(r"[+-](?!--)", line) and not INCLUDED.match(line):
            changed.add(name)
    return changed


class Commands:
    """The flags of each source, from the build's compile_commands.json; sources that are compiled together have them
    from the file that includes them."""

    def __init__(self, build):
        self.build = build
        self.flags = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["file"])
            words = shlex.split(entry["command"])
            flags = []
            for n, word in enumerate(words):
                if words[n - 1] == "-isystem" or not KEPT_FLAGS.match(word):
                    continue
                flags += [word, words[n + 1]] if word == "-isystem" else [word]
            sources = [path]
            if path.match("Unity/unity_*.cxx") and path.exists():
                sources = [pathlib.Path(os.fsdecode(name)) for name in INCLUDE.findall(path.read_bytes())]
            for source in sources:
                self.flags.setdefault(source.resolve(), tuple(flags))

    def of(self, path):
        return self.flags.get((ROOT / path).resolve())


@functools.cache
def content(path):
    return path.read_bytes()


@functools.cache
def includes(path, build):
    """Headers of the project that a file includes by their path from the root, of the build, or beside it."""
    found = []
    for name in INCLUDE.findall(content(path)):
        for folder in (ROOT, build, path.parent):
            header = folder / os.fsdecode(name)
            if header.is_file():
                found.append(header.resolve())
                break
    return found


@functools.cache
def closure(path, build):
    seen, stack = {path}, [path]
    while stack:
        for header in includes(stack.pop(), build):
            if header not in seen:
                seen.add(header)
                stack.append(header)
    return frozenset(seen)


class ClangTidy:
    def __init__(self, build, deep, again):
        self.build, self.deep, self.again = build, deep, again
        self.commands = Commands(build)
        self.work = build / "lint"
        self.work.mkdir(exist_ok=True)
        version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
        self.common = version + (ROOT / ".clang-tidy").read_bytes() + (b"deep" if deep else b"")

    def key(self, source):
        """Of everything that the findings depend on, but for the system's headers."""
        digest = hashlib.sha256(self.common)
        digest.update(repr(self.commands.of(source)).encode())
        for path in sorted(closure((ROOT / source).resolve(), self.build)):
            digest.update(str(path).encode() + content(path))
        return digest.hexdigest()

    def run(self, path, flags):
        # Sources read as one include sources, and see names that each alone does not.
        checks = ["-bugprone-suspicious-include", "-bugprone-forward-declaration-namespace"] + (
            # Its optional checks prefer small structures to readable ones, and lose count in loops over enums.
            ["clang-analyzer-*", "-clang-analyzer-optin.*"] if self.deep else []
        )
        command = [TIDY, "--quiet", f"--checks={','.join(checks)}", str(path), "--"]
        done = subprocess.run(
            [*command, *flags, "-Wno-everything"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        findings = [line for line in done.stdout.splitlines() if not re.match(r"^\d+ warnings? ", line)]
        return done.returncode == 0, "\n".join(findings)

    def group(self, sources):
        """Findings of sources with the same flags, by source; those of a group that does not go together, one by
        one."""
        flags = self.commands.of(sources[0])
        if len(sources) > 1:
            name = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]
            together = self.work / f"together_{name}.cc"
            together.write_text("".join(f'#include "{ROOT / source}"\n' for source in sources))
            passed, text = self.run(together, flags)
            together.unlink()
            if passed:
                return dict.fromkeys(sources, "")
            if "[clang-diagnostic-error" not in text:
                return {sources[0]: text, **dict.fromkeys(sources[1:], None)}
        found = {}
        for source in sources:
            passed, text = self.run(ROOT / source, flags)
            found[source] = "" if passed else text
        return found

    def check(self, sources, jobs):
        """Prints findings. Leaves whether there were none."""
        known = [source for source in sources if self.commands.of(source) is not None]
        keys = {source: self.key(source) for source in known}
        fresh = [source for source in known if self.again or not (self.work / keys[source]).exists()]
        groups = collections.defaultdict(list)
        for source in fresh:
            groups[self.commands.of(source), source.split("/")[0]].append(source)
        parts = [one[n : n + GROUP] for one in groups.values() for n in range(0, len(one), GROUP)]
        clean = True
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in concurrent.futures.as_completed([pool.submit(self.group, part) for part in parts]):
                for source, text in done.result().items():
                    if text == "":
                        (self.work / keys[source]).touch()
                    elif text is not None:
                        clean = False
                        print(text, flush=True)
        left_out = len(sources) - len(known)
        print(
            f"clang-tidy: {len(fresh)} sources read, {len(known) - len(fresh)} unchanged since they passed"
            + (f", {left_out} not part of this build" if left_out else "")
        )
        return clean


def sources_of(changed, tracked, build):
    """The changed sources, and one for each changed header that none of them includes."""
    sources = [name for name in tracked if name.endswith(".cc") and name in changed]
    covered = set().union(*(closure((ROOT / name).resolve(), build) for name in sources))
    for name in sorted(changed):
        header = (ROOT / name).resolve()
        if not name.endswith(".h") or header in covered or not header.exists():
            continue
        own = name.removesuffix(".h") + ".cc"
        others = (other for other in tracked if other.endswith(".cc") and header in closure(ROOT / other, build))
        through = own if own in tracked else next(others, None)
        if through:
            sources.append(through)
            covered |= closure((ROOT / through).resolve(), build)
    return sources


def main():
    parser = argparse.ArgumentParser(prog="./dev lint")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--all", action="store_true", help="every file, not only what differs from main")
    parser.add_argument(
        "--tidy-last", type=int, metavar="N", help="clang-tidy reads only what the last N commits changed"
    )
    parser.add_argument("--deep", action="store_true", help="clang's static analyzer too")
    parser.add_argument("--fresh", action="store_true", help="also what is unchanged since it passed")
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave a check out")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("TESSERA_JOBS") or os.cpu_count() or 1))
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()

    tracked = [name for name in lines_of("git", "ls-files", "-co", "--exclude-standard") if (ROOT / name).exists()]
    tracked = [name for name in tracked if "/generated/" not in name]
    changed = set(tracked) if options.all else changed_files()
    cpp = [name for name in tracked if name.endswith((".cc", ".h")) and name in changed]
    python = [name for name in tracked if name.endswith(".py") and name in changed]
    hardware = any(name.endswith((".sv", ".v")) or name.startswith("hw/") for name in changed)

    def command(*words):
        return subprocess.run([*map(str, words)], cwd=ROOT, check=False).returncode == 0

    checks = {"layering": lambda: command(sys.executable, "tests/layering.py")}
    checks["circles"] = lambda: command(sys.executable, "tests/circles.py")
    checks["prose"] = lambda: command(sys.executable, "tests/prose.py")
    if cpp or python:
        checks["complexity"] = lambda: command(sys.executable, "tests/complexity.py", *cpp, *python)
    if cpp:
        checks["clang-format"] = lambda: command(FORMAT, "--dry-run", "--Werror", *cpp)
    if python:
        ruff = [sys.executable, "-m", "ruff"]
        checks["ruff"] = lambda: command(*ruff, "check", "--no-cache", "--quiet", "--force-exclude", *python)
        checks["ruff format"] = lambda: command(*ruff, "format", "--quiet", "--diff", "--force-exclude", *python)
    if hardware and shutil.which("verilator"):
        memory = passed.Passed(build, os.environ)

        def of_hardware(script):
            key = memory.key_of_hardware(script)
            if options.fresh or not memory.has(key):
                if not command(script):
                    return False
                memory.keep(key)
            return True

        checks["verilator: machine"] = lambda: of_hardware("hw/rtl/lint.sh")
        checks["verilator: cells"] = lambda: of_hardware("hw/prim/lint.sh")
    if cpp:
        tidy = ClangTidy(build, options.deep, options.fresh)
        read = changed_by_last(options.tidy_last) if options.tidy_last is not None else None
        sources = sources_of(changed if read is None else changed & read, tracked, build)
        checks["clang-tidy"] = lambda: tidy.check(sources, options.jobs)

    failed = []
    checks = {name: check for name, check in checks.items() if name not in options.skip}
    for name, check in checks.items():
        start = time.monotonic()
        if not check():
            failed.append(name)
        print(f"--- {name}: {'failed' if name in failed else 'passed'}, {time.monotonic() - start:.0f} s", flush=True)
    print(f"lint: {len(checks) - len(failed)} checks passed, {len(failed)} failed" + "".join(f"; {n}" for n in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Checks what a program can check of the project's prose, in every file that git knows.

    tests/prose.py            prints a line `file:line: what is wrong` for each finding; exit status 1 if there is any

Markdown: no line beyond 120 columns outside of tables, code and lines that are one link; every relative link leads to a
file or folder of the project, and its #anchor to a heading of that file; every file that is named in `backquotes`
exists, under that name or at the end of a longer path. Sources and Markdown: the SPDX line stands among the first
three, and a C++ header says under it what it is for. Everything: no word that marks unfinished work and no path of the
machine on which somebody worked.
"""

import fnmatch
import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
SPDX = "SPDX-License-Identifier: Apache-2.0"
# Sources whose format has comments; the others (JSON, goldens, data) cannot carry the line.
WITH_SPDX = {
    ".cc",
    ".h",
    ".in",
    ".py",
    ".sv",
    ".v",
    ".td",
    ".mlir",
    ".md",
    ".cmake",
    ".toml",
    ".tcl",
    ".sh",
    ".ts",
    ".mjs",
    ".css",
    ".fbs",
    ".cfg",
    ".ini",
}
WITH_SPDX_NAMES = {"CMakeLists.txt", "Makefile", "dev"}
# The manual is put together from chapters and data; its lines are theirs.
GENERATED = "/generated/"
# Written in two halves so that this file does not contain them.
FORBIDDEN = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b|(?<![\w.])/wo" r"rk/|(?<![\w.])/ho" r"me/\w")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:\.\./)*(?:[a-z][\w-]*/(?:[\w./*-]*\w)?|[\w*-]+\.(?:cc|h|py|sv|md|toml|tcl|fbs|td))/?)`")
# Products of builds, files outside of the project, and names that stand for any name.
NOT_HERE = re.compile(r"^build/|^\.\./shared/|foo|my_|^[\w*-]+/[A-Z]")
HEADING = re.compile(r"^#+ +(.*)$")


def listed():
    """The files of the project: what git tracks, and what is new and not ignored."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def anchor(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def outside_code(lines):
    """(number, line) of the lines outside of fenced and indented code."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


@functools.cache
def names():
    """Every file and folder of the project, files with and without their extension."""
    files = [pathlib.PurePosixPath(name) for name in listed()]
    return sorted({f"/{path}" for file in files for path in (file, file.with_suffix(""), *file.parents)})


def exists(name):
    """Whether a file, a folder or a pattern of files is at the end of some path of the project."""
    wanted = "*/" + re.sub(r"^(\.\./)+", "", name).rstrip("/")
    return bool(fnmatch.filter(names(), wanted))


def check_markdown(name, lines):
    """Findings of one Markdown file as (line number, message)."""
    for number, line in outside_code(lines):
        for target in NAMED.findall(line):
            if not NOT_HERE.search(target) and not exists(target):
                yield number, f"there is no {target}"
        text = LINK.sub("", line).strip(" -*.")
        if len(line) > WIDTH and not line.startswith("|") and text and GENERATED not in f"/{name}":
            yield number, f"{len(line)} columns; prose ends at {WIDTH}"
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, fragment = target.partition("#")
            file = (ROOT / name).parent / path if path else ROOT / name
            if not file.exists():
                yield number, f"the link to {path} leads nowhere"
            elif fragment and file.suffix == ".md":
                headings = {
                    anchor(match[1])
                    for _, other in outside_code(file.read_text().splitlines())
                    if (match := HEADING.match(other))
                }
                if fragment not in headings:
                    yield number, f"{path or name} has no heading #{fragment}"


def check(name):
    """Findings of one file as (line number, message)."""
    path = ROOT / name
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, 1):
        if match := FORBIDDEN.search(line):
            yield number, f"'{match[0]}' must not stand in the project"
    wants = (path.suffix in WITH_SPDX or path.name in WITH_SPDX_NAMES) and lines
    if wants and not any(SPDX in line for line in lines[:3]):
        yield 1, "the SPDX line is missing among the first three"
    if path.suffix == ".h" and lines and SPDX in lines[0] and not re.match(r" *(//|/\*)", "".join(lines[1:2])):
        yield 2, "the line under the licence has to say what the header is for"
    if path.suffix == ".md":
        yield from check_markdown(name, lines)


def main():
    findings = [f"{name}:{number}: {message}" for name in listed() for number, message in check(name)]
    print("\n".join(findings) if findings else "prose: lines, links, licences and words are in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""docs/tutorials, docs/tour.md and docs/cores.md: what a reader types there runs, in a folder that looks like a
fresh clone after a build, and prints the lines that the page shows.

A page is one session of a shell. In its blocks ```console a command stands behind `$ `, with the rest of its
here-document, and the lines under it are all that it prints; `...` stands for lines that are left out. A command fails
where an error of tessera is shown, and only there. A comment in front of a block says what is different there:

    <!-- not run: why -->           the block is shown only
    <!-- figures vary: why -->      the lines are those, numbers in them may be others

When figures change for a reason, `python tests/system/documents/test_tutorials.py --update` writes the lines again, and
says which lines have no counterpart any more and which numbers of the text are in no block.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

FOLDER = ROOT / "docs"
BENCHED = "cores.md"  # its text has figures of a bench, too
PAGES = ["tour.md", BENCHED, *sorted(f"tutorials/{path.name}" for path in (FOLDER / "tutorials").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (not run|figures vary): [^>]*-->\n+)?^```console\n(.*?)^```$", re.M | re.S)
HEREDOC = re.compile(r"<<'?(\w+)'?")
END = "\x1e"  # stands between the outputs of two commands
SKIPPED = "..."


def commands(block):
    """[(command, lines shown under it)] of a block."""
    found, lines = [], block.splitlines()
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            found[-1][1].append(line)
            continue
        command = [line[2:]]
        if mark := HEREDOC.search(line):
            while command[-1] != mark[1]:
                command.append(lines.pop(0))
        found.append(("\n".join(command), []))
    return found


def typed(text):
    """[(command, lines shown under it)] of the page, in order."""
    return [pair for kind, block in BLOCK.findall(text) if kind != "not run" for pair in commands(block)]


def clone(folder):
    """Makes `folder` look like a clone after `./dev build`: links to everything, a build and an environment."""
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".venv", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(BUILD)
    (folder / ".venv" / "bin").mkdir(parents=True)
    path = f"{BUILD / 'bin'}:{pathlib.Path(sys.executable).parent}"
    (folder / ".venv" / "bin" / "activate").write_text(f'export PATH="{path}:$PATH"\n')


def type_in(text, folder):
    """The lines that each command prints. The first command that fails without being shown to ends the test."""
    clone(folder)
    pairs = typed(text)
    script = "".join(f"{command}\nprintf '{END}%d\\n{END}' $?\n" for command, _ in pairs)
    packages = [str(ROOT / "tessera" / "python"), str(BUILD / "lib")]
    done = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(packages)},
        timeout=300,
        check=False,
    )
    said = done.stdout.split(END)
    printed, statuses = said[:-1:2], said[1::2]
    assert len(statuses) == len(pairs), done.stdout
    for (command, shown), lines, status in zip(pairs, printed, statuses, strict=True):
        fails = any(line.startswith("tessera: error") for line in shown)
        assert (int(status) != 0) == fails, f"{command}\n{lines}"
    return [lines.splitlines() for lines in printed]


def form(line):
    """A line without its numbers and digests, and with single blanks."""
    return " ".join(re.sub(r"\b[0-9a-f]{16,}\b|[-+]?\d[\d.,]*", "#", line).split())


def first_word(line):
    return line.split()[0] if line.split() else ""


def renewed(shown, printed, vary, problems):
    """The shown lines as they were printed now."""
    lines, at, free = [], 0, False
    for line in shown:
        if line == SKIPPED:
            lines.append(line)
            free = True
            continue
        reach = range(at, len(printed) if free else min(at + 1, len(printed)))
        match = [i for i in reach if form(printed[i]) == form(line)] or [
            i for i in reach if first_word(printed[i]) == first_word(line) and not vary
        ]
        if match:
            at = match[0]
        else:
            problems.append(f"not printed: {line!r}; in its place: {printed[at : at + 1]}")
        lines.append(line if vary or not match else printed[at].rstrip())
        at, free = at + 1, False
    if not free and at < len(printed):
        problems.append(f"printed, but not shown: {printed[at:]}")
    return lines


def renewed_page(text, outputs, problems):
    """The page with what was printed now."""
    outputs = iter(outputs)

    def block(match):
        kind, body = match[1], match[2]
        if kind == "not run":
            return match[0]
        lines = []
        for command, shown in commands(body):
            lines += [f"$ {command}", *renewed(shown, next(outputs), kind == "figures vary", problems)]
        return match[0].replace(body, "\n".join(lines) + "\n")

    return BLOCK.sub(block, text)


def stale_numbers(text):
    """Numbers of three digits or more in the text around the blocks that no block has."""

    def numbers(part):
        return {number.replace(",", "") for number in re.findall(r"(?<![\w.-])\d[\d,]*\d(?![\w.])", part)}

    prose = re.sub(r"\]\([^)]*\)", "]", BLOCK.sub("", text))
    return sorted(
        number
        for number in numbers(prose)
        if len(number) > 2 and number not in numbers("\n".join(block for _, block in BLOCK.findall(text)))
    )


def missing(text):
    """What this build lacks for a page, or nothing."""
    if "tessera board" in text and not (BUILD / "lib/tessera/xrt/lib/libxrt_hwemu.so.2").exists():
        return "the simulated board (libxrt-dev or verilator)"
    lacking = [name for name in re.findall(r"build/release/bin/(\w+)", text) if not (BUILD / "bin" / name).exists()]
    if lacking:
        return lacking[0]
    if re.search("--device rtl|sysc rtl", text) and not (BUILD / "lib/tessera/rtl/npu64.so").exists():
        return "the RTL of npu64"
    if "--html" in text and not (BUILD / "web" / "page.html").exists():
        return "the page for the browser (npm)"
    return "" if "sysc" in tessera.backends() else "the timing model"


def test_the_index_leads_to_every_document():
    index = (ROOT / "docs" / "README.md").read_text()
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert len(PAGES) == 6
    # The frame of the site is no document of its own.
    unnamed = [name for name in sorted(documents) if f"({name})" not in index and not name.startswith("site/")]
    assert unnamed == []


def test_every_document_stands_on_one_shelf():
    """A document is an entry of one of the four, and every room's decisions are on the last."""
    text = (ROOT / "docs" / "README.md").read_text()
    shelves = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    assert list(shelves) == ["Tutorials", "Guides", "Reference", "Rationale"]
    links = [link for shelf in shelves.values() for link in re.findall(r"\]\(([^)#]+)\)", shelf)]
    assert sorted(link for link in set(links) if links.count(link) > 1) == []
    decided = {
        os.path.relpath(path, ROOT / "docs") for path in ROOT.glob("*/**/rationale.md") if "build" not in path.parts
    }
    assert decided - set(re.findall(r"\]\(([^)]+)\)", shelves["Rationale"])) == set()


def test_figures_that_vary_may_be_digests():
    assert form("digits for npu64, 1de81ef26b8d6ed0") == form("digits  for npu64, fe4429ac64d5f185")
    assert form("digits for npu64, 1") != form("digits for npu64, one")


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_sees_what_the_page_shows(page, tmp_path):
    text = (FOLDER / page).read_text()
    if lacking := missing(text):
        pytest.skip(f"this build has not {lacking}")
    problems = []
    now = renewed_page(text, type_in(text, tmp_path), problems)
    assert problems == []
    assert now == text, "tests/system/documents/test_tutorials.py --update writes what is printed now"


@pytest.mark.parametrize("page", [page for page in PAGES if page != BENCHED])
def test_the_text_s_numbers_are_those_of_the_blocks(page):
    assert stale_numbers((FOLDER / page).read_text()) == []


def update():
    for page in PAGES:
        path, problems = FOLDER / page, []
        text = path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            now = renewed_page(text, type_in(text, pathlib.Path(folder)), problems)
        path.write_text(now)
        stale = [f"in no block: {number}" for number in (stale_numbers(now) if page != BENCHED else ())]
        print("\n".join([f"{page}: written", *problems, *stale]))


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(f"usage: {sys.argv[0]} --update")
    update()

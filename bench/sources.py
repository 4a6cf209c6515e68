# SPDX-License-Identifier: Apache-2.0
"""How large the sources are, and how they hang together: lines by room, tests apart; files above 500 lines; functions
above the complexity that tests/complexity.py allows; circles, as tests/circles.py finds them; blocks of six lines that
stand in two places; folders of more than 30 files.

Enters: revisions that git knows; none is the working tree. Lines are those of a file without blank ones. Generated
files do not count, nor what is neither code nor its build: documents, figures, pictures. A block that is longer than
six lines counts once; lines without a letter are left out of blocks, and so are imports and includes, which repeat by
nature. A module's ports are their own text and count."""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

CODE = {".cc", ".h", ".py", ".sv", ".v", ".ts", ".td", ".cmake", ".sh", ".tcl", ".css", ".html", ".c", ".S"}
NAMES = {"CMakeLists.txt", "dev"}
GENERATED = re.compile(r"(^|/)generated/")
TESTS = re.compile(r"(^|/)(tests?|goldens?)/|_test\.|(^|/)test_|_bench\.cc$")
REPEATING = re.compile(r"^(#\s*(include|pragma)|import |from \S+ import|using |}|//|#|\"\"\")")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LONG_FILE, BLOCK, FOLDER = 500, 6, 30


def git(*arguments, text=None):
    return subprocess.run(["git", *arguments], cwd=ROOT, input=text, capture_output=True, check=True).stdout


def read(revision):
    """{name: text} of the sources of a revision, or of the working tree."""
    listing = ["ls-tree", "-r", "--name-only", "-z", revision] if revision else ["ls-files", "-z"]
    names = [name for name in git(*listing).decode().split("\0") if name]
    names = [name for name in names if is_source(pathlib.PurePosixPath(name))]
    if not revision:
        return {name: (ROOT / name).read_text(errors="replace") for name in names if (ROOT / name).is_file()}
    answer = git("cat-file", "--batch", text="".join(f"{revision}:{name}\n" for name in names).encode())
    files, at = {}, 0
    for name in names:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split()[2])
        files[name] = answer[end + 1 : end + 1 + size].decode(errors="replace")
        at = end + size + 2
    return files


def is_source(path):
    return (path.suffix in CODE or path.name in NAMES) and not GENERATED.search(str(path))


def lines_of(text):
    return sum(1 for line in text.splitlines() if line.strip())


def room_of(name):
    """The folder that a file belongs to; the compiler's, the simulators' and the command's rooms are inside of one."""
    parts = name.split("/")
    if len(parts) == 1:
        return "."
    return "/".join(parts[:2]) if parts[0] in ("compiler", "sim", "tessera") and len(parts) > 2 else parts[0]


def repeated_blocks(files):
    """How many blocks of BLOCK lines or more stand in a second place, each counted once for each further place."""
    first, count = {}, 0
    for name, text in sorted(files.items()):
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if re.search(r"[A-Za-z]", line) and not REPEATING.match(line)]
        inside = 0  # of a block that has been counted
        for at in range(len(lines) - BLOCK + 1):
            block = tuple(lines[at : at + BLOCK])
            if first.setdefault(hash(block), (name, at)) == (name, at):
                inside = 0
                continue
            count += not inside
            inside = 1
    return count


def measure(revision):
    import circles
    import complexity

    files = read(revision)
    own = {name: text for name, text in files.items() if not TESTS.search(name)}
    lines = {name: lines_of(text) for name, text in files.items()}
    rooms = collections.defaultdict(lambda: [0, 0])
    for name, count in lines.items():
        rooms[room_of(name)][name not in own] += count
    folders = collections.Counter(str(pathlib.PurePosixPath(name).parent) for name in files)
    read_by_lizard = [name for name in own if name.endswith((".cc", ".h", ".py"))]
    return {
        "lines": sum(lines[name] for name in own),
        "lines_of_tests": sum(lines.values()) - sum(lines[name] for name in own),
        "files": len(own),
        f"files_above_{LONG_FILE}_lines": sum(lines[name] > LONG_FILE for name in own),
        "longest_file": "{1}: {0}".format(*max((lines[name], name) for name in own)),
        f"functions_above_complexity_{complexity.MOST}": sum(
            len(complexity.complex_functions(name, own[name])) for name in read_by_lizard
        ),
        "circles": len(circles.circles(circles.needs({name: files[name] for name in files if is_read(name)}))),
        f"blocks_of_{BLOCK}_lines_twice": repeated_blocks(own),
        f"folders_above_{FOLDER}_files": sum(count > FOLDER for count in folders.values()),
        "rooms": {room: {"lines": pair[0], "tests": pair[1]} for room, pair in sorted(rooms.items())},
    }


def is_read(name):
    return name.endswith((".py", ".ts", ".h"))


def bench(revisions):
    for revision in revisions:
        if subprocess.run(["git", "rev-parse", "-q", "--verify", f"{revision}^{{tree}}"], cwd=ROOT, **QUIET).returncode:
            raise SystemExit(f"bench sources: git knows no revision '{revision}'")
    measured = {revision or "now": measure(revision) for revision in [*revisions, ""]}
    rooms = sorted({room for one in measured.values() for room in one["rooms"]})
    figures = [key for key in next(iter(measured.values())) if key != "rooms"]
    return {
        "sources": [{"figure": key, **{at: one[key] for at, one in measured.items()}} for key in figures],
        "rooms": [
            {
                "room": room,
                **{
                    f"{at}{kind}": one["rooms"].get(room, {}).get(key, 0)
                    for at, one in measured.items()
                    for key, kind in (("lines", ""), ("tests", " tests"))
                },
            }
            for room in rooms
        ],
    }

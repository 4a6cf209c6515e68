# SPDX-License-Identifier: Apache-2.0
"""What a new instruction needs, found out by adding one.

A copy of the sources gets one more instruction in isa.toml and a fresh generation, nothing else. Then the generator,
the C++ compiler and Verilator must name every place that still has to learn it, and these places must be the list in
CONTRIBUTING.md: at most ten, none of them silent. Compilers only check (-fsyntax-only, --lint-only), with the commands
of the build in TESSERA_BUILD. What they said of a source stands there, and they are not asked again while the source,
what it includes of the project and of the build, and the command are the same.

The short form compiles what can reach the places of the list and checks that each of them is named, for an
instruction of the vector unit, one of the matrix unit, and a transfer. The long form (TESSERA_LONG=1) adds all three,
compiles every translation unit that sees the instructions and lints every module: nothing else may be named.

An operator of the CPU is counted likewise: an expression in the table ops/kernels/pointwise.h is all that the
interpreter's kernel and the compiled loop need, a Movement in a family of ops/ all that an operator needs which only
moves elements.
"""

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

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release")).resolve()
LONG = bool(os.environ.get("TESSERA_LONG"))
MOST_PLACES = 10
KEPT = BUILD / "tests" / "named"  # what compilers said
COPY = "COPY-OF-THE-SOURCES"

TRANSPOSE = """
[[instruction]]
name = "transpose"
opcode = 41
engine = "alu"
doc = "Exchanges rows and lanes of entries of OUT."
nest = { extent = "extent" }
operands = [
  { name = "source", access = "read", memory = "out", unit = "entries", \
    address = "src_addr", loops = "all", stride = "src_stride", doc = "" },
  { name = "destination", access = "write", memory = "out", unit = "entries", \
    address = "dst_addr", loops = "all", stride = "dst_stride", doc = "" },
]
work = [{ counts = "steps", each = [] }]
latency = [{ cycles = "alu.raw" }]
fields = [
  { name = "extent", lsb = 64, width = 12, array = 2, kind = "unsigned", default = 1, doc = "Iterations." },
  { name = "src_addr", lsb = 88, width = 14, kind = "unsigned", doc = "First source entry." },
  { name = "dst_addr", lsb = 102, width = 14, kind = "unsigned", doc = "First destination entry." },
  { name = "src_stride", lsb = 116, width = 14, array = 2, kind = "signed", doc = "Entries." },
  { name = "dst_stride", lsb = 144, width = 14, array = 2, kind = "signed", doc = "Entries." },
]
reserved = [{ lsb = 172, width = 340 }]
"""
OUTER = TRANSPOSE.replace('"transpose"', '"outer"').replace("opcode = 41", "opcode = 43")
OUTER = OUTER.replace('engine = "alu"', 'engine = "gemm"').replace("alu.raw", "gemm.write")
SCATTER = """
[[instruction]]
name = "scatter"
opcode = 42
engine = "store"
doc = "Writes one run of OUT to DRAM over and over."
nest = { extent = "extent" }
operands = [
  { name = "source", access = "read", memory = "out", unit = "bytes", \
    address = "sp_addr", loops = "none", length = "length", doc = "" },
  { name = "destination", access = "write", memory = "dram:base", unit = "bytes", \
    address = "dram_offset", loops = "all", stride = "dram_stride", length = "length", doc = "" },
]
fields = [
  { name = "base", lsb = 64, width = 4, kind = "unsigned", doc = "Base register." },
  { name = "dram_offset", lsb = 68, width = 36, kind = "unsigned", doc = "Bytes." },
  { name = "length", lsb = 104, width = 16, kind = "unsigned", doc = "Bytes of a run." },
  { name = "sp_addr", lsb = 120, width = 22, kind = "unsigned", doc = "First byte." },
  { name = "extent", lsb = 142, width = 16, array = 2, kind = "unsigned", default = 1, doc = "Iterations." },
  { name = "dram_stride", lsb = 174, width = 32, array = 2, kind = "signed", doc = "Bytes." },
]
reserved = [{ lsb = 238, width = 274 }]
"""


def listed_places():
    """The numbered list of CONTRIBUTING.md: for each row the files, of which an instruction needs one."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Adding an instruction")[1].split("\n## ")[0]
    rows = re.findall(r"^\d+\. ((?:`[^`]+`(?: or |, )?)+)", text, re.M)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def copy_sources(to):
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in names.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".h", ".cc", ".td", ".sv", ".py", ".toml", ".md", ".fbs", ".sh", ".in") and path.exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to / name)


def generate(sources):
    return subprocess.run(["/usr/bin/python3", sources / "isa" / "generate.py"], capture_output=True, text=True)


def includes(path, sources, seen):
    """Adds the project's and the build's files that `path` includes, with those that they include."""
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.M):
        inner = next((found for at in (sources, BUILD, path.parent) if (found := at / name).is_file()), None)
        if inner is not None and inner not in seen:
            seen.add(inner)
            includes(inner, sources, seen)
    return seen


def compiled(entry):
    """The sources of a command of the build: one, or those that it compiles together."""
    unit = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
    together = re.findall(r'#include "([^"]+)"', unit.read_text()) if unit.match("Unity/unity_*.cxx") else [unit]
    units = map(pathlib.Path, together)
    return [u for u in units if u.is_relative_to(ROOT) and not u.is_relative_to(BUILD) and u.suffix == ".cc"]


@functools.cache
def build_commands():
    """Translation unit -> the build's own command, for this unit, as a check of the syntax, both from the root of the
    sources, which COPY stands for in the command."""
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        folder = pathlib.Path(entry["directory"])

        def relocate(text, folder=folder):
            path = (folder / text).resolve()
            inside = path.is_relative_to(ROOT) and not path.is_relative_to(BUILD)
            return f"{COPY}/{path.relative_to(ROOT)}" if inside else str(path)

        arguments, words = [], iter(shlex.split(entry["command"]))
        for word in words:
            if word in ("-o", "-MF", "-MT", "-MQ"):
                next(words)
            elif word in ("-c", "-MD", "-MMD", "-Winvalid-pch") or word.endswith(("ccache", ".cc", ".cxx")):
                continue
            elif word.startswith("-I"):
                arguments.append("-I" + relocate(word[2:]))
            elif word == "-isystem":
                arguments += [word, relocate(next(words))]
            else:
                arguments.append(word)
        arguments += ["-fsyntax-only", "-w", "-fdiagnostics-color=never"]
        for unit in compiled(entry):
            commands[unit.relative_to(ROOT)] = [*arguments, f"{COPY}/{unit.relative_to(ROOT)}"]
    return commands


def compile_commands(sources):
    """The same for a copy of the sources."""
    found = build_commands().items()
    return {sources / unit: [word.replace(COPY, str(sources)) for word in command] for unit, command in found}


def named_by(output, sources):
    """The files that a compiler's errors lie in; for an error inside the library, the line that asked for it."""
    places, asked = set(), None
    for line in output.splitlines():
        found = re.match(r"(\S+?):\d+:(?:\d+:)? +(error|required from)", line)
        if not found:
            continue
        path = pathlib.Path(os.path.normpath(found[1]))
        own = path.is_relative_to(sources) and not path.is_relative_to(sources / "isa" / "generated")
        if found[2] == "required from":
            asked = path if own else asked
            continue
        place = path if own else asked
        if place is not None:
            places.add(str(place.relative_to(sources)))
        asked = None
    return places


@functools.cache
def version_of(compiler):
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def places_in(unit, command, sources):
    """What a compiler names in a source, none where it takes it. Kept by all that it depends on, but for the system's
    headers."""
    read = sorted(includes(unit, sources, {unit}))
    contents = [(os.path.relpath(path, sources), path.read_text()) for path in read if path.is_relative_to(sources)]
    made = [(str(path), path.read_text()) for path in read if not path.is_relative_to(sources)]
    parts = version_of(command[0]), [word.replace(str(sources), "") for word in command], contents, made
    kept = KEPT / hashlib.sha256(repr(parts).encode()).hexdigest()
    if kept.exists():
        return set(json.loads(kept.read_text()))
    result = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    places = named_by(result.stderr, sources)
    assert (result.returncode == 0) == (not places), f"{unit}: {result.returncode}, no place in\n{result.stderr[:4000]}"
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(sorted(places)))
    return places


def compiler_places(sources, units):
    commands = compile_commands(sources)

    def check(unit):
        return places_in(unit, commands[unit], sources)

    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        return set().union(*pool.map(check, [unit for unit in units if unit in commands]))


def verilator_places(sources, modules):
    """The modules that no longer pass Verilator's lint."""
    places = set()
    for path in modules:
        command = ["verilator", "--lint-only", "-Wall", "-Wno-WIDTHCONCAT", "-Wno-UNUSEDPARAM"]
        command += [sources / "isa/generated/tsr_isa_pkg.sv", sources / "hw/rtl/tsr_alu_pkg.sv"]
        command += ["-y", sources / "hw/rtl", "-y", sources / "hw/prim"]
        result = subprocess.run([*command, "--top-module", path.stem, path], capture_output=True, text=True)
        found = re.findall(r"^%(?:Error|Warning)[^:]*: (\S+?):\d+:\d+:", result.stderr, re.M)
        places |= {str(pathlib.Path(name).relative_to(sources)) for name in found if "generated" not in name}
        assert result.returncode == 0 or found, result.stderr
    return places


def places_of(instructions, sources, long):
    """Every place that is named once isa.toml has the instructions."""
    copy_sources(sources)
    toml = sources / "isa" / "isa.toml"
    toml.write_text(toml.read_text() + "".join(instructions))
    places = {"isa/isa.toml"}
    for instruction in instructions:
        refused = generate(sources)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        places.add(re.search(r"generate.py: (\S+):", refused.stderr)[1])
        chapter = sources / "isa" / "semantics.md"
        name = re.search(r'name = "(\w+)"', instruction)[1]
        chapter.write_text(chapter.read_text() + f"\n## {name.upper()}\n")
    done = generate(sources)
    assert done.returncode == 0, done.stdout + done.stderr
    header = sources / "isa" / "generated" / "instructions.h"
    units = [unit for unit in compile_commands(sources) if header in includes(unit, sources, set())]
    modules = sorted(path for path in (sources / "hw" / "rtl").glob("tsr_*.sv") if not path.stem.endswith("_pkg"))
    if not long:
        listed = {sources / file for row in listed_places() for file in row}
        units = sorted(u for u in units if u in listed or u.name == "random_program_test.cc")
        modules = [m for m in modules if m in listed]
    places |= compiler_places(sources, units)
    if shutil.which("verilator"):
        places |= verilator_places(sources, modules)
    return places


def test_the_list_is_short():
    assert 1 <= len(listed_places()) <= MOST_PLACES


def test_the_sources_themselves_pass(tmp_path):
    """Without a new instruction nothing is named, so that what is named comes from it."""
    copy_sources(tmp_path)
    listed = {tmp_path / file for row in listed_places() for file in row}
    units = sorted(u for u in compile_commands(tmp_path) if u in listed or u.name == "random_program_test.cc")
    assert len(units) >= 4
    assert compiler_places(tmp_path, units) == set()
    if shutil.which("verilator"):
        assert verilator_places(tmp_path, [path for path in sorted(listed) if path.suffix == ".sv"]) == set()


def test_a_compiler_is_asked_again_when_a_header_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.KEPT", tmp_path / "kept")
    unit, header, outer = (tmp_path / name for name in ("unit.cc", "inner.h", "outer.h"))
    unit.write_text('#include "outer.h"\nint three = two + 1;\n')
    outer.write_text('#include "inner.h"\n')
    command = ["c++", f"-I{tmp_path}", "-fsyntax-only", str(unit)]
    asked = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda words, **options: asked.append(words) or run(words, **options))
    for text, places, times in (
        ("int two = 2;\n", set(), 1),
        ("int two = 2;\n", set(), 1),
        ("int two = none;\n", {"inner.h"}, 2),
        ("int two = 2;\n", set(), 2),
        ("int two = none;\n", {"inner.h"}, 2),
    ):
        header.write_text(text)
        assert places_in(unit, command, tmp_path) == places
        assert asked.count(command) == times
    assert places_in(unit, [*command, "-DOTHER"], tmp_path) == {"inner.h"}
    assert len(asked) == 4  # for its version, too


@pytest.mark.parametrize("instruction", [TRANSPOSE, OUTER, SCATTER], ids=["alu", "gemm", "store"])
def test_the_build_names_one_file_of_each_row(instruction, tmp_path):
    places = places_of([instruction], tmp_path, long=False)
    for row in listed_places():
        assert len(places.intersection(row)) == 1, f"CONTRIBUTING.md lists {row}, the build names {sorted(places)}"


@pytest.mark.skipif(not LONG, reason="the long form compiles everything: ./dev test --long")
def test_the_build_names_no_other_place(tmp_path):
    places = places_of([TRANSPOSE, OUTER, SCATTER], tmp_path, long=True)
    assert places == {file for row in listed_places() for file in row}


CUBE = '  o.unary("Cube", 28, kReals, [](auto x) { return x * x * x; });\n'
# Each of the two sides lacks one of these words, and must say so where the expression stands.
NOT_COMPILED = CUBE.replace("x * x * x", "decltype(x){x.value}")
NOT_INTERPRETED = CUBE.replace("x * x * x", "x.body().integer(x.dtype(), 1)")
TABLE_READERS = {
    "ops/onnx/family_pointwise.cc": "ops/onnx/family_activation.cc",
    "compiler/cpu/expressions/elementwise.cc": "compiler/cpu/loops/joins.cc",
}


def table_places(entry, sources):
    """What the compiler names on each side once the table has the entry. A unit that the build joins with others is
    compiled as a neighbour is that stands alone."""
    copy_sources(sources)
    table = sources / "ops" / "kernels" / "pointwise.h"
    text = table.read_text()
    assert text.count('  o.unary("Neg"') == 1
    table.write_text(text.replace('  o.unary("Neg"', entry + '  o.unary("Neg"'))
    commands, named = compile_commands(sources), {}
    for unit, neighbour in TABLE_READERS.items():
        command = [*commands[sources / neighbour][:-1], str(sources / unit)]
        named[unit] = places_in(sources / unit, command, sources)
    return named


@pytest.mark.parametrize(
    "entry,refusing",
    [
        (CUBE, []),
        (NOT_COMPILED, ["compiler/cpu/expressions/elementwise.cc"]),
        (NOT_INTERPRETED, ["ops/onnx/family_pointwise.cc"]),
    ],
    ids=["both", "interpreted", "compiled"],
)
def test_an_expression_takes_one_place(entry, refusing, tmp_path):
    named = table_places(entry, tmp_path)
    assert [unit for unit, places in named.items() if places] == sorted(refusing)
    assert all("ops/kernels/pointwise.h" in places for places in named.values() if places)


def definitions(pattern, folder):
    """Operator -> the files of a folder that define it by one of the calls that the pattern names."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*.*")):
        if path.suffix not in (".h", ".cc") or path.stem.endswith("_test"):
            continue
        for name in re.findall(rf'\b(?:{pattern})\(\s*(?:\w+,\s*)?"(\w+)"', path.read_text()):
            found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_expressions_and_movements_have_no_second_place():
    table = re.findall(r'^  o\.\w+\("(\w+)"', (ROOT / "ops" / "kernels" / "pointwise.h").read_text(), re.M)
    moved = definitions("add_movement", "ops")
    compiled = definitions(r"t\.add", "compiler/cpu")
    assert len(table) > 60 and len(moved) >= 10 and len(compiled) > 50
    assert not compiled.keys() & (set(table) | moved.keys())
    assert all(len(files) == 1 for files in moved.values())

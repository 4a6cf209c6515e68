# SPDX-License-Identifier: Apache-2.0
"""Synthesis of the machine one module at a time, for Xilinx parts, each result kept. Enters: a configuration, a family,
options of synth_xilinx, a Yosys. Leaves: for every module of the elaborated machine its netlist of the family's
primitives, the cells in it and what its memories became.

Method: Yosys elaborates the machine and writes it module by module. A module's key is a digest of its own text without
source lines and invented names, of Yosys' version and of the options. A module whose key is known is taken from the
folder build/synth (or TESSERA_SYNTH_CACHE); the others are synthesised, with the known ones as black boxes, which is
what synthesis without flattening does too. So only what an edit changed is synthesised again, and machines share their
common modules."""

import concurrent.futures
import dataclasses
import gzip
import hashlib
import json
import os
import pathlib
import re
import sys

import machine
import memories
from machine import Failure

CACHE = pathlib.Path(os.environ.get("TESSERA_SYNTH_CACHE", machine.ROOT / "build" / "synth"))
FORMAT = 2  # of what is kept; other formats are made again

# Modules that are synthesised as a part of the one that holds them: borders inside of one pipeline, across which grants
# and addresses are decided in one cycle. Yosys maps a module for the least depth as if all its inputs came together, so
# apart they would be slower and larger.
PARTS = {
    "tsr_alu": (
        "tsr_alu_prepare",
        "tsr_alu_issue",
        "tsr_alu_under_way",
        "tsr_alu_source",
        "tsr_alu_lanes",
        "tsr_alu_write",
    ),
    "tsr_rows": (
        "tsr_row_reads",
        "tsr_row_groups",
        "tsr_row_maximum",
        "tsr_row_walk",
        "tsr_row_setup",
        "tsr_row_lane",
        "tsr_row_channels",
        "tsr_row_write",
        "tsr_row_under_way",
        "tsr_row_results",
    ),
}


@dataclasses.dataclass
class Module:
    """One module of an elaborated machine."""

    name: str  # as Yosys writes it, with parameters
    text: str  # RTLIL, of its parts too
    depth: int | None  # parameter Depth of a memory template
    style: str = ""  # ram_style instead of what the source says
    parts: list = dataclasses.field(default_factory=list)  # names of modules that are synthesised inside of it
    key: str = ""
    cells: dict = dataclasses.field(default_factory=dict)  # {kind: number} of its netlist
    memories: list = dataclasses.field(default_factory=list)  # Yosys' lines about its memories
    netlist: str = ""  # RTLIL of the family's primitives
    fresh: bool = False  # synthesised now, not kept from before


def short(name):
    """A module's name without the parameters that Yosys adds."""
    return re.findall(r"tsr_\w+", name)[0]


def split(text):
    """The modules of an RTLIL file: {name: text}."""
    found, begin, name = {}, 0, None
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        if line.startswith("module "):
            name = line.split()[1]
        elif line.startswith("attribute ") and name is None and begin is None:
            begin = i
        elif line == "end\n":
            found[name] = "".join(lines[begin : i + 1])
            begin, name = i + 1, None
    return found


def cells_of(text):
    """{kind: number} of a module's cells."""
    counts = {}
    for kind in re.findall(r"^  cell (\S+) ", text, re.M):
        kind = kind.removeprefix("\\")
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def ports(text):
    """{port: (direction, bits)} of the first module of a text, in the order of its ports."""
    found = []
    for line in text.split("\nend\n")[0].splitlines():
        wire = re.match(r"  wire (.*)\b(input|output) (\d+) (?:signed )?\\(\S+)$", line)
        if wire:
            width = re.search(r"width (\d+)", wire[1])
            found.append((int(wire[3]), wire[4], wire[2], int(width[1]) if width else 1))
    return {name: (way, bits) for _, name, way, bits in sorted(found)}


def normal(text):
    """The text with source lines left out and invented names numbered in the order in which they appear."""
    text = re.sub(r"^ *attribute \\src .*\n", "", text, flags=re.M)
    names = {}
    lines = []
    for line in text.splitlines():
        head = ""
        if line.startswith(("  cell ", "module ")):  # the kind of a cell and a module's own name stay
            head, _, line = line.lstrip().partition(" ")
            kind, _, line = line.partition(" ")
            head = f"{head} {kind} "
        lines.append(
            head
            + re.sub(
                r"\$(?!paramod)[^\s]+", lambda m: names.setdefault(m[0], f"$n{len(names)}"), re.sub(r"^ +", "", line)
            )
        )
    return "\n".join(lines)


def parameter(text, name):
    """The integer parameter of a module in RTLIL, or None."""
    found = re.search(rf"^  parameter \\{name} (?:32'([01]+)|(\d+))$", text, re.M)
    return (int(found[1], 2) if found[1] else int(found[2])) if found else None


def elaborate(config, folder, tool, minutes):
    """{name: Module} of a configuration, before synthesis."""
    called = machine.file_name(config)
    target = folder / f"elaborated_{called}.il"
    commands = machine.read_commands(machine.top(config), machine.parameters(config)) + [f"write_rtlil {target.name}"]
    machine.yosys(commands, folder / f"elaborate_{called}.log", minutes, tool)
    found = {}
    for name, text in split(target.read_text()).items():
        depth = parameter(text, "Depth")
        if depth and parameter(text, "Width") == 1:
            depth = -(-depth // 16)  # as check.depths counts
        found[name] = Module(name, text, depth)
    target.unlink()
    for module in list(found.values()):
        module.parts = [name for name in found if short(name) in PARTS.get(short(module.name), ())]
        module.text += "".join(found.pop(name).text for name in module.parts)
    for instance in machine.ultra(config):
        pads = next(one for name, one in found.items() if short(name) == "tsr_scratchpads")
        kind = re.search(rf"^  cell (\S+) \\{instance}$", pads.text, re.M)
        if not kind:
            raise Failure(f"tsr_scratchpads has no memory {instance}; see ULTRA in hw/synth/machine.py")
        found[kind[1]].style = "ultra"
    return found


def flow(family, options):
    """synth_xilinx without the step that reads the cells and removes modules outside one hierarchy; the ports are out
    of context. Inverters of the reset, one for each register, become one for each module."""
    return [
        f"synth_xilinx -noiopad -noclkbuf -family {family} {' '.join(options)} -run prepare:".replace("  ", " "),
        "opt_merge",
        "opt_clean",
        "check -assert",
        f"select -assert-none {memories.LATCHES}",
    ]


def libraries(specify=True):
    return [
        f"read_verilog -lib {'-specify ' if specify else ''}+/xilinx/cells_sim.v",
        "read_verilog -lib +/xilinx/cells_xtra.v",
    ]


def pattern(name):
    """A module as Yosys' selections name it; in them a backslash would quote."""
    return name.removeprefix("\\").replace("\\", "?")


def inline(group):
    """Yosys commands that put the parts of modules into them."""
    commands = []
    for module in group:
        if module.parts:
            parts, mine = " ".join(pattern(part) for part in module.parts), pattern(module.name)
            rest = " ".join(pattern(other.name) for other in group if other is not module)
            commands += [f"setattr -mod -set keep_hierarchy 1 {rest}"] if rest else []
            commands += [f"proc {mine} {parts}", f"flatten {mine}", f"delete {parts}"]
            commands += [f"setattr -mod -unset keep_hierarchy {rest}"] if rest else []
    return commands


def synthesise(group, everything, config, number, family, options, folder, tool, minutes):
    """Synthesises the modules of `group`; all others become black boxes. The machine is read from the sources again:
    Yosys' results depend on the order in which names came to be, so a module read from RTLIL gives other numbers than
    one read from Verilog."""
    name = f"{machine.file_name(config)}_{family}_{number}"
    target = folder / f"{name}_mapped.il"
    names = {module.name for module in group}
    others = [pattern(other) for other in everything if other not in names]
    commands = machine.read_commands(machine.top(config), machine.parameters(config))
    commands += [
        f'setattr -set ram_style "{module.style}" {pattern(module.name)}/m:*' for module in group if module.style
    ]
    # Without a top Yosys keeps modules that no other one holds. Black boxes are not selected by the star.
    commands += ["setattr -mod -unset top *"]
    commands += [f"blackbox {other}" for other in others]
    commands += inline(group)
    hidden = [pattern(part) for other in everything.values() if other.name not in names for part in other.parts]
    commands += [f"delete {part}" for part in hidden]
    commands += libraries() + flow(family, options) + [f"write_rtlil {target.name}"]
    run = machine.yosys(commands, folder / f"{name}.log", minutes, tool)
    mapped = split(target.read_text())
    target.unlink()
    for module in group:
        module.netlist = re.sub(r"^ *attribute \\src .*\n", "", mapped[module.name], flags=re.M)
        module.cells = cells_of(module.netlist)
        module.memories = [
            line
            for line in run.log.splitlines()
            if line.startswith(("mapping memory ", "using FF mapping for memory "))
            and line.split(" memory ")[1].startswith(module.name.removeprefix("\\") + ".")
        ]
        module.fresh = True
    return run.seconds


def kept(module):
    """Fills a module from what was kept; False when there is nothing."""
    path = CACHE / f"{module.key}.json.gz"
    if not path.exists():
        return False
    with gzip.open(path, "rt") as file:
        found = json.load(file)
    if found["format"] != FORMAT:
        return False
    module.cells, module.memories, module.netlist = found["cells"], found["memories"], found["netlist"]
    return True


def keep(module):
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{module.key}.json.gz"
    partial = path.with_suffix(f".{os.getpid()}")
    with gzip.open(partial, "wt", compresslevel=3) as file:
        json.dump(
            {
                "format": FORMAT,
                "module": module.name,
                "cells": module.cells,
                "memories": module.memories,
                "netlist": module.netlist,
            },
            file,
        )
    partial.replace(path)


# Machines that are synthesised in one run or not at all, so that the same sources always give the same figures.
TOGETHER = ("npu16",)


def keyed(config, family, options, folder, tool="yosys", minutes=15):
    """({name: Module} of a configuration before synthesis, with their keys; the options of synth_xilinx for them)."""
    everything = elaborate(config, folder, tool, minutes)
    if any(module.style == "ultra" for module in everything.values()):
        options = [*options, "-uram"]
    version = machine.version(tool)
    for module in everything.values():
        # A change of the flow above is a change of the key.
        text = "\n".join([version, *flow(family, options), module.style, normal(module.text)])
        module.key = hashlib.sha256(text.encode()).hexdigest()[:32]
    return everything, options


def mapped(config, family, options, folder, minutes=15, tool="yosys", jobs=2, fresh=False, wanted=None):
    """{name: Module} of a configuration after synthesis, and the seconds of the processor it took; with `wanted`, a
    function of such a dictionary that names modules, of those alone. Errors: Failure when Yosys refuses or takes too
    much, or a latch or an undriven wire is left."""
    everything, options = keyed(config, family, options, folder, tool, minutes)
    chosen = set(everything) if wanted is None else wanted(everything)
    if config in TOGETHER:
        whole = hashlib.sha256("".join(sorted(module.key for module in everything.values())).encode()).hexdigest()
        for module in everything.values():
            module.key = f"{config}_{whole[:16]}_{module.key[:16]}"
        jobs = 1
    missing = [module for name, module in everything.items() if name in chosen and (fresh or not kept(module))]
    if config in TOGETHER and missing:
        missing = list(everything.values())
    groups = [[] for _ in range(max(1, jobs))]
    for module in sorted(missing, key=lambda module: -len(module.text)):
        min(groups, key=lambda group: sum(len(one.text) for one in group)).append(module)
    if missing:
        print(f"{config}, {family}: {len(missing)} of {len(everything)} modules to synthesise", file=sys.stderr)

    def work(number):
        if not groups[number]:
            return 0.0
        seconds = synthesise(groups[number], everything, config, number, family, options, folder, tool, minutes)
        for module in groups[number]:
            keep(module)
        return seconds

    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        seconds = sum(pool.map(work, range(len(groups))))
    return everything, seconds


def memory_kinds(everything):
    """How the memories of a machine were mapped: {module.memory: {kind: number}}. Errors: as memories.kinds_of."""
    lines = [line for module in everything.values() for line in module.memories]
    return memories.kinds_of(lines, {name: module.depth for name, module in everything.items() if module.depth})


def top(everything):
    """The whole machine's name."""
    for kind in ("tsr_chip", "tsr_top"):
        found = [name for name in everything if short(name) == kind]
        if len(found) > 1:
            raise Failure(f"{len(found)} modules are called {kind}")
        if found:
            return found[0]
    raise Failure("no module is called tsr_top")

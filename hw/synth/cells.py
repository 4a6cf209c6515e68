# SPDX-License-Identifier: Apache-2.0
"""A second opinion on delays, for a standard-cell library: `./dev synth --cells`. Enters: a configuration. Leaves: for
each part of tsr_top its area and its longest path between registers or ports in OSU's cells for a 180 nm process, by
OpenSTA. Both come from Debian (opensta, qflow-tech-osu018) and are installed by whoever wants this; no test needs them.

Method: Yosys maps a part to the library's gates and inserts buffers, and OpenSTA adds up their delays, which depend on
loads; wires have none. Memories are left outside: their pins become ports. So the order of parts is
what to look at: a part that is slow here and fast in timing.py, or the other way round, owes its place to the
target."""

import pathlib
import re
import shutil
import subprocess

import machine
import modules
from machine import Failure

LIBERTY = pathlib.Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
TARGET_PS = 5000  # what the mapper inserts buffers and chooses sizes for
SETUP = """read_liberty {liberty}
read_verilog {netlist}
link_design inner
create_clock -name clk -period 10 [get_ports clk_i]
set_input_delay 0 -clock clk [all_inputs]
set_output_delay 0 -clock clk [all_outputs]
set_false_path -from [get_ports clk_i]
report_checks -path_delay max -digits 3
"""


def map_part(form, config, folder, options):
    """Writes the part's gates as Verilog; returns the file and the area in square micrometres."""
    constraint = folder / "cells.constr"
    constraint.write_text("set_driving_cell INVX8\nset_load 50.0 [all_outputs]\n")
    netlist = folder / f"cells_{machine.file_name(config)}_{modules.short(form.name)}.v"
    commands = machine.read_commands("tsr_top", machine.parameters(config)) + [
        "setattr -mod -unset top *",
        f"rename {form.name.removeprefix(chr(92))} inner",
        "hierarchy -check -top inner",
        "proc",
        "flatten",
        "opt -fast",
        "memory -nomap",
        "expose -evert t:$mem_v2",
        "synth -top inner",
        f"dfflibmap -liberty {LIBERTY}",
        f"abc -liberty {LIBERTY} -constr {constraint.name} -D {TARGET_PS}",
        "splitnets -ports",
        "opt_clean -purge",
        f"stat -liberty {LIBERTY}",
        f"write_verilog -noattr -noexpr -simple-lhs {netlist.name}",
    ]
    run = machine.yosys(commands, netlist.with_suffix(".log"), options.minutes, options.yosys)
    found = re.findall(r"Chip area for module '\\inner': ([\d.]+)", run.log)
    if not found:
        raise Failure(f"no area of {form.name}; log: {netlist.with_suffix('.log')}")
    return netlist, float(found[-1])


def path_of(text):
    """(nanoseconds, cells on the path, start, end) of OpenSTA's report."""
    arrival = re.search(r"([\d.]+)\s+data arrival time", text)
    start, end = re.search(r"^Startpoint: (\S+)", text, re.M), re.search(r"^Endpoint: (\S+)", text, re.M)
    if not (arrival and start and end):
        raise Failure(f"OpenSTA reports no path: {text.strip().splitlines()[-1] if text.strip() else 'no output'}")
    steps = re.findall(r"^ +-?[\d.]+ +-?[\d.]+ [\^v] \S+/[A-Z]+ \(\w+\)$", text, re.M)
    return float(arrival[1]), len(steps), start[1], end[1]


def measure(config, folder, options):
    """Errors: Failure when OpenSTA or the library is missing, or a tool refuses."""
    if not shutil.which("sta") or not LIBERTY.exists():
        raise Failure("apt-get install opensta qflow-tech-osu018 brings OpenSTA and the cell library")
    everything = modules.elaborate(config, folder, options.yosys, options.minutes)
    inside = modules.cells_of(everything[modules.top(everything)].text)
    forms = {}
    for name, module in everything.items():
        kind = modules.short(name)
        if name.removeprefix("\\") not in inside or kind == "tsr_scratchpads":
            continue
        if kind not in forms or len(module.text) > len(forms[kind].text):
            forms[kind] = module
    rows = []
    for kind, form in sorted(forms.items()):
        if options.module and kind not in options.module:
            continue
        netlist, area = map_part(form, config, folder, options)
        script = netlist.with_suffix(".tcl")
        script.write_text(SETUP.format(liberty=LIBERTY, netlist=netlist.name))
        done = subprocess.run(
            ["sta", "-no_init", "-no_splash", "-exit", script.name], cwd=folder, capture_output=True, text=True
        )
        ns, steps, start, end = path_of(done.stdout)
        rows.append({"module": kind, "ns": ns, "cells": steps, "area_um2": round(area), "start": start, "end": end})
    return {"config": config, "library": LIBERTY.stem, "parts": sorted(rows, key=lambda row: -row["ns"])}


def show(result):
    print(f"\n{result['config']}, {result['library']} (180 nm), OpenSTA: longest path of gates, no wires")
    print(f"{'':<20}{'ns':>8}{'gates':>8}{'um2':>12}   from -> to")
    for row in result["parts"]:
        print(
            f"{row['module']:<20}{row['ns']:>8.2f}{row['cells']:>8}{row['area_um2']:>12}   "
            f"{row['start']} -> {row['end']}"
        )

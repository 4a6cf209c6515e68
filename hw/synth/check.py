#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structural checks of the machine, by Yosys. Enters: the sources. Leaves: exit status 0, or what is wrong.

- Every shipped configuration elaborates from the same sources.
- No latch, no wire with several drivers or none, no combinational loop, within modules and, flattened, across them.
- Every memory is mapped to block RAM or to LUT RAM, as memories.py says, for both families; none becomes
  flip-flops.
- No combinational path from a ready input to a valid output or payload of the same side of a stream, in any module with
  streams; no combinational path at all through the AXI master (paths.py).
- The block RAM templates describe the same thing to the simulator and to synthesis (a proof).
- So do both forms of the matrix engine's multipliers, at small widths (a proof); its product in look-up tables is one.
- The rounding at the end of the ALU's stages is that of binary32 (a proof).
- The machine npu16 has the area and the longest path of logic that are documented (figures.json), within two percent.
- A machine with what npu16 lacks (rows, parity, the narrowest bus, blocks wider on the input's side) keeps the timing
  budget (budget.toml); so does npu256t (with TESSERA_LONG: minutes a machine).
- Modules whose clock on ECP5 is recorded still reach it, within five percent (with TESSERA_LONG: minutes a module).

Without Yosys the script says so and succeeds.
"""

import argparse
import os
import pathlib
import re
import tempfile

import figures
import machine
import memories
import paths
import pnr
import synth
import timing
from machine import Failure

# A machine whose memories have parity.
PARITY = "odd2x4x8"


def depths(log):
    """Words of the memory in each module with a parameter Depth, by the module's name: what Yosys' log says when it
    elaborates. Sixteen words of one bit count as one."""
    found = {}
    for given, module in re.findall(
        r"((?:Parameter \\\w+ = \S+\n)+)Generating RTLIL representation for module `(\S+)'", log
    ):
        depth = re.search(r"Parameter \\Depth = (?:(\d+)|\S*'(\d+))$", given, re.M)
        single = re.search(r"Parameter \\Width = (?:1|\S*'0*1)$", given, re.M)
        if depth:
            found[module] = int(depth[1]) if depth[1] else int(depth[2], 2)
            if single:
                found[module] = -(-found[module] // 16)
    return found


def check_elaboration(folder, configs):
    for config in configs:
        run = machine.yosys(
            machine.read_commands("tsr_top", machine.parameters(config)), folder / f"elaborate_{config}.log"
        )
        print(f"{config}: elaborates ({run.seconds:.1f} s)")


def check_structure(folder, config):
    """Latches, drivers, loops, memories of one configuration."""
    commands = machine.read_commands("tsr_top", machine.parameters(config))
    with_memories = {key.split(".")[0] for key in memories.MEMORIES}
    others = " ".join(f"*{path.stem}" for path in machine.sources() if path.stem not in with_memories)
    commands += [
        "proc",
        "opt_expr",
        "opt_clean",
        "check -assert",
        f"select -assert-none {memories.LATCHES}",
        "design -save read",
        f"delete {others}",
        "opt_dff",
        "opt_clean",
        "memory -nomap",
    ]
    for family in ("xcup", "xc7"):
        commands += [
            "design -save memories",
            f"synth_xilinx -family {family} -run map_memory:map_ffram",
            "design -load memories",
        ]
    commands += ["design -load read", "flatten", "opt_clean", "check -assert"]
    run = machine.yosys(commands, folder / f"structure_{config}.log")
    kinds = memories.kinds_of(run.log.splitlines(), depths(run.log))
    missing = set(memories.MEMORIES) - set(kinds) - memories.OPTIONAL
    if missing:
        raise Failure(f"no such memory: {', '.join(sorted(missing))}; see MEMORIES in hw/synth/memories.py")
    print(f"{config}: no latch, no loop, all wires have one driver; memories {kinds} ({run.seconds:.1f} s)")


def check_templates(folder):
    """The simulator's form of each block RAM and of the ALU's tables (macro VERILATOR) and the one for synthesis are
    equal: a proof over all inputs of five cycles, which is more than a word needs to be written twice and read. A byte
    that is read in the cycle in which it is written is the old one here, which the simulator gives wrong on purpose.
    """
    rtl = machine.ROOT / "hw/rtl"
    sources = [machine.ROOT / "isa/generated/tsr_isa_pkg.sv", *sorted(rtl.glob("tsr_ram_*.sv"))]
    sources += [rtl / "tsr_alu_tables.sv", machine.ROOT / "hw/synth/equal_tables.sv"]
    files = " ".join(str(path) for path in sources)
    for module, chosen in (
        ("tsr_ram_1r1w", "-chparam Width 16 -chparam Depth 2"),
        ("tsr_ram_2rw", "-chparam Width 16 -chparam Depth 2"),
        ("tsr_ram_groups", "-chparam Group 8 -chparam Groups 2 -chparam Depth 2"),
        ("tsr_ram_1r1w", "-chparam Width 16 -chparam Depth 2 -chparam Parity 1"),
        ("tsr_ram_2rw", "-chparam Width 16 -chparam Depth 2 -chparam Parity 1"),
        ("tsr_ram_2rw", "-chparam Width 8 -chparam Depth 4 -chparam Pairs 1"),
        ("tsr_ram_2rw", "-chparam Width 8 -chparam Depth 4 -chparam Pairs 1 -chparam Parity 1"),
        ("tsr_ram_2rw", "-chparam Width 8 -chparam Depth 8 -chparam Pairs 2"),
        ("tsr_ram_groups", "-chparam Group 8 -chparam Groups 2 -chparam Depth 2 -chparam Parity 1"),
        ("tsr_ram_groups", "-chparam Group 8 -chparam Groups 2 -chparam Depth 2 -chparam Pairs 1"),
        ("tsr_ram_groups", "-chparam Group 8 -chparam Groups 2 -chparam Depth 2 -chparam Pairs 1 -chparam Parity 1"),
        ("equal_tables", "-chparam TableBytes 4 -chparam Lanes 2"),
        ("equal_tables", "-chparam TableBytes 4 -chparam Lanes 1 -chparam Parity 1"),
        ("equal_tables", "-chparam TableBytes 8 -chparam Lanes 1"),
    ):
        name = module + (" with pairs" if "Pairs" in chosen else "") + (" with parity" if "Parity" in chosen else "")
        commands = []
        for form, macro in (("simulated", "-DVERILATOR"), ("made", "")):
            commands += [
                "design -reset",
                f"read_verilog -sv {macro} {files}",
                f"hierarchy -check -top {module} {chosen}",
                "proc",
                "flatten",
                "memory -nordff",
                "opt -full",
                f"rename -top {form}",
                f"design -stash {form}",
            ]
        commands += [
            "design -reset",
            "design -copy-from simulated simulated",
            "design -copy-from made made",
            "miter -equiv -flatten -make_outputs simulated made miter",
            "hierarchy -top miter",
            "opt_clean",
            "sat -verify -seq 5 -prove trigger 0 -set-init-zero miter",
        ]
        run = machine.yosys(commands, folder / f"template_{name.replace(' ', '_')}.log")
        if "SAT proof finished - no model found: SUCCESS!" not in run.log:
            raise Failure(f"{name}: the proof of equality did not run, see {folder}")
        print(f"{name}: both forms are equal ({run.seconds:.1f} s)")


def check_figures(folder, config="npu16", share=0.02):
    """Area and longest path of a small machine against what is recorded, so that neither grows unseen."""
    options = synth.arguments(["--config", config, "--family", timing.FAMILY, "--jobs", "1"])
    key = f"{config} {timing.FAMILY} {machine.version()}"
    recorded = figures.load()
    again = (
        f"./dev synth --config {config} --family {timing.FAMILY} --record, and "
        f"./dev synth --config {config} --timing --record, write the figures of today"
    )
    if key not in recorded["area"] or key not in recorded["timing"]:
        print(f"no figures of {key} are recorded: skipped; {again}")
        return
    area = synth.area(config, timing.FAMILY, folder, options)
    now = {**area["total"], "ns": timing.measure(config, folder, options, top_alone=True)["parts"][0]["ns"]}
    then = {**recorded["area"][key]["total"], "ns": recorded["timing"][key]["tsr_top"]["ns"]}
    moved = [
        f"{name} {then[name]:g} -> {now[name]:g}" for name in then if abs(now[name] - then[name]) > share * then[name]
    ]
    if moved:
        raise Failure(f"{config} has other figures than are documented: {', '.join(moved)}; {again}")
    print(f"{config}: {', '.join(f'{name} {now[name]:g}' for name in then)}, as documented within {share:.0%}")


def check_budget(folder):
    """Machines with what npu16 lacks are within the timing budget, each module and the whole. Only in long tests."""
    if not os.environ.get("TESSERA_LONG"):
        print("the budgets of npu32 and npu256t are measured in long tests: skipped")
        return
    for config in ("npu32", "npu256t"):
        options = synth.arguments(["--config", config, "--jobs", "1"])
        rows = timing.measure(config, folder, options)["parts"]
        broken = [
            f"{row['module']} {row['ns']:.2f} ns, {row['levels']} look-up tables, from {row['start']} to {row['end']}"
            for row in rows
            if timing.over(row)
        ]
        if broken:
            raise Failure(
                f"{config} is over its timing budget (hw/synth/budget.toml): {'; '.join(broken)}; "
                f"./dev synth --timing --config {config} --paths 20 lists the paths"
            )
        print(f"{config}: {rows[0]['ns']:.2f} ns of logic, all {len(rows)} parts within their budget")


def check_routed(folder, share=0.05):
    """The recorded clocks on ECP5, the worst of as many seeds, against what modules reach now. Only in long tests."""
    if not os.environ.get("TESSERA_LONG"):
        print("clocks on ECP5 are compared in long tests: skipped")
        return
    try:
        pnr.find_tool()
    except Failure as missing:
        print(f"{missing}: skipped")
        return
    recorded = {key: entry for key, entry in figures.load()["pnr"].items() if not key.endswith(" tsr_top")}
    slower = []
    for key, then in recorded.items():
        config, module = key.split()
        options = synth.arguments(["--pnr", "--seeds", str(then["seeds"])])
        now = pnr.place_and_route(config, module, folder, options)["worst_seed_mhz"]
        print(f"{module} of {config}: {now:g} MHz, recorded {then['worst_seed_mhz']:g}")
        if now < (1 - share) * then["worst_seed_mhz"]:
            slower.append(f"{key}: {then['worst_seed_mhz']:g} -> {now:g} MHz")
    if slower:
        raise Failure(
            f"slower on ECP5 than recorded: {'; '.join(slower)}; ./dev synth --pnr --record writes new figures"
        )


def check_forms(folder):
    """The simulator's form of tsr_mac_array and the one for synthesis compute the same: a proof over all inputs, with
    registers as wires, at widths that a solver masters. Each field, carry and correction of the real widths is there,
    and taps beyond half a row. Types and zero points of dense weights are cases of their own. A row of four operands
    has chains of two products. Chains of four need one of eight, in which half of the operands are zero here."""
    names = (
        "hw/synth/no_registers.v",
        "hw/prim/tsr_sum_tree.sv",
        "hw/prim/tsr_lut_multiply.sv",
        "hw/rtl/tsr_mac_array.sv",
        "hw/synth/equal_mac_array.sv",
    )
    files = " ".join(str(machine.ROOT / name) for name in ("isa/generated/tsr_isa_pkg.sv", *names))
    pairs = ["-set dense_i 0"]
    pairs += [f"-set dense_i 1 -set unsigned_i {kind} -set zero_i {zero}" for kind in range(2) for zero in range(4)]
    fours = [
        "-set dense_i 1 -set unsigned_i 0 -set zero_i 0 -set newest_i[15:8] 0",
        "-set dense_i 1 -set unsigned_i 1 -set zero_i 0 -set newest_i[7:0] 0",
        "-set dense_i 0 -set newest_i 0 -set one_i 0 -set take_i 63 -set window_i[9:0] 0",
    ]
    proofs, seconds = 0, 0.0
    for block_in, taps, cases in ((4, 3, pairs), (8, 6, fours)):
        commands = [
            f"read_verilog -sv {files}",
            f"hierarchy -check -top equal_mac_array -chparam BlockIn {block_in} -chparam Taps {taps} "
            "-chparam InputBits 2 -chparam WeightBits 2",
            *("proc", "flatten", "opt_dff -nosdff", f"techmap -map {machine.ROOT}/hw/synth/no_registers.v"),
            "select -assert-none t:$dff t:$dffe",
            *("opt_clean", "wreduce", "opt -full", "alumacc", "techmap", "opt -fast", "abc -fast", "opt_clean"),
            *(f"sat -verify {case} -prove equal_o 1" for case in cases),
        ]
        run = machine.yosys(commands, folder / f"forms_tsr_mac_array_{block_in}.log")
        proofs += run.log.count("SAT proof finished - no model found: SUCCESS!")
        seconds += run.seconds
    if proofs != len(pairs) + len(fours):
        raise Failure(f"tsr_mac_array: {proofs} of {len(pairs) + len(fours)} proofs of equality ran, see {folder}")
    print(f"tsr_mac_array: both forms are equal ({seconds:.1f} s)")


def check_multiply(folder):
    """The product in look-up tables is one: a proof at small widths. A long test proves the widths of the machine."""
    width, by_width = (9, 8) if os.environ.get("TESSERA_LONG") else (6, 6)
    names = ("hw/prim/tsr_lut_multiply.sv", "hw/synth/equal_multiply.sv")
    commands = [
        f"read_verilog -sv {' '.join(str(machine.ROOT / name) for name in names)}",
        f"hierarchy -check -top equal_multiply -chparam Width {width} -chparam ByWidth {by_width}",
        *("proc", "flatten", "opt -full", "sat -verify -prove equal_o 1"),
    ]
    run = machine.yosys(commands, folder / "forms_tsr_lut_multiply.log")
    if "SAT proof finished - no model found: SUCCESS!" not in run.log:
        raise Failure(f"tsr_lut_multiply: the proof did not run, see {folder}")
    print(f"tsr_lut_multiply: a product of {width} by {by_width} bits ({run.seconds:.1f} s)")


def check_requantise(folder):
    """Both forms of tsr_requantise compute the same: a proof over all values, biases, bounds, zero points and signs of
    a scale that is a power of two. Each exponent is a case of its own, since a solver does not master a shift that it
    may choose; those here stand for the ranges, a long test takes all. Other significands are those of
    tests/alu_arithmetic."""
    prim = ("pipe", "pipe_valid", "delay", "delay_valid", "retime", "shift_sticky", "round_saturate", "requantise")
    names = [f"hw/prim/tsr_{name}.sv" for name in (*prim, "requantise_plain")]
    files = ("isa/generated/tsr_isa_pkg.sv", *names, "hw/synth/equal_requantise.sv")
    exponents = range(256) if os.environ.get("TESSERA_LONG") else (0, 1, 73, 127, 136, 255)
    commands = [
        f"read_verilog -sv {' '.join(str(machine.ROOT / name) for name in files)}",
        "hierarchy -check -top equal_requantise",
        *("proc", "flatten", "opt -full", "wreduce", "alumacc", "techmap", "opt -fast", "abc -fast", "opt_clean"),
        *(f"sat -verify -set scale_i[30:23] {e} -set scale_i[22:0] 0 -prove equal_o 1" for e in exponents),
    ]
    run = machine.yosys(commands, folder / "forms_tsr_requantise.log")
    proofs = run.log.count("SAT proof finished - no model found: SUCCESS!")
    if proofs != len(exponents):
        raise Failure(f"tsr_requantise: {proofs} of {len(exponents)} proofs of equality ran, see {folder}")
    print(f"tsr_requantise: both forms are equal, {proofs} exponents ({run.seconds:.1f} s)")


def check_rounding(folder):
    """tsr_round_saturate equals two roundings, one after the other, and a clamp: a proof over all inputs. The
    cell's two wrong roundings must fail it."""
    names = [f"hw/prim/tsr_{name}.sv" for name in ("pipe", "pipe_valid", "retime", "round_saturate")]
    files = ("isa/generated/tsr_isa_pkg.sv", *names, "hw/synth/equal_rounding.sv")
    for rounding, scaled in ((0, 0), (0, 1), (1, 0), (2, 0)):
        commands = [
            f"read_verilog -sv {' '.join(str(machine.ROOT / name) for name in files)}",
            f"hierarchy -check -top equal_rounding -chparam Rounding {rounding} -chparam Scaled {scaled}",
            *("proc", "flatten", "opt -full", "alumacc", "techmap", "opt -fast", "abc -fast", "opt_clean"),
            f"sat -{'falsify' if rounding else 'verify'} -prove equal_o 1",
        ]
        run = machine.yosys(commands, folder / f"rounding_{rounding}_{scaled}.log")
        ending = "model found: FAIL!" if rounding else "no model found: SUCCESS!"
        if f"SAT proof finished - {ending}" not in run.log:
            raise Failure(f"tsr_round_saturate: the proof with Rounding = {rounding} did not run, see {folder}")
        seen = "is refuted" if rounding else "equals binary32's two roundings"
        print(f"tsr_round_saturate, Rounding = {rounding}, Scaled = {scaled}: {seen} ({run.seconds:.1f} s)")


def main():
    parser = argparse.ArgumentParser(description="Structural checks by Yosys")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="templates, forms, rounding, elaboration, structure, paths, figures, budget, routed (default: all)",
    )
    parser.add_argument("--config", action="append", help="configurations to elaborate (default: all shipped ones)")
    parser.add_argument("--structure", default="npu16", help="configuration whose structure is checked")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs")
    options = parser.parse_args()
    if not machine.have_yosys():
        print("yosys not found: skipped")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or pathlib.Path(scratch)
        parts = {
            "templates": lambda: check_templates(folder),
            "forms": lambda: (check_forms(folder), check_multiply(folder), check_requantise(folder)),
            "rounding": lambda: check_rounding(folder),
            "elaboration": lambda: check_elaboration(folder, options.config or [*machine.shipped(), PARITY]),
            "structure": lambda: check_structure(folder, options.structure),
            "paths": lambda: paths.check(folder, options.structure),
            "figures": lambda: check_figures(folder),
            "budget": lambda: check_budget(folder),
            "routed": lambda: check_routed(folder),
        }
        for part in options.parts or parts:
            if part not in parts:
                parser.error(f"unknown part '{part}'; there are {', '.join(parts)}")
            parts[part]()
    return 0


if __name__ == "__main__":
    machine.main(main)

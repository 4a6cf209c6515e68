# SPDX-License-Identifier: Apache-2.0
"""Combinational paths between ports. Enters: a module's netlist after `proc; flatten`, as Yosys' JSON. Leaves: for each
output bit the input bits it depends on without a register between. Bitwise cells are followed bit by bit, others as a
whole, registers and synchronous memory ports end a path.

The rules: no valid output or payload depends on a ready input of its own stream, in any module with streams; no output
of the AXI master depends on any of its inputs, and no response of the AXI4-Lite slave on a ready."""

import json
import re

import machine
from machine import Failure

BITWISE = {"$and", "$or", "$xor", "$xnor", "$not", "$mux", "$pos", "$bwmux"}
REGISTER = re.compile(r"\$(dff|dffe|adff|adffe|sdff|sdffe|sdffce|aldff|aldffe|dffsr)$")

# Modules with streams; tsr_top holds all of them, so that paths through several modules are followed there.
MODULES = (
    "tsr_queue",
    "tsr_bursts",
    "tsr_realign",
    "tsr_runs",
    "tsr_axi_read",
    "tsr_axi_write",
    "tsr_fetch",
    "tsr_load",
    "tsr_store",
    "tsr_control",
    "tsr_top",
)


def sources_of(module):
    """{output bit's net: nets that drive it combinationally}, one step."""
    drivers = {}
    for cell in module["cells"].values():
        kind, ports, ways = cell["type"], cell["connections"], cell["port_directions"]
        if REGISTER.match(kind):
            continue
        if kind in ("$mem_v2", "$mem"):
            memory_paths(cell, drivers)
            continue
        outputs = [name for name in ports if ways[name] == "output"]
        inputs = [name for name in ports if ways[name] == "input"]
        for output in outputs:
            for i, bit in enumerate(ports[output]):
                if not isinstance(bit, int):
                    continue
                found = drivers.setdefault(bit, set())
                for name in inputs:
                    bits = ports[name]
                    if kind in BITWISE and name != "S":
                        bits = bits[i : i + 1] or bits[-1:]
                    elif kind == "$pmux" and name != "S":
                        bits = bits[i :: len(ports[output])]
                    found.update(b for b in bits if isinstance(b, int))
    return drivers


def memory_paths(cell, drivers):
    """Asynchronous read ports depend on their address; what was written counts as a register."""
    values, ports = cell["parameters"], cell["connections"]
    count, width, address_bits = (int(values[key], 2) for key in ("RD_PORTS", "WIDTH", "ABITS"))
    clocked = values["RD_CLK_ENABLE"][::-1]
    for port in range(count):
        if clocked[port] == "1":
            continue
        address = {b for b in ports["RD_ADDR"][address_bits * port : address_bits * (port + 1)] if isinstance(b, int)}
        for bit in ports["RD_DATA"][width * port : width * (port + 1)]:
            if isinstance(bit, int):
                drivers.setdefault(bit, set()).update(address)


def dependencies(module):
    """{output port: {input port}} over combinational paths."""
    drivers = sources_of(module)
    inputs = {}
    for name, port in module["ports"].items():
        if port["direction"] == "input":
            inputs.update({bit: name for bit in port["bits"] if isinstance(bit, int)})
    result = {}
    for name, port in module["ports"].items():
        if port["direction"] != "output":
            continue
        seen, work, found = set(), [bit for bit in port["bits"] if isinstance(bit, int)], set()
        while work:
            bit = work.pop()
            if bit in seen:
                continue
            seen.add(bit)
            if bit in inputs:
                found.add(inputs[bit])
            work.extend(drivers.get(bit, ()))
        result[name] = found
    return result


def stream(port):
    """The stream of a port, by its name: m_arvalid_o, m_araddr_o and m_arready_i belong to m_ar."""
    found = re.match(r"((?:[ms]_(?:ar|aw|r|w|b))|(?:\w+?_)?)(valid|ready|addr|len|data|strb|last|resp)_?[io]*$", port)
    return (found[1].rstrip("_"), found[2]) if found else (None, None)


def violations(name, found):
    """Lines that say which rule a module breaks."""
    lines = []
    for output, inputs in sorted(found.items()):
        out_stream, role = stream(output)
        for port in sorted(inputs):
            in_stream, in_role = stream(port)
            if in_role == "ready" and out_stream == in_stream and role not in (None, "ready"):
                lines.append(f"{name}: {output} depends on {port}")
            elif output.startswith("m_") and port.startswith("m_"):
                if name == "tsr_top":
                    lines.append(f"{name}: {output} of the AXI master depends on {port}")
            elif name == "tsr_top" and output.startswith("s_") and in_role == "ready":
                lines.append(f"{name}: {output} of the AXI4-Lite slave depends on {port}")
    return lines


def check(folder, config):
    """Errors: Failure that lists the paths that break a rule."""
    lines, streams, seconds = [], 0, 0.0
    for name in MODULES:
        netlist = folder / f"paths_{name}.json"
        chosen = machine.parameters(config) if name == "tsr_top" else None
        run = machine.yosys(
            machine.read_commands(name, chosen)
            + ["proc", "flatten", "opt_expr", "opt_clean", "memory -nomap", "opt_clean", f"write_json {netlist}"],
            folder / f"paths_{name}.log",
        )
        seconds += run.seconds
        modules = json.loads(netlist.read_text())["modules"]
        netlist.unlink()
        top = [module for module in modules.values() if int(module["attributes"].get("top", "0"), 2)]
        found = dependencies(top[0])
        streams += sum(1 for port in found if stream(port)[1] == "valid")
        lines += violations(name, found)
    if lines:
        raise Failure("combinational paths:\n  " + "\n  ".join(lines))
    print(
        f"{config}: no path from ready to valid or payload in {len(MODULES)} modules with {streams} output streams, "
        "none "
        f"through the AXI master ({seconds:.1f} s)"
    )

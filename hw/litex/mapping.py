# SPDX-License-Identifier: Apache-2.0
"""The mapping to look-up tables, in groups. Enters: Yosys' flat netlist of gates, before its mapper has seen it.
Leaves: the groups of gates that are mapped apart, first of all.

The mapper (ABC) counts look-up tables and knows no times. It saves area by letting every path become as deep as the
deepest one, also those that have less time than others:

- `late`: gates behind outputs of block RAMs, which come five nanoseconds after the clock, ten times as late as a
  register's.
- `wide`: gates before nets that enable many cells, whose wires cross the part.

Mapped by itself, such a group becomes as deep as its own deepest path at most. A gate of both is `late`."""

from collections import Counter, defaultdict

GATES = ("AND", "OR", "XOR", "NOT", "MUX", "ANDNOT", "ORNOT", "NAND", "NOR", "XNOR", "AOI3", "OAI3", "AOI4", "OAI4")
GATE_TYPES = {f"$_{gate}_" for gate in GATES}
TAKERS = {"TRELLIS_FF", "DP16KD", "TRELLIS_DPR16X4", "MULT18X18D"}
MANY = 24  # cells that a net enables


def closure(start, neighbours):
    """All gates that `neighbours`, a function from a gate to gates, reaches from `start`, with it."""
    found, waiting = set(start), list(start)
    while waiting:
        for name in neighbours(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def groups(top):
    """{group: names of its gates}. `top`: the module in Yosys' JSON; cells are gates, or cells of the part."""
    cells = top["cells"]
    driver, loads, enables = {}, defaultdict(list), Counter()
    for name, cell in cells.items():
        if cell["type"] in GATE_TYPES:
            for port, bits in cell["connections"].items():
                for bit in bits:
                    if port == "Y":
                        driver[bit] = name
                    else:
                        loads[bit].append(name)
        elif cell["type"] in TAKERS:
            for port, bits in cell["connections"].items():
                if cell["port_directions"].get(port) == "input" and not port.startswith(("CLK", "WCK", "DI")):
                    enables.update(bits)

    def behind(name):
        return loads[cells[name]["connections"]["Y"][0]]

    def before(name):
        inputs = (bits for port, bits in cells[name]["connections"].items() if port != "Y")
        return [driver[bit] for bits in inputs for bit in bits if bit in driver]

    memories = (cell["connections"] for cell in cells.values() if cell["type"] == "DP16KD")
    outputs = {bit for ports in memories for port, bits in ports.items() if port.startswith("DO") for bit in bits}
    late = closure([name for bit in outputs for name in loads.get(bit, [])], behind)
    wide = closure([driver[bit] for bit, count in enables.items() if count >= MANY and bit in driver], before)
    return {name: found for name, found in (("wide", wide - late), ("late", late)) if found}


def commands(found, folder):
    """Yosys' commands that map the groups, one after the other, and then the rest. The groups' files are written to the
    folder."""
    lines = []
    for name, gates in found.items():
        (folder / f"{name}.sel").write_text("".join(f"tessera/{gate}\n" for gate in sorted(gates)))
        lines += [f"select -read {name}.sel", f"select -set {name} %"]
    lines += [f"abc -lut 4 @{name}" for name in found]
    return [
        *lines,
        "select -clear",
        f"abc -dress -lut 4 {' '.join(f't:{kind}' for kind in sorted(GATE_TYPES))}",
        "clean",
    ]

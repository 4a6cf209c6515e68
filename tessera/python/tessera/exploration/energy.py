# SPDX-License-Identifier: Apache-2.0
"""Energy of an inference, as an estimate: what operations and bytes cost by a table for 45 nm at 0.9 V (M. Horowitz,
"Computing's energy problem (and what we can do about it)", ISSCC 2014). Enters: counts of a compiled program, the
machine. Leaves: microjoules by where they go.

Counted: an 8-bit product and a 32-bit sum for each multiply-accumulate that is issued; a scratchpad for each byte that
the array reads (a weight a product, an input for each block of outputs) and for each byte that crosses the bus; DRAM
for each byte that crosses the bus. A scratchpad is memories of 64 bits side by side; a byte of it costs by the size of
one of these, between the table's three sizes along the logarithm. Left out: sums in ACC, the ALU, control, the clock
tree, leakage. So it compares schedules and machines; it is no power of a chip, and much below that of an FPGA."""

import math

from . import area

PICOJOULE = {
    "multiply_int8": 0.2,
    "add_int32": 0.1,
    "sram_64_bits": {8 << 10: 10.0, 32 << 10: 20.0, 1 << 20: 100.0},  # by the memory's bytes
    "dram_64_bits": 1300.0,  # the table says 1.3 to 2.6 nJ
}


def sram_byte(size):
    """Picojoules of a byte of a memory of `size` bytes; below 8 KB and above 1 MB as there."""
    points = sorted(PICOJOULE["sram_64_bits"].items())
    size = min(max(size, points[0][0]), points[-1][0])
    for (low, cheap), (high, dear) in zip(points, points[1:]):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return cheap * (dear / cheap) ** share / 8
    raise AssertionError("a size between the first and the last point lies between two")


def byte_of(name, parameters):
    """Picojoules of a byte of a scratchpad: "inp", "wgt"."""
    entry = area.entries(parameters)[name]
    return sram_byte(parameters[f"{name}_bytes"] * 8 / max(8, entry, parameters["axi_bytes"]))


def microjoules(issued_macs, dram_bytes, parameters):
    """{where: microjoules}. parameters: of the machine's configuration."""
    # Bytes from the bus go to all scratchpads; INP stands for them.
    inp, wgt = byte_of("inp", parameters), byte_of("wgt", parameters)
    picojoules = {
        "multiply_accumulate": issued_macs * (PICOJOULE["multiply_int8"] + PICOJOULE["add_int32"]),
        "scratchpads": issued_macs / parameters["batch"] * wgt
        + issued_macs / parameters["block_out"] * inp
        + dram_bytes * inp,
        "dram": dram_bytes * PICOJOULE["dram_64_bits"] / 8,
    }
    return {name: value / 1e6 for name, value in picojoules.items()}

# SPDX-License-Identifier: Apache-2.0
"""What the machine does per look-up table: area and delay from synthesis, cycles from the timing model (or the RTL),
put together. Enters: networks, a configuration whose area and delay are recorded (`./dev synth --record`). Leaves: for
each network inferences a second at the estimated clock, per thousand look-up tables and per DSP slice, the energy of
an inference as an estimate; VTA's published layers beside ours, in work per look-up table; published figures of others.

The clock is an estimate, no measurement: the longest path of logic that Yosys' sta finds on 7 series, times WIRES for
the wires. VTA's clock is estimated in the same way, so a ratio of the two does not depend on WIRES.

The energy is what operations and bytes cost by the table of `tessera explore` (tessera.exploration.energy), which says
what is counted and what is left out. So it compares schedules and machines; it is no power of a chip, and much below
that of an FPGA."""

import sys

import layers
import networks

sys.path.append(str(networks.ROOT / "hw" / "synth"))

WIRES = 2.0  # a path takes as long in wires as in logic
FAMILY, YOSYS = "xc7", "0.23"
PUBLISHED = [
    {
        "machine": "NVDLA, 256 int8 MACs, 16 nm, 1 GHz",
        "source": "nvdla.org/primer.html",
        "network": "resnet50",
        "inferences_per_second": 46,
        "cycles": round(1e9 / 46),
        "square_millimetres": 1.0,
        "millijoules": round(48 / 46, 2),
    },
    {
        "machine": "Gemmini, 16 x 16",
        "source": "github.com/ucb-bar/gemmini/pull/90",
        "network": "resnet50",
        "utilization": 0.51,
    },
]


def energy(stats, parameters):
    """Microjoules of an inference, by where they go. parameters: of the configuration."""
    from tessera.exploration import energy

    found = energy.microjoules(stats.issued_macs, stats.dram_read_bytes + stats.dram_write_bytes, parameters)
    return {name: round(value, 2) for name, value in found.items()}


def parameters_of(config):
    """Of a shipped configuration or a file."""
    import tomllib

    path = networks.ROOT / "hw" / "configs" / f"{config}.toml"
    with open(path if path.exists() else config, "rb") as file:
        return tomllib.load(file)


def recorded(config):
    """(look-up tables with those that are memory, DSP slices, RAMB36, nanoseconds of logic). Errors: SystemExit that
    says how the figures are made."""
    import figures

    found, key = figures.load(), f"{config} {FAMILY} {YOSYS}"
    if key not in found["area"] or key not in found["timing"]:
        raise SystemExit(
            f"area and delay of {config} are not recorded; ./dev synth --config {config} --family {FAMILY} --record "
            f"and ./dev synth --config {config} --timing --record do that, in minutes"
        )
    total = found["area"][key]["total"]
    return total["lut"] + total["lut_memory"], total["dsp"], total["bram36"], found["timing"][key]["tsr_top"]["ns"]


def measure(name, config, device, area):
    """One row. Errors: SystemExit when a device gives other outputs than the oracle."""
    import numpy as np

    import tessera
    from tests.oracle import oracle

    data, feeds = networks.build(name)
    expected = list(oracle.run(data, feeds, intermediates=False).outputs.values())
    session = tessera.Session(data, device, config, profile=False)
    if not all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected)):
        raise SystemExit(f"{name} on {device}: outputs differ from the oracle's")
    stats = session.stats()
    luts, dsps, _, delay = area
    rate = 1e9 / (WIRES * delay * stats.cycles)
    parts = energy(stats, parameters_of(config))
    return {
        "network": name,
        "config": config,
        "cycles": stats.cycles,
        "utilization": round(stats.utilization, 3),
        "inferences_per_second": round(rate, 2),
        "per_thousand_lut": round(1000 * rate / luts, 3),
        "per_dsp": round(rate / dsps, 3),
        "estimated_microjoules": round(sum(parts.values()), 1),
        "of_them": parts,
    }


def against_vta(device, area):
    """VTA's layers on both machines; None without VTA's published cycles."""
    if not layers.baseline()[1]:
        return None
    import tomllib

    with open(networks.ROOT / "hw" / "synth" / "vta.toml", "rb") as file:
        vta = tomllib.load(file)
    row = next(row for row in vta["area"] if row["family"] == FAMILY and row["yosys"] == YOSYS)
    vta_luts = row["lut"] + row["lut_memory"]
    luts, dsps, brams, delay = area
    total = layers.bench([], device)["total"]
    cycles, vta_cycles = total.get("rtl_cycles", total.get("systemc_cycles")), total["vta_cycles"]
    per_lut = (vta_cycles / cycles) * (vta_luts / luts)
    return {
        "layers": len(layers.SHAPES),
        "cycles": cycles,
        "vta_cycles": vta_cycles,
        "lut": luts,
        "vta_lut": vta_luts,
        "dsp": dsps,
        "vta_dsp": row["dsp"],
        "bram36": brams,
        "vta_bram36": row["bram36"],
        "logic_ns": delay,
        "vta_logic_ns": vta["delay_ns"],
        "work_per_lut_and_cycle_times_vta": round(per_lut, 2),
        "work_per_lut_and_second_times_vta": round(per_lut * vta["delay_ns"] / delay, 2),
        "work_per_dsp_and_second_times_vta": round(
            vta_cycles / cycles * row["dsp"] / dsps * vta["delay_ns"] / delay, 2
        ),
    }


def bench(names, config, device):
    from tessera.exploration import energy

    area = recorded(config)
    rows = []
    for name in names or networks.NETWORKS:
        rows.append(measure(name, config, device, area))
        print(f"{name} on {config}: done", file=sys.stderr)
    luts, dsps, brams, delay = area
    result = {
        "silicon": rows,
        "machine": {"config": config, "lut": luts, "dsp": dsps, "bram36": brams, "logic_ns": delay},
        "estimated_megahertz": round(1000 / (WIRES * delay), 1),
        "published": PUBLISHED,
        "energy_table_picojoules": energy.PICOJOULE,
    }
    # VTA is a machine of 1 x 16 x 16, and its layers are published as a whole.
    if config == layers.CONFIG and not names:
        result["vta"] = against_vta(device, area)
    return result

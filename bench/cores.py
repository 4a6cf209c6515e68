# SPDX-License-Identifier: Apache-2.0
"""Networks on one core and on chips of several: cycles on the timing model, the share of one core's, and whether the
outputs equal the reference's. The memory is ideal and moves a beat of the machine's master a cycle. On the RTL a row
also says how fast both are simulated in this run, on the threads that the host has room for."""

import pathlib
import sys
import time
import tomllib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Network, machine of one core, cores, bytes a cycle of the chip's master, largest share that is wanted.
CASES = (
    ("resnet50", "npu256", 4, 32, 0.27),
    ("mobilenetv2", "npu256", 4, 32, 0.32),
    ("vww", "npu256", 4, 32, 0.38),
    ("ds_cnn", "npu256", 4, 32, None),
    ("resnet18", "npu256", 2, 16, None),
    ("deit_tiny", "npu256t", 4, 32, 0.28),
)
# A wider core beside chips of as many products and bytes a cycle.
WIDE = {("npu256", 4, 32): "npu1024"}


def chip(machine, cores, memory_bytes):
    """The text of a configuration: cores as `machine` is, on one master of `memory_bytes` a beat."""
    text = (ROOT / "hw" / "configs" / f"{machine}.toml").read_text()
    own = tomllib.loads(text)
    lines = [
        line for line in text.splitlines() if line.split("=")[0].strip() not in ("name", "cores", "memory_axi_bytes")
    ]
    shared = 0 if memory_bytes == own["axi_bytes"] or cores == 1 else memory_bytes
    return "\n".join([f'name = "{machine}x{cores}"', *lines, f"cores = {cores}", f"memory_axi_bytes = {shared}", ""])


def built(name):
    """(model, feeds, options of a session) of a benchmark network."""
    import networks
    import transformers

    if name in networks.NETWORKS:
        return *networks.build(name), {}
    return *transformers.build(name), {"numerics": "close"}


def run(model, device, machine):
    """Outputs and statistics of a model as `built` gives it, and on the RTL the cycles that are simulated in a second,
    of a second run, in which the machine has been made."""
    import tessera

    data, feeds, options = model
    session = tessera.Session(data, device, machine, profile=False, **options)
    outputs = session.run(None, feeds)
    if device != "rtl":
        return outputs, session.stats(), None
    begin = time.perf_counter()
    session.run(None, feeds)
    return outputs, session.stats(), session.stats().cycles / (time.perf_counter() - begin)


def bench(names, config, device):
    """Rows of the named networks (all cases if there is none); `config` is a chip on which they run instead."""
    cases = [case for case in CASES if not names or case[0] in names]
    if config:
        text = pathlib.Path(config) if pathlib.Path(config).exists() else ROOT / "hw" / "configs" / f"{config}.toml"
        c = tomllib.loads(text.read_text())
        shared = c.get("memory_axi_bytes", 0) or c["axi_bytes"]
        base = c["name"].rsplit("x", 1)[0]
        cases = [(name, base, c.get("cores", 1), shared, None) for name in names or [case[0] for case in CASES]]
    rows = []
    for name, machine, cores, memory_bytes, wanted in cases:
        model = built(name)
        expected, one, one_speed = run(model, device, machine)
        found, many, speed = run(model, device, chip(machine, cores, memory_bytes))
        row = {
            "network": name,
            "core": machine,
            "cores": cores,
            "bytes_a_cycle": memory_bytes,
            "cycles_of_one_core": one.cycles,
            f"{device}_cycles": many.cycles,
            "share": round(many.cycles / one.cycles, 3),
            "wanted_share": wanted,
            "dram_bytes_of_one_core": one.dram_read_bytes + one.dram_write_bytes,
            "dram_bytes": many.dram_read_bytes + many.dram_write_bytes,
            "equal_to_one_core": all(np.array_equal(a, b) for a, b in zip(found, expected)),
        }
        if speed:
            row["megacycles_a_second_of_one_core"] = round(one_speed / 1e6, 3)
            row["megacycles_a_second"] = round(speed / 1e6, 3)
            row["share_of_speed"] = round(speed / one_speed, 2)
        wide = WIDE.get((machine, cores, memory_bytes))
        if wide:
            row["wide_core"], row["cycles_of_wide_core"] = wide, run(model, device, wide)[1].cycles
        rows.append(row)
        print(f"{name} on {cores} cores of {machine}: done", file=sys.stderr)
    return {"cores": rows}

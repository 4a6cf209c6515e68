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
    ("llama_step", "npu256t", 4, 8, 1.03),
    ("llama_prompt", "npu256t", 4, 32, 0.27),
)
# A decoder of 15 million parameters: maximal length, past, tokens of a run.
DECODERS = {"llama_step": (256, 255, 1), "llama_prompt": (258, 0, 256)}
# Pairs of networks, each on two cores of one chip at the same time, and how often each runs, so that both take about as
# long. Least throughput that is wanted, of each alone on two cores with their share of the bus.
PAIRS = (
    ("mobilenetv2", 5, "resnet18", 1, "npu256x4", 0.95),
    ("mobilenetv2", 3, "mobilenetv2", 3, "npu256x4", 0.95),
    ("vww", 3, "ds_cnn", 8, "npu256x4", 0.95),
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


def decoder(longest, past, tokens):
    """A run of the decoder of TinyStories' shape behind random keys and values, as `built` gives a model."""
    import decoding

    from tests.system.decoder import Decoder

    shape = Decoder(**decoding.SHAPES["15 M parameters, TinyStories' shape"][0], longest=longest)
    data, rng = shape.model(tokens=tokens), np.random.default_rng(1)
    feeds = {"input_ids": rng.integers(0, shape.words, (1, tokens))}
    feeds["position_ids"] = np.arange(past, past + tokens)[None]
    if tokens > 1:
        feeds["attention_mask"] = np.ones((1, past + tokens), np.int64)
    for layer in range(shape.layers):
        for kind in ("key", "value"):
            cache = rng.integers(-128, 128, (1, shape.groups, past, shape.size), np.int8)
            feeds[f"past_key_values.{layer}.{kind}"] = cache
    return data, feeds, {"numerics": "close", "max_length": longest, "length_steps": 0}


def built(name):
    """(model, feeds, options of a session) of a benchmark network."""
    import networks
    import transformers

    if name in DECODERS:
        return decoder(*DECODERS[name])
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


def pair(first, first_runs, second, second_runs, chip, wanted, device):
    """A row of two networks at once: the throughput of each beside its own on two cores of the same kind."""
    import tessera

    shared = tessera.Chip(chip, device)
    models = [built(first), built(second)]
    runs, alone, expected = [], [], []
    for (data, feeds, options), cores, times in zip(models, ([0, 1], [2, 3]), (first_runs, second_runs)):
        session = tessera.Session(data, device, "npu256x2", profile=False, **options)
        expected.append(session.run(None, feeds))
        alone.append(session.stats().cycles)
        own = tessera.Session(data, chip=shared, cores=cores, profile=False, **options)
        runs.append((own, [feeds] * times))
    found = shared.run_together(runs)
    mean = [sum(cycles for _, cycles in one) / len(one) for one in found]
    return {
        "networks": f"{first} and {second}",
        "chip": chip,
        "cycles_on_two_cores": alone,
        "cycles_beside_the_other": [round(one) for one in mean],
        "throughput": [round(one / both, 3) for one, both in zip(alone, mean)],
        "wanted_throughput": wanted,
        "equal_to_alone": all(
            np.array_equal(a, b)
            for one, outputs in zip(found, expected)
            for run_outputs, _ in one
            for a, b in zip(run_outputs, outputs)
        ),
    }


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
    result = {"cores": rows}
    if not config:
        result["pairs"] = [pair(*one, device) for one in PAIRS if not names or {one[0], one[2]} <= set(names)]
    return result

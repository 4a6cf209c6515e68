# SPDX-License-Identifier: Apache-2.0
"""AXI traffic for dram_bench, as text: streams, strides, turns of the bus, mixtures, random sequences, and the bursts
of a network from the trace of a run.

    python tests/litex/dram_traffic.py WIDTH SPAN WHOLE
    python tests/litex/dram_traffic.py WIDTH SPAN TRACE.json"""

import json
import pathlib
import random
import sys

PAGE = 4096  # bytes that no burst crosses


def sequences(width, span, whole, seed=5):
    """`width`: bytes of a beat. `span`: bytes of memory. `whole`: bytes of which every burst is a multiple, and begins
    at one; LiteX's upsizer takes no others."""
    lines = []

    def run(name, reads=32, writes=16, every=1):
        lines.append(f"run {name} {reads} {writes} {every}")

    def burst(kind, address, bytes, cycle=0):
        lines.append(f"{kind} {address % span} {bytes // width} {cycle}")

    run("stream_read")
    for k in range(64):
        burst("r", 16 * whole * k, 16 * whole)
    run("stream_write")
    for k in range(64):
        burst("w", 16 * whole * k, 16 * whole)
    run("single_read", 1, 1)
    for k in range(64):
        burst("r", whole * k, whole)
    run("stride_read")
    for k in range(128):
        burst("r", 4096 * k, whole)
    run("stride_row")
    for k in range(128):
        burst("r", 16384 * k, 2 * whole)
    run("stride_write")
    for k in range(128):
        burst("w", 4096 * k + 64, whole)
    run("turns")
    for k in range(40):
        burst("r", 64 * k, 64, 20 * k)
        burst("w", 65536 + 64 * k, 64, 20 * k)
    run("mixed")
    for k in range(40):
        burst("r", 256 * k, 256)
        burst("w", 65536 + 256 * k, 256)
    run("slow_reader", 32, 16, 3)
    for k in range(40):
        burst("r", 256 * k, 256)
    run("refresh")
    for k in range(60):
        burst("r", 64 * k, 64, 97 * k)
    chance = random.Random(seed)
    for n in range(6):
        run(f"random{n}", chance.choice([1, 4, 32]), chance.choice([1, 4, 16]), chance.choice([1, 1, 1, 2, 5]))
        cycle = 0
        for _ in range(200):
            cycle += chance.choice([0, 0, 0, 3, 30, 200])
            bytes = min(chance.choice([1, 1, 2, 3, 8, 17, 64]) * whole, 256 * width, PAGE)
            page = chance.randrange(span // PAGE) * PAGE
            burst(chance.choice("rrw"), page + chance.randrange((PAGE - bytes) // whole + 1) * whole, bytes, cycle)
    return "\n".join(lines) + "\n"


def traced(path, width, span):
    """One sequence from a run's trace (`tessera run --trace`): its bursts, each offered when the machine did."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    bursts = [(e["name"], e["args"]) for e in events if {"address", "bytes", "requested"} <= set(e.get("args", {}))]
    base = min(of["address"] for _, of in bursts) // PAGE * PAGE
    lines = [f"run {pathlib.Path(path).stem} 32 16 1"]
    for name, of in sorted(bursts, key=lambda burst: burst[1]["requested"]):
        first, last = of["address"] - base, of["address"] - base + of["bytes"] - 1
        beats = last // width - first // width + 1
        lines.append(f"{'w' if 'store' in name else 'r'} {first // width * width % span} {beats} {of['requested']}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    width, span, last = sys.argv[1:4]
    if last.isdigit():
        print(sequences(int(width), int(span), int(last)), end="")
    else:
        print(traced(last, int(width), int(span)), end="")

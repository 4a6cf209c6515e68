# SPDX-License-Identifier: Apache-2.0
"""What one process does on the board in test_board.py. Enters: a task's name and its arguments on the command line, the
board's environment. Leaves: one line of JSON a result on standard output; any wrong element is an exception.

    compare CONFIG NETWORK...   outputs equal fsim's, figures equal the RTL's
    threads CONFIG THREADS RUNS each thread its own session and images; all outputs equal fsim's
    cycles CONFIG COUNT FILE    open, load, run, close; memory, descriptors and threads at the beginning and at the end
    decode CONFIG               a decoder's cache in the board's memory; tokens, logits and cycles equal the RTL's
    endless CONFIG NETWORK      says when it begins to run, then runs for ever
"""

import gc
import json
import os
import pathlib
import sys
import threading

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import networks  # noqa: E402

import tessera  # noqa: E402
import tessera.generation  # noqa: E402
from tests.system import decoder  # noqa: E402

DIGITS = ROOT / "examples" / "digits"
# Figures that a device without profile has, too.
FIGURES = (
    "cycles",
    "instructions",
    "macs",
    "dram_read_bytes",
    "dram_write_bytes",
    "utilization",
    "roofline_cycles",
    "nodes_npu",
    "nodes_cpu",
)


def say(**values):
    print(json.dumps(values), flush=True)


def model(name):
    if name != "digits":
        return networks.build(name)
    return (DIGITS / "digits.onnx").read_bytes(), {"image": np.load(DIGITS / "digits_test.npz")["images"][:5]}


def check_equal(got, expected, what):
    for a, b in zip(got, expected, strict=True):
        assert np.array_equal(a, b, equal_nan=True), f"{what}: {(a != b).sum()} of {a.size} elements differ from fsim"


def compare(config, *names):
    for name in names:
        data, feeds = model(name)
        expected = tessera.Session(data, "fsim", config).run(None, feeds)
        figures = {}
        for device in ("rtl", "xrt"):
            session = tessera.Session(data, device, config, profile=False)
            check_equal(session.run(None, feeds), expected, f"{name} on {device}")
            figures[device] = {key: session.stats()[key] for key in FIGURES}
            del session
        assert figures["xrt"] == figures["rtl"], f"{name}: xrt {figures['xrt']}, rtl {figures['rtl']}"
        say(network=name, config=config, **figures["xrt"])


def decode(config):
    data = decoder.Decoder(layers=2, heads=4, groups=2, size=8).model()
    made = {}
    for device in ("rtl", "xrt"):
        generator = tessera.generation.Generator(data, device, config, max_length=12, profile=False)
        made[device] = list(generator.stream([[3, 1, 4]], 3))
        del generator
    for a, b in zip(made["xrt"], made["rtl"], strict=True):
        check_equal([a.tokens, a.logits], [b.tokens, b.logits], "a step on xrt")
        assert a.cycles == b.cycles
    say(tokens=[int(step.tokens[0]) for step in made["xrt"]])


def threads(config, count, runs):
    data, _ = model("digits")
    images = np.load(DIGITS / "digits_test.npz")["images"]
    per_run, failures = 2, []
    inputs = [
        [images[(t * int(runs) + r) * per_run % 300 :][:per_run] for r in range(int(runs))] for t in range(int(count))
    ]
    reference = tessera.Session(data, "fsim", config)
    expected = [[reference.run(None, {"image": x}) for x in row] for row in inputs]

    def work(t):
        try:
            session = tessera.Session(data, "xrt", config)
            for r, x in enumerate(inputs[t]):
                check_equal(session.run(None, {"image": x}), expected[t][r], f"thread {t}, run {r}")
        except Exception as e:
            failures.append(f"thread {t}: {e}")

    all_threads = [threading.Thread(target=work, args=(t,)) for t in range(int(count))]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert not failures, failures
    say(outputs=sum(y.size for row in expected for run in row for y in run))


def held():
    """Kilobytes that are the process's own, descriptors, threads."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    return {
        "kilobytes": int(status["RssAnon"].split()[0]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def cycles(config, count, artifact):
    data, feeds = pathlib.Path(artifact).read_bytes(), {"image": model("digits")[1]["image"][:1]}
    expected = tessera.Session(data, "fsim").run(None, feeds)

    def once():
        session = tessera.Session(data, "xrt", config)
        check_equal(session.run(None, feeds), expected, "digits")

    for _ in range(20):
        once()
    gc.collect()
    before = held()
    for _ in range(int(count)):
        once()
    gc.collect()
    say(count=int(count), before=before, after=held())


def endless(config, name):
    data, feeds = model(name)
    session = tessera.Session(data, "xrt", config)
    say(begins=True)
    while True:
        session.run(None, feeds)


if __name__ == "__main__":
    task = {"compare": compare, "threads": threads, "cycles": cycles, "decode": decode, "endless": endless}[sys.argv[1]]
    task(*sys.argv[2:])

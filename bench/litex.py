# SPDX-License-Identifier: Apache-2.0
"""Networks on the simulated system of a board (hw/litex) beside the timing model, with its ideal memory and with the
board's: `./dev bench litex`. Enters: a board, a configuration. Leaves: for each network whether all outputs equal the
functional simulator's and ONNX Runtime's, cycles on all of them, milliseconds at the board's clock. Needs build/litex
(`./dev setup --extras litex`)."""

import json
import subprocess
import sys

import networks
import numpy as np

MEMORY = {"ulx3s": "sdr-100x16", "ecpix5": "ddr3-300x16", "versa": "ddr3-300x16"}  # presets of docs/dram.md
CLOCK_HZ = 50e6  # of the boards of hw/litex
NAMES = ("digits", "resnet8", "vww", "ds_cnn", "autoencoder", "encoder")


def model_of(name):
    """(the quantised model, feeds of one input)."""
    if name != "digits":
        return networks.build(name)
    folder = networks.ROOT / "examples" / "digits"
    with np.load(folder / "digits_test.npz") as data:
        images = data["images"][:1]
    return (folder / "digits.onnx").read_bytes(), {"image": images}


def start(build, board, config):
    """The system's process and the name of its device."""
    command = [str(build / "bin" / "tessera"), "litex", "--simulate", "--board", board, "--config", config]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if "litex:" not in line:
        raise SystemExit(process.wait() or 1)
    return process, line.split()[1]


def measure(build, names, config, board="ulx3s"):
    import tessera
    from tests.oracle import oracle

    config = config or "npu64"
    process, device = start(build, board, config)
    rows = []
    try:
        for name in names or NAMES:
            data, feeds = model_of(name)
            expected = list(oracle.run(data, feeds, intermediates=False).outputs.values())
            outputs, cycles = {}, {}
            runs = {"fsim": {}, "sysc": {}, "dram": {"dram": MEMORY[board]}, device: {}}
            for one, options in runs.items():
                where = "sysc" if one == "dram" else one
                session = tessera.Session(data, where, config, profile=False, device_options=options)
                outputs[one], cycles[one] = session.run(None, feeds), session.stats().cycles
                del session  # a board's link has one user
            rows.append(
                {
                    "network": name,
                    "board": board,
                    "config": config,
                    "cycles": cycles[device],
                    "milliseconds": round(cycles[device] / (CLOCK_HZ / 1000), 2),
                    "systemc_cycles": cycles["sysc"],
                    "systemc_dram_cycles": cycles["dram"],
                    "equal_to_fsim": all(map(np.array_equal, outputs[device], outputs["fsim"])),
                    "equal_to_oracle": all(map(np.array_equal, outputs[device], expected)),
                }
            )
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    finally:
        process.terminate()
        process.wait()
    return {"litex": rows}

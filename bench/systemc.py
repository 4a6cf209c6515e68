# SPDX-License-Identifier: Apache-2.0
"""The timing model against the RTL: compiles networks for the verilated configurations and runs both machines on them
(bench/systemc.cc). Leaves rows: cycles of both, error, the worst layer above 10,000 cycles, RTL cycles a second of
processor time, how much faster the model is."""

import json
import pathlib
import subprocess
import sys
import tempfile

import networks

CONFIGS = ("npu64", "npu256")
LATENCIES = (20, 100, 500)
# The model was tuned on these; the others say how good it is elsewhere.
TUNED = ("digits", "resnet8", "ds_cnn", "vww")
NAMES = ("digits", "resnet8", "ds_cnn", "autoencoder", "vww", "mobilenetv2", "resnet18")


def source(name):
    if name == "digits":
        return networks.ROOT / "examples" / "digits" / "digits.onnx"
    networks.build(name)
    return networks.CACHE / f"{name}.onnx"


def bench(build, names):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or NAMES:
            for config in CONFIGS:
                program = pathlib.Path(folder) / f"{name}-{config}.tsr"
                subprocess.run(
                    [
                        str(build / "bin" / "tessera"),
                        "compile",
                        str(source(name)),
                        "-o",
                        str(program),
                        "--config",
                        config,
                        "-q",
                    ],
                    check=True,
                )
                for latency in LATENCIES:
                    done = subprocess.run(
                        [str(build / "bin" / "bench_systemc"), "--layers", "--latency", str(latency), str(program)],
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    row = json.loads(done.stdout)
                    rows.append(
                        {
                            "network": name,
                            "config": config,
                            "latency": latency,
                            "rtl_cycles": row["rtl_cycles"],
                            "systemc_cycles": row["systemc_cycles"],
                            "error_percent": row["error_percent"],
                            "worst_layer_percent": row["worst_layer_percent"],
                            "long_layers": row["long_layers"],
                            "rtl_mcycles_per_second": round(row["rtl_cycles"] / row["rtl_seconds"] / 1e6, 3),
                            "times_faster": round(row["rtl_seconds"] / row["systemc_seconds"]),
                            "equal": row["equal"],
                            "tuned": name in TUNED,
                        }
                    )
                    print(f"{name} {config} latency {latency}: {row['error_percent']}%", file=sys.stderr)
    return {"systemc": rows}

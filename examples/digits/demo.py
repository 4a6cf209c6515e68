# SPDX-License-Identifier: Apache-2.0
"""Compiles the bundled digits network, runs all test images on a device and says how it went: accuracy beside ONNX
Runtime's (the interpreter's where that is not installed), equality of every output element with its class,
instructions, and a table of the layers. Exit status 1 if an output differs."""

import argparse
import os
import pathlib
import shutil
import sys
import time

import numpy as np

import tessera

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

HERE = pathlib.Path(__file__).resolve().parent


def layer_table(stats):
    """One row a layer; cycles and utilisation where the device knows time."""
    timed = stats["cycles"] is not None
    head = f"{'layer':<26} {'operator':<30} {'where':<5} {'MACs':>10} {'instr.':>7} {'DRAM read':>10} {'written':>9}"
    head += f" {'cycles':>9} {'util.':>6}" if timed else f" {'bound cycles':>13}"
    lines = [head, "-" * len(head)]
    for layer in stats.layers:
        npu = layer["placement"] == "npu"
        line = f"{layer['name'][:26]:<26} {layer['op'][:30]:<30} {layer['placement']:<5} {layer['macs']:>10}"
        line += (
            f" {layer['instructions']:>7} {layer['dram_read_bytes']:>10} {layer['dram_write_bytes']:>9}"
            if npu
            else f" {'':>7} {'':>10} {'':>9}"
        )
        if timed:
            line += (
                f" {layer['cycles']:>9} {layer['utilization']:>6.1%}"
                if npu and layer["cycles"] is not None
                else f" {'':>9} {'':>6}"
            )
        else:
            line += f" {layer['bound_cycles']:>13}" if npu else f" {'':>13}"
        lines.append(line)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument(
        "--device",
        default="rtl" if "rtl" in tessera.backends() else "fsim",
        help=f"one of {', '.join(tessera.backends())}",
    )
    parser.add_argument("--config", default="npu256", help="npu64, npu256, npu256w, npu1024 or a .toml file")
    parser.add_argument("--batch", type=int, default=40, help="images a run")
    options = parser.parse_args()
    if options.device.split(":")[0] == "xrt" and not os.environ.get("XILINX_XRT"):
        # No card is set up: the same program, on the simulated board.
        board = pathlib.Path(tessera._tessera.__file__).parent.parent / "bin" / "tessera"  # of the same build
        board = (
            str(board)
            if board.exists()
            else shutil.which("tessera") or sys.exit("the command 'tessera' is not on the PATH")
        )
        print(f"no card is set up (XILINX_XRT): running on the simulated board, '{options.config}'", flush=True)
        os.execv(board, ["tessera", "board", "--config", options.config, "--", sys.executable, *sys.argv])

    data = np.load(HERE / "digits_test.npz")
    images, labels = data["images"], data["labels"]
    if onnxruntime is not None:
        beside = "ONNX Runtime"
        exact = onnxruntime.SessionOptions()
        exact.add_session_config_entry("session.x64quantprecision", "1")  # exact without VNNI, too (docs/numerics.md)
        oracle = onnxruntime.InferenceSession(str(HERE / "digits.onnx"), exact, providers=["CPUExecutionProvider"])
    else:
        beside = "the interpreter; without the package onnxruntime"
        oracle = tessera.Session(HERE / "digits.onnx", device="reference")
    expected = oracle.run(None, {"image": images})[0]

    started = time.monotonic()
    session = tessera.Session(HERE / "digits.onnx", device=options.device, config=options.config)
    batches = [images[i : i + options.batch] for i in range(0, len(images), options.batch)]
    got = np.concatenate([session.run(None, {"image": batch})[0] for batch in batches])
    seconds = time.monotonic() - started

    accuracy = lambda logits: (logits.argmax(1) == labels).mean()
    equal = int((got == expected).sum())
    print(
        f"digits.onnx on device '{options.device}', configuration '{options.config}': {len(images)} images in "
        f"{seconds:.1f} s, compiling included"
    )
    print(f"accuracy          {accuracy(got):.2%}   ({beside}: {accuracy(expected):.2%})")
    print(
        f"equal outputs     {equal} of {expected.size}   (class: exact; every operator is integer arithmetic up to "
        "the last dequantisation)"
    )
    if options.device != "reference":
        session.run(None, {"image": images[:1]})  # the table is of one image
        stats = session.stats()
        info = session.info()
        cycles = f", {stats.cycles} cycles ({stats.utilization:.1%} of peak)" if stats.cycles is not None else ""
        print(
            f"one image         {stats.instructions} instructions, {stats.macs} MACs, roofline "
            f"{stats.roofline_cycles} cycles{cycles}"
        )
        print(
            f"placement         {info.nodes_npu} of {info.nodes_npu + info.nodes_cpu} nodes and "
            f"{info.macs_npu_share:.0%} of the MACs on the NPU\n"
        )
        print(layer_table(stats))
    if equal != expected.size:
        print(f"\n{expected.size - equal} elements differ from {beside}, by at most {np.abs(got - expected).max():g}")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except tessera.Error as error:
        sys.exit(f"demo: {error}")

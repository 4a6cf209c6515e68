#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first thing to run on a board. Enters: an xclbin (or the name of another device). Leaves: exit status 0 when the
digits network gives the functional simulator's outputs there, bit for bit, in every run; otherwise 1 and the first
difference.

The network is compiled once; the artifact is then run on both devices with the same images, through the `tessera`
command alone, as a user would. Several batches one after the other show that the machine starts again after a
program."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


def tessera_command():
    for candidate in (ROOT / ".venv/bin/tessera", ROOT / "build/release/bin/tessera"):
        if candidate.exists():
            return str(candidate)
    return shutil.which("tessera") or "tessera"


def call(command):
    """Runs a command; its message becomes ours when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"smoke.py: {' '.join(map(str, command))}\n{(done.stderr or done.stdout).strip()}")


def main():
    parser = argparse.ArgumentParser(
        description="The digits network on a board, compared with the functional simulator"
    )
    parser.add_argument("--xclbin", help="the board's binary: device xrt")
    parser.add_argument("--device", default="xrt", help="device to compare (default: xrt)")
    parser.add_argument(
        "--device-option", action="append", default=[], metavar="NAME=VALUE", help="passed on to tessera run"
    )
    parser.add_argument("--config", default="npu256", help="the configuration that the board holds")
    parser.add_argument("--batch", type=int, default=8, help="images a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tessera", default=tessera_command(), help="the tessera command")
    options = parser.parse_args()
    settings = options.device_option + ([f"xclbin={options.xclbin}"] if options.xclbin else [])
    extra = [word for setting in settings for word in ("--device-option", setting)]

    data = np.load(DIGITS / "digits_test.npz")
    equal = correct = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        artifact = folder / "digits.tsr"
        call(
            [
                options.tessera,
                "compile",
                DIGITS / "digits.onnx",
                "-o",
                artifact,
                "--config",
                options.config,
                "--shape",
                f"image={options.batch},1,8,8",
            ]
        )
        for number in range(options.runs):
            part = slice(number * options.batch, (number + 1) * options.batch)
            np.save(folder / "images.npy", data["images"][part])
            results = {}
            for role, device, words in (("expected", "fsim", []), ("got", options.device, extra)):
                call(
                    [
                        options.tessera,
                        "run",
                        artifact,
                        "-q",
                        "--device",
                        device,
                        "--input",
                        folder / "images.npy",
                        "-o",
                        folder / f"{role}.npy",
                        "--stats",
                        folder / f"{role}.json",
                        *words,
                    ]
                )
                results[role] = np.load(folder / f"{role}.npy")
            got, expected = results["got"], results["expected"]
            if got.shape != expected.shape or got.tobytes() != expected.tobytes():
                where = tuple(int(k) for k in np.argwhere(got != expected)[0]) if got.shape == expected.shape else ()
                print(
                    f"run {number}: device '{options.device}' differs from fsim, first at {where}: "
                    f"{got[where] if where else got.shape} instead of {expected[where] if where else expected.shape}"
                )
                return 1
            equal += got.size
            correct += int((got.argmax(1) == data["labels"][part]).sum())
            stats = json.loads((folder / "got.json").read_text())
            cycles = "no cycles" if stats["cycles"] is None else f"{stats['cycles']} cycles"
            print(
                f"run {number}: {got.size} outputs equal, {cycles}, {stats['dram_read_bytes']} bytes read, "
                f"{stats['dram_write_bytes']} written"
            )
    print(
        f"device '{options.device}', {options.config}: {equal} outputs equal to fsim, {correct} of "
        f"{options.runs * options.batch} digits right"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Firmware of `tessera export --target litex-vexriscv` on the simulated system: a VexRiscv starts the DRAM, runs the
CPU parts and drives the machine; its answers over the serial line are those of a session. Needs LiteX and a compiler
for RISC-V (`./dev setup --extras litex bare-metal`)."""

import shutil
import subprocess

import numpy as np
import pytest

import tessera
from tests.litex.test_simulated import COMMAND, LONG, SMALL, litex, pytestmark  # noqa: F401
from tests.system.conftest import ROOT


@pytest.mark.skipif(not LONG, reason="verilates a system with a processor (TESSERA_LONG)")
@pytest.mark.skipif(shutil.which("riscv64-unknown-elf-gcc") is None, reason="./dev setup --extras bare-metal")
def test_digits_by_text(tmp_path):
    model, folder = ROOT / "examples" / "digits" / "digits.onnx", tmp_path / "alone"
    image = np.load(ROOT / "examples" / "digits" / "digits_test.npz")["images"][3:4]
    np.save(tmp_path / "image.npy", image)
    line = [COMMAND, "export", model, "--bare-metal", "--target", "litex-vexriscv", "--config", SMALL, "-q"]
    subprocess.run([*line, "--shape", "image=1,1,8,8", "-o", folder], check=True, capture_output=True)
    made = subprocess.run(["make", "-s", "-C", folder, "boot.bin"], check=True, capture_output=True, text=True)
    assert "Circular" not in made.stderr
    want = tessera.Session(model, "fsim", str(SMALL)).run(None, {"image": image})[0]
    console = (COMMAND, "console", "--input", tmp_path / "image.npy")
    done = litex("--simulate", "--config", SMALL, "--firmware", folder / "boot.bin", "--", *console)
    assert done.returncode == 0, done.stderr
    assert f"class {want.argmax()}\n" in done.stdout
    shown = next(one for one in done.stdout.splitlines() if one.startswith("output logits")).split(":")[1].split()
    np.testing.assert_allclose([float(one) for one in shown], want[0], rtol=1e-5)

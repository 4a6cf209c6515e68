# SPDX-License-Identifier: Apache-2.0
"""Firmware of `tessera export --target litex-vexriscv` on the simulated system: a VexRiscv starts the DRAM, runs the
CPU parts and drives the RTL of the machine; its answers over the serial line are those of a session. Needs LiteX and a
compiler for RISC-V (`./dev setup --extras litex bare-metal`)."""

import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import tessera
from tessera import console
from tests.litex.test_simulated import COMMAND, LONG, SMALL, litex, pytestmark  # noqa: F401
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

needs_compiler = pytest.mark.skipif(
    shutil.which("riscv64-unknown-elf-gcc") is None,
    reason="needs gcc-riscv64-unknown-elf: ./dev setup --extras bare-metal",
)


def export(model, folder, config, *words):
    line = [COMMAND, "export", model, "--bare-metal", "--target", "litex-vexriscv", "--config", config, "-q", "-o"]
    subprocess.run([*line, folder, *words], check=True, capture_output=True)
    subprocess.run(["make", "-s", "-C", folder], check=True, capture_output=True)


class Alone:
    """A simulated system with a processor that runs the firmware of a folder; `line` is its serial line."""

    def __init__(self, folder, config):
        command = [COMMAND, "litex", "--simulate", "--config", config, "--firmware", folder]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        told = self.process.stdout.readline()
        assert "tessera console --port tcp:" in told, self.process.communicate()[1]
        host, port = re.search(r"tcp:([\d.]+):(\d+)", told).groups()
        self.line = console.tcp_line(host, int(port))
        self.line.patience = 600

    def __enter__(self):
        return console.Firmware(self.line)

    def __exit__(self, *_):
        self.line.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


@needs_compiler
def test_digits_by_text(tmp_path):
    model = ROOT / "examples" / "digits" / "digits.onnx"
    images = np.load(ROOT / "examples" / "digits" / "digits_test.npz")["images"]
    export(model, tmp_path, SMALL, "--shape", "image=1,1,8,8")
    session = tessera.Session(model, "fsim", str(SMALL))
    with Alone(tmp_path, SMALL) as firmware:
        for k in range(4):
            want = session.run(None, {"image": images[k : k + 1]})[0]
            assert np.array_equal(firmware.run({"image": images[k : k + 1]})["logits"], want)
            assert f"class {want.argmax()}" in firmware.text
            assert 1000 < int(re.search(r"cycles (\d+)", "\n".join(firmware.text))[1]) < 100000


@needs_compiler
@pytest.mark.skipif(not LONG, reason="a network of keywords on a simulated processor, minutes (TESSERA_LONG)")
def test_keywords(tmp_path):
    data, feeds = networks.build("ds_cnn")
    model = tmp_path / "ds_cnn.onnx"
    model.write_bytes(data)
    export(model, tmp_path / "firmware", SMALL)
    session = tessera.Session(model, "fsim", str(SMALL))
    with Alone(tmp_path / "firmware", SMALL) as firmware:
        got = firmware.run(feeds)
    for port, want in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert np.array_equal(got[port.name], want)


def test_a_folder_without_firmware_is_told(tmp_path):
    done = litex("--simulate", "--config", SMALL, "--firmware", tmp_path, env={**os.environ})
    assert done.returncode != 0 and f"there is no {tmp_path}/firmware.bin" in done.stderr.splitlines()[-1]

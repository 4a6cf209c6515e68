# SPDX-License-Identifier: Apache-2.0
"""Firmware for rv32im in QEMU, with the functional simulator as its NPU, and what cross compilers make of the library:
the same elements as a session on the host, a memory that was told before, no symbol that is not there."""

import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest

import tessera
from tessera import console
from tests.bare_metal.host import COMMAND, export
from tests.bare_metal.test_host import encoder_model
from tests.oracle import oracle
from tests.system.conftest import ROOT
from tests.system.documents import test_tutorials as tutorials
from tests.system.graphs import calibration, random_network

DIGITS = ROOT / "examples" / "digits"
needs_qemu = pytest.mark.skipif(
    not (shutil.which("qemu-system-riscv32") and shutil.which("riscv64-unknown-elf-gcc")),
    reason="needs gcc-riscv64-unknown-elf and qemu-system-misc: ./dev setup --extras bare-metal",
)


def built(model, folder, config, feeds, *words):
    """Exports for QEMU and builds; returns what was told and what the linker says of it, in bytes."""
    shapes = [f"--shape={name}={','.join(map(str, array.shape))}" for name, array in feeds.items()]
    told = export(model, folder, "--target", "qemu-virt", "--config", config, *shapes, *words)
    made = subprocess.run(["make", "-s", "-C", str(folder)], capture_output=True, text=True, check=True).stdout
    text, data, bss = (int(word) for word in made.splitlines()[1].split()[:3])
    need = {name: int(re.search(rf"^  {name} +(\d+)", told, re.M)[1]) for name in ("ROM", "RAM")}
    assert text + data <= need["ROM"] <= text + data + 24000
    assert bss <= need["RAM"] + 4096
    return told


def compare(model, folder, config, feeds):
    built(model, folder, config, feeds)
    session = tessera.Session(str(model), "fsim", config)
    want = session.run(None, feeds)
    with console.Qemu(folder) as machine:
        machine.line.patience = 120
        got = console.Firmware(machine.line).run(feeds)
    for port, expected in zip(session.get_outputs(), want, strict=True):
        assert got[port.name].tobytes() == expected.tobytes(), port.name


@needs_qemu
def test_digits_by_text(tmp_path):
    images = np.load(DIGITS / "digits_test.npz")["images"]
    feeds = {"image": images[:1]}
    built(DIGITS / "digits.onnx", tmp_path, "npu64", feeds)
    session = tessera.Session(DIGITS / "digits.onnx", "fsim", "npu64")
    with console.Qemu(tmp_path) as machine:
        firmware = console.Firmware(machine.line)
        for k in range(10):
            want = session.run(None, {"image": images[k : k + 1]})[0]
            assert np.array_equal(firmware.run({"image": images[k : k + 1]})["logits"], want)
            assert f"class {want.argmax()}" in firmware.text


@needs_qemu
def test_a_transformer_from_words(tmp_path):
    path, feeds = encoder_model(tmp_path)
    compare(path, tmp_path / "firmware", "npu256", feeds)


@needs_qemu
@pytest.mark.parametrize("seed", [0, 102, 107])
def test_random_networks(seed, tmp_path):
    """A float network, all of it soft-float on the CPU, and quantised ones."""
    model, feeds, _ = random_network(seed)
    if seed:
        model = oracle.quantize(model, calibration(model, feeds), per_channel=bool(seed % 3))
    onnx.save(model, tmp_path / "model.onnx")
    compare(tmp_path / "model.onnx", tmp_path / "firmware", "npu64", feeds)


@needs_qemu
def test_another_npu_is_told_by_a_line(tmp_path):
    feeds = {"image": np.load(DIGITS / "digits_test.npz")["images"][:1]}
    built(DIGITS / "digits.onnx", tmp_path / "firmware", "npu64", feeds)
    np.save(tmp_path / "image.npy", feeds["image"])
    line = [COMMAND, "console", "--qemu", tmp_path / "firmware", "--input", tmp_path / "image.npy"]
    done = subprocess.run([*line, "--config", "npu256"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "its block_in is 16, the model was compiled for 8; export it with the machine's --config" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("processor", "compiler"),
    [(name, "riscv64-unknown-elf-gcc") for name in ("rv32im", "rv32imac", "rv32imafc", "rv64imac", "rv64imafdc")]
    + [(name, "arm-none-eabi-gcc") for name in ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-a9")],
)
def test_libraries_for_other_processors_link(processor, compiler, tmp_path):
    """The library of a model with float parts, linked with nothing but the compiler's arithmetic, lacks the port."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}: ./dev setup --extras bare-metal")
    path, _ = encoder_model(tmp_path)
    words = ("--cpu-target", processor, "--config", "npu256", "--shape=ids=1,7", "--shape=mask=1,7")
    export(path, tmp_path / "library", *words)
    make = ["make", "-C", str(tmp_path / "library"), "libtessera_model.a", "tessera_memory.o"]
    flags = re.search(r"^PROCESSOR \?= (.*)$", (tmp_path / "library" / "Makefile").read_text(), re.M)[1].split()
    subprocess.run(make, capture_output=True, text=True, check=True)
    line = [compiler, *flags, "-nostdlib", "-Wl,-e,tessera_run", "-Wl,-u,tessera_model", "-Wl,-u,tessera_open"]
    files = ["-Wl,--whole-archive", "libtessera_model.a", "-Wl,--no-whole-archive", "tessera_memory.o", "-lgcc"]
    done = subprocess.run([*line, *files], cwd=tmp_path / "library", capture_output=True, text=True, check=False)
    missing = set(re.findall(r"undefined reference to `(\w+)'", done.stderr))
    missing.discard("abort")  # the Arm library's, on a division by zero
    ports = {"read", "write", "physical", "clean", "invalidate", "wait"}
    assert missing == {f"tessera_port_{name}" for name in ports}, done.stderr[-600:]


@needs_qemu
def test_firmware_for_litex_links(tmp_path):
    """With the first steps in front of it, which stand at address 0 and hold the firmware as a whole."""
    export(DIGITS / "digits.onnx", tmp_path, "--target", "litex-vexriscv", "--shape", "image=1,1,8,8")
    subprocess.run(["make", "-s", "-C", str(tmp_path), "boot.bin"], check=True, capture_output=True)
    firmware, boot = ((tmp_path / name).read_bytes() for name in ("firmware.bin", "boot.bin"))
    assert 0 < boot.find(firmware) < 1024 and boot.find(firmware) % 4 == 0


@needs_qemu
def test_a_reader_sees_what_the_tutorial_shows(tmp_path):
    text, problems = (ROOT / "docs" / "bare_metal.md").read_text(), []
    now = tutorials.renewed_page(text, tutorials.type_in(text, tmp_path), problems)
    assert problems == []
    assert now == text

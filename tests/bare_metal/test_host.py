# SPDX-License-Identifier: Apache-2.0
"""Exported models on the host: every element as a session on the functional simulator has it; what the runtime does
when the NPU is another one, stays silent or stops; what cannot be exported."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera import console
from tests.bare_metal.host import COMMAND, HostFirmware, export, needs_host
from tests.oracle import oracle
from tests.system.conftest import ROOT
from tests.system.encoder import Encoder
from tests.system.graphs import random_network

sys.path.insert(0, str(ROOT / "bench"))
import networks

pytestmark = needs_host
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def images():
    return np.load(ROOT / "examples" / "digits" / "digits_test.npz")["images"]


def compare(model, feeds, folder, config, *words):
    """The export's outputs for all feeds, equal to those of a session."""
    shapes = [f"--shape={name}={','.join(map(str, array.shape))}" for name, array in feeds[0].items()]
    export(model, folder, "--target", "generic-c", "--cpu-target", "x86-64", "--config", config, *shapes, *words)
    firmware = HostFirmware(folder, config)
    assert firmware.open() == 0, firmware.describe()
    session = tessera.Session(str(model), "fsim", config)
    names = [port.name for port in session.get_outputs()]
    for feed in feeds:
        got, want = firmware.run(feed), session.run(None, feed)
        for name, expected in zip(names, want, strict=True):
            assert got[name].dtype == expected.dtype and got[name].shape == expected.shape
            assert got[name].tobytes() == expected.tobytes(), name
    return firmware


def test_digits_on_two_machines(images, tmp_path):
    feeds = [{"image": images[k : k + 1]} for k in range(20)]
    for config in ("npu64", "npu256"):
        compare(DIGITS, feeds, tmp_path / config, config)


@pytest.mark.parametrize("name", ["ds_cnn", "autoencoder"])
def test_networks_of_mlperf_tiny(name, tmp_path):
    data, feeds = networks.build(name)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    compare(path, [feeds], tmp_path / "folder", "npu256")


def encoder_model(folder):
    """A quantised encoder with embeddings, masks, softmax and GELU; its feeds."""
    encoder = Encoder(length=7)
    model = encoder.model()
    rng = np.random.default_rng(2)
    feeds = {"ids": rng.integers(0, 11, (1, 7)), "mask": np.array([[1, 1, 1, 1, 1, 0, 0]])}
    path = folder / "encoder.onnx"
    onnx.save(oracle.quantize(model, [feeds], per_channel=True), path)
    return path, feeds


@pytest.mark.parametrize("config", ["npu256", "npu256t"])
def test_a_transformer_from_words(config, tmp_path):
    path, feeds = encoder_model(tmp_path)
    firmware = compare(path, [feeds], tmp_path / "folder", config)
    tensor = next(t for t in firmware.inputs if t.name == b"ids")
    tensor.array()[...] = [[0, -11, 10, 11, 0, 0, 0]]
    assert firmware.try_run() == 8
    assert "index number 3 is outside of an axis of 11" in firmware.describe()


@pytest.mark.parametrize("seed", [1, 3, 16, 17])
def test_random_float_networks_on_the_cpu(seed, tmp_path):
    model, feeds, _ = random_network(seed)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    compare(path, [feeds], tmp_path / "folder", "npu64")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    export(DIGITS, folder, "--cpu-target", "x86-64", "--config", "npu64")
    return folder


@pytest.fixture
def firmware(digits):
    made = HostFirmware(digits, "npu64")
    yield made
    made.set("host_moved", ctypes.c_uint64, 0)


def changed(firmware, offset, value):
    """Another value in the register at `offset`."""
    read, write = firmware.registers
    firmware.registers = lambda at: value if at == offset else read(at), write


@pytest.mark.parametrize(
    ("offset", "value", "code", "words"),
    [
        (0x100, 0xFFFFFFFF, 1, "no NPU answers: its identity register reads 4294967295"),
        (0x104, 7, 2, "version 7 of the instruction set, the model needs 2"),
        (0x118, 4096, 3, "its wgt_bytes is 4096, the model was compiled for 65536"),
    ],
)
def test_another_npu_is_refused(firmware, offset, value, code, words):
    changed(firmware, offset, value)
    assert firmware.open() == code and words in firmware.describe()


def test_memory_at_a_wrong_address_is_refused(firmware):
    firmware.set("host_moved", ctypes.c_uint64, 8)
    assert firmware.open() == 7 and "which is no multiple of 64" in firmware.describe()


def test_an_npu_that_is_busy_or_never_ends(firmware):
    assert firmware.open() == 0
    changed(firmware, 0, 0)
    assert firmware.try_run() == 4 and "busy" in firmware.describe()
    changed(firmware, 0, 4)
    assert firmware.try_run() == 5
    assert "did not finish within 1" in firmware.describe() and "of program 0" in firmware.describe()


def test_a_fault_names_the_node(firmware):
    assert firmware.open() == 0
    read, write = firmware.registers
    firmware.registers = read, lambda at, value: write(at, 0xFFFF if at == 0x24 else value)
    assert firmware.try_run() == 6
    assert firmware.describe() == "the NPU stopped: dram_range in LOAD at instruction 0 of program 0, node 'conv1'"
    firmware.registers = read, write
    assert firmware.try_run() == 0


def test_no_symbol_is_missing_but_the_port(digits):
    """Linked with nothing but itself, the library wants the six functions of the port."""
    whole = digits / "whole.o"
    parts = ["model.o", "model_data.o", "model_cpu.o", "tessera.o", "tessera_math.o", "tessera_memory.o"]
    subprocess.run(["make", "-s", "-C", str(digits), *(p for p in parts if p != "model_cpu.o")], check=True)
    subprocess.run(["ld", "-r", "-o", str(whole), *(str(digits / part) for part in parts)], check=True)
    names = subprocess.run(["nm", "-u", str(whole)], capture_output=True, text=True, check=True).stdout.split()
    wanted = {f"tessera_port_{name}" for name in ("read", "write", "physical", "clean", "invalidate", "wait")}
    assert {name for name in names if name != "U"} - {"_GLOBAL_OFFSET_TABLE_"} == wanted


def test_functions_have_the_bits_of_the_c_library(digits, tmp_path):
    """Arguments of all magnitudes, of both signs; fused products with every kind of cancellation."""
    program = tmp_path / "math"
    source = Path(__file__).resolve().parent / "math_check.c"
    flags = ["-O2", "-ffp-contract=off", "-std=c11", f"-I{digits}"]
    subprocess.run(["gcc", *flags, "-o", str(program), str(source), str(digits / "tessera_math.c"), "-lm"], check=True)
    done = subprocess.run([str(program), "20011"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


class Console:
    """The firmware's console in a thread, with a line that may garble what goes through."""

    def __init__(self, firmware):
        to_firmware, from_firmware = os.pipe(), os.pipe()
        os.set_blocking(to_firmware[0], False)
        firmware.set("host_line_in", ctypes.c_int, to_firmware[0])
        firmware.set("host_line_out", ctypes.c_int, from_firmware[1])
        self.line = console.Line(from_firmware[0], to_firmware[1], "a pipe", patience=20)
        serve = firmware.library.tessera_console
        threading.Thread(target=serve, args=(ctypes.byref(firmware.model),), daemon=True).start()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--input", "image.npy", "-o", "/no/such/results.npz"], "cannot write '/no/such/results.npz'"),
        (["-o", "results.npz"], "add --input FILE"),
        (["--input", "image.npy"], "127.0.0.1:1 does not answer"),
    ],
)
def test_the_command_refuses_before_it_talks(words, said, capsys):
    assert console.main(["--port", "tcp:127.0.0.1:1", *words]) == 1
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


def test_the_console_answers_in_text(firmware, images):
    session = tessera.Session(DIGITS, "fsim", "npu64")
    board = console.Firmware(Console(firmware).line)
    assert (board.name, board.machine) == ("digits", "npu64")
    assert board.inputs[0].shape == (1, 1, 8, 8) and board.outputs[0].dtype == np.float32
    for k in range(5):
        want = session.run(None, {"image": images[k : k + 1]})[0]
        assert np.array_equal(board.run({"image": images[k : k + 1]})["logits"], want)
        assert f"class {want.argmax()}" in board.text
        numbers = board.text[0].split(":")[1].split()
        assert np.allclose([float(number) for number in numbers], want[0], rtol=1e-5)
    with pytest.raises(tessera.Error, match=r"takes float32 \[1, 1, 8, 8\], got float64"):
        board.run({"image": images[:1].astype(np.float64)})
    with pytest.raises(tessera.Error, match="no command"):
        board.ask("dance")


def test_garbled_frames_change_no_result(firmware, images):
    """A fifth of what is sent comes with a wrong byte, without one, or twice; results are right or there is none."""
    session = tessera.Session(DIGITS, "fsim", "npu64")
    line, rng = Console(firmware).line, np.random.default_rng(5)
    board, send = console.Firmware(line), line.send

    def garbling(data):
        data = bytearray(data)
        if rng.random() < 0.2:
            at = int(rng.integers(len(data)))
            kind = rng.integers(3)
            if kind == 0:
                data[at] ^= int(rng.integers(1, 256))
            elif kind == 1:
                del data[at]
            else:
                data[at:at] = data[at : at + 3]
        send(bytes(data))

    line.send, line.patience, right = garbling, 2, 0
    for k in range(60):
        try:
            got = board.run({"image": images[k : k + 1]})["logits"]
        except tessera.Error:
            send(b"\n")
            time.sleep(0.01)
            line.drain()
            continue
        right += 1
        assert np.array_equal(got, session.run(None, {"image": images[k : k + 1]})[0])
    assert right > 20


def plain_model(folder, op, inputs, outputs, *constants, **attributes):
    """A model of one node on x [1, 8], named as its operator is."""
    node = helper.make_node(op, [*inputs, *(array.name for array in constants)], outputs, name="the node", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node], "g", [x], results, constants)
    path = folder / f"{op}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def test_what_has_no_form_without_a_system_is_told(tmp_path):
    folder, words = tmp_path / "folder", ("--cpu-target", "rv32im")
    count = numpy_helper.from_array(np.array([3]), "k")
    line = export(plain_model(tmp_path, "TopK", ["x"], ["y", "i"], count), folder, *words, status=1)
    assert "node 'the node' (TopK) runs as a kernel of the host's library" in line
    tangent = plain_model(tmp_path, "Tan", ["x"], ["y"])
    line = export(tangent, folder, *words, status=1)
    assert "node 'the node' (Tan) calls tanf" in line and "--library-math" in line
    export(tangent, folder, *words, "--library-math")
    assert "float tessera_tanf(float x) { return tanf(x); }" in (folder / "model_math.c").read_text()
    for words, cause in [
        (("--target", "amiga"), "there is no target 'amiga'; there are generic-c, litex-vexriscv, qemu-virt"),
        (("--cpu-target", "z80"), "no processor 'z80'"),
        (("--cpu-target", "rv32xyz"), "no processor 'rv32xyz'"),
        (("--target", "qemu-virt", "--cpu-target", "cortex-m4"), "is for RISC-V"),
        (("--config", "npu256x2"), "'npu256x2' has 2 cores, and firmware starts one core"),
        (("--config", "npu256x2", "--cores", "1"), "export for core 0 of the chip"),
        (("--ram", "lots"), "--ram takes a size"),
        (("--rom", "16K"), "of ROM, and there are 16384"),
        (("--target", "litex-vexriscv", "--ram", "20K"), "of RAM, and there are 20480"),
    ]:
        line = export(DIGITS, tmp_path / "other", "--shape", "image=1,1,8,8", *words, status=1)
        assert cause in line and line.count("\n") == 1, line
    assert not (tmp_path / "other").exists()


def test_the_first_core_of_a_chip(tmp_path):
    """What the registers must hold is what the RTL's read: `cores` is 0 in a machine of one core, else their number."""
    for config, words, cores in (("npu256", [], 0), ("npu256x2", ["--cores", "0"], 2)):
        folder = tmp_path / config
        export(DIGITS, folder, "--cpu-target", "rv32im", "--shape", "image=1,1,8,8", "--config", config, *words)
        assert f', {cores}u, "cores"' in (folder / "model.c").read_text()


def test_artifacts_are_exported_for_their_own_processor(tmp_path, images):
    made = tmp_path / "digits.tsr"
    for target in ("host", "rv64gc", "rv32im"):
        words = ["--cpu-target", target, "--config", "npu64", "--shape", "image=1,1,8,8"]
        subprocess.run([COMMAND, "compile", DIGITS, "-o", made, *words], check=True, capture_output=True)
        status = 0 if target == "rv32im" else 1
        said = export(made, tmp_path / target, "--cpu-target", "rv32im", status=status)
        assert status == 0 or "compile it with --cpu-target rv32im" in said
        if target == "rv64gc":  # the host runs it by its bitcode
            want = tessera.Session(DIGITS, "fsim", "npu64").run(None, {"image": images[:1]})[0]
            assert np.array_equal(tessera.Session(made, "fsim", "npu64").run(None, {"image": images[:1]})[0], want)
    with pytest.raises(tessera.Error, match="pointers of another size"):
        tessera.Session(made, "fsim", "npu64").run(None, {"image": images[:1]})

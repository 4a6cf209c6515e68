# SPDX-License-Identifier: Apache-2.0
"""Chips of several cores by the command: the bundled network equals ONNX Runtime in every element, a program has a
stream for each core, and no accesses of two cores race. Random graphs are in compiler/npu/cores/cores_test.cc."""

import json

import numpy as np
import onnxruntime
import pytest

import tessera
from tests.system.conftest import ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
CHIPS = {"npu256x2": 2, "npu256x4": 4, "npu64x8": 8}


@pytest.fixture(scope="module")
def images():
    return np.load(ROOT / "examples" / "digits" / "digits_test.npz")["images"]


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("batch", [1, 16])
def test_digits_equal_onnx_runtime(command, images, tmp_path, chip, batch):
    np.save(tmp_path / "image.npy", images[:batch])
    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"image": images[:batch]})[0]
    config = ROOT / "hw" / "configs" / f"{chip}.toml"
    inputs = ["--input", tmp_path / "image.npy", "--check-races", "--poison", "3"]
    results = ["-o", tmp_path / "logits.npy", "--stats", tmp_path / "stats.json"]
    done = command("run", MODEL, "--config", config, "--device", "fsim", *inputs, *results)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "logits.npy"), expected)
    assert json.loads((tmp_path / "stats.json").read_text())["config"] == chip


def test_a_stream_for_each_core(command, tmp_path):
    config = ROOT / "hw" / "configs" / "npu256x2.toml"
    compiled = command("compile", MODEL, "--config", config, "--shape", "image=16,1,8,8", "-o", tmp_path / "digits.tsr")
    assert compiled.returncode == 0, compiled.stderr
    listing = command("disasm", tmp_path / "digits.tsr").stdout
    streams = listing.split("# program 0 for npu256x2, core ")[1:]
    assert len(streams) == 2 and all("gemm" in stream for stream in streams)  # images are divided: nobody waits


def on_onnx_runtime(images):
    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": images})[0]


@pytest.mark.parametrize("cores", [[0, 1], [3, 1], [2], [1, 2, 0]])
def test_any_cores_of_a_chip(images, cores):
    feeds = {"image": images[:16]}
    session = tessera.Session(MODEL, "fsim", "npu256x4", cores=cores, check_races=True, poison=1)
    assert np.array_equal(session.run(None, feeds)[0], on_onnx_runtime(images[:16]))
    assert session.info()["config"] == {1: "npu256", 2: "npu256x2", 3: "npu256x4-3cores"}[len(cores)]


def test_a_program_for_two_cores_runs_on_any_two(command, images, tmp_path):
    """Compiled for a smaller chip, or with --cores: the same program. The command runs it on cores of a larger one."""
    for number, words in enumerate((["npu256x2"], ["npu256x4", "--cores", "0,1"])):
        made = tmp_path / f"{number}.tsr"
        done = command("compile", MODEL, "--config", *words, "--shape", "image=3,1,8,8", "-o", made)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "0.tsr").read_bytes() == (tmp_path / "1.tsr").read_bytes()
    np.save(tmp_path / "image.npy", images[:3])
    words = ["--config", "npu256x4", "--cores", "3,1", "--device", "sysc", "--input", tmp_path / "image.npy"]
    done = command("run", tmp_path / "0.tsr", *words, "-o", tmp_path / "logits.npy")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "logits.npy"), on_onnx_runtime(images[:3]))
    refused = command("run", tmp_path / "0.tsr", "--config", "npu256x4", "--cores", "3,4", "--random-inputs", "1")
    assert refused.returncode == 1 and "cores are 0 to 3" in refused.stderr
    refused = command("run", tmp_path / "0.tsr", "--config", "npu256x4", "--cores", "3", "--random-inputs", "1")
    assert refused.returncode == 1 and "--cores with 1 numbers" in refused.stderr


def test_models_at_once(images):
    """Two sessions of one chip side by side: equal to ONNX Runtime, and the same cycles each time."""
    cycles = []
    for _ in range(2):
        chip = tessera.Chip("npu256x4", "sysc")
        assert chip.cores == 4
        one = tessera.Session(MODEL, chip=chip, cores=[0, 3])
        two = tessera.Session(MODEL, chip=chip, cores=[1, 2])
        feeds = [{"image": images[k : k + 16]} for k in range(0, 48, 16)], [{"image": images[48:52]}] * 5
        found = chip.run_together([(one, feeds[0]), (two, feeds[1])])
        for runs, given in zip(found, feeds):
            for (outputs, _), feed in zip(runs, given):
                assert np.array_equal(outputs[0], on_onnx_runtime(feed["image"]))
        cycles.append([[taken for _, taken in runs] for runs in found])
    assert cycles[0] == cycles[1]
    assert one.stats().cycles == sum(layer.cycles or 0 for layer in one.stats().layers)  # layers are counted as ever


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("device", ["sysc", "fsim"])
def test_statistics_of_each_core(command, images, device):
    """Sums of the cores are those of the run; a core's cycles are those of its causes. The report prints a row each."""
    session = tessera.Session(MODEL, device, "npu256x4", shapes={"image": [64, 1, 8, 8]})
    session.run(None, {"image": images[:64]})
    stats = session.stats()
    assert [row["core"] for row in stats.cores] == [0, 1, 2, 3]
    for key in ("instructions", "dram_read_bytes", "dram_write_bytes", "issued_macs"):
        assert sum(row[key] for row in stats.cores) == stats[key]
    report = session.report()
    assert set(report["timeline"]["instructions"]["columns"]["core"]) == {0, 1, 2, 3}
    if device == "fsim":
        return
    causes = [f"cycles_{cause}" for cause in ("compute", "alu", "load", "store", "sync")]
    assert all(sum(row[cause] for cause in causes) == row["cycles"] for row in stats.cores)
    assert max(row["cycles"] for row in stats.cores) == stats.cycles
    assert 0 < stats.utilization <= 1  # of all cores
    assert 0 < stats.bus_busy_cycles <= stats.cycles
    # A beat of 32 bytes moves in each of them.
    assert 32 * stats.bus_busy_cycles >= stats.dram_read_bytes + stats.dram_write_bytes
    text = command("report", MODEL, "--config", "npu256x4", "--shape", "image=64,1,8,8").stdout
    assert "waits for cores  waits for bus" in text and "the shared bus moved data in" in text

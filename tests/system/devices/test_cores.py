# SPDX-License-Identifier: Apache-2.0
"""Chips of several cores by the command: the bundled network equals ONNX Runtime in every element, a program has a
stream for each core, and no accesses of two cores race. Random graphs are in compiler/npu/cores_test.cc."""

import json

import numpy as np
import onnxruntime
import pytest

from tests.system.conftest import ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
CHIPS = {"npu256x2": 2, "npu256x4": 4, "npu64x8": 8}


@pytest.fixture(scope="module")
def images():
    return np.load(ROOT / "examples" / "digits" / "digits_test.npz")["images"]


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

# SPDX-License-Identifier: Apache-2.0
"""The vision transformer of examples/vit: quantised, it runs wholly on a machine with row lanes, the devices agree, and
it finds the digits as well as in float."""

import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

import tessera
from tests.system.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"
CONFIG = "npu256t"


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """The int8 file, as examples/README.md makes it."""
    path = tmp_path_factory.mktemp("vit") / "vit.onnx"
    command = ["quantize", ROOT / "examples" / "vit" / "vit_float.onnx", "-o", path, "--config", CONFIG]
    command += ["--calibrate", DIGITS / "digits_calibration.npz", "--numerics", "close", "--engine", "onnxruntime"]
    done = subprocess.run([sys.executable, "-m", "tessera", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def digits():
    data = np.load(DIGITS / "digits_test.npz")
    return data["images"], data["labels"]


def test_only_the_edges_are_on_the_cpu(vit):
    session = tessera.Session(vit, "fsim", CONFIG, numerics="close", shapes={"image": [1, 1, 8, 8]})
    info = session.info()
    assert info.macs_npu_share == 1.0 and info.nodes_cpu == 2  # quantise the image, dequantise the logits


def test_the_page_tells_its_figures(vit, digits):
    session = tessera.Session(vit, "sysc", CONFIG, numerics="close")
    session.run(None, {"image": digits[0][:1]})
    info, text = session.info(), " ".join((ROOT / "examples" / "README.md").read_text().split())
    assert f"{info.nodes_npu} of its {info.nodes_npu + info.nodes_cpu} nodes" in text
    assert f"An image takes {session.stats().cycles:,} cycles" in text


def test_the_devices_agree_and_find_the_digits(vit, digits):
    images, labels = digits
    logits = tessera.Session(vit, "fsim", CONFIG, numerics="close").run(None, {"image": images})[0]
    for device in ("reference", "sysc", "rtl"):
        session = tessera.Session(vit, device, CONFIG, numerics="close")
        assert np.array_equal(session.run(None, {"image": images[:2]})[0], logits[:2]), device
    assert np.mean(logits.argmax(1) == labels) > 0.97
    # Of ONNX Runtime's elements few are a step away (docs/numerics.md, "close").
    runtime = onnxruntime.InferenceSession(str(vit), providers=["CPUExecutionProvider"])
    others = runtime.run(None, {"image": images})[0]
    assert np.mean(logits.argmax(1) == others.argmax(1)) > 0.99

# SPDX-License-Identifier: Apache-2.0
"""Exported models on the host: every element as a session on the functional simulator has it; what the runtime does
when the NPU is another one, stays silent or stops; what cannot be exported."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tests.bare_metal.host import HostFirmware, export, needs_host
from tests.system.conftest import ROOT

pytestmark = needs_host
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def images():
    return np.load(ROOT / "examples" / "digits" / "digits_test.npz")["images"]


def compare(model, feeds, folder, config, *words):
    """The export's outputs for all feeds, equal to those of a session."""
    export(model, folder, "--target", "generic-c", "--cpu-target", "x86-64", "--config", config, *words)
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


def test_networks_of_the_bench(tmp_path):
    from bench import networks

    for name in ("ds_cnn", "autoencoder"):
        model, feeds = networks.build(name)
        path = tmp_path / f"{name}.onnx"
        onnx.save(model, path)
        compare(path, [feeds], tmp_path / name, "npu256")

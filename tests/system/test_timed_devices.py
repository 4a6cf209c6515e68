# SPDX-License-Identifier: Apache-2.0
"""Whole networks on the machines that know time. The RTL's and the timing model's outputs equal the functional simulator's in every
element; the timing model's cycles are within 1 % of the RTL's on every network and within 3 % on every layer above 10,000 cycles."""
import sys

import numpy as np
import pytest

import tessera
from tests.system.conftest import ROOT
from tests.system.test_models import random_feeds

sys.path.insert(0, str(ROOT / "bench"))
import networks  # noqa: E402

pytestmark = pytest.mark.skipif("rtl" not in tessera.backends() or "sysc" not in tessera.backends(),
                                reason="this build has no RTL or no timing model")


def check(data, feeds, config):
    expected = tessera.Session(data, "fsim", config).run(None, feeds)
    stats = {}
    for device in ("rtl", "sysc"):
        session = tessera.Session(data, device, config)
        for got, want in zip(session.run(None, feeds), expected):
            assert np.array_equal(got, want, equal_nan=True), f"{device}: {(got != want).sum()} of {got.size} elements differ from fsim"
        stats[device] = session.stats()
    rtl, sysc = stats["rtl"], stats["sysc"]
    assert rtl.cycles > 0
    assert abs(sysc.cycles - rtl.cycles) <= 0.01 * rtl.cycles, f"sysc {sysc.cycles}, rtl {rtl.cycles}"
    for a, b in zip(rtl.layers, sysc.layers):
        if a["placement"] == "npu" and a["cycles"] is not None and a["cycles"] > 10000:
            assert abs(b["cycles"] - a["cycles"]) <= 0.03 * a["cycles"], f"layer {a['name']}: sysc {b['cycles']}, rtl {a['cycles']}"
    timed = [layer["cycles"] for layer in rtl.layers if layer["placement"] == "npu"]
    assert sum(timed) == rtl.cycles  # the layers sum to the run


@pytest.mark.parametrize("config", ["npu64", "npu256"])
def test_digits(config):
    folder = ROOT / "examples" / "digits"
    images = np.load(folder / "digits_test.npz")["images"]
    check((folder / "digits.onnx").read_bytes(), {"image": images[:5]}, config)


@pytest.mark.parametrize("config", ["npu64", "npu256"])
@pytest.mark.parametrize("name", [name for name in networks.NETWORKS if name not in ("resnet18", "resnet50", "mobilenetv2")])
def test_small_networks(name, config):
    data, feeds = networks.build(name)
    check(data, feeds, config)


@pytest.mark.parametrize("name", ["mobilenetv2_qdq", "shufflenet-v2-12-int8", "mobilenetv3_fx_int8"])
def test_public_models(name, shared_models):
    path = shared_models / f"{name}.onnx"
    feeds, _ = random_feeds(path)
    check(path.read_bytes(), feeds, "npu256")

# SPDX-License-Identifier: Apache-2.0
"""What tests of quantisation share: the engines at hand, equality with ONNX Runtime, one line for what is refused."""

import importlib.util

import numpy as np
import pytest

import tessera
from tests.oracle import oracle
from tests.system.quantised_parts import exact_part

HAVE_NNCF = importlib.util.find_spec("nncf") is not None
HAVE_PILLOW = importlib.util.find_spec("PIL") is not None
NNCF_MISSING = "NNCF is not installed (requirements-quantize.txt)"
ENGINES = ["onnxruntime", pytest.param("nncf", marks=pytest.mark.skipif(not HAVE_NNCF, reason=NNCF_MISSING))]


def pixels(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def as_float32(feeds):
    return [{name: value.astype(np.float32) for name, value in feed.items()} for feed in feeds]


def compare(model, feed, config, equal):
    expected = oracle.run(model, feed, intermediates=False).outputs
    session = tessera.Session(model.SerializeToString(), "fsim", config, check_races=True, poison=1)
    for port, got in zip(session.get_outputs(), session.run(None, feed)):
        want = expected[port.name]
        assert equal(got, want), f"{port.name}: {(got != want).sum()} of {got.size} differ"


def check_exact(model, feed, config="npu256"):
    """The functional simulator equals ONNX Runtime in every element, up to where float operators compute. Behind those,
    whose class is a tolerance, it may differ in the last bits, and by a step where such a value is quantised again."""
    part = exact_part(model)
    if part is not None:
        compare(part, feed, config, np.array_equal)
    compare(model, feed, config, lambda a, b: np.allclose(a, b, rtol=1e-3, atol=0.04 * float(np.abs(b).max())))


def prepared_plan(model):
    import _tessera

    from tessera.quantization.plan import Plan
    from tessera.quantization.prepare import prepare

    model = prepare(model, {"Conv", "MatMul", "Gemm"})
    return model, Plan(model, _tessera.operator_names())


def refused(match, model, calibrate, **options):
    with pytest.raises(tessera.Error, match=match) as raised:
        tessera.quantize(model, calibrate, **{"engine": "onnxruntime", **options})
    assert "\n" not in str(raised.value)
    return raised.value.code

# SPDX-License-Identifier: Apache-2.0
"""The quantisers of QONNX beside their definition in numpy, for every rounding mode, width and layout of parameters:
as formulas, as the operators that they expand to, and as constants."""

import itertools

import _tessera_ops
import numpy as np
import pytest
from ort_compare import assert_same, check_inference, check_rejected, infer, run_tessera

RNG = np.random.default_rng(41)
DOMAIN = "qonnx.custom_op.general"
ROUNDING = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.fix,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + np.float32(0.5)),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - np.float32(0.5)),
}


def f(value):
    return np.asarray(value, np.float32)


def limits(bits, signed, narrow):
    if signed:
        return f(-(2.0 ** (bits - 1)) + narrow), f(2.0 ** (bits - 1) - 1)
    return f(0), f(2.0**bits - 1 - narrow)


def quant(x, scale, zero, bits, signed, narrow, mode):
    k = x / scale + zero
    if bits == 1 and signed:
        k = np.where(k >= 0, f(1), f(-1))
    else:
        low, high = limits(float(bits), signed, narrow)
        k = ROUNDING[mode](np.where(np.where(k > high, high, k) < low, low, np.where(k > high, high, k)))
    return f((k - zero) * scale)


def same(op, inputs, attributes, expected, domain=DOMAIN):
    """As a formula (nothing but types is known beside it) and through the expansion."""
    keywords = dict(domain=domain, opset=1, attributes=attributes)
    for where in (domain, "tessera"):
        got = run_tessera(op, inputs, **(keywords | {"domain": where}))
        assert_same(expected, got[0], f"{op} {attributes} in {where}")
    check_inference(op, inputs, got, **keywords)
    for known in (range(1, len(inputs)), range(len(inputs))):
        assert_same(expected, expanded(op, inputs, attributes, domain, set(known)), f"{op} {attributes} expanded")


def expanded(op, inputs, attributes, domain, known):
    steps = _tessera_ops.run_expansion(op, domain, 1, attributes, list(inputs), 1, sorted(known))
    return run_tessera(op, inputs, domain=domain, opset=1, attributes=attributes)[0] if steps is None else steps[0]


def ties(scale):
    """Numbers around the ties of a grid, its limits and beyond."""
    steps = np.concatenate([np.arange(-300, 300) / 2, RNG.uniform(-300, 300, 300), [1e20, -1e20, 0, -0.0]])
    return f(steps) * f(scale)


@pytest.mark.parametrize("mode", ROUNDING)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7, 8, 9, 16, 3.5])
def test_modes_and_widths(mode, bits):
    for signed, narrow, scale, zero in itertools.product([0, 1], [0, 1], [0.25, 0.0371], [0, 1, 3, 100]):
        if bits == 1 and narrow:
            continue
        zero = -zero if signed and zero == 100 else zero
        x = ties(scale)
        expected = quant(x, f(scale), f(zero), bits, signed, narrow, mode)
        attributes = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
        same("Quant", [x, f(scale), f(zero), f(bits)], attributes, expected)


@pytest.mark.parametrize("shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1), (1, 4, 6, 1), (3, 1, 1, 1), (1, 1, 1, 5)])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_scales_of_channels(shape, bits):
    x = f(RNG.uniform(-3, 3, (3, 4, 6, 5)))
    scale = f(RNG.uniform(0.01, 0.5, shape))
    for zero in (f(0), f(RNG.integers(0, 5, shape))):
        for signed in (0, 1):
            expected = quant(x, scale, zero, bits, signed, 0, "ROUND")
            same("Quant", [x, scale, zero, f(bits)], {"signed": signed, "narrow": 0}, expected)
            same("IntQuant", [x, scale, zero, f(bits)], {"signed": signed, "narrow": 0}, expected)


def test_types_and_empty():
    for domain in (DOMAIN, "finn.custom_op.general", "onnx.brevitas"):
        x = f(RNG.uniform(-3, 3, (2, 3)))
        same("Quant", [x, f(0.1), f(0), f(8)], {}, quant(x, f(0.1), f(0), 8, 1, 0, "ROUND"), domain)
    same("Quant", [f(np.zeros((0, 3))), f(0.1), f(0), f(8)], {}, f(np.zeros((0, 3))))
    same("Quant", [f(0.77), f(0.5), f(0), f(4)], {}, f(1.0))
    half = np.array([0.3, -0.8], np.float16)
    same("Quant", [half, f(0.25), f(0), f(4)], {}, np.array([0.25, -0.75], np.float16))
    x = RNG.uniform(-3, 3, 9)
    got = run_tessera("Quant", [x, f(0.25), f(0), f(4)], domain=DOMAIN, opset=1)[0]
    assert got.dtype == np.float64 and np.array_equal(got, np.clip(np.round(x / 0.25), -8, 7) * 0.25)


def test_bipolar():
    x = np.append(ties(0.3), [0, -0.0]).astype(np.float32)
    same("BipolarQuant", [x, f(0.3)], {}, np.where(x >= 0, f(0.3), f(-0.3)))
    x, scale = f(RNG.standard_normal((3, 4))), f([[0.1], [0.2], [0.4]])
    same("BipolarQuant", [x, scale], {}, np.where(x >= 0, scale, -scale))


@pytest.mark.parametrize("mode", ROUNDING)
@pytest.mark.parametrize("zero", [0, 16])
def test_trunc(mode, zero):
    scale, x = f(0.125), f(RNG.integers(-600, 600, 200)) * f(0.125)
    k = ROUNDING[mode](np.round(x / scale + f(zero)) / f(8))
    same("Trunc", [x, scale, f(zero), f(11), f(8)], {"rounding_mode": mode}, f((k - f(zero)) * scale))
    for signed, narrow, bits in itertools.product([0, 1], [0, 1], [4, 8, 12]):
        low, high = limits(float(bits), signed, narrow)
        k = ROUNDING[mode](np.clip(np.round(x / scale + f(zero)) / f(8), low, high))
        expected = f((k - f(zero / 8)) * f(1.0))
        attributes = {"rounding_mode": mode, "signed": signed, "narrow": narrow}
        same("Trunc", [x, scale, f(zero), f(11), f(1.0), f(bits)], attributes, expected)
        same("Trunc", [x, scale, f(zero), f(11), f(1.0), f(zero / 8), f(bits)], attributes, expected)


def test_bad_models():
    x = f(np.ones((2, 3)))
    rejected = dict(domain=DOMAIN, opset=1)
    wrong = {"rounding_mode": "NEAREST"}
    check_rejected("Quant", [x, f(1), f(0), f(8)], attributes=wrong, match="none of ROUND", **rejected)
    check_rejected("Quant", [x, f([1, 2]), f(0), f(8)], **rejected)
    check_rejected("Quant", [x, f(1), f(0), f([8, 8])], match="must be one number", **rejected)
    with pytest.raises(_tessera_ops.TesseraError, match="bit width must be above 0"):
        run_tessera("Quant", [x, f(1), f(0), f(0)], **rejected)
    assert infer("Quant", [("float32", None)] * 4, **rejected)[0][:2] == ("float32", None)

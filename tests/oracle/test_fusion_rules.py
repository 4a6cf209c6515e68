# SPDX-License-Identifier: Apache-2.0
"""What decides whether a group of DQ, operator and Q is fused, case by case beside the oracle's optimiser: scales and
zero points of biases, alpha and zero points of Gemm, scalars of Where, Pad and MaxPool in every opset. The integer
operators and, where no float sum is left, all elements must be equal."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from tests.oracle import oracle
from tests.oracle.model_builder import F32, Builder, Quantized
from tests.oracle.test_folding import ONLY_FOLDING, assert_equal, check, ours

pytestmark = pytest.mark.skipif(not oracle.exact_cpu(), reason="the formulas are those of CPUs with AVX2, FMA and VNNI")
X_SCALE, W_SCALE = 0.1, 0.02
VECTOR = np.array([0.01, 0.02, 0.03, 0.04], F32)


def image(b):
    return b.activation((1, 3, 5, 5), Quantized("", X_SCALE, 3, b.dtype, (1, 3, 5, 5)))


def constant_dq(b, values, scale, zero=None, **attributes):
    parameters = [b.constant(np.asarray(scale, F32))] + ([] if zero is None else [b.constant(zero)])
    return b.node("DequantizeLinear", [b.constant(values), *parameters], **attributes)


def conv(b, bias, w_scale=W_SCALE, axis=0, x=None):
    shape = np.shape(w_scale)
    weights = constant_dq(
        b, b.rng.integers(-128, 128, (4, 3, 1, 1)).astype(np.int8), w_scale, np.zeros(shape, np.int8),
        **({"axis": axis} if shape else {}),
    )  # fmt: skip
    y = b.node("Conv", [x or b.dequantize(image(b)), weights, *([] if bias is None else [bias])])
    b.result(b.quantize(y, Quantized("", 0.25, 10, b.dtype, (1, 4, 5, 5))))


def bias_dq(b, scale, zero=None):
    axis = {"axis": 0} if np.ndim(scale) else {}
    return constant_dq(b, np.array([50, -70, 0, 900], np.int32), scale, zero, **axis)


SCALE = F32(X_SCALE) * F32(W_SCALE)
BIASES = {
    "exact": (SCALE, W_SCALE, None),
    "near": (SCALE * F32(1.0104), W_SCALE, None),
    "too large": (SCALE * F32(1.0106), W_SCALE, None),
    "near below": (SCALE * F32(0.9896), W_SCALE, None),
    "too small": (SCALE * F32(0.9894), W_SCALE, None),
    "zero point 0": (SCALE, W_SCALE, np.int32(0)),
    "zero point 5": (SCALE, W_SCALE, np.int32(5)),
    "by channel": (F32(X_SCALE) * VECTOR, VECTOR, None),
    "one channel off": (F32(X_SCALE) * VECTOR * np.array([1, 1, 1, 1.02], F32), VECTOR, None),
    "one for channels": (SCALE, VECTOR, None),
    "channels for one": (np.full(4, SCALE, F32), W_SCALE, None),
}


@pytest.mark.parametrize("kind", BIASES)
def test_bias_of_a_convolution(nn, ops, kind):
    b = Builder(1)
    scale, w_scale, zero = BIASES[kind]
    conv(b, bias_dq(b, scale, zero), w_scale)
    check(nn, b.build(kind))


@pytest.mark.parametrize("axis", [0, -4])
def test_float_bias_beside_channels(nn, ops, axis):
    b = Builder(2)
    conv(b, b.constant(np.array([0.5, -1, 0.25, 3], F32)), VECTOR, axis)
    check(nn, b.build())


@pytest.mark.parametrize("trans_b, axis", [(0, 1), (0, -1), (1, 0), (1, -2)])
def test_float_bias_of_gemm(nn, ops, trans_b, axis):
    b = Builder(3)
    x = b.dequantize(b.activation((2, 4), Quantized("", X_SCALE, 3, b.dtype, (2, 4))))
    w = constant_dq(b, b.rng.integers(-128, 128, (4, 4)).astype(np.int8), VECTOR, np.zeros(4, np.int8), axis=axis)
    y = b.node("Gemm", [x, w, b.constant(np.array([0.5, -1, 0.25, 3], F32))], transB=trans_b)
    b.result(b.quantize(y, Quantized("", 0.25, 10, b.dtype, (2, 4))))
    check(nn, b.build())


@pytest.mark.parametrize("axis", [1, -3, 0])
@pytest.mark.parametrize("scales", [4, 1, 0])
def test_float_bias_of_a_transposed_convolution(nn, ops, axis, scales):
    """Scales are powers of two, so that sums of floats are exact and a bias that is rounded shows."""
    b = Builder(5)
    x = b.dequantize(b.activation((1, 4, 5, 5), Quantized("", 0.0625, 3, b.dtype, (1, 4, 5, 5))))
    scale = F32(0.125) if scales == 0 else np.array([0.5, 0.25, 0.125, 0.0625], F32)[:scales]
    w = constant_dq(
        b, b.rng.integers(-128, 128, (4, 4, 1, 1)).astype(np.int8), scale, np.zeros(np.shape(scale), np.int8),
        **({"axis": axis} if scales else {}),
    )  # fmt: skip
    y = b.node("ConvTranspose", [x, w, b.constant(np.array([0.51, -0.013, 0.25, 0.0041], F32))])
    b.result(b.quantize(y, Quantized("", 0.00390625, 128, b.dtype, (1, 4, 5, 5))))
    case = b.build()
    for pipeline in (ONLY_FOLDING, ""):
        assert_equal(oracle.run(case.model, case.feeds), ours(nn, case.model, case.feeds, pipeline)[0], str(axis))


GEMMS = {
    "plain": {},
    "alpha": {"alpha": 0.5},
    "alpha without bias": {"alpha": 0.5, "bias": False},
    "alpha in float": {"alpha": 0.5, "q": False},
    "in float": {"q": False},
    "no zero point of A": {"a_zero": None},
    "no zero point of B": {"b_zero": None},
    "another scale of the bias": {"scale": 0.5},
}


def gemm(b, alpha=1.0, bias=True, q=True, a_zero=0, b_zero=0, scale=SCALE):
    like = Quantized("", X_SCALE, 0, b.dtype, (2, 3))
    x = b.activation((2, 3), like).name
    a = b.node(
        "DequantizeLinear", [x, b.constant(F32(X_SCALE)), *([] if a_zero is None else [b.constant(np.uint8(0))])]
    )
    w = constant_dq(
        b, b.rng.integers(-128, 128, (3, 4)).astype(np.int8), W_SCALE, None if b_zero is None else np.int8(0)
    )
    y = b.node("Gemm", [a, w, *([bias_dq(b, scale)] if bias else [])], alpha=alpha)
    if q:
        b.result(b.quantize(y, Quantized("", 0.25, 10, b.dtype, (2, 4))))
    else:
        b.output(y, (2, 4))


@pytest.mark.parametrize("kind", GEMMS)
def test_gemm(nn, ops, kind):
    b = Builder(4)
    gemm(b, **GEMMS[kind])
    check(nn, b.build(kind))


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("value", [-3.3, 0.0, 0.7, 1e9, -np.inf, np.inf])
@pytest.mark.parametrize("first", [False, True])
def test_scalar_of_where(nn, ops, dtype, value, first):
    b = Builder(5, dtype=dtype)
    x = b.activation((2, 3, 4), Quantized("", X_SCALE, 3, b.dtype, (2, 3, 4)))
    mask, scalar = b.input(b.rng.random((2, 3, 4)) < 0.5, "mask"), b.constant(F32(value))
    operands = [scalar, b.dequantize(x)] if first else [b.dequantize(x), scalar]
    b.result(b.quantize(b.node("Where", [mask, *operands]), Quantized("", 0.07, 5, b.dtype, (2, 3, 4))))
    check(nn, b.build())


@pytest.mark.parametrize("kind", ["vector", "reshaped", "two readers", "other type"])
def test_where_of_other_forms(nn, ops, kind):
    b = Builder(6)
    x = b.activation((2, 6), Quantized("", X_SCALE, 3, b.dtype, (2, 6)))
    mask = b.input(b.rng.random((2, 6)) < 0.5, "mask")
    y = b.node(
        "Where", [mask, b.dequantize(x), b.constant(np.full((1,), -3.3, F32) if kind == "vector" else F32(-3.3))]
    )
    out = Quantized("", 0.07, 5, np.int8 if kind == "other type" else b.dtype, (2, 6))
    if kind == "reshaped":
        y, out = b.node("Reshape", [y, b.constant(np.array([3, 4]))]), dataclasses.replace(out, shape=(3, 4))
    if kind == "two readers":
        b.output(b.node("Neg", [y]), (2, 6))
    b.result(b.quantize(y, out))
    check(nn, b.build(kind))


OPSETS = [13, 18, 19, 21, 22, 23, 24, 25, 26, 27]


def refused(opset):
    return opset > 23 and not oracle.pinned()


@pytest.mark.parametrize("opset", OPSETS)
def test_pad_and_pool(nn, ops, opset):
    """A Pad in front of a convolution, and a convolution in front of a pool."""
    if refused(opset):
        pytest.skip("the oldest ONNX Runtime refuses opsets above 23")
    b = Builder(7, opset=opset)
    pad = b.node("Pad", [b.dequantize(image(b)), b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 0]))])
    weights = constant_dq(b, b.rng.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8), W_SCALE, np.int8(0))
    y = b.node("MaxPool", [b.node("Conv", [pad, weights])], kernel_shape=[2, 2])
    b.result(b.quantize(y, Quantized("", 0.25, 10, b.dtype, (1, 4, 4, 3))))
    check(nn, b.build())


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_a_pad_with_a_value(nn, ops, mode):
    """Only constant padding reads it; beside integers it is of their type in every mode."""
    b = Builder(9, opset=18)
    x = image(b)
    amounts, value = b.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1])), b.constant(np.array(0.25, F32))
    y = b.node("Pad", [b.dequantize(x), amounts, value], mode=mode)
    b.result(b.quantize(y, dataclasses.replace(x, shape=(*x.shape[:2], x.shape[2] + 1, x.shape[3] + 3))))
    check(nn, b.build())


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(nn, ops, mode, opset):
    if refused(opset):
        pytest.skip("the oldest ONNX Runtime refuses opsets above 23")
    b = Builder(8, opset=opset)
    x = image(b)
    y = b.node("Resize", [b.dequantize(x), "", b.constant(np.array([1, 1, 2, 2], F32))], mode=mode)
    b.result(b.quantize(y, dataclasses.replace(x, shape=(1, 3, 10, 10))))
    check(nn, b.build())


@pytest.mark.parametrize("scale", [0.05, 0.0, -0.05, np.nan])
def test_softmax_of_a_scale(nn, ops, scale):
    """A table of exponentials by distance from the largest byte wants a scale above 0."""
    b = Builder(9)
    x = image(b)
    y = b.node("Softmax", [b.node("DequantizeLinear", [x.name, b.constant(F32(scale)), b.constant(x.dtype(3))])])
    b.result(b.quantize(y, Quantized("", 1 / 256, 0, b.dtype, x.shape)))
    check(nn, b.build())

# SPDX-License-Identifier: Apache-2.0
"""Quantised convolutions, matrix products and averages against ONNX Runtime: random geometries (prime sizes, kernels
beyond the input, asymmetric pads, groups, depthwise), all type pairs, per-channel scales, sums beyond 2^24 and beyond
int32."""

import os
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.oracle import oracle
from tests.oracle.compare import LONG, MS, PRODUCT_TYPES, any_scale, any_tensor, any_zero, check_node, library

pytestmark = pytest.mark.skipif(not oracle.exact_cpu(), reason="the formulas are those of CPUs with AVX2, FMA and VNNI")
F32 = np.float32


def random_conv(rng, case):
    """Inputs and attributes of a QLinearConv, or None when the window does not fit."""
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    x_type, w_type = PRODUCT_TYPES[case % 3]
    group, depth, filters = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 3, 17])), int(rng.choice([1, 2, 5, 16]))
    if case % 7 == 0:
        group, depth, filters = int(rng.choice([3, 17, 31])), 1, 1
    if case % 11 == 0:
        group, depth, filters = 1, int(rng.choice([31, 257])), 3
    kernel = [int(v) for v in rng.integers(1, 6 if axes < 3 else 4, axes)]
    extents = [int(rng.choice([1, 2, 5, 7, 11, 13])) for _ in range(axes)]
    attributes = {"kernel_shape": kernel, "strides": [int(v) for v in rng.integers(1, 4, axes)], "group": group}
    auto_pad = str(rng.choice(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    dilation, pads = [1] * axes, [0] * 2 * axes
    if auto_pad == "NOTSET":
        dilation, pads = [int(v) for v in rng.choice([1, 1, 2], axes)], [int(v) for v in rng.integers(0, 5, 2 * axes)]
        attributes.update(pads=pads, dilations=dilation)
    else:
        attributes["auto_pad"] = auto_pad
    if not auto_pad.startswith("SAME") and any(
        e + pads[i] + pads[i + axes] < dilation[i] * (kernel[i] - 1) + 1 for i, e in enumerate(extents)
    ):
        return None
    m = group * filters
    channels = (m,) if rng.random() < 0.5 else ()
    bias = None
    if case % 4:
        limit = 2**31 - 1 if case % 13 == 0 else 20000
        bias = rng.integers(-limit, limit, m).astype(np.int32)
    y_scale = np.array(any_scale(rng) * np.sqrt(depth * np.prod(kernel)) * (3 if case % 5 else 0.3), F32)
    inputs = [
        any_tensor(rng, x_type, (int(rng.choice([1, 1, 3])), group * depth, *extents)),
        any_scale(rng),
        any_zero(rng, x_type),
        any_tensor(rng, w_type, (m, depth, *kernel)),
        any_scale(rng, channels, -6, -3),
        np.full(channels, any_zero(rng, w_type), w_type),
        y_scale,
        any_zero(rng, x_type),
        bias,
    ]
    return inputs, attributes


@pytest.mark.parametrize("case", range(600 if LONG else 120))
def test_conv(case):
    rng, made = np.random.default_rng([1, case]), None
    while made is None:
        made = random_conv(rng, case)
    check_node("QLinearConv", made[0], opset=10, attributes=made[1])


def test_conv_per_channel_zero_points():
    # Legal in ONNX, refused by the oracle: compared with one convolution for each channel.
    rng = np.random.default_rng(2)
    x, w = any_tensor(rng, np.uint8, (1, 3, 6, 5)), any_tensor(rng, np.uint8, (4, 3, 3, 3))
    zero = np.array([0, 7, 128, 255], np.uint8)
    scale = any_scale(rng, (4,))
    head, tail = [x, np.array(0.02, F32), np.array(9, np.uint8)], [np.array(2.0, F32), np.array(120, np.uint8)]
    (y,) = library().run_node("QLinearConv", "", 10, {}, [*head, w, scale, zero, *tail])
    for c in range(4):
        (one,) = library().run_node(
            "QLinearConv", "", 10, {}, [*head, w[c : c + 1], scale[c : c + 1], zero[c : c + 1], *tail]
        )
        assert (y[:, c : c + 1] == one).all()


SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (1, 3, 4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((17, 257), (257, 33)),
    ((1, 2048), (2048, 10)),
    ((3, 40000), (40000, 5)),
]


@pytest.mark.parametrize("types", PRODUCT_TYPES)
@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul(a, b, types):
    rng = np.random.default_rng([3, len(a), len(b), a[-1]])
    for columns in (False, True) if len(b) > 1 else (False,):
        shape = (
            ()
            if not columns
            else (b[-1],)
            if len(b) == 2
            else tuple(1 if i == len(b) - 2 else d for i, d in enumerate(b))
        )
        left, right = any_tensor(rng, types[0], a), any_tensor(rng, types[1], b)
        y_scale = np.array(any_scale(rng) * np.sqrt(a[-1]) * 3, F32)
        if a[-1] > 10000:  # sums beyond 2^24, where the conversion to fp32 rounds
            left[:] = np.iinfo(types[0]).max - left % 3
            right[:] = np.iinfo(types[1]).max - right % 5
            y_scale = np.array(a[-1] * 0.5, F32)
        inputs = [
            left,
            any_scale(rng),
            any_zero(rng, types[0]),
            right,
            any_scale(rng, shape, -6, -3),
            np.asarray(any_tensor(rng, types[1], shape)),
            y_scale,
            any_zero(rng, types[0]),
        ]
        check_node("QLinearMatMul", inputs, opset=10)


def test_matmul_rounds_large_sums():
    # 2^24 + 1 is no fp32 number: the sum is rounded before it is scaled.
    k = (2**24 + 1 + 65024) // 65025
    a = np.full((1, k), 255, np.uint8)
    b = np.full((k, 1), 255, np.uint8)
    rest = 2**24 + 1 - (k - 1) * 65025
    a[0, -1], b[-1, 0] = 1, 1
    a = np.concatenate([a, np.full((1, rest // 255), 255, np.uint8), np.full((1, 1), rest % 255 - 1, np.uint8)], 1)
    b = np.concatenate([b, np.ones((a.shape[1] - k, 1), np.uint8)])
    assert (a.astype(np.int64) @ b.astype(np.int64)).item() == 2**24 + 1
    zero = np.array(0, np.uint8)
    for denominator in (2**24 / 100, 2**24 / 77, 2**17):
        check_node(
            "QLinearMatMul",
            [a, np.array(1.0, F32), zero, b, np.array(1.0, F32), zero, np.array(denominator, F32), zero],
            opset=10,
        )


@pytest.mark.parametrize("case", range(100))
def test_gemm(case):
    rng = np.random.default_rng([4, case])
    m, k, n = (int(rng.choice([1, 3, 8, 17])) for _ in range(3))
    k = int(rng.choice([k, 1000]))
    trans_a, trans_b = int(rng.integers(2)), int(rng.integers(2))
    a_type, b_type = PRODUCT_TYPES[case % 3]
    columns = (n,) if rng.random() < 0.5 else ()
    c_shape = [None, (), (1,), (n,), (1, n), (m, 1), (m, n)][case % 7]
    c = None if c_shape is None else np.asarray(rng.integers(-50000, 50000, c_shape), np.int32)
    inputs = [
        any_tensor(rng, a_type, (k, m) if trans_a else (m, k)),
        any_scale(rng),
        any_zero(rng, a_type),
        any_tensor(rng, b_type, (n, k) if trans_b else (k, n)),
        any_scale(rng, columns, -6, -3),
        np.asarray(any_tensor(rng, b_type, columns)),
        c,
    ]
    if case % 4:
        inputs += [np.array(any_scale(rng) * np.sqrt(k) * 3, F32), any_zero(rng, a_type)]
    check_node(
        "QGemm",
        inputs,
        domain=MS,
        attributes={"alpha": float(rng.choice([1.0, 0.3, 2.5])), "transA": trans_a, "transB": trans_b},
    )


@pytest.mark.parametrize("a, b", SHAPES)
def test_float_products(a, b):
    rng = np.random.default_rng([5, len(a), len(b), a[-1]])
    for case, (a_type, b_type) in enumerate(PRODUCT_TYPES * 2):
        columns = (b[-1],) if case % 2 and len(b) == 2 else ()
        bias = rng.normal(0, 3, b[-1]).astype(F32) if case > 2 and len(b) > 1 else None
        scale, zero = (
            any_scale(rng, columns, -6, -3),
            np.asarray(any_tensor(rng, b_type, columns)) if case % 3 else None,
        )
        right = any_tensor(rng, b_type, b)
        inputs = [
            any_tensor(rng, a_type, a),
            right,
            any_scale(rng),
            scale,
            any_zero(rng, a_type) if case != 1 else None,
            zero,
            bias,
        ]
        check_node("MatMulIntegerToFloat", inputs, domain=MS)
        check_node("DynamicQuantizeMatMul", [rng.normal(0, 5, a).astype(F32), right, scale, zero, bias], domain=MS)


def random_pool(rng, case):
    dtype = np.uint8 if case % 2 else np.int8
    axes = int(rng.choice([1, 2, 2, 3]))
    last = int(case % 3 == 0)
    channels, batch = int(rng.choice([1, 3, 17, 33])), int(rng.choice([1, 2, 3]))
    extents = [
        int(rng.choice([31, 67])) if case % 10 == 0 and axes < 3 else int(rng.choice([1, 2, 5, 7, 13]))
        for _ in range(axes)
    ]
    x = any_tensor(rng, dtype, (batch, *extents, channels) if last else (batch, channels, *extents))
    if case % 4 == 0:
        x[:] = np.iinfo(dtype).max - x % 2
    kernel = extents if case % 9 == 0 else [int(rng.integers(1, min(e, 5) + 1)) for e in extents]
    attributes = {
        "kernel_shape": kernel,
        "strides": [int(v) for v in rng.integers(1, 4, axes)],
        "channels_last": last,
        "ceil_mode": int(rng.integers(2)),
        "count_include_pad": int(rng.integers(2)),
    }
    auto_pad = str(rng.choice(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto_pad == "NOTSET":
        attributes["pads"] = [int(rng.integers(0, k)) for k in kernel + kernel]
    else:
        attributes["auto_pad"] = auto_pad
    inputs = [x, any_scale(rng), any_zero(rng, dtype), any_scale(rng, (), -4, -3), any_zero(rng, dtype)]
    return inputs, attributes


@pytest.mark.parametrize("case", range(600 if LONG else 100))
def test_pools(case):
    inputs, attributes = random_pool(np.random.default_rng([6, case]), case)
    check_node("QLinearGlobalAveragePool", inputs, domain=MS, attributes={"channels_last": attributes["channels_last"]})
    check_node("QLinearAveragePool", inputs, domain=MS, attributes=attributes)


def test_average_of_a_dilated_window():
    # The oracle's kernel knows no dilations; the means are whole, so that nothing is rounded.
    x = (4 * np.arange(36, dtype=np.uint8)).reshape(1, 1, 6, 6)
    parameters = [F32(1.0), np.uint8(0), F32(1.0), np.uint8(0)]
    attributes = {"kernel_shape": [2, 2], "dilations": [2, 3]}
    (y,) = library().run_node("QLinearAveragePool", MS, 1, attributes, [x, *parameters], 1)
    wide = x[0, 0].astype(np.int64)
    np.testing.assert_array_equal(y[0, 0], (wide[:-2, :-3] + wide[2:, :-3] + wide[:-2, 3:] + wide[2:, 3:]) // 4)


def test_reduce_mean_is_the_global_average():
    # The oracle has no kernel for QLinearReduceMean; over the image axes it must be the global average pool.
    rng = np.random.default_rng(7)
    inputs, _ = random_pool(rng, 2)
    inputs[0] = any_tensor(rng, np.int8, (2, 5, 7, 3))
    (want,) = library().run_node("QLinearGlobalAveragePool", MS, 1, {}, inputs)
    (got,) = library().run_node("QLinearReduceMean", MS, 1, {"axes": [2, -1], "keepdims": 1}, inputs)
    assert got.shape == want.shape and (got == want).all()
    (flat,) = library().run_node("QLinearReduceMean", MS, 1, {"axes": [2, 3], "keepdims": 0}, inputs)
    assert flat.shape == want.shape[:2] and (flat == want[:, :, 0, 0]).all()


def test_refusals():
    x, w = np.zeros((1, 3, 5, 5), np.uint8), np.zeros((4, 3, 3, 3), np.int8)
    s, z, zw = np.array(1.0, F32), np.array(0, np.uint8), np.array(0, np.int8)
    error = library().TesseraError
    with pytest.raises(error, match="channels"):
        library().infer_node("QLinearConv", "", 10, {"group": 2}, [x, s, z, w, s, zw, s, z])
    with pytest.raises(error, match=r"with dilations \[4,4\] is larger than"):
        library().infer_node("QLinearConv", "", 10, {"dilations": [4, 4]}, [x, s, z, w, s, zw, s, z])
    for shape in ((), (1,), (3,)):  # a bias does not repeat over the four channels
        with pytest.raises(error, match="each of the 4 output channels"):
            library().infer_node("QLinearConv", "", 10, {}, [x, s, z, w, s, zw, s, z, np.zeros(shape, np.int32)])
    with pytest.raises(error, match="do not multiply"):
        library().infer_node(
            "QLinearMatMul", "", 10, {}, [np.zeros((2, 3), np.uint8), s, z, np.zeros((4, 5), np.int8), s, zw, s, z]
        )
    for wrong in (np.zeros((5, 1), np.int8), np.zeros(3, np.int8)):  # zero points of five columns
        operands = [np.zeros((2, 3), np.uint8), s, z, np.zeros((3, 5), np.int8), s, wrong, s, z]
        with pytest.raises(error, match="5 elements or"):
            library().infer_node("QLinearMatMul", "", 10, {}, operands)
    # C broadcasts to the result, and not beside it.
    a, b = np.zeros((2, 3), np.uint8), np.zeros((3, 4), np.int8)
    for shape in ((4,), (1, 4), (2, 1), (2, 4), (1, 1), ()):
        library().infer_node("QGemm", MS, 1, {}, [a, s, z, b, s, zw, np.zeros(shape, np.int32), s, z])
    for shape in ((4, 1), (3, 4), (2,), (1, 5), (1, 1, 4)):
        with pytest.raises(error, match="does not broadcast"):
            library().infer_node("QGemm", MS, 1, {}, [a, s, z, b, s, zw, np.zeros(shape, np.int32), s, z])
    with pytest.raises(error, match="one element"):
        library().infer_node("QLinearConv", "", 10, {}, [x, np.ones(3, F32), z, w, s, zw, s, z])

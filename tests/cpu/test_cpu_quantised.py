# SPDX-License-Identifier: Apache-2.0
"""Quantised operators as compiled CPU code: the bits of the operator library, and ONNX Runtime's results."""

import numpy as np
import pytest

from tests.cpu.cases import HARD, MS, floats, ints, one


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_linear(dtype):
    info = np.iinfo(dtype)
    x = np.concatenate([floats(100, scale=300), HARD, np.arange(-300, 300, 0.5, dtype=np.float32)])
    for scale, zero in [(0.5, 0), (1.0, info.min), (2.0, info.max), (0.37, (info.min + info.max) // 2 + 1)]:
        one("QuantizeLinear", [x, np.float32(scale), dtype(zero)], constants=[1, 2], opset=21, oracle=False)
        q = ints(301, dtype=dtype, low=info.min, high=info.max)
        one("DequantizeLinear", [q, np.float32(scale), dtype(zero)], constants=[1, 2], opset=21)
    scales, zeros = np.abs(floats(5)) + np.float32(0.1), ints(5, dtype=dtype)
    for axis, shape in [(1, (3, 5, 7)), (0, (5, 19)), (2, (2, 3, 5))]:
        one("QuantizeLinear", [floats(*shape, scale=100), scales, zeros], constants=[1, 2], axis=axis, opset=21)
        one("DequantizeLinear", [ints(*shape, dtype=dtype), scales, zeros], constants=[1, 2], axis=axis, opset=21)


def test_dequantize_int32():
    one("DequantizeLinear", [ints(50, low=-(2**31), high=2**31 - 1), np.float32(0.01)], constants=[1])
    one("QuantizeLinear", [floats(40), np.float32(0.1)], constants=[1])


def test_dynamic_quantize():
    for x in (floats(3, 64), floats(37), np.zeros(5, np.float32), np.abs(floats(4, 5))):
        one("DynamicQuantizeLinear", [x], results=3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_pointwise(dtype):
    info = np.iinfo(dtype)
    a, b = (
        ints(2, 5, 37, dtype=dtype, low=info.min, high=info.max + 1),
        ints(2, 5, 37, seed=1, dtype=dtype, low=info.min, high=info.max + 1),
    )
    s, t, u = np.float32(0.05), np.float32(0.031), np.float32(0.0625)
    for op in ("QLinearAdd", "QLinearMul"):
        for x, y in [(a, b), (a, b[0, :, :1]), (a[:, :, :1], b), (a[0, 0, 0], b)]:
            one(op, [x, s, dtype(3), y, t, dtype(7), u, dtype(11)], constants=[1, 2, 4, 5, 6, 7], domain=MS)
    one("QLinearLeakyRelu", [a, s, dtype(3), u, dtype(5)], constants=[1, 2, 3, 4], domain=MS, alpha=0.1)
    one("QLinearSigmoid", [a, s, dtype(3), u / 16, dtype(5)], constants=[1, 2, 3, 4], domain=MS)
    one("QLinearConcat", [s, dtype(3), a, s, dtype(3), b, t, dtype(9)], constants=[0, 1, 3, 4, 6, 7], domain=MS, axis=1)
    one(
        "QLinearSoftmax",
        [a, s, dtype(3), np.float32(1 / 256), dtype(info.min)],
        constants=[1, 2, 3, 4],
        domain=MS,
        axis=-1,
        opset=13,
        oracle=False,
    )
    x = ints(2, 3, 7, 7, dtype=dtype)
    one("QLinearGlobalAveragePool", [x, s, dtype(3), t, dtype(5)], constants=[1, 2, 3, 4], domain=MS)
    for attributes in (
        dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        dict(kernel_shape=[2, 2], count_include_pad=1, pads=[1, 1, 0, 0]),
        dict(kernel_shape=[7, 7]),
    ):
        one(
            "QLinearAveragePool",
            [x, s, dtype(3), t, dtype(5)],
            constants=[1, 2, 3, 4],
            domain=MS,
            oracle=False,
            **attributes,
        )
    one(
        "QLinearReduceMean",
        [x, s, dtype(3), t, dtype(5)],
        constants=[1, 2, 3, 4],
        domain=MS,
        axes=[1, 3],
        keepdims=0,
        oracle=False,
    )
    one(
        "QLinearWhere",
        [a > 0, a, s, dtype(3), b, t, dtype(9), s, dtype(3)],
        constants=[2, 3, 5, 6, 7, 8],
        domain=MS,
        oracle=False,
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_products(dtype):
    info = np.iinfo(dtype)
    a, b = ints(5, 33, dtype=np.uint8, low=0, high=256), ints(33, 20, dtype=dtype, low=info.min, high=info.max + 1)
    s = np.float32(0.01)
    one(
        "QLinearMatMul",
        [a, s, np.uint8(100), b, np.float32(0.02), dtype(5), np.float32(0.1), np.uint8(128)],
        constants=range(1, 8),
        oracle=False,
    )
    one(
        "QLinearMatMul",
        [a, s, np.uint8(100), b, np.abs(floats(20)) / 30, ints(20, dtype=dtype), np.float32(0.1), np.uint8(128)],
        constants=range(1, 8),
        oracle=False,
    )
    one("MatMulInteger", [a, b, np.uint8(100), dtype(3)], constants=[1, 2, 3])
    one(
        "QGemm",
        [
            a,
            s,
            np.uint8(100),
            b,
            np.float32(0.02),
            dtype(5),
            ints(20, low=-3000, high=3000),
            np.float32(0.1),
            np.uint8(128),
        ],
        constants=range(1, 9),
        domain=MS,
        oracle=False,
    )
    one(
        "QGemm",
        [
            a,
            s,
            np.uint8(100),
            np.ascontiguousarray(b.T),
            np.abs(floats(20)) / 30,
            ints(20, dtype=dtype),
            ints(20, low=-3000, high=3000),
        ],
        constants=range(1, 7),
        domain=MS,
        transB=1,
        alpha=0.7,
        oracle=False,
    )
    one(
        "MatMulIntegerToFloat",
        [a, b, s, np.abs(floats(20)), np.uint8(7), ints(20, dtype=dtype), floats(20)],
        constants=range(1, 7),
        domain=MS,
        rtol=1e-4,
    )

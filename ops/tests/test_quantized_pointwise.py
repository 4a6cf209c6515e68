# SPDX-License-Identifier: Apache-2.0
"""Quantised element-by-element operators against ONNX Runtime: all 65,536 pairs of add and mul for many parameters, all
256 inputs of the tables, broadcast shapes (which change the order of the sum), sizes around a vector's length.
TESSERA_LONG=1 enumerates 200 parameter sets."""

import os
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.oracle import oracle
from tests.oracle.compare import LONG, MS, any_scale, any_tensor, any_zero, check_node, library

pytestmark = pytest.mark.skipif(not oracle.exact_cpu(), reason="the formulas are those of CPUs with AVX2, FMA and VNNI")
F32 = np.float32
PARAMETERS = [1, 2, 4, 5, 6, 7]
FIRST = np.repeat(np.arange(256, dtype=np.uint8), 256).reshape(256, 256)
SECOND = np.tile(np.arange(256, dtype=np.uint8), 256).reshape(256, 256)


def dtype_of(case):
    return np.uint8 if case % 2 else np.int8


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("case", range(200 if LONG else 20))
def test_every_pair(op, case):
    rng = np.random.default_rng([1, case])
    dtype = dtype_of(case)
    scales = 2.0 ** rng.integers(-9, -3, 3) if case % 3 == 0 else np.exp(rng.uniform(-6, -2, 3))
    s = [np.array(v, F32) for v in scales]
    z = [any_zero(rng, dtype) for _ in range(3)]
    check_node(
        op, [FIRST.view(dtype), s[0], z[0], SECOND.view(dtype), s[1], z[1], s[2], z[2]], domain=MS, constants=PARAMETERS
    )


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    "a, b",
    [
        ((1,), (70,)),
        ((70,), (1,)),
        ((), (37,)),
        ((37,), ()),
        ((3, 5, 7), (3, 1, 1)),
        ((3, 1, 1), (3, 5, 7)),
        ((5, 1), (1,)),
        ((1,), (5, 1)),
        ((1,), (1,)),
        ((), ()),
        ((4, 1), (1, 9)),
        ((1, 9), (4, 1)),
        ((2, 3, 1, 1), (2, 3, 4, 5)),
        ((7, 1), (7, 1)),
        ((2, 1), (1, 1)),
        ((1, 1), (2, 1)),
        ((1,), ()),
        ((), (1,)),
        ((6, 1, 1), (1,)),
        ((1,), (6, 1, 1)),
        ((2, 6, 1), (6, 1)),
        ((0, 3), (1, 3)),
    ],
)
def test_broadcast(op, a, b):
    rng = np.random.default_rng([2, len(a), len(b), sum(a), sum(b)])
    for case in range(16):
        dtype = dtype_of(case)
        inputs = [
            any_tensor(rng, dtype, a),
            any_scale(rng),
            any_zero(rng, dtype),
            any_tensor(rng, dtype, b),
            any_scale(rng),
            any_zero(rng, dtype),
            any_scale(rng),
            any_zero(rng, dtype),
        ]
        check_node(op, [np.asarray(v) for v in inputs], domain=MS, constants=PARAMETERS)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_every_size(op):
    rng = np.random.default_rng(3)
    for size in range(1, 71):
        dtype = dtype_of(size)
        inputs = [
            any_tensor(rng, dtype, size),
            any_scale(rng),
            any_zero(rng, dtype),
            any_tensor(rng, dtype, size),
            any_scale(rng),
            any_zero(rng, dtype),
            any_scale(rng),
            any_zero(rng, dtype),
        ]
        check_node(op, inputs, domain=MS, constants=PARAMETERS)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_beyond_int32(op):
    # Results that leave int32 before saturation end at the lower bound, as the vector conversion makes them.
    x = np.array([-128, -1, 0, 1, 127], np.int8)
    a, b = np.repeat(x, 5), np.tile(x, 5)
    zero = np.array(0, np.int8)
    inputs = [a, np.array(1e6, F32), zero, b, np.array(1e6, F32), zero, np.array(1e-3, F32), zero]
    check_node(op, inputs, domain=MS, constants=PARAMETERS)
    (y,) = library().run_node(op, MS, 1, {}, inputs)
    assert y[24] == -128


def test_leaky_relu_and_sigmoid():
    rng = np.random.default_rng(4)
    for case in range(120):
        dtype = dtype_of(case)
        x = np.arange(256, dtype=np.uint8).view(dtype).reshape(2, 128)
        alpha = float(rng.choice([0.01, 0.1, 0.25, -1, 2]))
        check_node(
            "QLinearLeakyRelu",
            [x, any_scale(rng), any_zero(rng, dtype), any_scale(rng), any_zero(rng, dtype)],
            domain=MS,
            attributes={"alpha": alpha},
        )
        scale = np.array(rng.choice([1 / 256, 1 / 255, 0.0039, any_scale(rng)]), F32)
        check_node(
            "QLinearSigmoid",
            [x, any_scale(rng, (), -4, 1), any_zero(rng, dtype), scale, any_zero(rng, dtype)],
            domain=MS,
        )


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 5), (2, 10, 4, 3), (5, 1000), (1, 21), (70,)])
def test_softmax(shape, opset):
    rng = np.random.default_rng([5, opset, len(shape)])
    for case in range(24):
        dtype = dtype_of(case)
        x = (
            any_tensor(rng, dtype, shape)
            if case % 3
            else rng.normal(0, 10, shape).clip(-128, 127).astype(np.int8).view(dtype)
        )
        scale = np.array([1 / 256, 1 / 255, 0.01, 0.003][case // 2 % 4], F32)
        zero = np.array(np.iinfo(dtype).min if case % 5 else any_zero(rng, dtype), dtype)
        axis = int(rng.integers(-len(shape), len(shape)))
        check_node(
            "QLinearSoftmax",
            [x, any_scale(rng, (), -5, 0), any_zero(rng, dtype), scale, zero],
            domain=MS,
            attributes={"axis": axis, "opset": opset},
        )


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_without_axis(opset):
    """The last axis, whatever the opset."""
    rng = np.random.default_rng(15)
    for shape in [(4,), (3, 2, 5)]:
        operands = [any_tensor(rng, np.uint8, shape), any_scale(rng, (), -4, -2), any_zero(rng, np.uint8)]
        operands += [np.array(1 / 256, F32), np.array(0, np.uint8)]
        check_node("QLinearSoftmax", operands, domain=MS, attributes={"opset": opset})


def test_concat():
    rng = np.random.default_rng(6)
    for case in range(60):
        dtype = dtype_of(case)
        axis = int(rng.integers(-3, 3))
        scale, zero = any_scale(rng), any_zero(rng, dtype)
        inputs = [scale, zero]
        for _ in range(int(rng.integers(1, 5))):
            shape = [2, 3, 4]
            shape[axis] = int(rng.integers(1, 6))
            inputs += [
                any_tensor(rng, dtype, shape),
                scale if rng.random() < 0.3 else any_scale(rng),
                zero if rng.random() < 0.5 else any_zero(rng, dtype),
            ]
        check_node(
            "QLinearConcat",
            inputs,
            domain=MS,
            attributes={"axis": axis},
            constants=[i for i in range(len(inputs)) if i < 2 or (i - 2) % 3],
        )


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 5), (4, 5), (4, 5)),
        ((4, 1), (1, 5), ()),
        ((), (4, 5), (5,)),
        ((3, 1, 5), (4, 1), (5,)),
        ((1,), (1,), (70,)),
    ],
)
def test_where(shapes):
    rng = np.random.default_rng(7)
    for case in range(12):
        dtype = dtype_of(case)
        scale, zero = any_scale(rng), any_zero(rng, dtype)

        def parameters(dtype=dtype, scale=scale, zero=zero):
            return [scale, zero] if rng.random() < 0.4 else [any_scale(rng), any_zero(rng, dtype)]

        inputs = [
            np.asarray(rng.random(shapes[0]) < 0.5),
            np.asarray(any_tensor(rng, dtype, shapes[1])),
            *parameters(),
            np.asarray(any_tensor(rng, dtype, shapes[2])),
            *parameters(),
            scale,
            zero,
        ]
        check_node("QLinearWhere", inputs, domain=MS, constants=[2, 3, 5, 6, 7, 8])


def test_refusals():
    x = np.zeros((2, 3), np.uint8)
    s, z = np.array(1.0, F32), np.array(0, np.uint8)
    error = library().TesseraError
    with pytest.raises(error, match="broadcast"):
        library().infer_node("QLinearAdd", MS, 1, {}, [x, s, z, np.zeros((2, 4), np.uint8), s, z, s, z])
    with pytest.raises(error, match="zero point"):
        library().infer_node("QLinearAdd", MS, 1, {}, [x, s, np.array(0, np.int8), x, s, z, s, z])
    with pytest.raises(error, match="axis"):
        library().infer_node("QLinearConcat", MS, 1, {}, [s, z, x, s, z])
    with pytest.raises(error, match="differs from .* outside axis 1"):
        library().infer_node("QLinearConcat", MS, 1, {"axis": 1}, [s, z, x, s, z, np.zeros((3, 3), np.uint8), s, z])

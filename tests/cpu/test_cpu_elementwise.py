# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators as compiled CPU code: the bits of the operator library, and ONNX Runtime's results."""

import math

import numpy as np
import onnx
import pytest
from onnx import helper

import tessera
from tests.cpu.cases import HARD, MS, Model, check, floats, ints, one

UNARY = [
    "Neg",
    "Abs",
    "Sign",
    "Reciprocal",
    "Sqrt",
    "Exp",
    "Log",
    "Floor",
    "Ceil",
    "Round",
    "Tanh",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Relu",
    "LeakyRelu",
    "Elu",
    "Celu",
    "Selu",
    "ThresholdedRelu",
    "Sigmoid",
    "HardSigmoid",
    "HardSwish",
    "Softplus",
    "Softsign",
    "Shrink",
    "IsNaN",
    "IsInf",
]


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    for shape in [(2, 3, 35), (), (5,)]:
        one(op, [floats(*shape)])
    trigonometry = op in (
        "Sin",
        "Cos",
        "Tan",
        "Celu",
        "Sigmoid",
        "Softplus",
        "Shrink",
    )  # the oracle differs at the ends
    one(op, [HARD], oracle=not trigonometry and op not in ("Tanh", "Sinh", "Cosh", "Asinh", "Erf"))
    if op not in ("IsNaN", "IsInf", "ThresholdedRelu", "Selu", "Elu", "LeakyRelu", "HardSigmoid", "Celu", "Shrink"):
        one(op, [floats(33, dtype=np.float64)], oracle=False)


@pytest.mark.parametrize("op", ["Mish", "Gelu"])
def test_late_unary(op):
    one(op, [floats(2, 19)], opset=20)
    if op == "Gelu":
        one(op, [floats(2, 19)], opset=20, approximate="tanh")
        one("Gelu", [floats(2, 19)], domain=MS)
        one("FastGelu", [floats(2, 19), floats(19)], domain=MS, rtol=1e-4)
        one("BiasGelu", [floats(2, 19), floats(19)], domain=MS)
        one("QuickGelu", [floats(2, 19)], domain=MS)


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Min", "Max", "Less", "Equal", "GreaterOrEqual", "PRelu", "Pow", "Mod"]
)
def test_binary(op):
    attributes = {"fmod": 1} if op == "Mod" else {}
    for a, b in [((2, 3, 35), (2, 3, 35)), ((5, 33), (33,)), ((4, 3, 5), (3, 1)), ((6,), ()), ((1, 17), (1, 1))]:
        one(op, [floats(*a), np.abs(floats(*b, seed=1)) if op == "Pow" else floats(*b, seed=1)], **attributes)
    one(op, [np.repeat(HARD, len(HARD)), np.tile(HARD, len(HARD))], oracle=False, **attributes)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Min", "Max", "Less", "Greater", "Equal"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_integer_binary(op, dtype):
    one(op, [ints(4, 37, dtype=dtype), ints(37, seed=1, dtype=dtype)], oracle=False)


def test_integer_division():
    for dtype in (np.int32, np.int64):
        edge = np.array([np.iinfo(dtype).min, -7, 7, 0, np.iinfo(dtype).max], dtype)
        for divisor in (-1, 3, -3):
            one("Div", [edge, np.array(divisor, dtype)], constants=[1], oracle=divisor != -1)
            one("Mod", [edge, np.array(divisor, dtype)], constants=[1], oracle=divisor != -1)
    one("Div", [ints(5), np.full(5, 3, np.int32)], compiled=False)
    one("Mod", [ints(5, dtype=np.uint8, low=0, high=255), np.array(7, np.uint8)], constants=[1])


def test_logic_and_selection():
    p, q = ints(3, 17, low=0, high=2).astype(bool), ints(17, seed=1, low=0, high=2).astype(bool)
    for op in ("And", "Or", "Xor"):
        one(op, [p, q])
    one("Not", [p])
    one("Where", [p, floats(17), floats(3, 1)])
    one("Where", [q, ints(3, 17, dtype=np.int64), ints(1, dtype=np.int64)])
    one(
        "BitShift", [ints(9, dtype=np.uint32, low=0), np.arange(9, dtype=np.uint32) * 7], direction="LEFT", oracle=False
    )
    one("BitwiseAnd", [ints(9), ints(9, seed=1)], opset=18)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_shifts_of_signed_integers(dtype):
    """The sign stays to the right; by a negative count, or by all bits, it is all that is left."""
    x, bits = np.array([-8, -1, 7, 120, -3, 5, -5, 1], dtype), 8 * np.dtype(dtype).itemsize
    count = np.array([1, bits + 1, -1, 2, bits, 0, bits - 1, bits - 1], dtype)
    inside = (count >= 0) & (count < bits)
    for direction, shifted, rest in (
        ("LEFT", np.left_shift(x, count * inside), np.zeros_like(x)),
        ("RIGHT", np.right_shift(x, count * inside), np.where(x < 0, -1, 0).astype(dtype)),
    ):
        m = Model(28)
        y = m.node("BitShift", [m.input(x), m.input(count)], direction=direction)
        check(m, y, oracle=False)
        got = tessera.Session(m.bytes([y]), use_npu=False).run(None, m.inputs)[0]
        np.testing.assert_array_equal(got, np.where(inside, shifted, rest))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_expressions_of_floats_on_integers(dtype):
    """They are computed in float64 and truncated."""
    x = np.array([0, 1, 2, 3, 6, 100, 127], dtype)
    if np.iinfo(dtype).min < 0:
        x = np.concatenate([x, -x])
    one("Erf", [x], oracle=False)
    one("Shrink", [x], oracle=False, bias=0.75, lambd=1.5)
    m = Model()
    wide = x.astype(np.float64)
    names = [m.node("Erf", [m.input(x)]), m.node("Shrink", [m.input(x)], bias=0.75, lambd=1.5)]
    erf, shrunk = tessera.Session(m.bytes(names), use_npu=False).run(None, m.inputs)
    np.testing.assert_array_equal(erf, np.trunc(np.array([math.erf(v) for v in wide])).astype(dtype))
    expected = np.where(wide < -1.5, wide + 0.75, np.where(wide > 1.5, wide - 0.75, 0))
    np.testing.assert_array_equal(shrunk, np.trunc(expected).astype(dtype))


def test_n_ary_and_clip():
    for op in ("Sum", "Mean", "Min", "Max"):
        one(op, [floats(2, 9), floats(9, seed=1), floats(2, 1, seed=2)])
    one("Clip", [HARD, np.float32(-1), np.float32(2)], constants=[1, 2])
    one("Clip", [HARD, np.float32(-1), np.float32(2)])
    one("Clip", [HARD, None, np.float32(2)], constants=[2], oracle=False)
    one("Clip", [ints(9), np.int32(-3), np.int32(5)], constants=[1, 2])


TYPES = [
    np.float32,
    np.float64,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.bool_,
]


@pytest.mark.parametrize("source", TYPES)
def test_cast(source):
    x = HARD.astype(source) if np.dtype(source).kind == "f" else ints(31, dtype=np.int64).astype(source)
    for target in TYPES:
        if target != source:
            one("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), oracle=False)


HALF = np.concatenate(
    [HARD[np.abs(HARD) < 7e4], floats(40), floats(40, scale=1e-6), [np.inf, -np.inf, np.nan, 65504.0, 2049.0, 2051.0]]
).astype(np.float16)


def test_float16_is_computed_in_float32():
    x, y = floats(2, 5, 33, dtype=np.float16), floats(33, seed=1, dtype=np.float16)
    for op in ("Add", "Mul", "Div", "Less", "Max"):
        one(op, [x, y], oracle=False)
    one("Mul", [np.repeat(HALF, 20), np.resize(HALF, 20 * len(HALF))], oracle=False)
    for op in ("Relu", "Sigmoid", "Exp", "Sqrt", "Softmax", "ReduceMean", "ReduceSum"):
        one(op, [x], oracle=False)
    one("Clip", [HALF, None, np.float16(2)], constants=[2], oracle=False)
    for target in (np.float32, np.float64, np.int32, np.uint8, np.bool_):
        one("Cast", [HALF], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), oracle=False)
    for source in (HARD, HARD.astype(np.float64), ints(50, dtype=np.int64, low=-(10**9), high=10**9)):
        one("Cast", [source], to=onnx.TensorProto.FLOAT16, oracle=False)
    one(
        "Conv",
        [
            floats(1, 3, 9, 9, dtype=np.float16),
            floats(4, 3, 3, 3, dtype=np.float16, seed=1),
            floats(4, dtype=np.float16, seed=2),
        ],
        constants=[1, 2],
        oracle=False,
    )
    one("MatMul", [floats(5, 9, dtype=np.float16), floats(9, 7, dtype=np.float16, seed=1)], rtol=1e-2, atol=1e-2)
    one("LayerNormalization", [x, y, y], oracle=False, results=3)
    one("MaxPool", [floats(1, 2, 9, 9, dtype=np.float16)], kernel_shape=[3, 3], oracle=False)


def test_bfloat16_between_casts():
    for x in (HARD, floats(100)):
        m = Model()
        wide = m.node(
            "Cast",
            [m.node("Mul", [m.node("Cast", [m.input(x)], to=onnx.TensorProto.BFLOAT16)] * 2)],
            to=onnx.TensorProto.FLOAT,
        )
        check(m, wide, oracle=False)


def test_chain_is_one_function():
    m = Model()
    x, y = m.input(floats(2, 8, 33)), m.input(floats(33, seed=1))
    a = m.node("Sigmoid", [m.node("Add", [x, y])])
    b = m.node("Mul", [a, x])
    c = m.node("Transpose", [m.node("Relu", [b])], perm=[2, 0, 1])
    check(m, [m.node("Sub", [c, m.constant(np.float32(0.25))]), a])

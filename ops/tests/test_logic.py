# SPDX-License-Identifier: Apache-2.0
"""Comparisons, booleans, bits, Where, predicates and Identity beside ONNX Runtime."""

import numpy as np
import pytest
from either_oracle import FLOATS, INTS, check_either, values
from ort_compare import check, check_rejected, run_tessera
from test_elementwise import PAIRS


@pytest.mark.parametrize("op", ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_compare(op, dtype):
    rng = np.random.default_rng(1)
    for a, b in PAIRS:
        check_either(op, [values(rng, a, dtype, -2, 2).round(), values(rng, b, dtype, -2, 2).round()], opset=16)


@pytest.mark.parametrize(
    "op,versions",
    [
        ("Equal", [7, 11, 13, 19]),
        ("Less", [7, 9, 13]),
        ("Greater", [7, 9, 13]),
        ("LessOrEqual", [12, 16]),
        ("GreaterOrEqual", [12, 16]),
    ],
)
def test_compare_versions(op, versions):
    a = np.array([np.nan, 1, 2, np.inf, -0.0], np.float32)
    b = np.array([[np.nan], [1], [np.inf], [0.0]], np.float32)
    for opset in versions + [24]:
        check_either(op, [a, b], opset=opset)


def test_equal_other_types():
    rng = np.random.default_rng(2)
    check("Equal", [values(rng, (3, 4), "bool"), values(rng, (4,), "bool")], opset=13)
    check("Equal", [values(rng, (3, 4), "string"), values(rng, (4,), "string")], opset=19)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_boolean(op):
    rng = np.random.default_rng(3)
    for opset in [7, 13, 24]:
        for a, b in PAIRS:
            check_either(op, [values(rng, a, "bool"), values(rng, b, "bool")], opset=opset)
    check_rejected(op, [np.zeros(2, np.int32), np.zeros(2, np.int32)], match="type")


def test_not():
    check("Not", [np.array([[True, False], [False, False]])])
    check("Not", [np.array(True)])
    check("Not", [np.zeros((0,), bool)])


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", INTS)
def test_bitwise(op, dtype):
    rng = np.random.default_rng(4)
    for a, b in PAIRS:
        check_either(op, [values(rng, a, dtype, -100, 100), values(rng, b, dtype, -100, 100)], opset=18)


@pytest.mark.parametrize("dtype", INTS)
def test_bitwise_not(dtype):
    check_either("BitwiseNot", [values(np.random.default_rng(5), (3, 4), dtype, -100, 100)], opset=18)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(dtype, direction):
    rng = np.random.default_rng(6)
    x = values(rng, (4, 5), dtype, 0, 255)
    check_either("BitShift", [x, values(rng, (5,), dtype, 0, 7)], opset=11, attributes={"direction": direction})
    width = np.dtype(dtype).itemsize * 8
    assert (
        run_tessera("BitShift", [x, np.array([width], dtype)], attributes={"direction": direction})[0].tolist()
        == np.zeros((4, 5)).tolist()
    )
    check_rejected("BitShift", [x, x], attributes={"direction": "UP"}, match="direction")


@pytest.mark.parametrize("dtype", FLOATS)
def test_predicates(dtype):
    x = np.array([[np.nan, 1, np.inf], [-np.inf, -0.0, 5]], dtype)
    for opset in [10, 13, 20]:
        check_either("IsNaN", [x], opset=opset)
        for positive in [0, 1]:
            for negative in [0, 1]:
                check_either(
                    "IsInf", [x], opset=opset, attributes={"detect_positive": positive, "detect_negative": negative}
                )


@pytest.mark.parametrize("dtype", FLOATS + INTS + ["bool", "string", "complex64"])
def test_where(dtype):
    rng = np.random.default_rng(7)
    for shapes in [
        ((2, 3), (2, 3), (2, 3)),
        ((2, 3), (3,), ()),
        ((1,), (2, 1, 3), (4, 1)),
        ((), (), ()),
        ((0, 2), (1,), (2,)),
        ((2, 1, 1), (1, 3, 1), (1, 1, 4)),
    ]:
        inputs = [values(rng, shapes[0], "bool"), values(rng, shapes[1], dtype), values(rng, shapes[2], dtype)]
        if dtype == "complex64":
            check("Where", inputs, opset=16, expected=[np.where(*inputs)])
        else:
            check_either("Where", inputs, opset=16)
    check_rejected("Where", [np.zeros(2, bool), np.zeros(2, np.float32), np.zeros(2, np.int32)], match="type")
    check_rejected(
        "Where", [np.zeros(2, np.float32), np.zeros(2, np.float32), np.zeros(2, np.float32)], match="condition"
    )


@pytest.mark.parametrize("dtype", FLOATS + INTS + ["bool", "string"])
def test_identity(dtype):
    for opset in [7, 13, 14, 16, 19, 21]:
        check_either("Identity", [values(np.random.default_rng(8), (2, 0, 3), dtype)], opset=opset)
        check_either("Identity", [values(np.random.default_rng(8), (2, 3), dtype)], opset=opset)


def test_identity_sequence():
    sequence = [np.arange(3, dtype=np.float32), np.ones((2, 2), np.float32)]
    check("Identity", [sequence], opset=16, expected=[sequence])

# SPDX-License-Identifier: Apache-2.0
"""Arithmetic element by element beside ONNX Runtime: types, versions, broadcasts, zero sizes, and the edges of
integer arithmetic.
"""

import math

import numpy as np
import pytest
from either_oracle import FLOATS, INTS, TOLERANCE, check_either, values
from ort_compare import check, check_rejected, run_tessera

PAIRS = [
    ((3, 4), (3, 4)),
    ((2, 3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
    ((), (2, 3)),
    ((5,), ()),
    ((), ()),
    ((0, 3), (1, 3)),
    ((2, 3, 4, 5), (1, 3, 1, 5)),
    ((1, 1), (0,)),
    ((2, 3, 4), (2, 1, 1)),
]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_ring(op, dtype):
    rng = np.random.default_rng(1)
    for a, b in PAIRS:
        check_either(op, [values(rng, a, dtype), values(rng, b, dtype)], opset=14)


@pytest.mark.parametrize("opset", [7, 13, 14, 24])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_binary_versions(op, opset):
    rng = np.random.default_rng(2)
    check_either(op, [values(rng, (2, 3, 4), "float32"), values(rng, (3, 1), "float32")], opset=opset)
    check_either(op, [values(rng, (2, 3), "int32"), np.array([3], np.int32)], opset=opset)


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_div(dtype):
    rng = np.random.default_rng(3)
    for a, b in PAIRS:
        divisor = values(rng, b, dtype)
        divisor = np.where(divisor == 0, np.ones_like(divisor), divisor).astype(dtype)
        check_either(
            "Div", [values(rng, a, dtype, -100, 100), divisor], opset=14, rtol=1e-3 if dtype == "float16" else 0
        )


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_edges(dtype):
    limits = np.iinfo(dtype)
    low, high = np.array([limits.min], dtype), np.array([limits.max], dtype)
    one, minus = np.array([1], dtype), np.array([-1], dtype)
    assert run_tessera("Add", [high, one], opset=14)[0][0] == limits.min
    assert run_tessera("Sub", [low, one], opset=14)[0][0] == limits.max
    assert run_tessera("Mul", [low, minus], opset=14)[0][0] == limits.min
    assert run_tessera("Div", [low, minus], opset=14)[0][0] == limits.min
    assert run_tessera("Mod", [low, minus], opset=14)[0][0] == 0
    assert run_tessera("Neg", [low], opset=14)[0][0] == limits.min
    assert run_tessera("Abs", [low], opset=14)[0][0] == limits.min


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", INTS)
def test_zero_divisor_is_an_error(op, dtype):
    with pytest.raises(Exception, match="zero"):
        run_tessera(op, [np.array([1, 2], dtype), np.array([1, 0], dtype)], opset=14)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_integers(dtype, fmod):
    rng = np.random.default_rng(4)
    a, b = values(rng, (3, 20), dtype, -60, 60), values(rng, (20,), dtype, -7, 7)
    b[b == 0] = 3
    check_either("Mod", [a, b], opset=13, attributes={"fmod": fmod})
    check_either("Mod", [a, b], opset=10, attributes={"fmod": fmod})


@pytest.mark.parametrize("dtype", FLOATS)
def test_mod_floats(dtype):
    rng = np.random.default_rng(5)
    a, b = values(rng, (3, 20), dtype, -60, 60), values(rng, (20,), dtype, -7, 7)
    check_either("Mod", [a, b], opset=13, attributes={"fmod": 1}, rtol=1e-3 if dtype == "float16" else 0)
    check_rejected("Mod", [a, b], opset=13, match="fmod")


@pytest.mark.parametrize("base", FLOATS + ["int32", "int64"])
@pytest.mark.parametrize("exponent", FLOATS + ["int32", "int64"])
def test_pow(base, exponent):
    rng = np.random.default_rng(6)
    a = values(rng, (3, 5), base, 1, 5)
    b = values(rng, (5,), exponent, 0, 3)
    tolerance = max(TOLERANCE.get(base, 0), 0)
    check_either("Pow", [a, b], opset=15, rtol=tolerance)
    check_either("Pow", [a, np.array(2, exponent)], opset=13, rtol=tolerance)
    check_either("Pow", [a, np.array(3, exponent)], opset=12, rtol=tolerance)
    if base == exponent:
        check_either("Pow", [a, b], opset=7, rtol=tolerance)


@pytest.mark.parametrize("exponent", [2, 3])
def test_pow_of_a_small_integer_multiplies(exponent):
    a = values(np.random.default_rng(7), (1000,), "float32", -3, 3)
    check_either("Pow", [a, np.float32(exponent)], opset=15, rtol=0)
    check_either("Pow", [a, np.array([exponent], np.float32)], opset=15, rtol=0)


def test_pow_integer_cases():
    base = np.array([2, -2, 0, 1, -1, 5, -1, 10], np.int64)
    exponent = np.array([10, 3, 0, -5, -3, -1, -2, 18], np.int64)
    assert run_tessera("Pow", [base, exponent], opset=15)[0].tolist() == [1024, -8, 1, 1, -1, 0, 1, 10**18]


@pytest.mark.parametrize("base", INTS)
@pytest.mark.parametrize("exponent", INTS)
def test_pow_of_integers_wraps(base, exponent):
    bits, limits = np.iinfo(base).bits, np.iinfo(base)
    a = np.array([[0], [1], [2], [3], [limits.max], [limits.min]], base)
    for b in (np.arange(8).astype(exponent), np.array(5, exponent)):  # each element's own, and one for all
        wrapped = [[pow(int(x[0]), int(y), 2**bits) for y in b.reshape(-1)] for x in a]
        expected = np.array(wrapped, np.uint64).astype(f"uint{bits}").view(base)
        assert run_tessera("Pow", [a, b], opset=15)[0].tolist() == expected.tolist()


UNARY = [
    ("Neg", 13, -4, 4),
    ("Abs", 13, -4, 4),
    ("Sign", 13, -4, 4),
    ("Sqrt", 13, 0, 9),
    ("Reciprocal", 13, 0.5, 4),
    ("Exp", 13, -4, 4),
    ("Log", 13, 0.1, 5),
    ("Floor", 13, -9, 9),
    ("Ceil", 13, -9, 9),
    ("Round", 22, -9, 9),
    ("Sin", 22, -9, 9),
    ("Cos", 22, -9, 9),
    ("Tan", 22, -1.4, 1.4),
    ("Asin", 22, -1, 1),
    ("Acos", 22, -1, 1),
    ("Atan", 22, -9, 9),
    ("Sinh", 22, -4, 4),
    ("Cosh", 22, -4, 4),
    ("Tanh", 13, -4, 4),
    ("Asinh", 22, -9, 9),
    ("Acosh", 22, 1, 9),
    ("Atanh", 22, -0.95, 0.95),
    ("Erf", 13, -3, 3),
]
FIRST = {
    "Sign": 9,
    "Erf": 9,
    "Round": 11,
    "Sin": 7,
    "Cos": 7,
    "Tan": 7,
    "Asin": 7,
    "Acos": 7,
    "Atan": 7,
    "Sinh": 9,
    "Cosh": 9,
    "Asinh": 9,
    "Acosh": 9,
    "Atanh": 9,
}
EXACT = {"Neg", "Abs", "Sign", "Sqrt", "Floor", "Ceil", "Round"}


@pytest.mark.parametrize("op,version,low,high", UNARY, ids=[u[0] for u in UNARY])
@pytest.mark.parametrize("dtype", FLOATS)
def test_unary_floats(op, version, low, high, dtype):
    rng = np.random.default_rng(7)
    tolerance = 0 if op in EXACT else TOLERANCE[dtype]
    if op == "Erf" and dtype == "float64":
        tolerance = 1e-7  # neither oracle computes it in double; test_erf_double does
    for shape in [(3, 7), (), (0, 2), (2, 3, 4, 5)]:
        x = values(rng, shape, dtype, low, high)
        for opset in sorted({FIRST.get(op, 7), version, 24}):
            check_either(op, [x], opset=opset, rtol=tolerance, atol=tolerance / 4)


@pytest.mark.parametrize("op", ["Abs", "Sign", "Neg"])
@pytest.mark.parametrize("dtype", INTS)
def test_unary_integers(op, dtype):
    if op == "Neg" and dtype.startswith("u"):
        check_rejected(op, [np.array([1], dtype)], opset=13)
        return
    rng = np.random.default_rng(8)
    check_either(op, [values(rng, (4, 5), dtype, -100, 100)], opset=13)


def test_erf_double():
    x = np.linspace(-3, 3, 21)
    check("Erf", [x], opset=13, expected=[np.array([math.erf(v) for v in x])], rtol=1e-15)
    assert np.isnan(run_tessera("Erf", [np.array([np.nan], np.float32)], opset=13)[0][0])  # ONNX Runtime gives 1


def test_special_values():
    x = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3.4e38, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32
    )
    for op in ["Neg", "Abs", "Sqrt", "Floor", "Ceil", "Round", "Reciprocal", "Exp", "Log", "Tanh", "Atan"]:
        check_either(op, [x], opset=13, rtol=0 if op in EXACT else 4e-6, atol=0 if op in EXACT else 1e-7)


def test_bfloat16():
    import ml_dtypes

    rng = np.random.default_rng(9)
    a = rng.uniform(-4, 4, (3, 5)).astype(ml_dtypes.bfloat16)
    b = rng.uniform(1, 4, (5,)).astype(ml_dtypes.bfloat16)
    for op, f in [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)]:
        expected = f(a.astype(np.float32), b.astype(np.float32)).astype(ml_dtypes.bfloat16)
        check(op, [a, b], opset=14, expected=[expected])
    check("Exp", [a], opset=13, expected=[np.exp(a.astype(np.float32)).astype(ml_dtypes.bfloat16)], rtol=0.01)
    check("Max", [a, b], opset=13, expected=[np.maximum(a, b)])


@pytest.mark.parametrize("op", ["Min", "Max"])
@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_min_max(op, dtype):
    rng = np.random.default_rng(10)
    for opset in [8, 12, 13]:
        check_either(op, [values(rng, (2, 3, 4), dtype)], opset=opset)
        check_either(op, [values(rng, (2, 3, 4), dtype), values(rng, (4,), dtype)], opset=opset)
        check_either(
            op, [values(rng, (2, 1, 4), dtype), values(rng, (3, 1), dtype), values(rng, (), dtype)], opset=opset
        )
    check_either(op, [values(rng, (2, 3), dtype), values(rng, (2, 3), dtype)], opset=7)


def test_min_max_nan():
    a = np.array([np.nan, 1, 2, np.nan], np.float32)
    b = np.array([1, np.nan, 1, np.nan], np.float32)
    for op in ["Min", "Max"]:
        check(op, [a, b], opset=13)
        check(op, [b, a], opset=13)


@pytest.mark.parametrize("op", ["Sum", "Mean"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_mean(op, dtype):
    rng = np.random.default_rng(11)
    for opset in [8, 13]:
        check_either(op, [values(rng, (2, 3, 4), dtype)], opset=opset, rtol=TOLERANCE[dtype])
        inputs = [values(rng, (2, 1, 4), dtype), values(rng, (3, 1), dtype), values(rng, (), dtype)]
        expected = (
            None
            if dtype == "float32"
            else [((inputs[0] + inputs[1] + inputs[2]) / (3 if op == "Mean" else 1)).astype(dtype)]
        )
        check(op, inputs, opset=opset, expected=expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    check_either(
        op,
        [values(rng, (2, 3), dtype), values(rng, (2, 3), dtype)],
        opset=7,
        rtol=TOLERANCE[dtype],
        atol=TOLERANCE[dtype],
    )


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_clip(dtype):
    rng = np.random.default_rng(12)
    x = values(rng, (3, 9), dtype, -9, 9)
    low, high = np.array(1 if dtype[0] == "u" else -2, dtype), np.array(4, dtype)
    for opset in [11, 12, 13]:
        for limits in [[low, high], [low], [None, high], [high, low], []]:
            check_either("Clip", [x] + limits, opset=opset)


def test_clip_edges():
    x = np.array([np.inf, -np.inf, np.nan, 1, -7, 3e38], np.float32)
    for attributes in [{}, {"min": -2.0}, {"max": 0.5}, {"min": -1.0, "max": 1.0}]:
        check("Clip", [x], opset=6 + 1, attributes=attributes)
    check("Clip", [x], opset=13)
    check("Clip", [np.zeros((0, 3), np.float32), np.float32(1)], opset=13)
    check_rejected("Clip", [x, np.zeros(2, np.float32)], opset=13, match="scalar")
    check_rejected("Clip", [x, np.float64(1)], opset=13, match="type")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(dtype, exclusive, reverse):
    rng = np.random.default_rng(13)
    x = values(rng, (2, 5, 3), dtype)
    for opset in [11, 14]:
        for axis in [0, 1, 2, -1, -3]:
            for axis_type in [np.int32, np.int64]:
                check(
                    "CumSum",
                    [x, np.array(axis, axis_type)],
                    opset=opset,
                    attributes={"exclusive": exclusive, "reverse": reverse},
                    rtol=1e-5,
                    atol=1e-6,
                )


def test_cumsum_edges():
    check("CumSum", [np.arange(5, dtype=np.float32), np.array([0], np.int64)], opset=14)
    check("CumSum", [np.zeros((0, 3), np.float32), np.array(0, np.int64)], opset=14)
    check_rejected("CumSum", [np.zeros((2, 3), np.float32), np.array(2, np.int64)], opset=14, match="axis")


def test_rejections():
    f, g = np.zeros((2, 3), np.float32), np.zeros((4,), np.float32)
    check_rejected("Add", [f, g], match="broadcast", opset=14)
    check_rejected("Add", [f, f.astype(np.float64)], match="Cast", opset=14)
    check_rejected("Add", [f.astype(bool), f.astype(bool)], match="type", opset=14)
    check_rejected("Sqrt", [f.astype(np.int32)], match="type", opset=14)

# SPDX-License-Identifier: Apache-2.0
"""Casts between all element types and the constant makers beside ONNX Runtime, the reference evaluator or numpy."""

import ml_dtypes
import numpy as np
import pytest
from either_oracle import FLOATS, INTS, check_either, values
from onnx import TensorProto as T
from ort_compare import EXOTIC, check, check_rejected, infer, run_tessera

CODE = {"float32": T.FLOAT, "float64": T.DOUBLE, "float16": T.FLOAT16, "bool": T.BOOL, "string": T.STRING} | {
    name: getattr(T, name.upper()) for name in INTS
}
FLOAT8 = [T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ]
BFLOAT = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("source", FLOATS + INTS + ["bool"])
@pytest.mark.parametrize("target", list(CODE))
def test_cast(source, target):
    x = values(np.random.default_rng(1), (3, 5), source, -100, 100)
    for opset in [7, 9, 13, 19, 21]:
        if opset < 9 and target == "string":
            continue
        check_either("Cast", [x], opset=opset, attributes={"to": CODE[target]})
    check_either("Cast", [values(np.random.default_rng(1), (), source)], opset=13, attributes={"to": CODE[target]})
    check_either("Cast", [values(np.random.default_rng(1), (2, 0), source)], opset=13, attributes={"to": CODE[target]})


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", INTS + ["bool"])
def test_out_of_range(source, target):
    x = np.array(
        [300.7, -300.7, 1e10, -1e10, np.nan, np.inf, -np.inf, 3e9, 1e20, -1e20, 128.5, -0.9, 2.0**63, -(2.0**63)],
        source,
    )
    if target == "uint32":  # ONNX Runtime converts the last elements, outside its vectors, otherwise
        x = x[:8]
    check("Cast", [x], opset=13, attributes={"to": CODE[target]})


def test_integers_wrap():
    x = np.array([300, -1, -200, 2**31 - 1, 70000], np.int32)
    for target in INTS + ["float16", "float32"]:
        check("Cast", [x], opset=13, attributes={"to": CODE[target]})
    y = np.array([2**63 + 2**40 + 1, 2**53 + 1, 3], np.uint64)
    for target in ["float32", "float64", "int64", "string"]:
        check("Cast", [y], opset=13, attributes={"to": CODE[target]})


def test_to_string():
    x = np.array([1.5, 1 / 3, 1e10, 1e-7, np.nan, np.inf, -np.inf, 100000, 1e6, 123456789, -0.0, 1e20, 0.1], np.float32)
    for source in FLOATS:
        with np.errstate(over="ignore"):
            check("Cast", [x.astype(source)], opset=13, attributes={"to": T.STRING})


def test_from_string():
    texts = np.array(["1.5", "-2", "1e3", "NaN", "inf", "-INF", "+INF", " 3", "0.1"], object)
    for target in ["float32", "float64", "float16"]:
        check("Cast", [texts], opset=13, attributes={"to": CODE[target]})
    numbers = np.array(["12", "7", "100", " 3"], object)
    for target in INTS:
        check("Cast", [numbers], opset=13, attributes={"to": CODE[target]})
    check("Cast", [np.array(["18446744073709551615"], object)], opset=13, attributes={"to": T.UINT64})
    check("Cast", [np.array(["1", "0", "12"], object)], opset=13, attributes={"to": T.BOOL})
    for bad in ["abc", "", "99999999999999999999999"]:
        with pytest.raises(Exception, match="string"):
            run_tessera("Cast", [np.array([bad], object)], attributes={"to": T.INT64})


@pytest.mark.parametrize("target", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8(target, saturate):
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [
            np.array(
                [1e6, -1e6, np.inf, -np.inf, np.nan, 500, 448, 464, 465, -0.0, 1e-9, 240, 248, 57344, 61440, 61441],
                np.float32,
            ),
            rng.uniform(-500, 500, 400).astype(np.float32),
            rng.uniform(-0.1, 0.1, 400).astype(np.float32),
        ]
    )
    # Without saturation ONNX Runtime rounds a few values beyond the largest into it; ml_dtypes overflows as
    # the standard says.
    kind = {code: dtype for dtype, code in EXOTIC.items()}[target]
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    for v in (x, half):
        check(
            "Cast",
            [v],
            opset=19,
            attributes={"to": target, "saturate": saturate},
            expected=None if saturate else [v.astype(kind)],
        )


@pytest.mark.parametrize("target", FLOAT8 + [T.BFLOAT16])
def test_from_exotic(target):
    kind = {code: dtype for dtype, code in EXOTIC.items()}[target]
    x = (
        (np.arange(256, dtype=np.uint16) * (257 if target == T.BFLOAT16 else 1))
        .astype(np.uint16 if target == T.BFLOAT16 else np.uint8)
        .view(kind)
    )
    for to in [T.FLOAT, T.FLOAT16] if target != T.BFLOAT16 else [T.FLOAT]:
        check("Cast", [x], opset=19, attributes={"to": to})


def test_bfloat16():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-4, 4, 1000), [np.inf, -np.inf, np.nan, 1e-40, 3.4e38]]).astype(np.float32)
    check("Cast", [x], opset=13, attributes={"to": T.BFLOAT16})
    check("Cast", [x.astype(BFLOAT)], opset=13, attributes={"to": T.INT32})


@pytest.mark.parametrize("target", [T.INT4, T.UINT4])
def test_four_bits(target):
    x = np.array([1.5, 2.5, -1.5, 7.9, 8, -8, -9, 15, 16, 100, -0.5, 0.5, 3.5, 0], np.float32)
    check("Cast", [x], opset=21, attributes={"to": target})
    check("Cast", [np.array([5, -3, 200, 7, -8], np.int32)], opset=21, attributes={"to": target})
    kind = {code: dtype for dtype, code in EXOTIC.items()}[target]
    codes = np.arange(-8, 8).astype(kind) if target == T.INT4 else np.arange(16).astype(kind)
    for to in [T.FLOAT, T.INT8, T.INT32, T.INT64]:
        check(
            "Cast",
            [codes],
            opset=21,
            attributes={"to": to},
            expected=[codes.astype({T.FLOAT: np.float32, T.INT8: np.int8, T.INT32: np.int32, T.INT64: np.int64}[to])],
        )


def test_float4():
    rng = np.random.default_rng(4)
    x = np.concatenate(
        [
            np.array([0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7, 100, np.inf, -np.inf, -0.25, -5, 0.2501], np.float32),
            rng.uniform(-7, 7, 200).astype(np.float32),
        ]
    )
    expected = x.astype(ml_dtypes.float4_e2m1fn)
    check("Cast", [x], opset=23, attributes={"to": T.FLOAT4E2M1}, expected=[expected])
    check("Cast", [expected], opset=23, attributes={"to": T.FLOAT}, expected=[expected.astype(np.float32)])


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8e8m0(mode, saturate):
    """Against powers of two in exact arithmetic: 255 stands for NaN."""
    exponents = range(-127, 129)
    x = np.array([2.0**e * f for e in exponents for f in (1, 1.25, 1.5, 1.5000001, 1.75)], np.float64)
    x = np.concatenate([x[x < np.finfo(np.float32).max], [-3.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    codes = []
    for value in np.abs(x.astype(np.float64)):
        if not np.isfinite(value):
            codes.append(255)
            continue
        power = max(-127, int(np.floor(np.log2(value))))
        share = value / 2.0**power  # from 1 to 2
        above = {"up": share > 1, "down": False, "nearest": share >= 1.5}[mode]
        code = power + 127 + int(above)
        codes.append(254 if saturate and code == 255 else code)
    expected = np.array(codes, np.uint8).view(ml_dtypes.float8_e8m0fnu)
    normal = np.abs(x) >= np.finfo(np.float32).tiny  # smaller ones have the exponent 0 and another fraction
    x, expected = x[normal | ~np.isfinite(x)], expected[normal | ~np.isfinite(x)]
    attributes = {"to": T.FLOAT8E8M0, "round_mode": mode, "saturate": saturate}
    check("Cast", [x], opset=24, attributes=attributes, expected=[expected])
    check("Cast", [expected], opset=24, attributes={"to": T.FLOAT}, expected=[expected.astype(np.float32)])


def test_float8e8m0_scales():
    """Blocks of 32 elements with a power of two as their scale, as microscaling formats have them."""
    x = np.random.default_rng(8).integers(-8, 8, (4, 64)).astype(ml_dtypes.int4)
    scale = np.array([[0.5, 2.0], [1.0, 0.25], [4.0, 2.0**-20], [1024.0, 1.0]], np.float32)
    expected = x.astype(np.float32) * np.repeat(scale, 32, axis=1)
    check(
        "DequantizeLinear",
        [x, scale.astype(ml_dtypes.float8_e8m0fnu)],
        opset=24,
        attributes={"axis": 1, "block_size": 32, "output_dtype": T.FLOAT},
        expected=[expected],
    )


def test_cast_like():
    x = np.array([[1.5, -2.5], [0, 300]], np.float32)
    for like in [
        np.zeros(1, np.int32),
        np.zeros((2, 0), np.float64),
        np.zeros((), bool),
        np.zeros(1, np.float16),
        np.array(["a"], object),
    ]:
        for opset in [15, 19, 21]:
            check("CastLike", [x, like], opset=opset)
    check("CastLike", [x, np.zeros(1, ml_dtypes.float8_e5m2)], opset=19, attributes={"saturate": 0})


def test_bit_cast():
    x = np.array([1.5, -2.5], np.float32)
    assert (run_tessera("BitCast", [x], opset=26, attributes={"to": T.INT32})[0] == x.view(np.int32)).all()
    check_rejected("BitCast", [x], opset=26, attributes={"to": T.INT64}, match="width")


def test_cast_rejections():
    check_rejected("Cast", [np.zeros(2, np.float32)], opset=13, attributes={"to": 99}, match="element type")
    check_rejected("Cast", [np.zeros(2, np.float32)], opset=13, attributes={"to": T.COMPLEX64}, match="complex64")
    check_rejected("Cast", [np.zeros(2, np.float32)], opset=13, match="to")


def test_constant():
    for dtype in FLOATS + INTS + ["bool", "string"]:
        x = values(np.random.default_rng(5), (2, 3), dtype)
        for opset in [7, 9, 11, 12, 13, 19, 21]:
            actual = check_either("Constant", [], opset=opset, attributes={"value": x})[0]
            assert actual[0].shape == (2, 3)
    cases = [
        ("value_float", 1.5, np.float32(1.5)),
        ("value_int", -7, np.int64(-7)),
        ("value_ints", [1, 2, 3], np.array([1, 2, 3])),
        ("value_floats", [0.5, 2.0], np.array([0.5, 2], np.float32)),
        ("value_string", "abc", np.array("abc", object)),
        ("value_strings", ["a", "b"], np.array(["a", "b"], object)),
    ]
    for name, value, expected in cases:
        check("Constant", [], opset=13, attributes={name: value}, expected=[expected])
    check_rejected("Constant", [], opset=13, match="none of the attributes")


@pytest.mark.parametrize("dtype", FLOATS + INTS + ["bool"])
def test_constant_of_shape(dtype):
    for shape in [[2, 3], [0, 4], [1], []]:
        check("ConstantOfShape", [np.array(shape, np.int64)], opset=9, attributes={"value": np.array([1], dtype)})
    check("ConstantOfShape", [np.array([2, 2], np.int64)], opset=20)
    check_rejected("ConstantOfShape", [np.array([-1], np.int64)], opset=9, match="negative")
    check_rejected(
        "ConstantOfShape",
        [np.array([1], np.int64)],
        opset=9,
        attributes={"value": np.zeros(2, dtype)},
        match="one element",
    )
    assert infer("ConstantOfShape", [("int64", [3])], opset=9)[0][1] == [-1, -1, -1]


def test_eye_like():
    for dtype in ["float32", "float64", "int32", "int64", "uint64"]:
        for shape in [(3, 3), (2, 5), (5, 2), (0, 3)]:
            for k in [0, 1, -1, 4, -7]:
                check_either("EyeLike", [np.ones(shape, dtype)], opset=9, attributes={"k": k})
        for to in [T.FLOAT, T.INT64, T.FLOAT16, T.BOOL, T.INT8]:
            check_either("EyeLike", [np.ones((3, 4), dtype)], opset=22, attributes={"dtype": to})
    check_rejected("EyeLike", [np.ones(3, np.float32)], opset=9, match="rank")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int32", "int64"])
def test_range(dtype):
    for start, limit, delta in [(0, 10, 1), (10, 0, -3), (0, 10, 3), (5, 5, 1), (5, 0, 1), (-3, 4, 2)]:
        check("Range", [np.array(v, dtype) for v in (start, limit, delta)], opset=11)
    if dtype.startswith("float"):
        check("Range", [np.array(v, dtype) for v in (0.5, 3.25, 0.3)], opset=11, rtol=1e-6)
    assert infer("Range", [(dtype, []), (dtype, []), (dtype, [])], opset=11)[0][1] == [-1]
    check_rejected("Range", [np.array(v, dtype) for v in (0, 1, 0)], opset=11, match="delta")


def test_range_extremes():
    big = 2**63 - 1
    assert run_tessera("Range", [np.array(v, np.int64) for v in (big - 2, big, 1)])[0].tolist() == [big - 2, big - 1]
    assert run_tessera("Range", [np.array(v, np.int64) for v in (-big, -big + 3, 2)])[0].tolist() == [-big, -big + 2]


def test_shape_and_size():
    for dtype in ["float32", "string", "bool"]:
        for shape in [(2, 3, 4), (), (0, 5), (7,)]:
            x = values(np.random.default_rng(6), shape, dtype)
            for opset in [7, 13, 15, 19, 21]:
                check("Shape", [x], opset=opset)
                check("Size", [x], opset=opset)
            for start in [None, 0, 1, -1, -2, 5, -9]:
                for end in [None, 0, 1, -1, 2, 9, -9]:
                    check("Shape", [x], opset=15, attributes={"start": start, "end": end})


def test_shape_inference():
    assert infer("Shape", [("float32", [2, -1, 4])], opset=15)[0][:3] == ("int64", [3], None)
    _dtype, shape, constant, _ = infer("Shape", [("float32", [2, -1, 4])], opset=15, attributes={"start": 2})[0]
    assert shape == [1] and constant.tolist() == [4]
    assert infer("Size", [("float32", [2, 3])], opset=13)[0][2].tolist() == 6
    assert infer("Size", [("float32", [2, -1])], opset=13)[0][2] is None
    assert infer("Shape", [("float32", None)], opset=13)[0][1] == [-1]

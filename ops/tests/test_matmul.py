# SPDX-License-Identifier: Apache-2.0
"""MatMul, Gemm, MatMulInteger, FusedMatMul and Einsum against ONNX Runtime and numpy."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_tessera

FLOAT = dict(rtol=1e-5, atol=1e-5)


def floats(seed, *shape, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def integers(seed, low, high, shape, dtype):
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


# ----------------------------------------------------------------------------------------------------------- MatMul

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((7, 1, 2, 3, 4), (1, 6, 1, 4, 5)),
    ((1, 1), (1, 1)),
    ((13, 17), (17, 29)),
    ((2, 9, 33), (2, 33, 1)),
    ((1, 64), (64, 50)),
    ((2, 2, 5, 3), (2, 2, 3, 5)),
]


@pytest.mark.parametrize("a,b", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matmul_float(a, b, dtype):
    tolerance = FLOAT if dtype == np.float32 else dict(rtol=1e-12, atol=1e-12)
    check("MatMul", [floats(1, *a, dtype=dtype), floats(2, *b, dtype=dtype)], opset=13, **tolerance)


@pytest.mark.parametrize("a,b", SHAPES[:8])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_matmul_integers_wrap(a, b, dtype):
    any_bits = lambda seed, shape: integers(seed, -(2**63), 2**63 - 1, shape, np.int64).astype(dtype)
    check("MatMul", [any_bits(1, a), any_bits(2, b)], opset=13)


@pytest.mark.parametrize("a,b", [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((0, 2, 3), (3, 4)), ((2, 3), (3, 0))])
def test_matmul_empty(a, b):
    check("MatMul", [np.zeros(a, np.float32), np.zeros(b, np.float32)], opset=13)


def test_matmul_narrow_types_round_once():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.float16, ml_dtypes.bfloat16):
        a, b = floats(3, 2, 5, 40).astype(dtype), floats(4, 40, 6).astype(dtype)
        wide = run_tessera("MatMul", [a.astype(np.float32), b.astype(np.float32)])[0]
        np.testing.assert_allclose(wide, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5)
        check("MatMul", [a, b], opset=13, expected=[wide.astype(dtype)])


def test_matmul_order_of_sums():
    b = np.ones((4, 1), np.float32)
    a = np.array([[2.0**24, 1, 1, -(2.0**24)], [1, 1, 2.0**24, -(2.0**24)]], np.float32)
    np.testing.assert_array_equal(run_tessera("MatMul", [a, b])[0].ravel(), [0.0, 2.0])


def test_matmul_inference_and_rejections():
    assert infer("MatMul", [("float32", [-1, 3, 4]), ("float32", [7, 4, -1])])[0][1] == [7, 3, -1]
    assert infer("MatMul", [("float32", [-1, 3, 4]), ("float32", [4])])[0][1] == [-1, 3]
    assert infer("MatMul", [("float32", None), ("float32", [4, 3])])[0][1] is None
    zeros = lambda *shape: np.zeros(shape, np.float32)
    check_rejected("MatMul", [zeros(2, 3), zeros(4, 5)], match="do not multiply", code="invalid_model")
    check_rejected("MatMul", [zeros(2, 2, 3), zeros(3, 3, 5)], match="broadcast")
    check_rejected("MatMul", [zeros(), zeros(3)], match="scalar")
    check_rejected("MatMul", [zeros(2, 3), zeros(3, 2).astype(np.float64)], match="one type")
    check_rejected("MatMul", [zeros(2, 3)], match="1 inputs")


# ------------------------------------------------------------------------------------------------------------- Gemm


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
@pytest.mark.parametrize("trans_a,trans_b", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("c", [(), (1,), (5,), (3, 1), (1, 5), (3, 5), (1, 1)])
def test_gemm(opset, trans_a, trans_b, c):
    inputs = [floats(1, *((4, 3) if trans_a else (3, 4))), floats(2, *((5, 4) if trans_b else (4, 5))), floats(3, *c)]
    check("Gemm", inputs, opset=opset, attributes=dict(transA=trans_a, transB=trans_b, alpha=0.7, beta=-1.3), **FLOAT)


def test_gemm_without_c_and_defaults():
    a, b = floats(1, 6, 20), floats(2, 20, 9)
    check("Gemm", [a, b], opset=11, **FLOAT)
    check("Gemm", [a, b], opset=13, attributes=dict(alpha=2.5), **FLOAT)
    check("Gemm", [a, b, floats(3, 9)], opset=13, **FLOAT)
    check("Gemm", [a, b, np.full(9, np.nan, np.float32)], opset=13, attributes=dict(beta=0.0), **FLOAT)
    check("Gemm", [np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32), floats(3, 3)], opset=13)
    double = [floats(i, 4, 4, dtype=np.float64) for i in range(3)]
    check("Gemm", double, opset=13, attributes=dict(alpha=0.5), rtol=1e-13, atol=1e-13)


def test_gemm_integers():
    a, b, c = (integers(i, -(2**31), 2**31, (3, 3), np.int32) for i in range(3))
    with np.errstate(over="ignore"):
        check(
            "Gemm",
            [a, b, c],
            opset=13,
            attributes=dict(alpha=3.0, beta=-2.0),
            expected=[(a @ b) * np.int32(3) + c * np.int32(-2)],
        )


def test_gemm_rejects():
    zeros = lambda *shape: np.zeros(shape, np.float32)
    check_rejected("Gemm", [zeros(3, 4), zeros(5, 4), zeros(5)], match="do not multiply")
    check_rejected("Gemm", [zeros(3, 4), zeros(4, 5), zeros(3)], match="does not broadcast")
    check_rejected("Gemm", [zeros(3, 4), zeros(4, 5), zeros(1, 3, 5)], match="does not broadcast")
    check_rejected("Gemm", [zeros(2, 3, 4), zeros(4, 5)], match="rank 2")
    check_rejected("Gemm", [zeros(3, 4), zeros(4, 5)], opset=9, match="inputs")


# ---------------------------------------------------------------------------------------------------- MatMulInteger


@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "a_shape,b_shape", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5))]
)
def test_matmul_integer(a_type, b_type, a_shape, b_shape):
    a = integers(1, np.iinfo(a_type).min, np.iinfo(a_type).max + 1, a_shape, a_type)
    b = integers(2, np.iinfo(b_type).min, np.iinfo(b_type).max + 1, b_shape, b_type)
    a_zero, b_zero = np.array(17, a_type), np.array(-3 if b_type == np.int8 else 200, b_type)
    exact = lambda za, zb: np.matmul(a.astype(np.int32) - np.int32(za), b.astype(np.int32) - np.int32(zb))
    check("MatMulInteger", [a, b], opset=10, expected=[exact(0, 0)])
    check("MatMulInteger", [a, b, a_zero, b_zero], opset=10, expected=[exact(a_zero, b_zero)])
    check("MatMulInteger", [a, b, None, b_zero], opset=10, expected=[exact(0, b_zero)])
    if a_type == np.uint8:
        check("MatMulInteger", [a, b, a_zero, b_zero], opset=10)
    per_column = integers(3, 0, 100, (5,), b_type)
    check("MatMulInteger", [a, b, a_zero, per_column], opset=10, expected=[exact(a_zero, per_column.astype(np.int32))])
    if len(a_shape) == 2:
        per_row = integers(4, 0, 100, (3,), a_type)
        check(
            "MatMulInteger",
            [a, b, per_row, b_zero],
            opset=10,
            expected=[exact(per_row.astype(np.int32)[:, None], b_zero)],
        )
    if a_shape == b_shape[:1] + (3, 4):
        full = integers(5, 0, 100, (2, 1, 5), b_type)
        check("MatMulInteger", [a, b, a_zero, full], opset=10, expected=[exact(a_zero, full.astype(np.int32))])


def test_matmul_integer_rejects():
    a, b = np.zeros((3, 4), np.uint8), np.zeros((4, 5), np.uint8)
    check_rejected("MatMulInteger", [a, b, np.zeros(4, np.uint8)], opset=10, match="zero point")
    check_rejected("MatMulInteger", [a, b, None, np.zeros((4, 1), np.uint8)], opset=10, match="zero point")
    check_rejected("MatMulInteger", [a, b, np.zeros((), np.int8)], opset=10, match="one type")


# ------------------------------------------------------------------------------------------------------ FusedMatMul


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("batch_a", [0, 1])
@pytest.mark.parametrize("batch_b", [0, 1])
def test_fused_matmul(trans_a, trans_b, batch_a, batch_b):
    def operand(seed, rows, columns, trans, batch):
        shape = [2, 3, *((columns, rows) if trans else (rows, columns))]
        if batch:  # the first of the two last dimensions comes first
            shape = [shape[2], 2, 3, shape[3]]
        return floats(seed, *shape)

    check(
        "FusedMatMul",
        [operand(1, 4, 5, trans_a, batch_a), operand(2, 5, 6, trans_b, batch_b)],
        domain="com.microsoft",
        attributes=dict(transA=trans_a, transB=trans_b, transBatchA=batch_a, transBatchB=batch_b, alpha=0.25),
        **FLOAT,
    )


@pytest.mark.parametrize("a,b", [((4,), (4, 5)), ((3, 4), (4,)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5))])
def test_fused_matmul_ranks(a, b):
    check("FusedMatMul", [floats(1, *a), floats(2, *b)], domain="com.microsoft", attributes=dict(alpha=3.0), **FLOAT)


# ----------------------------------------------------------------------------------------------------------- Einsum

EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("ij->ji", [(3, 4)]),
    ("ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->j", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("i,i->", [(5,), (5,)]),
    ("i,i", [(5,), (5,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,j->ji", [(3,), (4,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 7, 3, 4), (2, 7, 4, 5)]),
    ("...ij,...jk->...ik", [(7, 3, 4), (2, 1, 4, 5)]),
    ("...ij->...ji", [(2, 3, 4)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("...", [(2, 3)]),
    ("...j,j->...", [(2, 3, 4), (4,)]),
    ("i...,i...->...", [(3, 2, 4), (3, 2, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ijk,jil->kl", [(3, 4, 5), (4, 3, 2)]),
    ("bn,anm,bm->ba", [(2, 3), (5, 3, 4), (2, 4)]),
    ("abc,cd->abd", [(2, 3, 4), (4, 5)]),
    ("ab,cd->", [(2, 3), (4, 5)]),
    ("ab,cd->ca", [(2, 3), (4, 5)]),
    ("iij->j", [(3, 3, 4)]),
    ("iji->j", [(3, 4, 3)]),
    ("Aa,aB->AB", [(2, 3), (3, 4)]),
    ("zA,Ab", [(2, 3), (3, 4)]),
    ("ij,jk->ik", [(3, 0), (0, 5)]),
    ("i->i", [(3,)]),
    ("nchw,kc->nkhw", [(1, 3, 4, 5), (2, 3)]),
    ("bqhd,bkhd->bhqk", [(1, 4, 2, 3), (1, 5, 2, 3)]),
    ("a,ab,b->", [(3,), (3, 4), (4,)]),
]


@pytest.mark.parametrize("equation,shapes", EQUATIONS)
def test_einsum(equation, shapes):
    inputs = [floats(i, *shape) for i, shape in enumerate(shapes)]
    check(
        "Einsum",
        inputs,
        opset=12,
        attributes=dict(equation=equation),
        expected=[np.asarray(np.einsum(equation, *inputs), np.float32)],
        **FLOAT,
    )
    # The oracle's own shape inference breaks off where ellipses of different ranks broadcast, and it refuses a bare
    # ellipsis and breaks off on empty operands.
    if not (
        0 in sum(shapes, ()) or equation == "..." or (equation.count("...") == 3 and len(shapes[0]) != len(shapes[1]))
    ):
        check("Einsum", inputs, opset=12, attributes=dict(equation=equation), **FLOAT)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_einsum_types(dtype):
    a, b = (integers(i, -9, 9, (2, 3, 3), np.int64).astype(dtype) for i in range(2))
    check("Einsum", [a, b], opset=12, attributes=dict(equation="bij,bjk->ik"))
    check("Einsum", [a, b], opset=12, attributes=dict(equation="bii,bij->j"))


def test_einsum_broadcasts_unit_extents():
    a, b = floats(1, 1, 4), floats(2, 3, 4)
    check("Einsum", [a, b], opset=12, attributes=dict(equation="ij,ij->ij"), expected=[a * b])
    check("Einsum", [a, b], opset=12, attributes=dict(equation="ij,ij->i"), expected=[(a * b).sum(1)], **FLOAT)


def test_einsum_half_rounds_once():
    a, b = floats(1, 3, 40, dtype=np.float16), floats(2, 40, 5, dtype=np.float16)
    check("Einsum", [a, b], opset=12, attributes=dict(equation="ij,jk->ik"), expected=run_tessera("MatMul", [a, b]))


@pytest.mark.parametrize(
    "equation,shapes,match",
    [
        ("ij,jk->ik", [(3, 4), (5, 6)], "extents"),
        ("ij->ik", [(3, 4)], "no operand names"),
        ("ij->ii", [(3, 4)], "twice"),
        ("ij", [(3,)], "rank"),
        ("ij,jk->ik", [(3, 4)], "terms"),
        ("i1->i", [(3, 4)], "meaning"),
        ("...i...->i", [(3, 4)], "ellipses"),
        ("...i->i", [(3, 4)], "neither"),
    ],
)
def test_einsum_rejects(equation, shapes, match):
    check_rejected(
        "Einsum",
        [np.zeros(shape, np.float32) for shape in shapes],
        opset=12,
        attributes=dict(equation=equation),
        match=match,
    )


def test_einsum_partial_inference():
    types = lambda *shapes: [("float32", shape) for shape in shapes]
    assert infer("Einsum", types([-1, 4], [4, 5]), attributes=dict(equation="ij,jk->ik"))[0][1] == [-1, 5]
    assert infer("Einsum", types(None, [4, 5]), attributes=dict(equation="ij,jk->ik"))[0][1] == [-1, 5]
    assert infer("Einsum", types([-1, 2, 3, 4], [7, 2, 4, 5]), attributes=dict(equation="...ij,...jk->...ik"))[0][
        1
    ] == [7, 2, 3, 5]
    assert infer("Einsum", types(None, [7, 2, 4, 5]), attributes=dict(equation="...ij,...jk->...ik"))[0][1] is None

# SPDX-License-Identifier: Apache-2.0
"""Attention and RotaryEmbedding against ONNX Runtime and the onnx reference evaluator."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_tessera

FLOAT = dict(rtol=2e-5, atol=2e-5)


def floats(seed, *shape, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def operands(q_heads=4, kv_heads=4, length=5, total=6, width=8, out_width=8):
    return [
        floats(1, 2, q_heads, length, width),
        floats(2, 2, kv_heads, total, width),
        floats(3, 2, kv_heads, total, out_width),
    ]


@pytest.mark.parametrize("oracle", ["ort", "reference"])
@pytest.mark.parametrize("attributes", [{}, dict(scale=0.3), dict(is_causal=1)])
def test_attention(oracle, attributes):
    check("Attention", operands(), opset=23, attributes=attributes, oracle=oracle, **FLOAT)
    check(
        "Attention",
        operands(q_heads=6, kv_heads=2, out_width=5),
        opset=23,
        attributes=attributes,
        oracle=oracle,
        **FLOAT,
    )


@pytest.mark.parametrize("oracle", ["ort", "reference"])
def test_softcap(oracle):
    check("Attention", operands(), opset=23, attributes=dict(softcap=0.7), oracle=oracle, **FLOAT)


@pytest.mark.parametrize("mask_shape", [(5, 6), (2, 1, 5, 6), (2, 4, 5, 6), (1, 4, 1, 6)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_mask(mask_shape, kind):
    mask = floats(4, *mask_shape)
    if kind == "bool":
        mask = mask > -0.5
        mask[..., 0] = True
    check("Attention", [*operands(), mask], opset=23, oracle="reference", **FLOAT)
    if mask_shape[-2] == 5:
        check("Attention", [*operands(), mask], opset=23, **FLOAT)


def test_row_masked_altogether():
    mask = np.ones((5, 6), bool)
    mask[1] = False
    check("Attention", [*operands(), mask], opset=23, **FLOAT)


@pytest.mark.parametrize("oracle", ["ort", "reference"])
def test_attention_of_rank_3_with_cache(oracle):
    q, k, v = floats(1, 2, 3, 16), floats(2, 2, 4, 16), floats(3, 2, 4, 16)
    past_k, past_v = floats(5, 2, 2, 5, 8), floats(6, 2, 2, 5, 8)
    attributes = dict(q_num_heads=2, kv_num_heads=2)
    check("Attention", [q, k, v], opset=23, attributes=attributes, oracle=oracle, **FLOAT)
    check(
        "Attention", [q, k, v, None, past_k, past_v], opset=23, attributes=attributes, outputs=3, oracle=oracle, **FLOAT
    )
    check(
        "Attention",
        [q, k, v, floats(7, 3, 9), past_k, past_v],
        opset=23,
        attributes=attributes,
        outputs=3,
        oracle=oracle,
        **FLOAT,
    )


@pytest.mark.parametrize("mode", [0, 1, 3])
def test_scores_are_shown(mode):
    mask = floats(4, 5, 6)
    check(
        "Attention",
        [*operands(), mask],
        opset=23,
        attributes=dict(qk_matmul_output_mode=mode),
        outputs=4,
        oracle="reference",
        **FLOAT,
    )
    check(
        "Attention",
        [*operands(), mask],
        opset=23,
        attributes=dict(qk_matmul_output_mode=mode),
        outputs=[True, False, False, True],
        **FLOAT,
    )


def test_attention_24_lengths():
    lengths = np.array([3, 6], np.int64)
    check("Attention", [*operands(), floats(4, 2, 1, 5, 6), None, None, lengths], opset=24, oracle="reference", **FLOAT)


def test_attention_half_rounds_once():
    half = [value.astype(np.float16) for value in operands()]
    wide = run_tessera("Attention", [value.astype(np.float32) for value in half], opset=23)[0]
    check("Attention", half, opset=23, expected=[wide.astype(np.float16)])


def test_attention_rejects():
    q, k, v = operands()
    check_rejected("Attention", [q, k[:, :3], v[:, :3]], opset=23, match="do not divide")
    check_rejected("Attention", [q, k[..., :4], v], opset=23, match="do not fit")
    check_rejected("Attention", [q, k, v, floats(4, 5, 7)], opset=23, match="mask")
    check_rejected("Attention", [floats(1, 2, 3, 16)] * 3, opset=23, match="q_num_heads")
    check_rejected("Attention", [q, k, v, None, k], opset=23, match="go together")
    assert infer(
        "Attention", [("float32", [-1, 4, -1, 8]), ("float32", [2, 4, 6, 8]), ("float32", [2, 4, 6, 3])], opset=23
    )[0][1] == [-1, 4, -1, 3]


# -------------------------------------------------------------------------------------------------- RotaryEmbedding


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("partial", [0, 4])
@pytest.mark.parametrize("oracle", ["ort", "reference"])
def test_rotary(interleaved, partial, oracle):
    half = (partial or 8) // 2
    attributes = dict(interleaved=interleaved, rotary_embedding_dim=partial)
    x = floats(1, 2, 3, 5, 8)
    positions = np.random.default_rng(1).integers(0, 10, (2, 5))
    tables = [floats(2, 10, half), floats(3, 10, half)]
    if oracle == "reference" or not partial:
        check("RotaryEmbedding", [x, *tables, positions], opset=23, attributes=attributes, oracle=oracle, **FLOAT)
        check(
            "RotaryEmbedding",
            [x, floats(2, 2, 5, half), floats(3, 2, 5, half)],
            opset=23,
            attributes=attributes,
            oracle=oracle,
            **FLOAT,
        )
    flat = floats(1, 2, 5, 24)
    check(
        "RotaryEmbedding",
        [flat, *tables, positions],
        opset=23,
        attributes=dict(attributes, num_heads=3),
        oracle=oracle,
        **FLOAT,
    )
    if oracle == "ort":
        check(
            "RotaryEmbedding",
            [flat, positions, *tables],
            domain="com.microsoft",
            attributes=dict(attributes, num_heads=3 if partial else 0),
            **FLOAT,
        )
        check(
            "RotaryEmbedding",
            [flat, np.array([2], np.int64), *tables],
            domain="com.microsoft",
            attributes=dict(attributes, num_heads=3),
            **FLOAT,
        )


def test_rotary_rejects():
    x, tables = floats(1, 2, 3, 5, 8), [floats(2, 10, 4), floats(3, 10, 4)]
    with pytest.raises(Exception, match="outside the tables"):
        run_tessera("RotaryEmbedding", [x, *tables, np.full((2, 5), 10)], opset=23)
    check_rejected("RotaryEmbedding", [x, *tables], opset=23, match="table")
    check_rejected(
        "RotaryEmbedding", [floats(1, 2, 5, 24), *tables, np.zeros((2, 5), np.int64)], opset=23, match="num_heads"
    )

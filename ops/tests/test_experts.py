# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts, tables of few bits and products by codes of domain com.microsoft, beside ONNX Runtime."""

import _tessera_ops
import ml_dtypes
import numpy as np
import pytest
from ort_compare import check, check_rejected, run_ort, run_tessera

RNG = np.random.default_rng(29)
MS = "com.microsoft"
EXPERTS, HIDDEN, INNER, TOKENS = 5, 32, 16, 6


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def packed(numbers, bits):
    """Numbers in bytes, the low bits first, each row in whole bytes."""
    each = 8 // bits
    rows = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)]).astype(np.uint8)
    rows = rows.reshape(*rows.shape[:-1], -1, each)
    return np.bitwise_or.reduce(rows << (np.arange(each, dtype=np.uint8) * bits), axis=-1).astype(np.uint8)


FORMS = [
    ("relu", {}),
    ("gelu", {}),
    ("silu", {"k": 3}),
    ("identity", {"k": 1}),
    ("swiglu", {"swiglu_fusion": 1}),
    ("swiglu", {"swiglu_fusion": 1, "swiglu_limit": 1.0, "activation_alpha": 1.702, "activation_beta": 1.0}),
]


@pytest.mark.parametrize("activation,more", FORMS)
@pytest.mark.parametrize("normalise", [0, 1])
def test_experts(activation, more, normalise):
    first = 2 * INNER if activation == "swiglu" else INNER
    attributes = {"k": 2, "activation_type": activation, "normalize_routing_weights": normalise} | more
    weights = [f(EXPERTS, first, HIDDEN, scale=0.2), f(EXPERTS, first), f(EXPERTS, HIDDEN, INNER, scale=0.2)]
    options = dict(domain=MS, attributes=attributes, rtol=1e-5, atol=1e-5)
    check("MoE", [f(TOKENS, HIDDEN), f(TOKENS, EXPERTS), *weights, f(EXPERTS, HIDDEN)], **options)
    check("MoE", [f(2, 3, HIDDEN), f(6, EXPERTS), weights[0], None, weights[2]], **options)


def test_experts_of_halves_and_of_three_products():
    """ONNX Runtime's CPU provider does not take them: the halves in turn tell what they mean."""
    x, router = f(TOKENS, HIDDEN), f(TOKENS, EXPERTS)
    gate, linear, down = (f(EXPERTS, n, m, scale=0.2) for n, m in [(INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)])
    run = lambda weights, **more: run_tessera(
        "MoE", [x, router, *weights], domain=MS, attributes={"k": 2, "activation_type": "swiglu"} | more
    )[0]
    in_turn = np.stack([gate, linear], 2).reshape(EXPERTS, 2 * INNER, HIDDEN)
    expected = run([in_turn, None, down], swiglu_fusion=1)
    np.testing.assert_array_equal(run([np.concatenate([gate, linear], 1), None, down], swiglu_fusion=2), expected)
    np.testing.assert_array_equal(run([gate, None, down, None, linear]), expected)


def few_bits(bits, block, rows, depth, zeros):
    """Weights, scales and zero points, or None, of all experts."""
    groups = (depth // block,) if block else ()
    shape = (EXPERTS, rows, *groups)
    points = packed(RNG.integers(0, 1 << bits, shape), bits) if zeros else None
    weights = packed(RNG.integers(0, 1 << bits, (EXPERTS, rows, depth)), bits)
    return weights, RNG.uniform(0.01, 0.05, shape).astype(np.float32), points


@pytest.mark.parametrize(
    "bits,block,level", [(2, 0, 0), (2, 16, 0), (4, 0, 0), (4, 16, 0), (4, 16, 4), (8, 16, 0), (8, 0, 0)]
)
@pytest.mark.parametrize("zeros", [False, True])
def test_experts_of_few_bits(bits, block, level, zeros):
    attributes = {"k": 2, "expert_weight_bits": bits, "accuracy_level": level, "weights_prepacked": 0}
    attributes |= {"activation_type": "swiglu", "swiglu_fusion": 1} | ({"block_size": block} if block else {})
    up, up_scales, up_zeros = few_bits(bits, block, 2 * INNER, HIDDEN, zeros)
    down, down_scales, down_zeros = few_bits(bits, block, HIDDEN, INNER, zeros)
    operands = [f(TOKENS, HIDDEN), f(TOKENS, EXPERTS), up, up_scales, f(EXPERTS, 2 * INNER), down, down_scales]
    operands += [f(EXPERTS, HIDDEN), None, None, None, up_zeros, down_zeros]
    constants = tuple(range(2, 13))
    options = dict(domain=MS, rtol=1e-4, atol=1e-3, constants=constants)
    check("QMoE", operands, attributes=attributes, **options)
    for normalise in (0, 1):  # a share of 0 or less leaves its expert out
        shares = [None, f(TOKENS, EXPERTS) + np.float32(0.3)]
        check("QMoE", operands + shares, attributes=attributes | {"normalize_routing_weights": normalise}, **options)


@pytest.mark.parametrize("bits,level", [(4, 0), (4, 4), (8, 0)])
@pytest.mark.parametrize("late", [(2,), (5,), (3,), (12,), tuple(range(2, 13))])
def test_experts_that_come_at_run_time_multiply_floats(bits, level, late):
    """ONNX Runtime prepares a product for integers where its weights, scales and zero points are constants."""
    attributes = {"k": 2, "expert_weight_bits": bits, "accuracy_level": level, "weights_prepacked": 0, "block_size": 16}
    up, up_scales, up_zeros = few_bits(bits, 16, INNER, HIDDEN, True)
    down, down_scales, down_zeros = few_bits(bits, 16, HIDDEN, INNER, True)
    operands = [f(TOKENS, HIDDEN), f(TOKENS, EXPERTS), up, up_scales, None, down, down_scales]
    operands += [None, None, None, None, up_zeros, down_zeros]
    known = [i for i in range(2, 13) if i not in late]
    want = run_ort("QMoE", operands, domain=MS, attributes=attributes, constants=known)[0]
    expanded = _tessera_ops.run_expansion("QMoE", MS, 1, attributes, operands, 1, known)
    got = run_tessera("QMoE", operands, domain=MS, attributes=attributes)[0] if expanded is None else expanded[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * np.abs(want).max())


def test_experts_that_are_refused():
    operands = [f(TOKENS, HIDDEN), f(TOKENS, EXPERTS), f(EXPERTS, INNER, HIDDEN), None, f(EXPERTS, HIDDEN, INNER)]
    rejected = lambda match, values, **attributes: check_rejected(
        "MoE", values, match=match, domain=MS, attributes={"k": 2} | attributes
    )
    rejected("between 1 and the 5 experts", operands, k=6)
    rejected("'geglu' is not served", operands, activation_type="geglu")
    rejected("swiglu needs fc3", operands, activation_type="swiglu")
    rejected("weights of fc2", [*operands[:4], f(EXPERTS, HIDDEN, INNER + 1)])
    rejected("router_probs", [operands[0], f(TOKENS + 1, EXPERTS), *operands[2:]])
    weights = [np.zeros((EXPERTS, n, m), np.uint8) for n, m in [(INNER, HIDDEN), (HIDDEN, INNER)]]
    quantised = [*operands[:2], weights[0], f(EXPERTS, INNER), None, weights[1], f(EXPERTS, HIDDEN)]
    for match, more in [
        ("quant_type 'fp4'", {"quant_type": "fp4"}),
        ("weights of 3 bits", {"fc2_expert_weight_bits": 3}),
        ("export the weights with weights_prepacked = 0", {"weights_prepacked": 1, "expert_weight_bits": 4}),
        ("weights of fc1", {"expert_weight_bits": 4}),
    ]:
        attributes = {"k": 2, "expert_weight_bits": 8} | more
        check_rejected("QMoE", quantised, match=match, domain=MS, attributes=attributes)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_gather_of_packed_bytes(bits, zeros, kind):
    table = packed(RNG.integers(0, 1 << bits, (7, 40)), bits)
    operands = [table, np.array([[0, 6, -1], [3, -7, 5]], np.int64), RNG.uniform(0.1, 1, (7, 3)).astype(kind)]
    if zeros:
        operands.append(packed(RNG.integers(0, 1 << bits, (7, 3)), bits))
    attributes = {"bits": bits, "block_size": 16, "quantize_axis": -1, "gather_axis": 0}
    check("GatherBlockQuantized", operands, domain=MS, attributes=attributes, constants=(0, 2, 3))


@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("gather", [0, 1, 2])
def test_gather_of_small_integers(kind, gather):
    info = ml_dtypes.iinfo(kind)
    table = RNG.integers(int(info.min), int(info.max) + 1, (5, 6, 33)).astype(kind)
    zeros = RNG.integers(int(info.min), int(info.max) + 1, (5, 6, 3)).astype(kind)
    operands = [table, np.array([0, -1, 4], np.int32), f(5, 6, 3), zeros]
    attributes = {"block_size": 16, "quantize_axis": 2, "gather_axis": gather}
    check("GatherBlockQuantized", operands, domain=MS, attributes=attributes, constants=(0, 2, 3))
    check("GatherBlockQuantized", operands[:3], domain=MS, attributes=attributes, constants=(0, 2))


def test_gather_outside_the_table_is_zero():
    operands = [packed(RNG.integers(0, 16, (3, 16)), 4), np.array([3, 0, -4], np.int64), f(3, 1)]
    attributes = {"bits": 4, "block_size": 16}
    y = check("GatherBlockQuantized", operands, domain=MS, attributes=attributes, constants=(0, 2))[0]
    assert not y[0].any() and y[1].any() and not y[2].any()


def test_gather_that_is_refused():
    table, indices, scales = packed(RNG.integers(0, 16, (3, 32)), 4), np.array([1], np.int64), f(3, 2)
    for match, operands, attributes in [
        ("must be 2, 4 or 8", [table, indices, scales], {"block_size": 16, "bits": 3}),
        ("power of two", [table, indices, scales], {"block_size": 20}),
        ("along axis 0", [table, indices, scales], {"block_size": 16, "gather_axis": 1}),
        ("do not fit a table", [table, indices, f(3, 3)], {"block_size": 16}),
    ]:
        check_rejected("GatherBlockQuantized", operands, match=match, domain=MS, attributes=attributes)


@pytest.mark.parametrize("kind", [0, 1])
def test_product_by_codes(kind):
    rows, depth, block = 7, 40, 32
    codes = RNG.integers(0, 256, rows * depth // 2).astype(np.uint8)
    scales = RNG.uniform(0.1, 1, -(-rows * depth // block)).astype(np.float32)
    options = dict(domain=MS, attributes={"K": depth, "N": rows, "block_size": block, "quant_type": kind})
    known = dict(rtol=1e-4, atol=1e-4, constants=(1, 2), infer_only_constants=(1, 2))
    check("MatMulBnb4", [f(2, 3, depth), codes, scales], **known, **options)
    check_rejected("MatMulBnb4", [f(3, depth), codes[:-1], scales], match="do not fit", **options)
    weights = run_tessera("MatMulBnb4", [np.eye(depth, dtype=np.float32), codes, scales], **options)[0]
    options["attributes"]["transB"] = 0  # of training; ONNX Runtime's CPU provider does not multiply so
    y = run_tessera("MatMulBnb4", [np.eye(rows, dtype=np.float32), codes, scales], **options)[0]
    np.testing.assert_array_equal(y, weights.T)

# SPDX-License-Identifier: Apache-2.0
"""Operators of domain com.microsoft for hidden states of several streams, their gates and the router of experts in
groups, beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import TesseraError, check, check_rejected, run_tessera

RNG = np.random.default_rng(53)
MS = dict(domain="com.microsoft")
NEAR = {np.float32: dict(rtol=1e-5, atol=1e-6), np.float16: dict(rtol=2e-3, atol=2e-3)}
KINDS = [np.float32, np.float16]


def f(*shape, kind=np.float32):
    return RNG.standard_normal(shape).astype(kind)


def same(op, inputs, attributes=None, kind=np.float32, **options):
    return check(op, inputs, attributes=attributes or {}, **MS, **NEAR[kind], **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_norm_of_branches(kind, lead):
    for scale in (None, f(6), f(4, 6), f(24)):
        operands = [f(*lead, 4, 6, kind=kind), *([] if scale is None else [scale])]
        same("BranchwiseRMSNorm", operands, {"epsilon": 1e-3}, kind)
        if lead:
            flat = [operands[0].reshape(*lead, 24), *operands[1:]]
            same("BranchwiseRMSNorm", flat, {"num_branches": 4}, kind)
    check_rejected("BranchwiseRMSNorm", [f(2, 25)], attributes={"num_branches": 4}, match="4 branches", **MS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(3,), (2, 3)])
def test_mixes_of_branches(kind, lead):
    streams, block = f(*lead, 4, 6, kind=kind), f(*lead, 6, kind=kind)
    for factor in (f(*lead, 4), f(*lead, 4, 1), f(*lead, 4, 6)):
        same("HyperConnectionPreMix", [streams, factor], {"reduction_scale": 0.5}, kind)
        for mix in ([], [f(*lead, 4, 4)]):
            same("HyperConnectionPostMix", [streams, block, factor, *mix], {}, kind)
    flat = streams.reshape(*lead, 24)
    for factor in (f(*lead, 4), f(*lead, 24), f(*lead, 4, 6)):
        same("HyperConnectionPreMix", [flat, factor], {"num_branches": 4}, kind)
    same("HyperConnectionPostMix", [flat, block, f(*lead, 4), f(*lead, 4, 4)], {"num_branches": 4}, kind)
    check_rejected("HyperConnectionPreMix", [streams, f(*lead, 5)], match="do not fit 4 branches", **MS)


@pytest.mark.parametrize("kind", KINDS)
def test_engram_gate(kind):
    operands = [f(*s, kind=kind) for s in ((2, 3, 4, 8), (2, 3, 4, 8), (2, 3, 8), (4, 8), (4, 8), (4, 8))]
    same("EngramGate", operands, {"epsilon": 1e-4}, kind, outputs=2)
    same("EngramGate", operands[:5], {}, kind)
    check_rejected("EngramGate", operands[:5], outputs=2, match="conv_norm_scale", **MS)


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_silu(kind):
    for shape in ((), (5,), (2, 3, 4)):
        x = f(*shape, kind=kind)
        same("ScaledSiLU", [x], {"alpha": 1.7}, kind)
        for scale in (np.array(0.3, np.float32), np.array(0.3, np.float16)):
            same("ScaledSiLU", [x, scale], {}, kind)


@pytest.mark.parametrize("groups", [(1, 1), (4, 2), (2, 1)])
@pytest.mark.parametrize("best", [1, 2, 9])
def test_router(groups, best):
    attributes = dict(n_group=groups[0], topk_group=groups[1], group_topk=best, top_k=3)
    bias = f(16)
    for x in (f(5, 16), f(2, 3, 16), np.round(f(6, 16) * 2) / 2):
        same("MoEGroupRouter", [x, bias], attributes)
        same("MoEGroupRouter", [x, np.zeros(16, np.float32)], {**attributes, "router_sentinel": -3.0})
    same("MoEGroupRouter", [f(5, 16, kind=np.float16), bias], attributes, np.float16)


def test_all_scores_of_a_router():
    asked = dict(outputs=[False, True, True])
    same("MoEGroupRouter", [f(5, 8), f(8)], {"top_k": 2}, **asked)
    same("MoEGroupRouter", [f(5, 256, kind=np.float32) / 16, f(8), f(8, 256)], {"top_k": 2}, **asked)
    check_rejected("MoEGroupRouter", [f(5, 8), f(7)], attributes={"top_k": 2}, match="number of experts", **MS)
    check_rejected("MoEGroupRouter", [f(5, 8), f(8)], attributes={"top_k": 9}, match="do not fit 8 experts", **MS)


KEYS = [
    RNG.integers(-1000, 1000, (3, 4)).astype(np.int32),
    RNG.integers(0, 1000, 5).astype(np.uint32),
    RNG.integers(-(2**60), 2**60, 4),
    RNG.integers(0, 2**60, 4).astype(np.uint64),
    f(3, 3),
    f(2, 3).astype(np.float64),
    np.array(["", "a", "ab", "abc", "abcd", "größer", "a longer text of many blocks"], object),
]


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: keys.dtype.name)
def test_murmur(keys):
    for attributes in ({}, {"seed": 42}, {"positive": 0, "seed": 7}):
        same("MurmurHash3", [keys], attributes)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("most, heads", [(2, 1), (3, 2), (4, 3)])
def test_hashes_of_the_last_tokens(kind, most, heads):
    columns = (most - 1) * heads
    ids = RNG.integers(0, 9, (2, 7)).astype(kind)
    multipliers = (RNG.integers(-(2**30), 2**30, most + 1) | 1).astype(kind)
    sizes = RNG.integers(5, 100, columns).astype(kind)
    attributes = dict(max_ngram_size=most, n_head_per_ngram=heads, pad_id=3)
    past, offsets = RNG.integers(0, 9, (2, most - 1)).astype(kind), RNG.integers(0, 99, columns).astype(kind)
    end, segments = np.array(4, kind), np.sort(RNG.integers(0, 3, (2, 7))).astype(np.int32)
    check_ids = lambda inputs, **more: same("NGramHashMapping", inputs, {**attributes, **more}, outputs=2)
    check_ids([ids, multipliers, sizes])
    check_ids([ids, multipliers, sizes, past, offsets])
    check_ids([ids, multipliers, sizes, None, None, end])
    for rest in ([past, offsets, end], [None, None, end, segments], [past, None, end, segments]):
        check_ids([ids, multipliers, sizes, *rest], reset_on_eos=1)
    check_ids([ids, multipliers, sizes, past, None, None, segments])
    check_ids([ids[:, :1].copy(), multipliers, sizes, past])
    with pytest.raises(TesseraError, match="give sizes of 1 or more"):
        run_tessera("NGramHashMapping", [ids, multipliers, sizes * 0], attributes=attributes, **MS)

# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention beside ONNX Runtime: prompts and steps, caches that grow and caches of a fixed length, sequences
of several lengths, packed operands, rotary positions, windows, softcap, bias and sinks."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, run_ort, run_tessera

RNG = np.random.default_rng(29)
B, N, G, H = 2, 6, 2, 16
TABLE = [
    np.asarray(t(np.outer(np.arange(32), 1 / 10 ** (np.arange(H // 2) / 4))), np.float32) for t in (np.cos, np.sin)
]


def f(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def i32(*values):
    return np.array(values, np.int32)


def operands(queries, lengths, total, cache=0, packed=False, rotary=False, positions=None, bias=None, sink=None):
    if packed:
        q, k, v = f(B, queries, (N + 2 * G) * H), None, None
    else:
        q, k, v = f(B, queries, N * H), f(B, queries, G * H), f(B, queries, G * H)
    past = [f(B, G, cache, H), f(B, G, cache, H)] if cache else [None, None]
    tables = TABLE if rotary else [None, None]
    inputs = [q, k, v, *past, i32(*lengths), np.array(total, np.int32), *tables, positions, bias, sink]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def same(inputs, attributes, lengths, queries, **options):
    """Equal where ONNX Runtime defines the results: rows of queries that exist, caches up to each length."""
    keywords = dict(domain="com.microsoft", attributes={"num_heads": N, "kv_num_heads": G, **attributes}, outputs=3)
    expected, got = (
        run_ort("GroupQueryAttention", inputs, **keywords),
        run_tessera("GroupQueryAttention", inputs, **keywords),
    )
    for b, length in enumerate(np.asarray(lengths) + 1):
        rows = min(queries, length)
        for result, (want, have) in enumerate(zip(expected, got)):
            assert want.shape == have.shape and want.dtype == have.dtype
            part = (b, slice(rows)) if result == 0 else (b, slice(None), slice(length))
            np.testing.assert_allclose(have[part], want[part], **({"rtol": 2e-5, "atol": 2e-5} | options))
    if min(lengths) + 1 >= queries and max(lengths) == min(lengths):
        check("GroupQueryAttention", inputs, **keywords, expected=got, infer_only_constants=(6,))


CASES = {
    "plain": {},
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 1.5},
    "window": {"local_window_size": 3},
    "window of one": {"local_window_size": 1},
    "smooth": {"smooth_softmax": 1},
    "rotary": {"do_rotary": 1},
    "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
    "all": {"do_rotary": 1, "local_window_size": 4, "softcap": 2.0, "scale": 0.5},
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_prompt(case, packed):
    attributes = CASES[case]
    rotary = "do_rotary" in attributes
    for lengths in ([6, 6], [6, 3]):
        same(operands(7, lengths, 7, packed=packed, rotary=rotary), attributes, lengths, 7)
        same(operands(7, lengths, 7, 12, packed, rotary), attributes, lengths, 7)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_steps(case, packed):
    attributes = CASES[case]
    rotary = "do_rotary" in attributes
    for cache in (9, 16):  # a cache that grows, and one that is long enough
        for lengths in ([9, 9], [9, 4]):
            same(operands(1, lengths, 10, cache, packed, rotary), attributes, lengths, 1)
    several = operands(3, [11], 12, 9, packed, rotary)  # several tokens behind a past: of one sequence only
    same([x[:1] if x is not None and x.ndim > 2 else x for x in several], attributes, [11], 3)


def test_positions_bias_and_sinks():
    positions = np.array([[3], [20]], np.int64)
    same(operands(1, [9, 9], 10, 9, rotary=True, positions=positions), {"do_rotary": 1}, [9, 9], 1)
    for shape in ((1, 1), (B, 1), (1, N), (B, N)):
        same(operands(5, [4, 4], 5, bias=f(*shape, 5, 5)), {}, [4, 4], 5)
        same(operands(1, [9, 9], 10, 16, bias=f(*shape, 1, 10)), {}, [9, 9], 1)
    same(operands(1, [9, 6], 10, 9, sink=f(N)), {"smooth_softmax": 1}, [9, 6], 1)


def kept(keys, cache, window):
    """Keys that a cache that slides holds of so many, by the operator's definition."""
    at_once = cache - window + 1
    return keys if keys <= cache else keys - at_once * -(-(keys - cache) // at_once)


@pytest.mark.parametrize("cache", [4, 5, 7])
@pytest.mark.parametrize("rotary", [False, True])
def test_caches_that_slide(cache, rotary):
    """Prompts and steps of a window of 4, of one length and of several, with caches of its length and of more."""
    attributes = {"local_window_size": 4, "sliding_window_cache": 1, "do_rotary": int(rotary)}
    keywords = dict(domain="com.microsoft", attributes={"num_heads": N, "kv_num_heads": G, **attributes}, outputs=3)
    for queries, lengths, total in ((3, [2, 2], 3), (9, [8, 8], 9), (1, [3, 3], 4), (1, [9, 6], 10),
                                    (1, [4, 11], 12), (3, [11], 12), (6, [7], 8)):  # fmt: skip
        inputs = [x[: len(lengths)] if x is not None and x.ndim > 2 else x
                  for x in operands(queries, lengths, total, cache, rotary=rotary)]  # fmt: skip
        expected = run_ort("GroupQueryAttention", inputs, **keywords)
        got = run_tessera("GroupQueryAttention", inputs, **keywords)
        for b, length in enumerate(np.asarray(lengths) + 1):
            rows = (b, slice(min(queries, length)))
            np.testing.assert_allclose(got[0][rows], expected[0][rows], rtol=2e-5, atol=2e-5)
            held = (b, slice(None), slice(kept(length, cache, 4)))
            for have, want in zip(got[1:], expected[1:]):
                assert have.shape == want.shape
                np.testing.assert_allclose(have[held], want[held], rtol=2e-5, atol=2e-5)
    keywords["outputs"] = 1
    check_rejected("GroupQueryAttention", operands(1, [9, 9], 10, 3), match="shorter than the window of 4", **keywords)


def test_half():
    inputs = [
        x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in operands(1, [9, 9], 10, 9)
    ]
    same(inputs, {}, [9, 9], 1, rtol=5e-3, atol=5e-3)


def test_bad_models():
    wanted = dict(domain="com.microsoft", outputs=1)
    heads = {"num_heads": N, "kv_num_heads": 4}
    check_rejected(
        "GroupQueryAttention", operands(3, [2, 2], 3), attributes=heads, match="must be a multiple", **wanted
    )
    heads["kv_num_heads"] = G
    inputs = operands(3, [2, 2], 3)
    inputs[1] = f(B, 3, 5)
    check_rejected("GroupQueryAttention", inputs, attributes=heads, match="width of key", **wanted)
    inputs = operands(1, [20, 20], 10, 9)
    with pytest.raises(Exception, match="seqlens_k holds 20"):
        run_tessera("GroupQueryAttention", inputs, attributes=heads, domain="com.microsoft")

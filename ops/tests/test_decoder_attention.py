# SPDX-License-Identifier: Apache-2.0
"""DecoderMaskedMultiHeadAttention and SparseAttention of domain com.microsoft beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from ort_compare import build_model, check, check_rejected, make_session, run_tessera

RNG = np.random.default_rng(59)
MS = dict(domain="com.microsoft")
NEAR = dict(rtol=1e-5, atol=1e-5)
N, H, M = 3, 4, 9  # heads, their size, places of a buffer


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def step(batch, past, **given):
    """Operands of one new token behind `past` others."""
    inputs = [f(batch, 1, N * H) for _ in range(3)]
    inputs += [given.get("mask"), given.get("bias"), f(batch, N, M, H), f(batch, N, M, H), i32(past)]
    inputs += [given.get("beams"), given.get("origins"), given.get("projection")]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def same(inputs, attributes=None, outputs=3):
    own = {"past_present_share_buffer": 1} if len(inputs) > 5 and inputs[5] is not None else {}
    keywords = dict(attributes={"num_heads": N, **own, **(attributes or {})}, outputs=outputs)
    check("DecoderMaskedMultiHeadAttention", inputs, **keywords, **MS, **NEAR)


@pytest.mark.parametrize("past", [0, 4, M - 1])
@pytest.mark.parametrize("batch", [1, 2])
def test_new_token(past, batch):
    mask = (RNG.random((batch, past + 1)) > 0.3).astype(np.int32)
    same(step(batch, past))
    same(step(batch, past), {"scale": 0.3})
    same(step(batch, past, mask=mask), {"mask_filter_value": -2.0})
    same(step(batch, past, mask=mask, bias=f(batch, N, 1, past + 1), projection=f(3 * N * H)))
    same(step(batch, past, bias=f(1, 1, 1, past + 1)))


@pytest.mark.parametrize("beams", [2, 3])
def test_beams(beams):
    batch, past = 2 * beams, 5
    origins = RNG.integers(0, beams, (2, beams, M)).astype(np.int32)
    mask = (RNG.random((batch, past + 1)) > 0.3).astype(np.int32)
    same(step(batch, past, beams=i32(beams), origins=origins))
    same(step(batch, past, beams=i32(beams), origins=origins, mask=mask))
    # ONNX Runtime gives the bias of the first head to all.
    same(step(batch, past, beams=i32(beams), origins=origins, mask=mask, bias=f(1, 1, 1, past + 1)))
    same(step(batch, past, beams=i32(1), origins=np.zeros((batch, 1, M), np.int32)))


def test_encoder():
    inputs = [f(2, 1, N * H), f(2, N, 6, H), f(2, N, 6, H)]
    mask = (RNG.random((2, 6)) > 0.3).astype(np.int32)
    same(inputs, outputs=1)
    same([*inputs, mask], {"mask_filter_value": -3.0, "scale": 0.7}, outputs=1)
    same([*inputs, *[None] * 7, f(3 * N * H)], outputs=1)


def test_what_is_refused():
    refused = lambda inputs, match, outputs=1, **attributes: check_rejected(
        "DecoderMaskedMultiHeadAttention", inputs, match=match, attributes={"num_heads": N, **attributes}, **MS,
        outputs=outputs,
    )  # fmt: skip
    refused(step(2, 3), "past_present_share_buffer = 1")
    refused([f(2, 1, 3 * N * H), None, None], "packed")
    refused([f(2, 2, N * H), f(2, N, 6, H), f(2, N, 6, H)], "must have shape")
    refused(step(2, 3), "qk is not served", 4, past_present_share_buffer=1)
    with pytest.raises(Exception, match="leaves no place"):
        run_tessera(
            "DecoderMaskedMultiHeadAttention", step(2, M), **MS,
            attributes={"num_heads": N, "past_present_share_buffer": 1},
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- SparseAttention

BLOCK, PLACES, G, SIZE = 16, 64, 2, 16


def layout(blocks):
    """Compressed rows of lower triangles of blocks whose diagonal is seen, padded with -1."""
    rows = [np.concatenate([[0], np.cumsum([row.sum() for row in part])]) for part in blocks]
    columns = [np.concatenate([np.flatnonzero(row) for row in part]) for part in blocks]
    width = max(map(len, columns))
    padded = [np.pad(c, (0, width - len(c)), constant_values=-1) for c in columns]
    return np.array(rows, np.int32), np.array(padded, np.int32)


def in_place(inputs, attributes):
    """ONNX Runtime's results; it wants past and present in one memory."""
    model, feeds, names = build_model("SparseAttention", inputs, attributes=attributes, outputs=3, **MS)
    session = make_session(model)
    binding = session.io_binding()
    memory = {name: value.copy() for name, value in feeds.items()}  # which the values do not hold
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in memory.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output(names[0])
    for name, past in zip(names[1:], ("x3", "x4")):
        binding.bind_ortvalue_output(name, values[past])
    session.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


@pytest.mark.parametrize("queries, past", [(64, 0), (40, 0), (1, 20), (1, 63), (5, 30)])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [None, 0, 1])
def test_sparse(queries, past, packed, rotary):
    heads, batch = 4, 2
    seen = np.tril(RNG.random((2, PLACES // BLOCK, PLACES // BLOCK)) > 0.5) | np.eye(PLACES // BLOCK, dtype=bool)
    widths = [heads, G, G]
    q, k, v = (f(batch, queries, n * SIZE) for n in widths)
    operands = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    total = past + queries
    tables = [] if rotary is None else [f(PLACES, SIZE // 2), f(PLACES, SIZE // 2)]
    inputs = [*operands, f(batch, G, PLACES, SIZE), f(batch, G, PLACES, SIZE), *layout(seen), i32(total),
              i32(*[total] * batch), *tables]  # fmt: skip
    attributes = dict(num_heads=heads, kv_num_heads=G, sparse_block_size=BLOCK)
    attributes |= {} if rotary is None else {"do_rotary": 1, "rotary_interleaved": rotary}
    want, keys, values = in_place(inputs, attributes)
    got = run_tessera("SparseAttention", inputs, attributes=attributes, outputs=3, **MS)
    np.testing.assert_allclose(got[0], want, rtol=2e-5, atol=2e-5)
    for have, expected in zip(got[1:], (keys, values)):
        np.testing.assert_allclose(have[:, :, :total], expected[:, :, :total], rtol=1e-5, atol=1e-5)
    check("SparseAttention", inputs, attributes=attributes, outputs=3, expected=got, **MS, static=False)


def test_layouts_that_do_not_fit():
    rows, columns = layout(np.tril(np.ones((1, 4, 4), bool)))
    q, k, v = (f(1, 4, n * SIZE) for n in (4, G, G))
    past = [f(1, G, PLACES, SIZE), f(1, G, PLACES, SIZE)]
    attributes = dict(num_heads=4, kv_num_heads=G, sparse_block_size=BLOCK)
    refused = lambda r, c, match: check_rejected(
        "SparseAttention", [q, k, v, *past, r, c, i32(4), i32(4)], attributes=attributes, match=match, **MS
    )
    refused(rows, columns + 4, "of 4")
    refused(rows[:, ::-1].copy(), columns, "do not rise")
    refused(np.repeat(rows, 3, 0), np.repeat(columns, 3, 0), "do not fit 4 heads")

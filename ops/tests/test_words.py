# SPDX-License-Identifier: Apache-2.0
"""WordConvEmbedding, MaxpoolWithMask and AttnLSTM of domain com.microsoft beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, run_tessera

RNG = np.random.default_rng(47)
MS = dict(domain="com.microsoft")
NEAR = dict(rtol=1e-5, atol=1e-5)


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_vectors_of_words(window):
    letters = np.zeros((6, 7), np.int32)
    for word, length in enumerate((7, 3, 1, 0, 5, 2)):
        letters[word, :length] = RNG.integers(1, 11, length)
    operands = [letters, f(5, 1, window, 3), f(5), f(11, 3)]
    got = run_tessera("WordConvEmbedding", operands, **MS)[0]
    assert not got[3].any()  # of an empty word, whose row ONNX Runtime leaves unwritten
    whole = [letters[letters[:, 0] > 0], *operands[1:]]
    check("WordConvEmbedding", whole, **MS, **NEAR)
    check("WordConvEmbedding", whole, attributes={"embedding_size": 5, "conv_window_size": window}, **MS, **NEAR)
    check_rejected("WordConvEmbedding", operands, match="embedding_size: 4", attributes={"embedding_size": 4}, **MS)


@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 6, 5), (1, 2, 4, 5, 3)])
@pytest.mark.parametrize("masks", ["all", "one"])
def test_pool_with_mask(shape, masks):
    rank = len(shape) - 2
    for kernel, stride, pad in ((2, 1, 0), (3, 2, 1), (2, 2, 0)):
        mask = RNG.integers(0, 4, shape if masks == "all" else (1, 1, *shape[2:])).clip(0, 1).astype(np.int32)
        attributes = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
        check("MaxpoolWithMask", [f(*shape), mask], attributes=attributes, **MS)
    check_rejected("MaxpoolWithMask", [f(*shape), mask[:, :, 1:]], match="cover", attributes=attributes, **MS)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_lstm_with_attention(direction, layer, more):
    directions, steps, batch, inputs, hidden = 1 + (direction == "bidirectional"), 4, 3, 5, 6
    memory, depth, attended, wide = 7, 4, 3, 2 if layer else 4
    w, r = f(directions, 4 * hidden, inputs + wide, scale=0.5), f(directions, 4 * hidden, hidden, scale=0.5)
    operands = [f(steps, batch, inputs), w, r]
    operands += [f(directions, 8 * hidden), np.array([4, 2, 3], np.int32)] if more else [None] * 2
    operands += (
        [f(directions, batch, hidden), f(directions, batch, hidden), f(directions, 3 * hidden)] if more else [None] * 3
    )
    operands += [f(directions, hidden, attended), f(directions, depth, attended), f(directions, attended)]
    operands.append(f(batch, memory, depth))
    operands.append(np.array([7, 3, 5], np.int32) if more else None)
    if layer:
        operands.append(f(directions, depth + hidden, wide))
    if operands[-1] is None:
        operands.pop()
    attributes = {"direction": direction, "hidden_size": hidden}
    if more:
        attributes |= {"clip": 0.8, "activations": ["Sigmoid", "Tanh", "Softsign"] * directions}
    check("AttnLSTM", operands, attributes=attributes, outputs=3, **MS, **NEAR)
    operands[1] = w[:, :, 1:]
    check_rejected("AttnLSTM", operands, match="input size in W", attributes=attributes, outputs=3, **MS)

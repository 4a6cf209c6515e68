# SPDX-License-Identifier: Apache-2.0
"""Linear attention with its gates and norms, causal convolutions and positions of several axes of domain com.microsoft,
beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import check, check_rejected

RNG = np.random.default_rng(31)
MS = dict(domain="com.microsoft")
NEAR = dict(rtol=1e-5, atol=1e-5)


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (2, 4)])
def test_linear_attention(rule, heads):
    queries, keys = heads
    operands = [f(2, 3, queries * 4, scale=0.4), f(2, 3, keys * 4, scale=0.4), f(2, 3, keys * 6), f(2, keys, 4, 6)]
    operands.append(-np.abs(f(2, 3, keys)) if rule.startswith("gated") else None)
    operands.append(np.abs(f(2, 3, keys)) if rule.endswith("delta") else None)
    attributes = {"q_num_heads": queries, "kv_num_heads": keys, "update_rule": rule}
    check("LinearAttention", operands, attributes=attributes, outputs=2, **MS, **NEAR)


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolution(dilation, last, activation):
    order = (lambda x: np.ascontiguousarray(x.transpose(0, 2, 1))) if last else (lambda x: x)
    operands = [order(f(2, 5, 4)), f(5, 1, 3), f(5), order(f(2, 5, 2 * dilation))]
    attributes = {"dilation": dilation, "channels_last": last, "activation": activation}
    check("CausalConvWithState", operands, attributes=attributes, outputs=2, **MS, **NEAR)
    check("CausalConvWithState", operands[:2], attributes=attributes, outputs=2, **MS, **NEAR)


def test_convolutions_that_are_refused():
    for name, value in [("ndim", 2), ("state_window", 1), ("input_channels", 3)]:
        check_rejected("CausalConvWithState", [f(2, 5, 4), f(5, 1, 3)], match=name, attributes={name: value}, **MS)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_of_three_axes(layout, interleaved, rank):
    operands = [f(2, 3, 5, 16) if rank == 4 else f(2, 5, 48), RNG.integers(0, 9, (3, 2, 5)), f(9, 8), f(9, 8)]
    attributes = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    attributes |= {"num_heads": 3} if rank == 3 else {}
    check("MRotaryEmbedding", operands, attributes=attributes, **MS, **NEAR)
    check("MRotaryEmbedding", operands, attributes={**attributes, "scale": 1.5}, **MS, **NEAR)
    check_rejected("MRotaryEmbedding", operands, match="8 columns", attributes={"mrope_section": [4, 2, 3]}, **MS)


def test_rotary_scales_what_it_turns():
    operands = [f(2, 3, 5, 16), RNG.integers(0, 9, (3, 2, 5)), f(9, 4), f(9, 4)]
    attributes = {"mrope_section": [2, 1, 1], "rotary_embedding_dim": 8, "num_heads": 3, "scale": 0.5}
    check("MRotaryEmbedding", operands, attributes=attributes, **MS, **NEAR)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_gates(kind):
    tolerance = dict(rtol=2e-3, atol=2e-3) if kind == np.float16 else NEAR
    a, b = f(2, 3, 4).astype(kind), f(2, 3, 4).astype(kind)
    check("LinearAttentionGate", [a, f(4), f(4), b], outputs=2, **MS, **tolerance)
    check("LinearAttentionGate", [a, f(4), f(4)], **MS, **tolerance)
    check("GatedAdd", [a, b, f(2, 3, 1).astype(kind)], **MS, **tolerance)
    for activation in ("silu", "swish", "sigmoid"):
        attributes = {"activation": activation, "epsilon": 1e-6}
        check("GatedRMSNorm", [a, f(2).astype(kind), b], attributes=attributes, **MS, **tolerance)
    check_rejected(
        "GatedRMSNorm", [a, f(2).astype(kind), b], match="'relu' is none", attributes={"activation": "relu"}, **MS
    )
    check_rejected("GatedAdd", [a, b, f(2, 3, 4).astype(kind), f(4, 1).astype(kind)], match="gate_weight", **MS)

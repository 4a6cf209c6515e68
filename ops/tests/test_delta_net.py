# SPDX-License-Identifier: Apache-2.0
"""GatedDeltaNet of domain com.microsoft, beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import TesseraError, check, check_rejected, run_tessera

RNG = np.random.default_rng(37)
NEAR = dict(domain="com.microsoft", rtol=1e-5, atol=1e-5)
BATCH, LENGTH, DEPTH, VALUE_DEPTH = 2, 3, 5, 4
(QUERY, KEY, VALUE, STARTS, DECAY, RATE, STATE, FACTOR, BIAS, CAPTURED, ACTIVE) = range(11)


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def operands(heads=2, value_heads=4, rule="gated_delta", lead=(BATCH * LENGTH,), wide=False, kind=np.float32):
    key = f(*lead, heads, DEPTH)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    x = [f(*lead, heads, DEPTH), key, f(*lead, value_heads, VALUE_DEPTH), None, None, None]
    if rule.startswith("gated"):
        x[DECAY] = -np.abs(f(*lead, value_heads, *((DEPTH,) if wide else ())))
    if rule.endswith("delta"):
        x[RATE] = np.abs(f(*lead, value_heads, scale=0.4))
    return [v if v is None else v.astype(kind) for v in x] + [f(BATCH, value_heads, VALUE_DEPTH, DEPTH)]


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (1, 3)])
def test_rules(rule, heads):
    x = operands(*heads, rule=rule)
    check("GatedDeltaNet", x, attributes={"update_rule": rule}, outputs=2, **NEAR)
    check("GatedDeltaNet", x, attributes={"update_rule": rule, "scale": 0.7}, **NEAR)


@pytest.mark.parametrize("gate", ["softplus", "qwen", "sigmoid", "kda"])
@pytest.mark.parametrize("wide", [False, True])
def test_gates(gate, wide):
    x = operands(wide=wide) + [f(4, scale=0.3), f(4, DEPTH) if wide else f(4)]
    attributes = {"gate_activation": gate, "beta_activation": "sigmoid", "gate_lower_bound": -2.0}
    check("GatedDeltaNet", x, attributes=attributes, outputs=2, **NEAR)
    if wide:
        check("GatedDeltaNet", [*x[:BIAS], x[BIAS].reshape(-1)], attributes=attributes, outputs=2, **NEAR)


def test_layouts():
    """Sequences of unequal lengths, an axis for sequences, and queries, keys and values in one tensor."""
    x = operands()
    for state in (x[STATE], None):
        uneven = [*x[:STARTS], np.array([0, 1, BATCH * LENGTH], np.int32), x[DECAY], x[RATE], state]
        check("GatedDeltaNet", uneven, outputs=2, **NEAR)
    check("GatedDeltaNet", operands(lead=(BATCH, LENGTH)), outputs=2, **NEAR)
    check("GatedDeltaNet", operands(lead=(BATCH, LENGTH))[:STATE], outputs=2, **NEAR)
    packed = np.concatenate([v.reshape(BATCH * LENGTH, -1) for v in x[:STARTS]], 1)
    check("GatedDeltaNet", [packed, None, None, *x[STARTS:]], outputs=2, **NEAR)


@pytest.mark.parametrize("size", [1.0, 1e-6, 0.0])
def test_norms(size):
    x = operands()
    x[QUERY] *= 3
    x[KEY] *= size
    check("GatedDeltaNet", x, attributes={"qk_l2_norm": 1}, outputs=2, **NEAR)


def test_halves():
    tolerance = dict(domain="com.microsoft", rtol=2e-3, atol=2e-3)
    check("GatedDeltaNet", operands(kind=np.float16), outputs=2, **tolerance)
    mixed = operands(kind=np.float16)
    mixed[DECAY], mixed[RATE] = mixed[DECAY].astype(np.float32), mixed[RATE].astype(np.float32)
    check("GatedDeltaNet", mixed, outputs=2, **tolerance)


@pytest.mark.parametrize("rule", ["linear", "gated_delta"])
@pytest.mark.parametrize("active", [None, 0, 1])
def test_updates_of_the_state(rule, active):
    x = operands(rule=rule, wide=rule != "linear") + [None, None, np.array([2, 9], np.int32)]
    x += [] if active is None else [np.array([active], np.int32)]
    check("GatedDeltaNet", x, attributes={"update_rule": rule, "state_update_capacity": 2}, outputs=3, **NEAR)


def test_what_is_refused():
    x = operands()
    without = lambda *gone: [None if i in gone else v for i, v in enumerate(x)]
    for match, given, attributes in [
        ("'decay' must be given", without(DECAY), {}),
        ("'beta' must be absent", x, {"update_rule": "gated"}),
        ("'update_rule' = 'fast' is none of", x, {"update_rule": "fast"}),
        ("'a_log' must be given", x, {"gate_activation": "kda"}),
        ("'initial_state' or 'cu_seqlens'", x[:STATE], {}),
        ("no multiple of", [*x[:VALUE], f(6, 3, VALUE_DEPTH), *x[STARTS:]], {}),
        ("'beta'", [*x[:RATE], f(6, 3), x[STATE]], {}),
        ("'capture_count' must be given", x, {"state_update_capacity": 1}),
    ]:
        check_rejected("GatedDeltaNet", given, match=match, attributes=attributes, domain="com.microsoft")
    starts = [*x[:STARTS], np.array([0, 4, 5], np.int32), *x[DECAY:]]
    with pytest.raises(TesseraError, match="must rise from 0 to the 6 tokens"):
        run_tessera("GatedDeltaNet", starts, domain="com.microsoft")

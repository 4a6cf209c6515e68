# SPDX-License-Identifier: Apache-2.0
"""What opsets 25 to 28 brought: new operators, element types of 2 and 6 bits, and corrected meanings. Expected values
are written here in NumPy. Where the installed onnx package and ONNX Runtime know the opset they are oracles too."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from ort_compare import check, check_rejected, infer, make_session, run_tessera

KNOWN = onnx.defs.onnx_opset_version()
RNG = np.random.default_rng(25)


def f(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def check_all(op, inputs, expected, *, opset, ort=True, **keywords):
    """Beside the expected arrays, and beside the reference evaluator and ONNX Runtime where they know the opset."""
    check(op, inputs, expected=expected, opset=opset, **keywords)
    if opset <= KNOWN:
        check(op, inputs, oracle="reference", opset=opset, **keywords)
        if ort:
            check(op, inputs, oracle="ort", opset=opset, **keywords)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_cumulative_products(dtype):
    x = RNG.integers(1, 4, (2, 3, 4)).astype(dtype)
    for axis in (0, 1, -1):
        inputs = [x, np.array(axis, np.int64)]
        check_all("CumProd", inputs, [np.cumprod(x, axis, dtype)], opset=26)
        back = np.flip(np.cumprod(np.flip(x, axis), axis, dtype), axis)
        check_all("CumProd", inputs, [back], opset=26, attributes={"reverse": 1})
    before = np.concatenate([np.ones_like(x[..., :1]), np.cumprod(x, -1, dtype)[..., :-1]], -1)
    check_all("CumProd", [x, np.array(-1, np.int64)], [before], opset=26, attributes={"exclusive": 1})


def convolved(x, w, bias, past):
    """(output, present) of a causal depthwise convolution, in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    taps = w.shape[2]
    past = np.zeros((*x.shape[:2], taps - 1)) if past is None else past.astype(np.float64)
    whole = np.concatenate([past, x], 2)
    y = sum(whole[:, :, k : k + x.shape[2]] * w[None, :, 0, k, None] for k in range(taps))
    y += 0 if bias is None else bias.astype(np.float64)[:, None]
    return y, whole[:, :, whole.shape[2] - (taps - 1) :]


@pytest.mark.parametrize("length, taps", [(5, 4), (1, 4), (2, 4), (3, 1)])
def test_causal_convolution(length, taps):
    x, w, bias, past = f(2, 3, length), f(3, 1, taps), f(3), f(2, 3, taps - 1)
    tolerance = {"rtol": 1e-5, "atol": 1e-5, "opset": 27, "outputs": 2}
    for given in (None, bias):
        for state in (None, past):
            y, present = (v.astype(np.float32) for v in convolved(x, w, given, state))
            check_all("CausalConvWithState", [x, w, given, state], [y, present], ort=taps > 1, **tolerance)
    y, present = (v.astype(np.float32) for v in convolved(x, w, bias, past))
    y = y / (1 + np.exp(-y))
    attributes = {"activation": "silu"}
    check_all("CausalConvWithState", [x, w, bias, past], [y, present], attributes=attributes, ort=taps > 1, **tolerance)


def test_causal_convolution_in_half():
    x, w = f(1, 2, 6, dtype=np.float16), f(2, 1, 3, dtype=np.float16)
    y, present = convolved(x, w, None, None)
    got = run_tessera("CausalConvWithState", [x, w], opset=27, outputs=2)
    assert got[0].dtype == np.float16 and (got[1] == present.astype(np.float16)).all()
    np.testing.assert_allclose(got[0].astype(np.float32), y, rtol=1e-3, atol=1e-3)


def attended(q, k, v, heads, groups, state=None, decay=None, beta=None, scale=None):
    """(output, present) of the recurrence of linear attention, token by token, in float64."""
    b, t = q.shape[:2]
    q, k, v = (x.reshape(b, t, n, -1).astype(np.float64) for x, n in ((q, heads), (k, groups), (v, groups)))
    s = np.zeros((b, groups, k.shape[3], v.shape[3])) if state is None else state.astype(np.float64)
    out = np.zeros((b, t, heads, v.shape[3]))
    for i in range(t):
        if decay is not None:
            s = s * np.exp(decay[:, i].reshape(b, groups, -1, 1))
        write = v[:, i]
        if beta is not None:
            write = beta[:, i].reshape(b, -1, 1) * (write - np.einsum("bgkv,bgk->bgv", s, k[:, i]))
        s = s + k[:, i][..., None] * write[:, :, None]
        seen = np.repeat(s, heads // groups, 1)
        out[:, i] = np.einsum("bhk,bhkv->bhv", q[:, i], seen) * (scale or 1 / np.sqrt(k.shape[3]))
    return [out.reshape(b, t, -1).astype(np.float32), s.astype(np.float32)]


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads, groups", [(2, 2), (4, 2), (3, 1)])
def test_linear_attention(rule, heads, groups):
    b, t, size, width = 2, 5, 4, 3
    q, k, v = f(b, t, heads * size), f(b, t, groups * size) / 2, f(b, t, groups * width)
    state = f(b, groups, size, width)
    for columns in (groups, groups * size):
        decay = -np.abs(f(b, t, columns)) if "gated" in rule else None
        beta = np.abs(f(b, t, groups if columns == groups else 1)) / 2 if "delta" in rule else None
        for past, scale in ((None, None), (state, 0.3)):
            attributes = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule, "scale": scale or 0.0}
            expected = attended(q, k, v, heads, groups, past, decay, beta, scale)
            tolerance = {"rtol": 2e-5, "atol": 2e-5, "outputs": 2, "opset": 27}
            inputs = [q, k, v, past, decay, beta]
            check_all("LinearAttention", inputs, expected, attributes=attributes, ort=False, **tolerance)


def test_linear_attention_refuses():
    q, heads = f(1, 2, 8), {"q_num_heads": 2, "kv_num_heads": 2}
    wrong = {"attributes": heads | {"update_rule": "linear"}, "opset": 27}
    check_rejected("LinearAttention", [q, q, q, None, f(1, 2, 2)], match="forbids decay", **wrong)
    check_rejected("LinearAttention", [q, q, q], match="needs decay", opset=27, attributes=heads)
    check_rejected("LinearAttention", [q, q, f(1, 3, 8)], match="value has shape", **wrong)
    uneven = {"q_num_heads": 3, "kv_num_heads": 2, "update_rule": "linear"}
    check_rejected("LinearAttention", [q, q, q], match="no multiple", opset=27, attributes=uneven)


def test_swiglu():
    a, b = f(3, 5), f(3, 5)
    for alpha in (1.0, 1.7):
        expected = a / (1 + np.exp(-np.float32(alpha) * a)) * b
        check_all("SwiGLU", [a, b], [expected], opset=28, attributes={"alpha": alpha}, rtol=1e-5, atol=1e-6, ort=False)
    check_rejected("SwiGLU", [a, f(5)], opset=28, match="one shape")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_shifts(dtype):
    x = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (4, 40), dtype=dtype)
    x[0, :3] = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0]
    bits = np.iinfo(dtype).bits
    for by in (np.array([0, 1, bits - 1, bits], dtype)[:, None], np.array([3], dtype)):
        inside = np.minimum(by, bits - 1).astype(dtype)
        right = np.where((by >= bits) & (x >= 0), x * 0, x >> inside)
        left = np.where(by >= bits, x * 0, x << inside)
        for direction, expected in (("RIGHT", right), ("LEFT", left)):
            keywords = {"opset": 28, "attributes": {"direction": direction}, "ort": False}
            check_all("BitShift", [x, by], [expected.astype(dtype)], **keywords)
    if dtype.startswith("int"):
        attributes = {"direction": "RIGHT"}
        minus = np.array([-1], dtype)
        check("BitShift", [x, minus], expected=[np.where(x < 0, -1, 0).astype(dtype)], opset=28, attributes=attributes)
        check_rejected("BitShift", [x, minus], opset=11, attributes=attributes, match="element type")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_remainders_with_the_sign_of_the_divisor(dtype):
    x = np.array([[4.5, -4.5, 0.0, -0.0, 7, -7, 1, -1, np.inf, np.nan, 3]], dtype)
    y = np.array([[2], [-2], [np.inf], [-np.inf], [0]], dtype)
    with np.errstate(all="ignore"):
        expected = np.mod(x, y)
    check_all("Mod", [x, y], [expected], opset=28, ort=False)
    assert (np.signbit(run_tessera("Mod", [x, y], opset=28)[0]) == np.signbit(expected))[~np.isnan(expected)].all()
    check_rejected("Mod", [x, y], opset=13, match="fmod")


def test_space_to_depth_in_both_orders():
    x, b = f(2, 3, 4, 6), 2
    apart = x.reshape(2, 3, 2, b, 3, b)
    for mode, order in (("DCR", (0, 3, 5, 1, 2, 4)), ("CRD", (0, 1, 3, 5, 2, 4))):
        expected = apart.transpose(order).reshape(2, 12, 2, 3)
        attributes = {"blocksize": b, "mode": mode}
        check_all("SpaceToDepth", [x], [expected], opset=28, attributes=attributes, ort=False)
        back = run_tessera("DepthToSpace", [expected], opset=13, attributes=attributes)[0]
        assert (back == x).all()


def test_ranges_of_half():
    for dtype in (np.float16, ml_dtypes.bfloat16):
        inputs = [np.array(v, dtype) for v in (1, 300, 0.5)]
        expected = np.arange(1, 300, 0.5, dtype=np.float32).astype(dtype)
        check("Range", inputs, expected=[expected], opset=27, attributes={"stash_type": 1})
    with pytest.raises(Exception, match="stash_type 11"):
        run_tessera("Range", inputs, opset=27, attributes={"stash_type": 11})


@pytest.mark.parametrize("name, low, high", [("int2", -2, 1), ("uint2", 0, 3)])
def test_two_bits(name, low, high):
    kind, dtype = getattr(T, name.upper(), 26 if name == "int2" else 25), getattr(ml_dtypes, name)
    x = np.arange(-8, 8, dtype=np.int32)
    got = run_tessera("Cast", [x], opset=25, attributes={"to": kind})[0]
    count = high - low + 1
    assert got.dtype == dtype and (got.astype(np.int32) == (x - low) % count + low).all()
    assert (run_tessera("Cast", [got], opset=25, attributes={"to": T.FLOAT})[0] == got.astype(np.float32)).all()
    other = np.dtype(ml_dtypes.uint2 if name == "int2" else ml_dtypes.int2)
    cast = run_tessera("BitCast", [got], opset=26, attributes={"to": 25 if name == "int2" else 26})[0]
    assert cast.dtype == other and (cast.astype(np.int32) & 3 == got.astype(np.int32) & 3).all()
    values, scale, zero = f(6, 8) * 3, np.exp(f(6, 2)), RNG.integers(low, high + 1, (6, 2)).astype(dtype)
    attributes = {"axis": 1, "block_size": 4}
    wide, shift = np.repeat(scale, 4, 1), np.repeat(zero.astype(np.int32), 4, 1)
    quantised = (np.rint(np.clip(values / wide, low - shift, high - shift)) + shift).astype(np.int32)
    got = run_tessera("QuantizeLinear", [values, scale, zero], opset=25, attributes=attributes)[0]
    assert got.dtype == dtype and (got.astype(np.int32) == quantised).all()
    real = run_tessera("DequantizeLinear", [got, scale, zero], opset=25, attributes=attributes)[0]
    assert (real == (quantised - shift).astype(np.float32) * wide).all()


@pytest.mark.parametrize("kind, name", [(27, "float6_e2m3fn"), (28, "float6_e3m2fn")])
def test_six_bits(kind, name):
    dtype = getattr(ml_dtypes, name)
    codes = np.arange(64, dtype=np.uint8).view(dtype)
    values = run_tessera("Cast", [codes], opset=28, attributes={"to": T.FLOAT})[0]
    assert (values == codes.astype(np.float32)).all()
    between = np.sort(np.unique(values))
    x = np.concatenate([between, (between[1:] + between[:-1]) / 2, f(500) * 4, f(200) / 8, [100, -100, 0.0]])
    x = x.astype(np.float32)
    got = run_tessera("Cast", [x], opset=28, attributes={"to": kind})[0]
    assert got.dtype == dtype and (got.astype(np.float32) == x.astype(dtype).astype(np.float32)).all()
    scale = np.array(0.5, np.float32)
    zero = np.zeros((), dtype)
    got = run_tessera("QuantizeLinear", [x, scale, zero], opset=28)[0]
    assert (got.astype(np.float32) == (x / scale).astype(dtype).astype(np.float32)).all()
    assert (run_tessera("DequantizeLinear", [got, scale], opset=28)[0] == got.astype(np.float32) * scale).all()


def spread(parameter, axis, shape):
    """A scale or zero point of a tensor, of an axis, or of blocks of 4 along it, for each element."""
    if parameter.ndim == 2:
        return np.repeat(parameter, 4, axis)
    return np.broadcast_to(parameter[:, None] if parameter.ndim else parameter, shape)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_one_formula_quantises(dtype):
    """From opset 25 on fp16 is rounded, and what does not fit int32 saturates, in every layout. The quotient is
    rounded to the scale's type."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for real in (np.float32, np.float16):
        for axis, block in ((None, 0), (0, 0), (0, 4), (1, 4)):
            x = f(8, 8, dtype=real) * 20
            x.flat[::7] = np.resize([np.inf, -np.inf, np.nan, 6e4, -6e4], x.flat[::7].shape)
            shape = () if axis is None else (8,) if block == 0 else (2, 8) if axis == 0 else (8, 2)
            scale, zero = np.exp(f(*shape)).astype(real), RNG.integers(low, high + 1, shape).astype(dtype)
            attributes = {} if axis is None else {"axis": axis} | ({"block_size": block} if block else {})
            s, z = (spread(v, axis, x.shape).astype(np.float32) for v in (scale, zero))
            with np.errstate(all="ignore"):
                quotient = (x.astype(np.float32) / s).astype(real).astype(np.float32)
            bounded = np.where(quotient > low - z, quotient, low - z)
            bounded = np.where(bounded < high - z, bounded, high - z)
            expected = (np.rint(bounded) + z).astype(np.int64).astype(dtype)
            keywords = {"opset": 25, "attributes": attributes}
            check("QuantizeLinear", [x, scale, zero], expected=[expected], **keywords)
            if KNOWN >= 25:
                check("QuantizeLinear", [x, scale, zero], **keywords)


def scores(q, k, mask, cap):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return (np.tanh(s / cap) * cap if cap else s) + mask


def softmax(s):
    hidden = np.isneginf(s).all(-1, keepdims=True)
    e = np.exp(s - np.where(hidden, 0, s.max(-1, keepdims=True)))
    return np.where(hidden, 0, e / np.where(hidden, 1, e.sum(-1, keepdims=True)))


@pytest.mark.parametrize("left, right, causal", [(-1, -1, 0), (2, 1, 0), (1, -1, 0), (-1, 0, 0), (2, 3, 1)])
@pytest.mark.parametrize("case", ["plain", "capped", "hidden", "cache", "outside"])
def test_attention_of_opset_25(case, left, right, causal):
    q, k, v = f(2, 3, 4, 8), f(2, 3, 6, 8), f(2, 3, 6, 5)
    past = [f(2, 3, 2, 8), f(2, 3, 2, 5)] if case == "cache" else []
    keys, values = (np.concatenate([p, x], 2) for p, x in zip(past, (k, v))) if past else (k, v)
    lengths = np.array([3, 6], np.int64) if case == "outside" else None
    offset = (lengths - 4 if case == "outside" else np.full(2, 2 if past else 0))[:, None, None, None]
    at, j = offset + np.arange(4)[:, None], np.arange(keys.shape[2])
    shown = (left < 0) | (at - j <= left)
    shown = shown & ((right < 0) | (j - at <= right)) & ((not causal) | (j <= at))
    mask = None
    if case == "hidden":
        mask = RNG.integers(0, 2, (4, 6)).astype(bool)
        mask[1] = False
        shown = shown & mask
    if case == "outside":
        shown = shown & (j < lengths[:, None, None, None])
    cap = 0.8 if case == "capped" else 0.0
    weights = softmax(scores(q, keys, np.where(shown, 0, -np.inf), cap))
    attributes = {"left_window_size": left, "right_window_size": right, "is_causal": causal, "softcap": cap}
    inputs = [q, k, v, mask, *(past or [None, None]), lengths]
    while inputs[-1] is None:
        inputs.pop()
    expected = [(weights @ values).astype(np.float32)]
    tolerance = {"rtol": 2e-5, "atol": 2e-5, "opset": 25, "attributes": attributes}
    check("Attention", inputs, expected=expected, **tolerance)
    if KNOWN >= 25:
        check("Attention", inputs, oracle="reference", **tolerance)


def test_scores_of_opset_25():
    q, k, v, mask = f(1, 2, 4, 8), f(1, 2, 6, 8), f(1, 2, 6, 8), f(4, 6)
    stages = [scores(q, k, 0, 0), scores(q, k, 0, 0.8), scores(q, k, mask, 0.8), softmax(scores(q, k, mask, 0.8))]
    for mode, expected in enumerate(stages):
        attributes = {"softcap": 0.8, "qk_matmul_output_mode": mode}
        got = run_tessera("Attention", [q, k, v, mask], opset=25, attributes=attributes, outputs=4)[3]
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare", "ReduceSum", "ReduceMax"])
def test_reductions_of_single_elements(op):
    x = np.abs(f(2, 3)) if op == "ReduceLogSum" else f(2, 3)
    one = {"ReduceL1": np.abs, "ReduceL2": np.abs, "ReduceLogSum": np.log, "ReduceSumSquare": np.square}
    keywords = {"attributes": {"noop_with_empty_axes": 1}, "rtol": 1e-6}
    inputs = [x, np.zeros(0, np.int64)]
    for opset in (18, 25):
        check_all(op, inputs, [one.get(op, np.copy)(x)], opset=opset, ort=opset == 18, **keywords)


@pytest.mark.parametrize("length", [None, 4, 6, 7, 12])
def test_inverse_of_half_a_spectrum(length):
    spectrum = np.stack([f(2, 5), f(2, 5)], -1)
    expected = np.fft.irfft(spectrum[..., 0] + 1j * spectrum[..., 1], length, axis=1)[..., None].astype(np.float32)
    size = [] if length is None else [np.array(length, np.int64)]
    for opset, attributes in ((17, {"axis": 1}), (20, {})):
        attributes = attributes | {"inverse": 1, "onesided": 1}
        check("DFT", [spectrum, *size], expected=[expected], opset=opset, attributes=attributes, rtol=1e-5, atol=1e-5)
    assert infer("DFT", [("float32", [2, -1, 2])], opset=20, attributes=attributes)[0][1] == [2, -1, 1]


def test_the_newest_oracle_takes_the_newest_opset():
    """Where the package is the newest, so is ONNX Runtime: the tests above then run beside both."""
    if KNOWN < 28:
        pytest.skip("an older onnx package is installed")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    value = onnx.helper.make_tensor_value_info("x", T.FLOAT, [2])
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 28)], ir_version=10)
    assert make_session(model).run(None, {"x": f(2)})[0].shape == (2,)

# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime's optimiser for transformers fuses: `tessera quantize` writes it as single operators with the same
values, so that products of an attention run on the NPU."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization.forms.contrib import spell_out
from tessera.quantization.prepare import prepare
from tests.oracle import oracle

MS = "com.microsoft"
B, S, D, N = 2, 5, 16, 2
RNG = np.random.default_rng(41)


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def model_of(nodes, feeds, constants, output="y", dynamic=False):
    """A model of nodes (operator, operands, results, attributes); operators of Microsoft's domain end in a star."""
    made = [
        helper.make_node(op.rstrip("*"), operands, results, domain=MS if op.endswith("*") else "", **attributes)
        for op, operands, results, attributes in nodes
    ]
    inputs = []
    for name, value in feeds.items():
        shape = ["batch", "tokens", *value.shape[2:]][: value.ndim] if dynamic else list(value.shape)
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(
        helper.make_graph(made, "fused", inputs, outputs, held), ir_version=8, opset_imports=opsets
    )


def spelled_out(model, feeds):
    """The model without operators of Microsoft's has the values of the model."""
    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    assert spell_out(prepared) == []
    assert {node.domain for node in prepared.graph.node} <= {"", "ai.onnx"}
    for name, want in oracle.run_plain(model, feeds).items():
        np.testing.assert_allclose(oracle.run_plain(prepared, feeds)[name], want, rtol=1e-4, atol=1e-5)


MASKS = {
    "none": None,
    "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    "pairs": RNG.integers(0, 2, (B, S, S)).astype(np.int32) | np.eye(S, dtype=np.int32),
    "lengths": np.array([3, 5], np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, causal):
    feeds = {"x": f(B, S, D)} | ({} if mask == "none" else {"m": MASKS[mask]})
    operands = ["x", "w", "b", "" if mask == "none" else "m", "", "bias"]
    constants = {"w": f(D, 3 * D, scale=0.3), "b": f(3 * D), "bias": f(1, N, S, S)}
    attributes = dict(num_heads=N, unidirectional=causal)
    spelled_out(model_of([("Attention*", operands, ["y"], attributes)], feeds, constants), feeds)
    sizes = attributes | {"qkv_hidden_sizes": [D, D, 6], "scale": 0.3, "mask_filter_value": -50.0}
    constants |= {"w": f(D, 2 * D + 6, scale=0.3), "b": f(2 * D + 6)}
    spelled_out(model_of([("Attention*", operands, ["y"], sizes)], feeds, constants), feeds)


@pytest.mark.parametrize("mask", ["none", "keys", "lengths"])
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention(mask, bias):
    feeds = {"q": f(B, S, D), "k": f(B, S, D), "v": f(B, S, 6)} | ({} if mask == "none" else {"m": MASKS[mask]})
    operands = ["q", "k", "v", "b" if bias else "", "" if mask == "none" else "m"]
    model = model_of([("MultiHeadAttention*", operands, ["y"], {"num_heads": N})], feeds, {"b": f(2 * D + 6)})
    spelled_out(model, feeds)


@pytest.mark.parametrize("op", ["BiasGelu*", "FastGelu*", "Gelu*", "QuickGelu*"])
def test_activations(op):
    feeds, biased = {"x": f(B, S, D, scale=2)}, op in ("BiasGelu*", "FastGelu*")
    spelled_out(model_of([(op, ["x", "b"] if biased else ["x"], ["y"], {})], feeds, {"b": f(D)}), feeds)


@pytest.mark.parametrize("swaps", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("constant", [False, True])
def test_products(swaps, constant):
    shapes = [(2, 3, 4), (2, 4, 5)]
    a, b = (f(*(s[:1] + s[:0:-1] if swap else s)) for s, swap in zip(shapes, swaps))
    attributes = {"alpha": 0.25, "transA": swaps[0], "transB": swaps[1]}
    feeds, held = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
    spelled_out(model_of([("FusedMatMul*", ["a", "b"], ["y"], attributes)], feeds, held), feeds)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embeddings(positions, segments):
    feeds = {"ids": RNG.integers(0, 9, (B, S)).astype(np.int32), "m": MASKS["keys"]}
    feeds |= {"at": np.tile(np.arange(S, dtype=np.int32)[::-1], (B, 1))} if positions else {}
    feeds |= {"of": RNG.integers(0, 2, (B, S)).astype(np.int32)} if segments else {}
    operands = ["ids", "of" if segments else "", "words", "places", "kinds" if segments else "", "scale", "shift", "m"]
    nodes = [("EmbedLayerNormalization*", operands + ["at"] * positions, ["e", "count"], {})]
    nodes += [("Cast", ["count"], ["c"], {"to": TensorProto.FLOAT}), ("ReduceMean", ["c"], ["r"], {"keepdims": 1})]
    nodes += [("Add", ["e", "r"], ["y"], {})]
    constants = {"words": f(9, D), "places": f(8, D), "kinds": f(2, D), "scale": f(D), "shift": f(D)}
    spelled_out(model_of(nodes, feeds, constants), feeds)


def encoder(dynamic=False, **attributes):
    """A layer of BERT as the optimiser leaves it."""
    feeds = {"ids": RNG.integers(0, 9, (B, S)).astype(np.int32), "m": MASKS["keys"]}
    names = ["words", "places", "scale", "shift", "w", "b", "o", "ob", "up", "ub", "down", "db"]
    shapes = [(9, D), (8, D), (D,), (D,), (D, 3 * D), (3 * D,), (D, D), (D,), (D, 32), (32,), (32, D), (D,)]
    constants = {name: f(*shape, scale=0.4) for name, shape in zip(names, shapes)}
    constants["scale"] += 1
    norm = lambda left, right, bias, result: (
        "SkipLayerNormalization*",
        [left, right, "scale", "shift", bias],
        [result],
        {"epsilon": 1e-5},
    )
    nodes = [
        ("EmbedLayerNormalization*", ["ids", "", "words", "places", "", "scale", "shift", "m"], ["e", "count"], {}),
        ("Attention*", ["e", "w", "b", "count"], ["a"], {"num_heads": N} | attributes),
        ("MatMul", ["a", "o"], ["p"], {}),
        norm("p", "e", "ob", "n"),
        ("MatMul", ["n", "up"], ["u"], {}),
        ("BiasGelu*", ["u", "ub"], ["g"], {}),
        ("MatMul", ["g", "down"], ["d"], {}),
        norm("d", "n", "db", "y"),
    ]
    return model_of(nodes, feeds, constants, dynamic=dynamic), feeds


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_encoder_on_the_npu(dynamic):
    model, feeds = encoder(dynamic)
    data = tessera.quantize(model, [feeds], engine="onnxruntime", config="npu256").model.SerializeToString()
    session = tessera.Session(data, "fsim", "npu256", check_races=True)
    got = session.run(None, feeds)[0]
    np.testing.assert_array_equal(got, tessera.Session(data, "reference").run(None, feeds)[0])
    assert session.report()["macs_cpu"] == 0 and session.report()["macs"] > 0
    want = oracle.run_plain(model, feeds)["y"]
    assert np.sum((got - want) ** 2) < 0.01 * np.sum(want**2)


def test_an_attention_alone():
    feeds = {"x": f(B, S, D)}
    nodes = [("Attention*", ["x", "w", "b"], ["y"], {"num_heads": N})]
    model = model_of(nodes, feeds, {"w": f(D, 3 * D, scale=0.3), "b": f(3 * D)})
    operators = [node.op_type for node in prepare(model, ["MatMul"]).graph.node]
    assert operators.count("MatMul") + operators.count("Gemm") == 5


PAST = 3
WITH_PAST = {
    "none": None,
    "keys": (RNG.random((B, PAST + S)) < 0.7).astype(np.int32) | np.eye(1, PAST + S, 2, dtype=np.int32),
    "lengths": np.array([6, PAST + S], np.int32),
}


@pytest.mark.parametrize("mask", ["none", "keys"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("length", [0, PAST])
def test_attention_with_a_past(mask, causal, length):
    feeds = {"x": f(B, S, D), "past": f(2, B, N, length, D // N)}
    feeds |= {} if mask == "none" else {"m": WITH_PAST[mask][:, PAST - length :]}
    operands = ["x", "w", "b", "" if mask == "none" else "m", "past"]
    nodes = [("Attention*", operands, ["a", "present"], {"num_heads": N, "unidirectional": causal})]
    nodes += [
        ("ReduceMean", ["present"], ["r"], {"axes": [0, 1, 2, 3, 4], "keepdims": 0}),
        ("Add", ["a", "r"], ["y"], {}),
    ]
    spelled_out(model_of(nodes, feeds, {"w": f(D, 3 * D, scale=0.3), "b": f(3 * D)}), feeds)


@pytest.mark.parametrize("mask", WITH_PAST)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("with_past", [False, True])
def test_multi_head_attention_with_a_past(mask, causal, with_past):
    feeds = {"q": f(B, S, D), "k": f(B, S, D), "v": f(B, S, D)}
    pasts = {name: f(B, N, PAST, D // N) for name in ("pk", "pv")} if with_past else {}
    if mask != "none":
        feeds["m"] = WITH_PAST[mask] if with_past or mask == "lengths" else WITH_PAST[mask][:, PAST:]
    if mask == "lengths" and not with_past:
        feeds["m"] = MASKS[mask]
    operands = ["q", "k", "v", "", "" if mask == "none" else "m", "", *pasts]
    nodes = [("MultiHeadAttention*", operands, ["a", "ok", "ov"], {"num_heads": N, "unidirectional": causal})]
    nodes += [("Concat", ["ok", "ov"], ["o"], {"axis": 2}), ("ReduceMean", ["o"], ["r"], {"keepdims": 0})]
    nodes += [("Add", ["a", "r"], ["y"], {})]
    spelled_out(model_of(nodes, feeds | pasts, {}), feeds | pasts)


def test_a_decoder_with_a_past_on_the_npu():
    """Both products of its attention are of bytes, and its cache is."""
    feeds = {"x": f(1, 1, D), "pk": f(1, N, PAST, D // N), "pv": f(1, N, PAST, D // N)}
    constants = {name: f(D, D, scale=0.3) for name in ("wq", "wk", "wv", "wo")}
    nodes = [("MatMul", ["x", "w" + name], [name], {}) for name in "qkv"]
    nodes += [("MultiHeadAttention*", ["q", "k", "v", "", "", "", "pk", "pv"], ["a", "ok", "ov"], {"num_heads": N})]
    nodes += [("MatMul", ["a", "wo"], ["y"], {})]
    model = model_of(nodes, feeds, constants)
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("ok", "ov"))
    made = tessera.quantize(model, [feeds], engine="onnxruntime", config="npu256").model
    data = made.SerializeToString()
    session = tessera.Session(data, "fsim", "npu256", check_races=True)
    for got, want in zip(session.run(None, feeds), tessera.Session(data, "reference").run(None, feeds)):
        np.testing.assert_array_equal(got, want)
    assert session.report()["macs_cpu"] == 0 and session.report()["macs"] > 0
    want = oracle.run_plain(model, feeds)["y"]
    assert np.sum((session.run(["y"], feeds)[0] - want) ** 2) < 0.01 * np.sum(want**2)


def test_an_attention_that_stays():
    """One whose past and present are one buffer stays in float, and a line says so."""
    feeds = {"x": f(B, S, D)}
    nodes = [("Attention*", ["x", "w", "b"], ["a"], {"num_heads": N, "past_present_share_buffer": 1})]
    nodes += [("MatMul", ["a", "o"], ["y"], {})]
    model = model_of(nodes, feeds, {"w": f(D, 3 * D, scale=0.3), "b": f(3 * D), "o": f(D, D)})
    with pytest.warns(UserWarning, match=r"\(Attention\) stays in float: past and present are one buffer"):
        prepared = prepare(model, ["MatMul"])
    assert "Attention" in {node.op_type for node in prepared.graph.node}

# SPDX-License-Identifier: Apache-2.0
"""Other spellings of transformers' parts: `tessera quantize` writes them so that the NPU computes them, and the float
function stays the same."""

import numpy as np
import pytest
from onnx import TensorProto
from tessera.quantization.prepare import prepare

import tessera
from tests.oracle import oracle
from tests.system import builders

PRODUCTS = ["Conv", "MatMul", "Gemm", "Einsum"]


def rng_of(seed):
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def same_function(model, feeds):
    """The prepared model, whose results are those of the model."""
    prepared = prepare(model, PRODUCTS)
    for name, want in oracle.run_plain(model, feeds).items():
        np.testing.assert_allclose(oracle.run_plain(prepared, feeds)[name], want, rtol=1e-4, atol=1e-5)
    return prepared


def operators(model):
    return {node.op_type for node in model.graph.node}


def on_the_npu(model, feeds, config):
    """Quantises the model; its results are the interpreter's, nothing but edges is on the CPU."""
    made = tessera.quantize(model, [feeds], engine="onnxruntime", config=config, numerics="close").model
    data = made.SerializeToString()
    session = tessera.Session(data, "fsim", config, numerics="close", check_races=True)
    got = session.run(None, feeds)
    want = tessera.Session(data, "reference", numerics="close").run(None, feeds)
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    info = session.info()
    assert info["programs"] == 1 and info["macs_cpu"] == 0, session.stats().layers
    float_result = np.concatenate([y.ravel() for y in oracle.run_plain(model, feeds).values()])
    error = np.concatenate([y.ravel() for y in got]) - float_result
    assert np.sum(error**2) < 0.01 * np.sum(float_result**2)
    return {op for layer in session.stats().layers if layer["placement"] == "cpu" for op in layer["op"].split("+")}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("bhwc,hkc->bhwk", (2, 3, 5, 8), (3, 7, 8)),
        ("bhwc,wkc->bhwk", (2, 3, 5, 8), (5, 7, 8)),
        ("bqhd,bkhd->bhqk", (2, 5, 3, 8), (2, 7, 3, 8)),
        ("ij,j->i", (4, 6), (6,)),
        ("abcd,cde->eab", (2, 3, 4, 5), (4, 5, 6)),
        ("bij,bij->b", (2, 3, 4), (2, 3, 4)),
    ],
)
def test_einsum_is_a_product(equation, left, right, constant):
    g, values = builders.Graph(17), rng_of(3)
    a, b = g.input(values(*left), "a"), values(*right)
    b = g.constant(b) if constant else g.input(b, "b")
    prepared = same_function(g.finish(g.node("Einsum", [a, b], "y", equation=equation)), g.feeds)
    assert "Einsum" not in operators(prepared) and "MatMul" in operators(prepared)


@pytest.mark.parametrize("equation", ["ij,jk->k", "ii,ij->j", "...j,jk->...k"])
def test_other_einsums_stay(equation):
    g, values = builders.Graph(17), rng_of(4)
    operands = [g.input(values(4, 4), "a"), g.input(values(4, 4), "b")]
    assert "Einsum" in operators(same_function(g.finish(g.node("Einsum", operands, "y", equation=equation)), g.feeds))


@pytest.mark.parametrize("opset", [13, 18])
def test_rows_over_their_length(opset, row_configs):
    """Attention of normalised queries and keys."""
    g, values = builders.Graph(opset), rng_of(5)
    x = g.input(values(2, 9, 24), "x")
    axes = {"axes": [-1]} if opset < 18 else {}
    more = [] if opset < 18 else [g.constant(np.array([-1]))]
    unit = {}
    for k, name in enumerate(("q", "k")):
        y = g.node("MatMul", [x, g.constant(values(24, 16))], name)
        length = g.node("ReduceL2", [y, *more], f"{name}_length", keepdims=1, **axes)
        least = g.node("Clip", [length, g.constant(np.float32(1e-12))], f"{name}_least")
        wide = g.node("Expand", [least, g.constant(np.array([2, 9, 16]))], f"{name}_wide")
        unit[k] = g.node("Div", [y, wide], f"{name}_unit")
    turned = g.node("Transpose", [unit[1]], "turned", perm=[0, 2, 1])
    weights = g.node("Softmax", [g.node("MatMul", [unit[0], turned], "scores")], "weights", axis=-1)
    model = g.finish(g.node("MatMul", [weights, g.node("MatMul", [x, g.constant(values(24, 16))], "v")], "y"))
    assert "ReduceL2" not in operators(same_function(model, g.feeds))
    assert on_the_npu(model, g.feeds, row_configs[1]) <= {"QuantizeLinear", "DequantizeLinear"}


def test_learned_queries_and_a_guarded_mask(row_configs):
    """As torch exports the attention of learned queries with a mask of booleans: a constant in front of a product, and
    a guard against rows that hide everything."""
    g, values = builders.Graph(17), rng_of(6)
    x = g.input(values(1, 11, 24), "x")
    seen = g.input((np.arange(11) < 7)[None, None].astype(np.uint8), "seen")
    keys = g.node("MatMul", [x, g.constant(values(24, 16))], "k")
    turned = g.node("Transpose", [keys], "turned", perm=[0, 2, 1])
    scores = g.node("MatMul", [g.constant(values(1, 5, 16) / 4), turned], "scores")
    condition = g.node("Cast", [seen], "condition", to=TensorProto.BOOL)
    operands = [condition, g.constant(np.float32(0)), g.constant(np.float32(-np.inf))]
    scores = g.node("Add", [scores, g.node("Where", operands, "mask")], "masked")
    weights = g.node("Softmax", [scores], "weights", axis=-1)
    guard = g.node("IsNaN", [weights], "guard")
    weights = g.node("Where", [guard, g.constant(np.float32(0)), weights], "guarded")
    model = g.finish(g.node("MatMul", [weights, g.node("MatMul", [x, g.constant(values(24, 16))], "v")], "y"))
    assert "IsNaN" not in operators(same_function(model, g.feeds))
    left = on_the_npu(model, g.feeds, row_configs[1])
    assert not left & {"Softmax", "MatMul", "Add"}, left


def test_a_normalisation_of_the_input(row_configs):
    """The input of a block is normalised and added behind: its bytes serve both."""
    g, values = builders.Graph(17), rng_of(7)
    x = g.input(values(3, 7, 24), "x")
    y = g.node("LayerNormalization", [x, g.constant(values(24)), g.constant(values(24))], "n", axis=-1)
    y = g.node("MatMul", [y, g.constant(values(24, 24) / 5)], "m")
    model = g.finish(g.node("MatMul", [g.node("Add", [x, y], "s"), g.constant(values(24, 9))], "y"))
    assert on_the_npu(model, g.feeds, row_configs[1]) <= {"QuantizeLinear", "DequantizeLinear"}

# SPDX-License-Identifier: Apache-2.0
"""Other spellings of transformers' parts: `tessera quantize` writes them so that the NPU computes them, and the float
function stays the same."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera
from tessera.quantization.graph import Graph
from tessera.quantization.prepare import prepare
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


@pytest.mark.parametrize(
    ("equation", "left", "right", "sizes"),
    [
        ("bsd,dhk->bshk", (2, 5, 8), (8, 3, 4), "bs"),
        ("bshk,bthk->bhst", (2, 5, 3, 4), (2, 7, 3, 4), "bst"),
        ("bshk,hkd->bsd", (2, 5, 3, 4), (3, 4, 6), "bs"),
        ("bhwc,hkc->bhwk", (2, 3, 5, 8), (3, 7, 8), "bw"),
        ("bd,d->b", (2, 8), (8,), "b"),
    ],
)
def test_einsum_of_dynamic_sizes_is_a_product(equation, left, right, sizes):
    g, values = builders.Graph(17), rng_of(8)
    operands = [g.input(values(*shape), name) for name, shape in (("l", left), ("r", right))]
    model = g.finish(g.node("Einsum", operands, "y", equation=equation))
    for port, labels in zip(model.graph.input, equation.split("->")[0].split(",")):
        for dim, label in zip(port.type.tensor_type.shape.dim, labels):
            if label in sizes:
                dim.dim_param = f"size {label}"
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    prepared = same_function(model, g.feeds)
    assert "Einsum" not in operators(prepared) and "MatMul" in operators(prepared)


@pytest.mark.parametrize("equation", ["ij,jk->k", "ii,ij->j", "...j,jk->...k"])
def test_other_einsums_stay(equation):
    g, values = builders.Graph(17), rng_of(4)
    operands = [g.input(values(4, 4), "a"), g.input(values(4, 4), "b")]
    assert "Einsum" in operators(same_function(g.finish(g.node("Einsum", operands, "y", equation=equation)), g.feeds))


@pytest.mark.parametrize(
    ("constant", "operand", "perm"),
    [
        (
            (2, 5, 8),
            (6, 8),
            [1, 0],
        ),  # a Fourier transform: real and imaginary parts of frames, as TensorFlow exports it
        ((5, 8), (6, 8), None),
        ((5, 8), (2, 3, 6, 8), [0, 1, 3, 2]),
        ((2, 3, 5, 8), (6, 8), [1, 0]),
    ],
)
def test_a_constant_in_front_becomes_weights(constant, operand, perm):
    g, values = builders.Graph(17), rng_of(6)
    turned = g.node("Transpose", [g.input(values(*operand), "x")], "turned", **({"perm": perm} if perm else {}))
    product = g.node("MatMul", [g.constant(values(*constant)), turned], "y")
    prepared = same_function(g.finish(product), g.feeds)
    (found,) = (node for node in prepared.graph.node if node.op_type == "MatMul")
    (weights,) = (tensor for tensor in prepared.graph.initializer if tensor.name == found.input[1])
    assert found.input[0] == "x" and list(weights.dims) == [8, np.prod(constant) // 8]


@pytest.mark.parametrize(("constant", "perm"), [((2, 3, 5, 8), [0, 1, 3, 2]), ((5, 3), [3, 0, 1, 2])])
def test_other_constants_in_front_stay(constant, perm):
    g, values = builders.Graph(17), rng_of(6)
    turned = g.node("Transpose", [g.input(values(2, 3, 6, 8), "x")], "turned", perm=perm)
    prepared = same_function(g.finish(g.node("MatMul", [g.constant(values(*constant)), turned], "y")), g.feeds)
    (found,) = (node for node in prepared.graph.node if node.op_type == "MatMul")
    assert found.input[0] not in g.feeds and "Transpose" in operators(prepared)


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


@pytest.mark.parametrize(
    ("heads", "options", "masked"),
    [
        (4, {}, None),
        (2, {"is_causal": 1}, None),
        (4, {"scale": 0.2}, "constant"),
        (1, {}, "input"),
        (4, {"softcap": 20.0}, None),
    ],
)
def test_the_attention_of_opset_23_is_its_definition(row_configs, heads, options, masked):
    """Behind the normalisation of the same opset; keys and values of as many heads, of fewer, and of one."""
    g, values = builders.Graph(23), rng_of(11)
    x = g.node("MatMul", [g.input(values(1, 16, 24), "x"), g.constant(values(24, 32))], "m")
    x = g.node("RMSNormalization", [x, g.constant(values(32))], "n")
    operands = [g.node("MatMul", [x, g.constant(values(32, n * 8) / 6)], c) for c, n in zip("qkv", (4, heads, heads))]
    hidden = np.where(np.tri(16, dtype=bool), 0, -np.inf).astype(np.float32)
    if masked:
        operands.append(g.constant(hidden) if masked == "constant" else g.input(np.maximum(hidden, -1e4), "mask"))
    y = g.node("Attention", operands, "a", q_num_heads=4, kv_num_heads=heads, **options)
    model = g.finish(g.node("MatMul", [y, g.constant(values(32, 32) / 6)], "y"))
    assert not {"Attention", "RMSNormalization", "Where"} & operators(same_function(model, g.feeds))
    left = on_the_npu(model, g.feeds, row_configs[1])
    assert not left & {"Softmax", "MatMul", "Mul"}, left


def test_a_normalisation_of_the_input(row_configs):
    """The input of a block is normalised and added behind: its bytes serve both."""
    g, values = builders.Graph(17), rng_of(7)
    x = g.input(values(3, 7, 24), "x")
    y = g.node("LayerNormalization", [x, g.constant(values(24)), g.constant(values(24))], "n", axis=-1)
    y = g.node("MatMul", [y, g.constant(values(24, 24) / 5)], "m")
    model = g.finish(g.node("MatMul", [g.node("Add", [x, y], "s"), g.constant(values(24, 9))], "y"))
    assert on_the_npu(model, g.feeds, row_configs[1]) <= {"QuantizeLinear", "DequantizeLinear"}


TOKENS, SIZE = 9, 16


def hidden_tokens(g, amount):
    """`amount` where a token is not to be seen: [1, 1, tokens]."""
    hidden = g.node("Sub", [g.constant(np.float32(1)), "seen"], "hidden")
    return g.node("Mul", [hidden, g.constant(np.float32(amount))], "mask")


def masked(spelling, g, s):
    """The shares of scores s [1, tokens, tokens], divided by 4, with a mask: the last tokens or those to come."""
    number = lambda value: g.constant(np.float32(value))
    causal = np.triu(np.ones((1, TOKENS, TOKENS), np.float32), 1)
    divided = lambda s: g.node("Div", [s, number(4)], "divided")
    if spelling == "factor behind the mask":
        s = g.node("Mul", [g.node("Add", [s, hidden_tokens(g, -1e4)], "masked"), number(0.25)], "scaled")
    if spelling == "division behind a constant mask":
        s = divided(g.node("Add", [g.constant(-1e4 * causal), s], "masked"))
    if spelling == "mask taken off":
        s = g.node("Sub", [divided(s), hidden_tokens(g, 1e4)], "masked")
    if spelling == "product and constant taken off":
        s = g.node("Mul", [divided(s), g.constant(1 - causal)], "kept")
        s = g.node("Sub", [s, g.constant(1e4 * causal)], "masked")
    if spelling == "lower limit":
        s = g.node("Add", [divided(s), hidden_tokens(g, np.finfo(np.float32).min)], "masked")
        s = g.node("Max", [s, number(np.finfo(np.float32).min)], "limited")
    if spelling == "movements behind the mask":
        s = g.node("Add", [divided(s), hidden_tokens(g, -1e4)], "masked")
        s = g.node("Reshape", [s, g.constant(np.int64([TOKENS, TOKENS]))], "rows")
        p = g.node("Softmax", [s], "p", axis=-1)
        return g.node("Reshape", [p, g.constant(np.int64([1, TOKENS, TOKENS]))], "whole")
    if spelling in ("exponentials", "exponentials less the largest"):
        s = g.node("Add", [divided(s), hidden_tokens(g, -1e4)], "masked")
        if spelling != "exponentials":
            s = g.node("Sub", [s, g.node("ReduceMax", [s], "largest", axes=[-1], keepdims=1)], "less")
        e = g.node("Exp", [s], "e")
        return g.node("Div", [e, g.node("ReduceSum", [e, g.constant(np.int64([-1]))], "sums", keepdims=1)], "p")
    if spelling == "zeros behind the softmax":
        p = g.node("Softmax", [g.node("Add", [divided(s), hidden_tokens(g, -1e4)], "masked")], "p", axis=-1)
        return g.node("Where", [g.node("Equal", ["seen", number(0)], "none"), number(0), p], "shares")
    return g.node("Softmax", [s], "p", axis=-1)


@pytest.mark.parametrize(
    "spelling",
    [
        "factor behind the mask",
        "division behind a constant mask",
        "mask taken off",
        "product and constant taken off",
        "lower limit",
        "movements behind the mask",
        "exponentials",
        "exponentials less the largest",
        "zeros behind the softmax",
    ],
)
def test_masks_in_any_spelling(spelling, row_configs):
    g, values = builders.Graph(17), rng_of(8)
    x = g.input(values(1, TOKENS, SIZE), "x")
    g.input((np.arange(TOKENS) < 6)[None, None].astype(np.float32), "seen")
    q, k, v = (g.node("MatMul", [x, g.constant(values(SIZE, SIZE) / 3)], name) for name in "qkv")
    s = g.node("MatMul", [q, g.node("Transpose", [k], "turned", perm=[0, 2, 1])], "scores")
    model = g.finish(g.node("MatMul", [masked(spelling, g, s), v], "y"))
    if "seen" not in {name for node in model.graph.node for name in node.input}:
        del model.graph.input[1], g.feeds["seen"]
    assert {"Exp", "Max", "ReduceMax"}.isdisjoint(operators(same_function(model, g.feeds)))
    made = tessera.quantize(model, [g.feeds], engine="onnxruntime", config=row_configs[1], numerics="close").model
    session = tessera.Session(made.SerializeToString(), "fsim", row_configs[1], numerics="close", check_races=True)
    got = session.run(None, g.feeds)[0]
    np.testing.assert_array_equal(got, oracle.run(made, g.feeds, intermediates=False).outputs["y"])
    left = {op for layer in session.stats().layers if layer["placement"] == "cpu" for op in layer["op"].split("+")}
    assert not left & {"MatMul", "Add", "Div", "Softmax", "Exp", "Max", "ReduceMax", "Reshape"}, left
    error = got - oracle.run_plain(model, g.feeds)["y"]
    assert np.sum(error**2) < 0.003 * np.sum(got**2)


@pytest.mark.parametrize("shape", [(TOKENS, SIZE), (1, TOKENS, SIZE), (2, SIZE, 3, 5)])
def test_a_batch_norm_of_a_sum(shape):
    """Behind a sum, in rows of channels, between transpositions, or of a picture."""
    g, values = builders.Graph(17), rng_of(9)
    x, channels = g.input(values(*shape), "x"), SIZE
    y = g.node("Relu", [x], "r")
    weights = g.constant(values(SIZE, SIZE, 1, 1) / 4 if len(shape) == 4 else values(SIZE, SIZE) / 4)
    y = g.node("Conv" if len(shape) == 4 else "MatMul", [y, weights], "m")
    y = g.node("Add", [y, x], "sum")
    turned = len(shape) == 3
    y = g.node("Transpose", [y], "turned", perm=[0, 2, 1]) if turned else y
    parameters = [
        g.constant(a) for a in (values(channels) + 2, values(channels), values(channels), values(channels) ** 2 + 1)
    ]
    y = g.node("BatchNormalization", [y, *parameters], "n")
    y = g.node("Transpose", [y], "back", perm=[0, 2, 1]) if turned else y
    last = g.constant(values(5, SIZE, 1, 1) if len(shape) == 4 else values(SIZE, 5))
    model = g.finish(g.node("Conv" if len(shape) == 4 else "MatMul", [y, last], "y"))
    assert "BatchNormalization" not in operators(same_function(model, g.feeds))
    assert on_the_npu(model, g.feeds, "npu256") <= {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("sum_read", [False, True])
def test_a_normalisation_of_two_sums(sum_read, row_configs):
    """SkipLayerNormalization with all its outputs, of which nobody reads the statistics."""
    g, values = builders.Graph(17), rng_of(10)
    x = g.input(values(1, TOKENS, SIZE), "x")
    a, b = (g.node("MatMul", [x, g.constant(values(SIZE, SIZE) / 4)], name) for name in "ab")
    operands = [a, b, *(g.constant(values(SIZE)) for _ in range(3))]
    g.node("SkipLayerNormalization", operands, "n", domain=builders.MS, epsilon=1e-5)
    g.nodes[-1].output.extend(["mean", "deviation", "sum"])
    y = g.node("MatMul", ["n", g.constant(values(SIZE, SIZE) / 4)], "m")
    if sum_read:
        y = g.node("Add", [y, "sum"], "together")
    model = g.finish(g.node("MatMul", [y, g.constant(values(SIZE, 5))], "y"))
    prepared = prepare(model, PRODUCTS)
    assert "SkipLayerNormalization" not in operators(prepared)
    assert on_the_npu(model, g.feeds, row_configs[1]) <= {"QuantizeLinear", "DequantizeLinear"}


def test_a_normalisation_behind_a_shape_that_nobody_infers(row_configs):
    """How many axes a tensor has is looked up in a run of the model."""
    g, values = builders.Graph(17), rng_of(11)
    x = g.input(values(1, TOKENS, SIZE), "x")
    y = g.node("MatMul", [x, g.constant(values(SIZE, SIZE) / 4)], "m")
    number = g.node("Cast", [g.node("Shape", [y], "extents")], "number", to=TensorProto.FLOAT)
    y = g.node("Reshape", [y, g.node("Cast", [number], "whole", to=TensorProto.INT64)], "reshaped")
    y = g.node("Add", [y, y], "twice")
    centred = g.node("Sub", [y, g.node("ReduceMean", [y], "mean", axes=[-1])], "centred")
    square = g.node("Pow", [centred, g.constant(np.float32(2))], "square")
    variance = g.node("Add", [g.node("ReduceMean", [square], "variance", axes=[-1]), g.constant(np.float32(1e-5))], "e")
    unit = g.node("Div", [centred, g.node("Sqrt", [variance], "root")], "unit")
    scaled = g.node("Add", [g.node("Mul", [unit, g.constant(values(SIZE))], "scaled"), g.constant(values(SIZE))], "n")
    model = g.finish(g.node("MatMul", [scaled, g.constant(values(SIZE, 5))], "y"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "tokens"
    made = tessera.quantize(model, [g.feeds], engine="onnxruntime", config=row_configs[1], numerics="close").model
    shapes = {"x": [1, TOKENS, SIZE]}
    session = tessera.Session(made.SerializeToString(), "fsim", row_configs[1], numerics="close", shapes=shapes)
    got = session.run(None, g.feeds)[0]
    left = {op for layer in session.stats().layers if layer["placement"] == "cpu" for op in layer["op"].split("+")}
    assert left <= {"QuantizeLinear", "DequantizeLinear"}
    error = got - oracle.run_plain(model, g.feeds)["y"]
    assert np.sum(error**2) < 0.01 * np.sum(got**2)


@pytest.mark.parametrize("difference_read", [False, True])
@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (18, 2)])
def test_a_normalisation_behind_two_stems(opset, axis, difference_read, row_configs):
    """Tokens of two pictures, as trackers have them. ONNX Runtime's optimiser moves their Transpose behind the
    difference from the mean, which somebody else may read, too."""
    g, values = builders.Graph(opset), rng_of(12)

    def tokens(name, size):
        x = g.node("Conv", [g.input(values(1, 3, size, size), name), g.constant(values(SIZE, 3, 4, 4) / 7)], f"{name}c")
        g.nodes[-1].attribute.append(helper.make_attribute("strides", [4, 4]))
        x = g.node("Reshape", [x, g.constant(np.int64([1, SIZE, size * size // 16]))], f"{name}f")
        x = g.node("Transpose", [x], f"{name}t", perm=[0, 2, 1])
        return g.node("Add", [x, g.constant(values(1, size * size // 16, SIZE) / 4)], f"{name}p")

    def mean(of, name):
        if opset < 18:
            return g.node("ReduceMean", [of], name, axes=[axis])
        return g.node("ReduceMean", [of, g.constant(np.int64([axis]))], name)

    y = g.node("Concat", [tokens("small", 8), tokens("large", 12)], "both", axis=1)
    centred = g.node("Sub", [y, mean(y, "mean")], "centred")
    square = g.node("Pow", [centred, g.constant(np.float32(2))], "square")
    variance = g.node("Add", [mean(square, "variance"), g.constant(np.float32(1e-5))], "e")
    unit = g.node("Div", [centred, g.node("Sqrt", [variance], "root")], "unit")
    scaled = g.node("Add", [g.node("Mul", [unit, g.constant(values(SIZE))], "scaled"), g.constant(values(SIZE))], "n")
    result = g.node("MatMul", [scaled, g.constant(values(SIZE, SIZE) / 4)], "m")
    result = g.node("Add", [result, centred if difference_read else y], "s")
    columns = g.node("Transpose", [result], "columns", perm=[0, 2, 1])
    picture = g.node("Reshape", [columns, g.constant(np.int64([1, SIZE, 1, 13]))], "picture")
    model = g.finish(g.node("Conv", [picture, g.constant(values(5, SIZE, 1, 1))], "y"))
    graph = Graph(same_function(model, g.feeds))
    means = {tuple(graph.shapes[node.output[0]]) for node in graph.nodes if node.op_type == "ReduceMean"}
    assert difference_read or means <= {(1, 13, 1)}
    left = on_the_npu(model, g.feeds, row_configs[1])
    assert difference_read or left <= {"QuantizeLinear", "DequantizeLinear"}

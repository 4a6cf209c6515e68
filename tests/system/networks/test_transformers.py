# SPDX-License-Identifier: Apache-2.0
"""Transformers in the forms of exporters, small and of odd shapes, quantised by the project's own quantiser: with row
lanes everything runs on the NPU in one program but what stands at the edges, and every machine gives the reference
interpreter's integers."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization import attention, measure
from tessera.quantization.graph import Graph
from tests.oracle import oracle
from tests.system import builders
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import transformers
from transformers import Shape

pytestmark = pytest.mark.usefixtures("compiled_once")
WORDS = 37
SMALL = {
    "deit": lambda: transformers.deit(Shape(17, 48, 2, 100, 2, batch=3), image=16, patch=4, classes=10),
    "bert": lambda: transformers.bert(Shape(13, 40, 5, 96, 2, words=WORDS, batch=3)),
    "gpt2": lambda: transformers.gpt2(Shape(15, 72, 3, 100, 2, words=WORDS)),
    "llama": lambda: transformers.llama(Shape(9, 48, 2, 64, 2, words=WORDS, batch=2)),
}
# What may stay on the CPU: conversions of inputs and outputs, the rows that token ids choose, the mask of tokens.
EDGES = {"QuantizeLinear", "DequantizeLinear", "Gather", "Reshape", "Unsqueeze", "Cast", "Sub", "Mul"}


def feeds_of(model, seed):
    """Random feeds; of a mask one row hides everything."""
    feeds = transformers.feeds_of(model, seed, WORDS)
    if "mask" in feeds:
        feeds["mask"][1] = 0
    return feeds


def quantised(name, numerics="close"):
    """(float model, quantised model, feeds)"""
    model = SMALL[name]()
    return (
        model,
        transformers.quantised(model, [feeds_of(model, seed) for seed in (2, 3)], numerics),
        feeds_of(model, 4),
    )


def same(got, expected):
    return all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", SMALL)
def test_whole_transformer(name, row_configs):
    model, made, feeds = quantised(name)
    data = made.SerializeToString()
    close = tessera.Session(data, "reference", numerics="close").run(None, feeds)
    for config in row_configs:
        session = tessera.Session(data, "fsim", config, numerics="close", check_races=True, poison=3)
        assert same(session.run(None, feeds), close), config
        left = {op for layer in session.stats().layers if layer["placement"] == "cpu" for op in layer["op"].split("+")}
        assert left <= EDGES, f"{config}: {left}"
        assert session.info()["programs"] == 1 and session.info()["macs_cpu"] == 0, config
        # What only scales scores keeps their bytes.
        assert not {"Mul", "Div"} & {layer["op"] for layer in session.stats().layers}, config
    assert same(tessera.Session(data, "sysc", row_configs[0], numerics="close").run(None, feeds), close)
    # Without row lanes softmax and normalisations are the CPU's: the same integers.
    without = tessera.Session(data, "fsim", "npu64", numerics="close")
    assert same(without.run(None, feeds), close)
    exact = tessera.Session(data, "reference").run(None, feeds)
    assert same(tessera.Session(data, "fsim", row_configs[0]).run(None, feeds), exact)
    # Of one integer model: differences of single steps in normalisations and float sums, and what follows of them.
    assert measure.output_distance(made, [feeds], [close]) > 20
    assert measure.output_distance(model, [feeds], [close]) > 10


def test_default_numerics_keep_normalisations_float():
    _, made, feeds = quantised("bert", "exact")
    data = made.SerializeToString()
    session = tessera.Session(data, "fsim", "npu256")
    assert same(session.run(None, feeds), tessera.Session(data, "reference").run(None, feeds))


def test_quantiser_keeps_what_the_machine_computes(row_configs):
    """The whole tool: with row lanes and close numerics softmax and normalisations are int8, without them float."""
    model = transformers.gpt2(Shape(15, 48, 2, 64, 1, words=WORDS))
    for config, numerics in ((row_configs[0], "close"), ("npu256", "exact")):
        made = tessera.quantize(
            model, [feeds_of(model, 2)], engine="onnxruntime", config=config, numerics=numerics
        ).model
        graph = Graph(made)
        rows = [n for n in graph.nodes if n.op_type in ("Softmax", "LayerNormalization")]
        read_by = {n.op_type for row in rows for n, _ in graph.readers[row.output[0]]}
        assert len(rows) == 4 and (read_by == {"QuantizeLinear"}) == (numerics == "close"), read_by


# --- masks
# -------------------------------------------------------------------------------------------------------------


def masked_scores(form, hidden):
    """A float softmax of masked scores between two products, and feeds; the mask hides all of one row."""
    g = builders.Graph(17)
    rng = np.random.default_rng(6)
    x = g.input(rng.standard_normal((2, 3, 7, 16)).astype(np.float32), "x")
    weights = g.constant(rng.standard_normal((16, 11)).astype(np.float32))
    scores = g.node("MatMul", [x, weights], "scores")
    seen = rng.random((1, 1, 7, 11)) < 0.6
    seen[0, 0, 2] = False
    lowest = g.constant(np.float32(hidden))
    if form == "constant":
        scores = g.node("Where", [g.constant(seen), scores, lowest], "masked")
    elif form == "at run time":
        seen = g.node("Cast", [g.input(seen.astype(np.uint8), "seen")], "condition", to=TensorProto.BOOL)
        scores = g.node("Where", [seen, scores, lowest], "masked")
    elif form == "turned":
        scores = g.node("Where", [g.constant(~seen), lowest, scores], "masked")
    else:
        mask = g.constant(np.where(seen, np.float32(0), np.float32(hidden)))
        scores = g.node("Add", [mask, scores], "masked")
    weights = g.node("Softmax", [scores], "weights", axis=-1)
    y = g.node("MatMul", [weights, g.constant(rng.standard_normal((11, 16)).astype(np.float32))], "y")
    return g.finish(y), g.feeds


@pytest.mark.parametrize("hidden", [-1e4, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("form", ["constant", "at run time", "turned", "sum"])
def test_masks_keep_the_scores_steps(form, hidden, row_configs):
    if hidden == -np.inf and form == "sum":
        pytest.skip("a row of which all is hidden is no number in the float model")
    model, feeds = masked_scores(form, hidden)
    made = transformers.quantised(model, [feeds])
    data = made.SerializeToString()
    session = tessera.Session(data, "fsim", row_configs[0])
    got = session.run(None, feeds)
    assert same(got, tessera.Session(data, "reference").run(None, feeds))
    on_cpu = {layer["op"] for layer in session.stats().layers if layer["placement"] == "cpu"}
    assert not on_cpu & {"QLinearSoftmax", "FixedShiftSoftmax"}
    if oracle.exact_cpu():
        assert same(got, list(oracle.run(made, feeds, intermediates=False).outputs.values()))
    want = oracle.run_plain(model, feeds)["y"]
    seen = np.ones(7, bool)
    # Hidden by a moderate number a row keeps its scores in float; hidden by infinity it is no number.
    seen[2] = hidden != -np.inf and (form != "sum" or hidden < -1e30)
    error = np.abs(got[0] - want)[:, :, seen].max()
    assert error < 0.1 * np.abs(want[:, :, seen]).max()


# --- normalisations
# ----------------------------------------------------------------------------------------------------


def spelled(root, divide, centred, affine=True, *, epsilon=1e-5, leak=False):
    """A spelled out normalisation of x, and whatever reads its inside (`leak`)."""
    nodes, constants = [], []

    def constant(value):
        constants.append(numpy_helper.from_array(np.asarray(value, np.float32), f"c{len(constants)}"))
        return constants[-1].name

    def node(op, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    a = node("Sub", ["x", node("ReduceMean", ["x"], axes=[-1])]) if centred else "x"
    square = node("Mul", [a, a]) if root == "Mul" else node("Pow", [a, constant(2)])
    sigma = node("Sqrt", [node("Add", [constant(epsilon), node("ReduceMean", [square], axes=[2])])])
    if divide == "Div":
        y = node("Div", [a, sigma])
    else:
        inverse = node("Reciprocal", [sigma]) if divide == "Reciprocal" else node("Div", [constant(1), sigma])
        y = node("Mul", [inverse, a])
    if affine:
        y = node("Mul", [y, constant(np.ones(8))])
        y = node("Add", [y, constant(np.ones(8))]) if centred else y
    outputs = [y, sigma] if leak else [y]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Graph(onnx.shape_inference.infer_shapes(model)), y


@pytest.mark.parametrize("root", ["Mul", "Pow"])
@pytest.mark.parametrize("divide", ["Div", "Reciprocal", "one over"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_spelled_out_normalisations_are_one_unit(root, divide, centred, affine):
    graph, y = spelled(root, divide, centred, affine)
    ((nodes, x, result),) = attention.normalisations(graph).values()
    assert (len(nodes), x, result) == (len(graph.nodes), "x", y)


def test_what_is_read_inside_is_no_unit():
    graph, _ = spelled("Mul", "Div", False, leak=True)
    assert not attention.normalisations(graph)

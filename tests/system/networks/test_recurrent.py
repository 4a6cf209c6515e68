# SPDX-License-Identifier: Apache-2.0
"""Recurrent cells. The model in which they are spelled out as products computes what ONNX Runtime's kernels compute,
for cells drawn at random; and behind `tessera quantize` their products run on the NPU, with the results of ONNX
Runtime."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization.data import ports_of
from tessera.quantization.forms import sizes
from tessera.quantization.forms.recurrent import GATES, PARAMETERS, is_cell
from tessera.quantization.graph import graphs_of
from tessera.quantization.prepare import prepare
from tests.system import validity

VALUE = helper.make_tensor_value_info
PRODUCTS = {"MatMul", "Gemm", "Conv"}


def cell(op, rng, *, directions=1, steps=5, batch=2, size=4, hidden=6, names=(), opset=17, fixed=True, **attributes):
    """A model of one cell with the operands `names` beside X, W and R; the states are inputs, the rest constants."""
    draw = lambda *shape: rng.uniform(-0.7, 0.7, shape).astype(np.float32)
    gates = GATES[op] * hidden
    constants = {"W": draw(directions, gates, size), "R": draw(directions, gates, hidden)}
    constants |= {"B": draw(directions, 2 * gates)} if "B" in names else {}
    constants |= {"P": draw(directions, 3 * hidden)} if "P" in names else {}
    extents = [steps, batch] if fixed else ["steps", "batch"]
    inputs, feed = [VALUE("X", 1, [*extents, size])], {"X": draw(steps, batch, size)}
    if "sequence_lens" in names:
        inputs.append(VALUE("sequence_lens", TensorProto.INT32, [extents[1]]))
        feed["sequence_lens"] = rng.integers(1, steps + 1, batch).astype(np.int32)
    for name in ("initial_h", "initial_c"):
        if name in names:
            inputs.append(VALUE(name, 1, [directions, extents[1], hidden]))
            feed[name] = draw(directions, batch, hidden)
    order = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
    order = order if op == "LSTM" else order[:6]
    operands = [name if name in constants or name in feed else "" for name in order]
    while not operands[-1]:
        operands.pop()
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    direction = "bidirectional" if directions == 2 else attributes.pop("direction", "forward")
    node = helper.make_node(op, operands, outputs, name="cell", hidden_size=hidden, direction=direction, **attributes)
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [VALUE(name, 1, None) for name in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed


def draw_cell(seed):
    rng = np.random.default_rng(seed)
    op = ["LSTM", "GRU", "RNN"][seed % 3]
    directions = int(rng.integers(1, 3))
    optional = ["B", "sequence_lens", "initial_h"] + ["initial_c", "P"] * (op == "LSTM")
    names = [name for name in optional if rng.random() < 0.5]
    more = {"direction": "reverse"} if directions == 1 and rng.random() < 0.4 else {}
    if rng.random() < 0.3:
        more["clip"] = float(rng.uniform(0.2, 1.0))
    if op == "GRU" and rng.random() < 0.5:
        more["linear_before_reset"] = 1
    if op == "LSTM" and rng.random() < 0.3:
        more["input_forget"] = 1
    steps = int(rng.choice([1, 2, 5]))
    opset = int(rng.choice([9, 13, 14, 17, 20]))
    return cell(op, rng, directions=directions, steps=steps, names=names, opset=opset, fixed=rng.random() < 0.6, **more)


def spelled(model):
    made = prepare(model, {"MatMul", *GATES})
    assert not any(is_cell(node) for graph in graphs_of(made.graph) for node in graph.node)
    validity.check(made, named=True)
    return made


@pytest.mark.parametrize("seed", range(36))
def test_a_spelled_out_cell_computes_what_the_cell_does(seed):
    model, feed = draw_cell(seed)
    validity.same(validity.outputs(model, feed), validity.outputs(spelled(model), feed), f"seed {seed}", 1e-5)


@pytest.mark.parametrize("name", PARAMETERS)
def test_activations(name):
    names = ["Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"]
    written = next(n for n in [*names, "Relu", "Tanh", "Sigmoid"] if n.lower() == name)
    alpha, beta = PARAMETERS[name]
    given = {"activation_alpha": [0.4]} if alpha is not None else {}
    given |= {"activation_beta": [0.3]} if beta is not None else {}
    model, feed = cell("RNN", np.random.default_rng(1), names=["B", "initial_h"], activations=[written], **given)
    validity.same(validity.outputs(model, feed), validity.outputs(spelled(model), feed), name, 1e-5)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_in_front(op):
    """ONNX Runtime has no kernel for this layout: the numbers are those of the other one, transposed."""
    names = ["B", "initial_h"] + ["initial_c"] * (op == "LSTM")
    model, feed = cell(op, np.random.default_rng(2), directions=2, names=names)
    want = validity.outputs(model, feed)
    want = {name: value.transpose([2, 0, 1, 3] if name == "Y" else [1, 0, 2]) for name, value in want.items()}
    model.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_value, dims[1].dim_value = dims[1].dim_value, dims[0].dim_value
    turned = {name: value.swapaxes(0, 1) for name, value in feed.items()}
    validity.same(want, validity.outputs(spelled(model), turned), op, 1e-5)


def on_the_npu(model, feeds, least_decibels, tolerance=1e-3, **options):
    """Quantises the model: all products are on the NPU; results are the interpreter's, ONNX Runtime's but for the last
    bits of gates in float, and near the float model's. An input of a product may so come to lie one step beside."""
    made = tessera.quantize(model, feeds, engine="onnxruntime", **options)
    assert made.macs_npu_share == 1
    validity.check(made.model, named=True)
    data, shapes = made.model.SerializeToString(), {name: list(value.shape) for name, value in feeds[0].items()}
    session = tessera.Session(data, "fsim", shapes=shapes, check_races=True)
    names = [value.name for value in model.graph.output]
    signal = noise = 0.0
    for feed in feeds:
        got = session.run(names, feed)
        integers, want = validity.outputs(made.model, feed), validity.outputs(model, feed)
        for name, value in zip(names, got, strict=True):
            np.testing.assert_allclose(value, integers[name], atol=tolerance)
            signal += float((want[name].astype(np.float64) ** 2).sum())
            noise += float(((value - want[name]).astype(np.float64) ** 2).sum())
    for name, value, other in zip(names, got, tessera.Session(data, "reference").run(names, feeds[-1]), strict=True):
        np.testing.assert_allclose(value, other, atol=tolerance, err_msg=name)
    assert 10 * np.log10(signal / noise) > least_decibels
    return made, session


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("op", GATES)
def test_quantised_cells(op, fixed):
    names = ["B", "initial_h", "sequence_lens"] + ["initial_c", "P"] * (op == "LSTM")
    rng = np.random.default_rng(3)
    drawn = [cell(op, rng, directions=2, steps=7, batch=3, size=8, hidden=16, names=names, fixed=fixed) for _ in "1234"]
    feeds = [{**feed, "sequence_lens": np.int32([7, 3, 5])} for _, feed in drawn]
    on_the_npu(drawn[0][0], feeds, 30)


def test_the_product_of_the_inputs_in_16_bits():
    """A large input beside small ones leaves these few steps in 8 bits. The products of the states stay in 8 bits."""
    rng = np.random.default_rng(6)
    drawn = [cell("LSTM", rng, steps=7, size=8, hidden=16, names=["B"], fixed=True) for _ in "123456"]
    model = drawn[0][0]
    weights = next(t for t in model.graph.initializer if list(t.dims) == [1, 64, 8])
    array = numpy_helper.to_array(weights).copy()
    array[..., 0] /= 200
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    feeds = [{**feed, "X": feed["X"] * np.float32([200] + [1] * 7)} for _, feed in drawn]
    made, _ = on_the_npu(model, feeds, 30)
    told = json.loads(made.model.metadata_props[-1].value)["in_16_bits"]
    assert len(told) == 1 and "/input/" in told[0]


@pytest.mark.parametrize("reset", [0, 1])
def test_a_cell_of_one_step(reset):
    rng = np.random.default_rng(4)
    drawn = [cell("GRU", rng, steps=1, hidden=16, names=["initial_h"], linear_before_reset=reset) for _ in "1234"]
    made, _ = on_the_npu(drawn[0][0], [feed for _, feed in drawn], 30)
    assert "Scan" not in {node.op_type for node in made.model.graph.node}


def test_a_long_sequence_costs_no_more_programs():
    """A thousand steps are one program for the inputs, and one for a step; its row has the cycles of all steps."""
    model, feed = cell("LSTM", np.random.default_rng(5), steps=1000, size=8, hidden=16, names=["B"])
    _, session = on_the_npu(model, [feed], 30, tolerance=0.02)
    assert session.info()["programs"] == 2
    rows = [row for row in session.stats()["layers"] if row["placement"] == "npu"]
    assert sorted(row.get("runs", 1) for row in rows) == [1, 1000]


def test_two_layers_and_what_stands_around_them():
    """Features, a bidirectional LSTM, a GRU over its results, and a classifier."""
    rng = np.random.default_rng(6)
    draw = lambda name, *shape: numpy_helper.from_array(rng.uniform(-0.5, 0.5, shape).astype(np.float32), name)
    held = [draw("k", 8, 4, 3), draw("W1", 2, 48, 8), draw("R1", 2, 48, 12), draw("B1", 2, 96)]
    held += [
        draw("W2", 1, 48, 24),
        draw("R2", 1, 48, 16),
        draw("w", 16, 5),
        numpy_helper.from_array(np.int64([0, 0, -1]), "s"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 1]),
        helper.make_node(
            "LSTM", ["t", "W1", "R1", "B1"], ["y1"], hidden_size=12, direction="bidirectional", name="first"
        ),
        helper.make_node("Transpose", ["y1"], ["y1t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["y1t", "s"], ["z1"]),
        helper.make_node("GRU", ["z1", "W2", "R2"], ["", "y2"], hidden_size=16, name="second"),
        helper.make_node("MatMul", ["y2", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [VALUE("x", 1, [2, 4, 9])], [VALUE("y", 1, [1, 2, 5])], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [{"x": rng.standard_normal((2, 4, 9)).astype(np.float32)} for _ in range(8)]
    on_the_npu(model, feeds, 25, tolerance=0.05)
    kept = tessera.quantize(model, feeds, engine="onnxruntime", keep_float=["second"])
    assert 0.4 < kept.macs_npu_share < 1


def test_a_cell_of_another_form_stays_float():
    model, feed = cell("LSTM", np.random.default_rng(7), names=["B"])
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == "R")
    model.graph.initializer.remove(weights)
    model.graph.input.append(VALUE("R", 1, list(weights.dims)))
    model.graph.node.append(helper.make_node("MatMul", ["Y", "v"], ["z"]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((6, 3), np.float32), "v"))
    model.graph.output.append(VALUE("z", 1, None))
    feed["R"] = numpy_helper.to_array(weights)
    with pytest.warns(
        UserWarning, match="'cell' .LSTM. stays in float on the CPU: its operand R is no float32 constant"
    ):
        made = tessera.quantize(model, [feed], engine="onnxruntime")
    assert any(is_cell(node) for node in made.model.graph.node)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_cells_of_the_dynamic_quantiser(direction, weights, batch):
    """DynamicQuantizeLSTM: both products are integer ones on the NPU, and every bit is ONNX Runtime's on one thread."""
    rng, steps, size, hidden = np.random.default_rng(8), 4, 8, 12
    ways, wide = 2 if direction == "bidirectional" else 1, 48
    draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
    ends = np.iinfo(weights)
    columns = bool(batch == 3)
    scale = lambda: rng.uniform(0.001, 0.02, (ways, wide) if columns else (ways,)).astype(np.float32)
    zero = 0 if ends.min < 0 and columns else 5
    held = {
        "W": rng.integers(ends.min, ends.max + 1, (ways, size, wide)).astype(weights),
        "R": rng.integers(ends.min, ends.max + 1, (ways, hidden, wide)).astype(weights),
        "B": draw(ways, 2 * wide),
        "P": draw(ways, 3 * hidden),
        "W_scale": scale(),
        "W_zero": np.full((ways, wide) if columns else (ways,), zero, weights),
        "R_scale": scale(),
        "R_zero": np.full((ways, wide) if columns else (ways,), zero, weights),
    }
    feed = {"X": draw(steps, batch, size)}
    names = ["X", "W", "R", "B", "", "", "", "", "W_scale", "W_zero", "R_scale", "R_zero"]
    if batch == 3:
        names[5:8] = ["h", "c", "P"]
        feed |= {"h": draw(ways, batch, hidden), "c": draw(ways, batch, hidden)}
    more = {"domain": "com.microsoft", "hidden_size": hidden, "direction": direction, "name": "cell"}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["Y", "Y_h", "Y_c"], **more)
    ports = [VALUE(name, 1, value.shape) for name, value in feed.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph([node], "g", ports, [VALUE(name, 1, None) for name in node.output], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    want = validity.outputs(model, feed)
    for device in ("fsim", "reference"):
        session = tessera.Session(model.SerializeToString(), device)
        for name, got in zip(node.output, session.run(None, feed), strict=True):
            np.testing.assert_array_equal(got, want[name], err_msg=name)
    assert tessera.Session(model.SerializeToString()).info()["macs_npu_share"] == 1


def loop_of_tensorflow(rng, kind, *, given, steps=6, size=16, hidden=24):
    """A cell in a Loop or Scan whose weights are states that no step changes, as from TensorFlow; `given`: a fixed
    state is also a result of each step."""
    draw = lambda *shape: numpy_helper.from_array(rng.uniform(-0.5, 0.5, shape).astype(np.float32), f"c{shape}")
    w, r, h0 = draw(size, hidden), draw(hidden, hidden), draw(1, hidden)
    nodes = [
        helper.make_node("MatMul", ["row", "w_in"], ["a"], "from_input"),
        helper.make_node("MatMul", ["h", "r_in"], ["b"], "from_state"),
        helper.make_node("Add", ["a", "b"], ["ab"], "sum"),
        helper.make_node("Tanh", ["ab"], ["next"], "tanh"),
        helper.make_node("Identity", ["next"], ["shown"], "show"),
        helper.make_node("Identity", ["r_in"], ["r_out"], "pass"),
    ]
    states = [VALUE("h", 1, ["n", hidden]), VALUE("w_in", 1, [size, hidden]), VALUE("r_in", 1, [hidden, hidden])]
    results = [VALUE("next", 1, None), VALUE("w_in", 1, None), VALUE("r_out", 1, None), VALUE("shown", 1, None)]
    results += [VALUE("w_in", 1, None)] if given else []
    if kind == "Loop":
        nodes[:0] = [
            helper.make_node("Gather", ["x", "k"], ["row"], "row", axis=0),
            helper.make_node("Identity", ["go"], ["go_on"], "go_on"),
        ]
        takes = [VALUE("k", TensorProto.INT64, []), VALUE("go", TensorProto.BOOL, [])]
        body = helper.make_graph(nodes, "body", [*takes, *states], [VALUE("go_on", TensorProto.BOOL, []), *results])
        operands, more = ["trips", "", h0.name, w.name, r.name], {}
    else:
        body = helper.make_graph(nodes, "body", [*states, VALUE("row", 1, [1, size])], results)
        operands, more = [h0.name, w.name, r.name, "x"], {"num_scan_inputs": 1}
    made = ["last", "w_last", "r_last", "all"] + ["w_all"] * given
    loop = helper.make_node(kind, operands, made, "loop", body=body, **more)
    outputs = [VALUE(name, 1, None) for name in made]
    held = [w, r, h0, numpy_helper.from_array(np.int64(steps), "trips")]
    graph = helper.make_graph([loop], "g", [VALUE("x", 1, [steps, 1, size])], outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", ["Loop", "Scan"])
def test_weights_that_are_states_of_a_loop(kind, given):
    """NumPy judges: ONNX Runtime 1.32 computes a Scan that passes a state on otherwise."""
    rng = np.random.default_rng(5)
    model = loop_of_tensorflow(rng, kind, given=given)
    feeds = [{"x": rng.normal(size=(6, 1, 16)).astype(np.float32)} for _ in range(8)]
    made = spelled_loop(model)
    w, r, h = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer[:3])
    want = {"w_last": w, "r_last": r, "all": []}
    for row in feeds[0]["x"]:
        h = np.tanh(row @ w + h @ r)
        want["all"].append(h)
    want |= {"last": h, "all": np.stack(want["all"])} | ({"w_all": np.stack([w] * 6)} if given else {})
    validity.same(want, validity.outputs(made, feeds[0]), kind, 1e-5)
    on_the_npu(made, feeds, 25)


def spelled_loop(model):
    made = prepare(model, PRODUCTS)
    validity.check(made, named=True)
    (loop,) = [node for node in made.graph.node if node.op_type in ("Loop", "Scan")]
    assert "w_in" not in {value.name for value in loop.attribute[0].g.input}
    return made


def test_a_float_input_of_tokens_is_no_sound():
    table = numpy_helper.from_array(np.zeros((9, 4), np.float32), "table")
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "i"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [VALUE("x", 1, ["n", "t"])], [VALUE("y", 1, None)], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (port,) = ports_of(model)
    assert port.whole and sizes.find(model, [port]) == {"x": [1, 128]}


def test_a_loop_whose_state_grows():
    """As decoders of tables are exported: a scalar stands in for the first state, which then grows by a row a step."""
    rng = np.random.default_rng(8)
    w = numpy_helper.from_array(rng.uniform(-0.5, 0.5, (16, 16)).astype(np.float32), "w")
    ones = numpy_helper.from_array(np.array([1, 16], np.int64), "row_shape")
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["p"], "product"),
        helper.make_node("Tanh", ["p"], ["h_next"], "tanh"),
        helper.make_node("Gather", ["x", "k"], ["row"], "row", axis=0),
        helper.make_node("Add", ["h_next", "row"], ["h_out"], "add"),
        helper.make_node("Reshape", ["h_out", "row_shape"], ["flat"], "flat"),
        helper.make_node("Equal", ["k", "none"], ["first"], "first"),
        helper.make_node(
            "If",
            ["first"],
            ["seen_out"],
            "grow",
            then_branch=helper.make_graph(
                [helper.make_node("Identity", ["flat"], ["t"], "begin")], "then", [], [VALUE("t", 1, None)]
            ),
            else_branch=helper.make_graph(
                [helper.make_node("Concat", ["seen", "flat"], ["e"], "more", axis=0)], "else", [], [VALUE("e", 1, None)]
            ),
        ),
        helper.make_node("Identity", ["go"], ["go_on"], "go_on"),
    ]
    takes = [VALUE("k", TensorProto.INT64, []), VALUE("go", TensorProto.BOOL, [])]
    states = [VALUE("h", 1, [1, 16]), onnx.ValueInfoProto(name="seen", type=VALUE("seen", 1, None).type)]
    results = [VALUE("go_on", TensorProto.BOOL, []), VALUE("h_out", 1, None), VALUE("seen_out", 1, None)]
    body = helper.make_graph(nodes, "body", [*takes, *states], results)
    loop = helper.make_node("Loop", ["trips", "", "h0", "start"], ["last", "all"], "loop", body=body)
    held = [w, ones, numpy_helper.from_array(np.int64(5), "trips"), numpy_helper.from_array(np.int64(0), "none")]
    held += [
        numpy_helper.from_array(np.zeros((1, 16), np.float32), "h0"),
        numpy_helper.from_array(np.float32(0), "start"),
    ]
    outputs = [VALUE("last", 1, None), VALUE("all", 1, None)]
    graph = helper.make_graph([loop], "g", [VALUE("x", 1, [5, 1, 16])], outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    on_the_npu(model, [{"x": rng.normal(size=(5, 1, 16)).astype(np.float32)} for _ in range(8)], 20)

# SPDX-License-Identifier: Apache-2.0
"""Branches of If. Their products run on the NPU behind `tessera quantize`. Where one makes no sense for the shapes that
came, the other branch runs, equal to ONNX Runtime, and the one that is taken all the same fails with one line that
names its node. Voice detectors have them, with a network for each sampling rate."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tessera
from tessera.quantization.graph import outer_reads
from tests.oracle import oracle


def branch(name, window):
    """x is brought to one window, convolved, and reduced to one number a channel."""
    kernel = np.random.default_rng(window).standard_normal((3, 1, window)).astype(np.float32)
    nodes = [
        helper.make_node(
            "Constant", [], [f"{name}_shape"], value=onnx.numpy_helper.from_array(np.int64([1, 1, window]))
        ),
        helper.make_node("Constant", [], [f"{name}_kernel"], value=onnx.numpy_helper.from_array(kernel)),
        helper.make_node("Reshape", ["x", f"{name}_shape"], [f"{name}_row"], name=f"{name}_reshape"),
        helper.make_node("Conv", [f"{name}_row", f"{name}_kernel"], [f"{name}_y"], name=f"{name}_conv"),
    ]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, None)])


def model(constant=None, nested=False, other=6):
    """An If over the input `wide`, or over a constant; nested: inside another If that is always taken.
    other: the window of the branch that is not `wide`."""
    choice = helper.make_node(
        "If", ["wide"], ["y"], name="choice", then_branch=branch("then", 8), else_branch=branch("else", other)
    )
    nodes = [choice]
    if nested:
        choice.output[0] = "inside"
        other = branch("other", 8)
        body = helper.make_graph([choice], "body", [], [helper.make_tensor_value_info("inside", 1, None)])
        nodes = [helper.make_node("If", ["always"], ["y"], name="outer", then_branch=body, else_branch=other)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "width"])]
    held = []
    if constant is None:
        inputs.append(helper.make_tensor_value_info("wide", TensorProto.BOOL, []))
    else:
        held.append(onnx.numpy_helper.from_array(np.array(constant), "wide"))
    if nested:
        inputs.append(helper.make_tensor_value_info("always", TensorProto.BOOL, []))
    graph = helper.make_graph(
        nodes, "branches", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], held
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("device", ["fsim", "reference"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("wide", [True, False])
def test_the_branch_that_fits_runs(wide, nested, device):
    data = model(nested=nested)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8 if wide else 6)).astype(np.float32)}
    feeds["wide"] = np.array(wide)
    if nested:
        feeds["always"] = np.array(True)
    session = tessera.Session(data, device)
    expected = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    feeds["wide"] = np.array(not wide)  # the same shapes, and now the branch that cannot run
    with pytest.raises(tessera.Error) as refused:
        session.run(None, feeds)
    assert refused.value.code == "invalid_model" and f"'{'else' if wide else 'then'}_reshape'" in str(refused.value)
    feeds["wide"] = np.array(wide)
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_constant_condition():
    data = model(constant=True)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    np.testing.assert_allclose(tessera.Session(data).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_no_branch_fits():
    with pytest.raises(tessera.Error, match="_reshape"):
        tessera.Session(model()).run(None, {"x": np.zeros((1, 7), np.float32), "wide": np.array(True)})


# --- branches on the NPU


def two_networks(then_size=8, else_size=8, shared=False):
    """x goes through one of two networks, as `wide` says; behind that stands one more convolution. Both read the same
    weights (`shared`) or their own."""
    rng = np.random.default_rng(1)
    draw = lambda name, *shape: onnx.numpy_helper.from_array(rng.uniform(-0.5, 0.5, shape).astype(np.float32), name)
    value = helper.make_tensor_value_info

    def network(name, size):
        held = [draw(f"{name}_u", size, 4, 3), draw(f"{name}_v", 4, size, 3)]
        first = "common" if shared else f"{name}_u"
        nodes = [
            helper.make_node("Conv", ["x", first], [f"{name}_a"], pads=[1, 1], name=f"{name}_first"),
            helper.make_node("Relu", [f"{name}_a"], [f"{name}_r"]),
            helper.make_node("Conv", [f"{name}_r", f"{name}_v"], [f"{name}_y"], pads=[1, 1], name=f"{name}_second"),
        ]
        return helper.make_graph(nodes, name, [], [value(f"{name}_y", 1, None)], held)

    nodes = [
        helper.make_node(
            "If", ["wide"], ["m"], then_branch=network("then", then_size), else_branch=network("else", else_size)
        ),
        helper.make_node("Conv", ["m", "w"], ["y"], name="last"),
    ]
    inputs = [value("x", 1, [1, 4, 20]), value("wide", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, None)], [draw("w", 3, 4, 3), draw("common", 8, 4, 3)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(choices):
    rng = np.random.default_rng(2)
    return [{"x": rng.standard_normal((1, 4, 20)).astype(np.float32), "wide": np.array(w)} for w in choices]


@pytest.mark.parametrize("shared", [False, True])
def test_products_of_both_branches_run_on_the_npu(shared):
    model, feeds = two_networks(shared=shared), samples([True, False] * 4)
    made = tessera.quantize(model, feeds, engine="onnxruntime", report=True)
    assert made.macs_npu_share == 1 and made.report["output_snr_db"] > 25
    assert {"then_first", "else_second", "last"} <= {row["layer"] for row in made.report["layers"] if row["int8"]}
    data = made.model.SerializeToString()
    session = tessera.Session(data, "fsim", check_races=True)
    for feed in feeds:
        expected = oracle.run(made.model, feed, intermediates=False).outputs["y"]
        np.testing.assert_array_equal(session.run(None, feed)[0], expected)
        np.testing.assert_array_equal(tessera.Session(data, "reference").run(None, feed)[0], expected)
        ran = {row["name"] for row in session.stats()["layers"] if row["placement"] == "npu"}
        other = "else_first" if feed["wide"] else "then_first"
        assert other not in ran and len(ran) == 3


def test_a_branch_that_no_sample_takes():
    """It is calibrated on what the others would give it, if it runs on that; and says so."""
    with pytest.warns(UserWarning, match="else_branch: no sample takes it; its ranges"):
        made = tessera.quantize(two_networks(), samples([True] * 8), engine="onnxruntime")
    assert made.macs_npu_share == 1
    session = tessera.Session(made.model.SerializeToString())
    for feed in samples([True, False]):
        expected = oracle.run(made.model, feed, intermediates=False).outputs["y"]
        np.testing.assert_array_equal(session.run(None, feed)[0], expected)


def test_what_a_branch_moves_into_another_body():
    """Where a branch is always taken, ONNX Runtime puts it in its If's place, and moves quantisation through the
    movement. In front of another body it has no place for that and would end the process, so a Clip stands there."""
    rng, value, node = np.random.default_rng(5), helper.make_tensor_value_info, helper.make_node
    draw = lambda name, *shape: onnx.numpy_helper.from_array(rng.uniform(-0.5, 0.5, shape).astype(np.float32), name)
    moved = helper.make_graph([node("Squeeze", ["c", "zero"], ["s"])], "moved", [], [value("s", 1, None)])
    same = helper.make_graph([node("Flatten", ["c"], ["f"], axis=2)], "same", [], [value("f", 1, None)])
    product = helper.make_graph([node("MatMul", ["m", "v"], ["p"], name="inner")], "p", [], [value("p", 1, None)])
    other = helper.make_graph([node("MatMul", ["m", "w"], ["o"], name="other")], "o", [], [value("o", 1, None)])
    nodes = [
        node("Conv", ["x", "u"], ["c"], name="first"),
        node("If", ["wide"], ["m"], then_branch=moved, else_branch=same),
        node("If", ["wide"], ["y"], then_branch=product, else_branch=other),
    ]
    held = [draw("u", 8, 4, 3), draw("v", 18, 5), draw("w", 18, 5), onnx.numpy_helper.from_array(np.int64([0]), "zero")]
    inputs = [value("x", 1, [1, 4, 20]), value("wide", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, None)], held)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = tessera.quantize(whole, samples([True, False] * 4), engine="onnxruntime")
    read = set.union(*(outer_reads(n) for n in made.model.graph.node))
    makers = {name: n.op_type for n in made.model.graph.node for name in n.output}
    assert made.macs_npu_share == 1 and makers["m"] == "Clip" and "m" in read
    data = made.model.SerializeToString()
    session, runtime = tessera.Session(data), onnxruntime.InferenceSession(data)
    for feed in samples([True, False]):
        np.testing.assert_array_equal(session.run(None, feed)[0], runtime.run(None, feed)[0])


def test_a_branch_that_cannot_run_stays_float():
    feeds = [{"x": np.random.default_rng(k).standard_normal((1, 8)).astype(np.float32)} for k in range(8)]
    feeds = [{**feed, "wide": np.array(True)} for feed in feeds]
    with pytest.warns(UserWarning, match="else_branch stays in float on the CPU: no sample takes it"):
        made = tessera.quantize(onnx.load_from_string(model()), feeds, engine="onnxruntime")
    session = tessera.Session(made.model.SerializeToString(), shapes={"x": [1, 8]})
    assert session.info()["macs_npu_share"] == 1
    expected = oracle.run(made.model, feeds[0], intermediates=False).outputs["y"]
    np.testing.assert_array_equal(session.run(None, feeds[0])[0], expected)
    narrow = {"x": np.random.default_rng(0).standard_normal((1, 6)).astype(np.float32), "wide": np.array(False)}
    want = onnxruntime.InferenceSession(model()).run(None, narrow)[0]
    np.testing.assert_allclose(tessera.Session(made.model.SerializeToString()).run(None, narrow)[0], want, atol=1e-5)


def test_a_branch_that_does_not_run_on_the_samples():
    """Its ranges come from the samples' values, as many as it takes."""
    feeds = [{"x": np.random.default_rng(k).standard_normal((1, 8)).astype(np.float32)} for k in range(8)]
    feeds = [{**feed, "wide": np.array(True)} for feed in feeds]
    data = model(other=4)
    with pytest.warns(UserWarning, match="else_branch: no sample takes it; .* cut to sizes with which it runs"):
        made = tessera.quantize(onnx.load_from_string(data), feeds, engine="onnxruntime").model.SerializeToString()
    narrow = {"x": np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32), "wide": np.array(False)}
    session = tessera.Session(made, shapes={"x": [1, 4]})
    want = onnxruntime.InferenceSession(data).run(None, narrow)[0]
    np.testing.assert_allclose(session.run(None, narrow)[0], want, atol=0.03 * np.abs(want).max())
    assert any(row["placement"] == "npu" for row in session.stats()["layers"])


def test_a_cell_inside_of_a_branch():
    rng = np.random.default_rng(3)
    draw = lambda name, *shape: onnx.numpy_helper.from_array(rng.uniform(-0.5, 0.5, shape).astype(np.float32), name)
    value = helper.make_tensor_value_info
    cell = helper.make_graph(
        [helper.make_node("LSTM", ["x", "W", "R"], ["", "h"], hidden_size=8, name="cell")],
        "cell",
        [],
        [value("h", 1, None)],
        [draw("W", 1, 32, 4), draw("R", 1, 32, 8)],
    )
    nothing = helper.make_graph([helper.make_node("Identity", ["z"], ["i"])], "nothing", [], [value("i", 1, None)])
    graph = helper.make_graph(
        [helper.make_node("If", ["wide"], ["y"], then_branch=cell, else_branch=nothing)],
        "g",
        [value("x", 1, [5, 2, 4]), value("wide", TensorProto.BOOL, [])],
        [value("y", 1, None)],
        [onnx.numpy_helper.from_array(np.zeros((1, 2, 8), np.float32), "z")],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [
        {"x": rng.standard_normal((5, 2, 4)).astype(np.float32), "wide": np.array(taken)}
        for taken in [True] * 7 + [False]
    ]
    made = tessera.quantize(whole, feeds, engine="onnxruntime")
    assert made.macs_npu_share == 1
    session = tessera.Session(made.model.SerializeToString(), check_races=True)
    for feed in feeds:
        expected = oracle.run(made.model, feed, intermediates=False).outputs["y"]
        np.testing.assert_allclose(session.run(None, feed)[0], expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["loop", "scan"])
def test_products_in_the_body_of_a_loop(kind):
    """Calibrated on what each iteration takes. The programs are those of one iteration, whatever their number."""
    rng, value, node = np.random.default_rng(4), helper.make_tensor_value_info, helper.make_node
    draw = lambda name, *shape: onnx.numpy_helper.from_array((rng.standard_normal(shape) / 4).astype(np.float32), name)
    if kind == "loop":
        nodes = [
            node("MatMul", ["s", "b"], ["p"], name="inner"),
            node("Tanh", ["p"], ["t"]),
            node("Add", ["t", "x"], ["n"]),
        ]
        nodes += [node("Identity", ["go"], ["on"]), node("Identity", ["n"], ["y"])]
        inputs = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s", 1, [2, 16])]
        results = [value("on", TensorProto.BOOL, []), value("n", 1, [2, 16]), value("y", 1, [2, 16])]
        body = helper.make_graph(nodes, "body", inputs, results, [draw("b", 16, 16)])
        nodes = [node("MatMul", ["x", "a"], ["z"]), node("Loop", ["trips", "", "z"], ["last", "all"], body=body)]
        held, shape = [draw("a", 16, 16), onnx.numpy_helper.from_array(np.int64(5), "trips")], [2, 16]
    else:
        nodes = [
            node("MatMul", ["s", "b"], ["p"], name="inner"),
            node("Add", ["p", "e"], ["q"]),
            node("Relu", ["q"], ["n"]),
        ]
        nodes += [node("Identity", ["n"], ["y"])]
        inputs, results = (
            [value("s", 1, [2, 16]), value("e", 1, [2, 16])],
            [value("n", 1, [2, 16]), value("y", 1, [2, 16])],
        )
        body = helper.make_graph(nodes, "body", inputs, results, [draw("b", 16, 16)])
        more = {"scan_input_directions": [1], "scan_output_directions": [1]}
        nodes = [node("Scan", ["zero", "x"], ["last", "all"], body=body, num_scan_inputs=1, **more)]
        held, shape = [onnx.numpy_helper.from_array(np.zeros((2, 16), np.float32), "zero")], [5, 2, 16]
    outputs = [value("last", 1, None), value("all", 1, None)]
    graph = helper.make_graph(nodes, "g", [value("x", 1, shape)], outputs, held)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(8)]
    made = tessera.quantize(whole, feeds, engine="onnxruntime", report=True)
    assert made.macs_npu_share == 1 and made.report["output_snr_db"] > 25
    session = tessera.Session(made.model.SerializeToString(), check_races=True)
    assert session.info()["programs"] == (2 if kind == "loop" else 1)
    assert session.info()["macs_npu"] == (5 + (kind == "loop")) * 2 * 16 * 16  # of all iterations
    for feed in feeds:
        expected = oracle.run(made.model, feed, intermediates=False).outputs
        for name, got in zip(["last", "all"], session.run(None, feed), strict=True):
            np.testing.assert_allclose(got, expected[name], atol=1e-5)
    assert 5 in {row.get("runs") for row in session.stats()["layers"]}


def test_random_samples_have_the_number_that_the_model_asks_for():
    """A sampling rate that is compared with a constant."""
    whole = two_networks()
    del whole.graph.input[1]
    whole.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    whole.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(16000), "sixteen"))
    whole.graph.node.insert(0, helper.make_node("Equal", ["rate", "sixteen"], ["wide"]))
    with pytest.warns(UserWarning, match="else_branch: no sample takes it"):
        made = tessera.quantize(whole, "random", engine="onnxruntime", samples=4)
    assert made.macs_npu_share == 1

# SPDX-License-Identifier: Apache-2.0
"""The oracle kit itself: what it fuses, that observing through it changes nothing, its histogram, its quantiser."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("onnxruntime")
from tests.oracle import oracle, random_image_graphs, random_operators


def test_the_wheel_is_the_pinned_one():
    import onnxruntime

    assert oracle.pinned(), (
        f"docs/numerics.md speaks of onnxruntime {oracle.PINNED}, installed is {onnxruntime.__version__}"
    )


def test_fused_operators_are_named():
    case = random_operators.random_conv(0)
    result = oracle.run(case.model, case.feeds)
    oracle.assert_fused(result, {"QLinearConv": 1})
    with pytest.raises(AssertionError, match="fused"):
        oracle.assert_fused(result, {"QLinearConv": 2})


def test_int8_stays_int8():
    case = random_operators.random_conv(1, dtype="s8")
    result = oracle.run(case.model, case.feeds)
    (node,) = [node for node in result.optimized.graph.node if node.op_type == "QLinearConv"]
    assert result.values[node.input[0]].dtype == np.int8 and result.values[node.output[0]].dtype == np.int8


def test_observation_does_not_change_the_result():
    for seed in range(6):
        case = random_image_graphs.random_graph(seed)
        plain = oracle.run(case.model, case.feeds, intermediates=False)
        observed = oracle.run(case.model, case.feeds)
        assert plain.operators == observed.operators
        for name, value in plain.outputs.items():
            assert (value == observed.outputs[name]).all()


def test_an_output_inside_a_group_prevents_fusion():
    case = random_operators.random_conv(3)
    conv = next(node for node in case.model.graph.node if node.op_type == "Conv")
    observed = oracle.add_outputs(case.model, [conv.output[0]])
    assert not oracle.run(observed, case.feeds).fused and oracle.run(case.model, case.feeds).fused


def test_histogram():
    a, b = np.array([1, 2, 3, 250], np.uint8), np.array([1, 3, 3, 2], np.uint8)
    assert oracle.histogram(a, b) == {0: 2, -1: 1, 248: 1}
    case = random_operators.random_gemm(2)
    result = oracle.run(case.model, case.feeds)
    for counts in oracle.default_histogram(case.model, case.feeds, result.outputs).values():
        assert sum(counts.values()) == next(iter(result.outputs.values())).size


@pytest.mark.parametrize("form", ["qdq", "qop"])
@pytest.mark.parametrize("kind", sorted(random_operators.OPERATORS))
def test_random_models_are_valid_and_lively(kind, form):
    levels = []
    for seed in range(8):
        case = random_operators.OPERATORS[kind](seed, form)
        if form == "qdq":
            onnx.checker.check_model(case.model)
        again = random_operators.OPERATORS[kind](seed, form)
        assert case.model.SerializeToString() == again.model.SerializeToString()
        result = oracle.run(case.model, case.feeds)
        assert kind == "pool" or result.fused, f"seed {seed}: nothing fused in {dict(result.operators)}"
        levels += [len(np.unique(value)) for value in result.outputs.values()]
    assert np.mean(levels) > 5  # not all saturated


def float_model():
    rng = np.random.default_rng(0)
    initializers = [
        numpy_helper.from_array(rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.normal(0, 1, 4).astype(np.float32), "b"),
        numpy_helper.from_array(rng.normal(0, 0.3, (10, 4)).astype(np.float32), "v"),
        numpy_helper.from_array(rng.normal(0, 1, 10).astype(np.float32), "c"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4),
        helper.make_node("Relu", ["y"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "c"], ["z"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("z", 1, [1, 10])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), rng


@pytest.mark.parametrize("qdq", [True, False])
@pytest.mark.parametrize("activation, weight", [("u8", "s8"), ("u8", "u8"), ("s8", "s8")])
def test_quantize(qdq, activation, weight):
    model, rng = float_model()
    data = [{"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    quantized = oracle.quantize(model, data[:-1], qdq=qdq, activation=activation, weight=weight, per_channel=qdq)
    result = oracle.run(quantized, data[-1])
    assert result.fused["QLinearConv"] == 1 and result.fused["com.microsoft::QGemm"] == 1
    exact = oracle.run_plain(model, data[-1])["z"]
    assert np.abs(result.outputs["z"] - exact).max() < 0.1 * np.abs(exact).max()

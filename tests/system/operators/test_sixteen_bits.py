# SPDX-License-Identifier: Apache-2.0
"""Products in 16 bits, made of products of bytes: each form against the float model and ONNX Runtime, where they are
chosen, and by what measure."""

import math

import _tessera
import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera
from tessera.quantization import deciding, keeping, local, measure, sixteen
from tessera.quantization.candidate import Options
from tessera.quantization.quantise import Quantization
from tests.system.float_models import Builder


def convolution(**options):
    shape = options.pop("shape", (2, 8, 9, 7))
    weights, bias = options.pop("weights"), options.pop("bias", True)
    b = Builder(seed=4)
    operands = ["x", b.weights(*weights)] + ([b.constant(b.rng.standard_normal(weights[0]))] if bias else [])
    return b.model({"x": shape}, [b.node("Relu", [b.node("Conv", operands, **options)])])


def matrix(op, weights, bias=None, **options):
    b = Builder(seed=5)
    operands = ["x", b.weights(*weights)]
    if op == "Gemm" and bias is not None:
        operands.append(b.constant(b.rng.standard_normal(bias)))
    y = b.node(op, operands, **options)
    if op == "MatMul" and bias is not None:
        y = b.node("Add", [y, b.constant(b.rng.standard_normal(bias))])
    return b.model({"x": (3, 5, 8) if op == "MatMul" else (5, 8)}, [y])


FORMS = {
    "padded": lambda: convolution(weights=(12, 8, 3, 3), pads=[1, 0, 2, 1], strides=[2, 1]),
    "same": lambda: convolution(weights=(12, 8, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2], bias=False),
    "depthwise": lambda: convolution(weights=(8, 1, 3, 3), group=8, dilations=[2, 1]),
    "one_axis": lambda: convolution(weights=(12, 8, 4), shape=(1, 8, 31), strides=[3]),
    "matmul": lambda: matrix("MatMul", (8, 6), [6]),
    "gemm": lambda: matrix("Gemm", (6, 8), [1, 6], transB=1, alpha=0.5, beta=2.0),
    "gemm_one_bias": lambda: matrix("Gemm", (8, 6), [1]),
}


def feeds_of(model, count=4):
    port = model.graph.input[0]
    shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
    return [{port.name: np.random.default_rng(k).standard_normal(shape, np.float32)} for k in range(count)]


def work_of(model, feeds, **options):
    work = Quantization(model, feeds, Options(engine="onnxruntime", **options))
    work.run()
    return work


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_near_float_and_on_the_npu(name):
    model = FORMS[name]()
    feeds = feeds_of(model)
    work = work_of(model, feeds, sixteen=0)
    before = work.distance(work.state.model, feeds)
    products = [unit.name for unit in work.state.plan.units if unit.kind == "product"]
    work.float_nodes.update(dict.fromkeys(products, sixteen.WHY))
    work.settle()
    assert [unit.bits for unit in work.state.plan.units if unit.kind == "product"] == [16]
    assert work.state.placement.macs_cpu == 0 and work.state.placement.macs_npu > 0
    assert work.distance(work.state.model, feeds) > max(70, before + 20)
    expected = measure.session(work.state.model).run(None, feeds[0])
    got = tessera.Session(work.state.model.SerializeToString(), device="fsim").run(None, feeds[0])
    np.testing.assert_array_equal(got[0], expected[0])


def test_values_beyond_the_observed_ones_are_not_cut_off():
    model = FORMS["padded"]()
    feeds = feeds_of(model)
    work = work_of(model, feeds, sixteen=0)
    work.float_nodes.update(dict.fromkeys(["conv0"], sixteen.WHY))
    work.settle()
    larger = [{name: 1.8 * value for name, value in feed.items()} for feed in feeds]
    reference = measure.float_outputs(model, larger)
    assert measure.output_distance(work.state.model, larger, reference) > 60


def uneven():
    """A channel of a hundredth of another one's size decides: in 8 bits it has two steps."""
    b = Builder(seed=3)
    weights = b.rng.standard_normal((8, 2, 3, 3)) * np.array([0.01, 1]).reshape(1, 2, 1, 1)
    x = b.node("Relu", [b.node("Conv", ["x", b.constant(weights)])])
    model = b.model({"x": [1, 2, 12, 12]}, [b.conv(x, 8, 4)])
    sizes = np.array([1, 0.01], np.float32).reshape(1, 2, 1, 1)
    return model, [{"x": feed["x"] * sizes} for feed in feeds_of(model, 8)]


def test_finer_steps_where_the_outputs_are_far():
    model, feeds = uneven()
    with pytest.warns(UserWarning, match="are computed in 16 bits"):
        fine = tessera.quantize(model, feeds, engine="onnxruntime", report=True)
    plain = tessera.quantize(model, feeds, engine="onnxruntime", report=True, sixteen=0, least_snr=-100)
    assert fine.macs_npu_share == plain.macs_npu_share == 1
    assert fine.report["in_16_bits"][0] == "conv0" and not plain.report["in_16_bits"]
    assert fine.report["output_snr_db"] > max(28, plain.report["output_snr_db"] + 10)
    rows = {row["layer"]: row for row in fine.report["layers"]}
    assert all(rows[name]["bits"] == 16 for name in fine.report["in_16_bits"])


def test_more_products_get_finer_steps_where_the_outputs_are_still_far(monkeypatch):
    model, feeds = uneven()
    monkeypatch.setattr(keeping, "FINE_PRODUCTS", 0)  # as in a large network
    monkeypatch.setattr(keeping, "FINE_SHARE", 1e-3)
    little = work_of(model, feeds, least_snr=-100, sixteen=1e-3)
    assert not any(unit.bits == 16 for unit in little.state.plan.units)
    monkeypatch.setattr(keeping, "FAR_SHARE", 0.9)
    with pytest.warns(UserWarning, match="are computed in 16 bits"):
        more = work_of(model, feeds, least_snr=-100)
    assert more.distance(more.state.model, feeds) > little.distance(little.state.model, feeds) + 3
    assert any(unit.bits == 16 for unit in more.state.plan.units)


def test_sums_of_squares_are_those_of_float64():
    rng = np.random.default_rng(0)
    for size in (0, 5, 4096, 100_003):
        for scale in (1e-30, 1.0, 1e30):
            values = (scale * rng.standard_normal(size)).astype(np.float32)
            values[: size // 3] = 0
            expected = float((values.astype(np.float64) ** 2).sum())
            assert measure.square_sum(values) == pytest.approx(expected, rel=1e-6, abs=0)
    assert math.isnan(measure.square_sum(np.full((3, 5000), np.nan, np.float32)))


def test_outputs_that_are_near_stay_in_8_bits():
    model = FORMS["padded"]()
    made = tessera.quantize(model, feeds_of(model, 8), engine="onnxruntime", report=True)
    assert made.report["in_16_bits"] == []


def chosen(noises, costs, wanted, budget):
    products = [deciding.Alone(f"p{k}", noise, cost) for k, (noise, cost) in enumerate(zip(noises, costs))]
    left = lambda some: sum(p.noise for p in products if p.name not in some) + 1e-9
    return deciding.Finer(products, lambda some: -10 * math.log10(left(some))).choose(wanted, budget)


def test_the_cheapest_noise_goes_first():
    names, ratio = chosen([0.1, 0.1, 0.001, 0.001], [1, 1, 1, 1], 20, 3)
    assert names == ["p0", "p1"] and ratio > 20
    names, _ = chosen([0.1, 0.1, 0.001, 0.001], [50, 1, 1, 1], 20, 3)
    assert names == ["p1"]  # what does not fit is left out, and what brings no more
    assert chosen([0.1], [5], 20, 3) == ([], -math.inf)


def test_what_a_product_loses_by_itself():
    model, feeds = uneven()
    work = work_of(model, feeds, sixteen=0, least_snr=-100)
    products = [unit for unit in work.state.plan.units if unit.kind == "product"]
    first, second = local.losses(work.state, products, feeds)
    assert (first.cost, second.cost) == (12 * 12 * 18 * 8, 10 * 10 * 72 * 4) and first.noise > 10 * second.noise > 0


def scores_in_both_branches():
    """A second small network decides where the score of the first one is high, as wake words are checked twice."""
    b = Builder(seed=8)
    hidden = b.node("Relu", [b.node("MatMul", ["x", b.weights(24, 16)])])
    score = b.node("Sigmoid", [b.node("MatMul", [hidden, b.weights(16, 1)])])
    checked = b.node("MatMul", ["x", b.weights(24, 1)])
    high = b.node("Squeeze", [b.node("Greater", [score, b.constant(np.float32(0.5))])])
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    first = helper.make_graph([helper.make_node("Sigmoid", [checked], ["c"], "sure")], "high", [], [value("c")])
    other = helper.make_graph([helper.make_node("Identity", [score], ["s"], "same")], "low", [], [value("s")])
    y = b.node("If", [high], then_branch=first, else_branch=other)
    return b.model({"x": [1, 24]}, [y])


def test_a_small_network_answers_scores_in_16_bits():
    """Few products, whose cost nobody would feel, and a score that moves in the middle by what a step is worth."""
    model, feeds = scores_in_both_branches(), feeds_of(scores_in_both_branches(), 24)
    (answer,) = measure.answers_of(model, set(_tessera.operator_names()["movements"]) | {"Identity"})
    assert answer.of_scores
    made, plain = (tessera.quantize(model, feeds, engine="onnxruntime", sixteen=share) for share in (None, 0))
    errors = []
    for found in (made, plain):
        session = tessera.Session(found.model.SerializeToString(), device="fsim")
        got = [session.run(None, feed)[0] for feed in feeds]
        for feed, value in zip(feeds, got):
            np.testing.assert_allclose(value, measure.session(found.model).run(None, feed)[0], atol=1e-6)
        want = [measure.session(model).run(None, feed)[0] for feed in feeds]
        errors.append(max(float(np.abs(a - b).max()) for a, b in zip(got, want)))
    assert errors[0] < 1e-3 < errors[1] and made.macs_npu_share == plain.macs_npu_share == 1


def deep_network(rows):
    """Seven products, and a Softmax over rows between the last two."""
    b, x = Builder(seed=0 if rows else 1), "x"
    for _ in range(7):
        x = b.node("Relu", [b.node("MatMul", [x, b.weights(24, 24)])])
    x = b.node("Softmax", [x], axis=-1) if rows else x
    return b.model({"x": [4, 24]}, [b.node("MatMul", [x, b.weights(24, 8)])])


@pytest.mark.parametrize("rows", [False, True])
def test_a_small_network_answers_values_in_16_bits(rows):
    """Between 28 and 32 dB in 8 bits: others may read it. Rows that the NPU normalises would be the CPU's then."""
    model = deep_network(rows)
    quantise = lambda share: tessera.quantize(
        model, feeds_of(model, 24), engine="onnxruntime", config="npu256t", sixteen=share, report=True
    ).report["answer_snr_db"]
    plain = quantise(0)
    assert keeping.FINE_DECIBELS < plain < keeping.READ_DECIBELS
    assert quantise(None) == plain if rows else quantise(None) > keeping.SMALL_DECIBELS


def test_how_far_an_output_answers():
    b = Builder(seed=1)
    x = b.node("MatMul", ["x", b.weights(8, 4)])
    mean = b.node("ReduceMean", [b.node("Sigmoid", [x])], axes=[1])
    model = b.model({"x": [1, 8]}, [b.node("Sigmoid", [x]), b.node("Softmax", [x]), x, mean])
    score, shares, value, mean = measure.answers_of(model, _tessera.operator_names()["movements"])
    assert mean == score and score.of_scores and shares.of_scores and not value.of_scores
    distance = measure.Distance()
    score.add(distance, 1 / (1 + np.exp([8.0, 8.0])), 1 / (1 + np.exp([8.0, 7.9])))
    assert distance.signal == pytest.approx(2 * 4) and distance.noise == pytest.approx(0.01, rel=1e-3)
    far = measure.Distance()
    shares.add(far, [1.0, 1e-9], [1.0, 1e-6])
    assert far.noise == 0 and far.signal == 81
    plain, many = measure.Distance(), np.full(100, 0.5)
    score.add(plain, many, many + 0.1)  # a map
    value.add(plain, [3.0], [2.0])
    assert plain.signal == pytest.approx(25 + 9) and plain.noise == pytest.approx(2)


def test_few():
    assert keeping.few(list("ab")) == "'a', 'b'" and keeping.few(list("abcde")) == "'a', 'b', 'c' and 2 more"

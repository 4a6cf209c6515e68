# SPDX-License-Identifier: Apache-2.0
"""What quantisation does to weights: channels are made equal or split, values rounded layer by layer, and a change
stays for a clear gain alone."""

import numpy as np
import pytest
from onnx import numpy_helper

import tessera
from tessera.quantization import measure, rounding
from tessera.quantization.quantise import Quantization
from tests.oracle import oracle
from tests.system import float_models
from tests.system.quantisation.checks import as_float32, check_exact, prepared_plan


def uneven():
    """Depthwise and grouped convolutions whose channels differ a thousandfold, with Relu between them, and a Clip."""
    b = float_models.Builder(seed=20)
    sizes = np.geomspace(0.01, 10, 16).astype(np.float32)
    w = b.constant(b.rng.standard_normal((16, 3, 3, 3)) * sizes[:, None, None, None])
    x = b.node("Relu", [b.node("Conv", ["x", w], pads=[1] * 4)])
    w = b.constant(b.rng.standard_normal((16, 1, 3, 3)))
    x = b.node("Relu", [b.node("Conv", [x, w], pads=[1] * 4, group=16)])
    w = b.constant(b.rng.standard_normal((8, 8, 3, 3)) / np.stack([sizes[:8]] * 4 + [sizes[8:]] * 4)[:, :, None, None])
    x = b.node("Conv", [x, w, b.constant(np.ones(8))], pads=[1] * 4, group=2)
    x = b.node("Clip", [x, b.constant(np.float32(0)), b.constant(np.float32(600))])
    return b.model(float_models.IMAGE, [b.conv(x, 8, 8)])


def test_channels_of_different_sizes_are_made_equal():
    import _tessera

    from tessera.quantization.equalise import equalise, tensors_of
    from tessera.quantization.prepare import prepare

    feeds = float_models.feeds_of(uneven(), 8)
    prepared = prepare(uneven(), {"Conv"})
    names = _tessera.operator_names()
    wanted = tensors_of(prepared, names)
    assert len(wanted) == 2  # the tensor behind the Clip stays
    equal, changed = equalise(prepared, names, measure.Statistics(prepared, wanted, feeds, wanted))
    assert wanted <= changed.keys()
    reference = measure.float_outputs(prepared, feeds)
    assert measure.output_distance(equal, feeds, reference) > 80
    made = tessera.quantize(uneven(), feeds, engine="onnxruntime", report=True)
    assert made.report["equalised_tensors"] == 2 and made.macs_npu_share == 1.0
    if oracle.exact_cpu():
        check_exact(made.model, feeds[0])


def test_a_convolution_is_split_where_its_channels_differ():
    """Its parts compute the same in float, and the outputs in int8 come nearer by it."""
    import _tessera

    from tessera.quantization import split

    feeds = as_float32(float_models.feeds_of(float_models.silu_uneven(), 8))
    model, plan = prepared_plan(float_models.silu_uneven())
    wanted = split.tensors_of(model, _tessera.operator_names())
    places = split.proposals(model, _tessera.operator_names(), measure.Statistics(model, wanted, feeds, wanted))
    first = plan.units[0].name
    assert [place.product.name for place in places] == [first]
    assert sorted(np.concatenate(places[0].parts)) == list(range(24))
    parts = split.split(model, _tessera.operator_names(), places[0])
    assert measure.output_distance(parts, feeds, measure.float_outputs(model, feeds)) > 100
    found = split.ranges_of(places[0])
    session, names = measure.observed(parts, found)
    seen = [dict(zip(names, session.run(None, feed))) for feed in feeds]
    for name in set(found) & set(names):
        low, high = min(s[name].min() for s in seen), max(s[name].max() for s in seen)
        assert np.allclose(found[name], (low, high), rtol=1e-4, atol=1e-5), name
    made = tessera.quantize(float_models.silu_uneven(), feeds, engine="onnxruntime", report=True)
    assert made.report["split_layers"] == [first] and made.macs_npu_share == 1.0
    whole = tessera.quantize(
        float_models.silu_uneven(), feeds, engine="onnxruntime", report=True, keep_float=[plan.units[-1].name]
    )
    assert whole.report["split_layers"] == []


def test_a_split_tensor_that_a_depthwise_convolution_reads_beside_another():
    """As in a dense block: behind a Concat the convolution has more channels than the tensor that is split."""
    import _tessera

    from tessera.quantization import split

    b = float_models.Builder(seed=9)
    sizes = np.geomspace(0.02, 10, 16).astype(np.float32)
    w = b.constant(b.rng.standard_normal((16, 3, 3, 3)) * sizes[:, None, None, None])
    x = b.node("Conv", ["x", w], pads=[1] * 4)
    x = b.node("Mul", [x, b.node("Sigmoid", [x])])
    x = b.node("Concat", [b.conv("x", 3, 8), x], axis=1)
    w = b.constant(b.rng.standard_normal((24, 1, 3, 3)))
    x = b.node("Relu", [b.node("Conv", [x, w, b.constant(b.rng.standard_normal(24))], pads=[1] * 4, group=24)])
    float_model = b.model(float_models.IMAGE, [b.conv(x, 24, 8)])
    feeds = as_float32(float_models.feeds_of(float_model, 8))
    model, _ = prepared_plan(float_model)
    names = _tessera.operator_names()
    wanted = split.tensors_of(model, names)
    places = split.proposals(model, names, measure.Statistics(model, wanted, feeds, wanted))
    assert len(places) == 1 and sorted(np.concatenate(places[0].parts)) == list(range(16))
    parts = split.split(model, names, places[0])
    assert measure.output_distance(parts, feeds, measure.float_outputs(model, feeds)) > 100


def test_a_tensor_whose_order_matters_is_not_split():
    """A sum with another tensor, a reshape, and an output of the graph need the channels where they are."""
    from tessera.quantization.split import Moved, follow

    moved = Moved(np.arange(16)[::-1], np.ones(16))
    for last in ("Reshape", "Add", "none", "Conv"):
        b = float_models.Builder(seed=5)
        x = b.conv("x", 3, 16)
        if last == "Reshape":
            y = b.conv(b.node("Reshape", [x, b.constant(np.asarray([1, 4, 32, 32]))]), 4, 8)
        elif last == "Add":
            y = b.conv(b.node("Add", [x, b.conv("x", 3, 16)]), 16, 8)
        else:
            y = b.conv(x, 16, 8)
        model, plan = prepared_plan(b.model(float_models.IMAGE, [y] + [x] * (last == "none")))
        edits = follow(plan.graph, plan.names["elementwise"], x, moved)
        assert (edits is not None) == (last == "Conv"), last


CONVOLUTIONS = [
    {"pads": [1, 0, 2, 1]},
    {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 2, 1, 2]},
    {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"group": 6, "auto_pad": "SAME_LOWER", "strides": [2, 3]},
    {"group": 3, "auto_pad": "VALID"},
]


@pytest.mark.parametrize("attributes", CONVOLUTIONS)
def test_columns_of_a_convolution(attributes, monkeypatch):
    """Weights times columns are the convolution."""
    from tessera.quantization import rounding

    monkeypatch.setattr(rounding, "DRAWN", 10**6)
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((6, 6 // attributes.get("group", 1), 3, 2)).astype(np.float32)
    b = float_models.Builder()
    model = b.model({"x": [2, 6, 9, 8]}, [b.node("Conv", ["x", b.constant(weights)], **attributes)])
    value = rng.standard_normal((2, 6, 9, 8)).astype(np.float32)
    (expected,) = measure.session(model).run(None, {"x": value})
    columns = rounding.columns_of(model.graph.node[0], value, weights, rng)
    matrices, _ = rounding.as_matrices(model.graph.node[0], weights, columns.shape[1])
    got = np.einsum("pgk,gok->pgo", columns, matrices).reshape(2, -1, 6).transpose(0, 2, 1)
    assert np.allclose(got, expected.reshape(2, 6, -1), atol=1e-4)


def test_rounding_of_columns_lowers_the_error_of_sums():
    from tessera.quantization.rounding import round_columns

    rng = np.random.default_rng(7)
    values = rng.standard_normal((400, 6)) @ rng.standard_normal((6, 24)) + 0.1 * rng.standard_normal((400, 24))
    covariance = (values.T @ values / 400)[None]
    weights = rng.standard_normal((1, 8, 24))
    scales = np.abs(weights).max(2) / 7
    made = round_columns(weights, scales, covariance)
    plain = np.rint(weights / scales[..., None])
    assert np.array_equal(made, np.rint(made)) and np.abs(made).max() <= 127
    noise = lambda q: np.square(values @ (q * scales[..., None] - weights)[0].T).sum()
    assert noise(made) < 0.3 * noise(plain)
    alone = round_columns(weights, scales, np.eye(24)[None])
    assert np.array_equal(alone, plain)


@pytest.mark.parametrize(
    "samples, expected",
    [
        ([[10, 10, 10], [10.5, 10.5, 10.5]], 0),  # within the margin
        ([[10, 10, 10], [12, 12, 12]], 1),
        ([[10, 10, 10], [20, 9, 9]], 0),  # one sample alone
        ([[10, 10, 10], [12, 12, 12], [12.5, 12.5, 12.5]], 1),
        ([[10, 10, 10], [8, 8, 8], [12, 12, 9.9]], 2),
    ],
)
def test_weights_are_changed_for_a_clear_gain_alone(samples, expected):
    assert Quantization._clearly_nearest([sum(s) / len(s) for s in samples], samples) == expected


@pytest.mark.parametrize("made_up", [False, True])
def test_samples_that_have_judged_are_rounded_for_too(monkeypatch, made_up):
    """Five of 20 samples judge. The rounded weights stay, and are those of all 20. Of random values those that judge
    have nothing to teach."""
    seen, made, real = [], [], rounding.Rounding.round

    def counted(self, data, count, progress=None):
        made.append(real(self, data, count, progress))
        seen.append(count)
        return made[-1]

    monkeypatch.setattr(rounding.Rounding, "round", counted)
    model, rng = float_models.MODELS["relu6"](), np.random.default_rng(0)
    port = model.graph.input[0]
    shape = [max(1, d.dim_value) for d in port.type.tensor_type.shape.dim]
    samples = "random" if made_up else [{port.name: rng.random(shape, np.float32)} for _ in range(20)]
    result = tessera.quantize(model, samples, engine="onnxruntime", samples=20)
    assert seen == ([15] if made_up else [15, 20])
    assert "rounded layer by layer" in str(result.model.metadata_props)
    weights = [t for t in made[-1][0].graph.initializer if t.name.endswith("/rounded")]
    scales = made[-1][1]
    quantised = [numpy_helper.to_array(t) for t in result.model.graph.initializer if t.data_type == 3]
    for tensor in weights:
        scale = scales[tensor.name.removesuffix("/rounded")]
        array = numpy_helper.to_array(tensor)
        steps = np.rint(array / scale.reshape((-1,) + (1,) * (array.ndim - 1)))
        assert any(q.shape == steps.shape and np.array_equal(q, steps) for q in quantised)


def test_a_layer_kept_float_has_its_own_weights():
    """Also where the others are rounded layer by layer."""
    model = float_models.residual()
    made = tessera.quantize(model, float_models.feeds_of(model, 8), engine="onnxruntime", keep_float=1, report=True)
    assert "rounded layer by layer" in made.report["weights"]
    name = next(row["layer"] for row in made.report["layers"] if row["kind"] == "product" and not row["int8"])
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.float_model.graph.initializer}
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.model.graph.initializer}
    node, other = (next(n for n in m.graph.node if n.name == name) for m in (made.model, made.float_model))
    assert len(node.input) == len(other.input)
    assert all(np.array_equal(kept[a], arrays[b]) for a, b in zip(node.input[1:], other.input[1:]))

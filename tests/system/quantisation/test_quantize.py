# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models: small seeded ones of many kinds, with each engine. Every product runs on the NPU, every
element equals ONNX Runtime's, and the outputs stay near the float model's. Then the sources of data, the options, the
command, and one clear error for each bad input."""

import importlib.util
import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tessera.quantization import measure, quantise, rounding
from tessera.quantization.data import Data
from tessera.quantization.quantise import METADATA, Quantization

import tessera
from tests.oracle import oracle
from tests.system import float_models
from tests.system.conftest import BUILD, ROOT
from tests.system.quantised_parts import exact_part

HAVE_NNCF = importlib.util.find_spec("nncf") is not None
HAVE_PILLOW = importlib.util.find_spec("PIL") is not None
NNCF_MISSING = "NNCF is not installed (requirements-quantize.txt)"
ENGINES = ["onnxruntime", pytest.param("nncf", marks=pytest.mark.skipif(not HAVE_NNCF, reason=NNCF_MISSING))]
LEAST_DECIBELS = 25


def as_float32(feeds):
    return [{name: value.astype(np.float32) for name, value in feed.items()} for feed in feeds]


def compare(model, feed, config, equal):
    expected = oracle.run(model, feed, intermediates=False).outputs
    session = tessera.Session(model.SerializeToString(), "fsim", config, check_races=True, poison=1)
    for port, got in zip(session.get_outputs(), session.run(None, feed)):
        want = expected[port.name]
        assert equal(got, want), f"{port.name}: {(got != want).sum()} of {got.size} differ"


def check_exact(model, feed, config="npu256"):
    """The functional simulator equals ONNX Runtime in every element, up to where float operators compute. Behind those,
    whose class is a tolerance, it may differ in the last bits, and by a step where such a value is quantised again."""
    part = exact_part(model)
    if part is not None:
        compare(part, feed, config, np.array_equal)
    compare(model, feed, config, lambda a, b: np.allclose(a, b, rtol=1e-3, atol=0.04 * float(np.abs(b).max())))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", float_models.MODELS)
def test_products_run_on_the_npu_exactly(name, engine):
    model = float_models.MODELS[name]()
    feeds = float_models.feeds_of(model, 12)
    made = tessera.quantize(model, feeds, engine=engine)
    assert made.macs_npu_share == 1.0
    feeds = as_float32(feeds)[:4]
    reference = measure.float_outputs(made.float_model, feeds)
    assert measure.output_distance(made.model, feeds, reference) > LEAST_DECIBELS
    if oracle.exact_cpu():
        check_exact(made.model, feeds[0])


@pytest.mark.parametrize("name", float_models.MODELS)
def test_preparation_keeps_the_float_model(name):
    """Opset conversion, folding and renaming change no output but in its last bits."""
    from tessera.quantization.prepare import prepare

    model = float_models.MODELS[name]()
    prepared = prepare(model, {"Conv", "Gemm", "MatMul"})
    assert all(node.op_type != "BatchNormalization" for node in prepared.graph.node)
    feed = float_models.feeds_of(model, 1)[0]
    # ONNX Runtime no longer has operators of opset 6.
    source = float_models.opset6(modern=True) if name == "opset6" else model
    expected = measure.session(source, optimise=False).run(None, feed)
    for got, want in zip(measure.session(prepared).run(None, as_float32([feed])[0]), expected):
        tolerance = 2e-2 if name == "half" else 1e-4
        assert np.allclose(got, want.astype(np.float32), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["relu6", "residual", "attention", "silu"])
def test_scales_that_are_powers_of_two(name):
    model = float_models.MODELS[name]()
    feeds = float_models.feeds_of(model, 8)
    made = tessera.quantize(model, feeds, engine="onnxruntime", power_of_two=True)
    assert made.macs_npu_share == 1.0
    scales = [numpy_helper.to_array(t) for t in made.model.graph.initializer if "/scale" in t.name]
    assert scales and all(np.all(np.frexp(scale)[0] == 0.5) for scale in scales)
    if oracle.exact_cpu():
        check_exact(made.model, feeds[0])


@pytest.mark.parametrize("method", ["mse", "entropy", "percentile"])
def test_other_ways_to_choose_ranges(method):
    model = float_models.residual()
    made = tessera.quantize(model, float_models.feeds_of(model, 8), engine="onnxruntime", method=method)
    assert made.macs_npu_share == 1.0


def test_the_same_input_gives_the_same_model():
    model = float_models.depthwise()
    first, second = (tessera.quantize(model, "random", engine="onnxruntime", seed=3) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    other = tessera.quantize(model, "random", engine="onnxruntime", seed=4)
    assert other.model.SerializeToString() != first.model.SerializeToString()


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


def test_ranges_leave_out_what_a_table_maps_to_one_value():
    """In front of HardSwish values below -3 need no steps."""
    from tessera.quantization import tables

    hard_swish = lambda x: x * np.clip(x / 6 + 0.5, 0, 1)
    low, high = tables.best_range(hard_swish, -60.0, 6.0, np.ones(tables.BINS))
    assert -15 <= low <= -3 and high == 6.0
    assert tables.best_range(lambda x: x, -1.0, 1.0, np.ones(tables.BINS)) == (-1.0, 1.0)


def test_a_softmax_between_quantised_products_stays_float():
    """An integer Softmax with a scale below 1/256 overflows; NNCF or a calibrator may well choose one."""
    made = tessera.quantize(
        float_models.attention(), float_models.feeds_of(float_models.attention(), 8), engine="onnxruntime"
    )
    assert "com.microsoft::QLinearSoftmax" not in oracle.operator_counts(oracle.optimize(made.model))


def prepared_plan(model):
    import _tessera
    from tessera.quantization.plan import Plan
    from tessera.quantization.prepare import prepare

    model = prepare(model, {"Conv", "MatMul", "Gemm"})
    return model, Plan(model, _tessera.operator_names())


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


def test_random_values_are_few_where_tensors_are_large(monkeypatch):
    """More of them would say nothing more, and a network of many places takes seconds for each."""
    taken = []
    monkeypatch.setattr(quantise, "MADE_UP_ELEMENTS", 1)
    real = quantise.take
    monkeypatch.setattr(quantise, "take", lambda data, count: taken.append(len(made := real(data, count))) or made)
    tessera.quantize(float_models.MODELS["relu6"](), "random", engine="onnxruntime", samples=20)
    assert max(taken) <= quantise.MADE_UP_SAMPLES


def test_samples_behind_others():
    data = Data(lambda: iter(range(10)), "ten numbers", limit=8)
    assert list(data.behind(5)) == [5, 6, 7] and list(data.behind(9)) == []
    assert list(Data(lambda: iter(range(10)), "ten numbers").behind(8)) == [8, 9]


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


# --- data
# --------------------------------------------------------------------------------------------------------------


def pixels(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def test_data_from_arrays_files_and_functions(tmp_path):
    """The same samples give the same model, wherever they come from."""
    model = float_models.relu6()
    feeds = float_models.feeds_of(model, 6)
    stacked = np.concatenate([feed["x"] for feed in feeds])
    np.savez(tmp_path / "named.npz", x=stacked)
    np.savez_compressed(tmp_path / "other.npz", images=stacked.transpose(0, 2, 3, 1), labels=np.arange(6))
    np.savez(tmp_path / "columns.npz", x=np.asfortranarray(stacked))
    for k, feed in enumerate(feeds):
        onnx.save_tensor(numpy_helper.from_array(feed["x"]), str(tmp_path / f"sample_{k}.pb"))
    (tmp_path / "sets").mkdir()
    for k, feed in enumerate(feeds):
        folder = tmp_path / "sets" / f"test_data_set_{k}"
        folder.mkdir()
        onnx.save_tensor(numpy_helper.from_array(feed["x"]), str(folder / "input_0.pb"))
        onnx.save_tensor(numpy_helper.from_array(feed["x"]), str(folder / "output_0.pb"))
    sources = [
        feeds,
        [feed["x"][0] for feed in feeds],
        {"x": stacked},
        lambda: iter(feeds),
        iter(feeds),
        tmp_path / "named.npz",
        str(tmp_path / "other.npz"),
        tmp_path / "columns.npz",
        tmp_path / "sets",
    ]
    scales = set()
    for source in sources:
        made = tessera.quantize(model, source, engine="onnxruntime")
        scales.add(
            tuple(
                float(numpy_helper.to_array(t))
                for t in made.model.graph.initializer
                if t.dims == [] and "scale" in t.name
            )
        )
        assert not made.synthetic
    assert len(scales) == 1


@pytest.mark.skipif(not HAVE_PILLOW, reason="Pillow is not installed (requirements-quantize.txt)")
def test_data_from_pictures(tmp_path):
    from PIL import Image

    for k, picture in enumerate(pixels(4)):
        Image.fromarray(picture).resize((40, 24)).save(tmp_path / f"{k}.png")
    made = tessera.quantize(float_models.relu6(), tmp_path, engine="onnxruntime", preprocess="imagenet")
    assert made.macs_npu_share == 1.0
    (tmp_path / "own.toml").write_text('resize = "short"\nscale = 0.5\nmean = [1, 2, 3]\nstd = 2\nchannels = "BGR"\n')
    made = tessera.quantize(float_models.nhwc(), tmp_path, engine="onnxruntime", preprocess=str(tmp_path / "own.toml"))
    assert made.macs_npu_share == 1.0


def test_preprocessing_is_what_it_says():
    from tessera.quantization.data import Preprocess

    values = Preprocess(scale=0.5, mean=(1, 2, 3), std=(2, 2, 4), channels="BGR").values(np.uint8([[[10, 20, 30]]]))
    assert np.array_equal(values, [[[(15 - 1) / 2, (10 - 2) / 2, (5 - 3) / 4]]])


def test_a_long_data_set_is_read_piece_by_piece():
    """No more than a few samples are alive at a time."""
    alive, most = set(), 0
    model = float_models.relu6()

    class Sample(np.ndarray):
        def __del__(self):
            alive.discard(id(self))

    def samples():
        nonlocal most
        for feed in float_models.feeds_of(model, 100):
            sample = feed["x"].view(Sample)
            alive.add(id(sample))
            most = max(most, len(alive))
            yield {"x": sample}
            del sample

    tessera.quantize(model, samples, engine="onnxruntime")
    assert most <= 16


# --- what is told
# ------------------------------------------------------------------------------------------------------


def test_report_and_metadata():
    model = float_models.residual()
    made = tessera.quantize(
        model, "random", engine="onnxruntime", labels=[1] * 32, report=True, config="npu64", keep_float=["conv2"]
    )
    report = made.report
    assert made.synthetic and report["synthetic"] and report["accuracy"]["synthetic"]
    origin = {entry.key: entry.value for entry in made.model.metadata_props}[METADATA]
    assert json.loads(origin)["synthetic"] is True
    rows = {row["layer"]: row for row in report["layers"]}
    assert rows["conv2"]["int8"] is False and rows["conv2"]["why_float"] == "kept float"
    products = [row for row in report["layers"] if row["kind"] == "product" and row["int8"]]
    assert len(products) == 3
    for row in products:
        assert row["snr_db"] > 20 and row["scale"] > 0 and row["clipped"] <= 0.01
        assert row["sensitivity_db"] is not None and row["predicted_cycles"] > 0
    assert 0 < report["macs_npu_share"] < 1 and report["predicted_cycles"] > 0
    assert report["accuracy"]["samples"] == 32


@pytest.mark.parametrize("kind, place_of", [("MatMul", 3), ("MatMul", 0)])
def test_a_layer_kept_float_is_computed_in_float(kind, place_of):
    """Also where movements stand between it and the quantised tensors, and its operands are two of them."""
    model = float_models.attention()
    layer = [node.name for node in model.graph.node if node.op_type == kind][place_of]
    made = tessera.quantize(model, float_models.feeds_of(model, 8), engine="onnxruntime", keep_float=layer)
    assert made.macs_npu_share < 1
    counts = oracle.operator_counts(oracle.optimize(made.model))
    assert counts["MatMul"] + counts["Gemm"] + counts["com.microsoft::FusedMatMul"] == 1
    assert counts["QLinearMatMul"] + counts["com.microsoft::QGemm"] == 5


def test_float_layers_by_number_and_by_drop():
    model = float_models.residual()
    feeds = float_models.feeds_of(model, 8)
    made = tessera.quantize(model, feeds, engine="onnxruntime", keep_float=1, report=True)
    kept = [row for row in made.report["layers"] if row["kind"] == "product" and not row["int8"]]
    assert len(kept) == 1 and "most sensitive" in kept[0]["why_float"]

    def metric(candidate):
        """1 with at most one product in int8, else 0: the drop is met late."""
        return float(sum(n.op_type in ("Conv", "Gemm") and "value" in n.input[1] for n in candidate.graph.node) <= 1)

    made = tessera.quantize(model, feeds, engine="onnxruntime", metric=metric, max_drop=0.1)
    assert metric(made.model) == 1.0


# --- the command
# -------------------------------------------------------------------------------------------------------


def command(*words, status=0):
    done = subprocess.run(
        [str(BUILD / "bin" / "tessera"), *map(str, words)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def float_file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(float_models.relu6(), path)
    return path


def test_the_command(tmp_path, float_file):
    np.savez(tmp_path / "x.npz", x=pixels(8).transpose(0, 3, 1, 2).astype(np.float32) / 255)
    done = command(
        "quantize", float_file, "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "q.onnx", "--engine", "onnxruntime",
        "--report", tmp_path / "report.json",
    )  # fmt: skip
    assert "100.00 % of the products on the NPU" in done.stdout and "sensitivity" in done.stdout
    assert json.loads((tmp_path / "report.json").read_text())["macs_npu_share"] == 1.0
    assert tessera.Session(tmp_path / "q.onnx").info().macs_npu_share == 1.0
    done = command("quantize", float_file, "--calibrate", "random", "--engine", "onnxruntime", "-q")
    assert done.stdout == "" and done.stderr == "" and (tmp_path / "model_int8.onnx").exists()


def test_a_float_model_says_so_and_is_quantised_on_request(float_file):
    done = command("run", float_file, "--random-inputs", 1)
    assert "tessera quantize" in done.stderr and len(done.stderr.splitlines()) == 1
    assert command("run", float_file, "--random-inputs", 1, "-q").stderr == ""
    done = command("run", float_file, "--random-inputs", 1, "--calibrate", "random", "--engine", "onnxruntime")
    assert "calibrated on random values" in done.stderr and "none of" not in done.stderr
    assert " 0 MACs" not in done.stdout
    assert "note: none of" in command("report", float_file, "--device", "fsim").stdout


# --- bad input
# ---------------------------------------------------------------------------------------------------------


def refused(match, model, calibrate, **options):
    with pytest.raises(tessera.Error, match=match) as raised:
        tessera.quantize(model, calibrate, **{"engine": "onnxruntime", **options})
    assert "\n" not in str(raised.value)
    return raised.value.code


def test_models_that_cannot_be_quantised(tmp_path):
    model = float_models.relu6()
    quantised = tessera.quantize(model, "random", engine="onnxruntime").model
    assert refused("quantised already", quantised, "random") == "invalid_argument"
    none = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "none",
            [onnx.helper.make_tensor_value_info("x", 1, [2])],
            [onnx.helper.make_tensor_value_info("y", 1, [2])],
        )
    )
    assert refused("no Conv, MatMul, Gemm", none, "random") == "invalid_argument"
    assert refused("cannot open", tmp_path / "missing.onnx", "random") == "io"
    (tmp_path / "text.onnx").write_text("no model")
    assert refused("no ONNX model", tmp_path / "text.onnx", "random") == "invalid_model"
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert refused("no ONNX model", tmp_path / "empty.onnx", "random") == "invalid_model"


def test_data_that_does_not_fit(tmp_path):
    model = float_models.relu6()
    assert refused("no calibration data", model, None) == "invalid_argument"
    assert refused("cannot open the calibration data", model, tmp_path / "missing.npz") == "io"
    (tmp_path / "empty").mkdir()
    refused("holds no pictures", model, tmp_path / "empty")
    (tmp_path / "broken.npz").write_text("no archive")
    assert refused("no .npz file", model, tmp_path / "broken.npz") == "io"
    np.savez(tmp_path / "shape.npz", x=np.zeros((4, 3, 8, 8), np.float32))
    refused(r"shape \[3, 8, 8\].*input 'x' takes \[1,3,16,16\]", model, tmp_path / "shape.npz")
    np.savez(tmp_path / "names.npz", a=np.zeros((4, 3, 16, 16)), b=np.zeros((4, 3, 16, 16)))
    refused("no array for input 'x'", model, tmp_path / "names.npz")
    refused("no array for input 'z'", float_models.two_inputs(), [{"x": np.zeros((1, 3, 16, 16))}])
    refused("give dicts", float_models.two_inputs(), [np.zeros((1, 3, 16, 16))])
    refused("holds no sample", model, [])
    (tmp_path / "text.txt").write_text("1")
    refused("no calibration data", model, tmp_path / "text.txt")
    (tmp_path / "tensors").mkdir()
    (tmp_path / "tensors" / "a.pb").write_bytes(b"\xff\xff\xff")
    refused("no ONNX tensor", model, tmp_path / "tensors")


@pytest.mark.skipif(not HAVE_PILLOW, reason="Pillow is not installed (requirements-quantize.txt)")
def test_pictures_that_cannot_be_read(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    refused("no picture that can be read", float_models.relu6(), tmp_path)
    refused("takes no pictures", float_models.gemm(), tmp_path)
    refused("serves one input", float_models.two_inputs(), tmp_path)
    refused("cannot open 'nothing'", float_models.relu6(), tmp_path, preprocess="nothing")
    (tmp_path / "p.toml").write_text("size = 3\n")
    refused("unknown key 'size'", float_models.relu6(), tmp_path, preprocess=str(tmp_path / "p.toml"))


def test_options_that_make_no_sense(tmp_path):
    model = float_models.relu6()
    refused("--engine takes", model, "random", engine="other")
    refused("--method takes", model, "random", method="other")
    refused("engine onnxruntime", model, "random", engine="nncf", method="entropy")
    refused("no layer 'conv9'", model, "random", keep_float=["conv9"])
    refused("--max-drop needs --labels", model, "random", max_drop=0.1)
    refused("has no labels", model, "random", test="random")
    refused("no labels that can be read", model, "random", labels=str(tmp_path / "missing.txt"))
    refused("no input 'y'", model, "random", shapes={"y": [1]})
    refused("nothing of the model can be quantised", model, "random", keep_float=["conv0", "conv3"])


def test_the_command_refuses_with_one_line(tmp_path, float_file):
    done = command("quantize", float_file, status=1)
    assert done.stderr.startswith("tessera: error (invalid_argument): no calibration data") and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    done = command("run", float_file, "--random-inputs", 1, "--calibrate", tmp_path / "missing.npz", status=1)
    assert "cannot open the calibration data" in done.stderr
    assert "add --calibrate" in command("run", float_file, "--engine", "nncf", status=1).stderr
    assert command("quantize", float_file, "--calibrate", "random", "--shape", "x", status=1).stderr.count("\n") == 1
    assert command("quantize", status=2).stdout == ""


@pytest.mark.skipif(not HAVE_NNCF, reason=NNCF_MISSING)
def test_nncf_reports_nothing_to_anybody(tmp_path, float_file):
    """Nothing of its telemetry is loaded, and no file of it appears in the home folder: none but compiled code."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NNCF", "CI", "PYTEST"))}
    done = subprocess.run(
        [str(BUILD / "bin" / "tessera"), "quantize", str(float_file), "--calibrate", "random", "--engine", "nncf"],
        capture_output=True,
        text=True,
        env={**environment, "HOME": str(tmp_path / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.suffix != ".code"]


@pytest.mark.skipif(not HAVE_NNCF, reason=NNCF_MISSING)
def test_where_the_accurate_bias_correction_fails_the_fast_one_has_its_statistics(monkeypatch):
    """A residual block with a convolution beside it, at which NNCF's accurate correction fails: one calibration, and
    the constants that --fast-bias makes. A block without one is corrected accurately."""
    from nncf.quantization.algorithms.pipeline import Pipeline

    runs, calibrate = [], Pipeline.run_from_step
    monkeypatch.setattr(Pipeline, "run_from_step", lambda *given, **named: runs.append(1) or calibrate(*given, **named))

    def made(beside, accurate):
        b = float_models.Builder()
        x = b.node("Relu", [b.conv("x", 3, 8)])
        y = b.conv(b.node("Relu", [b.conv(x, 8, 8)]), 8, 8)
        x = b.node("Relu", [b.node("Add", [y, b.conv(x, 8, 8, 1) if beside else x])])
        model = b.model({"x": [1, 3, 16, 16]}, [b.node("GlobalAveragePool", [b.conv(x, 8, 4)])])
        return tessera.quantize(model, float_models.feeds_of(model, 8), accurate_bias=accurate, report=True)

    fails = made(True, True)
    assert len(runs) == 1 and "fast bias correction, as the accurate one failed" in fails.report["weights"]
    assert fails.model.graph == made(True, False).model.graph
    assert "accurate bias correction" in made(False, True).report["weights"]


def test_without_nncf_the_other_engine_is_offered(monkeypatch):
    import builtins

    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.split(".")[0] == "nncf":
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    assert refused("requirements-quantize.txt.*--engine onnxruntime", float_models.relu6(), "random", engine="nncf")


def test_samples_that_the_model_does_not_take_are_named():
    w = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    shape = onnx.numpy_helper.from_array(np.array([-1, 8]), "s")
    nodes = [onnx.helper.make_node("Reshape", ["x", "s"], ["y"]), onnx.helper.make_node("MatMul", ["y", "w"], ["z"])]
    ports = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", "m"]) for n in "xz"]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], [shape, w])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    one = np.ones((1, 1), np.float32)
    assert refused(r"sample 0 of the calibration data \(x \[1, 1\]\).*--shape", model, one, engine="onnxruntime")
    with pytest.warns(UserWarning, match=r"sizes of dynamic dimensions were chosen.*x=1,\d+; --shape"):
        made = tessera.quantize(model, "random", engine="onnxruntime")
    assert made.macs_npu_share == 1


# --- the guide
# ---------------------------------------------------------------------------------------------------------


def commands_of_the_guide():
    """The indented lines of docs/quantize.md that begin with `tessera`."""
    lines = (ROOT / "docs" / "quantize.md").read_text().splitlines()
    return [line.split() for line in lines if line.startswith("    tessera ")]


def test_the_guide_walks_from_a_float_model_to_cycles(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = commands_of_the_guide()
    assert len(lines) == 6
    said = []
    for words in lines:
        if "rtl" not in tessera.backends():
            words = ["sysc" if word == "rtl" else word for word in words]
        if "sysc" in words and "sysc" not in tessera.backends():
            pytest.skip("this build has no device with time")
        words[0] = str(BUILD / "bin" / "tessera")
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done)
    assert "none of" in said[0].stderr
    assert "100.00 % of the products on the NPU" in said[1].stdout
    assert "cycles" in said[2].stdout
    assert "conv2" in said[3].stdout and "utilisation" in said[3].stdout
    assert "100.00 % of the products on the NPU" in said[5].stdout and "no packed_weights" in said[5].stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_the_digits_keep_their_accuracy(engine):
    folder = ROOT / "examples" / "digits"
    made = tessera.quantize(
        folder / "digits_float.onnx", folder / "digits_calibration.npz", engine=engine, test=folder / "digits_test.npz"
    )
    accuracy = made.report["accuracy"]
    assert accuracy["samples"] == 360 and accuracy["float"] > 0.97
    assert accuracy["int8"] >= accuracy["float"] - 3 / 360
    if oracle.exact_cpu():
        check_exact(made.model, {"image": np.load(folder / "digits_test.npz")["images"][:8]})


# --- public models
# -----------------------------------------------------------------------------------------------------


PUBLIC = {
    "mlperf_tiny_vww_mobilenetv1_025": 1,
    "mobilenetv2_035_128": 1,
    "mnist_burn": 1,
    "cnn_mnist_pytorch": 1,
    "squeezenet_fp16": 255,
    "super-resolution-10": 1,
    "ultraface-RFB-320": 1,
    "yunet_n_320_320": 255,
    "cct_cifar": 1,
    "vitTracker": 1,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_models_run_on_the_npu(name, shared_models):
    path = shared_models / f"{name}.onnx"
    feeds = float_models.feeds_of(onnx.load(path), 3)
    feeds = [{n: np.abs(v).clip(0, 1) * PUBLIC[name] for n, v in feed.items()} for feed in feeds]
    made = tessera.quantize(path, feeds, engine="onnxruntime")
    assert made.macs_npu_share == 1.0
    if oracle.exact_cpu():
        check_exact(made.model, as_float32(feeds)[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_resnet8_keeps_its_accuracy(engine, shared_models):
    """At most one of 200 pictures is lost, calibrated on half of them."""
    held = np.load(shared_models.parent / "data" / "cifar10_test200.npz")
    images = held["images"].astype(np.float32).transpose(0, 3, 1, 2)
    made = tessera.quantize(
        shared_models / "mlperf_tiny_resnet8.onnx",
        {"input_1": images[::2]},
        engine=engine,
        labels=held["labels"],
        test={"input_1": images},
    )
    accuracy = made.report["accuracy"]
    assert round(200 * accuracy["float"]) == 171 and round(200 * accuracy["int8"]) >= 170
    if oracle.exact_cpu():
        check_exact(made.model, {"input_1": images[:1]})


@pytest.mark.parametrize("engine", ENGINES)
def test_mnist_keeps_its_accuracy(engine, shared_models):
    """None of 500 pictures is lost."""
    held = np.load(shared_models.parent / "data" / "mnist_test500.npz")
    images = held["images"].astype(np.float32)[:, None]
    made = tessera.quantize(
        shared_models / "mnist-8.onnx", images[:64], engine=engine, labels=held["labels"], test=images
    )
    assert made.report["accuracy"]["int8"] >= made.report["accuracy"]["float"]
    if oracle.exact_cpu():
        check_exact(made.model, {"Input3": images[:1]})


def test_small_shares_of_a_softmax_keep_their_steps():
    """A softmax in float keeps the range that was seen; an integer one gets 256 steps or a power of two times as many,
    as it multiplies by the whole part of one divided by the scale."""
    from tessera.quantization import attention, engines

    feeds = as_float32(float_models.feeds_of(float_models.attention(), 4))
    model, plan = prepared_plan(float_models.attention())
    unit = next(u for u in plan.units if u.nodes[-1].op_type == "Softmax")
    found, _ = engines.measure_ranges(model, feeds)
    unit.quantised = False
    assert attention.ranges_of(plan, found)[unit.output] == found[unit.output]
    unit.quantised = True
    for share, steps in ((1.0, 256), (0.6, 256), (0.5, 512), (0.09, 2048), (0.0, 256 << 16)):
        assert attention.ranges_of(plan, {**found, unit.output: (0.0, share)})[unit.output] == (0.0, 255 / steps)
        scale = np.float32(255 / steps / 255)
        assert np.floor(np.float32(1) / scale) == steps


def test_commands_take_the_shape_that_a_model_was_quantised_with(tmp_path, command):
    """Height and width are open: what compiles, and what draws inputs, takes those of the calibration data."""
    rng = np.random.default_rng(4)
    weights = onnx.numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
    value = lambda name, channels: onnx.helper.make_tensor_value_info(name, 1, ["n", channels, "h", "w"])
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "g", [value("x", 3)], [value("y", 8)], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "int8.onnx"
    samples = rng.random((4, 1, 3, 24, 40), np.float32)
    tessera.quantize(model, [{"x": x} for x in samples], path, engine="onnxruntime", config="npu64")
    compiled = command("compile", path, "-o", tmp_path / "m.tsr")
    assert compiled.returncode == 0 and "quantised with, [1,3,24,40]" in compiled.stderr, compiled.stderr
    drawn = command("run", path, "--random-inputs", "1", "--output", tmp_path / "y.npz")
    assert drawn.returncode == 0 and "[1,3,24,40]" in drawn.stderr, drawn.stderr
    assert np.load(tmp_path / "y.npz")["y"].shape == (1, 8, 24, 40)
    given = command("compile", path, "--shape", "x=1,3,16,16", "-o", tmp_path / "m.tsr")
    assert given.returncode == 0 and "quantised with, [" not in given.stderr, given.stderr

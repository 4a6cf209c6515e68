# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models, small seeded ones of many kinds and public ones, with each engine. Every product runs
on the NPU, every element equals ONNX Runtime's, the outputs stay near the float model's, and accuracy is kept."""

import importlib.util
import math
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tessera
from tessera.quantization import keeping, measure
from tests.oracle import oracle
from tests.system import float_models
from tests.system.conftest import BUILD, ROOT
from tests.system.quantisation.checks import (
    ENGINES,
    HAVE_NNCF,
    NNCF_MISSING,
    as_float32,
    check_exact,
    prepared_plan,
    refused,
)

LEAST_DECIBELS = 25


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


@pytest.mark.skipif(not HAVE_NNCF, reason=NNCF_MISSING)
def test_nncf_reports_nothing_to_anybody(tmp_path):
    """Nothing of its telemetry is loaded, and no file of it appears in the home folder: none but compiled code."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NNCF", "CI", "PYTEST"))}
    onnx.save(float_models.relu6(), tmp_path / "model.onnx")
    done = subprocess.run(
        [
            str(BUILD / "bin" / "tessera"),
            "quantize",
            str(tmp_path / "model.onnx"),
            "--calibrate",
            "random",
            "--engine",
            "nncf",
        ],
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

    monkeypatch.setattr(keeping, "wanted", lambda state: math.inf)
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


@pytest.mark.skipif(not HAVE_NNCF, reason=NNCF_MISSING)
@pytest.mark.parametrize("near", [False, True])
def test_nncf_corrects_where_rounded_weights_are_not_near_enough(near, monkeypatch):
    monkeypatch.setattr(keeping, "wanted", lambda state: -math.inf if near else math.inf)
    model = float_models.relu6()
    made = tessera.quantize(model, float_models.feeds_of(model, 8), engine="nncf", report=True)
    assert made.report["engine"].startswith("onnxruntime" if near else "nncf")
    assert ("bias correction" in made.report["weights"]) != near


def test_without_nncf_the_other_engine_is_offered(monkeypatch):
    import builtins

    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.split(".")[0] == "nncf":
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refused("requirements-quantize.txt.*--engine onnxruntime", float_models.relu6(), "random", engine="nncf")


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

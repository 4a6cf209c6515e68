# SPDX-License-Identifier: Apache-2.0
"""Folding of quantisation and the reference interpreter against the oracle: for random quantised models and public
ones, the same integer operators must come out and every element must be equal. Where the oracle keeps a float
convolution or matrix product, whose sums it orders otherwise, each node is compared on the oracle's own operands
instead. TESSERA_RANDOM and TESSERA_SEED set number and start of the random graphs."""

import collections
import os

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")
from tests.oracle import oracle, random_dense_graphs, random_image_graphs, random_operators
from tests.oracle.compare import LONG, differing
from tests.oracle.conftest import SHARED
from tests.oracle.walker import walk

pytestmark = pytest.mark.skipif(not oracle.exact_cpu(), reason="the formulas are those of CPUs with AVX2, FMA and VNNI")
ONLY_FOLDING = "func.func(nn-fold-constants,nn-fold-qdq)"
FLOAT_SUMS = {
    "Conv",
    "com.microsoft::FusedConv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "com.microsoft::FusedGemm",
    "com.microsoft::FusedMatMul",
}
SEED = int(os.environ.get("TESSERA_SEED", "0"))
GRAPHS = int(os.environ.get("TESSERA_RANDOM", "0")) or (400 if LONG else 60)


def ours(nn, model, feeds, pipeline=""):
    """Outputs of the reference interpreter and the integer operators in the graph that it ran."""
    compiled = nn.Model(model.SerializeToString())
    compiled.optimise(pipeline=pipeline)
    names = [f"{domain}::{op}" if domain else op for _, domain, op, _ in compiled.nodes()]
    fused = collections.Counter(name for name in names if name in oracle.QUANTIZED_OPS)
    return compiled.run(feeds), dict(sorted(fused.items()))


def assert_equal(result, outputs, what):
    for name, expected in result.outputs.items():
        bad = differing(expected, outputs[name])
        assert not bad.any(), (
            f"{what}: output {name}: {bad.sum()} of {bad.size} elements differ; "
            f"{oracle.histogram(outputs[name], expected)}"
        )


def check(nn, case, pipeline=ONLY_FOLDING):
    result = oracle.run(case.model, case.feeds)
    outputs, fused = ours(nn, case.model, case.feeds, pipeline)
    if pipeline == ONLY_FOLDING:
        assert fused == result.fused, f"{case.name}: integer operators {fused}, the oracle has {result.fused}"
    if FLOAT_SUMS & set(result.operators):
        wrong = {name: lines for name, lines in walk(result).items() if lines}
        assert not wrong, f"{case.name}: {wrong}"
    else:
        assert_equal(result, outputs, case.name)


@pytest.mark.parametrize("form", ["qdq", "qop"])
@pytest.mark.parametrize("kind", sorted(random_operators.OPERATORS))
def test_random_operator(nn, ops, kind, form):
    for seed in range(40 if LONG else 12):
        case = random_operators.OPERATORS[kind](seed, form)
        check(nn, case)
        check(nn, case, pipeline="")


@pytest.mark.parametrize("seed", range(SEED, SEED + GRAPHS))
def test_random_graph(nn, ops, seed):
    case = random_image_graphs.random_graph(seed)
    check(nn, case)
    check(nn, case, pipeline="")


@pytest.mark.parametrize("seed", range(SEED, SEED + GRAPHS // 2))
def test_random_dense_graph(nn, ops, seed):
    case = random_dense_graphs.random_dense_graph(seed)
    check(nn, case)
    check(nn, case, pipeline="")


@pytest.mark.parametrize("seed", range(6))
def test_random_operator_graph(nn, ops, seed):
    check(nn, random_image_graphs.random_graph(seed, form="qop"))


@pytest.mark.skipif(not oracle.pinned(), reason="the oldest ONNX Runtime refuses opsets above 23")
@pytest.mark.parametrize("draw", [random_image_graphs.random_graph, random_dense_graphs.random_dense_graph])
@pytest.mark.parametrize("seed", range(1000 + SEED, 1012 + SEED))
def test_random_graph_of_a_new_opset(nn, ops, seed, draw):
    case = draw(seed, opset=(22, 23, 25, 27)[seed % 4])
    check(nn, case)
    check(nn, case, pipeline="")


# --- public models
# ---------------------------------------------------------------------------------------------------------------------


def feeds_for(name, model, count):
    """Inputs of the kind that the model expects: images where they are at hand, else seeded noise in its range."""
    rng = np.random.default_rng(0)
    initializers = {tensor.name for tensor in model.graph.initializer}
    (info,) = [value for value in model.graph.input if value.name not in initializers]
    shape = [d.dim_value or default for d, default in zip(info.type.tensor_type.shape.dim, (1, 3, 224, 224))]
    if info.type.tensor_type.elem_type == onnx.TensorProto.UINT8:
        images = [rng.integers(0, 256, shape).astype(np.uint8) for _ in range(count)]
    elif "mnist" in name:
        images = [
            image.astype(np.float32).reshape(shape)
            for image in np.load(SHARED / "data" / "mnist_test500.npz")["images"][:count]
        ]
    elif "resnet8" in name:
        images = [
            image.astype(np.float32).transpose(2, 0, 1)[None]
            for image in np.load(SHARED / "data" / "cifar10_test200.npz")["images"][:count]
        ]
    else:
        low, high = {"yunet": (0, 255), "Retina": (-120, 130), "vww": (0, 1)}.get(
            name.split("_")[0] if "vww" not in name else "vww", (-2, 2)
        )
        images = [rng.uniform(low, high, shape).astype(np.float32) for _ in range(count)]
    return [{info.name: image} for image in images]


QUANTISED = ["mobilenetv2_qdq", "shufflenet-v2-12-int8", "mobilenetv3_fx_int8", "RetinaFace_int_amd"]
FLOAT = [
    "mnist-8",
    "mlperf_tiny_resnet8",
    "mlperf_tiny_vww_mobilenetv1_025",
    "ultraface-RFB-320_simplified",
    "yunet_n_320_320",
]


@pytest.mark.parametrize("name", QUANTISED)
def test_public_quantised_model(nn, ops, models, name):
    model = onnx.load(models / f"{name}.onnx")
    (feeds,) = feeds_for(name, model, 1)
    result = oracle.run(model, feeds)
    outputs, fused = ours(nn, model, feeds, ONLY_FOLDING)
    assert fused == result.fused
    assert_equal(result, outputs, name)
    outputs, _ = ours(nn, model, feeds)
    assert_equal(result, outputs, f"{name}, all passes")
    wrong = {op: lines for op, lines in walk(result).items() if lines}
    assert not wrong, wrong


@pytest.mark.parametrize("style", ["qdq-u8s8", "qdq-s8s8-per_channel", "qop-u8u8"])
@pytest.mark.parametrize("name", FLOAT)
def test_public_model_quantised_here(nn, models, name, style):
    form, types, *channel = style.split("-")
    per_channel = bool(channel) and name != "mnist-8"  # the quantiser refuses mnist-8 per channel
    model = onnx.load(models / f"{name}.onnx")
    *calibration, feeds = feeds_for(name, model, 4)
    quantised = oracle.quantize(
        model, calibration, qdq=form == "qdq", activation=types[:2], weight=types[2:], per_channel=per_channel
    )
    result = oracle.run(quantised, feeds)
    assert result.fused.get("QLinearConv", 0) > 1
    outputs, fused = ours(nn, quantised, feeds, ONLY_FOLDING)
    assert fused == result.fused
    assert_equal(result, outputs, f"{name} {style}")
    outputs, _ = ours(nn, quantised, feeds)
    assert_equal(result, outputs, f"{name} {style}, all passes")

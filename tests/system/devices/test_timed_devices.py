# SPDX-License-Identifier: Apache-2.0
"""Whole networks on the machines that know time. The RTL's and the timing model's outputs equal the functional
simulator's in every element; the timing model's cycles are within 1 % of the RTL's on every network and within 3 % on
every layer above 10,000 cycles. Networks whose intermediate tensors stay on chip are tried with several latencies of
DRAM."""

import sys

import numpy as np
import pytest

import tessera
from tests.oracle import oracle
from tests.system import attention, builders
from tests.system.conftest import ROOT
from tests.system.networks.test_models import random_feeds
from tests.system.operators.test_activation_products import random_product

sys.path.insert(0, str(ROOT / "bench"))
import networks

pytestmark = [
    pytest.mark.skipif(
        "rtl" not in tessera.backends() or "sysc" not in tessera.backends(),
        reason="this build has no RTL or no timing model",
    ),
    pytest.mark.usefixtures("compiled_once"),
]


def check(data, feeds, config, bound=0.01, **memory):
    expected = tessera.Session(data, "fsim", config).run(None, feeds)
    stats = {}
    for device in ("rtl", "sysc"):
        session = tessera.Session(data, device, config, **memory)
        for got, want in zip(session.run(None, feeds), expected):
            assert np.array_equal(got, want, equal_nan=True), (
                f"{device}: {(got != want).sum()} of {got.size} elements differ from fsim"
            )
        stats[device] = session.stats()
    rtl, sysc = stats["rtl"], stats["sysc"]
    assert rtl.cycles > 0
    assert abs(sysc.cycles - rtl.cycles) <= bound * rtl.cycles, f"sysc {sysc.cycles}, rtl {rtl.cycles}"
    for a, b in zip(rtl.layers, sysc.layers):
        if a["placement"] == "npu" and a["cycles"] is not None and a["cycles"] > 10000:
            assert abs(b["cycles"] - a["cycles"]) <= 0.03 * a["cycles"], (
                f"layer {a['name']}: sysc {b['cycles']}, rtl {a['cycles']}"
            )
    timed = [layer["cycles"] for layer in rtl.layers if layer["placement"] == "npu"]
    assert sum(timed) == rtl.cycles  # the layers sum to the run
    return sysc


@pytest.mark.parametrize("config", ["npu64", "npu256"])
def test_digits(config):
    folder = ROOT / "examples" / "digits"
    images = np.load(folder / "digits_test.npz")["images"]
    check((folder / "digits.onnx").read_bytes(), {"image": images[:5]}, config)


@pytest.mark.parametrize(
    "config, shape", [("npu64", (1, 17, 3, 10)), ("npu256", (1, 64, 2, 32)), ("npu1024", (2, 33, 2, 20))], ids=str
)
def test_attention(config, shape):
    model, feeds = attention.quantised(*shape)
    check(model.SerializeToString(), feeds, config)


@pytest.mark.parametrize("config", ["npu64", "npu256"])
@pytest.mark.parametrize("seed", range(24))
def test_products_of_activations(seed, config):
    """Factors in runs of every length, padded, byte by byte, transposed on the chip."""
    model, feeds, _ = random_product(130000 + seed)
    data = model.SerializeToString()
    expected = tessera.Session(data, "fsim", config, check_races=True).run(None, feeds)
    for device in ("rtl", "sysc"):
        for got, want in zip(tessera.Session(data, device, config).run(None, feeds), expected):
            assert np.array_equal(got, want), device


@pytest.mark.parametrize("config", ["npu64", "npu256"])
@pytest.mark.parametrize(
    "name", [name for name in networks.NETWORKS if name not in ("resnet18", "resnet50", "mobilenetv2")]
)
def test_small_networks(name, config):
    data, feeds = networks.build(name)
    check(data, feeds, config)


def inverted_residuals():
    b = networks.Builder("inverted_residuals", [1, 16, 20, 20])
    x = "input"
    for width, stride in ((16, 1), (24, 2), (24, 1)):
        y = b.conv(
            b.conv(x, 6 * b.channels[x], 1, activation="Relu6"),
            6 * b.channels[x],
            3,
            stride,
            groups=6 * b.channels[x],
            activation="Relu6",
        )
        y = b.conv(y, width, 1, activation=None)
        x = b.add(y, x, None) if stride == 1 and b.channels[x] == width else y
    return b.finish(x)


def depthwise_separable():
    b = networks.Builder("depthwise_separable", [1, 3, 48, 48])
    x = b.conv("input", 8, 3, 2)
    for width, stride in ((16, 1), (32, 2), (32, 1)):
        x = b.conv(b.conv(x, b.channels[x], 3, stride, groups=b.channels[x]), width, 1)
    return b.finish(x)


@pytest.fixture(scope="module", params=[inverted_residuals, depthwise_separable], ids=lambda make: make.__name__)
def chained(request):
    """(bytes of the quantised model, feeds)."""
    model = request.param()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(5)
    quantised = oracle.quantize(model, [{"input": rng.random(shape, np.float32)} for _ in range(2)], per_channel=True)
    return quantised.SerializeToString(), {"input": rng.random(shape, np.float32)}


@pytest.mark.parametrize("latency", [20, 100, 500])
@pytest.mark.parametrize("config", ["npu64", "npu256"])
def test_chains(chained, config, latency):
    # 15,000 cycles with pairs of depthwise vectors behind a slow memory: 1.1 % (docs/systemc.md).
    stats = check(*chained, config, 0.015 if latency == 500 else 0.01, dram_latency=latency)
    layers = [layer for layer in stats.layers if layer.placement == "npu"]
    assert any(layer.bytes["output"] == 0 for layer in layers)  # results that never leave the chip


def product_of_odd_rows(heads, tokens, size):
    """Scores of odd rows times values, both from DRAM."""
    g, rng = builders.Graph(), np.random.default_rng(tokens)
    step = lambda scale: [g.constant(np.float32(scale)), g.constant(np.uint8(128))]
    shapes = {"a": [1, heads, tokens, tokens], "b": [1, heads, tokens, size]}
    a, b = (g.input(rng.integers(0, 256, shape).astype(np.uint8), name) for name, shape in shapes.items())
    return g.finish(g.node("QLinearMatMul", [a, *step(0.02), b, *step(0.02), *step(0.3)], "y")), g.feeds


def sum_of_two(tokens):
    g, rng = builders.Graph(), np.random.default_rng(tokens)
    step = lambda scale: [g.constant(np.float32(scale)), g.constant(np.uint8(128))]
    a, b = (g.input(rng.integers(0, 256, [1, 8, tokens, tokens]).astype(np.uint8), name) for name in "ab")
    y = g.node("QLinearAdd", [a, *step(0.02), b, *step(0.02), *step(0.05)], "y", domain=builders.MS)
    return g.finish(y), g.feeds


def sums_of_taps(channels, size, kernel):
    """Sums of a depthwise convolution as they are, which STORE moves out of ACC while GEMM adds the next ones."""
    g, rng = builders.Graph(), np.random.default_rng(channels)
    x = g.input(rng.integers(0, 256, [1, channels, size, size]).astype(np.uint8), "x")
    weights = g.constant(rng.integers(-127, 128, [channels, 1, kernel, kernel]).astype(np.int8))
    zeros = [g.constant(np.uint8(128)), g.constant(np.int8(0))]
    y = g.node("ConvInteger", [x, weights, *zeros], "y", group=channels, pads=[kernel // 2] * 4)
    return g.finish(y), g.feeds


PREDICTED = {
    "columns of odd rows on one core": ("npu64", lambda: product_of_odd_rows(3, 65, 16)),
    "columns of odd rows on eight": ("npu64x8", lambda: product_of_odd_rows(3, 65, 16)),
    "a sum whose vectors take four cycles": ("npu64", lambda: sum_of_two(129)),
    "sums that leave ACC beside GEMM's": ("npu64", lambda: sums_of_taps(24, 24, 5)),
}


@pytest.mark.parametrize("name", PREDICTED)
def test_predictions(name):
    """What the compiler expects of transfers and ports is within 5 % of the timing model."""
    config, build = PREDICTED[name]
    model, feeds = build()
    stats = check(model.SerializeToString(), feeds, config)
    assert abs(stats.predicted_cycles - stats.cycles) <= 0.05 * stats.cycles, (stats.predicted_cycles, stats.cycles)


@pytest.mark.parametrize("name", ["mobilenetv2_qdq", "shufflenet-v2-12-int8", "mobilenetv3_fx_int8"])
def test_public_models(name, shared_models):
    path = shared_models / f"{name}.onnx"
    feeds, _ = random_feeds(path)
    check(path.read_bytes(), feeds, "npu256")

# SPDX-License-Identifier: Apache-2.0
"""Quantised operators at all their values, among which are those at which two roundings differ. Random files seldom
have one."""

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install -r requirements-litert.txt")

import tessera
from tests.litert import builder, oracle

KERNELS = {"default": "xnnpack", "reference": "reference"}


def model(operator, operands, shape, dtype, result, **options):
    """A file of one operator. `operands`: (array, quantisation), of which the first is the input."""
    file = builder.Model()
    graph = file.graph("main")
    first, how = operands[0]
    tensors = [graph.input("x", first.shape, first.dtype.name, **how)]
    tensors += [graph.constant(array, **quantised) for array, quantised in operands[1:]]
    y = graph.tensor("y", shape, dtype, **result)
    graph.op(operator, tensors, [y], **options)
    graph.outputs(y)
    return file.bytes()


def check(data, x, devices=("reference",)):
    for kernels, name in KERNELS.items():
        (wanted,) = oracle.run(data, [x], kernels).outputs
        for device in devices:
            (got,) = tessera.Session(data, device, litert_kernels=name).run(None, {"x": x})
            assert got.dtype == wanted.dtype and np.array_equal(got, wanted), f"{kernels} on {device}"


FUNCTIONS = {"ABS": {}, "NEG": {}, "LOG": {}, "RELU": {}, "RELU6": {}, "LEAKY_RELU": {"alpha": 0.3}}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype, seed):
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    x = np.arange(limits.min, limits.max + 1).astype(dtype)
    how = []
    for _ in range(2):
        scale = float(np.float32(rng.uniform(1e-4, 4e-4))) * (256 if dtype == "int8" else 1)
        how.append({"scale": scale, "zero": int(rng.integers(-128, 128)) if dtype == "int8" else 0})
    check(model(name, [(x, how[0])], x.shape, dtype, how[1], **FUNCTIONS[name]), x)


@pytest.mark.parametrize("seed", range(6))
def test_prelu(seed):
    rng = np.random.default_rng(seed)
    x = np.arange(-128, 128).astype(np.int8)
    scales = np.float32(rng.uniform(0.01, 0.1, 3))
    how = [{"scale": float(scale), "zero": int(rng.integers(-128, 128))} for scale in scales]
    slope = rng.integers(-128, 128, 1).astype(np.int8)
    check(model("PRELU", [(x, how[0]), (slope, how[1])], x.shape, "int8", how[2]), x)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("count", [4, 16, 36, 49, 100])
def test_means(count, dtype):
    """Every sum, with scales whose ratio makes halves in half of the files."""
    limits = np.iinfo(dtype)
    for seed in range(4):
        rng = np.random.default_rng([count, seed])
        sums = np.arange(count * 255 + 1)
        steps = np.clip(sums - 255 * np.arange(count)[:, None], 0, 255)
        x = (steps + limits.min).astype(dtype)[None, None]
        scale = np.float32(rng.uniform(0.01, 0.1))
        other = np.float32(scale * rng.choice([0.5, 0.75])) if seed % 2 else np.float32(rng.uniform(0.005, 0.1))
        zeros = rng.integers(limits.min, limits.max + 1, 2)
        how = [{"scale": float(s), "zero": int(z)} for s, z in zip((scale, other), zeros)]
        axes = (np.array([1, 2], np.int32), {})
        data = model("MEAN", [(x, how[0]), axes], (1, sums.size), dtype, how[1], keepDims=False)
        check(data, x, ("reference", "fsim"))


def test_mean_of_real_network():
    """A sum of 49 pixels whose mean lies 5e-6 of a step beside a half."""
    x = np.full((1, 7, 7, 1), -128, np.int8)
    x.reshape(-1)[:17] = 127
    x.reshape(-1)[17] = 99 - 128
    scales = [{"scale": float(np.float32(s)), "zero": -128} for s in (0.023529412, 0.018276151)]
    data = model("MEAN", [(x, scales[0]), (np.array([1, 2], np.int32), {})], (1, 1), "int8", scales[1], keepDims=False)
    check(data, x, ("reference", "fsim"))


def sum_of_open_batch(axis, zero):
    """A sum over an axis of a file whose batch is open."""
    file = builder.Model()
    graph = file.graph("main")
    x = graph.input("x", (2, 5, 7), "int8", scale=0.1, zero=zero)
    y = graph.tensor("y", tuple(n for i, n in enumerate((2, 5, 7)) if i != axis), "int8", scale=0.3, zero=7)
    graph.op("SUM", [x, graph.constant(np.array([axis], np.int32))], [y], keepDims=False)
    graph.table.tensors[x].shapeSignature = np.array([-1, 5, 7], np.int32)
    graph.outputs(y)
    return file.bytes()


@pytest.mark.parametrize("axis,zero", [(1, -20), (2, -20), (0, 0)])
def test_sum_of_open_batch(axis, zero):
    data = sum_of_open_batch(axis, zero)
    session = tessera.Session(data, "fsim")
    for batch in (2, 1, 3):
        x = np.random.default_rng(batch).integers(-128, 128, (batch, 5, 7)).astype(np.int8)
        (wanted,) = oracle.run(data, [x], "default").outputs
        (got,) = session.run(None, {"x": x})
        assert np.array_equal(got, wanted)


def test_sum_over_open_axis_is_refused():
    with pytest.raises(tessera.Error, match="open shape"):
        tessera.Session(sum_of_open_batch(0, -20), "reference")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantize_of_halves(dtype):
    """Real numbers at halves of steps. LiteRT converts 8 elements at a time; their number is a multiple of it."""
    limits, zero = np.iinfo(dtype), 0 if dtype == "int16" else 3
    rng = np.random.default_rng(5)
    for _ in range(3):
        scale = np.float32(rng.uniform(1e-4, 4e-4))
        x = ((rng.integers(limits.min, limits.max, 4096) - zero + np.float32(0.5)) * scale).astype(np.float32)
        check(model("QUANTIZE", [(x, {})], x.shape, dtype, {"scale": float(scale), "zero": zero}), x)


@pytest.mark.parametrize("bias", [None, "int32", "int64"])
@pytest.mark.parametrize("channels", [1, 12])
def test_dense_of_int16(channels, bias):
    """Sums of 16 by 8 bits in thousands of results. LiteRT's reference kernel reads a bias of 32 bits as one of 64."""
    rng = np.random.default_rng([channels, ["int32", "int64", None].index(bias)])
    x = rng.integers(-32768, 32768, (300, 16)).astype(np.int16)
    weights = rng.integers(-127, 128, (12, 16)).astype(np.int8)
    scales = np.float32(rng.uniform(0.01, 0.1, channels))
    how = {"scale": [float(s) for s in scales], "zero": 0, "axis": 0}
    operands = [(x, {"scale": 2e-4, "zero": 0}), (weights, how)]
    if bias:
        per_channel = [float(np.float32(2e-4) * s) for s in scales]
        operands.append((rng.integers(-3000, 3000, 12).astype(bias), {"scale": per_channel, "zero": 0}))
    data = model("FULLY_CONNECTED", operands, (300, 12), "int16", {"scale": 6e-3, "zero": 0}, version=7)
    (wanted,) = oracle.run(data, [x], "default").outputs
    (got,) = tessera.Session(data, "fsim").run(None, {"x": x})
    assert np.array_equal(got, wanted)

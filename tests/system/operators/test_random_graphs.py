# SPDX-License-Identifier: Apache-2.0
"""Random networks of the idioms of real ones (graphs.py), as they are and quantised by ONNX Runtime's quantiser with
random options. Float: within 1e-4 of ONNX Runtime. Quantised: functional simulator = reference interpreter in every
element; = ONNX Runtime in every element where its optimised graph holds exact operators only, else close.
Multiply-accumulates of quantised convolutions and of products with constant weights are on the NPU. TESSERA_SEED and
TESSERA_RANDOM set start and number."""

import os

import numpy as np
import pytest

import tessera
from tests.oracle import oracle
from tests.system import graphs

SEED = int(os.environ.get("TESSERA_SEED", "0"))
COUNT = int(os.environ.get("TESSERA_RANDOM", "24"))
# What ONNX Runtime computes in fp32 in an order or by an approximation of its own.
INEXACT = {
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "ReduceMean",
    "GlobalAveragePool",
    "AveragePool",
    "Softmax",
    "LogSoftmax",
    "Exp",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Elu",
    "Softplus",
    "Pow",
    "Sqrt",
    "HardSwish",
    "LayerNormalization",
    "Gelu",
    "Resize",
    "Upsample",
}


def bare(name):
    return name.split("::")[-1].removeprefix("Fused").removeprefix("Bias").removeprefix("Quick").removeprefix("Skip")


def random_options(seed):
    """Keyword arguments of oracle.quantize."""
    rng = np.random.default_rng(seed + 10**6)
    qdq, signed = rng.random() < 0.7, rng.random() < 0.5
    extra = {
        name: value
        for name, value, p in (
            ("ActivationSymmetric", True, 0.4),
            ("WeightSymmetric", False, 0.2),
            ("DedicatedQDQPair", True, 0.3),
            ("QDQKeepRemovableActivations", True, 0.3),
        )
        if rng.random() < p
    }
    activation = "s8" if qdq and signed else "u8"
    weight = "s8" if activation == "s8" or rng.random() < 0.7 else "u8"
    return {
        "qdq": bool(qdq),
        "activation": activation,
        "weight": weight,
        "per_channel": bool(rng.random() < 0.5),
        "extra": extra,
    }


def assert_close(got, want, tolerance, text, outliers=0.0):
    """Beyond `tolerance` times the largest magnitude lies at most a share `outliers` of the elements; integers are
    equal."""
    assert got.shape == want.shape and got.dtype == want.dtype, text
    if want.dtype.kind != "f":
        if outliers == 0.0:
            assert np.array_equal(got, want), text
        return
    error = np.abs(got.astype(np.float64) - want) / max(1e-3, float(np.abs(want).max(initial=0.0)))
    assert (error > tolerance).mean() <= outliers, (
        f"error {error.max()}, {(error > tolerance).sum()} of {error.size}; {text}"
    )


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_float_network(seed, configs):
    model, feeds, text = graphs.random_network(seed)
    expected = oracle.run_plain(model, feeds, oracle=False)
    data = model.SerializeToString()
    for session in (
        tessera.Session(data, "reference"),
        tessera.Session(data, "fsim", configs[seed % len(configs)], check_races=True, poison=seed + 1),
    ):
        for port, got in zip(session.get_outputs(), session.run(None, feeds)):
            assert_close(got, expected[port.name], 1e-4, f"{port.name}; {text}")


@pytest.mark.parametrize("seed", range(SEED, SEED + 2 * COUNT))
def test_quantised_network(seed, configs):
    model, feeds, text = graphs.random_network(seed)
    options = random_options(seed)
    text = f"{text} {options}"
    try:
        quantised = oracle.quantize(model, graphs.calibration(model, feeds), **options)
        result = oracle.run(quantised, feeds, intermediates=False)
    except Exception as error:
        pytest.skip(f"{type(error).__name__} in onnxruntime: {text}")
    data = quantised.SerializeToString()
    session = tessera.Session(data, "reference")
    names, reference = [port.name for port in session.get_outputs()], session.run(None, feeds)
    exact = not INEXACT & {bare(name) for name in result.operators}
    if oracle.exact_cpu():
        for name, got in zip(names, reference):
            if exact:
                assert got.dtype == result.outputs[name].dtype and np.array_equal(
                    got, result.outputs[name], equal_nan=True
                ), f"{name}; {text}"
            else:
                assert_close(got, result.outputs[name], 0.1, f"{name}; {text}", outliers=0.02)
    # All machines for small networks in turn, one for each seed otherwise.
    for i, config in enumerate(configs):
        if i != seed % len(configs) and seed % 8:
            continue
        session = tessera.Session(data, "fsim", config, check_races=True, poison=i + 1)
        for name, got, want in zip(names, session.run(None, feeds), reference):
            if exact:
                assert np.array_equal(got, want, equal_nan=True), (
                    f"{config}: {name}: {(got != want).sum()} of {want.size}; {text}"
                )
            else:
                assert_close(got, want, 1e-5, f"{config}: {name}; {text}")
        held = {
            op
            for layer in session.stats().layers
            if layer.placement == "cpu" and layer.macs
            for op in layer.op.removesuffix("...").split("+")
        }
        assert "QLinearConv" not in held and "QGemm" not in held, f"{config}: {held} on the CPU; {text}"

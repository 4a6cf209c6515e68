# SPDX-License-Identifier: Apache-2.0
"""Dynamic quantisation: the input's zero point is known at run time only. Integer products with constant weights run on
the NPU all the same and equal ONNX Runtime in every element, windows that leave the image included; networks of
onnxruntime's dynamic quantiser keep all their multiply-accumulates on the NPU and are close (their scales are fp32
arithmetic)."""

import numpy as np
import onnx
import pytest

import tessera
from tests.oracle import oracle
from tests.system import builders
from tests.system.attention import networks


def product_model(seed):
    """(model, feeds, text) of one MatMulInteger or ConvInteger whose input zero point is an input of the model."""
    rng = np.random.default_rng(seed)
    x_type, product = rng.choice([np.uint8, np.int8]), rng.random() < 0.4
    w_type = rng.choice([np.uint8, np.int8]) if product and x_type == np.uint8 else x_type
    if not product:
        x_type = w_type = np.uint8  # what ONNX Runtime has a kernel for
    g = builders.Graph()
    zero = g.input(builders.zero_point(rng, x_type).reshape([] if rng.random() < 0.5 else [1]), "z")
    attributes = {}
    if product and rng.random() < 0.5:
        # Two run-time matrices; either zero point at run time, constant or absent.
        batch, (m, k, n) = (
            [int(v) for v in rng.choice([1, 2, 3], size=int(rng.integers(0, 3)))],
            [int(v) for v in rng.choice([1, 7, 20, 33], size=3)],
        )
        x, w = builders.values(rng, x_type, [*batch, m, k]), builders.values(rng, w_type, [*batch, k, n])
        zeros = [zero if rng.random() < 0.7 else g.constant(builders.zero_point(rng, x_type)), ""]
        if rng.random() < 0.8:
            value = builders.zero_point(rng, w_type)
            zeros[1] = g.input(value, "w_zero") if rng.random() < 0.7 else g.constant(value)
        g.node("MatMulInteger", [g.input(x, "x"), g.input(w, "w"), *zeros], "y")
        return g.finish("y"), g.feeds, f"seed {seed}: {x.shape} {w.shape} {x_type.__name__} {w_type.__name__} {zeros}"
    if product:
        lead, k, n = (
            [int(v) for v in rng.choice([1, 2, 5, 9], size=int(rng.integers(1, 3)))],
            int(rng.choice([1, 7, 33, 300])),
            int(rng.choice([1, 9, 40])),
        )
        x, w, outputs = builders.values(rng, x_type, [*lead, k]), builders.values(rng, w_type, [k, n]), n
    else:
        dims, groups = int(rng.choice([1, 2, 2])), int(rng.choice([1, 1, 2, 5]))
        depth, outputs = int(rng.choice([1, 3, 8])), groups * int(rng.choice([1, 4, 9]))
        kernel = [int(v) for v in rng.choice([1, 2, 3, 5], size=dims)]
        x = builders.values(
            rng,
            x_type,
            [int(rng.choice([1, 3])), groups * depth, *(int(v) for v in rng.choice([9, 11, 14], size=dims))],
        )
        w = builders.values(rng, w_type, [outputs, depth, *kernel])
        attributes = {"group": groups, "strides": [int(v) for v in rng.choice([1, 2, 3], size=dims)]}
        pads = [int(rng.integers(0, k)) for k in kernel + kernel]
        style = rng.choice(["pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
        if style == "pads":
            attributes["pads"] = pads
            attributes["dilations"] = [int(v) for v in rng.choice([1, 2], size=dims)]
        elif style != "none":
            attributes["auto_pad"] = str(style)
    operands = [g.input(x, "x"), g.constant(w), zero]
    if rng.random() < 0.5 or not product:
        operands.append(g.constant(builders.values(rng, w_type, [outputs] if product and rng.random() < 0.5 else [])))
    g.node("MatMulInteger" if product else "ConvInteger", operands, "y", **attributes)
    return g.finish("y"), g.feeds, f"seed {seed}: {x.shape} {w.shape} {x_type.__name__} {w_type.__name__} {attributes}"


@pytest.mark.parametrize("seed", range(80))
def test_products_with_a_run_time_zero_point(seed, configs):
    model, feeds, text = product_model(seed)
    expected = oracle.run_plain(model, feeds)["y"]
    data = model.SerializeToString()
    assert np.array_equal(tessera.Session(data, "reference").run(None, feeds)[0], expected), text
    session = tessera.Session(data, "fsim", configs[seed % len(configs)], check_races=True, poison=seed + 1)
    got = session.run(None, feeds)[0]
    assert got.dtype == expected.dtype and np.array_equal(got, expected), (
        f"{(got != expected).sum()} of {got.size}; {text}"
    )
    assert session.info().macs_npu_share == 1.0, text


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("convolutions", [False, True], ids=["products", "convolutions"])
def test_networks_of_the_dynamic_quantiser(convolutions, per_channel, configs, tmp_path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    rng = np.random.default_rng(7)
    g = builders.Graph()
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    if convolutions:
        x = g.input(normal(2, 3, 9, 9), "x")
        x = g.node(
            "Relu",
            [g.node("Conv", [x, g.constant(normal(8, 3, 3, 3)), g.constant(normal(8))], "a", pads=[1, 1, 1, 1])],
            "b",
        )
        x = g.node(
            "Flatten",
            [g.node("GlobalAveragePool", [g.node("Conv", [x, g.constant(normal(6, 8, 1, 1))], "c")], "d")],
            "e",
        )
        g.node("Gemm", [x, g.constant(normal(6, 5))], "y")
    else:
        x = g.input(normal(4, 16), "x")
        x = g.node(
            "Relu",
            [g.node("Add", [g.node("MatMul", [x, g.constant(normal(16, 32))], "a"), g.constant(normal(32))], "b")],
            "c",
        )
        g.node("MatMul", [x, g.constant(normal(32, 7))], "y")
    model = g.finish("y")
    onnx.save(model, tmp_path / "float.onnx")
    quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "dynamic.onnx",
        per_channel=per_channel,
        weight_type=QuantType.QUInt8 if convolutions else QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gemm", "Conv"],
    )
    data = (tmp_path / "dynamic.onnx").read_bytes()
    expected = oracle.run_plain(data, g.feeds)["y"]
    reference = tessera.Session(data, "reference").run(None, g.feeds)[0]
    assert np.abs(reference - expected).max() <= 1e-5 * np.abs(expected).max()
    for i, config in enumerate(configs):
        session = tessera.Session(data, "fsim", config, check_races=True, poison=i + 1)
        assert np.abs(session.run(None, g.feeds)[0] - reference).max() <= 1e-6 * np.abs(expected).max(), config
        assert session.info().macs_npu_share == 1.0, config


def test_attention_of_the_dynamic_quantiser(configs, tmp_path):
    """With the option that quantises products of two activations too, the scores and the context run on the NPU."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    b = networks.Builder("attention", [1, 12, 24])
    b.channels["input"] = 24
    onnx.save(b.finish(b.attention("input", 3)), tmp_path / "float.onnx")
    quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "dynamic.onnx",
        weight_type=QuantType.QUInt8,
        op_types_to_quantize=["MatMul"],
        extra_options={"MatMulConstBOnly": False},
    )
    data = (tmp_path / "dynamic.onnx").read_bytes()
    feeds = {"input": np.random.default_rng(4).standard_normal([1, 12, 24]).astype(np.float32)}
    (expected,) = oracle.run_plain(data, feeds).values()
    for i, config in enumerate(configs):
        session = tessera.Session(data, "fsim", config, check_races=True, poison=i + 1)
        assert np.abs(session.run(None, feeds)[0] - expected).max() <= 0.03 * np.abs(expected).max(), config
        assert session.info().macs_npu_share == 1.0, config

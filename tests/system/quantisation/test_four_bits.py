# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits: what `tessera quantize --weights int4` makes is an int8 model like others, equal to ONNX Runtime
in every element; on a machine with packed_weights its weights take about half of the bytes, and results stay."""

import _tessera
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization import four_bits
from tests.oracle import oracle
from tests.system.decoder import Decoder, empty_past
from tests.system.exported_decoder import ExportedDecoder
from tests.system.interfaces.test_binding import decode

PACKED = "packed_weights = 1\n"


def machine(tmp_path, name="npu64", more=PACKED):
    """The file of a shipped machine with packed weights."""
    text = _tessera.shipped_configs()[name]
    lines = [line for line in text.splitlines() if not line.startswith("packed_weights")]
    path = tmp_path / f"{name}_packed.toml"
    path.write_text("\n".join(lines) + "\n" + more)
    return str(path)


def test_the_grid_is_near_and_exact():
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((2, 5, 40 * 3)).astype(np.float32) * rng.uniform(0.01, 1, (2, 5, 1))
    grid = four_bits.Grid(16)
    scale, steps = grid.fit(weights, 3)
    assert steps.min() >= 1 and steps.max() <= 16
    by_block = steps.reshape(2, 5, 40, 3)
    for start in (0, 16, 32):  # one m for each block of channels and tap
        assert (by_block[:, :, start : start + 16] == by_block[:, :, start : start + 1]).all()
    made = four_bits.rounded(weights / scale[..., None], steps)
    assert (made % steps == 0).all() and (made // steps >= -8).all() and (made // steps <= 7).all()
    error = ((made * scale[..., None] - weights) ** 2).sum() / (weights**2).sum()
    assert error < 0.012  # 19 dB: 4 bits for blocks of 16


def test_zero_weights_and_least_scales():
    scale, steps = four_bits.Grid(16).fit(np.zeros((1, 2, 16), np.float32), 1, least=np.array([[0.5, 0.0]]))
    assert scale[0, 0] == 0.5 and scale[0, 1] > 0 and (steps >= 1).all()


def network(seed, kernel=3):
    """Two convolutions and a product behind them."""
    rng = np.random.default_rng(seed)
    tensors = {
        "k": rng.standard_normal((24, 24, kernel, kernel)) / 12,
        "d": rng.standard_normal((24, 1, 3, 3)) / 3,
        "p": rng.standard_normal((17, 24, 1, 1)) / 5,
        "w": rng.standard_normal((17, 33)) / 4,
        "b": rng.standard_normal(33),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "first", pads=[kernel // 2] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "d"], ["e"], "depthwise", group=24, pads=[1] * 4),
        helper.make_node("Conv", ["e", "p"], ["f"], "second"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["h"], "flat"),
        helper.make_node("Gemm", ["h", "w", "b"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 24, 9, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 33))],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("mixed", [0.0, 0.3])
def test_a_network_in_4_bits(tmp_path, mixed):
    model, config = network(1), machine(tmp_path)
    data = np.random.default_rng(2).standard_normal((24, 24, 9, 9)).astype(np.float32)
    made = tessera.quantize(model, data, engine="onnxruntime", config=config, weights="int4", mixed=mixed, report=True)
    layers = made.report["weights_in_4_bits"]
    assert "depthwise" not in layers and (len(layers) == 3 if not mixed else 0 < len(layers) < 3)
    assert made.report["output_snr_db"] > 12
    feeds = {"x": data[:1]}
    want = oracle.run_plain(made.model, feeds)["y"]
    read = {}
    for name in ("npu64", config):
        for device in ("fsim", "sysc"):
            session = tessera.Session(made.model.SerializeToString(), device, name)
            assert np.array_equal(session.run(None, feeds)[0], want)
        read[name] = session.stats()["dram_read_bytes"]
    assert read[config] < read["npu64"]


def test_a_decoder_in_4_bits(tmp_path):
    """The seeded decoder, whose weights are of the grid: same logits on machines with and without, fewer cycles."""
    decoder = Decoder(layers=2, heads=4, size=16, inner=128, words=200, four_bits=16)
    data, cycles, logits = decoder.model(), {}, {}
    for config in ("npu64", machine(tmp_path)):
        session = tessera.Session(data, "sysc", config, max_length=64)
        logits[config], _ = decode(session, decoder, 3, empty_past(decoder))
        cycles[config] = session.stats()["cycles"]
    first, second = logits.values()
    assert all(np.array_equal(a, b) for a, b in zip(first, second))
    before, after = cycles.values()
    assert after < 0.8 * before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": "int4", "per_channel": False}, "cannot be had with --per-tensor"),
        ({"weights": "int4", "group": 12}, "packs weights by 8"),
        ({"weights": "int2"}, "takes int8 or int4"),
        ({"group": 16}, "needs --weights int4"),
    ],
)
def test_what_is_refused(tmp_path, options, words):
    data = np.zeros((2, 24, 9, 9), np.float32)
    with pytest.raises(tessera.Error, match=words):
        tessera.quantize(network(1), data, engine="onnxruntime", config=machine(tmp_path), **options)


def product_in_blocks(block, zeros, lead, depth=96, rows=40, seed=1):
    """A MatMulNBits of 4 bits with accuracy_level 4."""
    rng, blocks = np.random.default_rng(seed), -(-depth // block)
    tensors = {
        "w": rng.integers(0, 256, (rows, blocks, block // 2)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, rows * blocks).astype(np.float32),
    }
    if zeros:
        tensors["z"] = rng.integers(0, 256, rows * -(-blocks // 2)).astype(np.uint8)
    attributes = {"K": depth, "N": rows, "bits": 4, "block_size": block, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", *tensors], ["y"], "product", domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (*lead, depth))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("lead, shape", [((1,), (1,)), (("batch", 3), (2, 3)), ((2, 2, 5), (2, 2, 5))])
def test_products_in_blocks(tmp_path, block, zeros, lead, shape):
    """The exporter's own integers, block by block, on the NPU: as ONNX Runtime but for the order of floats."""
    data, config = product_in_blocks(block, zeros, lead), machine(tmp_path)
    feeds = {"x": np.random.default_rng(3).standard_normal((*shape, 96)).astype(np.float32)}
    want = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    exact = tessera.Session(data, "reference").run(None, feeds)[0]
    assert np.abs(exact - want).max() < 1e-5 * np.abs(want).max()
    read = {}
    for name in ("npu64", config):
        session = tessera.Session(data, "sysc", name)
        assert np.array_equal(session.run(None, feeds)[0], exact)
        assert {layer.op for layer in session.stats().layers if layer.placement == "npu"} == {"MatMulInteger"}
        read[name] = session.stats()["dram_read_bytes"]
    assert np.array_equal(tessera.Session(data, "rtl", "npu64").run(None, feeds)[0], exact)
    assert read[config] < 0.9 * read["npu64"]


def test_an_exported_decoder_in_blocks():
    """A decoder as it is exported: its products with weights are the NPU's, and its logits ONNX Runtime's."""
    decoder = ExportedDecoder(do_rotary=1, accuracy=4)
    data = decoder.model()
    feeds = decoder.feeds(np.random.default_rng(2).integers(0, decoder.words, (1, 6)))
    want = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    session = tessera.Session(data, "fsim", "npu64")
    names = [port.name for port in session.get_outputs()]
    got = dict(zip(names, session.run(None, feeds)))["logits"]
    products = [layer for layer in session.stats().layers if layer.placement == "npu"]
    assert len({layer.name for layer in products}) == 11 and {layer.op for layer in products} == {"MatMulInteger"}
    assert np.abs(got - want).max() < 1e-3 * np.abs(want).max()


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8"])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_dequantised_blocks(kind, op):
    """With close numerics what ONNX Runtime makes of them by default; else floats, as with its accuracy level 0."""
    rng, (depth, rows, block) = np.random.default_rng(4), (80, 24, 32)
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}[kind]
    integers = lambda name, *shape: helper.make_tensor(
        name, getattr(TensorProto, kind), shape, rng.integers(low, high, shape).reshape(-1).tolist()
    )
    scales = rng.uniform(0.01, 0.02, (3, rows)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=block),
        helper.make_node(op, ["x", "d"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, depth))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [integers("w", depth, rows), numpy_helper.from_array(scales, "s"), integers("z", 3, rows)],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    feeds = {"x": rng.standard_normal((3, depth)).astype(np.float32)}
    for numerics, level in (("close", None), ("exact", "0")):
        options = onnxruntime.SessionOptions()
        if level:
            options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
        want = onnxruntime.InferenceSession(data, options).run(None, feeds)[0]
        session = tessera.Session(data, "fsim", "npu64", numerics=numerics)
        got = session.run(None, feeds)[0]
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
        assert any(layer.placement == "npu" for layer in session.stats().layers) == (numerics == "close")

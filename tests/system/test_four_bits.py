# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits: what `tessera quantize --weights int4` makes is an int8 model like others, equal to ONNX Runtime
in every element; on a machine with packed_weights its weights take about half of the bytes, and results stay."""

import _tessera
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tessera.quantization import four_bits

import tessera
from tests.oracle import oracle
from tests.system.decoder import Decoder, empty_past
from tests.system.test_binding import decode

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

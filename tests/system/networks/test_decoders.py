# SPDX-License-Identifier: Apache-2.0
"""Decoders with past and present, compiled once for a maximal length: every token equals ONNX Runtime's on the growing
Concat, on every device, and nothing is compiled for a length."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tessera
from tests.oracle import oracle
from tests.system.conftest import ROOT
from tests.system.decoder import Decoder, empty_past

pytestmark = pytest.mark.usefixtures("compiled_once")


def runtime(data):
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return oracle.make_session(data, oracle.session_options(level))


def feeds_at(decoder, start, tokens, batch, past):
    ids = np.random.default_rng(start).integers(0, decoder.words, (batch, tokens))
    feeds = {"input_ids": ids, "position_ids": np.tile(np.arange(start, start + tokens), (batch, 1)), **past}
    if tokens > 1:
        feeds["attention_mask"] = np.ones((batch, start + tokens), np.int64)
    return feeds


def names_of(decoder, prefix):
    return [f"{prefix}.{layer}.{kind}" for layer in range(decoder.layers) for kind in ("key", "value")]


def as_past(decoder, results):
    return dict(zip(names_of(decoder, "past_key_values"), results[1:]))


SHAPES = {
    "one head's width": {"heads": 2, "size": 16},
    "grouped queries, batch 3": {"layers": 2, "heads": 4, "groups": 2, "size": 8, "batch": 3},
    "heads of 24": {"heads": 3, "size": 24},
    "one key for all, tokens first": {"heads": 3, "groups": 1, "size": 12, "tokens_first": True},
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", ["npu64", "npu256", "odd"])
def test_steps_equal_onnx_runtime(shape, config, odd_config):
    options = dict(SHAPES[shape])
    batch = options.pop("batch", 1)
    decoder = Decoder(seed=len(shape), **options)
    data = decoder.model(batch)
    expected = runtime(data)
    session = tessera.Session(
        data, "fsim", odd_config if config == "odd" else config, max_length=9, check_races=True, poison=5
    )
    past = empty_past(decoder, batch)
    for step in range(9):
        feeds = feeds_at(decoder, step, 1, batch, past)
        want, got = expected.run(None, feeds), session.run(None, feeds)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), step
        past = as_past(decoder, want)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_along_the_past_on_the_npu(shape, row_configs):
    """With row lanes: at every length from 1 on, with more than one vector in a row."""
    options = dict(SHAPES[shape])
    batch = options.pop("batch", 1)
    decoder = Decoder(seed=len(shape), **options)
    data = decoder.model(batch)
    expected = runtime(data)
    sessions = [tessera.Session(data, "fsim", config, max_length=35, check_races=True) for config in row_configs]
    past = empty_past(decoder, batch)
    for step in range(35):
        feeds = feeds_at(decoder, step, 1, batch, past)
        want = expected.run(None, feeds)
        for session in sessions:
            assert all(np.array_equal(a, b) for a, b in zip(want, session.run(None, feeds), strict=True)), step
        past = as_past(decoder, want)
    for session in sessions:
        layers = session.stats().layers
        assert [layer.placement for layer in layers if "Softmax" in layer.op] == ["npu"] * decoder.layers
        # Values lie as the product reads them: nothing turns them.
        assert not [layer.name for layer in layers if layer.op == "Copy" and layer.placement == "npu"]


@pytest.mark.parametrize("rows", [False, True], ids=["plain", "row lanes"])
@pytest.mark.parametrize("device", ["sysc", "rtl"])
def test_devices_agree(device, rows, row_configs):
    decoder = Decoder(layers=2, heads=4, groups=2, size=8)
    data = decoder.model()
    config = row_configs[1] if rows else "npu64"
    sessions = [tessera.Session(data, name, config, max_length=8) for name in ("fsim", device)]
    past = empty_past(decoder)
    for step in range(4):
        feeds = feeds_at(decoder, step, 1, 1, past)
        want, got = (session.run(None, feeds) for session in sessions)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), step
        past = as_past(decoder, want)
    assert sessions[1].stats().cycles > 0


def test_blocks_of_tokens():
    """Blocks with a causal mask: one program for each size of a block, for any past."""
    decoder = Decoder(seed=4, normalise=True)
    data = decoder.model(2, None)
    session = tessera.Session(data, "fsim", "npu64", max_length=11)
    reference = tessera.Session(data, "reference")
    past, start = empty_past(decoder, 2), 0
    for tokens in (4, 3, 1, 1):
        feeds = feeds_at(decoder, start, tokens, 2, past)
        feeds["attention_mask"] = np.ones((2, start + tokens), np.int64)  # this model takes it for one token, too
        want, got = reference.run(None, feeds), session.run(None, feeds)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), tokens
        past, start = as_past(decoder, want), start + tokens


@pytest.mark.parametrize("cores", [2, 4])
def test_chips_keep_the_past(cores):
    """A block of tokens and the steps behind it on several cores, with every access of every core checked."""
    text = (ROOT / "hw" / "configs" / "npu256t.toml").read_text().replace("cores = 1 ", f"cores = {cores} ")
    text = text.replace("memory_axi_bytes = 0 ", "memory_axi_bytes = 32 ")
    decoder = Decoder(seed=6, layers=2, heads=4, groups=2, size=16, inner=256, longest=67)
    data = decoder.model(1, None)
    session = tessera.Session(data, "fsim", text, max_length=67, check_races=True, poison=5)
    reference = tessera.Session(data, "reference")
    past, start = empty_past(decoder), 0
    for tokens in (64, 1, 1):
        feeds = feeds_at(decoder, start, tokens, 1, past)
        feeds["attention_mask"] = np.ones((1, start + tokens), np.int64)
        want, got = reference.run(None, feeds), session.run(None, feeds)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), start
        past, start = as_past(decoder, want), start + tokens


def test_artifacts_keep_any_length(tmp_path):
    decoder = Decoder()
    data, path = decoder.model(), tmp_path / "decoder.tsr"
    tessera.compile(data, path, "npu64", max_length=6)
    session, expected = tessera.Session(path), runtime(data)
    assert session.get_inputs()[2].shape == [1, 2, "past", 16]
    past = empty_past(decoder)
    for step in range(6):
        feeds = feeds_at(decoder, step, 1, 1, past)
        want, got = expected.run(None, feeds), session.run(None, feeds)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), step
        past = as_past(decoder, want)
    with pytest.raises(tessera.Error, match="holds a past of 6, and a run adds 1.*--max-length"):
        session.run(None, feeds_at(decoder, 6, 1, 1, past))
    past = {name: value[:, :, : 4 if name.endswith("key") else 3] for name, value in past.items()}
    with pytest.raises(tessera.Error, match="past_key_values.0.value' holds a past of 3, an input before it one of 4"):
        session.run(None, feeds_at(decoder, 5, 1, 1, past))


def test_what_cannot_grow_says_so():
    decoder = Decoder()
    with pytest.raises(tessera.Error, match="leaves no past beside the 1 that a run adds; give at least 3"):
        tessera.Session(decoder.model(), "fsim", "npu64", max_length=2).run(
            None, feeds_at(decoder, 0, 1, 1, empty_past(decoder))
        )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "plain", [x], [y])
    plain = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with pytest.raises(tessera.Error, match="no input of dynamic length that a Concat or an attention extends"):
        tessera.Session(plain, "fsim", "npu64", max_length=8).run(None, {"x": np.zeros((2, 4), np.float32)})


def grouped_attention(past):
    """com.microsoft::GroupQueryAttention of 4 heads in 2 groups with its cache as input and output."""
    value = helper.make_tensor_value_info
    names = ["query", "key", "value", "past_key_values.0.key", "past_key_values.0.value", "seqlens_k", "total"]
    shapes = [[1, 1, 32], [1, 1, 16], [1, 1, 16], [1, 2, past, 8], [1, 2, past, 8]]
    inputs = [value(name, TensorProto.FLOAT, shape) for name, shape in zip(names, shapes, strict=False)]
    inputs += [value("seqlens_k", TensorProto.INT32, [1]), value("total", TensorProto.INT32, [])]
    outputs = ["y", "present.0.key", "present.0.value"]
    attention = helper.make_node(
        "GroupQueryAttention", names, outputs, "attention", domain="com.microsoft", num_heads=4, kv_num_heads=2
    )
    present = past if isinstance(past, int) else "all"
    results = [value("y", TensorProto.FLOAT, [1, 1, 32])]
    results += [value(name, TensorProto.FLOAT, [1, 2, present, 8]) for name in outputs[1:]]
    graph = helper.make_graph([attention], "grouped", inputs, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("shared", [True, False], ids=["one buffer", "growing"])
def test_grouped_query_attention(shared):
    """With one buffer for past and present, kept on the device; and with a past that grows."""
    data, rng = grouped_attention(6 if shared else "past"), np.random.default_rng(4)
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    session = tessera.Session(data, "fsim", "npu64", **({} if shared else {"max_length": 6}))
    binding = session.io_binding()
    past = {
        name: np.zeros((1, 2, 6 if shared else 0, 8), np.float32) for name in names_of(Decoder(), "past_key_values")
    }
    for name, array in past.items():
        binding.bind_input(name, array)
    binding.bind_output("y")
    for name in names_of(Decoder(), "present"):
        binding.bind_output_to_device(name)
    for step in range(6):
        feeds = {name: rng.standard_normal((1, 1, n)).astype(np.float32) for name, n in (("query", 32), ("key", 16))}
        feeds["value"] = rng.standard_normal((1, 1, 16)).astype(np.float32)
        feeds |= {"seqlens_k": np.array([step], np.int32), "total": np.array(step + 1, np.int32)}
        for name, array in feeds.items():
            binding.bind_input(name, array)
        binding.run()
        results = binding.outputs()
        want = expected.run(None, {**feeds, **past})
        assert np.allclose(results["y"], want[0], atol=1e-5), step
        past = as_past(Decoder(), want)
        for name in past:
            kept = results[name.replace("past_key_values", "present")]
            assert np.allclose(kept.copy_to_host()[:, :, : step + 1], past[name][:, :, : step + 1], atol=1e-6)
            binding.bind_input(name, kept)

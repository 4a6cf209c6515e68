# SPDX-License-Identifier: Apache-2.0
"""Decoders whose past and present are one buffer of a fixed length: quantisation makes them models whose pasts grow,
and these equal ONNX Runtime step by step, on the NPU."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tessera
from tessera.generation import Generator
from tests.system.exported_decoder import ExportedDecoder
from tests.system.networks.test_exported_decoders import run_by_name, runtime

pytestmark = pytest.mark.usefixtures("compiled_once")
LENGTH = 16


def with_buffers(decoder, tokens, total=LENGTH, batch=1):
    """The decoder with buffers of LENGTH, and a mask of that length or with a dynamic one."""
    model = onnx.load_model_from_string(decoder.model())
    extents = {"batch": batch, "tokens": tokens, "past": LENGTH, "total": LENGTH}
    for value in [*model.graph.input, *model.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if value.name == "attention_mask" and dim.dim_param == "total":
                extent = total
            else:
                extent = extents.get(dim.dim_param)
            if extent is not None:
                dim.dim_value = extent
    return model.SerializeToString()


def feeds_of(decoder, ids, at, results=None, total=None):
    """`ids` [batch, tokens] behind the first `at` of the buffers."""
    empty = np.zeros((len(ids), decoder.groups, LENGTH, decoder.size), np.float32)
    names = [f"{layer}.{kind}" for layer in range(decoder.layers) for kind in ("key", "value")]
    caches = {f"past_key_values.{n}": results[f"present.{n}"] if results else empty for n in names}
    end = at + ids.shape[1]
    mask = np.zeros((len(ids), total or LENGTH), np.int64)
    mask[:, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, **caches}


def sequences(decoder, data, tokens, count=4, total=None):
    """Samples: each sequence from an empty buffer until it is full."""
    session, rng = runtime(data), np.random.default_rng(3)
    for _ in range(count):
        results = None
        for at in range(0, LENGTH, tokens):
            ids = rng.integers(0, decoder.words, (1, tokens))
            feeds = feeds_of(decoder, ids, at, results, at + tokens if total else None)
            yield feeds
            results = run_by_name(session, feeds)


def quantised(data, feeds, **options):
    return tessera.quantize(data, feeds, engine="onnxruntime", config="npu256t", numerics="close", **options)


def shapes(model):
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*model.graph.input, *model.graph.output]
    }


@pytest.mark.parametrize(
    "tokens, total", [(1, LENGTH), (4, LENGTH), (2, None)], ids=["steps", "blocks", "dynamic mask"]
)
def test_the_pasts_of_the_quantised_model_grow(tokens, total):
    decoder = ExportedDecoder(do_rotary=1, layers=2)
    data = with_buffers(decoder, tokens, total)
    with pytest.warns(UserWarning, match="2 GroupQueryAttention have a fixed length of 16.*--max-length 16"):
        made = quantised(
            data,
            lambda: sequences(decoder, data, tokens, total=total is None),
            bytes=["past_key_values.*", "present.*"],
        )
    assert made.macs_npu_share == 1.0
    found = shapes(made.model)
    assert found["past_key_values.1.value"] == [1, decoder.groups, "past_sequence_length", decoder.size]
    assert found["present.0.key"] == [1, decoder.groups, "total_sequence_length", decoder.size]
    assert found["attention_mask"] == [1, "total_sequence_length"]
    # The float model with buffers and the int8 one with pasts, over one sequence.
    rng, results, past, both = np.random.default_rng(9), None, None, ([], [])
    buffers, grows = runtime(data), runtime(made.model.SerializeToString())
    for at in range(0, LENGTH, tokens):
        ids = rng.integers(0, decoder.words, (1, tokens))
        results = run_by_name(buffers, feeds_of(decoder, ids, at, results, at + tokens if total is None else None))
        past = run_by_name(grows, decoder.feeds(ids, past, np.uint8))
        for found, logits in zip(both, (results["logits"], past["logits"])):
            found.append(logits.reshape(-1))
    assert np.corrcoef(*(np.concatenate(found) for found in both))[0, 1] > 0.95


def test_steps_equal_onnx_runtime():
    decoder = ExportedDecoder(do_rotary=1)
    data = with_buffers(decoder, 1)
    with pytest.warns(UserWarning, match="fixed length"):
        made = quantised(data, lambda: sequences(decoder, data, 1), bytes=["past_key_values.*", "present.*"])
    model, prompt = made.model.SerializeToString(), [3, 17, 5, 40]
    session, past, logits = runtime(model), None, []
    for token in prompt:
        past = run_by_name(session, decoder.feeds(np.array([[token]]), past, np.uint8))
    for _ in range(LENGTH - len(prompt)):
        logits.append(past["logits"][0, -1])
        past = run_by_name(session, decoder.feeds(np.array([[int(logits[-1].argmax())]]), past, np.uint8))

    def steps(device, numerics):
        generator = Generator(model, device, "npu256t", max_length=LENGTH, numerics=numerics)
        return [step.logits[0] for step in generator.stream([prompt], len(logits)) if step.generated]

    # Normalisations in integers are steps beside ONNX Runtime's, and the same on every device.
    for device in ("fsim", "sysc"):
        np.testing.assert_array_equal(steps(device, "exact"), logits)
    np.testing.assert_array_equal(steps("fsim", "close"), steps("sysc", "close"))


def single_attention(readers=()):
    """One GroupQueryAttention with its last positions as an input, behind a product."""
    value = helper.make_tensor_value_info
    caches = [1, 2, LENGTH, 8]
    inputs = [value("x", TensorProto.FLOAT, [1, 1, 32]), value("last", TensorProto.INT32, [1])]
    inputs += [value(name, TensorProto.FLOAT, caches) for name in ("past_key", "past_value")]
    outputs = [value("y", TensorProto.FLOAT, [1, 1, 32])]
    outputs += [value(name, TensorProto.FLOAT, caches) for name in ("present_key", "present_value")]
    rng = np.random.default_rng(1)
    constants = [
        onnx.numpy_helper.from_array(rng.standard_normal((32, 64)).astype(np.float32) / 6, "w"),
        onnx.numpy_helper.from_array(np.array(LENGTH, np.int32), "total"),
    ]
    operands = ["qkv", "", "", "past_key", "past_value", "last", "total"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["qkv"]),
        helper.make_node(
            "GroupQueryAttention",
            operands,
            ["y", "present_key", "present_value"],
            "attention",
            domain="com.microsoft",
            num_heads=4,
            kv_num_heads=2,
        ),
        *readers,
    ]
    outputs += [value(node.output[0], TensorProto.FLOAT, caches) for node in readers]
    graph = helper.make_graph(nodes, "single", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def samples_of_one(rng):
    """From one token in the buffer on: ONNX Runtime's QLinearSoftmax of one element is 0."""
    for last in range(1, LENGTH):
        caches = {
            name: rng.standard_normal((1, 2, LENGTH, 8)).astype(np.float32) for name in ("past_key", "past_value")
        }
        yield {"x": rng.standard_normal((1, 1, 32)).astype(np.float32), "last": np.array([last], np.int32), **caches}


def test_last_positions_may_be_an_input():
    """What stands in a buffer behind its sequence is noise here, and says nothing of the ranges."""

    def feeds():
        for feed in samples_of_one(np.random.default_rng(5)):
            for name in ("past_key", "past_value"):
                feed[name][:, :, int(feed["last"][0]) :] *= 1000
            yield feed

    with pytest.warns(UserWarning, match="caches of node 'attention' have a fixed length of 16"):
        made = quantised(single_attention(), feeds)
    assert made.macs_npu_share == 1.0
    expected, session, both = runtime(single_attention()), runtime(made.model.SerializeToString()), ([], [])
    for feed in samples_of_one(np.random.default_rng(6)):
        last = int(feed["last"][0])
        cut = {n: v[:, :, :last] if n.startswith("past") else v for n, v in feed.items()}
        known = {port.name for port in session.get_inputs()}
        want = expected.run(None, feed)[0]
        got = session.run(None, {name: array for name, array in cut.items() if name in known})[0]
        for found, result in zip(both, (want, got)):
            found.append(result.reshape(-1))
    assert np.corrcoef(*(np.concatenate(found) for found in both))[0, 1] > 0.99


def test_made_up_samples_fill_the_buffers():
    decoder = ExportedDecoder(do_rotary=1, layers=1)
    with pytest.warns(UserWarning, match="fixed length of 16"):
        made = quantised(with_buffers(decoder, 1), "random")
    assert made.macs_npu_share == 1.0


def test_buffers_that_others_read_stay():
    reader = helper.make_node("Neg", ["past_key"], ["turned"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = quantised(single_attention([reader]), lambda: samples_of_one(np.random.default_rng(5)))
    assert any(
        "'attention' (GroupQueryAttention) stays in float: its cache has a fixed" in str(t.message) for t in told
    )
    assert shapes(made.model)["past_key"] == [1, 2, LENGTH, 8]


def test_samples_that_do_not_fit_say_so():
    decoder = ExportedDecoder(do_rotary=1, layers=1)
    data = with_buffers(decoder, 2)
    ids = np.zeros((1, 2), np.int64)
    turned = feeds_of(decoder, ids, 4)
    turned["attention_mask"] = turned["attention_mask"][:, ::-1].copy()
    with pytest.raises(tessera.Error, match="'attention_mask' of a sample is not ones in front of zeros"):
        quantised(data, [turned])
    short = feeds_of(decoder, ids, -1)
    with pytest.raises(tessera.Error, match="a sequence of 1 tokens by 'attention_mask', with 2 of them new"):
        quantised(data, [short])
    both = with_buffers(ExportedDecoder(do_rotary=1, layers=1), 1, batch=2)
    uneven = feeds_of(decoder, np.zeros((2, 1), np.int64), 4)
    uneven["attention_mask"][0, :7] = 1
    with pytest.raises(tessera.Error, match=r"holds sequences of \[5, 7\] tokens.*one sequence a sample"):
        quantised(both, [uneven])


def test_greedy_tokens_of_a_batch():
    """Two sequences of one length share the buffers."""
    decoder = ExportedDecoder(do_rotary=1, layers=1)
    data = with_buffers(decoder, 1, batch=2)

    def feeds():
        session, rng, results = runtime(data), np.random.default_rng(3), None
        for at in range(LENGTH):
            feed = feeds_of(decoder, rng.integers(0, decoder.words, (2, 1)), at, results)
            yield feed
            results = run_by_name(session, feed)

    with pytest.warns(UserWarning, match="fixed length of 16"):
        made = quantised(data, feeds, bytes=["past_key_values.*", "present.*"])
    model = made.model.SerializeToString()
    session, past, want = runtime(model), None, []
    ids = np.array([[3], [17]])
    for _ in range(6):
        past = run_by_name(session, decoder.feeds(ids, past, np.uint8))
        ids = past["logits"].argmax(-1)
        want.append(ids[:, 0].tolist())
    generator = Generator(model, "fsim", "npu256t", max_length=LENGTH)
    assert generator.generate([[3], [17]], 6) == [list(row) for row in zip(*want)]


def test_an_iterator_is_read_once():
    decoder = ExportedDecoder(do_rotary=1, layers=1)
    data = with_buffers(decoder, 4)
    with pytest.warns(UserWarning, match="fixed length of 16"):
        made = quantised(data, sequences(decoder, data, 4))
    assert made.macs_npu_share == 1.0


def test_a_model_that_needs_its_buffers_keeps_them():
    """Its second output has as many elements as the mask, which would be fewer."""
    decoder = ExportedDecoder(do_rotary=1, layers=1)
    model = onnx.load_model_from_string(with_buffers(decoder, 4))
    model.graph.node.append(helper.make_node("Neg", ["attention_mask"], ["places"]))
    model.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, [1, LENGTH]))
    data = model.SerializeToString()
    plain = with_buffers(ExportedDecoder(do_rotary=1, layers=1), 4)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = quantised(data, sequences(decoder, plain, 4))
    assert any(
        "keep their fixed length, and stay in float: with a past that grows 'places'" in str(t.message) for t in told
    )
    assert shapes(made.model)["past_key_values.0.key"] == [1, decoder.groups, LENGTH, decoder.size]


def test_a_growing_past_of_a_given_length_is_no_buffer():
    decoder = ExportedDecoder(do_rotary=1, layers=1)
    data, rng = decoder.model(), np.random.default_rng(3)
    first = run_by_name(runtime(data), decoder.feeds(rng.integers(0, decoder.words, (1, 8))))
    feeds = [decoder.feeds(rng.integers(0, decoder.words, (1, 4)), first) for _ in range(4)]
    past = [1, decoder.groups, 8, decoder.size]
    given = {f"past_key_values.0.{kind}": past for kind in ("key", "value")}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        made = quantised(data, feeds, shapes={"input_ids": [1, 4], "attention_mask": [1, 12], **given})
    assert made.macs_npu_share == 1.0
    assert shapes(made.model)["past_key_values.0.key"] == past

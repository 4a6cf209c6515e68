# SPDX-License-Identifier: Apache-2.0
"""BeamSearch, WhisperBeamSearch, GreedySearch and Sampling of com.microsoft with small networks, beside ONNX Runtime's
CPU provider: the same tokens, and scores within rounding. One clear error for each form that is not served."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera

WORDS, HEADS, SIZE = 19, 2, 4
WIDTH = HEADS * SIZE
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
PAD, END, START = 1, 2, 3


class Net:
    """Nodes of a subgraph under construction, with weights drawn from a seed."""

    def __init__(self, seed):
        self.rng, self.nodes, self.weights, self.count = np.random.default_rng(seed), [], [], 0

    def constant(self, value):
        self.weights.append(numpy_helper.from_array(np.asarray(value), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape, scale=1.0):
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, kind, *inputs, result=None, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [result or f"v{self.count}"], **attributes))
        return self.nodes[-1].output[0]

    def embedding(self, ids):
        return self.op("Gather", self.weight(WORDS, WIDTH), ids)

    def heads(self, x, result=None):
        """[rows, tokens, WIDTH] as [rows, HEADS, tokens, SIZE]."""
        parts = self.op("Reshape", x, self.constant(np.array([0, 0, HEADS, SIZE])))
        return self.op("Transpose", parts, perm=[0, 2, 1, 3], result=result)

    def total(self, x, mask=None):
        """[rows, HEADS, tokens, SIZE], summed over tokens, as [rows, 1, WIDTH]."""
        if mask:
            x = self.op(
                "Mul", x, self.op("Unsqueeze", self.op("Cast", mask, to=FLOAT), self.constant(np.array([1, 3])))
            )
        summed = self.op("ReduceSum", x, self.constant(np.array([2])), keepdims=0)
        return self.op("Reshape", summed, self.constant(np.array([0, 1, WIDTH])))

    def logits(self, x):
        self.op("MatMul", self.op("Tanh", x), self.weight(WIDTH, WORDS, scale=1.5), result="logits")

    def graph(self, inputs, outputs):
        return helper.make_graph(
            self.nodes, "net", [value(*i) for i in inputs], [value(*o) for o in outputs], self.weights
        )


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def decoder(seed, layers=2, heads=HEADS):
    """A decoder alone, as GPT-2 is exported: its logits depend on tokens, positions, mask and past."""
    net = Net(seed)
    x = net.op("Add", net.embedding("input_ids"), net.op("Gather", net.weight(64, WIDTH), "position_ids"))
    inputs = [(name, INT32, ["rows", "tokens"]) for name in ("input_ids", "position_ids")]
    inputs.append(("attention_mask", INT32, ["rows", "all"]))
    outputs = [("logits", FLOAT, ["rows", "tokens", WORDS])]
    for i in range(layers):
        axis = net.constant(np.array([0]))
        both = net.op(
            "Concat", net.op("Unsqueeze", net.heads(x), axis), net.op("Unsqueeze", net.heads(x), axis), axis=0
        )
        present = net.op("Concat", f"past_{i}", both, axis=3, result=f"present_{i}")
        key = net.op("Gather", present, net.constant(np.array(1)), axis=0)
        x = net.op("Add", x, net.op("Mul", net.total(key, "attention_mask"), net.weight(WIDTH)))
        inputs.append((f"past_{i}", FLOAT, [2, "rows", heads, "past", SIZE]))
        outputs.append((f"present_{i}", FLOAT, [2, "rows", heads, "all", SIZE]))
    net.logits(x)
    return net.graph(inputs, outputs)


def presents(layers, sort, tokens, prefix="present"):
    names = [f"{prefix}_{kind}_{sort}_{i}" for i in range(layers) for kind in ("key", "value")]
    return [(name, FLOAT, ["rows", HEADS, tokens, SIZE]) for name in names]


def encoder(seed, layers=1, speech=False, begins=True):
    """Reads the source; with `begins` it runs the decoder's first step, too, and leaves its logits."""
    net = Net(seed)
    mask = None if speech else "encoder_attention_mask"
    source = (
        net.op("MatMul", "encoder_input_ids", net.weight(3, WIDTH)) if speech else net.embedding("encoder_input_ids")
    )
    kind = (FLOAT, ["rows", "source", 3]) if speech else (INT32, ["rows", "source"])
    inputs = [("encoder_input_ids", *kind)]
    if mask:
        inputs.append((mask, INT32, ["rows", "source"]))
    outputs, own, cross = [], presents(layers, "self", "tokens"), presents(layers, "cross", "source")
    for name, _, _ in cross:
        net.heads(net.op("Mul", source, net.weight(WIDTH)), result=name)
    if begins:
        inputs.append(("decoder_input_ids", INT32, ["rows", "tokens"]))
        x = net.embedding("decoder_input_ids")
        for name, _, _ in own:
            net.heads(net.op("Mul", x, net.weight(WIDTH)), result=name)
        net.op("Identity", source, result="encoder_hidden_states")
        x = net.op("Add", x, net.total(own[0][0]))
        net.logits(net.op("Add", x, net.total(cross[0][0], mask)))
        outputs = [
            ("logits", FLOAT, ["rows", "tokens", WORDS]),
            ("encoder_hidden_states", FLOAT, ["rows", "source", WIDTH]),
        ]
        outputs += own
    return net.graph(inputs, outputs + cross)


def reader(seed, layers=1, speech=False, hidden=False, all_tokens=False):
    """The decoder beside an encoder."""
    net = Net(seed)
    inputs = [("input_ids", INT32, ["rows", "tokens" if all_tokens else 1])]
    mask = None if speech else "encoder_attention_mask"
    if mask:
        inputs.append((mask, INT32, ["rows", "source"]))
    if hidden:
        inputs.append(("encoder_hidden_states", FLOAT, ["rows", "source", WIDTH]))
    own = presents(layers, "self", "past", "past")
    cross = presents(layers, "cross", "source", "past")
    outputs = [("logits", FLOAT, ["rows", "tokens" if all_tokens else 1, WORDS])]
    x = net.embedding("input_ids")
    last = net.op("Slice", x, *(net.constant(np.array([n])) for n in (-1, 2**31, 1))) if all_tokens else x
    for name, _, _ in own:
        made = net.heads(net.op("Mul", last, net.weight(WIDTH)))
        new = name.replace("past", "present")
        net.op("Concat", name, made, axis=2, result=new)
        outputs.append((new, FLOAT, ["rows", HEADS, "all", SIZE]))
    if hidden:
        x = net.op("Add", x, net.op("ReduceMean", "encoder_hidden_states", axes=[1], keepdims=1))
    x = net.op("Add", x, net.op("Mul", net.total(outputs[1][0]), net.weight(WIDTH)))
    net.logits(net.op("Add", x, net.total(cross[0][0], mask)))
    return net.graph(inputs + own + cross, outputs)


PLACES = {
    "BeamSearch": ["input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty",
                   "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids",
                   "logits_processor"],
    "GreedySearch": ["input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask",
                     "attention_mask"],
}  # fmt: skip
PLACES["Sampling"] = PLACES["GreedySearch"] + ["presence_mask", "seed"]
PLACES["WhisperBeamSearch"] = PLACES["BeamSearch"] + ["cross_qk_layer_head", "extra_decoding_ids", "temperature"]


def model_of(op, feeds, attributes, fixed=(), outputs=1):
    """A model of one node; the operands named in `fixed` are initializers."""
    names = [name if name in feeds else "" for name in PLACES[op]]
    while not names[-1]:
        names.pop()
    results = ["sequences", "sequences_scores", "scores"][:outputs]
    attributes = {"pad_token_id": PAD, "eos_token_id": END, **attributes}
    node = helper.make_node(op, names, results, name="search", domain="com.microsoft", **attributes)
    kinds = {np.dtype(np.float32): FLOAT, np.dtype(np.int32): INT32}
    inputs = [value(n, kinds[x.dtype], [None] * x.ndim) for n, x in feeds.items() if n not in fixed]
    weights = [numpy_helper.from_array(feeds[n], n) for n in fixed]
    made = [value(n, INT32 if n == "sequences" else FLOAT, None) for n in results]
    graph = helper.make_graph([node], "g", inputs, made, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def both(op, feeds, attributes, fixed=("max_length", "num_beams"), outputs=1, device="fsim"):
    """(results of ONNX Runtime, results of Tessera)."""
    feeds = {name: np.asarray(x) for name, x in feeds.items()}
    fixed = [name for name in fixed if name in feeds]
    data = model_of(op, feeds, attributes, fixed, outputs)
    given = {name: x for name, x in feeds.items() if name not in fixed}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    want = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, given)
    return want, tessera.Session(data, device=device).run(None, given)


def i32(*values):
    return np.array(values, np.int32)


def f32(*values):
    return np.array(values, np.float32)


def prompt(rng, batch, length):
    ids = rng.integers(4, WORDS, (batch, length)).astype(np.int32)
    ids[0, : length // 3] = PAD
    return ids


def beam_feeds(ids, beams, returns, longest, **more):
    """ONNX Runtime also wants min_length and length_penalty."""
    numbers = {"max_length": longest, "min_length": 1, "num_beams": beams, "num_return_sequences": returns}
    return {"input_ids": ids, **{name: i32(n) for name, n in numbers.items()}, "length_penalty": f32(1.0), **more}


def assert_beams(want, got):
    assert np.array_equal(got[0], want[0]), f"{got[0]} instead of {want[0]}"
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-4)


def assert_rows(want, got):
    """What lies behind the step that ended the last row is padding; ONNX Runtime leaves it unwritten."""
    if got[0].ndim == 3:
        want, got = [want[0].reshape(-1, want[0].shape[-1])], [got[0].reshape(-1, got[0].shape[-1])]
    written = np.flatnonzero((got[0] != PAD).any(0))[-1] + 2
    assert np.array_equal(got[0][:, :written], want[0][:, :written]), f"{got[0]} instead of {want[0]}"
    assert got[0].shape == want[0].shape and (got[0][:, written:] == PAD).all()


RULES = [
    {},
    {"length_penalty": f32(2.0)},
    {"length_penalty": f32(-1.0), "min_length": i32(8)},
    {"repetition_penalty": f32(1.6), "min_length": i32(7)},
    {"vocab_mask": i32(*[n % 3 != 1 for n in range(WORDS)])},
    {"prefix_vocab_mask": np.arange(2 * WORDS, dtype=np.int32).reshape(2, WORDS) % 4 // 2},
]


@pytest.mark.parametrize("rules", range(len(RULES)))
@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("beams", [1, 2, 4])
def test_beams_of_a_decoder(rules, early, beams):
    for seed in range(4):
        ids = prompt(np.random.default_rng(seed), 2, 5)
        feeds = beam_feeds(ids, beams, max(1, beams - 1), 14, **RULES[rules])
        attributes = {"decoder": decoder(seed), "early_stopping": early, "no_repeat_ngram_size": seed % 3}
        assert_beams(*both("BeamSearch", feeds, attributes, outputs=2))


def test_scores_of_every_step():
    feeds = beam_feeds(prompt(np.random.default_rng(5), 2, 4), 3, 2, 9, min_length=i32(9))
    want, got = both("BeamSearch", feeds, {"decoder": decoder(5)}, outputs=3)
    assert_beams(want, got)
    assert got[2].shape == want[2].shape == (5, 2, 3, WORDS)
    np.testing.assert_allclose(got[2], want[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["BeamSearch", "GreedySearch"])
def test_first_decoder_and_mask(op):
    """A decoder of its own for the first step, and a mask that is given."""
    mask = np.array([[0, 0, 1, 1, 1], [1, 0, 1, 1, 1]], np.int32)
    feeds = {"input_ids": prompt(np.random.default_rng(6), 2, 5), "attention_mask": mask}
    feeds |= beam_feeds(feeds["input_ids"], 3, 3, 12) if op == "BeamSearch" else {"max_length": i32(12)}
    assert_rows(*both(op, feeds, {"decoder": decoder(6), "init_decoder": decoder(7)}, outputs=1))


def test_logits_of_more_words_than_there_are():
    """ONNX Runtime reads them only where they have one row: it takes rows to be as long as the vocabulary."""
    feeds = {"input_ids": i32(5)[None], "max_length": i32(16)}
    assert_rows(*both("GreedySearch", feeds, {"decoder": decoder(6), "vocab_size": WORDS - 2}))


def test_every_operand_may_come_at_run_time():
    feeds = beam_feeds(prompt(np.random.default_rng(8), 2, 5), 3, 2, 11)
    want, got = both("BeamSearch", feeds, {"decoder": decoder(8)}, fixed=(), outputs=2)
    assert_beams(want, got)
    want, got = both("BeamSearch", feeds, {"decoder": decoder(8)}, fixed=(), outputs=2, device="reference")
    assert_beams(want, got)


@pytest.mark.parametrize("rules", range(len(RULES)))
def test_greedy(rules):
    given = {name: x for name, x in RULES[rules].items() if name != "length_penalty"}
    for seed in range(6):
        ids = prompt(np.random.default_rng(seed), 2, 5)
        feeds = {"input_ids": ids, "max_length": i32(16), **given}
        attributes = {"decoder": decoder(seed), "no_repeat_ngram_size": seed % 3}
        assert_rows(*both("GreedySearch", feeds, attributes))


@pytest.mark.parametrize("custom", [0, 1])
@pytest.mark.parametrize("top_p", [0.3, 0.9])
def test_samples_of_a_seed(custom, top_p):
    for seed in range(4):
        feeds = {"input_ids": prompt(np.random.default_rng(seed), 2, 4), "max_length": i32(16), "seed": i32(seed + 3)}
        attributes = {"decoder": decoder(seed), "top_p": top_p, "custom": custom, "temperature": 0.8}
        attributes["min_tokens_to_keep"] = 1
        assert_rows(*both("Sampling", feeds, attributes))


def test_penalty_of_tokens_that_are_present():
    """ONNX Runtime takes all of it from the first token; a penalty without end is the mask of the vocabulary there."""
    feeds = {"input_ids": prompt(np.random.default_rng(2), 2, 4), "max_length": i32(16), "seed": i32(7)}
    allowed = i32(*[n % 3 != 1 for n in range(WORDS)])
    attributes = {"decoder": decoder(2), "top_p": 0.9, "presence_penalty": 1e30}
    want, _ = both("Sampling", {**feeds, "vocab_mask": allowed}, attributes)
    feeds["presence_mask"] = np.stack([1 - allowed] * 2)
    assert_rows(want, tessera.Session(model_of("Sampling", feeds, attributes), device="fsim").run(None, feeds))


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("all_tokens", [False, True])
def test_beams_of_an_encoder_and_decoder(hidden, all_tokens):
    nets = {"encoder": encoder(2), "decoder": reader(3, hidden=hidden, all_tokens=all_tokens)}
    attributes = {"model_type": 1, "decoder_start_token_id": START, **nets}
    for seed in range(3):
        feeds = beam_feeds(prompt(np.random.default_rng(seed), 2, 5), 3, 2, 10)
        assert_beams(*both("BeamSearch", feeds, attributes, outputs=2))
        feeds["attention_mask"] = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 1, 1]], np.int32)
        assert_beams(*both("BeamSearch", feeds, attributes, outputs=2))


def test_encoder_that_leaves_keys_and_values_alone():
    nets = {"encoder": encoder(2, begins=False), "decoder": reader(3)}
    attributes = {"model_type": 1, "decoder_start_token_id": START, **nets}
    feeds = beam_feeds(prompt(np.random.default_rng(0), 2, 5), 3, 2, 10)
    assert_beams(*both("BeamSearch", feeds, attributes, outputs=2))


@pytest.mark.parametrize("op, times", [("BeamSearch", 0), ("WhisperBeamSearch", 0), ("WhisperBeamSearch", 1)])
@pytest.mark.parametrize("begin", [1, 3])
def test_beams_of_speech(op, begin, times):
    nets = {"encoder": encoder(4, speech=True), "decoder": reader(5, speech=True)}
    attributes = {"model_type": 2, "decoder_start_token_id": START, **nets}
    feeds = beam_feeds(np.random.default_rng(1).standard_normal((2, 6, 3)).astype(np.float32), 3, 2, 12)
    feeds["decoder_input_ids"] = np.array([[3, 5, 6], [3, 7, 4]], np.int32)[:, :begin]
    feeds["logits_processor"] = i32(times)
    if op == "WhisperBeamSearch":
        attributes |= {"beginning_timestamp_token_id": 12, "no_timestamps_token_id": 11, "start_of_lm_token_id": 10}
        attributes |= {"translate_token_id": 8, "transcribe_token_id": 9}
        feeds["temperature"] = f32(1.5)
    assert_beams(*both(op, feeds, attributes, outputs=2))


def test_one_clear_error():
    ids = prompt(np.random.default_rng(0), 2, 5)

    def refused(match, op="BeamSearch", feeds=None, **attributes):
        given = {name: np.asarray(x) for name, x in (feeds or beam_feeds(ids, 2, 1, 10)).items()}
        data = model_of(op, given, {"decoder": decoder(0), **attributes})
        with pytest.raises(tessera.Error, match=match):
            tessera.Session(data, device="fsim").run(None, given)

    refused("node 'search'.*max_length 5 must exceed the 5 tokens", feeds=beam_feeds(ids, 2, 1, 5))
    refused("num_return_sequences must lie", feeds=beam_feeds(ids, 2, 3, 10))
    refused("'model_type' = 1 is not served", "GreedySearch", {"input_ids": ids, "max_length": i32(9)}, model_type=1)
    refused("subgraph 'decoder' has 5 inputs and 2 outputs", decoder=_cut(decoder(0)))
    refused("does not declare the heads", decoder=decoder(0, heads="heads"))


def _cut(graph):
    del graph.output[-1]
    return graph

# SPDX-License-Identifier: Apache-2.0
"""Decoders with GroupQueryAttention and weights in blocks: quantisation spells them out, and the int8 model runs on the
NPU, step by step equal to ONNX Runtime."""

import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.generation import Generator
from tessera.quantization.prepare import prepare
from tests.system.conftest import BUILD
from tests.system.exported_decoder import ExportedDecoder

pytestmark = pytest.mark.usefixtures("compiled_once")
PRODUCTS = {"MatMul", "Gemm", "Conv"}
SHAPES = {
    "rotary": {"do_rotary": 1},
    "interleaved, apart": {"do_rotary": 1, "rotary_interleaved": 1, "packed": False},
    "8 bits, window": {"bits": 8, "block": 32, "local_window_size": 3, "do_rotary": 1},
    "one group, softcap": {"groups": 1, "softcap": 4.0, "scale": 0.3, "do_rotary": 1},
    "no positions, blocks with a rest": {"heads": 3, "groups": 3, "size": 8, "block": 16, "opset": 14},
}


def run_by_name(session, feeds):
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds)))


def runtime(data):
    options = onnxruntime.SessionOptions()
    # Products with weights of 8 bits are those of the model, and not with activations of 8 bits too.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_spelled_out_they_are_the_same(shape):
    decoder = ExportedDecoder(**SHAPES[shape])
    data = decoder.model()
    model = prepare(data, PRODUCTS)
    assert {node.op_type for node in model.graph.node if node.domain} == set()
    sessions = [runtime(data), runtime(model.SerializeToString())]
    for batch, runs in ((2, (6, 1, 1)), (1, (5, 3, 1))):  # ONNX Runtime reads blocks behind a past one at a time
        rng, past = np.random.default_rng(2), [None, None]
        for tokens in runs:
            ids = rng.integers(0, decoder.words, (batch, tokens))
            past = [run_by_name(s, decoder.feeds(ids, p)) for s, p in zip(sessions, past)]
            for name, want in past[0].items():
                np.testing.assert_allclose(past[1][name], want, rtol=2e-3, atol=2e-3, err_msg=name)


def calibration(decoder, data, count=6):
    """Prompts with an empty cache, and blocks behind them."""
    session, rng = runtime(data), np.random.default_rng(3)
    for _ in range(count):
        first = decoder.feeds(rng.integers(0, decoder.words, (1, 8)))
        yield decoder.feeds(rng.integers(0, decoder.words, (1, 8)), run_by_name(session, first))
        yield first


@pytest.fixture(scope="module")
def quantised():
    """(decoder, float model, int8 model)"""
    decoder = ExportedDecoder(do_rotary=1)
    data = decoder.model()
    made = tessera.quantize(
        data,
        lambda: calibration(decoder, data),
        engine="onnxruntime",
        config="npu256t",
        numerics="close",
        bytes=["past_key_values.*", "present.*"],
    )
    return decoder, data, made


def test_quantised_all_products_are_the_npu_s(quantised):
    decoder, data, made = quantised
    assert made.macs_npu_share == 1.0
    ids = np.random.default_rng(7).integers(0, decoder.words, (1, 12))
    want = run_by_name(runtime(data), decoder.feeds(ids))["logits"]
    got = run_by_name(runtime(made.model.SerializeToString()), decoder.feeds(ids, kind=np.uint8))["logits"]
    assert np.corrcoef(want.reshape(-1), got.reshape(-1))[0, 1] > 0.98


def greedy(data, decoder, prompt, count):
    """(tokens, logits of each) by ONNX Runtime, the prompt in one block."""
    session, past, ids, tokens, logits = runtime(data), None, np.array([prompt]), [], []
    for _ in range(count):
        past = run_by_name(session, decoder.feeds(ids, past, np.uint8))
        logits.append(past["logits"][0, -1])
        tokens.append(int(logits[-1].argmax()))
        ids = np.array([[tokens[-1]]])
    return tokens, logits


@pytest.mark.parametrize("device", ["fsim", "sysc", "rtl"])
@pytest.mark.parametrize("config", ["npu256t", "npu64"])
def test_steps_equal_onnx_runtime(quantised, device, config):
    decoder, _, made = quantised
    data, prompt, count = made.model.SerializeToString(), [3, 17, 5, 40], 6 if device == "fsim" else 3
    tokens, logits = greedy(data, decoder, prompt, count)
    generator = Generator(data, device, config, max_length=16, block=4)
    steps = [step for step in generator.stream([prompt], count) if step.generated]
    assert [int(step.tokens[0]) for step in steps] == tokens
    for step, want in zip(steps, logits, strict=True):
        np.testing.assert_array_equal(step.logits[0], want)


def test_a_step_is_one_program(quantised):
    _, _, made = quantised
    generator = Generator(made.model.SerializeToString(), "fsim", "npu256t", max_length=16, numerics="close")
    list(generator.stream([[3]], 2))
    assert generator.session.info()["programs"] == 1


def single(nodes, inputs, outputs, constants, opset):
    value = helper.make_tensor_value_info
    ports = [[value(name, kind, shape) for name, kind, shape in side] for side in (inputs, outputs)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "single", *ports, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def same_when_prepared(data, feeds):
    model = prepare(data, PRODUCTS)
    assert not [node.op_type for node in model.graph.node if node.domain]
    for want, got in zip(*(runtime(d).run(None, feeds) for d in (data, model.SerializeToString())), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_norms_of_sums(opset):
    rng, f = np.random.default_rng(5), lambda *shape: np.random.default_rng(len(shape)).standard_normal(shape)
    norm = helper.make_node(
        "SkipLayerNormalization", ["x", "w", "g", "b", "c"], ["n", "", "", "s"], domain="com.microsoft", epsilon=1e-3
    )
    product = helper.make_node("MatMul", ["n", "m"], ["y"])
    constants = {"g": f(16), "b": f(16), "c": f(16), "m": f(16, 8)}
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    ports = [(name, TensorProto.FLOAT, [2, 3, 16]) for name in ("x", "w")]
    results = [("y", TensorProto.FLOAT, [2, 3, 8]), ("s", TensorProto.FLOAT, [2, 3, 16])]
    data = single([norm, product], ports, results, constants, opset)
    same_when_prepared(data, {n: rng.standard_normal((2, 3, 16)).astype(np.float32) for n in ("x", "w")})


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("shift", [True, False])
def test_a_norm_of_an_older_opset(axis, shift):
    """ONNX Runtime's optimiser writes LayerNormalization in any opset."""
    rng = np.random.default_rng(6)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("LayerNormalization", ["p", "g", "b"][: 2 + shift], ["n"], axis=axis, epsilon=1e-3),
        helper.make_node("MatMul", ["n", "m"], ["y"]),
    ]
    shapes = {"w": (16, 16), "g": (16,), "b": (16,), "m": (16, 8)}
    constants = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if not shift:
        del constants["b"]
    ports = [("x", TensorProto.FLOAT, [2, 3, 16])], [("y", TensorProto.FLOAT, [2, 3, 8])]
    data = single(nodes, *ports, constants, 13)
    same_when_prepared(data, {"x": rng.standard_normal((2, 3, 16)).astype(np.float32)})
    samples = [{"x": rng.standard_normal((2, 3, 16)).astype(np.float32)} for _ in range(4)]
    made = tessera.quantize(data, samples, engine="onnxruntime", config="npu256t", numerics="close")
    session = tessera.Session(made.model.SerializeToString(), "fsim", "npu256t", numerics="close")
    session.run(None, samples[0])
    assert {layer.op for layer in session.stats().layers if layer.placement == "npu"} >= {"NormaliseRows"}


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_positions_alone(interleaved, rank):
    rng = np.random.default_rng(6)
    shape = [2, 5, 48] if rank == 3 else [2, 3, 5, 16]
    options = {"num_heads": 3} if rank == 3 else {}
    node = helper.make_node(
        "RotaryEmbedding", ["x", "p", "c", "s"], ["t"], domain="com.microsoft", interleaved=interleaved, **options
    )
    product = helper.make_node("MatMul", ["t", "m"], ["y"])
    angle = np.outer(np.arange(9), 1 / 3.0 ** np.arange(8)).astype(np.float32)
    constants = {"c": np.cos(angle), "s": np.sin(angle), "m": rng.standard_normal((shape[-1], 8)).astype(np.float32)}
    ports = [("x", TensorProto.FLOAT, shape), ("p", TensorProto.INT64, [2, 5])]
    data = single([node, product], ports, [("y", TensorProto.FLOAT, shape[:-1] + [8])], constants, 17)
    feeds = {"x": rng.standard_normal(shape).astype(np.float32), "p": rng.integers(0, 9, (2, 5))}
    same_when_prepared(data, feeds)


@pytest.mark.parametrize("blocks", [True, False])
def test_constants_that_are_dequantised(blocks):
    """Weights alone in blocks or channels: the model is a float one for quantisation."""
    rng = np.random.default_rng(8)
    weights = rng.integers(-8, 8, (32, 12)).astype(np.int8)
    scales = rng.uniform(0.1, 0.3, (2, 12) if blocks else 12).astype(np.float32)
    options = {"axis": 0, "block_size": 16} if blocks else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["m"], **options),
        helper.make_node("MatMul", ["x", "m"], ["y"]),
    ]
    ports = [("x", TensorProto.FLOAT, [3, 32])], [("y", TensorProto.FLOAT, [3, 12])]
    data = single(nodes, *ports, {"w": weights, "s": scales}, 21)
    same_when_prepared(data, {"x": rng.standard_normal((3, 32)).astype(np.float32)})


def test_what_is_not_spelled_out_says_so():
    decoder = ExportedDecoder(layers=1)
    model = onnx.load_model_from_string(decoder.model())
    for value in [*model.graph.input, *model.graph.output]:
        if "key" in value.name or "value" in value.name:
            value.type.tensor_type.shape.dim[2].dim_value = 32
    with pytest.warns(UserWarning, match="stays in float: its cache has a fixed length.*a past that grows"):
        prepare(model, PRODUCTS)


def test_the_command_says_what_stays_in_float(tmp_path):
    path = tmp_path / "exported.onnx"
    path.write_bytes(ExportedDecoder(do_rotary=1).model())
    shapes = [word for name in ("batch=1", "tokens=1", "past=3", "total=4") for word in ("--shape", name)]
    command = [BUILD / "bin" / "tessera", "compile", path, *shapes, "-o", tmp_path / "exported.tsr"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "and 2 GroupQueryAttention are computed in float on the CPU; `tessera quantize`" in done.stderr
    command = [BUILD / "bin" / "tessera", "compile", path, "--max-length", "8", *shapes[:4], "-o", tmp_path / "x.tsr"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "`tessera quantize` spells it out in operators that do not" in done.stderr

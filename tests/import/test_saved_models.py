# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime's optimiser saved open and give its results: operators of its own domains, fused ones and
those of its memory layouts among them. Its files are written here, at each level."""

import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.system import encoder

LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "models"
onnxruntime.set_default_logger_severity(4)


def session_of(source, level, saved=None):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    if saved:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def check(nn, source, level, folder, tolerance):
    """Saves `source` at a level; the file equals ONNX Runtime's reading of the same file. Returns its operators."""
    saved = folder / "saved.onnx"
    inputs = session_of(source, LEVELS[level], saved).get_inputs()
    rng = np.random.default_rng(5)
    feeds = {}
    for port in inputs:
        shape = [d if isinstance(d, int) and d > 0 else 1 for d in port.shape]
        kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
        kind = kinds[port.type]
        feeds[port.name] = (rng.random(shape) * (255 if kind == np.uint8 else 1)).astype(kind)
    session = session_of(str(saved), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    model = nn.Model(str(saved))
    model.optimise()
    actual = model.run(feeds)
    for name, value in expected.items():
        bound = tolerance * max(1.0, float(np.max(np.abs(value.astype(np.float64)), initial=0)))
        np.testing.assert_allclose(actual[name].astype(np.float64), value.astype(np.float64), rtol=0, atol=bound)
    return {(node.domain, node.op_type) for node in onnx.load(str(saved)).graph.node}


def conv_network(channels):
    """Convolutions of several kinds between pools, a branch and an upsampling; `channels` need not fill blocks."""
    rng = np.random.default_rng(4)
    c = channels
    shapes = {
        "w0": (c, 3, 3, 3),
        "b0": (c,),
        "w1": (c, 1, 3, 3),
        "b1": (c,),
        "w2": (2 * c, c, 1, 1),
        "w3": (c, 2 * c, 3, 3),
    }
    weights = [numpy_helper.from_array((rng.standard_normal(s) / 5).astype(np.float32), n) for n, s in shapes.items()]
    weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w1", "b1"], ["d"], pads=[1, 1, 1, 1], group=c),
        helper.make_node("LeakyRelu", ["d"], ["e"], alpha=0.3),
        helper.make_node("Conv", ["e", "w2"], ["f"]),
        helper.make_node("Sigmoid", ["f"], ["g"]),
        helper.make_node("Mul", ["f", "g"], ["h"]),
        helper.make_node("Conv", ["h", "w3"], ["i"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["i", "c"], ["j"]),
        helper.make_node("Relu", ["j"], ["k"]),
        helper.make_node("AveragePool", ["k"], ["l"], kernel_shape=[2, 2]),
        helper.make_node(
            "Resize",
            ["l", "", "scales"],
            ["m"],
            coordinate_transformation_mode="asymmetric",
            mode="nearest",
            nearest_mode="floor",
        ),
        helper.make_node("Transpose", ["m"], ["n"], perm=[0, 2, 3, 1]),
        helper.make_node("GlobalAveragePool", ["k"], ["o"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("n", "o")],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [8, 16, 20, 24])
def test_networks_of_convolutions(nn, level, channels, tmp_path):
    found = check(nn, conv_network(channels), level, tmp_path, 1e-5)
    if level == "all" and any(domain.endswith("nchwc") for domain, _ in found):
        assert ("com.microsoft.nchwc", "Conv") in found and ("com.microsoft.nchwc", "ReorderOutput") in found
    if level == "extended":
        assert ("com.microsoft", "FusedConv") in found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "name,tolerance",
    [
        ("mnist-8", 1e-5),
        ("cnn_mnist_pytorch", 1e-5),
        ("mlperf_tiny_resnet8", 1e-5),
        ("vitTracker", 1e-4),
        ("cct_cifar", 1e-5),
        ("squeezenet_fp16", 2e-3),
        ("mobilenetv3_fx_int8", 0),
    ],
)
def test_public_models(nn, name, tolerance, level, tmp_path):
    path = SHARED / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"no {path.name} beside the project")
    check(nn, str(path), level, tmp_path, tolerance)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["", "bert", "gpt2"])
def test_transformers(nn, kind, level, tmp_path):
    """Files of ONNX Runtime's optimiser for transformers, which writes operators of its own, and of the runtime."""
    path = tmp_path / "encoder.onnx"
    onnx.save(encoder.Encoder().model(), path)
    if kind:
        optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
        fused = optimizer.optimize_model(str(path), model_type=kind, num_heads=2, hidden_size=16, opt_level=0)
        fused.save_model_to_file(str(path))
        found = {node.op_type for node in onnx.load(path).graph.node}
        assert "SkipLayerNormalization" in found and (kind != "bert" or "Attention" in found)
    saved = tmp_path / "saved.onnx"
    session_of(str(path), LEVELS[level], saved)
    rng = np.random.default_rng(3)
    mask = (np.arange(6) < np.array([[6], [4]])).astype(np.int64)
    feeds = {"ids": rng.integers(0, 11, (2, 6)), "mask": mask}
    session = session_of(str(saved), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    expected = session.run(None, feeds)[0]
    model = nn.Model(str(saved))
    model.optimise()
    actual = model.run(feeds)[session.get_outputs()[0].name]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)


def lstm_network(direction, directions):
    """An LSTM over a batch of three and a product behind it, in float."""
    rng = np.random.default_rng(6)
    hidden, size = 9, 5
    shapes = {"W": (directions, 4 * hidden, size), "R": (directions, 4 * hidden, hidden), "B": (directions, 8 * hidden)}
    constants = [numpy_helper.from_array(rng.normal(0, 0.4, s).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node(
            "LSTM", ["x", "W", "R", "B"], ["y", "h", "c"], "cell", hidden_size=hidden, direction=direction
        ),
        helper.make_node("Tanh", ["y"], ["z"]),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 3, size])]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("z", "h", "c")]
    graph = helper.make_graph(nodes, "lstm", ports, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("direction, directions", [("forward", 1), ("bidirectional", 2)])
def test_dynamic_quantisation_of_an_lstm(nn, direction, directions, per_channel, tmp_path):
    """What quantize_dynamic makes of an LSTM gives ONNX Runtime's states on one thread, to the bit."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    source, path = tmp_path / "float.onnx", tmp_path / "dynamic.onnx"
    onnx.save(lstm_network(direction, directions), source)
    quantization.quantize_dynamic(source, path, per_channel=per_channel)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(path).graph.node}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.random.default_rng(7).normal(0, 1, (6, 3, 5)).astype(np.float32)}
    model = nn.Model(str(path))
    model.optimise()
    actual = model.run(feeds)
    for name, expected in zip(("z", "h", "c"), session.run(["z", "h", "c"], feeds)):
        np.testing.assert_allclose(actual[name], expected, rtol=0, atol=1e-6 if name == "z" else 0)

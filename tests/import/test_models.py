# SPDX-License-Identifier: Apache-2.0
"""Public models against ONNX Runtime, with and without the passes. The models stand in ../shared/models beside the
project; the tests skip where they are absent."""

import pathlib

import numpy as np
import onnxruntime
import pytest

MODELS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "models"
onnxruntime.set_default_logger_severity(4)

# name -> tolerance of the float result relative to the largest output.
FLOAT_MODELS = {
    "cct_cifar": 1e-5,
    "cnn_mnist_pytorch": 1e-5,
    "mlperf_tiny_resnet8": 1e-5,
    "mlperf_tiny_vww_mobilenetv1_025": 1e-5,
    "mnist-8": 1e-5,
    "mnist_burn": 1e-5,
    "mobilenetv2_035_128": 1e-5,
    "resnet50_topology": 1e-5,
    "squeezenet_fp16": 1e-2,
    "super-resolution-10": 1e-5,
    "ultraface-RFB-320": 1e-5,
    "ultraface-RFB-320_simplified": 1e-5,
    "vitTracker": 1e-5,
    "yolox_nano": 2e-4,
    "yunet_n_320_320": 1e-5,
}
INTEGER_MODELS = {
    "shufflenet-v2-12-int8": {},
    "mobilenetv2_qdq": {"image": [1, 3, 244, 244]},
    "mobilenetv3_fx_int8": {"input_u8": [1, 3, 224, 224]},
    "RetinaFace_int_amd": {},
}


def find(name):
    path = MODELS / (name + ".onnx")
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return str(path)


def session(path, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    for key in ("session.x64quantprecision", "session.qdqisint8allowed", "session.disable_double_qdq_remover"):
        options.add_session_config_entry(key, "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def random_feeds(model, seed):
    rng = np.random.default_rng(seed)
    feeds = {}
    for name, dtype, shape in model.inputs:
        shape = [1 if d < 0 else d for d in shape]
        feeds[name] = rng.integers(0, 256, shape).astype(dtype) if dtype == "uint8" else rng.random(shape).astype(dtype)
    return feeds


@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_model(nn, name):
    path = find(name)
    model = nn.Model(path)
    feeds = random_feeds(model, 1)
    oracle = session(path, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    expected = dict(zip([o.name for o in oracle.get_outputs()], oracle.run(None, feeds)))
    assert [n for n, _, _ in model.outputs] == list(expected)
    for optimise in (False, True):
        if optimise:
            model.optimise()
        actual = model.run(feeds)
        for output, values in expected.items():
            assert actual[output].dtype == values.dtype and actual[output].shape == values.shape
            # Sigmoid of ONNX Runtime is a polynomial whose error is absolute: small outputs need a floor.
            scale = max(0.02, float(np.max(np.abs(values.astype(np.float64)))))
            assert (
                np.max(np.abs(actual[output].astype(np.float64) - values.astype(np.float64)))
                <= FLOAT_MODELS[name] * scale
            )


@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_integer_model(nn, name):
    """Folded to integer operators, the result is that of ONNX Runtime at EXTENDED, bit for bit."""
    path = find(name)
    model = nn.Model(path, INTEGER_MODELS[name])
    feeds = random_feeds(model, 2)
    oracle = session(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)
    expected = dict(zip([o.name for o in oracle.get_outputs()], oracle.run(None, feeds)))
    model.optimise(qdq=True)
    actual = model.run(feeds)
    for output, values in expected.items():
        np.testing.assert_array_equal(actual[output], values)


def test_golden_outputs(nn):
    path = find("cct_cifar")
    inputs, outputs = (dict(np.load(MODELS / f"cct_cifar.{kind}.npz")) for kind in ("inputs", "outputs"))
    model = nn.Model(path)
    model.optimise()
    feeds = dict(zip([n for n, _, _ in model.inputs], inputs.values()))
    for actual, expected in zip(model.run(feeds).values(), outputs.values()):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_weights_that_are_absent_are_reported(nn):
    with pytest.raises(nn.TesseraError) as caught:
        nn.Model(find("resnet18_topology"))
    assert "resnet18.external" in str(caught.value) and "does not exist" in str(caught.value)


def test_folding_leaves_no_float_helpers(nn):
    """A network with batch normalisation, dropout and shape arithmetic comes down to its layers."""
    model = nn.Model(find("ultraface-RFB-320"))
    model.optimise()
    operators = {op for _, _, op, _ in model.nodes()}
    assert not operators & {"BatchNormalization", "Shape", "Gather", "Unsqueeze", "Constant", "Cast"}

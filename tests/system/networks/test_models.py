# SPDX-License-Identifier: Apache-2.0
"""Real public models from ../shared/models, read where they stand. Quantised ones: reference interpreter and functional
simulator equal the oracle in every element, on all configurations. Float ones: within a tolerance, as they are and
quantised here."""

import numpy as np
import onnx
import onnxruntime
import pytest

import tessera
from tests.oracle import oracle

pytestmark = pytest.mark.usefixtures("compiled_once")
QUANTISED = ["mobilenetv2_qdq", "shufflenet-v2-12-int8", "mobilenetv3_fx_int8", "RetinaFace_int_amd"]
FLOAT = [
    "mnist-8",
    "cnn_mnist_pytorch",
    "mnist_burn",
    "mlperf_tiny_resnet8",
    "mlperf_tiny_vww_mobilenetv1_025",
    "mobilenetv2_035_128",
    "squeezenet_fp16",
    "ultraface-RFB-320",
    "ultraface-RFB-320_simplified",
    "yunet_n_320_320",
    "yolox_nano",
    "super-resolution-10",
    "cct_cifar",
    "vitTracker",
]
TO_QUANTISE = [
    "mnist-8",
    "mlperf_tiny_resnet8",
    "mlperf_tiny_vww_mobilenetv1_025",
    "ultraface-RFB-320_simplified",
    "yunet_n_320_320",
]
TYPES = {
    "tensor(float)": np.float32,
    "tensor(uint8)": np.uint8,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
}
NEEDS = {"Conv", "QLinearConv", "ConvInteger"}


def random_feeds(model, seed=0, high=1.0):
    session = onnxruntime.InferenceSession(
        model if isinstance(model, (bytes, str)) else str(model), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(seed)
    feeds = {}
    for port in session.get_inputs():
        shape = [d if isinstance(d, int) else (1 if i == 0 else 224) for i, d in enumerate(port.shape)]
        dtype = TYPES[port.type]
        feeds[port.name] = (
            rng.integers(0, 256, shape).astype(dtype)
            if np.issubdtype(dtype, np.integer)
            else (rng.random(shape) * high).astype(dtype)
        )
    return feeds, [port.name for port in session.get_outputs()]


def check_quantised(data, feeds, configs):
    """data: bytes of a quantised model. Returns the share of nodes on the NPU on npu256."""
    expected = oracle.run(data, feeds, intermediates=False).outputs
    reference = tessera.Session(data, "reference")
    names = [port.name for port in reference.get_outputs()]
    results = reference.run(None, feeds)
    if oracle.exact_cpu():
        for name, got in zip(names, results):
            assert np.array_equal(got, expected[name], equal_nan=True), (
                f"{name}: {(got != expected[name]).sum()} of {got.size} differ from the oracle"
            )
    shares = []
    for i, config in enumerate(configs):
        session = tessera.Session(data, "fsim", config, check_races=True, poison=i + 1)
        for name, got, want in zip(names, session.run(None, feeds), results):
            assert np.array_equal(got, want, equal_nan=True), (
                f"{config}: {name}: {(got != want).sum()} of {got.size} differ"
            )
        info = session.info()
        assert info.macs_npu_share == 1.0, f"{config}: {info.macs_cpu} multiply-accumulates on the CPU"
        shares.append(info.nodes_npu_share)
    return shares[0]


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_models_are_exact(name, shared_models, configs):
    path = shared_models / f"{name}.onnx"
    feeds, _ = random_feeds(path)
    check_quantised(path.read_bytes(), feeds, configs)


def test_a_golden_pair_of_onnx_runtime(shared_models):
    folder = shared_models / "mobilenetv2_qdq_golden"
    load = lambda name: onnx.numpy_helper.to_array(onnx.load_tensor(str(folder / name)))
    session = tessera.Session(shared_models / "mobilenetv2_qdq.onnx", "fsim", "npu256")
    got = session.run(None, {session.get_inputs()[0].name: load("input_0.pb")})[0]
    golden = load("output_0.pb")
    # The pair comes from another release with its own rounding: the same class, logits within a few quantisation steps.
    assert got.shape == golden.shape and got.argmax() == golden.argmax()
    assert np.abs(got - golden).max() <= 0.05 * np.abs(golden).max()


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("name", TO_QUANTISE)
def test_float_models_quantised_here_are_exact(name, per_channel, shared_models, configs):
    path = shared_models / f"{name}.onnx"
    high = 255.0 if name in ("mnist-8", "mlperf_tiny_resnet8", "yunet_n_320_320") else 1.0
    batches = [random_feeds(path, seed, high)[0] for seed in range(3)]
    quantised = oracle.quantize(
        str(path),
        batches,
        per_channel=per_channel,
        activation="s8" if per_channel else "u8",
        extra={"QDQDisableWeightAdjustForInt32Bias": True},
    ).SerializeToString()
    check_quantised(quantised, batches[0], configs if name.startswith("ml") or name == "mnist-8" else configs[1:2])


@pytest.mark.parametrize("name", FLOAT)
def test_float_models_are_close(name, shared_models):
    path = shared_models / f"{name}.onnx"
    feeds, names = random_feeds(path)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    tolerance = 2e-2 if name == "squeezenet_fp16" else 2e-4
    for device in ("reference", "fsim"):
        for port, got, want in zip(names, tessera.Session(path, device).run(None, feeds), expected):
            assert got.shape == want.shape and got.dtype == want.dtype
            scale = max(1e-3, float(np.abs(want.astype(np.float64)).max()))
            assert np.abs(got.astype(np.float64) - want.astype(np.float64)).max() <= tolerance * scale, (
                f"{device}: {port}"
            )


def test_mnist_accuracy_after_quantisation(shared_models):
    data = np.load(shared_models.parent / "data" / "mnist_test500.npz")
    images = data["images"].astype(np.float32)[:, None]
    labels = data["labels"]
    calibration = [{"Input3": image[None]} for image in images[:50]]
    quantised = oracle.quantize(str(shared_models / "mnist-8.onnx"), calibration).SerializeToString()
    session = tessera.Session(quantised, "fsim", "npu64")
    right = sum(
        int(session.run(None, {"Input3": image[None]})[0].argmax() == label)
        for image, label in zip(images[:200], labels)
    )
    assert right >= 190


def test_resnet8_accuracy_after_quantisation(shared_models):
    data = np.load(shared_models.parent / "data" / "cifar10_test200.npz")
    images = data["images"].astype(np.float32).transpose(0, 3, 1, 2)
    labels = data["labels"].ravel()
    path = shared_models / "mlperf_tiny_resnet8.onnx"
    name = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()[0].name
    quantised = oracle.quantize(
        str(path), [{name: image[None]} for image in images[:40]], per_channel=True
    ).SerializeToString()
    session = tessera.Session(quantised, "fsim", "npu256")
    right = sum(
        int(session.run(None, {name: image[None]})[0].argmax() == label) for image, label in zip(images, labels)
    )
    assert right >= 160

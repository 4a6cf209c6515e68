# SPDX-License-Identifier: Apache-2.0
"""Trains the demo network and writes it as quantised ONNX beside its test images.

In: the 1,797 handwritten digits of 8x8 pixels inside scikit-learn. Out: digits_float.onnx, the network as it was
trained; digits.onnx (QDQ, uint8 activations, int8 weights per channel, quantised by ONNX Runtime); digits_test.npz
(images float32 [N,1,8,8], labels); and digits_calibration.npz, images that are not among the test ones. The network is
a small residual one with a depthwise convolution, so that each kind of operation of the machine takes part:
convolution, residual add, max pool, depthwise, pointwise, global average pool, fully connected. Plain NumPy with Adam;
seeded, a few minutes on one core.
"""

import pathlib
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = pathlib.Path(__file__).resolve().parent


def patches(x, k):
    """[N,C,H,W] -> [N,C,k,k,H,W], stride 1, same padding."""
    p = k // 2
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    out = np.empty((n, c, k, k, h, w), x.dtype)
    for i in range(k):
        for j in range(k):
            out[:, :, i, j] = padded[:, :, i : i + h, j : j + w]
    return out


def patches_backward(grad, k):
    p = k // 2
    n, c, _, _, h, w = grad.shape
    padded = np.zeros((n, c, h + 2 * p, w + 2 * p), grad.dtype)
    for i in range(k):
        for j in range(k):
            padded[:, :, i : i + h, j : j + w] += grad[:, :, i, j]
    return padded[:, :, p : p + h, p : p + w]


class Network:
    """conv -> conv + residual -> max pool -> depthwise -> pointwise -> global average pool -> fully connected."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        he = lambda *shape: (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)
        self.p = {
            "conv1_w": he(16, 1, 3, 3),
            "conv1_b": np.zeros(16, np.float32),
            "conv2_w": he(16, 16, 3, 3),
            "conv2_b": np.zeros(16, np.float32),
            "dw_w": he(16, 1, 3, 3),
            "dw_b": np.zeros(16, np.float32),
            "pw_w": he(40, 16, 1, 1),
            "pw_b": np.zeros(40, np.float32),
            "fc_w": he(10, 40),
            "fc_b": np.zeros(10, np.float32),
        }

    def forward(self, x):
        p, s = self.p, {}
        s["x1"] = patches(x, 3)
        s["a1"] = np.maximum(
            np.einsum("ncijhw,ocij->nohw", s["x1"], p["conv1_w"], optimize=True) + p["conv1_b"][:, None, None], 0
        )
        s["x2"] = patches(s["a1"], 3)
        s["z2"] = (
            np.einsum("ncijhw,ocij->nohw", s["x2"], p["conv2_w"], optimize=True) + p["conv2_b"][:, None, None] + s["a1"]
        )
        s["a2"] = np.maximum(s["z2"], 0)
        n, c, h, w = s["a2"].shape
        blocks = (
            s["a2"].reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
        )
        s["arg"] = blocks.argmax(-1)
        s["m"] = blocks.max(-1)
        s["x3"] = patches(s["m"], 3)
        s["a3"] = np.maximum(
            np.einsum("ncijhw,cij->nchw", s["x3"], p["dw_w"][:, 0], optimize=True) + p["dw_b"][:, None, None], 0
        )
        s["a4"] = np.maximum(
            np.einsum("nchw,oc->nohw", s["a3"], p["pw_w"][:, :, 0, 0], optimize=True) + p["pw_b"][:, None, None], 0
        )
        s["g"] = s["a4"].mean((2, 3))
        return s["g"] @ p["fc_w"].T + p["fc_b"], s

    def backward(self, logits, labels, s):
        p, g = self.p, {}
        n = len(labels)
        prob = np.exp(logits - logits.max(1, keepdims=True))
        prob /= prob.sum(1, keepdims=True)
        d = prob
        d[np.arange(n), labels] -= 1
        d /= n
        g["fc_w"], g["fc_b"] = d.T @ s["g"], d.sum(0)
        h, w = s["a4"].shape[2:]
        d = np.broadcast_to((d @ p["fc_w"])[:, :, None, None] / (h * w), s["a4"].shape) * (s["a4"] > 0)
        g["pw_w"] = np.einsum("nohw,nchw->oc", d, s["a3"], optimize=True)[:, :, None, None]
        g["pw_b"] = d.sum((0, 2, 3))
        d = np.einsum("nohw,oc->nchw", d, p["pw_w"][:, :, 0, 0], optimize=True) * (s["a3"] > 0)
        g["dw_w"] = np.einsum("nchw,ncijhw->cij", d, s["x3"], optimize=True)[:, None]
        g["dw_b"] = d.sum((0, 2, 3))
        d = patches_backward(np.einsum("nchw,cij->ncijhw", d, p["dw_w"][:, 0], optimize=True), 3)
        blocks = np.zeros(d.shape + (4,), d.dtype)
        np.put_along_axis(blocks, s["arg"][..., None], d[..., None], -1)
        c, h, w = d.shape[1:]
        d = blocks.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w) * (s["z2"] > 0)
        g["conv2_w"] = np.einsum("nohw,ncijhw->ocij", d, s["x2"], optimize=True)
        g["conv2_b"] = d.sum((0, 2, 3))
        d = (d + patches_backward(np.einsum("nohw,ocij->ncijhw", d, p["conv2_w"], optimize=True), 3)) * (s["a1"] > 0)
        g["conv1_w"] = np.einsum("nohw,ncijhw->ocij", d, s["x1"], optimize=True)
        g["conv1_b"] = d.sum((0, 2, 3))
        return g


def train(images, labels, epochs=80, batch=64, rate=3e-3, seed=7):
    net = Network(seed)
    rng = np.random.default_rng(seed)
    first = {k: np.zeros_like(v) for k, v in net.p.items()}
    second = {k: np.zeros_like(v) for k, v in net.p.items()}
    step = 0
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        lr = rate * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            # shifts by at most one pixel make up for the small data set
            dy, dx = rng.integers(-1, 2, 2)
            x = np.roll(images[chosen], (dy, dx), (2, 3))
            logits, state = net.forward(x)
            grads = net.backward(logits, labels[chosen], state)
            step += 1
            for k, grad in grads.items():
                first[k] = 0.9 * first[k] + 0.1 * grad
                second[k] = 0.999 * second[k] + 0.001 * grad * grad
                net.p[k] -= (
                    lr * (first[k] / (1 - 0.9**step)) / (np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8)
                ).astype(np.float32)
    return net


def to_onnx(net):
    init = [numpy_helper.from_array(v, k) for k, v in net.p.items()]
    conv = lambda name, x, y, w, **a: helper.make_node("Conv", [x, w + "_w", w + "_b"], [y], name=name, **a)
    nodes = [
        conv("conv1", "image", "c1", "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        conv("conv2", "r1", "c2", "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["s2"], name="residual"),
        helper.make_node("Relu", ["s2"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["m"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("depthwise", "m", "c3", "dw", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Relu", ["c3"], ["r3"], name="relu3"),
        conv("pointwise", "r3", "c4", "pw"),
        helper.make_node("Relu", ["c4"], ["r4"], name="relu4"),
        helper.make_node("GlobalAveragePool", ["r4"], ["g"], name="average"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "fc_w", "fc_b"], ["logits"], name="classifier", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        init,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tessera-digits"
    )


def quantise(model, calibration, path):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{"image": calibration[i : i + 64]} for i in range(0, len(calibration), 64)])

        def get_next(self):
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "float.onnx"
        prepared = pathlib.Path(folder) / "prepared.onnx"
        onnx.save(model, source)
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(path),
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    onnx.checker.check_model(str(path))


def main():
    data = load_digits()
    images = (data.images.astype(np.float32) / 16)[:, None]
    labels = data.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    test, learn = order[:360], order[360:]
    net = train(images[learn], labels[learn])
    accuracy = (net.forward(images[test])[0].argmax(1) == labels[test]).mean()
    print(f"float accuracy on {len(test)} test images: {accuracy:.4f}")
    quantise(to_onnx(net), images[learn][:512], HERE / "digits.onnx")
    onnx.save(to_onnx(net), HERE / "digits_float.onnx")
    np.savez_compressed(HERE / "digits_test.npz", images=images[test], labels=labels[test])
    np.savez_compressed(HERE / "digits_calibration.npz", images=images[learn][:128])

    import onnxruntime

    session = onnxruntime.InferenceSession(str(HERE / "digits.onnx"), providers=["CPUExecutionProvider"])
    predicted = session.run(None, {"image": images[test]})[0].argmax(1)
    print(f"quantised accuracy in ONNX Runtime: {(predicted == labels[test]).mean():.4f}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The benchmark networks: graphs of the published architectures with seeded weights, quantised by ONNX Runtime (QDQ,
per channel).

`build(name)` returns the quantised model and feeds of one input. Cycles and exactness depend on shapes and on the
integers, not on training; seeded weights make the networks ours to ship. Quantised models are kept under
build/networks, made again when missing."""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CACHE = ROOT / "build" / "networks"


class Builder:
    """A float graph in the making; every method takes and returns a tensor's name. Shapes are tracked for weights and
    pads."""

    def __init__(self, name, shape, seed=1):
        self.rng = np.random.default_rng(seed)
        self.name, self.shape = name, shape
        self.nodes, self.initializers = [], []
        self.channels = {"input": shape[1]}

    def _add(self, op_type, inputs, channels, name=None, **attributes):
        name = name or f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def _constant(self, array):
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(self, x, out, kernel=3, stride=1, pads=None, groups=1, activation="Relu"):
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        stride = (stride, stride) if isinstance(stride, int) else stride
        pads = pads if pads is not None else [kernel[0] // 2, kernel[1] // 2] * 2
        fan = self.channels[x] // groups
        weights = self.rng.standard_normal((out, fan, *kernel)) * np.sqrt(2 / (fan * kernel[0] * kernel[1]))
        y = self._add(
            "Conv",
            [x, self._constant(weights), self._constant(self.rng.standard_normal(out) * 0.05)],
            out,
            kernel_shape=kernel,
            strides=stride,
            pads=pads,
            group=groups,
        )
        if activation == "Relu":
            y = self._add("Relu", [y], out)
        elif activation == "Relu6":
            limits = [self._scalar(0.0), self._scalar(6.0)]
            y = self._add("Clip", [y, *limits], out)
        return y

    def _scalar(self, value):
        name = f"s{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def add(self, a, b, activation="Relu"):
        y = self._add("Add", [a, b], self.channels[a])
        return self._add("Relu", [y], self.channels[a]) if activation else y

    def max_pool(self, x, kernel=3, stride=2, pad=1):
        return self._add(
            "MaxPool", [x], self.channels[x], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )

    def head(self, x, classes):
        x = self._add("Flatten", [self._add("GlobalAveragePool", [x], self.channels[x])], self.channels[x])
        return self.dense(x, classes, None)

    def dense(self, x, out, activation="Relu"):
        weights = self.rng.standard_normal((out, self.channels[x])) * np.sqrt(2 / self.channels[x])
        y = self._add(
            "Gemm", [x, self._constant(weights), self._constant(self.rng.standard_normal(out) * 0.05)], out, transB=1
        )
        return self._add("Relu", [y], out) if activation else y

    def linear(self, x, out, activation=None):
        """Over the last axis of a tensor of any rank."""
        weights = self.rng.standard_normal((self.channels[x], out)) * np.sqrt(1 / self.channels[x])
        y = self._add("MatMul", [x, self._constant(weights)], out)
        y = self._add("Add", [y, self._constant(self.rng.standard_normal(out) * 0.05)], out)
        return self._add(activation, [y], out) if activation else y

    def attention(self, x, heads):
        """Self-attention over [batch, tokens, channels]: projections, heads by reshape and transpose, the products
        `scores` and `context` around a softmax, the projection back."""
        channels, (batch, tokens, _) = self.channels[x], self.shape

        def shaped(y, *shape):
            self.initializers.append(numpy_helper.from_array(np.array(shape, np.int64), f"s{len(self.initializers)}"))
            return self._add("Reshape", [y, self.initializers[-1].name], shape[-1])

        def turned(y, *order):
            return self._add("Transpose", [y], self.channels[y], perm=order)

        query, key, value = (
            shaped(self.linear(x, channels), batch, tokens, heads, channels // heads) for _ in range(3)
        )
        scores = self._add("MatMul", [turned(query, 0, 2, 1, 3), turned(key, 0, 2, 3, 1)], tokens, name="scores")
        scores = self._add("Mul", [scores, self._scalar(np.sqrt(heads / channels))], tokens)
        weights = self._add("Softmax", [scores], tokens, axis=-1)
        context = self._add("MatMul", [weights, turned(value, 0, 2, 1, 3)], channels // heads, name="context")
        return self.linear(shaped(turned(context, 0, 2, 1, 3), batch, tokens, channels), channels)

    def finish(self, output):
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, self.shape)],
            [onnx.ValueInfoProto(name=output)],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet18():
    b = Builder("resnet18", [1, 3, 224, 224])
    x = b.max_pool(b.conv("input", 64, 7, 2))
    for width, blocks, stride in ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2)):
        for i in range(blocks):
            s = stride if i == 0 else 1
            y = b.conv(b.conv(x, width, 3, s), width, 3, activation=None)
            skip = x if s == 1 and b.channels[x] == width else b.conv(x, width, 1, s, activation=None)
            x = b.add(y, skip)
    return b.finish(b.head(x, 1000))


def resnet50():
    b = Builder("resnet50", [1, 3, 224, 224])
    x = b.max_pool(b.conv("input", 64, 7, 2))
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            s = stride if i == 0 else 1
            y = b.conv(b.conv(b.conv(x, width, 1), width, 3, s), 4 * width, 1, activation=None)
            skip = x if i else b.conv(x, 4 * width, 1, s, activation=None)
            x = b.add(y, skip)
    return b.finish(b.head(x, 1000))


def mobilenetv2():
    b = Builder("mobilenetv2", [1, 3, 224, 224])
    x = b.conv("input", 32, 3, 2, activation="Relu6")
    for expand, width, repeats, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(repeats):
            inner = b.channels[x] * expand
            y = b.conv(x, inner, 1, activation="Relu6") if expand != 1 else x
            y = b.conv(y, inner, 3, stride if i == 0 else 1, groups=inner, activation="Relu6")
            y = b.conv(y, width, 1, activation=None)
            x = b.add(y, x, None) if i else y
    return b.finish(b.head(b.conv(x, 1280, 1, activation="Relu6"), 1000))


def resnet8():
    b = Builder("resnet8", [1, 3, 32, 32])
    x = b.conv("input", 16)
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        y = b.conv(b.conv(x, width, 3, stride), width, 3, activation=None)
        x = b.add(y, x if stride == 1 else b.conv(x, width, 1, stride, activation=None))
    return b.finish(b.head(x, 10))


def vww():
    b = Builder("vww", [1, 3, 96, 96])
    x = b.conv("input", 8, 3, 2)
    for width, stride in (
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        (128, 1),
        (128, 1),
        (128, 1),
        (128, 1),
        (128, 1),
        (256, 2),
        (256, 1),
    ):
        x = b.conv(b.conv(x, b.channels[x], 3, stride, groups=b.channels[x]), width, 1)
    return b.finish(b.head(x, 2))


def ds_cnn():
    b = Builder("ds_cnn", [1, 1, 49, 10])
    x = b.conv("input", 64, (10, 4), (2, 2), pads=[4, 1, 5, 1])
    for _ in range(4):
        x = b.conv(b.conv(x, 64, 3, groups=64), 64, 1)
    return b.finish(b.head(x, 12))


def autoencoder():
    b = Builder("autoencoder", [1, 640])
    x = "input"
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = b.dense(x, width)
    return b.finish(b.dense(x, 640, None))


def encoder():
    """A block of ViT-Tiny (192 channels, 3 heads) over 64 tokens, without its normalisations and with ReLU: softmax
    alone is left to the CPU."""
    b = Builder("encoder", [1, 64, 192])
    b.channels["input"] = 192
    x = b.add(b.attention("input", 3), "input", None)
    return b.finish(b.add(b.linear(b.linear(x, 768, "Relu"), 192), x, None))


NETWORKS = {f.__name__: f for f in (resnet18, resnet50, mobilenetv2, resnet8, vww, ds_cnn, autoencoder, encoder)}


def build(name):
    """(bytes of the quantised model, feeds)."""
    from tests.oracle import oracle

    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.onnx"
    if not path.exists():
        model = NETWORKS[name]()
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        rng = np.random.default_rng(2)
        calibration = [{"input": rng.random(shape, np.float32)} for _ in range(2)]
        onnx.save(oracle.quantize(model, calibration, per_channel=True), path)
    model = onnx.load(path)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return path.read_bytes(), {"input": np.random.default_rng(3).random(shape, np.float32)}

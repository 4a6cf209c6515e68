# SPDX-License-Identifier: Apache-2.0
"""Networks as .tflite files, by their published architectures with seeded weights: the reference networks of MLPerf
Tiny and MobileNetV2, in float32 as the builder writes them, or quantised by ai-edge-quantizer with calibration."""

import os
import tempfile

import numpy as np

from tests.litert import builder

NONE, RELU, RELU6 = 0, 1, 3
SAME, VALID = 0, 1


class Layers:
    """A chain of layers; `self.shape` is that of the last value, channels last."""

    def __init__(self, shape, seed):
        self.model, self.rng = builder.Model(), np.random.default_rng(seed)
        self.graph, self.count = self.model.graph("main"), 0
        self.value, self.shape = self.graph.input("input", shape, "float32"), tuple(shape)
        self.input = self.value

    def _new(self, shape):
        self.count += 1
        return self.graph.tensor(f"layer{self.count}", shape, "float32")

    def _weights(self, shape, fan_in):
        return self.graph.constant((self.rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32))

    def _bias(self, n):
        return self.graph.constant((self.rng.standard_normal(n) * 0.05).astype(np.float32))

    def _add(self, operator, inputs, shape, **options):
        self.value, self.shape = self.graph.op(operator, inputs, [self._new(shape)], **options), tuple(shape)
        return self

    def _window(self, kernel, stride, padding):
        return [-(-n // s) if padding == SAME else (n - k) // s + 1 for n, k, s in zip(self.shape[1:3], kernel, stride)]

    def conv(self, out, kernel=(3, 3), stride=(1, 1), padding=SAME, activation=RELU):
        n, _, _, c = self.shape
        w = self._weights((out, *kernel, c), kernel[0] * kernel[1] * c)
        return self._add(
            "CONV_2D",
            [self.value, w, self._bias(out)],
            (n, *self._window(kernel, stride, padding), out),
            version=1,
            padding=padding,
            strideH=stride[0],
            strideW=stride[1],
            dilationHFactor=1,
            dilationWFactor=1,
            fusedActivationFunction=activation,
        )

    def depthwise(self, kernel=(3, 3), stride=(1, 1), padding=SAME, activation=RELU):
        n, _, _, c = self.shape
        w = self._weights((1, *kernel, c), kernel[0] * kernel[1])
        return self._add(
            "DEPTHWISE_CONV_2D",
            [self.value, w, self._bias(c)],
            (n, *self._window(kernel, stride, padding), c),
            version=1,
            padding=padding,
            strideH=stride[0],
            strideW=stride[1],
            dilationHFactor=1,
            dilationWFactor=1,
            depthMultiplier=1,
            fusedActivationFunction=activation,
        )

    def separable(self, out, stride=(1, 1), kernel=(3, 3), activation=RELU):
        return self.depthwise(kernel, stride, activation=activation).conv(out, (1, 1), activation=activation)

    def dense(self, out, activation=NONE):
        w = self._weights((out, self.shape[-1]), self.shape[-1])
        return self._add(
            "FULLY_CONNECTED",
            [self.value, w, self._bias(out)],
            (self.shape[0], out),
            version=1,
            fusedActivationFunction=activation,
        )

    def average(self):
        """Over the image, as a pool; flat."""
        n, h, w, c = self.shape
        self._add(
            "AVERAGE_POOL_2D",
            [self.value],
            (n, 1, 1, c),
            version=1,
            padding=VALID,
            strideH=h,
            strideW=w,
            filterHeight=h,
            filterWidth=w,
            fusedActivationFunction=NONE,
        )
        return self._add("RESHAPE", [self.value, self.graph.constant(np.array([n, c], np.int32))], (n, c))

    def mean(self):
        """Over the image, as a mean."""
        n, _, _, c = self.shape
        return self._add(
            "MEAN", [self.value, self.graph.constant(np.array([1, 2], np.int32))], (n, c), version=1, keepDims=False
        )

    def plus(self, other, activation=NONE):
        return self._add("ADD", [self.value, other], self.shape, version=1, fusedActivationFunction=activation)

    def softmax(self):
        return self._add("SOFTMAX", [self.value], self.shape, version=1, beta=1.0)

    def bytes(self):
        self.graph.outputs(self.value)
        self.graph.table.tensors[self.value].name = "output"
        self.model.signature("serving_default", {"x": self.input}, {"y": self.value})
        return self.model.bytes()


def ds_cnn():
    """Keyword spotting."""
    net = Layers((1, 49, 10, 1), 1).conv(64, (10, 4), (2, 2))
    for _ in range(4):
        net.separable(64)
    return net.average().dense(12).softmax().bytes()


def visual_wake_words():
    """MobileNetV1 of width 0.25."""
    net = Layers((1, 96, 96, 3), 2).conv(8, stride=(2, 2))
    for out, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *((128, 1),) * 5, (256, 2), (256, 1)):
        net.separable(out, (stride, stride))
    return net.average().dense(2).softmax().bytes()


def resnet8():
    """Image classification."""
    net = Layers((1, 32, 32, 3), 3).conv(16)
    for out, stride in ((16, 1), (32, 2), (64, 2)):
        before, shape = net.value, net.shape
        net.conv(out, stride=(stride, stride)).conv(out, activation=NONE)
        main, after = net.value, net.shape
        if stride != 1:
            net.value, net.shape = before, shape
            before = net.conv(out, (1, 1), (stride, stride), activation=NONE).value
        net.value, net.shape = main, after
        net.plus(before, RELU)
    return net.average().dense(10).softmax().bytes()


def autoencoder():
    """Anomaly detection."""
    net = Layers((1, 640), 4)
    for out in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        net.dense(out, RELU)
    return net.dense(640).bytes()


def wake_word():
    """Separable convolutions along time only, as the streaming wake word has them."""
    net = Layers((1, 30, 1, 40), 5).conv(128, (3, 1))
    for out in (128, 128, 128, 32):
        net.separable(out, kernel=(5, 1))
    return net.average().dense(3).softmax().bytes()


def mobilenet_v2(extent=224, width=1.0):
    def channels(n):
        rounded = max(8, int(n * width + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * n * width else rounded

    net = Layers((1, extent, extent, 3), 6).conv(channels(32), stride=(2, 2), activation=RELU6)
    for expansion, out, repeats, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(repeats):
            stride, before, shape = first if i == 0 else 1, net.value, net.shape
            if expansion != 1:
                net.conv(net.shape[3] * expansion, (1, 1), activation=RELU6)
            net.depthwise(stride=(stride, stride), activation=RELU6).conv(channels(out), (1, 1), activation=NONE)
            if net.shape == shape:
                net.plus(before)
    return net.conv(1280, (1, 1), activation=RELU6).mean().dense(1000).softmax().bytes()


TINY = {
    "ds_cnn": ds_cnn,
    "visual_wake_words": visual_wake_words,
    "resnet8": resnet8,
    "autoencoder": autoencoder,
    "wake_word": wake_word,
}


def feeds_of(shape, count, seed=0):
    """Smooth pictures in -1..1 with noise: neighbours agree, as in photographs and spectrograms."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.standard_normal(shape).astype(np.float32) * 0.2
        for axis in range(1, len(shape) - 1):
            phase, waves = rng.uniform(0, 6), rng.uniform(1, 4)
            wave = np.sin(np.linspace(0, waves * 6.28, shape[axis]) + phase)
            x += 0.5 * wave.reshape([-1 if a == axis else 1 for a in range(len(shape))]).astype(np.float32)
        yield np.clip(x, -1, 1)


def quantised(data, shape, activations=8, samples=4):
    """Static quantisation, weights of 8 bits for each channel, activations of 8 or 16."""
    from ai_edge_quantizer import quantizer, recipe

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "float.tflite")
        with open(path, "wb") as file:
            file.write(data)
        recipes = recipe.static_wi8_ai8() if activations == 8 else recipe.static_wi8_ai16()
        tool = quantizer.Quantizer(path, recipes)
        calibration = tool.calibrate({"serving_default": [{"x": x} for x in feeds_of(shape, samples)]})
        return bytes(tool.quantize(calibration).quantized_model)

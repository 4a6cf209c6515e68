# SPDX-License-Identifier: Apache-2.0
"""Networks of QONNX, as Brevitas exports them: their convolutions run on the NPU with the results of the reference
interpreter, and stay near the network computed in plain float by QONNX's definition."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera

DOMAIN = "qonnx.custom_op.general"


class Network:
    """Collects nodes of a network; `run` evaluates it by the definition of QONNX in numpy."""

    def __init__(self, seed, zero=0):
        self.rng = np.random.default_rng(seed)
        self.zero = zero
        self.nodes, self.constants, self.count = [], {}, 0

    def constant(self, value):
        self.count += 1
        self.constants[f"c{self.count}"] = np.asarray(value, np.float32)
        return f"c{self.count}"

    def node(self, op, inputs, domain="", **attributes):
        self.count += 1
        self.nodes.append(
            helper.make_node(op, inputs, [f"v{self.count}"], f"n{self.count}", domain=domain, **attributes)
        )
        return f"v{self.count}"

    def quant(self, x, scale, bits, signed, narrow=0, zero=0):
        operands = [x, self.constant(scale), self.constant(zero), self.constant(bits)]
        return self.node("Quant", operands, DOMAIN, signed=signed, narrow=narrow, rounding_mode="ROUND")

    def weights(self, shape, bits):
        w = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        scale = np.abs(w).reshape(shape[0], -1).max(axis=1).reshape(-1, *[1] * (len(shape) - 1)) / (2 ** (bits - 1) - 1)
        return self.quant(self.constant(w), scale, bits, 1, narrow=1)

    def block(self, x, channels, out, bits, group=1, norm=True, stride=1):
        """Convolution of quantised weights, normalisation, ReLU, and a quantiser of `bits`."""
        w = self.weights((out, channels // group, 3, 3), bits)
        y = self.node("Conv", [x, w], pads=[1, 1, 1, 1], group=group, strides=[stride, stride])
        if norm:
            gamma = self.rng.uniform(0.5, 1.5, out) * self.rng.choice([-1, 1], out)
            moments = [gamma, self.rng.standard_normal(out) / 4, self.rng.standard_normal(out) / 4]
            parameters = [self.constant(v) for v in (*moments, self.rng.uniform(0.5, 1.5, out))]
            y = self.node("BatchNormalization", [y, *parameters])
        y = self.node("Relu", [y])
        return self.quant(y, 3.0 / 2**bits, bits, 0, zero=self.zero)

    def finish(self, result, shape):
        graph = helper.make_graph(
            self.nodes,
            "qonnx",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [onnx.ValueInfoProto(name=result)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 16), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def plain(model, feeds):
    """The network in float: QONNX's formula for its quantisers, onnx's reference for the rest."""
    from onnx.reference import ReferenceEvaluator, op_run

    class Quant(op_run.OpRun):
        op_domain = DOMAIN

        def _run(self, x, scale, zero, bits, signed=None, narrow=None, rounding_mode=None):
            top = 2.0 ** (bits - signed) - 1 - (narrow if not signed else 0)
            low = -(2.0 ** (bits - 1)) + narrow if signed else 0
            return (((np.round(np.clip(x / scale + zero, low, top)) - zero) * scale).astype(np.float32),)

    return ReferenceEvaluator(model, new_ops=[Quant]).run(None, feeds)[0]


def brevitas_like(bits, norm, zero=0):
    net = Network(bits, zero)
    x = net.quant("x", 1 / 64, 8, 1)
    x = net.block(x, 3, 8, bits, norm=norm)
    y = net.block(x, 8, 8, bits, group=8, norm=norm)
    x = net.quant(net.node("Add", [x, y]), 6.0 / 2**bits, bits, 0)
    x = net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.block(x, 8, 16, bits, norm=norm)
    x = net.node("Flatten", [x])
    w = net.node("Transpose", [net.weights((10, 16 * 64), bits)], perm=[1, 0])
    x = net.node("MatMul", [x, w])
    x = net.node("Add", [x, net.constant(net.rng.standard_normal(10))])
    return net.finish(x, [1, 3, 16, 16])


def check(model, share, steps):
    """Equal to the reference interpreter; near the float network; `share` of the products on the NPU."""
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    data = model.SerializeToString()
    session = tessera.Session(data, "fsim", "npu64", check_races=True)
    got = session.run(None, feeds)[0]
    assert np.array_equal(got, tessera.Session(data, "reference").run(None, feeds)[0])
    assert session.info().macs_npu_share == share
    assert np.max(np.abs(got - plain(model, feeds))) < steps
    return session.info()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("norm", [False, True])
def test_network_of_brevitas(bits, norm):
    """Convolutions, with normalisation in their scales, the sum of two branches and the linear layer on the NPU."""
    check(brevitas_like(bits, norm), 1.0, 0.05)


def test_zero_points():
    """Zero points beside 0: sums round as QLinearConv's do, ties apart the definition's way."""
    net = Network(5, zero=7)
    x = net.quant("x", 1 / 64, 8, 1, zero=3)
    w = net.weights((8, 3, 3, 3), 8)
    x = net.quant(net.node("Conv", [x, w], pads=[1, 1, 1, 1]), 1 / 32, 8, 0, zero=100)
    x = net.quant(net.node("Conv", [x, net.weights((4, 8, 1, 1), 4)]), 1 / 16, 6, 1, zero=-2)
    check(net.finish(x, [1, 3, 16, 16]), 1.0, 0.13)


def test_bias_beside_unsigned_weights_of_few_bits():
    """A bias is rounded to steps of the products. Weights lose their zero point and take all of int8, so that these
    steps are finer than the result's."""
    net = Network(7)
    x = net.quant("x", 1 / 8, 8, 1)
    w = net.constant(net.rng.uniform(-2, 1.5, (8, 3, 1, 1)))
    bias = net.constant(np.linspace(-0.2, 0.2, 8))
    y = net.node("Conv", [x, net.quant(w, 0.5, 3, 0, zero=4), bias])
    check(net.finish(net.quant(y, 1 / 64, 8, 1), [1, 3, 16, 16]), 1.0, 1.5 / 64)


def test_binary_and_wide():
    """Signs, other rounding and wide grids are computed by the formula, and the products behind them on the NPU."""
    net = Network(6)
    x = net.node("BipolarQuant", ["x", net.constant(0.5)], DOMAIN)
    w = net.node("BipolarQuant", [net.constant(net.rng.standard_normal((8, 3, 3, 3))), net.constant(0.25)], DOMAIN)
    x = net.quant(net.node("Conv", [x, w]), 1 / 8, 8, 1)
    operands = [x, *(net.constant(v) for v in (0.5, 0, 16))]
    x = net.node("Quant", operands, DOMAIN, signed=1, narrow=0, rounding_mode="FLOOR")
    model = net.finish(x, [1, 3, 16, 16])
    data = model.SerializeToString()
    feeds = {"x": net.rng.standard_normal((1, 3, 16, 16)).astype(np.float32)}
    session = tessera.Session(data, "fsim", "npu64")
    signs = np.where(feeds["x"] >= 0, 0.5, -0.5).astype(np.float32)
    weights = np.where(net.constants[model.graph.node[1].input[0]] >= 0, 0.25, -0.25).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(signs, (3, 3), axis=(2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, weights)
    expected = np.floor(np.clip(np.round(sums * 8), -128, 127) / 8 / 0.5) * 0.5
    assert np.array_equal(session.run(None, feeds)[0], expected.astype(np.float32))
    assert session.info().macs_npu_share == 1.0

# SPDX-License-Identifier: Apache-2.0
"""`tessera.pt2e.spell` on files as training tools write them: it keeps what a model means, which ONNX Runtime computes
without optimisation, and brings the products into groups that ONNX Runtime and Tessera compute in integers, with equal
results. Models are built here; those of Brevitas itself are in test_brevitas.py."""

import copy

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.pt2e import spell


class File:
    """A model in QDQ form, node by node."""

    def __init__(self, seed, shape):
        self.rng, self.shape = np.random.default_rng(seed), shape
        self.nodes, self.constants = [], {}

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name

    def quantise(self, x, scale, zero, limits=None):
        """Q and DQ, with limits on the integers between them."""
        parameters = [self.constant(np.float32(scale)), self.constant(zero)]
        x = self.node("QuantizeLinear", [x, *parameters])
        if limits:
            x = self.node("Clip", [x, *(self.constant(zero.dtype.type(limit)) for limit in limits)])
        return self.node("DequantizeLinear", [x, *parameters])

    def weights(self, shape, bits):
        top = 2 ** (bits - 1) - 1
        values = self.rng.integers(-top, top, shape, endpoint=True).astype(np.int8)
        scale = self.rng.uniform(0.5, 1, shape[0]).astype(np.float32)
        scale = (scale / top / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        x = self.node("Clip", [self.constant(values), self.constant(np.int8(-top)), self.constant(np.int8(top))])
        return self.node(
            "DequantizeLinear", [x, self.constant(scale), self.constant(np.zeros(shape[0], np.int8))], axis=0
        )

    def conv(self, x, channels, out, bits=8, bias=True):
        inputs = [x, self.weights((out, channels, 3, 3), bits)]
        if bias:
            inputs.append(self.constant((self.rng.standard_normal(out) / 4).astype(np.float32)))
        return self.node("Conv", inputs, pads=[1, 1, 1, 1])

    def norm(self, x, channels):
        draw = lambda low, high: self.constant(self.rng.uniform(low, high, channels).astype(np.float32))
        gamma = self.constant((self.rng.uniform(0.5, 1.5, channels) * self.rng.choice([-1, 1], channels)).astype("f4"))
        return self.node("BatchNormalization", [x, gamma, draw(-0.2, 0.2), draw(-0.2, 0.2), draw(0.5, 1.5)])

    def model(self, result, opset=17):
        graph = helper.make_graph(
            self.nodes,
            "file",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [onnx.ValueInfoProto(name=result)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def meaning(model, feeds):
    """What the nodes say, one by one."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0]


def check(file, result, apart=0.001, share=1.0):
    """`apart`: mean difference to what the file says, as a share of the mean result. Sums near a tie may round
    otherwise, and in a network a step moves the sums behind it."""
    model = file.model(result)
    feeds = {"x": file.rng.standard_normal(file.shape).astype(np.float32)}
    expected = meaning(model, feeds)
    spelled = spell(copy.deepcopy(model))
    onnx.checker.check_model(spelled)
    data = spelled.SerializeToString()
    optimised = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    session = tessera.Session(data, "fsim", "npu64")
    got = session.run(None, feeds)[0]
    assert np.array_equal(got, optimised)
    assert session.info().macs_npu_share == share
    assert np.abs(got - expected).mean() <= apart * np.abs(expected).mean()
    return spelled


def operators(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("zero", [np.int8(-128), np.int8(-30), np.uint8(7)])
@pytest.mark.parametrize("clamp", ["Relu", "Clip"])
def test_clamp_with_zero_inside_of_the_range(zero, clamp):
    file = File(1, [1, 3, 12, 12])
    x = file.conv(file.quantise("x", 1 / 40, type(zero)(10)), 3, 8)
    limits = [file.constant(np.float32(0)), file.constant(np.float32(0.7))] if clamp == "Clip" else []
    spelled = check(file, file.quantise(file.node(clamp, [x, *limits]), 1 / 90, zero))
    assert operators(spelled).count("QuantizeLinear") == (2 if clamp == "Relu" and zero == -128 else 3)


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_narrow_widths(bits):
    """Limits between Q and DQ, normalisation behind the convolution, signed and unsigned activations in one sum."""
    file = File(bits, [1, 3, 12, 12])
    top = 2**bits - 1
    first = file.norm(file.conv(file.quantise("x", 1 / 40, np.int8(0)), 3, 8, bits, bias=False), 8)
    x = file.quantise(file.node("Relu", [first]), 1.5 / top, np.uint8(0), (0, top))
    y = file.quantise(file.conv(x, 8, 8, bits), 2 / top, np.int8(0), (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    x = file.quantise(file.node("Add", [x, y]), 3 / top, np.uint8(0), (0, top))
    x = file.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = file.quantise(file.conv(x, 8, 4, bits), 2 / 127, np.int8(0))
    spelled = check(file, x, apart=0.06)
    assert "BatchNormalization" not in operators(spelled)


def test_joined_and_moved():
    """Parts of equal parameters that nothing quantises again, and a Flatten in front of a product."""
    file = File(3, [1, 3, 8, 8])
    x = file.quantise("x", 1 / 40, np.uint8(128))
    parts = [file.quantise(file.node("Relu", [file.conv(x, 3, 4)]), 1 / 60, np.uint8(0)) for _ in range(2)]
    x = file.quantise(file.conv(file.node("Concat", parts, axis=1), 8, 4), 1 / 60, np.uint8(100))
    weights = file.weights((10, 256), 8)
    bias = file.constant(file.rng.standard_normal(10).astype(np.float32))
    check(file, file.node("Gemm", [file.node("Flatten", [x]), weights, bias], transB=1))


def test_mean_of_an_image():
    file = File(4, [1, 3, 9, 9])
    x = file.quantise(file.conv(file.quantise("x", 1 / 40, np.uint8(120)), 3, 8), 1 / 50, np.uint8(130))
    x = file.quantise(file.node("ReduceMean", [x], axes=[2, 3], keepdims=0), 1 / 300, np.uint8(128))
    assert "GlobalAveragePool" in operators(check(file, x, apart=0.02))


def test_rows_of_a_matrix():
    """A product of three axes with a bias becomes a Gemm; a transposed matrix is transposed once."""
    file = File(5, [2, 7, 16])
    x = file.quantise("x", 1 / 40, np.uint8(128))
    matrix = file.node("Transpose", [file.weights((12, 16), 8)], perm=[1, 0])
    x = file.node("Add", [file.node("MatMul", [x, matrix]), file.constant(file.rng.standard_normal(12).astype("f4"))])
    spelled = check(file, file.quantise(x, 1 / 60, np.uint8(128)))
    assert "Gemm" in operators(spelled) and "Transpose" not in operators(spelled)


def test_two_quantisations_in_a_row():
    """They round twice, in ONNX Runtime with its optimiser too."""
    file = File(6, [1, 3, 12, 12])
    x = file.quantise(file.conv(file.quantise("x", 1 / 40, np.uint8(128)), 3, 4), 1 / 30, np.uint8(128))
    check(file, file.quantise(x, 1 / 23, np.uint8(120)))


def test_bias_with_a_scale_of_its_own():
    """ONNX Runtime ignores the scale of a bias in integers; it is written with that of the sums."""
    file = File(7, [1, 3, 12, 12])
    x = file.quantise("x", 1 / 40, np.uint8(128))
    stored = [file.constant(file.rng.integers(-90, 90, 4).astype(np.int32)), file.constant(np.float32(0.01))]
    inputs = [x, file.weights((4, 3, 3, 3), 8), file.node("DequantizeLinear", stored)]
    check(file, file.quantise(file.node("Conv", inputs, pads=[1, 1, 1, 1]), 1 / 60, np.uint8(128)), apart=0.01)

# SPDX-License-Identifier: Apache-2.0
"""A transformer's self-attention in fp32, and quantised by ONNX Runtime: projections, heads by reshapes and transposes, two products of
activations around a softmax, the projection back and a residual."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.oracle import oracle


def attention(batch, tokens, heads, width, seed=1):
    """The fp32 model: x [batch, tokens, heads * width] -> y of the same shape."""
    rng = np.random.default_rng(seed)
    channels = heads * width
    nodes, constants = [], []

    def constant(array, name):
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(op_type, inputs, name, **attributes):
        nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def linear(x, name):
        weights = constant((rng.standard_normal((channels, channels)) / np.sqrt(channels)).astype(np.float32), f"{name}_weights")
        bias = constant((rng.standard_normal(channels) * 0.1).astype(np.float32), f"{name}_bias")
        return node("Add", [node("MatMul", [x, weights], f"{name}_product"), bias], name)

    def in_heads(name, order):
        x = node("Reshape", [linear("x", name), constant(np.array([batch, tokens, heads, width]), f"{name}_shape")], f"{name}_heads")
        return node("Transpose", [x], f"{name}_turned", perm=order)

    query, key, value = in_heads("query", [0, 2, 1, 3]), in_heads("key", [0, 2, 3, 1]), in_heads("value", [0, 2, 1, 3])
    scores = node("MatMul", [query, key], "scores")
    scaled = node("Mul", [scores, constant(np.float32(1 / np.sqrt(width)), "scale")], "scaled")
    probabilities = node("Softmax", [scaled], "probabilities", axis=-1)
    context = node("Transpose", [node("MatMul", [probabilities, value], "context")], "context_turned", perm=[0, 2, 1, 3])
    joined = node("Reshape", [context, constant(np.array([batch, tokens, channels]), "joined_shape")], "joined")
    node("Add", [linear(joined, "projection"), "x"], "y")
    shape = [batch, tokens, channels]
    graph = helper.make_graph(nodes, "attention", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantised(*shape, **how):
    """(the model quantised by ONNX Runtime, feeds); `shape` and `how` of attention() and oracle.quantize()."""
    model = attention(*shape)
    rng = np.random.default_rng(3)
    feeds = [{"x": rng.standard_normal([shape[0], shape[1], shape[2] * shape[3]]).astype(np.float32)} for _ in range(3)]
    return oracle.quantize(model, feeds[:2], **how), feeds[2]

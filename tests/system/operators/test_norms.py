# SPDX-License-Identifier: Apache-2.0
"""Layer normalisations in float equal ONNX Runtime's in every bit: as operators, and spelled out, where ONNX Runtime's
optimiser makes the operators of them. So do sums and means of elements that stand side by side, in fours."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera

EPSILON = 1e-5


class Graph:
    def __init__(self, width, seed):
        rng = np.random.default_rng(seed)
        self.nodes, self.constants = [], []
        self.scale = self.constant(rng.uniform(0.5, 1.5, width).astype(np.float32))
        self.shift = self.constant(rng.uniform(-1, 1, width).astype(np.float32))

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, inputs, domain="", **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", domain=domain, **attributes))
        return name

    def spelled(self, x, centred):
        mean = lambda v: self.node("ReduceMean", [v], axes=[-1], keepdims=1)
        a = self.node("Sub", [x, mean(x)]) if centred else x
        variance = mean(self.node("Pow", [a, self.constant(np.float32(2))]))
        root = self.node("Sqrt", [self.node("Add", [variance, self.constant(np.float32(EPSILON))])])
        y = self.node("Mul", [self.node("Div", [a, root]), self.scale])
        return self.node("Add", [y, self.shift]) if centred else y


FORMS = {
    "LayerNormalization": lambda g: g.node("LayerNormalization", ["x", g.scale, g.shift], axis=-1, epsilon=EPSILON),
    "SimplifiedLayerNormalization": lambda g: g.node(
        "SimplifiedLayerNormalization", ["x", g.scale], axis=-1, epsilon=EPSILON
    ),
    "SkipLayerNormalization": lambda g: g.node(
        "SkipLayerNormalization", ["x", "skip", g.scale, g.shift], "com.microsoft", epsilon=EPSILON
    ),
    "SkipSimplifiedLayerNormalization": lambda g: g.node(
        "SkipSimplifiedLayerNormalization", ["x", "skip", g.scale], "com.microsoft", epsilon=EPSILON
    ),
    "spelled out": lambda g: g.spelled("x", True),
    "spelled out about 0": lambda g: g.spelled("x", False),
}


@pytest.mark.parametrize("width", [5, 15, 192, 39])
@pytest.mark.parametrize("form", FORMS)
def test_normalisations_equal_onnx_runtime(form, width):
    graph, rng = Graph(width, len(form)), np.random.default_rng(width)
    result = FORMS[form](graph)
    shape = [2, 25, width]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    names = ["x", "skip"] if form.startswith("Skip") else ["x"]
    made = helper.make_graph(graph.nodes, "norm", [value(n) for n in names], [value(result)], graph.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString()
    feeds = {name: (rng.standard_normal(shape) * 3 + 0.5).astype(np.float32) for name in names}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    expected = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feeds)[0]
    for device in ("reference", "fsim"):
        np.testing.assert_array_equal(tessera.Session(data, device).run(None, feeds)[0], expected, err_msg=device)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(
    "shape, axes", [((1, 1, 128), [-1]), ((5, 3, 12), [2]), ((4, 4), [1]), ((2, 3, 4, 45), [2, 3])]
)
def test_sums_in_lanes_equal_onnx_runtime(op, shape, axes):
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    by_input = op == "ReduceSum"
    constants = [numpy_helper.from_array(np.array(axes), "axes")] if by_input else []
    node = helper.make_node(op, ["x", "axes"] if by_input else ["x"], ["y"], **({} if by_input else {"axes": axes}))
    graph = helper.make_graph([node], "sum", [value("x", shape)], [value("y", None)], constants)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    feeds = {"x": np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)}
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    for device in ("reference", "fsim"):
        np.testing.assert_array_equal(tessera.Session(data, device).run(None, feeds)[0], expected, err_msg=device)

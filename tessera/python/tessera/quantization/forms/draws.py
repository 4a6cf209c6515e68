# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are the same in every run. In: a model that is to be measured. Out: the model itself where it
draws nothing; else a copy in which a sequence that covers the range evenly stands in the place of each draw, by the
standard's operators. A float model and its quantised one would draw other numbers, and no distance between them would
say anything."""

import copy
import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ..graph import attribute, graphs_of, is_onnx

LIKE = ("RandomNormalLike", "RandomUniformLike", "Bernoulli")
DRAWS = ("RandomNormal", "RandomUniform", *LIKE)
STEPS = (0.6180339887498949, 0.7548776662466927)  # of sequences that cover the range from 0 to 1 evenly


class _Sequence:
    """The nodes in the place of one draw."""

    def __init__(self, node, number):
        self.node, self.nodes, self.prefix = node, [], f"{node.output[0]}/drawn{number}"
        of_shape = not is_onnx(node, *LIKE)
        shape = (
            self._constant(np.array(attribute(node, "shape"), np.int64))
            if of_shape
            else self._step("Shape", node.input[0])
        )
        count = self._step("Add", self._step("ReduceProd", shape, keepdims=0), self._constant(np.int64(1)))
        places = self._step("Range", self._constant(np.int64(1)), count, self._constant(np.int64(1)))
        self.places = self._step("Cast", self._step("Reshape", places, shape), to=TensorProto.DOUBLE)

    def _step(self, kind, *inputs, name=None, **attributes):
        name = name or f"{self.prefix}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _constant(self, value):
        return self._step("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def _even(self, step):
        """Numbers between 0 and 1."""
        far = self._step("Mul", self.places, self._constant(np.float64(step)))
        return self._step("Sub", far, self._step("Floor", far))

    def _scaled(self, x, factor, addend):
        return self._step(
            "Add", self._step("Mul", x, self._constant(np.float64(factor))), self._constant(np.float64(addend))
        )

    def _normal(self):
        """By Box and Muller, of two sequences."""
        length = self._step(
            "Sqrt", self._scaled(self._step("Log", self._scaled(self._even(STEPS[0]), 1, 1e-9)), -2, 1e-8)
        )
        return self._step("Mul", length, self._step("Cos", self._scaled(self._even(STEPS[1]), 2 * math.pi, 0)))

    def made(self):
        value = lambda name, fallback: attribute(self.node, name, fallback)
        if is_onnx(self.node, "Bernoulli"):
            share = self._step("Cast", self.node.input[0], to=TensorProto.DOUBLE)
            drawn = self._step("Less", self._even(STEPS[0]), share)
        elif is_onnx(self.node, "RandomNormal", "RandomNormalLike"):
            drawn = self._scaled(self._normal(), value("scale", 1.0), value("mean", 0.0))
        else:
            low = value("low", 0.0)
            drawn = self._scaled(self._even(STEPS[0]), value("high", 1.0) - low, low)
        self._step("Cast", drawn, name=self.node.output[0], to=value("dtype", TensorProto.FLOAT))
        return self.nodes


def fixed(model):
    """The model as the head of this file says."""
    if not any(is_onnx(node, *DRAWS) for graph in graphs_of(model.graph) for node in graph.node):
        return model
    model = copy.deepcopy(model)
    for graph in graphs_of(model.graph):
        nodes = []
        for number, node in enumerate(graph.node):
            nodes.extend(_Sequence(node, number).made() if is_onnx(node, *DRAWS) else [node])
        nodes = [copy.deepcopy(node) for node in nodes]
        del graph.node[:]
        graph.node.extend(nodes)
    return model

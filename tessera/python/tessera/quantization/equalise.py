# SPDX-License-Identifier: Apache-2.0
"""Gives the channels of a tensor between convolutions similar ranges. A tensor has one scale, so a channel whose values
are ten times smaller than another's has only a tenth of the steps. In: a prepared model and calibration data. Out: the
same function with weights scaled: channel c of the producer by 1 / s[c], of the readers by s[c], where s is at most 1.

Relu commutes with a positive factor; Clip does not, and tensors behind one stay as they are. s is the square root
of the ratio to the largest channel. So half of the difference stays: it is room for values that the data did not
show, and the readers' weights, where one scale serves all input channels, lose no more than the tensor gains. The
idea is that of Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019), with
ranges from data."""

import copy

import numpy as np
from onnx import numpy_helper

from .graph import Graph, attribute, drop_unread, is_onnx, names_of, unique
from .plan import Plan

LEAST_FACTOR = 1 / 64


def pairs_of(plan):
    """(unit, its tensor, readers' nodes) for convolutions whose result only convolutions read."""
    graph = plan.graph
    for unit in plan.units:
        name = unit.output
        readers = [node for node, index in graph.readers.get(name, []) if index == 0]
        if unit.kind != "product" or not is_onnx(unit.node, "Conv") or name in graph.held or not readers:
            continue
        if len(readers) != len(graph.readers[name]) or not all(is_onnx(node, "Conv") for node in readers):
            continue
        constant = all(graph.array(node.input[1]) is not None for node in [unit.node, *readers])
        if constant and not any(is_onnx(node, "Clip") for node in unit.nodes):
            yield unit, name, readers


def factors(largest):
    """s for each channel: 1 for the largest one and for channels without values."""
    top = largest.max()
    if top <= 0:
        return np.ones_like(largest)
    return np.clip(np.sqrt(np.where(largest > 0, largest / top, 1)), LEAST_FACTOR, 1).astype(np.float32)


def tensors_of(model, names):
    """Tensors whose channels' statistics `equalise` asks for."""
    return {name for _, name, _ in pairs_of(Plan(model, names))}


def equalise(model, names, statistics):
    """The equalised model, and for each tensor that changed what its channels are multiplied by. names: the compiler's
    operators; statistics: of the tensors of `tensors_of`."""
    model = copy.deepcopy(model)
    plan = Plan(model, names)
    weights, changed = _Weights(model), {}
    for unit, name, readers in pairs_of(plan):
        if name not in statistics.low:
            continue
        # A tensor's producer and its readers are scaled along different axes, so their factors do not meet.
        scale = factors(statistics.largest(name))
        changed.update({made: 1 / scale for node in unit.nodes for made in node.output})
        weights.multiply(unit.node, 1, 1 / scale, 0)
        if len(unit.node.input) > 2 and unit.node.input[2]:
            weights.multiply(unit.node, 2, 1 / scale, 0)
        for node in readers:
            groups = attribute(node, "group", 1)
            if groups == 1:
                weights.multiply(node, 1, scale, 1)
            else:
                weights.multiply_groups(node, scale, groups)
    weights.store()
    return model, changed


class _Weights:
    """Constants of nodes; one that several nodes read becomes one for each of them."""

    def __init__(self, model):
        self.model, self.graph, self.arrays = model, Graph(model), {}

    def _array(self, node, index):
        key = (node.name, index)
        if key not in self.arrays:
            self.arrays[key] = (node, self.graph.array(node.input[index]).astype(np.float32))
        return key, self.arrays[key][1]

    def multiply(self, node, index, factor, axis):
        key, array = self._array(node, index)
        shape = [1] * array.ndim
        shape[axis] = -1
        self.arrays[key] = (node, array * factor.reshape(shape))

    def multiply_groups(self, node, factor, groups):
        """Weights [oc, ic / groups, ...]: output channel o reads the input channels of its group."""
        key, array = self._array(node, 1)
        out, each = array.shape[:2]
        group = np.arange(out) // (out // groups)
        chosen = factor[group[:, None] * each + np.arange(each)[None]]
        self.arrays[key] = (node, array * chosen.reshape(chosen.shape + (1,) * (array.ndim - 2)))

    def store(self):
        taken = names_of(self.model)
        for (name, index), (node, array) in self.arrays.items():
            constant = unique(f"{name}/equalised{index}", taken)
            self.model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), constant))
            node.input[index] = constant
        drop_unread(self.model)

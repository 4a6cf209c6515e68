# SPDX-License-Identifier: Apache-2.0
"""A view of an ONNX graph: who makes a tensor, who reads it, what it is. The model behind it stays an ordinary
ModelProto; a view does not follow later changes of it."""

import numpy as np
from onnx import TensorProto, numpy_helper


def opset_of(model):
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def attribute(node, name, default=None):
    """The value of a node's attribute: int, float, bytes, list or TensorProto."""
    from onnx import helper

    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default


def is_onnx(node, *types):
    return node.domain in ("", "ai.onnx") and node.op_type in types


def outer_reads(node):
    """Names that the bodies of If, Loop and Scan read (some of them may be their own)."""
    names = set()
    for entry in node.attribute:
        for body in [entry.g] if entry.HasField("g") else list(entry.graphs):
            for inner in body.node:
                names |= set(inner.input) | outer_reads(inner)
            names |= {value.name for value in body.output}
    return names


class Graph:
    """readers: tensor -> [(node, operand index)]; producer: tensor -> node; constants: tensor -> array;
    shapes: tensor -> list of int or None; floats: tensors of type float32."""

    def __init__(self, model):
        self.model = model
        graph = model.graph
        self.nodes = list(graph.node)
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = [value.name for value in graph.input if value.name not in self.constants]
        self.outputs = [value.name for value in graph.output]
        self.producer, self.readers = {}, {}
        self.held = set(self.outputs)  # read from outside: graph outputs and what bodies read
        for node in self.nodes:
            for name in node.output:
                if name:
                    self.producer[name] = node
            for index, name in enumerate(node.input):
                if name:
                    self.readers.setdefault(name, []).append((node, index))
            self.held |= outer_reads(node)
        self.shapes, self.types = {}, {}
        for value in [*graph.value_info, *graph.input, *graph.output]:
            kind = value.type.tensor_type
            self.types[value.name] = kind.elem_type
            if kind.HasField("shape"):
                self.shapes[value.name] = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        for name, tensor in self.constants.items():
            self.types[name], self.shapes[name] = tensor.data_type, list(tensor.dims)

    def array(self, name):
        """The constant's value, or None."""
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_float(self, name):
        return self.types.get(name) == TensorProto.FLOAT

    def is_scalar(self, name):
        return name in self.constants and int(np.prod(self.constants[name].dims)) == 1

    def only_reader(self, name):
        """The node that alone reads the tensor; None if there is another, or the tensor leaves the graph."""
        readers = self.readers.get(name, [])
        return readers[0][0] if len(readers) == 1 and name not in self.held else None

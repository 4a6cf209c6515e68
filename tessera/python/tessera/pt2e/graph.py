# SPDX-License-Identifier: Apache-2.0
"""A model's graph while it is spelled anew (spelling.py): its constants, who makes each tensor, who reads it, and what
its quantisers say."""

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Graph:
    """A model's graph with its constants, who makes each tensor, and who reads it."""

    def __init__(self, model):
        self.model, self.graph = model, model.graph
        self.taken = {name for node in self.graph.node for name in (*node.input, *node.output)}
        self.taken |= {tensor.name for tensor in self.graph.initializer}
        self._gather()
        self.tidy()

    def _gather(self):
        """Constants are initializers, and no inputs that a run could give."""
        held = {tensor.name for tensor in self.graph.initializer}
        for node in self.graph.node:
            value = attribute(node, "value") if node.op_type == "Constant" and node.domain == "" else None
            if value is not None:
                self.graph.initializer.add().CopyFrom(value)
                self.graph.initializer[-1].name = node.output[0]
                del node.output[:]
        for i in reversed(range(len(self.graph.input))):
            if self.graph.input[i].name in held:
                del self.graph.input[i]

    def in_order(self, outputs):
        """The nodes that these values need, makers before readers."""
        maker = {name: node for node in self.graph.node for name in node.output if name}
        order, done = [], set()
        stack = [(maker[name], False) for name in reversed(outputs) if name in maker]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            if id(node) in done:
                continue
            done.add(id(node))
            stack.append((node, True))
            stack.extend((maker[name], False) for name in reversed(reads(node)) if name in maker)
        return order

    def tidy(self):
        """Leaves out what nobody reads, and finds makers and readers anew. Nodes are put into an order that runs. The
        types of integers may have changed, and nothing is said of them."""
        outputs = [value.name for value in self.graph.output]
        order = self.in_order(outputs)
        names = {*outputs, *(name for node in order for name in reads(node))}
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in order]
        del self.graph.node[:]
        self.graph.node.extend(kept)
        made = {name for node in kept for name in node.output if node.op_type != "QuantizeLinear"}
        for held, wanted in ((self.graph.initializer, names), (self.graph.value_info, made)):
            for i in reversed(range(len(held))):
                if held[i].name not in wanted:
                    del held[i]
        self.nodes = list(self.graph.node)
        self.maker = {name: node for node in self.nodes for name in node.output if name}
        self.readers = {}
        for node in self.nodes:
            for name in reads(node):
                self.readers.setdefault(name, []).append(node)
        self.outputs = set(outputs)
        self.tensors = {tensor.name: tensor for tensor in self.graph.initializer}
        self.arrays = {}
        self.shapes = {value.name: shape(value) for value in (*self.graph.value_info, *self.graph.input)}

    def array(self, name):
        """The constant of that name; None for what a run computes."""
        if name not in self.arrays and name in self.tensors:
            self.arrays[name] = numpy_helper.to_array(self.tensors[name])
        return self.arrays.get(name)

    def fresh(self, name):
        candidate, number = name, 0
        while candidate in self.taken:
            number += 1
            candidate = f"{name}_{number}"
        self.taken.add(candidate)
        return candidate

    def constant(self, name, array):
        name = self.fresh(name)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        self.tensors[name] = self.graph.initializer[-1]
        return name

    def add(self, op, inputs, result, domain="", **attributes):
        """A node at the end; `tidy` orders."""
        name = self.fresh(f"{result}_{op}")
        self.graph.node.append(helper.make_node(op, inputs, [result], name, domain=domain, **attributes))
        return result

    def made_by(self, name, op):
        node = self.maker.get(name)
        return node if node is not None and node.op_type == op and node.domain == "" else None

    def only_reader(self, name):
        """The one node that reads a tensor which is no output; else None."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def replace(self, old, new):
        """All readers of `old` read `new`. False where `old` leaves the graph."""
        if old in self.outputs:
            return False
        for node in self.readers.get(old, []):
            for i, name in enumerate(node.input):
                if name == old:
                    node.input[i] = new
        self.readers.setdefault(new, []).extend(self.readers.pop(old, []))
        return True

    def parameters(self, node):
        """Scale and zero point of a Q or DQ whose parameters are constants, as arrays; None otherwise."""
        scale = self.array(node.input[1])
        if scale is None:
            return None
        if len(node.input) < 3 or not node.input[2]:
            return scale, np.zeros(scale.shape, np.uint8)
        zero = self.array(node.input[2])
        return None if zero is None else (scale, zero)

    def same(self, one, other):
        a, b = self.parameters(one), self.parameters(other)
        if a is None or b is None:
            return list(one.input[1:]) == list(other.input[1:])
        return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b))


def reads(node):
    """What a node reads, the graphs in its attributes included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                names.extend(reads(inner))
            names.extend(value.name for value in attribute.g.output)
    return names


def shape(value):
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]


def attribute(node, name, default=None):
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def along(values, axis, rank):
    if np.ndim(values) == 0 or np.size(values) == 1:
        return np.reshape(values, [1] * rank)
    return np.reshape(values, [-1 if d == axis else 1 for d in range(rank)])

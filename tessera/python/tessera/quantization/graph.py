# SPDX-License-Identifier: Apache-2.0
"""A view of an ONNX graph: who makes a tensor, who reads it, what it is. The model behind it stays an ordinary
ModelProto; a view does not follow later changes of it. Beside it stands what keeps a graph valid: names that mean one
tensor each, also across the bodies of If, Loop and Scan, and nodes behind those whose results they read."""

import copy
import heapq

import numpy as np
import onnx
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


def channel_axis(node, rank):
    """The axis of a product's constant that counts its results; None for one scale."""
    if is_onnx(node, "Conv"):
        return 0
    if is_onnx(node, "ConvTranspose"):
        return 1 if attribute(node, "group", 1) == 1 else None
    if is_onnx(node, "Gemm"):
        return 0 if attribute(node, "transB", 0) else 1
    if is_onnx(node, "MatMul"):
        return 1 if rank == 2 else None  # ONNX Runtime's QLinearMatMul takes a vector of scales for matrices alone
    return None


def along(values, axis, rank):
    if axis is None or np.ndim(values) == 0:
        return values
    shape = [1] * rank
    shape[axis] = -1
    return np.reshape(values, shape)


def bodies(node):
    """The graphs inside an If, Loop or Scan."""
    return [body for entry in node.attribute for body in ([entry.g] if entry.HasField("g") else entry.graphs)]


def graphs_of(graph):
    """The graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs_of(body)


def outer_reads(node):
    """Names that the bodies of If, Loop and Scan read (some of them may be their own)."""
    names = set()
    for body in bodies(node):
        for inner in body.node:
            names |= set(inner.input) | outer_reads(inner)
        names |= {value.name for value in body.output}
    return names


def defined(graph):
    """Names of the tensors that the graph itself makes, takes or holds."""
    names = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    names += [tensor.values.name for tensor in graph.sparse_initializer]
    return dict.fromkeys(names + [name for node in graph.node for name in node.output if name])


def names_of(model):
    """Every name of a tensor or node, also those inside of nodes: a new one must be none of them."""
    names = set()
    for graph in graphs_of(model.graph):
        names |= set(defined(graph)) | {value.name for value in graph.output}
        for node in graph.node:
            names |= {node.name, *node.input}
    return names


def unique(wanted, taken):
    """`wanted`, or it with a number that makes it new; `taken` learns it."""
    name, k = wanted, 1
    while name in taken:
        k += 1
        name = f"{wanted}.{k}"
    taken.add(name)
    return name


def rename(graph, names):
    """Gives tensors of the graph other names, also where bodies read them: `names` from old to new."""
    if not names:
        return
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        value.name = names.get(value.name, value.name)
    for tensor in graph.sparse_initializer:
        tensor.values.name = names.get(tensor.values.name, tensor.values.name)
    for node in graph.node:
        for operands in (node.input, node.output):
            for index, name in enumerate(operands):
                operands[index] = names.get(name, name)
        for body in bodies(node):
            own = defined(body)
            rename(body, {old: new for old, new in names.items() if old not in own})


def name_apart(model):
    """Tensors of bodies get names that no other graph of the model uses, so that a name means one tensor wherever it
    stands."""
    taken, seen = names_of(model), set(defined(model.graph))

    def inside(graph):
        for node in graph.node:
            for body in bodies(node):
                own = defined(body)
                rename(body, {name: unique(name, taken) for name in own if name in seen})
                seen.update(defined(body))
                inside(body)

    inside(model.graph)


def sort_nodes(graph):
    """Puts nodes behind those whose results they or their bodies read, and leaves the order as it is otherwise. Returns
    whether that was possible: not where nodes wait for each other."""
    nodes = list(graph.node)
    maker = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    waits = [{maker[n] for n in {*node.input, *outer_reads(node)} if n in maker} - {k} for k, node in enumerate(nodes)]
    if any(k < other for k, others in enumerate(waits) for other in others):
        readers = {}
        for k, others in enumerate(waits):
            for other in others:
                readers.setdefault(other, []).append(k)
        ready, order = [k for k, others in enumerate(waits) if not others], []
        heapq.heapify(ready)
        while ready:
            order.append(heapq.heappop(ready))
            for k in readers.get(order[-1], ()):
                waits[k].discard(order[-1])
                if not waits[k]:
                    heapq.heappush(ready, k)
        if len(order) != len(nodes):
            return False
        ordered = [copy.deepcopy(nodes[k]) for k in order]
        del graph.node[:]
        graph.node.extend(ordered)
    sorted_inside = [sort_nodes(body) for node in graph.node for body in bodies(node)]
    return all(sorted_inside)


def extent_of(dim):
    """A dimension's extent; None where it is dynamic (some exporters write 0 or -1 for that)."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


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
                self.shapes[value.name] = [extent_of(dim) for dim in kind.shape.dim]
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


def shaped_like(model, other):
    """The model with inferred shapes; where a tensor gets none, it has as many axes as in `other`."""
    ranks = {name: len(shape) for name, shape in Graph(other).shapes.items()}
    made = onnx.shape_inference.infer_shapes(model, data_prop=True)
    note_ranks(made, ranks)
    return made


def note_ranks(model, ranks):
    """Writes into the model how many axes tensors have whose shape it does not know. ranks: tensor -> number."""
    entries = {value.name: value for value in [*model.graph.value_info, *model.graph.output]}
    for name in (name for node in model.graph.node for name in node.output):
        kind = entries[name].type.tensor_type if name in entries else None
        if kind is None or kind.HasField("shape") or not kind.elem_type or name not in ranks:
            continue
        kind.shape.SetInParent()
        for _ in range(ranks[name]):
            kind.shape.dim.add()


def drop_unread(model):
    """Removes constants that neither a node nor a body reads and that are no output."""
    graph = Graph(model)
    kept = [t for t in model.graph.initializer if t.name in graph.readers or t.name in graph.held]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def as_matrices(node, array, groups):
    """Weights as [groups, outputs, columns], and the way back."""
    if is_onnx(node, "Conv"):
        return array.reshape(groups, len(array) // groups, -1), lambda made: made.reshape(array.shape)
    if channel_axis(node, 2) == 0:
        return array[None], lambda made: made[0]
    return array.T[None], lambda made: made[0].T

# SPDX-License-Identifier: Apache-2.0
"""Writes a quantised model so that its groups are the ones that ONNX Runtime computes in integers, and Tessera on the
NPU (docs/numerics.md, "What is fused"). Every step keeps what the model means: the integers of weights and activations,
and the place of each rounding. In and out: onnx.ModelProto; the model is changed in place.

Why: trained networks quantise a result once, behind its activation, and share parameters across sums and
concatenations. Then zero is inside of the range, a Relu is not implied by it, and ONNX Runtime computes the
convolution before it in float."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

PRODUCTS = {"Conv", "Gemm", "MatMul"}
# What ONNX Runtime computes in integers where a quantisation follows directly.
FUSED = PRODUCTS | {"Add", "Mul", "GlobalAveragePool", "AveragePool", "Concat"}
CLAMPS = {"Relu", "Clip"}


def spell(model):
    graph = Graph(model)
    for step in (scalars, constants, single_quantisers, pairs, means, matrices, clamps, biases):
        step(graph)
        graph.tidy()
    return model


class Graph:
    """A model's graph with its constants, who makes each tensor, and who reads it."""

    def __init__(self, model):
        self.model, self.graph = model, model.graph
        self.taken = {name for node in self.graph.node for name in (*node.input, *node.output)}
        self.taken |= {tensor.name for tensor in self.graph.initializer}
        self.tidy()

    def tidy(self):
        """Leaves out what nobody reads, and finds makers and readers anew. Nodes are put into an order that runs."""
        outputs = [value.name for value in self.graph.output]
        maker = {name: node for node in self.graph.node for name in node.output if name}
        order, done, names = [], set(), set()
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
        for node in order:
            names.update(reads(node))
        names.update(outputs)
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in order]
        del self.graph.node[:]
        self.graph.node.extend(kept)
        for i in reversed(range(len(self.graph.initializer))):
            if self.graph.initializer[i].name not in names:
                del self.graph.initializer[i]
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
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
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


def set_attribute(node, name, value):
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def along(values, axis, rank):
    if np.ndim(values) == 0 or np.size(values) == 1:
        return np.reshape(values, [1] * rank)
    return np.reshape(values, [-1 if d == axis else 1 for d in range(rank)])


# --- steps


def scalars(graph):
    """Parameters of one element are scalars: ONNX Runtime's sums and products refuse vectors of one."""
    for node in graph.nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or attribute(node, "block_size", 0):
            continue
        for i in range(1, len(node.input)):
            array = graph.array(node.input[i]) if node.input[i] else None
            if array is not None and array.shape == (1,):
                node.input[i] = graph.constant(f"{node.input[i]}_scalar", array.reshape(()))


def constants(graph):
    """Constants that the graph quantises become integers, and movements of them are done."""
    for node in graph.nodes:
        if node.op_type == "QuantizeLinear" and graph.array(node.input[0]) is not None:
            given = graph.parameters(node)
            x = graph.array(node.input[0])
            if given is None or x.dtype != np.float32 or attribute(node, "block_size", 0):
                continue
            scale, zero = (along(v, attribute(node, "axis", 1) % max(x.ndim, 1), x.ndim) for v in given)
            limits = np.iinfo(zero.dtype)
            values = np.clip(np.rint(x / scale) + zero, limits.min, limits.max).astype(zero.dtype)
            graph.replace(node.output[0], graph.constant(f"{node.input[0]}_quantised", values))
        elif node.op_type == "Transpose":
            turned(graph, node)


def turned(graph, node):
    """The transpose of dequantised constants: the transposed constants, dequantised along the axis that moved."""
    source = graph.made_by(node.input[0], "DequantizeLinear")
    values = graph.array(source.input[0]) if source is not None else None
    if values is None:
        return
    order = attribute(node, "perm", list(reversed(range(values.ndim))))
    moved = graph.constant(f"{source.input[0]}_transposed", values.transpose(order))
    axis = attribute(source, "axis", 1)
    more = {"axis": list(order).index(axis % values.ndim)} if np.size(graph.array(source.input[1])) > 1 else {}
    result = graph.fresh(f"{node.output[0]}_value")
    graph.add("DequantizeLinear", [moved, *source.input[1:]], result, **more)
    graph.replace(node.output[0], result)


def single_quantisers(graph):
    """Quantisers of one tensor with equal parameters are one."""
    seen = {}
    for node in graph.nodes:
        if node.op_type != "QuantizeLinear":
            continue
        for other in seen.setdefault(node.input[0], []):
            if graph.same(node, other) and graph.replace(node.output[0], other.output[0]):
                break
        else:
            seen[node.input[0]].append(node)


def pairs(graph):
    """What is dequantised and quantised again with the same parameters stays as it is. With other parameters a Clip
    that limits nothing stands between: ONNX Runtime would merge the two quantisations into one that rounds once."""
    for node in graph.nodes:
        source = graph.made_by(node.input[0], "DequantizeLinear") if node.op_type == "QuantizeLinear" else None
        if source is None:
            continue
        if graph.same(node, source) and graph.replace(node.output[0], source.input[0]):
            continue
        apart = graph.fresh(f"{node.input[0]}_apart")
        lowest = graph.constant(f"{apart}_lowest", np.float32(np.finfo(np.float32).min))
        graph.add("Clip", [node.input[0], lowest], apart)
        node.input[0] = apart


def means(graph):
    """A mean over all positions of an image becomes GlobalAveragePool, which has an integer form."""
    for node in graph.nodes:
        if node.op_type != "ReduceMean" or graph.made_by(node.input[0], "DequantizeLinear") is None:
            continue
        axes = graph.array(node.input[1]) if len(node.input) > 1 else attribute(node, "axes")
        dims = graph.shapes.get(node.input[0])
        if axes is None or dims is None or len(dims) < 3:
            continue
        if sorted(int(a) % len(dims) for a in axes) != list(range(2, len(dims))):
            continue
        if attribute(node, "keepdims", 1):
            pooled = node.output[0]
        else:
            pooled = graph.fresh(f"{node.output[0]}_pooled")
            axes = graph.constant(f"{node.output[0]}_axes", np.arange(2, len(dims), dtype=np.int64))
            graph.add("Squeeze", [pooled, axes], node.output[0])
        source = node.input[0]
        del node.input[:], node.attribute[:], node.output[:]
        node.op_type = "GlobalAveragePool"
        node.input.append(source)
        node.output.append(pooled)


def matrices(graph):
    """A product of a tensor of more than two axes with a quantised matrix, and the bias behind it, become a Gemm of
    rows: ONNX Runtime's integer product of such tensors takes neither a bias nor scales of columns."""
    for node in graph.nodes:
        if node.op_type != "MatMul":
            continue
        operands = [graph.made_by(name, "DequantizeLinear") for name in node.input]
        weights = graph.array(operands[1].input[0]) if operands[1] is not None else None
        if operands[0] is None or weights is None or weights.ndim != 2:
            continue
        dims = graph.shapes.get(node.input[0])
        end, bias = node, None
        behind = graph.only_reader(node.output[0])
        if behind is not None and behind.op_type == "Add":
            other = behind.input[1] if behind.input[0] == node.output[0] else behind.input[0]
            if graph.array(other) is not None and graph.array(other).shape == (weights.shape[1],):
                end, bias = behind, other
        if dims is None or len(dims) < 2 or sum(d is None for d in dims[:-1]) > 1 or (len(dims) == 2 and bias is None):
            continue
        rows, product = node.input[0], end.output[0]
        if len(dims) > 2:
            rows, product = graph.fresh(f"{node.input[0]}_rows"), graph.fresh(f"{end.output[0]}_rows")
            flat = graph.constant(f"{rows}_shape", np.array([-1, weights.shape[0]], np.int64))
            back = [-1 if d is None else d for d in dims[:-1]] + [weights.shape[1]]
            graph.add("Reshape", [node.input[0], flat], rows)
            folded = graph.constant(f"{product}_shape", np.array(back, np.int64))
            graph.add("Reshape", [product, folded], end.output[0])
        matrix = node.input[1]
        gone = end.output[0] if end is not node else None
        del node.input[:], node.output[:], node.attribute[:]
        node.op_type = "Gemm"
        node.input.extend([rows, matrix, *([bias] if bias is not None else [])])
        node.output.append(product)
        if gone is not None:
            end.output[0] = graph.fresh(f"{gone}_gone")  # nobody reads it


def clamps(graph):
    """Relu and Clip between an operator that can be computed in integers and a quantiser: the operator is quantised
    with the same parameters before it is limited. Limits and rounding are monotone, so the integers are the same."""
    for node in graph.nodes:
        if node.op_type not in FUSED or node.domain or not quantised_operands(graph, node):
            continue
        first, behind, implied = None, graph.only_reader(node.output[0]), True
        chain = []
        while behind is not None and behind.op_type in CLAMPS and limits_of(graph, behind) is not None:
            first = first or behind
            chain.append(behind)
            behind = graph.only_reader(behind.output[0])
        if first is None or behind is None or behind.op_type != "QuantizeLinear":
            continue
        given = graph.parameters(behind)
        if given is None or given[0].size != 1 or given[1].dtype.itemsize != 1:
            continue
        scale, zero = np.float64(given[0].reshape(())), int(given[1].reshape(()))
        ends = np.iinfo(given[1].dtype)
        for clamp in chain:
            low, high = limits_of(graph, clamp)
            implied &= low <= (ends.min - zero) * scale and high >= (ends.max - zero) * scale
            if not (low <= 0 <= high) and low > high:
                implied = None  # no range at all: left as it stands
        if implied or implied is None:
            continue
        parameters = list(behind.input[1:])
        whole, value = graph.fresh(f"{node.output[0]}_quantised"), graph.fresh(f"{node.output[0]}_value")
        graph.add("QuantizeLinear", [node.output[0], *parameters], whole)
        graph.add("DequantizeLinear", [whole, *parameters], value)
        first.input[0] = value


def limits_of(graph, node):
    """Low and high of a Relu or Clip; None where a run computes them."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    found = []
    for index, missing in ((1, -np.inf), (2, np.inf)):
        if len(node.input) <= index or not node.input[index]:
            found.append(missing)
            continue
        array = graph.array(node.input[index])
        if array is None or array.size != 1:
            return None
        found.append(float(array.reshape(())))
    return tuple(found)


def quantised_operands(graph, node):
    """Whether all operands that a run computes, and the weights of a product, are dequantised."""
    operands = node.input[:2] if node.op_type in PRODUCTS else node.input
    return all(graph.made_by(name, "DequantizeLinear") is not None for name in operands)


def biases(graph):
    """Float biases of quantised products become int32 with the scale of their sums."""
    for node in graph.nodes:
        if node.op_type not in ("Conv", "Gemm") or len(node.input) < 3 or not quantised_operands(graph, node):
            continue
        bias = graph.array(node.input[2])
        x, w = (graph.maker[name] for name in node.input[:2])
        given = graph.parameters(x), graph.parameters(w)
        if bias is None or bias.ndim != 1 or None in given or given[0][0].size != 1:
            continue
        if any(zero.dtype.itemsize != 1 for _, zero in given) or attribute(node, "beta", 1.0) != 1.0:
            continue
        behind = graph.only_reader(node.output[0])
        while behind is not None and behind.op_type in CLAMPS:
            behind = graph.only_reader(behind.output[0])
        if node.op_type == "Conv" and (behind is None or behind.op_type != "QuantizeLinear"):
            continue
        scale = (given[0][0].reshape(()) * given[1][0]).astype(np.float32)
        scale = scale.reshape(()) if scale.size == 1 else scale
        if scale.ndim and scale.size != bias.size or not np.all(scale > 0):
            continue
        values = np.rint(bias.astype(np.float64) / scale)
        if np.abs(values).max(initial=0) >= 2**31:
            continue  # the float bias stays, and the product with it
        name = node.input[2]
        value = graph.fresh(f"{name}_value")
        more = {"axis": 0} if scale.ndim else {}
        operands = [graph.constant(f"{name}_quantised", values.astype(np.int32)), graph.constant(f"{name}_scale", scale)]
        graph.add("DequantizeLinear", operands, value, **more)
        node.input[2] = value

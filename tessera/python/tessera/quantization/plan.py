# SPDX-License-Identifier: Apache-2.0
"""Where a float model is quantised. In: a prepared model (prepare.py) and the operator names of the compiler. Out:
units, which are the groups of nodes that the NPU computes as one operation between quantised tensors.

A unit is a product with its bias and its activation, a sum or product of two tensors, a chain of elementwise operators
on one tensor (one table of 256 values), a normalisation of rows, a movement, a concatenation, an embedding (rows of a
constant that are chosen at run time: the CPU moves their bytes), a direction of a recurrent cell (whose products stand
in a body), or any other operator alone. The sums of a recurrent cell's products are `wide`: their results stay float.
Only the borders of units are quantised: inside one, values are exact sums or parts of a table. Which units stay
quantised is decided by `settle`: a unit that is no product needs a quantised neighbour on both sides, else it would
only lose accuracy. What the NPU does not take is found by compiling (place.py)."""

import dataclasses
import math

from .attention import is_embedding, normalisations
from .forms.recurrent import FLOAT_SUMS, is_direction, products_of
from .graph import Graph, is_onnx

# Operators of ONNX whose result is a selection of their input by order, so that quantisation moves through them.
ORDERED = ("MaxPool", "GlobalMaxPool", "ReduceMax")


@dataclasses.dataclass(eq=False)
class Unit:
    kind: str  # product, binary, elementwise, normalisation, movement, concat, embedding, recurrent, other
    node: object  # that the unit is named after
    nodes: list
    inputs: list  # tensors at run time that the unit reads from outside
    output: str  # the tensor behind its last node; elementwise units may have `outputs` beside it
    outputs: list
    low: float = -math.inf  # the activation that the range of the output must imply
    high: float = math.inf
    quantised: bool = True
    why: str = ""  # that it is not quantised
    bits: int = 0  # 16: a product that is not quantised, and is made of products of bytes (sixteen.py)

    @property
    def name(self):
        return self.node.name

    @property
    def wide(self):
        """Whether its results stay float although it is quantised."""
        return self.kind == "recurrent" or self.node.doc_string == FLOAT_SUMS

    @property
    def makes_bytes(self):
        return self.quantised and not self.wide

    @property
    def computing(self):
        """Names of the nodes that the NPU is asked for."""
        nodes = products_of(self.node) if self.kind == "recurrent" else self.nodes
        return [node.name for node in nodes]

    @property
    def hidden(self):
        """Of a direction: by what the parameters of its hidden state are kept beside those of tensors."""
        return f"{self.name}/hidden"


class Plan:
    """units in topological order; unit_of: tensor -> the unit that makes it."""

    def __init__(self, model, names, *, power_of_two=False):
        self.graph = Graph(model)
        self.names = {kind: set(values) for kind, values in names.items()}
        self.power_of_two = power_of_two
        self.units, self.unit_of, self.taken = [], {}, set()
        self.normalisations = normalisations(self.graph)
        for node in self.graph.nodes:
            if id(node) not in self.taken:
                self._place(node)
        self._close_elementwise()
        self._owner = {id(node): unit for unit in self.units for node in unit.nodes}

    # --- forming units

    def _add(self, kind, node, nodes, inputs, output, **more):
        unit = Unit(kind, node, nodes, inputs, output, [o for o in nodes[-1].output if o], **more)
        self.taken |= {id(n) for n in nodes}
        self.units.append(unit)
        for name in unit.outputs:
            self.unit_of[name] = unit
        return unit

    def _run_time(self, node):
        """Operands that are float tensors known at run time only."""
        return [n for n in node.input if n and n not in self.graph.constants and self.graph.is_float(n)]

    def _place(self, node):
        graph, data = self.graph, self._run_time(node)
        floats = bool(data) and any(graph.is_float(o) for o in node.output)
        standard = node.domain in ("", "ai.onnx")
        if id(node) in self.normalisations:
            nodes, x, result = self.normalisations[id(node)]
            self._add("normalisation", nodes[-1], nodes, [x], result)
        elif is_direction(node):
            self._add("recurrent", node, [node], data, node.output[0])
        elif is_embedding(graph, node):
            self._add("embedding", node, [node], [], node.output[0])
        elif not floats or not standard:
            unit = self._add("other", node, [node], data, node.output[0])
            unit.quantised, unit.why = False, "no float operator of ONNX"
        elif node.op_type in self.names["products"] and self._has_weights(node):
            self._product(node, data)
        elif node.op_type in self.names["movements"] or node.op_type in ORDERED:
            self._add("movement", node, [node], data[:1], node.output[0])
        elif node.op_type == "Concat":
            self._add("concat", node, [node], data, node.output[0])
        elif node.op_type in self.names["elementwise"]:
            self._elementwise(node, data)
        else:
            self._add("other", node, [node], data, node.output[0])

    def _has_weights(self, node):
        """A product whose second operand is a float constant or a float tensor."""
        return len(node.input) > 1 and self.graph.is_float(node.input[1])

    def _product(self, node, data):
        nodes, last = [node], node
        if is_onnx(node, "MatMul") and node.input[1] in self.graph.constants and node.doc_string != FLOAT_SUMS:
            add = self.graph.only_reader(node.output[0])
            if add is not None and is_onnx(add, "Add"):
                other = add.input[1] if add.input[0] == node.output[0] else add.input[0]
                width = self.graph.constants[node.input[1]].dims[-1]
                if other in self.graph.constants and list(self.graph.constants[other].dims) == [width]:
                    nodes.append(add)
                    last = add
        self._with_activation("product", nodes, last, data)

    def _with_activation(self, kind, nodes, last, data):
        """Adds a unit that takes the Relu and Clip behind it in."""
        low, high = -math.inf, math.inf
        while nodes[0].doc_string != FLOAT_SUMS:
            reader = self.graph.only_reader(last.output[0])
            bounds = self._bounds(reader) if reader is not None else None
            if bounds is None:
                break
            nodes.append(reader)
            last = reader
            low, high = max(low, bounds[0]), min(high, bounds[1])
        self._add(kind, nodes[0], nodes, data, last.output[0], low=low, high=high)

    def _bounds(self, node):
        """What Relu or Clip limits to; None for other nodes and limits that no range can imply."""
        if is_onnx(node, "Relu"):
            return 0.0, math.inf
        if not is_onnx(node, "Clip"):
            return None
        limits = []
        for index, fallback in ((1, -math.inf), (2, math.inf)):
            name = node.input[index] if len(node.input) > index else ""
            if name and name not in self.graph.constants:
                return None
            limits.append(float(self.graph.array(name).reshape(-1)[0]) if name else fallback)
        low, high = limits
        if low > 0 or high < 0 or (self.power_of_two and math.isfinite(high)):
            return None
        # With a zero point of its own a finite lower limit other than 0 would have to fall on a step.
        return None if math.isfinite(low) and low != 0 else (low, high)

    def _elementwise(self, node, data):
        """Joins the chain of its operands if all of them come from one tensor of its shape, else begins one, or is an
        operation on two tensors."""
        graph = self.graph
        vectors = [n for n in node.input if n in graph.constants and graph.is_float(n) and not graph.is_scalar(n)]
        roots = {self._root(name) for name in data}
        shape = graph.shapes.get(node.output[0])
        alike = shape is not None and all(graph.shapes.get(name) == shape for name in data)
        if not vectors and len(roots) == 1 and alike and len(node.output) == 1:
            root = roots.pop()
            units = {self.unit_of[n] for n in data if n != root}
            if units and all(u.kind == "elementwise" for u in units):
                self._join(units, node)
            else:
                self._add("elementwise", node, [node], [root], node.output[0])
        elif len(data) == 2 or (len(data) == 1 and vectors and len(node.input) == 2):
            self._with_activation("binary", [node], node, data)
        else:
            self._add("other", node, [node], data, node.output[0])

    def _root(self, name):
        """The tensor that an elementwise chain began with, for what such a chain made; the tensor itself for others."""
        unit = self.unit_of.get(name)
        return unit.inputs[0] if unit is not None and unit.kind == "elementwise" else name

    def _join(self, units, node):
        first, *others = sorted(units, key=self.units.index)
        for unit in others:
            first.nodes += unit.nodes
            first.outputs += unit.outputs
            self.units.remove(unit)
        first.nodes.append(node)
        first.outputs.append(node.output[0])
        first.output = node.output[0]
        first.node = node
        self.taken.add(id(node))
        # The unit stands where its last node does: what it reads is made before.
        self.units.remove(first)
        self.units.append(first)
        for name in first.outputs:
            self.unit_of[name] = first

    def _close_elementwise(self):
        """Outputs of a chain are the tensors that somebody outside of it reads."""
        for unit in self.units:
            if unit.kind != "elementwise":
                continue
            own = {id(node) for node in unit.nodes}
            unit.outputs = [
                name
                for node in unit.nodes
                for name in node.output
                if name in self.graph.held or any(id(n) not in own for n, _ in self.graph.readers.get(name, []))
            ]

    # --- choosing units

    def readers_of(self, unit):
        """The units that read what the unit makes."""
        nodes = [node for name in unit.outputs for node, _ in self.graph.readers.get(name, [])]
        return [u for u in dict.fromkeys(self._owner[id(n)] for n in nodes if id(n) in self._owner) if u is not unit]

    def settle(self):
        """Takes quantisation away, until nothing changes, from units that are no products and stand alone: a unit that
        is quantised must stand on each side, and behind it one that computes (or else values of different sizes that
        leave the graph together would share a scale). A movement or a concatenation may also read the graph's input,
        and a movement of quantised values may write its output. So may a normalisation, whose values are of one
        size; it may read the graph's input where a sum is quantised that reads it too. Nothing stands before an
        embedding."""
        readers = {unit: self.readers_of(unit) for unit in self.units}

        def read_beside(unit, name):
            beside = (u for u in self.units if u.quantised and u.kind == "binary")
            return name in self.graph.inputs and any(name in u.inputs for u in beside)

        def computes(unit):
            if unit.kind in ("movement", "concat"):
                return unit.quantised and any(computes(reader) for reader in readers[unit])
            return unit.quantised and unit.kind != "recurrent"  # which reads float

        changed = True
        while changed:
            changed = False
            for unit in self.units:
                if not unit.quantised or unit.kind in ("product", "recurrent"):
                    continue
                moves = unit.kind in ("movement", "concat")
                before = any(
                    self.unit_of[name].makes_bytes if name in self.unit_of else moves and name in self.graph.inputs
                    for name in unit.inputs
                )
                before |= unit.kind == "embedding"
                before |= unit.kind == "normalisation" and read_beside(unit, unit.inputs[0])
                behind = any(computes(reader) for reader in readers[unit])
                behind |= unit.kind == "normalisation" and unit.output in self.graph.outputs
                if unit.kind == "movement" and all(name in self.unit_of for name in unit.inputs):
                    behind |= unit.output in self.graph.outputs or any(
                        reader.quantised and reader.kind == "movement" for reader in readers[unit]
                    )
                if not (before and behind):
                    unit.quantised, unit.why = False, "no quantised neighbour"
                    changed = True

    def quantised_tensors(self):
        """Tensors that get a scale: what a quantised unit reads, and what one makes."""
        wanted = set()
        for unit in self.units:
            if unit.quantised and unit.kind != "recurrent":
                wanted |= set(unit.inputs) | (set() if unit.wide else set(unit.outputs))
        return wanted

# SPDX-License-Identifier: Apache-2.0
"""Patterns of a model's operators in the place of which a kernel stands. A pattern is a Python function that writes the
operators down; calling it once with values that record gives a tree, which is looked for in a graph."""

import dataclasses
import functools
import inspect

import numpy as np

from .errors import KernelError

EITHER_WAY = ("Add", "Mul", "Max", "Min")


@dataclasses.dataclass(eq=False)
class PatternValue:
    name: str


@dataclasses.dataclass(eq=False)
class PatternNode:
    kind: str
    inputs: tuple
    domain: str
    attributes: dict


class Recorder:
    """The first argument of a pattern's function: p.Relu(x), p.QuantizeLinear(x, scale, zero)."""

    def __getattr__(self, kind):
        def made(*inputs, domain="", **attributes):
            for one in inputs:
                if not (one is None or isinstance(one, PatternValue | PatternNode | int | float)):
                    raise KernelError(f"a pattern's {kind} takes values, operators, numbers and None, not {one!r}")
            return PatternNode(kind, inputs, domain, attributes)

        return made


class Pattern:
    """What @pattern makes of a function. values: the names of its parameters, which a match binds to tensors."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.values = list(inspect.signature(function).parameters)[1:]
        self.root = function(Recorder(), *map(PatternValue, self.values))
        if not isinstance(self.root, PatternNode):
            raise KernelError(f"pattern '{function.__name__}' returns an operator, p.Name(...)")


def pattern(function):
    """Decorator: operators that a kernel replaces."""
    return Pattern(function)


@dataclasses.dataclass
class Match:
    bound: dict  # name of the pattern -> name of the tensor
    nodes: list  # of the graph, the last operator first
    made: dict  # id of an operator of the pattern -> its node


class Finder:
    """Looks for patterns in a graph. constants: {tensor: array}."""

    def __init__(self, graph, constants):
        self.graph, self.constants = graph, constants
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.readers = {}
        self.results = set()
        self.note(graph)

    def note(self, graph):
        """What reads a value: nodes, and results, also those of bodies."""
        self.results |= {value.name for value in graph.output}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
            for attribute in node.attribute:
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    self.note(body)

    def at(self, found, node):
        """The Match of a Pattern whose last operator is this node, or None."""
        if len(node.output) != 1:
            return None
        match = Match({}, [], {})
        if not self._node(found.root, node, match) or set(match.bound) != set(found.values):
            return None
        inside = {id(one) for one in match.nodes}
        for one in match.nodes[1:]:
            read_elsewhere = any(
                id(reader) not in inside for name in one.output for reader in self.readers.get(name, [])
            )
            if read_elsewhere or self.results & set(one.output):
                return None
        return match

    def _node(self, wanted, node, match):
        if id(wanted) in match.made:
            return match.made[id(wanted)] is node
        if node.op_type != wanted.kind or (node.domain or "") != wanted.domain:
            return False
        own = {one.name: one for one in node.attribute}
        from onnx import helper

        for name, value in wanted.attributes.items():
            if name not in own or not np.array_equal(helper.get_attribute_value(own[name]), value):
                return False
        inputs = list(node.input)
        orders = [inputs]
        if wanted.kind in EITHER_WAY and len(inputs) == 2:
            orders.append(inputs[::-1])
        for order in orders:
            tried = Match(dict(match.bound), [*match.nodes, node], match.made | {id(wanted): node})
            padded = [*order, *[""] * (len(wanted.inputs) - len(order))]
            if len(order) <= len(wanted.inputs) and all(
                self._value(one, name, tried) for one, name in zip(wanted.inputs, padded, strict=True)
            ):
                match.bound, match.nodes, match.made = tried.bound, tried.nodes, tried.made
                return True
        return False

    def _value(self, wanted, name, match):
        if wanted is None:
            return name == ""
        if isinstance(wanted, PatternValue):
            return bool(name) and match.bound.setdefault(wanted.name, name) == name
        if isinstance(wanted, PatternNode):
            return name in self.makers and self._node(wanted, self.makers[name], match)
        return name in self.constants and bool(np.all(self.constants[name] == np.float32(wanted)))

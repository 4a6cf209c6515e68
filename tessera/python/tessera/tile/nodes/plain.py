# SPDX-License-Identifier: Apache-2.0
"""Expressions as int32 operators of ONNX, for the host's processor: what the NPU has no form for. Sums of products
inside of them are still the NPU's where it has a form."""

import numpy as np

from ..errors import KernelError
from ..expressions import Load, fits
from ..meaning import values_of

OPERATORS = {"add": "Add", "sub": "Sub", "mul": "Mul", "max": "Max", "min": "Min", "abs": "Abs"}
REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


class Plain:
    """Mixed into Lowering."""

    def plain(self, expression, loops):
        """An int32 Value over `loops`, of extent 1 where it does not depend on one."""
        if not fits(expression.range, "int32"):
            low, high = expression.range
            expression.fail(f"is {low:,} to {high:,}, and the host computes in int32; clip or requantise in between")
        if expression.constant:
            values = values_of(expression, expression.loops)
            value = self.graph.constant(np.asarray(values, np.int32))
            return self.view(value, expression.loops, loops)
        value = getattr(self, f"_plain_{type(expression).__name__.lower()}")(expression, loops)
        self.at(expression)
        return value

    def as_int32(self, value):
        return value if value.dtype == "int32" else self.cast(value, "int32")

    def cast(self, value, dtype):
        number = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "bool": 9}[dtype]
        return self.graph.node("Cast", [value], dtype, value.shape, to=number)

    def join(self, operator, values, dtype="int32"):
        shape = np.broadcast_shapes(*(value.shape for value in values))
        return self.graph.node(operator, values, dtype, shape)

    def number(self, value, dtype=np.int32):
        return self.graph.constant(np.array(value, dtype))

    def _plain_load(self, expression, loops):
        return self.as_int32(self.loaded(expression, loops))

    def _plain_apply(self, expression, loops):
        values = [self.plain(one, loops) for one in expression.children]
        self.at(expression)
        name = expression.name
        if name in OPERATORS:
            return self.join(OPERATORS[name], values)
        if name in ("less", "equal"):
            return self.cast(self.join(name.capitalize(), values, "bool"), "int32")
        if name == "where":
            condition = self.join("Equal", [values[0], self.number(0)], "bool")
            return self.join("Where", [condition, values[2], values[1]])
        divisor = expression.children[1].value
        rest = self.join("Mod", [values[0], self.number(2**divisor if name == "shift" else divisor)])
        if name == "mod":
            return rest
        whole = self.join("Sub", [values[0], rest])
        return self.join("Div", [whole, self.number(2**divisor if name == "shift" else divisor)])

    def _plain_lookup(self, expression, loops):
        value = self.plain(expression.children[0], loops)
        self.at(expression)
        place = self.join("Sub", [value, self.number(expression.first)])
        table = self.graph.constant(expression.table.astype(np.int32))
        return self.graph.node("Gather", [table, place], "int32", place.shape, axis=0)

    def _plain_requantise(self, expression, loops):
        value = self.plain(expression.children[0], loops)
        scale = self.number(expression.scale, np.float32)
        if isinstance(expression.scale, Load):
            numbers = values_of(expression.scale, expression.scale.loops)
            scale = self.view(self.graph.constant(numbers.astype(np.float32)), expression.scale.loops, loops)
        self.at(expression)
        value = self.join("Mul", [self.cast(value, "float32"), scale], "float32")
        bounds = [self.number(one, np.float32) for one in (expression.low, expression.high)]
        value = self.graph.node("Clip", [value, *bounds], "float32", value.shape)
        value = self.graph.node("Round", [value], "float32", value.shape)
        return self.join("Add", [self.cast(value, "int32"), self.number(expression.zero)])

    def _plain_reduce(self, expression, loops):
        if expression.kind == "sum":
            try:
                found = self.reduced(expression, 1)
                if found is not None:
                    return self.unfolded(found, found.value, loops)
            except KernelError:
                pass
        over = list(expression.over)
        value = self.plain(expression.body, [*loops, *over])
        self.at(expression)
        value = self.graph.expand(value, [*value.shape[: len(loops)], *(loop.extent for loop in over)])
        axes = np.arange(len(loops), len(loops) + len(over))
        reduction = REDUCTIONS[expression.kind]
        return self.graph.node(
            reduction, [value, self.graph.constant(axes)], "int32", value.shape[: len(loops)], keepdims=0
        )

# SPDX-License-Identifier: Apache-2.0
"""Functions of one and of two bytes. Enters: an expression that a byte holds. Leaves: a table of what one byte decides,
or a second operation of the vector unit between two tensors. Method: the innermost part that two bytes decide is the
join; what is around it is its conversion, or a table behind it."""

import numpy as np

from ..errors import KernelError
from ..expressions import LIMITS, Apply, Expression, Load, Number, Requantise, byte_of, replaced, walk
from ..meaning import values_of
from .forms import fits_machine
from .lattices import is_bit, number_beside


class Alias(Expression):
    """A tensor that stands for a part of an expression."""

    def __init__(self, part, value, loops):
        super().__init__((), part.range)
        self.part, self.value, self.loops, self.constant = part, value, list(loops), False
        self.where = part.where

    def __str__(self):
        return str(self.part)


class Pairs:
    """Mixed into Lowering."""

    def leaves(self, expression):
        """The different bytes that decide it."""
        found = {}

        def visit(one):
            if one.constant and one.loops and (byte_of(one.range) or not one.children):
                found.setdefault(("constant", str(one)), one)
            elif one.constant and not one.loops:
                return
            elif self.is_leaf(one):
                found.setdefault(one.key() if isinstance(one, Load) else id(one), one)
            elif self.is_wide(one):
                one.fail("is an int32 among bytes; requantise it first")
            else:
                for child in one.children:
                    visit(child)

        visit(expression)
        return list(found.values())

    def same(self, one, leaf):
        return one is leaf or (isinstance(one, Load) and isinstance(leaf, Load) and one.key() == leaf.key())

    def given(self, expression, leaves, arrays):
        """{id: values} for a Meaning, of all places in which the leaves stand."""
        found = {}
        for one in walk(expression):
            for leaf, array in zip(leaves, arrays, strict=True):
                if self.same(one, leaf) or (one.constant and leaf.constant and str(one) == str(leaf)):
                    found[id(one)] = array
        return found

    def bits(self, value):
        """What each of the 256 bit patterns of a byte means."""
        return np.arange(256, dtype=np.uint8).view(value.dtype).astype(np.int64)

    def table_of(self, expression, leaf, loops, dtype):
        value = self.bytes(leaf, loops)
        self.at(expression)
        entries = values_of(expression, [], given=self.given(expression, [leaf], [self.bits(value)]))
        entries = np.broadcast_to(entries, (256,))
        return self.graph.lookup(value, self.as_bytes(entries, dtype), dtype)

    @staticmethod
    def as_bytes(entries, dtype):
        """Where an operand is what it never is, an entry has no meaning."""
        return np.clip(entries, *LIMITS[dtype]).astype(np.uint8).view(dtype)

    def without_choices(self, expression):
        """The same with where(bit, a, b) of bytes as where(bit, a, 0) + where(bit, 0, b)."""
        while (one := next(filter(self.is_choice, walk(expression)), None)) is not None:
            bit, *sides = one.children
            bit = bit if bit.constant or self.is_leaf(bit) else self.alias(bit)
            parts = [Apply("where", [bit, sides[0], Number(0)]), Apply("where", [bit, Number(0), sides[1]])]
            for part in parts:
                part.where = one.where
            whole = Apply("add", [self.alias(part) for part in parts])
            whole.where, whole.range = one.where, one.range
            expression = replaced(expression, one, whole)
        return expression

    @staticmethod
    def is_choice(expression):
        """Whether it is where(bit, a, b) of two bytes, of which none is a number."""
        if not isinstance(expression, Apply) or expression.name != "where" or expression.constant:
            return False
        bit, *sides = expression.children
        bytes_ = all(byte_of(one.range) and not isinstance(one, Number) for one in sides)
        return is_bit(bit) and bytes_ and byte_of(expression.range) is not None

    def with_fewer(self, expression, leaves):
        """The same with parts in the place of which tensors stand, so that two are left."""
        while len(leaves) > 2:
            parts = [
                (one, len(self.leaves(one)))
                for one in walk(expression)
                if one is not expression and not self.is_leaf(one) and byte_of(one.range)
            ]
            part = min((one for one in parts if 1 < one[1] < len(leaves)), key=lambda one: one[1], default=(None, 0))[0]
            if part is None:
                texts = ", ".join(str(one) for one in leaves[:3])
                expression.fail(
                    f"joins {len(leaves)} tensors ({texts}{', ...' if len(leaves) > 3 else ''}) and no part of it that "
                    "joins two is a byte; the vector unit joins two bytes at a time: clip or requantise in between"
                )
            expression = replaced(expression, part, self.alias(part))
            leaves = self.leaves(expression)
        return expression

    def alias(self, part):
        loops = list(part.loops)
        return Alias(part, self.bytes(part, loops), loops)

    def path_to_join(self, expression):
        """From an expression down to the innermost part that two bytes decide."""
        path = [expression]
        while inside := [one for one in path[-1].children if len(self.leaves(one)) == 2]:
            path.append(inside[0])
        return path

    def pairs_of(self, expression, leaves, loops, dtype):
        """The join as small as a byte holds, and what is around it as a table."""
        path = self.path_to_join(expression)
        if (found := self.distance(path) or self.equality(path)) is not None:
            return self.bytes(replaced(expression, *found), loops, dtype)
        at = next((one for one in reversed(path) if byte_of(one.range)), expression)
        if at is not expression and len(self.leaves(replaced(expression, at, Alias(at, None, at.loops)))) == 1:
            part = self.alias(at)
            return self.table_of(replaced(expression, at, part), part, loops, dtype)
        sides = []
        for leaf in leaves:
            side = self.side_of(path[-1], leaf)
            if self.line_of(side, leaf) is None:  # a table first
                bytes_ = [one for one in walk(side) if byte_of(one.range) and self.decides(leaf, one)]
                if bytes_ and not self.is_leaf(bytes_[-1]):
                    table = Alias(bytes_[-1], None, bytes_[-1].loops)
                    if len(self.leaves(replaced(expression, bytes_[-1], table))) == 2:  # it stands nowhere else
                        leaf = self.alias(bytes_[-1])
                        expression = replaced(expression, bytes_[-1], leaf)
            sides.append(leaf)
        try:
            return self.pairs(expression, sides, loops, dtype)
        except KernelError:
            path = self.path_to_join(expression)
            inner = next((one for one in reversed(path) if byte_of(one.range)), expression)
            if inner is expression or self.is_leaf(inner):
                raise
            return self.bytes(replaced(expression, inner, self.alias(inner)), loops, dtype)

    def decides(self, leaf, expression):
        """Whether a leaf is one of those of an expression. What stands inside of another leaf, as under a sum, is that
        leaf's own."""
        if self.same(expression, leaf):
            return True
        return not self.is_leaf(expression) and any(self.decides(leaf, one) for one in expression.children)

    def side_of(self, join, leaf):
        """The operand of a join that a leaf decides."""
        return next((one for one in join.children if self.decides(leaf, one)), leaf)

    def pairs(self, expression, leaves, loops, dtype):
        values = [self.bytes(leaf, loops) for leaf in leaves]
        x, y = (self.bits(value) for value in values)
        given = self.given(expression, leaves, [x[:, None], y[None, :]])
        entries = np.broadcast_to(values_of(expression, [], given=given), (256, 256))
        wanted = np.clip(entries, *LIMITS[dtype])
        inside = [(one >= leaf.range[0]) & (one <= leaf.range[1]) for one, leaf in zip((x, y), leaves, strict=True)]
        found = fits_machine(self.form_of(expression, leaves, dtype), wanted, x, y, *inside)
        if found is None:
            value = self.blended(expression, loops)
            if value is None:
                expression.fail(
                    "the vector unit has no such function of two bytes: it has x * a + y * b + c, (x - a) * (y - b) * "
                    "c and the larger or smaller of two tables, rounded and clamped; clip or requantise in between"
                )
            return value
        form, wanted = found
        shape = np.broadcast_shapes(values[0].shape, values[1].shape)
        held = self.graph.table(self.as_bytes(wanted.reshape(-1), dtype))
        self.at(expression)
        return self.graph.node("Pairs", values, dtype, shape, "ai.tessera", table=held, **form)

    def line_of(self, expression, leaf):
        """(factor, addend) where an expression is a line of the leaf; else None."""
        places = np.arange(leaf.range[0], max(leaf.range[1], leaf.range[0] + 1) + 1)
        given = self.given(expression, [leaf], [places])
        values = np.broadcast_to(values_of(expression, [], given=given), places.shape)
        factor = int(values[1] - values[0])
        addend = int(values[0] - factor * places[0])
        return (factor, addend) if np.array_equal(values, places * factor + addend) else None

    def form_of(self, expression, leaves, dtype):
        """Which second operation of the vector unit it may be: kind, factors, bounds."""
        *around, join = self.path_to_join(expression)
        scale, offset, zero, low, high = self.conversion_around(around, dtype)
        kind = getattr(join, "name", "add")
        if kind in ("max", "min"):
            return {"kind": kind}
        if kind == "less":
            low, high = max(low, 0), min(high, 1)
        lines = [self.line_of(self.side_of(join, leaf), leaf) or (1, 0) for leaf in leaves]
        if kind == "where" and (number := self.other_of_choice(join)) is not None:
            kind = "mul"  # bit * (value - other) + other
            condition = 0 if self.decides(leaves[0], join.children[0]) else 1
            if number is join.children[1]:
                lines[condition] = (-lines[condition][0], 1 - lines[condition][1])
            lines[1 - condition] = (lines[1 - condition][0], lines[1 - condition][1] - number.value)
            offset += scale * number.value
        (a, c), (b, d) = lines
        bounds = {"low": max(low, -512), "high": min(high, 511), "zero": zero}
        if kind == "mul" and a and b and c % a == 0 and d % b == 0:
            return {
                "kind": "mul",
                "rx": float(scale * a * b),
                "zx": -c // a,
                "zy": -d // b,
                "f": float(offset),
            } | bounds
        signs = [1, 1]
        if kind in ("sub", "less"):
            signs = [1, -1] if self.decides(leaves[0], join.children[0]) == (kind == "sub") else [-1, 1]
        addend = scale * (c * signs[0] + d * signs[1]) + offset
        factors = {"rx": scale * a * signs[0], "ry": scale * b * signs[1], "f": addend}
        return {"kind": "add"} | {name: float(value) for name, value in factors.items()} | bounds

    def conversion_around(self, around, dtype):
        """(scale, offset, zero, low, high) that the expressions around a join make of it."""
        low, high = (-128, 127) if dtype == "int8" else (0, 255)
        scale, offset, zero = 1.0, 0.0, 0
        for one in around:
            if isinstance(one, Requantise):
                zero, low, high = one.zero, max(low - one.zero, one.low), min(high - one.zero, one.high)
                scale = one.scale if not isinstance(one.scale, Expression) else 1.0
            elif isinstance(one, Apply) and one.name in ("min", "max"):
                _, least, most = self.clipped(one)
                low, high = max(low, least), min(high, most)
            elif isinstance(one, Apply) and one.name in ("shift", "floordiv"):  # half to even never meets a half
                divisor = one.children[1].value if one.name == "floordiv" else 2 ** one.children[1].value
                offset -= scale * (divisor - 1) / (2 * divisor)
                scale /= divisor
            elif (found := number_beside(one)) and one.name in ("add", "sub", "mul"):
                number, _, first = found
                if one.name == "mul":
                    scale *= number.value
                else:
                    offset += scale * number.value * (-1 if one.name == "sub" and not first else 1)
                    scale = -scale if one.name == "sub" and first else scale
        return scale, offset, zero, low, high

    @staticmethod
    def other_of_choice(join):
        """The number of where(bit, value, number) or where(bit, number, value); None for others."""
        if not is_bit(join.children[0]):
            return None
        return next((one for one in join.children[:0:-1] if isinstance(one, Number)), None)

# SPDX-License-Identifier: Apache-2.0
"""Sums of products of all kinds, added. Enters: sums of products of two functions of bytes, or of one and constants,
over loops of their own. Leaves: one product of matrices, in which the factors of all of them lie side by side along
what is summed. Method: each loop of the result is a row, a column or the number of a matrix. A factor that is more than
an int8 is several, each times its constant: x * 300 is x * 127 + x * 127 + x * 46, and x * x is 127 times one table of
x plus another one."""

import dataclasses
import itertools
import math

import numpy as np

from ..expressions import Load, Number, Reduce, Source, added
from ..loops import Loop, count
from ..meaning import values_of
from .contractions import Sums

MOST_PIECES = 64
LEAST, MOST = -128, 127
BASE = 127


@dataclasses.dataclass
class Side:
    """A function of a byte that is read. values: of each of its 256 bit patterns."""

    load: Load
    values: np.ndarray

    @property
    def loops(self):
        return self.load.loops

    def range(self):
        return int(self.values.min()), int(self.values.max())

    def of(self, values):
        return dataclasses.replace(self, values=values)


@dataclasses.dataclass
class Term:
    """The sum over `over` of the product of sides and a constant array over `loops`. first: whether the first side has
    the rows."""

    sides: list
    array: np.ndarray
    loops: list
    over: list
    first: bool = True

    def loops_of_factors(self):
        """Of the sides, and of the constant where it stands for one."""
        found = [set(side.loops) for side in self.sides]
        return found if len(found) == 2 else [*found, set(self.loops)]


def clipped_parts(values):
    """Arrays of int8 whose sum it is."""
    while values.any():
        part = np.clip(values, -BASE if values.max() > BASE else LEAST, MOST)
        yield part
        values = values - part


class Gathering:
    """Mixed into Lowering."""

    def gathered(self, expression, tensors, channels=()):
        """(Sums, an Expression that is still to be added, or None). tensors: (number, expression). channels: loops that
        are columns, where they can be."""
        terms = [self.term_of(expression, number, one) for number, one in tensors]
        result = [loop for loop in expression.loops if loop.extent > 1]
        matrices, rows, columns = self.roles(terms, result, channels)
        pieces, bias = [], None
        for term in terms:
            own, part = self.pieces_of(expression, term, columns)
            pieces += own
            bias = added(bias, part)
        if len(pieces) > MOST_PIECES:
            self.too_many(expression, len(pieces))
        self.at(expression)
        return self.side_by_side_product(pieces, matrices, rows, columns), bias

    @staticmethod
    def too_many(expression, count):
        expression.fail(
            f"its factors are added up of {count} bytes and more, and {MOST_PIECES} are the most: use smaller "
            "constants, or requantise parts of it"
        )

    def function_sum(self, expression, number):
        """Sums of a function of one byte, which no byte holds, times constants: of its pieces, side by side."""
        term = self.term_of(expression, number, expression)
        pieces, _ = self.pieces_of(expression, term, None)
        loops = [*term.loops, *(loop for loop in term.over if loop not in term.loops)]
        shape = [loop.extent for loop in loops]
        own = [loop for loop in loops if loop not in term.loops]
        arrays = [np.broadcast_to(array.reshape([*array.shape, *[1] * len(own)]), shape) for _, (array, _), _ in pieces]
        part = Loop(len(pieces), "part", True)
        load = term.sides[0].load
        whole = self.values[load.source.root]
        self.at(expression)
        values = [self.graph.lookup(whole, side.values.astype(np.int8), "int8") for side, _, _ in pieces]
        pads = None
        if load.source.pad is not None:
            pads = {int(side.values[self.bits(whole).tolist().index(load.source.pad)]) for side, _, _ in pieces}
            if len(pads) > 1:  # each piece has its own
                value, positions = self.with_pads(whole, list(load.positions), load.source.pad)
                values = [self.graph.lookup(value, side.values.astype(np.int8), "int8") for side, _, _ in pieces]
                load, pads = Load(Source(load.source.name, whole.dtype, value.shape), tuple(positions)), None
        lines = [self.graph.reshape(value, [1, *value.shape]) for value in values]
        value = self.graph.concat(lines, 0) if len(lines) > 1 else lines[0]
        source = Source(load.source.name, "int8", value.shape)
        self.values[source] = value
        if pads:
            source = source.padded(pads.pop())
        data = Load(source, (part.position(), *load.positions))
        return self.contracted(data, 0, (np.stack(arrays), [part, *loops], 0, "int8"), [part, *term.over])

    def term_of(self, expression, number, one):
        is_sum = isinstance(one, Reduce) and one.kind == "sum"
        if isinstance(one, Load) and one.source.dtype == "int32":
            expression.fail(
                f"{one} is an int32 of memory, to which the machine adds constants only: write both sums in one "
                "result, or requantise it first"
            )
        over = [loop for loop in one.over if loop.extent > 1] if is_sum else []
        fixed, sides = self.sides_of(one.body if is_sum else one, number)
        if len(sides) > 2 or (len(sides) == 2 and fixed.loops):
            texts = ", ".join([*(str(side.load) for side in sides), *([str(fixed)] if fixed.loops else [])])
            expression.fail(f"multiplies {texts}; the machine multiplies two bytes: requantise a product")
        for loop in over:  # in no factor: as often as it goes
            if all(loop not in side.loops for side in sides) and loop not in fixed.loops:
                fixed = fixed * loop.extent
        over = [loop for loop in over if loop in fixed.loops or any(loop in side.loops for side in sides)]
        return Term(sides, values_of(fixed, fixed.loops), list(fixed.loops), over)

    def sides_of(self, body, number):
        """(constant, Sides) of a product; factors that read the same element are one Side."""
        fixed, sides = Number(number), []
        for factor in self.factors(body):
            if factor.constant:
                fixed = fixed * factor
                continue
            load, zero = self.data_of(factor)
            values = self.bits(self.values[load.source.root]) - zero
            same = next((side for side in sides if side.load.key() == load.key()), None)
            if same is not None:
                same.values = same.values * values
            else:
                sides.append(Side(load, values))
        return fixed, sides

    def roles(self, terms, result, channels):
        """Loops of matrices, of rows, of columns. Tells the terms which of their factors has the rows."""
        factors = [loops for term in terms for loops in term.loops_of_factors()]
        alike = {}  # loops that are in the same factors have the same role
        for loop in result:
            alike.setdefault((*(loop in loops for loops in factors), loop in channels), []).append(loop)
        best = None
        for roles in itertools.product("crm", repeat=len(alike)):
            of = {loop: role for some, role in zip(alike.values(), roles, strict=True) for loop in some}
            cost = self.cost_of(of, channels)
            if best is not None and cost >= best[0]:
                continue
            turned = [self.has_rows_first(term, of) for term in terms]
            if None not in turned:
                best = (cost, turned, of)
        _, turned, of = best
        for term, first in zip(terms, turned, strict=True):
            term.first = first
        return ([loop for loop in result if of[loop] == role] for role in "mrc")

    def cost_of(self, of, channels):
        """What is worse comes later: channels that are no columns, many matrices, results that must be turned, and few
        rows. of: loop -> role."""
        return (
            sum(of.get(loop, "c") != "c" for loop in channels),
            count(loop for loop, role in of.items() if role == "m"),
            sum((self.order.get(a, -1) < self.order.get(b, -1)) for a in of for b in of if of[a] + of[b] == "cr"),
            -count(loop for loop, role in of.items() if role == "r"),
        )

    @staticmethod
    def has_rows_first(term, of):
        """Whether the first factor of a term has the rows; None where rows and columns are in one factor."""
        own = [{of[loop] for loop in loops if loop in of} for loops in term.loops_of_factors()]
        if "c" not in own[0] and "r" not in own[1]:
            return True
        return False if "r" not in own[0] and "c" not in own[1] else None

    def pieces_of(self, expression, term, columns):
        """([(factor of the rows, factor of the columns, what is summed)], an Expression to add or None). Factors are
        Sides, or (array of int8, its loops)."""
        pieces, biases, left = [], [], [term]
        while left:
            one = left.pop()
            if len(pieces) > MOST_PIECES:
                self.too_many(expression, len(pieces))
            wide = next((side for side in one.sides if side.range()[0] < LEAST or side.range()[1] > MOST), None)
            if wide is not None:
                left += self.narrowed(one, wide, columns, biases)
                continue
            if len(one.sides) == 2:
                number = int(one.array)
                if number == 1:
                    pieces.append(self.ordered(one.sides, one))
                elif number != 0:
                    side, other = one.sides
                    left.append(
                        dataclasses.replace(one, sides=[side.of(side.values * number), other], array=np.array(1))
                    )
                continue
            for part in clipped_parts(one.array):
                pieces.append(self.ordered((one.sides[0], (part, one.loops)), one))
        if not pieces:  # it is 0
            zero = (np.zeros_like(term.array), term.loops)
            pieces.append(self.ordered((term.sides[0].of(np.zeros(256, np.int64)), zero), term))
        bias = None
        for array, loops in biases:
            source = Source("bias", "int64", array.shape, array=array)
            load = Load(source, tuple(loop.position() for loop in loops))
            load.where = expression.where
            bias = added(bias, load)
        return pieces, bias

    @staticmethod
    def ordered(factors, term):
        return (*(factors if term.first else factors[::-1]), term.over)

    @staticmethod
    def narrowed(term, wide, columns, biases):
        """Terms whose sum it is, with less in the place of a side that is more than int8."""
        low, high = wide.range()
        with_side = lambda values, array=term.array: dataclasses.replace(
            term, sides=[side.of(values) if side is wide else side for side in term.sides], array=array
        )
        kept = [loop for loop in term.loops if loop not in term.over]
        if high - low <= 255:
            middle = low + 128
            if len(term.sides) == 2:  # middle times the other side
                other = next(side for side in term.sides if side is not wide)
                missing = math.prod(loop.extent for loop in term.over if loop not in other.loops)
                over = [loop for loop in term.over if loop in other.loops]
                rest = Term([other], np.array(int(term.array) * middle * missing), [], over)
                rest.first = term.first == (other is term.sides[0])
                return [with_side(wide.values - middle), rest]
            if columns is not None and all(loop in columns for loop in kept):
                axes = tuple(axis for axis, loop in enumerate(term.loops) if loop in term.over)
                missing = math.prod(loop.extent for loop in term.over if loop not in term.loops)
                biases.append((term.array.sum(axis=axes) * (middle * missing), kept))
                return [with_side(wide.values - middle)]
        if len(term.sides) == 1:
            most = int(abs(term.array).max())
            base = max(1, BASE // max(1, most))  # a digit times its constant is one product, the rest another one
            bytes_of = lambda largest: -(-largest // BASE)
            if base > 1 and bytes_of(-(-max(-low, high) // base)) + 1 < bytes_of(max(-low, high)):
                whole = np.rint(wide.values / base).astype(np.int64)
                return [with_side(whole, term.array * base), with_side(wide.values - whole * base)]
        part = np.clip(wide.values, -BASE if high > MOST else LEAST, MOST)
        return [with_side(part), with_side(wide.values - part)]

    def side_by_side_product(self, pieces, matrices, rows, columns):
        lefts, rights = [], []
        for left, right, over in pieces:
            inner = [loop for loop in over if any(loop in self.loops_of(one) for one in (left, right))]
            lefts.append(self.factor_lines(left, [matrices, rows, inner]))
            rights.append(self.factor_lines(right, [matrices, inner, columns]))
        left, right = self.beside_each_other(lefts, -1), self.beside_each_other(rights, -2)
        shape = [*([count(matrices)] if matrices else []), count(rows), count(columns)]
        zeros = [self.graph.constant(np.array(0, np.int8))] * 2
        result = self.graph.node("MatMulInteger", [left, right, *zeros], "int32", shape)
        loops = [*matrices, *rows, *columns]
        return Sums(result, loops, columns, len(shape) - 1, tuple(loop.extent for loop in loops))

    @staticmethod
    def loops_of(factor):
        return factor.loops if isinstance(factor, Side) else factor[1]

    def factor_lines(self, factor, parts):
        """A Value, or an array of a constant: axes of matrices (left out where there are none) and two others."""
        loops = [loop for part in parts for loop in part]
        shape = [count(part) for part in (parts if parts[0] else parts[1:])]
        if not isinstance(factor, Side):
            array, own = factor
            array = np.transpose(array, [own.index(loop) for loop in loops if loop in own])
            array = array.reshape([loop.extent if loop in own else 1 for loop in loops])
            return np.broadcast_to(array, [loop.extent for loop in loops]).reshape(shape).astype(np.int8)
        load = factor.load
        whole = self.values[load.source.root]
        source = Source(load.source.name, "int8", whole.shape)
        self.values[source] = self.graph.lookup(whole, factor.values.astype(np.int8), "int8")
        if load.source.pad is not None:
            source = source.padded(int(factor.values[np.array(load.source.pad).astype(whole.dtype).view(np.uint8)]))
        value, own = self.axes_of(Load(source, load.positions))
        value = self.view(value, own, loops)
        return self.graph.reshape(self.graph.expand(value, [loop.extent for loop in loops]), shape)

    def beside_each_other(self, parts, axis):
        if all(isinstance(part, np.ndarray) for part in parts):
            return self.graph.constant(np.concatenate(parts, axis))
        values = [self.graph.constant(part) if isinstance(part, np.ndarray) else part for part in parts]
        return values[0] if len(values) == 1 else self.graph.concat(values, len(values[0].shape) + axis)

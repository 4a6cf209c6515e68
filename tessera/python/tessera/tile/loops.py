# SPDX-License-Identifier: Apache-2.0
"""Loops of an operator, and positions along the axes of tensors: integer functions of loops. A position that is a sum
of loops with integer factors keeps that form; any other is a table over its loops."""

import dataclasses
import math
import operator

import numpy as np

from .errors import refuse


def integer_of(value):
    """A Python integer, or None."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


class Positioned:
    """What loops and positions have in common: arithmetic with integers and with each other. Where the other one is an
    element of a tensor, which is known only when the kernel runs, the result is what that element makes of it."""

    __array_ufunc__ = None  # NumPy leaves operations to them
    compared = None  # whether one is less than the other, as an expression: expressions.py says how

    def position(self):
        raise NotImplementedError

    def __add__(self, other):
        return combined(self, other, "+")

    def __radd__(self, other):
        return combined(other, self, "+")

    def __sub__(self, other):
        return combined(self, other, "-")

    def __rsub__(self, other):
        return combined(other, self, "-")

    def __mul__(self, other):
        return combined(self, other, "*")

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1

    def __floordiv__(self, other):
        return combined(self, other, "//")

    def __mod__(self, other):
        return combined(self, other, "%")

    def __lt__(self, other):
        return self.compared(self, other)

    def __gt__(self, other):
        return self.compared(other, self)

    def __le__(self, other):
        return 1 - self.compared(other, self)

    def __ge__(self, other):
        return 1 - self.compared(self, other)

    def __repr__(self):
        return str(self.position())


@dataclasses.dataclass(eq=False, repr=False)
class Loop(Positioned):
    """One loop of `extent` iterations; reduced: what is computed sums over it, or takes the largest."""

    extent: int
    name: str
    reduced: bool = False

    def position(self):
        return Position({self: 1}, 0)

    def __iter__(self):
        """A loop is what `axes` makes of one extent, and a tuple of one where a tuple is wanted."""
        yield self


@dataclasses.dataclass(eq=False, repr=False)
class Position(Positioned):
    """constant + the sum of loops times factors; or, where `table` is set, its entry for the loops of `terms`."""

    terms: dict  # Loop -> factor, loops of one iteration left out
    constant: int = 0
    table: np.ndarray | None = None  # an axis for each loop
    text: str = ""

    def __post_init__(self):
        if self.table is None:
            self.terms = {loop: factor for loop, factor in self.terms.items() if factor and loop.extent > 1}

    def position(self):
        return self

    @property
    def loops(self):
        return list(self.terms)

    def with_loops(self, new):
        """The same of other loops, of the same extents: {Loop: Loop}."""
        return dataclasses.replace(self, terms={new.get(loop, loop): one for loop, one in self.terms.items()})

    def values(self):
        """Over all iterations of its loops, an axis for each."""
        if self.table is not None:
            return self.table
        found = np.array(self.constant, np.int64)
        for loop, factor in self.terms.items():
            found = found[..., None] + np.arange(loop.extent, dtype=np.int64) * factor
        return found

    def range(self):
        values = self.table
        if values is not None:
            return int(values.min()), int(values.max())
        low = high = self.constant
        for loop, factor in self.terms.items():
            span = factor * (loop.extent - 1)
            low, high = low + min(0, span), high + max(0, span)
        return low, high

    def __str__(self):
        if self.table is not None:
            return self.text
        words = [loop.name if factor == 1 else f"{factor} * {loop.name}" for loop, factor in self.terms.items()]
        if self.constant or not words:
            words.append(str(self.constant))
        return " + ".join(words).replace("+ -", "- ")


def spread(position, loops):
    """Its values over `loops`, an axis for each, of extent 1 where it does not depend on one."""
    own = position.loops
    values = np.transpose(position.values(), [own.index(loop) for loop in loops if loop in own])
    return values.reshape([loop.extent if loop in own else 1 for loop in loops])


def as_position(value):
    if isinstance(value, Positioned):
        return value.position()
    found = getattr(value, "as_position", None)
    if found is not None:
        return found()
    number = integer_of(value)
    if number is None:
        refuse(f"a position is an integer or a function of loops, not {value!r}")
    return Position({}, number)


def count(loops):
    """How many iterations a nest of loops has."""
    return math.prod(loop.extent for loop in loops)


def combined(one, other, sign):
    if getattr(other, "constant", True) is False:  # an element of a tensor
        return NotImplemented
    a, b = as_position(one), as_position(other)
    affine = a.table is None and b.table is None
    if affine and sign in "+-":
        factor = 1 if sign == "+" else -1
        terms = dict(a.terms)
        for loop, value in b.terms.items():
            terms[loop] = terms.get(loop, 0) + factor * value
        return Position(terms, a.constant + factor * b.constant)
    if affine and sign == "*" and not (a.terms and b.terms):
        factor, what = (a.constant, b) if not a.terms else (b.constant, a)
        return Position({loop: value * factor for loop, value in what.terms.items()}, what.constant * factor)
    if sign in ("//", "%") and 0 in b.values():
        refuse(f"{a} {sign} {b} divides by zero")
    loops = a.loops + [loop for loop in b.loops if loop not in a.terms]
    function = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod}[sign]
    values = np.broadcast_to(function(spread(a, loops), spread(b, loops)), [loop.extent for loop in loops])
    return Position(dict.fromkeys(loops, 0), 0, np.array(values), f"({a}) {sign} ({b})")

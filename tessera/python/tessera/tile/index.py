# SPDX-License-Identifier: Apache-2.0
"""Axes of loops, and indices that are sums of axes with integer factors, as the machine's address nests have them."""

import dataclasses

from .errors import refuse


class Affine:
    """What axes and indices have in common."""

    def index(self):
        raise NotImplementedError

    def __add__(self, other):
        one, two = self.index(), as_index(other)
        terms = dict(one.terms)
        for axis, factor in two.terms.items():
            terms[axis] = terms.get(axis, 0) + factor
        return Index(terms, one.constant + two.constant)

    __radd__ = __add__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + as_index(other) * -1

    def __rsub__(self, other):
        return as_index(other) + self * -1

    def __mul__(self, factor):
        if not isinstance(factor, int):
            refuse(f"an axis can be multiplied by an integer, not by {factor!r}: addresses are sums of axes")
        one = self.index()
        return Index({axis: value * factor for axis, value in one.terms.items()}, one.constant * factor)

    __rmul__ = __mul__


@dataclasses.dataclass(eq=False)
class Axis(Affine):
    """One loop of `extent` iterations."""

    extent: int
    name: str = ""

    def index(self):
        return Index({self: 1}, 0)

    def __repr__(self):
        return f"{self.name or 'axis'}({self.extent})"


@dataclasses.dataclass(eq=False)
class Index(Affine):
    terms: dict  # Axis -> factor
    constant: int = 0

    def index(self):
        return self

    def range(self):
        """The lowest and the highest value."""
        low = high = self.constant
        for axis, factor in self.terms.items():
            span = factor * (axis.extent - 1)
            low, high = low + min(0, span), high + max(0, span)
        return low, high


def as_index(value):
    if isinstance(value, Affine):
        return value.index()
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse(f"an index is an integer or a sum of axes, not {value!r}")
    return Index({}, value.__index__())

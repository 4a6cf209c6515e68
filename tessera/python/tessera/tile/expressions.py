# SPDX-License-Identifier: Apache-2.0
"""Scalar expressions of an operator: what one element of a result is. Each knows the line that wrote it, and the least
and the greatest integer that it can be."""

import copy
import dataclasses
import functools
import itertools
import math

import numpy as np

from . import errors
from .errors import KernelError
from .functions import FUNCTIONS, OF_NUMPY, SIGNS
from .loops import Loop, Position, Positioned, as_position, integer_of
from .meaning import values_of

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}


def fits(range_, dtype):
    return LIMITS[dtype][0] <= range_[0] and range_[1] <= LIMITS[dtype][1]


def byte_of(range_):
    """The byte type that holds a range, or None."""
    return next((dtype for dtype in ("int8", "uint8") if fits(range_, dtype)), None)


@dataclasses.dataclass(eq=False)
class Source:
    """A tensor that an operator reads. array: its content where it is known when the operator is built; made: the
    Compute that makes it. pad: what is read outside of it; None: nothing may be."""

    name: str
    dtype: str
    shape: tuple
    array: np.ndarray | None = None
    made: object = None
    pad: int | None = None
    padded_from: object = None  # the same without pad
    number: bool = False  # of loops alone: its name says all

    @property
    def root(self):
        return self.padded_from or self

    def padded(self, value=0):
        """The same tensor, of which positions outside read as `value`."""
        if self.array is None and not fits((value, value), self.dtype):
            errors.refuse(f"{value} is no {self.dtype}, which '{self.name}' is padded with")
        return dataclasses.replace(self, pad=int(value), padded_from=self.root)

    def __getitem__(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(one, slice) or one is Ellipsis for one in keys):
            errors.refuse(f"'{self.name}' is read element by element: a position for each axis, no slices")
        if len(keys) != len(self.shape):
            errors.refuse(f"'{self.name}' has {len(self.shape)} axes, and {len(keys)} positions are given")
        positions = tuple(as_position(one) for one in keys)
        for axis, (position, extent) in enumerate(zip(positions, self.shape, strict=True)):
            low, high = position.range()
            if (low < 0 or high >= extent) and self.pad is None:
                errors.refuse(
                    f"axis {axis} of '{self.name}': {position} is {low} to {high}, not inside of 0 to {extent - 1}; "
                    f"{self.name}.padded(value) may be read outside"
                )
        return Load(self, positions)

    def range(self):
        if self.array is not None and self.array.size:
            found = (self.array.min().item(), self.array.max().item())
        elif self.made is not None:
            found = self.made.body.range
        else:
            found = LIMITS[self.dtype]
        low, high = found
        return (low, high) if self.pad is None else (min(low, self.pad), max(high, self.pad))


class Expression:
    """Children first; `where` is the line, range the least and the greatest value."""

    def __array_ufunc__(self, function, method, *inputs, **options):
        """NumPy's functions that the language has, of elements."""
        if method == "__call__" and not options and function is np.absolute:
            return abs(self)
        if method == "__call__" and not options and function in OF_NUMPY:
            return binary(OF_NUMPY[function], *inputs)
        return errors.refuse(f"numpy.{function.__name__} of {self}: elements are joined by the functions of the nest")

    def __init__(self, children, range_):
        self.children = tuple(children)
        self.where = errors.place()
        self.range = range_
        self.loops = list(dict.fromkeys(itertools.chain.from_iterable(one.loops for one in self.children)))
        self.constant = all(one.constant for one in self.children)

    def fail(self, why):
        raise KernelError(f"{self.where}: {self}: {why}")

    def as_position(self):
        if not self.constant:
            errors.refuse(f"a position does not depend on data, and {self} does: addresses are known in advance")
        values = values_of(self, self.loops)
        return Position(dict.fromkeys(self.loops, 0), 0, values.astype(np.int64), str(self))

    def __add__(self, other):
        return binary("add", self, other)

    def __radd__(self, other):
        return binary("add", other, self)

    def __sub__(self, other):
        return binary("sub", self, other)

    def __rsub__(self, other):
        return binary("sub", other, self)

    def __mul__(self, other):
        return binary("mul", self, other)

    def __rmul__(self, other):
        return binary("mul", other, self)

    def __floordiv__(self, other):
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other):
        return binary("floordiv", other, self)

    def __mod__(self, other):
        return binary("mod", self, other)

    def __rmod__(self, other):
        return binary("mod", other, self)

    def __rshift__(self, other):
        return binary("shift", self, other)

    def __lt__(self, other):
        return binary("less", self, other)

    def __gt__(self, other):
        return binary("less", other, self)

    def __and__(self, other):
        return of_bits("min", self, other)

    def __or__(self, other):
        return of_bits("max", self, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self):
        return 1 - of_bits("max", self, self)

    def __le__(self, other):
        return 1 - binary("less", other, self)

    def __ge__(self, other):
        return 1 - binary("less", self, other)

    def __eq__(self, other):
        return binary("equal", self, other)

    def __ne__(self, other):
        return 1 - binary("equal", self, other)

    __hash__ = object.__hash__

    def __neg__(self):
        return binary("sub", 0, self)

    def __abs__(self):
        return Number(abs(self.value)) if isinstance(self, Number) else Apply("abs", [self])

    def __bool__(self):
        return errors.refuse(f"{self} has no truth in Python; where(condition, a, b) chooses between elements")


class Number(Expression):
    def __init__(self, value):
        super().__init__((), (value, value))
        self.value = value

    def __str__(self):
        return str(self.value)


def added(total, part):
    """The sum of both, of which either may be None."""
    if total is None or part is None:
        return part if total is None else total
    return total + part


class Load(Expression):
    """An element of a tensor."""

    def __init__(self, source, positions):
        super().__init__((), source.range())
        self.source, self.positions = source, positions
        self.loops = list(dict.fromkeys(loop for one in positions for loop in one.loops))
        self.constant = source.array is not None

    def key(self):
        return (id(self.source.root), self.source.pad, tuple(str(one) for one in self.positions))

    def __str__(self):
        if self.source.number:
            return self.source.name
        return f"{self.source.name}[{', '.join(map(str, self.positions))}]"


class Apply(Expression):
    """An integer function of one element each of its children."""

    def __init__(self, name, children):
        super().__init__(children, self._range(name, [one.range for one in children]))
        self.name = name

    @staticmethod
    def _range(name, ranges):
        if name in ("less", "equal"):
            return (0, 1)
        if name == "mod":
            return (0, ranges[1][1] - 1)
        if name == "abs":
            ((low, high),) = ranges
            return (max(0, low, -high), max(-low, high))
        if name == "where":
            return (min(ranges[1][0], ranges[2][0]), max(ranges[1][1], ranges[2][1]))
        if name in ("max", "min"):
            pick = max if name == "max" else min
            return (pick(ranges[0][0], ranges[1][0]), pick(ranges[0][1], ranges[1][1]))
        ends = [int(FUNCTIONS[name](np.int64(a), np.int64(b))) for a in ranges[0] for b in ranges[1]]
        return (min(ends), max(ends))

    def __str__(self):
        if self.name in SIGNS:
            shown = [f"({one})" if isinstance(one, Apply) else str(one) for one in self.children]
            return f" {SIGNS[self.name]} ".join(shown)
        return f"{self.name}({', '.join(map(str, self.children))})"


class Lookup(Expression):
    """table[child]; first: the child's value of entry 0."""

    def __init__(self, table, first, child):
        super().__init__([child], (int(table.min()), int(table.max())))
        self.table, self.first = table, first

    def __str__(self):
        return f"table[{self.children[0]}]"


class Requantise(Expression):
    """clamp(round half to even of float32(value) * float32(scale), low, high) + zero. scale: a Load of float32, or a
    number."""

    def __init__(self, value, scale, zero, low, high):
        super().__init__([value], (low + zero, high + zero))
        self.scale, self.zero, self.low, self.high = scale, zero, low, high
        if isinstance(scale, Expression):
            self.loops = list(dict.fromkeys([*self.loops, *scale.loops]))

    def __str__(self):
        return f"requantise({self.children[0]}, {self.scale})"


class Reduce(Expression):
    """The sum, the largest or the smallest of `body` over loops."""

    def __init__(self, kind, body, over):
        low, high = sum_range(body, over) if kind == "sum" else body.range
        super().__init__([body], (low, high))
        self.kind, self.over = kind, tuple(over)
        self.loops = [loop for loop in self.loops if loop not in self.over]
        if kind == "sum" and not fits(self.range, "int32"):
            self.fail(f"may be {low:,} to {high:,}, which no int32 holds; sum fewer elements")

    @property
    def body(self):
        return self.children[0]

    def __str__(self):
        return f"{self.kind}({self.body}, over={', '.join(loop.name for loop in self.over)})"


def factors_of(expression):
    if isinstance(expression, Apply) and expression.name == "mul":
        return [one for child in expression.children for one in factors_of(child)]
    return [expression]


def sum_range(body, over):
    """The least and the greatest sum: constants among the factors count with their values."""
    factors = factors_of(body)
    fixed = [one for one in factors if one.constant and one.loops]
    count = math.prod(loop.extent for loop in over)
    if not fixed:
        return body.range[0] * count, body.range[1] * count
    low, high = 1, 1
    for one in factors:
        if not (one.constant and one.loops):
            ends = [a * b for a in (low, high) for b in one.range]
            low, high = min(ends), max(ends)
    loops = list(dict.fromkeys(loop for one in fixed for loop in one.loops))
    values = functools.reduce(np.multiply, (values_of(one, loops) for one in fixed))
    axes = tuple(axis for axis, loop in enumerate(loops) if loop in over)
    times = count // math.prod(loops[axis].extent for axis in axes)
    least, most = (pick(values * low, values * high).sum(axis=axes) * times for pick in (np.minimum, np.maximum))
    return int(least.min()), int(most.max())


def with_loops(expression, new):
    """The same of other loops. new: {Loop: Loop}; what is bound inside stays."""
    made = copy.copy(expression)
    made.loops = [new.get(loop, loop) for loop in expression.loops]
    if isinstance(expression, Reduce):
        new = {loop: other for loop, other in new.items() if loop not in expression.over}
    made.children = tuple(with_loops(child, new) for child in expression.children)
    if isinstance(expression, Load):
        made.positions = [one.with_loops(new) for one in expression.positions]
    if isinstance(expression, Requantise) and isinstance(expression.scale, Expression):
        made.scale = with_loops(expression.scale, new)
    return made


def bound_apart(expression, over):
    """The expression where what goes over one of these loops inside of it has loops of its own."""
    made = copy.copy(expression)
    made.children = tuple(bound_apart(child, over) for child in expression.children)
    if isinstance(made, Reduce) and set(made.over) & set(over):
        new = {loop: dataclasses.replace(loop, name=f"{loop.name}'") for loop in made.over if loop in over}
        made.children = tuple(with_loops(child, new) for child in made.children)
        made.over = tuple(new.get(loop, loop) for loop in made.over)
    return made


def number_of(position):
    """The number of an iteration, or another integer function of loops, as a constant."""
    if not position.loops:
        return Number(int(position.values()))
    array = position.values()
    source = Source(str(position), "int64", array.shape, array=array, number=True)
    return Load(source, tuple(loop.position() for loop in position.loops))


def as_expression(value):
    if isinstance(value, Expression):
        return value
    if isinstance(value, Loop | Position):
        return number_of(value.position())
    number = integer_of(value)
    if isinstance(value, bool | np.bool_):
        errors.refuse(
            f"a comparison is {value} for all elements; loops are compared by <, <=, > and >=, and by == with an "
            "element or with n.value(loop)"
        )
    if number is None:
        errors.refuse(
            f"an expression is made of integers and elements of tensors, not of {value!r}; scales stand in "
            "requantise(), arrays in constant()"
        )
    return Number(number)


def binary(name, one, other):
    a, b = as_expression(one), as_expression(other)
    if name in ("floordiv", "mod", "shift") and not isinstance(b, Number):
        errors.refuse(f"{SIGNS[name]} takes an integer on its right, not {b}")
    if (name in ("floordiv", "mod") and b.value < 1) or (name == "shift" and not 0 <= b.value < 32):
        errors.refuse(f"{a} {SIGNS[name]} {b}: the integer is out of its range")
    if isinstance(a, Number) and isinstance(b, Number):
        return Number(int(FUNCTIONS[name](np.int64(a.value), np.int64(b.value))))
    return Apply(name, [a, b])


# Of two loops, too, a comparison is an expression.
Positioned.compared = staticmethod(functools.partial(binary, "less"))


def of_bits(name, one, other):
    """& and | of what is 0 or 1."""
    found = [as_expression(value) for value in (one, other)]
    for value in found:
        if value.range[0] < 0 or value.range[1] > 1:
            errors.refuse(
                f"&, | and ~ join comparisons, which are 0 or 1; {value} is {value.range[0]} to {value.range[1]}"
            )
    return found[0] if one is other else binary(name, *found)


def walk(expression):
    """The expression and all inside of it, children first."""
    for child in expression.children:
        yield from walk(child)
    yield expression


def replaced(expression, part, by):
    """A copy in which `by` stands for `part`. What stands in several places is one copy."""
    copies = {id(part): by}

    def copied(one):
        if id(one) not in copies:
            children = tuple(copied(child) for child in one.children)
            copies[id(one)] = one
            if any(child is not before for child, before in zip(children, one.children, strict=True)):
                made = copies[id(one)] = copy.copy(one)
                made.children = children
                made.loops = list(dict.fromkeys(itertools.chain.from_iterable(child.loops for child in children)))
                if isinstance(one, Reduce):
                    made.loops = [loop for loop in made.loops if loop not in one.over]
                if isinstance(one, Requantise) and isinstance(one.scale, Expression):
                    made.loops = list(dict.fromkeys([*made.loops, *one.scale.loops]))
        return copies[id(one)]

    return copied(expression)


def identity(expression):
    """The same text for two expressions that are the same function of the same elements."""
    if isinstance(expression, Load):
        places = [
            id(one) if one.table is not None else (sorted((id(loop), n) for loop, n in one.terms.items()), one.constant)
            for one in expression.positions
        ]
        return f"{id(expression.source.root)}.{expression.source.pad}.{places}"
    if isinstance(expression, Number):
        return f"number {expression.value}"
    if isinstance(expression, Apply):
        return f"{expression.name}({', '.join(identity(child) for child in expression.children)})"
    return f"at {id(expression)}"

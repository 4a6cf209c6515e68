# SPDX-License-Identifier: Apache-2.0
"""What an operator's function is given: it names loops, and says what one element of each result is."""

import ast
import dataclasses
import linecache

import numpy as np

from . import errors
from .errors import refuse
from .expressions import (
    LIMITS,
    Apply,
    Expression,
    Load,
    Lookup,
    Reduce,
    Requantise,
    Source,
    as_expression,
    binary,
    bound_apart,
    fits,
    number_of,
    walk,
)
from .loops import Loop, as_position, integer_of


@dataclasses.dataclass(eq=False)
class Compute:
    """A tensor whose element at `loops` is `body`. where: the line."""

    loops: tuple
    body: Expression
    dtype: str
    where: str
    source: Source = None


def names_at_caller(method, count):
    """The names to which the caller's line assigns the `count` loops of a method; None where it does not say."""
    file, line = errors.caller()
    try:
        statements = ast.parse(linecache.getline(file, line).strip()).body
    except SyntaxError:
        statements = []
    for one in statements:
        call = one.value if isinstance(one, ast.Assign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == method:
            names = [name.id for name in ast.walk(one.targets[0]) if isinstance(name, ast.Name)]
            if len(names) == count:
                return names
    return None


class Nest:
    """The first argument of an operator. Its methods make loops, expressions and results; all raise KernelError, which
    names the line."""

    def __init__(self):
        self.computes = []
        self._constants = self._loops = 0

    # --- loops and tensors

    def axes(self, *extents):
        """Loops over the elements of a result."""
        return self._made(extents, False)

    def reduce_axes(self, *extents):
        """Loops over which sum(), max() and min() go."""
        return self._made(extents, True)

    def _made(self, extents, reduced):
        for extent in extents:
            if integer_of(extent) is None or extent < 1:
                refuse(f"a loop of {extent!r} iterations")
        method = "reduce_axes" if reduced else "axes"
        names = names_at_caller(method, len(extents)) or [f"{method[0]}{self._loops + n}" for n in range(len(extents))]
        self._loops += len(extents)
        found = tuple(Loop(int(extent), name, reduced) for extent, name in zip(extents, names, strict=True))
        return found[0] if len(found) == 1 else found

    def constant(self, array, name=None):
        """An array of integers, or of float32 for scales, that is part of the program."""
        array = np.asarray(array)
        if array.dtype.kind not in "iub" and array.dtype != np.float32:
            refuse(f"a constant has integers, or float32 for scales, not {array.dtype.name}")
        if array.size == 0:
            refuse("a constant has at least one element")
        self._constants += 1
        kept = array if array.dtype == np.float32 else array.astype(np.int64)
        return Source(name or f"constant{self._constants}", array.dtype.name, array.shape, array=kept)

    # --- expressions

    def value(self, position):
        """The number of an iteration, or another integer function of loops, as an integer that elements are joined
        with."""
        return number_of(as_position(position))

    def sum(self, body, over):
        """The sum over reduction loops, an int32."""
        return self._reduce("sum", body, over)

    def max(self, body, over):
        """The largest over reduction loops."""
        return self._reduce("max", body, over)

    def min(self, body, over):
        """The smallest over reduction loops."""
        return self._reduce("min", body, over)

    @staticmethod
    def _reduce(kind, body, over):
        over = (over,) if isinstance(over, Loop) else tuple(over)
        if not over or not all(isinstance(loop, Loop) and loop.reduced for loop in over):
            refuse(f"{kind}(..., over=...) names loops of reduce_axes()")
        body = as_expression(body)
        if any(isinstance(one, Reduce) and set(one.over) & set(over) for one in walk(body)):
            body = bound_apart(body, over)
        return Reduce(kind, body, over)

    def maximum(self, one, other):
        return binary("max", one, other)

    def minimum(self, one, other):
        return binary("min", one, other)

    def clip(self, value, low, high):
        """value, at least low and at most high."""
        if integer_of(low) is None or integer_of(high) is None or low > high:
            refuse(f"clip to {low} and {high}: they are integers, the lower one first")
        return binary("min", binary("max", value, low), high)

    def where(self, condition, one, other):
        """one where the condition is not 0, else other."""
        return Apply("where", [as_expression(value) for value in (condition, one, other)])

    def lookup(self, table, value):
        """table[value], entry 0 being that of the least value of its type: of an int8 the one for -128."""
        value, table = as_expression(value), np.asarray(table)
        first = 0 if value.range[0] >= 0 else -128
        if (
            table.shape != (256,)
            or table.dtype.kind not in "iu"
            or not (first <= value.range[0] and value.range[1] < first + 256)
        ):
            refuse(f"a table has 256 integers, for {first} to {first + 255}; {value} is {value.range}")
        return Lookup(table.astype(np.int64), first, value)

    def requantise(self, value, scale, *, zero=0, low=None, high=None, dtype="int8"):
        """clip(round half to even of float32(value) * float32(scale), low, high) + zero. scale: a number, or an element
        of a constant of float32. low and high: in front of the zero point; default: all that dtype holds."""
        if dtype not in ("int8", "uint8"):
            refuse(f"requantise makes int8 or uint8, not {dtype}")
        least, most = LIMITS[dtype]
        if any(one is not None and integer_of(one) is None for one in (zero, low, high)):
            refuse(f"requantise with zero point {zero!r} and bounds {low!r} to {high!r}, which are integers")
        low = least - zero if low is None else max(int(low), least - zero)
        high = most - zero if high is None else min(int(high), most - zero)
        if not -256 <= zero <= 255 or low > high:
            refuse(f"requantise with zero point {zero} and bounds {low} to {high}")
        if isinstance(scale, Expression):
            if not (isinstance(scale, Load) and scale.source.dtype == "float32"):
                refuse("a scale is a number or an element of a constant of float32")
            numbers = scale.source.array
        else:
            try:
                numbers = np.float32(scale)
                scale = float(numbers)
            except (TypeError, ValueError):
                refuse(f"a scale is a number or an element of a constant of float32, not {scale!r}")
        if not np.isfinite(numbers).all() or (numbers < 0).any():
            refuse("a scale is finite and not negative")
        return Requantise(as_expression(value), scale, int(zero), low, high)

    # --- results

    def compute(self, dtype, loops, value, name=None):
        """A tensor of the extents of `loops` whose element is `value`. It can be returned, and read by others."""
        loops = (loops,) if isinstance(loops, Loop) else tuple(loops)
        body = as_expression(value)
        if dtype not in LIMITS:
            refuse(f"a result is int8, uint8 or int32, not {dtype}")
        if not loops or len(set(loops)) != len(loops) or not all(isinstance(one, Loop) for one in loops):
            refuse("compute(dtype, loops, value) names each loop of its result once")
        if any(loop.reduced for loop in loops):
            refuse("a result has loops of axes(), not of reduce_axes()")
        free = [loop.name for loop in body.loops if loop not in loops]
        if free:
            refuse(f"{body} depends on {', '.join(free)}, over which nothing sums and which the result does not have")
        if not fits(body.range, dtype):
            body.fail(
                f"is {body.range[0]:,} to {body.range[1]:,}, and {dtype} is {LIMITS[dtype][0]:,} to "
                f"{LIMITS[dtype][1]:,}; clip or requantise it"
            )
        made = Compute(loops, body, dtype, errors.place())
        self.computes.append(made)
        shape = tuple(loop.extent for loop in loops)
        made.source = Source(name or f"result{len(self.computes) - 1}", dtype, shape, made=made)
        return made.source

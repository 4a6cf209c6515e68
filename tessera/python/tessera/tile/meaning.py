# SPDX-License-Identifier: Apache-2.0
"""What an expression means, in NumPy: element by element as it is written, in integers of 64 bits. It knows nothing of
products, windows or layouts, so that what an operator becomes can be compared with it."""

import itertools
import math

import numpy as np

from .functions import FUNCTIONS
from .loops import spread

MOST_AT_ONCE = 1 << 20  # elements of a reduction


class Meaning:
    """arrays: {Source: array} of the tensors that are no constants. given: {id of an expression: its values} in the
    place of what it says, of any shape that broadcasts."""

    def __init__(self, arrays=None, given=None):
        self.arrays = arrays or {}
        self.given = given or {}

    def values(self, expression, loops, fixed=None):
        """Over `loops`, an axis for each, of extent 1 where the value does not depend on one. fixed: {Loop: iteration}
        of others."""
        if id(expression) in self.given:
            return self.given[id(expression)]
        return getattr(self, f"_{type(expression).__name__.lower()}")(expression, loops, fixed or {})

    def _number(self, expression, loops, fixed):
        return np.array(expression.value, np.int64)

    def _load(self, expression, loops, fixed):
        source = expression.source
        array = self.arrays[source.root] if source.array is None else source.array
        inside, places = np.array(True), []
        for position, extent in zip(expression.positions, array.shape, strict=True):
            order = [*fixed, *loops]
            at = spread(position, order)
            for loop, iteration in fixed.items():
                at = at[iteration if loop in position.terms else 0]
            inside = inside & (at >= 0) & (at < extent)
            places.append(np.clip(at, 0, extent - 1))
        found = array[tuple(places)]
        if found.dtype != np.float32:
            found = found.astype(np.int64)
        return found if source.pad is None else np.where(inside, found, source.pad)

    def _apply(self, expression, loops, fixed):
        function = FUNCTIONS[expression.name]
        return np.asarray(function(*(self.values(one, loops, fixed) for one in expression.children)), np.int64)

    def _lookup(self, expression, loops, fixed):
        place = self.values(expression.children[0], loops, fixed) - expression.first
        return expression.table[np.clip(place, 0, 255)]  # outside it is what no value is

    def _requantise(self, expression, loops, fixed):
        value = self.values(expression.children[0], loops, fixed)
        scale = expression.scale
        if not isinstance(scale, float):
            scale = self.values(scale, loops, fixed)
        scaled = value.astype(np.float32) * np.asarray(scale, np.float32)
        return np.rint(np.clip(scaled, expression.low, expression.high)).astype(np.int64) + expression.zero

    def _reduce(self, expression, loops, fixed):
        size = math.prod(loop.extent for loop in loops if loop in expression.body.loops)
        together = list(expression.over)
        apart = []
        while together and size * math.prod(loop.extent for loop in together) > MOST_AT_ONCE:
            apart.append(together.pop(0))
        join = {"sum": np.add, "max": np.maximum, "min": np.minimum}[expression.kind]
        found = None
        for place in itertools.product(*(range(loop.extent) for loop in apart)):
            at = fixed | dict(zip(apart, place, strict=True))
            part = self.values(expression.body, [*loops, *together], at)
            part = np.broadcast_to(part, np.broadcast_shapes(part.shape, (1,) * (len(loops) + len(together))))
            for loop in together:
                axis = len(loops)
                if part.shape[axis] == 1 and loop.extent > 1 and expression.kind == "sum":
                    part = part * loop.extent
                part = join.reduce(part, axis=axis)
            found = part if found is None else join(found, part)
        return found


def values_of(expression, loops, arrays=None, given=None):
    """The values of an expression over all iterations of `loops`, an axis for each."""
    values = Meaning(arrays, given).values(expression, list(loops))
    return np.broadcast_to(values, [loop.extent for loop in loops]) if given is None else values

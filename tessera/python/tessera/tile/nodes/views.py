# SPDX-License-Identifier: Apache-2.0
"""Elements of tensors in the order of loops: a tensor that is read at positions becomes one with an axis for each loop,
by slices, reshapes, transpositions and, where windows overlap or positions have no rule, copies."""

import math

import numpy as np

from ..loops import Position

MOST_PARTS = 64  # slices that are put side by side


class Views:
    """Mixed into Lowering: graph, values."""

    def view(self, value, own, loops):
        """A value with axes `own`, with axes `loops`: of extent 1 where it has none."""
        order = [own.index(loop) for loop in loops if loop in own]
        rest = [axis for axis in range(len(own)) if axis not in order]  # of extent 1
        moved = self.graph.transpose(value, [*order, *rest])
        extent = {loop: value.shape[axis] for axis, loop in enumerate(own)}
        return self.graph.reshape(moved, [extent.get(loop, 1) for loop in loops])

    def loaded(self, load, loops):
        value, own = self.axes_of(load)
        return self.view(value, own, loops)

    def axes_of(self, load, pad=True):
        """(Value, loops): an axis for each loop that the positions depend on."""
        value = self.values[load.source.root]
        positions = list(load.positions)
        if pad and load.source.pad is not None:
            value, positions = self.with_pads(value, positions, load.source.pad)
        value, positions = self.without_diagonals(value, positions)
        loops, axis = [], 0
        for position in positions:
            value, own = self.split(value, axis, position)
            loops += own
            axis += max(1, len(own))
        return self.graph.reshape(value, [loop.extent for loop in loops]), loops

    def with_pads(self, value, positions, byte):
        ranges = [one.range() for one in positions]
        before = [max(0, -low) for low, _ in ranges]
        after = [max(0, high - extent + 1) for (_, high), extent in zip(ranges, value.shape, strict=True)]
        return (
            self.graph.pad(value, before, after, byte),
            [one + front if front else one for one, front in zip(positions, before, strict=True)],
        )

    def without_diagonals(self, value, positions):
        """A loop stands in the position of one axis."""
        while True:
            pair = next(
                (
                    (a, b)
                    for a in range(len(positions))
                    for b in range(a + 1, len(positions))
                    if set(positions[a].loops) & set(positions[b].loops)
                ),
                None,
            )
            if pair is None:
                return value, positions
            a, b = pair
            order = [axis for axis in range(len(positions)) if axis != b]
            order.insert(a + 1, b)
            value = self.graph.transpose(value, order)
            joined = positions[a] * value.shape[a + 1] + positions[b]
            value = self.graph.reshape(
                value, [*value.shape[:a], value.shape[a] * value.shape[a + 1], *value.shape[a + 2 :]]
            )
            positions = [one for axis, one in enumerate(positions) if axis != b]
            positions[a] = joined

    def split(self, value, axis, position):
        """(Value, loops): `axis` becomes an axis for each loop of its position, or one of extent 1."""
        loops = position.loops
        if position.table is not None or any(factor < 0 for factor in position.terms.values()):
            taken = self.graph.take(value, axis, position.values().reshape(-1))
            return self.shaped(taken, axis, [loop.extent for loop in loops] or [1]), loops
        terms = sorted(position.terms.items(), key=lambda term: -term[1])
        if len(terms) < 2:
            places = position.constant + np.arange(terms[0][0].extent) * terms[0][1] if terms else [position.constant]
            return self.graph.take(value, axis, places), loops
        (outer, factor), rest = terms[0], dict(terms[1:])
        inner = Position(rest, 0)
        block = factor * outer.extent
        if inner.range()[1] < factor and position.constant + block <= value.shape[axis]:
            value = self.graph.take(value, axis, position.constant + np.arange(block))
            value = self.shaped(value, axis, [outer.extent, factor])
            value, own = self.split(value, axis + 1, inner)
            return value, [outer, *own]
        return self.side_by_side(value, axis, position)

    def side_by_side(self, value, axis, position):
        """Overlapping windows: a slice for each iteration of the shortest loop."""
        loop = min(position.loops, key=lambda one: one.extent)
        if loop.extent > MOST_PARTS:
            taken = self.graph.take(value, axis, position.values().reshape(-1))
            return self.shaped(taken, axis, [one.extent for one in position.loops]), position.loops
        rest = {one: factor for one, factor in position.terms.items() if one is not loop}
        parts = []
        for iteration in range(loop.extent):
            one, own = self.split(value, axis, Position(rest, position.constant + iteration * position.terms[loop]))
            count = max(1, len(own))
            parts.append(self.shaped(one, axis, [1, *one.shape[axis : axis + count]], count))
        return self.graph.concat(parts, axis), [loop, *own]

    def shaped(self, value, axis, extents, count=1):
        """`count` axes become some of these extents."""
        assert math.prod(extents) == math.prod(value.shape[axis : axis + count])
        return self.graph.reshape(value, [*value.shape[:axis], *extents, *value.shape[axis + count :]])

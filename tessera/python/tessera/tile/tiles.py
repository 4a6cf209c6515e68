# SPDX-License-Identifier: Apache-2.0
"""Tiles in scratchpads. A tile is an array of entries: its last axis counts blocks of lanes, the one before it rows in
groups of BATCH (of weights: blocks of outputs)."""

import dataclasses
import math

import numpy as np

from .errors import refuse
from .index import Axis, as_index


@dataclasses.dataclass(eq=False)
class Tile:
    """shape: as the kernel asked for it, in elements. dims: in entries, row-major from `first` on."""

    space: str
    shape: tuple
    dims: tuple
    first: int
    dtype: np.dtype
    lanes: int  # of the last axis in one entry
    where: str  # the statement that made it
    zero: int = 0
    freed: bool = False

    @property
    def entries(self):
        return math.prod(self.dims)

    @property
    def blocks(self):
        """Entries along the last axis."""
        return self.dims[-1]

    @property
    def rows(self):
        """Entries along the axis before it."""
        return self.dims[-2]

    @property
    def unsigned(self):
        return self.dtype == np.uint8

    def strides(self):
        strides, step = [], 1
        for extent in reversed(self.dims):
            strides.insert(0, step)
            step *= extent
        return tuple(strides)

    def describe(self):
        return f"{self.space} tile {self.shape} of {self.where}"

    def check_alive(self):
        if self.freed:
            refuse(f"the {self.describe()} is used behind the end of its scope")

    def __getitem__(self, key):
        """A Reference where the indices are integers and axes, a Box where one of them is a slice; in entries."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(isinstance(one, slice) for one in keys):
            return self.box(keys)
        if len(keys) != len(self.dims):
            refuse(f"the {self.describe()} has {len(self.dims)} axes, and {len(keys)} indices are given")
        self.check_alive()
        constant, strides = self.first, {}
        for axis, (one, extent, stride) in enumerate(zip(keys, self.dims, self.strides(), strict=True)):
            index = as_index(one)
            low, high = index.range()
            if low < 0 or high >= extent:
                refuse(f"axis {axis} of the {self.describe()}: {low} to {high} is not inside of 0 to {extent - 1}")
            constant += index.constant * stride
            for loop, factor in index.terms.items():
                strides[loop] = strides.get(loop, 0) + factor * stride
        return Reference(self, constant, strides)

    def box(self, keys):
        keys = keys + [slice(None)] * (len(self.dims) - len(keys))
        starts, sizes = [], []
        for axis, (one, extent) in enumerate(zip(keys, self.dims, strict=True)):
            if not isinstance(one, slice):
                one = slice(one, one + 1)
            start, stop = one.start or 0, extent if one.stop is None else one.stop
            if one.step not in (None, 1) or not 0 <= start < stop <= extent:
                refuse(f"axis {axis} of the {self.describe()}: {start}:{stop} is no part of 0:{extent}")
            starts.append(start)
            sizes.append(stop - start)
        return Box(self, tuple(starts), tuple(sizes))

    def all(self):
        return Box(self, tuple(0 for _ in self.dims), self.dims)

    def axes(self):
        """An Axis for each dimension."""
        return tuple(Axis(extent, name) for extent, name in zip(self.dims, "uvwxyz"[-len(self.dims) :], strict=False))


@dataclasses.dataclass(eq=False)
class Reference:
    """Entries of a tile, by loops."""

    tile: Tile
    first: int
    strides: dict  # Axis -> entries


@dataclasses.dataclass(eq=False)
class Box:
    """Part of a tile that a transfer moves; in entries."""

    tile: Tile
    starts: tuple
    sizes: tuple

    def first(self):
        return self.tile.first + sum(a * b for a, b in zip(self.starts, self.tile.strides(), strict=True))


def as_box(value):
    if isinstance(value, Tile):
        value.check_alive()
        return value.all()
    if isinstance(value, Box):
        value.tile.check_alive()
        return value
    return refuse(f"a tile, or a part of one by slices, is wanted, not {type(value).__name__}")

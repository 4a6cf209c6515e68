# SPDX-License-Identifier: Apache-2.0
"""Tensors in DRAM, and views of them: shapes with strides in bytes, of which a window may hang over the edges."""

import dataclasses
import math

import numpy as np

from .errors import refuse

CONSTANTS, ARENA = 0, 1  # base registers
LAYOUTS = ("rows", "channels_last")


def order_of(layout, rank):
    """The axes of a tensor of so many from slowest to fastest: n, spatial axes, c, as the NPU has images, where axes
    are n, c, spatial ones."""
    order = tuple(range(rank))
    return (0, *order[2:], 1) if layout == "channels_last" and rank > 2 else order


@dataclasses.dataclass(eq=False)
class Tensor:
    """A tensor in DRAM, row-major or in the order of its layout, whose fastest axis is padded to `padded` elements that
    hold `fill`."""

    name: str
    dtype: np.dtype
    shape: tuple
    padded: int
    fill: int = 0
    base: int = ARENA
    offset: int = 0  # bytes from the base register
    layout: str = "rows"  # or "channels_last"

    @property
    def order(self):
        """Its axes from slowest to fastest."""
        return order_of(self.layout, len(self.shape))

    @property
    def row(self):
        """Elements of its fastest axis."""
        return self.shape[self.order[-1]]

    @property
    def bytes(self):
        return math.prod(self.shape) // self.row * self.padded * self.dtype.itemsize

    def view(self):
        return View(self, tuple(self.shape), self.strides(), 0, tuple((0, 0) for _ in self.shape))

    def strides(self):
        """Bytes from one element of each axis to the next."""
        *outer, fastest = self.order
        strides, step = {fastest: self.dtype.itemsize}, self.padded * self.dtype.itemsize
        for axis in reversed(outer):
            strides[axis] = step
            step *= self.shape[axis]
        return tuple(strides[axis] for axis in range(len(self.shape)))

    def __getitem__(self, key):
        return self.view()[key]

    def window(self, starts, sizes):
        return self.view().window(starts, sizes)

    def permute(self, *axes):
        return self.view().permute(*axes)

    def reshape(self, *shape):
        return self.view().reshape(*shape)

    def expand(self, *shape):
        return self.view().expand(*shape)

    def unfold(self, axis, size, step):
        return self.view().unfold(axis, size, step)


@dataclasses.dataclass(eq=False)
class View:
    """Part of a tensor. pads: of each axis the elements in front of the tensor and behind it, which are in `shape` and
    not in DRAM."""

    tensor: Tensor
    shape: tuple
    strides: tuple  # bytes
    offset: int  # bytes from the tensor's first one, of the first element that is in DRAM
    pads: tuple

    @property
    def dtype(self):
        return self.tensor.dtype

    def __getitem__(self, key):
        """Integers and slices of step 1, which lie inside; an integer drops its axis. Missing ones take everything."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if len(keys) > len(self.shape):
            refuse(f"'{self.tensor.name}' has {len(self.shape)} axes, and {len(keys)} indices are given")
        keys += [slice(None)] * (len(self.shape) - len(keys))
        starts, sizes, drop = [], [], []
        for axis, (one, extent) in enumerate(zip(keys, self.shape, strict=True)):
            if isinstance(one, slice):
                if one.step not in (None, 1):
                    refuse(f"axis {axis} of '{self.tensor.name}': slices have step 1; permute or reshape otherwise")
                start, stop = one.start or 0, extent if one.stop is None else one.stop
            else:
                start, stop = one, one + 1
                drop.append(axis)
            if not 0 <= start < stop <= extent:
                refuse(
                    f"axis {axis} of '{self.tensor.name}': {start}:{stop} is not inside of 0:{extent}; use window() "
                    "for what hangs over an edge"
                )
            starts.append(start)
            sizes.append(stop - start)
        view = self.window(starts, sizes)
        return view.without(drop)

    def without(self, drop):
        if any(self.pads[axis] != (0, 0) for axis in drop):
            refuse(f"'{self.tensor.name}': an axis of padding alone cannot be dropped")
        keep = [axis for axis in range(len(self.shape)) if axis not in drop]
        return dataclasses.replace(
            self,
            shape=tuple(self.shape[axis] for axis in keep),
            strides=tuple(self.strides[axis] for axis in keep),
            pads=tuple(self.pads[axis] for axis in keep),
        )

    def window(self, starts, sizes):
        """`sizes` elements from `starts` on, of each axis; what lies outside is padding, which only a load can have."""
        if len(starts) != len(self.shape) or len(sizes) != len(self.shape):
            refuse(f"a window of '{self.tensor.name}' has {len(self.shape)} starts and sizes")
        offset, pads = self.offset, []
        for start, size, extent, stride, (front, back) in zip(
            starts, sizes, self.shape, self.strides, self.pads, strict=True
        ):
            if size < 1:
                refuse(f"a window of '{self.tensor.name}' has a size of {size}")
            first, last = front, extent - back  # of the view, what is in DRAM
            before = min(max(0, first - start), size)
            after = min(max(0, start + size - last), size - before)
            offset += max(0, start - first) * stride if before < size else 0
            pads.append((before, after))
        return dataclasses.replace(self, shape=tuple(sizes), offset=offset, pads=tuple(pads))

    def permute(self, *axes):
        """The axes in another order."""
        if sorted(axes) != list(range(len(self.shape))):
            refuse(f"permute of '{self.tensor.name}' names each of its {len(self.shape)} axes once")
        pick = lambda values: tuple(values[axis] for axis in axes)
        return dataclasses.replace(self, shape=pick(self.shape), strides=pick(self.strides), pads=pick(self.pads))

    def expand(self, *shape):
        """Axes of one element repeated, to these extents: a load reads the element again for each of them."""
        if len(shape) != len(self.shape) or any(
            new < 1 or (new != old and (old != 1 or pad != (0, 0)))
            for new, old, pad in zip(shape, self.shape, self.pads, strict=True)
        ):
            refuse(f"'{self.tensor.name}' of shape {self.shape} cannot be expanded to {tuple(shape)}")
        strides = tuple(
            0 if new != old else stride for new, old, stride in zip(shape, self.shape, self.strides, strict=True)
        )
        return dataclasses.replace(self, shape=tuple(shape), strides=strides)

    def unfold(self, axis, size, step):
        """Frames of `size` elements of an axis, which may overlap, one every `step` elements: in the axis's place stand
        two, frames and elements. Elements behind the last whole frame are left out."""
        if not 0 <= axis < len(self.shape) or not 1 <= size <= self.shape[axis] or step < 1:
            refuse(f"'{self.tensor.name}' of shape {self.shape} has no frames of {size} elements along axis {axis}")
        if self.pads[axis] != (0, 0):
            refuse(f"axis {axis} of '{self.tensor.name}' hangs over an edge and has no frames")
        count, stride = (self.shape[axis] - size) // step + 1, self.strides[axis]
        put = lambda values, *two: (*values[:axis], *two, *values[axis + 1 :])
        return dataclasses.replace(
            self,
            shape=put(self.shape, count, size),
            strides=put(self.strides, step * stride, stride),
            pads=put(self.pads, (0, 0), (0, 0)),
        )

    def overlaps(self):
        """Whether two of its elements may be the same one of the tensor."""
        reach = self.tensor.dtype.itemsize
        for stride, extent in sorted(zip(self.strides, self.shape, strict=True)):
            if extent > 1 and stride < reach:
                return True
            reach = max(reach, stride * extent)
        return False

    def reshape(self, *shape):
        """The same elements in another shape. Axes that are joined must follow each other in DRAM."""
        if math.prod(shape) != math.prod(self.shape) or any(pad != (0, 0) for pad in self.pads):
            refuse(f"'{self.tensor.name}' of shape {self.shape} cannot be reshaped to {tuple(shape)}")
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n > 1]
        strides, group = [], []
        for extent in reversed(shape):
            if extent == 1:
                strides.insert(0, self.dtype.itemsize)
                continue
            if not group:
                group = list(old.pop())
            while group[0] % extent and old and old[-1][1] == group[0] * group[1]:
                group[0] *= old.pop()[0]
            if group[0] % extent:
                refuse(f"'{self.tensor.name}': reshape to {tuple(shape)} would need a copy; its rows are padded")
            strides.insert(0, group[1])
            group = [group[0] // extent, group[1] * extent] if group[0] > extent else []
        return dataclasses.replace(self, shape=tuple(shape), strides=tuple(strides), pads=tuple((0, 0) for _ in shape))


def as_view(value):
    if isinstance(value, Tensor):
        return value.view()
    if isinstance(value, View):
        return value
    return refuse(f"a tensor in DRAM is wanted, not {type(value).__name__}")

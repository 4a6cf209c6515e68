# SPDX-License-Identifier: Apache-2.0
"""Sums, maxima and minima of single bytes: windows that slide along at most two axes, or whole axes."""

import math

import numpy as np

from ..expressions import LIMITS, Load, Source
from .contractions import Sums

BYTES = np.arange(256, dtype=np.uint8)
LONG_ROW, MANY_BYTES = 32, 8192  # from where on a product with ones takes less time


class Windows:
    """Mixed into Lowering."""

    def summed(self, expression, body):
        """Sums of the vector unit, or None where a product with ones is the form."""
        data = body if isinstance(body, Load) and body.source.dtype != "int32" else self.written(body)
        over = [loop for loop in expression.over if loop.extent > 1]
        if any(loop not in data.loops for loop in over):
            return None
        windows = self.windows_of(data, [], over)
        rest = [loop for loop in over if not any(loop in window.inner for window in windows)]
        self.at(expression)
        if bool(windows) == bool(rest):
            return None
        if rest and self.sums_long_rows(data, rest):
            return None
        if rest:
            value, loops = self.axes_of(data)
            axes = [loops.index(loop) for loop in rest]
            shape = [1 if axis in axes else extent for axis, extent in enumerate(value.shape)]
            result = self.graph.node("AxisSum", [value], "int32", shape, "ai.tessera", axes=axes)
            left = [loop for loop in loops if loop not in rest]
            return Sums(result, left, [], 0, tuple(loop.extent for loop in left))
        pad = 0 if data.source.pad is None else data.source.pad
        value, images, channels, before, after = self.images_of(data, windows, pad)
        result = self.graph.node(
            "WindowSum",
            [value],
            "int32",
            [*value.shape[:2], *(window.outputs for window in windows)],
            "ai.tessera",
            pad_value=pad,
            **self.window_attributes(windows, before, after),
        )
        left = [*images, *channels, *(loop for window in windows for loop in window.rows)]
        return Sums(result, left, channels, 1, tuple(loop.extent for loop in left))

    @staticmethod
    def sums_long_rows(data, rest):
        """Whether sums are those of whole rows, which GEMM reads as they lie and the vector unit transposed."""
        inner = []
        for position in reversed(data.positions):
            if not all(loop in rest for loop in position.loops):
                break
            inner += position.loops
        row = math.prod(loop.extent for loop in rest)
        rows = math.prod(loop.extent for loop in data.loops if loop not in rest)
        return set(inner) == set(rest) and row >= LONG_ROW and row * rows >= MANY_BYTES

    def extreme(self, expression):
        """The largest, or the smallest, as Sums of bytes."""
        body = expression.body
        data = body if isinstance(body, Load) and body.source.dtype != "int32" else self.written(body)
        if expression.kind == "min":  # the largest of the complements
            data = self.complement(data)
        dtype = self.values[data.source.root].dtype
        over = [loop for loop in expression.over if loop in data.loops]
        windows = self.windows_of(data, [], over)
        rest = [loop for loop in over if not any(loop in window.inner for window in windows)]
        self.at(expression)
        pad = data.source.pad
        lowest = LIMITS[dtype][0]
        if windows:
            value, images, channels, before, after = self.images_of(data, windows, pad if pad == lowest else None)
            value = self.graph.node(
                "MaxPool",
                [value],
                dtype,
                [*value.shape[:2], *(window.outputs for window in windows)],
                **self.window_attributes(windows, before, after),
            )
            loops = [*images, *channels, *(loop for window in windows for loop in window.rows)]
            value = self.graph.reshape(value, [loop.extent for loop in loops])
        else:
            value, loops = self.axes_of(data)
        if rest:
            axes = [loops.index(loop) for loop in rest]
            shape = [1 if axis in axes else extent for axis, extent in enumerate(value.shape)]
            value = self.graph.node(
                "ReduceMax", [value, self.graph.constant(np.array(axes, np.int64))], dtype, shape, keepdims=1
            )
            loops = [loop for loop in loops if loop not in rest]
            value = self.graph.reshape(value, [loop.extent for loop in loops])
        if expression.kind == "min":
            value = self.graph.lookup(value, ~BYTES, dtype)
        return Sums(value, loops, [], 0, value.shape)

    def complement(self, data):
        whole = self.values[data.source.root]
        source = Source(f"~{data.source.name}", whole.dtype, whole.shape)
        self.values[source] = self.graph.lookup(whole, ~BYTES, whole.dtype)
        pad = data.source.pad
        if pad is not None:
            pad = ~pad if whole.dtype == "int8" else 255 - pad
            source = source.padded(pad)
        return Load(source, data.positions)

    def images_of(self, data, windows, pad):
        """The data as [images, channels, axes of windows]; pad: the byte that the window itself has outside."""
        value, axes, before, after = self.windowed(data, pad, windows)
        loops = [one for one in axes if one not in windows]
        images, channels = loops[:-1], loops[-1:]
        if any(loop.reduced for loop in loops):  # behind the windows
            images, channels = loops, []
        return self.as_images(value, axes, images, channels, windows), images, channels, before, after

    @staticmethod
    def window_attributes(windows, before, after):
        return {
            "kernel_shape": [window.taps for window in windows],
            "strides": [window.stride for window in windows],
            "dilations": [window.dilation for window in windows],
            "pads": [*before, *after],
        }

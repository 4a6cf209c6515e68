# SPDX-License-Identifier: Apache-2.0
"""Sums of products as convolutions and products of matrices. Enters: the sum of a product of elements. Leaves: int32
sums. Method: the loops of a factor that is read and of the other one say what each loop is:

    in the result   in the data   in the weights
    yes             yes           no               rows
    yes             no            yes              columns: output channels
    yes             yes           yes              groups, or matrices of a batch
    no              yes           yes              inner: summed
    a position stride * row + dilation * inner     a window of a convolution

Constant weights with windows or groups are a convolution; all else is a product of matrices, for which overlapping
windows are copied side by side."""

import dataclasses
import math

import numpy as np

from ..expressions import LIMITS, Apply, Load, Number, Reduce, Source, byte_of, fits, identity, walk
from ..loops import Loop, Position, count
from ..meaning import values_of
from .graphs import Value

MOST_WINDOWS = 2
LARGEST = 127  # of an int8
SHORT_RUN = 24  # bytes: LOAD takes about as long for each shorter one
MOST_PARTS = 16  # of a constant factor


@dataclasses.dataclass
class Sums:
    """int32 sums with an axis for each of `loops`, in shape; channels: loops of the axis along which constants may
    change, before `value` is cut into loops."""

    value: Value  # as the operator leaves it
    loops: list
    channels: list
    channel_axis: int
    shape: tuple  # of `loops`, which value has in this order

    def channel_shape(self, vector):
        shape = [1] * len(self.value.shape)
        shape[self.channel_axis] = vector.size
        return shape


@dataclasses.dataclass
class Window:
    """An axis of the data that rows and inner loops walk together."""

    axis: int
    rows: list  # loops of the result, outermost first
    inner: list  # reduced loops, outermost first
    stride: int
    dilation: int
    start: int

    @property
    def outputs(self):
        return count(self.rows)

    @property
    def taps(self):
        return count(self.inner)


@dataclasses.dataclass
class WeightedPart:
    """The sum over `over` of data at run time, whose axes are the loops `own`, times an array over `loops`."""

    value: Value
    own: list
    zero: int  # point, of the data
    array: np.ndarray
    loops: list
    over: list

    def rows(self):
        return [loop for loop in self.own if loop not in self.over]

    def columns(self):
        return [loop for loop in self.loops if loop not in self.over]


def nested(terms):
    """(loops outermost first, factor of the innermost) where they count without gaps; else None."""
    terms = sorted(terms, key=lambda term: -term[1])
    if any(factor < 1 for _, factor in terms):
        return None
    for (_, outer), (loop, factor) in zip(terms, terms[1:], strict=False):
        if outer != factor * loop.extent:
            return None
    return [loop for loop, _ in terms], terms[-1][1]


class Contractions:
    """Mixed into Lowering."""

    def reduced(self, expression, factor):
        """Sums of an int32 expression, which is a sum or a tensor that was computed; None where its product is none of
        two bytes."""
        if isinstance(expression, Load):
            if factor != 1:
                expression.fail(f"times {factor}: an int32 tensor is requantised as it is; multiply the scale")
            self.at(expression)
            value, loops = self.axes_of(expression)
            return Sums(value, loops, loops[-1:], max(0, len(loops) - 1), value.shape)
        number, fixed, moving = self.split_product(expression.body, factor)
        plain = not fixed and number == 1
        self.at(expression)
        if not moving:
            expression.fail("is constant; compute it in NumPy")
        squared = len(moving) > 1 and len({identity(one) for one in moving}) == 1
        if squared and (len(moving) > 2 or not plain or self.slides(moving[0], expression.over)):
            return self.function_sum(expression, factor)
        if len(moving) > 2 or (len(moving) == 2 and not (plain and self.covers(moving, expression.over))):
            return None
        if len(moving) == 2 and byte_of(expression.body.range) and set(moving[0].loops) == set(moving[1].loops):
            moving = [expression.body]  # no product of matrices: bytes of the vector unit
        if len(moving) == 1 and plain and (found := self.summed(expression, moving[0])) is not None:
            return found
        data, zero = self.data_of(moving[0])
        if len(moving) == 2:
            other, other_zero = self.data_of(moving[1])
            return self.product(expression, (data, zero), (other, other_zero))
        return self.weighted(expression, data, zero, fixed, number)

    def split_product(self, body, number):
        """(number, constants, what comes at run time): the factors of number * body."""
        factors = list(self.factors(body))
        number *= math.prod(one.value for one in factors if isinstance(one, Number))
        factors = [one for one in factors if not isinstance(one, Number)]
        return number, [one for one in factors if one.constant], [one for one in factors if not one.constant]

    @staticmethod
    def covers(factors, over):
        """Whether each loop with iterations is one of a factor's."""
        return all(loop.extent == 1 or any(loop in one.loops for one in factors) for loop in over)

    def slides(self, factor, over):
        """Whether windows of a factor's positions overlap."""
        loads = [one for one in walk(factor) if isinstance(one, Load) and not one.constant]
        return any(self.windows_of(load, [], [loop for loop in over if loop.extent > 1]) for load in loads)

    def factors(self, expression):
        if isinstance(expression, Apply) and expression.name == "mul":
            for child in expression.children:
                yield from self.factors(child)
        else:
            yield expression

    def data_of(self, expression):
        """(Load, zero point) of a factor that comes at run time."""
        if isinstance(expression, Load) and expression.source.dtype != "int32":
            return expression, 0
        return self.read_with_zero(expression) or (self.written(expression), 0)

    @staticmethod
    def read_with_zero(expression):
        """(Load, zero point) of an element minus a number; None for others."""
        if isinstance(expression, Apply) and expression.name in ("sub", "add"):
            one, other = expression.children
            if isinstance(one, Load) and isinstance(other, Number) and one.source.dtype != "int32":
                zero = other.value if expression.name == "sub" else -other.value
                if fits((zero, zero), one.source.dtype):
                    return one, zero
        return None

    def written(self, expression):
        """A Load of a tensor into which a factor is computed first: of the same axes where it is a function of one
        element, else of its loops."""
        if byte_of(expression.range) is None:
            expression.fail(
                f"is {expression.range[0]:,} to {expression.range[1]:,}; the machine multiplies bytes: clip or "
                "requantise the factor"
            )
        leaves = self.leaves(expression)
        dtype = byte_of(expression.range)
        if len(leaves) == 1 and isinstance(leaves[0], Load):
            load = leaves[0]
            whole = self.values[load.source.root]
            pad = load.source.pad
            given = self.given(expression, leaves, [self.bits(whole)])
            entries = np.broadcast_to(values_of(expression, [], given=given), (256,))
            self.at(expression)
            value = self.graph.lookup(whole, self.as_bytes(entries, dtype), dtype)
            if pad is not None:
                given = self.given(expression, leaves, [np.array(pad)])
                pad = int(values_of(expression, [], given=given))
            source = Source(str(expression), dtype, whole.shape)
            self.values[source] = value
            load = Load(source.padded(pad) if pad is not None else source, load.positions)
        else:
            loops = list(expression.loops)
            value = self.bytes(expression, loops, dtype)
            source = Source(str(expression), dtype, value.shape)
            self.values[source] = value
            load = Load(source, tuple(loop.position() for loop in loops))
        load.where = expression.where
        return load

    # --- constant weights

    def weighted(self, expression, data, zero, fixed, number):
        """Data at run time times constants."""
        over = [loop for loop in expression.over if loop.extent > 1]
        array, loops = self.constants_of(expression, data, fixed, number)
        array, weights_zero, dtype, times = self.as_weights(expression, array)
        if times > 1:
            part = Loop(times, "part", True)
            data, loops, over = self.repeated(data, part), [part, *loops], [part, *over]
        return self.contracted(data, zero, (array, loops, weights_zero, dtype), over)

    def contracted(self, data, zero, weights, over):
        """weights: (array, its loops, zero point, type)"""
        loops = weights[1]
        groups = [loop for loop in loops if loop not in over and loop in data.loops]
        columns = [loop for loop in loops if loop not in over and loop not in data.loops]
        windows = self.windows_of(data, columns + groups, over)
        if windows or self.beside(data, groups, over):
            return self.convolution(data, zero, weights, groups, columns, windows, over)
        return self.matrices(data, zero, weights, groups, columns, over)

    def constants_of(self, expression, data, fixed, number):
        """(array, its loops): the constant factor, with all loops that the data is summed over."""
        weights = None
        for one in fixed:
            weights = one if weights is None else weights * one
        loops = [] if weights is None else list(weights.loops)
        over = [loop for loop in expression.over if loop.extent > 1]
        array = np.array(number) if weights is None else values_of(weights, loops) * number
        # What is summed and is in one factor only.
        for loop in [one for one in loops if one in over and one not in data.loops]:
            array = array.sum(axis=loops.index(loop))
            loops.remove(loop)
        for loop in over:
            if loop not in loops and loop in data.loops:
                array = np.broadcast_to(array[..., None], (*array.shape, loop.extent))
                loops.append(loop)
            elif loop not in loops:
                array = array * loop.extent
        return array, loops

    @staticmethod
    def as_weights(expression, array):
        """(array, zero point, type, 1): bytes minus a zero point; or (arrays, 0, int8, how many), whose sum it is."""
        low, high = int(array.min()), int(array.max())
        dtype = byte_of((low, high))
        if dtype is not None:
            return array, 0, dtype, 1
        if high - low <= 255 and -255 <= low <= 0:
            return array - low, -low, "uint8", 1
        times = -(-max(-low, high) // LARGEST)
        if times > MOST_PARTS:
            expression.fail(
                f"its constant factor is {low:,} to {high:,}; it is added up of {MOST_PARTS} bytes, {LARGEST} each, at "
                "most: divide it, and multiply the scale"
            )
        parts = np.diff([np.clip(array, -LARGEST * n, LARGEST * n) for n in range(times + 1)], axis=0)
        return parts, 0, "int8", times

    def repeated(self, data, part):
        """The data with an axis more, along which it is the same: in front, or, where runs of bytes would be short, in
        front of the last axis, by a product with ones."""
        whole = self.values[data.source.root]
        channels = whole.shape[-1] if whole.shape else SHORT_RUN
        positions = list(data.positions)
        if channels >= SHORT_RUN:
            value = self.graph.reshape(whole, [1, *whole.shape])
            value = self.graph.expand(value, (part.extent, *whole.shape))
            positions.insert(0, part.position())
        else:
            pixels = math.prod(whole.shape[:-1])
            ones = self.graph.constant(np.tile(np.eye(channels, dtype=np.int8), part.extent))
            zeros = [self.graph.constant(np.zeros((), one)) for one in (whole.dtype, np.int8)]
            value = self.graph.reshape(whole, [pixels, channels])
            value = self.graph.node("MatMulInteger", [value, ones, *zeros], "int32", [pixels, part.extent * channels])
            value = self.as_bytes_of_sums(value, whole.dtype)
            value = self.graph.reshape(value, [*whole.shape[:-1], part.extent, channels])
            positions.insert(len(positions) - 1, part.position())
        source = Source(data.source.name, whole.dtype, value.shape)
        self.values[source] = value
        if data.source.pad is not None:
            source = source.padded(data.source.pad)
        return Load(source, tuple(positions))

    def as_bytes_of_sums(self, value, dtype):
        low, high = LIMITS[dtype]
        numbers = {"axis": len(value.shape) - 1, "zero": 0, "low": low, "high": high, "unsigned": int(dtype == "uint8")}
        scale = self.graph.constant(np.ones(1, np.float32))
        return self.graph.node("Requantise", [value, scale], dtype, value.shape, "ai.tessera", **numbers)

    @staticmethod
    def beside(data, groups, over):
        """Whether groups are channels: what is summed lies inside of them, nothing else does."""
        if not groups:
            return False
        inside = False
        for position in data.positions:
            own = position.loops
            if any(loop in groups for loop in own):
                inside = True
            elif inside and any(loop not in over for loop in own):
                return False
        return True

    def windows_of(self, data, weighted, over):
        """The Windows among the axes of the data, at most two: those with the most taps."""
        found = []
        for axis, position in enumerate(data.positions):
            if position.table is not None:
                continue
            rows = [term for term in position.terms.items() if term[0] not in over]
            inner = [term for term in position.terms.items() if term[0] in over]
            elsewhere = {loop for at, one in enumerate(data.positions) if at != axis for loop in one.loops}
            if not rows or not inner or any(loop in weighted for loop, _ in rows):
                continue
            if any(loop in elsewhere for loop in position.loops):
                continue
            outer, taps = nested(rows), nested(inner)
            if outer and taps:
                found.append(Window(axis, outer[0], taps[0], outer[1], taps[1], position.constant))
        found.sort(key=lambda one: -one.taps)
        return sorted(found[:MOST_WINDOWS], key=lambda one: one.axis)

    def windowed(self, data, zero, windows):
        """(Value, what each of its axes is: a loop or a Window; pads in front and behind): the data with its windows'
        axes whole, and cut so that nothing is read behind the last window."""
        value, positions = self.values[data.source.root], list(data.positions)
        before, after = [], []
        for window in windows:
            last = window.start + (window.outputs - 1) * window.stride + (window.taps - 1) * window.dilation
            extent = value.shape[window.axis]
            first, end = max(0, window.start), min(extent, last + 1)
            front, back = max(0, -window.start), max(0, last + 1 - extent)
            if first >= end:  # padding alone
                first, end, front, back = 0, 1, None, None
            if (front or back) and data.source.pad != zero or front is None:
                where = [0] * len(value.shape)
                where[window.axis] = max(0, -window.start)
                behind = [0] * len(value.shape)
                behind[window.axis] = max(0, last + 1 - extent)
                value = self.graph.pad(value, where, behind, data.source.pad)
                first, end = window.start + where[window.axis], last + 1 + where[window.axis]
                front = back = 0
            reach = value.shape[window.axis] - first + front + back - (window.taps - 1) * window.dilation - 1
            if reach // window.stride + 1 == window.outputs:  # what lies behind the last window makes no other one
                end = value.shape[window.axis]
            value = self.graph.take(value, window.axis, np.arange(first, end))
            before.append(front)
            after.append(back)
        if data.source.pad is not None:
            value, positions = self.pad_others(value, positions, windows, data.source.pad)
        value, axes = self.split_others(value, positions, windows)
        return value, axes, before, after

    def split_others(self, value, positions, windows):
        """(Value, what each of its axes is: a loop or a Window)."""
        walked = {window.axis: window for window in windows}
        others = [axis for axis in range(len(positions)) if axis not in walked]
        repeated = [loop for axis in others for loop in positions[axis].loops]
        if len(set(repeated)) < len(repeated):  # a diagonal: windows behind the rest
            value = self.graph.transpose(value, [*others, *walked])
            value, positions = self.without_diagonals(value, [positions[axis] for axis in others])
            walked = {len(positions) + number: window for number, window in enumerate(windows)}
            positions = [*positions, *windows]
        axes, axis = [], 0
        for number, position in enumerate(positions):
            if number in walked:
                axes.append(walked[number])
                axis += 1
                continue
            value, own = self.split(value, axis, position)
            if not own:
                value = self.graph.reshape(value, [*value.shape[:axis], *value.shape[axis + 1 :]])
            axes += own
            axis += len(own)
        return value, axes

    def as_images(self, value, axes, images, channels, windows):
        """The data as [images, channels, axes of windows], by way of channels last where they are not first already."""
        spatial = [value.shape[axes.index(window)] for window in windows]
        first = [axes.index(one) for one in (*images, *channels, *windows)]
        if first == sorted(first):
            return self.graph.reshape(value, [count(images), count(channels), *spatial])
        value = self.graph.transpose(value, [axes.index(one) for one in (*images, *windows, *channels)])
        value = self.graph.reshape(value, [count(images), *spatial, count(channels)])
        return self.graph.transpose(value, [0, len(spatial) + 1, *range(1, len(spatial) + 1)])

    def pad_others(self, value, positions, windows, byte):
        """Pads of the axes that are no windows."""
        walked = {window.axis for window in windows}
        still = [Position({}, 0) if axis in walked else one for axis, one in enumerate(positions)]
        value, moved = self.with_pads(value, still, byte)
        return value, [one if axis in walked else moved[axis] for axis, one in enumerate(positions)]

    def as_pixels(self, value, axes, pixels, channels):
        """The data as [1, channels, pixels]: one image without windows."""
        value = self.graph.transpose(value, [axes.index(one) for one in (*pixels, *channels)])
        value = self.graph.reshape(value, [1, count(pixels), count(channels)])
        return self.graph.transpose(value, [0, 2, 1])

    def convolution(self, data, zero, weights, groups, columns, windows, over):
        array, weight_loops, weights_zero, dtype = weights
        value, axes, before, after = self.windowed(data, zero, windows)
        walked = [loop for window in windows for loop in window.inner]
        rows = [loop for window in windows for loop in window.rows]
        inner = [loop for loop in weight_loops if loop in over and loop not in walked]
        images = [one for one in axes if one not in (*windows, *groups, *inner)]
        if windows:
            value = self.as_images(value, axes, images, [*groups, *inner], windows)
            taps, outputs, batch = [one.taps for one in windows], [one.outputs for one in windows], count(images)
            steps = {"strides": [one.stride for one in windows], "dilations": [one.dilation for one in windows]}
            steps["pads"] = [*before, *after]
            left = [*images, *groups, *columns, *rows]
        else:
            value = self.as_pixels(value, axes, images, [*groups, *inner])
            taps, outputs, batch = [1], [count(images)], 1
            steps = {"strides": [1], "dilations": [1], "pads": [0, 0]}
            left = [*groups, *columns, *images]
        order = [*groups, *columns, *inner, *walked]
        kernel = np.transpose(array, [weight_loops.index(loop) for loop in order])
        kernel = kernel.reshape(count(groups) * count(columns), count(inner), *taps)
        shape = [batch, count(groups) * count(columns), *outputs]
        zeros = [self.graph.constant(np.array(zero, value.dtype)), self.graph.constant(np.array(weights_zero, dtype))]
        operands = [value, self.graph.constant(kernel.astype(dtype)), *zeros]
        numbers = {"group": count(groups), "kernel_shape": taps, **steps}
        result = self.graph.node("ConvInteger", operands, "int32", shape, **numbers)
        return Sums(result, left, [*groups, *columns], 1, tuple(loop.extent for loop in left))

    def matrices(self, data, zero, weights, groups, columns, over):
        array, weight_loops, weights_zero, dtype = weights
        value, loops = self.axes_of(data)
        inner = [loop for loop in weight_loops if loop in over]
        rows = [loop for loop in loops if loop not in groups and loop not in inner]
        value = self.stacked(value, loops, [groups, rows, inner])
        kernel = np.transpose(array, [weight_loops.index(loop) for loop in (*groups, *inner, *columns)])
        batch = [count(groups)] if groups else []
        kernel = kernel.reshape(*batch, count(inner), count(columns))
        factor = self.graph.constant(kernel.astype(dtype))
        zeros = [self.graph.constant(np.array(zero, value.dtype)), self.graph.constant(np.array(weights_zero, dtype))]
        shape = [*batch, count(rows), count(columns)]
        result = self.graph.node("MatMulInteger", [value, factor, *zeros], "int32", shape)
        left = [*groups, *rows, *columns]
        return Sums(result, left, columns, len(shape) - 1, tuple(loop.extent for loop in left))

    def stacked(self, value, loops, parts):
        """Axes of groups (left out where there are none), rows and inner loops, each joined."""
        value = self.graph.transpose(value, [loops.index(loop) for part in parts for loop in part])
        extents = [count(part) for part in parts]
        return self.graph.reshape(value, extents if parts[0] else extents[1:])

    # --- several sums of products, added

    def joined(self, expression, tensors):
        """Sums of products of matrices with the same rows and columns, side by side along what is summed; None for
        others. tensors: (factor, sum)."""
        parts = self.weighted_parts(tensors)
        if parts is None:
            return None
        rows, columns = parts[0].rows(), parts[0].columns()
        alike = all(
            set(part.rows()) == set(rows)
            and set(part.columns()) == set(columns)
            and (part.value.dtype, part.zero) == (parts[0].value.dtype, parts[0].zero)
            for part in parts
        )
        if not alike or set(rows) & set(columns):
            return None
        lines, kernels = [], []
        for part in parts:
            inner = [loop for loop in part.loops if loop not in columns]
            lines.append(self.stacked(part.value, part.own, [[], rows, inner]))
            kernel = np.transpose(part.array, [part.loops.index(loop) for loop in (*inner, *columns)])
            kernels.append(kernel.reshape(count(inner), -1))
        self.at(expression)
        array, weights_zero, dtype, times = self.as_weights(expression, np.concatenate(kernels))
        if times > 1:
            array, lines = np.concatenate(array), lines * times
        factor = self.graph.constant(array.astype(dtype))
        value = self.graph.concat(lines, 1)
        zeros = [self.graph.constant(np.array(parts[0].zero, value.dtype))]
        zeros.append(self.graph.constant(np.array(weights_zero, dtype)))
        shape = [value.shape[0], array.shape[1]]
        result = self.graph.node("MatMulInteger", [value, factor, *zeros], "int32", shape)
        left = [*rows, *columns]
        return Sums(result, left, columns, 1, tuple(loop.extent for loop in left))

    def weighted_parts(self, tensors):
        """A WeightedPart of each sum; None where one is no sum of a byte times constants."""
        parts = []
        for factor, one in tensors:
            if not isinstance(one, Reduce) or one.kind != "sum":
                return None
            number, fixed, moving = self.split_product(one.body, factor)
            if len(moving) != 1:
                return None
            data, zero = self.data_of(moving[0])
            array, loops = self.constants_of(one, data, fixed, number)
            value, own = self.axes_of(data)
            parts.append(WeightedPart(value, own, zero, array, loops, [loop for loop in one.over if loop.extent > 1]))
        return parts

    # --- two factors at run time

    def product(self, expression, one, other):
        over = [loop for loop in expression.over if loop.extent > 1]
        sides = []
        for data, zero in (one, other):
            value, loops = self.axes_of(data)
            sides.append([value, loops, zero])
        for loop in over:
            for side in sides:
                if loop not in side[1]:  # the same element again
                    value = self.graph.reshape(side[0], [*side[0].shape, 1])
                    side[0] = self.graph.expand(value, [*side[0].shape, loop.extent])
                    side[1] = [*side[1], loop]
        batch = [loop for loop in sides[0][1] if loop in sides[1][1] and loop not in over]
        own = [[loop for loop in side[1] if loop not in batch and loop not in over] for side in sides]
        if self.last_of(own[0]) > self.last_of(own[1]):  # the result's last loop is a column
            sides.reverse()
            own.reverse()
        order = [loop for loop in sides[0][1] if loop in over]
        left = self.stacked(sides[0][0], sides[0][1], [batch, own[0], order])
        right = self.stacked(sides[1][0], sides[1][1], [batch, order, own[1]])
        zeros = [self.graph.constant(np.array(side[2], side[0].dtype)) for side in sides]
        shape = [*([count(batch)] if batch else []), count(own[0]), count(own[1])]
        self.at(expression)
        result = self.graph.node("MatMulInteger", [left, right, *zeros], "int32", shape)
        loops = [*batch, *own[0], *own[1]]
        return Sums(result, loops, own[1], len(shape) - 1, tuple(loop.extent for loop in loops))

    def last_of(self, loops):
        """How far behind in the result the last of them stands."""
        return max((self.order.get(loop, -1) for loop in loops), default=-1)

# SPDX-License-Identifier: Apache-2.0
"""What a kernel writes: memory of the scratchpads, and statements in the order of a single thread. Waits and signals
are found behind it, from the addresses of the whole program."""

import contextlib
import dataclasses
import math
import os

import numpy as np

from tessera import _tessera

from . import errors, nests, transfers
from .errors import refuse
from .events import Events
from .index import Axis
from .loops import integer_of
from .tensors import ARENA, CONSTANTS, LAYOUTS, Tensor, as_view, order_of
from .tiles import Reference, Tile, as_box

TYPES = {name: np.dtype(name) for name in ("int8", "uint8", "int32")}
INT8 = (-128, 127)
MOST_BYTES = 1 << 32  # of all tensors of a kernel


def type_of(dtype):
    found = TYPES.get(np.dtype(dtype).name)
    return found if found is not None else refuse(f"a kernel has int8, uint8 and int32, not {np.dtype(dtype).name}")


def aligned(number, to):
    return -(-number // to) * to


@dataclasses.dataclass
class Instruction:
    """One instruction of the machine by the names of its fields (isa/generated/isa.md)."""

    name: str
    fields: dict

    def assembly(self):
        words = [self.name]
        for name, value in self.fields.items():
            if isinstance(value, list):
                value = ",".join(str(int(one)) for one in value)
            words.append(f"{name}={int(value) if isinstance(value, bool) else value}")
        return " ".join(words)


@dataclasses.dataclass
class Statement:
    file: str
    line: int
    what: str
    instructions: list
    tiles: list  # that it writes
    fresh: list  # tiles that were made since the statement before: they hold nothing, whatever stood there

    @property
    def where(self):
        return f"{os.path.basename(self.file)}:{self.line}"


def extents_of(shape, what):
    """A shape as integers of Python."""
    extents = tuple(integer_of(extent) for extent in shape)
    if None in extents:
        refuse(f"{what}: extents are integers, not {tuple(shape)}")
    return extents


def expect_integers(**numbers):
    for name, value in numbers.items():
        if integer_of(value) is None:
            refuse(f"{name} is an integer, not {value!r}")


def expect_table(table):
    if not isinstance(table, Tile) or table.space != "table":
        refuse("a table is what table() made of 256 integers")


def expect_reduction(reduce, over):
    if bool(over) != (reduce is not None):
        refuse("a reduction has a name and axes: reduce='sum', over=[i]")
    if reduce not in (None, "sum", "max") or not all(isinstance(axis, Axis) for axis in over):
        refuse("a reduction is 'sum' or 'max', over axes that axes() or axis() made")


class Builder(Events):
    """The first argument of a kernel. Its methods either allocate or add a statement; all raise KernelError, which
    names the line, where the machine has no such thing."""

    def __init__(self, machine):
        self.machine = machine
        self.statements = []
        self.tensors = []  # inputs, outputs and scratch memory of DRAM
        self.constants = bytearray()
        self.arena = 0
        self._used = dict.fromkeys(machine.bytes, 0)  # entries
        self._scopes, self._fresh = [[]], []
        self._tables = {}  # tiles of PARAM and TABLE by what they hold

    # --- DRAM

    def _place(self, name, dtype, shape, fill=0, layout=None):
        dtype = type_of(dtype)
        if layout not in (None, *LAYOUTS):
            refuse(f"tensor '{name}': a layout is one of {', '.join(LAYOUTS)}, not {layout!r}")
        shape = extents_of(shape, f"tensor '{name}'")
        if not shape or min(shape) < 1:
            refuse(f"tensor '{name}' has shape {shape}; a kernel's tensors have at least one axis and one element")
        row = shape[order_of(layout, len(shape))[-1]]
        padded = aligned(row, max(self.machine.block_in, self.machine.block_out)) if layout is None else row
        tensor = Tensor(name, dtype, shape, padded, int(fill) & 255, ARENA, self.arena, layout or "rows")
        if self.arena + tensor.bytes > MOST_BYTES:
            refuse(
                f"tensor '{name}' takes {tensor.bytes:,} bytes behind {self.arena:,}; a kernel's tensors take "
                f"{MOST_BYTES:,} bytes at most"
            )
        self.arena = aligned(self.arena + tensor.bytes, 64)
        self.tensors.append(tensor)
        return tensor

    def output(self, dtype, shape, name=None, layout=None):
        """A tensor of DRAM that the kernel writes and returns. layout: how its elements lie, without gaps: "rows" or
        "channels_last"; default: in rows, each filled up to whole blocks."""
        count = sum(isinstance(one, Output) for one in self.tensors)
        tensor = self._place(name or f"output{count}", dtype, shape, 0, layout)
        tensor.__class__ = Output
        return tensor

    def scratch(self, dtype, shape, name="scratch"):
        """A tensor of DRAM for what does not fit the scratchpads."""
        return self._place(name, dtype, shape)

    def constant(self, array, name="constant"):
        """An array that is part of the program, as a tensor of DRAM."""
        array = np.asarray(array)
        if array.dtype.name not in TYPES:
            refuse(f"a constant has int8, uint8 or int32, not {array.dtype.name}: constant(array.astype('int8'))")
        dtype = TYPES[array.dtype.name]
        if array.ndim == 0 or array.size == 0:
            refuse("a constant has at least one axis and one element")
        padded = aligned(array.shape[-1], max(self.machine.block_in, self.machine.block_out))
        rows = np.zeros((math.prod(array.shape[:-1]), padded), dtype)
        rows[:, : array.shape[-1]] = array.reshape(rows.shape[0], -1)
        return self._constant(rows.tobytes(), name, dtype, array.shape, padded)

    def _constant(self, content, name, dtype, shape, padded):
        offset = len(self.constants)
        self.constants += content + bytes(-len(content) % 64)
        return Tensor(name, dtype, tuple(shape), padded, 0, CONSTANTS, offset)

    # --- scratchpads

    def _allocate(self, space, shape, dims, dtype, lanes, zero=0):
        held = np.iinfo(type_of(dtype))
        if integer_of(zero) is None or not held.min <= zero <= held.max:
            refuse(f"the zero point of a tile of {held.dtype} is {held.min:,} to {held.max:,}, not {zero}")
        count, depth = math.prod(dims), self.machine.depth(space)
        first = self._used[space]
        if first + count > depth:
            entry = self.machine.entry_bytes(space)
            more = (first + count - depth) * entry
            raise errors.DoesNotFit(
                f"{errors.place()}: {space.upper()} has {depth * entry:,} bytes on {self.machine.name}; "
                f"{first * entry:,} are used and {count * entry:,} more are wanted, {more:,} too many"
            )
        self._used[space] += count
        tile = Tile(space, tuple(shape), tuple(dims), first, type_of(dtype), lanes, errors.place(), zero)
        self._scopes[-1].append(tile)
        self._fresh.append(tile)
        return tile

    def _blocked(self, space, shape, dtype, lanes, rows, zero=0):
        shape = extents_of(shape, f"a tile of {space}")
        if len(shape) < 2 or min(shape) < 1:
            refuse(f"a tile of {space} has at least two axes of at least one element, not {tuple(shape)}")
        dims = (*shape[:-2], -(-shape[-2] // rows), -(-shape[-1] // lanes))
        return self._allocate(space, shape, dims, dtype, lanes, zero)

    def inp(self, *shape, dtype="int8", zero=0):
        """Activations for products, (..., rows, channels): entries of BATCH rows of BLOCK_IN channels. zero: their zero
        point, which products subtract and padding has."""
        return self._blocked("inp", shape, dtype, self.machine.block_in, self.machine.batch, zero)

    def wgt(self, *shape, dtype="int8", zero=0):
        """Weights, (..., outputs, inputs): entries of BLOCK_OUT outputs of BLOCK_IN inputs."""
        return self._blocked("wgt", shape, dtype, self.machine.block_in, self.machine.block_out, zero)

    def acc(self, *shape):
        """Sums of int32, (..., rows, channels): entries of BATCH rows of BLOCK_OUT channels."""
        return self._blocked("acc", shape, "int32", self.machine.block_out, self.machine.batch)

    def out(self, *shape, dtype="int8", zero=0):
        """Results, (..., rows, channels): entries of BATCH rows of BLOCK_OUT channels."""
        return self._blocked("out", shape, dtype, self.machine.block_out, self.machine.batch, zero)

    @contextlib.contextmanager
    def scope(self):
        """Tiles that are made inside are free again behind it. The same memory then serves others; what still reads it
        is waited for."""
        before = dict(self._used)
        self._scopes.append([])
        try:
            yield
        finally:
            for tile in self._scopes.pop():
                tile.freed = True
            self._used = before

    def param(self, bias, scale):
        """Bias (int32) and scale (fp32) of each channel, which convert() takes. A scalar serves all channels."""
        bias, scale = self._by_channel(bias, np.asarray(scale, np.float32))
        if not np.isfinite(scale).all():
            refuse("a scale is finite")
        if not np.array_equal(bias, bias.astype(np.int32)):
            refuse("a bias is an int32")
        return self._param(bias.astype(np.int32), scale.view(np.int32))

    def _by_channel(self, *values):
        """Arrays of one element a channel; scalars alone fill a block."""
        try:
            values = np.broadcast_arrays(*(np.atleast_1d(one) for one in values))
        except ValueError:
            sizes = " and ".join(str(np.size(one)) for one in values)
            refuse(f"there is one number for each channel or one for all, not {sizes}")
        repeats = self.machine.block_out if values[0].size == 1 else 1
        return [np.repeat(one, repeats) for one in values]

    def _param(self, first, second):
        """Two words for each lane."""
        lanes = self.machine.block_out
        blocks = -(-first.size // lanes)
        words = np.zeros((blocks, 2, lanes), np.int32)
        for half, values in enumerate((first, second)):
            flat = np.zeros(blocks * lanes, np.int32)
            flat[: values.size] = values
            words[:, half] = flat.reshape(blocks, lanes)
        return self._table_of("param", (blocks,), words.tobytes())

    def table(self, values):
        """256 bytes by the low 8 bits of what is looked up: of -128 those at 128."""
        values = np.asarray(values)
        if values.shape != (256,) or not np.array_equal(values, values.astype(np.int16)) or np.abs(values).max() > 255:
            refuse("a table has 256 integers of one byte")
        content = (values.astype(np.int64) & 255).astype(np.uint8).tobytes()
        return self._table_of("table", (1,), content, "uint8" if values.max() > 127 else "int8")

    def numbers(self, values):
        """256 non-negative fp32 numbers, which rows of a softmax look up: four tables."""
        values = np.ascontiguousarray(np.asarray(values, np.float32))
        if values.shape != (256,) or not (values >= 0).all() or values.max() > 2.0**100:
            refuse("a table of numbers has 256 numbers of 0 to 2^100")
        return self._table_of("table", (4,), values.view(np.uint8).reshape(256, 4).T.tobytes())

    def _table_of(self, space, dims, content, dtype="int8"):
        """A tile of PARAM or TABLE, which nothing else writes: one that holds the same serves again."""
        kept = self._tables.get((space, dtype, content))
        if kept is not None and not kept.freed:
            return kept
        tile = self._tables[space, dtype, content] = self._allocate(space, dims, dims, dtype, 1)
        tensor = self._constant(content, space, TYPES["int8"], (len(content),), len(content))
        self._add(f"load {space}", self._copy(tile, tensor.offset, len(content)), [tile])
        return tile

    def _copy(self, tile, offset, size):
        """LOAD instructions of `size` bytes of the constants, which a tile holds as they are."""
        entry = self.machine.entry_bytes(tile.space)
        step = transfers.MOST_RUN // entry * entry
        for begin in range(0, size, step):
            fields = {"space": tile.space, "base": CONSTANTS, "dram_offset": offset + begin}
            fields |= {"length": min(size - begin, step), "sp_addr": tile.first * entry + begin}
            yield Instruction("load", fields)

    # --- statements

    def _add(self, what, instructions, tiles):
        file, line = errors.caller()
        self.statements.append(Statement(file, line, what, list(instructions), tiles, self._fresh))
        self._fresh = []

    @staticmethod
    def pipeline(items, *stages):
        """Calls each stage, a function of an item, for all items, skewed: the first stage of an item comes in front of
        the second stage of the item before, and so on. Engines take their work in the order in which it is written, so
        that is how one of them begins an item while another still has the item before. Tiles that live from one stage
        to the next are there twice, and more often where a stage lies between."""
        items = list(items)
        for time in range(len(items) + len(stages) - 1):
            for number, stage in enumerate(stages):
                if 0 <= time - number < len(items):
                    stage(items[time - number])

    def axis(self, extent, name=""):
        """A loop of the machine over `extent` iterations, for indices of references."""
        if extent < 1:
            refuse(f"an axis of {extent} iterations")
        return Axis(int(extent), name)

    def axes(self, *extents):
        return tuple(self.axis(extent) for extent in extents)

    def load(self, tile, source):
        """Copies a tensor's part to a tile, or to a part of one. Padding of a window, and lanes that the part does not
        have, get the tile's zero point."""
        box, view = self._writable(tile), as_view(source)
        found = [Instruction(*one) for one in transfers.load(box, view, box.tile.zero, self.machine)]
        self._add("load", found, [box.tile])

    def fill(self, tile, value=0):
        """Writes one byte everywhere in a tile."""
        if integer_of(value) is None or not -128 <= value <= 255:
            refuse(f"a tile is filled with a byte, -128 to 255, not with {value}")
        box = self._writable(tile)
        found = [Instruction("load", fields) for fields in transfers.fill(box, value, self.machine)]
        self._add("fill", found, [box.tile])

    @staticmethod
    def _writable(tile):
        box = as_box(tile)
        if box.tile.space in ("param", "table"):
            refuse(f"the {box.tile.describe()} holds what it was made of; make another one")
        return box

    def store(self, target, tile):
        """Copies a tile of OUT or ACC, or a part of one, to a tensor's part."""
        box, view = as_box(tile), as_view(target)
        if box.tile.space not in ("out", "acc"):
            refuse(f"only tiles of OUT and ACC are stored, not the {box.tile.describe()}")
        if view.tensor.base == CONSTANTS:
            refuse(f"'{view.tensor.name}' is a constant")
        self._add("store", [Instruction(*one) for one in transfers.store(box, view, self.machine)], [])

    def _reference(self, value, spaces, role):
        if isinstance(value, Tile):
            refuse(f"the {role} is a whole tile; say which entries by axes: tile[i, j]")
        if not isinstance(value, Reference) or value.tile.space not in spaces:
            refuse(f"the {role} is a reference to {' or '.join(spaces).upper()} such as tile[i, j]")
        return value

    def _whole(self, dot, *values):
        """References to whole tiles of two axes in the place of tiles: (rows, channels), and of weights (channels,
        inputs)."""
        if not all(isinstance(value, Tile) for value in values):
            return values
        acc, inp, wgt = values
        if not len(acc.dims) == len(inp.dims) == len(wgt.dims) == 2 or (
            (acc.dims[0], acc.dims[1], inp.dims[1]) != (inp.dims[0], wgt.dims[0], wgt.dims[1])
        ):
            refuse(f"{dot}: tiles of {acc.dims}, {inp.dims} and {wgt.dims} entries are no product of matrices")
        i, j, n = self.axes(acc.dims[0], acc.dims[1], inp.dims[1])
        return acc[i, j], inp[i, n], wgt[j, n], [n]

    def dot(self, sums, activations, weights, over=(), add=False, order=None):
        """sums[...] = sum over the axes `over` of (activations - zero) times (weights - zero), for each pair of
        entries: BATCH rows by BLOCK_OUT outputs, summed over BLOCK_IN. add: onto what is there. Three tiles of two axes
        each are a product of matrices. order: of the outer axes, which otherwise is that in which they are named."""
        if isinstance(sums, Tile):
            sums, activations, weights, over = self._whole("dot", sums, activations, weights)
        acc = self._reference(sums, ("acc",), "first operand")
        inp = self._reference(activations, ("inp",), "second operand")
        wgt = self._reference(weights, ("wgt",), "third operand")
        self._products(acc, inp, wgt, over, add, order, {}, "dot")

    def depthwise(self, sums, activations, weights, taps, add=False, lane=0, order=None):
        """sums[...] = sum over the one or two axes `taps` of activations times weights, lane by lane. A WGT entry holds
        all taps of its lanes (depthwise_weights() makes such entries), so weights have no stride in the taps. lane:
        where BLOCK_IN and BLOCK_OUT differ, which part of the larger one. With rows and columns innermost in `order`
        each input is read once (isa/timing.md, "Raster form")."""
        acc = self._reference(sums, ("acc",), "first operand")
        inp = self._reference(activations, ("inp",), "second operand")
        wgt = self._reference(weights, ("wgt",), "third operand")
        more = {"mode": "depthwise"} | ({"lane": lane} if lane else {})
        self._products(acc, inp, wgt, taps, add, order, more, "depthwise")

    def depthwise_weights(self, values):
        """Weights of depthwise(), (taps, channels) or (rows of taps, columns of taps, channels), as a tile of WGT of
        one entry for each BLOCK_OUT channels: weights[j, 0]. values: an array of int8, whose entries become part of the
        program, or (part of) a tensor in DRAM, which is copied byte by byte."""
        constant = isinstance(values, np.ndarray)
        view = None if constant else as_view(values)
        shape, dtype = (values.shape, values.dtype) if constant else (view.shape, view.dtype)
        if dtype != np.int8 or len(shape) not in (2, 3) or min(shape) < 1:
            refuse(f"depthwise weights are int8 of (taps, channels) or (rows, columns, channels), not {dtype} {shape}")
        taps, channels = math.prod(shape[:-1]), shape[-1]
        if taps > self.machine.depthwise_taps:
            refuse(
                f"{taps} taps; an entry of {self.machine.name} holds {self.machine.depthwise_taps}. Add up several "
                "products (add=True)"
            )
        tile = self.wgt(channels, taps)
        if constant:
            content = np.zeros((tile.entries * self.machine.block_out, self.machine.block_in), np.int8)
            for tap, one in enumerate(values.reshape(taps, channels)):
                lanes = np.arange(channels)
                content[lanes, self._tap_byte(taps, tap, lanes % self.machine.block_out)] = one
            tensor = self._constant(content.tobytes(), "weights", TYPES["int8"], (content.size,), content.size)
            self._add("load weights", self._copy(tile, tensor.offset, content.size), [tile])
            return tile
        if any(pads != (0, 0) for pads in view.pads):
            refuse(f"the part of '{view.tensor.name}' hangs over an edge; weights lie inside of it")
        found = [Instruction("load", fields) for fields in transfers.fill(tile.all(), 0, self.machine)]
        for place in np.ndindex(*shape[:-1]):
            tap = int(np.ravel_multi_index(place, shape[:-1]))
            first = view.offset + sum(a * b for a, b in zip(place, view.strides[:-1], strict=True))
            found += self._tap_loads(tile, view, first, taps, tap, channels)
        self._add("load weights", found, [tile])
        return tile

    def _tap_byte(self, taps, tap, lane):
        """Where a tap of a lane stands in the lane's row of an entry."""
        return (taps - 1 - tap + lane % 2 * (self.machine.block_in // 2)) % self.machine.block_in

    def _tap_loads(self, tile, view, first, taps, tap, channels):
        """A tap of all channels: even and odd lanes, of the full entries and of the one that is not."""
        lanes, row, entry = self.machine.block_out, self.machine.block_in, self.machine.entry_bytes("wgt")
        for parity in (0, 1):
            for inside, begin, entries in transfers.whole_and_rest(channels, lanes):
                count = (inside + 1 - parity) // 2
                if count > 0:
                    yield Instruction(
                        "load",
                        {
                            "space": "wgt",
                            "base": view.tensor.base,
                            "dram_offset": view.tensor.offset + first + (begin * lanes + parity) * view.strides[-1],
                            "length": 1,
                            "sp_addr": (tile.first + begin) * entry + parity * row + self._tap_byte(taps, tap, parity),
                            "extent": [1, 1, entries, count],
                            "dram_stride": [0, 0, lanes * view.strides[-1], 2 * view.strides[-1]],
                            "sp_stride": [0, 0, entry, 2 * row],
                        },
                    )

    def _products(self, acc, inp, wgt, over, add, order, more, what):
        for axis in over:
            if axis in acc.strides:
                refuse(f"{axis!r} is summed over and is an axis of the sums")
        found = []
        references = {"acc": acc, "inp": inp, "wgt": wgt}
        for fields, reduce in nests.nest_of(references, list(over), order, whole=more.get("mode") == "depthwise"):
            fields |= {"reduce": reduce, "accumulate": int(add)} | more
            for side, tile in (("inp", inp.tile), ("wgt", wgt.tile)):
                fields |= {f"{side}_zero": tile.zero, f"{side}_unsigned": int(tile.unsigned)}
            found.append(Instruction("gemm", {name: value for name, value in fields.items() if value != 0}))
        self._add(what, found, [acc.tile])

    def vector(
        self,
        target,
        source,
        *,
        reduce=None,
        over=(),
        params=None,
        zero=0,
        low=None,
        high=None,
        table=None,
        second=None,
        what="vector",
    ):
        """All that the vector unit does with a vector of BATCH x BLOCK_OUT lanes, in its order: a reduction ("sum",
        "max") over axes; bias and scale of `params`, a reference to what param() made, with rounding half to even; the
        clamp to `low` and `high`, in front of the zero point; a table; and a second operation (of second()). Without
        params integers are clamped."""
        dst = self._reference(target, ("acc", "out", "inp"), "target")
        src = self._reference(source, ("acc", "out", "inp"), "source")
        references = {"dst": dst, "src": src}
        fields = {"src": src.tile.space, "dst": dst.tile.space}
        if src.tile.space != "acc":
            fields["src_unsigned"] = int(src.tile.unsigned)
        raw = dst.tile.space == "acc"
        expect_integers(zero=zero, low=0 if low is None else low, high=0 if high is None else high)
        if params is not None:
            references["param"] = self._reference(params, ("param",), "params")
            fields["convert"] = 1
        if not (raw and params is None):
            bounds = (0, 255) if dst.tile.unsigned else INT8
            fields["low"] = bounds[0] - zero if low is None else low
            fields["high"] = bounds[1] - zero if high is None else high
            fields["out_zero"] = zero
        if table is not None:
            expect_table(table)
            fields |= {"table_enable": 1, "table": table.first, "table_unsigned": int(table.unsigned)}
        if second is not None:
            references["second"] = second.reference
            fields |= second.fields()
        expect_reduction(reduce, over)
        if reduce is not None:
            fields["reduce_op"] = reduce
        found = []
        for nest, inner in nests.nest_of(references, list(over)):
            addresses = nest | fields | {"reduce": inner}
            if inner == 0:
                addresses.pop("reduce_op", None)
            if params is not None:
                steps = addresses.pop("param_stride")
                loops = [loop for loop, step in enumerate(steps) if step]
                if len(loops) > 1 or any(steps[loop] != 1 for loop in loops):
                    refuse("parameters follow one axis, entry by entry; use several statements")
                if loops:
                    addresses["param_loop"] = loops[0]
            found.append(Instruction("alu", {k: v for k, v in addresses.items() if v != 0 or k == "param_loop"}))
        self._add(what, found, [dst.tile])

    def convert(self, target, sums, params, *, zero=0, low=None, high=None, table=None, second=None):
        """target = clamp(round((sums + bias) * scale), low, high) + zero. Whole tiles of equal dimensions, and
        params for all channels, may be given without indices."""
        if isinstance(target, Tile) and isinstance(sums, Tile) and target.dims == sums.dims:
            axes = target.axes()
            params = params[axes[-1]] if params.dims[0] > 1 else params[0]
            target, sums = target[axes], sums[axes]
        self.vector(
            target, sums, params=params, zero=zero, low=low, high=high, table=table, second=second, what="convert"
        )

    def pool(self, target, source, over, reduce="max", params=None, zero=0):
        """The largest element, or the sum, over axes. params scale a sum to an average."""
        self.vector(target, source, reduce=reduce, over=over, params=params, zero=zero, what=f"pool {reduce}")

    def lookup(self, target, source, table):
        """target = table[source]."""
        bounds = (0, 255) if self._reference(source, ("out", "inp"), "source").tile.unsigned else INT8
        self.vector(target, source, table=table, low=bounds[0], high=bounds[1], what="lookup")

    def second(self, operation, reference, *, x=INT8, y=INT8, swap=False, table=None, **numbers):
        """A second operation of vector(): "add" (x * rx + y * ry + f), "mul" ((x - zx) * (y - zy) * rx + f), "max" or
        "min"; x is the value so far and y the entry of OUT that `reference` names (swap: the other way round). low and
        high clamp the rounded result, zero is added behind. x and y: the ranges of the integers."""
        known = {"rx", "ry", "f", "zx", "zy", "low", "high", "zero", "fused"}
        if operation not in ("add", "mul", "max", "min") or set(numbers) - known:
            refuse(f"a second operation is add, mul, max or min with {', '.join(sorted(known))}")
        whole = {"low", "high", "zero", "zx", "zy"}
        expect_integers(**{name: value for name, value in numbers.items() if name in whole})
        if table is not None:
            expect_table(table)
        reference = self._reference(reference, ("out",), "second operand")
        numbers = {"low": -128, "high": 127} | {name: float(value) for name, value in numbers.items()}
        content = _tessera.second_constants(operation, numbers, x, y)
        if content is None:
            refuse("the scales of the second operation lie too far apart for 48 bits, or a number leaves its field")
        entry = self.machine.entry_bytes("param")
        tile = self._table_of("param", (1,), content + bytes(entry - len(content)))
        return Second({"min": "max"}.get(operation, operation), reference, tile, swap, table)

    # --- rows

    def _rows(self, name, references, over, fields, what, target):
        if not self.machine.row_lanes:
            refuse(f"{self.machine.name} has no row lanes; configurations with row_lanes > 0 do, for example npu256t")
        found = []
        for nest, inner in nests.nest_of(references, list(over)):
            steps = nest.pop("param_stride", None)
            one = nest | fields | {"row": inner}
            if steps is not None:
                loops = [loop for loop, step in enumerate(steps) if step]
                if len(loops) > 1 or any(steps[loop] != 1 for loop in loops):
                    refuse("factors and addends follow one axis, entry by entry")
                if loops and fields["operation"] == "sum_softmax":
                    refuse("params of sum_softmax are one entry, the same for all of a row")
                if loops:
                    one["param_loop"] = loops[0]
            found.append(Instruction(name, {k: v for k, v in one.items() if v != 0 or k == "param_loop"}))
        self._add(what, found, [target])

    def _row_fields(self, source, length):
        lanes = self.machine.block_out
        return {"src": source.tile.space, "src_unsigned": int(source.tile.unsigned)}, (length - 1) % lanes + 1

    def row_max(self, scalars, source, over, length):
        """The largest element of each row, into lane 0 of an ACC entry. over: the axes that walk a row; length: its
        elements, of which the last entry may have fewer than BLOCK_OUT."""
        src = self._reference(source, ("out", "inp"), "source")
        acc = self._reference(scalars, ("acc",), "scalars")
        fields, tail = self._row_fields(src, length)
        self._rows(
            "row_reduce",
            {"src": src, "scalar": acc},
            over,
            fields | {"operation": "max", "tail": tail},
            "row max",
            acc.tile,
        )

    def row_sum_exp(self, scalars, source, over, length, numbers):
        """The sum of numbers[max - x] over each row, beside the maximum that row_max() left."""
        src = self._reference(source, ("out", "inp"), "source")
        acc = self._reference(scalars, ("acc",), "scalars")
        fields, tail = self._row_fields(src, length)
        fields |= {"operation": "sum_exp", "tail": tail, "table": numbers.first}
        self._rows("row_reduce", {"src": src, "scalar": acc}, over, fields, "row sum", acc.tile)

    def softmax(self, target, source, scalars, over, numbers, zero=0, low=0, high=255):
        """target = clamp(round(numbers[max - x] / sum), low, high) + zero, with the scalars that row_sum_exp() left.
        numbers: those of the sum times the inverse of the result's scale."""
        self._map(
            target, source, scalars, over, {"operation": "softmax", "table": numbers.first}, zero, low, high, "softmax"
        )

    def sum_softmax(
        self, target, source, scalars, over, length, sum_numbers, numbers, zero=0, low=0, high=255, params=None
    ):
        """row_sum_exp() and softmax() in one, with the maxima that row_max() left: sums of rows are found while the
        results of the rows before are made. The target is in another memory than the source. Scores in ACC are rounded
        to int8 as they are read, by params: one entry of what param() made."""
        dst = self._reference(target, ("out", "inp"), "target")
        src = self._reference(source, ("acc", "out", "inp"), "source")
        if dst.tile.space == src.tile.space:
            refuse(f"sum_softmax reads {src.tile.space} and writes it: one of both tiles must be in the other memory")
        if (src.tile.space == "acc") != (params is not None):
            refuse("sum_softmax takes params if its source is in ACC, and only then")
        if params is not None:
            params = self._reference(params, ("param",), "params")
        fields, tail = self._row_fields(src, length)
        fields |= {"operation": "sum_softmax", "table": numbers.first, "sum_table": sum_numbers.first, "tail": tail}
        self._map(target, source, scalars, over, fields, zero, low, high, "softmax with its sums", params)

    def factors(self, addend, factor):
        """Addend (int32) and factor (18 bits) of each channel, which normalise() takes: the result is (X * factor +
        addend * 2^8) / 2^28, rounded half to even."""
        addend, factor = self._by_channel(addend, factor)
        if np.abs(factor).max() >= 2**17:
            refuse("a factor has 18 bits")
        return self._param(addend.astype(np.int32), factor.astype(np.int32))

    def row_moments(self, scalars, source, over, length, *, zero=0, centre=True, epsilon=0, shift=0, offset=0):
        """Mean and inverse standard deviation of each row for normalise(), about the mean or about 0 (centre=False).
        epsilon is added to length^2 times the variance times 2^shift. An element that is z deviations from the mean
        is the number z * 2^(22 - offset) of 25 bits."""
        src = self._reference(source, ("out", "inp"), "source")
        acc = self._reference(scalars, ("acc",), "scalars")
        fields, tail = self._row_fields(src, length)
        fields |= {"operation": "moments", "tail": tail, "length": length, "zero": zero, "centre": int(centre)}
        fields |= {"epsilon": epsilon, "shift": shift, "offset": offset}
        self._rows("row_reduce", {"src": src, "scalar": acc}, over, fields, "row moments", acc.tile)

    def normalise(self, target, source, scalars, over, params, *, source_zero=0, zero=0, low=-128, high=127):
        """target = clamp(round(the element normalised, times a factor, plus an addend), low, high) + zero. params: a
        reference to what factors() made, along the channels."""
        fields = {"operation": "normalise", "zero": source_zero}
        params = self._reference(params, ("param",), "params")
        self._map(target, source, scalars, over, fields, zero, low, high, "normalise", params)

    def _map(self, target, source, scalars, over, fields, zero, low, high, what, params=None):
        expect_integers(zero=zero, low=low, high=high)
        dst = self._reference(target, ("out", "inp"), "target")
        spaces = ("acc", "out", "inp") if fields["operation"] == "sum_softmax" else ("out", "inp")
        src = self._reference(source, spaces, "source")
        acc = self._reference(scalars, ("acc",), "scalars")
        references = {"src": src, "dst": dst, "scalar": acc} | ({} if params is None else {"param": params})
        fields = fields | {
            "src": src.tile.space,
            "dst": dst.tile.space,
            "src_unsigned": int(src.tile.unsigned),
            "out_zero": zero,
            "low": low,
            "high": high,
        }
        self._rows("row_map", references, over, fields, what, dst.tile)


class Output(Tensor):
    """A tensor of DRAM that the kernel returns."""


@dataclasses.dataclass
class Second:
    operation: str
    reference: Reference
    constants: Tile
    swap: bool
    table: Tile | None

    def fields(self):
        """Those of the instruction."""
        found = {
            "second_op": self.operation,
            "second_swap": int(self.swap),
            "second_unsigned": int(self.reference.tile.unsigned),
            "constant_addr": self.constants.first,
        }
        if self.table is not None:
            found |= {"second_table_enable": 1, "second_table": self.table.first}
        return found

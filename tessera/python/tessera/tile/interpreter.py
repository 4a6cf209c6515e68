# SPDX-License-Identifier: Apache-2.0
"""The meaning of instructions in NumPy (isa/semantics.md), one statement after the other, with a mark on each byte that
was written. Enters: statements, and the memory behind the base registers. Leaves: the memory; KernelError names the
statement that reads what nobody wrote. It is written from the manual and shares no code with the simulators, so that
they can be compared with it."""

import collections
import itertools

import numpy as np

from .errors import KernelError

# Of fields that an instruction leaves out.
TRANSFER = {"extent": [1] * 4, "dram_stride": [0] * 4, "sp_stride": [0] * 4, "sp_addr": 0, "dram_offset": 0}
ENTRY_SPACES = ("inp", "wgt", "acc", "out", "param", "table")


class Memory:
    """Bytes, and which of them were written."""

    def __init__(self, size):
        self.bytes = np.zeros(size, np.uint8)
        self.written = np.zeros(size, bool)


class Interpreter:
    """machine: a Machine; dram: {base register: Memory}."""

    def __init__(self, machine, dram):
        self.machine = machine
        self.dram = dram
        self.pads = {space: Memory(machine.depth(space) * machine.entry_bytes(space)) for space in ENTRY_SPACES}
        # Of each entry the number of the statement whose content nobody has read, or -1; and those that were lost.
        self._pending = {space: np.full(machine.depth(space), -1, np.int64) for space in ENTRY_SPACES}
        self._lost = collections.Counter()
        self._statement, self._number = None, -1

    def run(self, statements):
        for statement in statements:
            self.step(statement)

    def step(self, statement):
        self._statement, self._number = statement, self._number + 1
        for tile in statement.fresh:
            entry = self.machine.entry_bytes(tile.space)
            self.pads[tile.space].written[tile.first * entry : (tile.first + tile.entries) * entry] = False
        for instruction in statement.instructions:
            getattr(self, f"_{instruction.name}")(instruction.fields)

    def tile(self, tile):
        """What stands in a tile, in its shape."""
        machine, entry = self.machine, self.machine.entry_bytes(tile.space)
        content = self.pads[tile.space].bytes[tile.first * entry : (tile.first + tile.entries) * entry]
        if tile.space in ("param", "table"):
            return content.copy()
        rows = machine.block_out if tile.space == "wgt" else machine.batch
        grid = content.view(tile.dtype).reshape(*tile.dims[:-2], tile.dims[-2], tile.dims[-1], rows, tile.lanes)
        whole = np.moveaxis(grid, -2, -3).reshape(*tile.dims[:-2], tile.dims[-2] * rows, tile.dims[-1] * tile.lanes)
        return whole[..., : tile.shape[-2], : tile.shape[-1]].copy()

    # --- accesses

    def _fail(self, why):
        raise KernelError(f"{self._statement.where}: {self._statement.what}: {why}")

    def unread(self):
        """{number of a statement: entries that it wrote and nobody has read}; fills do not count."""
        found = collections.Counter(self._lost)
        for pending in self._pending.values():
            found.update(collections.Counter(pending[pending >= 0].tolist()))
        return dict(found)

    def _read(self, space, entries):
        self._pending[space][entries] = -1

    def _wrote(self, space, entries):
        pending, entries = self._pending[space], np.unique(entries)
        before = pending[entries]
        self._lost.update(before[(before >= 0) & (before != self._number)].tolist())
        pending[entries] = -1 if self._statement.what == "fill" else self._number

    def _need(self, memory, places, what):
        missing = ~memory.written[places]
        if missing.any():
            first = int(np.asarray(places)[missing].min())
            self._fail(f"reads {int(missing.sum()):,} bytes of {what} that nothing has written, the first at {first}")

    def _entries(self, space, entries, length=None, what=None):
        """Bytes of entries, (..., length)."""
        size = self.machine.entry_bytes(space)
        length = size if length is None else length
        places = np.asarray(entries)[..., None] * size + np.arange(length)
        self._need(self.pads[space], places, what or space.upper())
        self._read(space, entries)
        return self.pads[space].bytes[places]

    def _put(self, space, entries, content):
        size = self.machine.entry_bytes(space)
        places = np.asarray(entries)[..., None] * size + np.arange(size)
        self.pads[space].bytes[places] = content
        self.pads[space].written[places] = True
        self._wrote(space, entries)

    @staticmethod
    def _grid(first, extents, strides):
        """first + the sum of index times stride, for all indices: (extents...)."""
        grid = np.full(extents, first, np.int64)
        for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            shape = [1] * len(extents)
            shape[axis] = extent
            grid += (np.arange(extent, dtype=np.int64) * stride).reshape(shape)
        return grid

    # --- transfers

    def _load(self, f):
        f = TRANSFER | f
        extents, run = f["extent"], f["length"]
        pad = self.pads[f["space"]]
        to = self._grid(f["sp_addr"], extents, f["sp_stride"])
        inside = np.ones(extents, bool)
        offsets = [0, 0, 0, 0]
        if f.get("fill"):
            inside[...] = False
        for loop in (0, 1):
            before, after = f.get("pad_before", [0, 0])[loop], f.get("pad_after", [0, 0])[loop]
            index = np.arange(extents[loop]).reshape([-1 if axis == loop else 1 for axis in range(4)])
            inside &= (index >= before) & (index < extents[loop] - after)
            offsets[loop] = before
        bytes_to = to[..., None] + np.arange(run)
        pad.written[bytes_to] = True
        self._wrote(f["space"], bytes_to // self.machine.entry_bytes(f["space"]))
        pad.bytes[bytes_to[~inside]] = f.get("pad_value", 0)
        if not inside.any():
            return
        first = f["dram_offset"] - sum(a * b for a, b in zip(offsets, f["dram_stride"], strict=True))
        source = self._grid(first, extents, f["dram_stride"])[inside][..., None] + np.arange(run)
        memory = self.dram[f["base"]]
        self._need(memory, source, "DRAM")
        pad.bytes[bytes_to[inside]] = memory.bytes[source]

    def _store(self, f):
        f = TRANSFER | f
        source = self._grid(f["sp_addr"], f["extent"], f["sp_stride"])[..., None] + np.arange(f["length"])
        target = self._grid(f["dram_offset"], f["extent"], f["dram_stride"])[..., None] + np.arange(f["length"])
        self._need(self.pads[f["space"]], source, f["space"].upper())
        self._read(f["space"], source // self.machine.entry_bytes(f["space"]))
        memory = self.dram[f["base"]]
        memory.bytes[target] = self.pads[f["space"]].bytes[source]
        memory.written[target] = True

    # --- products

    def _gemm(self, f):
        machine = self.machine
        reduce = f.get("reduce", 0)
        outer, inner = f["extent"][: 6 - reduce], f["extent"][6 - reduce :]
        acc = self._grid(f.get("acc_addr", 0), outer, f["acc_stride"][: 6 - reduce]).ravel()
        places = {}
        for side in ("inp", "wgt"):
            strides = f[f"{side}_stride"]
            one = self._grid(f.get(f"{side}_addr", 0), outer, strides[: 6 - reduce]).ravel()
            places[side] = one[:, None] + self._grid(0, inner, strides[6 - reduce :]).ravel()[None, :]
        depthwise = f.get("mode") == "depthwise"
        sums = np.zeros((acc.size, machine.batch, machine.block_out), np.int64)
        for step in range(places["inp"].shape[1]):
            x = self._side(f, "inp", places["inp"][:, step]).reshape(-1, machine.batch, machine.block_in)
            if depthwise:
                self._depthwise(f, sums, x, places["wgt"][:, step], step)
            else:
                w = self._side(f, "wgt", places["wgt"][:, step]).reshape(-1, machine.block_out, machine.block_in)
                sums += np.matmul(x.astype(np.float64), w.astype(np.float64).transpose(0, 2, 1)).astype(np.int64)
        self._finish_sums(f, acc, sums, depthwise)

    def _finish_sums(self, f, acc, sums, depthwise):
        machine = self.machine
        shape = sums.shape
        lanes = np.arange(machine.block_out)
        if depthwise:
            width = min(machine.block_in, machine.block_out)
            low = f.get("lane", 0) * width if machine.block_out > machine.block_in else 0
            lanes = np.arange(low, low + width)
        size = machine.entry_bytes("acc")
        places = acc[:, None] * size + np.arange(size)
        order = np.arange(size).reshape(machine.batch, machine.block_out, 4)[:, lanes].ravel()
        places = places[:, order]
        if len(np.unique(acc)) != acc.size and f.get("accumulate"):
            self._fail("adds to an entry of ACC twice in one statement; sum over that axis instead")
        if f.get("accumulate"):
            self._need(self.pads["acc"], places, "ACC")
            self._read("acc", acc)
            before = (
                np.ascontiguousarray(self.pads["acc"].bytes[places])
                .view(np.int32)
                .reshape(shape[0], machine.batch, lanes.size)
            )
            sums[:, :, lanes] += before
        wrapped = sums[:, :, lanes].astype(np.int64) & 0xFFFFFFFF
        content = np.ascontiguousarray(wrapped, np.uint32).reshape(shape[0], -1).view(np.uint8)
        self.pads["acc"].bytes[places] = content
        self.pads["acc"].written[places] = True
        self._wrote("acc", acc)

    def _side(self, f, side, entries):
        content = self._entries(side, entries)
        kind = np.uint8 if f.get(f"{side}_unsigned") else np.int8
        return content.view(kind).astype(np.int64) - f.get(f"{side}_zero", 0)

    def _depthwise(self, f, sums, x, entries, tap):
        machine = self.machine
        width = min(machine.block_in, machine.block_out)
        lane = f.get("lane", 0) * width
        low_out = lane if machine.block_out > machine.block_in else 0
        low_in = lane if machine.block_in > machine.block_out else 0
        taps = f["extent"][5] * (f["extent"][4] if f["reduce"] >= 2 else 1)
        w = self._entries("wgt", entries).view(np.int8).reshape(-1, machine.block_out, machine.block_in)
        for c in range(width):
            o = low_out + c
            byte = (taps - 1 - tap % taps + (machine.block_in // 2 if o % 2 else 0)) % machine.block_in
            sums[:, :, o] += x[:, :, low_in + c] * w[:, o, byte].astype(np.int64)[:, None]

    # --- vectors

    def _alu(self, f):
        reduce = f.get("reduce", 0)
        outer, inner = f["extent"][: 6 - reduce], f["extent"][6 - reduce :]
        cut = lambda name: f.get(f"{name}_stride", [0] * 6)[: 6 - reduce]
        dst = self._grid(f.get("dst_addr", 0), outer, cut("dst")).ravel()
        src = self._grid(f.get("src_addr", 0), outer, cut("src")).ravel()
        src = src[:, None] + self._grid(0, inner, f["src_stride"][6 - reduce :]).ravel()[None, :]
        second = self._grid(f.get("second_addr", 0), outer, cut("second")).ravel()
        loop = f.get("param_loop", 7)
        steps = [int(axis == loop) for axis in range(6 - reduce)]
        param = self._grid(f.get("param_addr", 0), outer, steps).ravel()
        if self._is_free(f, dst, src, second):
            self._vectors(f, dst, src, second, param)
            return
        for one in range(dst.size):  # what an iteration writes, later ones read
            self._vectors(f, dst[one : one + 1], src[one : one + 1], second[one : one + 1], param[one : one + 1])

    @staticmethod
    def _is_free(f, dst, src, second):
        if len(np.unique(dst)) != dst.size:
            return False
        reads = [src] if f["src"] == f["dst"] else []
        if f.get("second_op") and f["dst"] == "out":
            reads.append(second[:, None])
        return all(
            not np.isin(read, dst).any() or (read.shape[1] == 1 and np.array_equal(read[:, 0], dst)) for read in reads
        )

    def _vectors(self, f, dst, src, second, param):
        machine = self.machine
        lanes = (machine.batch, machine.block_out)
        content = self._entries(f["src"], src)
        kind = np.int32 if f["src"] == "acc" else np.uint8 if f.get("src_unsigned") else np.int8
        x = content.view(kind).reshape(*src.shape, *lanes).astype(np.int64)
        v = x.max(1) if f.get("reduce_op") == "max" else (x.sum(1) + 2**31) % 2**32 - 2**31
        if f.get("convert"):
            v = self._converted(f, v, param)
        elif f["dst"] != "acc":
            v = np.clip(v, f.get("low", 0), f.get("high", 0)) + f.get("out_zero", 0)
        if f.get("table_enable"):
            v = self._looked_up(v, f.get("table", 0), f.get("table_unsigned"))
        if f.get("second_op"):
            v = self._second(f, v, second)
        if f.get("second_table_enable"):
            v = self._looked_up(v, f.get("second_table", 0), False)
        if f["dst"] == "acc":
            self._put("acc", dst, np.ascontiguousarray(v, np.int32).reshape(dst.size, -1).view(np.uint8))
        else:
            self._put(f["dst"], dst, (v & 255).astype(np.uint8).reshape(dst.size, -1))

    def _converted(self, f, v, param):
        words = self._entries("param", param).view(np.int32).reshape(-1, 2, 1, self.machine.block_out)
        bias, scale = words[:, 0], words[:, 1].view(np.float32)
        summed = (v + bias + 2**31) % 2**32 - 2**31
        with np.errstate(all="ignore"):
            g = summed.astype(np.float32) * scale
            low, high = np.float32(f.get("low", 0)), np.float32(f.get("high", 0))
            r = np.where(np.isnan(g), low, np.rint(np.minimum(np.maximum(g, low), high)))
        return r.astype(np.int64) + f.get("out_zero", 0)

    def _looked_up(self, v, table, unsigned):
        content = self._entries("table", np.array([table]))[0]
        return content.view(np.uint8 if unsigned else np.int8)[v & 255].astype(np.int64)

    def _second(self, f, v, second):
        machine = self.machine
        kind = np.uint8 if f.get("second_unsigned") else np.int8
        q = self._entries("out", second).view(kind).reshape(-1, machine.batch, machine.block_out).astype(np.int64)
        x, y = (q, v) if f.get("second_swap") else (v, q)
        number = int.from_bytes(self._entries("param", f.get("constant_addr", 0), 32).tobytes(), "little")
        take = lambda at, width: number >> at & (1 << width) - 1
        signed = lambda at, width: (take(at, width) ^ 1 << width - 1) - (1 << width - 1)
        s, t = {
            "add": lambda: (y, x),
            "mul": lambda: (wrap((x - signed(192, 9)) * (y - signed(201, 9)), 18), np.full_like(x, 512)),
            "max": lambda: (np.zeros_like(x), np.minimum(x, y) if take(179, 1) else np.maximum(x, y)),
        }[f["second_op"]]()
        exact = lambda values: values.astype(object)
        i = to_float(wrap(exact(s) * signed(0, 42) + signed(64, 48), 48))
        whole = np.vectorize(int, otypes=[object])(i)
        g = to_float(wrap(whole + exact(t) * signed(128, 42), 48))
        r = np.rint(np.ldexp(g, -(25 + take(42, 4))))
        r = np.where(r > signed(112, 10), signed(112, 10), np.where(r < signed(46, 10), signed(46, 10), r))
        return r.astype(np.int64) + signed(170, 9)

    # --- rows

    def _row_walk(self, f):
        """Source entries (rows, entries of a row), scalars (rows)."""
        row = f.get("row", 0)
        outer, inner = f["extent"][: 6 - row], f["extent"][6 - row :]
        first = self._grid(f.get("src_addr", 0), outer, f["src_stride"][: 6 - row]).ravel()
        walk = self._grid(0, inner, f["src_stride"][6 - row :]).ravel()
        scalar = self._grid(f.get("scalar_addr", 0), outer, f["scalar_stride"][: 6 - row]).ravel()
        return first[:, None] + walk[None, :], scalar

    def _row_values(self, f, places):
        """(rows, BATCH, elements of whole entries)."""
        machine = self.machine
        if f["src"] == "acc":  # rounded as it is read
            words = self._entries("acc", places.ravel()).view(np.int32).astype(np.int64)
            words = words.reshape(-1, machine.batch, machine.block_out)
            param = np.full(len(words), f.get("param_addr", 0))
            content = self._converted({"low": -128, "high": 127}, words, param)
        else:
            kind = np.uint8 if f.get("src_unsigned") else np.int8
            content = self._entries(f["src"], places).view(kind).astype(np.int64)
        grid = content.reshape(*places.shape, machine.batch, machine.block_out)
        return grid.transpose(0, 2, 1, 3).reshape(places.shape[0], machine.batch, -1)

    def _numbers(self, f, field="table"):
        content = self._entries("table", np.arange(4) + f.get(field, 0))
        return (np.ascontiguousarray(content.T).view(np.uint32).ravel() & 0x7FFFFFFF).view(np.float32)

    def _scalars(self, entries):
        machine = self.machine
        return self._entries("acc", entries).view(np.int32).reshape(-1, machine.batch, machine.block_out)

    @staticmethod
    def _sums(table, most, x):
        """Of each row, element by element, as each sum is rounded."""
        total = np.zeros(most.shape, np.float32)
        for k in range(x.shape[-1]):
            total = total + table[(most - x[:, :, k]) & 255]
        return total

    def _row_reduce(self, f):
        machine = self.machine
        places, scalar = self._row_walk(f)
        x = self._row_values(f, places)[:, :, : (places.shape[1] - 1) * machine.block_out + f["tail"]]
        out = np.zeros((scalar.size, machine.batch, machine.block_out), np.int32)
        if f["operation"] == "max":
            out[:, :, 0] = x.max(-1)
        elif f["operation"] == "sum_exp":
            most = self._scalars(scalar)[:, :, 0]
            out[:, :, 0], out[:, :, 1] = most, self._sums(self._numbers(f), most, x).view(np.int32)
        else:
            for place in itertools.product(range(scalar.size), range(machine.batch)):
                out[place][:4] = moments(f, [int(v) for v in x[place]])
        self._put("acc", scalar, out.reshape(scalar.size, -1).view(np.uint8))

    def _row_map(self, f):
        machine = self.machine
        row = f.get("row", 0)
        places, scalar = self._row_walk(f)
        x = self._row_values(f, places).reshape(scalar.size, machine.batch, places.shape[1], machine.block_out)
        dst = self._grid(f.get("dst_addr", 0), f["extent"], f["dst_stride"]).reshape(scalar.size, -1)
        c = self._scalars(scalar)
        if f["operation"] in ("softmax", "sum_softmax"):
            sums = c[:, :, 1].view(np.float32)
            if f["operation"] == "sum_softmax":
                elements = x.reshape(*x.shape[:2], -1)[:, :, : (x.shape[2] - 1) * machine.block_out + f["tail"]]
                sums = self._sums(self._numbers(f, "sum_table"), c[:, :, 0], elements)
            r = divide(self._numbers(f)[(c[:, :, 0, None, None] - x) & 255], sums[:, :, None, None])
        else:
            steps = [int(axis == f.get("param_loop", 7)) for axis in range(6)]
            param = self._grid(f.get("param_addr", 0), f["extent"], steps).reshape(scalar.size, -1)
            words = self._entries("param", param).view(np.int32).reshape(*param.shape, 2, machine.block_out)
            r = normalised(f, c, x, words)
        v = np.clip(r, f.get("low", 0), f.get("high", 0)) + f.get("out_zero", 0)
        content = (v & 255).astype(np.uint8).transpose(0, 2, 1, 3).reshape(*dst.shape, -1)
        if row < 6 and len(np.unique(dst)) != dst.size:
            self._fail("writes an entry twice")
        self._put(f["dst"], dst, content)


def wrap(values, bits):
    """The low bits, as two's complement."""
    return (values + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def to_float(values):
    """Integers of at most 48 bits rounded to fp32, as float64."""
    return np.asarray(values.astype(np.float64), np.float32).astype(np.float64)


def moments(f, x):
    """{S1, R, k + offset, length} of one row."""
    zero, n, shift = f.get("zero", 0), f["length"], f.get("shift", 0)
    s1 = wrap(sum(v - zero for v in x), 21)
    s2 = sum((v - zero) ** 2 for v in x) % 2**28
    s1 = s1 if f.get("centre") else 0
    v = ((((n * s2 - s1 * s1) << shift) + f.get("epsilon", 0)) % 2**48) or 1
    z = (48 - v.bit_length()) & ~1
    w, k = (v << z) >> 22, 24 - z // 2
    low, high = 0, 2**31
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle * middle * w <= 2**60 else (low, middle)
    r = min((low + 1) >> 1, 2**17 - 1)
    return [s1, r, min(max(k + f.get("offset", 0), 0), 31), n]


def normalised(f, c, x, words):
    """The results of row_map normalise, before the clamp."""
    n, s1, q, r = (c[:, :, 3] & 8191), wrap(c[:, :, 0].astype(np.int64), 22), c[:, :, 2] & 31, c[:, :, 1] & 0x1FFFF
    shape = (*n.shape, 1, 1)
    n, s1, q, r = (one.astype(np.int64).astype(object).reshape(shape) for one in (n, s1, q, r))
    j = np.vectorize(lambda a, b, e: int((a * b >> (e + 10)) != 0), otypes=[object])(n, r, q)
    a = np.vectorize(lambda a, b, e, j: (a * b << 14 >> (e + 8 * j)) % 2**24, otypes=[object])(n, r, q, j)
    c0 = np.vectorize(lambda a, b, e: a * b * 2**14 >> e, otypes=[object])(s1, r, q)
    element = (x.astype(object) - f.get("zero", 0)) * np.vectorize(lambda j: 1 << 8 * j, otypes=[object])(j) * a
    big = wrap((element - c0) // 256, 25)
    factor = wrap(words[:, :, 1].astype(np.int64), 18).astype(object)[:, None]
    addend = words[:, :, 0].astype(np.int64).astype(object)[:, None]
    return np.vectorize(lambda v: round_half_even(v, 28), otypes=[np.int64])(big * factor + addend * 256)


def round_half_even(value, bits):
    whole, rest, half = value >> bits, value & (1 << bits) - 1, 1 << bits - 1
    return whole + (rest > half or (rest == half and whole & 1))


def divide(a, b):
    """min(RNE(fl32(a / b)), 511), with the manual's rules for numbers of exponent 0."""
    small = np.finfo(np.float32).tiny
    a, b = np.where(a < small, np.float32(0), a), np.where(b < small, np.float32(0), b)
    with np.errstate(all="ignore"):
        quotient = np.rint((a / b).astype(np.float32))
    return np.where(b == 0, 511, np.where(a == 0, 0, np.minimum(quotient, 511))).astype(np.int64)

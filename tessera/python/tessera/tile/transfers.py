# SPDX-License-Identifier: Apache-2.0
"""LOAD and STORE: a part of a tile and a view of DRAM become nests of runs of bytes. Enters: a Box, a View. Leaves:
instructions. Method: each axis of the tile is a loop with a stride on both sides, loops that continue each other are
one, and what is more than the four loops of an instruction is unrolled."""

import dataclasses
import itertools

from .errors import refuse

LOOPS, MOST_RUN, MOST_EXTENT, MOST_PADS = 4, 65535, 65535, 4095


@dataclasses.dataclass
class Loop:
    extent: int  # of what lies in DRAM
    dram: int  # bytes
    scratchpad: int  # bytes
    before: int = 0  # iterations of padding
    after: int = 0


@dataclasses.dataclass
class Piece:
    """A nest that is moved by one kind of runs."""

    loops: list
    run: int  # bytes
    dram: int  # of the first run, from the tensor's first byte
    scratchpad: int


def unit_of(tile, axis, machine):
    """Elements that one entry has of an axis, and the bytes between them in it."""
    item, last = tile.dtype.itemsize, len(tile.dims) - 1
    if axis == last:
        return tile.lanes, item
    if axis == last - 1 and tile.space == "wgt":
        return machine.block_out, machine.block_in
    if axis == last - 1:
        return machine.batch, tile.lanes * item
    return 1, 0


def whole_and_rest(size, unit):
    """(elements, first entry, entries) of the entries that are full and of the one that is not."""
    full, rest = divmod(size, unit)
    return [(unit, 0, full)] * (full > 0) + [(rest, full, 1)] * (rest > 0)


def pieces_of(box, view, machine):
    """The nests that move a view to or from a box. They have pads where the view has them."""
    tile = box.tile
    if view.dtype != tile.dtype:
        refuse(f"'{view.tensor.name}' is {view.dtype} and the {tile.describe()} {tile.dtype}")
    if len(view.shape) != len(box.sizes):
        refuse(
            f"the part of '{view.tensor.name}' has {len(view.shape)} axes and the {tile.describe()} {len(box.sizes)}; "
            "index, reshape or permute it"
        )
    entry = machine.entry_bytes(tile.space)
    choices = []
    for axis, (size, entries) in enumerate(zip(view.shape, box.sizes, strict=True)):
        unit, _ = unit_of(tile, axis, machine)
        if not (entries - 1) * unit < size <= entries * unit:
            refuse(
                f"axis {axis}: {size} elements of '{view.tensor.name}' do not fill {entries} entries of {unit} of the "
                f"{tile.describe()}"
            )
        if unit > 1 and view.pads[axis] != (0, 0):
            refuse(f"axis {axis} of '{view.tensor.name}': lanes of an entry cannot be padding; fill the tile instead")
        # Behind a tensor's last element of a row lie the bytes that fill its last entry.
        tail = view.strides[axis] == tile.dtype.itemsize and axis == len(view.shape) - 1 and reaches_end(view)
        padded = size if not tail else min(entries * unit, size + view.tensor.padded - view.tensor.row)
        choices.append(whole_and_rest(padded, unit))
    strides = tile.strides()
    for choice in itertools.product(*choices):
        loops, dram, scratchpad, inner = [], view.offset, box.first() * entry, []
        for axis, (elements, first, entries) in enumerate(choice):
            unit, apart = unit_of(tile, axis, machine)
            before, after = view.pads[axis]
            step = view.strides[axis]
            loops.append(Loop(entries - before - after, step * unit, strides[axis] * entry, before, after))
            dram += first * unit * step
            scratchpad += first * strides[axis] * entry
            if unit > 1:
                inner.append(Loop(elements, step, apart))
        if any(loop.extent < 1 for loop in loops):
            yield Piece([], 0, 0, 0)
        else:
            # In the order of DRAM, so that runs that follow each other are requested together; repetitions outermost.
            loops = sorted(loops + inner, key=lambda loop: (loop.dram != 0, -abs(loop.dram)))
            yield merged(loops, tile.dtype.itemsize, dram, scratchpad)


def reaches_end(view):
    """Whether a view's last axis ends where the tensor's rows end."""
    row = view.tensor.padded * view.dtype.itemsize
    start = view.offset % row if row else 0
    return start + view.shape[-1] * view.dtype.itemsize == view.tensor.row * view.dtype.itemsize


def merged(loops, run, dram, scratchpad):
    """Loops of one iteration go, loops that continue each other or the run are joined."""
    loops = [loop for loop in loops if loop.extent > 1 or loop.before or loop.after]
    while loops and joins_run(loops[-1], run):
        run *= loops.pop().extent
    kept = []
    for loop in loops:
        while kept and plain(kept[-1]) and plain(loop) and continues(kept[-1], loop):
            outer = kept.pop()
            loop = Loop(outer.extent * loop.extent, loop.dram, loop.scratchpad)
        kept.append(loop)
    # A later join may make a run whole.
    while kept and joins_run(kept[-1], run):
        run *= kept.pop().extent
    return Piece(kept, run, dram, scratchpad)


def plain(loop):
    return loop.before == loop.after == 0


def joins_run(loop, run):
    return plain(loop) and loop.dram == loop.scratchpad == run and run * loop.extent <= MOST_RUN


def continues(outer, inner):
    return (
        outer.dram == inner.dram * inner.extent
        and outer.scratchpad == inner.scratchpad * inner.extent
        and outer.extent * inner.extent <= MOST_EXTENT
    )


def unrolled(piece, room):
    """Pieces of at most `room` loops: the loops of fewest iterations that are no padding are unrolled."""
    if len(piece.loops) <= room and all(loop.extent <= MOST_EXTENT for loop in piece.loops):
        yield piece
        return
    plains = [loop for loop in piece.loops if plain(loop)]
    large = [loop for loop in plains if loop.extent > MOST_EXTENT]
    loop = large[0] if large else min(plains, key=lambda one: one.extent)
    rest = [one for one in piece.loops if one is not loop]
    step = MOST_EXTENT if large else 1
    for begin in range(0, loop.extent, step):
        count = min(step, loop.extent - begin)
        inner = [dataclasses.replace(loop, extent=count)] if count > 1 else []
        yield from unrolled(
            Piece(rest + inner, piece.run, piece.dram + begin * loop.dram, piece.scratchpad + begin * loop.scratchpad),
            room,
        )


def fields_of(tile, view, piece):
    padded = [loop for loop in piece.loops if not plain(loop)]
    loops = padded + [loop for loop in piece.loops if plain(loop)]
    loops = [Loop(1, 0, 0)] * (LOOPS - len(loops)) * (not padded) + loops
    loops += [Loop(1, 0, 0)] * (LOOPS - len(loops))
    return {
        "space": tile.space,
        "base": view.tensor.base,
        "dram_offset": view.tensor.offset + piece.dram,
        "length": piece.run,
        "sp_addr": piece.scratchpad,
        "extent": [loop.extent + loop.before + loop.after for loop in loops],
        "dram_stride": [loop.dram for loop in loops],
        "sp_stride": [loop.scratchpad for loop in loops],
        "pad_before": [loop.before for loop in loops[:2]],
        "pad_after": [loop.after for loop in loops[:2]],
    }


def fill(box, value, machine):
    """LOAD instructions that write one byte everywhere."""
    tile, entry = box.tile, machine.entry_bytes(box.tile.space)
    loops = [Loop(size, stride * entry, stride * entry) for size, stride in zip(box.sizes, tile.strides(), strict=True)]
    for piece in unrolled(merged(loops, entry, 0, box.first() * entry), LOOPS):
        loops = [Loop(1, 0, 0)] * (LOOPS - len(piece.loops)) + piece.loops
        yield {
            "space": tile.space,
            "fill": 1,
            "length": piece.run,
            "sp_addr": piece.scratchpad,
            "extent": [loop.extent for loop in loops],
            "sp_stride": [loop.scratchpad for loop in loops],
            "pad_value": value & 255,
        }


def partial(box, view, machine):
    """Parts of the box with entries of which the view does not have all bytes: the last ones of an axis."""
    for axis, (size, entries) in enumerate(zip(view.shape, box.sizes, strict=True)):
        unit, _ = unit_of(box.tile, axis, machine)
        tail = view.strides[axis] == box.tile.dtype.itemsize and axis == len(view.shape) - 1 and reaches_end(view)
        have = size if not tail else size + view.tensor.padded - view.tensor.row
        if have < entries * unit:
            starts, sizes = list(box.starts), list(box.sizes)
            starts[axis], sizes[axis] = starts[axis] + entries - 1, 1
            yield dataclasses.replace(box, starts=tuple(starts), sizes=tuple(sizes))


def load(box, view, value, machine):
    """LOAD instructions of a box, whose padding and missing lanes hold `value`."""
    found = list(pieces_of(box, view, machine))
    padded = sum(pads != (0, 0) for pads in view.pads)
    outside = any(piece.run == 0 for piece in found)
    whole = outside or padded > 2 or any(max(pads) > MOST_PADS for pads in view.pads)
    for part in [box] if whole else partial(box, view, machine):
        yield from (("load", fields) for fields in fill(part, value, machine))
    if outside:
        return
    for piece in found:
        if padded > 2 or any(loop.before > MOST_PADS or loop.after > MOST_PADS for loop in piece.loops):
            piece = without_pads(piece)
        for one in unrolled(piece, LOOPS):
            fields = fields_of(box.tile, view, one)
            if any(fields["pad_before"]) or any(fields["pad_after"]):
                fields["pad_value"] = value & 255
            yield "load", fields


def without_pads(piece):
    skipped = sum(loop.before * loop.scratchpad for loop in piece.loops)
    loops = [Loop(loop.extent, loop.dram, loop.scratchpad) for loop in piece.loops]
    return merged(loops, piece.run, piece.dram, piece.scratchpad + skipped)


def store(box, view, machine):
    """STORE instructions of a box; lanes beyond the view stay where they are, but for a tensor's own padding."""
    if any(pads != (0, 0) for pads in view.pads):
        refuse(f"the part of '{view.tensor.name}' leaves the tensor; a store lies inside of it")
    if view.overlaps():
        refuse(f"elements of the part of '{view.tensor.name}' lie upon each other; a store needs a place for each")
    for piece in pieces_of(box, view, machine):
        for one in unrolled(piece, LOOPS):
            fields = fields_of(box.tile, view, one)
            del fields["pad_before"], fields["pad_after"]
            yield "store", fields

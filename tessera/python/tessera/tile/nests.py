# SPDX-License-Identifier: Apache-2.0
"""Nests of GEMM and ALU. Enters: references to entries, and the axes over which they are reduced. Leaves: extents and
strides of at most six loops, the reduction innermost. Neighbouring axes that continue each other for every reference
are one loop."""

import itertools

from .errors import refuse

LOOPS, MOST_EXTENT = 6, 4095


def nest_of(references, over, order=None, whole=False):
    """references: {prefix: Reference}. Gives ({"extent": ..., PREFIX_addr, PREFIX_stride}, reduction loops): one nest,
    or several where an outer loop is too long or there are too many. whole: reduction loops stay as they are."""
    outer = list(order) if order else []
    for one in references.values():
        outer += [axis for axis in one.strides if axis not in outer and axis not in over]
    for axis in over:
        if axis in (order or []):
            refuse(f"{axis!r} is an axis of the order and of the reduction")
    strides = lambda axis: tuple(one.strides.get(axis, 0) for one in references.values())
    outer = joined([(axis.extent, strides(axis)) for axis in outer])
    inner = [(axis.extent, strides(axis)) for axis in over]
    inner = inner if whole else joined(inner)
    if len(inner) > LOOPS or any(extent > MOST_EXTENT for extent, _ in inner):
        refuse(f"a reduction of {len(inner)} loops; the machine has {LOOPS} of at most {MOST_EXTENT} iterations")
    firsts = tuple(one.first for one in references.values())
    for start, loops in split(outer, firsts, LOOPS - len(inner)):
        loops = [(1, (0,) * len(references))] * (LOOPS - len(inner) - len(loops)) + loops + inner
        fields = {"extent": [extent for extent, _ in loops]}
        for place, name in enumerate(references):
            fields[f"{name}_addr"] = start[place]
            fields[f"{name}_stride"] = [step[place] if extent > 1 else 0 for extent, step in loops]
        yield fields, len(inner)


def joined(loops):
    """Loops from the outermost on, without those of one iteration."""
    kept = []
    for extent, step in loops:
        if extent == 1:
            continue
        if kept and kept[-1][1] == tuple(extent * one for one in step) and kept[-1][0] * extent <= MOST_EXTENT:
            extent *= kept.pop()[0]
        kept.append((extent, step))
    return kept


def split(loops, firsts, room):
    """(first entries, loops) of nests that the machine has: the outermost loops are unrolled, long ones are cut."""
    cut = max(0, len(loops) - room)
    unrolled = loops[:cut]
    parts = []
    for extent, step in loops[cut:]:
        parts.append([(begin, min(MOST_EXTENT, extent - begin), step) for begin in range(0, extent, MOST_EXTENT)])
    for place in itertools.product(*(range(extent) for extent, _ in unrolled)):
        for chosen in itertools.product(*parts):
            start = list(firsts)
            for (_, step), at in zip(unrolled, place, strict=True):
                start = [a + at * b for a, b in zip(start, step, strict=True)]
            for begin, _, step in chosen:
                start = [a + begin * b for a, b in zip(start, step, strict=True)]
            yield tuple(start), [(extent, step) for _, extent, step in chosen]

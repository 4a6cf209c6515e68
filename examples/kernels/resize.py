# SPDX-License-Identifier: Apache-2.0
"""Bilinear resize to any size, rows first, then columns. A result lies between two neighbours, with weights in 1/64
that repeat when the scale does: the columns of one phase are a product of two taps with a stride."""

import math

import numpy as np

from tessera import tile

UNIT = 64


def neighbours(extent, results):
    """For each result the lower neighbour, which is -1 in front of the first, and the weight of the upper one in 1/64;
    centres of pixels meet (half_pixel of ONNX)."""
    found = []
    for place in range(results):
        centre = (2 * place + 1) * extent - results  # in 1 / (2 * results)
        low, rest = divmod(centre, 2 * results)
        found.append((low, (rest * UNIT + results) // (2 * results)))
    return found


@tile.kernel
def resize(k, x, *, size, band=8):
    """x (h, w, c), int8, to size (h', w'): (h', w', c). A step makes `band` rows."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    (h, w, c), (rows, columns), band = x.shape, size, min(band, size[0])
    y = k.output("int8", (rows, columns, c))
    down, across = neighbours(h, rows), neighbours(w, columns)
    phases = columns // math.gcd(columns, w)  # columns repeat after so many, w / gcd further on
    stride = w * phases // columns
    share = k.param(0, 1 / UNIT)
    inside = lambda row: min(max(row, 0), h - 1)
    spans = [range(first, min(first + band, rows)) for first in range(0, rows, band)]
    ends = [(inside(down[span[0]][0]), inside(down[span[-1]][0] + 1)) for span in spans]
    weights = {f: blend(k, c, f) for f in sorted({f for _, f in down} | {f for _, f in across})}
    lines = [k.inp(max(last - first for first, last in ends) + 1, w, c) for _ in range(2)]
    mixed, sums = k.acc(band, w, c), k.acc(band, columns, c)
    wide, results = k.inp(band, w + 2, c), [k.out(band, columns, c) for _ in range(2)]

    def load(step):
        first, last = ends[step]
        k.load(lines[step % 2][: last + 1 - first], x[first : last + 1])

    def compute(step):
        span, first, line, result = spans[step], ends[step][0], lines[step % 2], results[step % 2]
        for r, row in enumerate(span):
            low, part = down[row]
            upper, lower = inside(low) - first, inside(low + 1) - first
            i, j, t = k.axes(w, line.blocks, 2)
            k.depthwise(mixed[r, i, j], line[upper + (lower - upper) * t, i, j], weights[part][j, 0], [t])
        r, i, j = k.axes(len(span), w, line.blocks)
        k.convert(wide[r, i + 1, j], mixed[r, i, j], share[0])
        for outside, edge in ((0, 0), (w + 1, w - 1)):
            k.convert(wide[r, outside, j], mixed[r, edge, j], share[0])
        for phase in range(phases):
            low, part = across[phase]
            r, i, j, t = k.axes(len(span), columns // phases, line.blocks, 2)
            target = sums[r, phase + phases * i, j]
            k.depthwise(target, wide[r, low + 1 + stride * i + t, j], weights[part][j, 0], [t])
        r, i, j = k.axes(len(span), columns, line.blocks)
        k.convert(result[r, i, j], sums[r, i, j], share[0])
        k.store(y[span[0] : span[-1] + 1], result[: len(span)])

    k.pipeline(range(len(spans)), load, compute)
    return y


def blend(k, channels, part):
    """Weights of the lower and the upper neighbour."""
    return k.depthwise_weights(np.array([[UNIT - part], [part]], np.int8).repeat(channels, 1))


@resize.reference
def _(x, *, size):
    def along(values, axis, results):
        extent = values.shape[axis]
        centre = (np.arange(results) + 0.5) * extent / results - 0.5
        low = np.floor(centre + 1e-9).astype(int)
        part = np.floor((centre - low) * UNIT + 0.5 + 1e-9).astype(np.int64)
        part = part.reshape([-1 if one == axis else 1 for one in range(3)])
        lower, upper = (np.take(values, np.clip(low + one, 0, extent - 1), axis) for one in (0, 1))
        return np.rint((lower * (UNIT - part) + upper * part) / UNIT).astype(np.int64)

    return along(along(x.astype(np.int64), 0, size[0]), 1, size[1]).astype(np.int8)


@resize.cases
def _(rng):
    h, w, rows, columns, c = (int(v) for v in rng.integers(1, (16, 16, 30, 30, 40)))
    return tile.Spec("int8", (h, w, c)), {"size": (rows, columns), "band": int(rng.integers(1, 9))}

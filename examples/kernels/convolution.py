# SPDX-License-Identifier: Apache-2.0
"""Convolution of any kernel, stride, dilation and number of groups, by products over windows of an image."""

import numpy as np

from tessera import tile


def size_of(extent, taps, stride, dilation, pad):
    """Results along an axis."""
    return (extent + 2 * pad - dilation * (taps - 1) - 1) // stride + 1


@tile.kernel
def convolution(k, image, weights, *, stride=1, dilation=1, pad=1, groups=1, zero=0, scale=0.01):
    """image (h, w, c) with zero point `zero` and weights (taps, taps, o, c / groups), int8; the result (h', w', o).
    Rows of the image come as they are needed, each once for a row of results."""
    h, w, c = image.shape
    taps, _, o, per_group = weights.shape
    rows, columns = (size_of(extent, taps, stride, dilation, pad) for extent in (h, w))
    y = k.output("int8", (rows, columns, o))
    params = k.param(0, scale)
    if per_group * groups != c or o % groups or (groups > 1 and o // groups % k.machine.block_out):
        raise tile.KernelError(f"{c} channels, {o} outputs and {groups} groups: outputs of a group fill whole entries")
    for group in range(groups):
        with k.scope():
            outs = slice(group * o // groups, (group + 1) * o // groups)
            inner = slice(group * per_group, (group + 1) * per_group)
            kept = k.wgt(taps, taps, o // groups, per_group)
            k.load(kept, weights[:, :, outs])
            bands = [k.inp(taps, w + 2 * pad, per_group, zero=zero) for _ in range(2)]
            sums = [k.acc(1, columns, o // groups) for _ in range(2)]
            results = [k.out(1, columns, o // groups) for _ in range(2)]

            def multiply(row, inner=inner, kept=kept, bands=bands, sums=sums):
                band, s = bands[row % 2], sums[row % 2]
                for tap in range(taps):
                    place = row * stride + tap * dilation - pad
                    line = image[:, :, inner].window((place, -pad, 0), (1, w + 2 * pad, per_group))
                    k.load(band[tap : tap + 1], line)
                i, j, dy, dx, n = k.axes(columns, s.blocks, taps, taps, band.blocks)
                k.dot(s[0, i, j], band[dy, i * stride + dx * dilation, n], kept[dy, dx, j, n], over=[dy, dx, n])

            def finish(row, outs=outs, sums=sums, results=results):
                s, result = sums[row % 2], results[row % 2]
                i, j = k.axes(columns, s.blocks)
                k.convert(result[0, i, j], s[0, i, j], params[0])
                k.store(y[row : row + 1, :, outs], result)

            k.pipeline(range(rows), multiply, finish)
    return y


@convolution.reference
def _(image, weights, *, stride=1, dilation=1, pad=1, groups=1, zero=0, scale=0.01):
    taps, _, o, per_group = weights.shape
    rows, columns = (size_of(extent, taps, stride, dilation, pad) for extent in image.shape[:2])
    padded = np.pad(image.astype(np.int64) - zero, ((pad, pad), (pad, pad), (0, 0)))
    sums = np.zeros((rows, columns, o), np.int64)
    for group in range(groups):
        outs = slice(group * o // groups, (group + 1) * o // groups)
        part = padded[:, :, group * per_group : (group + 1) * per_group]
        for dy, dx in np.ndindex(taps, taps):
            window = part[dy * dilation :, dx * dilation :][: (rows - 1) * stride + 1 : stride]
            window = window[:, : (columns - 1) * stride + 1 : stride]
            sums[:, :, outs] += window @ weights[dy, dx, outs].T.astype(np.int64)
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)


@convolution.cases
def _(rng):
    taps, stride, dilation = (int(v) for v in rng.integers(1, (6, 4, 4)))
    groups = int(rng.choice([1, 1, 2]))
    pad = int(rng.integers(0, taps))
    reach = dilation * (taps - 1) + 1
    h, w = (int(v) for v in rng.integers(reach, reach + 10, 2))
    lanes = 32 * groups if groups > 1 else 1
    c, o = lanes * int(rng.integers(1, 3 if groups > 1 else 40)), lanes * int(rng.integers(1, 2 if groups > 1 else 40))
    image, weights = tile.Spec("int8", (h, w, c)), tile.Spec("int8", (taps, taps, o, c // groups))
    more = {"stride": stride, "dilation": dilation, "pad": pad, "groups": groups, "zero": int(rng.integers(-9, 9))}
    return image, weights, more

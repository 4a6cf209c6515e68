# SPDX-License-Identifier: Apache-2.0
"""Convolution of any kernel, stride, dilation and number of groups, by products over windows of an image."""

import numpy as np

from tessera import tile


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def size_of(extent, taps, stride, dilation, pad):
    """Results along an axis."""
    return (extent + 2 * pad - dilation * (taps - 1) - 1) // stride + 1


@tile.kernel
def convolution(k, image, weights, *, stride=1, dilation=1, pad=1, groups=1, zero=0, scale=0.01):
    """image (h, w, c) with zero point `zero` and weights (rows, columns, o, c / groups), int8; the result (h', w', o).
    stride, dilation and pad are numbers, or pairs of rows and columns. Rows of the image come as they are needed, each
    once for a row of results. A group is a product of its own, whose last entries its channels need not fill."""
    h, w, c = image.shape
    stride, dilation, pad = pair(stride), pair(dilation), pair(pad)
    *taps, o, per_group = weights.shape
    rows, columns = (size_of(*of) for of in zip((h, w), taps, stride, dilation, pad, strict=True))
    if per_group * groups != c or o % groups or rows < 1 or columns < 1:
        raise tile.KernelError(
            f"an image of {image.shape}, weights of {weights.shape} and {groups} groups are no convolution"
        )
    y = k.output("int8", (rows, columns, o))
    params = k.param(0, scale)
    width = w + 2 * pad[1]
    for group in range(groups):
        with k.scope():
            outs = slice(group * o // groups, (group + 1) * o // groups)
            inner = slice(group * per_group, (group + 1) * per_group)
            kept = k.wgt(*taps, o // groups, per_group)
            k.load(kept, weights[:, :, outs])
            bands = [k.inp(taps[0], width, per_group, zero=zero) for _ in range(2)]
            sums = [k.acc(1, columns, o // groups) for _ in range(2)]
            results = [k.out(1, columns, o // groups) for _ in range(2)]

            def multiply(row, inner=inner, kept=kept, bands=bands, sums=sums):
                band, s = bands[row % 2], sums[row % 2]
                for tap in range(taps[0]):
                    place = row * stride[0] + tap * dilation[0] - pad[0]
                    line = image[:, :, inner].window((place, -pad[1], 0), (1, width, per_group))
                    k.load(band[tap : tap + 1], line)
                i, j, dy, dx, n = k.axes(columns, s.blocks, *taps, band.blocks)
                window = band[dy, i * stride[1] + dx * dilation[1], n]
                k.dot(s[0, i, j], window, kept[dy, dx, j, n], over=[dy, dx, n])

            def finish(row, outs=outs, sums=sums, results=results):
                s, result = sums[row % 2], results[row % 2]
                i, j = k.axes(columns, s.blocks)
                k.convert(result[0, i, j], s[0, i, j], params[0])
                k.store(y[row : row + 1, :, outs], result)

            k.pipeline(range(rows), multiply, finish)
    return y


@convolution.reference
def _(image, weights, *, stride=1, dilation=1, pad=1, groups=1, zero=0, scale=0.01):
    stride, dilation, pad = pair(stride), pair(dilation), pair(pad)
    *taps, o, per_group = weights.shape
    rows, columns = (size_of(*of) for of in zip(image.shape[:2], taps, stride, dilation, pad, strict=True))
    padded = np.pad(image.astype(np.int64) - zero, ((pad[0], pad[0]), (pad[1], pad[1]), (0, 0)))
    sums = np.zeros((rows, columns, o), np.int64)
    for group in range(groups):
        outs = slice(group * o // groups, (group + 1) * o // groups)
        part = padded[:, :, group * per_group : (group + 1) * per_group]
        for dy, dx in np.ndindex(*taps):
            window = part[dy * dilation[0] :, dx * dilation[1] :][: (rows - 1) * stride[0] + 1 : stride[0]]
            window = window[:, : (columns - 1) * stride[1] + 1 : stride[1]]
            sums[:, :, outs] += window @ weights[dy, dx, outs].T.astype(np.int64)
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)


@convolution.cases
def _(rng):
    taps, stride, dilation = (tuple(int(v) for v in rng.integers(1, most, 2)) for most in (6, 4, 4))
    groups = int(rng.choice([1, 1, 2, 3, 5]))
    pad = tuple(int(rng.integers(0, one)) for one in taps)
    h, w = (d * (t - 1) + 1 + int(rng.integers(0, 10)) for d, t in zip(dilation, taps, strict=True))
    per_group, o = (int(rng.integers(1, 1 + 40 // groups)) for _ in range(2))
    image, weights = tile.Spec("int8", (h, w, groups * per_group)), tile.Spec("int8", (*taps, groups * o, per_group))
    more = {"stride": stride, "dilation": dilation, "pad": pad, "groups": groups, "zero": int(rng.integers(-9, 9))}
    return image, weights, more

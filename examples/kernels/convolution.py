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
def convolution(k, image, weights, *, stride=1, dilation=1, pad=1, groups=1, zero=0, scale=0.01, band=4):
    """image (h, w, c) with zero point `zero` and weights (rows, columns, o, c / groups), int8; the result (h', w', o).
    stride, dilation and pad are numbers, or pairs of rows and columns. A step makes `band` rows of results of one
    group, whose channels need not fill their last entries."""
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
    width, outs, band = w + 2 * pad[1], o // groups, min(band, rows)
    height = (band - 1) * stride[0] + (taps[0] - 1) * dilation[0] + 1
    kept = [k.wgt(*taps, outs, per_group) for _ in range(2)]
    images = [k.inp(height, width, per_group, zero=zero) for _ in range(2)]
    sums, results = [k.acc(band, columns, outs) for _ in range(2)], [k.out(band, columns, outs) for _ in range(2)]
    steps = [(group, row) for group in range(groups) for row in range(0, rows, band)]

    def multiply(step):
        (group, row), x, s, weight = steps[step], images[step % 2], sums[step % 2], kept[steps[step][0] % 2]
        if row == 0:
            k.load(weight, weights[:, :, group * outs : (group + 1) * outs])
        channels, count = image[:, :, group * per_group : (group + 1) * per_group], min(band, rows - row)
        need = height - (band - count) * stride[0]
        k.load(x[:need], channels.window((row * stride[0] - pad[0], -pad[1], 0), (need, width, per_group)))
        r, i, j, dy, dx, n = k.axes(count, columns, s.blocks, *taps, x.blocks)
        window = x[r * stride[0] + dy * dilation[0], i * stride[1] + dx * dilation[1], n]
        k.dot(s[r, i, j], window, weight[dy, dx, j, n], over=[dy, dx, n])

    def finish(step):
        (group, row), s, result = steps[step], sums[step % 2], results[step % 2]
        count = min(band, rows - row)
        r, i, j = k.axes(count, columns, s.blocks)
        k.convert(result[r, i, j], s[r, i, j], params[0])
        k.store(y[row : row + count, :, group * outs : (group + 1) * outs], result[:count])

    k.pipeline(range(len(steps)), multiply, finish)
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
    more["band"] = int(rng.integers(1, 6))
    return image, weights, more

# SPDX-License-Identifier: Apache-2.0
"""Convolution of a volume (depth, height, width, channels), by products over three axes of taps."""

import numpy as np

from tessera import tile


@tile.kernel
def volume(k, x, weights, *, stride=1, pad=1, scale=0.01, band=4):
    """x (d, h, w, c) and weights (planes, rows, columns, o, c), int8; the result (d', h', w', o). A step makes `band`
    rows of a plane of results."""
    *extents, c = x.shape
    *taps, o, _ = weights.shape
    sizes = [(extent + 2 * pad - count) // stride + 1 for extent, count in zip(extents, taps, strict=True)]
    y = k.output("int8", (*sizes, o))
    params, band = k.param(0, scale), min(band, sizes[1])
    kept = k.wgt(*taps, o, c)
    k.load(kept, weights)
    height, width = (band - 1) * stride + taps[1], extents[2] + 2 * pad
    bricks = [k.inp(taps[0], height, width, c) for _ in range(2)]
    sums = [k.acc(band, sizes[2], o) for _ in range(2)]
    results = [k.out(band, sizes[2], o) for _ in range(2)]
    steps = [(plane, row) for plane in range(sizes[0]) for row in range(0, sizes[1], band)]

    def multiply(step):
        plane, row = steps[step]
        brick, s, count = bricks[step % 2], sums[step % 2], min(band, sizes[1] - row)
        need = (count - 1) * stride + taps[1]
        place = (plane * stride - pad, row * stride - pad, -pad, 0)
        k.load(brick[:, :need], x.window(place, (taps[0], need, width, c)))
        r, i, j, dz, dy, dx, n = k.axes(count, sizes[2], s.blocks, *taps, brick.blocks)
        window = brick[dz, r * stride + dy, i * stride + dx, n]
        k.dot(s[r, i, j], window, kept[dz, dy, dx, j, n], over=[dz, dy, dx, n])

    def finish(step):
        plane, row = steps[step]
        s, result, count = sums[step % 2], results[step % 2], min(band, sizes[1] - row)
        r, i, j = k.axes(count, sizes[2], s.blocks)
        k.convert(result[r, i, j], s[r, i, j], params[0])
        k.store(y[plane, row : row + count], result[:count])

    k.pipeline(range(len(steps)), multiply, finish)
    return y


@volume.reference
def _(x, weights, *, stride=1, pad=1, scale=0.01):
    padded = np.pad(x.astype(np.int64), ((pad, pad),) * 3 + ((0, 0),))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[:3], (0, 1, 2))
    windows = windows[::stride, ::stride, ::stride]
    sums = np.einsum("dhwczyx,zyxoc->dhwo", windows, weights.astype(np.int64))
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)


@volume.cases
def _(rng):
    taps = tuple(int(v) for v in rng.integers(1, 4, 3))
    pad, stride, band = (int(rng.integers(low, high)) for low, high in ((0, min(taps)), (1, 3), (1, 5)))
    extents = tuple(count + int(rng.integers(0, 5)) for count in taps)
    c, o = (int(v) for v in rng.integers(1, 36, 2))
    more = {"stride": stride, "pad": pad, "band": band}
    return tile.Spec("int8", (*extents, c)), tile.Spec("int8", (*taps, o, c)), more

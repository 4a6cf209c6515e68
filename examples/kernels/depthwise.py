# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution: each channel with its own window. An entry of weights holds few taps (6 to 16, by machine);
larger windows are cut into rectangles whose sums are added up."""

import numpy as np

from tessera import tile


def rectangles(rows, columns, most):
    """(first row, first column, rows, columns) of parts of at most `most` taps."""
    wide = min(columns, most)
    high = max(1, most // wide)
    return [
        (y, x, min(high, rows - y), min(wide, columns - x))
        for y in range(0, rows, high)
        for x in range(0, columns, wide)
    ]


@tile.kernel
def depthwise(k, image, weights, *, stride=1, pad=1, zero=0, scale=0.05, band=4):
    """image (h, w, c) with zero point `zero` and weights (rows, columns, c), int8; the result (h', w', c). A step makes
    `band` rows of results."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    (h, w, c), (high, wide, _) = image.shape, weights.shape
    rows, columns = ((extent + 2 * pad - taps) // stride + 1 for extent, taps in ((h, high), (w, wide)))
    y = k.output("int8", (rows, columns, c))
    params, band = k.param(0, scale), min(band, rows)
    parts = rectangles(high, wide, k.machine.depthwise_taps)
    kept = [k.depthwise_weights(weights[top : top + a, left : left + b]) for top, left, a, b in parts]
    height, width = (band - 1) * stride + high, w + 2 * pad
    bands = [k.inp(height, width, c, zero=zero) for _ in range(2)]
    sums = [k.acc(band, columns, c) for _ in range(2)]
    results = [k.out(band, columns, c) for _ in range(2)]
    firsts = range(0, rows, band)

    def multiply(step):
        x, s = bands[step % 2], sums[step % 2]
        count = min(band, rows - firsts[step])
        need = (count - 1) * stride + high
        k.load(x[:need], image.window((firsts[step] * stride - pad, -pad, 0), (need, width, c)))
        for number, (top, left, a, b) in enumerate(parts):
            r, i, j, dy, dx = k.axes(count, columns, s.blocks, a, b)
            window = x[r * stride + top + dy, i * stride + left + dx, j]
            k.depthwise(s[r, i, j], window, kept[number][j, 0], [dy, dx], add=number > 0, order=[j, r, i])

    def finish(step):
        s, result = sums[step % 2], results[step % 2]
        count = min(band, rows - firsts[step])
        r, i, j = k.axes(count, columns, s.blocks)
        k.convert(result[r, i, j], s[r, i, j], params[0])
        k.store(y[firsts[step] : firsts[step] + count], result[:count])

    k.pipeline(range(len(firsts)), multiply, finish)
    return y


@depthwise.reference
def _(image, weights, *, stride=1, pad=1, zero=0, scale=0.05):
    padded = np.pad(image.astype(np.int64) - zero, ((pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[:2], (0, 1))[::stride, ::stride]
    sums = np.einsum("hwcyx,yxc->hwc", windows, weights.astype(np.int64))
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)


@depthwise.cases
def _(rng):
    high, wide, stride = (int(v) for v in rng.integers(1, (6, 8, 4)))
    pad = int(rng.integers(0, min(high, wide)))
    h, w, c = high + int(rng.integers(0, 9)), wide + int(rng.integers(0, 9)), int(rng.integers(1, 50))
    more = {"stride": stride, "pad": pad, "zero": int(rng.integers(-9, 9)), "band": int(rng.integers(1, 6))}
    return tile.Spec("int8", (h, w, c)), tile.Spec("int8", (high, wide, c)), more

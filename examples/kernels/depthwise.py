# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution: each channel with its own window. An entry of weights holds few taps (6 to 16, by machine);
larger windows are cut into rectangles whose sums are added up."""

import numpy as np

from tessera import tile


def rectangles(taps, most, results):
    """(first row, first column, rows, columns) of parts of at most `most` taps, of the forms with which the fewest
    vectors are read: those under the windows of (rows, columns) results, once for each part (isa/timing.md)."""

    def parts(high):
        wide = min(taps[1], most // high)
        corners = [(y, x) for y in range(0, taps[0], high) for x in range(0, taps[1], wide)]
        return [(y, x, min(high, taps[0] - y), min(wide, taps[1] - x)) for y, x in corners]

    cost = lambda found: sum((results[0] + a - 1) * (results[1] + b - 1) for _, _, a, b in found)
    return min((parts(high) for high in range(1, 1 + min(3, taps[0], most))), key=cost)


@tile.kernel
def depthwise(k, image, weights, *, stride=1, pad=1, zero=0, scale=0.05, band=8, channels=32):
    """image (h, w, c) with zero point `zero` and weights (rows, columns, c), int8; the result (h', w', c). A step makes
    `band` rows of results of `channels` channels."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    (h, w, c), (high, wide, _) = image.shape, weights.shape
    rows, columns = ((extent + 2 * pad - taps) // stride + 1 for extent, taps in ((h, high), (w, wide)))
    lanes = k.machine.block_out
    channels, band = min(c, -(-channels // lanes) * lanes), min(band, rows)
    y = k.output("int8", (rows, columns, c))
    params = k.param(0, scale)
    parts = rectangles((high, wide), k.machine.depthwise_taps, (band, columns))
    height, width = (band - 1) * stride + high, w + 2 * pad
    bands = [k.inp(height, width, channels, zero=zero) for _ in range(2)]
    sums = [k.acc(band, columns, channels) for _ in range(2)]
    results = [k.out(band, columns, channels) for _ in range(2)]
    firsts = range(0, c, channels)
    kept = {first: [] for first in firsts}
    steps = [(first, row) for first in firsts for row in range(0, rows, band)]

    def sizes(step):
        """Channels, their blocks, rows of results."""
        first, row = steps[step]
        part = slice(first, min(c, first + channels))
        return part, -(-(part.stop - first) // lanes), min(band, rows - row)

    def multiply(step):
        x, s, (first, row) = bands[step % 2], sums[step % 2], steps[step]
        part, blocks, count = sizes(step)
        if not kept[first]:
            kept[first] = [k.depthwise_weights(weights[u : u + a, v : v + b, part]) for u, v, a, b in parts]
        need = (count - 1) * stride + high
        window = image[:, :, part].window((row * stride - pad, -pad, 0), (need, width, part.stop - first))
        k.load(x[:need, :, :blocks], window)
        for number, (top, left, a, b) in enumerate(parts):
            r, i, j, dy, dx = k.axes(count, columns, blocks, a, b)
            source = x[r * stride + top + dy, i * stride + left + dx, j]
            k.depthwise(s[r, i, j], source, kept[first][number][j, 0], [dy, dx], add=number > 0, order=[j, r, i])

    def finish(step):
        s, result, (_, row) = sums[step % 2], results[step % 2], steps[step]
        part, blocks, count = sizes(step)
        r, i, j = k.axes(count, columns, blocks)
        k.convert(result[r, i, j], s[r, i, j], params[0])
        k.store(y[row : row + count, :, part], result[:count, :, :blocks])

    k.pipeline(range(len(steps)), multiply, finish)
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
    more = {"stride": stride, "pad": pad, "zero": int(rng.integers(-9, 9)), "band": int(rng.integers(1, 9))}
    more["channels"] = int(rng.integers(1, 50))
    return tile.Spec("int8", (h, w, c)), tile.Spec("int8", (high, wide, c)), more

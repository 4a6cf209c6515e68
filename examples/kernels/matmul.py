# SPDX-License-Identifier: Apache-2.0
"""y = round((a b^T + bias) * scale) of int8. Activations stay on the chip, weights come part by part: while one part is
multiplied, the next one is loaded and the results of the one before are rounded and stored."""

import numpy as np

from tessera import tile


@tile.kernel
def matmul(k, a, b, bias, *, scale=0.01, rows=64, outputs=32):
    """a (m, n) and b (o, n), int8; bias (o,), int32; the result (m, o), int8. A step multiplies `rows` rows by
    `outputs` outputs, a multiple of BLOCK_OUT."""
    m, o = a.shape[0], b.shape[0]
    rows, outputs = min(rows, m), min(-(-outputs // k.machine.block_out) * k.machine.block_out, o)
    y = k.output("int8", (m, o))
    x, addends = k.inp(*a.shape), k.acc(1, o)
    weights, sums = [k.wgt(outputs, b.shape[1]) for _ in range(2)], [k.acc(rows, outputs) for _ in range(2)]
    results = [k.out(rows, outputs) for _ in range(2)]
    k.load(addends, bias.reshape(1, o))
    params = k.param(0, scale)
    parts = [slice(first, min(o, first + outputs)) for first in range(0, o, outputs)]
    bands = [slice(first, min(m, first + rows)) for first in range(0, m, rows)]
    steps = [(number, part, band) for number, part in enumerate(parts) for band in bands]

    def extents(part, band):
        return band.stop - band.start, -(-(part.stop - part.start) // k.machine.block_out)

    def multiply(step):
        number, part, band = steps[step]
        w, s = weights[number % 2], sums[step % 2]
        count, blocks = extents(part, band)
        if number == 0:
            k.load(x[band.start : band.stop], a[band])
        if band is bands[0]:
            k.load(w[:blocks], b[part])
        i, j, n = k.axes(count, blocks, x.blocks)
        k.vector(s[i, j], addends[0, part.start // k.machine.block_out + j])
        k.dot(s[i, j], x[band.start + i, n], w[j, n], over=[n], add=True)

    def finish(step):
        _, part, band = steps[step]
        s, result = sums[step % 2], results[step % 2]
        count, blocks = extents(part, band)
        i, j = k.axes(count, blocks)
        k.convert(result[i, j], s[i, j], params[0])
        k.store(y[band, part], result[:count, :blocks])

    k.pipeline(range(len(steps)), multiply, finish)
    return y


@matmul.reference
def _(a, b, bias, *, scale=0.01):
    sums = a.astype(np.int64) @ b.T.astype(np.int64) + bias
    sums = (sums + 2**31) % 2**32 - 2**31
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)


@matmul.cases
def _(rng):
    m, n, o = (int(v) for v in rng.integers(1, (80, 70, 70)))
    bias = rng.integers(-20000, 20000, o).astype(np.int32)
    more = {"rows": int(rng.integers(1, 40)), "outputs": int(rng.integers(1, 70))}
    return tile.Spec("int8", (m, n)), tile.Spec("int8", (o, n)), bias, more

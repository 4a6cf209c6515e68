# SPDX-License-Identifier: Apache-2.0
"""y = round((a b^T + bias) * scale) of int8: bands of rows, of which one is loaded while the other is computed."""

import numpy as np

from tessera import tile


@tile.kernel
def matmul(k, a, b, bias, *, scale=0.01, rows=32):
    """a (m, n) and b (o, n), int8; bias (o,), int32; the result (m, o), int8. Weights and bias stay on the chip."""
    m, o = a.shape[0], b.shape[0]
    y = k.output("int8", (m, o))
    weights, addends = k.wgt(*b.shape), k.acc(1, o)
    k.load(weights, b)
    k.load(addends, bias.reshape(1, o))
    rows = min(rows, m)
    bands, sums = [k.inp(rows, a.shape[1]) for _ in range(2)], [k.acc(rows, o) for _ in range(2)]
    results = [k.out(rows, o) for _ in range(2)]
    params = k.param(0, scale)
    for number, begin in enumerate(range(0, m, rows)):
        band, s, result = (pair[number % 2] for pair in (bands, sums, results))
        count = min(rows, m - begin)
        k.load(band[:count], a[begin : begin + count])
        i, j, n = k.axes(count, s.blocks, band.blocks)
        k.vector(s[i, j], addends[0, j])
        k.dot(s[i, j], band[i, n], weights[j, n], over=[n], add=True)
        k.convert(result[i, j], s[i, j], params[0])
        k.store(y[begin : begin + count], result[:count])
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
    return tile.Spec("int8", (m, n)), tile.Spec("int8", (o, n)), bias, {"rows": int(rng.integers(1, 40))}

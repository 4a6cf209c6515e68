# SPDX-License-Identifier: Apache-2.0
"""Softmax and layer normalisation of rows, on machines with row lanes (npu256t)."""

import numpy as np

from tessera import tile

OFFSET = 3  # elements up to 32 deviations from the mean
EXP = np.exp(-0.05 * np.arange(256)).astype(np.float32)


@tile.kernel
def softmax(k, x):
    """x (rows, n), int8, of which a step is 0.05; the result in steps of 1 / 256, uint8."""
    n = x.shape[1]
    y = k.output("uint8", x.shape)
    values, scalars, result = k.inp(*x.shape), k.acc(x.shape[0], 1), k.out(*x.shape, dtype="uint8")
    k.load(values, x)
    i, j = values.axes()
    k.row_max(scalars[i, 0], values[i, j], [j], n)
    k.row_sum_exp(scalars[i, 0], values[i, j], [j], n, k.numbers(EXP))
    k.softmax(result[i, j], values[i, j], scalars[i, 0], [j], k.numbers(EXP * 256))
    k.store(y, result)
    return y


@softmax.reference
def _(x):
    below = x.max(1, keepdims=True).astype(int) - x
    total = np.zeros(x.shape[0], np.float32)
    for column in range(x.shape[1]):  # in the machine's order, as each sum is rounded
        total = total + EXP[below[:, column]]
    return np.minimum(np.rint(EXP[below] * 256 / total[:, None]), 255).astype(np.uint8)


@softmax.cases
def _(rng):
    return tile.Spec("int8", tuple(int(v) for v in rng.integers(1, (40, 300))))


@tile.kernel
def normalise(k, x, *, gain=32.0):
    """x (rows, n), int8: (x - mean) / deviation * gain, rounded, int8."""
    n = x.shape[1]
    y = k.output("int8", x.shape)
    values, scalars, result = k.inp(*x.shape), k.acc(x.shape[0], 1), k.out(*x.shape)
    k.load(values, x)
    i, j = values.axes()
    k.row_moments(scalars[i, 0], values[i, j], [j], n, offset=OFFSET)
    factors = k.factors(0, round(gain * 2 ** (6 + OFFSET)))
    k.normalise(result[i, j], values[i, j], scalars[i, 0], [j], factors[0])
    k.store(y, result)
    return y

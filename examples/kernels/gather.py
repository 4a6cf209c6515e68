# SPDX-License-Identifier: Apache-2.0
"""Rows of a table by positions that are data. Addresses of the machine do not depend on data, so each result is a
product of the whole table with weights that the positions make: n positions in v rows of c channels take n v c
multiplications, and the table stays on the chip."""

import numpy as np

from tessera import tile

STEP = 16  # positions are in 1/16 of a row


@tile.kernel
def sample(k, x, positions, *, rows=16):
    """x (v, c), int8; positions (n,), int32, in 1/16 rows, each up to 2^26 in magnitude; the result (n, c), int8: x at
    a position, between two rows linearly, and 0 outside of the table. Whole positions are a gather."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    (v, c), n, rows = x.shape, positions.shape[0], min(rows, positions.shape[0])
    y = k.output("int8", (n, c))
    share, lanes = k.param(0, 1 / STEP), k.machine.block_out
    # How far a row is from a position: the position, in all lanes, less that of the lane.
    away = k.param(-STEP * np.arange(-(-v // lanes) * lanes), 1)
    hat = k.table([max(0, STEP - min(d, 256 - d)) for d in range(256)])
    kept = k.wgt(c, v)
    k.load(kept, x.permute(1, 0))
    places, weights = [k.acc(rows, lanes) for _ in range(2)], [k.inp(rows, v) for _ in range(2)]
    sums, results = [k.acc(rows, c) for _ in range(2)], [k.out(rows, c) for _ in range(2)]
    firsts = range(0, n, rows)

    def load(step):
        count = min(rows, n - firsts[step])
        part = positions[firsts[step] : firsts[step] + count]
        k.load(places[step % 2][:count], part.reshape(count, 1).expand(count, lanes))

    def compute(step):
        count, w, s, o = min(rows, n - firsts[step]), weights[step % 2], sums[step % 2], results[step % 2]
        i, j = k.axes(count, w.blocks)
        k.convert(w[i, j], places[step % 2][i, 0], away[j], table=hat)
        i, j, b = k.axes(count, s.blocks, w.blocks)
        k.dot(s[i, j], w[i, b], kept[j, b], over=[b])
        k.convert(o[i, j], s[i, j], share[0])
        k.store(y[firsts[step] : firsts[step] + count], o[:count])

    k.pipeline(range(len(firsts)), load, compute)
    return y


@sample.reference
def _(x, positions):
    low, part = positions // STEP, (positions % STEP)[:, None]
    row = lambda at: np.where(((at >= 0) & (at < len(x)))[:, None], x[np.clip(at, 0, len(x) - 1)].astype(np.int64), 0)
    return np.rint((row(low) * (STEP - part) + row(low + 1) * part) / STEP).astype(np.int8)


@sample.cases
def _(rng):
    v, c, n = (int(one) for one in rng.integers(1, (200, 60, 60)))
    return (
        tile.Spec("int8", (v, c)),
        rng.integers(-40, STEP * v + 40, n).astype(np.int32),
        {"rows": int(rng.integers(1, 33))},
    )


@tile.kernel
def take(k, x, *, rows):
    """x (v, c); the result (len(rows), c): the rows of these numbers, which are known when the kernel is built. Numbers
    at equal distances are one transfer."""
    c, n = x.shape[1], len(rows)
    if not n or min(rows) < 0 or max(rows) >= x.shape[0]:
        raise tile.KernelError(f"rows are numbers of 0 to {x.shape[0] - 1}, at least one")
    y = k.output(x.dtype, (n, c))
    most = max(1, min(n, k.machine.depth("out") // 2 // -(-c // k.machine.block_out)))
    kept = [k.out(most, c, dtype=x.dtype) for _ in range(2)]
    for number, begin in enumerate(range(0, n, most)):
        part, t = rows[begin : begin + most], kept[number % 2]
        for first, step, at, count in runs(part):
            source = x[first : first + (count - 1) * step + 1]
            source = source.unfold(0, 1, step).reshape(count, c) if step else source.expand(count, c)
            k.load(t[at : at + count], source)
        k.store(y[begin : begin + len(part)], t[: len(part)])
    return y


def runs(numbers):
    """(number, distance, place, count) of runs at equal distances of 0 and more."""
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        count = 1
        while step >= 0 and at + count < len(numbers) and numbers[at + count] == numbers[at] + count * step:
            count += 1
        yield numbers[at], max(step, 0) if count > 1 else 1, at, count
        at += count


@take.reference
def _(x, *, rows):
    return x[list(rows)]


@take.cases
def _(rng):
    v, c, n = (int(one) for one in rng.integers(1, (90, 60, 60)))
    rows = rng.integers(0, v, n) if rng.random() < 0.5 else np.sort(rng.integers(0, v, n))
    return tile.Spec("int8", (v, c)), {"rows": tuple(int(one) for one in rows)}

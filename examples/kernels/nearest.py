# SPDX-License-Identifier: Apache-2.0
"""For each query the nearest of many candidates: pairwise squared distances and the best one, exact, without a distance
in DRAM. Queries lie along the lanes, candidates along the rows, so that the vector unit's maximum over rows is the best
candidate of each lane. Its number is found by comparison: the best score less each score is 0 where it is."""

import numpy as np

from tessera import tile

BASE, PART = 127, 128


def tables():
    """Of an int8 x: -1 - x, and the digits of x^2 in base 127."""
    x = np.arange(256)
    x = np.where(x < 128, x, x - 256)
    return -1 - x, x**2 // BASE, x**2 % BASE


@tile.kernel
def nearest(k, queries, candidates, *, rows=64):
    """queries (n, c) and candidates (m, c), int8; the results: (1, n) int32, the number of the nearest candidate, of
    several the first one; and (1, n) int32, its score 2 a b - b b, which is the query's own square less the squared
    distance. `rows` candidates are multiplied in a step."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    (n, c), m, lanes = queries.shape, candidates.shape[0], k.machine.block_out
    rows, parts = min(rows, m), -(-m // PART)
    if parts > 127:
        raise tile.KernelError(f"{m} candidates; this kernel numbers up to {127 * PART}")
    number, score = k.output("int32", (1, n), "number"), k.output("int32", (1, n), "score")
    negate, high, low = (k.table(one) for one in tables())
    is_zero, weigh = k.table([1] + [0] * 255), k.wgt(4, lanes, c)
    k.load(weigh, k.constant(np.array([-BASE, -1, BASE, 1], np.int8)[:, None, None] * np.ones((lanes, c), np.int8)))
    join = k.depthwise_weights(np.array([-PART, -1])[:, None].repeat(lanes, 1).astype(np.int8))
    # The number of a candidate, from behind, in two digits.
    places = np.arange(m)[:, None].repeat(lanes, 1)
    codes = [k.out(m, lanes, dtype="uint8") for _ in range(2)]
    for code, digit in zip(codes, (parts - places // PART, PART - places % PART), strict=True):
        k.load(code, k.constant(digit.astype(np.uint8)))
    b = k.inp(rows, c)
    minus_b, digits = k.inp(rows, c, zero=-1), k.inp(2, rows, c, dtype="uint8")
    weights, sums = [k.wgt(lanes, c) for _ in range(2)], k.acc(rows, lanes)
    pairs, best = k.acc(2, m, lanes), k.acc(1, lanes)  # minus each score, and the best score
    chosen, top = k.out(m, lanes, dtype="uint8"), k.out(2, 1, lanes, dtype="uint8")
    last, found = k.inp(2, 1, lanes, dtype="uint8"), k.acc(1, lanes)
    start = k.constant(np.full((1, lanes), PART * parts + PART, np.int32))
    prepared = []

    def prepare(first, count):
        if prepared == [first]:
            return
        prepared[:] = [first]
        k.load(b[:count], candidates[first : first + count])
        i, j = k.axes(count, b.blocks)
        k.lookup(minus_b[i, j], b[i, j], negate)
        k.lookup(digits[0, i, j], b[i, j], high)
        k.lookup(digits[1, i, j], b[i, j], low)

    def multiply(first, count, w):
        """Scores of some candidates to `sums`, minus the scores to `pairs`."""
        i, e, twice = k.axes(count, b.blocks, 2)
        for target, x, digit in ((sums[i, 0], b, 0), (pairs[0, first + i, 0], minus_b, 2)):
            k.dot(target, x[i, e], w[0, e], over=[twice, e])
            for d in (0, 1):
                k.dot(target, digits[d, i, e], weigh[digit + d, 0, e], over=[e], add=True)

    def search(first):
        part, w = slice(first, min(n, first + lanes)), weights[first // lanes % 2]
        for begin in range(0, m, rows):
            count = min(rows, m - begin)
            prepare(begin, count)
            multiply(begin, count, w)
            i = k.axis(count)
            k.vector(best[0, 0] if begin == 0 else pairs[1, 0, 0], sums[i, 0], reduce="max", over=[i])
            if begin:
                both = k.axis(2)
                k.vector(pairs[1, 1, 0], best[0, 0])
                k.vector(best[0, 0], pairs[1, both, 0], reduce="max", over=[both])
        i, both = k.axes(m, 2)
        k.vector(pairs[1, i, 0], best[0, 0])
        k.vector(pairs[0, i, 0], pairs[both, i, 0], reduce="sum", over=[both])
        k.vector(chosen[i, 0], pairs[0, i, 0], low=0, high=255, table=is_zero)
        for digit in (0, 1):
            coded = k.second("mul", codes[digit][i, 0], x=(0, 1), y=(0, 255), rx=1, low=0, high=255)
            k.vector(chosen[i, 0], chosen[i, 0], second=coded)
            k.pool(top[digit, 0, 0], chosen[i, 0], [i])
            k.vector(last[digit, 0, 0], top[digit, 0, 0])
            if digit == 0:
                same = k.second("add", top[0, 0, 0], x=(0, 255), y=(0, 255), ry=-1, low=-128, high=127, table=is_zero)
                k.vector(chosen[i, 0], chosen[i, 0], second=same)
        k.load(found, start)
        t = k.axis(2)
        k.depthwise(found[0, 0], last[t, 0, 0], join[0, 0], [t], add=True)
        k.store(number[:, part], found)
        k.store(score[:, part], best)

    def load(first):
        k.load(weights[first // lanes % 2], queries[first : min(n, first + lanes)])

    k.pipeline(range(0, n, lanes), load, search)
    return number, score


@nearest.reference
def _(queries, candidates):
    a, b = queries.astype(np.int64), candidates.astype(np.int64)
    scores = 2 * a @ b.T - (b * b).sum(1)
    return scores.argmax(1).astype(np.int32)[None], scores.max(1).astype(np.int32)[None]


@nearest.cases
def _(rng):
    n, m, c = (int(v) for v in rng.integers(1, (40, 200, 50)))
    near = rng.integers(-3, 4, (m, c)).astype(np.int8) if rng.random() < 0.5 else tile.Spec("int8", (m, c))
    return tile.Spec("int8", (n, c)), near, {"rows": int(rng.integers(1, 80))}

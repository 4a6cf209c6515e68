# SPDX-License-Identifier: Apache-2.0
"""Attention in one kernel: scores, softmax and values band by band in the scratchpads, so that no score goes to DRAM.

Values are weights of the second product, which have their positions along the lanes: the kernel takes them transposed,
as the product that makes them can store them. Probabilities of `lag` bands wait in INP, so that the vector unit works
on rows of the first bands while the first head's values come. Each head's keys and values come while the head before is
computed. With `copies=1` queries and the sums of values have no second place, which leaves room for more rows.

exp(x - m) / sum(exp(x - m)) is the same for each m that is no less than the row's maximum. So m is the largest int8,
and no pass looks for the maximum, as long as fp32 holds the exponentials of 256 steps. Then the softmax reads the
scores where the products leave them, and rounds them as it reads. Else they are rounded in a pass of their own."""

import numpy as np

from tessera import tile

LARGEST = 2.0**80  # of the exponentials; the sum of a row stays below 2^100
PART = 3  # blocks of keys with which the first scores begin
STEEPEST = 0.55  # steps with which the smallest of them is no less than 2^-120


def exponentials(step, size=1.0):
    """exp(-step * d) * size for differences d between the maximum and a score."""
    return (np.exp(-step * np.arange(256)) * (LARGEST if step <= STEEPEST else 1.0) * size).astype(np.float32)


def cut(heads, n, rows, first):
    """[(head, begin, end)] of the bands, as many in each head. They have `rows` of a head's n rows, the last one of a
    head what is left. Where it makes no more bands, the very first one has `first`, so that its results come early."""
    usual = range(0, n, rows)
    short = [0, *range(first, n, rows)] if first else usual
    begins = [short if len(short) == len(usual) else usual, *[usual] * (heads - 1)]
    return [
        (head, at, end) for head in range(heads) for at, end in zip(begins[head], [*begins[head][1:], n], strict=True)
    ]


@tile.kernel
def attention(
    k, query, key, value, *, scale=0.002, step=0.05, out_scale=0.01, rows=16, first=0, lag=6, copies=2, ahead=1
):
    """query (heads, n, d), key (heads, m, d), value (heads, d, m), int8. A score is the product times `scale`, the
    probability exp(step * score) over the row's sum in 1/255, and the result the sum of values times `out_scale`. The
    very first band may have fewer rows than `rows`: `first` of them."""
    heads, n, d = query.shape
    m = key.shape[1]
    rows = min(rows, n)
    bands = cut(heads, n, rows, min(first, rows))
    per_head = len(bands) // heads
    lag = max(1, min(lag, len(bands) - 1))
    result = k.output("int8", query.shape)
    keys, values = [k.wgt(m, d) for _ in range(2)], [k.wgt(d, m) for _ in range(2)]
    queries = [k.inp(rows, d) for _ in range(copies)]
    blocks = -(-m // k.machine.block_out)
    direct = step <= STEEPEST
    sums = [k.acc(blocks, rows, 1) for _ in range(1 + ahead if direct else copies)]
    scalars = k.acc(1 if direct else rows, 1)
    scores = None if direct else k.out(rows, m)  # the vector unit alone works on them, a band at a time
    chances = [k.inp(rows, m, dtype="uint8") for _ in range(lag + 1)]
    loaded = set()  # heads whose keys are there
    mixed, results = [k.acc(rows, d) for _ in range(copies)], [k.out(rows, d) for _ in range(2)]

    def count(number):
        return bands[number][2] - bands[number][1]

    def load_keys(head):
        if head < heads and head not in loaded:
            load_part(head, 0, keys[0].rows)
            loaded.add(head)

    def load_part(head, begin, end):
        """Of a head's keys those of the entries from `begin` to `end`."""
        lanes = k.machine.block_out
        k.load(keys[head % 2][begin:end], key[head, begin * lanes : min(m, end * lanes)])

    def load_values(head, begin, end):
        """Of a head the blocks of positions from `begin` to `end`, one entry of weights each."""
        if head < heads and begin < end:
            lanes = k.machine.block_in
            k.load(values[head % 2][:, begin:end], value[head, :, begin * lanes : min(m, end * lanes)])

    def score(number):
        head, begin, end = bands[number]
        load_keys(head)
        x, s, w = queries[number % copies], sums[number % len(sums)], keys[head % 2]
        k.load(x[: count(number)], query[head, begin:end])
        i, j, c = k.axes(count(number), s.dims[0], x.blocks)
        k.dot(s[j, i, 0], x[i, c], w[j, c], over=[c], order=[i, j])

    def start():
        """The first scores, part by part behind the keys."""
        x, s, w = queries[0], sums[0], keys[0]
        k.load(x[: count(0)], query[0, : count(0)])
        loaded.add(0)
        for begin in range(0, s.dims[0], PART):
            blocks = min(PART, s.dims[0] - begin)
            load_part(0, begin, begin + blocks)
            i, j, c = k.axes(count(0), blocks, x.blocks)
            k.dot(s[begin + j, i, 0], x[i, c], w[begin + j, c], over=[c], order=[i, j])

    def round_scores(number):
        s, part = sums[number % len(sums)], PART if number == 0 else blocks
        for begin in range(0, blocks, part):
            i, j = k.axes(count(number), min(part, blocks - begin))
            k.convert(scores[i, begin + j], s[begin + j, i, 0], to_score[0])

    def normalise(number):
        i, j = k.axes(count(number), blocks)
        p = chances[number % (lag + 1)]
        if direct:
            s = sums[number % len(sums)]
            k.sum_softmax(p[i, j], s[j, i, 0], scalars[0, 0], [j], m, sum_numbers, numbers, params=to_score[0])
        else:
            k.row_max(scalars[i, 0], scores[i, j], [j], m)
            k.sum_softmax(p[i, j], scores[i, j], scalars[i, 0], [j], m, sum_numbers, numbers)

    def mix(number):
        a, p, w = mixed[number % copies], chances[number % (lag + 1)], values[bands[number][0] % 2]
        i, b, c = k.axes(count(number), a.blocks, p.blocks)
        k.dot(a[i, b], p[i, c], w[b, c], over=[c])

    def finish(number):
        head, begin, end = bands[number]
        a, o = mixed[number % copies], results[number % 2]
        i, b = k.axes(count(number), o.blocks)
        k.convert(o[i, b], a[i, b], to_result[0])
        k.store(result[head, begin:end], o[: count(number)])

    # What a band needs is issued in front of the vector unit's work on the band before.
    to_score, to_result = k.param(0, scale), k.param(0, out_scale)
    start()
    if direct:
        k.fill(scalars, 127)  # in each byte: of a maximum the low one counts
    sum_numbers, numbers = k.numbers(exponentials(step)), k.numbers(exponentials(step, 255))
    positions = values[0].blocks
    for number in range(1, len(sums) - 1):
        score(number)
    load_values(0, 0, positions)
    for number in range(len(bands) + lag):
        head, place = divmod(number, per_head)
        if place == 1:
            load_keys(head + 1)
        if number >= lag:
            mix(number - lag)
        if len(sums) > 1 and number + len(sums) - 1 < len(bands):
            score(number + len(sums) - 1)
        if number < len(bands):
            if not direct:
                round_scores(number)
            if len(sums) == 1 and number + 1 < len(bands):
                score(number + 1)
            normalise(number)
        if number >= lag:
            finish(number - lag)
            head, place = divmod(number - lag, per_head)
            load_values(head + 1, place * positions // per_head, (place + 1) * positions // per_head)
    return result


@attention.reference
def _(query, key, value, *, scale=0.002, step=0.05, out_scale=0.01):
    products = np.einsum("hid,hjd->hij", query.astype(np.int64), key.astype(np.int64))
    scores = np.clip(np.rint(products.astype(np.float32) * np.float32(scale)), -128, 127).astype(int)
    below = (scores.max(-1, keepdims=True) if step > STEEPEST else 127) - scores
    total = np.zeros(scores.shape[:2], np.float32)
    for position in range(scores.shape[2]):  # in the machine's order, as each sum is rounded
        total = total + exponentials(step)[below[:, :, position]]
    chances = np.minimum(np.rint(exponentials(step, 255)[below] / total[..., None]), 255).astype(np.int64)
    mixed = np.einsum("hij,hdj->hid", chances, value.astype(np.int64))
    return np.clip(np.rint(mixed.astype(np.float32) * np.float32(out_scale)), -128, 127).astype(np.int8)


@attention.cases
def _(rng):
    heads, n, m, d = (int(v) for v in rng.integers((1, 1, 1, 1), (4, 50, 70, 40)))
    shapes = (heads, n, d), (heads, m, d), (heads, d, m)
    return *(tile.Spec("int8", shape) for shape in shapes), {
        "rows": int(rng.integers(1, 20)),
        "lag": int(rng.integers(0, 4)),
        "copies": int(rng.integers(1, 3)),
        "step": float(rng.choice([0.01, 0.05, 0.5, 1.0])),
    }

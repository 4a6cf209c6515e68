# SPDX-License-Identifier: Apache-2.0
"""A dense layer whose weights have blocks of zeros, known when the kernel is built: these are neither loaded nor
multiplied. Blocks of an output that lie at equal distances are one instruction."""

import numpy as np

from tessera import tile


def progressions(places):
    """(first, step, count) of runs at equal distances that cover ascending numbers, the longest ones first taken."""
    found, at = [], 0
    while at < len(places):
        step = places[at + 1] - places[at] if at + 1 < len(places) else 1
        count = 1
        while at + count < len(places) and places[at + count] == places[at] + count * step:
            count += 1
        found.append((places[at], step, count))
        at += count
    return found


def kept_of(mask, shape, block, machine):
    """{(o, n): number in WGT} of the entries of weights that are not zero."""
    blocks = tuple(-(-extent // block) for extent in shape)
    if block % machine.block_out or block % machine.block_in:
        raise tile.KernelError(f"blocks of {block} are no whole entries of {machine.name}")
    if np.shape(mask) != blocks:
        raise tile.KernelError(f"weights of {shape} in blocks of {block} have a mask of {blocks}, not {np.shape(mask)}")
    entries = -(-shape[0] // machine.block_out), -(-shape[1] // machine.block_in)
    inside = lambda o, n: mask[o * machine.block_out // block][n * machine.block_in // block]
    return {place: number for number, place in enumerate(p for p in np.ndindex(*entries) if inside(*p))}


@tile.kernel
def sparse(k, a, b, *, mask, block=32, scale=0.01, rows=32):
    """a (m, n) and b (o, n), int8; the result (m, o). mask: for each `block` outputs a row with a number for each
    `block` inputs, 0 where this part of b counts as zeros. A step makes `rows` rows."""
    (m, n), o = a.shape, b.shape[0]
    ins, outs, rows = k.machine.block_in, k.machine.block_out, min(rows, m)
    kept = kept_of(mask, b.shape, block, k.machine)
    y = k.output("int8", (m, o))
    params, weights = k.param(0, scale), k.wgt(max(1, len(kept)), min(o, outs), min(n, ins))
    for (j, i), number in kept.items():
        part = b[j * outs : min(o, (j + 1) * outs), i * ins : min(n, (i + 1) * ins)]
        k.load(weights[number : number + 1], part.reshape(1, *part.shape))
    xs, sums = [k.inp(rows, n) for _ in range(2)], [k.acc(rows, o) for _ in range(2)]
    results = [k.out(rows, o) for _ in range(2)]
    firsts = range(0, m, rows)

    def multiply(step):
        x, s, count = xs[step % 2], sums[step % 2], min(rows, m - firsts[step])
        k.load(x[:count], a[firsts[step] : firsts[step] + count])
        for j in range(s.blocks):
            columns = [i for i in range(x.blocks) if (j, i) in kept]
            if not columns:
                k.fill(s[:count, j : j + 1])
            for first, apart, length in progressions(columns):
                r, c = k.axes(count, length)
                source = weights[kept[j, first] + c, 0, 0]
                k.dot(s[r, j], x[r, first + apart * c], source, over=[c], add=first != columns[0])

    def finish(step):
        s, result, count = sums[step % 2], results[step % 2], min(rows, m - firsts[step])
        r, j = k.axes(count, s.blocks)
        k.convert(result[r, j], s[r, j], params[0])
        k.store(y[firsts[step] : firsts[step] + count], result[:count])

    k.pipeline(range(len(firsts)), multiply, finish)
    return y


@sparse.reference
def _(a, b, *, mask, block=32, scale=0.01):
    dense = b.astype(np.int64)
    for j, i in np.argwhere(np.array(mask) == 0):
        dense[j * block : (j + 1) * block, i * block : (i + 1) * block] = 0
    sums = a.astype(np.int64) @ dense.T
    return np.clip(np.rint(sums.astype(np.float32) * np.float32(scale)), -128, 127).astype(np.int8)


@sparse.cases
def _(rng):
    m, n, o = (int(v) for v in rng.integers(1, (50, 200, 150)))
    mask = rng.random((-(-o // 32), -(-n // 32))) < rng.random()
    more = {"mask": tuple(tuple(int(v) for v in row) for row in mask), "rows": int(rng.integers(1, 40))}
    return tile.Spec("int8", (m, n)), tile.Spec("int8", (o, n)), more

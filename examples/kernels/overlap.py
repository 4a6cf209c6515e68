# SPDX-License-Identifier: Apache-2.0
"""The matrix that non-maximum suppression asks for: which boxes overlap by more than a part of their union, exactly.
Areas are products w h = f(w + h) - f(w - h) with f(u) = floor(u^2 / 4), which tables give in two digits of base 64; the
sums of digits are depthwise products of four taps in int32. There is no division:
intersection > p / q of the union where (p + q) intersection > p (one area + the other)."""

import numpy as np

from tessera import tile

BASE = 64
DIGITS = np.array([BASE, 1, -BASE, -1], np.int8)  # of f(w + h), f(w - h): high, low


def squares(signed):
    """Tables of the high and the low digit of floor(u^2 / 4), for u of 0 to 255 or -128 to 127."""
    u = np.arange(256)
    u = np.where(u < 128, u, u - 256) if signed else u
    return u**2 // 4 // BASE, u**2 // 4 % BASE


@tile.kernel
def overlap(k, boxes, *, threshold=(1, 2), rows=16):
    """boxes (n, 4), int8, with corners y1, x1, y2, x2 of 0 to 127; the result (n, n), uint8: 1 where the intersection
    is more than p / q of the union, for threshold (p, q) of small integers. A step makes `rows` rows."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    (n, _), lanes, (p, q) = boxes.shape, k.machine.block_out, threshold
    rows = min(rows, n)
    y = k.output("uint8", (n, n))
    plus, minus = (k.depthwise_weights(sign * DIGITS[:, None].repeat(lanes, 1)) for sign in (1, -1))
    choose = k.wgt(4, lanes, 4)
    k.load(choose, k.constant(np.eye(4, dtype=np.int8)[:, None].repeat(lanes, 1)))
    tables = [[k.table(digit) for digit in squares(signed)] for signed in (False, True)]
    corners = k.out(4, 1, n)  # of all boxes, along the lanes
    k.load(corners, boxes.permute(1, 0).reshape(4, 1, n))
    inputs, ones = [k.inp(rows, 4) for _ in range(2)], k.param(0, 1)
    own, own_low = k.acc(4, rows, lanes), k.out(2, rows, lanes)  # corners of a row's box, in all lanes
    inner, sides = k.out(2, rows, n), k.out(2, rows, n)
    shared, areas, others = (k.inp(4, *of, dtype="uint8") for of in ((rows, n), (rows, lanes), (1, n)))
    sums, results = k.acc(rows, n), [k.out(rows, n, dtype="uint8") for _ in range(2)]
    firsts = range(0, n, rows)

    def digits(maps, side, at):
        """Digits of f(w + h) and f(w - h) into four maps; at: (of a map, of a side) references."""
        for t, (sign, digit) in enumerate(((1, 0), (1, 1), (-1, 0), (-1, 1))):
            bounds = {"low": 0, "high": 255} if sign == 1 else {"low": -127, "high": 127}
            both = k.second("add", at(side, 1), ry=sign, table=tables[sign < 0][digit], **bounds)
            k.vector(at(maps, t), at(side, 0), second=both)

    def length(target, upper, lower):
        k.vector(target, upper, second=k.second("add", lower, ry=-1, low=0, high=127))

    def load(step):
        count = min(rows, n - firsts[step])
        k.load(inputs[step % 2][:count], boxes[firsts[step] : firsts[step] + count])

    def compute(step):
        count, result = min(rows, n - firsts[step]), results[step % 2]
        i, c = k.axes(count, 4)
        k.dot(own[c, i, 0], inputs[step % 2][i, 0], choose[c, 0, 0])
        i, j = k.axes(count, corners.blocks)
        for axis in (0, 1):
            k.vector(own_low[axis, i, 0], own[axis, i, 0])
            length(sides[axis, i, 0], own[axis + 2, i, 0], own_low[axis, i, 0])
        digits(areas, sides, lambda of, t: of[t, i, 0])
        for axis in (0, 1):
            k.vector(inner[0, i, j], own[axis, i, 0], second=k.second("max", corners[axis, 0, j]))
            k.vector(inner[1, i, j], own[axis + 2, i, 0], second=k.second("min", corners[axis + 2, 0, j]))
            length(sides[axis, i, j], inner[1, i, j], inner[0, i, j])
        digits(shared, sides, lambda of, t: of[t, i, j])
        t = k.axis(4)
        for number in range(p + q):
            k.depthwise(sums[i, j], shared[t, i, j], plus[0, 0], [t], add=number > 0)
        for _ in range(p):
            k.depthwise(sums[i, j], areas[t, i, 0], minus[0, 0], [t], add=True)
            k.depthwise(sums[i, j], others[t, 0, j], minus[0, 0], [t], add=True)
        k.convert(result[i, j], sums[i, j], ones[0], low=0, high=1)
        k.store(y[firsts[step] : firsts[step] + count], result[:count])

    j = k.axis(corners.blocks)
    for axis in (0, 1):
        length(sides[axis, 0, j], corners[axis + 2, 0, j], corners[axis, 0, j])
    digits(others, sides, lambda of, t: of[t, 0, j])
    k.pipeline(range(len(firsts)), load, compute)
    return y


@overlap.reference
def _(boxes, *, threshold=(1, 2)):
    low, high = boxes[:, :2].astype(int), boxes[:, 2:].astype(int)
    area = np.prod(np.maximum(high - low, 0), 1)
    both = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    shared = np.prod(np.maximum(both, 0), 2)
    p, q = threshold
    return (q * shared > p * (area[:, None] + area - shared)).astype(np.uint8)


@overlap.cases
def _(rng):
    n = int(rng.integers(1, 60))
    low = rng.integers(0, 127, (n, 2))
    boxes = np.concatenate([low, np.minimum(low + rng.integers(0, 60, (n, 2)), 127)], 1)
    thresholds = [(1, 2), (1, 3), (2, 3), (2, 5)]
    return boxes.astype(np.int8), {"threshold": thresholds[rng.integers(4)], "rows": int(rng.integers(1, 17))}

# SPDX-License-Identifier: Apache-2.0
"""Operators drawn at random: sums of products with any roles of their loops, windows, reductions, functions of
elements."""

import numpy as np

from tessera import tile


def tensor(rng, shape, constant=False, dtype=None):
    dtype = dtype or ("int8" if rng.random() < 0.7 else "uint8")
    limits = np.iinfo(dtype)
    array = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return tile.Constant(array) if constant else array


def shuffled(rng, items):
    items = list(items)
    rng.shuffle(items)
    return items


def contraction(rng):
    """(operator, tensors): each loop is a row, a column, of the batch or summed; axes stand in any order; axes of the
    data may be windows, joined axes or steps."""
    kinds = shuffled(rng, ["row"] * int(rng.integers(0, 3)) + ["column"] * int(rng.integers(0, 3)))
    kinds += ["inner"] * int(rng.integers(1, 3)) + ["batch"] * int(rng.integers(0, 2))
    windows = int(rng.integers(0, 3))
    extents = [int(rng.integers(1, 9)) for _ in kinds]
    constant, zero = rng.random() < 0.6, rng.random() < 0.3
    sizes = [
        (int(rng.integers(1, 6)), int(rng.integers(1, 4)), *(int(v) for v in rng.integers(1, 4, 2)))
        for _ in range(windows)
    ]
    pads = [int(rng.integers(0, 3)) if rng.random() < 0.5 else 0 for _ in sizes]
    if not any(kind != "inner" for kind in kinds) and not windows:
        kinds, extents = [*kinds, "row"], [*extents, 3]
    data_axes = [(kind, n) for n, kind in enumerate(kinds) if kind != "column"]
    data_axes += [("window", n) for n in range(windows)]
    other_axes = [(kind, n) for n, kind in enumerate(kinds) if kind != "row"] + [("tap", n) for n in range(windows)]
    data_axes, other_axes = shuffled(rng, data_axes), shuffled(rng, other_axes)
    if rng.random() < 0.3 and len(data_axes) > 1:  # two loops count one axis
        data_axes = (
            [("joined", *data_axes[:2]), *data_axes[2:]]
            if data_axes[0][0] != "window" != data_axes[1][0]
            else data_axes
        )
    step, offset = int(rng.integers(1, 3)), int(rng.integers(0, 2))

    def extent_of(axis):
        kind, *rest = axis
        if kind == "window":
            rows, taps, stride, dilation = sizes[rest[0]]
            return max(1, (rows - 1) * stride + (taps - 1) * dilation + 1 - 2 * pads[rest[0]]) + int(rest[0])
        if kind == "tap":
            return sizes[rest[0]][1]
        if kind == "joined":
            return extents[rest[0][1]] * extents[rest[1][1]]
        return (extents[rest[0]] - 1) * step + 1 + offset

    x = tensor(rng, [extent_of(axis) for axis in data_axes])
    w = tensor(rng, [extents[a[1]] if a[0] != "tap" else sizes[a[1]][1] for a in other_axes] or [1], constant)
    zero_point = int(rng.integers(0, 100)) if zero else 0
    result = shuffled(rng, [n for n, kind in enumerate(kinds) if kind != "inner"] + [("w", n) for n in range(windows)])
    scale = float(rng.choice([0.001, 0.01, 2.0**-7, 0.3]))
    kind = rng.choice(["int8", "uint8", "int32"])
    channels = constant and rng.random() < 0.5
    per_channel = {n: rng.integers(-999, 999, extents[n]) for n, kind in enumerate(kinds) if kind == "column"}

    @tile.operator
    def drawn(n, x, w):
        loops = [
            (n.reduce_axes if kind == "inner" else n.axes)(extent) for kind, extent in zip(kinds, extents, strict=True)
        ]
        rows = [n.axes(one[0]) for one in sizes]
        taps = [n.reduce_axes(one[1]) for one in sizes]

        def place(axis):
            kind, *rest = axis
            if kind == "window":
                _, _, stride, dilation = sizes[rest[0]]
                return rows[rest[0]] * stride + taps[rest[0]] * dilation - pads[rest[0]]
            if kind == "joined":
                return loops[rest[0][1]] * extents[rest[1][1]] + loops[rest[1][1]]
            return loops[rest[0]] * step + offset

        source = x.padded(zero_point if rng_pad else 7) if any(pads) else x
        one = source[tuple(place(axis) for axis in data_axes)]
        other = w[tuple(loops[a[1]] if a[0] != "tap" else taps[a[1]] for a in other_axes) or (0,)]
        over = [loop for loop in (*loops, *taps) if loop.reduced]
        total = n.sum((one - zero_point if zero_point else one) * other, over=over)
        if channels and per_channel:
            number, values = next(iter(per_channel.items()))
            total = total + n.constant(values)[loops[number]]
        order = [rows[one[1]] if isinstance(one, tuple) else loops[one] for one in result]
        if kind == "int32":
            return n.compute("int32", order, total)
        return n.compute(str(kind), order, n.requantise(total, scale, zero=3, dtype=str(kind)))

    rng_pad = rng.random() < 0.7
    return drawn, [x, w]


def window(rng):
    """(operator, tensors): the largest, the smallest or the sum over windows and whole axes."""
    kind = str(rng.choice(["max", "min", "sum"]))
    free = [int(v) for v in rng.integers(1, 9, int(rng.integers(0, 3)))]
    whole = [int(v) for v in rng.integers(1, 9, int(rng.integers(0, 2)))]
    sizes = [
        (int(rng.integers(1, 6)), int(rng.integers(1, 4)), *(int(v) for v in rng.integers(1, 4, 2)))
        for _ in range(int(rng.integers(0, 3)))
    ]
    if not free and not sizes:
        free = [4]
    pad = int(rng.choice([0, 0, -128, 5]))
    axes = shuffled(
        rng,
        [("free", n) for n in range(len(free))]
        + [("whole", n) for n in range(len(whole))]
        + [("window", n) for n in range(len(sizes))],
    )
    extent = {
        "free": lambda n: free[n],
        "whole": lambda n: whole[n],
        "window": lambda n: max(1, (sizes[n][0] - 1) * sizes[n][2] + (sizes[n][1] - 1) * sizes[n][3]),
    }
    x = tensor(rng, [extent[kind_](n) for kind_, n in axes], dtype="int8")
    result = shuffled(rng, [axis for axis in axes if axis[0] != "whole"])
    mapped = rng.random() < 0.3

    @tile.operator
    def drawn(n, x):
        loops = {("free", m): n.axes(e) for m, e in enumerate(free)}
        loops |= {("whole", m): n.reduce_axes(e) for m, e in enumerate(whole)}
        loops |= {("window", m): n.axes(one[0]) for m, one in enumerate(sizes)}
        taps = [n.reduce_axes(one[1]) for one in sizes]
        places = [
            loops[a] * sizes[a[1]][2] + taps[a[1]] * sizes[a[1]][3] if a[0] == "window" else loops[a] for a in axes
        ]
        body = x.padded(pad)[tuple(places)]
        if mapped:
            body = n.clip(body * 3 + 1, -100, 90)
        over = [*(loops[axis] for axis in axes if axis[0] == "whole"), *taps]
        found = getattr(n, kind)(body, over=over) if over else body
        if kind == "sum" and over:
            found = n.requantise(found, 0.21)
        elif not over:
            found = n.clip(found, -128, 100)
        return n.compute("int8", [loops[axis] for axis in result], found)

    return drawn, [x]


def elements(rng):
    """(operator, tensors): functions of the elements of up to three tensors, read in any order, some broadcast."""
    shape = [int(v) for v in rng.integers(1, 9, int(rng.integers(1, 4)))]
    count = int(rng.integers(1, 4))
    used = [[axis for axis in range(len(shape)) if rng.random() < 0.8] or [0] for _ in range(count)]
    used = [shuffled(rng, axes) for axes in used]
    used[0] = shuffled(rng, range(len(shape)))
    tensors = [
        tensor(rng, [shape[axis] for axis in axes], n > 0 and rng.random() < 0.3, "int8") for n, axes in enumerate(used)
    ]
    table = rng.integers(-128, 128, 256)
    picks = [int(v) for v in rng.integers(0, 14, 4)]
    scale = float(rng.choice([0.5, 0.25, 0.01, 1 / 3, 0.7]))

    @tile.operator
    def drawn(n, x, y=None, z=None):
        loops = [n.axes(extent) for extent in shape]
        leaves = [one[tuple(loops[axis] for axis in axes)] for one, axes in zip((x, y, z), used, strict=False)]

        def unary(value, pick):
            return [
                lambda: value,
                lambda: n.lookup(table, value),
                lambda: n.clip(value * 2 - 3, -128, 127),
                lambda: abs(n.clip(value, -127, 127)),
                lambda: n.where(value > 3, value, n.constant(np.array([-5]))[0]),
                lambda: n.requantise(value * value, scale / 64),
                lambda: value // 3,
                lambda: n.clip(value, -20, 50),
            ][pick % 8]()

        def join(a, b, pick):
            return [
                lambda: n.clip(a + b, -128, 127),
                lambda: n.requantise(a - b, scale),
                lambda: n.maximum(a, b),
                lambda: n.requantise(a * b, scale / 64, zero=2),
                lambda: n.minimum(a, n.clip(b, -50, 50)),
                lambda: n.requantise(a * 3 + b * 2 + 7, scale),
                lambda: n.clip(a + b * 2, -100, 100),
                lambda: n.requantise((a + 3) * (b - 5), scale / 64),
                lambda: n.where(a > b, a, b),
                lambda: n.where((a > 3) | (b < 5), a, -7),
                lambda: n.clip(a - b, -100, 100) * (a == b),
                lambda: n.where((a != b) & (a <= 90), loops[0], n.clip(b, -9, 9)),
                lambda: n.minimum(abs(a - b), 127),
                lambda: (a + b * 3) >> 2 if abs(scale) < 0.4 else (a - b) // 3,
            ][pick]()

        value = unary(leaves[0], picks[0])
        for number, leaf in enumerate(leaves[1:]):
            value = join(value, unary(leaf, picks[number]), picks[number + 1])
        return n.compute("int8", loops, n.clip(unary(value, picks[3]), -128, 127))

    drawn.inputs = drawn.inputs[:count]
    return drawn, tensors


def sums(rng):
    """(operator, tensors): sums of products, of squares, of distances and of windows, with constants of any size, added
    and subtracted; the largest ones and the absolute values of such; then a scale, a shift or a division."""
    rows, columns, inner, other = (int(v) for v in rng.integers(1, 9, 4))
    x, u = tensor(rng, (rows + 2, inner)), tensor(rng, (rows, other))
    y = tensor(rng, (columns, inner), rng.random() < 0.5)
    largest = int(rng.choice([20, 127, 255, 300, 900]))
    weights = rng.integers(-largest, largest + 1, (columns, inner))
    taps = rng.integers(-9, 10, (3, other))
    bias = rng.integers(-2000, 2000, columns)
    picks = [int(v) for v in rng.integers(0, 9, int(rng.integers(1, 4)))]
    signs = [int(v) for v in rng.choice([1, 1, -1, 2], len(picks))]
    around, last = (
        str(rng.choice(["none", "where", "abs", "each", "max"])),
        str(rng.choice(["scale", "shift", "divide"])),
    )
    divisor, addend = int(rng.integers(2, 3000)), int(rng.integers(-20, 20))

    @tile.operator
    def drawn(n, x, u, y):
        i, j = n.axes(rows, columns)
        k, m = n.reduce_axes(inner, other)
        d = n.reduce_axes(3)
        difference = x[i, k] - y[j, k]
        terms = [
            lambda: n.sum(x[i, k] * y[j, k], over=k),
            lambda: n.sum(x[i, k] * n.constant(weights)[j, k], over=k) + n.constant(bias)[j],
            lambda: n.sum(x[i + d, k] * n.constant(weights[:3])[(d * 2) % min(columns, 3), k], over=(d, k)),
            lambda: n.sum(u[i, m] * u[i, m], over=m),
            lambda: n.sum(difference * difference, over=k),
            lambda: n.sum(n.minimum(abs(difference), 200), over=k),
            lambda: n.sum((u[i, m] - 3) * n.constant(taps)[2, m], over=m) + u[i, 0],
            lambda: n.sum((x[i, k] - u[i, 0]) * (x[i, k] - u[i, 0]) + y[j, k], over=k),
            lambda: n.sum(n.where(n.value(k) == j, x[i, k], 0) * 3 + (k < j), over=(k, d)),
        ]
        parts = [terms[pick]() * sign for pick, sign in zip(picks, signs, strict=True)]
        if around == "each":
            parts = [abs(one) for one in parts]
        total = parts[0]
        for one in parts[1:]:
            total = n.maximum(total, one) if around == "max" else total + one
        total = abs(total) if around == "abs" else total
        if around == "where":
            total = n.where((u[i, 0] > 0) | (n.value(j) == 1), total, terms[picks[-1]]() - 20)
        if last == "scale":
            return n.compute("int8", (i, j), n.requantise(total, 1 / divisor, zero=addend))
        quotient = total >> int(np.log2(divisor)) if last == "shift" else total // divisor
        return n.compute("int8", (i, j), n.clip(quotient + addend, -128, 100))

    return drawn, [x, u, y]


KINDS = {"contraction": contraction, "window": window, "elements": elements, "sums": sums}

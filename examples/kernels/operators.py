# SPDX-License-Identifier: Apache-2.0
"""Operators by what one element of the result is: the compiler finds tiles, orders and transfers. Each is compared with
what it says, in NumPy, by `tessera kernel check examples/kernels/operators.py`."""

import numpy as np

from tessera import tile


def constant(rng, *shape):
    return tile.Constant(rng.integers(-128, 128, shape).astype(np.int8))


def results(extent, taps, stride, dilation, pad):
    """Results along an axis."""
    return (extent + 2 * pad - dilation * (taps - 1) - 1) // stride + 1


@tile.operator
def convolution(n, image, weights, *, stride=1, dilation=1, pad=0, groups=1, zero=0, scale=0.002):
    """image (n, h, w, groups * c) with zero point `zero`, weights (groups, o, taps, taps, c); the result is
    (n, h', w', groups, o)."""
    _, outputs, taps, _, inner = weights.shape
    h, w = (results(extent, taps, stride, dilation, pad) for extent in image.shape[1:3])
    b, i, j, g, o = n.axes(image.shape[0], h, w, groups, outputs)
    dy, dx, c = n.reduce_axes(taps, taps, inner)
    y, x = i * stride + dy * dilation - pad, j * stride + dx * dilation - pad
    products = (image.padded(zero)[b, y, x, g * inner + c] - zero) * weights[g, o, dy, dx, c]
    return n.compute("int8", (b, i, j, g, o), n.requantise(n.sum(products, over=(dy, dx, c)), scale))


@convolution.cases
def _(rng):
    taps, stride, dilation, groups = (int(v) for v in rng.integers(1, (4, 4, 3, 4)))
    pad, reach = int(rng.integers(0, taps)), dilation * (taps - 1) + 1
    b, h, w, c, o = (int(v) for v in rng.integers(1, (3, 9, 9, 20, 20)))
    numbers = {"stride": stride, "dilation": dilation, "pad": pad, "groups": groups, "zero": int(rng.integers(-9, 9))}
    return tile.Spec("int8", (b, h + reach, w + reach, groups * c)), constant(rng, groups, o, taps, taps, c), numbers


@tile.operator
def convolution3d(n, image, weights, *, scale=0.002):
    """image (d, h, w, c), weights (o, 3 axes of taps, c): the machine has windows of two axes, the third is copied."""
    outputs, kd, kh, kw, inner = weights.shape
    z, i, j, o = n.axes(*(e - k + 1 for e, k in zip(image.shape[:3], (kd, kh, kw), strict=True)), outputs)
    dz, dy, dx, c = n.reduce_axes(kd, kh, kw, inner)
    total = n.sum(image[z + dz, i + dy, j + dx, c] * weights[o, dz, dy, dx, c], over=(dz, dy, dx, c))
    return n.compute("int8", (z, i, j, o), n.requantise(total, scale))


@convolution3d.cases
def _(rng):
    kd, kh, kw, c, o = (int(v) for v in rng.integers(1, (4, 4, 4, 10, 20)))
    d, h, w = (int(v) for v in rng.integers(4, 9, 3))
    return tile.Spec("int8", (d, h, w, c)), constant(rng, o, kd, kh, kw, c)


@tile.operator
def correlation(n, one, other, *, reach=1, scale=0.01):
    """How alike the pixels of two images (h, w, c) are, for each displacement by at most `reach`. Both come at run
    time."""
    h, w, channels = one.shape
    i, j, dy, dx = n.axes(h, w, 2 * reach + 1, 2 * reach + 1)
    c = n.reduce_axes(channels)
    total = n.sum(one[i, j, c] * other.padded(0)[i + dy - reach, j + dx - reach, c], over=c)
    return n.compute("int8", (i, j, dy, dx), n.requantise(total, scale))


@correlation.cases
def _(rng):
    shape = tuple(int(v) for v in rng.integers(1, (9, 9, 30)))
    return tile.Spec("int8", shape), tile.Spec("int8", shape), {"reach": int(rng.integers(0, 3))}


@tile.operator
def enlarge(n, image, *, factor=2):
    """Bilinear resize of (h, w, c) by a whole factor, corners on corners: first along columns, then along rows, each
    rounded once. A result is two pixels times their distances."""
    h, w, channels = image.shape
    i, j, c = n.axes((h - 1) * factor + 1, (w - 1) * factor + 1, channels)
    column = n.axes(w)
    source = image.padded(0)  # what lies behind the last pixel has a weight of 0
    below, right = n.constant(np.arange(i.extent) % factor), n.constant(np.arange(j.extent) % factor)
    pair = source[i // factor, column, c] * (factor - below[i]) + source[i // factor + 1, column, c] * below[i]
    tall = n.compute("int8", (i, column, c), n.requantise(pair, 1 / factor)).padded(0)
    pair = tall[i, j // factor, c] * (factor - right[j]) + tall[i, j // factor + 1, c] * right[j]
    return n.compute("int8", (i, j, c), n.requantise(pair, 1 / factor))


@enlarge.cases
def _(rng):
    return tile.Spec("int8", tuple(int(v) for v in rng.integers(1, (7, 7, 20)))), {"factor": int(rng.integers(2, 4))}

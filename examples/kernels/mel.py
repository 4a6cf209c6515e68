# SPDX-License-Identifier: Apache-2.0
"""The front end of speech: frames of samples, their Fourier transform by products, squares, mel bands, logarithms.
Frames overlap in DRAM and are copied nowhere. The window stands in the matrix of the transform."""

import numpy as np

from tessera import tile


def transform(size, bins):
    """(2 bins, size): cosines and sines of the bins, under a Hann window, in 1/127."""
    angle = 2 * np.pi * np.outer(np.arange(bins), np.arange(size)) / size
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    return np.rint(127 * window * np.concatenate([np.cos(angle), np.sin(angle)])).astype(np.int8)


def bands(count, bins, size, rate):
    """(count, 2 bins): triangles between frequencies that are equally far apart in mel, in 1/127, for both halves."""
    mel = lambda hertz: 2595 * np.log10(1 + hertz / 700)
    edges = np.linspace(0, mel(rate / 2), count + 2)
    at = mel(np.arange(bins) * rate / size)
    rise, fall = (
        (at - edges[k : k + count, None]) / (edges[k + 1 : k + 1 + count, None] - edges[k : k + count, None])
        for k in (0, 1)
    )
    return np.tile(np.rint(127 * np.clip(np.minimum(rise, 1 - fall), 0, 1)), 2).astype(np.int8)


def logarithms():
    """Of 0 to 255: 16 log2(1 + x), up to 127."""
    return np.minimum(np.rint(16 * np.log2(1 + np.arange(256))), 127).astype(int)


@tile.kernel
def mel(k, samples, *, size=256, hop=128, count=40, rate=16000, gain=0.0008, rows=16):
    """samples (1, t), int8; the result (frames, count), int8: 16 log2(1 + e) of the energies e in `count` bands between
    0 and rate / 2. A frame has `size` samples, and one begins every `hop`. `gain` is that of the transform's
    rounding."""
    if k.machine.block_in != k.machine.block_out:
        raise tile.KernelError(f"{k.machine.name}: this kernel is for machines whose BLOCK_IN equals BLOCK_OUT")
    frames, bins = samples.unfold(1, size, hop)[0], size // 2 + 1
    total = frames.shape[0]
    rows = min(rows, total)
    y = k.output("int8", (total, count))
    matrix, filters = k.constant(transform(size, bins)), k.constant(bands(count, bins, size, rate))
    to_bin, to_band, log = k.param(0, gain), k.param(0, 1 / 127), k.table(logarithms())
    waves, sieve = k.wgt(2 * bins, size), k.wgt(count, 2 * bins)
    k.load(waves, matrix)
    k.load(sieve, filters)
    x, s = [k.inp(rows, size) for _ in range(2)], [k.acc(rows, 2 * bins) for _ in range(2)]
    f, squares, e = k.out(rows, 2 * bins), k.inp(rows, 2 * bins, dtype="uint8"), k.acc(rows, count)
    results = [k.out(rows, count) for _ in range(2)]
    firsts = range(0, total, rows)

    def analyse(step):
        number = min(rows, total - firsts[step])
        k.load(x[step % 2][:number], frames[firsts[step] : firsts[step] + number])
        i, j, n = k.axes(number, s[0].blocks, x[0].blocks)
        k.dot(s[step % 2][i, j], x[step % 2][i, n], waves[j, n], over=[n])

    def gather(step):
        number, result = min(rows, total - firsts[step]), results[step % 2]
        i, j = k.axes(number, f.blocks)
        k.convert(f[i, j], s[step % 2][i, j], to_bin[0])
        square = k.second("mul", f[i, j], rx=1 / 64, low=0, high=255)
        k.vector(squares[i, j], f[i, j], low=-128, high=127, second=square)
        i, j, n = k.axes(number, e.blocks, squares.blocks)
        k.dot(e[i, j], squares[i, n], sieve[j, n], over=[n])
        k.convert(result[i, j], e[i, j], to_band[0], low=0, high=255, table=log)
        k.store(y[firsts[step] : firsts[step] + number], result[:number])

    k.pipeline(range(len(firsts)), analyse, gather)
    return y


@mel.reference
def _(samples, *, size=256, hop=128, count=40, rate=16000, gain=0.0008):
    bins = size // 2 + 1
    frames = np.lib.stride_tricks.sliding_window_view(samples[0].astype(np.int64), size)[::hop]
    scaled = (frames @ transform(size, bins).T.astype(np.int64)).astype(np.float32) * np.float32(gain)
    squares = np.minimum(np.rint(np.clip(np.rint(scaled), -128, 127) ** 2 / 64), 255).astype(np.int64)
    energy = squares @ bands(count, bins, size, rate).T.astype(np.int64)
    energy = np.clip(np.rint(energy.astype(np.float32) * np.float32(1 / 127)), 0, 255).astype(int)
    return logarithms()[energy].astype(np.int8)


@mel.cases
def _(rng):
    size, hop, count = int(rng.choice([32, 50, 64, 100])), int(rng.integers(1, 80)), int(rng.integers(1, 30))
    samples = tile.Spec("int8", (1, size + int(rng.integers(0, 900))))
    more = {
        "size": size,
        "hop": hop,
        "count": count,
        "gain": float(rng.choice([0.001, 0.01])),
        "rows": int(rng.integers(1, 20)),
    }
    return samples, more

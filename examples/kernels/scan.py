# SPDX-License-Identifier: Apache-2.0
"""A recurrence along time with decays that depend on the data, as in the selective scan of state-space models (Mamba):
h[t] = decay[t] * h[t - 1] + drive[t] for each channel and state, y[t] = the sum over states of mix[t] * h[t]."""

import numpy as np

from tessera import tile


@tile.kernel
def scan(k, decay, drive, mix, *, steps=8, channels=32):
    """decay (t, states, c), uint8 in 1/256; drive (t, states, c), int8; mix (t, states), int8 in 1/128; the result
    (t, c), int8. The state is int8, rounded in each step, and begins with 0. Channels go in parts of `channels`, whose
    states stay on the chip; `steps` of time are loaded together, and their results are made together."""
    times, states, c = decay.shape
    lanes = k.machine.block_out
    channels, steps = min(c, -(-channels // lanes) * lanes), min(steps, times)
    y = k.output("int8", (times, c))
    one, choose = k.param(0, 1), k.wgt(states, lanes, states)
    k.load(choose, k.constant(np.eye(states, dtype=np.int8)[:, None].repeat(lanes, 1)))
    for first in range(0, c, channels):
        with k.scope():
            part = slice(first, min(c, first + channels))
            wide = part.stop - part.start
            a, u = [[k.out(steps, states, wide, dtype=d) for _ in range(2)] for d in ("uint8", "int8")]
            rows, spread = [k.inp(steps, states) for _ in range(2)], [k.acc(steps, states, lanes) for _ in range(2)]
            m = k.out(steps, states, lanes)  # the same number in all lanes, as products with ones make it
            h, p = k.out(steps + 1, states, wide), k.out(states, wide)
            weighed, result = k.out(steps, states, wide), k.out(steps, wide)
            k.fill(h[steps : steps + 1])
            begins = range(0, times, steps)

            def load(step, part=part, a=a, u=u, rows=rows, spread=spread, begins=begins):
                span, count = slice(begins[step], min(times, begins[step] + steps)), min(steps, times - begins[step])
                k.load(a[step % 2][:count], decay[span, :, part])
                k.load(u[step % 2][:count], drive[span, :, part])
                x, s = rows[step % 2], spread[step % 2]
                k.load(x[:count], mix[span])
                t, n, b = k.axes(count, states, x.blocks)
                k.dot(s[t, n, 0], x[t, b], choose[n, 0, b], over=[b])

            def compute(
                step, part=part, a=a, u=u, spread=spread, m=m, h=h, p=p, weighed=weighed, result=result, begins=begins
            ):
                count, now = min(steps, times - begins[step]), step % 2
                for t in range(count):  # the state of step t stands in entry t, the last one's in entry `steps`
                    n, j = p.axes()
                    before = h[steps if t == 0 else t - 1, n, j]
                    times_decay = k.second("mul", before, x=(0, 255), rx=1 / 256)
                    k.vector(p[n, j], a[now][t, n, j], low=0, high=255, second=times_decay)
                    k.vector(h[t, n, j], u[now][t, n, j], second=k.second("add", p[n, j]))
                n, j = p.axes()
                k.vector(h[steps, n, j], h[count - 1, n, j])
                t, n, j = k.axes(count, states, p.blocks)
                k.vector(m[t, n, 0], spread[now][t, n, 0])
                by = k.second("mul", m[t, n, 0], rx=1 / 128)
                k.vector(weighed[t, n, j], h[t, n, j], second=by)
                t, j, n = k.axes(count, p.blocks, states)
                k.pool(result[t, j], weighed[t, n, j], [n], "sum", params=one[0])
                k.store(y[begins[step] : begins[step] + count, part], result[:count])

            k.pipeline(range(len(begins)), load, compute)
    return y


@scan.reference
def _(decay, drive, mix):
    state = np.zeros(decay.shape[1:], np.int64)
    results = []
    for a, u, m in zip(decay.astype(np.int64), drive.astype(np.int64), mix.astype(np.int64), strict=True):
        faded = np.rint(a * state / 256)
        state = np.clip(faded + u, -128, 127).astype(np.int64)
        results.append(np.clip(np.clip(np.rint(state * m[:, None] / 128), -128, 127).sum(0), -128, 127))
    return np.array(results).astype(np.int8)


@scan.cases
def _(rng):
    times, states, c = (int(v) for v in rng.integers(1, (30, 9, 50)))
    more = {"steps": int(rng.integers(1, 10)), "channels": int(rng.integers(1, 50))}
    shape = (times, states, c)
    return tile.Spec("uint8", shape), tile.Spec("int8", shape), tile.Spec("int8", (times, states)), more

# SPDX-License-Identifier: Apache-2.0
"""Whether a function of two bytes is a second operation of the vector unit: fma(x, rx, fma(y, ry, f)), or (x - zx) * (y
- zy) * rx + f, or the larger or the smaller of two tables, rounded and clamped (isa/semantics.md). The compiler looks
again and proves it; here it is asked so that something else can be tried."""

import numpy as np

from tessera import _tessera

STEPS = (0, 1, -1, 2, -2, 3, -3)  # units of the last place


def float32(values):
    return np.asarray(values, np.float32)


def fma(a, b, c):
    """Exact in fp64 but for sums of very different size; the compiler's proof decides."""
    return float32(np.asarray(a, np.float64) * np.float64(b) + np.asarray(c, np.float64))


def moved(value, steps):
    value = float32(value)
    return value if value == 0 else (value.view(np.int32) + np.int32(steps)).view(np.float32)


def applied(form, x, y):
    if form["kind"] == "mul":
        scaled = float32((x - form["zx"]) * (y - form["zy"])) * float32(form["rx"])
        found = float32(scaled + float32(form.get("f", 0)))
    else:
        found = fma(x, float32(form["rx"]), fma(y, float32(form["ry"]), float32(form["f"])))
    return np.rint(np.clip(found, form["low"], form["high"])).astype(np.int64) + form["zero"]


def extreme(wanted, smaller):
    """Whether it is the larger (smaller) of a function of x and one of y."""
    better, worse = (np.minimum, np.maximum) if smaller else (np.maximum, np.minimum)
    return (better(worse.reduce(wanted, 1)[:, None], worse.reduce(wanted, 0)[None, :]) == wanted).all()


def fits_machine(form, wanted, x, y, inside_x, inside_y):
    """(form, results) where the vector unit has the function, else None. wanted: (256, 256) results by the bits of x
    and y, which have these values; those that are not inside never come, and their results are the machine's."""
    if form["kind"] in ("max", "min"):
        near = [np.abs(one[:, None] - one[inside][None, :]).argmin(1) for one, inside in ((x, inside_x), (y, inside_y))]
        wanted = wanted[np.flatnonzero(inside_x)[near[0]]][:, np.flatnonzero(inside_y)[near[1]]]
        return (form, wanted) if extreme(wanted, form["kind"] == "min") else None
    grid = np.broadcast_arrays(x[:, None], y[None, :])
    places = np.flatnonzero(inside_x[:, None] & inside_y[None, :])
    first, second, results = (one.reshape(-1)[places] for one in (*grid, wanted))
    hard = np.unique(np.linspace(0, places.size - 1, 256).astype(np.int64))
    names = ("f", "rx", "ry")
    for number in range(343):
        steps = (STEPS[number % 7], STEPS[number // 7 % 7], STEPS[number // 49])
        tried = form | {name: float(moved(form.get(name, 0), by)) for name, by in zip(names, steps, strict=True)}
        if not (applied(tried, first[hard], second[hard]) == results[hard]).all():
            continue
        wrong = np.flatnonzero(applied(tried, first, second) != results)
        if not wrong.size:
            whole = applied(tried, *grid)
            return (tried, whole) if held(tried, x, y) else None
        if hard.size > 512:
            return None
        hard = np.append(hard, wrong[:4])
    return None


def held(form, x, y):
    """Whether 48 bits hold its constants."""
    numbers = {name: float(value) for name, value in form.items() if name != "kind"}
    ends = [(int(one.min()), int(one.max())) for one in (x, y)]
    return _tessera.second_constants(form["kind"], numbers, *ends) is not None

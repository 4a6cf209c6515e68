# SPDX-License-Identifier: Apache-2.0
"""What Tessera gives for a file beside what LiteRT's kernels give.

Classes: "exact" is equal in every bit of every element to the kernel that CLASSES names; "close" is real arithmetic,
compared within a tolerance; "step" is a quantised result of which single elements may lie one step beside; "chance"
compares type and shape."""

import numpy as np

import tessera

TOLERANCE = 2e-5  # of the largest magnitude


def kind_of(dtype):
    return "real" if np.dtype(dtype).kind in "fc" else "integer"


def difference(got, want, kind):
    """"" where `got` is `want` by the class `kind`, else what differs."""
    if got.dtype != want.dtype:
        return f"{got.dtype} instead of {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if kind == "chance" or np.array_equal(got, want, equal_nan=want.dtype.kind in "fc"):
        return ""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(wide) - want.astype(wide))
    error = np.where((got == want) | ((got != got) & (want != want)), 0, error)
    text = f"{np.count_nonzero(error)} of {error.size} elements differ, by {error.max()} at most"
    if kind == "step" and want.dtype.kind in "iu" and error.max() <= 1:
        return ""
    if kind == "close":
        with np.errstate(invalid="ignore"):
            most = max(1e-3, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
        if error.max() <= TOLERANCE * most:
            return ""
    return text


def run(data, feeds, device="reference", **options):
    """Results in the order of the file."""
    session = tessera.Session(data, device, **options)
    return session.run(None, {port.name: feed for port, feed in zip(session.get_inputs(), feeds, strict=True)})


def compare(case, kind, device="reference", **options):
    """"" or what differs from the first of the case's runs whose kernels are allowed."""
    got = run(case.data, case.feeds, device, **options)
    texts = []
    for kernels, wanted in case.runs.items():
        found = [difference(g, w, kind) for g, w in zip(got, wanted.outputs, strict=True)]
        texts.append(f"{kernels}: " + "; ".join(text for text in found if text))
        if not any(found):
            return ""
    return " | ".join(texts)

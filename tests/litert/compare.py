# SPDX-License-Identifier: Apache-2.0
"""What Tessera gives for a file beside what LiteRT's kernels give, by the classes of classes.py."""

import numpy as np

import tessera

TOLERANCE = 2e-5  # of the largest magnitude
STEPS = 12


def difference(got, want, kind, tolerance=TOLERANCE):
    """ "" where `got` is `want` by the class `kind`, else what differs."""
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
        most = max(1e-3, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
    if want.dtype.kind in "iu" and error.max() <= {"step": 1, "steps": STEPS}.get(kind, 0):
        return ""
    limit = (tolerance if kind == "tolerance" else 0) * most
    if want.dtype.kind in "fc" and error.max() <= limit:
        return ""
    return f"{np.count_nonzero(error)} of {error.size} elements differ, by {error.max()} at most"


def run(data, feeds, device="reference", **options):
    """Results in the order of the file."""
    session = tessera.Session(data, device, **options)
    return session.run(None, {port.name: feed for port, feed in zip(session.get_inputs(), feeds, strict=True)})


def oracle_of(case):
    """The kernels that a file is compared with: what an Interpreter runs that is asked for nothing."""
    return "default" if "default" in case.runs else next(iter(case.runs))


def compare(case, kind, device="reference", tolerance=TOLERANCE, kernels=None, **options):
    """ "" or what differs from `kernels`, the default's where they are None. A tolerance is kept with any of
    them, as they differ among themselves."""
    try:
        got = run(case.data, case.feeds, device, **options)
    except tessera.Error as error:
        text = str(error)
        if kind == "refused" and "\n" not in text:
            return ""
        return f"refused: {text}"
    if kind == "refused":
        return "runs, though its class is 'refused'"
    texts = []
    for name in [kernels or oracle_of(case), *(case.runs if kind == "tolerance" else ())]:
        wanted = case.runs[name].outputs
        found = [difference(g, w, kind, tolerance) for g, w in zip(got, wanted, strict=True)]
        if not any(found):
            return ""
        texts.append(f"{name}: " + "; ".join(text for text in found if text))
    return " | ".join(texts)

# SPDX-License-Identifier: Apache-2.0
"""One node in the operator library beside the same node in ONNX Runtime; every element must be equal (NaN equals
NaN)."""

from __future__ import annotations

import os

import numpy as np

from tests.oracle import oracle

MS = "com.microsoft"
LONG = os.environ.get("TESSERA_LONG", "") not in ("", "0")


def library():
    import _tessera_ops

    return _tessera_ops


def differing(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Boolean mask of elements that differ; type and shape must agree."""
    assert actual.dtype == expected.dtype, f"element type {actual.dtype}, the oracle says {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, the oracle says {expected.shape}"
    if expected.dtype.kind in "fc" or expected.dtype.kind == "V":
        return ~((expected == actual) | ((expected != expected) & (actual != actual)))
    return expected != actual


def check_node(op_type, inputs, *, domain="", opset=13, attributes=None, output_count=1, constants=None) -> int:
    """Fails with the first differing elements unless all are equal; returns how many were compared. Inference must
    agree too."""
    attributes = attributes or {}
    expected = oracle.run_node(
        op_type,
        inputs,
        domain=domain,
        opset=opset,
        attributes=attributes,
        output_count=output_count,
        constants=constants,
    )
    version = 1 if domain else opset
    actual = library().run_node(op_type, domain, version, attributes, list(inputs), output_count)
    inferred = library().infer_node(op_type, domain, version, attributes, list(inputs), output_count)
    count = 0
    for want, got, (dtype, shape, _, _) in zip(expected, actual, inferred):
        bad = differing(want, got)
        if bad.any():
            at = [tuple(int(k) for k in index) for index in np.argwhere(bad)[:5]]
            lines = [f"{index}: oracle {want[index]}, library {got[index]}" for index in at]
            shapes = [None if x is None else np.shape(x) for x in inputs]
            raise AssertionError(
                f"{op_type}: {bad.sum()} of {bad.size} elements differ; inputs {shapes}, {attributes}\n"
                + "\n".join(lines)
            )
        assert dtype == got.dtype.name and tuple(shape) == got.shape, (
            f"inferred {dtype}{shape}, evaluated {got.dtype}{got.shape}"
        )
        count += got.size
    return count


# --- random quantised values
# -----------------------------------------------------------------------------------------------------


def any_zero(rng, dtype) -> np.ndarray:
    """A zero point: often at an end of the range or at its middle."""
    info = np.iinfo(dtype)
    middle = 0 if info.min < 0 else (info.max + 1) // 2
    return np.array(rng.choice([info.min, info.max, middle, int(rng.integers(info.min, info.max + 1))]), dtype)


def any_scale(rng, shape=(), low=-6.0, high=-2.0) -> np.ndarray:
    """Scales: dyadic ones (which make ties) in two cases of five, else log-uniform."""
    if rng.random() < 0.4:
        return (2.0 ** rng.integers(-8, -2, shape)).astype(np.float32)
    return np.exp(rng.uniform(low, high, shape)).astype(np.float32)


def any_tensor(rng, dtype, shape) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


PRODUCT_TYPES = [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)]

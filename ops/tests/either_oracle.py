# SPDX-License-Identifier: Apache-2.0
"""check_either(): ONNX Runtime as the oracle, or the onnx reference evaluator where ONNX Runtime has no kernel for
the element type or version (NOT_IMPLEMENTED, or a schema that its build does not know). Which of the two served
is returned, so that a test can insist.
"""

import numpy as np
import onnx.reference  # noqa: F401  (ort_compare.run_reference uses it)
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state
from ort_compare import check, run_reference

MISSING = (ort_state.NotImplemented, ort_state.InvalidGraph, ort_state.Fail)

FLOATS = ["float32", "float64", "float16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

# Tolerances of results that are not correctly rounded on one of the two sides, by element type.
TOLERANCE = {"float16": 2e-3, "float32": 4e-6, "float64": 1e-11, "bfloat16": 2e-2}


def values(rng, shape, dtype, low=-4.0, high=4.0):
    """Random elements of any type; integers in [low, high], clipped at 0 for unsigned types."""
    if dtype == "string":
        return np.array([f"s{v}" for v in rng.integers(0, 5, shape).ravel()], dtype=object).reshape(shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else int(low), int(high) + 1, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def check_either(op, inputs, **keywords):
    """ort_compare.check with the first oracle that serves the node; returns (results, name of the oracle)."""
    try:
        return check(op, inputs, oracle="ort", **keywords), "ort"
    except MISSING:
        return check(op, inputs, oracle="reference", **keywords), "reference"


def reference(op, inputs, **keywords):
    return run_reference(op, [None if v is None else np.asarray(v) for v in inputs], **keywords)

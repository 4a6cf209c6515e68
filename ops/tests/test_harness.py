# SPDX-License-Identifier: Apache-2.0
"""The comparison itself: wrong values, shapes and dtypes are found; unknown operators and attributes are rejected."""

import _tessera_ops
import numpy as np
import pytest
from ort_compare import assert_same, run_ort


def test_differences_are_found():
    one = np.array([1.0, 2.0], np.float32)
    assert_same(one, one.copy(), "same")
    assert_same(np.array([np.nan], np.float32), np.array([np.nan], np.float32), "nan")
    with pytest.raises(AssertionError, match="values differ"):
        assert_same(one, np.array([1.0, np.nextafter(np.float32(2), np.float32(3))], np.float32), "one ulp")
    with pytest.raises(AssertionError, match="dtype"):
        assert_same(one, one.astype(np.float64), "dtype")
    with pytest.raises(AssertionError, match="shape"):
        assert_same(one, one.reshape(2, 1), "shape")
    with pytest.raises(AssertionError):
        assert_same(one, np.array([1.0, 2.1], np.float32), "tolerance", rtol=1e-3)
    assert_same(one, np.array([1.0, 2.001], np.float32), "tolerance", rtol=1e-3)


def test_oracle_runs():
    x = np.array([-1.0, 2.0], np.float32)
    np.testing.assert_array_equal(run_ort("Relu", [x])[0], [0.0, 2.0])


def test_unknown_operator_is_named():
    with pytest.raises(_tessera_ops.TesseraError, match=r"node 'n' \(NoSuchThing\).*opset 17") as caught:
        _tessera_ops.run_node("NoSuchThing", "", 17, {}, [], 1)
    assert caught.value.code == "unsupported"

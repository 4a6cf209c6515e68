# SPDX-License-Identifier: Apache-2.0
"""OneHot, TopK, NonZero, Unique and Compress beside ONNX Runtime (the reference evaluator where it has no kernel)."""

import numpy as np
import pytest
from either_oracle import check_either, values
from ort_compare import check, check_rejected, infer, run_tessera


def data(shape, dtype="float32", seed=1, low=-4, high=4):
    return values(np.random.default_rng(seed), shape, dtype, low, high)


@pytest.mark.parametrize("index_type", ["int64", "int32", "float32"])
@pytest.mark.parametrize("value_type", ["float32", "int64", "int32"])
def test_one_hot(index_type, value_type):
    on_off = np.array([2, 5], value_type)
    for shape in [(3,), (2, 3), ()]:
        i = data(shape, "int64", low=-7, high=7).astype(index_type)
        for axis in range(-len(shape) - 1, len(shape) + 1):
            for depth in [np.array(6, index_type), np.array([4], index_type)]:
                # The reference evaluator wraps indices outside [-depth, depth); the standard
                # and ONNX Runtime leave them off.
                d, whole = int(depth.ravel()[0]), np.asarray(i).astype(np.int64)
                place = axis if axis >= 0 else axis + len(shape) + 1
                hit = np.expand_dims(np.where(whole < 0, whole + d, whole), place) == np.arange(d).reshape(
                    [-1 if k == place else 1 for k in range(len(shape) + 1)]
                )
                for opset in [9, 11]:
                    check(
                        "OneHot",
                        [i, depth, on_off],
                        opset=opset,
                        attributes={"axis": axis},
                        expected=[np.where(hit, on_off[1], on_off[0])],
                    )
                    if index_type == "int64" and value_type != "int32" and shape:  # all that ONNX Runtime serves
                        check("OneHot", [i, depth, on_off], opset=opset, attributes={"axis": axis})
    check(
        "OneHot",
        [np.array([0, 2], np.int64), np.int64(3), np.array([False, True])],
        opset=11,
        expected=[np.eye(3, dtype=bool)[[0, 2]]],
    )
    check_rejected("OneHot", [np.array([0], np.int64), np.array(0, np.int64), on_off], match="depth")
    check_rejected("OneHot", [np.array([0], np.int64), np.array(2, np.int64), np.zeros(3, value_type)], match="two")
    assert infer("OneHot", [("int64", [2, -1]), ("int64", []), ("float32", [2])])[0][1] == [2, -1, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "float16", "int8", "uint8"])
def test_top_k(dtype):
    for shape in [(3, 7), (2, 5, 4), (6,)]:
        x = np.round(data(shape, dtype)).astype(dtype)  # many ties
        for axis in range(-len(shape), len(shape)):
            for k in [0, 1, 3, shape[axis]]:
                if k > shape[axis]:
                    continue
                for largest in [0, 1]:
                    check_either(
                        "TopK",
                        [x, np.array([k], np.int64)],
                        opset=11,
                        attributes={"axis": axis, "largest": largest},
                        outputs=2,
                    )
        if dtype in ("float32", "float64"):
            check("TopK", [x, np.array([2], np.int64)], opset=10, outputs=2)
            check("TopK", [x], opset=9, attributes={"k": 2}, outputs=2)
    check_rejected("TopK", [np.zeros(3, dtype), np.array([4], np.int64)], opset=11, outputs=2, match="exceeds")
    check_rejected("TopK", [np.zeros(3, dtype), np.array([-1], np.int64)], opset=11, outputs=2, match="negative")
    assert infer("TopK", [(dtype, [2, -1]), ("int64", [1])], opset=11, outputs=2)[1][:2] == ("int64", [2, -1])


def test_top_k_unsorted_and_nan():
    x = np.array([3, np.nan, 1, np.inf], np.float32)
    _top, where = run_tessera("TopK", [x, np.array([2], np.int64)], opset=11, outputs=2)
    assert where.tolist() == [1, 3]
    _top, where = run_tessera(
        "TopK", [x, np.array([2], np.int64)], opset=11, attributes={"largest": 0, "sorted": 0}, outputs=2
    )
    assert sorted(where.tolist()) == [0, 2]


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8", "bool", "float16", "int8"])
def test_non_zero(dtype):
    for shape in [(3, 4), (7,), (2, 3, 2), (0, 3), (1,)]:
        x = np.round(data(shape, dtype, low=-1, high=1) if dtype != "bool" else data(shape, dtype)).astype(dtype)
        for opset in [9, 13]:
            check_either("NonZero", [x], opset=opset, static=False)
    if dtype == "float32":
        for v in (0.0, 2.0):
            check("NonZero", [np.array(v, np.float32)], opset=13, static=False)
    assert infer("NonZero", [(dtype, [2, 3])])[0][1] == [2, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "string", "bool", "float16", "uint8"])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(dtype, ordered):
    for shape in [(9,), (3, 4), (4, 2, 3), (1,)]:
        x = data(shape, dtype, low=-1, high=1)
        x = x if dtype in ("string", "bool") else np.round(x).astype(dtype)
        for axis in [None] + list(range(-len(shape), len(shape))):
            expected = None
            if dtype in (
                "bool",
                "uint8",
                "float16",
            ):  # no kernel in ONNX Runtime; unsorted has none in the reference evaluator
                y, first, inverse, counts = np.unique(
                    x, return_index=True, return_inverse=True, return_counts=True, axis=axis
                )
                order = np.argsort(first) if not ordered else np.arange(len(first))
                expected = [
                    np.take(y, order, axis or 0),
                    first[order],
                    np.argsort(order)[inverse.ravel()],
                    counts[order],
                ]
            check(
                "Unique",
                [x],
                opset=11,
                attributes={"axis": axis, "sorted": ordered},
                outputs=4,
                static=False,
                expected=expected,
            )


def test_unique_optional_outputs_and_nan():
    x = np.array([3, 1, 3, 2], np.int64)
    check("Unique", [x], outputs=[True, False, True], static=False)
    check("Unique", [x], outputs=[True, False, False, True], static=False)
    nan = np.array([np.nan, 1, np.nan, 0], np.float32)
    _result, first, _inverse, counts = run_tessera("Unique", [nan], outputs=4)
    assert counts.tolist() == [1, 1, 2] and first.tolist() == [3, 1, 0]
    assert run_tessera("Unique", [np.zeros((0,), np.int64)], outputs=1)[0].shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "int64", "string", "bool", "uint8"])
def test_compress(dtype):
    x = data((3, 4, 2), dtype)
    for opset in [9, 11]:
        for axis in [None, 0, 1, 2] + ([-1, -3] if opset >= 11 else []):
            for condition in [[True, False, True], [False], [True, True], [False, True]]:
                if axis is not None and len(condition) > x.shape[axis]:
                    continue
                check("Compress", [x, np.array(condition)], opset=opset, attributes={"axis": axis})
    assert infer("Compress", [("float32", [3, 4]), ("bool", [3])], attributes={"axis": 0})[0][1] == [-1, 4]
    check_rejected("Compress", [x, np.array([1, 0])], match="condition")

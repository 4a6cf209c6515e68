# SPDX-License-Identifier: Apache-2.0
"""Gathering and scattering beside ONNX Runtime (the reference evaluator where it has no kernel)."""

import numpy as np
import pytest
from either_oracle import check_either, values
from ort_compare import check, check_rejected, infer, run_tessera

DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint16", "bool", "string"]


def data(shape, dtype="float32", seed=1):
    return values(np.random.default_rng(seed), shape, dtype)


def indices(shape, dim, dtype=np.int64, seed=2):
    return np.random.default_rng(seed).integers(-dim, dim, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(dtype):
    for opset in [7, 11, 13]:
        for axis in [0, 1, 2] + ([-1, -2] if opset >= 11 else []):
            x = data((3, 4, 5), dtype)
            for shape in [(), (2,), (2, 3), (0,), (1, 2, 1)]:
                i = indices(shape, x.shape[axis], np.int32 if axis == 1 else np.int64)
                i = np.asarray(i if opset >= 11 else abs(i) % x.shape[axis])
                # ONNX Runtime copies one string of each slice only.
                expected = [np.take(x, i, axis)] if dtype == "string" else None
                check("Gather", [x, i], opset=opset, attributes={"axis": axis}, expected=expected)
    check("Gather", [data((4,), dtype), np.array(2, np.int64)], opset=13)
    with pytest.raises(Exception, match="index"):
        run_tessera("Gather", [data((3,), dtype), np.array([3], np.int64)])


def test_gather_inference():
    assert infer("Gather", [("float32", [2, -1, 4]), ("int64", [5, -1])], attributes={"axis": 1})[0][1] == [2, 5, -1, 4]
    assert infer("Gather", [("float32", [2, 3]), ("int64", None)])[0][1] is None
    shape = np.array([2, 3, 4], np.int64)
    assert infer("Gather", [shape, np.array(1, np.int64)], constants=True, fold=True)[0][2].tolist() == 3
    check_rejected("Gather", [data((2,)), np.zeros(1, np.float32)], match="indices")
    check_rejected("Gather", [data((2,)), np.zeros(1, np.int64)], attributes={"axis": 1}, match="axis")


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_elements(dtype):
    x = data((3, 4, 5), dtype)
    for opset in [11, 13]:
        for axis in [0, 1, 2, -1]:
            for length in [1, 7, 0]:
                shape = [3, 4, 5]
                shape[axis] = length
                check_either(
                    "GatherElements",
                    [x, indices(shape, x.shape[axis], np.int32 if axis else np.int64)],
                    opset=opset,
                    attributes={"axis": axis},
                )
        check_either("GatherElements", [x, indices((2, 3, 4), 3)], opset=opset)
    check_rejected("GatherElements", [x, indices((3, 5, 5), 3)], match="exceed")
    check_rejected("GatherElements", [x, indices((3, 5), 3)], match="rank")


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_nd(dtype):
    x = data((2, 3, 4), dtype)
    cases = [
        ((2, 1), 0),
        ((2, 2), 0),
        ((3, 3), 0),
        ((2, 3, 2), 0),
        ((1,), 0),
        ((3,), 0),
        ((2, 5, 1), 1),
        ((2, 2), 1),
        ((2, 3, 1), 2),
        ((0, 2), 0),
    ]
    for shape, batch in cases:
        i = (
            np.stack([indices(shape[:-1], x.shape[batch + d], seed=d) for d in range(shape[-1])], -1)
            if shape[-1]
            else np.zeros(shape, np.int64)
        )
        for opset in [11, 12, 13] if batch == 0 else [12, 13]:
            check_either(
                "GatherND", [x, i.reshape(shape)], opset=opset, attributes={"batch_dims": batch} if opset >= 12 else {}
            )
    check_rejected("GatherND", [x, np.zeros((2, 4), np.int64)], opset=13, match="exceed")
    with pytest.raises(Exception, match="index 3"):
        run_tessera("GatherND", [x, np.array([[0, 3]], np.int64)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_elements(dtype):
    x = data((3, 4, 5), dtype)
    rng = np.random.default_rng(3)
    for axis in [0, 1, 2, -1]:
        # One permutation along the axis, so that no place is written twice.
        i = np.argsort(rng.random(x.shape), axis=axis)[:, :, :]
        i = np.take(i, range(2), axis=axis).astype(np.int32 if axis == 0 else np.int64)
        u = data(i.shape, dtype, seed=4)
        for op, opsets in [("ScatterElements", [11, 13, 16, 18]), ("Scatter", [9, 10])]:
            for opset in opsets:
                if op == "Scatter" and axis < 0:
                    continue
                check_either(op, [x, i, u], opset=opset, attributes={"axis": axis})
    check_rejected("ScatterElements", [x, np.zeros((3, 4, 5), np.int64), data((3, 4), dtype)], match="differ")


@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "int8", "float16"])
def test_scatter_reductions(reduction, dtype):
    x = data((4, 5), dtype)
    i = indices((6, 5), 4)
    u = data((6, 5), dtype, seed=5)
    tolerance = {"float16": 1e-2}.get(dtype, 1e-6 if dtype == "float32" else 0)
    for opset in [16, 18]:
        if opset == 16 and reduction in ("min", "max"):
            check_rejected(
                "ScatterElements", [x, i, u], opset=16, attributes={"reduction": reduction}, match="reduction"
            )
            continue
        j, v = indices((3, 1), 4), data((3, 5), dtype, seed=6)
        elements = rows = None
        if dtype == "float16":  # ONNX Runtime has no reductions of fp16
            function = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
            elements, rows = [x.astype(np.float32)], [x.astype(np.float32)]
            function.at(elements[0], (i, np.arange(5)[None, :]), u.astype(np.float32))
            function.at(rows[0], (j[:, 0],), v.astype(np.float32))
            elements, rows = [elements[0].astype(np.float16)], [rows[0].astype(np.float16)]
        both = dict(opset=opset, attributes={"reduction": reduction}, rtol=tolerance, atol=tolerance)
        (check_either if elements is None else check)("ScatterElements", [x, i, u], expected=elements, **both)
        (check_either if rows is None else check)("ScatterND", [x, j, v], expected=rows, **both)


def test_scatter_duplicates_last_wins():
    x, i = np.zeros(3, np.float32), np.array([1, 1, 1], np.int64)
    assert run_tessera("ScatterElements", [x, i, np.array([1, 2, 3], np.float32)])[0].tolist() == [0, 3, 0]
    assert run_tessera("ScatterND", [x, i.reshape(3, 1), np.array([1, 2, 3], np.float32)])[0].tolist() == [0, 3, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_nd(dtype):
    x = data((4, 5, 6), dtype)
    for i in [
        np.array([[0], [-1], [2]]),
        np.array([[0, 1], [3, 2]]),
        np.array([[[0, 1, 2]], [[3, 4, 5]]]),
        np.array([2]),
        np.zeros((0, 2), np.int64),
    ]:
        i = i.astype(np.int64)
        u = data(i.shape[:-1] + x.shape[i.shape[-1] :], dtype, seed=7)
        for opset in [11, 13, 16, 18]:
            check_either("ScatterND", [x, i, u], opset=opset)
    check_rejected("ScatterND", [x, np.zeros((2, 1), np.int64), data((2, 5, 5), dtype)], match="updates")
    check_rejected("ScatterND", [x, np.zeros((2, 4), np.int64), data((2,), dtype)], match="exceed")


def test_tensor_scatter():
    cache = data((2, 3, 8, 4))
    for steps, starts, mode in [
        (2, [0, 3], "linear"),
        (1, [7, 7], "linear"),
        (8, None, "linear"),
        (3, [6, 1], "circular"),
        (5, [15, 7], "circular"),
    ]:
        update = data((2, 3, steps, 4), seed=8)
        expected = cache.copy()
        for b in range(2):
            for s in range(steps):
                expected[b, :, ((starts[b] if starts else 0) + s) % 8] = update[b, :, s]
        inputs = [cache, update] + ([np.array(starts, np.int64)] if starts else [])
        check("TensorScatter", inputs, opset=24, attributes={"mode": mode}, expected=[expected])
        if starts:
            check("TensorScatter", inputs, opset=24, attributes={"mode": mode}, oracle="reference")
    flat = data((2, 8, 4))
    check(
        "TensorScatter",
        [flat, data((2, 8, 2), seed=9), np.array([1, 2], np.int64)],
        opset=24,
        attributes={"axis": 2},
        oracle="reference",
    )
    with pytest.raises(Exception, match="outside"):
        run_tessera("TensorScatter", [cache, data((2, 3, 2, 4)), np.array([7, 0], np.int64)], opset=24)
    check_rejected("TensorScatter", [cache, data((2, 3, 9, 4))], opset=24, match="does not fit")

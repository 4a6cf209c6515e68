# SPDX-License-Identifier: Apache-2.0
"""Reductions beside ONNX Runtime: axes as attribute and as input, keepdims, noop_with_empty_axes, empty sets;
ArgMax and ArgMin.
"""

import numpy as np
import pytest
from either_oracle import FLOATS, INTS, check_either, values
from ort_compare import check, check_rejected, infer, run_tessera

OPS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]
INPUT_SINCE = dict.fromkeys(OPS, 18) | {"ReduceSum": 13}
AXES = [None, [0], [1], [-1], [0, 2], [1, 2], [0, 1, 2], [-3, -1]]
RTOL = {"float32": 1e-5, "float64": 1e-12, "float16": 5e-3}


def data(op, rng, shape, dtype):
    x = values(rng, shape, dtype, -4, 4)
    return np.abs(x) + np.ones_like(x) if op == "ReduceLogSum" else x


def run(op, x, axes, keepdims, opset, noop=None):
    attributes = {"keepdims": keepdims}
    inputs = [x]
    if opset >= INPUT_SINCE[op]:
        if axes is not None:
            inputs.append(np.array(axes, np.int64))
        if noop is not None:
            attributes["noop_with_empty_axes"] = noop
    elif axes is not None:
        attributes["axes"] = axes
    tolerance = RTOL.get(x.dtype.name, 0)
    return check_either(op, inputs, opset=opset, attributes=attributes, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("opset", [7, 11, 12, 13, 18, 20])
def test_axes(op, opset):
    rng = np.random.default_rng(1)
    for keepdims in [0, 1]:
        for axes in AXES:
            if opset < 11 and axes and min(axes) < 0:
                continue
            run(op, data(op, rng, (3, 4, 5), "float32"), axes, keepdims, opset)


def test_log_sum_exp_integers():
    x = np.array([[1, 2, 5], [3, 3, 3]], np.int32)  # ONNX Runtime truncates every exponential
    for opset in [13, 18]:
        axes = {"axes": [1]} if opset == 13 else {}
        inputs = [x] if opset == 13 else [x, np.array([1], np.int64)]
        check("ReduceLogSumExp", inputs, opset=opset, attributes=axes, expected=[np.array([[5], [4]], np.int32)])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_types(op, dtype):
    if op == "ReduceLogSumExp" and dtype != "float64":
        return  # test_log_sum_exp_integers
    rng = np.random.default_rng(2)
    for axes in [None, [1], [0, 2]]:
        for opset in [11, 18]:
            run(op, data(op, rng, (3, 4, 2), dtype), axes, 1, opset)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_extremes_types(op, dtype):
    rng = np.random.default_rng(3)
    for opset in [13, 18, 20]:
        run(op, values(rng, (3, 4, 5), dtype), [1], 0, opset)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_bool(op):
    x = np.array([[True, False, True], [False, False, False], [True, True, True]])
    for axes in [[0], [1], None]:
        run(op, x, axes, 1, 20)
    expected = np.full((1, 3), op == "ReduceMin")
    check(op, [np.zeros((0, 3), bool), np.array([0], np.int64)], opset=20, expected=[expected])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_against_numpy(op, dtype):
    rng = np.random.default_rng(4)
    x = data(op, rng, (3, 4, 5), dtype)
    wide = x.astype(np.float64)
    function = {
        "ReduceSum": np.sum,
        "ReduceMean": np.mean,
        "ReduceMax": np.max,
        "ReduceMin": np.min,
        "ReduceProd": np.prod,
        "ReduceL1": lambda v, axis: np.abs(v).sum(axis),
        "ReduceL2": lambda v, axis: np.sqrt((v * v).sum(axis)),
        "ReduceLogSum": lambda v, axis: np.log(v.sum(axis)),
        "ReduceLogSumExp": lambda v, axis: np.log(np.exp(v).sum(axis)),
        "ReduceSumSquare": lambda v, axis: (v * v).sum(axis),
    }[op]
    for axes in [(0,), (1,), (0, 2), (0, 1, 2)]:
        expected = np.asarray(function(wide, axis=axes)).astype(dtype)
        check(op, [x, np.array(axes, np.int64)], opset=18, attributes={"keepdims": 0}, expected=[expected])


@pytest.mark.parametrize("op", OPS)
def test_scalar_and_ranks(op):
    rng = np.random.default_rng(5)
    for shape in [(), (5,), (2, 3, 4, 5), (1, 1, 3)]:
        run(op, data(op, rng, shape, "float32"), None, 0, 18)
        run(op, data(op, rng, shape, "float32"), None, 1, 11)


@pytest.mark.parametrize("op", OPS)
def test_noop(op):
    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    x = np.abs(x) if op == "ReduceLogSum" else x
    assert run_tessera(op, [x], opset=18, attributes={"noop_with_empty_axes": 1})[0].shape == (2, 3)
    check(op, [x, np.zeros(0, np.int64)], opset=18, attributes={"noop_with_empty_axes": 1}, rtol=1e-6)
    run(op, x, [], 1, 18, noop=0)


@pytest.mark.parametrize(
    "op,empty",
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
    ],
)
def test_empty_set(op, empty):
    x = np.zeros((2, 0, 3), np.float32)
    check(op, [x, np.array([1], np.int64)], opset=20, expected=[np.full((2, 1, 3), empty, np.float32)])
    check(op, [x, np.array([0], np.int64)], opset=20, expected=[np.zeros((1, 0, 3), np.float32)])


def test_empty_mean_and_integers():
    assert np.isnan(run_tessera("ReduceMean", [np.zeros((0,), np.float32)], opset=18)[0]).all()
    assert run_tessera("ReduceMax", [np.zeros((0,), np.int8)], opset=18)[0].tolist() == [-128]
    assert run_tessera("ReduceMin", [np.zeros((0,), np.uint16)], opset=18)[0].tolist() == [65535]


def test_special_values():
    x = np.array([[np.inf, 1, 2], [-np.inf, -np.inf, -np.inf], [np.inf, -np.inf, 0], [1e4, 1e4, -1e4]], np.float32)
    with np.errstate(all="ignore"):
        check(
            "ReduceLogSumExp",
            [x, np.array([1], np.int64)],
            opset=18,
            expected=[np.array([[np.inf], [-np.inf], [np.inf], [1e4 + np.log(2)]], np.float32)],
            rtol=1e-6,
        )
    nan = np.array([[1, np.nan, 2], [3, 2, 1]], np.float32)
    check("ReduceMax", [nan, np.array([1], np.int64)], opset=18, expected=[np.array([[np.nan], [3]], np.float32)])


def test_integer_wrap():
    x = np.array([2**31 - 1, 1], np.int32)
    assert run_tessera("ReduceSum", [x], opset=13)[0].tolist() == [-(2**31)]


def test_inference_unknown_axes():
    t = infer("ReduceSum", [("float32", [2, 3, 4]), ("int64", [2])], opset=13, attributes={"keepdims": 0})[0]
    assert t[1] == [-1]
    t = infer("ReduceSum", [("float32", [2, 3, 4]), ("int64", [2])], opset=13)[0]
    assert t[1] == [-1, -1, -1]
    check_rejected("ReduceSum", [np.zeros((2, 3), np.float32), np.array([2], np.int64)], opset=13, match="axis")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8", "float16"])
def test_arg(op, dtype):
    rng = np.random.default_rng(6)
    x = values(rng, (3, 4, 5), dtype, -2, 2).round().astype(dtype)  # rounded: many equal elements
    for opset in [7, 11, 12, 13]:
        for axis in [0, 1, 2] + ([-1, -3] if opset >= 11 else []):
            for keepdims in [0, 1]:
                for last in [0, 1] if opset >= 12 else [None]:
                    check_either(
                        op, [x], opset=opset, attributes={"axis": axis, "keepdims": keepdims, "select_last_index": last}
                    )
    check_either(op, [x], opset=13)
    check_rejected(op, [np.zeros((2, 0), np.float32)], opset=13, attributes={"axis": 1}, match="no element")

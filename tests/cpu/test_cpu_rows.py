# SPDX-License-Identifier: Apache-2.0
"""Movement, reductions, normalisations and pooling as compiled CPU code: the bits of the operator library, and ONNX
Runtime's results."""

import numpy as np
import pytest

from tests.cpu.cases import HARD, MS, floats, ints, one


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.float16])
def test_movement(dtype):
    x = ints(4, 6, 5, dtype=np.int64, low=0).astype(dtype)
    for perm in ([0, 2, 1], [2, 1, 0], [1, 0, 2], [1, 2, 0]):
        one("Transpose", [x], perm=perm)
    one("Reshape", [x, np.array([0, -1])], constants=[1])
    one("Concat", [x, x[:, :2], x[:, 3:]], axis=1)
    one("Concat", [x, x], axis=2)
    one("Split", [x, np.array([1, 3, 2])], constants=[1], axis=1, results=3)
    one("Slice", [x, np.array([1, 0]), np.array([4, 5]), np.array([1, 2]), np.array([2, 3])], constants=[1, 2, 3, 4])
    one(
        "Slice",
        [x, np.array([-1, 4]), np.array([-100, 0]), np.array([1, 2]), np.array([-1, -2])],
        constants=[1, 2, 3, 4],
    )
    one(
        "Slice",
        [x, np.array([0, -1]), np.array([2, -100]), np.array([0, 2]), np.array([1, -1])],
        constants=[1, 2, 3, 4],
    )
    one("Expand", [x[:, :1], np.array([3, 4, 6, 5])], constants=[1], oracle=dtype != np.float16)
    one("Tile", [x, np.array([2, 1, 3])], constants=[1], oracle=dtype != np.float16)
    one("Gather", [x, np.array([[0, -1], [2, 2]])], constants=[1], axis=1)
    one("Gather", [x, np.array(3)], constants=[1], axis=0)
    one("GatherElements", [x, np.array([[[0], [1], [-1]]])], constants=[1], axis=2)
    one("Pad", [x, np.array([0, 1, 2, 1, 0, 3])], constants=[1], oracle=dtype != np.float16)
    one("Pad", [x, np.array([0, -1, 2, 1, 0, -3])], constants=[1], oracle=False)
    if dtype != np.float16:
        one("Pad", [x, np.array([0, 1, 2, 1, 0, 3]), np.array(7, dtype)], constants=[1, 2])
    for mode in ("reflect", "edge", "wrap"):
        one("Pad", [x, np.array([0, 1, 2, 1, 0, 3])], constants=[1], mode=mode, opset=19, oracle=False)
    y = ints(2, 8, 3, 5, dtype=np.int64, low=0).astype(dtype)
    for mode in ("DCR", "CRD"):
        one("DepthToSpace", [y], blocksize=2, mode=mode, oracle=False)
    one("SpaceToDepth", [ints(2, 3, 4, 6, dtype=np.int64, low=0).astype(dtype)], blocksize=2, oracle=False)
    one("Trilu", [x, np.array(1)], constants=[1], upper=0, oracle=False)


def test_run_time_indices_stay_with_the_library():
    one("Gather", [floats(5, 3), np.array([1, 4])], compiled=False)


REDUCTIONS = [
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


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    x = np.abs(floats(3, 5, 4, 19)) + np.float32(0.1)
    for axes in ([3], [0], [1, 3], [0, 1, 2, 3], [2]):
        for keep in (0, 1):
            one(op, [x, np.array(axes)], constants=[1], keepdims=keep, opset=18, rtol=1e-4)
    one(op, [x], opset=13, rtol=1e-4)
    one(op, [np.concatenate([HARD, HARD])], opset=13, oracle=False)
    if op not in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        one(op, [ints(7, 33), np.array([1])], constants=[1], opset=18, oracle=False)


def test_arg_reductions():
    x = ints(6, 7, 35, low=0, high=5).astype(np.float32)
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1, 2):
            for last in (0, 1):
                one(op, [x], axis=axis, keepdims=last, select_last_index=last)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op):
    for shape, axis in [((2, 10), -1), ((1, 1000), 1), ((2, 5, 17), 1), ((3, 4, 5), 0), ((7,), 0)]:
        one(op, [floats(*shape)], axis=axis)
        if len(shape) > 1:
            one(op, [floats(*shape)], axis=axis % len(shape), opset=11)
    one(op, [np.stack([HARD, HARD[::-1]])], oracle=False)


def test_normalisations():
    x = floats(2, 6, 5, 7)
    parameters = [floats(6, seed=i) for i in range(1, 4)] + [np.abs(floats(6, seed=4)) + np.float32(0.1)]
    one("BatchNormalization", [x, *parameters], rtol=1e-4)
    # Rows whose means are brought forward from element to element are the library's.
    one("LayerNormalization", [x, floats(7, seed=1), floats(7, seed=2)], compiled=False)
    one("LayerNormalization", [x, floats(5, 7, seed=1)], axis=-2, results=3, rtol=1e-4)
    for width in (8, 12, 23, 39):
        y = floats(3, 4, width)
        one("LayerNormalization", [y, floats(width, seed=1), floats(width, seed=2)])
        one("SimplifiedLayerNormalization", [y, floats(width, seed=1)])
    skipped = [x[0], x[1], floats(7, seed=1), floats(7, seed=2), floats(7, seed=3)]
    one("SkipLayerNormalization", skipped, domain=MS, compiled=False)
    one("SkipSimplifiedLayerNormalization", [x[0], x[1], floats(7, seed=1)], domain=MS, epsilon=1e-5, oracle=False)
    one("SimplifiedLayerNormalization", [x, floats(7, seed=1)], oracle=False)
    one("RMSNormalization", [x, floats(7, seed=1)], opset=23, oracle=False)
    one("InstanceNormalization", [x, floats(6, seed=1), floats(6, seed=2)], rtol=1e-4, atol=1e-4)
    one("GroupNormalization", [x, floats(6, seed=1), floats(6, seed=2)], num_groups=3, opset=21, rtol=1e-4, atol=1e-4)
    for opset in (18, 21):
        one("GroupNormalization", [x, floats(1), floats(1, seed=2)], num_groups=3, opset=opset, rtol=1e-4, atol=1e-4)
    one("LRN", [np.abs(x)], size=3, rtol=1e-4)
    one("LRN", [x], size=4, alpha=0.3, oracle=False)


def test_pooling():
    x = floats(2, 3, 11, 13)
    for attributes in [
        dict(kernel_shape=[3, 3]),
        dict(kernel_shape=[2, 3], strides=[2, 2], pads=[1, 1, 0, 2]),
        dict(kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
        dict(kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1),
        dict(kernel_shape=[2, 2], dilations=[2, 3]),
    ]:
        one("MaxPool", [x], opset=19, **attributes)
        one("AveragePool", [x], opset=19, **attributes)
        one("AveragePool", [x], opset=19, count_include_pad=1, **attributes)
        if "dilations" not in attributes:
            one("AveragePool", [x], opset=11, count_include_pad=1, oracle=False, **attributes)
    for extent, kernel, stride in [(1, 2, 2), (2, 3, 2), (2, 4, 3), (1, 4, 4)]:  # a window cut at the input's end
        for ceil_mode in (0, 1):
            x = floats(1, 2, extent, 9)
            attributes = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2, ceil_mode=ceil_mode, opset=19)
            one("MaxPool", [x], **attributes)
            one("AveragePool", [x], **attributes)
            one("AveragePool", [x], pads=[0, 1, 0, 1], count_include_pad=1, **attributes)
    x = floats(2, 3, 11, 13)
    one("MaxPool", [np.resize(HARD, (1, 1, 7, 9))], kernel_shape=[2, 2], pads=[1, 1, 1, 1], oracle=False)
    one("MaxPool", [floats(1, 2, 9)], kernel_shape=[3])
    for dtype in (np.uint8, np.int8):
        one("MaxPool", [ints(1, 3, 9, 9, dtype=dtype)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for extents in ((1,), (3,), (7, 9), (4, 8), (3, 5, 7)):
        one("GlobalAveragePool", [floats(2, 3, *extents)])
        one("AveragePool", [floats(2, 3, *extents)], kernel_shape=list(extents), opset=17)
    for stride in (1, 2, 3):
        one("AveragePool", [floats(2, 3, 6, 7, 8)], opset=17, kernel_shape=[2, 3, 2], strides=[1, 2, stride])
    one("GlobalMaxPool", [x])

# SPDX-License-Identifier: Apache-2.0
"""Reshaping and movement beside ONNX Runtime: every element width, every version, edges of clamping, and what
inference knows.
"""

import numpy as np
import pytest
from either_oracle import check_either, values
from ort_compare import check, check_rejected, infer

DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint16", "bool", "string"]


def ints(*v):
    return np.array(v, np.int64)


def data(shape, dtype="float32"):
    return values(np.random.default_rng(1), shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reshape(dtype):
    for shape, to in [
        ((2, 3, 4), (4, 6)),
        ((2, 3, 4), (-1,)),
        ((2, 3, 4), (0, -1)),
        ((2, 3, 4), (0, 0, 2, 2)),
        ((2, 3, 4), (2, -1, 0)),
        ((), (1, 1)),
        ((1,), ()),
        ((0, 3), (0, 5)),
        ((6,), (2, 3)),
    ]:
        for opset in [7, 13, 14, 19, 21]:
            check_either("Reshape", [data(shape, dtype), np.array(to, np.int64)], opset=opset)


def test_reshape_allowzero():
    check("Reshape", [data((0, 3)), ints(3, 0)], opset=14, attributes={"allowzero": 1})
    check("Reshape", [data((0, 3)), ints(0, 7, 2)], opset=14, attributes={"allowzero": 1})
    check_rejected("Reshape", [data((0, 3)), ints(0, -1)], opset=14, attributes={"allowzero": 1}, match="allowzero")
    check_rejected("Reshape", [data((2, 3)), ints(0, 3)], opset=14, attributes={"allowzero": 1}, match="counts differ")


def test_reshape_inference():
    def shape(t, to):
        return infer("Reshape", [("float32", t), np.array(to, np.int64)], opset=13, constants=True)[0][1]

    assert shape([2, -1, 4], [0, -1]) == [2, -1]
    assert shape([-1, 3, 4], [0, -1]) == [-1, 12]
    assert shape([-1, 3, 4], [0, 2, -1]) == [-1, 2, 6]
    assert shape([-1, 3, 4], [-1, 12]) == [-1, 12]
    assert shape([-1, -1, 4], [0, 0, 2, -1]) == [-1, -1, 2, 2]
    assert shape(None, [0, -1, 5]) == [-1, -1, 5]
    assert shape([-1, 3], [6, 2]) == [6, 2]
    assert shape([0, -1], [3, -1]) == [3, 0]
    assert shape([0, 3], [0, -1]) == [0, 3]  # as for every other batch; ONNX Runtime refuses
    assert infer("Reshape", [("float32", [2, 3]), ("int64", [4])], opset=13)[0][1] == [-1] * 4
    for t, to, why in [
        ((2, 3), (4,), "counts"),
        ((2, 3), (4, -1), "counts"),
        ((2, 3), (-1, -1), "-1"),
        ((2,), (2, 0), "copies"),
        ((2,), (-2,), "negative"),
    ]:
        check_rejected("Reshape", [data(t), np.array(to, np.int64)], opset=13, match=why)


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 21])
def test_flatten(opset):
    for shape in [(2, 3, 4, 5), (3,), (), (2, 0, 3)]:
        for axis in [None] + list(range(-len(shape) if opset >= 11 else 0, len(shape) + 1)):
            if axis is None and shape == ():
                continue
            check_either("Flatten", [data(shape)], opset=opset, attributes={"axis": axis})
    check_rejected("Flatten", [data((2, 3))], opset=opset, attributes={"axis": 3}, match="axis")
    assert infer("Flatten", [("float32", [-1, 3, 4])], opset=opset)[0][1] == [-1, 12]


@pytest.mark.parametrize("opset", [7, 11, 13, 21])
def test_squeeze_unsqueeze(opset):
    def run(op, x, axes):
        if opset < 13:
            check(op, [x], opset=opset, attributes={"axes": axes})
        else:
            check(op, [x] + ([np.array(axes, np.int64)] if axes is not None else []), opset=opset)

    negative = opset >= 11
    for shape, axes in [
        ((1, 3, 1, 5), [0]),
        ((1, 3, 1, 5), [2, 0]),
        ((1, 3, 1, 5), None),
        ((1, 1), None),
        ((1, 0, 1), [2]),
    ] + ([((1, 3, 1, 5), [-2]), ((1, 3, 1, 5), [-4, 2])] if negative else []):
        run("Squeeze", data(shape), axes)
    for shape, axes in [((3, 5), [0]), ((3, 5), [1, 2]), ((), [0]), ((3, 5), [0, 3]), ((0,), [0, 2])] + (
        [((3, 5), [-1]), ((3, 5), [-1, 0, -3])] if negative else []
    ):
        run("Unsqueeze", data(shape), axes)
    wrong = {"attributes": {"axes": [1]}} if opset < 13 else {}
    extra = [] if opset < 13 else [ints(1)]
    check_rejected("Squeeze", [data((1, 3))] + extra, opset=opset, match="not 1", **wrong)
    twice = {"attributes": {"axes": [1, 1]}} if opset < 13 else {}
    check_rejected(
        "Unsqueeze", [data((1, 3))] + ([] if opset < 13 else [ints(1, 1)]), opset=opset, match="twice", **twice
    )


def test_squeeze_inference():
    assert infer("Squeeze", [("float32", [1, -1, 3])], opset=13)[0][1] is None
    assert infer("Squeeze", [("float32", [1, -1, 3]), ints(0)], opset=13, constants=True)[0][1] == [-1, 3]
    assert infer("Squeeze", [("float32", [1, 2, 3]), ("int64", [1])], opset=13)[0][1] == [-1, -1]
    assert infer("Unsqueeze", [("float32", [2, -1]), ints(1)], opset=13, constants=True)[0][1] == [2, 1, -1]


@pytest.mark.parametrize("dtype", DTYPES + ["complex64", "complex128"])
def test_transpose(dtype):
    import itertools

    for opset in [7, 13, 21]:
        for shape in [(2, 3, 4), (5,), (), (2, 0, 3)]:
            x = data(shape, dtype)
            for perm in [None] + list(itertools.permutations(range(len(shape)))):
                expected = None if not dtype.startswith("complex") else [np.transpose(x, perm)]
                if perm == ():
                    continue
                check("Transpose", [x], opset=opset, attributes={"perm": perm and list(perm)}, expected=expected)
    check("Transpose", [data((2, 3, 4, 5, 2), "int8")], attributes={"perm": [4, 1, 3, 0, 2]})
    check_rejected("Transpose", [data((2, 3))], attributes={"perm": [0, 0]}, match="twice")
    check_rejected("Transpose", [data((2, 3))], attributes={"perm": [0]}, match="perm")


@pytest.mark.parametrize("dtype", DTYPES)
def test_concat(dtype):
    rng = np.random.default_rng(2)
    for opset in [7, 11, 13]:
        for axis in [0, 1, 2] + ([-1, -3] if opset >= 11 else []):
            shapes = [[2, 3, 4] for _ in range(3)]
            for i, s in enumerate(shapes):
                s[axis] = i * 2
            check("Concat", [values(rng, s, dtype) for s in shapes], opset=opset, attributes={"axis": axis})
    check("Concat", [values(rng, (3,), dtype)], opset=13, attributes={"axis": 0})


def test_concat_inference():
    t = infer("Concat", [("float32", [2, -1]), ("float32", [-1, 3])], opset=13, attributes={"axis": 0})[0]
    assert t[1] == [-1, 3]
    t = infer(
        "Concat", [("float32", [2, -1]), ("float32", [4, 3]), ("float32", None)], opset=13, attributes={"axis": 0}
    )[0]
    assert t[1] == [-1, 3]
    folded = infer("Concat", [ints(2, 3), ints(-1)], opset=13, attributes={"axis": 0}, constants=True, fold=True)[0]
    assert folded[2].tolist() == [2, 3, -1]
    check_rejected("Concat", [data((2, 3)), data((2, 4))], attributes={"axis": 0}, match="differs")
    check_rejected("Concat", [data((2, 3)), data((2,))], attributes={"axis": 0}, match="rank")
    check_rejected("Concat", [data((2, 3)), data((2, 3), "int8")], attributes={"axis": 0}, match="type")
    check_rejected("Concat", [data((2, 3))], match="axis")


@pytest.mark.parametrize("dtype", ["float32", "int64", "string", "int8"])
def test_split(dtype):
    x = data((2, 6, 4), dtype)
    for opset in [7, 11]:
        check("Split", [x], opset=opset, attributes={"axis": 1}, outputs=3)
        check("Split", [x], opset=opset, outputs=2)
        check("Split", [x], opset=opset, attributes={"axis": 1, "split": [1, 0, 5]}, outputs=3)
    for opset in [13, 18]:
        check("Split", [x, ints(1, 3, 0)], opset=opset, attributes={"axis": -1}, outputs=3)
    check("Split", [x], opset=13, attributes={"axis": -2}, outputs=3)
    for parts in [1, 2, 4, 5]:
        (
            check("Split", [x], opset=18, attributes={"axis": 1, "num_outputs": parts}, outputs=parts)
            if parts not in (4, 5)
            else None
        )
    uneven = data((7, 3), dtype)
    check("Split", [uneven], opset=18, attributes={"num_outputs": 3}, outputs=3)
    check("Split", [uneven], opset=18, attributes={"num_outputs": 4}, outputs=4)
    check_rejected("Split", [uneven], opset=13, outputs=2, match="equal parts")
    check_rejected("Split", [uneven, ints(3, 3)], opset=13, outputs=2, match="adds up")
    check_rejected("Split", [uneven], opset=18, outputs=2, attributes={"num_outputs": 3}, match="num_outputs")
    assert [t[1] for t in infer("Split", [("float32", [7, -1]), ints(3, 4)], opset=13, outputs=2, constants=True)] == [
        [3, -1],
        [4, -1],
    ]
    assert [t[1] for t in infer("Split", [("float32", [7, 2]), ("int64", [2])], opset=13, outputs=2)] == [
        [-1, 2],
        [-1, 2],
    ]


BIG = 2**63 - 1
SLICES = [  # starts, ends, axes, steps
    ([1, 0], [3, 2], None, None),
    ([0], [BIG], [1], [2]),
    ([-1], [-BIG], [1], [-1]),
    ([-1], [-BIG - 1], [0], [-2]),
    ([3], [1], [1], [-1]),
    ([100], [-100], [1], [-1]),
    ([-100], [100], [1], [3]),
    ([2], [2], [0], None),
    ([3], [1], [0], None),
    ([1, -3], [BIG, -1], [-1, 0], [1, 1]),
    ([0, 4, 1], [4, 0, 2], [0, 1, 2], [3, -2, 5]),
    ([-2], [BIG], [2], [BIG]),
    ([-1], [-BIG], [2], [-BIG]),
    ([1000], [BIG], [0], [1]),
    ([-100], [-101], [1], [-1]),
    ([-100], [-BIG], [1], [-1]),
    ([], [], [], []),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_slice(dtype):
    x = data((4, 5, 6), dtype)
    for starts, ends, axes, steps in SLICES:
        operands = [np.array(v, np.int64) if v is not None else None for v in (starts, ends, axes, steps)]
        while operands and operands[-1] is None:
            operands.pop()
        for opset in [10, 11, 13]:
            if opset == 10 and (min(axes or [0]) < 0 or not starts or -BIG - 1 in ends):
                continue
            check_either("Slice", [x] + operands, opset=opset)
    small = [np.array(v, np.int32) for v in ([1, -2], [3, 100], [0, 2], [1, 1])]
    check("Slice", [x] + small, opset=13)


def test_slice_attributes():
    x = data((4, 5, 6))
    for starts, ends, axes in [
        ([1, 0], [3, 2], None),
        ([0], [BIG], [1]),
        ([-2], [-1], [2]),
        ([-100], [100], [1]),
        ([3], [1], [0]),
    ]:
        check("Slice", [x], opset=9, attributes={"starts": starts, "ends": ends, "axes": axes})


def test_slice_inference():
    def shape(t, *operands):
        return infer("Slice", [("float32", t)] + list(operands), opset=13, constants=True)[0][1]

    assert shape([4, -1, 6], ints(1), ints(3), ints(0)) == [2, -1, 6]
    assert shape([4, -1, 6], ints(1), ints(3), ints(1)) == [4, -1, 6]
    assert shape([4, 5], ("int64", [1]), ("int64", [1]), ints(1)) == [4, -1]
    assert shape([4, 5], ("int64", [1]), ("int64", [1])) == [-1, 5]
    assert shape([4, 5], ("int64", None), ("int64", None)) == [-1, -1]
    assert shape([0, 5], ("int64", [1]), ("int64", [1])) == [0, 5]
    check_rejected("Slice", [data((4,)), ints(0), ints(1), ints(0), ints(0)], opset=13, match="step 0")
    check_rejected("Slice", [data((4,)), ints(0), ints(1), ints(1)], opset=13, match="axis")
    check_rejected("Slice", [data((4,)), ints(0, 0), ints(1)], opset=13, match="length")


def test_slice_zero_dimension():
    for operands in [
        (ints(0), ints(3), ints(0), ints(1)),
        (ints(-1), ints(-9), ints(0), ints(-1)),
        (ints(1), ints(2), ints(1), ints(1)),
    ]:
        check("Slice", [data((0, 3)), *operands], opset=13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tile(dtype):
    for opset in [7, 13]:
        for shape, repeats in [
            ((2, 3), (2, 2)),
            ((2, 3), (1, 1)),
            ((3,), (4,)),
            ((2, 1, 3), (1, 3, 2)),
            ((2, 3), (0, 2)),
            ((2, 3, 2), (3, 1, 1)),
        ]:
            check_either("Tile", [data(shape, dtype), np.array(repeats, np.int64)], opset=opset)
    check_rejected("Tile", [data((2, 3), dtype), ints(2)], match="repeats")
    check_rejected("Tile", [data((2,), dtype), ints(-1)], match="negative")
    assert infer("Tile", [("float32", [2, -1]), ints(2, 3)], constants=True)[0][1] == [4, -1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_expand(dtype):
    for opset in [8, 13]:
        for shape, to in [
            ((3, 1), (2, 1, 6)),
            ((3, 1), (3, 4)),
            ((), (2, 2)),
            ((2, 3), (1, 1)),
            ((3,), (2, 3)),
            ((1, 3), (0, 3)),
            ((2, 3), (3,)),
        ]:
            check_either("Expand", [data(shape, dtype), np.array(to, np.int64)], opset=opset)
    check_rejected("Expand", [data((2, 3), dtype), ints(2, 4)], match="broadcast")
    assert infer("Expand", [("float32", [3, 1]), ("int64", [3])])[0][1] == [-1, 3, -1]
    assert infer("Expand", [("float32", [-1, 1]), ints(4, 7)], constants=True)[0][1] == [4, 7]

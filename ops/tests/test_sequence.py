# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals beside ONNX Runtime; SequenceMap with bodies given as functions."""

import _tessera_ops
import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_tessera

RNG = np.random.default_rng(11)


def parts(count, shape=(2, 3), dtype="float32"):
    return [np.asarray(RNG.integers(-9, 9, shape)).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool", "object"])
def test_construct_and_read(dtype):
    x = (
        parts(3, dtype=dtype)
        if dtype != "object"
        else [np.array([["a", "b"]], object), np.array(["c"], object), np.array([], object)]
    )
    check("SequenceConstruct", x, opset=11, expected=[x])
    for at in range(-3, 3):
        for index in (np.int64, np.int32):
            check("SequenceAt", [x, np.array(at, index)], opset=11, expected=[x[at]], static=False)
        check("SequenceErase", [x, np.array(at, np.int64)], opset=11, expected=[x[: at % 3] + x[at % 3 + 1 :]])
    for at in range(-3, 4):
        new = x[0]
        want = list(x)
        want.insert(at, new)
        check("SequenceInsert", [x, new, np.array(at, np.int64)], opset=11, expected=[want])
    check("SequenceInsert", [x, x[1]], opset=11, expected=[x + [x[1]]])
    check("SequenceErase", [x], opset=11, expected=[x[:2]])
    check("SequenceLength", [x], opset=11, expected=[np.array(3, np.int64)])


def test_beside_onnx_runtime():
    x = parts(4)
    check("SequenceConstruct", x, opset=11)
    check("SequenceAt", [x, np.array(-2, np.int64)], opset=11, static=False)
    check("SequenceInsert", [x, parts(1, (5,))[0], np.array(1, np.int64)], opset=11)
    check("SequenceErase", [x, np.array(2, np.int64)], opset=11)
    check("SequenceLength", [x], opset=11)
    for axis in (-2, 0, 1):
        check("ConcatFromSequence", [x], opset=11, attributes={"axis": axis}, static=False)
    for axis in (-3, -1, 0, 1, 2):
        check("ConcatFromSequence", [x], opset=11, attributes={"axis": axis, "new_axis": 1}, static=False)
    check(
        "ConcatFromSequence",
        [[np.ones((2, 1), np.float32), np.zeros((2, 0), np.float32), x[0]]],
        opset=11,
        attributes={"axis": 1},
        static=False,
    )


@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
def test_split(dtype):
    x = parts(1, (3, 7), dtype)[0]
    for axis in (-2, -1, 0, 1):
        for keep in (0, 1):
            check("SplitToSequence", [x], opset=11, attributes={"axis": axis, "keepdims": keep})
        for length in (1, 2, 3, 9):
            check("SplitToSequence", [x, np.array(length, np.int64)], opset=11, attributes={"axis": axis})
    check("SplitToSequence", [x, np.array([3, 0, 4], np.int64)], opset=11, attributes={"axis": 1})
    check("SplitToSequence", [x, np.array([3, 0, 4], np.int64)], opset=11, attributes={"axis": 1, "keepdims": 0})
    check_rejected("SplitToSequence", [x, np.array([3, 5], np.int64)], opset=11, attributes={"axis": 1}, match="add up")
    check_rejected("SplitToSequence", [x, np.array(0, np.int64)], opset=11, match="positive")


def test_inferred_element_shapes():
    assert infer("SequenceConstruct", [("float32", [2, 3]), ("float32", [2, -1])], opset=11)[0] == (
        "float32",
        [2, -1],
        None,
        "sequence",
    )
    assert infer("SequenceConstruct", [("float32", [2, 3]), ("float32", [2])], opset=11)[0] == (
        "float32",
        None,
        None,
        "sequence",
    )
    assert infer("SplitToSequence", [("int64", [4, 6])], opset=11, attributes={"axis": 1})[0] == (
        "int64",
        [4, 1],
        None,
        "sequence",
    )
    assert infer("SplitToSequence", [("int64", [4, 6])], opset=11, attributes={"axis": 0, "keepdims": 0})[0][1] == [6]
    assert infer(
        "SplitToSequence", [np.zeros((4, 6)), np.array(3, np.int64)], opset=11, attributes={"axis": 1}, constants=True
    )[0][1] == [4, 3]


def test_empty():
    assert run_tessera("SequenceEmpty", [], opset=11) == [[]]
    assert infer("SequenceEmpty", [], opset=11, attributes={"dtype": 7})[0] == ("int64", None, None, "sequence")
    check_rejected("SequenceEmpty", [], opset=11, attributes={"dtype": 99}, match="not one of ONNX")


def test_bad_operands():
    x = parts(2)
    for op, inputs in [
        ("SequenceAt", [x, np.array(2, np.int64)]),
        ("SequenceErase", [x, np.array(-3, np.int64)]),
        ("SequenceErase", [[]]),
        ("SequenceInsert", [x, x[0], np.array(3, np.int64)]),
        ("SequenceAt", [x[0], np.array(0, np.int64)]),
        ("SequenceInsert", [x, x[0].astype(np.int64)]),
        ("SequenceConstruct", [x[0], x[0].astype(np.int64)]),
        ("SequenceLength", [x[0]]),
        ("SequenceAt", [x, np.zeros(2, np.int64)]),
    ]:
        with pytest.raises(_tessera_ops.TesseraError, match=r"node 'n'") as caught:
            run_tessera(op, inputs, opset=11)
        assert caught.value.code in ("invalid_model", "invalid_argument")
    for sequence in ([], [x[0], x[0][:, :2]]):
        with pytest.raises(_tessera_ops.TesseraError):
            run_tessera("ConcatFromSequence", [sequence], opset=11, attributes={"axis": 0})
    with pytest.raises(_tessera_ops.TesseraError, match="axis"):
        run_tessera("ConcatFromSequence", [x], opset=11)


def test_map():
    x, y, bias = parts(3), parts(3), np.float32(2)
    body = _tessera_ops.Subgraph(3, 2, lambda v: [v[0] + v[1] * v[2], v[0].sum(dtype=np.float32)])
    both, sums = run_tessera("SequenceMap", [x, y, bias], opset=17, attributes={"body": body}, outputs=2)
    np.testing.assert_array_equal(both, [a + b * 2 for a, b in zip(x, y)])
    np.testing.assert_array_equal(sums, [a.sum() for a in x])
    with pytest.raises(_tessera_ops.TesseraError, match="length"):
        run_tessera("SequenceMap", [x, y[:2], bias], opset=17, attributes={"body": body}, outputs=2)


def test_optional():
    x = parts(1)[0]
    for opset in (15, 18):
        np.testing.assert_array_equal(run_tessera("Optional", [x], opset=opset)[0], x)
        np.testing.assert_array_equal(run_tessera("OptionalGetElement", [x], opset=opset)[0], x)
        assert run_tessera("Optional", [], opset=opset) == [None]
        assert bool(run_tessera("OptionalHasElement", [x], opset=opset)[0]) and not bool(
            run_tessera("OptionalHasElement", [None], opset=opset)[0]
        )
        assert len(run_tessera("OptionalGetElement", [[x, x]], opset=opset)[0]) == 2
        with pytest.raises(_tessera_ops.TesseraError, match=r"holds nothing|missing"):
            run_tessera("OptionalGetElement", [None], opset=opset)
        assert infer("Optional", [("float32", [2])], opset=opset)[0] == ("float32", [2], None, "optional")
    assert not bool(run_tessera("OptionalHasElement", [], opset=18)[0])

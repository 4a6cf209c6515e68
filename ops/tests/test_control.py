# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan with bodies given as functions; expected values are written out in numpy. Whole models with
captured values and nested bodies stand in tests/import."""

import _tessera_ops
import numpy as np
import pytest
from ort_compare import infer, run_tessera

TesseraError = _tessera_ops.TesseraError
TRUE, FALSE = np.array(True), np.array(False)


def body(inputs, outputs, run):
    return _tessera_ops.Subgraph(inputs, outputs, run)


@pytest.mark.parametrize("opset", [7, 11, 13, 16, 19, 21, 23, 24])
def test_if(opset):
    calls = []
    branches = {
        "then_branch": body(0, 2, lambda v: [calls.append("then") or np.float32(1), np.arange(3)]),
        "else_branch": body(0, 2, lambda v: [calls.append("else") or np.float32(2), np.arange(4)]),
    }
    for condition in (True, False):
        for shape in ((), (1,)):
            y, z = run_tessera("If", [np.full(shape, condition)], opset=opset, attributes=branches, outputs=2)
            assert y == (1 if condition else 2) and z.tolist() == list(range(3 if condition else 4))
    assert calls == ["then", "then", "else", "else"]  # the other branch is not run
    for bad in (np.array([True, False]), np.float32(1)):
        with pytest.raises(TesseraError, match="boolean"):
            run_tessera("If", [bad], opset=opset, attributes=branches, outputs=2)
    with pytest.raises(TesseraError, match="else_branch"):
        run_tessera("If", [FALSE], opset=opset, attributes={"then_branch": branches["then_branch"]}, outputs=2)
    with pytest.raises(TesseraError, match="results"):
        run_tessera("If", [TRUE], opset=opset, attributes=branches, outputs=1)


@pytest.mark.parametrize("opset", [7, 11, 13, 16, 19, 21, 23, 24])
def test_loop(opset):
    step = body(3, 4, lambda v: [np.array(v[2].sum() < 40), v[2] * np.float32(2), v[2], v[0]])

    def run(trips, condition):
        inputs = [
            None if trips is None else np.array(trips, np.int64),
            None if condition is None else np.array(condition),
            np.ones(3, np.float32),
        ]
        return run_tessera("Loop", inputs, opset=opset, attributes={"body": step}, outputs=3)

    for trips, condition, count in [
        (4, True, 4),
        (4, None, 4),
        (None, True, 5),
        (None, None, 5),
        (9, True, 5),
        (1, True, 1),
    ]:
        last, seen, numbers = run(trips, condition)
        np.testing.assert_array_equal(last, np.full(3, 2**count, np.float32))
        np.testing.assert_array_equal(seen, np.stack([np.full(3, 2**k, np.float32) for k in range(count)]))
        assert numbers.tolist() == list(range(count)) and numbers.dtype == np.int64


def test_loop_errors():
    ragged = body(3, 3, lambda v: [TRUE, v[2], np.zeros(int(v[0]) + 1, np.float32)])
    with pytest.raises(TesseraError, match="iterations must agree"):
        run_tessera("Loop", [np.int64(2), None, np.float32(0)], attributes={"body": ragged}, outputs=2)
    with pytest.raises(TesseraError, match="inputs of the body"):
        run_tessera("Loop", [np.int64(2), None], attributes={"body": ragged}, outputs=2)
    with pytest.raises(TesseraError, match="results of the body"):
        run_tessera("Loop", [np.int64(2), None, np.float32(0)], attributes={"body": ragged}, outputs=4)
    with pytest.raises(TesseraError, match="boolean"):
        run_tessera("Loop", [np.int64(2), np.float32(1), np.float32(0)], attributes={"body": ragged}, outputs=2)
    with pytest.raises(TesseraError, match="trip count"):
        run_tessera("Loop", [np.zeros(2, np.int64), None, np.float32(0)], attributes={"body": ragged}, outputs=2)


def test_loop_carries_sequences():
    grow = body(3, 2, lambda v: [TRUE, v[2] + [np.full(int(v[0]), v[0])]])
    [result] = run_tessera("Loop", [np.int64(3), None, [np.zeros(5, np.int64)]], attributes={"body": grow})
    assert [part.tolist() for part in result] == [[0] * 5, [], [1], [2, 2]]


@pytest.mark.parametrize("opset", [9, 11, 16, 19, 21, 23, 24])
def test_scan(opset):
    random = np.random.default_rng(3)
    add = body(3, 3, lambda v: [v[0] + v[1], v[0] + v[1], v[1] * v[2][0]])
    start, x, y = (
        np.zeros(2, np.float32),
        random.standard_normal((5, 2)).astype(np.float32),
        random.standard_normal((4, 5)).astype(np.float32),
    )
    for back_in in (0, 1):
        for back_out in (0, 1):
            for axis in (0, 1, -1):
                attributes = {
                    "body": add,
                    "num_scan_inputs": 2,
                    "scan_input_axes": [0, 1],
                    "scan_input_directions": [back_in, 0],
                    "scan_output_axes": [axis, 0],
                    "scan_output_directions": [back_out, 0],
                }
                last, sums, scaled = run_tessera("Scan", [start, x, y], opset=opset, attributes=attributes, outputs=3)
                walked, state, seen = x[::-1] if back_in else x, start, []
                for row in walked:
                    state = state + row
                    seen.append(state)
                np.testing.assert_array_equal(last, state)
                np.testing.assert_array_equal(sums, np.stack(seen[::-1] if back_out else seen, axis))
                np.testing.assert_array_equal(scaled, walked * y[0][:, None])
    with pytest.raises(TesseraError, match="length of the scan"):
        run_tessera("Scan", [start, x, y], opset=opset, attributes={"body": add, "num_scan_inputs": 2}, outputs=3)
    with pytest.raises(TesseraError, match="num_scan_inputs"):
        run_tessera("Scan", [start, x, y], opset=opset, attributes={"body": add, "num_scan_inputs": 4}, outputs=3)
    with pytest.raises(TesseraError, match="forward"):
        run_tessera(
            "Scan",
            [start, x, x],
            opset=opset,
            attributes={"body": add, "num_scan_inputs": 2, "scan_input_directions": [2, 0]},
            outputs=3,
        )


def test_scan_8():
    x = np.random.default_rng(4).standard_normal((3, 4, 2)).astype(np.float32)
    start = np.ones((3, 2), np.float32)
    add = body(2, 2, lambda v: [v[0] + v[1], v[0] + v[1]])
    for lengths in (None, [4, 1, 2]):
        for back in (0, 1):
            inputs = [None if lengths is None else np.array(lengths, np.int64), start, x]
            last, sums = run_tessera(
                "Scan", inputs, opset=8, attributes={"body": add, "num_scan_inputs": 1, "directions": [back]}, outputs=2
            )
            for n, length in enumerate(lengths or [4] * 3):
                state, want = start[n], np.zeros((4, 2), np.float32)
                for t in range(length):
                    state = state + x[n, length - 1 - t if back else t]
                    want[t] = state
                np.testing.assert_array_equal(last[n], state)
                np.testing.assert_array_equal(sums[n], want)
    with pytest.raises(TesseraError, match="exceeds"):
        run_tessera(
            "Scan",
            [np.array([5, 1, 1], np.int64), start, x],
            opset=8,
            attributes={"body": add, "num_scan_inputs": 1},
            outputs=2,
        )


def test_counts_in_inference():
    two = body(3, 3, lambda v: v)
    with pytest.raises(TesseraError, match="results of the body"):
        infer("Loop", [("int64", []), ("bool", []), ("float32", [2])], attributes={"body": two}, outputs=1)
    with pytest.raises(TesseraError, match="inputs of the body"):
        infer("Loop", [("int64", []), ("bool", [])], attributes={"body": two}, outputs=2)
    with pytest.raises(TesseraError, match="trip count"):
        infer("Loop", [("int32", []), ("bool", []), ("float32", [2])], attributes={"body": two}, outputs=2)
    assert (
        infer("Loop", [("int64", []), ("bool", []), ("float32", [2])], attributes={"body": two}, outputs=2)[0][0]
        == "float32"
    )

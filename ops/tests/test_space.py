# SPDX-License-Identifier: Apache-2.0
"""Pad and the operators that know positions beside ONNX Runtime (the reference evaluator where it has no kernel)."""

import numpy as np
import pytest
from either_oracle import FLOATS, check_either, values
from ort_compare import check, check_rejected, infer, run_tessera


def ints(*v):
    return np.array(v, np.int64)


def data(shape, dtype="float32"):
    return values(np.random.default_rng(1), shape, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32", "int64", "bool", "float16"])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(dtype, mode):
    x = data((3, 4, 5), dtype)
    for pads in [(0, 1, 2, 1, 0, 2), (0, 0, 0, 0, 0, 0), (2, 0, 1, 0, 3, 4), (0, 3, 0, 2, 1, 0)]:
        for opset in [11, 13, 18, 19, 21]:
            check_either("Pad", [x, np.array(pads, np.int64)], opset=opset, attributes={"mode": mode})
            if mode == "constant":
                check_either("Pad", [x, np.array(pads, np.int64), np.array(1, dtype)], opset=opset)
    if dtype in FLOATS and dtype != "float16":
        for opset in [7, 10]:
            check("Pad", [x], opset=opset, attributes={"mode": mode, "pads": [1, 0, 2, 0, 1, 2], "value": 1.5})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_axes_and_wrap(mode):
    x = data((3, 4, 5))
    for axes, pads in [((1,), (2, 1)), ((-1, 0), (1, 2, 3, 0)), ((2, 1), (1, 0, 0, 3))]:
        for axis_type in [np.int32, np.int64]:
            check(
                "Pad",
                [x, np.array(pads, np.int64), None, np.array(axes, axis_type)],
                opset=19,
                attributes={"mode": mode},
            )
    if mode == "wrap":
        check("Pad", [x, ints(3, 4, 5, 3, 4, 5)], opset=19, attributes={"mode": mode})
        check_rejected("Pad", [x, ints(0, 0, 0, 0, 0, 0)], opset=18, attributes={"mode": mode}, match="wrap")


def test_pad_far():
    x = data((2, 3))
    for mode in ["reflect", "wrap"]:
        check(
            "Pad",
            [x, ints(5, 7, 4, 6)],
            opset=19,
            attributes={"mode": mode},
            expected=[np.pad(x, ((5, 4), (7, 6)), mode)],
        )
    check(
        "Pad",
        [data((1,)), ints(2, 2)],
        opset=19,
        attributes={"mode": "reflect"},
        expected=[np.pad(data((1,)), 2, "reflect")],
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad_negative(mode):
    x = data((5, 6))
    for pads in [(-1, 0, 0, -2), (-1, 2, 2, -2), (0, -2, -1, 1)]:
        check("Pad", [x, np.array(pads, np.int64)], opset=13, attributes={"mode": mode})
    # The oracle refuses to remove all of an axis.
    check("Pad", [x, ints(-2, -2, -3, -3)], opset=13, attributes={"mode": mode}, expected=[x[2:2, 2:3]])
    check_rejected("Pad", [x, ints(-4, 0, -4, 0)], opset=13, attributes={"mode": mode}, match="remove")


def test_pad_zero_and_scalars():
    check("Pad", [np.zeros((0, 3), np.float32), ints(1, 0, 1, 1), np.float32(2)], opset=13)
    check_rejected(
        "Pad",
        [np.zeros((0, 3), np.float32), ints(1, 0, 1, 1)],
        opset=13,
        attributes={"mode": "edge"},
        match="no element",
    )
    check_rejected("Pad", [data((2, 3)), ints(1, 1)], opset=13, match="pads")
    check_rejected("Pad", [data((2, 3)), ints(1, 1, 1, 1), np.float64(1)], opset=13, match="type")
    assert run_tessera("Pad", [data((2, 2), "string"), ints(0, 1, 0, 0)], opset=13)[0][0, 0] == ""
    assert infer("Pad", [("float32", [2, -1]), ints(1, 0, 1, 0)], opset=13, constants=True)[0][1] == [4, -1]
    assert infer("Pad", [("float32", [2, 3]), ("int64", [2]), None, ints(1)], opset=18, constants=True)[0][1] == [2, -1]
    assert infer("Pad", [("float32", None), ("int64", [4])], opset=13)[0][1] == [-1, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int32", "float16"])
def test_depth_space(dtype):
    for opset in [7, 11, 13]:
        for b in [1, 2, 3]:
            deep = data((2, b * b * 2, 3, 4), dtype)
            for mode in [None, "DCR", "CRD"] if opset >= 11 else [None]:
                check_either("DepthToSpace", [deep], opset=opset, attributes={"blocksize": b, "mode": mode})
            check_either("SpaceToDepth", [data((2, 3, 2 * b, 4 * b), dtype)], opset=opset, attributes={"blocksize": b})
    check_rejected("DepthToSpace", [data((1, 3, 2, 2))], attributes={"blocksize": 2}, match="channels")
    check_rejected("SpaceToDepth", [data((1, 3, 3, 2))], attributes={"blocksize": 2}, match="divide")
    check_rejected("SpaceToDepth", [data((1, 3, 2))], attributes={"blocksize": 2}, match="rank")
    assert infer("DepthToSpace", [("float32", [-1, 8, -1, 3])], attributes={"blocksize": 2})[0][1] == [-1, 2, -1, 6]


@pytest.mark.parametrize("dtype", ["float32", "int64", "string", "bool", "uint8"])
def test_reverse_sequence(dtype):
    for shape in [(4, 3), (4, 3, 2), (4, 3, 2, 2)]:
        check("ReverseSequence", [data(shape, dtype), ints(4, 1, 2)], opset=10)
        check(
            "ReverseSequence",
            [data(shape, dtype), ints(3, 1, 2, 1)],
            opset=10,
            attributes={"time_axis": 1, "batch_axis": 0},
        )
    check_rejected("ReverseSequence", [data((4, 3)), ints(5, 1, 1)], match="length")
    check_rejected("ReverseSequence", [data((4, 3)), ints(1, 1)], match="entries")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "int8", "float16"])
def test_trilu(dtype):
    for shape in [(3, 4), (4, 3), (2, 3, 3), (0, 2), (2, 2, 0, 4)]:
        for upper in [0, 1]:
            for k in [None, 0, 1, -1, 3, -5, 10]:
                inputs = [data(shape, dtype)] + ([np.array(k, np.int64)] if k is not None else [])
                check_either("Trilu", inputs, opset=14, attributes={"upper": upper})
    check_rejected("Trilu", [data((3,))], match="rank")


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_center_crop_pad(dtype):
    x = data((5, 6, 7), dtype)
    for shape in [(3, 4, 5), (4, 3, 6), (7, 8, 9), (8, 9, 10), (5, 3, 10), (2, 10, 7)]:
        check("CenterCropPad", [x, np.array(shape, np.int64)], opset=18, oracle="reference")
        check("CenterCropPad", [x, np.array(shape, np.int64)], opset=18)
    for axes, shape in [((0,), (2,)), ((-1, 0), (10, 2)), ((1, 2), (9, 3))]:
        check("CenterCropPad", [x, np.array(shape, np.int64)], opset=18, attributes={"axes": axes}, oracle="reference")
    check_rejected("CenterCropPad", [x, ints(1, 2)], opset=18, match="entries")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_col2im(dtype):
    for image, block, attributes in [
        ((5, 5), (1, 5), {}),
        ((5, 5), (3, 3), {"pads": [1, 0, 1, 2]}),
        ((6, 7), (2, 3), {"strides": [2, 1]}),
        ((6, 7), (2, 2), {"dilations": [2, 3]}),
        ((4, 5, 3), (2, 2, 3), {}),
        ((9,), (3,), {"strides": [2]}),
    ]:
        n = len(image)
        pads, strides, dilations = (
            attributes.get("pads", [0] * 2 * n),
            attributes.get("strides", [1] * n),
            attributes.get("dilations", [1] * n),
        )
        count = 1
        for i in range(n):
            count *= (image[i] + pads[i] + pads[n + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        x = data((2, 3 * int(np.prod(block)), count), dtype)
        inputs = [x, np.array(image, np.int64), np.array(block, np.int64)]
        check_either("Col2Im", inputs, opset=18, attributes=attributes, rtol=1e-5, atol=1e-6) if n != 1 else None
    check_rejected("Col2Im", [data((1, 4, 5)), ints(3, 3), ints(2, 2)], opset=18, match="columns")

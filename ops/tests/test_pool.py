# SPDX-License-Identifier: Apache-2.0
"""Pooling operators against ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_ort, run_tessera

FLOAT = dict(rtol=1e-5, atol=1e-6)


def floats(seed, *shape, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def geometry(random, rank, *, dilated):
    kernel = [int(random.integers(1, 4)) for _ in range(rank)]
    strides = [int(random.integers(1, 4)) for _ in range(rank)]
    dilations = [int(random.integers(1, 3)) if dilated else 1 for _ in range(rank)]
    pads = [int(random.integers(0, k)) for k in kernel * 2]
    extents = [int(random.integers(d * (k - 1) + 1, 11)) for d, k in zip(dilations, kernel)]
    attributes = dict(kernel_shape=kernel, strides=strides, pads=pads)
    if dilated:
        attributes["dilations"] = dilations
    return extents, attributes


# ---------------------------------------------------------------------------------------------------------- MaxPool


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(16))
def test_max_pool_random(rank, seed):
    random = np.random.default_rng([1, rank, seed])
    opset = [7, 8, 10, 11, 12, 22][seed % 6]
    extents, attributes = geometry(random, rank, dilated=opset >= 10 and seed % 2 == 0)
    if opset >= 10:
        attributes["ceil_mode"] = int(random.integers(0, 2))
    if opset >= 8:
        attributes["storage_order"] = int(random.integers(0, 2)) if rank > 1 else 0
    x = floats(seed, 2, 3, *extents)
    check("MaxPool", [x], opset=opset, attributes=attributes, outputs=1)
    if opset >= 8:
        check("MaxPool", [x], opset=opset, attributes=attributes, outputs=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float64, np.float16])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pool_types(dtype, rank):
    random = np.random.default_rng([2, rank])
    extents, attributes = geometry(random, rank, dilated=False)
    x = random.integers(-128, 127, (1, 2, *extents)).astype(np.int8).astype(dtype)
    if dtype == np.float16:
        check(
            "MaxPool",
            [x],
            opset=12,
            attributes=attributes,
            expected=[run_tessera("MaxPool", [x.astype(np.float32)], attributes=attributes)[0].astype(dtype)],
        )
    else:
        check("MaxPool", [x], opset=12, attributes=attributes)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("mode", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("extent,kernel,stride", [(7, 3, 1), (7, 3, 2), (8, 3, 2), (8, 2, 2), (5, 2, 3), (9, 4, 3)])
def test_auto_pad(op, mode, extent, kernel, stride):
    x = floats(3, 1, 2, extent, extent + 1)
    window = dict(kernel_shape=[kernel, kernel], strides=[stride, stride])
    # With strides beyond the kernel SAME pads nothing, and the oracle refuses the pads that it computes.
    expected = run_ort(op, [x], opset=11, attributes=dict(auto_pad="VALID", **window)) if stride > kernel else None
    check(op, [x], opset=11, attributes=dict(auto_pad=mode, **window), expected=expected, **FLOAT)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["VALID", "SAME_UPPER", "SAME_LOWER"])
def test_auto_pad_with_ceil_mode(op, mode):
    check(
        op,
        [floats(4, 1, 2, 10, 9)],
        opset=19,
        **FLOAT,
        attributes=dict(
            auto_pad=mode, kernel_shape=[3, 2], strides=[2, 2], dilations=[2 if mode == "VALID" else 1, 1], ceil_mode=1
        ),
    )


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode,pads", [("SAME_UPPER", [1, 1, 2, 1]), ("SAME_LOWER", [2, 1, 1, 1])])
def test_auto_pad_of_dilated_windows(op, mode, pads):
    # SAME means ceil(extent / stride) outputs; the oracle forgets dilation there, so it is given the pads.
    x = floats(4, 1, 2, 10, 9)
    common = dict(kernel_shape=[3, 2], strides=[2, 2], dilations=[2, 2])
    expected = run_ort(op, [x], opset=19, attributes=dict(common, pads=pads))
    assert expected[0].shape == (1, 2, 5, 5)
    check(op, [x], opset=19, attributes=dict(common, auto_pad=mode), expected=expected, **FLOAT)


def test_max_pool_ties_infinities_nan():
    x = np.array([1, 1, 2, 2, 2, 0], np.float32).reshape(1, 1, 6)
    check("MaxPool", [x], opset=12, attributes=dict(kernel_shape=[3]), outputs=2)
    x = np.full((1, 1, 4), -np.inf, np.float32)
    np.testing.assert_array_equal(
        run_tessera("MaxPool", [x], attributes=dict(kernel_shape=[2]))[0], np.full((1, 1, 3), -np.inf)
    )
    x = np.array([1, np.nan, 2, 3], np.float32).reshape(1, 1, 4)
    np.testing.assert_array_equal(
        run_tessera("MaxPool", [x], attributes=dict(kernel_shape=[2]))[0].ravel(), [np.nan, np.nan, 3]
    )
    low = np.full((1, 1, 3), -128, np.int8)
    check("MaxPool", [low], opset=12, attributes=dict(kernel_shape=[3], pads=[1, 1]))


# ------------------------------------------------------------------------------------------------------ AveragePool


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("seed", range(12))
def test_average_pool_random(rank, include, seed):
    random = np.random.default_rng([5, rank, seed])
    opset = [7, 10, 11, 19, 19, 22][seed % 6]
    extents, attributes = geometry(random, rank, dilated=opset >= 19)
    attributes["count_include_pad"] = include
    if opset >= 10:
        attributes["ceil_mode"] = int(random.integers(0, 2))
    # From opset 19 on the oracle takes the trailing pad of the wrong axis when pads are not all alike.
    if opset >= 19 and include:
        attributes["pads"] = [min(attributes["pads"])] * (2 * rank)
    check("AveragePool", [floats(seed, 2, 2, *extents)], opset=opset, attributes=attributes)


ORDERS = {  # extents, kernel, strides, pads
    "columns": ((9, 12), [3, 2], [2, 2], [1, 0, 0, 1]),
    "columns of planes": ((6, 7, 8), [2, 3, 2], [3, 1, 2], [1, 1, 1, 0, 1, 0]),
    "a long stride": ((9, 12), [3, 3], [1, 3], [0, 0, 0, 0]),
    "the largest kernel": ((33, 9), [32, 3], [1, 1], [0, 0, 0, 0]),
    "a kernel beyond it": ((34, 9), [33, 3], [1, 1], [0, 0, 0, 0]),
    "the longest row": ((3, 2043), [2, 3], [1, 1], [0, 1, 0, 1]),
    "a row beyond it": ((3, 2044), [2, 3], [1, 1], [0, 1, 0, 1]),
    "one axis": ((30,), [4], [1], [1, 1]),
    "a whole plane": ((7, 9), [7, 9], [1, 1], [0, 0, 0, 0]),
    "a whole row": ((30,), [30], [1], [0, 0]),
    "a whole plane at a stride": ((7, 9), [7, 9], [2, 2], [0, 0, 0, 0]),
}


@pytest.mark.parametrize("opset", [11, 17, 19, 22])
@pytest.mark.parametrize("kind", ORDERS)
def test_order_of_sums(kind, opset):
    """Every bit of fp32 averages, whichever kernel ONNX Runtime takes."""
    extents, kernel, strides, pads = ORDERS[kind]
    attributes = dict(kernel_shape=kernel, strides=strides, pads=pads)
    check("AveragePool", [floats(12, 2, 3, *extents)], opset=opset, attributes=attributes)


@pytest.mark.parametrize("opset", [10, 11, 19])
@pytest.mark.parametrize(
    "extent,kernel,stride,pads",
    [(6, 3, 2, [0, 0]), (6, 3, 2, [1, 1]), (7, 2, 3, [1, 1]), (5, 3, 3, [1, 0]), (9, 4, 4, [2, 1])],
)
def test_average_pool_ceil_mode(opset, extent, kernel, stride, pads):
    for include in (0, 1):
        check(
            "AveragePool",
            [floats(6, 1, 2, extent)],
            opset=opset,
            **FLOAT,
            attributes=dict(kernel_shape=[kernel], strides=[stride], pads=pads, ceil_mode=1, count_include_pad=include),
        )


def test_average_pool_half_rounds_once():
    x = floats(7, 1, 2, 9, 9, dtype=np.float16)
    attributes = dict(kernel_shape=[3, 3])
    wide = run_tessera("AveragePool", [x.astype(np.float32)], attributes=attributes)[0]
    check("AveragePool", [x], attributes=attributes, expected=[wide.astype(np.float16)])


# ----------------------------------------------------------------------------------------------------------- LpPool


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("opset", [7, 11, 18, 22])
def test_lp_pool(rank, p, opset):
    random = np.random.default_rng([8, rank, p])
    extents, attributes = geometry(random, rank, dilated=opset >= 18)
    check("LpPool", [floats(p, 2, 2, *extents)], opset=opset, attributes=dict(attributes, p=p), **FLOAT)


# ------------------------------------------------------------------------------------------------------ global forms


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 7, 7), (1, 4, 3, 4, 5), (1, 2, 1, 1), (1, 3, 1, 3)])
def test_global(op, shape):
    check(op, [floats(9, *shape)], **(FLOAT if op == "GlobalLpPool" else {}))
    if op == "GlobalLpPool":
        check(op, [floats(9, *shape)], attributes=dict(p=3), **FLOAT)


def test_global_inference():
    assert infer("GlobalMaxPool", [("float32", [-1, 8, -1, 7])])[0][1] == [-1, 8, 1, 1]
    assert infer("GlobalMaxPool", [("float32", None)])[0][1] is None
    check_rejected("GlobalAveragePool", [np.zeros((2, 3), np.float32)], match="rank")


# ---------------------------------------------------------------------------------------------- MaxUnpool, MaxRoiPool


@pytest.mark.parametrize(
    "attributes",
    [
        dict(kernel_shape=[2, 2], strides=[2, 2]),
        dict(kernel_shape=[3, 3], strides=[2, 2]),
        dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0]),
    ],
)
def test_max_unpool(attributes):
    x = floats(10, 1, 2, 3, 4)
    height, width = infer(
        "MaxUnpool", [("float32", [1, 2, 3, 4]), ("int64", [1, 2, 3, 4])], opset=11, attributes=attributes
    )[0][1][2:]
    random = np.random.default_rng(10)
    plane = np.stack([random.permutation(height * width)[:12] + i * height * width for i in range(2)])
    indices = plane.reshape(1, 2, 3, 4).astype(np.int64)
    check("MaxUnpool", [x, indices], opset=11, attributes=attributes)
    larger = np.array([1, 2, height + 1, width + 2], np.int64)
    check("MaxUnpool", [x, indices, larger], opset=11, attributes=attributes)


def test_max_unpool_inverts_max_pool():
    x = floats(11, 2, 3, 6, 6)
    attributes = dict(kernel_shape=[2, 2], strides=[2, 2])
    y, indices = run_tessera("MaxPool", [x], attributes=attributes, outputs=2)
    back = check("MaxUnpool", [y, indices], opset=11, attributes=attributes)[0]
    assert np.count_nonzero(back) == y.size and np.all((back == 0) | (back == x))
    bad = indices.copy()
    bad.flat[0] = x.size
    with pytest.raises(Exception, match="outside the result"):
        run_tessera("MaxUnpool", [y, bad], opset=11, attributes=attributes)


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.3])
def test_max_roi_pool(scale):
    x = floats(12, 2, 3, 9, 8)
    regions = np.array(
        [[0, 0, 0, 7, 8], [1, 2, 3, 5, 4], [1, 3.6, 1.2, 6.5, 7.5], [0, 5, 5, 2, 2], [0, -3, -2, 20, 30]], np.float32
    )
    check("MaxRoiPool", [x, regions], attributes=dict(pooled_shape=[3, 2], spatial_scale=scale))


# ------------------------------------------------------------------------------------------------ inference and errors


def test_partial_inference():
    attributes = dict(kernel_shape=[2, 2], strides=[2, 2])
    assert infer("MaxPool", [("float32", [-1, 3, 8, -1])], attributes=attributes, outputs=2)[1][:2] == (
        "int64",
        [-1, 3, 4, -1],
    )
    assert infer("AveragePool", [("float32", None)], attributes=attributes)[0][1] == [-1, -1, -1, -1]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attributes,match",
    [
        ({}, "kernel_shape"),
        (dict(kernel_shape=[2]), "kernel_shape"),
        (dict(kernel_shape=[0, 2]), "kernel_shape"),
        (dict(kernel_shape=[9, 2]), "larger"),
        (dict(kernel_shape=[2, 2], strides=[2]), "strides"),
        (dict(kernel_shape=[2, 2], pads=[1, 1]), "pads"),
        (dict(kernel_shape=[2.0, 2.0]), "integers"),
    ],
)
def test_rejects(op, attributes, match):
    check_rejected(op, [np.zeros((1, 1, 5, 5), np.float32)], attributes=attributes, match=match, code="invalid_model")


def test_attributes_by_opset():
    x = np.zeros((1, 1, 5, 5), np.float32)
    check_rejected("MaxPool", [x], opset=8, attributes=dict(kernel_shape=[2, 2], ceil_mode=1), match="ceil_mode")
    check_rejected(
        "AveragePool", [x], opset=11, attributes=dict(kernel_shape=[2, 2], dilations=[1, 1]), match="dilations"
    )
    check_rejected("MaxPool", [x], opset=7, outputs=2, attributes=dict(kernel_shape=[2, 2]), match="outputs")
    check_rejected("MaxPool", [x.astype(np.int32)], attributes=dict(kernel_shape=[2, 2]), match="element type")

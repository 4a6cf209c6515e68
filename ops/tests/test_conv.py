# SPDX-License-Identifier: Apache-2.0
"""Conv, ConvTranspose, ConvInteger, DeformConv against ONNX Runtime (DeformConv: the onnx reference evaluator)."""

import itertools

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_ort, run_tessera

FLOAT = dict(rtol=1e-5, atol=1e-5)


def rng(*key):
    return np.random.default_rng(list(key))


def floats(random, *shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)


# ------------------------------------------------------------------------------------------------------------- Conv


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_conv_random(rank, seed):
    random = rng(1, rank, seed)
    groups = int(random.choice([1, 1, 2, 3]))
    channels = groups * int(random.integers(1, 4))
    filters = groups * int(random.integers(1, 6))
    kernel = [int(random.integers(1, 4)) for _ in range(rank)]
    strides = [int(random.integers(1, 4)) for _ in range(rank)]
    dilations = [int(random.integers(1, 3)) for _ in range(rank)]
    pads = [int(random.integers(0, 3)) for _ in range(2 * rank)]
    extents = [int(random.integers(d * (k - 1) + 1, 12)) for d, k in zip(dilations, kernel)]
    inputs = [
        floats(random, int(random.integers(1, 3)), channels, *extents),
        floats(random, filters, channels // groups, *kernel),
    ]
    if seed % 2:
        inputs.append(floats(random, filters))
    attributes = dict(group=groups, strides=strides, dilations=dilations, pads=pads)
    if seed % 3 == 0:
        attributes["kernel_shape"] = kernel
    check("Conv", inputs, opset=[7, 11, 22][seed % 3], attributes=attributes, **FLOAT)


@pytest.mark.parametrize("mode", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    "extent,kernel,stride", [(7, 3, 1), (7, 3, 2), (8, 3, 2), (8, 4, 2), (5, 2, 3), (6, 1, 2), (9, 4, 3)]
)
def test_conv_auto_pad(mode, extent, kernel, stride):
    random = rng(2, extent, kernel, stride)
    inputs = [floats(random, 1, 2, extent, extent + 1), floats(random, 3, 2, kernel, kernel)]
    check("Conv", inputs, attributes=dict(auto_pad=mode, strides=[stride, stride]), **FLOAT)


@pytest.mark.parametrize("mode,pads", [("SAME_UPPER", [1, 2, 2, 2]), ("SAME_LOWER", [2, 2, 1, 2])])
def test_conv_auto_pad_of_dilated_kernels(mode, pads):
    # The oracle refuses SAME with dilation, so it is given the pads.
    inputs = [floats(rng(2), 1, 2, 10, 9), floats(rng(3), 3, 2, 3, 3)]
    common = dict(strides=[2, 2], dilations=[2, 2])
    check(
        "Conv",
        inputs,
        attributes=dict(common, auto_pad=mode),
        expected=run_ort("Conv", inputs, attributes=dict(common, pads=pads)),
        **FLOAT,
    )


def test_conv_defaults_and_depthwise():
    random = rng(3)
    check("Conv", [floats(random, 2, 3, 9, 9), floats(random, 5, 3, 3, 3), floats(random, 5)], **FLOAT)
    check(
        "Conv",
        [floats(random, 1, 16, 14, 14), floats(random, 16, 1, 3, 3)],
        attributes=dict(group=16, pads=[1, 1, 1, 1]),
        **FLOAT,
    )
    check(
        "Conv",
        [floats(random, 1, 4, 6, 6), floats(random, 8, 1, 5, 5), floats(random, 8)],
        attributes=dict(group=4, pads=[2, 2, 2, 2], strides=[2, 1]),
        **FLOAT,
    )
    check("Conv", [floats(random, 2, 32, 7, 7), floats(random, 24, 32, 1, 1), floats(random, 24)], **FLOAT)
    check(
        "Conv", [floats(random, 1, 2, 40, 45), floats(random, 3, 2, 3, 3)], attributes=dict(dilations=[7, 9]), **FLOAT
    )


def test_conv_double_is_computed_in_double():
    random = rng(4)
    check(
        "Conv",
        [floats(random, 1, 3, 6, 6, dtype=np.float64), floats(random, 2, 3, 3, 3, dtype=np.float64)],
        oracle="reference",
        rtol=1e-13,
        atol=1e-13,
    )


def test_conv_half_rounds_once():
    random = rng(5)
    x, w, b = (
        floats(random, 1, 8, 7, 7, dtype=np.float16),
        floats(random, 4, 8, 3, 3, dtype=np.float16),
        floats(random, 4, dtype=np.float16),
    )
    wide = run_tessera("Conv", [x.astype(np.float32), w.astype(np.float32), b.astype(np.float32)])[0]
    check("Conv", [x, w, b], expected=[wide.astype(np.float16)])


def test_conv_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = rng(6)
    x, w = (floats(random, *shape).astype(ml_dtypes.bfloat16) for shape in [(1, 3, 5, 5), (2, 3, 3, 3)])
    wide = run_tessera("Conv", [x.astype(np.float32), w.astype(np.float32)])[0]
    check("Conv", [x, w], opset=22, expected=[wide.astype(ml_dtypes.bfloat16)])


def test_conv_sums_in_ascending_order():
    # 2^24 + 1 is lost in fp32, 1 + 1 - ... is not: the order channel, row, column shows in the result.
    x = np.array([2.0**24, 1.0, 1.0, -(2.0**24)], np.float32).reshape(1, 4, 1, 1)
    y = run_tessera("Conv", [x, np.ones((1, 4, 1, 1), np.float32)])[0]
    assert y.ravel()[0] == 0.0
    x = np.array([1.0, 1.0, 2.0**24, -(2.0**24)], np.float32).reshape(1, 1, 2, 2)
    y = run_tessera("Conv", [x, np.ones((1, 1, 2, 2), np.float32)])[0]
    assert y.ravel()[0] == 2.0


def test_conv_empty_batch():
    y = run_tessera("Conv", [np.zeros((0, 3, 5, 5), np.float32), np.zeros((2, 3, 3, 3), np.float32)])[0]
    assert y.shape == (0, 2, 3, 3)


def test_conv_partial_inference():
    w = np.zeros((8, 3, 3, 3), np.float32)
    assert infer("Conv", [("float32", [-1, 3, -1, 10]), w])[0][:2] == ("float32", [-1, 8, -1, 8])
    assert infer("Conv", [("float32", None), w])[0][1] == [-1, 8, -1, -1]
    assert infer("Conv", [("float32", [1, -1, 10, 10]), ("float32", None)])[0][1] == [1, -1, -1, -1]
    assert infer(
        "Conv", [("float32", [1, 3, 10, 10]), ("float32", None)], attributes=dict(auto_pad="SAME_UPPER", strides=[2, 2])
    )[0][1] == [1, -1, 5, 5]
    assert infer("Conv", [("float32", None), ("float32", None)])[0][1] is None


@pytest.mark.parametrize(
    "shapes,attributes,match",
    [
        (((1, 3, 8, 8), (4, 2, 3, 3)), {}, "channels"),
        (((1, 4, 8, 8), (3, 2, 3, 3)), dict(group=2), "weights .* do not divide"),
        (((1, 3, 8, 8), (4, 3, 3)), {}, "rank"),
        (((1, 3, 2, 2), (4, 3, 3, 3)), {}, "larger than the padded input"),
        (((1, 3, 8, 8), (4, 3, 3, 3), (5,)), {}, "bias"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), dict(strides=[0, 1]), "strides"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), dict(strides=[1]), "strides"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), dict(kernel_shape=[5, 5]), "disagree"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), dict(auto_pad="BEST"), "auto_pad"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), dict(group=0), "group"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), dict(padding=1), "not known"),
        (((1, 3), (4, 3)), {}, "rank"),
    ],
)
def test_conv_rejects(shapes, attributes, match):
    check_rejected(
        "Conv",
        [np.zeros(shape, np.float32) for shape in shapes],
        attributes=attributes,
        match=match,
        code="invalid_model",
    )


def test_conv_rejects_mixed_types():
    check_rejected("Conv", [np.zeros((1, 1, 3, 3), np.float32), np.zeros((1, 1, 3, 3), np.float64)], match="one type")


# ---------------------------------------------------------------------------------------------------- ConvTranspose


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_conv_transpose_random(rank, seed):
    random = rng(10, rank, seed)
    groups = int(random.choice([1, 1, 2, 3]))
    channels = groups * int(random.integers(1, 4))
    per_group = int(random.integers(1, 4))
    kernel = [int(random.integers(1, 4)) for _ in range(rank)]
    strides = [int(random.integers(1, 4)) for _ in range(rank)]
    dilations = [int(random.integers(1, 3)) for _ in range(rank)]
    extents = [int(random.integers(3, 6)) for _ in range(rank)]
    pads = [int(random.integers(0, 2)) for _ in range(2 * rank)]
    extra = [int(random.integers(0, max(1, s))) for s in strides]
    inputs = [floats(random, 2, channels, *extents), floats(random, channels, per_group, *kernel)]
    if seed % 2:
        inputs.append(floats(random, groups * per_group))
    check(
        "ConvTranspose",
        inputs,
        opset=[7, 11, 22][seed % 3],
        **FLOAT,
        attributes=dict(group=groups, strides=strides, dilations=dilations, pads=pads, output_padding=extra),
    )


@pytest.mark.parametrize("mode", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel,stride", [(3, 1), (3, 2), (4, 2), (2, 3), (5, 2), (4, 3)])
def test_conv_transpose_auto_pad(mode, kernel, stride):
    random = rng(11, kernel, stride)
    inputs = [floats(random, 1, 2, 4, 5), floats(random, 2, 3, kernel, kernel)]
    check("ConvTranspose", inputs, attributes=dict(auto_pad=mode, strides=[stride, stride]), **FLOAT)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [[9, 11], [10, 12], [8, 9], [7, 10]])
def test_conv_transpose_output_shape(mode, shape):
    random = rng(12)
    inputs = [floats(random, 1, 2, 4, 5), floats(random, 2, 3, 3, 4)]
    check("ConvTranspose", inputs, attributes=dict(auto_pad=mode, strides=[2, 2], output_shape=shape), **FLOAT)


def test_conv_transpose_half_and_rejections():
    random = rng(13)
    x, w = floats(random, 1, 4, 3, 3, dtype=np.float16), floats(random, 4, 2, 2, 2, dtype=np.float16)
    wide = run_tessera("ConvTranspose", [x.astype(np.float32), w.astype(np.float32)], attributes=dict(strides=[2, 2]))[
        0
    ]
    check("ConvTranspose", [x, w], attributes=dict(strides=[2, 2]), expected=[wide.astype(np.float16)])
    zeros = lambda *shape: np.zeros(shape, np.float32)
    check_rejected("ConvTranspose", [zeros(1, 3, 4, 4), zeros(4, 2, 3, 3)], match="channels")
    check_rejected(
        "ConvTranspose",
        [zeros(1, 3, 4, 4), zeros(3, 2, 3, 3)],
        attributes=dict(output_padding=[2, 2]),
        match="output_padding",
    )
    check_rejected("ConvTranspose", [zeros(1, 3, 4, 4), zeros(3, 2, 3, 3), zeros(3)], match="bias")
    check_rejected(
        "ConvTranspose", [zeros(1, 3, 1, 1), zeros(3, 2, 3, 3)], attributes=dict(pads=[2, 2, 2, 2]), match="pads"
    )


# ------------------------------------------------------------------------------------------------------ ConvInteger


@pytest.mark.parametrize(
    "x_type,w_type", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8), (np.int8, np.uint8)]
)
@pytest.mark.parametrize("zeros", ["none", "x", "both"])
def test_conv_integer(x_type, w_type, zeros):
    random = rng(20, len(zeros))
    x = random.integers(*((0, 255) if x_type == np.uint8 else (-128, 127)), (2, 4, 6, 7)).astype(x_type)
    w = random.integers(*((0, 255) if w_type == np.uint8 else (-64, 64)), (6, 2, 3, 3)).astype(w_type)
    x_zero, w_zero = np.array(101, x_type), np.array(7, w_type)
    inputs = [x, w] + {"none": [], "x": [x_zero], "both": [x_zero, w_zero]}[zeros]
    attributes = dict(group=2, pads=[1, 0, 1, 2], strides=[1, 2])
    if w_type == np.uint8 and x_type == np.uint8:
        check("ConvInteger", inputs, attributes=attributes, opset=10)
    # Sums below 2^24 are exact in a float convolution.
    wide = [
        x.astype(np.float32) - (x_zero if len(inputs) > 2 else 0),
        w.astype(np.float32) - (w_zero if len(inputs) > 3 else 0),
    ]
    exact = run_ort("Conv", [value.astype(np.float32) for value in wide], attributes=attributes)[0]
    check("ConvInteger", inputs, attributes=attributes, opset=10, expected=[exact.astype(np.int32)])


def test_conv_integer_zero_per_filter():
    random = rng(21)
    x = random.integers(-128, 127, (1, 3, 5, 5)).astype(np.int8)
    w = random.integers(-128, 127, (4, 3, 3, 3)).astype(np.int8)
    zero = np.array([3, -5, 127, -128], np.int8)
    wide = np.zeros((1, 4, 3, 3), np.int32)
    for m, i, j in itertools.product(range(4), range(3), range(3)):
        patch = x[0, :, i : i + 3, j : j + 3].astype(np.int64) + 9
        wide[0, m, i, j] = np.sum(patch * (w[m].astype(np.int64) - zero[m]))
    check("ConvInteger", [x, w, np.array(-9, np.int8), zero], opset=10, expected=[wide])
    check_rejected("ConvInteger", [x, w, np.array(1, np.int8), np.zeros(3, np.int8)], match="zero point")
    check_rejected("ConvInteger", [x.astype(np.int32), w], match="element type")


# ------------------------------------------------------------------------------------------------------- DeformConv


@pytest.mark.parametrize(
    "groups,offset_groups,masked,biased",
    [(1, 1, False, False), (1, 2, True, False), (2, 1, False, True), (2, 2, True, True)],
)
def test_deform_conv(groups, offset_groups, masked, biased):
    random = rng(30, groups, offset_groups)
    x = floats(random, 2, 4, 6, 7)
    w = floats(random, 6, 4 // groups, 3, 2)
    attributes = dict(
        group=groups,
        offset_group=offset_groups,
        strides=[2, 1],
        pads=[1, 0, 1, 1],
        dilations=[1, 2],
        kernel_shape=[3, 2],
    )
    out = (3, 6)
    offset = (1.5 * random.standard_normal((2, offset_groups * 12, *out))).astype(np.float32)
    inputs = [
        x,
        w,
        offset,
        floats(random, 6) if biased else None,
        random.random((2, offset_groups * 6, *out)).astype(np.float32) if masked else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    check("DeformConv", inputs, opset=19, attributes=attributes, oracle="reference", **FLOAT)


def test_deform_conv_without_offsets_is_conv():
    random = rng(31)
    x, w = floats(random, 1, 3, 4, 5, 4), floats(random, 2, 3, 2, 2, 2)
    plain = run_tessera("Conv", [x, w])[0]
    check("DeformConv", [x, w, np.zeros((1, 24, 3, 4, 3), np.float32)], opset=19, expected=[plain])
    check_rejected("DeformConv", [x, w, np.zeros((1, 16, 3, 4, 3), np.float32)], opset=19, match="offsets")

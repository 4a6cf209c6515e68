# SPDX-License-Identifier: Apache-2.0
"""Normalisation operators and Dropout against ONNX Runtime (training results: numpy)."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_tessera

FLOAT = dict(rtol=2e-5, atol=2e-5)
DOUBLE = dict(rtol=1e-11, atol=1e-11)


def floats(seed, *shape, dtype=np.float32):
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 2 + 0.5).astype(dtype)


# ----------------------------------------------------------------------------------------------- BatchNormalization


def parameters(shape, dtype=np.float32):
    return [
        floats(1, *shape, dtype=dtype),
        floats(2, *shape, dtype=dtype),
        floats(3, *shape, dtype=dtype),
        np.abs(floats(4, *shape, dtype=dtype)) + dtype(0.1),
    ]


@pytest.mark.parametrize("opset", [7, 8, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 4, 2)])
def test_batch_norm(opset, shape):
    check(
        "BatchNormalization",
        [floats(0, *shape), *parameters(shape[1:2])],
        opset=opset,
        attributes=dict(epsilon=0.01),
        **FLOAT,
    )
    check("BatchNormalization", [floats(0, *shape), *parameters(shape[1:2])], opset=opset, **FLOAT)


def test_batch_norm_types():
    check(
        "BatchNormalization", [floats(0, 2, 3, 4, dtype=np.float64), *parameters((3,), np.float64)], opset=15, **DOUBLE
    )
    x, wide = floats(0, 2, 3, 4, dtype=np.float16), parameters((3,))
    expected = run_tessera("BatchNormalization", [x.astype(np.float32), *wide], opset=15)[0]
    check("BatchNormalization", [x, *wide], opset=15, expected=[expected.astype(np.float16)])


def test_batch_norm_per_activation():
    x, p = floats(0, 2, 3, 4), parameters((3, 4))
    check("BatchNormalization", [x, *p], opset=7, attributes=dict(spatial=0), **FLOAT)
    check_rejected(
        "BatchNormalization", [x, *parameters((3,))], opset=7, attributes=dict(spatial=0), match="must have shape"
    )


def test_batch_norm_training():
    x, (scale, bias, mean, variance) = floats(0, 4, 3, 5, 2), parameters((3,))
    now_mean, now_variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    y = (x - now_mean[:, None, None]) / np.sqrt(now_variance + 1e-5)[:, None, None] * scale[:, None, None] + bias[
        :, None, None
    ]
    running = [
        mean * np.float32(0.8) + now_mean * np.float32(0.2),
        variance * np.float32(0.8) + now_variance * np.float32(0.2),
    ]
    inputs = [x, scale, bias, mean, variance]
    check(
        "BatchNormalization",
        inputs,
        opset=15,
        attributes=dict(training_mode=1, momentum=0.8),
        outputs=3,
        expected=[y, *running],
        **FLOAT,
    )
    check(
        "BatchNormalization",
        inputs,
        opset=9,
        attributes=dict(momentum=0.8),
        outputs=5,
        expected=[y, *running, now_mean, now_variance],
        **FLOAT,
    )


def test_batch_norm_rejects():
    x = floats(0, 2, 3, 4)
    check_rejected("BatchNormalization", [x, *parameters((4,))], match="channels")
    check_rejected("BatchNormalization", [x, *parameters((3, 1))], match="channels")
    check_rejected("BatchNormalization", [x, *parameters((3,))], opset=9, attributes=dict(spatial=1), match="not known")
    check_rejected(
        "BatchNormalization", [x, *parameters((3,))], opset=15, attributes=dict(training_mode=1), match="training_mode"
    )


# ------------------------------------------------------------------------------------------ Instance- and GroupNorm


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 4, 2)])
def test_instance_norm(opset, shape):
    p = parameters(shape[1:2])[:2]
    check("InstanceNormalization", [floats(0, *shape), *p], opset=opset, attributes=dict(epsilon=1e-3), **FLOAT)
    check_rejected("InstanceNormalization", [floats(0, *shape), *parameters((7,))[:2]], opset=opset, match="channels")


@pytest.mark.parametrize("opset,count", [(18, 2), (21, 6)])
@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 6, 4, 5), (3, 6, 1, 2, 3)])
def test_group_norm(opset, count, shape):
    x, p = floats(0, *shape), parameters((count,))[:2]
    check(
        "GroupNormalization",
        [x, *p],
        opset=opset,
        attributes=dict(num_groups=2, epsilon=1e-3),
        oracle="reference",
        **FLOAT,
    )
    grouped = x.reshape(shape[0], 2, -1).astype(np.float64)
    y = ((grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + 1e-3)).reshape(
        shape[0], count, -1
    )
    y = (y * p[0][:, None] + p[1][:, None]).reshape(shape).astype(np.float32)
    check(
        "GroupNormalization", [x, *p], opset=opset, attributes=dict(num_groups=2, epsilon=1e-3), expected=[y], **FLOAT
    )
    check_rejected("GroupNormalization", [x, *p], opset=opset, attributes=dict(num_groups=4), match="divide")


@pytest.mark.parametrize("opset,count", [(18, 3), (21, 6)])
def test_group_norm_with_one_parameter_for_all(opset, count):
    """ONNX Runtime runs it. A quantiser of its own that raises the opset leaves it of a model of one group."""
    x, one, many = floats(0, 2, 6, 4, 5), parameters((1,))[0], parameters((count,))[1]
    for p in ([one, one + 1], [one, many], [many, one]):
        check("GroupNormalization", [x, *p], opset=opset, attributes=dict(num_groups=3), **FLOAT)
    says = "6 channels, as of opset 21" if opset == 21 else "3 groups, as before opset 21"
    check_rejected(
        "GroupNormalization", [x, one, x[0, :2, 0, 0]], opset=opset, attributes=dict(num_groups=3), match=says
    )


# ------------------------------------------------------------------------------------------------ layer and RMS forms


@pytest.mark.parametrize("axis", [-1, 1, 2, 0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer_norm(axis, bias, dtype):
    shape = (2, 3, 4)
    inputs = [floats(0, *shape, dtype=dtype), floats(1, *shape[axis:], dtype=dtype)] + (
        [floats(2, *shape[axis:], dtype=dtype)] if bias else []
    )
    tolerance = FLOAT if dtype == np.float32 else DOUBLE
    check("LayerNormalization", inputs, opset=17, attributes=dict(axis=axis, epsilon=1e-4), **tolerance)
    if dtype == np.float32:
        check("LayerNormalization", inputs, opset=17, attributes=dict(axis=axis), outputs=3, **FLOAT)


def test_layer_norm_broadcast_half_and_earlier_opset():
    x = floats(0, 2, 3, 4)
    check("LayerNormalization", [x, floats(1, 1), floats(2, 4)], opset=17, oracle="reference", **FLOAT)
    check("LayerNormalization", [x, floats(1, 4)], opset=13, **FLOAT)
    half = [x.astype(np.float16), floats(1, 4, dtype=np.float16), floats(2, 4, dtype=np.float16)]
    wide = run_tessera("LayerNormalization", [value.astype(np.float32) for value in half], outputs=3)
    check("LayerNormalization", half, expected=[wide[0].astype(np.float16), wide[1], wide[2]], outputs=3)
    check_rejected("LayerNormalization", [x, floats(1, 3)], match="broadcast")
    check_rejected("LayerNormalization", [x, floats(1, 4)], attributes=dict(axis=3), match="axis")
    assert infer(
        "LayerNormalization", [("float32", [-1, 3, -1]), ("float32", None)], attributes=dict(axis=1), outputs=2
    )[1][1] == [-1, 1, 1]


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_rms_norm(axis):
    x = floats(0, 2, 3, 4)
    scale = floats(1, *x.shape[axis:])
    axes = tuple(range(axis % 3, 3))
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(axes, keepdims=True) + 1e-5) * scale
    check(
        "RMSNormalization",
        [x, scale],
        opset=23,
        attributes=dict(axis=axis),
        expected=[expected.astype(np.float32)],
        **FLOAT,
    )
    check("RMSNormalization", [x, scale], opset=23, attributes=dict(axis=axis), **FLOAT)
    if axis == -1:
        check("SimplifiedLayerNormalization", [x, scale], opset=17, attributes=dict(axis=axis, epsilon=1e-3), **FLOAT)


# ----------------------------------------------------------------------------------------------------------------
# others


@pytest.mark.parametrize("size", [1, 3, 5, 4])
@pytest.mark.parametrize("shape", [(2, 7, 3, 4), (1, 3, 2, 2)])
def test_lrn(size, shape):
    x = floats(0, *shape)
    windows = [slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(shape[1])]
    squares = np.stack([(x[:, window].astype(np.float64) ** 2).sum(1) for window in windows], 1)
    expected = (x / (1.5 + 0.02 / size * squares) ** 0.6).astype(np.float32)
    attributes = dict(size=size, alpha=0.02, beta=0.6, bias=1.5)
    check("LRN", [x], attributes=attributes, expected=[expected], **FLOAT)
    if size % 2:  # the oracle takes odd sizes only
        check("LRN", [x], attributes=attributes, **FLOAT)
        check("LRN", [x], attributes=dict(size=size), **FLOAT)
    check_rejected("LRN", [floats(0, *shape)], match="size")


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lp_normalization(p, axis, dtype):
    x = floats(0, 3, 4, 5, dtype=dtype)
    check("LpNormalization", [x], attributes=dict(p=p, axis=axis), **(FLOAT if dtype == np.float32 else DOUBLE))
    x[:] = 0
    check("LpNormalization", [x], attributes=dict(p=p, axis=axis))
    check_rejected("LpNormalization", [x], attributes=dict(p=3), match="p must be")


@pytest.mark.parametrize("axes", [None, [0, 2, 3], [2, 3], [1], [-1, 0], [0, 1, 2, 3]])
@pytest.mark.parametrize("opset", [9, 13])
def test_mean_variance_normalization(axes, opset):
    check(
        "MeanVarianceNormalization",
        [floats(0, 3, 2, 4, 5)],
        opset=opset,
        attributes=dict(axes=axes),
        oracle="reference",
        rtol=1e-4,
        atol=1e-4,
    )
    check(
        "MeanVarianceNormalization",
        [floats(0, 3, 2, 4, 5)],
        opset=opset,
        attributes=dict(axes=axes),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dropout_inference(opset, dtype):
    x = floats(0, 3, 4, dtype=dtype)
    check("Dropout", [x], opset=opset, expected=[x])
    mask = np.zeros_like(x) if opset < 10 else np.full(x.shape, opset >= 12)
    check("Dropout", [x], opset=opset, outputs=2, expected=[x, mask])
    check("Dropout", [x], opset=opset, outputs=2)
    if opset >= 12:
        check("Dropout", [x, np.array(0.3, np.float32), np.array(False)], opset=opset, outputs=2, expected=[x, mask])


def test_dropout_training():
    x = np.ones(20000, np.float32)
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    y, mask = run_tessera("Dropout", inputs, attributes=dict(seed=3), outputs=2)
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1 / 0.75), 0))
    assert abs(mask.mean() - 0.75) < 0.02
    again = run_tessera("Dropout", inputs, attributes=dict(seed=3), outputs=2)[1]
    np.testing.assert_array_equal(mask, again)
    assert np.any(run_tessera("Dropout", inputs, attributes=dict(seed=4), outputs=2)[1] != mask)
    check(
        "Dropout",
        [x, np.array(0.0, np.float32), np.array(True)],
        opset=13,
        outputs=2,
        expected=[x, np.ones(20000, bool)],
    )

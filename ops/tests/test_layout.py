# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime's own memory layouts: channels last beside ONNX Runtime, blocks of channels beside the
standard's operator on the weights that the blocks came from. tests/import/test_saved_models.py opens files that ONNX
Runtime wrote."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, run_ort

RNG = np.random.default_rng(17)
MS, BLOCKS, LAST = "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"


def f(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def quantised(*shape, dtype=np.uint8):
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape, dtype)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("group,last", [(1, 1), (1, 0), (4, 1), (2, 1)])
def test_qlinear_conv(kind, group, last):
    x = quantised(2, 6, 5, 4, dtype=kind) if last else quantised(2, 4, 6, 5, dtype=kind)
    # Half of the range: ONNX Runtime adds products of uint8 and int8 in pairs of 16 bits where a processor has no VNNI.
    w = RNG.integers(-64, 64, (8, 4 // group, 3, 2), np.int8)
    scales = np.linspace(0.02, 0.04, 8, dtype=np.float32)
    operands = [x, np.float32(0.1), kind(3), w, scales, np.zeros(8, np.int8), np.float32(0.3), kind(7)]
    operands.append(RNG.integers(-500, 500, 8, dtype=np.int32))
    attributes = {"channels_last": last, "group": group, "pads": [1, 0, 0, 1], "strides": [2, 1]}
    constants = (3, 4, 5, 8)
    check("QLinearConv", [np.asarray(o) for o in operands], domain=MS, attributes=attributes, constants=constants)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_nhwc_max_pool(kind):
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "ceil_mode": 1}
    check("NhwcMaxPool", [quantised(2, 7, 6, 5, dtype=kind)], domain=MS, attributes=attributes)
    check_rejected("NhwcMaxPool", [quantised(2, 7)], domain=MS, attributes=attributes, match="rank 3 or more")


@pytest.mark.parametrize(
    "op,others,attributes",
    [
        ("Conv", [f(6, 4, 3, 3), f(6)], {"pads": [1, 1, 1, 1]}),
        ("ConvTranspose", [f(4, 6, 3, 3)], {"strides": [2, 2]}),
        ("MaxPool", [], {"kernel_shape": [2, 2]}),
        ("AveragePool", [], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 0]}),
        ("GlobalAveragePool", [], {}),
        ("GlobalMaxPool", [], {}),
        ("DepthToSpace", [], {"blocksize": 2}),
        ("LRN", [], {"size": 3}),
        ("InstanceNormalization", [f(4), f(4)], {}),
    ],
)
def test_internal_channels_last(op, others, attributes):
    """ONNX Runtime's CPU has no kernels of this domain; the standard's operator on the transposed input is the rule."""
    x = f(2, 4, 6, 5)
    (y,) = run_ort(op, [x, *others], opset=13, attributes=attributes)
    last = [np.ascontiguousarray(np.moveaxis(x, 1, -1)), *others]
    expected = [np.moveaxis(y, 1, -1)]
    check(op, last, opset=1, domain=LAST, attributes=attributes, expected=expected, rtol=1e-5, atol=1e-5)


def blocks_of_outputs(w, block):
    o, i, h, k = w.shape
    return np.ascontiguousarray(w.reshape(o // block, block, i, h, k).transpose(0, 2, 3, 4, 1)).reshape(w.shape)


def blocks_of_both(w, block):
    o, i, h, k = w.shape
    parts = w.reshape(o // block, block, i // block, block, h, k).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(parts).reshape(w.shape)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize(
    "channels,shape,group,reorder",
    [
        (3, (32, 3, 3, 3), 1, blocks_of_outputs),
        (32, (16, 32, 1, 3), 1, blocks_of_both),
        (32, (32, 1, 3, 3), 32, blocks_of_outputs),
        (32, (32, 16, 3, 3), 2, blocks_of_both),
    ],
)
def test_conv_in_blocks(block, channels, shape, group, reorder):
    x, w, b = f(1, channels, 6, 7), f(*shape), f(shape[0])
    attributes = {"group": group, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    (y,) = run_ort("Conv", [x, w, b], opset=13, attributes=attributes)
    z = f(*y.shape)
    inside = {**attributes, "block": block}
    operands = [x, reorder(w, block), b]
    tolerance = dict(opset=1, domain=BLOCKS, rtol=1e-4, atol=1e-4)
    check("Conv", operands, attributes=inside, expected=[y], **tolerance, static=True, infer_only_constants=(1,))
    rules = {
        "Relu": ([], lambda v: np.maximum(v, 0)),
        "Sigmoid": ([], lambda v: 1 / (1 + np.exp(-v))),
        "Tanh": ([], np.tanh),
        "LeakyRelu": ([0.2], lambda v: np.where(v < 0, np.float32(0.2) * v, v)),
        "HardSigmoid": ([0.3, 0.4], lambda v: np.clip(np.float32(0.3) * v + np.float32(0.4), 0, 1)),
        "Clip": ([-0.5, 0.5], lambda v: np.clip(v, -0.5, 0.5)),
    }
    for name, (parameters, rule) in rules.items():
        active = {**inside, "activation": name, **({"activation_params": parameters} if parameters else {})}
        expected = [rule(y + z).astype(np.float32)]
        check("Conv", [*operands, z], attributes=active, expected=expected, **tolerance, infer_only_constants=(1,))


def test_pools_and_reorders_in_blocks():
    x = f(2, 16, 6, 8)
    window = {"kernel_shape": [2, 3], "pads": [0, 1, 1, 1]}
    for op, attributes in [
        ("MaxPool", window),
        ("AveragePool", window),
        ("GlobalMaxPool", {}),
        ("GlobalAveragePool", {}),
    ]:
        expected = run_ort(op, [x], opset=13, attributes=attributes)
        check(op, [x], opset=1, domain=BLOCKS, attributes=attributes, expected=expected, rtol=1e-5, atol=1e-6)
    sizes = dict(opset=1, domain=BLOCKS)
    plain = {"coordinate_transformation_mode": "asymmetric"}
    image = f(1, 5, 4, 3)
    padded = np.concatenate([image, np.zeros((1, 3, 4, 3), np.float32)], 1)
    check("ReorderInput", [image], attributes={"block": 8}, expected=[padded], **sizes)
    check("ReorderInput", [x], attributes={"block": 16}, expected=[x], **sizes)
    last = np.ascontiguousarray(np.moveaxis(image, 1, -1))
    check("ReorderInput", [last], attributes={"block": 8, "channels_last": 1}, expected=[padded], **sizes)
    check("ReorderOutput", [padded], attributes={"channels": 5}, expected=[image], **sizes)
    check("ReorderOutput", [padded], attributes={"channels": 5, "channels_last": 1}, expected=[last], **sizes)
    check_rejected("ReorderOutput", [padded], attributes={"channels": 9}, match="'channels' = 9", **sizes)
    check(
        "Upsample", [x], attributes={"scales": [1, 1, 2, 3], **plain}, expected=[x.repeat(2, 2).repeat(3, 3)], **sizes
    )

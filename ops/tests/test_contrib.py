# SPDX-License-Identifier: Apache-2.0
"""Operators of domain com.microsoft that are the standard's in another form, and Inverse, beside ONNX Runtime."""

import numpy as np
import pytest
from ort_compare import TesseraError, check, check_rejected, run_tessera

RNG = np.random.default_rng(43)
MS = "com.microsoft"


def f(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def same(op, inputs, attributes=None, **options):
    return check(op, inputs, domain=MS, attributes=attributes or {}, **options)


def test_names():
    for axis in (0, 1, -1):
        same("ExpandDims", [f(2, 3), np.array(axis, np.int32)], infer_only_constants=(1,))
    same("GatherND", [f(3, 4), np.array([[0, 1], [2, 3]])])
    for upper in (0, 1):
        same("Trilu", [f(4, 4), np.array(1, np.int64)], {"upper": upper})
    same("Range", [np.array(v, np.int32) for v in (2, 11, 3)], static=False)
    same("Range", [np.array(v, np.float32) for v in (2, 5)], static=False)
    same("Pad", [f(2, 3), np.array([0, 1, 2, 0]), np.array([7], np.float32)], {"mode": "constant"}, static=False)
    same("GridSample", [f(1, 2, 4, 5), np.asarray(RNG.uniform(-1, 1, (1, 3, 3, 2)), np.float32)], rtol=1e-5, atol=1e-6)


def test_unique():
    x = np.array([3, 1, 3, 2, 1, 7], np.float32)
    same("Unique", [x], outputs=3, static=False)


def test_distances():
    for metric in ("sqeuclidean", "euclidean"):
        for kind in (np.float32, np.float64):
            same("CDist", [f(4, 3).astype(kind), f(5, 3).astype(kind)], {"metric": metric}, rtol=1e-3, atol=1e-4)
    check_rejected("CDist", [f(4, 3), f(5, 3)], domain=MS, attributes={"metric": "cosine"}, match="neither")


def test_products_of_short_integers():
    a, b = (RNG.integers(-3000, 3000, s).astype(np.int16) for s in ((3, 4), (4, 5)))
    same("MatMulInteger16", [a, b])


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4), (2, 1, 5, 5)])
def test_inverse(shape):
    x = f(*shape) + 4 * np.eye(shape[-1], dtype=np.float32)
    same("Inverse", [x], rtol=1e-4, atol=1e-5)
    same("Inverse", [x.astype(np.float64)], rtol=1e-10, atol=1e-12)
    x = np.zeros((2, 2), np.float32)
    x[0, 1] = x[1, 0] = 2  # the first pivot is zero
    same("Inverse", [x])
    check_rejected("Inverse", [f(2, 3)], domain=MS, match="square matrices")


def test_quantised_embedding():
    def table(rows):
        return RNG.integers(0, 256, (rows, 8)).astype(np.uint8)

    ids, segments = RNG.integers(0, 9, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [table(9), table(6), table(2), table(1)[0], table(1)[0]]
    scales = [np.array(v, np.float32) for v in (0.02, 0.03, 0.01, 0.05, 0.04)]
    zeros = [np.array(v, np.uint8) for v in (128, 120, 100, 3, 130)]
    mask = np.ones((2, 5), np.int32)
    operands = [ids, segments, *tables, mask, *scales, *zeros]
    same("QEmbedLayerNormalization", operands, {"epsilon": 1e-6}, outputs=2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 5), (1, 4)])
def test_crops_of_images(mode, size):
    regions = np.asarray(RNG.uniform(-0.2, 1.2, (6, 4)), np.float32)
    regions[0], regions[1] = [0, 0, 1, 1], [1, 0.9, 0, 0.1]
    operands = [f(2, 3, 5, 8), regions, RNG.integers(0, 2, 6).astype(np.int32), np.array(size, np.int32)]
    same("CropAndResize", operands, {"mode": mode, "extrapolation_value": -7.0}, constants=(3,))
    same("CropAndResize", operands, {"mode": mode}, static=False)


def test_crops_that_are_refused():
    x, regions, images, size = f(2, 3, 5, 8), f(4, 4), np.zeros(4, np.int32), np.array([2, 2], np.int32)
    for match, operands, attributes in [
        ("neither bilinear nor nearest", [x, regions, images, size], {"mode": "cubic"}),
        ("4 columns", [x, f(4, 5), images, size], {}),
        ("one image for each", [x, regions, images[:3], size], {}),
    ]:
        check_rejected("CropAndResize", operands, match=match, attributes=attributes, domain=MS)
    with pytest.raises(TesseraError, match="image 2 of 2"):
        run_tessera("CropAndResize", [x, regions, images + np.int32(2), size], domain=MS)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_tokens_that_would_repeat(length):
    tokens = RNG.integers(0, 4, (5, 12))
    tokens[1] = 3
    same("NGramRepeatBlock", [tokens, f(5, 4)], {"ngram_size": length})
    same("NGramRepeatBlock", [tokens[:, :1].copy(), f(5, 4)], {"ngram_size": length})
    check_rejected("NGramRepeatBlock", [tokens, f(4, 4)], match="rows", attributes={"ngram_size": length}, domain=MS)
    with pytest.raises(TesseraError, match="token 3, but scores has 3 columns"):
        run_tessera("NGramRepeatBlock", [tokens, f(5, 3)], domain=MS, attributes={"ngram_size": 1})


@pytest.mark.parametrize("shape", [(9,), (3, 8), (2, 7, 5), (2, 3, 6, 4)])
def test_windows(shape):
    for axis in range(-1, len(shape)):
        for size, step in ((1, 1), (3, 1), (2, 3), (shape[axis], 2)):
            if size <= shape[axis]:
                same("UnfoldTensor", [f(*shape)], {"dim": axis, "size": size, "step": step})
    for kind in (np.int32, np.float64):
        same("UnfoldTensor", [RNG.integers(0, 99, shape).astype(kind)], {"size": 2})
    check_rejected("UnfoldTensor", [f(*shape)], domain=MS, attributes={"size": 99}, match="do not fit")


def test_transposed_convolution_with_pads_as_operand():
    x, w, bias = f(2, 4, 5, 6), f(4, 3, 3, 3), f(6)
    near = dict(rtol=1e-5, atol=1e-5)
    for pads in ([0, 0, 0, 0], [1, 0, 1, 2]):
        operands = [x, w, np.array(pads), bias]
        attributes = {"group": 2, "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 3]}
        same("ConvTransposeWithDynamicPads", operands, attributes, infer_only_constants=(2,), **near)


@pytest.mark.parametrize("seed", range(12))
def test_guessed_tokens(seed):
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 6, rng.integers(3, 30))
    current = rng.integers(0, 6, rng.integers(1, 9))
    attributes = {"min_ngram_size": int(rng.integers(1, 3)), "max_ngram_size": int(rng.integers(3, 6))}
    found = np.array(0, np.int64)
    same("BifurcationDetector", [source, current, found], attributes, outputs=2)
    for previous in (0, len(source) // 2, len(source) - 1):
        guessed = np.concatenate([source[previous:], rng.integers(0, 6, 1)])
        guessed[rng.integers(len(guessed)) :] = 3
        operands = [source, current, np.array(previous), guessed]
        same("BifurcationDetector", operands, attributes, outputs=2, static=False)


@pytest.mark.parametrize("seed", range(10))
def test_time_warping(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 12, 2))
    same("DynamicTimeWarping", [f(*shape)], static=False)
    same("DynamicTimeWarping", [f(1, *shape)], static=False)
    equal = rng.integers(0, 2, shape).astype(np.float32)  # where paths of equal costs must be told apart
    same("DynamicTimeWarping", [equal], static=False)
    check_rejected("DynamicTimeWarping", [f(2, *shape)], domain=MS, match="one matrix")

# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear against ONNX Runtime: every element type, layout of scales
and opset, ties by construction, NaN and infinities, sizes around a vector's length."""

import os
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.oracle import oracle
from tests.oracle.compare import MS, any_tensor, check_node, differing, library

pytestmark = pytest.mark.skipif(not oracle.exact_cpu(), reason="the formulas are those of CPUs with AVX2, FMA and VNNI")
F32 = np.float32
SPECIAL = np.array(
    [
        0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        1e30,
        -1e30,
        3e9,
        -3e9,
        1e38,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        1e-40,
        127.5,
        128.5,
        254.5,
        255.5,
        255,
        256,
        65535.5,
        -32768.5,
    ],
    F32,
)


@pytest.mark.parametrize("float_type", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_ties_and_specials(dtype, float_type):
    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    for scale in (0.0078125, 0.013, 1.0, 3.7, 1e-6, -0.5):
        for zero in (info.min, info.max, 0, 7):
            with np.errstate(over="ignore"):
                x = np.concatenate(
                    [SPECIAL, SPECIAL * F32(scale), rng.normal(0, 50, 60).astype(F32) * F32(scale)]
                ).astype(float_type)
            check_node("QuantizeLinear", [x, np.array(scale, float_type), np.array(zero, dtype)], opset=21)
            check_node(
                "QuantizeLinear",
                [x, np.full(len(x), scale, float_type), np.full(len(x), zero, dtype)],
                opset=21,
                attributes={"axis": 0},
            )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantize_every_size(dtype):
    rng = np.random.default_rng(2)
    for size in range(1, 71):
        x = (rng.integers(-600, 600, size) / 2).astype(F32)  # half of them ties
        check_node("QuantizeLinear", [x, np.array(1.0, F32), np.array(rng.integers(0, 100), dtype)])


@pytest.mark.parametrize(
    "dtype, opset",
    [
        (dtype, opset)
        for dtype in (np.uint8, np.int8, np.int16, np.uint16, np.int32)
        for opset in (10, 13, 19, 21, 23)
        if opset >= 21 or np.dtype(dtype).itemsize != 2
    ],
)  # 16-bit types come with opset 21
def test_layouts(dtype, opset):
    rng = np.random.default_rng(3)
    q = any_tensor(rng, dtype, (3, 5, 7))
    for float_type in (np.float32, np.float16) if opset >= 19 else (np.float32,):
        x = rng.normal(0, 20, q.shape).astype(float_type)
        for axis in (None, 0, 1, -1):
            if opset == 10 and axis is not None:
                continue
            attributes = {} if axis is None else {"axis": axis}
            shape = () if axis is None else (q.shape[axis],)
            scale = np.exp(rng.uniform(-6, 0, shape)).astype(float_type)
            zero = np.zeros(shape, dtype) if dtype == np.int32 else np.asarray(any_tensor(rng, dtype, shape))
            for z in (zero, None):
                check_node("DequantizeLinear", [q, scale, z], opset=opset, attributes=attributes)
                if dtype != np.int32 and opset < 23 and (z is not None or dtype == np.uint8):
                    check_node("QuantizeLinear", [x, scale, z], opset=opset, attributes=attributes)


@pytest.mark.parametrize("float_type", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16])
def test_blocks(dtype, float_type):
    rng = np.random.default_rng(4)
    for axis, shape, block in ((0, (10, 7), 4), (1, (3, 9, 5), 2), (2, (3, 9, 5), 3), (-1, (4, 33), 16)):
        scales = list(shape)
        scales[axis] = -(-scales[axis] // block)
        x = rng.normal(0, 100, shape).astype(float_type)
        x.flat[:6] = [np.nan, np.inf, -np.inf, 6e4, -6e4, 0.5]
        scale = np.exp(rng.uniform(-3, 1, scales)).astype(float_type)
        zero = any_tensor(rng, dtype, scales)
        attributes = {"axis": axis, "block_size": block}
        check_node("QuantizeLinear", [x, scale, zero], opset=21, attributes=attributes)
        check_node("DequantizeLinear", [any_tensor(rng, dtype, shape), scale, zero], opset=21, attributes=attributes)


def test_quantize_output_dtype_names_the_type():
    x = np.array([-3.0, 0.4, 300.0], F32)
    for code, dtype in ((2, np.uint8), (3, np.int8), (4, np.uint16), (5, np.int16)):
        (y,) = library().run_node("QuantizeLinear", "", 21, {"output_dtype": code}, [x, np.array(1.0, F32)])
        info = np.iinfo(dtype)
        assert y.dtype == dtype and list(y) == [max(-3, info.min), 0, min(300, info.max)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16])
def test_microsoft_domain(dtype):
    rng = np.random.default_rng(5)
    scale, zero = np.array(0.3, F32), np.array(5, dtype)
    check_node("QuantizeLinear", [rng.normal(0, 20, (3, 5, 7)).astype(F32), scale, zero], domain=MS)
    check_node("DequantizeLinear", [any_tensor(rng, dtype, (3, 5, 7)), scale, zero], domain=MS)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_float8(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    rng = np.random.default_rng(6)
    for float_type in (np.float32, np.float16):
        x = np.concatenate(
            [
                rng.normal(0, 1, 200),
                rng.normal(0, 100, 200),
                [np.nan, np.inf, -np.inf, 6e4, -6e4, 448, 464, 240, 248, 57344, 0, 1e-3],
            ]
        )
        x = x.astype(float_type)
        q = np.arange(256, dtype=np.uint8).view(dtype)
        for scale in (1.0, 0.37):
            inputs = [x, np.array(scale, float_type), np.array(0, dtype)]
            model = oracle.node_model("QuantizeLinear", inputs, opset=21, cast=1)
            (want,) = oracle.make_session(model).run(None, {"x0": x})
            (got,) = library().run_node("QuantizeLinear", "", 21, {}, inputs)
            assert not differing(want, got.astype(F32)).any()
            inputs = [q, np.array(scale, float_type), np.array(0, dtype)]
            model = oracle.node_model("DequantizeLinear", inputs, opset=21, constants=[0, 1, 2])
            (want,) = oracle.make_session(model).run(None, {})
            (got,) = library().run_node("DequantizeLinear", "", 21, {}, inputs)
            assert not differing(want, got).any()


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_int4(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype, low, high = np.dtype(getattr(ml_dtypes, name)), *((-8, 7) if name == "int4" else (0, 15))
    rng = np.random.default_rng(7)
    for float_type in (np.float32, np.float16):
        for shape, axis, block in (((5, 7), None, 0), ((5, 7), 0, 0), ((5, 7), 1, 0), ((6, 8), 1, 4), ((7, 5), 0, 3)):
            attributes = {} if axis is None else {"axis": axis}
            scales = ()
            if block:
                attributes["block_size"] = block
                scales = tuple(-(-s // block) if i == axis else s for i, s in enumerate(shape))
            elif axis is not None:
                scales = (shape[axis],)
            x = rng.normal(0, 10, shape).astype(float_type)
            scale = np.exp(rng.uniform(-1, 1, scales)).astype(float_type)
            zero = rng.integers(low, high + 1, scales).astype(dtype)
            model = oracle.node_model("QuantizeLinear", [x, scale, zero], opset=21, attributes=attributes, cast=6)
            (want,) = oracle.make_session(model).run(None, {"x0": x})
            (got,) = library().run_node("QuantizeLinear", "", 21, attributes, [x, scale, zero])
            assert (want == got.astype(np.int32)).all()
            q = rng.integers(low, high + 1, shape).astype(dtype)
            model = oracle.node_model(
                "DequantizeLinear", [q, scale, zero], opset=21, attributes=attributes, constants=[0, 1, 2]
            )
            (want,) = oracle.make_session(model).run(None, {})
            (got,) = library().run_node("DequantizeLinear", "", 21, attributes, [q, scale, zero])
            assert not differing(want, got).any()


def test_dynamic_quantize():
    rng = np.random.default_rng(8)
    for size in range(1, 71):
        x = (rng.normal(0, 10, size) * np.exp(rng.uniform(-3, 3))).astype(F32)
        x = -abs(x) if size % 7 == 0 else abs(x) if size % 5 == 0 else x * 0 if size % 11 == 0 else x
        check_node("DynamicQuantizeLinear", [x], output_count=3)


@pytest.mark.parametrize(
    "inputs, words",
    [
        ([np.zeros((2, 3), F32), np.ones(2, F32), np.zeros(3, np.uint8)], "differ"),
        ([np.zeros((2, 3), F32), np.ones(2, F32), np.zeros(2, np.uint8)], "along axis 1"),
        ([np.zeros((2, 3), F32), np.array(1.0, F32), np.array(0, np.int64)], "element type"),
    ],
)
def test_refusals(inputs, words):
    with pytest.raises(library().TesseraError, match=words):
        library().infer_node("QuantizeLinear", "", 13, {}, inputs)


def test_vectors_have_one_axis():
    """A quantiser leaves the default, 1, beside the bias of a Gemm. ONNX Runtime takes it into its product."""
    x, scale = np.array([3, -2, 100], np.int32), np.array([0.5, 0.25, 2], F32)
    for axis in ({}, {"axis": 0}, {"axis": 1}):
        got = library().run_node("DequantizeLinear", "", 13, axis, [x, scale], 1)[0]
        np.testing.assert_array_equal(got, x * scale)
        back = library().run_node("QuantizeLinear", "", 13, axis, [got, scale, np.zeros(3, np.int8)], 1)[0]
        np.testing.assert_array_equal(back, x)
    with pytest.raises(library().TesseraError, match="must have 3 elements"):
        library().run_node("DequantizeLinear", "", 13, {}, [x, scale[:2]], 1)

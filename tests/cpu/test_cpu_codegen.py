# SPDX-License-Identifier: Apache-2.0
"""Compiled CPU code against the operator library, bit for bit, and against ONNX Runtime where it has the operator.

Each case is a model of one operator (or a few), compiled twice: once into machine code, once as library kernels. That
the first really was compiled is read from the size of the artifact's CPU code."""

import concurrent.futures
import math

import numpy as np
import onnx
import pytest
from onnx import helper

import tessera
from tests.cpu.cases import MS, Model, check, floats, ints, same_bits

HARD = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -2.5,
        1.5,
        np.inf,
        -np.inf,
        np.nan,
        1e-40,
        -1e-40,
        3e38,
        -3e38,
        88.8,
        -88.8,
        2147483648.0,
        -2147483648.0,
        4294967296.0,
        1e19,
        127.5,
        255.5,
        -0.49999997,
    ],
    np.float32,
)
SHAPES = [(7,), (2, 3, 35), (1,), (), (3, 64)]


def one(
    op,
    arrays,
    opset=17,
    constants=(),
    domain="",
    oracle=True,
    compiled=True,
    results=1,
    rtol=1e-5,
    atol=1e-5,
    **attributes,
):
    """A model of one node; arrays at positions in `constants` are constants, None is an absent operand."""
    m = Model(opset)
    operands = [None if a is None else m.constant(a) if i in constants else m.input(a) for i, a in enumerate(arrays)]
    out = m.node(op, operands, results, domain, **attributes)
    check(m, out, oracle, compiled, rtol, atol)


# --- element-wise
# --------------------------------------------------------------------------------------------------------------

UNARY = [
    "Neg",
    "Abs",
    "Sign",
    "Reciprocal",
    "Sqrt",
    "Exp",
    "Log",
    "Floor",
    "Ceil",
    "Round",
    "Tanh",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Relu",
    "LeakyRelu",
    "Elu",
    "Celu",
    "Selu",
    "ThresholdedRelu",
    "Sigmoid",
    "HardSigmoid",
    "HardSwish",
    "Softplus",
    "Softsign",
    "Shrink",
    "IsNaN",
    "IsInf",
]


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    for shape in [(2, 3, 35), (), (5,)]:
        one(op, [floats(*shape)])
    trigonometry = op in (
        "Sin",
        "Cos",
        "Tan",
        "Celu",
        "Sigmoid",
        "Softplus",
        "Shrink",
    )  # the oracle differs at the ends
    one(op, [HARD], oracle=not trigonometry and op not in ("Tanh", "Sinh", "Cosh", "Asinh", "Erf"))
    if op not in ("IsNaN", "IsInf", "ThresholdedRelu", "Selu", "Elu", "LeakyRelu", "HardSigmoid", "Celu", "Shrink"):
        one(op, [floats(33, dtype=np.float64)], oracle=False)


@pytest.mark.parametrize("op", ["Mish", "Gelu"])
def test_late_unary(op):
    one(op, [floats(2, 19)], opset=20)
    if op == "Gelu":
        one(op, [floats(2, 19)], opset=20, approximate="tanh")
        one("Gelu", [floats(2, 19)], domain=MS)
        one("FastGelu", [floats(2, 19), floats(19)], domain=MS, rtol=1e-4)
        one("BiasGelu", [floats(2, 19), floats(19)], domain=MS)
        one("QuickGelu", [floats(2, 19)], domain=MS)


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Min", "Max", "Less", "Equal", "GreaterOrEqual", "PRelu", "Pow", "Mod"]
)
def test_binary(op):
    attributes = {"fmod": 1} if op == "Mod" else {}
    for a, b in [((2, 3, 35), (2, 3, 35)), ((5, 33), (33,)), ((4, 3, 5), (3, 1)), ((6,), ()), ((1, 17), (1, 1))]:
        one(op, [floats(*a), np.abs(floats(*b, seed=1)) if op == "Pow" else floats(*b, seed=1)], **attributes)
    one(op, [np.repeat(HARD, len(HARD)), np.tile(HARD, len(HARD))], oracle=False, **attributes)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Min", "Max", "Less", "Greater", "Equal"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_integer_binary(op, dtype):
    one(op, [ints(4, 37, dtype=dtype), ints(37, seed=1, dtype=dtype)], oracle=False)


def test_integer_division():
    for dtype in (np.int32, np.int64):
        edge = np.array([np.iinfo(dtype).min, -7, 7, 0, np.iinfo(dtype).max], dtype)
        for divisor in (-1, 3, -3):
            one("Div", [edge, np.array(divisor, dtype)], constants=[1], oracle=divisor != -1)
            one("Mod", [edge, np.array(divisor, dtype)], constants=[1], oracle=divisor != -1)
    one("Div", [ints(5), np.full(5, 3, np.int32)], compiled=False)
    one("Mod", [ints(5, dtype=np.uint8, low=0, high=255), np.array(7, np.uint8)], constants=[1])


def test_logic_and_selection():
    p, q = ints(3, 17, low=0, high=2).astype(bool), ints(17, seed=1, low=0, high=2).astype(bool)
    for op in ("And", "Or", "Xor"):
        one(op, [p, q])
    one("Not", [p])
    one("Where", [p, floats(17), floats(3, 1)])
    one("Where", [q, ints(3, 17, dtype=np.int64), ints(1, dtype=np.int64)])
    one(
        "BitShift", [ints(9, dtype=np.uint32, low=0), np.arange(9, dtype=np.uint32) * 7], direction="LEFT", oracle=False
    )
    one("BitwiseAnd", [ints(9), ints(9, seed=1)], opset=18)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_shifts_of_signed_integers(dtype):
    """The sign stays to the right; by a negative count, or by all bits, it is all that is left."""
    x, bits = np.array([-8, -1, 7, 120, -3, 5, -5, 1], dtype), 8 * np.dtype(dtype).itemsize
    count = np.array([1, bits + 1, -1, 2, bits, 0, bits - 1, bits - 1], dtype)
    inside = (count >= 0) & (count < bits)
    for direction, shifted, rest in (
        ("LEFT", np.left_shift(x, count * inside), np.zeros_like(x)),
        ("RIGHT", np.right_shift(x, count * inside), np.where(x < 0, -1, 0).astype(dtype)),
    ):
        m = Model(28)
        y = m.node("BitShift", [m.input(x), m.input(count)], direction=direction)
        check(m, y, oracle=False)
        got = tessera.Session(m.bytes([y]), use_npu=False).run(None, m.inputs)[0]
        np.testing.assert_array_equal(got, np.where(inside, shifted, rest))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_expressions_of_floats_on_integers(dtype):
    """They are computed in float64 and truncated."""
    x = np.array([0, 1, 2, 3, 6, 100, 127], dtype)
    if np.iinfo(dtype).min < 0:
        x = np.concatenate([x, -x])
    one("Erf", [x], oracle=False)
    one("Shrink", [x], oracle=False, bias=0.75, lambd=1.5)
    m = Model()
    wide = x.astype(np.float64)
    names = [m.node("Erf", [m.input(x)]), m.node("Shrink", [m.input(x)], bias=0.75, lambd=1.5)]
    erf, shrunk = tessera.Session(m.bytes(names), use_npu=False).run(None, m.inputs)
    np.testing.assert_array_equal(erf, np.trunc(np.array([math.erf(v) for v in wide])).astype(dtype))
    expected = np.where(wide < -1.5, wide + 0.75, np.where(wide > 1.5, wide - 0.75, 0))
    np.testing.assert_array_equal(shrunk, np.trunc(expected).astype(dtype))


def test_n_ary_and_clip():
    for op in ("Sum", "Mean", "Min", "Max"):
        one(op, [floats(2, 9), floats(9, seed=1), floats(2, 1, seed=2)])
    one("Clip", [HARD, np.float32(-1), np.float32(2)], constants=[1, 2])
    one("Clip", [HARD, np.float32(-1), np.float32(2)])
    one("Clip", [HARD, None, np.float32(2)], constants=[2], oracle=False)
    one("Clip", [ints(9), np.int32(-3), np.int32(5)], constants=[1, 2])


TYPES = [
    np.float32,
    np.float64,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.bool_,
]


@pytest.mark.parametrize("source", TYPES)
def test_cast(source):
    x = HARD.astype(source) if np.dtype(source).kind == "f" else ints(31, dtype=np.int64).astype(source)
    for target in TYPES:
        if target != source:
            one("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), oracle=False)


HALF = np.concatenate(
    [HARD[np.abs(HARD) < 7e4], floats(40), floats(40, scale=1e-6), [np.inf, -np.inf, np.nan, 65504.0, 2049.0, 2051.0]]
).astype(np.float16)


def test_float16_is_computed_in_float32():
    x, y = floats(2, 5, 33, dtype=np.float16), floats(33, seed=1, dtype=np.float16)
    for op in ("Add", "Mul", "Div", "Less", "Max"):
        one(op, [x, y], oracle=False)
    one("Mul", [np.repeat(HALF, 20), np.resize(HALF, 20 * len(HALF))], oracle=False)
    for op in ("Relu", "Sigmoid", "Exp", "Sqrt", "Softmax", "ReduceMean", "ReduceSum"):
        one(op, [x], oracle=False)
    one("Clip", [HALF, None, np.float16(2)], constants=[2], oracle=False)
    for target in (np.float32, np.float64, np.int32, np.uint8, np.bool_):
        one("Cast", [HALF], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), oracle=False)
    for source in (HARD, HARD.astype(np.float64), ints(50, dtype=np.int64, low=-(10**9), high=10**9)):
        one("Cast", [source], to=onnx.TensorProto.FLOAT16, oracle=False)
    one(
        "Conv",
        [
            floats(1, 3, 9, 9, dtype=np.float16),
            floats(4, 3, 3, 3, dtype=np.float16, seed=1),
            floats(4, dtype=np.float16, seed=2),
        ],
        constants=[1, 2],
        oracle=False,
    )
    one("MatMul", [floats(5, 9, dtype=np.float16), floats(9, 7, dtype=np.float16, seed=1)], rtol=1e-2, atol=1e-2)
    one("LayerNormalization", [x, y, y], oracle=False, results=3)
    one("MaxPool", [floats(1, 2, 9, 9, dtype=np.float16)], kernel_shape=[3, 3], oracle=False)


def test_bfloat16_between_casts():
    for x in (HARD, floats(100)):
        m = Model()
        wide = m.node(
            "Cast",
            [m.node("Mul", [m.node("Cast", [m.input(x)], to=onnx.TensorProto.BFLOAT16)] * 2)],
            to=onnx.TensorProto.FLOAT,
        )
        check(m, wide, oracle=False)


def test_chain_is_one_function():
    m = Model()
    x, y = m.input(floats(2, 8, 33)), m.input(floats(33, seed=1))
    a = m.node("Sigmoid", [m.node("Add", [x, y])])
    b = m.node("Mul", [a, x])
    c = m.node("Transpose", [m.node("Relu", [b])], perm=[2, 0, 1])
    check(m, [m.node("Sub", [c, m.constant(np.float32(0.25))]), a])


# --- movement
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.float16])
def test_movement(dtype):
    x = ints(4, 6, 5, dtype=np.int64, low=0).astype(dtype)
    for perm in ([0, 2, 1], [2, 1, 0], [1, 0, 2], [1, 2, 0]):
        one("Transpose", [x], perm=perm)
    one("Reshape", [x, np.array([0, -1])], constants=[1])
    one("Concat", [x, x[:, :2], x[:, 3:]], axis=1)
    one("Concat", [x, x], axis=2)
    one("Split", [x, np.array([1, 3, 2])], constants=[1], axis=1, results=3)
    one("Slice", [x, np.array([1, 0]), np.array([4, 5]), np.array([1, 2]), np.array([2, 3])], constants=[1, 2, 3, 4])
    one(
        "Slice",
        [x, np.array([-1, 4]), np.array([-100, 0]), np.array([1, 2]), np.array([-1, -2])],
        constants=[1, 2, 3, 4],
    )
    one(
        "Slice",
        [x, np.array([0, -1]), np.array([2, -100]), np.array([0, 2]), np.array([1, -1])],
        constants=[1, 2, 3, 4],
    )
    one("Expand", [x[:, :1], np.array([3, 4, 6, 5])], constants=[1], oracle=dtype != np.float16)
    one("Tile", [x, np.array([2, 1, 3])], constants=[1], oracle=dtype != np.float16)
    one("Gather", [x, np.array([[0, -1], [2, 2]])], constants=[1], axis=1)
    one("Gather", [x, np.array(3)], constants=[1], axis=0)
    one("GatherElements", [x, np.array([[[0], [1], [-1]]])], constants=[1], axis=2)
    one("Pad", [x, np.array([0, 1, 2, 1, 0, 3])], constants=[1], oracle=dtype != np.float16)
    one("Pad", [x, np.array([0, -1, 2, 1, 0, -3])], constants=[1], oracle=False)
    if dtype != np.float16:
        one("Pad", [x, np.array([0, 1, 2, 1, 0, 3]), np.array(7, dtype)], constants=[1, 2])
    for mode in ("reflect", "edge", "wrap"):
        one("Pad", [x, np.array([0, 1, 2, 1, 0, 3])], constants=[1], mode=mode, opset=19, oracle=False)
    y = ints(2, 8, 3, 5, dtype=np.int64, low=0).astype(dtype)
    for mode in ("DCR", "CRD"):
        one("DepthToSpace", [y], blocksize=2, mode=mode, oracle=False)
    one("SpaceToDepth", [ints(2, 3, 4, 6, dtype=np.int64, low=0).astype(dtype)], blocksize=2, oracle=False)
    one("Trilu", [x, np.array(1)], constants=[1], upper=0, oracle=False)


def test_run_time_indices_stay_with_the_library():
    one("Gather", [floats(5, 3), np.array([1, 4])], compiled=False)


# --- reductions
# ----------------------------------------------------------------------------------------------------------------

REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    x = np.abs(floats(3, 5, 4, 19)) + np.float32(0.1)
    for axes in ([3], [0], [1, 3], [0, 1, 2, 3], [2]):
        for keep in (0, 1):
            one(op, [x, np.array(axes)], constants=[1], keepdims=keep, opset=18, rtol=1e-4)
    one(op, [x], opset=13, rtol=1e-4)
    one(op, [np.concatenate([HARD, HARD])], opset=13, oracle=False)
    if op not in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        one(op, [ints(7, 33), np.array([1])], constants=[1], opset=18, oracle=False)


def test_arg_reductions():
    x = ints(6, 7, 35, low=0, high=5).astype(np.float32)
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1, 2):
            for last in (0, 1):
                one(op, [x], axis=axis, keepdims=last, select_last_index=last)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op):
    for shape, axis in [((2, 10), -1), ((1, 1000), 1), ((2, 5, 17), 1), ((3, 4, 5), 0), ((7,), 0)]:
        one(op, [floats(*shape)], axis=axis)
        if len(shape) > 1:
            one(op, [floats(*shape)], axis=axis % len(shape), opset=11)
    one(op, [np.stack([HARD, HARD[::-1]])], oracle=False)


def test_normalisations():
    x = floats(2, 6, 5, 7)
    parameters = [floats(6, seed=i) for i in range(1, 4)] + [np.abs(floats(6, seed=4)) + np.float32(0.1)]
    one("BatchNormalization", [x, *parameters], rtol=1e-4)
    # Rows whose means are brought forward from element to element are the library's.
    one("LayerNormalization", [x, floats(7, seed=1), floats(7, seed=2)], compiled=False)
    one("LayerNormalization", [x, floats(5, 7, seed=1)], axis=-2, results=3, rtol=1e-4)
    for width in (8, 12, 23, 39):
        y = floats(3, 4, width)
        one("LayerNormalization", [y, floats(width, seed=1), floats(width, seed=2)])
        one("SimplifiedLayerNormalization", [y, floats(width, seed=1)])
    skipped = [x[0], x[1], floats(7, seed=1), floats(7, seed=2), floats(7, seed=3)]
    one("SkipLayerNormalization", skipped, domain=MS, compiled=False)
    one("SkipSimplifiedLayerNormalization", [x[0], x[1], floats(7, seed=1)], domain=MS, epsilon=1e-5, oracle=False)
    one("SimplifiedLayerNormalization", [x, floats(7, seed=1)], oracle=False)
    one("RMSNormalization", [x, floats(7, seed=1)], opset=23, oracle=False)
    one("InstanceNormalization", [x, floats(6, seed=1), floats(6, seed=2)], rtol=1e-4, atol=1e-4)
    one("GroupNormalization", [x, floats(6, seed=1), floats(6, seed=2)], num_groups=3, opset=21, rtol=1e-4, atol=1e-4)
    for opset in (18, 21):
        one("GroupNormalization", [x, floats(1), floats(1, seed=2)], num_groups=3, opset=opset, rtol=1e-4, atol=1e-4)
    one("LRN", [np.abs(x)], size=3, rtol=1e-4)
    one("LRN", [x], size=4, alpha=0.3, oracle=False)


def test_pooling():
    x = floats(2, 3, 11, 13)
    for attributes in [
        dict(kernel_shape=[3, 3]),
        dict(kernel_shape=[2, 3], strides=[2, 2], pads=[1, 1, 0, 2]),
        dict(kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
        dict(kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1),
        dict(kernel_shape=[2, 2], dilations=[2, 3]),
    ]:
        one("MaxPool", [x], opset=19, **attributes)
        one("AveragePool", [x], opset=19, **attributes)
        one("AveragePool", [x], opset=19, count_include_pad=1, **attributes)
        if "dilations" not in attributes:
            one("AveragePool", [x], opset=11, count_include_pad=1, oracle=False, **attributes)
    for extent, kernel, stride in [(1, 2, 2), (2, 3, 2), (2, 4, 3), (1, 4, 4)]:  # a window cut at the input's end
        for ceil_mode in (0, 1):
            x = floats(1, 2, extent, 9)
            attributes = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2, ceil_mode=ceil_mode, opset=19)
            one("MaxPool", [x], **attributes)
            one("AveragePool", [x], **attributes)
            one("AveragePool", [x], pads=[0, 1, 0, 1], count_include_pad=1, **attributes)
    x = floats(2, 3, 11, 13)
    one("MaxPool", [np.resize(HARD, (1, 1, 7, 9))], kernel_shape=[2, 2], pads=[1, 1, 1, 1], oracle=False)
    one("MaxPool", [floats(1, 2, 9)], kernel_shape=[3])
    for dtype in (np.uint8, np.int8):
        one("MaxPool", [ints(1, 3, 9, 9, dtype=dtype)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    one("GlobalAveragePool", [x])
    one("GlobalMaxPool", [x])


# --- products
# ------------------------------------------------------------------------------------------------------------------


def test_matmul():
    for a, b in [
        ((5, 7), (7, 3)),
        ((17, 33), (33, 49)),
        ((2, 3, 8, 16), (2, 3, 16, 40)),
        ((4, 9, 16), (16, 20)),
        ((3, 1, 5, 6), (4, 6, 2)),
        ((6,), (6, 5)),
        ((4, 6), (6,)),
        ((6,), (6,)),
        ((1, 64), (64, 100)),
    ]:
        one("MatMul", [floats(*a), floats(*b, seed=1)], rtol=1e-4, atol=1e-4)
    one("MatMul", [ints(5, 9), ints(9, 6, seed=1)])
    one(
        "FusedMatMul",
        [floats(2, 5, 7), floats(2, 9, 7, seed=1)],
        domain=MS,
        transB=1,
        alpha=0.125,
        rtol=1e-4,
        atol=1e-4,
    )


def test_gemm():
    for ta in (0, 1):
        for tb in (0, 1):
            for m in (1, 3, 9):
                a, b = floats(*((21, m) if ta else (m, 21))), floats(*((35, 21) if tb else (21, 35)), seed=1)
                one("Gemm", [a, b, floats(35, seed=2)], transA=ta, transB=tb, rtol=1e-4, atol=1e-4)
    one("Gemm", [floats(4, 5), floats(5, 6), floats(4, 1)], alpha=0.3, beta=1.7, rtol=1e-4, atol=1e-4)
    one("Gemm", [floats(4, 5), floats(5, 6)])


CONVOLUTIONS = [
    dict(x=(1, 3, 9, 11), w=(8, 3, 3, 3)),
    dict(x=(2, 4, 8, 33), w=(10, 4, 3, 3), pads=[1, 1, 1, 1]),
    dict(x=(1, 16, 7, 7), w=(24, 16, 1, 1)),
    dict(x=(1, 3, 17, 17), w=(16, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2]),
    dict(x=(1, 12, 10, 10), w=(12, 1, 3, 3), pads=[1, 1, 1, 1], group=12),
    dict(x=(1, 12, 10, 10), w=(24, 4, 3, 3), pads=[0, 1, 2, 1], group=3, strides=[2, 1]),
    dict(x=(1, 5, 12, 12), w=(7, 5, 3, 3), dilations=[2, 3]),
    dict(x=(1, 5, 12, 12), w=(7, 5, 2, 3), auto_pad="SAME_LOWER", strides=[2, 2]),
    dict(x=(1, 6, 20), w=(9, 6, 5), pads=[2, 2]),
    dict(x=(1, 2, 5, 6, 7), w=(3, 2, 2, 3, 2)),
    dict(x=(1, 8, 9, 9), w=(8, 8, 1, 1), strides=[2, 2]),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case):
    case = dict(case)
    x, w = floats(*case.pop("x")), floats(*case.pop("w"), seed=1)
    one("Conv", [x, w], constants=[1], rtol=1e-3, atol=1e-3, **case)
    one("Conv", [x, w, floats(w.shape[0], seed=2)], rtol=1e-3, atol=1e-3, **case)
    y = ints(*x.shape, dtype=np.uint8, low=0, high=256)
    for dtype in (np.uint8, np.int8):
        k = ints(*w.shape, dtype=dtype, low=-128, high=256)
        if x.ndim == 5:
            continue
        one(
            "QLinearConv",
            [
                y,
                np.float32(0.05),
                np.uint8(117),
                k,
                np.float32(0.02),
                dtype(3),
                np.float32(0.3),
                np.uint8(121),
                ints(len(w), low=-5000, high=5000),
            ],
            constants=range(1, 9),
            oracle=False,
            **case,
        )
        one(
            "QLinearConv",
            [
                y,
                np.float32(0.05),
                np.uint8(117),
                k,
                np.abs(floats(len(w))) / 50,
                np.zeros(len(w), dtype),
                np.float32(0.3),
                np.uint8(121),
            ],
            constants=range(1, 8),
            oracle=False,
            **case,
        )
        one("ConvInteger", [y, k, np.uint8(100)], constants=[1, 2], oracle=False, **case)


def test_fused_convolution():
    x, w, b, z = floats(1, 4, 9, 9), floats(6, 4, 3, 3, seed=1), floats(6, seed=2), floats(1, 6, 9, 9, seed=3)
    for name, parameters in [
        ("Relu", None),
        ("Tanh", None),
        ("Sigmoid", None),
        ("LeakyRelu", [0.1]),
        ("Clip", [0.0, 6.0]),
        ("HardSigmoid", [0.2, 0.5]),
    ]:
        extra = {} if parameters is None else {"activation_params": parameters}
        one("FusedConv", [x, w, b], domain=MS, pads=[1, 1, 1, 1], activation=name, oracle=False, **extra)
    one("FusedConv", [x, w, b, z], domain=MS, pads=[1, 1, 1, 1], activation="Relu", rtol=1e-4, atol=1e-4)


# --- quantised
# -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_linear(dtype):
    info = np.iinfo(dtype)
    x = np.concatenate([floats(100, scale=300), HARD, np.arange(-300, 300, 0.5, dtype=np.float32)])
    for scale, zero in [(0.5, 0), (1.0, info.min), (2.0, info.max), (0.37, (info.min + info.max) // 2 + 1)]:
        one("QuantizeLinear", [x, np.float32(scale), dtype(zero)], constants=[1, 2], opset=21, oracle=False)
        q = ints(301, dtype=dtype, low=info.min, high=info.max)
        one("DequantizeLinear", [q, np.float32(scale), dtype(zero)], constants=[1, 2], opset=21)
    scales, zeros = np.abs(floats(5)) + np.float32(0.1), ints(5, dtype=dtype)
    for axis, shape in [(1, (3, 5, 7)), (0, (5, 19)), (2, (2, 3, 5))]:
        one("QuantizeLinear", [floats(*shape, scale=100), scales, zeros], constants=[1, 2], axis=axis, opset=21)
        one("DequantizeLinear", [ints(*shape, dtype=dtype), scales, zeros], constants=[1, 2], axis=axis, opset=21)


def test_dequantize_int32():
    one("DequantizeLinear", [ints(50, low=-(2**31), high=2**31 - 1), np.float32(0.01)], constants=[1])
    one("QuantizeLinear", [floats(40), np.float32(0.1)], constants=[1])


def test_dynamic_quantize():
    for x in (floats(3, 64), floats(37), np.zeros(5, np.float32), np.abs(floats(4, 5))):
        one("DynamicQuantizeLinear", [x], results=3)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_pointwise(dtype):
    info = np.iinfo(dtype)
    a, b = (
        ints(2, 5, 37, dtype=dtype, low=info.min, high=info.max + 1),
        ints(2, 5, 37, seed=1, dtype=dtype, low=info.min, high=info.max + 1),
    )
    s, t, u = np.float32(0.05), np.float32(0.031), np.float32(0.0625)
    for op in ("QLinearAdd", "QLinearMul"):
        for x, y in [(a, b), (a, b[0, :, :1]), (a[:, :, :1], b), (a[0, 0, 0], b)]:
            one(op, [x, s, dtype(3), y, t, dtype(7), u, dtype(11)], constants=[1, 2, 4, 5, 6, 7], domain=MS)
    one("QLinearLeakyRelu", [a, s, dtype(3), u, dtype(5)], constants=[1, 2, 3, 4], domain=MS, alpha=0.1)
    one("QLinearSigmoid", [a, s, dtype(3), u / 16, dtype(5)], constants=[1, 2, 3, 4], domain=MS)
    one("QLinearConcat", [s, dtype(3), a, s, dtype(3), b, t, dtype(9)], constants=[0, 1, 3, 4, 6, 7], domain=MS, axis=1)
    one(
        "QLinearSoftmax",
        [a, s, dtype(3), np.float32(1 / 256), dtype(info.min)],
        constants=[1, 2, 3, 4],
        domain=MS,
        axis=-1,
        opset=13,
        oracle=False,
    )
    x = ints(2, 3, 7, 7, dtype=dtype)
    one("QLinearGlobalAveragePool", [x, s, dtype(3), t, dtype(5)], constants=[1, 2, 3, 4], domain=MS)
    for attributes in (
        dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        dict(kernel_shape=[2, 2], count_include_pad=1, pads=[1, 1, 0, 0]),
        dict(kernel_shape=[7, 7]),
    ):
        one(
            "QLinearAveragePool",
            [x, s, dtype(3), t, dtype(5)],
            constants=[1, 2, 3, 4],
            domain=MS,
            oracle=False,
            **attributes,
        )
    one(
        "QLinearReduceMean",
        [x, s, dtype(3), t, dtype(5)],
        constants=[1, 2, 3, 4],
        domain=MS,
        axes=[1, 3],
        keepdims=0,
        oracle=False,
    )
    one(
        "QLinearWhere",
        [a > 0, a, s, dtype(3), b, t, dtype(9), s, dtype(3)],
        constants=[2, 3, 5, 6, 7, 8],
        domain=MS,
        oracle=False,
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_products(dtype):
    info = np.iinfo(dtype)
    a, b = ints(5, 33, dtype=np.uint8, low=0, high=256), ints(33, 20, dtype=dtype, low=info.min, high=info.max + 1)
    s = np.float32(0.01)
    one(
        "QLinearMatMul",
        [a, s, np.uint8(100), b, np.float32(0.02), dtype(5), np.float32(0.1), np.uint8(128)],
        constants=range(1, 8),
        oracle=False,
    )
    one(
        "QLinearMatMul",
        [a, s, np.uint8(100), b, np.abs(floats(20)) / 30, ints(20, dtype=dtype), np.float32(0.1), np.uint8(128)],
        constants=range(1, 8),
        oracle=False,
    )
    one("MatMulInteger", [a, b, np.uint8(100), dtype(3)], constants=[1, 2, 3])
    one(
        "QGemm",
        [
            a,
            s,
            np.uint8(100),
            b,
            np.float32(0.02),
            dtype(5),
            ints(20, low=-3000, high=3000),
            np.float32(0.1),
            np.uint8(128),
        ],
        constants=range(1, 9),
        domain=MS,
        oracle=False,
    )
    one(
        "QGemm",
        [
            a,
            s,
            np.uint8(100),
            np.ascontiguousarray(b.T),
            np.abs(floats(20)) / 30,
            ints(20, dtype=dtype),
            ints(20, low=-3000, high=3000),
        ],
        constants=range(1, 7),
        domain=MS,
        transB=1,
        alpha=0.7,
        oracle=False,
    )
    one(
        "MatMulIntegerToFloat",
        [a, b, s, np.abs(floats(20)), np.uint8(7), ints(20, dtype=dtype), floats(20)],
        constants=range(1, 7),
        domain=MS,
        rtol=1e-4,
    )


# --- graphs
# --------------------------------------------------------------------------------------------------------------------


def random_graph(rng):
    """Up to 40 operators on a pool of tensors [a, b, c], with values used several times, views of views, and
    intermediate outputs."""
    m = Model()
    shape = tuple(int(v) for v in rng.choice([1, 2, 3, 5, 8, 17, 33], 3))
    pool = [(m.input(floats(*shape, seed=int(rng.integers(1000)))), shape) for _ in range(2)]
    for _ in range(int(rng.integers(3, 40))):
        x, s = pool[int(rng.integers(len(pool)))]
        same = [v for v, t in pool if t == s]
        other = same[int(rng.integers(len(same)))]
        kind = int(rng.integers(12))
        if kind == 0:
            y, t = m.node(str(rng.choice(["Add", "Sub", "Mul", "Max"])), [x, other]), s
        elif kind == 1:
            y, t = m.node(str(rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs"])), [x]), s
        elif kind == 2:
            perm = [int(v) for v in rng.permutation(3)]
            y, t = m.node("Transpose", [x], perm=perm), tuple(s[p] for p in perm)
        elif kind == 3:
            axis = int(rng.integers(3))
            y, t = m.node("Concat", [x, other], axis=axis), tuple(2 * d if i == axis else d for i, d in enumerate(s))
        elif kind == 4 and max(s) > 1:
            axis = int(np.argmax(s))
            cut = int(rng.integers(1, s[axis]))
            parts = m.node("Split", [x, m.constant(np.array([cut, s[axis] - cut]))], 2, axis=axis)
            for part, size in zip(parts, (cut, s[axis] - cut)):
                pool.append((part, tuple(size if i == axis else d for i, d in enumerate(s))))
            continue
        elif kind == 5:
            axis, step = int(rng.integers(3)), int(rng.choice([1, 2, -1]))
            first, last = (0, 1 << 40) if step > 0 else (-1, -(1 << 40))
            y = m.node("Slice", [x, *(m.constant(np.array([v])) for v in (first, last, axis, step))])
            t = tuple(-(-d // abs(step)) if i == axis else d for i, d in enumerate(s))
        elif kind == 6:
            y, t = m.node("Pad", [x, m.constant(np.array([0, 1, 0, 1, 0, 2]))]), (s[0] + 1, s[1] + 1, s[2] + 2)
        elif kind == 7:
            y, t = m.node("Softmax", [x], axis=int(rng.integers(3))), s
        elif kind == 8:
            axis = int(rng.integers(3))
            r = m.node("ReduceSum", [x, m.constant(np.array([axis]))], keepdims=1)
            y, t = m.node("Sub", [x, r]), s
        elif kind == 9:
            y, t = m.node("Reshape", [x, m.constant(np.array([s[2], s[0], s[1]]))]), (s[2], s[0], s[1])
        elif kind == 10:
            y, t = m.node("MatMul", [x, m.node("Transpose", [other], perm=[0, 2, 1])]), (s[0], s[1], s[1])
        else:
            y, t = m.node("Add", [x, m.constant(floats(s[2], seed=3))]), s
        if np.prod(t) < 100_000:
            pool.append((y, t))
    made = [v for v, _ in pool[2:]]
    if not made:
        return random_graph(rng)
    chosen = {made[-1], *(made[int(i)] for i in rng.integers(len(made), size=2))}
    return m, [v for v in made if v in chosen]


@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed):
    m, outputs = random_graph(np.random.default_rng(seed))
    check(m, outputs, oracle=False)


# --- threads and the shapes of vectors


def assert_same_on_any_number_of_threads(m, output):
    data = m.bytes([output])
    want = tessera.Session(data, use_npu=False, cpu_codegen=False).run(None, m.inputs)[0]
    for threads in (0, 1, 2, 3, 8):
        session = tessera.Session(data, use_npu=False, threads=threads)
        for _ in range(3):
            assert same_bits(session.run(None, m.inputs)[0], want), f"{threads} threads"


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("width", [7, 13, 16, 27, 33, 56])
def test_rows_of_any_width_on_any_number_of_threads(width, stride):
    m = Model()
    x = m.input(floats(1, 9, width, width))
    w, b = m.constant(floats(21, 9, 3, 3, seed=1)), m.constant(floats(21, seed=2))
    y = m.node("Conv", [x, w, b], pads=[1, 1, 1, 1], strides=[stride, stride])
    assert_same_on_any_number_of_threads(m, m.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2]))


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 300.0])
def test_products_of_float16_have_the_bits_of_two_roundings(scale):
    half = [(scale * floats(*shape, seed=i)).astype(np.float16) for i, shape in enumerate([(5, 300), (300, 40)])]
    half[0][0, :3] = np.inf, -np.inf, np.nan
    half[0][1, :4] = 0.0, -0.0, 6e-8, -65504
    one("MatMul", half, oracle=False)
    one("Gemm", [*half, np.zeros(40, np.float16)], oracle=False)
    x, w = half[0][2:].reshape(1, 9, 10, 10), half[1][:3, :27].reshape(9, 1, 3, 3)
    one("Conv", [x, w], oracle=False, group=9)
    one("Conv", [x, w.reshape(1, 9, 3, 3)], oracle=False)


def test_products_functions_and_sums_on_any_number_of_threads():
    m = Model()
    x, w = m.input(floats(3, 77, 61)), m.constant(floats(61, 131, seed=1))
    y = m.node("Erf", [m.node("MatMul", [x, w])])
    y = m.node("Softmax", [m.node("Mul", [y, m.node("Sigmoid", [y])])], axis=-1)
    assert_same_on_any_number_of_threads(m, m.node("ReduceMean", [y], axes=[1], keepdims=0))


def test_sessions_that_run_at_the_same_time_share_the_threads():
    m = Model()
    y = m.node("Conv", [m.input(floats(1, 16, 40, 40)), m.constant(floats(32, 16, 3, 3, seed=1))])
    data = m.bytes([y])
    want = tessera.Session(data, use_npu=False, threads=1).run(None, m.inputs)[0]
    sessions = [tessera.Session(data, use_npu=False, threads=threads) for threads in (0, 2, 3, 8)]

    def work(session):
        return all(same_bits(session.run(None, m.inputs)[0], want) for _ in range(50))

    with concurrent.futures.ThreadPoolExecutor(len(sessions)) as pool:
        assert all(pool.map(work, sessions))


def test_machine_code_of_the_cache_is_the_code_that_was_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    m = Model()
    data = m.bytes([m.node("Relu", [m.node("MatMul", [m.input(floats(5, 9)), m.constant(floats(9, 7, seed=1))])])])
    want = tessera.Session(data, use_npu=False, cpu_cache=False).run(None, m.inputs)[0]
    assert not list(tmp_path.rglob("*.code"))
    for _ in range(2):
        session = tessera.Session(data, use_npu=False)
        assert same_bits(session.run(None, m.inputs)[0], want)
        assert len(list(tmp_path.rglob("*.code"))) == 1
    next(tmp_path.rglob("*.code")).write_bytes(b"damaged")
    assert same_bits(tessera.Session(data, use_npu=False).run(None, m.inputs)[0], want)

# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of floats as compiled CPU code: bits of the operator library, results of ONNX Runtime."""

import numpy as np
import pytest

from tests.cpu.cases import MS, floats, ints, one


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

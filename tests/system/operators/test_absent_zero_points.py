# SPDX-License-Identifier: Apache-2.0
"""Zero points that are left out: 0 of the type that the tensor has, not of uint8. Functional simulator = reference
interpreter in every element, for operators of com.microsoft whose zero points are optional; the operator gives what it
gives with a zero point of 0."""

import numpy as np
import pytest

import tessera
from tests.system.builders import Graph

MS = "com.microsoft"
X = np.random.default_rng(1).integers(-128, 128, (2, 4, 6, 5)).astype(np.int8)
SCALES = (np.float32(0.05), np.float32(0.03), np.float32(0.06))


def unary(op, **attributes):
    def make(g, x, zero):
        a, _, y = (g.constant(s) for s in SCALES)
        return g.node(op, [x, a, zero, y, zero], "y", MS, **attributes)

    return make


def binary(op):
    def make(g, x, zero):
        a, b, y = (g.constant(s) for s in SCALES)
        return g.node(op, [x, a, zero, g.constant(X[::-1].copy()), b, zero, y, zero], "y", MS)

    return make


CASES = {
    "add": binary("QLinearAdd"),
    "mul": binary("QLinearMul"),
    "leaky": unary("QLinearLeakyRelu", alpha=0.25),
    "sigmoid": unary("QLinearSigmoid"),
    "pool": unary("QLinearAveragePool", kernel_shape=[2, 2]),
}


def results(make, with_zero, device, **options):
    g = Graph()
    x = g.input(X, "x")
    make(g, x, g.constant(np.int8(0)) if with_zero else "")
    session = tessera.Session(g.finish("y").SerializeToString(), device, "npu64", **options)
    return session.run(None, g.feeds)[0]


@pytest.mark.parametrize("case", CASES)
def test_absent_zero_point(case):
    want = results(CASES[case], True, "reference")
    assert want.dtype == np.int8 and (want < 0).any() or case == "sigmoid"
    assert np.array_equal(results(CASES[case], False, "reference"), want)
    for options in ({}, {"use_npu": False}, {"use_npu": False, "cpu_codegen": False}):
        got = results(CASES[case], False, "fsim", **options)
        assert got.dtype == want.dtype and np.array_equal(got, want), options

# SPDX-License-Identifier: Apache-2.0
"""Activations and the normalised exponentials beside ONNX Runtime (the reference evaluator where it has no kernel)."""

import numpy as np
import pytest
from either_oracle import FLOATS, TOLERANCE, check_either, values
from ort_compare import check, check_rejected

SHAPES = [(3, 7), (), (0, 2), (2, 3, 4, 5)]
# (operator, versions, attribute sets)
ACTIVATIONS = [
    ("Relu", [7, 13, 14], [{}]),
    ("LeakyRelu", [7, 16], [{}, {"alpha": 0.3}]),
    ("Elu", [7, 22], [{}, {"alpha": 0.7}]),
    ("Celu", [12], [{}, {"alpha": 2.5}]),
    ("Selu", [7, 22], [{}, {"alpha": 1.2, "gamma": 2.0}]),
    ("ThresholdedRelu", [10, 22], [{}, {"alpha": 2.0}]),
    ("Sigmoid", [7, 13], [{}]),
    ("HardSigmoid", [7, 22], [{}, {"alpha": 0.4, "beta": 0.1}]),
    ("HardSwish", [14, 22], [{}]),
    ("Mish", [18, 22], [{}]),
    ("Softplus", [7, 22], [{}]),
    ("Softsign", [7, 22], [{}]),
    ("Gelu", [20], [{}, {"approximate": "tanh"}]),
    ("Shrink", [9], [{}, {"bias": 0.5, "lambd": 1.5}]),
]


@pytest.mark.parametrize("op,versions,attribute_sets", ACTIVATIONS, ids=[a[0] for a in ACTIVATIONS])
@pytest.mark.parametrize("dtype", FLOATS)
def test_activation(op, versions, attribute_sets, dtype):
    rng = np.random.default_rng(1)
    for opset in versions:
        for attributes in attribute_sets:
            for shape in SHAPES:
                x = values(rng, shape, dtype, -5, 5)
                if (
                    op == "Celu" and dtype != "float32"
                ):  # the standard's Celu is float32; both oracles agree with the formula
                    a = attributes.get("alpha", 1.0)
                    wide = x.astype(np.float64)
                    expected = (np.maximum(0, wide) + np.minimum(0, a * np.expm1(wide / a))).astype(dtype)
                    check(
                        op,
                        [x],
                        opset=opset,
                        attributes=attributes,
                        expected=[expected],
                        rtol=TOLERANCE[dtype],
                        atol=1e-4,
                    )
                    continue
                if op == "Softsign" and dtype != "float32":  # the reference evaluator has no scalar Softsign
                    check(op, [x], opset=opset, expected=[(x / (1 + np.abs(x))).astype(dtype)], rtol=TOLERANCE[dtype])
                    continue
                check_either(
                    op,
                    [x],
                    opset=opset,
                    attributes=attributes,
                    rtol=max(TOLERANCE[dtype], 1e-6),
                    atol=max(TOLERANCE[dtype], 1e-6),
                )


def test_large_arguments():
    x = np.array([-1e4, -100, -20, 0, 20, 100, 1e4, np.inf, -np.inf], np.float32)
    check("Sigmoid", [x], opset=13, rtol=1e-5, atol=1e-6)
    check("Softplus", [x], opset=13, expected=[np.logaddexp(0, x.astype(np.float64)).astype(np.float32)], rtol=1e-6)
    for op in ["Relu", "Elu", "HardSigmoid", "Selu", "LeakyRelu"]:
        check(op, [x], opset=14, rtol=1e-6, atol=1e-6)


def test_nan():
    x = np.array([np.nan, 1, -1], np.float32)
    for op, opset in [("Relu", 14), ("Sigmoid", 13), ("LeakyRelu", 16), ("Celu", 12)]:
        check(op, [x], opset=opset, oracle="reference", rtol=1e-6)


def test_swish():
    rng = np.random.default_rng(2)
    for attributes in [{}, {"alpha": 1.7}]:
        for dtype in FLOATS:
            x = values(rng, (3, 5), dtype)
            a = attributes.get("alpha", 1.0)
            wide = x.astype(np.float64)
            check(
                "Swish",
                [x],
                opset=24,
                attributes=attributes,
                expected=[(wide / (1 + np.exp(-a * wide))).astype(dtype)],
                rtol=TOLERANCE[dtype],
                atol=1e-6,
            )


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_relu_integers(dtype):
    check_either("Relu", [values(np.random.default_rng(3), (3, 5), dtype)], opset=14)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_shrink_integers(dtype):
    x = values(np.random.default_rng(4), (3, 5), dtype, -5, 5)
    check_either("Shrink", [x], opset=9, attributes={"lambd": 1.5, "bias": 1.0})


@pytest.mark.parametrize("dtype", FLOATS + ["int32", "int64", "uint32", "uint64"])
def test_prelu(dtype):
    rng = np.random.default_rng(5)
    for x, slope in [
        ((2, 3, 4), (3, 1)),
        ((2, 3), (2, 3)),
        ((4,), ()),
        ((2, 3), (1,)),
        ((2, 3, 4, 5), (3, 1, 1)),
        ((0, 3), (3,)),
    ]:
        for opset in [7, 9, 16]:
            check_either(
                "PRelu", [values(rng, x, dtype), values(rng, slope, dtype)], opset=opset, rtol=TOLERANCE.get(dtype, 0)
            )
    check_rejected("PRelu", [np.zeros((3,), np.float32), np.zeros((2, 4), np.float32)], match="broadcast", opset=16)


@pytest.mark.parametrize("opset", [7, 9, 16])
def test_slopes_that_widen(opset):
    """ONNX Runtime broadcasts both operands."""
    rng = np.random.default_rng(5)
    for x, slope in [((3,), (2, 3)), ((2, 1), (2, 3)), ((1, 3), (3, 1)), ((), (3,)), ((0, 3), (2, 0, 3))]:
        check("PRelu", [values(rng, x, np.float32), values(rng, slope, np.float32)], opset=opset)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_normalised(op, dtype):
    rng = np.random.default_rng(6)
    tolerance = dict(rtol=10 * TOLERANCE[dtype], atol=TOLERANCE[dtype]) if op != "Hardmax" else {}
    for shape in [(3, 7), (2, 3, 4), (2, 3, 4, 5), (6,), (2, 0, 3), (1, 1)]:
        x = values(rng, shape, dtype, -6, 6)
        for opset in [7, 11, 13]:
            for axis in range(-len(shape) if opset >= 11 else 0, len(shape)):
                # The reference evaluator knows the semantics of opset 13 only.
                if opset < 13 and (dtype == "float16" or (op == "Hardmax" and dtype == "float64")):
                    continue
                check_either(op, [x], opset=opset, attributes={"axis": axis}, **tolerance)
        check_either(op, [x], opset=13, **tolerance)
        if len(shape) > 1 and dtype == "float32":
            check(op, [x], opset=11, **tolerance)


def test_normalised_edges():
    x = np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0, 1], [5, 5, 5]], np.float32)
    for op in ["Softmax", "LogSoftmax", "Hardmax"]:
        check(op, [x], opset=13, rtol=1e-5, atol=1e-6)
    check_rejected("Softmax", [x], opset=13, attributes={"axis": 2}, match="axis")
    check_rejected("Softmax", [np.zeros(3, np.int32)], opset=13, match="type")

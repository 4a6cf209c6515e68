# SPDX-License-Identifier: Apache-2.0
"""Operators of the operator sets 1 to 6, beside the same operator of set 7 in ONNX Runtime, written by hand as the
standard's changes say; and the experimental operators, which ONNX Runtime still has."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, run_ort, run_tessera

RNG = np.random.default_rng(6)


def f(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


X = f(2, 3, 4, 5)


def same(op, old, inputs, attributes, new_inputs, new_attributes, outputs=1, new_op=None):
    """`op` of set `old` equals the operator of set 7 in ONNX Runtime with other operands and attributes."""
    expected = run_ort(new_op or op, new_inputs, opset=7, attributes=new_attributes, outputs=outputs)
    return check(op, inputs, opset=old, attributes=attributes, outputs=outputs, expected=expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize("old", [1, 6])
def test_broadcast_from_an_axis(op, old):
    a = np.abs(X) + 1
    for b, axis, shape in [
        (f(5), None, (5,)),
        (f(4, 5), None, (4, 5)),
        (f(3, 4), 1, (3, 4, 1)),
        (f(3), 1, (3, 1, 1)),
        (f(2), 0, (2, 1, 1, 1)),
        (f(3), -3, (3, 1, 1)),
        (f(2, 3, 4, 5), 0, (2, 3, 4, 5)),
        (f(), None, ()),
        (f(1, 1), None, ()),
        (f(1), 2, ()),
        (f(1, 1, 1, 1, 1), None, ()),
    ]:
        attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
        b = np.asarray(np.abs(b) + 1, np.float32)
        same(op, old, [a, b], attributes, [a, b.reshape(shape)], {})
    same(op, old, [a, a], {}, [a, a], {})


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal", "Greater", "Less"])
def test_broadcast_of_logic(op):
    if op in ("And", "Or", "Xor"):
        a, b = X > 0, f(3, 4) > 0
    elif op == "Equal":
        a, b = RNG.integers(0, 3, (2, 3, 4, 5)), RNG.integers(0, 3, (3, 4))
    else:
        a, b = X, f(3, 4)
    same(op, 1, [a, b], {"broadcast": 1, "axis": 1}, [a, b.reshape(3, 4, 1)], {})
    same(op, 1, [a, a], {}, [a, a], {})


def test_broadcast_is_refused_where_it_is_not_asked_for():
    check_rejected("Add", [X, f(5)], opset=6, match="broadcast = 1")
    check_rejected("Add", [X, f(3)], opset=6, attributes={"broadcast": 1}, match="does not broadcast into the first")
    check_rejected("Add", [f(5), X], opset=6, attributes={"broadcast": 1}, match="does not broadcast into the first")
    check_rejected("Add", [X, f(4, 5)], opset=6, attributes={"broadcast": 1, "axis": 3}, match="from axis 3 on")
    check_rejected("Max", [X, f(5)], opset=5, match="differ in shape")


@pytest.mark.parametrize(
    "op", ["Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh"]
)
def test_consumed_inputs(op):
    x = np.abs(X) + 0.5
    same(op, 1, [x], {"consumed_inputs": [0]}, [x], {})


@pytest.mark.parametrize(
    "op,attributes",
    [
        ("Clip", {"min": -0.5, "max": 0.75}),
        ("Elu", {"alpha": 0.5}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Selu", {"alpha": 1.5, "gamma": 1.1}),
    ],
)
def test_consumed_inputs_beside_attributes(op, attributes):
    same(op, 1, [X], {"consumed_inputs": [0], **attributes}, [X], attributes)


def test_selu_had_shorter_constants():
    same("Selu", 1, [X], {}, [X], {"alpha": 1.6732, "gamma": 1.0507})


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
def test_variadic(op):
    inputs = [X, f(2, 3, 4, 5), f(2, 3, 4, 5)]
    same(op, 1, inputs, {"consumed_inputs": [0, 0, 0]}, inputs, {})


def test_normalisation():
    scale, shift, mean, variance = f(3), f(3), f(3), np.abs(f(3)) + 1
    inputs = [X, scale, shift, mean, variance]
    for old in (1, 6):
        same("BatchNormalization", old, inputs, {"is_test": 1, "epsilon": 1e-3}, inputs, {"epsilon": 1e-3})
    same("BatchNormalization", 1, inputs, {"consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1}, inputs, {})
    check_rejected("BatchNormalization", inputs, opset=6, outputs=5, match="training")
    same("InstanceNormalization", 1, inputs[:3], {"consumed_inputs": [0]}, inputs[:3], {})
    for old in (1, 6):
        same("Dropout", old, [X], {"is_test": 1, "ratio": 0.3}, [X], {})


def test_prelu_slopes_are_of_channels():
    for old in (1, 6):
        for slope, shape in [(f(1), (1,)), (f(3), (3, 1, 1)), (f(3, 1, 1), (3, 1, 1)), (f(2, 3, 4, 5), (2, 3, 4, 5))]:
            same("PRelu", old, [X, slope], {}, [X, slope.reshape(shape)], {})
        x, slope = f(4, 3), f(3)
        same("PRelu", old, [x, slope], {}, [x, slope], {})


def test_gemm():
    a, b, c = f(4, 3), f(5, 3), f(5)
    for old in (1, 6):
        attributes = {"transB": 1, "alpha": 0.5}
        same("Gemm", old, [a, b, c], {"broadcast": 1, **attributes}, [a, b, c], attributes)


def test_contents_that_were_attributes():
    same("Reshape", 1, [X], {"shape": [0, -1, 5], "consumed_inputs": [0]}, [X, np.array([0, -1, 5])], {})
    same("Concat", 1, [X, X], {}, [X, X], {"axis": 1})
    same("Concat", 1, [X, X], {"axis": 3}, [X, X], {"axis": 3})
    same("Cast", 1, [X], {"to": "INT32"}, [X], {"to": 6})
    same("Cast", 1, [X], {"to": "double"}, [X], {"to": 11})
    check_rejected("Cast", [X], opset=1, attributes={"to": "COMPLEX"}, match="no element type")
    pads = [0, 0, 1, 2, 0, 0, 3, 0]
    same("Pad", 1, [X], {"paddings": pads, "value": 2.0}, [X], {"pads": pads, "value": 2.0})
    for mode, new in [("nearest", "nearest"), ("bilinear", "linear")]:
        scales = {"mode": new, "scales": [1.0, 1.0, 2.0, 3.0]}
        same("Upsample", 1, [X], {"mode": mode, "height_scale": 2.0, "width_scale": 3.0}, [X], scales)
    for p in (1.0, 2.0):
        same("LpPool", 1, [X], {"p": p, "kernel_shape": [2, 3]}, [X], {"p": int(p), "kernel_shape": [2, 3]})
        same("GlobalLpPool", 1, [X], {"p": p}, [X], {"p": int(p)})
    check_rejected("GlobalLpPool", [X], opset=1, attributes={"p": 1.5}, match="no integer")


def test_contents_that_were_operands():
    same("Split", 1, [X], {"axis": 2, "split": [1, 3]}, [X], {"axis": 2, "split": [1, 3]}, outputs=2)
    same("Split", 1, [X, np.array([1, 3], np.float32)], {"axis": 2}, [X], {"axis": 2, "split": [1, 3]}, outputs=2)
    tiles, axis = np.array([3], np.float32), np.array([1], np.float32)
    same("Tile", 1, [X, tiles, axis], {}, [X, np.array([1, 3, 1, 1])], {})
    check_rejected("Tile", [X, tiles, np.array([4], np.float32)], opset=1, match="axis")
    check_rejected("Tile", [X, np.array([1, 2], np.float32), axis], opset=1, match="one element")


@pytest.mark.parametrize("op,gates,outputs", [("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3)])
def test_cells(op, gates, outputs):
    inputs = [f(4, 2, 3), f(1, gates * 5, 3), f(1, gates * 5, 5), f(1, 2 * gates * 5)]
    attributes = {"hidden_size": 5, "direction": "forward"}
    same(op, 1, inputs, {**attributes, "output_sequence": 1}, inputs, attributes, outputs=outputs)


@pytest.mark.parametrize(
    "op,inputs,attributes",
    [
        ("Affine", [X], {"alpha": 1.5, "beta": -0.25}),
        ("Affine", [X], {}),
        ("ScaledTanh", [X], {"alpha": 1.5, "beta": 0.25}),
        ("ParametricSoftplus", [X], {"alpha": 1.5, "beta": 0.25}),
        ("ImageScaler", [X], {"scale": 1.5, "bias": [0.5, 1.0, -1.0]}),
        ("Crop", [X], {"border": [1, 0, 2, 1]}),
        ("Crop", [X], {"border": [1, 1, 0, 0], "scale": [2, 3]}),
        ("ThresholdedRelu", [X], {"alpha": 0.3}),
        ("MeanVarianceNormalization", [X], {}),
        ("MeanVarianceNormalization", [X], {"across_channels": 1}),
        ("MeanVarianceNormalization", [X], {"normalize_variance": 0}),
        ("DynamicSlice", [X, np.array([1, 0]), np.array([3, 2]), np.array([2, 3])], {}),
    ],
)
def test_experimental(op, inputs, attributes):
    constant = (1, 2, 3) if op == "DynamicSlice" else ()
    check(op, inputs, opset=7, attributes=attributes, rtol=1e-5, atol=1e-5, infer_only_constants=constant)


def test_experimental_without_a_kernel_elsewhere():
    check("Scale", [X], opset=7, attributes={"scale": 0.5}, expected=[X * np.float32(0.5)])
    values = {"values": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    expected = [np.arange(1, 7, dtype=np.float32).reshape(2, 3)]
    check("GivenTensorFill", [], opset=1, attributes={**values, "shape": [2, 3]}, expected=expected)
    shape = np.array([2, 3])
    attributes = {**values, "input_as_shape": 1}
    check("GivenTensorFill", [shape], opset=1, attributes=attributes, expected=expected, infer_only_constants=(0,))
    check_rejected("GivenTensorFill", [], opset=1, attributes={**values, "shape": [2, 2]}, match="do not fill")
    check_rejected("Crop", [X], opset=1, attributes={"border": [3, 0, 2, 0]}, match="nothing is left")
    check_rejected("ImageScaler", [X], opset=1, attributes={"bias": [1.0]}, match="1 values for 3 channels")


def test_unknown_ranks_wait_for_the_operands():
    """What inference cannot align yet, evaluation can."""
    b = f(3)
    (actual,) = run_tessera("Add", [X, b], opset=6, attributes={"broadcast": 1, "axis": 1})
    np.testing.assert_array_equal(actual, X + b.reshape(3, 1, 1))

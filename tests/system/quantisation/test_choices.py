# SPDX-License-Identifier: Apache-2.0
"""Networks that choose by their values, as detectors do the boxes that they list: the distance between float and int8
is that of the same choices, and a list may be empty."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization.forms import choices

RNG = np.random.default_rng(5)
NODE, VALUE = helper.make_node, helper.make_tensor_value_info
NUMBERS = {
    "top": [200],
    "axis": [0],
    "width": [2],
    "most": [40],
    "flat": [256],
    "rows": [-1, 4],
    "pair": [2],
    "all": [-1],
}


def network(nodes, weights, outputs, shape):
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in NUMBERS.items()]
    constants += [numpy_helper.from_array(np.float32(value), name) for name, value in weights.items()]
    ports = [VALUE(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "g", [VALUE("x", TensorProto.FLOAT, shape)], ports, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def listing(in_branch):
    """NonMaxSuppression, or an If with it in a branch, as torchvision exports it."""
    suppress = NODE("NonMaxSuppression", ["boxes", "scores", "most", "near"], ["list"])
    if not in_branch:
        return [suppress]
    none = NODE("Constant", [], ["none"], value=numpy_helper.from_array(np.zeros((0, 3), np.int64)))
    suppress.output[0] = "some"
    bodies = [
        helper.make_graph([node], "body", [], [VALUE(node.output[0], TensorProto.INT64, [None, 3])])
        for node in (none, suppress)
    ]
    return [
        NODE("Size", ["tops"], ["size"]),
        NODE("Cast", ["size"], ["full"], to=TensorProto.BOOL),
        NODE("Not", ["full"], ["empty"]),
        NODE("If", ["empty"], ["list"], then_branch=bodies[0], else_branch=bodies[1]),
    ]


def detector(in_branch):
    """The best places of a map, and those of them that lie apart."""
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        NODE("Relu", ["c"], ["r"]),
        NODE("Conv", ["r", "ws"], ["s"], pads=[1] * 4),
        NODE("Sigmoid", ["s"], ["p"]),
        NODE("Reshape", ["p", "flat"], ["each"]),
        NODE("TopK", ["each", "top"], ["tops", "places"]),
        NODE("Conv", ["r", "wb"], ["b"], pads=[1] * 4),
        NODE("Transpose", ["b"], ["t"], perm=[0, 2, 3, 1]),
        NODE("Reshape", ["t", "rows"], ["corners"]),
        NODE("Gather", ["corners", "places"], ["near_tops"]),
        NODE("Unsqueeze", ["near_tops", "axis"], ["boxes"]),
        NODE("Reshape", ["tops", "one"], ["scores"]),
        *listing(in_branch),
        NODE("Gather", ["list", "width"], ["column"], axis=1),
        NODE("Reshape", ["column", "all"], ["kept"]),
        NODE("Gather", ["tops", "kept"], ["score"]),
        NODE("Gather", ["near_tops", "kept"], ["box"]),
    ]
    weights = {
        "w": RNG.standard_normal((8, 3, 3, 3)) / 4,
        "ws": RNG.standard_normal((1, 8, 3, 3)) / 30,
        "wb": RNG.standard_normal((4, 8, 3, 3)) / 8,
        "near": 0.3,
    }
    model = network(nodes, weights, {"score": TensorProto.FLOAT, "box": TensorProto.FLOAT}, [1, 3, 16, 16])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, -1], np.int64), "one"))
    return model


@pytest.mark.parametrize("in_branch", [False, True])
def test_distances_are_of_the_same_choices(in_branch):
    model = detector(in_branch)
    samples = [{"x": RNG.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(6)]
    made = tessera.quantize(model.SerializeToString(), samples, report=True, engine="onnxruntime", sixteen=0)
    assert made.report["output_snr_db"] > 25 and made.macs_npu_share == 1
    # As lists, place by place, they are nowhere near.
    float_run, run = (onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, made.model))
    real, other = float_run.run(None, samples[0])[1], run.run(None, samples[0])[1]
    rows = min(len(real), len(other))
    assert rows > 10 and np.square(real[:rows] - other[:rows]).sum() > 0.1 * np.square(real[:rows]).sum()


def test_given_choices_take_the_place_of_those_that_the_model_makes():
    model = detector(False)
    feed = {"x": RNG.standard_normal((1, 3, 16, 16)).astype(np.float32)}
    assert choices.candidates(model) == ["places", "list"]
    places, listed = np.arange(200)[::-1].copy(), np.array([[0, 0, 3], [0, 0, 0]])
    given = choices.given(model, {"places": places, "list": listed})
    given.graph.output.append(onnx.ValueInfoProto(name="each"))
    run = onnxruntime.InferenceSession(given.SerializeToString())
    score, _, each = run.run(None, {**feed, "places": places, "list": listed})
    np.testing.assert_array_equal(score, each[[196, 199]])


def test_a_list_may_be_empty():
    """ONNX Runtime writes a shape of 0 and -1 in front of rows whose width it knows."""
    nodes = [
        NODE("MatMul", ["x", "w"], ["m"]),
        NODE("Greater", ["m", "high"], ["found"]),
        NODE("NonZero", ["found"], ["at"]),
        NODE("Gather", ["at", "first"], ["lines"], axis=0),
        NODE("Gather", ["m", "lines"], ["some"]),
        NODE("Split", ["some"], ["near", "far"], axis=1),
        NODE("Unsqueeze", ["near", "width"], ["a"]),
        NODE("Unsqueeze", ["far", "width"], ["b"]),
        NODE("Concat", ["a", "b"], ["pairs"], axis=2),
        NODE("Shape", ["some"], ["extents"]),
        NODE("Gather", ["extents", "first"], ["count"]),
        NODE("Gather", ["extents", "second"], ["breadth"]),
        NODE("Unsqueeze", ["count", "axis"], ["count1"]),
        NODE("Unsqueeze", ["breadth", "axis"], ["breadth1"]),
        NODE("Concat", ["count1", "breadth1"], ["shape"], axis=0),
        NODE("Reshape", ["pairs", "shape"], ["y"]),
    ]
    weights = {"w": RNG.standard_normal((8, 4)), "high": 100}
    model = network(nodes, weights, {"y": TensorProto.FLOAT, "m": TensorProto.FLOAT}, [6, 8])
    for name, value in (("first", 0), ("second", 1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    samples = [{"x": RNG.standard_normal((6, 8)).astype(np.float32)} for _ in range(4)]
    assert tessera.quantize(model, samples, engine="onnxruntime").macs_npu_share == 1

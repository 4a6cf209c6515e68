# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a quantised model that are bytes: a step of an attention with a cache, whose past goes in and
comes out."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera.quantization.byte_io import METADATA

HEADS, SIZE, WIDTH = 2, 8, 16


def model_with_cache():
    """Scores of new queries with old and new keys; `past` grows to `present`."""
    random = np.random.default_rng(3)
    weights = [(random.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32) for _ in range(2)]
    constants = [numpy_helper.from_array(array, name) for array, name in zip(weights, ("wq", "wk"))]
    constants.append(numpy_helper.from_array(np.array([0, 0, HEADS, SIZE]), "apart"))
    node = helper.make_node
    nodes = []
    for name, weight in (("query", "wq"), ("key", "wk")):
        nodes += [
            node("MatMul", ["x", weight], [f"{name}.all"], f"{name}.product"),
            node("Reshape", [f"{name}.all", "apart"], [f"{name}.parts"], f"{name}.reshape"),
            node("Transpose", [f"{name}.parts"], [f"{name}.heads"], f"{name}.transpose", perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", ["past", "key.heads"], ["present"], "append", axis=2),
        node("Transpose", ["present"], ["turned"], "turn", perm=[0, 1, 3, 2]),
        node("MatMul", ["query.heads", "turned"], ["scores"], "scores.product"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "cache",
        [info("x", TensorProto.FLOAT, [1, "new", WIDTH]), info("past", TensorProto.FLOAT, [1, HEADS, "past", SIZE])],
        [info("scores", TensorProto.FLOAT, None), info("present", TensorProto.FLOAT, [1, HEADS, "total", SIZE])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(model, count=4):
    random = np.random.default_rng(5)
    run = onnxruntime.InferenceSession(model.SerializeToString())
    for _ in range(count):
        rows = random.standard_normal((1, 6, WIDTH)).astype(np.float32)
        before = run.run(["present"], {"x": rows[:, :4], "past": np.zeros((1, HEADS, 0, SIZE), np.float32)})[0]
        yield {"x": rows[:, 4:], "past": before}


@pytest.fixture(scope="module")
def quantised():
    model = model_with_cache()
    return tessera.quantize(model, lambda: samples(model), engine="onnxruntime", bytes=["past", "present"]).model


def test_a_cache_of_bytes_can_be_given_back(quantised):
    onnx.checker.check_model(quantised)
    grids = json.loads(next(entry.value for entry in quantised.metadata_props if entry.key == METADATA))
    assert grids["past"] == grids["present"]
    run = onnxruntime.InferenceSession(quantised.SerializeToString())
    session = tessera.Session(quantised.SerializeToString(), "fsim", "npu256")
    rows = np.random.default_rng(6).standard_normal((1, 5, WIDTH)).astype(np.float32)
    past, seen = np.zeros((1, HEADS, 0, SIZE), np.uint8), 0
    for new in (3, 1, 1):
        feed = {"x": rows[:, seen : seen + new], "past": past}
        seen += new
        expected, got = run.run(["scores", "present"], feed), session.run(["scores", "present"], feed)
        assert expected[1].dtype == np.uint8 and expected[1].shape == (1, HEADS, seen, SIZE)
        for want, have in zip(expected, got):
            np.testing.assert_array_equal(have, want)
        past = got[1]


def test_bytes_that_cannot_be():
    model = model_with_cache()
    missing = "no input or output 'pasta'; it has x, past, scores, present"
    for pattern, text in (("pasta", missing), ("scores", "'scores' is not quantised, as a float operator makes it")):
        with pytest.raises(tessera.Error, match=text):
            tessera.quantize(
                model, lambda: samples(model), engine="onnxruntime", bytes=pattern, keep_float=["scores.product"]
            )

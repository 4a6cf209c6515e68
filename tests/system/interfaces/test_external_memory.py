# SPDX-License-Identifier: Apache-2.0
"""Session(external=...): external data of a model in bytes that lies in memory. Results beside those of the same model
with its weights inside."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera


def model_of(weights, *, outside):
    """x [N,4] times the weights [4,3]; outside: the weights stand at the location `memory:w`, behind 16 other bytes."""
    tensor = numpy_helper.from_array(weights, "w")
    if outside:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "memory:w"), ("offset", "16"), ("length", str(weights.nbytes))):
            tensor.external_data.add(key=key, value=value)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "product",
        [value("x", TensorProto.FLOAT, ["N", 4])],
        [value("y", TensorProto.FLOAT, ["N", 3])],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def weights_and_memory(seed=1):
    rng = np.random.default_rng(seed)
    memory = rng.standard_normal(4 + 12).astype(np.float32)
    return memory[4:].reshape(4, 3), memory


@pytest.mark.parametrize("device", ["fsim", "reference"])
def test_weights_in_memory(device):
    weights, memory = weights_and_memory()
    inside = tessera.Session(model_of(weights, outside=False), device)
    outside = tessera.Session(model_of(weights, outside=True), device, external={"memory:w": memory})
    for rows in (1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        assert np.array_equal(inside.run(None, {"x": x})[0], outside.run(None, {"x": x})[0])


def test_kept_programs_know_the_weights(tmp_path):
    x = np.ones((1, 4), np.float32)
    for seed in (1, 2, 1):
        weights, memory = weights_and_memory(seed)
        model = model_of(weights, outside=True)
        session = tessera.Session(model, external={"memory:w": memory}, cache=str(tmp_path))
        assert np.allclose(session.run(None, {"x": x})[0], x @ weights, atol=1e-5)


def test_what_does_not_fit_is_one_line():
    weights, memory = weights_and_memory()
    model = model_of(weights, outside=True)
    for external, pattern in (
        ({"memory:w": memory[:8]}, "initializer 'w'.*'memory:w' has 32 bytes in memory, too few for 48 at offset 16"),
        ({"memory:v": memory}, "initializer 'w'.*'memory:w' cannot be read because the model was given as bytes"),
        ({"memory:w": np.zeros((0, 1), np.float32)}, "has 0 bytes in memory"),
    ):
        with pytest.raises(tessera.Error, match=pattern) as raised:
            tessera.Session(model, external=external)
        assert "\n" not in str(raised.value) and raised.value.code == "invalid_model"
    assert onnx.load_from_string(model).graph.initializer[0].data_location == TensorProto.EXTERNAL

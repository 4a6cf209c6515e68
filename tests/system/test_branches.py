# SPDX-License-Identifier: Apache-2.0
"""Branches of If that make no sense for the shapes that came: the other branch runs, equal to ONNX Runtime, and one
that is taken all the same fails with one line that names its node. Voice detectors have them, with a network for each
sampling rate."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tessera


def branch(name, window):
    """x is brought to one window, convolved, and reduced to one number a channel."""
    kernel = np.random.default_rng(window).standard_normal((3, 1, window)).astype(np.float32)
    nodes = [
        helper.make_node(
            "Constant", [], [f"{name}_shape"], value=onnx.numpy_helper.from_array(np.int64([1, 1, window]))
        ),
        helper.make_node("Constant", [], [f"{name}_kernel"], value=onnx.numpy_helper.from_array(kernel)),
        helper.make_node("Reshape", ["x", f"{name}_shape"], [f"{name}_row"], name=f"{name}_reshape"),
        helper.make_node("Conv", [f"{name}_row", f"{name}_kernel"], [f"{name}_y"], name=f"{name}_conv"),
    ]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, None)])


def model(constant=None, nested=False):
    """An If over the input `wide`, or over a constant; nested: inside another If that is always taken."""
    choice = helper.make_node(
        "If", ["wide"], ["y"], name="choice", then_branch=branch("then", 8), else_branch=branch("else", 6)
    )
    nodes = [choice]
    if nested:
        choice.output[0] = "inside"
        other = branch("other", 8)
        body = helper.make_graph([choice], "body", [], [helper.make_tensor_value_info("inside", 1, None)])
        nodes = [helper.make_node("If", ["always"], ["y"], name="outer", then_branch=body, else_branch=other)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "width"])]
    held = []
    if constant is None:
        inputs.append(helper.make_tensor_value_info("wide", TensorProto.BOOL, []))
    else:
        held.append(onnx.numpy_helper.from_array(np.array(constant), "wide"))
    if nested:
        inputs.append(helper.make_tensor_value_info("always", TensorProto.BOOL, []))
    graph = helper.make_graph(
        nodes, "branches", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], held
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("device", ["fsim", "reference"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("wide", [True, False])
def test_the_branch_that_fits_runs(wide, nested, device):
    data = model(nested=nested)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8 if wide else 6)).astype(np.float32)}
    feeds["wide"] = np.array(wide)
    if nested:
        feeds["always"] = np.array(True)
    session = tessera.Session(data, device)
    expected = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    feeds["wide"] = np.array(not wide)  # the same shapes, and now the branch that cannot run
    with pytest.raises(tessera.Error) as refused:
        session.run(None, feeds)
    assert refused.value.code == "invalid_model" and f"'{'else' if wide else 'then'}_reshape'" in str(refused.value)
    feeds["wide"] = np.array(wide)
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_constant_condition():
    data = model(constant=True)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(data).run(None, feeds)[0]
    np.testing.assert_allclose(tessera.Session(data).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_no_branch_fits():
    with pytest.raises(tessera.Error, match="_reshape"):
        tessera.Session(model()).run(None, {"x": np.zeros((1, 7), np.float32), "wide": np.array(True)})

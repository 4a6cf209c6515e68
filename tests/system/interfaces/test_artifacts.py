# SPDX-License-Identifier: Apache-2.0
"""Artifacts of small models of particular kinds give what the models give."""

import numpy as np
from onnx import TensorProto, helper

import tessera


def test_constants_without_elements(tmp_path):
    """Of 8 bits, and of 4 bits, which are stored in pairs."""
    for dtype in (TensorProto.INT8, TensorProto.INT4):
        weights = TensorProto(name="w", data_type=dtype, dims=[0], raw_data=b"")
        nodes = [
            helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["x", "f"], ["y"], axis=0),
            helper.make_node("Identity", ["w"], ["v"]),
        ]
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
        results.append(helper.make_tensor_value_info("v", dtype, [0]))
        graph = helper.make_graph(nodes, "empty", ports, results, [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        path = tmp_path / "empty.tsr"
        tessera.compile(model.SerializeToString(), str(path))
        x = np.float32([1, 2])
        y, v = tessera.Session(str(path)).run(None, {"x": x})
        assert np.array_equal(y, x) and v.shape == (0,)

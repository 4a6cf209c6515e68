# SPDX-License-Identifier: Apache-2.0
"""Whether a model is a valid graph, and whether two models compute the same. In: a ModelProto. Out: an AssertionError
that says what is wrong: ONNX's checker, a name that means two tensors (also across bodies of If, Loop and Scan), a node
that reads what nobody has made before it, a node's name that another has."""

import numpy as np
import onnx
import onnxruntime as ort

OTHERS = "could not be inferred|No Op registered|unsupported opset|Unrecognized attribute"


def _walk(graph, known, seen, text):
    """known: names that the graph may read from outside; seen: every name that is defined so far."""

    def define(name):
        assert name not in seen, f"{text}: '{name}' is defined twice"
        seen.add(name)
        known.add(name)

    constants = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in constants:
            define(value.name)
    for name in constants:
        define(name)
    assert len(constants) == len(graph.initializer), f"{text}: an initializer stands there twice"
    for tensor in graph.sparse_initializer:
        define(tensor.values.name)
    for node in graph.node:
        for name in node.input:
            assert not name or name in known, f"{text}: node '{node.name}' ({node.op_type}) reads '{name}' too early"
        for entry in node.attribute:
            for body in [entry.g] if entry.HasField("g") else entry.graphs:
                _walk(body, set(known), seen, text)
        for name in node.output:
            if name:
                define(name)
    for value in graph.output:
        assert value.name in known, f"{text}: nobody makes the output '{value.name}'"


def check(model, text="", named=False):
    """named: whether each node of the graph has a name of its own."""
    _walk(model.graph, set(), set(), text)
    if named:
        names = [node.name for node in model.graph.node]
        assert all(names) and len(set(names)) == len(names), f"{text}: names of nodes are not unique"
    copied = onnx.ModelProto.FromString(model.SerializeToString())
    for value in copied.graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(copied)


def outputs(model, feed, optimise=False):
    """Results of ONNX Runtime by name, the feed in the types that the model takes."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_BASIC if optimise else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
    given = {}
    for port in session.get_inputs():
        if port.name in feed:
            value = feed[port.name]
            given[port.name] = value.astype(types[port.type]) if port.type in types else value
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, given), strict=True))


def same(before, after, text, tolerance=2e-3):
    """Outputs equal within `tolerance` of their largest magnitude; tolerance: of half precision, whose models are
    computed in single precision behind the preparation."""
    for name, want in before.items():
        got = after[name]
        assert got.shape == want.shape, f"{text}: '{name}' has the shape {got.shape}, not {want.shape}"
        if want.dtype.kind != "f":
            continue
        want, got = want.astype(np.float64), got.astype(np.float64)
        finite = np.isfinite(want)
        size = max(1e-3, float(np.abs(want[finite]).max(initial=0)))
        error = float(np.abs(got - want)[finite].max(initial=0)) / size
        assert error <= tolerance, f"{text}: '{name}' differs by {error:.2g} of its size"

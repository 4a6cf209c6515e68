# SPDX-License-Identifier: Apache-2.0
"""Whole models with bodies, sequences and optionals through importer, passes and interpreter: models written here
beside ONNX Runtime (captured values, nesting, loops that never run, carried shapes that change), and the onnx package's
own cases of such operators.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from tests.conformance.suite import node_folder

MODELS = {
    # A branch reads values of the main graph, one of them computed there.
    "if_captures": (
        "(bool c, float[N] x) => (float[M] y)",
        """
        d = Mul (x, x)
        y = If (c) <then_branch = t () => (float[N] a) { a = Add (x, d) },
                  else_branch = e () => (float[K] b) { b = Concat <axis=0> (x, d) }>""",
    ),
    "if_nested": (
        "(bool c, bool e, float[N] x) => (float[M] y)",
        """
        y = If (c) <then_branch = t () => (float[M] a) {
              s = Neg (x)
              a = If (e) <then_branch = tt () => (float[M] aa) { aa = Exp (s) },
                        else_branch = te () => (float[M] ab) { ab = Sub (s, x) }>
            }, else_branch = f () => (float[M] b) { b = Abs (x) }>""",
    ),
    # The loop in a branch, the branch in a loop; captured values two levels up.
    "loop_nested": (
        "(int64 n, float[N] x) => (float[N] y, float[M, N] all)",
        """
        y, all = Loop (n, , x) <body = outer (int64 i, bool go, float[N] v) => (bool more, float[N] w, float[N] seen) {
              more = Identity (go)
              inner = Loop (i, , v) <body = inner_body (int64 j, bool jgo, float[N] u) => (bool jmore, float[N] r) {
                    jmore = Identity (jgo)
                    fi = Cast <to = 1> (i)
                    fj = Cast <to = 1> (j)
                    p = Add (fi, fj)
                    q = Mul (x, p)
                    r = Add (u, q)
                  }>
              two = Constant <value = int64 {2}> ()
              small = Less (i, two)
              w = If (small) <then_branch = t () => (float[N] a) { a = Add (inner, v) },
                        else_branch = e () => (float[N] b) { b = Sub (inner, v) }>
              seen = Identity (inner)
            }>""",
    ),
    "loop_condition": (
        "(bool c, float[N] x) => (float[N] y, int64[M] steps)",
        """
        y, steps = Loop (, c, x) <body = b (int64 i, bool go, float[N] v) => (bool more, float[N] w, int64 at) {
              two = Constant <value = float {2}> ()
              limit = Constant <value = float {50}> ()
              w = Mul (v, two)
              largest = ReduceMax <keepdims = 0> (w)
              more = Less (largest, limit)
              at = Identity (i)
            }>""",
    ),
    # The carried tensor grows: its dimension becomes unknown.
    "loop_grows": (
        "(int64 n, float[N] x) => (float[M] y)",
        """
        y = Loop (n, , x) <body = b (int64 i, bool go, float[K] v) => (bool more, float[J] w) {
              more = Identity (go)
              w = Concat <axis = 0> (v, x)
            }>""",
    ),
    "loop_sequence": (
        "(int64 n, float[N] x) => (float[M] y, int64 count)",
        """
        none = SequenceEmpty ()
        first = SequenceInsert (none, x)
        s = Loop (n, , first) <body = b (int64 i, bool go, seq(float[K]) v) => (bool more, seq(float[J]) w) {
              more = Identity (go)
              fi = Cast <to = 1> (i)
              row = Add (x, fi)
              w = SequenceInsert (v, row)
            }>
        y = ConcatFromSequence <axis = 0> (s)
        count = SequenceLength (s)""",
    ),
    "scan_captures": (
        "(float[H] s, float[T, H] x, float[H] g) => (float[H] last, float[H, T] all)",
        """
        last, all = Scan <num_scan_inputs = 1, scan_output_axes = [1], scan_input_directions = [1],
            body = b (float[H] state, float[H] row) => (float[H] next, float[H] out) {
              gated = Mul (state, g)
              next = Add (gated, row)
              out = Tanh (next)
            }> (s, x)""",
    ),
}
X = np.array([0.5, -1.25, 3.0], np.float32)
FEEDS = {
    "if_captures": [dict(c=np.array(c), x=X) for c in (True, False)],
    "if_nested": [dict(c=np.array(c), e=np.array(e), x=X) for c in (True, False) for e in (True, False)],
    "loop_nested": [dict(n=np.array(n), x=X) for n in (0, 1, 4)],
    "loop_condition": [dict(c=np.array(c), x=X) for c in (True, False)],
    "loop_grows": [dict(n=np.array(n), x=X) for n in (0, 3)],
    "loop_sequence": [dict(n=np.array(n), x=X) for n in (0, 3)],
    "scan_captures": [dict(s=X, x=np.outer(np.arange(steps), X).astype(np.float32), g=X / 4) for steps in (1, 4)],
}


def make(name, opset):
    types, body = MODELS[name]
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {name} {types} {{ {body} }}')
    onnx.checker.check_model(model)
    return model


def compare(expected, actual, what, tolerance=0.0):
    if isinstance(expected, list):
        assert isinstance(actual, list) and len(expected) == len(actual), what
        for left, right in zip(expected, actual):
            compare(left, right, what, tolerance)
    elif expected is None:
        assert actual is None, what
    else:
        left, right = np.asarray(expected), np.asarray(actual)
        assert left.shape == right.shape and (left.dtype == right.dtype or left.dtype.kind in "OU"), (
            f"{what}: {right.dtype}{right.shape}"
        )
        if left.dtype.kind == "f":
            np.testing.assert_allclose(right, left, rtol=max(tolerance, 1e-6), atol=tolerance, err_msg=what)
        else:
            assert left.tolist() == right.tolist(), what


@pytest.mark.parametrize("optimise", [False, True])
@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", list(MODELS))
def test_model(nn, name, opset, optimise):
    model = make(name, opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in model.graph.output]
    for feeds in FEEDS[name]:
        result = nn.run_reference(model.SerializeToString(), feeds, optimise=optimise)
        for output, expected in zip(names, session.run(names, feeds)):
            compare(expected, result[output], f"{name}.{output}", 1e-6)


@pytest.mark.parametrize("optimise", [False, True])
def test_loop_of_a_count_alone(nn, optimise):
    """The name of the condition is empty, and nothing is carried."""
    inner = parser.parse_graph("""b (int64 i, bool go) => (bool more, float[N] seen) {
        more = Identity (go)
        f = Cast <to = 1> (i)
        seen = Mul (x, f)
    }""")
    node = onnx.helper.make_node("Loop", ["n", ""], ["y"], body=inner)
    types = [onnx.helper.make_tensor_value_info(*port) for port in [("n", 7, []), ("x", 1, ["N"]), ("y", 1, None)]]
    graph = onnx.helper.make_graph([node], "m", types[:2], types[2:])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (0, 3):
        feeds = dict(n=np.array(count), x=X)
        result = nn.run_reference(model.SerializeToString(), feeds, optimise=optimise)
        compare(session.run(None, feeds)[0], result["y"], "y")


def test_branch_that_makes_no_sense(nn):
    """A condition known after inference picks the branch; the other one may not fit the shapes at hand."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] x) => (float[M, N] y) {
        s = Shape (x)
        zero = Constant <value = int64 {0}> ()
        d = Gather (s, zero)
        one = Constant <value = int64 {1}> ()
        c = Equal (d, one)
        axis = Constant <value = int64[1] {0}> ()
        y = If (c) <then_branch = t () => (float[K] a) { a = Squeeze (x, axis) },
                  else_branch = e () => (float[K, L] b) { b = Neg (x) }>
    }""")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for optimise in (False, True):
        np.testing.assert_array_equal(nn.run_reference(model.SerializeToString(), {"x": x}, optimise=optimise)["y"], -x)


def load(path, kind):
    data = Path(path).read_bytes()
    if kind == "optional_type":
        proto = onnx.OptionalProto()
        proto.ParseFromString(data)
        return numpy_helper.to_optional(proto)
    if kind == "sequence_type":
        proto = onnx.SequenceProto()
        proto.ParseFromString(data)
        return numpy_helper.to_list(proto)
    proto = onnx.TensorProto()
    proto.ParseFromString(data)
    array = numpy_helper.to_array(proto)
    return (
        np.array([t.decode() if isinstance(t, bytes) else t for t in array.ravel()], object).reshape(array.shape)
        if array.dtype == object
        else array
    )


def standard_cases():
    wanted = (
        "If",
        "Loop",
        "Scan",
        "Sequence",
        "Optional",
        "SplitToSequence",
        "ConcatFromSequence",
        "String",
        "RegexFullMatch",
        "TfIdf",
        "LSTM",
        "GRU",
        "RNN",
        "DFT",
        "STFT",
        "NonMaxSuppression",
        "RoiAlign",
        "MelWeightMatrix",
        "HannWindow",
        "HammingWindow",
        "BlackmanWindow",
        "Det",
        "NegativeLogLikelihoodLoss",
        "SoftmaxCrossEntropyLoss",
    )
    for folder in sorted(node_folder().iterdir()):
        model = onnx.load(folder / "model.onnx")
        if model.graph.node and any(node.op_type.startswith(wanted) for node in model.graph.node):
            yield pytest.param(folder, model, id=folder.name)


LEFT_OUT = {}


@pytest.mark.parametrize("folder,model", list(standard_cases()))
def test_standard_case(nn, folder, model):
    if folder.name in LEFT_OUT:
        pytest.skip(LEFT_OUT[folder.name])
    for data in sorted(folder.glob("test_data_set_*")):
        feeds = {
            info.name: load(data / f"input_{i}.pb", info.type.WhichOneof("value"))
            for i, info in enumerate(model.graph.input)
        }
        result = nn.run_reference(model.SerializeToString(), feeds)
        for i, info in enumerate(model.graph.output):
            compare(
                load(data / f"output_{i}.pb", info.type.WhichOneof("value")),
                result[info.name],
                f"{folder.name}.{info.name}",
                1e-4,
            )


def test_there_are_standard_cases():
    assert len(list(standard_cases())) > 150

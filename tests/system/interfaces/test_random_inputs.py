# SPDX-License-Identifier: Apache-2.0
"""`tessera run --random-inputs`: values of every type and shape that a model can ask for, never a refusal."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.system.conftest import ROOT

TYPES = sorted(
    set(TensorProto.DataType.values())
    - {TensorProto.UNDEFINED, TensorProto.COMPLEX64, TensorProto.COMPLEX128}
    - {getattr(TensorProto, name, 0) for name in ("UINT2", "INT2")}
)


def run(command, folder, nodes, inputs, outputs, initializers=(), opset=23, extra=()):
    """Runs a model of these nodes; its results by name, and what stood on standard error."""
    value = lambda v: v if isinstance(v, onnx.ValueInfoProto) else helper.make_tensor_value_info(*v)
    graph = helper.make_graph(nodes, "g", [value(v) for v in inputs], [value(v) for v in outputs], list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=11), path)
    out = folder / "out.npz"
    done = command("run", path, "--random-inputs", 3, "-o", out, "--device", "reference", *extra)
    assert done.returncode == 0, done.stderr
    return np.load(out, allow_pickle=False), done.stderr


@pytest.mark.parametrize("element", TYPES, ids=lambda t: TensorProto.DataType.Name(t).lower())
def test_every_element_type(command, tmp_path, element):
    kind = helper.make_tensor_value_info
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Shape", ["y"], ["shape"])]
    out, _ = run(
        command, tmp_path, nodes, [kind("x", element, [3, 5])], [kind("shape", TensorProto.INT64, [2])], opset=23
    )
    assert out["shape"].tolist() == [3, 5]


@pytest.mark.parametrize("element", [TensorProto.INT32, TensorProto.INT64])
def test_indices_lie_among_the_rows(command, tmp_path, element):
    """The rows of an embedding are few, and many; the indices come through operators that move them."""
    for rows in (3, 5000):
        table = numpy_helper.from_array(np.arange(rows, dtype=np.float32).reshape(rows, 1), "table")
        axes = numpy_helper.from_array(np.array([0], np.int64), "axes")
        nodes = [
            helper.make_node("Unsqueeze", ["ids", "axes"], ["more"]),
            helper.make_node("Cast", ["more"], ["wide"], to=TensorProto.INT64),
            helper.make_node("Gather", ["table", "wide"], ["y"]),
        ]
        ids = ("ids", element, [64])
        out, _ = run(command, tmp_path, nodes, [ids], [("y", TensorProto.FLOAT, [1, 64, 1])], [table, axes])
        assert (out["y"].max() > 8) == (rows == 5000)


def test_sequences_and_optionals(command, tmp_path):
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, "n"])
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 2])
    optional = helper.make_value_info("o", helper.make_optional_type_proto(element))
    nodes = [
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        helper.make_node("OptionalGetElement", ["o"], ["z"]),
    ]
    floats = TensorProto.FLOAT
    out, _ = run(command, tmp_path, nodes, [sequence, optional], [("y", floats, None), ("z", floats, [2, 2])])
    assert out["y"].shape == (6, 1) and out["z"].shape == (2, 2)


def test_open_dimensions_become_large_enough(command, tmp_path):
    weights = numpy_helper.from_array(np.ones((2, 3, 5, 5), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2])]
    floats = TensorProto.FLOAT
    shape, output = ["batch", 3, "height", "width"], [("y", floats, None)]
    out, told = run(command, tmp_path, nodes, [("x", floats, shape)], output, [weights])
    assert out["y"].shape == (1, 2, 2, 2) and "[1,3,8,8]; use --shape" in told
    out, told = run(command, tmp_path, nodes, [("x", floats, shape)], output, [weights], extra=("--shape", "x=1,3,5,7"))
    assert out["y"].shape == (1, 2, 1, 2) and "use --shape" not in told
    out, told = run(command, tmp_path, nodes, [("x", floats, [None] * 4)], output, [weights])
    assert out["y"].shape == (1, 2, 2, 2) and "[1,3,8,8]" in told
    out, told = run(command, tmp_path, nodes, [("x", floats, None)], output, [weights])
    assert out["y"].shape == (1, 2, 2, 2)


def test_open_dimensions_take_extents_of_the_model(command, tmp_path):
    """A product of 266 values of each frame; windows of frames and bands, of which there are 144; and two inputs, of
    which one open dimension is 1."""
    floats, output = TensorProto.FLOAT, [("y", TensorProto.FLOAT, None)]
    held = lambda name, *shape: numpy_helper.from_array(np.ones(shape, np.float32), name)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    out, told = run(command, tmp_path, [product], [("x", floats, ["t", "f"])], output, [held("w", 266, 7)])
    assert out["y"].shape == (1, 7) and "'x': random values of shape [1,266]; use --shape" in told

    axes = numpy_helper.from_array(np.array([0, 1]), "axes")
    frames = [
        helper.make_node("Mul", ["x", "s"], ["m"]),
        helper.make_node("Unsqueeze", ["m", "axes"], ["image"]),
        helper.make_node("Conv", ["image", "w"], ["y"]),
    ]
    weights = [held("w", 2, 1, 3, 3), held("s", 144), axes]
    out, told = run(command, tmp_path, frames, [("x", floats, [None, None])], output, weights)
    assert out["y"].shape == (1, 2, 62, 142) and "[64,144]" in told

    cell = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[64]), helper.make_node("Mul", ["c", "h"], ["y"])]
    inputs = [("x", floats, [1, 1, None]), ("h", floats, [1, None, 5])]
    out, told = run(command, tmp_path, cell, inputs, output, [held("w", 3, 1, 320)])
    assert out["y"].shape == (1, 3, 5) and "'x': random values of shape [1,1,320]" in told and "[1,3,5]" not in told


def test_open_dimensions_for_which_nothing_fits(command, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "to"], ["y"], "rows")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([-1, 5, 7 * 11]), "to")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = command("run", tmp_path / "m.onnx", "--random-inputs", 1)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "node 'rows'" in done.stderr and "give --shape NAME=D0,D1" in done.stderr and "'x'" in done.stderr


def test_initializers_are_given_as_files(command, tmp_path):
    """An initializer that is an input keeps its value unless a file is named for it."""
    bias = numpy_helper.from_array(np.array([10, 20], np.float32), "bias")
    nodes = [helper.make_node("Sub", ["bias", "x"], ["d"]), helper.make_node("Add", ["d", "x"], ["y"])]
    floats = TensorProto.FLOAT
    inputs = [("x", floats, [2]), ("bias", floats, [2])]
    out, _ = run(command, tmp_path, nodes, inputs, [("y", floats, [2])] * 2, [bias])
    np.testing.assert_allclose(out["y"], [10, 20], rtol=1e-6)
    np.save(tmp_path / "bias.npy", np.array([1, 2], np.float32))
    extra = ("--input", f"bias={tmp_path / 'bias.npy'}")
    out, _ = run(command, tmp_path, nodes, inputs, [("y", floats, [2])], [bias], extra=extra)
    np.testing.assert_allclose(out["y"], [1, 2], rtol=1e-6)


def test_strings_read_as_numbers(command, tmp_path):
    nodes = [helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)]
    out, _ = run(command, tmp_path, nodes, [("s", TensorProto.STRING, [9])], [("y", TensorProto.FLOAT, [9])])
    assert set(out["y"].tolist()) <= set(range(8))


@pytest.mark.parametrize("verb", ["info", "schedule", "run", "report", "compile"])
def test_a_dynamic_batch_is_one_for_every_command(command, tmp_path, verb):
    arguments = {"run": ["--random-inputs", 1], "compile": ["-o", tmp_path / "d.tsr"]}.get(verb, [])
    done = command(verb, ROOT / "examples" / "digits" / "digits.onnx", "--config", "npu64", *arguments)
    assert done.returncode == 0, done.stderr

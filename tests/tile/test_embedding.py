# SPDX-License-Identifier: Apache-2.0
"""Nodes of a custom domain that are kernels: in sessions, in files, beside operators of the standard."""

import os
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tessera
from tessera import tile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KERNEL = """
from tessera import tile

@tile.kernel
def times(k, x, *, factor=2):
    y = k.output("int8", x.shape)
    a, o = k.out(*x.shape), k.out(*x.shape)
    k.load(a, x)
    i, j = a.axes()
    k.vector(o[i, j], a[i, j], second=k.second("add", a[i, j], ry=factor - 1))
    k.store(y, o)
    return y

tile.register("my.lab::Times", times)
"""


@pytest.fixture
def registered(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(KERNEL)
    exec(compile(KERNEL, str(file), "exec"), {})
    yield file
    tile.unregister("my.lab::Times")


def model(**attributes):
    """float -> int8 -> Times, whose result goes on as float, and Times of it again."""
    value = helper.make_tensor_value_info
    scalar = lambda name, number: onnx.numpy_helper.from_array(number, name)
    nodes = [
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["q"]),
        helper.make_node("Times", ["q"], ["t"], "first", domain="my.lab", **attributes),
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["d"]),
        helper.make_node("Times", ["t"], ["u"], "again", domain="my.lab"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("f", TensorProto.FLOAT, ["n", 20])],
        [value("d", TensorProto.FLOAT, ["n", 20]), value("u", TensorProto.INT8, ["n", 20])],
        [scalar("s", np.float32(0.5)), scalar("z", np.int8(0))],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my.lab", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def wanted(x, factor=2):
    q = np.clip(np.rint(x / 0.5), -128, 127)
    t = np.clip(factor * q, -128, 127)
    return t * 0.5, np.clip(2 * t, -128, 127)


@pytest.mark.parametrize("device", ["fsim", "sysc", "rtl"])
def test_a_session_takes_registered_kernels(registered, device):
    x = np.random.default_rng(0).normal(size=(5, 20)).astype(np.float32) * 9
    session = tessera.Session(model(factor=3).SerializeToString(), device, "npu64", shapes={"f": (5, 20)})
    for found, one in zip(session.run(None, {"f": x}), wanted(x, 3), strict=True):
        np.testing.assert_array_equal(found, one)
    layers = session.stats()["layers"]
    assert {tuple(layer["nodes"]) for layer in layers if layer["placement"] == "npu"} == {("first",), ("again",)}
    assert "kernels.py:" in layers[0]["name"]


def test_a_file_with_kernels_needs_nothing_else(registered, tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    binary = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release")) / "bin" / "tessera"
    run = lambda *words: subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    out = tmp_path / "k.onnx"
    done = run("kernel", "embed", registered, tmp_path / "m.onnx", "-o", out, "--config", "npu64", "--shape", "f=3,20")
    assert done.returncode == 0 and "2 nodes are kernels for npu64" in done.stdout, done.stderr
    tile.unregister("my.lab::Times")
    done = run("compile", out, "--config", "npu64", "-o", tmp_path / "k.tsr")
    assert done.returncode == 0, done.stderr
    x = np.random.default_rng(1).normal(size=(3, 20)).astype(np.float32) * 9
    for path in (out, tmp_path / "k.tsr"):
        for found, one in zip(tessera.Session(path, config="npu64").run(None, {"f": x}), wanted(x), strict=True):
            np.testing.assert_array_equal(found, one)
    for words, message in (
        (("run", out, "--random-inputs", 1), "the kernel was built for npu64, and the model is compiled for npu256"),
        (("run", out, "--device", "reference", "--random-inputs", 1), "a kernel of the NPU has no meaning for the"),
        (("run", tmp_path / "m.onnx", "--random-inputs", 1), "or write a kernel for it (docs/tile.md)"),
        (("kernel", "embed", registered, out, "-o", tmp_path / "x.onnx"), "has no node of an operator that"),
        (("kernel", "embed", registered, out, "-o", tmp_path / "no" / "x.onnx"), "there is no such folder"),
    ):
        done = run(*words)
        assert done.returncode == 1 and message in done.stderr, done.stderr


def test_errors_name_the_node(registered):
    refuse = lambda message: pytest.raises(tile.KernelError, match=message)
    with refuse("node 'first' .my.lab::Times.: the shape of its input 'q' is not known"):
        tile.embed(model(), "npu64")
    with refuse("its attribute 'power' is no parameter of 'times'"):
        tile.embed(model(power=2), "npu64", {"f": (2, 20)})
    with refuse("node 'first' .*kernels.py:.*: OUT has 16,384 bytes"):
        tile.embed(model(), "npu64", {"f": (2000, 20)})
    floats = model()
    floats.graph.node[1].input[0] = "f"
    with refuse("its input 'f' is float and comes of no DequantizeLinear with one scale; kernels take integers"):
        tile.embed(floats, "npu64", {"f": (2, 20)})
    with refuse("my.domain::Name"):
        tile.register("Times", tile.kernel(lambda k, x: None))
    with refuse("domain com.microsoft has its own meaning"):
        tile.register("com.microsoft::Times", tile.kernel(lambda k, x: None))
    damaged = tile.embed(model(), "npu64", {"f": (2, 20)})
    held = next(one for one in damaged.graph.node[1].attribute if one.name == "artifact")
    held.t.raw_data = held.t.raw_data[:100]
    held.t.dims[0] = 100
    with pytest.raises(tessera.Error, match="node 'first'"):
        tessera.Session(damaged.SerializeToString(), config="npu64")

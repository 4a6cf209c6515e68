# SPDX-License-Identifier: Apache-2.0
"""Kernels in one program with the compiler's operators: tensors in the layouts that they name, without copies."""

import os
import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tessera
from tessera import tile

DOMAIN = "my.lab"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARIES = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release")) / "bin"


def tripled(layouts=()):
    """clip(3 x) of images [n, c, h, w]."""

    def brighter(k, x):
        n, c, h, w = x.shape
        y = k.output("int8", x.shape, layout=x.layout if layouts else None)
        pixels = lambda tensor: tensor.permute(0, 2, 3, 1)
        source, target = pixels(x), pixels(y)
        a, o = k.out(n, h, w, c), k.out(n, h, w, c)
        k.load(a, source)
        axes = a.axes()
        k.vector(o[axes], a[axes], second=k.second("add", a[axes], ry=2))
        k.store(target, o)
        return y

    return tile.kernel(brighter, layouts=layouts) if layouts else tile.kernel(brighter)


def both(k, x):
    """clip(3 x) and clip(2 x) by way of a tensor of DRAM of its own."""
    n, c, h, w = x.shape
    pixels = lambda tensor: tensor.permute(0, 2, 3, 1)
    y, held, z = (k.output("int8", x.shape, layout=x.layout), k.scratch("int8", (n, h, w, c)),
                  k.output("int8", x.shape, layout="channels_last"))  # fmt: skip
    a, o = k.out(n, h, w, c), k.out(n, h, w, c)
    axes = a.axes()
    k.load(a, pixels(x))
    k.vector(o[axes], a[axes], second=k.second("add", a[axes], ry=1))
    k.store(held, o)
    k.store(pixels(z), o)
    k.load(o, held)
    k.vector(o[axes], o[axes], second=k.second("add", a[axes], ry=1))
    k.store(pixels(y), o)
    return y, z


def network(nodes, shape, extra=(), outputs=("y",), seed=0):
    """A model of int8 images; convolutions `conv:NAME:FROM:TO` of 3 x 3 and the given nodes."""
    rng, channels = np.random.default_rng(seed), shape[1]
    scalar = lambda name, value: numpy_helper.from_array(value, name)
    initializers = [scalar("s", np.float32(0.02)), scalar("z", np.int8(0)), scalar("ws", np.float32(0.01)),
                    scalar("ys", np.float32(0.3)), *extra]  # fmt: skip
    made = []
    for node in nodes:
        if not isinstance(node, str):
            made.append(node)
            continue
        _, name, x, y = node.split(":")
        initializers.append(scalar(f"{name}.w", rng.integers(-127, 128, (channels, channels, 3, 3), dtype=np.int8)))
        inputs = [x, "s", "z", f"{name}.w", "ws", "z", "ys", "z"]
        made.append(helper.make_node("QLinearConv", inputs, [y], name, pads=[1] * 4))
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.INT8, shape)
    graph = helper.make_graph(made, "g", [value("x")], [value(name) for name in outputs], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def kernel_node(x, *y, op="Tripled", name="kernel"):
    return helper.make_node(op, [x], list(y), name, domain=DOMAIN)


def plainly(node, factors=(3,)):
    """A kernel's node by operators of ONNX Runtime: clip(factor x)."""
    nodes = []
    for place, (name, factor) in enumerate(zip(node.output, factors, strict=True)):
        part = lambda what, place=place, name=name: f"{name}.{what}{place}"
        nodes += [
            helper.make_node("Cast", [node.input[0]], [part("wide")], to=TensorProto.FLOAT),
            helper.make_node("Constant", [], [part("f")], value_float=float(factor)),
            helper.make_node("Mul", [part("wide"), part("f")], [part("p")]),
            helper.make_node("Constant", [], [part("low")], value_float=-128.0),
            helper.make_node("Constant", [], [part("high")], value_float=127.0),
            helper.make_node("Clip", [part("p"), part("low"), part("high")], [part("c")]),
            helper.make_node("Cast", [part("c")], [name], to=TensorProto.INT8),
        ]
    return nodes


def wanted(model, x, factors=(3,)):
    """What ONNX Runtime gives."""
    plain = ModelProto()
    plain.CopyFrom(model)
    nodes = [part for node in model.graph.node for part in (
        plainly(node, factors) if node.domain == DOMAIN else [node])]  # fmt: skip
    del plain.graph.node[:]
    plain.graph.node.extend(nodes)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(plain.SerializeToString(), options).run(None, {"x": x})


@pytest.fixture
def register():
    yield lambda kernel, name="Tripled": tile.register(f"{DOMAIN}::{name}", kernel)
    for name in ("Tripled", "Both"):
        tile.unregister(f"{DOMAIN}::{name}")


def run(model, x, config, device="sysc"):
    options = {"check_races": True, "poison": 3} if device == "fsim" else {}
    session = tessera.Session(model.SerializeToString(), device, config, **options)
    return session.run(None, {"x": x}), session.stats()


def images(shape, seed=1):
    return np.random.default_rng(seed).integers(-128, 128, shape, dtype=np.int8)


@pytest.mark.parametrize("config", ["npu64", "npu256"])
@pytest.mark.parametrize("channels", [32, 20])
def test_no_copy_stands_around_a_kernel_that_takes_channels_last(register, config, channels):
    shape = (1, channels, 8, 6)
    model = network(["conv:one:x:a", kernel_node("a", "b"), "conv:two:b:y"], shape)
    x = images(shape)
    cycles = {}
    for layouts in ((), "channels_last", ("rows", "channels_last"), "rows"):
        register(tripled(layouts))
        (found,), stats = run(model, x, config)
        np.testing.assert_array_equal(found, wanted(model, x)[0])
        cycles[layouts] = stats["cycles"]
        layers = [layer["name"] for layer in stats["layers"] if layer["placement"] == "npu"]
        copies = [name for name in layers if "copy" in name]
        assert layers[0] == "one" and layers[-1] == "two" and "test_layouts.py:" in " ".join(layers)
        if "channels_last" in layouts:
            assert not copies
    assert cycles["channels_last"] == cycles["rows", "channels_last"] < 0.7 * cycles["rows"]
    assert cycles["channels_last"] < 0.7 * cycles[()]


@pytest.mark.parametrize("device", ["fsim", "sysc"])
def test_several_results_and_memory_of_its_own(register, device):
    shape = (1, 20, 5, 7)
    register(tile.kernel(both, layouts="channels_last"), "Both")
    nodes = ["conv:one:x:a", kernel_node("a", "b", "c", op="Both"), "conv:two:b:y", "conv:three:c:v",
             helper.make_node("Concat", ["c", "y", "a"], ["whole"], axis=1)]  # fmt: skip
    model = network(nodes, shape, outputs=("v", "b"))
    model.graph.output.append(helper.make_tensor_value_info("whole", TensorProto.INT8, (1, 60, 5, 7)))
    x = images(shape)
    found, _ = run(model, x, "npu64", device)
    for one, other in zip(found, wanted(model, x, (3, 2)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_kernel_alone_and_on_data_of_the_host(register):
    shape = (2, 5, 4, 3)
    register(tripled(("channels_last", "rows")))
    model = network([kernel_node("x", "y")], shape)
    x = images(shape)
    (found,), _ = run(model, x, "npu64", "fsim")
    np.testing.assert_array_equal(found, wanted(model, x)[0])
    kernel = tripled(("channels_last", "rows"))
    for layout in ("channels_last", "rows", None):
        program = kernel.build(tile.Spec("int8", shape, layout=layout), config="npu64")
        np.testing.assert_array_equal(program.interpret(x)[0], found)
        np.testing.assert_array_equal(program.session("fsim").run(None, {"x": x})[0], found)


def test_the_graph_as_text_is_the_graph(register, tmp_path):
    register(tripled("channels_last"))
    model = network(["conv:one:x:a", kernel_node("a", "b"), "conv:two:b:y"], (1, 20, 8, 6))
    onnx.save(tile.embed(model, "npu64"), tmp_path / "m.onnx")
    tool = lambda name, *words: subprocess.run([BINARIES / name, *map(str, words)], capture_output=True, text=True)
    made = tool("tessera", "compile", tmp_path / "m.onnx", "--config", "npu64", "-o", tmp_path / "m.tsr",
                "--dump-dir", tmp_path / "d")  # fmt: skip
    assert made.returncode == 0, made.stderr
    (values,), (tensors,) = ((tmp_path / "d").glob(f"*.{name}.npu") for name in ("partition", "assign-layouts"))
    again = tool("tessera-opt", values, "--pass=assign-layouts", "--config", "npu64")
    assert again.stdout == tensors.read_text(), again.stderr


def test_waits_by_hand_stay(register):
    @tile.kernel
    def same(k, x):
        y = k.output("int8", x.shape)
        a = k.out(*x.shape)
        k.load(a, x)
        loaded = k.signal()
        k.wait(loaded)
        k.store(y, a)
        return y

    register(same)
    shape = (1, 16, 4, 16)
    model = network(["conv:one:x:a", kernel_node("a", "y")], shape)
    x = images(shape)
    (found,), _ = run(model, x, "npu64", "fsim")
    np.testing.assert_array_equal(found, wanted(model, x, (1,))[0])


def test_names_of_layouts():
    with pytest.raises(tile.KernelError, match="'brighter' has no layout 'blocked' of 'x'; layouts are rows and"):
        tripled("blocked")
    with pytest.raises(tile.KernelError, match="has no layout 'rows' of 'other'"):
        tripled([{"other": "rows"}])


def test_check_takes_all_layouts():
    kernel = tripled(("channels_last", "rows"))
    kernel.reference(lambda x: np.clip(3 * x.astype(int), -128, 127).astype(np.int8))
    seen = []
    kernel.function = lambda k, x, body=kernel.function: seen.append(x.layout) or body(k, x)
    draw = lambda rng: tile.Spec("int8", tuple(int(v) for v in rng.integers(1, 6, 4)))
    assert tile.check(kernel, draw, cases=6, config="npu64", devices={"fsim": 6}).cases["fsim"] == 6
    assert set(seen) == {"channels_last", "rows"}

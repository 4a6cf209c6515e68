# SPDX-License-Identifier: Apache-2.0
"""Kernels and operators in the bodies of If, Loop and Scan, and in functions of the model."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera import tile
from tests.tile.doubling import double

INT8, SHAPE = TensorProto.INT8, (3, 20)


@tile.kernel
def doubled(k, x):
    return double(k, x)[0]


@tile.operator
def negated(n, x):
    loops = [n.axes(extent) for extent in x.shape]
    return n.compute("int8", loops, n.clip(-x[tuple(loops)], -128, 127))


@pytest.fixture(autouse=True)
def registered():
    tile.register("my.lab::Doubled", doubled)
    tile.register("my.lab::Negated", negated)
    yield
    tile.unregister("my.lab::Doubled")
    tile.unregister("my.lab::Negated")


def twice(x):
    return np.clip(2 * x.astype(int), -128, 127).astype(np.int8)


def minus(x):
    return np.clip(-x.astype(int), -128, 127).astype(np.int8)


def custom(op, x, y):
    return helper.make_node(op, [x], [y], f"{op}.{y}", domain="my.lab")


def value(name, kind=INT8, shape=SHAPE):
    return helper.make_tensor_value_info(name, kind, shape)


def body(nodes, inputs, outputs):
    return helper.make_graph(nodes, "body", inputs, outputs)


def model(nodes, inputs, outputs, constants=(), functions=()):
    held = [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    domains = ["my.lab", *sorted({one.domain for one in functions})]
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(one, 1) for one in domains)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions)


def run(network, feeds, device="fsim"):
    return tessera.Session(network.SerializeToString(), device, "npu64").run(None, feeds)


@pytest.fixture
def x():
    return np.random.default_rng(0).integers(-128, 128, SHAPE, dtype=np.int8)


@pytest.mark.parametrize("device", ["fsim", "sysc"])
def test_branches_read_what_is_around_them(x, device):
    then = body([custom("Doubled", "a", "t"), custom("Negated", "t", "u")], [], [value("u", shape=None)])
    other = body([custom("Doubled", "x", "v")], [], [value("v", shape=None)])
    nodes = [
        custom("Negated", "x", "a"),
        helper.make_node("If", ["c"], ["b"], "if", then_branch=then, else_branch=other),
        custom("Doubled", "b", "y"),
    ]
    network = model(nodes, [value("x"), value("c", TensorProto.BOOL, [])], [value("y")])
    for condition, wanted in ((True, twice(minus(twice(minus(x))))), (False, twice(twice(x)))):
        (found,) = run(network, {"x": x, "c": np.array(condition)}, device)
        np.testing.assert_array_equal(found, wanted)


def test_a_loop_carries_a_kernels_result(x):
    step = body(
        [helper.make_node("Identity", ["going"], ["goes"]), custom("Doubled", "s", "d"), custom("Negated", "d", "t"),
         helper.make_node("Identity", ["t"], ["seen"])],
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), value("s", shape=None)],
        [value("goes", TensorProto.BOOL, []), value("t", shape=None), value("seen", shape=None)],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["count", "on", "x"], ["y", "all"], "loop", body=step)]
    network = model(
        nodes,
        [value("x"), value("count", TensorProto.INT64, [])],
        [value("y"), value("all", shape=(None, *SHAPE))],
        {"on": np.array(True)},
    )
    small = x // 16
    wanted = [minus(twice(small))]
    wanted += [minus(twice(wanted[0]))]
    wanted += [minus(twice(wanted[1]))]
    last, all_of_them = run(network, {"x": small, "count": np.array(3)})
    np.testing.assert_array_equal(last, wanted[-1])
    np.testing.assert_array_equal(all_of_them, wanted)


def test_a_scan(x):
    step = body(
        [custom("Doubled", "row", "t"), helper.make_node("Max", ["s", "t"], ["m"]),
         helper.make_node("Identity", ["m"], ["out"])],
        [value("s", shape=(1, 20)), value("row", shape=(1, 20))],
        [value("m", shape=(1, 20)), value("out", shape=(1, 20))],
    )  # fmt: skip
    nodes = [helper.make_node("Scan", ["x0", "rows"], ["last", "y"], "scan", body=step, num_scan_inputs=1)]
    network = model(nodes, [value("x0", shape=(1, 20)), value("rows", shape=(3, 1, 20))],
                    [value("last", shape=(1, 20)), value("y", shape=(3, 1, 20))])  # fmt: skip
    last, found = run(network, {"x0": np.full((1, 20), -100, np.int8), "rows": x[:, None]})
    wanted = np.maximum.accumulate(np.maximum(twice(x), -100), 0)
    np.testing.assert_array_equal(found[:, 0], wanted)
    np.testing.assert_array_equal(last[0], wanted[-1])


def test_functions_call_kernels(x):
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.lab", 1), helper.make_opsetid("my.calls", 1)]
    inner = helper.make_function("my.calls", "Inner", ["p"], ["q"], [custom("Doubled", "p", "q")], opsets)
    outer = helper.make_function(
        "my.calls", "Outer", ["p"], ["r"],
        [helper.make_node("Inner", ["p"], ["q"], domain="my.calls"), custom("Negated", "q", "r")], opsets,
    )  # fmt: skip
    call = lambda a, b: helper.make_node("Outer", [a], [b], domain="my.calls")
    network = model([call("x", "a"), call("a", "y")], [value("x")], [value("y")], functions=[inner, outer])
    np.testing.assert_array_equal(run(network, {"x": x})[0], minus(twice(minus(twice(x)))))


def test_quantised_nodes_and_patterns_in_a_body(x):
    @tile.operator
    def halved(n, x, *, x_scale, x_zero, output_scale, output_zero):
        loops = [n.axes(extent) for extent in x.shape]
        table = np.clip(np.rint((np.arange(-128, 128) - x_zero) * x_scale / 2 / output_scale) + output_zero, -128, 127)
        return n.compute("int8", loops, n.lookup(table.astype(int), x[tuple(loops)]))

    @tile.pattern
    def spelled_out(p, x, scale, zero):
        return p.QuantizeLinear(p.Add(p.DequantizeLinear(x, scale, zero), p.DequantizeLinear(x, scale, zero)),
                                scale, zero)  # fmt: skip

    tile.register("my.lab::Halved", halved)
    match = lambda x, scale, zero: {} if int(zero) == 0 else None
    tile.replace(spelled_out, doubled, match)
    try:
        then = body(
            [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]), custom("Halved", "f", "h"),
             helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["g"]),
             helper.make_node("Add", ["g", "g"], ["w"]), helper.make_node("QuantizeLinear", ["w", "s", "z"], ["u"])],
            [], [value("u")],
        )  # fmt: skip
        other = body([helper.make_node("Identity", ["x"], ["v"])], [], [value("v")])
        nodes = [helper.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=other)]
        network = model(
            nodes, [value("x"), value("c", TensorProto.BOOL, [])], [value("y")],
            {"s": np.float32(0.5), "z": np.int8(0)},
        )  # fmt: skip
        embedded = tile.embed(network, "npu64")
        branch = next(one.g for one in embedded.graph.node[0].attribute if one.name == "then_branch")
        names = [node.op_type for node in branch.node]
        assert len(names) == 2 and "Kernel" in names, names
        (found,) = run(network, {"x": x, "c": np.array(True)})
        half = np.rint(x / 2)
        np.testing.assert_array_equal(found, np.clip(2 * half, -128, 127).astype(np.int8))
    finally:
        tile.unregister("my.lab::Halved")
        tile.unregister(spelled_out)


def test_a_shape_that_is_not_known(x):
    then = body([custom("Doubled", "a", "u")], [], [value("u", shape=None)])
    other = body([helper.make_node("Identity", ["a"], ["v"])], [], [value("v", shape=None)])
    nodes = [helper.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=other)]
    network = model(nodes, [value("a", shape=("n", 20)), value("c", TensorProto.BOOL, [])], [value("y", shape=None)])
    with pytest.raises(tile.KernelError, match="node 'Doubled.u' .* the shape of its input 'a' is not known"):
        tile.embed(network, "npu64")
    assert tile.embed(network, "npu64", {"a": SHAPE}).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3

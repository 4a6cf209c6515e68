# SPDX-License-Identifier: Apache-2.0
"""@tile.operator: what it becomes against what each element is said to be, and against NumPy written otherwise; its
cycles beside the compiler's own operators; its errors; in models."""

import importlib.util
import itertools
import pathlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera import tile

from . import random_operators


def bytes_of(rng, *shape, dtype="int8"):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@tile.operator
def dense(n, x, w, bias, *, scale=0.01):
    i, o = n.axes(x.shape[0], w.shape[0])
    k = n.reduce_axes(x.shape[1])
    return n.compute("int8", (i, o), n.requantise(n.sum(x[i, k] * w[o, k], over=k) + bias[o], scale))


@tile.operator
def convolution(n, x, w, *, stride=1, dilation=1, pad=1, zero=3):
    h, width = (
        (extent + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
        for extent, taps in zip(x.shape[1:3], w.shape[1:3], strict=True)
    )
    b, i, j, o = n.axes(x.shape[0], h, width, w.shape[0])
    dy, dx, c = n.reduce_axes(*w.shape[1:])
    element = x.padded(zero)[b, i * stride + dy * dilation - pad, j * stride + dx * dilation - pad, c] - zero
    return n.compute("int8", (b, i, j, o), n.requantise(n.sum(element * w[o, dy, dx, c], over=(dy, dx, c)), 0.002))


@convolution.cases
def _(rng):
    taps, stride, dilation, pad = (int(v) for v in rng.integers(1, (4, 4, 3, 3)))
    reach = dilation * (taps - 1) + 1
    b, h, w, c, o = (int(v) for v in rng.integers(1, (3, 9, 9, 20, 20)))
    weights = bytes_of(rng, o, taps, taps, c)
    image = tile.Spec("int8", (b, h + reach, w + reach, c))
    numbers = {"stride": stride, "dilation": dilation, "pad": pad, "zero": int(rng.integers(-9, 9))}
    return image, tile.Constant(weights) if rng.random() < 0.8 else tile.Spec("int8", weights.shape), numbers


@pytest.mark.parametrize("kind", random_operators.KINDS)
def test_random_operators_are_what_they_say(kind):
    """On the reference interpreter, and on the functional simulator with races and poison watched."""
    count = 0
    for seed in range(25):
        rng = np.random.default_rng([seed, list(random_operators.KINDS).index(kind)])
        operator, tensors = random_operators.KINDS[kind](rng)
        try:
            program = operator.build(*tensors, config="npu64" if seed % 2 else "npu256")
        except tile.KernelError as error:
            assert re.search("has no such function|added up of|joins", str(error)), f"seed {seed}"
            continue
        arrays = [getattr(one, "array", one) for one in tensors]
        wanted = operator.wanted(tensors, arrays, {})
        feeds = operator.feeds(tensors, arrays)
        (interpreted,) = program.interpret(*feeds.values())
        (found,) = program.session("fsim", check_races=True, poison=seed + 1).run(None, feeds)
        np.testing.assert_array_equal(interpreted, wanted, f"seed {seed}")
        np.testing.assert_array_equal(found, wanted, f"seed {seed}")
        count += 1
    assert count > 20


def scalar(expression, place, arrays):
    """The value of an expression at {loop: iteration}, one Python integer at a time."""
    kind = type(expression).__name__
    if kind == "Number":
        return expression.value
    if kind == "Load":
        array = arrays[expression.source.name]
        at = [p.constant + sum(place[loop] * factor for loop, factor in p.terms.items()) for p in expression.positions]
        inside = all(0 <= one < extent for one, extent in zip(at, array.shape, strict=True))
        return int(array[tuple(at)]) if inside else expression.source.pad
    if kind == "Reduce":
        found = [
            scalar(expression.body, place | dict(zip(expression.over, point, strict=True)), arrays)
            for point in itertools.product(*(range(loop.extent) for loop in expression.over))
        ]
        return {"sum": sum, "max": max, "min": min}[expression.kind](found)
    values = [scalar(one, place, arrays) for one in expression.children]
    if kind == "Requantise":
        scaled = np.float32(values[0]) * np.float32(expression.scale)
        return round(float(np.clip(scaled, expression.low, expression.high))) + expression.zero
    return {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}[expression.name](*values)


def test_the_derived_reference_is_the_scalar_meaning():
    rng = np.random.default_rng(1)
    x, w = bytes_of(rng, 1, 5, 4, 3), bytes_of(rng, 2, 3, 3, 3)
    for traced in (convolution.trace(x, w, stride=2), convolution.trace(x, w, dilation=2, pad=2)):
        (made,) = traced.computes
        found = traced.evaluate([x, w])
        for place in np.ndindex(found.shape):
            assert found[place] == scalar(made.body, dict(zip(made.loops, place, strict=True)), {"x": x, "w": w})


def test_convolution_equals_its_reference_on_all_devices():
    outcome = tile.check(convolution, cases=15, config="npu64", seed=2)
    assert outcome.cases["fsim"] == 15 and outcome.cycles["rtl"]


@pytest.mark.parametrize("name", ["convolution", "convolution3d", "correlation", "enlarge"])
def test_examples_equal_what_they_say(name):
    file = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "kernels" / "operators.py"
    spec = importlib.util.spec_from_file_location("operators", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outcome = tile.check(getattr(module, name), cases=8, config="npu256", devices={"fsim": 8, "sysc": 1}, seed=3)
    assert outcome.cases["fsim"] == 8


@pytest.mark.parametrize("rows, inner, columns", [(64, 96, 80), (7, 200, 33)])
def test_a_product_takes_the_cycles_of_the_compilers_own(rows, inner, columns):
    rng = np.random.default_rng(3)
    x, w, bias = bytes_of(rng, rows, inner), bytes_of(rng, columns, inner), rng.integers(-999, 999, columns)
    program = dense.build(x, tile.Constant(w), tile.Constant(bias.astype(np.int32)), config="npu64")
    session = program.session("sysc")
    (found,) = session.run(None, {"x": x})
    sums = x.astype(np.int64) @ w.T.astype(np.int64) + bias
    wanted = np.clip(np.rint(sums.astype(np.float32) * np.float32(0.01)), -128, 127)
    np.testing.assert_array_equal(found, wanted)
    constants = {
        "s": np.float32(0.01),
        "one": np.float32(1),
        "z": np.int8(0),
        "w": w.T.copy(),
        "b": bias.astype("int32"),
    }
    node = helper.make_node(
        "QGemm", ["x", "s", "z", "w", "one", "z", "b", "one", "z"], ["y"], "gemm", domain="com.microsoft"
    )
    assert session.stats()["cycles"] == alone(node, constants, x, wanted)


@pytest.mark.parametrize("stride, dilation, pad", [(1, 1, 1), (2, 1, 0), (1, 2, 2)])
def test_a_convolution_takes_the_cycles_of_the_compilers_own(stride, dilation, pad):
    rng = np.random.default_rng(4)
    x, w = bytes_of(rng, 1, 12, 11, 20), bytes_of(rng, 24, 3, 3, 20)
    program = convolution.build(x, tile.Constant(w), config="npu64", stride=stride, dilation=dilation, pad=pad, zero=0)
    session = program.session("sysc")
    (found,) = session.run(None, {"x": x})
    constants = {"s": np.float32(0.002), "one": np.float32(1), "z": np.int8(0), "w": w.transpose(0, 3, 1, 2).copy()}
    node = helper.make_node(
        "QLinearConv",
        ["x", "s", "z", "w", "one", "z", "one", "z"],
        ["y"],
        "conv",
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        pads=[pad] * 4,
    )
    own = alone(node, constants, x.transpose(0, 3, 1, 2).copy(), found.transpose(0, 3, 1, 2))
    assert session.stats()["cycles"] == own


def alone(node, constants, x, wanted):
    """SystemC's cycles of a model of one operator, whose result is compared."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value("x", TensorProto.INT8, x.shape)],
        [value("y", TensorProto.INT8, wanted.shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    session = tessera.Session(helper.make_model(graph, opset_imports=opsets).SerializeToString(), "sysc", "npu64")
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)
    return session.stats()["cycles"]


def test_a_tuned_operator_is_no_slower():
    x, w, bias = (tile.Spec("int8", (40, 60)), *map(tile.Constant, (np.ones((50, 60), np.int8), np.ones(50, np.int32))))
    program = dense.build(x, w, bias, config="npu64")
    outcome = program.tune(trials=8, judge="replay")
    assert outcome.cycles <= outcome.default_cycles
    (found,) = program.session("fsim").run(None, {"x": np.ones((40, 60), np.int8)})
    assert (found == 1).all()


def test_sums_with_constants_are_one_product():
    @tile.operator
    def gate(n, x, h, w, u, bias):
        i, o = n.axes(x.shape[0], w.shape[1])
        k = n.reduce_axes(x.shape[1])
        q = n.reduce_axes(h.shape[1])
        total = n.sum(x[i, k] * w[k, o], over=k) - n.sum(h[i, q] * u[o, q], over=q) + bias[o]
        return n.compute("int8", (o, i), n.requantise(total, 0.004))

    rng = np.random.default_rng(7)
    x, h, w = bytes_of(rng, 5, 20), bytes_of(rng, 5, 9), bytes_of(rng, 20, 7)
    u, bias = np.clip(bytes_of(rng, 7, 9), -127, 127), rng.integers(-999, 999, 7).astype(np.int32)
    program = gate.build(x, h, *map(tile.Constant, (w, u, bias)), config="npu64")
    (found,) = program.session("fsim", check_races=True).run(None, {"x": x, "h": h})
    x, h, w, u = (one.astype(np.int64) for one in (x, h, w, u))
    sums = (x @ w - h @ u.T + bias).astype(np.float32) * np.float32(0.004)
    np.testing.assert_array_equal(found, np.clip(np.rint(sums), -128, 127).T)
    assert sum(layer["op"] == "MatMulInteger" for layer in program.session("fsim").info()["layers"]) == 1


def gradients(n, x):
    """Sobel's."""
    i, j = n.axes(x.shape[0] - 2, x.shape[1] - 2)
    dy, dx = n.reduce_axes(3, 3)
    taps = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    both = [n.sum(x[i + dy, j + dx] * n.constant(one)[dy, dx], over=(dy, dx)) for one in (taps, taps.T)]
    return n.compute("uint8", (i, j), n.clip((abs(both[0]) + abs(both[1])) >> 2, 0, 255))


def absolute_distances(n, x, y):
    i, j = n.axes(x.shape[0], y.shape[0])
    k = n.reduce_axes(x.shape[1])
    return n.compute("int32", (i, j), n.sum(abs(x[i, k] - y[j, k]), over=k))


def square_distances(n, x, y):
    i, j = n.axes(x.shape[0], y.shape[0])
    k = n.reduce_axes(x.shape[1])
    return n.compute("int32", (i, j), n.sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]), over=k))


def colours(n, x):
    """Of an image in YUV."""
    i, j, o = n.axes(*x.shape[:2], 3)
    c = n.reduce_axes(3)
    weights = n.constant([[298, 0, 409], [298, -100, -208], [298, 516, 0]])
    bias = n.constant([-56992, 34784, -70688])
    return n.compute("uint8", (i, j, o), n.clip((n.sum(x[i, j, c] * weights[o, c], over=c) + bias[o]) >> 8, 0, 255))


def complex_products(n, x, y):
    i = n.axes(x.shape[0])
    return n.compute("int8", (i,), n.requantise(x[i, 0] * y[i, 0] - x[i, 1] * y[i, 1], 0.004))


def brightest(n, x, y):
    """The largest of absolute correlations."""
    i, j = n.axes(x.shape[0]), n.reduce_axes(y.shape[0])
    k = n.reduce_axes(x.shape[1])
    return n.compute("int8", (i,), n.requantise(n.max(abs(n.sum(x[i, k] * y[j, k], over=k)), over=j), 0.002))


def histogram(n, x):
    v = n.axes(8)
    i, j = n.reduce_axes(*x.shape)
    low = n.constant(np.arange(8) * 32)
    return n.compute("int32", (v,), n.sum((x[i, j] >= low[v]) * (x[i, j] < low[v] + 32), over=(i, j)))


def unpool(n, x, index):
    """The inverse of a maximum of 2 x 2, where the index says which one of the four it was."""
    i, j = n.axes(2 * x.shape[0], 2 * x.shape[1])
    place = n.constant(np.arange(4).reshape(2, 2))[i % 2, j % 2]
    return n.compute("uint8", (i, j), n.where(index[i // 2, j // 2] == place, x[i // 2, j // 2], 0))


def running_sums(n, x):
    i, j = n.axes(*x.shape)
    k = n.reduce_axes(x.shape[1])
    return n.compute("int32", (i, j), n.sum(n.where(k <= j, x[i, k], 0), over=k))


def second_best(n, x):
    """The largest of a row that is not the first largest one."""
    i, k = n.axes(x.shape[0]), n.reduce_axes(x.shape[1])
    best = n.max(x[i, k], over=k)
    where = n.compute("uint8", (i,), n.min(n.where(x[i, k] == best, n.value(k), 255), over=k))
    return n.compute("int8", (i,), n.max(n.where(where[i] == k, -128, x[i, k]), over=k))


def largest_three(n, x):
    """Elements that fewer than three of their row exceed: what is chosen is also counted."""
    (i, j), k = n.axes(*x.shape), n.reduce_axes(x.shape[1])
    better = n.sum(n.where(x[i, k] > x[i, j], 1, 0), over=k)
    return n.compute("int8", (i, j), n.where(better < 3, x[i, j], -128))


def mixed(n, x, y):
    """One of two, where their signs differ."""
    i, j = n.axes(*x.shape)
    differ = ((x[i, j] > 0) & ~(y[i, j] > 0)) | ((x[i, j] <= 0) & (y[i, j] > 0))
    return n.compute("int8", (i, j), n.where(differ, x[i, j], np.minimum(y[i, j], np.int64(127))))


def wide(values):
    return values.astype(np.int64)


def rounded(values, scale):
    return np.clip(np.rint(values.astype(np.float32) * np.float32(scale)), -128, 127)


def by_numpy(name, x, y):
    """The same written for arrays."""
    x, y = wide(x), wide(y)
    if name == "gradients":
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
        taps = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        both = [np.abs((windows * one).sum((2, 3))) for one in (taps, taps.T)]
        return np.clip((both[0] + both[1]) // 4, 0, 255)
    if name == "absolute_distances":
        return np.abs(x[:, None] - y[None]).sum(-1)
    if name == "square_distances":
        return ((x[:, None] - y[None]) ** 2).sum(-1)
    if name == "colours":
        matrix, offset = np.array([[298, 0, 409], [298, -100, -208], [298, 516, 0]]), [-56992, 34784, -70688]
        return np.clip((x @ matrix.T + offset) // 256, 0, 255)
    if name == "complex_products":
        return rounded(x[:, 0] * y[:, 0] - x[:, 1] * y[:, 1], 0.004)
    if name == "unpool":
        at = np.add.outer(np.arange(2 * x.shape[0]) % 2 * 2, np.arange(2 * x.shape[1]) % 2)
        return np.kron(x, np.ones((2, 2), int)) * (np.kron(y, np.ones((2, 2), int)) == at)
    if name == "running_sums":
        return np.cumsum(x, 1)
    if name == "second_best":
        return np.sort(x, 1)[:, -2]
    if name == "largest_three":
        return np.where((x[:, None] > x[:, :, None]).sum(-1) < 3, x, -128)
    if name == "mixed":
        return np.where((x > 0) != (y > 0), x, y)
    if name == "brightest":
        return rounded(np.abs(x @ y.T).max(1), 0.002)
    return np.histogram(x, np.arange(9) * 32)[0]


@pytest.mark.parametrize("shape", [(7,), (2, 7), (1, 2, 3, 2, 3)])
def test_loops_of_any_rank(shape):
    """One loop is a tuple of one where a function is written for any number of them."""

    @tile.operator
    def less(n, x):
        loops = tuple(n.axes(*x.shape))
        (k,) = n.reduce_axes(3)
        return n.compute("int8", loops, n.clip(x[loops] - n.sum(n.constant(np.arange(3))[k], over=k), -128, 127))

    x = bytes_of(np.random.default_rng(1), *shape)
    found = less.build(x, config="npu64").session("fsim").run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, np.clip(x.astype(int) - 3, -128, 127))


@pytest.mark.parametrize(
    "function, shapes, dtype",
    [
        (gradients, [(9, 14)], "uint8"),
        (absolute_distances, [(6, 21), (9, 21)], "int8"),
        (square_distances, [(6, 21), (9, 21)], "uint8"),
        (square_distances, [(5, 7), (3, 7)], "int8"),
        (colours, [(5, 6, 3)], "uint8"),
        (complex_products, [(19, 2), (19, 2)], "int8"),
        (brightest, [(9, 20), (7, 20)], "int8"),
        (histogram, [(6, 20)], "uint8"),
        (unpool, [(5, 6), (5, 6)], "uint8"),
        (running_sums, [(4, 30)], "int8"),
        (second_best, [(7, 12)], "int8"),
        (largest_three, [(7, 12)], "int8"),
        (mixed, [(7, 12), (7, 12)], "int8"),
    ],
)
def test_natural_forms_are_on_the_npu(function, shapes, dtype):
    rng = np.random.default_rng(9)
    arrays = [bytes_of(rng, *shape, dtype=dtype) for shape in shapes]
    for number, array in enumerate(arrays):
        array.reshape(-1)[: 4 + number] = np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, *[0] * number
        if function is unpool and number == 1:
            array %= 4
    program = tile.operator(function).build(*arrays, config="npu256")
    assert not program.host
    feeds = dict(zip((one.name for one in program.model.graph.input), arrays, strict=True))
    (found,) = program.session("fsim", check_races=True, poison=5).run(None, feeds)
    np.testing.assert_array_equal(found, by_numpy(function.__name__, arrays[0], arrays[-1]))


def test_what_the_npu_has_no_form_for_runs_on_the_host():
    """The product of two sums: both on the NPU, and the host multiplies."""

    @tile.operator
    def energies(n, x, y):
        i, j = n.axes(x.shape[0], y.shape[0])
        k = n.reduce_axes(x.shape[1])
        own, both = n.sum(x[i, k] * x[i, k], over=k), n.sum(x[i, k] * y[j, k], over=k)
        return n.compute("int8", (i, j), n.requantise((own >> 4) * (both >> 4), 1e-5))

    rng = np.random.default_rng(8)
    x, y = bytes_of(rng, 6, 11), bytes_of(rng, 4, 11)
    with pytest.raises(tile.KernelError, match="is an int32 among bytes; requantise it first"):
        energies.build(x, y, config="npu64")
    program = energies.build(x, y, config="npu64", host=True)
    (found,) = program.session("fsim").run(None, {"x": x, "y": y})
    x, y = x.astype(np.int64), y.astype(np.int64)
    wanted = (((x * x).sum(-1) >> 4)[:, None] * ((x @ y.T) >> 4)).astype(np.float32) * np.float32(1e-5)
    np.testing.assert_array_equal(found, np.clip(np.rint(wanted), -128, 127))
    layers = program.session("fsim").info()["layers"]
    assert [layer["placement"] for layer in layers].count("npu") == 2
    assert program.host and program.host[0].startswith("test_operators.py:")


def wrong(function):
    with pytest.raises(tile.KernelError) as caught:
        tile.operator(function).build(*(np.zeros((4, 5), np.int8) for _ in range(3)), config="npu64")
    return str(caught.value)


def test_errors_name_the_line_and_the_term():
    def three(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), n.requantise(x[i, j] * y[i, j] * z[i, j], 0.1))

    def int32s(n, x, y, z):
        i, j = n.axes(4, 4)
        k = n.reduce_axes(5)
        own = n.compute("int32", (i, j), n.sum(x[i, k] * x[j, k], over=k))
        return n.compute("int8", (i, j), n.requantise(own[i, j] + n.sum(x[i, k] * y[j, k], over=k), 0.1))

    def large(n, x, y, z):
        i, j = n.axes(4, 4)
        k = n.reduce_axes(5)
        weights = n.constant(np.full((4, 5), 3000))
        return n.compute("int8", (i, j), n.requantise(n.sum(x[i, k] * weights[j, k], over=k), 1e-5))

    def outside(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), x[i + 1, j])

    def wide(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), x[i, j] + y[i, j])

    def free(n, x, y, z):
        i, k = n.axes(4, 5)
        return n.compute("int8", i, x[i, k])

    def data(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), x[y[i, j], j])

    def rows(n, x, y, z):
        i, j = n.axes(4, 4)
        k = n.reduce_axes(5)
        bias = n.constant(np.arange(16).reshape(4, 4))
        return n.compute("int8", (i, j), n.requantise(n.sum(x[i, k] * y[j, k], over=k) + bias[i, j], 0.1))

    def truth(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), x[i, j] if x[i, j] > 0 else y[i, j])

    def numpys(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), np.sqrt(x[i, j]))

    def bits(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), x[i, j] & 3)

    def loops(n, x, y, z):
        i, j = n.axes(4, 5)
        return n.compute("int8", (i, j), n.where(i == j, x[i, j], 0))

    for function, message in (
        (numpys, "numpy.sqrt of x[i, j]: elements are joined by the functions of the nest"),
        (bits, "&, | and ~ join comparisons, which are 0 or 1; x[i, j] is -128 to 127"),
        (loops, "and by == with an element or with n.value(loop)"),
        (three, "multiplies x[i, j], y[i, j], z[i, j]; the machine multiplies two bytes: requantise a product"),
        (int32s, "result0[i, j] is an int32 of memory, to which the machine adds constants only"),
        (large, "its constant factor is 3,000 to 3,000; it is added up of 16 bytes, 127 each, at most"),
        (outside, "axis 0 of 'x': i + 1 is 1 to 4, not inside of 0 to 3"),
        (wide, "x[i, j] + y[i, j]: is -256 to 254, and int8 is -128 to 127; clip or requantise it"),
        (free, "x[i, k] depends on k, over which nothing sums"),
        (data, "a position does not depend on data, and y[i, j] does"),
        (rows, "its constant constant1[i, j] changes along i; one for each output channel (here: j)"),
        (truth, "where(condition, a, b) chooses between elements"),
    ):
        told = wrong(function)
        line = next(n for n in range(40) if f":{function.__code__.co_firstlineno + n}:" in told)
        assert told.startswith("test_operators.py:") and message in told and 1 <= line < 7, told


# --- in models


@tile.operator
def swish(n, x, *, x_scale=0.1, x_zero=0, output_scale=0.1, output_zero=0):
    loops = [n.axes(extent) for extent in x.shape]
    value = (np.arange(-128, 128) - x_zero) * x_scale
    table = np.rint(value / (1 + np.exp(-value)) / output_scale) + output_zero
    return n.compute("int8", loops, n.lookup(np.clip(table, -128, 127).astype(int), x[tuple(loops)]))


@pytest.fixture
def registered():
    tile.register("my.lab::Swish", swish)
    yield
    tile.unregister("my.lab::Swish")


def network(nodes, results):
    """float image -> convolution in QDQ form -> nodes -> q, all int8."""
    rng = np.random.default_rng(5)
    constants = {
        "s": np.float32(0.05),
        "z": np.int8(0),
        "w": bytes_of(rng, 8, 3, 3, 3),
        "ws": np.float32(0.01),
        "cs": np.float32(0.2),
        "ss": np.float32(0.1),
    }
    front = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wd"]),
        helper.make_node("Conv", ["d", "wd"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "cs", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "cs", "z"], ["cd"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        front + nodes,
        "g",
        [value("q", TensorProto.INT8, [1, 3, 8, 8])],
        [value(name, TensorProto.INT8, [1, 8, 8, 8]) for name in results],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.lab", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def ran(model, device="sysc"):
    session = tessera.Session(model.SerializeToString(), device, "npu64")
    return session.run(None, {"q": bytes_of(np.random.default_rng(6), 1, 3, 8, 8)})[0], session


def expected(model):
    """By the convolution alone, and NumPy."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.graph.node[4:]
    plain.graph.output[0].name = "cq"
    cq = ran(plain, "fsim")[0]
    value = cq * 0.2
    return np.clip(np.rint(value / (1 + np.exp(-value)) / 0.1), -128, 127)


def test_an_operator_between_dequantise_and_quantise_is_fused(registered):
    """With the convolution in front of it: no layer of its own, no copies."""
    model = network(
        [
            helper.make_node("Swish", ["cd"], ["sw"], "act", domain="my.lab"),
            helper.make_node("QuantizeLinear", ["sw", "ss", "z"], ["sq"]),
        ],
        ["sq"],
    )
    found, session = ran(model)
    np.testing.assert_array_equal(found, expected(model))
    (layer,) = session.stats()["layers"]
    assert layer["op"] == "QLinearConv+Lookup"
    assert any(node.startswith("act/test_operators.py:") for node in layer["nodes"])


def test_an_operator_replaces_a_pattern():
    @tile.pattern
    def spelled_out(p, x, scale, zero, output_scale, output_zero):
        value = p.DequantizeLinear(x, scale, zero)
        return p.QuantizeLinear(p.Mul(value, p.Sigmoid(value)), output_scale, output_zero)

    asked = []

    def match(x, scale, zero, output_scale, output_zero):
        asked.append(x)
        return {"x_scale": float(scale), "output_scale": float(output_scale)} if x.dtype == "int8" else None

    model = network(
        [
            helper.make_node("Sigmoid", ["cd"], ["sg"]),
            helper.make_node("Mul", ["sg", "cd"], ["m"], "mul"),
            helper.make_node("QuantizeLinear", ["m", "ss", "z"], ["sq"], "last"),
        ],
        ["sq"],
    )
    tile.replace(spelled_out, swish, match)
    try:
        found, session = ran(model)
    finally:
        tile.unregister(spelled_out)
    np.testing.assert_array_equal(found, expected(model))
    assert asked[0].shape == (1, 8, 8, 8)
    (layer,) = session.stats()["layers"]
    assert layer["op"] == "QLinearConv+Lookup" and any(node.startswith("last/") for node in layer["nodes"])


def test_operators_stay_where_a_kernel_does_not_fit():
    @tile.pattern
    def sigmoid(p, x, scale, zero, output_scale, output_zero):
        return p.QuantizeLinear(p.Sigmoid(p.DequantizeLinear(x, scale, zero)), output_scale, output_zero)

    @tile.kernel
    def large(k, x):
        k.out(10**6, 16)

    model = network(
        [
            helper.make_node("Sigmoid", ["cd"], ["sg"], "sigmoid"),
            helper.make_node("QuantizeLinear", ["sg", "ss", "z"], ["sq"]),
        ],
        ["sq"],
    )
    wanted = ran(model)[0]
    tile.replace(sigmoid, large)
    try:
        found, session = ran(model)
    finally:
        tile.unregister(sigmoid)
    np.testing.assert_array_equal(found, wanted)
    assert not any("large" in layer["name"] for layer in session.stats()["layers"])


def test_errors_of_models_name_the_node(registered):
    behind = helper.make_node("QuantizeLinear", ["sw", "ss", "z"], ["sq"])
    node = helper.make_node("Swish", ["c"], ["sw"], "act", domain="my.lab")
    with pytest.raises(tile.KernelError, match="node 'act' .*: its input 'c' is float and comes of no Dequantize"):
        tile.embed(network([node, behind], ["sq"]), "npu64")
    node = helper.make_node("Swish", ["cd"], ["sw"], "act", domain="my.lab")
    with pytest.raises(tile.KernelError, match="node 'act' .*: its result 'sw' is read by something else"):
        tile.embed(network([node], ["sw"]), "npu64")
    tile.register("my.lab::Swish", dense)
    with pytest.raises(tile.KernelError, match="node 'act' .* 'dense' has no parameter 'output_scale'"):
        tile.embed(network([node, behind], ["sq"]), "npu64")


def test_a_loop_may_be_bound_twice():
    """The largest and the next largest of each row: the inner max over c has a loop of its own."""

    @tile.operator
    def largest(n, x):
        i, c = n.axes(x.shape[0]), n.reduce_axes(x.shape[1])
        best = n.max(x[i, c], over=c)
        return n.compute("int8", i, best), n.compute("int8", i, n.max(n.where(x[i, c] < best, x[i, c], -128), over=c))

    x = np.stack([np.random.default_rng(row).permutation(20) for row in range(5)]).astype(np.int8)
    for found in (largest.meaning(x), largest.build(x, config="npu64", host=True).session("fsim").run(None, {"x": x})):
        np.testing.assert_array_equal(found, [[19] * 5, [18] * 5])

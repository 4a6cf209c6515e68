# SPDX-License-Identifier: Apache-2.0
"""Models whose activations have 16 bits: QDQ of int16 and uint16 around float operators, as ONNX Runtime's quantiser
writes them. Products run on the NPU as products of bytes. One product is the correctly rounded one of float64; networks
are a few steps of 1 / 65,536 of the range from ONNX Runtime's, whose sums are floats."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tessera import Session

TYPES = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16}


class Graph:
    """A QDQ model under construction, opset 21."""

    def __init__(self, seed):
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), [], []
        self.inputs, self.stored = [], []

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, inputs, name=None, **attributes):
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{name}", **attributes))
        return name

    def input(self, shape):
        self.inputs.append(helper.make_tensor_value_info(f"x{len(self.inputs)}", TensorProto.FLOAT, shape))
        return self.inputs[-1].name

    def through(self, x, kind, scale, zero=0, name=None):
        """The value after it has been an integer of that kind."""
        steps = [self.constant(np.float32(scale)), self.constant(TYPES[kind](zero))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, *steps]), *steps], name)

    def weights(self, shape, kind, axis, per_channel, zero=0):
        """Integers with their scales; DequantizeLinear's result."""
        info = np.iinfo(TYPES[kind])
        scales = self.rng.uniform(0.5, 1.5, shape[axis] if per_channel else ()).astype(np.float32) / info.max
        zeros = np.full(scales.shape, zero, TYPES[kind])
        values = self.rng.integers(info.min + (info.min < 0), info.max + 1, shape).astype(TYPES[kind])
        self.stored.append((values, scales.astype(np.float64), zeros.astype(np.float64)))
        names = [self.constant(array) for array in (values, scales, zeros)]
        return self.node("DequantizeLinear", names, **({"axis": axis} if per_channel else {}))

    def model(self, result):
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", self.inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return model.SerializeToString()


def feeds(session, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    return {p.name: (spread * rng.standard_normal(p.shape)).astype(np.float32) for p in session.get_inputs()}


def on_npu(session):
    return {layer.op for layer in session.stats().layers if layer.placement == "npu"}


# kinds of operand and weights, zero points, whether each channel has a scale
KINDS = [
    ("int16", "int8", 0, 0, True),
    ("uint16", "int8", 32768, 0, False),
    ("uint16", "uint8", 31000, 130, False),
    ("int16", "int16", -77, 0, True),
    ("uint8", "int16", 120, 0, False),
    ("uint8", "int8", 120, 0, True),
]
PRODUCTS = {
    "grouped convolution": ("Conv", [2, 8, 9, 11], [12, 4, 3, 3], 0, {"group": 2, "pads": [1, 2, 0, 1]}),
    "strided, dilated 1-D": ("Conv", [1, 10, 40], [7, 10, 3], 0, {"strides": [2], "dilations": [3], "pads": [3, 3]}),
    "depthwise": ("Conv", [1, 16, 8, 8], [16, 1, 3, 3], 0, {"group": 16, "auto_pad": "SAME_UPPER"}),
    "in three dimensions": (
        "Conv",
        [2, 4, 5, 6, 7],
        [6, 2, 2, 2, 3],
        0,
        {"group": 2, "strides": [1, 2, 1], "dilations": [2, 1, 1], "pads": [1, 0, 1, 2, 0, 1]},
    ),
    "transposed": (
        "ConvTranspose",
        [2, 6, 5, 4],
        [6, 4, 3, 3],
        1,
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]},
    ),
    "transposed, dilated 1-D": ("ConvTranspose", [1, 6, 9], [6, 5, 4], 1, {"strides": [2], "dilations": [3]}),
    "transposed in three dimensions": ("ConvTranspose", [1, 3, 3, 4, 3], [3, 4, 2, 3, 2], 1, {"strides": [2, 2, 1]}),
    "matrices": ("MatMul", [2, 5, 48], [48, 21], 1, {}),
    "many rows": ("MatMul", [5, 17, 24], [24, 21], 1, {}),
    "Gemm": ("Gemm", [6, 40], [40, 10], 1, {"alpha": 0.5, "beta": 2.0}),
    "turned Gemm": ("Gemm", [40, 6], [10, 40], 0, {"transA": 1, "transB": 1}),
}


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: f"{kinds[0]} by {kinds[1]}")
@pytest.mark.parametrize("name", PRODUCTS)
def test_one_product_is_the_rounded_one(name, kinds):
    """Against the float64 product of the dequantised operands: the same step of 16 bits but where that is a tie to a
    thousandth of a step."""
    op, shape, weights, axis, attributes = PRODUCTS[name]
    kind, weight_kind, zero, weight_zero, per_channel = kinds
    g = Graph(sum(map(ord, name)))
    scale = 8 / 65536 if "16" in kind else 8 / 256
    x = g.through(g.input(shape), kind, scale, zero)
    operands = [x, g.weights(weights, weight_kind, axis, per_channel, weight_zero)]
    with_bias = op != "MatMul" and "16" in kind + weight_kind  # ONNX Runtime rounds the bias of bytes to an int32
    if with_bias:
        channels = weights[axis] * (attributes.get("group", 1) if op == "ConvTranspose" else 1)
        operands.append(g.constant(g.rng.standard_normal(channels).astype(np.float32)))
    product = g.node(op, operands, "product", **attributes)
    step = 64 / 65536 * np.sqrt(np.prod(weights) / weights[axis])
    g.through(product, "int16", step, name="y")
    session = Session(g.model("y"), "fsim", "npu64", check_races=True)
    given = feeds(session, 3)
    steps = session.run(None, given)[0].astype(np.float64) / np.float32(step)
    left = real(np.rint(given["x0"] / np.float32(scale)) + zero, kind, scale, zero)
    values, scales, zeros = g.stored[0]
    right = np.moveaxis((np.moveaxis(values.astype(np.float64), axis, -1) - zeros) * scales, -1, axis)
    wide = reference(op, left, right, attributes)
    if with_bias:
        bias = np.float64(numpy_helper.to_array(g.constants[-3])) * attributes.get("beta", 1)
        wide = wide + (bias if op == "Gemm" else bias.reshape(-1, *[1] * (len(shape) - 2)))
    wide = np.clip(wide / np.float64(np.float32(step)), -32768, 32767)
    tie = np.abs(wide - np.floor(wide) - 0.5) < 1e-3
    assert np.abs(np.rint(steps) - wide).max() < 0.501
    assert np.array_equal(np.rint(steps)[~tie], np.rint(wide)[~tie])
    assert on_npu(session) & {"ConvInteger", "MatMulInteger"}


def real(q, kind, scale, zero):
    """What a quantised value stands for, in float64."""
    info = np.iinfo(TYPES[kind])
    return (np.clip(q.astype(np.float64), info.min, info.max) - zero) * np.float64(np.float32(scale))


def transposed(x, w, attributes):
    """Each element adds the kernel to the result at its place."""
    dims, group = x.ndim - 2, attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * dims), attributes.get("dilations", [1] * dims)
    pads, more = attributes.get("pads", [0] * 2 * dims), attributes.get("output_padding", [0] * dims)
    rows, columns = x.shape[1] // group, w.shape[1]
    full = [
        (n - 1) * s + (k - 1) * d + 1 + m
        for n, k, s, d, m in zip(x.shape[2:], w.shape[2:], strides, dilations, more, strict=True)
    ]
    result = np.zeros((x.shape[0], columns * group, *full))
    for tap in np.ndindex(*w.shape[2:]):
        places = zip(tap, dilations, x.shape[2:], strides, strict=True)
        at = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in places)
        for i in range(group):
            part, ours = slice(i * rows, (i + 1) * rows), slice(i * columns, (i + 1) * columns)
            result[(slice(None), ours, *at)] += np.einsum("co,nc...->no...", w[(part, slice(None), *tap)], x[:, part])
    inside = [slice(b, n - e) for b, e, n in zip(pads[:dims], pads[dims:], full, strict=True)]
    return result[(slice(None), slice(None), *inside)]


def reference(op, x, w, attributes):
    """The product in float64, by loops over the taps."""
    if op == "ConvTranspose":
        return transposed(x, w, attributes)
    if op != "Conv":
        x = x.T if attributes.get("transA") else x
        return attributes.get("alpha", 1.0) * (x @ (w.T if attributes.get("transB") else w))
    dims, group = x.ndim - 2, attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * dims), attributes.get("dilations", [1] * dims)
    pads = attributes.get("pads", [0] * 2 * dims)
    if attributes.get("auto_pad"):  # of odd kernels and steps of 1
        pads = [k // 2 for k in w.shape[2:]] * 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:dims], pads[dims:], strict=True)])
    out = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    each, outputs = w.shape[1], w.shape[0] // group
    result = np.zeros((x.shape[0], w.shape[0], *out))
    for tap in np.ndindex(*w.shape[2:]):
        at = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, out, strides, strict=True)]
        part = x[(slice(None), slice(None), *at)]
        for i in range(group):
            lanes, rows = slice(i * each, (i + 1) * each), slice(i * outputs, (i + 1) * outputs)
            result[:, rows] += np.einsum("oc,nc...->no...", w[(rows, slice(None), *tap)], part[:, lanes])
    return result


def attention(kind, zero):
    """Scores and their product with values: both operands come at run time."""
    g = Graph(5)
    x = g.through(g.input([2, 20, 32]), kind, 8 / 65536, zero)
    q, k, v = (
        g.through(g.node("MatMul", [x, g.weights([32, 32], "int8", 1, True)]), kind, 30 / 65536, zero) for _ in "qkv"
    )
    scores = g.node("MatMul", [q, g.node("Transpose", [k], perm=[0, 2, 1])])
    shares = g.through(g.node("Softmax", [g.through(scores, kind, 400 / 65536, zero)]), "uint16", 1 / 65536)
    g.through(g.node("MatMul", [shares, v]), kind, 30 / 65536, zero, name="y")
    return g.model("y"), 30 / 65536


def network(kind, zero):
    g = Graph(6)
    x = g.through(g.input([1, 3, 16, 16]), kind, 8 / 65536, zero)
    x = g.node("Conv", [x, g.weights([16, 3, 3, 3], "int8", 0, True)], pads=[1] * 4, strides=[2, 2])
    x = first = g.through(g.node("Relu", [x]), kind, 40 / 65536, zero)
    x = g.through(
        g.node("Conv", [x, g.weights([16, 1, 3, 3], "int8", 0, True)], pads=[1] * 4, group=16), kind, 0.01, zero
    )
    x = g.through(g.node("Add", [x, first]), kind, 0.01, zero)
    x = g.node("Flatten", [g.through(g.node("GlobalAveragePool", [x]), kind, 0.001, zero)])
    x = g.node("Gemm", [x, g.weights([10, 16], "int8", 0, True)], transB=1)
    g.through(x, kind, 0.005, zero, name="y")
    return g.model("y"), 0.005


@pytest.mark.parametrize("kind, zero", [("int16", 0), ("uint16", 32768)])
@pytest.mark.parametrize("build, products", [(attention, 5), (network, 3)])
def test_networks(build, products, kind, zero):
    data, step = build(kind, zero)
    options = onnxruntime.SessionOptions()  # by default its fused product of these weights rounds the operand to 8 bits
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session, own = Session(data, "fsim", "npu64"), onnxruntime.InferenceSession(data, options)
    given = feeds(session, 1)
    got, want = session.run(None, given)[0], own.run(None, given)[0]
    away = np.abs(got - want) / step
    assert away.max() < 8.5 and (away < 0.5).mean() > 0.9
    assert len([layer for layer in session.stats().layers if layer.placement == "npu"]) >= products
    assert np.array_equal(got, Session(data, "reference").run(None, given)[0])
    for device in ("sysc", "rtl"):
        assert np.array_equal(got, Session(data, device, "npu64").run(None, given)[0]), device


def test_sums_that_int32_does_not_hold_are_taken_in_parts():
    g = Graph(9)
    x = g.through(g.input([2, 70000]), "int16", 1 / 65536)
    g.through(g.node("MatMul", [x, g.weights([70000, 2], "int8", 1, True)]), "int16", 0.01, name="y")
    session = Session(g.model("y"), "fsim", "npu64")
    given = feeds(session, 1, 0.1)
    got = session.run(None, given)[0]
    values, scales, _ = g.stored[0]
    want = real(np.rint(given["x0"] * 65536), "int16", 1 / 65536, 0) @ (values * scales)
    assert np.abs(got - want).max() < 0.00501
    assert [layer.op for layer in session.stats().layers if layer.placement == "npu"].count("MatMulInteger") == 3


@pytest.mark.parametrize("kind, where", [("int16", "npu"), (None, "npu"), ("int8", "cpu")])
def test_bytes_by_bytes(kind, where):
    """A product of bytes that ONNX Runtime leaves float is one of integers where no step of 8 bits depends on it."""
    g = Graph(4)
    x = g.through(g.input([1, 8, 9, 9]), "int8", 1 / 20)
    x = g.node("Conv", [x, g.weights([12, 8, 3, 3], "int8", 0, True)])
    x = g.node("Clip", [x, g.constant(np.float32(-1)), g.constant(np.float32(2))])
    x = g.through(x, kind, 0.01 if kind == "int8" else 4 / 65536) if kind else x
    session = Session(g.model(g.node("Mul", [x, g.constant(np.float32(3))])), "fsim", "npu64")
    given = feeds(session, 2)
    got, want = (
        session.run(None, given)[0],
        onnxruntime.InferenceSession(g.model(f"v{len(g.nodes) - 1}")).run(None, given)[0],
    )
    assert np.abs(got - want).max() < (3.1 * 4 / 65536 if kind == "int16" else 1e-5)
    assert ("ConvInteger" in on_npu(session)) == (where == "npu")


def test_few_rows_read_their_weights_once():
    """One row of 16 bits takes about the cycles of one of 8."""

    def cycles(kind, scale):
        g = Graph(3)
        x = g.through(g.input([1, 512]), kind, scale)
        g.through(g.node("MatMul", [x, g.weights([512, 256], "int8", 1, True)]), kind, 64 * scale, name="y")
        session = Session(g.model("y"), "sysc", "npu64")
        session.run(None, feeds(session, 1))
        return session.stats().cycles

    assert cycles("int16", 8 / 65536) < 1.1 * cycles("int8", 8 / 256)


def drawn_network(seed):
    """A random network whose tensors have 8 or 16 bits, with requantisation between them."""
    g = Graph(seed)
    rng = np.random.default_rng(seed)
    pick = lambda *options: options[rng.integers(len(options))]

    def through(x, spread, name=None):
        kind = pick("int16", "uint16", "int16", "int8", "uint8")
        return g.through(
            x, kind, 2 * spread / (65535 if "16" in kind else 255), {"uint16": 32768, "uint8": 128}.get(kind, 0), name
        )

    channels = int(rng.integers(2, 7)) * 2
    x = through(g.input([int(rng.integers(1, 3)), channels, 8, 8]), 4)
    kept = x
    for _ in range(int(rng.integers(3, 7))):
        step = pick(
            "Conv", "Conv", "depthwise", "ConvTranspose", "Add", "Mul", "Relu", "Sigmoid", "pool", "mean", "Concat"
        )
        if step in ("Conv", "depthwise", "ConvTranspose"):
            group = channels if step == "depthwise" else 1
            shape = [channels, channels // group, 3, 3]
            weights = g.weights(shape, pick("int8", "int8", "int16"), 1 if step == "ConvTranspose" else 0, True)
            factor = g.constant(np.float32(2 / np.sqrt(9 * channels / group)))
            op = "Conv" if step == "depthwise" else step
            x = g.node("Mul", [g.node(op, [x, weights], group=group, pads=[1] * 4), factor])
            x = g.node("Relu", [x]) if rng.integers(2) else x
        elif step in ("Add", "Mul"):
            x = g.node(step, [x, kept])
        elif step == "pool":
            x = g.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4)
        elif step == "mean":
            x = g.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1] * 4)
        elif step == "Concat":
            x, channels = g.node("Concat", [x, kept], axis=1), 2 * channels
            x = g.node("Conv", [x, g.weights([channels // 2, channels, 1, 1], "int8", 0, True)])
            channels //= 2
        else:
            x = g.node(step, [x])
        x = through(x, 4)
        kept = x if rng.integers(2) else kept
    x = g.node("Flatten", [through(g.node("GlobalAveragePool", [x]), 2)])
    x = g.node("Gemm", [x, g.weights([5, channels], "int8", 0, True)], transB=1)
    through(x, 4, name="y")
    return g.model("y")


@pytest.mark.parametrize("seed", range(6))
def test_drawn_networks(seed):
    """Equal to the interpreter in every element; from ONNX Runtime at most the steps of 8 bits that one of 16 moves."""
    data = drawn_network(seed)
    session = Session(data, "fsim", "npu64", check_races=True)
    given = feeds(session, seed)
    got, want = session.run(None, given)[0], onnxruntime.InferenceSession(data).run(None, given)[0]
    assert np.array_equal(got, Session(data, "reference").run(None, given)[0])
    assert np.abs(got - want).max() < 0.1 and on_npu(session)


@pytest.mark.parametrize("op", [None, "Sigmoid", "HardSwish"])
def test_16_bits_between_bytes_are_a_table(op):
    """Requantisation to 16 bits and back, with an operator there: a function of one byte."""
    g = Graph(3)
    x = g.through(g.input([1, 16, 8, 8]), "int8", 1 / 16)
    x = g.through(g.node("Conv", [x, g.weights([16, 16, 3, 3], "int8", 0, True)]), "int8", 0.3)
    y = g.through(x, "int16", 0.001)
    if op:
        y = g.through(g.node(op, [y]), "uint16", 0.0011, 31000)
    y = g.through(y, "uint8", 0.25, 120)
    g.through(g.node("Conv", [y, g.weights([8, 16, 1, 1], "int8", 0, False)]), "uint8", 0.3, 128, name="y")
    session = Session(g.model("y"), "fsim", "npu64", check_races=True)
    given = feeds(session, 1)
    want = onnxruntime.InferenceSession(g.model("y")).run(None, given)[0]
    assert np.array_equal(session.run(None, given)[0], want)
    on_cpu = [layer.op for layer in session.stats().layers if layer.placement != "npu"]
    assert on_cpu == ["QuantizeLinear", "DequantizeLinear"]

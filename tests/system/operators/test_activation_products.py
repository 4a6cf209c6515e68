# SPDX-License-Identifier: Apache-2.0
"""Matrix products of two run-time tensors on the NPU: random shapes, ranks, broadcast batches, types, zero points and
memory orders, and attention as a whole. Functional simulator = reference interpreter = ONNX Runtime in every element,
races checked, memories poisoned, on shipped configurations and an odd one. Class: exact."""

import numpy as np
import pytest

import tessera
from tests.system import attention, builders
from tests.system.builders import MS
from tests.system.operators.test_npu_operators import COUNT, SEED, Network, check, seeds


class Products(Network):
    def bytes(self, shape, dtype, name):
        self.shape[name] = list(shape)
        return self.input(builders.values(self.rng, dtype, shape), name)

    def parameters(self, dtype, low=-5.0, high=-1.0):
        return [
            self.constant(builders.scale(self.rng, False, low, high)),
            self.constant(builders.zero_point(self.rng, dtype)),
        ]

    def operand(self, shape, dtype, name):
        """A tensor of this shape: an input, an input in another order, or something the NPU has made."""
        kind = self.pick("input", "input", "turned", "heads", "made", "made")
        if len(shape) < 2 and kind in ("turned", "heads"):
            kind = "made"
        self.text.append(kind)
        if kind == "turned":
            order = list(self.rng.permutation(len(shape)))
            x = self.bytes([shape[i] for i in np.argsort(order)], dtype, name)
            x = self.op("Transpose", [x], [shape[i] for i in range(len(shape))], perm=[int(i) for i in order])
            assert [self.feeds[name].shape[i] for i in order] == list(shape)
        elif kind == "heads" and len(shape) >= 3:
            *batch, h, rows, k = shape
            x = self.bytes([*batch, rows, h * k], dtype, name)
            x = self.reshape(x, [*batch, rows, h, k])
            at = len(batch)
            x = self.op("Transpose", [x], shape, perm=[*range(at), at + 1, at, at + 2])
        else:
            x = self.bytes(shape, dtype, name)
        if kind == "made" or self.chance(0.2):
            x = self.op("QLinearLeakyRelu", [x, *self.parameters(dtype), *self.parameters(dtype)], shape, MS, alpha=0.3)
        return x

    def reshape(self, x, shape):
        return self.op("Reshape", [x, self.ints(*shape)], shape)


def random_product(seed):
    g = Products(seed)
    m, k, n = (
        (g.pick(1, 3, 8, 17, 33), g.pick(1, 5, 16, 40), g.pick(1, 4, 16, 33))
        if g.chance(0.8)
        else (g.pick(64, 70), g.pick(64, 130), g.pick(64, 90))
    )
    a_type, b_type = g.pick((np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.int8))
    kind = g.pick("QLinearMatMul", "QLinearMatMul", "QLinearMatMul", "MatMulInteger", "QGemm")
    if kind == "QGemm":
        turned = g.chance(0.5), g.chance(0.5)
        a, b = (
            g.operand([k, m] if turned[0] else [m, k], a_type, "a"),
            g.operand([n, k] if turned[1] else [k, n], b_type, "b"),
        )
        bias = g.constant(g.rng.integers(-5000, 5000, n).astype(np.int32)) if g.chance(0.5) else ""
        y = g.op(
            "QGemm",
            [a, *g.parameters(a_type), b, *g.parameters(b_type), bias, *g.parameters(a_type, 1, 3)],
            [m, n],
            MS,
            transA=int(turned[0]),
            transB=int(turned[1]),
            alpha=g.pick(1.0, 0.37),
        )
        return g.finish(y), g.feeds, f"seed {seed}: {kind} {m}x{k}x{n} {turned} {g.text}"
    batch = [g.pick(1, 2, 3, 4) for _ in range(g.pick(0, 1, 1, 2, 2, 3))]
    left = [e if g.chance(0.8) else 1 for e in batch][int(g.rng.integers(0, len(batch) + 1)) if g.chance(0.3) else 0 :]
    right = [e if g.chance(0.8) else 1 for e in batch][int(g.rng.integers(0, len(batch) + 1)) if g.chance(0.3) else 0 :]
    rows, columns = [m], [n]
    if g.chance(0.05):
        left, rows = [], []
    if g.chance(0.05):
        right, columns = [], []
    out = list(np.broadcast_shapes(tuple(left), tuple(right))) + rows + columns
    a, b = g.operand([*left, *rows, k], a_type, "a"), g.operand([*right, k, *columns], b_type, "b")
    text = (
        f"seed {seed}: {kind} {np.dtype(a_type).name} {[*left, *rows, k]} by {np.dtype(b_type).name} "
        f"{[*right, k, *columns]} {g.text}"
    )
    if kind == "MatMulInteger":
        y = g.op(kind, [a, b, *(g.constant(builders.zero_point(g.rng, t)) for t in (a_type, b_type))], out)
        if g.chance(0.3) and columns:
            y = g.op("Add", [y, g.constant(g.rng.integers(-9000, 9000, n).astype(np.int32))], out)
        return g.finish(y), g.feeds, text
    y = g.op(kind, [a, *g.parameters(a_type), b, *g.parameters(b_type), *g.parameters(a_type, 1, 3)], out)
    behind = g.pick("nothing", "nothing", "table", "residual", "turned")
    if behind == "table":
        y = g.op("QLinearLeakyRelu", [y, *g.parameters(a_type), *g.parameters(a_type)], out, MS, alpha=0.1)
    elif behind == "residual":
        y = g.op(
            "QLinearAdd",
            [y, *g.parameters(a_type), g.bytes(out, a_type, "r"), *g.parameters(a_type), *g.parameters(a_type, -3, 0)],
            out,
            MS,
        )
    elif behind == "turned" and out:
        y = g.op("Transpose", [y], out, perm=[int(i) for i in g.rng.permutation(len(out))])
    return g.finish(y), g.feeds, f"{text} {behind}"


EQUATIONS = [
    "ik,kj->ij",
    "ki,jk->ji",
    "bik,bjk->bij",
    "bhid,bhjd->bhij",
    "bihd,bjhd->bhij",
    "bhij,bjhd->bihd",
    "abk,kc->abc",
    "bid,bjd->bji",
    "abkl,klcd->abcd",
    "akbl,lckd->cabd",
    "bk,bk->b",
    "i,j->ij",
    "bik,k->bi",
]


def random_contraction(seed):
    """MatMul, Gemm or Einsum of dequantised bytes with power-of-two scales: integer products, because no sum leaves
    fp32's integers."""
    g = Products(seed)
    types = [g.pick(np.int8, np.uint8) for _ in range(2)]
    kind = g.pick("MatMul", "Gemm", "Einsum", "Einsum", "Einsum")
    attributes = {}
    if kind == "Einsum":
        equation = g.pick(*EQUATIONS)
        # k has at most 17 * 8 positions: 255 * 255 times as much is below 2^24.
        extents = {label: g.pick(1, 2, 3, 5, 8, *([] if label == "l" else [17])) for label in "abcdhijkl"}
        left, right, result = ([extents[label] for label in part] for part in equation.replace("->", ",").split(","))
        attributes = {"equation": equation}
    else:
        m, k, n = g.pick(1, 7, 20), g.pick(1, 9, 40, 200), g.pick(1, 5, 33)
        batch = [g.pick(1, 3)] if kind == "MatMul" else []
        turned = (g.chance(0.5), g.chance(0.5)) if kind == "Gemm" else (False, False)
        left, right, result = (
            [*batch, *([k, m] if turned[0] else [m, k])],
            [*batch, *([n, k] if turned[1] else [k, n])],
            [*batch, m, n],
        )
        if kind == "Gemm":
            attributes = {"transA": int(turned[0]), "transB": int(turned[1])}
    factors = []
    for name, shape, dtype in (("a", left, types[0]), ("b", right, types[1])):
        parameters = [g.constant(np.float32(2.0 ** g.pick(-6, -4, -1))), g.constant(builders.zero_point(g.rng, dtype))]
        factors.append(g.op("DequantizeLinear", [g.operand(shape, dtype, name), *parameters], shape))
    y = g.op(kind, factors, result, **attributes)
    out = g.pick(*types)
    y = g.op(
        "QuantizeLinear",
        [y, g.constant(np.float32(2.0 ** g.pick(-2, 0, 2, 4))), g.constant(builders.zero_point(g.rng, out))],
        result,
    )
    return (
        g.finish(y),
        g.feeds,
        f"seed {seed}: {kind} {left} by {right} {attributes} {[np.dtype(t).name for t in types]} {g.text}",
    )


@pytest.mark.parametrize("chunk", seeds(COUNT, SEED * 100000 + 100000), ids=lambda c: str(c[0]))
@pytest.mark.parametrize("draw", [random_product, random_contraction], ids=lambda draw: draw.__name__)
def test_random_products_of_activations(draw, chunk, configs):
    for seed in chunk:
        model, feeds, text = draw(seed)
        npu, cpu = check(model, feeds, text, configs)
        assert cpu == 0, f"{npu} nodes on the NPU, {cpu} on the CPU: {text}"


def product(g, a, b):
    shape = [*g.shape[a][:-1], g.shape[b][-1]]
    return g.op(
        "QLinearMatMul", [a, *g.parameters(g.dtype), b, *g.parameters(g.dtype), *g.parameters(g.dtype, 1, 3)], shape
    )


def turned(g, x):
    return g.op("Transpose", [x], [g.shape[x][i] for i in (0, 2, 1)], perm=[0, 2, 1])


def both_orders(g, x):
    return [product(g, x, x), product(g, x, turned(g, x)), product(g, turned(g, x), turned(g, x))]


def products_of_products(g, x):
    y = product(g, x, x)
    return [product(g, product(g, y, turned(g, y)), y), y, turned(g, y)]


def slices(g, x):
    rows = g.op("Slice", [x, g.ints(0, 3), g.ints(2, 19), g.ints(0, 1)], [2, 16, 24])
    columns = g.op("Slice", [x, g.ints(2), g.ints(22), g.ints(2), g.ints(2)], [2, 24, 10])
    return [product(g, rows, columns)]


def expanded(g, x):
    one = g.op("Slice", [x, g.ints(0), g.ints(1), g.ints(0)], [1, 24, 24])
    one = g.op("Expand", [one, g.ints(2, 24, 24)], [2, 24, 24])
    return [product(g, x, one), product(g, one, x)]


def shuffled(g, x):
    y = g.op("Transpose", [g.reshape(x, [2, 4, 6, 24])], [2, 6, 4, 24], perm=[0, 2, 1, 3])
    y = g.reshape(y, [2, 24, 24])
    return [product(g, x, y), product(g, y, x), product(g, y, turned(g, y))]


@pytest.mark.parametrize("made", [False, True], ids=["host", "npu"])
@pytest.mark.parametrize(
    "build", [both_orders, products_of_products, slices, expanded, shuffled], ids=lambda build: build.__name__
)
def test_one_tensor_in_many_orders(build, made, configs):
    g = Products(7)
    g.dtype = np.int8
    x = g.bytes([2, 24, 24], g.dtype, "x")
    if made:
        x = g.op("QLinearLeakyRelu", [x, *g.parameters(g.dtype), *g.parameters(g.dtype)], [2, 24, 24], MS, alpha=0.3)
    _, cpu = check(g.finish(*build(g, x)), g.feeds, build.__name__, configs)
    assert cpu == 0


@pytest.mark.parametrize("shape", [(1, 17, 3, 10), (2, 12, 2, 32)], ids=str)
@pytest.mark.parametrize(
    "how",
    [{"qdq": True, "activation": "u8"}, {"qdq": False, "activation": "u8"}, {"qdq": True, "activation": "s8"}],
    ids=lambda how: f"{'qdq' if how['qdq'] else 'qop'}-{how['activation']}",
)
def test_attention(shape, how, configs):
    model, feeds = attention.quantised(*shape, **how)
    check(model, feeds, f"attention {shape}", configs)
    for config in configs:
        session = tessera.Session(model.SerializeToString(), "fsim", config)
        session.run(None, feeds)
        for name in ("scores", "context"):
            layer = next(
                layer for layer in session.stats().layers if name in layer["nodes"] or f"{name}_quant" in layer["nodes"]
            )
            assert layer["placement"] == "npu" and layer["op"].startswith("QLinearMatMul"), f"{config}: {layer}"


@pytest.mark.parametrize("config", ["npu64", "npu256", "npu1024"])
def test_schedules_of_products(config, tmp_path):
    """Schedules of a run give the same program again, edited ones another program and the same results."""
    model, feeds = attention.quantised(1, 40, 2, 24)
    data = model.SerializeToString()

    def program(session, name):
        session.save(tmp_path / name)
        return (tmp_path / name).read_bytes()

    first = tessera.Session(data, "fsim", config)
    expected, schedules = first.run(None, feeds), first.schedules()
    assert program(tessera.Session(data, "fsim", config, schedules=schedules), "again.tsr") == program(
        first, "first.tsr"
    )
    block_in = {"npu64": 8, "npu256": 16, "npu1024": 32}[config]
    for name, products in (("scores", 24), ("context", 40)):
        edited = {key: value for key, value in schedules.items() if key == name}
        levels = edited[name]["levels"]
        extent = {}
        for level in levels:
            extent[level["dim"]] = extent.get(level["dim"], 1) * level["factor"]
        extent["ic"] = -(-products // block_in)  # the factors may cover more than there is
        # One row of a head at a time, the columns outside.
        edited[name]["levels"] = [
            {"dim": dim, "factor": extent[dim], "kind": "vthread", "threads": 2}
            for dim in ("oh", "oc", "ow")
            if extent.get(dim, 1) > 1
        ]
        edited[name]["levels"] += (
            [{"dim": "ic", "factor": extent["ic"], "kind": "hwloop"}] if extent.get("ic", 1) > 1 else []
        )
        edited[name]["operands"] = [{"operand": o["operand"], "copies": 2} for o in edited[name]["operands"]]
        session = tessera.Session(data, "fsim", config, schedules=edited, check_races=True, poison=3)
        assert program(session, "edited.tsr") != (tmp_path / "first.tsr").read_bytes()
        assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected))

# SPDX-License-Identifier: Apache-2.0
"""Operators of whole rows on a machine with row lanes. Softmax, class exact: random shapes, axes, types and lengths,
alone and between products; functional simulator = reference interpreter = ONNX Runtime in every element, races checked,
memories poisoned. Softmax with a fixed shift and normalisations, class close: simulators = reference interpreter in
every element, and at most one step from ONNX Runtime in at most one element of a thousand."""

import numpy as np
import pytest

import tessera
from tests.oracle import oracle
from tests.system import attention, builders
from tests.system.builders import MS
from tests.system.operators.test_activation_products import Products
from tests.system.operators.test_npu_operators import COUNT, SEED, check, seeds


def random_softmax(seed):
    """A softmax, alone, behind something the NPU has made, or between two products."""
    g = Products(seed)
    dtype = g.dtype
    rank = g.pick(1, 2, 3, 3, 4)
    shape = [g.pick(1, 2, 3, 5) for _ in range(rank - 1)] + [
        g.pick(1, 2, 7, 15, 16, 17, 31, 33, 49, 100, 197, 256, 300)
    ]
    axis = rank - 1
    if rank > 1 and g.chance(0.25):
        axis = int(g.rng.integers(0, rank))
        shape[axis], shape[-1] = shape[-1], shape[axis]
    opset = 13
    if rank > 1 and g.chance(0.2):
        opset, axis = 12, int(g.rng.integers(0, rank))
    x = g.operand(shape, dtype, "x")
    scale = g.pick(0.001, 0.02, 0.1, 0.3, 1.7)
    result = [g.constant(np.float32(g.pick(1 / 256, 1 / 256, 1 / 255, 0.01, 0.3, 3.0))), None]
    result[1] = g.constant(builders.zero_point(g.rng, dtype) if g.chance(0.3) else np.array(np.iinfo(dtype).min, dtype))
    source = [g.constant(np.float32(scale)), g.constant(builders.zero_point(g.rng, dtype))]
    y = g.op(
        "QLinearSoftmax", [x, *source, *result], shape, MS, axis=axis - (rank if g.chance(0.3) else 0), opset=opset
    )
    if g.chance(0.3) and rank > 1:
        b = g.operand([shape[-1], g.pick(3, 16, 40)], dtype, "b")
        out = shape[:-1] + [g.shape[b][-1]]
        y = g.op("QLinearMatMul", [y, *result, b, *g.parameters(dtype), *g.parameters(dtype, -3, 0)], out)
    length = int(np.prod(shape[axis:])) if opset < 13 else shape[axis]
    text = f"seed {seed}: {np.dtype(dtype).name} {shape} axis {axis} opset {opset} {g.text}"
    return g.finish(y), g.feeds, text, length


@pytest.mark.parametrize("chunk", seeds(COUNT, SEED * 100000), ids=lambda c: str(c[0]))
def test_random_softmax(chunk, row_configs):
    for seed in chunk:
        model, feeds, text, length = random_softmax(seed)
        on_npu, on_cpu = check(model, feeds, text, row_configs)
        # Long rows may exceed a small scratchpad.
        assert on_cpu == 0 or length > 2048, f"{on_cpu} nodes on the CPU; {text}"


@pytest.mark.parametrize("chunk", seeds(COUNT, SEED * 100000 + 50000), ids=lambda c: str(c[0]))
def test_random_softmax_of_a_fixed_shift(chunk, row_configs):
    for seed in chunk:
        model, feeds, text, _ = random_softmax(seed)
        check(model, feeds, text, [*row_configs, "npu64"], numerics="close")  # the last one: on the CPU


@pytest.mark.parametrize("scale", [0.02, 0.1, 0.5, 0.51])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_fixed_shift_by_the_formula_in_fp32(scale, dtype):
    """By NumPy's single precision, in the order of a row's elements; above a scale of 0.5 by the row's maximum."""
    g = Products(7)
    limits, (rows, length) = np.iinfo(dtype), (40, 61)
    spread = g.rng.uniform(1, 40, (rows, 1))
    values = np.round(g.rng.normal(g.rng.uniform(limits.min, limits.max, (rows, 1)), spread, (rows, length)))
    x = g.input(np.clip(values, limits.min, limits.max).astype(dtype), "x")
    operands = [np.float32(scale), np.array(5, dtype), np.float32(1 / 256), np.array(limits.min, dtype)]
    y = g.op("QLinearSoftmax", [x, *(g.constant(o) for o in operands)], (rows, length), MS, axis=-1, opset=13)
    session = tessera.Session(g.finish(y).SerializeToString(), "fsim", "npu256t", numerics="close")
    (got,) = session.run(None, g.feeds)

    bytes_of_x = g.feeds[x].astype(int)
    most = np.full((rows, 1), limits.max) if scale <= 0.5 else bytes_of_x.max(1, keepdims=True)
    room = float(np.log(np.finfo(np.float32).max / np.float32(length))) - 5
    step = float(np.float32(scale))
    table = np.exp(room - np.arange(256) * step).astype(np.float32) * np.float32(2**-24)
    e = table[most - bytes_of_x]
    sums = np.add.accumulate(e, axis=1, dtype=np.float32)[:, -1:]
    want = np.clip(np.rint(e * np.float32(256) / sums), 0, limits.max - limits.min) + limits.min
    assert np.abs(got - want).max() <= 1 and (got != want).sum() <= 1  # logarithm and exp are each host's own
    nodes = session.report()["graph"]["nodes"]
    assert list(nodes["exactness"]) == ["close" if scale <= 0.5 else "exact"]


def test_a_walk_goes_before_the_next_scores_are_rounded():
    """The products of a chain's second tile are under way while the vector unit walks the rows of the first one."""
    model, feeds = attention.quantised(1, 320, 1, 48)
    session = tessera.Session(model.SerializeToString(), "sysc", "npu256t", numerics="close")
    session.run(None, feeds)
    events = session.trace()["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    layers = {layer["name"]: layer["op"] for layer in session.stats().layers}
    alu = sorted((e["ts"], e["name"]) for e in events if e.get("ph") == "X" and threads[(e["pid"], e["tid"])] == "alu")
    scores = [ts for ts, name in alu if name == "scores"]
    walks = [ts for ts, name in alu if layers.get(name) == "FixedShiftSoftmax"]
    assert len(scores) > 2 and walks[0] < scores[1]


def test_attention_stays_on_the_npu(row_configs):
    model, feeds = attention.quantised(2, 17, 3, 16)
    expected = tessera.Session(model.SerializeToString(), "reference").run(None, feeds)
    for device in ("fsim", "sysc"):
        session = tessera.Session(model.SerializeToString(), device, row_configs[0])
        assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected))
        placed = {layer["op"]: layer["placement"] for layer in session.stats().layers}
        assert placed["QLinearSoftmax"] == "npu"


@pytest.mark.parametrize("shape", [(3, 197, 197), (2, 320, 320)])
def test_a_softmax_takes_half_a_cycle_a_score(shape):
    """Transfers included: LOAD brings the next tile beside the rows and does not hold them up."""
    g = Products(1)
    x = g.bytes(shape, np.int8, "x")
    scales = [g.constant(np.float32(0.05)), g.constant(np.array(3, np.int8))]
    results = [g.constant(np.float32(1 / 256)), g.constant(np.array(-128, np.int8))]
    model = g.finish(g.op("QLinearSoftmax", [x, *scales, *results], shape, MS, axis=-1, opset=13)).SerializeToString()
    session = tessera.Session(model, "sysc", "npu256t")
    (result,) = session.run(None, g.feeds)
    assert np.array_equal(result, tessera.Session(model, "reference").run(None, g.feeds)[0])
    stats = session.stats()
    assert stats.cycles <= np.prod(shape) / 2 and abs(stats.predicted_cycles / stats.cycles - 1) < 0.02
    fixed = tessera.Session(model, "sysc", "npu256t", numerics="close")  # a pass less
    assert np.array_equal(
        fixed.run(None, g.feeds)[0], tessera.Session(model, "reference", numerics="close").run(None, g.feeds)[0]
    )
    assert fixed.stats().cycles < 0.95 * stats.cycles
    assert [layer["op"] for layer in fixed.stats().layers if layer["placement"] == "npu"] == ["FixedShiftSoftmax"]


def steps_of(values, dtype):
    """Scale and zero point with which `values` fill the type."""
    limits = np.iinfo(dtype)
    scale = np.float32((values.max() - values.min()) / 255)
    return scale, np.array(np.clip(np.round(limits.min - values.min() / scale), limits.min, limits.max), dtype)


def normalisation(g, form, x, gamma, beta, length):
    """`form` of a normalisation of the last axis of x; and whether it is about the mean."""
    if form == "LayerNormalization":
        return g.node(form, [x, g.constant(gamma), g.constant(beta)], "y", axis=-1, epsilon=1e-5), True
    if form in ("RMSNormalization", "SimplifiedLayerNormalization"):
        return g.node(form, [x, g.constant(gamma)], "y", axis=-1, epsilon=1e-5), False
    layer = form == "spelled out"
    a = x
    if layer:
        a = g.node("Sub", [x, g.node("ReduceMean", [x], "mean", axes=[-1])], "centred")
    square = g.node("Pow", [a, g.constant(np.float32(2))], "square")
    variance = g.node("ReduceMean", [square], "variance", axes=[-1])
    root = g.node("Sqrt", [g.node("Add", [variance, g.constant(np.float32(1e-5))], "sum")], "root")
    y = g.node("Mul", [g.node("Div", [a, root], "quotient"), g.constant(gamma)], "scaled")
    return (g.node("Add", [y, g.constant(beta)], "y") if layer else y), layer


def normalised_network(seed, form, shape, dtype):
    """(model, feeds) of a dequantised tensor, normalised and quantised over the range that it takes."""
    g = builders.Graph(23 if form == "RMSNormalization" else 17)
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * rng.uniform(0.3, 3, (*shape[:-1], 1)) + rng.normal(0, 0.5, (*shape[:-1], 1))
    scale, zero = steps_of(values, dtype)
    limits = np.iinfo(dtype)
    x = g.input(np.clip(np.round(values / scale) + int(zero), limits.min, limits.max).astype(dtype), "x")
    gamma, beta = (
        rng.uniform(0.2, 1.5, shape[-1]).astype(np.float32),
        rng.normal(0, 0.3, shape[-1]).astype(np.float32),
    )
    y, centred = normalisation(
        g, form, g.node("DequantizeLinear", [x, g.constant(scale), g.constant(zero)], "d"), gamma, beta, shape[-1]
    )
    centre = values.mean(-1, keepdims=True) if centred else 0
    result = (values - centre) / np.sqrt(((values - centre) ** 2).mean(-1, keepdims=True)) * gamma
    scale, zero = steps_of(result + (beta if centred else 0), dtype)
    return g.finish(g.node("QuantizeLinear", [y, g.constant(scale), g.constant(zero)], "q")), g.feeds


FORMS = ["LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "spelled out", "spelled out about 0"]


def test_movements_around_a_normalisation(row_configs):
    """A normalisation between a turned operand and a reshape, as exported networks have it."""
    g = builders.Graph(17)
    rng = np.random.default_rng(5)
    x = g.input(rng.integers(0, 256, (2, 48, 21)).astype(np.uint8), "x")
    x = g.node("DequantizeLinear", [x, g.constant(np.float32(0.05)), g.constant(np.uint8(120))], "d")
    x = g.node("Transpose", [x], "turned", perm=[0, 2, 1])
    gamma = g.constant(rng.uniform(0.2, 1.5, 48).astype(np.float32))
    y = g.node("LayerNormalization", [x, gamma, g.constant(np.zeros(48, np.float32))], "y", axis=-1)
    y = g.node("Reshape", [y, g.constant(np.array([42, 48], np.int64))], "flat")
    y = g.node("QuantizeLinear", [y, g.constant(np.float32(0.03)), g.constant(np.uint8(128))], "q")
    data = g.finish(y).SerializeToString()
    expected = tessera.Session(data, "reference").run(None, g.feeds)[0]
    session = tessera.Session(data, "fsim", row_configs[0], numerics="close")
    got = session.run(None, g.feeds)[0]
    assert np.array_equal(got, tessera.Session(data, "reference", numerics="close").run(None, g.feeds)[0])
    assert session.info().nodes_cpu == 0
    assert np.abs(got.astype(int) - expected).max() <= 1 and (got != expected).mean() <= 1e-3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(1, 197, 192), (2, 24, 384), (50, 37), (3, 5, 1000)], ids=str)
def test_normalisations_are_close(form, shape, row_configs):
    dtype = np.int8 if shape[0] == 2 else np.uint8
    model, feeds = normalised_network(len(form), form, shape, dtype)
    data = model.SerializeToString()
    expected = tessera.Session(data, "reference", numerics="close").run(None, feeds)[0]
    for config in row_configs[: 1 if shape[-1] > 200 else 3]:
        session = tessera.Session(data, "fsim", config, numerics="close", check_races=True, poison=3)
        assert np.array_equal(session.run(None, feeds)[0], expected), config
        assert session.info().nodes_cpu == 0, config
    timed = tessera.Session(data, "sysc", row_configs[0], numerics="close")
    assert np.array_equal(timed.run(None, feeds)[0], expected)
    without = tessera.Session(data, "fsim", "npu64", numerics="close")  # no row lanes: the CPU, the same integers
    assert np.array_equal(without.run(None, feeds)[0], expected) and without.info().nodes_npu == 0
    exact = tessera.Session(data, "reference").run(None, feeds)[0]  # itself a tolerance of float sums
    apart = np.abs(expected.astype(int) - exact)
    assert apart.max() <= 1 and (apart > 0).mean() <= 1e-3, f"{(apart > 0).mean():.5f} of the elements differ"
    if oracle.exact_cpu() and form != "RMSNormalization":  # ONNX Runtime 1.23 has no kernel of opset 23's
        (want,) = oracle.run(model, feeds, intermediates=False).outputs.values()
        apart = np.abs(expected.astype(int) - want)
        assert apart.max() <= 1 and (apart > 0).mean() <= 1e-3, f"{(apart > 0).mean():.5f} of the elements differ"


def mean_network(seed, shape, axes, keepdims, same_scale=False):
    """(model, feeds) of a dequantised tensor, its mean over `axes`, quantised over the range that it takes."""
    g = builders.Graph(17)
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) + rng.normal(0, 0.5, (*shape[:-1], 1))
    scale, zero = steps_of(values, np.uint8)
    x = g.input(np.clip(np.round(values / scale) + int(zero), 0, 255).astype(np.uint8), "x")
    d = g.node("DequantizeLinear", [x, g.constant(scale), g.constant(zero)], "d")
    y = g.node("ReduceMean", [d], "mean", axes=axes, keepdims=keepdims)
    if not same_scale:
        scale, zero = steps_of(values.mean(tuple(axes)), np.uint8)
    return g.finish(g.node("QuantizeLinear", [y, g.constant(scale), g.constant(zero)], "q")), g.feeds


@pytest.mark.parametrize(
    ("shape", "axes", "keepdims"), [((1, 320, 4800), [1], 1), ((3, 21, 1500), [-2], 0), ((2, 48, 7, 600), [1, 2], 1)]
)
def test_means_are_close(shape, axes, keepdims):
    model, feeds = mean_network(len(shape), shape, axes, keepdims)
    data = model.SerializeToString()
    expected = tessera.Session(data, "reference", numerics="close").run(None, feeds)[0]
    session = tessera.Session(data, "fsim", "npu256", numerics="close", check_races=True, poison=3)
    assert np.array_equal(session.run(None, feeds)[0], expected)
    assert session.info().nodes_cpu == 0
    wanted = [tessera.Session(data, "reference").run(None, feeds)[0]]
    if oracle.exact_cpu():
        wanted += oracle.run(model, feeds, intermediates=False).outputs.values()
    for want in wanted:
        apart = np.abs(expected.astype(int) - want)
        assert apart.max() <= 1 and (apart > 0).mean() <= 1e-3, f"{(apart > 0).mean():.5f} of the elements differ"


def test_a_mean_of_one_scale_stays_float():
    """Every 48th sum would lie halfway between two integers."""
    model, feeds = mean_network(1, (1, 48, 32), [1], 1, same_scale=True)
    session = tessera.Session(model.SerializeToString(), "fsim", "npu256", numerics="close")
    session.run(None, feeds)
    assert session.info().nodes_cpu > 0


ON_RTL = {
    "attention": lambda: attention.quantised(2, 17, 3, 16),
    "long rows": lambda: attention.quantised(1, 70, 1, 24),
    "layer normalisation": lambda: normalised_network(1, "LayerNormalization", (50, 192), np.uint8),
    "root mean squares": lambda: normalised_network(2, "spelled out about 0", (21, 64), np.int8),
}


@pytest.mark.skipif(
    "rtl" not in tessera.backends() or "sysc" not in tessera.backends(),
    reason="this build has no RTL or no timing model",
)
@pytest.mark.parametrize("name", ON_RTL)
def test_rows_on_the_rtl(name, row_configs):
    """RTL and timing model = functional simulator in every element; the timing model's cycles within 1 % of the
    RTL's, the compiler's prediction within 5 %."""
    model, feeds = ON_RTL[name]()
    data = model.SerializeToString()
    expected = tessera.Session(data, "fsim", row_configs[1], numerics="close").run(None, feeds)
    stats = {}
    for device in ("rtl", "sysc"):
        session = tessera.Session(data, device, row_configs[1], numerics="close")
        assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected)), device
        stats[device] = session.stats()
    rtl, sysc = stats["rtl"], stats["sysc"]
    assert rtl.cycles > 0 and session.info().nodes_npu > 0
    predicted = sum(layer.predicted_cycles for layer in rtl.layers if layer.placement == "npu")
    assert abs(sysc.cycles - rtl.cycles) <= 0.01 * rtl.cycles, f"sysc {sysc.cycles}, rtl {rtl.cycles}"
    assert abs(predicted - rtl.cycles) <= 0.05 * rtl.cycles, f"predicted {predicted}, rtl {rtl.cycles}"


def test_report_says_what_close_would_gain(command, tmp_path):
    model, _feeds = normalised_network(1, "LayerNormalization", (4, 32), np.uint8)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    exact = command("report", path, "--config", "npu64", "--random-inputs", "1")
    assert (
        "float on the CPU: 1 products, normalisations and means that --numerics close computes in integers"
        in exact.stdout
    ), exact.stderr
    close = command("report", path, "--config", "npu64", "--random-inputs", "1", "--numerics", "close")
    assert close.returncode == 0 and "--numerics" not in close.stdout


def test_numerics_takes_two_words():
    model, _feeds = normalised_network(1, "LayerNormalization", (4, 32), np.uint8)
    with pytest.raises(tessera.Error, match="exact, close or model, not 'closer'"):
        tessera.Session(model.SerializeToString(), "fsim", numerics="closer")

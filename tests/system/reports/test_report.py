# SPDX-License-Identifier: Apache-2.0
"""What statistics, trace and `tessera report` say: sums that must hold on any network, figures of a network that is
small enough to count by hand, and the same table from a run and from its saved statistics."""

import json
import re
import sys

import numpy as np
import onnx
import pytest

import tessera
from tests.system.builders import Graph
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

timed = pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model")
STREAMS = {"input", "weights", "params", "second", "output", "instructions"}
CAUSES = ("compute", "alu", "load", "store", "sync")


def convolution(graph, x, channels, out, name, kernel=1):
    rng = np.random.default_rng(len(graph.nodes))
    scale, zero = graph.constant(np.float32(0.05)), graph.constant(np.uint8(3))
    weights = graph.constant(rng.integers(-9, 10, (out, channels, kernel, kernel)).astype(np.int8))
    return graph.node(
        "QLinearConv",
        [x, scale, zero, weights, graph.constant(np.float32(0.01)), graph.constant(np.int8(0)), scale, zero],
        name,
        kernel_shape=[kernel] * 2,
        pads=[kernel // 2] * 4,
    )


def residual():
    """x -> 1x1 -> a -> 1x1 -> b, y = a + b, all 32 channels of 16 x 16 pixels: each tensor 8192 bytes."""
    graph = Graph()
    x = graph.input(np.random.default_rng(1).integers(0, 256, (1, 32, 16, 16)).astype(np.uint8), "x")
    a = convolution(graph, x, 32, 32, "a")
    b = convolution(graph, a, 32, 32, "b")
    scale, zero = graph.constant(np.float32(0.05)), graph.constant(np.uint8(3))
    y = graph.node("QLinearAdd", [b, scale, zero, a, scale, zero, scale, zero], "y", domain="com.microsoft")
    return graph.finish(y).SerializeToString(), graph.feeds


def run(data, feeds, device="sysc", config="npu256", **options):
    session = tessera.Session(data, device, config, **options)
    outputs = session.run(None, feeds)
    return session, outputs


@timed
@pytest.mark.parametrize(
    "name,config,options",
    [
        ("resnet8", "npu256", {}),
        ("vww", "npu256", {}),
        ("ds_cnn", "npu64", {"dram_bandwidth": 2}),
        ("autoencoder", "npu256", {"dram_latency": 400}),
    ],
)
def test_sums_hold(name, config, options):
    data, feeds = networks.build(name)
    session, _ = run(data, feeds, config=config, **options)
    stats = session.stats()
    peak = {"npu64": 64, "npu256": 256}[config]
    layers = [layer for layer in stats.layers if layer.placement == "npu"]
    assert sum(layer.cycles for layer in layers) == stats.cycles
    assert sum(layer.predicted_cycles for layer in layers) == stats.predicted_cycles > 0
    assert sum(layer.bound_cycles for layer in layers) == stats.roofline_cycles <= stats.cycles
    assert sum(layer.instructions for layer in layers) == stats.instructions
    for cause in CAUSES:
        assert sum(layer[f"cycles_{cause}"] for layer in layers) == stats[f"cycles_{cause}"]
    for layer in layers:
        assert sum(layer[f"cycles_{cause}"] for cause in CAUSES) == layer.cycles
        assert layer.cycles_compute == layer.gemm_cycles >= layer.macs / peak  # so utilisation never exceeds 1
        assert 0 <= layer.utilization <= 1 and layer.bound in ("compute", "dram", "alu", "sync")
        assert 0 <= layer.begin_cycle < layer.end_cycle <= stats.cycles
        assert set(layer.bytes) == STREAMS
        assert layer.bytes["instructions"] == 64 * layer.instructions
        assert layer.bytes["output"] == layer.dram_write_bytes
        assert sum(layer.bytes[stream] for stream in ("input", "weights", "params", "second")) == layer.dram_read_bytes
        assert layer.dram_cycles == -(-sum(layer.bytes.values()) // options.get("dram_bandwidth", 8))
    assert (
        sum(stats.bytes[stream] for stream in STREAMS - {"output"}) == stats.dram_read_bytes
    )  # as the machine counted them
    assert stats.bytes["output"] == stats.dram_write_bytes
    assert 0 < stats.arena_bytes < stats.arena_bytes_without_reuse


@timed
def test_figures_counted_by_hand():
    data, feeds = residual()
    session, _ = run(data, feeds, forward=False)
    stats = session.stats()
    first, second = [layer for layer in stats.layers if layer.placement == "npu"]
    assert first.op == "QLinearConv" and second.op == "QLinearConv+QLinearAdd"
    assert first.macs == second.macs == 256 * 32 * 32
    assert first.bytes["input"] == 8192 and first.bytes["second"] == 0 and first.bytes["output"] == 8192
    assert second.bytes["input"] == 8192 and second.bytes["second"] == 8192 and second.bytes["output"] == 8192
    assert first.bytes["weights"] == second.bytes["weights"] == 32 * 32
    assert (
        first.bytes["params"] == 128 and second.bytes["params"] == 128 + 32
    )  # one scale for all channels: an entry; the sum's constants: what the machine reads of another
    assert stats.arena_bytes == 3 * 8192  # x, a and the result
    assert stats.arena_bytes_without_reuse == 3 * 8192
    assert first.cycles_compute == second.cycles_compute == 256 * 2 * 2
    assert first.nodes == ["a_QLinearConv"] and second.nodes == ["b_QLinearConv", "y_QLinearAdd"]


@timed
def test_forwarded_bytes_cross_the_bus_once():
    """What the second layer takes from the chip is not fetched by it."""
    data, feeds = residual()
    apart, expected = run(data, feeds, forward=False)
    session, outputs = run(data, feeds)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))
    assert session.stats().cycles < apart.stats().cycles
    first, second = [layer for layer in session.stats().layers if layer.placement == "npu"]
    assert first.bytes["input"] == 8192 and second.bytes["output"] == 8192
    assert first.bytes["output"] <= 8192 and second.bytes["input"] + second.bytes["second"] < 2 * 8192


@timed
def test_products_that_nobody_reads_are_no_use():
    """A 1x1 convolution of stride 4 reads one of 16 results of the layer before; a chain computes that one alone."""
    graph = Graph()
    x = graph.input(np.random.default_rng(2).integers(0, 256, (1, 16, 64, 64)).astype(np.uint8), "x")
    y = convolution(graph, convolution(graph, x, 16, 16, "a", kernel=3), 16, 16, "b")
    graph.nodes[-1].attribute.append(onnx.helper.make_attribute("strides", [4, 4]))
    data = graph.finish(y).SerializeToString()
    session, _ = run(data, graph.feeds, config="npu64")
    stats = session.stats()
    first, second = [layer for layer in stats.layers if layer.placement == "npu"]
    assert first.issued_macs < first.macs and second.issued_macs == second.macs
    assert 0 < first.utilization <= 1 and 0 < stats.utilization <= 1
    assert first.utilization == pytest.approx(first.issued_macs / first.cycles / 64)
    assert stats.roofline_cycles == first.bound_cycles + second.bound_cycles <= stats.cycles


def test_memory_of_a_chain():
    graph = Graph()
    x = graph.input(np.zeros((1, 16, 20, 20), np.uint8), "x")
    for index in range(5):
        x = convolution(graph, x, 16, 16, f"t{index}", 3)
    session, _ = run(graph.finish(x).SerializeToString(), graph.feeds, "fsim")
    stats = session.stats()
    assert stats.arena_bytes_without_reuse == 6 * 6400
    assert stats.arena_bytes == 4 * 6400  # input and output keep their places, two take turns between them


@timed
def test_the_memory_limits_what_has_no_reuse():
    """One row against a large matrix: every weight is used once. A slow memory limits what a fast one does not."""
    graph = Graph()
    x = graph.input(np.random.default_rng(1).integers(0, 256, (1, 1024, 1, 1)).astype(np.uint8), "x")
    data = graph.finish(convolution(graph, x, 1024, 512, "y")).SerializeToString()
    stats = run(data, graph.feeds)[0].stats()
    assert stats.layers[0].bound == "dram" and stats.layers[0].bytes["weights"] == 1024 * 512
    data, feeds = residual()
    assert run(data, feeds, dram_bandwidth=1)[0].stats().layers[0].bound == "dram"
    deep = Graph()
    y = convolution(deep, deep.input(np.zeros((1, 128, 16, 16), np.uint8), "x"), 128, 128, "y", 3)
    assert run(deep.finish(y).SerializeToString(), deep.feeds)[0].stats().layers[0].bound == "compute"


@timed
def test_every_instruction_in_the_trace_names_its_node():
    data, feeds = networks.build("resnet8")
    session, _ = run(data, feeds)
    stats, events = session.stats(), session.trace()["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [
        event
        for event in events
        if event["ph"] == "X" and tracks[event["tid"]] in ("load", "gemm", "alu", "store", "fetch")
    ]
    assert len({event["args"]["pc"] for event in slices}) == len(slices) == stats.instructions
    names = [event["name"] for event in sorted(slices, key=lambda event: event["args"]["pc"])]
    nodes = {node.name for node in onnx.load_model_from_string(data).graph.node}
    for layer in stats.layers:
        if layer.placement != "npu":
            continue
        assert names.count(layer.name) == layer.instructions
        assert layer.name in nodes and set(layer.nodes) <= nodes
    busy = {event["name"] for event in slices if tracks[event["tid"]] == "gemm"}
    assert busy == {layer.name for layer in stats.layers if layer.placement == "npu" and layer.issued_macs > 0}


@timed
def test_the_report_prints_the_statistics(command, tmp_path):
    _data, _feeds = networks.build("resnet8")
    model, saved = networks.CACHE / "resnet8.onnx", tmp_path / "stats.json"
    done = command("run", model, "--device", "sysc", "--random-inputs", 1, "--stats", saved, "-q")
    assert done.returncode == 0, done.stderr
    direct, again = command("report", model, "-q"), command("report", saved)
    assert direct.returncode == 0 and again.returncode == 0, direct.stderr + again.stderr
    stats = json.loads(saved.read_text())
    table = again.stdout
    assert table.startswith(f"npu256 on sysc: {stats['cycles']} cycles, utilisation {100 * stats['utilization']:.1f} %")
    assert (
        f"activations: {stats['arena_bytes']} bytes at most, {stats['arena_bytes_without_reuse']} without reuse"
        in table
    )
    rows = {line.split()[0]: line for line in table.splitlines() if line}
    for layer in stats["layers"]:
        row = rows[layer["name"]]
        if layer["placement"] == "cpu":
            assert f"{1000 * layer['seconds']:.3f}" in row
            continue
        for key in ("op", "cycles", "bound", "predicted_cycles"):
            assert re.search(rf"\s{re.escape(str(layer[key]))}\s", row), (key, row)
        for stream in STREAMS:
            assert re.search(rf"\s{layer['bytes'][stream]}\s", row), (stream, row)
        if "chain" in layer["schedule"]:
            assert f"chain of {len(layer['schedule']['chain'])}" in row
            continue
        tile = [
            f"{level['dim']}{level['factor']}" for level in layer["schedule"]["levels"] if level["kind"] == "hwloop"
        ]
        assert f"| {' '.join(tile)} |" in row
    on_npu = [line for line in direct.stdout.splitlines() if " | " in line]
    assert len(on_npu) > 8 and all(line in table for line in on_npu)  # the same run, the same lines
    brief = command("report", saved, "--brief")
    assert "schedule" not in brief.stdout and stats["layers"][1]["schedule"]


def test_the_report_of_a_device_without_time(command, tmp_path):
    networks.build("resnet8")
    done = command("report", networks.CACHE / "resnet8.onnx", "--device", "fsim", "--json")
    assert done.returncode == 0, done.stderr
    stats = json.loads(done.stdout)
    assert stats["cycles"] is None and all(
        layer["bound"] is None for layer in stats["layers"] if layer["placement"] == "npu"
    )
    (tmp_path / "other.json").write_text('{"cycles": 4}')
    (tmp_path / "broken.json").write_text('{"cycles": ')
    for name, words in (("other.json", "'layers' is missing"), ("broken.json", "is not JSON")):
        done = command("report", tmp_path / name)
        assert done.returncode == 1 and words in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""What must hold in the versioned report of any run: the schema, and what instructions, waits, memories and the graph
say of each other and of the statistics."""

import json
import sys

import numpy as np
import onnx
import pytest

import tessera
from tests.system.builders import Graph
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

TIMED = ["sysc"] if "sysc" in tessera.backends() else []
SCRATCHPADS = ["inp", "wgt", "acc", "out", "param", "table"]


@pytest.fixture(scope="module")
def reports():
    """Reports by (network, device), made once."""
    made = {}

    def report(name, device):
        if (name, device) not in made:
            data, feeds = networks.build(name)
            session = tessera.Session(data, device, "npu256")
            session.run(None, feeds)
            made[name, device] = session.report()
        return made[name, device]

    return report


def both(names):
    return [(name, device) for name in names for device in ("fsim", *TIMED)]


@pytest.mark.parametrize("name,device", both(["resnet8", "encoder"]))
def test_schema(reports, name, device):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed; ./dev setup does it")
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    report = reports(name, device)
    jsonschema.validate(report, schema)
    unknown = set(report) - set(schema["properties"])
    assert not unknown, "keys that the schema does not explain"
    for row in report["layers"]:
        assert set(row) <= set(schema["$defs"]["layer"]["properties"]), row["name"]


@pytest.mark.parametrize("name,device", both(["resnet8", "ds_cnn", "encoder"]))
def test_instructions_and_waits(reports, name, device):
    report = reports(name, device)
    timeline = report["timeline"]
    columns = {key: np.array(values) for key, values in timeline["instructions"]["columns"].items()}
    count = report["instructions"]
    assert all(len(values) == count for values in columns.values())
    assert timeline["unit"] == ("instruction" if device == "fsim" else "cycle")
    assert timeline["end"] == (count if device == "fsim" else report["cycles"])
    order = ["queued", "taken", "begin", "end", "completed"]
    for first, second in zip(order, order[1:]):
        if (first, second) != ("end", "completed"):
            assert np.all(columns[first] <= columns[second]), (first, second)
    assert np.all(columns["begin"] < columns["end"])
    assert columns["end"].max() <= timeline["end"] and columns["completed"].max() <= timeline["end"]
    # Instructions of a layer, their bytes and their tiles, against the statistics.
    for index, row in enumerate(report["layers"]):
        mine = columns["layer"] == index
        if row["placement"] == "cpu":
            assert not mine.any()
            continue
        assert mine.sum() == row["instructions"]
        assert columns["bytes"][mine].sum() == row["dram_read_bytes"] + row["dram_write_bytes"]
        stores = mine & (columns["engine"] == timeline["engines"].index("store"))
        assert columns["tile"][mine].max() <= stores.sum()
    # An instruction is taken when what it waits for has completed, and that stands before it.
    waits = {key: np.array(values, int) for key, values in timeline["waits"].items()}
    assert len(waits["source"]) > 0
    assert np.all(waits["source"] < waits["instruction"])
    assert np.all(columns["engine"][waits["source"]] == waits["engine"])
    assert np.all(columns["completed"][waits["source"]] <= columns["taken"][waits["instruction"]])
    if device == "fsim":
        return
    assert waits["cycles"].sum() > 0
    # Bursts move whole beats, of which several runs of a LOAD may have bytes.
    moved = {unit: sum(timeline["bandwidth"][unit]) for unit in ("load", "store", "fetch")}
    assert moved["load"] + moved["fetch"] >= 0.9 * report["dram_read_bytes"]
    assert moved["store"] >= report["dram_write_bytes"]
    assert sum(moved.values()) < 1.2 * (report["dram_read_bytes"] + report["dram_write_bytes"])
    assert moved["fetch"] == sum(timeline["fetch"]["bytes"]) >= report["bytes"]["instructions"]


@pytest.mark.parametrize("device", ["fsim", *TIMED])
def test_memory_of_a_chip(device):
    data, feeds = networks.build("ds_cnn")
    session = tessera.Session(data, device, "npu256x2")
    session.run(None, feeds)
    report = session.report()
    spaces = report["memory"]["scratchpads"]
    assert [(space["core"], space["name"]) for space in spaces] == [(k, name) for k in range(2) for name in SCRATCHPADS]
    core = np.array(report["timeline"]["instructions"]["columns"]["core"])
    for space in spaces:
        assert space["peak_bytes"] <= space["bytes"]
        assert (core[space["regions"]["instruction"]] == space["core"]).all(), space["name"]
        assert space["regions"]["instruction"] or space["name"] in ("table", "out")
    assert report["dram"]["bandwidth_bytes"] == report["machine"]["memory_axi_bytes"] == 16
    if device != "fsim":
        assert report["roofline_cycles"] <= report["cycles"]


def concatenated():
    """Three convolutions of one input beside each other: their results lie pixel by pixel between each other."""
    rng = np.random.default_rng(3)
    constants = {"s": np.float32(0.05), "z": np.int8(3), "zw": np.int8(0)}
    nodes = []
    for k in range(3):
        constants[f"w{k}"] = rng.integers(-90, 90, (16, 8, 3, 3)).astype(np.int8)
        inputs = ["x", "s", "z", f"w{k}", "s", "zw", "s", "z"]
        nodes.append(onnx.helper.make_node("QLinearConv", inputs, [f"y{k}"], pads=[1, 1, 1, 1]))
    nodes.append(onnx.helper.make_node("Concat", ["y0", "y1", "y2"], ["y"], axis=1))
    port = lambda name, c: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, [1, c, 12, 12])
    known = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(nodes, "g", [port("x", 8)], [port("y", 48)], known)
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def test_bytes_of_tensors_between_each_other_are_in_use_once():
    session = tessera.Session(concatenated(), "fsim", "npu256")
    session.run(None, {"x": np.zeros((1, 8, 12, 12), np.int8)})
    arena = session.report()["memory"]["arena"]
    regions = arena["regions"]
    hulls = sum(end - begin for begin, end in zip(regions["begin"], regions["end"]))
    assert 48 * 144 - 48 <= arena["peak_bytes"] <= arena["bytes"] < hulls


@pytest.mark.parametrize("name,device", both(["resnet8", "ds_cnn", "encoder"]))
def test_memory(reports, name, device):
    report = reports(name, device)
    memory = report["memory"]
    assert [space["name"] for space in memory["scratchpads"]] == SCRATCHPADS
    for space in memory["scratchpads"]:
        regions = {key: np.array(values, int) for key, values in space["regions"].items()}
        if space["name"] != "table":
            assert space["bytes"] == report["machine"][space["name"] + "_bytes"]
        assert space["peak_bytes"] <= space["bytes"]
        if len(regions["begin"]) == 0:
            continue
        assert regions["begin"].min() >= 0 and regions["end"].max() <= space["bytes"]
        assert np.all(regions["from"] <= regions["to"])
        # No byte belongs to two regions at one time.
        times = np.unique(np.concatenate([regions["from"], regions["to"]]))[:: max(1, len(regions["from"]) // 200)]
        for at in times:
            alive = (regions["from"] <= at) & (at < regions["to"])
            order = np.argsort(regions["begin"][alive])
            assert np.all(regions["end"][alive][order][:-1] <= regions["begin"][alive][order][1:]), space["name"]
    # The compiler placed the tensors; their lives are seen in what the instructions read and write. Results that stay
    # on the chip have a place that nobody uses.
    arena = memory["arena"]
    assert arena["peak_bytes"] <= arena["bytes"] == report["arena_bytes"]
    if name == "resnet8" and device != "fsim":
        assert arena["peak_bytes"] > 0.6 * arena["bytes"]
    regions = {key: np.array(values, int) for key, values in arena["regions"].items()}
    assert regions["end"].max() <= arena["bytes"]
    for i in range(len(regions["begin"])):
        together = (regions["begin"] < regions["end"][i]) & (regions["end"] > regions["begin"][i])
        together &= (regions["from"] < regions["to"][i]) & (regions["to"] > regions["from"][i])
        if device != "fsim":
            assert together.sum() == 1, "two tensors share bytes at one time"


@pytest.mark.parametrize("name", ["resnet8", "encoder"])
def test_graph(reports, name):
    report = reports(name, "fsim")
    model = onnx.load_model_from_string(networks.build(name)[0])
    nodes, values = report["graph"]["nodes"], report["graph"]["values"]
    assert sorted(nodes["name"]) == sorted(node.name for node in model.graph.node)
    of = {node.name: node for node in model.graph.node}
    for k, node in enumerate(nodes["name"]):
        assert nodes["op"][k] == of[node].op_type
        assert [values["name"][v] for v in nodes["outputs"][k]] == list(of[node].output)
        assert len(nodes["inputs"][k]) == len(of[node].input)
        assert set(nodes["attributes"][k]) == {a.name for a in of[node].attribute}
        layer = nodes["layer"][k]
        if layer < 0:
            assert nodes["placement"][k] == "compiler"
        else:
            row = report["layers"][layer]
            assert node in row["nodes"] and nodes["placement"][k] == row["placement"]
            assert nodes["exactness"][k] == row["exactness"]
    feed = model.graph.input[0]
    shape = ",".join(str(d.dim_value or 1) for d in feed.type.tensor_type.shape.dim)
    assert values["name"][report["graph"]["inputs"][0]] == feed.name
    assert values["type"][report["graph"]["inputs"][0]].endswith(f"[{shape}]")


def test_classes_of_exactness():
    """A product and a sum on the NPU, a table there, a float product on the CPU."""
    graph = Graph()
    rng = np.random.default_rng(3)
    x = graph.input(rng.integers(0, 256, (1, 8, 6, 6)).astype(np.uint8), "x")
    scale, zero = graph.constant(np.float32(0.05)), graph.constant(np.uint8(3))
    weights = graph.constant(rng.integers(-9, 10, (8, 8, 1, 1)).astype(np.int8))
    y = graph.node(
        "QLinearConv",
        [x, scale, zero, weights, graph.constant(np.float32(0.01)), graph.constant(np.int8(0)), scale, zero],
        "product",
    )
    f = graph.node("DequantizeLinear", [y, scale, zero], "f")
    h = graph.node("HardSigmoid", [f], "h")
    q = graph.node("QuantizeLinear", [h, scale, zero], "q")
    g = graph.node("DequantizeLinear", [q, scale, zero], "g")
    e = graph.node("Exp", [g], "e")
    session = tessera.Session(graph.finish(e).SerializeToString(), "fsim", "npu256")
    session.run(None, graph.feeds)
    nodes = session.report()["graph"]["nodes"]
    of = {op: (place, kind) for op, place, kind in zip(nodes["op"], nodes["placement"], nodes["exactness"])}
    assert of["QLinearConv"][0] == "npu" and of["QLinearConv"][1].startswith("exact")
    assert of["HardSigmoid"] == ("npu", "exact by proof")
    assert of["Exp"] == ("cpu", "tolerance")


def test_report_of_an_artifact_and_again(command, tmp_path):
    networks.build("resnet8")
    model, artifact, saved = networks.CACHE / "resnet8.onnx", tmp_path / "a.tsr", tmp_path / "r.json"
    assert command("compile", model, "-q", "-o", artifact).returncode == 0
    assert command("report", artifact, "--device", "fsim", "--json", "-o", saved).returncode == 0
    report = json.loads(saved.read_text())
    assert report["model"] == {"name": "a.tsr", "kind": "artifact"} and "graph" not in report
    assert report["provenance"]["results"] == "functional" and report["provenance"]["cycles"] is None
    assert [0, 1] in report["memory"]["layer_edges"]
    again = command("report", saved, "--json")
    assert again.stdout == saved.read_text()
    assert "npu256 on fsim" in command("report", saved, "--brief").stdout
    assert command("run", model, "--random-inputs", "1", "--schedule", saved, "-q").returncode == 0

# SPDX-License-Identifier: Apache-2.0
"""The example of a plugin, loaded by both commands: its matcher places what the core leaves to the CPU, its pass runs
where it asked to, its cost model is known by name, its intrinsic computes what it should in fewer cycles; what
cannot be loaded or clashes is refused."""

import json
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tessera
from tests.system.conftest import BUILD

TESSERA, OPT = BUILD / "bin" / "tessera", BUILD / "bin" / "tessera-opt"
PLUGIN = BUILD / "lib" / "libtessera_example_plugin.so"


def run(*command, check=True):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=check)


@pytest.fixture
def model(tmp_path):
    """MaxPool of bytes, then BitwiseNot."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pooled"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("BitwiseNot", ["pooled"], ["y"], name="not"),
    ]
    graph = helper.make_graph(
        nodes,
        "not",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 16, 4, 4])],
    )
    path = tmp_path / "not.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def layers(model, tmp_path, *options):
    x = np.random.default_rng(5).integers(0, 256, (1, 16, 8, 8), np.uint8)
    np.save(tmp_path / "x.npy", x)
    stats = tmp_path / "stats.json"
    run(
        TESSERA, "run", "-q", model, "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npy", "--stats", stats, *options
    )
    expected = ~x.reshape(1, 16, 4, 2, 4, 2).max(axis=(3, 5))
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)
    return [(layer["placement"], layer["op"]) for layer in json.loads(stats.read_text())["layers"]]


def test_a_matcher_places_an_operator(model, tmp_path):
    assert ("cpu", "BitwiseNot") in layers(model, tmp_path)
    assert layers(model, tmp_path, "--plugin", PLUGIN) == [("npu", "MaxPool+BitwiseNot")]


def test_a_pass_runs_in_its_place_and_alone(model, tmp_path):
    run(TESSERA, "compile", "-q", model, "-o", tmp_path / "m.tsr", "--plugin", PLUGIN, "--dump-dir", tmp_path / "d")
    steps = [path.name.split(".")[1] for path in sorted((tmp_path / "d").glob("*.npu"))]
    assert steps[steps.index("fuse-stages") + 1] == "drop-identity-tables"
    before = next((tmp_path / "d").glob("*.fuse-stages.npu"))
    # The table of BitwiseNot becomes the identity by hand; the pass takes it away.
    table = "".join(f"{255 - i:02x}" for i in range(256))
    assert table in before.read_text()
    identity = "".join(f"{i:02x}" for i in range(256))
    (tmp_path / "identity.npu").write_text(before.read_text().replace(table, identity))
    command = [OPT, tmp_path / "identity.npu", "--load", PLUGIN]
    assert "table=#0" in run(*command).stdout
    assert "table=" not in run(*command, "--pass=drop-identity-tables").stdout
    assert "drop-identity-tables" in run(OPT, "--load", PLUGIN, "--list").stdout


def test_a_cost_model_has_a_name(model, tmp_path):
    command = [TESSERA, "compile", "-q", model, "-o", tmp_path / "m.tsr", "--cost-model", "fewest-bytes"]
    refused = run(*command, check=False)
    assert refused.returncode == 1 and "no cost model 'fewest-bytes'" in refused.stderr
    run(*command, "--plugin", PLUGIN)


@pytest.fixture(scope="module")
def pools(tmp_path_factory):
    """(model, input, outputs of ONNX Runtime): windows of stride 1 and 2, dilated, cut by borders, max and average."""
    folder = tmp_path_factory.mktemp("pools")

    def pool(kind, source, target, kernel, **attributes):
        return helper.make_node(kind, [source], [target], name=target, kernel_shape=kernel, **attributes)

    nodes = [
        pool("MaxPool", "x", "wide", [5, 5], pads=[2, 2, 2, 2]),
        pool("MaxPool", "wide", "strided", [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        pool("MaxPool", "strided", "dilated", [3, 2], dilations=[2, 1]),
        helper.make_node("DequantizeLinear", ["dilated", "scale", "zero"], ["real"], name="dequantise"),
        pool("AveragePool", "real", "mean", [4, 4]),
        helper.make_node("QuantizeLinear", ["mean", "scale", "zero"], ["y"], name="quantise"),
    ]
    shape = [2, 40, 26, 30]
    graph = helper.make_graph(
        nodes,
        "pools",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in ("dilated", "y")],
        [
            helper.make_tensor("scale", TensorProto.FLOAT, [], [0.05]),
            helper.make_tensor("zero", TensorProto.UINT8, [], [7]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = folder / "pools.onnx"
    onnx.save(model, path)
    x = np.random.default_rng(11).integers(0, 256, shape, np.uint8)
    np.save(folder / "x.npy", x)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return path, folder / "x.npy", expected


def run_pools(pools, folder, *options):
    """Runs the model, compares it with ONNX Runtime; what the statistics say of each layer by its name."""
    model, x, expected = pools
    stats, y = folder / "stats.json", folder / "y.npz"
    run(TESSERA, "run", "-q", model, "--input", x, "-o", y, "--stats", stats, *options)
    for got, want in zip(np.load(y).values(), expected, strict=True):
        assert np.array_equal(got, want)
    return {layer["name"]: layer for layer in json.loads(stats.read_text())["layers"]}


def intrinsics(layers):
    return {name: layer["schedule"]["intrinsic"] for name, layer in layers.items() if layer["placement"] == "npu"}


@pytest.mark.parametrize("config", ["npu64", "npu256"])
def test_an_intrinsic_is_a_candidate_and_computes_the_same_in_fewer_cycles(pools, tmp_path, config):
    device = "sysc" if "sysc" in tessera.backends() else "fsim"
    options = ["--device", device, "--config", config, "--no-chains"]
    core = run_pools(pools, tmp_path, *options)
    assert set(intrinsics(core).values()) == {"reduce"}
    with_plugin = run_pools(pools, tmp_path, *options, "--plugin", PLUGIN)
    chosen = intrinsics(with_plugin)
    # 5 x 5 of stride 1 pays most; the window of stride 2 has as many rows to reduce as it saves.
    assert chosen["wide"] == "reduce_separable"
    assert with_plugin["wide"]["predicted_cycles"] < 0.6 * core["wide"]["predicted_cycles"]
    if device == "sysc":
        assert with_plugin["wide"]["cycles"] < 0.6 * core["wide"]["cycles"]
        # Layers overlap by their strips, so that a layer's cycles depend on the one before: the two together count.
        together = [sum(layers[name]["cycles"] for name in ("wide", "strided")) for layers in (with_plugin, core)]
        assert together[0] < 0.6 * together[1]
    assert with_plugin["strided"]["predicted_cycles"] < 1.02 * core["strided"]["predicted_cycles"]
    searched = run(
        TESSERA, "compile", "-q", pools[0], "-o", tmp_path / "m.tsr", *options[2:], "--plugin", PLUGIN, "--print-search"
    )
    assert any(line.endswith("| reduce_separable") for line in searched.stdout.splitlines())


def test_a_schedule_names_the_intrinsic_and_needs_the_plugin(pools, tmp_path):
    schedules, edited = tmp_path / "schedules.json", tmp_path / "edited.json"
    run(TESSERA, "schedule", "-q", pools[0], "-o", schedules, "--no-chains", "--plugin", PLUGIN)
    text = json.loads(schedules.read_text())
    assert text["wide"]["intrinsic"] == "reduce_separable"
    # The file decides for layers where the search chose the core's.
    for name in ("strided", "dilated"):
        text[name]["intrinsic"] = "reduce_separable"
        text[name]["levels"] = [
            {"dim": "n", "factor": 2, "kind": "temporal"},
            {"dim": "g", "factor": 3, "kind": "temporal"},
            {"dim": "oh", "factor": 13, "kind": "temporal"},
            {"dim": "ow", "factor": 15 if name == "strided" else 14, "kind": "hwloop"},
            {"dim": "kh", "factor": 3, "kind": "hwloop"},
            {"dim": "kw", "factor": 3 if name == "strided" else 2, "kind": "hwloop"},
        ]
        text[name]["operands"] = [{"operand": operand} for operand in ("input", "sums", "output")]
    edited.write_text(json.dumps(text))
    given = ["--no-chains", "--schedule", edited, "--device", "fsim", "--check-races"]
    chosen = intrinsics(run_pools(pools, tmp_path, *given, "--plugin", PLUGIN))
    assert {chosen[name] for name in ("wide", "strided", "dilated")} == {"reduce_separable"}
    refused = run(TESSERA, "compile", "-q", pools[0], "-o", tmp_path / "m.tsr", "--schedule", edited, check=False)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1 and "there is no intrinsic 'reduce_separable'" in refused.stderr
    assert "--plugin FILE.so" in refused.stderr and "node 'dilated'" in refused.stderr
    # It says what it cannot do.
    others = [level for level in text["wide"]["levels"] if level["dim"] != "kh"]
    outer = [level for level in others if level["kind"] != "hwloop"]
    text["wide"]["levels"] = [*outer, {"dim": "kh", "factor": 5, "kind": "temporal"}, *others[len(outer) :]]
    edited.write_text(json.dumps({"wide": text["wide"]}))
    command = [TESSERA, "compile", "-q", pools[0], "-o", tmp_path / "m.tsr", "--schedule", edited]
    refused = run(*command, "--plugin", PLUGIN, check=False)
    assert refused.returncode == 1 and "node 'wide'" in refused.stderr
    assert "intrinsic reduce_separable takes whole windows" in refused.stderr


def test_what_cannot_be_loaded_is_refused(model, tmp_path):
    command = [TESSERA, "compile", "-q", model, "-o", tmp_path / "m.tsr", "--plugin"]
    refused = run(*command, tmp_path / "none.so", check=False)
    assert refused.returncode == 1 and "none.so' cannot be loaded" in refused.stderr
    # The same plugin under another name registers what is there already.
    copy = tmp_path / "again.so"
    shutil.copy(PLUGIN, copy)
    refused = run(*command, PLUGIN, "--plugin", copy, check=False)
    assert refused.returncode == 1 and "is registered already" in refused.stderr and "again.so" in refused.stderr

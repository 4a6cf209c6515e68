# SPDX-License-Identifier: Apache-2.0
"""The example of a plugin, loaded by both commands: its matcher places what the core leaves to the CPU, its pass runs
where it asked to, its cost model is known by name; what cannot be loaded or clashes is refused."""

import json
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

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


def test_what_cannot_be_loaded_is_refused(model, tmp_path):
    command = [TESSERA, "compile", "-q", model, "-o", tmp_path / "m.tsr", "--plugin"]
    refused = run(*command, tmp_path / "none.so", check=False)
    assert refused.returncode == 1 and "none.so' cannot be loaded" in refused.stderr
    # The same plugin under another name registers what is there already.
    copy = tmp_path / "again.so"
    shutil.copy(PLUGIN, copy)
    refused = run(*command, PLUGIN, "--plugin", copy, check=False)
    assert refused.returncode == 1 and "is registered already" in refused.stderr and "again.so" in refused.stderr

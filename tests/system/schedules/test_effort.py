# SPDX-License-Identifier: Apache-2.0
"""Sessions that answer a new shape by a quick program while the best one is looked for: same results throughout, and
what is known of the programs is said."""

import subprocess
import sys
import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera


@pytest.fixture(scope="module")
def model():
    """Two convolutions in QDQ form, [n,8,h,w] to [n,32,h,w], sizes open."""
    rng = np.random.default_rng(1)
    constants, nodes = [], []

    def constant(name, array):
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    scale, zero = constant("scale", np.float32(0.0625)), constant("zero", np.uint8(16))

    def quantised(x, name):
        nodes.append(helper.make_node("QuantizeLinear", [x, scale, zero], [name + "_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [name + "_q", scale, zero], [name]))
        return name

    tensor = quantised("x", "input")
    for k, (i, o) in enumerate([(8, 32), (32, 32)]):
        weights = [
            constant(f"w{k}", rng.integers(-127, 128, (o, i, 3, 3)).astype(np.int8)),
            constant(f"ws{k}", np.float32(0.01)),
            constant(f"wz{k}", np.int8(0)),
        ]
        nodes.append(helper.make_node("DequantizeLinear", weights, [f"weights{k}"]))
        nodes.append(
            helper.make_node("Conv", [tensor, f"weights{k}"], [f"conv{k}"], name=f"conv{k}", pads=[1, 1, 1, 1])
        )
        tensor = quantised(f"conv{k}", f"layer{k}")
    value = lambda name, channels: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", channels, "h", "w"])
    graph = helper.make_graph(nodes, "g", [value("x", 8)], [value(tensor, 32)], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def values(*shape):
    return np.random.default_rng(sum(shape)).random(shape, np.float32)


def test_a_quick_program_answers_first_and_the_best_one_follows(model):
    session = tessera.Session(model, "fsim", "npu64")
    shapes = [(1, 8, 24, 24), (1, 8, 24, 40), (2, 8, 16, 16)]
    inputs = [values(*shape) for shape in shapes]
    first = []
    for x in inputs:
        first.append(session.run(None, {"x": x})[0])
        assert session.stats().get("effort") == "quick"
    session.finish_search()
    assert not session.searching()
    for x, before in zip(inputs, first):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], before)
        stats = session.stats()
        assert "effort" not in stats
        best = tessera.Session(model, "fsim", "npu64", effort="best")
        np.testing.assert_array_equal(best.run(None, {"x": x})[0], before)
        assert stats.predicted_cycles == best.stats().predicted_cycles
        assert not best.searching()


def test_devices_with_time_run_the_best_program_from_the_start(model):
    session = tessera.Session(model, "sysc", "npu64")
    session.run(None, {"x": values(1, 8, 24, 24)})
    assert "effort" not in session.stats() and not session.searching()


def test_a_session_that_ends_early_ends_its_search(model, tmp_path):
    """Of many shapes most are not compiled, and none is after the session has gone."""
    session = tessera.Session(model, "fsim", "npu64", cache=str(tmp_path / "cache"))
    session.prepare([{"x": (1, 8, 40, width)} for width in range(16, 416)])
    assert session.searching()
    del session
    made = sorted((tmp_path / "cache").glob("*"))
    assert len(made) < 200
    time.sleep(1)
    assert sorted((tmp_path / "cache").glob("*")) == made


def test_shapes_are_prepared_behind(model):
    session = tessera.Session(model, "fsim", "npu64")
    session.prepare([{"x": (1, 8, 20, 20)}, {"x": (1, 8, 20, 28)}])
    session.finish_search()
    x = values(1, 8, 20, 28)
    y = session.run(None, {"x": x})[0]
    assert "effort" not in session.stats()
    np.testing.assert_array_equal(y, tessera.Session(model, "fsim", "npu64", effort="quick").run(None, {"x": x})[0])
    with pytest.raises(tessera.Error, match="no input 'z'"):
        session.prepare([{"z": (1,)}])
    with pytest.raises(tessera.Error, match="'x' is dynamic"):
        session.prepare([{}])


def test_shapes_are_compiled_ahead_into_the_cache(model, tmp_path, monkeypatch, command):
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(model)

    def compile(*words):
        return command("compile", path, "--config", "npu64", *words)

    done = compile("--shapes", "x=1,8,16-24/8,16")
    assert done.returncode == 0 and done.stdout.splitlines() == ["x [1,8,16,16]: compiled", "x [1,8,24,16]: compiled"]
    assert "x [1,8,24,16]: was there" in compile("--shapes", "x=1,8,24,16").stdout
    session = tessera.Session(str(path), "fsim", "npu64")
    session.run(None, {"x": values(1, 8, 24, 16)})
    assert "effort" not in session.stats() and not session.searching()
    for text, why in (("x=1,8,9-3,1", "no range"), ("x=1,a", "no size"), ("x", "NAME="), ("x=1-999,1-999", "1000")):
        done = compile("--shapes", text)
        assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_an_effort_that_is_none_is_refused(model):
    with pytest.raises(tessera.Error, match="best, quick, tiered or auto"):
        tessera.Session(model, "fsim", "npu64", effort="much")


@pytest.mark.parametrize("config", ["npu64", "npu256x2"])
def test_the_seconds_of_each_step_are_printed(model, tmp_path, command, config):
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    words = ["--shape", "x=1,8,24,24", "--time-passes", "-o", tmp_path / "m.tsr", "--config", config]
    done = command("compile", path, *words)
    assert done.returncode == 0, done.stderr
    steps = ["import", "graph passes", "place-chains", "schedules", "waits, prediction, check", "all"]
    if config == "npu256x2":
        steps += ["divisions among cores", "order of instructions among cores"]
    for step in steps:
        assert any(line.endswith("%  " + step) for line in done.stdout.splitlines()), done.stdout


ENDS = """
import os, sys, numpy as np, tessera
session = tessera.Session(open(sys.argv[1], "rb").read(), "fsim", "npu64")
session.run(None, {"x": np.zeros((1, 8, 48, 48), np.float32)})
sys.modules["kept"] = session  # nothing frees it before the end
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        assert not session.searching()
        session.run(None, {"x": np.zeros((1, 8, 40, 40), np.float32)})
        session.finish_search()
        session.run(None, {"x": np.zeros((1, 8, 40, 40), np.float32)})
        assert "effort" not in session.stats()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sys.exit(5)
"""


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_a_process_ends_while_a_program_is_looked_for(model, tmp_path, how):
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    done = subprocess.run([sys.executable, "-c", ENDS, str(path), how], capture_output=True, text=True, timeout=60)
    assert done.returncode == 5, done.stderr

# SPDX-License-Identifier: Apache-2.0
"""`tessera quantize` for a user: what is told, layers kept in float, the command, the guide, and one line for a model
or an option that makes no sense."""

import json
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest

import tessera
from tessera.errors import write_whole
from tessera.quantization import command as command_module
from tessera.quantization.quantise import METADATA
from tests.oracle import oracle
from tests.system import float_models
from tests.system.builders import Graph
from tests.system.conftest import BUILD, ROOT
from tests.system.quantisation.checks import pixels, refused


def test_report_and_metadata():
    model = float_models.residual()
    made = tessera.quantize(
        model, "random", engine="onnxruntime", labels=[1] * 32, report=True, config="npu64", keep_float=["conv2"]
    )
    report = made.report
    assert made.synthetic and report["synthetic"] and report["accuracy"]["synthetic"]
    origin = {entry.key: entry.value for entry in made.model.metadata_props}[METADATA]
    assert json.loads(origin)["synthetic"] is True
    rows = {row["layer"]: row for row in report["layers"]}
    assert rows["conv2"]["int8"] is False and rows["conv2"]["why_float"] == "kept float"
    products = [row for row in report["layers"] if row["kind"] == "product" and row["int8"]]
    assert len(products) == 3
    for row in products:
        assert row["snr_db"] > 20 and row["scale"] > 0 and row["clipped"] <= 0.01
        assert row["sensitivity_db"] is not None and row["predicted_cycles"] > 0
    assert 0 < report["macs_npu_share"] < 1 and report["predicted_cycles"] > 0
    assert report["accuracy"]["samples"] == 32


@pytest.mark.parametrize("kind, place_of", [("MatMul", 3), ("MatMul", 0)])
def test_a_layer_kept_float_is_computed_in_float(kind, place_of):
    """Also where movements stand between it and the quantised tensors, and its operands are two of them."""
    model = float_models.attention()
    layer = [node.name for node in model.graph.node if node.op_type == kind][place_of]
    made = tessera.quantize(model, float_models.feeds_of(model, 8), engine="onnxruntime", keep_float=layer)
    assert made.macs_npu_share < 1
    counts = oracle.operator_counts(oracle.optimize(made.model))
    assert counts["MatMul"] + counts["Gemm"] + counts["com.microsoft::FusedMatMul"] == 1
    assert counts["QLinearMatMul"] + counts["com.microsoft::QGemm"] == 5


def test_float_layers_by_number_and_by_drop():
    model = float_models.residual()
    feeds = float_models.feeds_of(model, 8)
    made = tessera.quantize(model, feeds, engine="onnxruntime", keep_float=1, report=True)
    kept = [row for row in made.report["layers"] if row["kind"] == "product" and not row["int8"]]
    assert len(kept) == 1 and "most sensitive" in kept[0]["why_float"]

    def metric(candidate):
        """1 with at most one product in int8, else 0: the drop is met late."""
        return float(sum(n.op_type in ("Conv", "Gemm") and "value" in n.input[1] for n in candidate.graph.node) <= 1)

    made = tessera.quantize(model, feeds, engine="onnxruntime", metric=metric, max_drop=0.1)
    assert metric(made.model) == 1.0


def ended(*words, status=0):
    done = subprocess.run(
        [str(BUILD / "bin" / "tessera"), *map(str, words)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def float_file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(float_models.relu6(), path)
    return path


def test_the_command(tmp_path, float_file):
    np.savez(tmp_path / "x.npz", x=pixels(8).transpose(0, 3, 1, 2).astype(np.float32) / 255)
    done = ended(
        "quantize", float_file, "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "q.onnx", "--engine", "onnxruntime",
        "--report", tmp_path / "report.json",
    )  # fmt: skip
    assert "100.00 % of the products on the NPU" in done.stdout and "sensitivity" in done.stdout
    assert json.loads((tmp_path / "report.json").read_text())["macs_npu_share"] == 1.0
    assert tessera.Session(tmp_path / "q.onnx").info().macs_npu_share == 1.0
    done = ended("quantize", float_file, "--calibrate", "random", "--engine", "onnxruntime", "-q")
    assert done.stdout == "" and done.stderr == "" and (tmp_path / "model_int8.onnx").exists()


def test_a_float_model_says_so_and_is_quantised_on_request(float_file):
    done = ended("run", float_file, "--random-inputs", 1)
    assert "tessera quantize" in done.stderr and len(done.stderr.splitlines()) == 1
    assert ended("run", float_file, "--random-inputs", 1, "-q").stderr == ""
    done = ended("run", float_file, "--random-inputs", 1, "--calibrate", "random", "--engine", "onnxruntime")
    assert "calibrated on random values" in done.stderr and "none of" not in done.stderr
    assert " 0 MACs" not in done.stdout
    assert "note: none of" in ended("report", float_file, "--device", "fsim").stdout


@pytest.mark.parametrize("scale, said", [(np.nan, "nan"), (np.inf, "inf"), (0.0, "0"), (-0.05, "-0.05")])
def test_a_scale_that_no_product_takes_is_named(tmp_path, scale, said):
    """Who has quantised a model already is not told to do so. The program that is kept says the same once more."""
    graph = Graph()
    x = graph.input(np.arange(-12, 12, dtype=np.int8).reshape(2, 12), "x")
    fit, unfit = (graph.constant(np.float32(value)) for value in (0.05, scale))
    zero, weights = graph.constant(np.int8(0)), graph.constant(np.eye(12, dtype=np.int8))
    product = graph.node("QLinearMatMul", [x, fit, zero, weights, unfit, zero, fit, zero], "product")
    graph.node("DequantizeLinear", [product, unfit, zero], "y")
    model = tmp_path / "model.onnx"
    onnx.save(graph.finish("y"), model)
    cache = ("--cache", tmp_path / "cache")
    for words in (("run", model, "--random-inputs", 1, *cache), ("run", model, "--random-inputs", 1, *cache),
                  ("compile", model, "-o", tmp_path / "model.tsr")):  # fmt: skip
        lines = ended(*words).stderr.splitlines()
        assert len(lines) == 1 and f"(QLinearMatMul) has a scale of {said}, and 1 other" in lines[0]
        assert "correct the scales" in lines[0] and "tessera quantize" not in lines[0]
    (want,) = oracle.run_plain(graph.finish("y"), graph.feeds).values()
    assert np.array_equal(tessera.Session(model).run(None, graph.feeds)[0], want, equal_nan=True)


def test_commands_take_the_shape_that_a_model_was_quantised_with(tmp_path, command):
    """Height and width are open: what compiles, and what draws inputs, takes those of the calibration data."""
    rng = np.random.default_rng(4)
    weights = onnx.numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
    value = lambda name, channels: onnx.helper.make_tensor_value_info(name, 1, ["n", channels, "h", "w"])
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "g", [value("x", 3)], [value("y", 8)], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "int8.onnx"
    samples = rng.random((4, 1, 3, 24, 40), np.float32)
    tessera.quantize(model, [{"x": x} for x in samples], path, engine="onnxruntime", config="npu64")
    compiled = command("compile", path, "-o", tmp_path / "m.tsr")
    assert compiled.returncode == 0 and "quantised with, [1,3,24,40]" in compiled.stderr, compiled.stderr
    drawn = command("run", path, "--random-inputs", "1", "--output", tmp_path / "y.npz")
    assert drawn.returncode == 0 and "[1,3,24,40]" in drawn.stderr, drawn.stderr
    assert np.load(tmp_path / "y.npz")["y"].shape == (1, 8, 24, 40)
    given = command("compile", path, "--shape", "x=1,3,16,16", "-o", tmp_path / "m.tsr")
    assert given.returncode == 0 and "quantised with, [" not in given.stderr, given.stderr


def test_models_that_cannot_be_quantised(tmp_path):
    model = float_models.relu6()
    quantised = tessera.quantize(model, "random", engine="onnxruntime").model
    assert refused("quantised already", quantised, "random") == "invalid_argument"
    none = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "none",
            [onnx.helper.make_tensor_value_info("x", 1, [2])],
            [onnx.helper.make_tensor_value_info("y", 1, [2])],
        )
    )
    assert refused("no Conv, MatMul, Gemm", none, "random") == "invalid_argument"
    assert refused("cannot open", tmp_path / "missing.onnx", "random") == "io"
    (tmp_path / "text.onnx").write_text("no model")
    assert refused("no ONNX model", tmp_path / "text.onnx", "random") == "invalid_model"
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert refused("no ONNX model", tmp_path / "empty.onnx", "random") == "invalid_model"


def test_options_that_make_no_sense(tmp_path):
    model = float_models.relu6()
    refused("--engine takes", model, "random", engine="other")
    refused("--method takes", model, "random", method="other")
    refused("engine onnxruntime", model, "random", engine="nncf", method="entropy")
    refused("no layer 'conv9'", model, "random", keep_float=["conv9"])
    refused("--max-drop needs --labels", model, "random", max_drop=0.1)
    refused("has no labels", model, "random", test="random")
    refused("no labels that can be read", model, "random", labels=str(tmp_path / "missing.txt"))
    refused("no input 'y'", model, "random", shapes={"y": [1]})
    refused("nothing of the model can be quantised", model, "random", keep_float=["conv0", "conv3"])


@pytest.mark.parametrize(
    "weights, attributes, words",
    [
        ([4, 5, 3, 3], {}, "node 'middle' (Conv): input [1,3,8,8] needs weights of 1 groups with 3 channels"),
        ([4, 3, 3, 3], {"strides": [0, 1]}, "node 'middle' (Conv): strides holds 0"),
        ([4, 3, 9, 9], {}, "node 'middle' (Conv): the kernel [9,9] with dilations [1,1] is larger than"),
    ],
)
def test_a_node_that_cannot_run_is_named(weights, attributes, words):
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["r"], "first"),
        onnx.helper.make_node("Conv", ["r", "w"], ["y"], "middle", **attributes),
    ]
    value = onnx.numpy_helper.from_array(np.ones(weights, np.float32), "w")
    shapes = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [1, 3, 8, 8]), ("y", None))]
    graph = onnx.helper.make_graph(nodes, "graph", shapes[:1], shapes[1:], [value])
    opsets = [onnx.helper.make_opsetid("", 17)]
    refused(re.escape(words), onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), "random")


def test_the_command_refuses_with_one_line(tmp_path, float_file):
    done = ended("quantize", float_file, status=1)
    assert done.stderr.startswith("tessera: error (invalid_argument): no calibration data") and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    done = ended("run", float_file, "--random-inputs", 1, "--calibrate", tmp_path / "missing.npz", status=1)
    assert "cannot open the calibration data" in done.stderr
    assert "add --calibrate" in ended("run", float_file, "--engine", "nncf", status=1).stderr
    assert ended("quantize", float_file, "--calibrate", "random", "--shape", "x", status=1).stderr.count("\n") == 1
    assert ended("quantize", status=2).stdout == ""


def commands_of_the_guide():
    """The indented lines of docs/quantize.md that begin with `tessera`."""
    lines = (ROOT / "docs" / "quantize.md").read_text().splitlines()
    return [line.split() for line in lines if line.startswith("    tessera ")]


def test_the_guide_walks_from_a_float_model_to_cycles(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = commands_of_the_guide()
    assert len(lines) == 6
    said = []
    for words in lines:
        if "rtl" not in tessera.backends():
            words = ["sysc" if word == "rtl" else word for word in words]
        if "sysc" in words and "sysc" not in tessera.backends():
            pytest.skip("this build has no device with time")
        words[0] = str(BUILD / "bin" / "tessera")
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done)
    assert "none of" in said[0].stderr
    assert "100.00 % of the products on the NPU" in said[1].stdout
    assert "cycles" in said[2].stdout
    assert "conv2" in said[3].stdout and "utilisation" in said[3].stdout
    assert "100.00 % of the products on the NPU" in said[5].stdout and "no packed_weights" in said[5].stderr


@pytest.mark.parametrize("flag", ["-o", "--report"])
def test_files_that_cannot_be_written_are_refused_before_the_work(flag, capsys):
    words = ["no-such-model.onnx", "--calibrate", "random", flag, "/no/such/file.onnx"]
    assert command_module.main(words) == 1
    assert "cannot write '/no/such/file.onnx': there is no such folder" in capsys.readouterr().err


def test_a_file_is_written_whole_or_stays(tmp_path):
    path = tmp_path / "model.onnx"

    def half(beside):
        pathlib.Path(beside).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    for before in ({}, {"model.onnx": b"whole"}):
        with pytest.raises(OSError):
            write_whole(path, half)
        assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
        write_whole(path, lambda beside: pathlib.Path(beside).write_bytes(b"whole"))
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"] and path.read_bytes() == b"whole"


def test_an_interrupted_command_ends_as_the_shell_expects(monkeypatch, capsys):
    def interrupted(given):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_module, "run", interrupted)
    assert command_module.main(["model.onnx", "--calibrate", "random"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("error (cancelled): interrupted")

# SPDX-License-Identifier: Apache-2.0
"""Whole networks as .tflite files. One stands in the folder `data` with what LiteRT 2.3.0 made of it, so that it is
compared without LiteRT. The others are built and quantised here and compared with the interpreter, element by element:
the default kernels and the reference kernels."""

import json
import os
import pathlib
import subprocess

import _tessera
import numpy as np
import pytest

import tessera

DATA = pathlib.Path(__file__).parent / "data"
KEYWORD = DATA / "keyword.tflite"


def recorded():
    return np.load(DATA / "keyword.npz")


@pytest.mark.parametrize("kernels", ["xnnpack", "reference"])
@pytest.mark.parametrize("device", ["reference", "fsim"])
def test_keyword_as_recorded(device, kernels):
    session = tessera.Session(KEYWORD, device=device, litert_kernels=kernels)
    assert [(port.name, port.shape) for port in session.get_inputs()] == [("input", [1, 49, 10, 1])]
    for x, y in zip(recorded()["input"], recorded()[kernels], strict=True):
        (got,) = session.run(None, {"input": x})
        assert got.dtype == y.dtype and np.array_equal(got, y)


def test_all_products_on_the_npu():
    where = _tessera.PredictedModel(KEYWORD.read_bytes(), {}).placement("npu256", {})
    assert where["macs_cpu"] == 0 and where["macs_npu"] > 2_000_000


def test_devices_agree():
    x, y = recorded()["input"][0], recorded()["xnnpack"][0]
    cycles = {}
    for device in ("fsim", "sysc", "rtl"):
        session = tessera.Session(KEYWORD, device=device, config="npu64")
        assert np.array_equal(session.run(None, {"input": x})[0], y)
        cycles[device] = session.stats().cycles
    assert cycles["rtl"] > 0 and abs(cycles["sysc"] - cycles["rtl"]) <= 0.01 * cycles["rtl"]


def command(*words):
    program = pathlib.Path(_tessera.__file__).parent.parent / "bin" / "tessera"
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, timeout=300)


def test_commands(tmp_path):
    """compile, run and report take the file as they take ONNX; both kernels are an option."""
    x = recorded()["input"][0]
    np.save(tmp_path / "x.npy", x)
    artifact = tmp_path / "keyword.tsr"
    made = command("compile", KEYWORD, "-o", artifact, "--config", "npu64")
    assert made.returncode == 0, made.stderr
    for kernels, model in (("xnnpack", artifact), ("reference", KEYWORD)):
        words = () if model == artifact else ("--config", "npu64", "--litert-kernels", kernels)
        ran = command(
            "run",
            model,
            *words,
            "--input",
            tmp_path / "x.npy",
            "--output",
            tmp_path / "y.npz",
            "--stats",
            tmp_path / "s.json",
        )
        assert ran.returncode == 0, ran.stderr
        assert np.array_equal(np.load(tmp_path / "y.npz")["output"], recorded()[kernels][0])
        assert json.loads((tmp_path / "s.json").read_text())
    told = command("report", KEYWORD, "--config", "npu64")
    assert told.returncode == 0 and "QLinearConv" in told.stdout
    wrong = command("run", KEYWORD, "--litert-kernels", "gpu", "--random-inputs", "1")
    assert wrong.returncode != 0 and "xnnpack or reference" in wrong.stderr


def test_three_lines_of_the_guide(tmp_path):
    """docs/litert.md, as it is typed."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    lines = [line.strip() for line in (root / "docs" / "litert.md").read_text().splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("model="))
    typed = "\n".join(["set -e", *lines[first : first + 3]]).replace("model=", f"model={root}/")
    program = pathlib.Path(_tessera.__file__).parent.parent / "bin"
    done = subprocess.run(
        ["bash", "-c", typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PATH": f"{program}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert "cycles" in done.stdout + done.stderr and json.loads((tmp_path / "stats.json").read_text())


def interpreted(data, x, kernels):
    from tests.litert import oracle

    return oracle.run(data, [x], {"xnnpack": "default", "reference": "reference"}[kernels]).outputs


def tiny(name, activations):
    pytest.importorskip("ai_edge_quantizer", reason="needs ai-edge-quantizer: pip install -r requirements-litert.txt")
    from tests.litert import networks

    data = networks.TINY[name]()
    shape = tuple(tessera.Session(data, device="reference").get_inputs()[0].shape)
    return networks.quantised(data, shape, activations), shape


@pytest.mark.parametrize("activations", [8, 16])
@pytest.mark.parametrize("name", ["ds_cnn", "visual_wake_words", "resnet8", "autoencoder", "wake_word"])
def test_mlperf_tiny(name, activations):
    data, shape = tiny(name, activations)
    rng = np.random.default_rng(7)
    for kernels in ("xnnpack", "reference"):
        session = tessera.Session(data, device="reference", litert_kernels=kernels)
        dtype = np.int8 if activations == 8 else np.int16
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
        got = session.run(None, {session.get_inputs()[0].name: x})
        for mine, wanted in zip(got, interpreted(data, x, kernels), strict=True):
            assert mine.dtype == wanted.dtype and np.array_equal(mine, wanted), f"{name}, {kernels}"


def test_quantize_names_an_operator_of_litert(tmp_path):
    """What ONNX Runtime cannot calibrate is refused by the name of its node."""
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install -r requirements-litert.txt")
    from tests.litert import builder

    model = builder.Model()
    graph = model.graph("main")
    x = graph.input("x", (1, 4, 8), "float32")
    spectrum, size = graph.tensor("spectrum", (1, 4, 5), "complex64"), graph.tensor("size", (1, 4, 5), "float32")
    graph.op("RFFT2D", [x, graph.constant(np.array([4, 8], np.int32))], [spectrum])
    graph.op("COMPLEX_ABS", [spectrum], [size])
    y = graph.tensor("y", (4, 3), "float32")
    graph.op("FULLY_CONNECTED", [size, graph.constant(np.ones((3, 5), np.float32)), -1], [y])
    graph.outputs(y)
    (tmp_path / "float.tflite").write_bytes(model.bytes())
    np.savez(tmp_path / "samples.npz", x=np.zeros((2, 4, 8), np.float32))
    done = command("quantize", tmp_path / "float.tflite", "--calibrate", tmp_path / "samples.npz", "-o", tmp_path / "q")
    assert done.returncode != 0 and "node 'spectrum" in done.stderr and "(Rfft2d)" in done.stderr
    assert "cut the model" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_float_network_is_quantised(tmp_path):
    """`tessera quantize` takes a float .tflite and writes an ONNX model for the NPU."""
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install -r requirements-litert.txt")
    from tests.litert import networks

    (tmp_path / "float.tflite").write_bytes(networks.resnet8())
    samples = np.concatenate(list(networks.feeds_of((1, 32, 32, 3), 8)))
    np.savez(tmp_path / "samples.npz", input=samples)
    quantised = tmp_path / "int8.onnx"
    done = command(
        "quantize",
        tmp_path / "float.tflite",
        "--calibrate",
        tmp_path / "samples.npz",
        "-o",
        quantised,
        "--engine",
        "onnxruntime",
    )
    assert done.returncode == 0, done.stderr
    where = _tessera.PredictedModel(quantised.read_bytes(), {}).placement("npu256", {})
    assert where["macs_npu"] > 0.99 * (where["macs_npu"] + where["macs_cpu"])

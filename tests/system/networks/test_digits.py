# SPDX-License-Identifier: Apache-2.0
"""The bundled network on every device and configuration: equal to ONNX Runtime in every element; artifacts that move
and are reloaded; batches; statistics; the demo."""

import json
import os
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def digits():
    data = np.load(ROOT / "examples" / "digits" / "digits_test.npz")
    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    return data["images"], data["labels"], session.run(None, {"image": data["images"]})[0]


@pytest.mark.parametrize("batch", [1, 7, 40])
def test_equal_to_onnx_runtime_on_all_configurations(digits, configs, batch):
    images, _, expected = digits
    for config in configs:
        session = tessera.Session(MODEL, "fsim", config, check_races=True, poison=5)
        got = session.run(None, {"image": images[:batch]})[0]
        assert np.array_equal(got, expected[:batch]), config
        info = session.info()
        assert info.macs_npu_share == 1.0 and info.nodes_cpu == 2  # quantise the image, dequantise the logits


def test_equal_on_the_rtl_with_cycles(digits):
    if "rtl" not in tessera.backends():
        pytest.skip("this build has no verilated machine")
    images, _, expected = digits
    session = tessera.Session(MODEL, "rtl", "npu64")
    for batch in (1, 3):
        assert np.array_equal(session.run(None, {"image": images[:batch]})[0], expected[:batch])
        stats = session.stats()
        assert stats.cycles >= stats.macs / 64 and 0 < stats.utilization < 1


def test_an_artifact_runs_at_two_addresses_with_poisoned_memory(digits, tmp_path):
    images, _, expected = digits
    tessera.compile(MODEL, tmp_path / "digits.tsr", "npu64", shapes={"image": [5, 1, 8, 8]})
    for base, poison in [(1 << 32, 1), (0x7654_0000_0000, 99)]:
        session = tessera.Session(tmp_path / "digits.tsr", base_address=base, poison=poison, check_races=True)
        assert np.array_equal(session.run(None, {"image": images[:5]})[0], expected[:5])


def test_a_new_shape_compiles_and_is_kept(digits):
    images, _, expected = digits
    session = tessera.Session(MODEL, "fsim", "npu256")
    for count in (1, 3, 1, 3, 2):
        assert np.array_equal(session.run(None, {"image": images[:count]})[0], expected[:count])


def test_interface_and_statistics(digits):
    images, _, _ = digits
    session = tessera.Session(MODEL, "fsim", "npu256")
    (image,), (logits,) = session.get_inputs(), session.get_outputs()
    assert (image.name, image.type, image.shape) == ("image", "tensor(float)", ["N", 1, 8, 8])
    assert (logits.name, logits.type) == ("logits", "tensor(float)")
    session.run(["logits"], {"image": images[:1]})
    stats = session.stats()
    macs = 64 * 9 * 16 + 64 * 9 * 16 * 16 + 16 * 9 * 16 + 16 * 16 * 40 + 400
    assert stats.macs == macs and stats.cycles is None and stats.utilization is None
    assert stats.nodes_npu + stats.nodes_cpu == 39 and stats.instructions > 20
    assert stats.dram_read_bytes > 10000 and stats.dram_write_bytes > 1000
    assert [layer.op for layer in stats.layers if layer.placement == "npu"].count("QLinearConv+QLinearAdd") == 1
    assert sum(layer.macs for layer in stats.layers) == macs
    assert len(session.trace()["traceEvents"]) > stats.instructions


def test_threads_share_a_session(digits):
    import concurrent.futures

    images, _, expected = digits
    session = tessera.Session(MODEL, "fsim", "npu256", shapes={"image": [1, 1, 8, 8]})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: session.run(None, {"image": images[i : i + 1]})[0], range(40)))
    assert np.array_equal(np.concatenate(results), expected[:40])


def test_the_demo_prints_its_table():
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "tessera" / "python"), str(BUILD / "lib")]))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "digits" / "demo.py"), "--device", "fsim"],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "3600 of 3600" in done.stdout and "QLinearConv+QLinearAdd" in done.stdout


def test_command_line_from_model_to_results(command, digits, tmp_path):
    images, _, expected = digits
    np.save(tmp_path / "x.npy", images[:3])
    np.savez_compressed(tmp_path / "x.npz", image=images[:3].transpose(0, 2, 3, 1))
    done = command("compile", MODEL, "-o", tmp_path / "d.tsr", "--config", "npu256", "--shape", "image=3,1,8,8")
    assert done.returncode == 0, done.stderr
    done = command(
        "run",
        tmp_path / "d.tsr",
        "--device",
        "fsim",
        "--input",
        tmp_path / "x.npy",
        "--output",
        tmp_path / "y.npz",
        "--stats",
        tmp_path / "s.json",
        "--trace",
        tmp_path / "t.json",
        "--check-races",
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npz")["logits"], expected[:3])
    stats = json.loads((tmp_path / "s.json").read_text())
    for key in (
        "cycles",
        "macs",
        "utilization",
        "roofline_cycles",
        "dram_read_bytes",
        "dram_write_bytes",
        "nodes_npu",
        "nodes_cpu",
        "instructions",
        "layers",
    ):
        assert key in stats
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    done = command(
        "run",
        MODEL,
        "--device",
        "reference",
        "--input",
        f"image={tmp_path / 'x.npz'}",
        "--input-layout",
        "NHWC",
        "--output",
        tmp_path / "y.npy",
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected[:3])
    done = command("info", tmp_path / "d.tsr")
    assert done.returncode == 0 and "100.0% NPU" in done.stdout
    # What disasm prints, asm reads.
    done = command("disasm", tmp_path / "d.tsr", "-o", tmp_path / "d.asm")
    assert done.returncode == 0, done.stderr
    done = command("asm", tmp_path / "d.asm", "-o", tmp_path / "d.bin")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d.bin").stat().st_size == 64 * stats["instructions"]
    again = command("disasm", tmp_path / "d.bin")
    strip = lambda text: [line.split("#")[0].split() for line in text.splitlines() if line.split("#")[0].strip()]
    assert strip(again.stdout) == strip((tmp_path / "d.asm").read_text())

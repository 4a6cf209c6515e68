# SPDX-License-Identifier: Apache-2.0
"""Compiled programs on disk: found again by another process, never for another model, shape, machine or option, and not
where the file is damaged or the cache is off."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tessera

PROGRAM = """
import sys, numpy as np, tessera
session = tessera.Session(sys.argv[1], config=sys.argv[2], effort="best")
x = np.arange(int(sys.argv[3]) * 4, dtype=np.float32).reshape(-1, 4)
np.save(sys.argv[4], session.run(None, {"x": x})[0])
"""


def save(path, value, external=False):
    weights = onnx.numpy_helper.from_array(np.full((4, 300), value, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 300])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="w.bin", size_threshold=0)


class Cache:
    def __init__(self, folder):
        self.folder, self.work = folder / "cache", folder

    def run(self, path, rows=2, config="npu64", cache=None):
        """What a process of its own computes."""
        env = dict(os.environ, TESSERA_CACHE=str(cache or self.folder))
        done = str(self.work / "y.npy")
        subprocess.run([sys.executable, "-c", PROGRAM, str(path), config, str(rows), done], env=env, check=True)
        return np.load(done)

    def files(self):
        return {path: path.read_bytes() for path in self.folder.glob("*")}


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_another_process_finds_the_program(cache, tmp_path):
    path = tmp_path / "m.onnx"
    save(path, 2)
    first = cache.run(path)
    kept = cache.files()
    assert len(kept) == 2  # what the model looks like, and a program
    np.testing.assert_array_equal(cache.run(path), first)
    assert cache.files() == kept
    for rows, config in ((3, "npu64"), (2, "npu256")):
        cache.run(path, rows, config)
        assert len(cache.files()) == len(kept) + 1
        kept = cache.files()
    save(path, 3)
    np.testing.assert_array_equal(cache.run(path), first * 1.5)
    assert len(cache.files()) == len(kept) + 2


def test_weights_in_another_file_count(cache, tmp_path):
    path = tmp_path / "m.onnx"
    save(path, 2, external=True)
    first = cache.run(path)
    before = path.read_bytes()
    (tmp_path / "w.bin").unlink()
    save(path, 4, external=True)
    assert path.read_bytes() == before
    np.testing.assert_array_equal(cache.run(path), 2 * first)


def test_damaged_files_are_made_again(cache, tmp_path):
    path = tmp_path / "m.onnx"
    save(path, 2)
    first = cache.run(path)
    kept = cache.files()
    for damaged in kept:
        damaged.write_bytes(kept[damaged][: len(kept[damaged]) // 2])
    np.testing.assert_array_equal(cache.run(path), first)
    assert cache.files() == kept


def test_off(cache, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    save(path, 2)
    cache.run(path, cache="off")
    monkeypatch.setenv("TESSERA_CACHE", str(cache.folder))
    tessera.Session(str(path), config="npu64", shapes={"x": [2, 4]}, cache="off")
    assert not cache.files() and not pathlib.Path("off").exists()
    tessera.Session(str(path), config="npu64", shapes={"x": [2, 4]}, cache=str(tmp_path / "own"))
    assert not cache.files() and len(list((tmp_path / "own").iterdir())) == 2
    tessera.Session(str(path), config="npu64", shapes={"x": [2, 4]})
    assert len(cache.files()) == 2


def test_devices_share_a_program(tmp_path, programs, compiled_once):
    """Tests that compare devices compile a model once because of it."""
    assert os.environ["TESSERA_CACHE"] == programs
    path, own = tmp_path / "m.onnx", tmp_path / "own"
    save(path, 2)
    for device in {"fsim", "sysc", "rtl"} & set(tessera.backends()):
        tessera.Session(str(path), device=device, config="npu64", shapes={"x": [2, 4]}, cache=str(own))
        assert len(list(own.iterdir())) == 2, device


@pytest.mark.parametrize("device", ["fsim", "reference"])
def test_a_session_stays_with_the_file_that_it_opened(cache, tmp_path, device):
    path = tmp_path / "m.onnx"
    save(path, 2)
    session = tessera.Session(str(path), device=device, config="npu64", cache=str(cache.folder))
    save(path, 3)
    for rows in (1, 5):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.full((rows, 300), 8, np.float32))
        np.testing.assert_array_equal(
            cache.run(path, rows), 3 * np.repeat(np.arange(4 * rows).reshape(rows, 4).sum(1), 300).reshape(rows, 300)
        )


def test_weights_that_change_in_their_file_are_refused(cache, tmp_path):
    path = tmp_path / "m.onnx"
    save(path, 2, external=True)
    session = tessera.Session(str(path), config="npu64", cache=str(cache.folder))
    session.run(None, {"x": np.ones((1, 4), np.float32)})
    (tmp_path / "w.bin").unlink()
    save(path, 3, external=True)
    with pytest.raises(RuntimeError, match="'w.bin' has changed since the model was opened; open the model again"):
        session.run(None, {"x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(cache.run(path, 1), 3 * np.arange(4).sum() * np.ones((1, 300)))

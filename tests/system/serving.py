# SPDX-License-Identifier: Apache-2.0
"""For the tests of `tessera serve`: a server of a repository in a process of its own, and the models in it."""

import contextlib
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tessera
from tests.system.conftest import BUILD, ROOT

DIGITS = ROOT / "examples" / "digits"
PACKAGES = ("grpc", "uvicorn", "starlette", "httptools", "prometheus_client", "tritonclient.http", "tritonclient.grpc")
TOKEN = "0123456789abcdef" * 2


def tensor(name, element, shape):
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(
        nodes, "graph", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in constants]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def echo(element, shape):
    """The input is the output."""
    return model(
        [helper.make_node("Identity", ["x"], ["y"])], [tensor("x", element, shape)], [tensor("y", element, shape)]
    )


def two_by_two():
    """Two inputs of any size, their sum and their difference."""
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])]
    ports = lambda names: [tensor(name, TensorProto.FLOAT, ["n", "m"]) for name in names]
    return model(nodes, ports(["a", "b"]), ports(["sum", "difference"]))


def lookup(rows=8):
    """Rows of a table by their numbers; a number beyond the table is an error of the run."""
    table = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    node = helper.make_node("Gather", ["table", "ids"], ["rows"])
    return model(
        [node],
        [tensor("ids", TensorProto.INT64, ["n"])],
        [tensor("rows", TensorProto.FLOAT, ["n", 4])],
        [("table", table)],
    )


def counting():
    """Adds one `times` times: as slow as the caller likes."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["before", "one"], ["after"])],
        "body",
        [
            tensor("at", TensorProto.INT64, []),
            tensor("go", TensorProto.BOOL, []),
            tensor("before", TensorProto.INT64, [1]),
        ],
        [tensor("on", TensorProto.BOOL, []), tensor("after", TensorProto.INT64, [1])],
        [numpy_helper.from_array(np.array([1], np.int64), "one")],
    )
    nodes = [
        helper.make_node("Squeeze", ["times"], ["count"]),
        helper.make_node("Loop", ["count", "", "zero"], ["counted"], body=body),
    ]
    ports = [tensor("times", TensorProto.INT64, [1])], [tensor("counted", TensorProto.INT64, [1])]
    return model(nodes, *ports, [("zero", np.array([0], np.int64))])


def put(repository, name, content, version=1, settings=""):
    """Writes a version of a model into the folder, each file in one step."""
    folder = pathlib.Path(repository) / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in ((folder.parent / "tessera.toml", settings.encode()), (folder / "model.onnx", content)):
        beside = path.with_suffix(".new")
        beside.write_bytes(data)
        beside.rename(path)


def digits():
    return (DIGITS / "digits.onnx").read_bytes()


@functools.cache
def images():
    # Once: CPython 3.11 may fail where threads parse the header of an array at once.
    return np.load(DIGITS / "digits_test.npz")["images"]


class Server:
    """`tessera serve` of a repository on free ports. grpc, http: HOST:PORT. After the block it has drained and ended
    with status 0."""

    def __init__(self, repository, *words, expect=0):
        self._words = [
            "--model-repository",
            repository,
            "--listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
            *words,
        ]
        self._expect = expect
        self.lines = []

    def __enter__(self):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "tessera" / "python"), str(BUILD / "lib")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tessera.serving", *map(str, self._words)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if found := re.search(r"REST on (\S+), with gRPC on (\S+)", line):
                self.http, self.grpc = found.groups()
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
                return self
        raise AssertionError(f"no server: {self.lines}")

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def __exit__(self, kind, *_):
        self.terminate()
        try:
            status = self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if kind is None:
            assert status == self._expect, self.lines
            assert not any("Traceback" in line for line in self.lines), "\n".join(self.lines)

    @property
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def eventually(condition, seconds=10):
    """Waits until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.02)


@contextlib.contextmanager
def refused(*words):
    """The error of a client has these words."""
    try:
        yield
    except Exception as problem:
        for word in words:
            assert str(word) in str(problem), problem
    else:
        raise AssertionError("it was not refused")


def in_process(content, feeds, **options):
    """What a session in this process gives, by output."""
    session = tessera.Session(content, **options)
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds)))

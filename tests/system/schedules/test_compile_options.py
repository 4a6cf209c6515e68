# SPDX-License-Identifier: Apache-2.0
"""The options of a compilation stand once: command, Python package and C interface know the same ones, take the same
values, and refuse the same ones with the same words."""

import json
import subprocess
import sys

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

REFUSED = "option 'traffic_weight' takes a number from 0 to 1000, not '-1'"


# The C interface has a process of its own, as its users have: beside the Python module there would be two compilers.
BY_LIBRARY = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.tessera_last_error.restype = ctypes.c_char_p
library.tessera_compile_option_count.restype = ctypes.c_size_t
class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("summary", ctypes.c_char_p), ("fallback", ctypes.c_char_p)]
if sys.argv[2] == "list":
    rows = []
    for index in range(library.tessera_compile_option_count()):
        option = Option()
        assert library.tessera_compile_option_at(ctypes.c_size_t(index), ctypes.byref(option)) == 0
        values = (option.name.decode(), option.summary.decode(), option.fallback.decode())
        rows.append(dict(zip(("name", "summary", "default"), values)))
    print(json.dumps(rows))
else:
    model, artifact, *options = (word.encode() for word in sys.argv[2:])
    texts = (ctypes.c_char_p * len(options))(*options)
    size = ctypes.c_size_t
    status = library.tessera_compile_with(model, b"npu256", None, size(0), texts, size(len(options)), artifact)
    print(json.dumps([status, library.tessera_last_error().decode()]))
"""


def by_library(*words):
    command = [sys.executable, "-c", BY_LIBRARY, str(BUILD / "lib" / "libtessera.so"), *(str(word) for word in words)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("options") / "resnet8.onnx"
    path.write_bytes(networks.build("resnet8")[0])
    return path


def compile_by_command(model, artifact, *options):
    command = [BUILD / "bin" / "tessera", "compile", "-q", model, "-o", artifact, *options]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def test_every_interface_has_every_option():
    rows = tessera.compile_options()
    names = [row["name"] for row in rows]
    assert {"use_npu", "chains", "traffic_weight", "dram_latency", "dram_bandwidth", "search", "cost_model"} <= set(
        names
    )
    assert by_library("list") == rows
    shown = subprocess.run(
        [BUILD / "bin" / "tessera", "compile", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for flag in ("--no-npu", "--no-cpu-codegen", "--no-chains", "--no-vthreads", "--traffic-weight", "--dram-latency"):
        assert flag in shown
    assert shown.count("--") >= len(names)
    for name in names:
        assert f"    {name}: " in tessera.Session.__doc__


def test_the_same_values_make_the_same_program(model, tmp_path):
    by_command, by_python, by_c, plain = (tmp_path / name for name in ("command", "python", "c", "plain"))
    flags = ("--no-chains", "--traffic-weight", "3", "--dram-latency", "700")
    assert compile_by_command(model, by_command, *flags).returncode == 0
    tessera.compile(str(model), by_python, chains=False, traffic_weight=3, dram_latency=700)
    assert by_library(model, by_c, "chains=false", "traffic_weight=3", "dram_latency=700")[0] == 0
    assert by_command.read_bytes() == by_python.read_bytes() == by_c.read_bytes()
    assert compile_by_command(model, plain).returncode == 0
    assert plain.read_bytes() != by_c.read_bytes()


def test_the_same_values_are_refused(model, tmp_path):
    refused = compile_by_command(model, tmp_path / "x", "--traffic-weight", "-1")
    assert refused.returncode == 2 and REFUSED in refused.stderr
    with pytest.raises(tessera.Error) as error:
        tessera.compile(str(model), tmp_path / "x", traffic_weight=-1)
    assert str(error.value) == REFUSED
    assert by_library(model, tmp_path / "x", "traffic_weight=-1") == [1, REFUSED]
    status, message = by_library(model, tmp_path / "x", "speed=3")
    assert status == 1 and "a compilation has no option 'speed'" in message
    with pytest.raises(TypeError, match="no keyword 'speed'"):
        tessera.Session(str(model), speed=3)

# SPDX-License-Identifier: Apache-2.0
"""The C library and the Python modules in one process: each holds the compiler, and none minds the others."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.system import builders
from tests.system.conftest import BUILD, ROOT

LIBRARY = BUILD / "lib" / "libtessera.so"
LOADED = """
import ctypes, sys
model, first, second, *order = sys.argv[1:]
for name in order:
    if name == "libtessera":
        library = ctypes.CDLL({library!r}, mode=ctypes.RTLD_GLOBAL)
    else:
        __import__(name)
import _tessera_nn, tessera
tessera.compile(model, first, "npu64")
assert library.tessera_compile(model.encode(), b"npu64", None, ctypes.c_size_t(0), second.encode()) == 0
assert open(first, "rb").read() == open(second, "rb").read()
"""


@pytest.mark.parametrize("order", itertools.permutations(["libtessera", "_tessera", "_tessera_nn"]), ids="-".join)
def test_libraries_stand_beside_each_other(order, tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(builders.random_convolution(1)[0].SerializeToString())
    artifacts = [tmp_path / "1.tsr", tmp_path / "2.tsr"]
    path = os.pathsep.join(map(str, (BUILD / "lib", ROOT / "tessera" / "python")))
    done = subprocess.run(
        [sys.executable, "-c", LOADED.replace("{library!r}", repr(str(LIBRARY))), model, *artifacts, *order],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

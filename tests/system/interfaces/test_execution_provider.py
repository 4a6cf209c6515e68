# SPDX-License-Identifier: Apache-2.0
"""The execution provider for ONNX Runtime: programs register the library and run models, and ONNX Runtime's own
provider is the oracle. The cases stand in execution_provider_cases.py and run in a process of their own, with the
onnxruntime of this environment and with those of the interpreters that TESSERA_ONNXRUNTIME_PYTHONS names, separated by
colons."""

import json
import os
import subprocess
import sys

import pytest

from tests.system import execution_provider_cases
from tests.system.conftest import BUILD, ROOT

LIBRARY = BUILD / "lib" / "libtessera_onnxruntime_ep.so"
OTHERS = [path for path in os.environ.get("TESSERA_ONNXRUNTIME_PYTHONS", "").split(":") if path]
CASES = [name for name in vars(execution_provider_cases) if name.startswith("case_")]
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="a build without TESSERA_ONNXRUNTIME_EP")


def results_with(interpreter):
    done = subprocess.run(
        [interpreter, "-m", "tests.system.execution_provider_cases", LIBRARY],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_CACHE": "off"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def results():
    return results_with(sys.executable)


@pytest.mark.parametrize("case", CASES)
def test_provider(results, case):
    assert not results[case], results[case]


def test_other_versions_of_onnx_runtime():
    if not OTHERS:
        pytest.skip("TESSERA_ONNXRUNTIME_PYTHONS names no Python with another version of onnxruntime")
    for interpreter in OTHERS:
        wrong = {name: text for name, text in results_with(interpreter).items() if text}
        assert not wrong, f"{interpreter}: " + "\n".join(wrong.values())


def test_beside_the_package():
    """Python finds the library, and it stands in one process with the package, which holds the compiler as well."""
    script = """
import numpy, tessera, onnxruntime as ort
from tessera.onnxruntime import execution_provider_library
print(execution_provider_library())
model, x = "examples/digits/digits.onnx", numpy.load("examples/digits/digits_test.npz")["images"][:2]
first = tessera.Session(model).run(None, {"image": x})
ort.register_execution_provider_library("tessera", execution_provider_library())
options = ort.SessionOptions()
devices = [device for device in ort.get_ep_devices() if device.ep_name == "TesseraExecutionProvider"]
options.add_provider_for_devices(devices, {})
second = ort.InferenceSession(model, options).run(None, {"image": x})
assert (first[0] == second[0]).all() and (tessera.Session(model).run(None, {"image": x})[0] == second[0]).all()
"""
    path = os.pathsep.join(map(str, (ROOT / "tessera" / "python", BUILD / "lib")))
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [str(LIBRARY)]

# SPDX-License-Identifier: Apache-2.0
"""Puts the built module _tessera_ops and this folder on the path.

The module is looked for in $TESSERA_OPS_MODULE_DIR, then on PYTHONPATH, then in build/*/lib and build/lib of the
repository; the newest wins. Without it, or without onnxruntime, the tests are skipped with the reason.
"""

import glob
import importlib.util
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def find_module_directory():
    named = os.environ.get("TESSERA_OPS_MODULE_DIR")
    if named:
        return named
    if importlib.util.find_spec("_tessera_ops"):
        return None
    found = [
        path
        for pattern in ("build/*/lib", "build/lib")
        for path in glob.glob(os.path.join(ROOT, pattern, "_tessera_ops*.so"))
    ]
    return os.path.dirname(max(found, key=os.path.getmtime)) if found else None


sys.path[:0] = [HERE, ROOT]
directory = find_module_directory()
if directory:
    sys.path.insert(0, directory)

collect_ignore_glob = []
missing = [name for name in ("_tessera_ops", "onnxruntime", "onnx", "numpy") if importlib.util.find_spec(name) is None]
if missing:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header(config):
    if missing:
        return f"ops: tests skipped, not installed or not built: {', '.join(missing)}"
    return f"ops: module {importlib.util.find_spec('_tessera_ops').origin}"


def pytest_collection_modifyitems(items):
    from tests.oracle import departures

    departures.mark(items)


def pytest_sessionfinish(session, exitstatus):
    # A folder without tests is an error for pytest; here it means that the oracle is not installed.
    if missing and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK

# SPDX-License-Identifier: Apache-2.0
"""Finds the module _tessera_nn in the build: TESSERA_MODULE_DIR, else build/*/lib."""

import glob
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE_DIRS = [os.environ.get("TESSERA_MODULE_DIR", "")] + sorted(glob.glob(str(ROOT / "build" / "*" / "lib")))
sys.path[:0] = [d for d in MODULE_DIRS if d and glob.glob(os.path.join(d, "_tessera_nn*.so"))][:1]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


@pytest.fixture(scope="session")
def nn():
    return pytest.importorskip("_tessera_nn", reason="the module _tessera_nn is not built")

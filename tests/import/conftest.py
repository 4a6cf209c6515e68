# SPDX-License-Identifier: Apache-2.0
"""Finds the module _tessera_nn in the build: TESSERA_MODULE_DIR, else build/*/lib."""

import glob
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CANDIDATES = [os.environ.get("TESSERA_MODULE_DIR", "")] + sorted(glob.glob(str(ROOT / "build" / "*" / "lib")))
FOUND = [folder for folder in CANDIDATES if folder and glob.glob(os.path.join(folder, "_tessera_nn*.so"))]
sys.path[:0] = FOUND[:1]


@pytest.fixture(scope="session")
def nn():
    """The module; a build without it skips, a module that cannot be loaded fails."""
    if not FOUND:
        pytest.skip("the module _tessera_nn is not built")
    import _tessera_nn

    return _tessera_nn

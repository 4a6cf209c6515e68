# SPDX-License-Identifier: Apache-2.0
"""Finds the Python modules of the build ($TESSERA_MODULE_DIR, $TESSERA_BUILD/lib, else the newest of build/*/lib) and
the folder of public models beside the project."""

import glob
import importlib.util
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
named = [os.environ.get(name, "") for name in ("TESSERA_MODULE_DIR", "TESSERA_OPS_MODULE_DIR")]
named.append(os.path.join(os.environ["TESSERA_BUILD"], "lib") if "TESSERA_BUILD" in os.environ else "")
built = sorted(glob.glob(str(ROOT / "build" / "*" / "lib")), key=os.path.getmtime, reverse=True)
for module in ("_tessera_ops", "_tessera_nn"):
    if importlib.util.find_spec(module) is None:
        found = [d for d in named + built if d and glob.glob(os.path.join(d, module + "*.so"))]
        sys.path[:0] = found[:1]


@pytest.fixture(scope="session")
def nn():
    return pytest.importorskip("_tessera_nn", reason="the module _tessera_nn is not built")


@pytest.fixture(scope="session")
def ops():
    return pytest.importorskip("_tessera_ops", reason="the module _tessera_ops is not built")


@pytest.fixture(scope="session")
def models():
    """Folder of public models; the test is skipped where it does not stand beside the project."""
    folder = SHARED / "models"
    if not folder.is_dir():
        pytest.skip(f"no public models at {folder}")
    return folder

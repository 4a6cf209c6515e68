# SPDX-License-Identifier: Apache-2.0
"""Finds the built package."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release"))
for path in (ROOT, ROOT / "tessera" / "python", BUILD / "lib"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

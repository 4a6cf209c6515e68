# SPDX-License-Identifier: Apache-2.0
"""Puts the project's root on the import path, so that `tests.oracle` and the rooms' helpers are importable from every
test. Programs are compiled in tests, and not found on disk."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TESSERA_CACHE", "off")
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

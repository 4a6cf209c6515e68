# SPDX-License-Identifier: Apache-2.0
"""Where a newer ONNX Runtime and a newer onnx package part from the pinned ones. departures.toml lists which tests of
exactness then fail, and why; with other versions than the pinned ones these are expected to fail, and no others."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.oracle import oracle

DEPARTURES = tomllib.loads(Path(__file__).with_name("departures.toml").read_text())["departure"]


def reason_of(name):
    """Why the test of this node id may fail, or None."""
    return next((entry["text"] for entry in DEPARTURES if re.search(entry["pattern"], name)), None)


def mark(items):
    """Marks collected tests; nothing with the pinned versions."""
    if oracle.pinned():
        return
    for item in items:
        reason = reason_of(item.nodeid)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))

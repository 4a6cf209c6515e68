# SPDX-License-Identifier: Apache-2.0
"""Where the oldest ONNX Runtime and onnx package that the wheel allows part from the pinned ones. departures.toml lists
which tests of exactness then fail, by node id, and why. With other versions than the pinned ones these must fail, and
no others."""

import tomllib
from pathlib import Path

import pytest

from tests.oracle import oracle

LISTED = tomllib.loads(Path(__file__).with_name("departures.toml").read_text())["departure"]
DEPARTURES = {test: entry["text"] for entry in LISTED for test in entry["tests"]}


def mark(items):
    """Marks collected tests; nothing with the pinned versions."""
    if oracle.pinned():
        return
    for item in items:
        reason = DEPARTURES.get(item.nodeid)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))

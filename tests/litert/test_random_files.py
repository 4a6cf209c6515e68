# SPDX-License-Identifier: Apache-2.0
"""Random LiteRT files beside LiteRT's interpreter, by the classes of docs/litert_operators.md, and files that are
damaged. TESSERA_SEED and TESSERA_RANDOM set start and number. `./dev test --random 100000 tests/litert` runs as many as
that."""

import os

import pytest

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install -r requirements-litert.txt")

from tests.litert import worker

SEED = int(os.environ.get("TESSERA_SEED", "0"))
COUNT = int(os.environ.get("TESSERA_RANDOM", "1000"))
DAMAGED = COUNT // 2
CHUNK = 250


def chunks(count):
    return [(first, min(CHUNK, SEED + count - first)) for first in range(SEED, SEED + count, CHUNK)]


@pytest.mark.parametrize("first,count", chunks(COUNT))
def test_random_files(first, count):
    found, done = worker.findings("compare", first, count)
    assert not found, "\n".join(f"number {number}: {name}: {text}" for number, name, text in found[:20])
    assert done > count * 0.9, f"only {done} of {count} files were drawn"


@pytest.mark.parametrize("first,count", chunks(DAMAGED))
def test_damaged_files(first, count):
    found, _ = worker.findings("damage", first, count)
    assert not found, "\n".join(f"number {number}: {name}: {text}" for number, name, text in found[:20])

# SPDX-License-Identifier: Apache-2.0
"""docs/litert_operators.md says what classes.py says, of every operator that is drawn and of every conversion."""

import pytest

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install -r requirements-litert.txt")

from tests.litert import classes, table, worker


def test_table_is_current():
    wanted = {(name, classes.class_of(name, types)) for name in worker.NAMES for types in table.types_of(name)}
    written = set(table.rows_of(table.PATH.read_text()))
    assert written == wanted, "run `python -m tests.litert.table`"

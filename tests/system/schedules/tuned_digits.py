# SPDX-License-Identifier: Apache-2.0
"""The model that tests of the tuner tune, its sessions and inputs, and databases as another build leaves them."""

import pathlib
import sqlite3

import numpy as np
import pytest

import tessera

DIGITS = pathlib.Path(__file__).resolve().parents[3] / "examples" / "digits" / "digits.onnx"

timed = pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model")


def session_of(device, config, **options):
    return tessera.Session(DIGITS, device, config, shapes={"image": [1, 1, 8, 8]}, **options)


def feeds(session):
    rng = np.random.default_rng(4)
    return {port.name: rng.random(port.shape, np.float32) for port in session.get_inputs()}


def as_another_build_wrote_it(database, path, **changes):
    """A copy without units, whose cycles no build of today measures."""
    path.write_bytes(database.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM units")
        for table in ("networks", "layers"):
            forgotten = "json_remove(provenance, '$.build', '$.replay')"
            connection.execute(f"UPDATE {table} SET cycles=1, provenance={forgotten}")
        for name, value in changes.items():
            connection.execute(f"UPDATE networks SET {name}=?", (value,))

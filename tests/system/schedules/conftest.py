# SPDX-License-Identifier: Apache-2.0
"""Explorers, for tests of `tessera explore`."""

import pytest

from tessera.exploration import explorer, results
from tests.system.schedules.explored import DIGITS, small


@pytest.fixture
def exploring(tmp_path):
    """Explorers of a space with the digits network, by default, whose results lie in one file."""
    made = []

    def explorer_of(content=None, paths=(DIGITS,), **given):
        kept = results.Results(tmp_path / "kept.db")
        made.append(explorer.Explorer(content or small(), explorer.networks_of(paths), kept, **given))
        return made[-1]

    yield explorer_of
    for one in made:
        one.close()

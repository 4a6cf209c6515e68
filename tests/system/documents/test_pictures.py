# SPDX-License-Identifier: Apache-2.0
"""Pictures of the documents that are drawn from a run: the committed one is what the program draws today."""

import importlib.util

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

pytestmark = pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model")


def test_the_tile_on_the_timeline_is_what_the_timing_model_says():
    path = ROOT / "docs" / "images" / "tile_timeline.py"
    spec = importlib.util.spec_from_file_location("tile_timeline", path)
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    slices = picture.run(BUILD)
    tile = picture.tiles_of(slices)[picture.TILE]
    assert [track for track, *_ in tile].count("store") == 1 and {track for track, *_ in tile} == set(picture.COLOURS)
    assert picture.draw(slices) == path.with_suffix(".svg").read_text(), "stale: run docs/images/tile_timeline.py"

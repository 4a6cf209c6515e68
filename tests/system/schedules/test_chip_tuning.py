# SPDX-License-Identifier: Apache-2.0
"""Given schedules and `tessera tune` on chips of several cores: what a tuner measures is what a run takes, schedules of
parts and divisions go from statistics into files and back, and what cannot be is refused. The oracle of results is one
core, of cycles the device that runs them."""

import json
import sqlite3

import _tessera
import numpy as np
import pytest

import tessera
from tessera import tuning

from .tuned_digits import DIGITS, as_another_build_wrote_it, feeds, session_of, timed

CHIP = {"config": "npu256x2", "shapes": {"image": [8, 1, 8, 8]}}


def chip_session(device, **options):
    return tessera.Session(DIGITS, device, **CHIP, **options)


@timed
def test_the_bench_of_a_chip_counts_what_the_device_counts():
    bench = _tessera.Tuning(str(DIGITS), "npu256x2", CHIP["shapes"], {})
    session = chip_session("sysc")
    session.run(None, feeds(session))
    chosen = bench.chosen()
    assert not [why for piece, text in chosen if (why := bench.obstacle(piece, text))]
    # Turns of the engines are compared anew under given schedules, and may be better ones.
    assert bench.whole(chosen, "replay")[0] <= session.stats().predicted_cycles
    again = chip_session("sysc", schedules=session.schedules())
    again.run(None, feeds(again))
    assert bench.whole(chosen, "sysc")[0] == again.stats().cycles
    assert again.schedules() == session.schedules()


@timed
def test_a_chip_is_tuned(tmp_path, command):
    """What the judge measures is what a run takes, and results are those of one core; the division is searched, too."""
    found = tuning.tune(DIGITS, database=tmp_path / "t.db", trials=40, judge="sysc", **CHIP)
    assert found.trials == 40 and found.cycles < found.default_cycles
    plain, tuned = chip_session("sysc"), chip_session("sysc", tuned=str(tmp_path / "t.db"))
    assert tuned.schedules() == found.schedules
    values = feeds(plain)
    plain.run(None, values)
    alone = tessera.Session(DIGITS, "fsim", "npu256", shapes=CHIP["shapes"]).run(None, values)
    assert all(np.array_equal(a, b) for a, b in zip(alone, tuned.run(None, values)))
    with sqlite3.connect(tmp_path / "t.db") as connection:
        units = [json.loads(text) for (text,) in connection.execute("SELECT result FROM units")]
    divided = [row for unit in units for row in unit.get("divided", [])]
    assert divided and len({json.dumps(row[3]) for row in divided}) > 1
    assert tuned.stats().cycles == found.cycles <= plain.stats().cycles
    given = tmp_path / "s.json"
    given.write_text(json.dumps(found.schedules))
    words = ["run", DIGITS, "--config", "npu256x2", "--shape", "image=8,1,8,8", "--schedule", given]
    done = command(*words, "--device", "sysc", "--random-inputs", 1, "-o", tmp_path / "o.npz")
    assert done.returncode == 0 and f"{found.cycles} cycles" in done.stdout + done.stderr, done.stderr
    # The same seed and nothing done twice; another build's record is judged anew.
    assert tuning.tune(DIGITS, database=tmp_path / "t.db", trials=40, judge="sysc", **CHIP).known_units == found.units
    as_another_build_wrote_it(tmp_path / "t.db", tmp_path / "old.db")
    assert chip_session("sysc", tuned=str(tmp_path / "old.db")).schedules() == found.schedules
    begun = tuning.tune(DIGITS, database=tmp_path / "old.db", trials=2, judge="sysc", **CHIP)
    assert begun.cycles <= found.cycles


@pytest.mark.parametrize(
    "schedules, words",
    [
        ({"gemm1": {"core": 2}}, "there is no core 2 of 2"),
        ({"gemm1": {"divided": "rows", "ends": [1]}}, "1 entries for 2 cores"),
        ({"gemm1": {"divided": "depth", "ends": [1, 2]}}, "'divided' is \"depth\"; known: images, rows"),
        ({"gemm1": {"divided": "images", "ends": "all"}}, "'ends' must be a list"),
        ({"gemm1": {"core": 0, "cores": [None, None, None]}}, "3 entries for 2 cores"),
        ({"gemm1": {"core": 0, "levels": []}}, "has no 'levels'; known: core, own, cores"),
        ({"gemm1": {"core": 0, "own": 1}}, "'own' is true, false or left out"),
        ({"gemm1@0": {"levels": [], "operands": [], "intrinsic": "dense"}}, "but not how it is divided"),
        ({"gemm1@2": {"levels": [], "operands": [], "intrinsic": "dense"}}, "no layer on the NPU has this name"),
    ],
)
def test_divisions_that_cannot_be_are_refused(schedules, words):
    layer = next(reversed(chip_session("fsim").schedules()))
    named = {name.replace("gemm1", layer): schedule for name, schedule in schedules.items()}
    with pytest.raises(tessera.Error) as refused:
        chip_session("fsim", schedules=named)
    assert words in str(refused.value) and layer in str(refused.value) and "\n" not in str(refused.value)


def test_a_division_on_one_core_is_refused():
    layer = next(iter(session_of("fsim", "npu64").schedules()))
    with pytest.raises(tessera.Error, match="npu64 has one core"):
        session_of("fsim", "npu64", schedules={layer: {"core": 0}})

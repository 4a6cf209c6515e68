# SPDX-License-Identifier: Apache-2.0
"""`tessera tune --search evolutionary` with and without the learned cost model, and `--search optuna`: that a seed
decides, that a killed tuning goes on, that what is learned holds for schedules which it has not seen, and what is
refused. The oracle of cycles is the replay. What needs LightGBM or Optuna skips where they are not installed
(requirements-tune.txt)."""

import json
import pathlib
import random
import sqlite3
import sys

import _tessera
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tessera import tuning
from tessera.tuning import learned
from tests.oracle import oracle

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SMALL = {"config": "npu64", "trials": 12, "judge": "replay", "search": "evolutionary"}


@pytest.fixture(autouse=True)
def short_units(monkeypatch):
    monkeypatch.setattr("tessera.tuning.tuner.STEPS", 48)  # a unit's payload takes it to the workers


@pytest.fixture
def lightgbm():
    return pytest.importorskip("lightgbm", reason="LightGBM is not installed (requirements-tune.txt)")


def tuned(database, cost_model, **more):
    return tuning.tune(DIGITS, database=database, cost_model=cost_model, **{**SMALL, **more})


def a_seed_decides(tmp_path, cost_model, **more):
    first = tuned(tmp_path / "a.db", cost_model, **more)
    other = tuned(tmp_path / "b.db", cost_model, workers="2", **more)
    assert first.cycles <= first.default_cycles and other.schedules == first.schedules
    # As one that was killed in the middle: some units are there, others are not.
    with sqlite3.connect(tmp_path / "b.db") as connection:
        trials = "SELECT key FROM units WHERE json_extract(result, '$.trials') IS NOT NULL ORDER BY key LIMIT 2"
        connection.execute(f"DELETE FROM units WHERE key IN ({trials})")
    again = tuned(tmp_path / "b.db", cost_model, **more)
    assert again.schedules == first.schedules and again.known_units == again.units - 2 > 0
    session = tessera.Session(DIGITS, "fsim", "npu64", shapes={"image": [1, 1, 8, 8]}, tuned=str(tmp_path / "a.db"))
    assert session.schedules() == first.schedules


def test_an_evolution_by_closed_form(tmp_path):
    a_seed_decides(tmp_path, "closed-form", trials=32)


def test_an_evolution_by_the_learned_model(tmp_path, lightgbm):
    a_seed_decides(tmp_path, "learned", trials=32)
    lines = []
    tuned(tmp_path / "a.db", "learned", seed=2, trials=8, progress=lines.append)
    assert any("samples of the database" in line for line in lines)


def test_a_search_by_optuna(tmp_path):
    pytest.importorskip("optuna", reason="Optuna is not installed (requirements-tune.txt)")
    a_seed_decides(tmp_path, "closed-form", search="optuna", trials=6)


def measured(bench, features, piece, count, rng):
    start = bench.candidates(piece, "exhaustive", 1)[0]
    schedules = {start} | {bench.mutate(piece, start, rng.getrandbits(63)) for _ in range(count)}
    return [(*features.of(piece, s), bench.alone(piece, s, "replay")[0]) for s in sorted(schedules)]


def test_what_is_learned_holds_for_schedules_that_it_has_not_seen(lightgbm):
    """The squared error of the logarithm, beside that of the closed form (which says 0): every other schedule of the
    layers of two machines teaches, the others are asked. How far it carries to other machines is measured by
    `./dev bench learned`."""
    taught, asked = [], []
    for config in ("npu64", "npu256"):
        bench = _tessera.Tuning(str(DIGITS), config, {}, {})
        features, rng = learned.Features(bench, config, {}), random.Random(config)
        pieces = [n for n in range(len(bench.pieces())) if bench.candidates(n, "exhaustive", 1)]
        for piece in pieces:
            samples = learned.samples_of(measured(bench, features, piece, 60, rng))
            taught += samples[::2]
            asked += samples[1::2]
    assert len({len(row) for row, _, _ in [*taught, *asked]}) == 1
    rows, target = [row for row, _, _ in asked], [value for _, value, _ in asked]
    trees = learned.Trees(taught)
    assert trees.text == learned.Trees(taught).text
    assert list(learned.Trees(text=trees.text).logarithms(rows)) == list(trees.logarithms(rows))

    def error(found):
        return sum((value - wanted) ** 2 for value, wanted in zip(found, target))

    assert error(trees.logarithms(rows)) < 0.9 * error([0.0] * len(rows))
    # What is measured corrects the trees.
    corrected = learned.Corrected(trees)
    corrected.learn(rows, target)
    assert error(corrected.logarithms(rows)) < 0.5 * error(trees.logarithms(rows))


@pytest.mark.parametrize(
    "package, options", [("lightgbm", {"cost_model": "learned"}), ("optuna", {"search": "optuna"})]
)
def test_without_the_package_the_way_out_is_said(tmp_path, monkeypatch, package, options):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tessera.Error, match=rf"{package}.*requirements-tune.txt.*tessera\[tune\]") as caught:
        tuning.tune(DIGITS, database=tmp_path / "t.db", **{**SMALL, **options})
    assert caught.value.code == "unsupported" and not (tmp_path / "t.db").exists()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"cost_model": "luck"}, "there is no cost model 'luck'.*closed-form, learned"),
        ({"cost_model": "learned", "search": "annealing"}, "asks no cost model"),
    ],
)
def test_what_is_refused(tmp_path, options, words):
    with pytest.raises(tessera.Error, match=words):
        tuning.tune(DIGITS, database=tmp_path / "t.db", **{**SMALL, **options})


def test_a_layer_of_several_nests_has_features():
    """What turns pixels with channels inside into a row for a product is one nest for each part."""
    rng = np.random.default_rng(1)
    shapes = {"kernel": (12, 4, 3, 3), "matrix": (432, 10), "bias": (10,)}
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Conv", ["x", "kernel"], ["c"], "conv", pads=[1, 1, 1, 1]),
                helper.make_node("Flatten", ["c"], ["f"], "flat"),
                helper.make_node("Gemm", ["f", "matrix", "bias"], ["y"], "product"),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
            [numpy_helper.from_array(rng.standard_normal(shapes[n]).astype(np.float32), n) for n in shapes],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    calibration = [{"x": rng.random((1, 4, 6, 6), np.float32)} for _ in range(2)]
    data = oracle.quantize(model, calibration, per_channel=True).SerializeToString()
    bench = _tessera.Tuning(data, "npu64", {}, {})
    features = learned.Features(bench, "npu64", {})
    chosen = [(piece, schedule) for piece, schedule in bench.chosen() if schedule.startswith("[")]
    assert chosen
    for piece, schedule in chosen:
        alone = bench.alone(piece, schedule, "closed-form")[0]
        cycles, row = features.of(piece, schedule)
        assert cycles == alone and len(row) == len(features.of(*bench.chosen()[0])[1])
        bench.mutate(piece, schedule, 1)


def test_a_machine_from_a_file_has_the_same_features(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(_tessera.shipped_configs()["npu64"])
    bench = _tessera.Tuning(str(DIGITS), str(path), {}, {})
    piece, schedule = bench.chosen()[0]
    rows = [learned.Features(bench, config, {}).of(piece, schedule) for config in (str(path), "npu64")]
    assert rows[0] == rows[1] and json.dumps(rows[0])
    assert learned.Features(bench, path.read_text(), {}).of(piece, schedule) == rows[0]
    slow = learned.Features(bench, "npu64", {"dram_latency": "300"}).of(piece, schedule)
    assert slow[1] != rows[0][1]

# SPDX-License-Identifier: Apache-2.0
"""`tessera explore`: ranges and rules, areas and energies, the front against one found by brute force, and the
confirmation on the timing model."""

import copy
import datetime
import itertools
import json
import pathlib
import sys

import _tessera
import numpy as np
import onnx
import pytest

from tessera.exploration import area, energy, explorer, pareto, report, rules, space

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import networks  # noqa: E402

from tests.system.schedules.explored import DIGITS, SMALL, small  # noqa: E402

# --- spaces


@pytest.mark.parametrize(
    "text, values",
    [
        ("8k..128k by 2x", [8192, 16384, 32768, 65536, 131072]),
        ("4..16 by 4", [4, 8, 12, 16]),
        ("1M", [1 << 20]),
        (7, [7]),
        (["4k", 100], [4096, 100]),
    ],
)
def test_ranges(text, values):
    assert rules.values_of(text, "here") == values


@pytest.mark.parametrize("text", ["8k..4k by 2x", "4..8 by 0", "4..8 by 1x", "a..b by 2", "8..16", [], [True], None])
def test_bad_ranges_are_refused(text):
    with pytest.raises(_tessera.Error, match="here"):
        rules.values_of(text, "here")(dict())


@pytest.mark.parametrize(
    "text, value",
    [
        ("a / 2", 8),
        ("a * b - 1", 47),
        ("min(a, b) >= 3 and not a < b", True),
        ("b <= a <= 4k", True),
        ("a // 5", 3),
        ("  a - b\n", 13),
        ("b == 3 or a / (b - 3) > 1", True),
        ("b != 3 and a / (b - 3) > 1", False),
    ],
)
def test_rules(text, value):
    assert rules.Rule(text, "here")({"a": 16, "b": 3}) == value


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a.b", "c + 1", "a if b else 1", "a / 0", "lambda: 1", "a +", "'x'"]
)
def test_rules_are_arithmetic_and_nothing_else(text):
    with pytest.raises(_tessera.Error, match="here"):
        rules.Rule(text, "here")({"a": 16, "b": 3})


def test_numbers_name_all_combinations_once():
    chosen = small()
    seen = {tuple(chosen.values(number).items()) for number in range(chosen.size)}
    assert len(seen) == chosen.size == 8
    for number in range(chosen.size):
        places = [values.index(chosen.values(number)[key]) for key, values in chosen.axes.items()]
        assert chosen.number(places) == number
    machine, _ = chosen.machine(7)
    assert machine.parameters["second_lanes"] == 4 and machine.parameters["wgt_bytes"] == 65536


def test_illegal_machines_say_why():
    chosen = small(machine={"block_in": [12], "second_lanes": 4})
    assert "block_in = 12" in chosen.machine(0)[1]
    chosen = small(rules={"require": ["block_in * block_out > 10000"]})
    assert chosen.machine(0) == (None, "rule 'block_in * block_out > 10000'")


@pytest.mark.parametrize(
    "content, names",
    [
        ({"machines": {}}, "machines"),
        ({"machine": {"block": 8}}, "block_in"),
        ({"machine": {"block_in": "block_out", "block_out": "block_in"}}, "need each other"),
        ({"machine": {"block_in": "width / 2"}}, "width"),
        ({"constraints": {"fits": "zynq9000"}}, "zynq9000"),
        ({"constraints": {"lutz": 3}}, "lutz"),
        ({"objectives": {"minimise": ["beauty"]}}, "beauty"),
        ({"base": "npu7"}, "npu7"),
        ({"rules": {"require": "block_in"}}, "require"),
        ({"base": ["npu64"]}, "shipped configuration"),
        ({"machine": {"block_in": float("nan")}}, "block_in"),
        ({"machine": {"block_in": [1 << 1100]}}, "block_in"),
        ({"machine": {"block_in": "9" * 40}}, "too large"),
        ({"machine": {"block_in": "(" * 300}}, "expression"),
        ({"machine": {"block_in": "block_out" + " + 1" * 3000}}, "expression|too deep"),
        ({"constraints": {"lut": float("inf")}}, "lut"),
        ({"objectives": {"minimise": [["lut"]]}}, "minimise"),
    ],
)
def test_bad_spaces_are_refused(exploring, content, names):
    with pytest.raises(_tessera.Error, match=names):
        exploring(space.Space(content))


@pytest.mark.parametrize(
    "content, names",
    [
        ({"rules": {"require": ["min(3) > 2"]}}, "two values"),
        ({"machine": {"block_in": "block_out * 1e300 * 1e300"}}, "block_out = 16"),
        ({"machine": {"block_in": "block_out // (block_out - 16)"}}, "divides by zero"),
    ],
)
def test_rules_without_a_value_are_refused(content, names):
    with pytest.raises(_tessera.Error, match=names):
        space.Space({"base": "npu256", **content}).machine(0)


def test_a_base_may_leave_out_what_a_configuration_may(tmp_path):
    text = space.SHIPPED["npu64"]
    kept = [line for line in text.splitlines() if not line.startswith(("row_lanes", "memory_parity", "packed"))]
    path = tmp_path / "few.toml"
    path.write_text("\n".join(kept))
    assert len(kept) < len(text.splitlines())
    few, full = (space.Space({"base": base}).machine(0)[0] for base in (str(path), "npu64"))
    assert few.parameters == full.parameters


def test_a_name_that_toml_takes_for_a_date(exploring):
    found = exploring(space.Space({"name": datetime.date(1979, 5, 27), "base": "npu64"}))
    points = found.grid(screen=False)
    content = report.as_json(found, points, points, points)
    assert json.loads(json.dumps(content))["space"]["name"] == "1979-05-27"


@pytest.mark.parametrize(
    "texts, given",
    [
        (["x=1,2"], {"a": {"x": [1, 2]}, "a:b": {"x": [1, 2]}}),
        (["a:x=1", "a:b:x:0=2"], {"a": {"x": [1]}, "a:b": {"x:0": [2]}}),
        (["x:0=3"], {"a": {"x:0": [3]}, "a:b": {"x:0": [3]}}),
    ],
)
def test_shapes_of_networks_and_of_inputs_with_colons(texts, given):
    assert explorer.shapes_of(texts, ["a", "a:b"]) == given


@pytest.mark.parametrize("text", ["x", "x=", "=1", "x=\u00b2", "x=0", "x=1,,2", "a:=1"])
def test_bad_shapes_are_refused(text):
    with pytest.raises(_tessera.Error, match="INPUT=D0"):
        explorer.shapes_of([text], ["a"])


# --- area, energy, dominance


def test_area_of_machines_that_were_not_fitted():
    """Each machine from the others; a machine beyond them in a parameter may be further off. The longest path moves
    with what Yosys' mapper makes of a module, and one machine has its longest path where no other has."""
    records = area.data()["machines"]
    assert len(records) >= 7
    for name, row in area.leave_one_out(records).items():
        beyond = area.Model({other: records[other] for other in records if other != name}).predict(
            records[name]["parameters"]
        )
        for key, (measured, predicted) in row.items():
            most = 0.15 if key == "ns" else 0.1 if beyond.outside else 0.05
            assert abs(predicted - measured) <= most * measured, (name, key, measured, predicted)


def test_area_of_synthesised_machines_is_what_synthesis_says():
    figures = json.loads((ROOT / "hw" / "synth" / "figures.json").read_text())["area"]["pynq_z2 xc7 0.23"]["total"]
    import tomllib

    parameters = tomllib.loads((ROOT / "hw" / "configs" / "pynq_z2.toml").read_text())
    found = area.model().predict(parameters)
    # The points that the model is fitted to are from before the products' chains of four DSP slices.
    for key, allowed in (("lut", 0.08), ("ff", 0.05), ("dsp", 0.05), ("bram36", 0.05)):
        assert abs(getattr(found, key) - figures[key]) <= allowed * figures[key]


def test_area_of_a_parameter_that_older_records_do_not_have():
    records = copy.deepcopy(area.data()["machines"])
    for record in list(records.values())[1:]:
        record["parameters"].pop("memory_parity", None)
    next(iter(records.values()))["parameters"]["memory_parity"] = 0
    model, parameters = area.Model(records), space.Space({"base": "npu64"}).machine(0)[0].parameters
    assert model.predict({**parameters, "memory_parity": 0}).outside == ()
    assert model.predict({**parameters, "memory_parity": 1}).outside == ("memory_parity",)


def test_the_models_parts_are_those_of_synthesis():
    import tomllib

    parts = tomllib.loads((ROOT / "hw" / "synth" / "parts.toml").read_text())["part"]
    assert area.data()["parts"] == parts


def test_blocks_of_a_memory():
    assert area.blocks(64, 512) == 1 and area.blocks(32, 512) == 0.5 and area.blocks(128, 2048) == 8
    assert area.blocks(64, 512, two_ports=True) == 2


def test_energy_grows_with_bytes_and_with_memories():
    machine = small().machine(0)[0].parameters
    less = energy.microjoules(1000, 1000, machine)
    more = energy.microjoules(1000, 2000, machine)
    assert more["dram"] == 2 * less["dram"] and more["multiply_accumulate"] == less["multiply_accumulate"]
    assert energy.sram_byte(8192) == 10 / 8 and energy.sram_byte(1 << 20) == 100 / 8
    assert energy.sram_byte(32768) < energy.sram_byte(65536) < energy.sram_byte(1 << 20)


def test_front_is_what_comparing_all_pairs_finds():
    random = np.random.default_rng(3)
    for objectives in (1, 2, 3):
        vectors = random.integers(0, 6, (40, objectives))
        better = lambda a, b: (a <= b).all() and (a < b).any()
        expected = {tuple(a) for a in vectors if not any(better(b, a) for b in vectors)}
        found = pareto.front(vectors)
        assert {tuple(vectors[at]) for at in found} == expected and len(found) == len(expected)
        assert list(pareto.dominated(vectors, vectors)) == [any(better(b, a) for b in vectors) for a in vectors]


def test_what_the_figures_cannot_tell_apart_is_shown_once():
    vectors = np.array([[1.0, 100.0], [1.001, 99.5], [1.3, 80.0], [1.301, 79.0], [2.0, 79.5]])
    assert pareto.thinned(vectors, range(5), 0.01) == [0, 2, 3]
    assert pareto.thinned(vectors, range(5), 0.0) == [0, 1, 2, 3]


# --- the exploration


def test_grid_is_what_the_compiler_says_of_each_machine(exploring, tmp_path):
    import tessera

    found = exploring()
    points = found.grid(screen=False)
    assert len(points) == 8
    for point in points:
        path = tmp_path / "one.toml"
        path.write_text(point.machine.toml())
        session = tessera.Session(str(DIGITS), "fsim", str(path), shapes={"image": [1, 1, 8, 8]})
        layers = session.info()["layers"]
        assert point.figures["cycles"] == sum(layer.get("predicted_cycles", 0) for layer in layers)
        assert point.figures["milliseconds"] == point.figures["cycles"] / point.megahertz / 1000
    assert found.front(points)


def test_screened_grid_has_the_front_of_the_full_one(exploring):
    wide = {**SMALL, "machine": {**SMALL["machine"], "inp_bytes": "4k..16k by 2x", "block_in": [4, 8, 16]}}
    full, screened = exploring(space.Space(wide)), exploring(space.Space(wide))
    expected = full.front(full.grid(screen=False))
    points = screened.grid(screen=True)
    assert [point.number for point in screened.front(points)] == [point.number for point in expected]
    assert screened.compiled["predict"] == 0  # all of it was in the file


VARIED = {
    **SMALL,
    "machine": {
        "block_in": [4, 8, 16],
        "block_out": [4, 8, 16, 32],
        "inp_bytes": 16384,
        "axi_bytes": [8, 16],
        "second_lanes": "max(1, block_out / 4)",
    },
}


def test_machines_that_are_spared_change_no_front(exploring, monkeypatch):
    """The front where all machines are compiled in full, and where some are spared even the screen."""
    monkeypatch.setattr(explorer, "FIRST_SCREENED", 6)
    monkeypatch.setattr(explorer, "BATCH", 2)
    networks.build("ds_cnn")
    path = networks.CACHE / "ds_cnn.onnx"
    first = exploring(space.Space(VARIED), [path])
    first.grid(screen=True)
    assert first.spared > 4 and first.compiled["screen"] + first.spared == 24 > first.compiled["predict"]
    full = {point.number: point.figures for point in exploring(space.Space(VARIED), [path]).grid(screen=False)}
    middle = sorted(figures["milliseconds"] for figures in full.values())[len(full) // 2]
    for changes in (
        {},
        {"objectives": {"minimise": ["bytes", "lut"]}},
        {"objectives": {"minimise": ["milliseconds", "microjoules", "dsp"]}, "constraints": {"milliseconds": middle}},
    ):
        content = space.Space({**VARIED, **changes})
        some, every = exploring(content, [path]), exploring(content, [path])
        front, expected = some.front(some.grid(screen=True)), every.front(every.grid(screen=False))
        assert front and [point.figures for point in front] == [point.figures for point in expected]
        spared = [point for point in some.known.values() if point.judge == "bound"]
        assert len(spared) == some.spared
        for point in spared:
            assert all(least <= full[point.number][key] for key, least in point.figures.items())


def test_bounds_of_machines_that_share_them(exploring):
    """What bound_key leaves out changes no bound."""
    import tessera

    model = tessera.PredictedModel(DIGITS.read_bytes())
    base = {**space.base_of("npu256"), "row_lanes": 0}
    base = {key: base[key] for key in space.PARAMETERS if key in base}
    expected = model.bound(space.Machine(base).toml())
    assert expected["cycles"] > 0
    for key in explorer.SIZES + explorer.QUEUES:
        other = space.Machine({**base, key: 2 * base[key]})
        assert model.bound(other.toml()) == expected, key


def test_constraints_leave_machines_out(exploring):
    found = exploring()
    points = found.grid(screen=False)
    most = sorted(point.figures["lut"] for point in points)[3]
    some = exploring(small(constraints={"lut": most, "fits": "Zynq-7020"}))
    kept = some.grid(screen=False)
    assert {point.number for point in kept} == {point.number for point in points if point.figures["lut"] <= most}
    assert some.refused[f"more than {most:g} lut"] == 4


def test_a_second_run_does_nothing_again(exploring):
    first, second = exploring(), exploring()
    one = first.front(first.grid(screen=False))
    two = second.front(second.grid(screen=False))
    assert [point.figures for point in one] == [point.figures for point in two]
    assert first.compiled["predict"] == 8 and second.compiled["predict"] == 0 and first.kept.count() == 8


def test_worker_with_another_compiler_is_told(exploring):
    found = exploring()
    found.compiler = "another"
    with pytest.raises(_tessera.Error, match="another build"):
        found.grid(screen=False)


def test_front_is_confirmed_by_the_timing_model(exploring):
    found = exploring(small(machine={"block_in": [8, 16]}))
    front = found.front(found.grid(screen=False))
    for point, counts in zip(front, found.confirm(front, "sysc")):
        assert abs(report.cycles_of(counts) / point.figures["cycles"] - 1) < 0.05


def test_network_that_no_machine_takes_is_told_at_once(exploring, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(_tessera.Error, match="network 'broken'.*not an ONNX model") as caught:
        explorer.networks_of([DIGITS, broken])
    assert caught.value.code == "invalid_model"
    with pytest.raises(_tessera.Error, match="network 'digits'.*no input.*'picture'; inputs: image"):
        explorer.networks_of([DIGITS], ["picture=1,1,8,8"])


def test_network_that_does_not_run_is_told(exploring, tmp_path):
    """A float network: nothing of it is for the NPU."""
    path = tmp_path / "floats.onnx"
    path.write_bytes(networks.NETWORKS["autoencoder"]().SerializeToString())
    found = exploring(paths=[DIGITS, path])
    assert found.grid(screen=False) == [] and len(found.failures) == 8


def test_network_with_external_data(exploring, tmp_path):
    model = onnx.load(DIGITS)
    path = tmp_path / "digits.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    found, expected = exploring(paths=[path]), exploring()
    figures = [[point.figures for point in one.grid(screen=False)] for one in (found, expected)]
    assert figures[0] == figures[1] and len(figures[0]) == 8


def test_nsga2_of_one_machine(exploring):
    pytest.importorskip("pymoo")
    from tessera.exploration import nsga2

    assert len(nsga2.search(exploring(space.Space({"base": "npu64"})), 40, seed=1)) == 1


def test_nsga2_finds_the_front_of_a_small_space(exploring):
    pytest.importorskip("pymoo")
    from tessera.exploration import nsga2

    found, other = exploring(), exploring()
    expected = {point.number for point in found.front(found.grid(screen=False))}
    assert {point.number for point in other.front(nsga2.search(other, 40, seed=1))} == expected


def test_random_spaces_end_with_a_front_or_one_error(exploring):
    random = np.random.default_rng(11)
    ranges = {
        "block_in": [4, 8, 12, 16, 32],
        "block_out": [4, 8, 16, 256],
        "inp_bytes": [100, 1024, 8192, 1 << 23],
        "wgt_bytes": [64, 4096, 65536],
        "acc_bytes": [32, 4096, 65536],
        "axi_bytes": [3, 4, 8, 64],
        "second_lanes": [1, 2, 3, 4],
        "reads_in_flight": [0, 1, 16],
    }
    ended = 0
    for number, _ in itertools.product(range(6), [0]):
        machine = {
            key: [int(v) for v in random.choice(values, 2)] for key, values in ranges.items() if random.random() < 0.5
        }
        chosen = space.Space({"base": "npu64", "machine": machine, "memory": {"latency": [1, 500]}})
        found = exploring(chosen)
        points = found.random(6, seed=number, screen=False)
        legal = sum(chosen.machine(n)[0] is not None for n in found.known)
        assert len(points) + len({n for n, _ in found.failures}) == legal
        assert sum(found.refused.values()) + legal == len(found.known)
        ended += bool(found.front(points))
    assert ended > 0


def test_the_area_of_a_chip():
    """Cores and an interconnect: within a fifth of those that Yosys has synthesised, and little beside the cores."""
    model = area.model()
    for record in area.data()["interconnects"].values():
        own = {**parameters_of("npu256"), **record["parameters"]}
        core, chip = model.predict({**own, "cores": 1, "memory_axi_bytes": 0}), model.predict(own)
        for key in ("lut", "lut_memory", "ff", "bram36"):
            interconnect = getattr(chip, key) - own["cores"] * getattr(core, key)
            assert abs(interconnect - record["total"][key]) <= 0.2 * record["total"][key] + own["cores"], key
        assert chip.dsp == own["cores"] * core.dsp
        assert chip.lut <= 1.04 * own["cores"] * core.lut
    assert "cores" in model.predict({**own, "cores": 16}).outside


def parameters_of(name):
    import tomllib

    return {**space.ABSENT, **{k: v for k, v in tomllib.loads(space.SHIPPED[name]).items() if k != "name"}}


def test_chips_in_a_space(exploring):
    """Machines of one, two and four cores: the bound is below what is compiled, and four cores take fewer cycles."""
    content = small(machine={"cores": [1, 2, 4], "memory_axi_bytes": "axi_bytes * cores * min(1, cores - 1)"})
    found = exploring(content)
    points = found.grid(screen=False)
    assert len(points) == 3
    for judge in ("bound", "predict"):
        assert len(found.evaluate(points, judge)) == 3
        cycles = {point.values["cores"]: point.figures["cycles"] for point in points}
        if judge == "bound":
            least = cycles
    assert all(least[cores] <= cycles[cores] for cores in cycles) and cycles[4] <= cycles[1]
    assert points[2].area.lut > 4 * points[0].area.lut

# SPDX-License-Identifier: Apache-2.0
"""Schedules given by the user: what a run or `tessera schedule` writes gives the same program again, edited ones give
other programs and the same results, illegal ones are refused by node and rule."""

import copy
import json
import sys

import numpy as np
import pytest

import tessera
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks


def program(session, folder, name):
    path = folder / name
    session.save(path)
    return path.read_bytes()


def levels(schedule, kind):
    return {level["dim"]: level["factor"] for level in schedule["levels"] if level["kind"] == kind}


@pytest.fixture(scope="module")
def resnet8():
    data, feeds = networks.build("resnet8")
    session = tessera.Session(data, "fsim", "npu256")
    return data, feeds, session.run(None, feeds), session


@pytest.fixture(scope="module")
def apart(resnet8):
    """The same network with a schedule of its own for each layer."""
    return tessera.Session(resnet8[0], "fsim", "npu256", chains=False)


@pytest.mark.parametrize("config", ["npu64", "npu256", "npu1024"])
def test_schedules_of_a_run_give_the_same_program(config, tmp_path):
    for name in ("resnet8", "ds_cnn"):
        data, feeds = networks.build(name)
        first = tessera.Session(data, "fsim", config)
        first.run(None, feeds)
        expected = program(first, tmp_path, "first.tsr")
        for schedules in (
            first.schedules(),
            first.stats(),
            {key: json.dumps(value) for key, value in first.schedules().items()},
        ):
            assert (
                program(tessera.Session(data, "fsim", config, schedules=schedules), tmp_path, "again.tsr") == expected
            )


def test_files_of_the_command_give_the_same_program(command, resnet8, tmp_path):
    model = networks.CACHE / "resnet8.onnx"
    steps = (
        ("compile", model, "-o", tmp_path / "first.tsr"),
        ("schedule", model, "-o", tmp_path / "schedules.json"),
        ("run", tmp_path / "first.tsr", "--random-inputs", 1, "--stats", tmp_path / "stats.json"),
        ("schedule", tmp_path / "first.tsr", "-o", tmp_path / "same.json"),
        ("compile", model, "-o", tmp_path / "second.tsr", "--schedule", tmp_path / "schedules.json"),
        ("compile", model, "-o", tmp_path / "third.tsr", "--schedule", tmp_path / "stats.json"),
    )
    for step in steps:
        done = command(*step, "-q")
        assert done.returncode == 0, done.stderr
    first = (tmp_path / "first.tsr").read_bytes()
    assert (tmp_path / "second.tsr").read_bytes() == first and (tmp_path / "third.tsr").read_bytes() == first
    text = (tmp_path / "schedules.json").read_text()
    assert (tmp_path / "same.json").read_text() == text and json.loads(text) == resnet8[3].schedules()
    assert list(json.loads(text)) == [
        layer.name for layer in resnet8[3].stats().layers if layer.placement == "npu"
    ]  # in order of execution


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "no-forward"])
@pytest.mark.parametrize("name", ["vww", "ds_cnn"])
def test_schedules_that_are_given_back_are_legal_and_take_no_more_cycles(name, forward):
    """Depthwise networks, whose schedules may come from a search without pairs of rows: with pairs some of them need
    more of INP than there is."""
    data, feeds = networks.build(name)
    own = tessera.Session(data, "fsim", "npu256", forward=forward)
    again = tessera.Session(data, "fsim", "npu256", forward=forward, schedules=own.schedules())
    for session in (own, again):
        session.run(None, feeds)
    assert again.stats().predicted_cycles <= own.stats().predicted_cycles


def test_the_guide_shows_the_first_rows_of_a_search(resnet8, command, tmp_path):
    (tmp_path / "resnet8.onnx").write_bytes(resnet8[0])
    printed = command("compile", tmp_path / "resnet8.onnx", "--config", "npu256", "--print-search").stdout.splitlines()
    text = (ROOT / "docs" / "schedules.md").read_text()
    shown = [line[4:] for line in text[text.index("    'conv0': chosen") :].split("\n\n")[0].splitlines()]
    assert printed[2 : 2 + len(shown)] == shown


def test_an_edited_schedule_changes_the_program_and_not_the_results(resnet8, apart, tmp_path):
    """The example of docs/schedules.md: conv2 (3x3, 16 channels, 32 x 32) in strips of two rows."""
    data, feeds, expected, _ = resnet8
    session = apart
    text = (ROOT / "docs" / "schedules.md").read_text()
    example, _ = json.JSONDecoder().raw_decode(text[text.index('{"conv2"') :])
    edited = tessera.Session(data, "fsim", "npu256", schedules={**session.schedules(), **example}, check_races=True)
    for got, want in zip(edited.run(None, feeds), expected):
        assert np.array_equal(got, want)
    layer = next(layer for layer in edited.stats().layers if layer.name == "conv2")
    assert layer.schedule["levels"][0] == {"dim": "oh", "factor": 16, "kind": "vthread", "threads": 2}
    assert layer.schedule["intrinsic"] == "dense" and levels(layer.schedule, "hwloop") == {
        "oh": 2,
        "ow": 32,
        "kh": 3,
        "kw": 3,
    }
    assert operand(layer.schedule, "input") == {"operand": "input", "attach": 1, "copies": 3, "halo": "reload"}
    assert operand(layer.schedule, "sums") == {"operand": "sums"}  # two copies follow from the threads
    assert layer.issued_macs == 16 * 576 * 256
    assert (
        layer.bytes["input"] == (14 * 4 + 2 * 3) * 32 * 16 == 31744
    )  # rows of tiles: two of them and a halo on either side inside the image
    others = {key: value for key, value in edited.schedules().items() if key != "conv2"}
    assert others == {key: value for key, value in session.schedules().items() if key != "conv2"}
    assert program(edited, tmp_path, "edited.tsr") != program(session, tmp_path, "usual.tsr")


def test_virtual_threads_decide_copies(resnet8, tmp_path):
    data, feeds, expected, _session = resnet8
    plain = {
        "intrinsic": "dense",
        "levels": [{"dim": "oh", "factor": 16, "kind": "temporal"}]
        + [{"dim": dim, "factor": n, "kind": "hwloop"} for dim, n in (("oh", 2), ("ow", 32), ("kh", 3), ("kw", 3))],
        "operands": [{"operand": name} for name in ("input", "weights", "sums", "output", "params")],
    }
    programs = set()
    for threads in (None, 2, 3, 4):
        schedule = copy.deepcopy(plain)
        if threads:
            schedule["levels"][0].update(kind="vthread", threads=threads)
        given = tessera.Session(data, "fsim", "npu256", schedules={"conv2": schedule}, check_races=True)
        assert all(np.array_equal(a, b) for a, b in zip(given.run(None, feeds), expected))
        programs.add(program(given, tmp_path, "threads.tsr"))
    assert len(programs) == 4
    operand(plain, "input")["copies"] = 2
    with pytest.raises(tessera.Error, match=r"node 'conv2'.*input has 2 copies and no level is a vthread"):
        tessera.Session(data, "fsim", "npu256", schedules={"conv2": plain})


def changed(schedule, change):
    schedule = copy.deepcopy(schedule)
    change(schedule)
    return schedule


def first(schedule, *kinds):
    return next(level for level in schedule["levels"] if level["kind"] in kinds)


def operand(schedule, name):
    return next(entry for entry in schedule["operands"] if entry["operand"] == name)


@pytest.mark.parametrize(
    "change,rule",
    [
        (lambda s: first(s, "temporal", "vthread").update(factor=2), "the levels of oh cover"),
        (lambda s: first(s, "hwloop").update(factor=4000), "a tile has 4000 of"),
        (lambda s: operand(s, "input").update(copies=100000), "inp needs .* entries of 2048"),
        (lambda s: operand(s, "weights").update(copies=0), "'copies' must be an integer of at least 1"),
        (lambda s: operand(s, "weights").update(scope="inp"), "weights has no choice of scope: leave it out"),
        (lambda s: operand(s, "weights").update(attach=7), "weights is fetched inside 7 levels, and there are"),
        (lambda s: operand(s, "output").update(attach=0), "output is not fetched: it has no attach"),
        (lambda s: s.update(intrinsic="map"), "the intrinsic of this operation is dense, not map"),
        (lambda s: s.pop("intrinsic"), "'intrinsic' is missing"),
        (lambda s: s["levels"][0].update(kind="vthread", threads=99), "runs from 2 to as many iterations at once"),
        (lambda s: operand(s, "output").update(halo="recompute"), "'halo' is \"recompute\"; known: reload"),
        (lambda s: s["operands"].remove(operand(s, "sums")), "operand sums is missing"),
        (lambda s: s["levels"].reverse(), "levels must come in the order temporal and vthread, hwloop"),
        (
            lambda s: s["levels"].insert(0, {"dim": "kh", "factor": 3, "kind": "temporal"}),
            "temporal reduction levels must be the innermost ones",
        ),
        (
            lambda s: s["levels"].insert(0, {"dim": "x", "factor": 3, "kind": "temporal"}),
            "known: n, g, oc, oh, ow, ic, kh, kw",
        ),
        (lambda s: s["levels"].append({"dim": "oc", "factor": 8, "kind": "lane"}), "known: temporal, vthread, hwloop"),
        (lambda s: s.update(input_layout="nchw"), "'input_layout' is \"nchw\"; known: nhwc"),
        (lambda s: s.update(input_layout="fold(kw)"), r"input_layout 'fold\(kw\)' is not 'nhwc'"),
        (lambda s: s.pop("levels"), "'levels' is missing"),
    ],
)
def test_illegal_schedules_are_refused_by_node_and_rule(resnet8, apart, change, rule):
    data = resnet8[0]
    with pytest.raises(tessera.Error, match=rf"node 'conv2'( \(QLinearConv\) on npu256)?: .*{rule}") as error:
        tessera.Session(data, "fsim", "npu256", schedules={"conv2": changed(apart.schedules()["conv2"], change)})
    assert error.value.code == "invalid_argument"


def test_schedules_of_what_is_no_layer_are_refused(command, resnet8, apart, tmp_path):
    data, _, _, session = resnet8
    schedule = apart.schedules()["conv2"]
    fused = next(layer for layer in session.stats().layers if layer.placement == "npu" and len(layer.nodes) > 1)
    inner = next(node for node in fused.nodes if node != fused.name)
    on_cpu = next(layer for layer in session.stats().layers if layer.placement == "cpu")
    for name, words in (
        ("conv999", "no layer on the NPU has this name"),
        (inner, f"it is part of layer '{fused.name}'"),
        (on_cpu.name, "it runs on the CPU"),
    ):
        with pytest.raises(tessera.Error, match=f"node '{name}': a schedule is given, but {words}"):
            tessera.Session(data, "fsim", "npu256", schedules={name: schedule})
    for text, words in (("[1]", "expected an object"), ("{", "is not JSON")):
        (tmp_path / "bad.json").write_text(text)
        done = command(
            "compile", networks.CACHE / "resnet8.onnx", "-o", tmp_path / "x.tsr", "--schedule", tmp_path / "bad.json"
        )
        assert done.returncode == 1 and words in done.stderr


def one_of_each(schedule):
    """No level is a vthread, and no operand has a copy beside the one that follows."""
    kinds = {level["kind"] for level in schedule["levels"]}
    return "vthread" not in kinds and not any("copies" in entry for entry in schedule["operands"])


@pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model")
@pytest.mark.parametrize(
    "name, times", [("resnet8", 1.1), ("autoencoder", 1.01)], ids=["bound by products", "bound by weights"]
)
def test_one_copy_of_each_operand_is_slower(name, times):
    data, feeds = networks.build(name)
    stats, outputs = {}, {}
    for virtual_threads in (False, True):
        session = tessera.Session(data, "sysc", "npu256", virtual_threads=virtual_threads)
        outputs[virtual_threads] = session.run(None, feeds)
        stats[virtual_threads] = session.stats()
    for schedule in (layer.schedule for layer in stats[False].layers if layer.placement == "npu"):
        assert one_of_each(schedule)
    assert all(np.array_equal(a, b) for a, b in zip(outputs[False], outputs[True]))
    assert stats[False].cycles > times * stats[True].cycles


def test_one_copy_on_the_command_line(command, tmp_path):
    networks.build("resnet8")
    done = command("schedule", networks.CACHE / "resnet8.onnx", "--no-vthreads")
    assert done.returncode == 0, done.stderr
    schedules = json.loads(done.stdout)
    assert len(schedules) > 8 and all(one_of_each(schedule) for schedule in schedules.values())


def test_no_other_strips_of_a_chain_make_a_short_program_faster():
    """A program of few instructions is settled as a whole: each of its chains by what all of it takes."""
    data, feeds = networks.build("ds_cnn")

    def measured(schedules):
        session = tessera.Session(data, "sysc", "npu256", schedules=schedules)
        session.run(None, feeds)
        stats = session.stats()
        return stats["cycles"] + 0.2 * (stats["dram_read_bytes"] + stats["dram_write_bytes"]) / 8

    own = tessera.Session(data, "sysc", "npu256").schedules()
    best = measured(own)
    for name in ("conv4", "conv12"):
        links = own[name]["chain"]
        for strips in {32, 64, 128} - {own[name]["tile"].get("strips", 0)}:
            changed = {link: {"chain": links, "tile": {**own[name]["tile"], "strips": strips}} for link in links}
            assert best <= 1.01 * measured({**own, **changed}), (name, strips)

# SPDX-License-Identifier: Apache-2.0
"""How the compiler's search is steered and looked at: the candidates it prints, searchers and cost models by name, and
predictions that follow the memory that a program is compiled for."""

import re
import sys

import numpy as np
import pytest

import tessera
from tests.system.conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

ROW = re.compile(r"^(->|  )?\s+(\d+)\s+(\d+)\s+(\d+|-)\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+(\S.*)$")


def test_the_candidates_are_printed_with_their_costs_and_why_the_winner_won(command, tmp_path):
    networks.build("ds_cnn")
    model = networks.CACHE / "ds_cnn.onnx"
    done = command("compile", model, "-o", tmp_path / "looked.tsr", "--print-search", "-q")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("search 'exhaustive' by 'closed-form', judged by 'replay'")
    pieces = re.split(r"\n\n", done.stdout.strip())[1:]
    chosen = {}
    for piece in pieces:
        title, *lines = piece.splitlines()
        names = re.findall(r"'([^']+)'", title.split(": ")[0])
        rows = [match.groups() for match in map(ROW.match, lines) if match]
        assert names and rows, piece
        winners = [row for row in rows if row[0] == "->"]
        assert len(winners) == 1, piece
        if ": chosen, " in title:
            chosen.update(dict.fromkeys(names, winners[0][7]))
            in_place = [int(row[6]) for row in rows if row[6] != "-"]
            assert not in_place or int(winners[0][6]) == min(in_place), piece
        else:
            assert "score" in title
    plain = tessera.Session(model, "fsim", "npu256")
    schedules = plain.schedules()
    assert set(chosen) == set(schedules)
    for name, schedule in schedules.items():
        if "chain" in schedule:
            tile = schedule["tile"]
            whole = " whole input" if tile.get("input") == "whole" else ""
            whole += " keeps rows" if tile.get("halo") == "keep" else ""
            whole += f" copies{tile['copies']}" if "copies" in tile else ""
            assert chosen[name] == f"oh{tile['oh']} ow{tile['ow']} blocks{tile['blocks']}{whole}"
        else:
            outer = [level for level in schedule["levels"] if level["kind"] != "hwloop"]
            assert [word.split(":")[0] for word in chosen[name].split("|")[0].split()] == [x["dim"] for x in outer]
    plain.save(tmp_path / "plain.tsr")
    assert (tmp_path / "plain.tsr").read_bytes() == (tmp_path / "looked.tsr").read_bytes()  # looking changes nothing


@pytest.mark.parametrize("name", ["ds_cnn", "vww"])
def test_what_stays_on_the_chip_decides_how_a_short_stream_is_cut(name):
    """The oracle is the timing model: under schedules that were chosen as if every result were fetched again, with the
    same results kept on the chip, a network takes longer."""
    data, feeds = networks.build(name)
    apart = tessera.Session(data, "fsim", "npu256", forward=False).schedules()
    cycles = []
    for options in ({}, {"schedules": apart}):
        session = tessera.Session(data, "sysc", "npu256", **options)
        session.run(None, feeds)
        cycles.append(session.stats().cycles)
    assert cycles[0] < cycles[1]


def test_models_and_searchers_come_by_name(command, tmp_path):
    data, feeds = networks.build("ds_cnn")
    expected = tessera.Session(data, "fsim", "npu256").run(None, feeds)
    session = tessera.Session(data, "fsim", "npu256", cost_model="replay", chains=False)
    assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected))
    # Another judge: the closed form ranks and decides alone, so that nothing is replayed or tried between neighbours.
    session = tessera.Session(data, "fsim", "npu256", judge="closed-form")
    assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected))
    options = ("--judge", "closed-form", "--print-search", "-q")
    done = command("compile", networks.CACHE / "ds_cnn.onnx", "-o", tmp_path / "judged.tsr", *options)
    rows = [match.groups() for match in map(ROW.match, done.stdout.splitlines()) if match]
    assert rows and all(row[1] == row[3] and row[6] == "-" for row in rows if row[3] != "-")
    for options, words in (
        ({"search": "luck"}, "there is no searcher 'luck'; known: 'exhaustive'"),
        ({"judge": "jury"}, "there is no cost model 'jury'"),
        ({"cost_model": "guess"}, "there is no cost model 'guess'; known: 'closed-form', 'replay'"),
    ):
        with pytest.raises(tessera.Error, match=words):
            tessera.Session(data, "fsim", "npu256", **options).run(None, feeds)
    done = command("compile", networks.CACHE / "ds_cnn.onnx", "-o", tmp_path / "x.tsr", "--search", "luck")
    assert done.returncode == 1 and "there is no searcher 'luck'" in done.stderr


@pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model")
@pytest.mark.parametrize("memory", [{"dram_latency": 20}, {"dram_latency": 700}, {"dram_bandwidth": 2}], ids=str)
@pytest.mark.parametrize("name", ["resnet8", "vww", "autoencoder"])
def test_predictions_follow_the_memory(name, memory):
    """Within 6.5 % of the timing model (Visual Wake Words at a latency of 700: 6.3 %); a prediction for the usual
    memory would be wrong by more."""
    data, feeds = networks.build(name)

    def run(**options):
        session = tessera.Session(data, "sysc", "npu256", **options)
        session.run(None, feeds)
        stats = session.stats()
        return stats.cycles, sum(layer.predicted_cycles for layer in stats.layers if layer.placement == "npu")

    cycles, predicted = run(**memory)
    assert abs(predicted - cycles) <= 0.065 * cycles
    if (name, memory) in (("vww", {"dram_latency": 700}), ("vww", {"dram_bandwidth": 2})):
        usual = run()[1]
        assert abs(usual - cycles) > 0.2 * cycles

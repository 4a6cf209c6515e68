# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' own figures: the keys that readers rely on, and a layer whose traffic is counted by hand."""

import json
import os
import re
import subprocess
import sys

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

pytestmark = [
    pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model"),
    pytest.mark.usefixtures("compiled_once"),
]


def bench(*arguments):
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "run.py", "--build", BUILD, "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["explore", "front.json"], "there is no 'front.json'; it takes 'resnet18', .*; --json prints"),
        (["decoding", "vww"], "there is no 'vww'; it takes '15 M parameters, TinyStories' shape', "),
        (["functional", "resnet8"], "it takes no names"),
        (["apps", "ocr"], "there is no 'ocr'; it takes 'rapidocr', 'magika', "),
        (["sources", "yesterday"], "git knows no revision 'yesterday'"),
        (["networks", "--config", "npu7"], "no machine 'npu7'; shipped are kv260, "),
    ],
)
def test_names_that_are_not_known(arguments, says):
    line = [sys.executable, ROOT / "bench" / "run.py", "--build", BUILD, "--json", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and done.stdout == ""
    assert re.search(says, done.stderr) and done.stderr.count("\n") == 1, done.stderr


def test_every_benchmark_is_named_where_people_look():
    names = set(re.findall(r'^    "(\w+)": ', (ROOT / "bench" / "run.py").read_text(), re.M))
    usage = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    listed = re.search(r"bench NAME \[--json\](.*?)\(does build", usage, re.S)[1]
    assert set(re.findall(r"\w+", listed)) == names
    assert names <= set(re.findall(r"^\| `(\w+)` \|", (ROOT / "bench" / "README.md").read_text(), re.M))


@pytest.mark.parametrize(
    "words, status, says",
    [
        (["bench", "--help"], 0, "usage: ./dev bench"),
        (["bench"], 2, "required: name"),
        (["bench", "nothing", "--json"], 2, "invalid choice: 'nothing'"),
        (["test", "--help"], 0, "usage: ./dev test"),
        (["conformance", "--device", "sysc", "-h"], 0, "usage: ./dev conformance"),
        (["lint", "--help"], 0, "usage: ./dev lint"),
        (["synth", "--help"], 0, "synth [-h]"),
    ],
)
def test_help_and_wrong_names_need_no_build(tmp_path, words, status, says):
    (tmp_path / "cmake").write_text("#!/bin/sh\necho cmake was started >&2\nexit 9\n")
    (tmp_path / "cmake").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "dev", *words], capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=60
    )
    assert done.returncode == status and says in done.stdout + done.stderr, done.stderr


def test_scores_of_applications(monkeypatch):
    """Answers that differ in known ways; the applications themselves are no part of the tests."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import apps

    assert apps.characters({"a": ["one two", "three"]}, {"a": ["onetwo", "threes"]}) == 1 - 2 / 13
    assert apps.labels({"a": ["c", 0.9], "b": ["go", 1.0]}, {"a": ["c", 0.7], "b": ["c", 1.0]}) == 0.5
    assert apps.notes({"a": [[0, 1, 60], [1, 2, 62]]}, {"a": [[0.04, 3, 60], [1.2, 2, 62]]}) == 0.5
    assert apps.segments({"a": [[0, 5000], [9000, 12000]]}, {"a": [[1024, 5000]]}) == 2 / 3
    assert apps.scores({"a": {"hey": 0.5}}, {"a": {"hey": 0.25}}) == 0.25
    assert apps.boxes({"a": [["text", 1, 0, 0, 10, 10]]}, {"a": [["text", 1, 0, 0, 10, 5]]}) == 0.5
    assert apps.alike(["c", 0.5, [1, 2]], ["c", 0.5004, [1, 2]]) and not apps.alike(["c", 0.5], ["c", 0.502])
    assert all((ROOT / "examples" / "apps" / app.driver).is_file() for app in apps.APPS.values())


def test_sizes_of_sources(monkeypatch):
    """Files of which everything is known: what repeats, what is long, where a file belongs."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import sources

    block = [f"value_{n} = {n}" for n in range(8)]
    files = {"ops/a.py": "\n\n".join(block), "sim/memory/b.py": "\n".join(["import a", *block[:7], "end", *block[1:7]])}
    assert sources.repeated_blocks(files) == 2
    assert sources.repeated_blocks({"ops/a.py": "\n".join(block), "ops/b.py": "\n".join(block[:5])}) == 0
    assert [sources.lines_of(text) for text in files.values()] == [8, 15]
    assert [sources.room_of(name) for name in [*files, "dev"]] == ["ops", "sim/memory", "."]
    figures = {row["figure"]: row["now"] for row in sources.bench([])["sources"]}
    assert figures["circles"] == 0 and figures["lines"] > figures["lines_of_tests"] > 0


def test_quantize():
    pytest.importorskip("PIL", reason="Pillow is not installed (requirements-quantize.txt)")
    result, _ = bench("quantize", "digits")
    ways = {row["way"]: row for row in result["quantize"]}
    assert {"float", "onnxruntime default", "onnxruntime"} <= set(ways)
    own = ways["onnxruntime"]
    assert own["products_on_npu_percent"] == 100.0 and own["cycles"] > 0 and own["equal_to_onnx_runtime"]
    assert own["score"].endswith("of 360 right")


def test_networks():
    result, _ = bench("networks", "--device", "sysc", "resnet8", "--config", "npu64")
    (row,) = result["networks"]
    assert (
        row["network"] == "resnet8"
        and row["config"] == "npu64"
        and row["equal_to_oracle"]
        and row["rtl_cycles"] is None
    )
    assert (
        row["systemc_cycles"] >= row["bound_cycles"] > row["macs"] / 64 - 64
        and row["predicted_cycles"] > 0
        and row["dram_bytes"] > 0
    )
    assert row["times_bound"] == round(row["systemc_cycles"] / row["bound_cycles"], 3) >= 1
    assert row["utilization"] == round(row["macs"] / row["systemc_cycles"] / 64, 3) <= 1


def test_layers():
    result, messages = bench("layers", "--device", "sysc", "resnet18.C4", "resnet18.C7")
    rows = {row["layer"]: row for row in result["layers"]}
    assert list(rows) == ["resnet18.C4", "resnet18.C7"] and all(row["equal_to_oracle"] for row in rows.values())
    small = rows["resnet18.C4"]  # 1x1, stride 2, 64 channels of 56 x 56 to 128 of 28 x 28
    assert small["dram_write_bytes"] == 128 * 28 * 28
    assert small["dram_read_bytes"] >= 64 * 28 * 28 + 64 * 128  # every second row and column, the weights
    assert small["systemc_cycles"] >= small["bound_cycles"] >= 28 * 28 * 4 * 8
    total = result["total"]
    assert total["systemc_cycles"] == sum(row["systemc_cycles"] for row in rows.values())
    if "without VTA's figures" in messages:
        assert "more_bytes_than_vta" not in result and "vta_cycles" not in small
    else:
        assert total["vta_cycles"] == 134872 + 102877 and small["cycles_ratio"] == round(
            small["systemc_cycles"] / 134872, 3
        )
        assert (
            result["more_cycles_than_vta"]
            == result["more_bytes_than_vta"]
            == result["compulsory_bytes_above_vta"]
            == []
        )
    assert small["compulsory_bytes"] == 64 * 28 * 28 + 64 * 128 + 8 * 128 + 128 * 28 * 28 <= small["data_bytes"]


def test_copies_of_operands_are_worth_cycles():
    result, _ = bench("vthreads", "resnet8")
    without, with_copies = result["vthreads"]
    assert not without["virtual_threads"] and with_copies["virtual_threads"]
    assert (
        without["systemc_cycles"] > with_copies["systemc_cycles"]
        and without["utilization"] < with_copies["utilization"]
    )


@pytest.mark.parametrize("config", ["npu64", "npu256"])
def test_predictions_hold(config):
    """What the compiler says before anything runs, against the timing model."""
    result, _ = bench("networks", "--device", "sysc", "--config", config, "resnet8", "vww", "ds_cnn", "autoencoder")
    assert len(result["networks"]) == 4
    for row in result["networks"]:
        assert row["equal_to_oracle"] and abs(row["prediction_error_percent"]) <= 5, row
        assert row["prediction_error_percent"] == round(100 * (row["predicted_cycles"] / row["systemc_cycles"] - 1), 1)


def test_chains_save_cycles_bytes_and_memory():
    result, _ = bench("chains", "vww")
    apart, chained = result["chains"]
    assert not apart["chains"] and chained["chains"]
    for figure in ("systemc_cycles", "dram_bytes"):
        assert chained[figure] < apart[figure], figure
    assert chained["arena_bytes"] <= apart["arena_bytes"]


SHOWN = {
    "resnet8": "MLPerf Tiny ResNet-8",
    "vww": "MLPerf Tiny Visual Wake Words",
    "ds_cnn": "MLPerf Tiny DS-CNN",
    "autoencoder": "MLPerf Tiny autoencoder",
    "mobilenetv2": "MobileNetV2",
    "encoder": "transformer encoder block",
}


def test_networks_take_the_cycles_that_the_readme_shows():
    """The table holds RTL cycles; within a fiftieth, so that neither a worse choice of schedules nor a stale table goes
    unnoticed."""
    result, _ = bench("networks", "--device", "sysc", "--config", "npu256", *SHOWN)
    table = [
        [cell.strip() for cell in line.split("|")]
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    shown = {cells[1]: int(cells[3].replace(",", "")) for cells in table if len(cells) > 3 and cells[2] == "npu256"}
    for row in result["networks"]:
        assert row["equal_to_oracle"] and abs(row["systemc_cycles"] / shown[SHOWN[row["network"]]] - 1) < 0.02, row
    assert len(result["networks"]) == len(SHOWN)


def test_layers_move_few_bytes_twice():
    """Two layers whose every byte crosses the bus once, one of them with rows that its tiles share; and one with
    weights that stay."""
    result, _ = bench("layers", "--device", "sysc", "mobilenetG.D5", "resnet18.C4", "resnet18.C8")
    rows = {row["layer"]: row for row in result["layers"]}
    for name in ("mobilenetG.D5", "resnet18.C4"):
        assert rows[name]["data_bytes"] == rows[name]["compulsory_bytes"]
    assert rows["resnet18.C8"]["data_bytes"] < 1.2 * rows["resnet18.C8"]["compulsory_bytes"]


def test_silicon(monkeypatch):
    """The figures of a row follow from area, delay and counts of the run, computed here by hand."""
    for folder in ("bench", "hw/synth"):
        monkeypatch.syspath_prepend(ROOT / folder)
    import silicon

    monkeypatch.setattr(silicon, "recorded", lambda config: (20000, 50, 60, 5.0))
    result = silicon.bench(["ds_cnn"], "npu64", "sysc")
    assert result["estimated_megahertz"] == 100.0 and "vta" not in result
    (row,) = result["silicon"]
    rate = 100e6 / row["cycles"]
    assert row["inferences_per_second"] == round(rate, 2)
    assert row["per_thousand_lut"] == round(rate / 20, 3) and row["per_dsp"] == round(rate / 50, 3)
    parts = row["of_them"]
    # Every multiply-accumulate of the network is issued at least once, and reads a weight; weights come from DRAM.
    macs = 2656768
    assert parts["multiply_accumulate"] >= round(macs * 0.3e-6, 2)
    assert parts["scratchpads"] >= round(macs * (1 + 1 / 8) * 1.25e-6, 2)
    assert row["estimated_microjoules"] == round(sum(parts.values()), 1) and parts["dram"] > 0


def test_silicon_wants_recorded_figures():
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "run.py", "--build", BUILD, "silicon", "--config", "odd2x4x8"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "area and delay of odd2x4x8 are not recorded" in done.stderr

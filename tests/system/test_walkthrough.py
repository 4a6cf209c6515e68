# SPDX-License-Identifier: Apache-2.0
"""docs/walkthrough.md shows instructions and cycles of the digits network on npu64: they must be those of today."""

import json
import re
import subprocess

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

TEXT = (ROOT / "docs" / "walkthrough.md").read_text()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    path = tmp_path_factory.mktemp("walkthrough") / "digits.tsr"
    tessera.compile(ROOT / "examples" / "digits" / "digits.onnx", path, "npu64", shapes={"image": [1, 1, 8, 8]})
    return path


def command(*arguments):
    done = subprocess.run([str(BUILD / "bin" / "tessera"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_listing_is_part_of_the_program(artifact):
    listing = TEXT[TEXT.index("```text") :].split("```")[1].removeprefix("text\n")
    assert listing.count("\n") == 11
    assert listing in command("disasm", artifact)


def test_the_schedule_is_the_compiler_s_choice(artifact):
    row = next(line for line in command("report", artifact).splitlines() if line.startswith("conv2"))
    shown = re.search(r"in short: `(.*?)`", " ".join(TEXT.split()))[1]
    assert row.endswith(shown)


def test_the_cycles_are_those_of_the_timing_model(artifact, tmp_path):
    if "sysc" not in tessera.backends():
        pytest.skip("this build has no timing model")
    command("run", artifact, "--device", "sysc", "--random-inputs", 1, "--trace", tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    measured = {
        event["args"]["pc"]: [
            event["args"]["queued"],
            event["args"]["taken"],
            event["ts"],
            event["ts"] + event["dur"] - 1,
            event["args"]["completed"],
        ]
        for event in events
        if "taken" in event.get("args", {})
    }
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and line[2:4].isdigit()]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    shown = {int(cells[0]): [int(cell) for cell in cells[2:]] for cells in rows}
    assert len(shown) == 11
    assert {pc: measured[pc] for pc in shown} == shown
    drawn = re.findall(r"^    (\d+) [a-z].* : (\d+), (\d+)$", TEXT, re.M)  # the picture: busy cycles
    assert {int(pc): [int(first), int(end) - 1] for pc, first, end in drawn} == {
        pc: row[2:4] for pc, row in shown.items()
    }
    assert f"words 15 to 25 : {shown[15][0]}, {shown[25][0] + 1}\n" in TEXT

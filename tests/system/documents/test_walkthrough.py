# SPDX-License-Identifier: Apache-2.0
"""docs/walkthrough.md shows instructions and cycles of the digits network on npu64: they must be those of today.

When they change for a reason, `python tests/system/documents/test_walkthrough.py --update` writes the table and the
picture of the cycles again, and says which numbers of the text around them are no longer in the table."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

PAGE = ROOT / "docs" / "walkthrough.md"
TEXT = PAGE.read_text()
ROW = re.compile(r"^\| (\d+) \| ([A-Z]+) \| (.*) \|$", re.M)
BAR = re.compile(r"^(    (\d+) [a-z].* : )\d+, \d+$", re.M)
FETCH = re.compile(r"(words (\d+) to (\d+) : )\d+, \d+")


def compile_digits(path):
    model, shapes = ROOT / "examples" / "digits" / "digits.onnx", {"image": [1, 1, 8, 8]}
    apart = tessera.Session(model, "fsim", "npu64", shapes=shapes, forward=False)
    tessera.compile(model, path, "npu64", shapes=shapes, schedules=apart.schedules())
    return path


def command(*arguments):
    done = subprocess.run([str(BUILD / "bin" / "tessera"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measure(artifact, folder):
    """{pc: [queued, taken, first busy, last busy, completed]} of a run of the timing model."""
    trace = pathlib.Path(folder) / "trace.json"
    command("run", artifact, "--device", "sysc", "--random-inputs", 1, "--trace", trace)
    return {
        event["args"]["pc"]: [
            event["args"]["queued"],
            event["args"]["taken"],
            event["ts"],
            event["ts"] + event["dur"] - 1,
            event["args"]["completed"],
        ]
        for event in json.loads(trace.read_text())["traceEvents"]
        if "taken" in event.get("args", {})
    }


def with_cycles(text, measured):
    """The page with these cycles in its table and its picture."""

    def bar(match):
        _, _, first, last, _ = measured[int(match[2])]
        return f"{match[1]}{first}, {last + 1}"

    def fetch(match):
        return f"{match[1]}{measured[int(match[2])][0]}, {measured[int(match[3])][0] + 1}"

    text = ROW.sub(lambda row: f"| {row[1]} | {row[2]} | {' | '.join(map(str, measured[int(row[1])]))} |", text)
    return FETCH.sub(fetch, BAR.sub(bar, text))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return compile_digits(tmp_path_factory.mktemp("walkthrough") / "digits.tsr")


def test_the_listing_is_part_of_the_program(artifact):
    listing = TEXT[TEXT.index("```text") :].split("```")[1].removeprefix("text\n")
    assert listing.count("\n") == 8
    assert listing in command("disasm", artifact)


def test_the_schedule_is_the_compiler_s_choice(artifact):
    row = next(line for line in command("report", artifact).splitlines() if line.startswith("conv2"))
    shown = re.search(r"in short: `(.*?)`", " ".join(TEXT.split()))[1]
    assert row.endswith(shown)


def test_the_cycles_are_those_of_the_timing_model(artifact, tmp_path):
    if "sysc" not in tessera.backends():
        pytest.skip("this build has no timing model")
    assert (len(ROW.findall(TEXT)), len(BAR.findall(TEXT)), len(FETCH.findall(TEXT))) == (10, 10, 1)
    assert with_cycles(TEXT, measure(artifact, tmp_path)) == TEXT


def stale_numbers(text):
    """Numbers of three digits or more behind the table that neither the table nor the text before it has."""
    before, behind = text.split("The forms of [isa/timing.md]")
    return sorted(set(re.findall(r"\d{3,}", behind)) - set(re.findall(r"\d{3,}", before)), key=int)


def test_the_text_s_cycles_are_those_of_the_table():
    assert stale_numbers(TEXT) == []


def update():
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(compile_digits(pathlib.Path(folder) / "digits.tsr"), folder)
    after = with_cycles(TEXT, measured)
    PAGE.write_text(after)
    stale = stale_numbers(after)
    print("written" + (f"; mend in the text: {', '.join(stale)}" if stale else ""))


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(f"usage: {sys.argv[0]} --update")
    update()

# SPDX-License-Identifier: Apache-2.0
"""The stages of `./dev test`: one after the other, lint beside the next one and shown behind it."""

import argparse
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import run  # noqa: E402


def stages(folder, failed):
    """Lint that waits for the unit tests and says much, then these, which need that lint runs."""
    wait = "import pathlib, time\nwhile not pathlib.Path({!r}).exists():\n    time.sleep(0.01)\n"
    begun, done = str(folder / "begun"), str(folder / "done")
    lint = f"open({begun!r}, 'w')\n{wait.format(done)}print('much\\n' * 99999)\n"
    lint += f"print('lint: 3 checks passed, {failed} failed')\nexit({failed})"
    unit = f"{wait.format(begun)}print('100% tests passed, 0 tests failed out of 5', flush=True)\nopen({done!r}, 'w')"
    yield run.Stage("lint", [sys.executable, "-c", lint], beside=True)
    yield run.Stage("unit", [sys.executable, "-c", unit], unchanged=2)


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("only", [None, "lint"])
def test_lint_runs_beside_the_unit_tests(tmp_path, capsys, failed, only):
    if only:
        (tmp_path / "done").touch()
    options = argparse.Namespace(build=str(tmp_path), only=only)
    assert run.run(stages(tmp_path, failed), options, None) == failed
    shown = capsys.readouterr().out
    assert shown.count("=== lint: 3 passed") == 1 and shown.count("much") >= 99999
    unit = shown.find("=== unit: 5 passed, 0 failed, 0 skipped, 2 unchanged since they passed")
    assert (0 < unit < shown.find("=== lint: 3 passed")) != bool(only)
    total = f"{3 if only else 8} passed, {failed} failed, 0 skipped"
    assert shown.rstrip().splitlines()[-1].startswith(total)

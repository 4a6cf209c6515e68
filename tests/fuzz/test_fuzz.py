# SPDX-License-Identifier: Apache-2.0
"""A short run of every fuzzer, the same inputs each time: thousands of what is fast, hundreds of what compiles. What
libFuzzer and the sanitizers look for is in `./dev fuzz`. TESSERA_LONG takes twenty times as many, TESSERA_SEED another
seed."""

import os
import subprocess

import pytest

from tests.fuzz import seeds
from tests.system.conftest import BUILD

RUNS = {
    "container": 5000,
    "artifact": 4000,
    "assembler": 8000,
    "schedule": 500,
    "onnx": 600,
    "litert": 2000,
    "board": 100,
}
FACTOR = 20 if os.environ.get("TESSERA_LONG") else 1


@pytest.fixture(scope="module")
def folder():
    path = BUILD / "fuzz" / "seeds"
    seeds.make(path, BUILD / "bin" / "tessera", count=2)
    return path


@pytest.mark.parametrize("target", RUNS)
def test_short_run(target, folder, tmp_path):
    program = BUILD / "bin" / f"fuzz_{target}"
    if not program.exists():
        pytest.skip(f"this build has no {program.name}")
    words = ["--runs", RUNS[target] * FACTOR, "--seed", os.environ.get("TESSERA_SEED", "1"), "--folder", tmp_path]
    done = subprocess.run(
        [str(program), *map(str, words), str(folder / target)],
        capture_output=True,
        text=True,
        errors="replace",
        env=dict(os.environ, TESSERA_FUZZ_MODELS=str(folder / "models")),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no finding" in done.stdout

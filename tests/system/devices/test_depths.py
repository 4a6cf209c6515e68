# SPDX-License-Identifier: Apache-2.0
"""A deeper pipeline is one edit. Long form: in a copy of the sources, registers are added in isa/timing.toml, the rest
is generated; then the RTL computes what it did, in the cycles that its closed forms give, and the timing model and the
compiler's prediction count the same."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.oracle.compare import LONG
from tests.system.conftest import ROOT

pytestmark = [
    pytest.mark.skipif(not LONG, reason="a build of half an hour; TESSERA_LONG=1"),
    pytest.mark.skipif(not shutil.which("verilator"), reason="verilator is not installed"),
]

# Pipeline, place, registers: one more behind the second operation, in the range checks, and behind the first stage.
DEEPER = [("second_op", "clamp", 2), ("range", "product", 1), ("requantise", "clamp", 2)]
TESTS = ["gemm_bench", "alu_bench", "systemc_timing_test", "systemc_rtl_timing_test", "emit_test"]


def with_registers(text, pipeline, place, registers):
    """timing.toml with another number of registers at one place."""
    pattern = rf'(name = "{pipeline}"\n.*?{{ name = "{place}", registers = )\d+'
    changed, count = re.subn(pattern, rf"\g<1>{registers}", text, count=1, flags=re.S)
    assert count == 1
    return changed


def run(command, folder, timeout):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_more_registers_are_one_edit(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    data = tmp_path / "isa" / "timing.toml"
    for pipeline, place, registers in DEEPER:
        data.write_text(with_registers(data.read_text(), pipeline, place, registers))
    wrote = run([sys.executable, tmp_path / "isa" / "generate.py"], tmp_path, 60)
    assert {"wrote timing.h", "wrote tsr_isa_pkg.sv", "wrote timing.md"} <= set(wrote.splitlines())
    header = (tmp_path / "isa" / "generated" / "timing.h").read_text()
    assert "kSecond = 32;" in header and "kPrepare = 8;" in header and "kWrite = 5;" in header

    build = tmp_path / "build"
    options = ["-DTESSERA_COMPILER=OFF", "-DTESSERA_BENCH=OFF", "-DTESSERA_RTL_CONFIGS=npu64"]
    run(["cmake", "--preset", "release", "-B", build, *options], tmp_path, 1800)
    run(["ninja", "-C", build, "-j", str(max(2, (os.cpu_count() or 2) // 2)), *TESTS], tmp_path, 7200)
    for test in TESTS:
        run([build / "bin" / test], tmp_path, 1800)

# SPDX-License-Identifier: Apache-2.0
"""The smoke test for boards, run against devices that need none, and told of a device that computes something else."""

import re
import subprocess
import sys

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

SMOKE = ROOT / "hw" / "fpga" / "smoke.py"


def smoke(*arguments, command=BUILD / "bin" / "tessera"):
    return subprocess.run(
        [sys.executable, "-B", SMOKE, "--tessera", command, "--config", "npu64", *arguments],
        capture_output=True,
        text=True,
    )


def test_a_device_that_agrees():
    device = "sysc" if "sysc" in tessera.backends() else "fsim"
    result = smoke("--device", device, "--runs", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "160 outputs equal to fsim, 16 of 16 digits right" in result.stdout


def test_the_guide_shows_what_the_timing_model_counts():
    if "sysc" not in tessera.backends():
        pytest.skip("this build has no timing model")
    shown = re.findall("^    (run .*|device .*)$", (ROOT / "docs" / "fpga.md").read_text(), re.M)
    result = smoke("--device", "sysc")
    assert result.stdout.replace("'sysc'", "'xrt'").splitlines() == shown


def test_a_device_that_differs(tmp_path):
    """A command that spoils one output of the second device."""
    command = tmp_path / "tessera"
    command.write_text(f'''#!{sys.executable}
import subprocess, sys
import numpy as np
done = subprocess.run(["{BUILD / "bin" / "tessera"}", *sys.argv[1:]])
path = sys.argv[sys.argv.index("-o") + 1]
if path.endswith("got.npy"):
    values = np.load(path)
    values[3, 7] += 1
    np.save(path, values)
sys.exit(done.returncode)
''')
    command.chmod(0o755)
    result = smoke("--device", "fsim", "--runs", "1", command=command)
    assert result.returncode == 1
    assert "device 'fsim' differs from fsim, first at (3, 7)" in result.stdout


def test_a_missing_board():
    result = smoke("--device", "nothing", "--runs", "1")
    assert result.returncode == 1
    assert "nothing" in result.stderr and "smoke.py:" in result.stderr

# SPDX-License-Identifier: Apache-2.0
"""The DRAM of the simulators beside LiteDRAM itself: its controller and AXI port, verilated, and the same traffic."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.litex import dram_traffic

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "litex"
LITEX = ROOT / "build" / "litex" / "bin" / "python"
# preset, bytes of a beat, bytes of memory that the oracle has, bytes of which bursts are multiples
PORTS = [
    ("sdr-100x16", 8, 1 << 21, 8),  # of ULX3S: each beat is two commands
    ("ddr3-800x16", 16, 1 << 23, 16),
    ("ddr3-800x16", 8, 1 << 23, 16),  # two beats are a command
]


@pytest.fixture(scope="module")
def litex():
    """The interpreter that has LiteDRAM."""
    python = os.environ.get("TESSERA_LITEX_PYTHON", str(LITEX))
    if not pathlib.Path(python).exists():
        pytest.skip("LiteX is not installed (./dev setup --extras litex)")
    return python


def test_times_are_litedrams(litex):
    _tessera = pytest.importorskip("_tessera")
    done = subprocess.run([litex, HERE / "dram_oracle.py", "--timings"], capture_output=True, text=True, check=True)
    for family, wanted in json.loads(done.stdout).items():
        found = _tessera.dram_preset(f"{family}x16")
        assert {name: found[name] for name in wanted} == wanted, family


@pytest.mark.parametrize(("preset", "width", "span", "whole"), PORTS, ids=[f"{p[0]}-{p[1]}" for p in PORTS])
def test_cycles_are_litedrams(litex, preset, width, span, whole, tmp_path):
    if not shutil.which("verilator"):
        pytest.skip("Verilator is not installed")
    port = tmp_path / "port.v"
    subprocess.run([litex, HERE / "dram_oracle.py", preset, str(width), port], check=True, capture_output=True)
    sources = [HERE / "dram_bench.cc", *(ROOT / name for name in ("sim/memory/dram_controller.cc", "isa/dram.cc"))]
    build = ["verilator", "--cc", "--exe", "--build", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--x-initial", "0"]
    build += ["--top-module", "litedram_port", port, *sources, ROOT / "base" / "error.cc"]
    build += ["-CFLAGS", f"-std=c++20 -O1 -I{ROOT}", "-Mdir", tmp_path / "obj", "-o", "bench"]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    done = subprocess.run(
        [tmp_path / "obj" / "bench", preset, str(width)],
        input=dram_traffic.sequences(width, span, whole),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 16
    for name, theirs, ours, beats, different in rows:
        assert int(theirs) > 0 and (ours, different) == (theirs, "0"), f"{name}: {theirs} cycles, {ours} here ({beats})"

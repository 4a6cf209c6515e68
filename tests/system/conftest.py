# SPDX-License-Identifier: Apache-2.0
"""Finds the built package, the odd configuration of these tests, and the optional models outside the project."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release"))
for path in (ROOT, ROOT / "tessera" / "python", BUILD / "lib"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

SHARED = ROOT.parent / "shared"

ODD = """
name = "odd"
batch = 2
block_in = 8
block_out = 32
inp_bytes = 4096
wgt_bytes = 16384
acc_bytes = 32768
out_bytes = 8192
param_bytes = 2048
table_count = 4
second_lanes = 8
row_lanes = 0
axi_bytes = 16
load_queue = 3
gemm_queue = 2
alu_queue = 5
store_queue = 1
reads_in_flight = 4
writes_in_flight = 2
"""


@pytest.fixture(scope="session")
def odd_config(tmp_path_factory):
    """A configuration nobody ships: two batch rows, narrow input blocks, wide output blocks, tight scratchpads."""
    path = tmp_path_factory.mktemp("config") / "odd.toml"
    path.write_text(ODD)
    return str(path)


@pytest.fixture(scope="session")
def configs(odd_config):
    return ["npu64", "npu256", "npu1024", odd_config]


@pytest.fixture(scope="session")
def row_configs(tmp_path_factory):
    """Machines with row lanes: npu256 and npu64, and one with narrow input blocks and wide output blocks."""
    odd = ODD.replace("batch = 2", "batch = 1").replace("table_count = 4", "table_count = 9")
    shipped = [(ROOT / "hw" / "configs" / f"{name}.toml").read_text() for name in ("npu256", "npu64")]
    paths = []
    for number, text in enumerate([*shipped, odd]):
        path = tmp_path_factory.mktemp("rows") / f"rows{number}.toml"
        lanes = 2 if "block_out = 8" in text else 4  # a lane looks four bytes up
        path.write_text(text.replace("row_lanes = 0", f"row_lanes = {lanes}"))
        paths.append(str(path))
    return paths


@pytest.fixture(scope="session")
def shared_models():
    folder = SHARED / "models"
    if not folder.is_dir():
        pytest.skip("no ../shared/models beside the project")
    return folder


@pytest.fixture(scope="session")
def command():
    """The built tessera command as a function of its arguments; returns the finished process."""
    import subprocess

    def run(*arguments, timeout=300, **kwargs):
        return subprocess.run(
            [str(BUILD / "bin" / "tessera"), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            **kwargs,
        )

    return run

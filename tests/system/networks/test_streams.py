# SPDX-License-Identifier: Apache-2.0
"""The instruction streams of the benchmark networks, held against what `streams.json` keeps of them.

A change inside the compiler that should not change programs fails here when it does. A change that should is seen here
first: `python tests/system/networks/test_streams.py --update` writes the file again and prints the cycles before and
after, which belong into the commit message. Kept are a digest of the assembly (waits and signals included), the number
of instructions, the bytes of constants and arena, the DRAM bytes and the cycles that the compiler predicts.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))
from tests.system.conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

KEPT = pathlib.Path(__file__).with_name("streams.json")
ROWS = [
    f"{name} {config}"
    for name, config in [(name, "npu256") for name in networks.NETWORKS]
    + [("mobilenetv2", "npu256w"), ("resnet50", "npu1024")]
]


def facts(row, folder):
    """Compiles one network and says what of its program is kept."""
    import tessera

    name, config = row.split()
    artifact = pathlib.Path(folder) / "model.tsr"
    info = tessera.compile(networks.build(name)[0], artifact, config)
    listing = subprocess.run(
        [BUILD / "bin" / "tessera", "disasm", artifact], capture_output=True, text=True, check=True
    ).stdout
    assembly = [line.split("#")[0].rstrip() for line in listing.splitlines()]
    layers = [layer for layer in info["layers"] if layer["placement"] == "npu"]
    return {
        "assembly_sha256": hashlib.sha256("\n".join(line for line in assembly if line).encode()).hexdigest(),
        "instructions": sum(1 for line in assembly if line),
        "constant_bytes": info["device_constant_bytes"],
        "arena_bytes": info["arena_bytes"],
        "dram_bytes": sum(layer["dram_read_bytes"] + layer["dram_write_bytes"] for layer in layers),
        "predicted_cycles": sum(layer["predicted_cycles"] for layer in layers),
    }


@pytest.mark.parametrize("row", ROWS)
def test_the_stream_is_what_it_was(row, tmp_path):
    assert facts(row, tmp_path) == json.loads(KEPT.read_text())[row], (
        f"{row}: the program has changed; see the head of {pathlib.Path(__file__).name}"
    )


def update():
    before = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    after = {}
    for row in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            after[row] = facts(row, folder)
        old, new = before.get(row, {}).get("predicted_cycles"), after[row]["predicted_cycles"]
        print(f"{row}: predicted cycles {old} -> {new}" + ("" if before.get(row) == after[row] else ", changed"))
    KEPT.write_text(json.dumps(after, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(f"usage: {sys.argv[0]} --update")
    update()

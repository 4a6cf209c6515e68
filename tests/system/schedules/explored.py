# SPDX-License-Identifier: Apache-2.0
"""What tests of `tessera explore` share: a small space and the digits' network."""

import pathlib

from tessera.exploration import space

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"

SMALL = {
    "name": "small",
    "base": "npu64",
    "machine": {"block_in": [8, 16], "block_out": [8, 16], "axi_bytes": "8..16 by 2x", "second_lanes": "block_out / 4"},
}


def small(**changes):
    return space.Space({**SMALL, **changes})

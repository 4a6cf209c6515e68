# SPDX-License-Identifier: Apache-2.0
"""The numbers of a machine that kernels are written for: blocks, and how many entries each scratchpad holds."""

import dataclasses
import tomllib

from tessera import _tessera

SPACES = ("inp", "wgt", "acc", "out", "param", "table")


@dataclasses.dataclass(frozen=True)
class Machine:
    """A configuration. batch, block_in and block_out are the machine's BATCH, BLOCK_IN and BLOCK_OUT."""

    toml: str
    name: str
    batch: int
    block_in: int
    block_out: int
    row_lanes: int
    bytes: dict  # of each scratchpad

    def entry_bytes(self, space):
        """Bytes of one entry of a scratchpad."""
        return {
            "inp": self.batch * self.block_in,
            "wgt": self.block_out * self.block_in,
            "acc": 4 * self.batch * self.block_out,
            "out": self.batch * self.block_out,
            "param": 8 * self.block_out,
            "table": 256,
        }[space]

    @property
    def depthwise_taps(self):
        """Taps that an entry of WGT holds for a depthwise product."""
        return {8: 6, 16: 9}.get(self.block_in, min(self.block_in, 16))

    def depth(self, space):
        """Entries of a scratchpad."""
        return self.bytes[space] // self.entry_bytes(space)


def machine(config):
    """config: the name of a shipped configuration, the path of a .toml file, or its text. Errors: tessera.Error."""
    text = _tessera.machine_toml(config)
    values = tomllib.loads(text)
    sizes = {space: values[f"{space}_bytes"] for space in SPACES[:-1]}
    sizes["table"] = 256 * values["table_count"]
    blocks = {key: values[key] for key in ("name", "batch", "block_in", "block_out")}
    return Machine(text, bytes=sizes, row_lanes=values.get("row_lanes", 0), **blocks)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What xclbinutil wants beside a bitstream, for a board of the folder boards. Enters: the board's name. Leaves:
ip_layout.json, connectivity.json and mem_topology.json in a folder. They are isa/generated/xclbin.json with the
address at which the board's processor sees the kernel's registers, and with its memory."""

import argparse
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).absolute().parent
ROOT = HERE.parents[1]


def boards():
    return sorted(path.stem for path in (HERE / "boards").glob("*.tcl"))


def sections(board):
    """{name of a section: its content}. Errors: SystemExit when there is no such board."""
    if board not in boards():
        raise SystemExit(f"no board '{board}'; there are {', '.join(boards())}")
    values = dict(re.findall(r"^set (\w+) (\S+)$", (HERE / "boards" / f"{board}.tcl").read_text(), re.M))
    found = json.loads((ROOT / "isa/generated/xclbin.json").read_text())
    for core in found["ip_layout"]["m_ip_data"]:
        core["m_base_address"] = values["register_base"]
    for memory in found["mem_topology"]["m_mem_data"]:
        memory["m_type"] = "MEM_DRAM"
        memory["m_tag"] = "PS"
        memory["m_sizeKB"] = values["memory_kilobytes"]
    return {name: {name: content} for name, content in found.items()}


def main():
    parser = argparse.ArgumentParser(description="Sections of an xclbin for a board with a processor")
    parser.add_argument("--board", required=True, help=", ".join(boards()))
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, content in sections(options.board).items():
        (options.output / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    print(f"{options.board}: {', '.join(sections(options.board))} in {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

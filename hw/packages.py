#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the descriptions by which hardware build tools take the RTL: tessera.core for FuseSoC (CAPI 2) and Bender.yml
for Bender, both at the top of the project. Enters: the list of sources that synthesis reads (hw/synth/machine.py).
Leaves: the two files; with --check exit status 1 when one of them is not what it should be.

The order is that of compilation: the package first. Assertions, which only Verilator reads, are no part of it."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).absolute().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "synth"))
sys.dont_write_bytecode = True

import machine  # noqa: E402

NOTICE = "# SPDX-License-Identifier: Apache-2.0\n# Written by hw/packages.py; do not edit.\n"


def files():
    return [str(path.relative_to(ROOT)) for path in machine.sources()]


def version():
    """The project's, as CMake has it."""
    found = re.search(r"project\(\s*\w+\s+VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    return found[1] if found else "0.1.0"


def core():
    """FuseSoC: one file set, a target for other cores and one for Verilator's lint. CAPI 2 wants its name in the first
    line."""
    lines = ["CAPI=2:", *NOTICE.splitlines(), "", f"name: tessera:npu:tessera:{version()}"]
    lines += ["description: NPU for quantised networks, AXI4 and AXI4-Lite", "", "filesets:", "  rtl:", "    files:"]
    lines += [f"      - {path}" for path in files()]
    lines += ["    file_type: systemVerilogSource", "", "parameters:"]
    for name, value in machine.parameters("npu256").items():
        lines += [f"  {name}:", "    datatype: int", "    paramtype: vlogparam", f"    default: {value}"]
    names = list(machine.parameters("npu256"))
    for target in ("default", "lint"):
        lines += ["", "targets:"] if target == "default" else []
        lines += [f"  {target}:", "    filesets: [rtl]", "    toplevel: tsr_top"]
        if target == "lint":
            lines += [f"    parameters: [{', '.join(names)}]", "    default_tool: verilator"]
            lines += ["    tools:", "      verilator:", "        mode: lint-only"]
    return "\n".join(lines) + "\n"


def bender():
    lines = [*NOTICE.splitlines(), "package:", "  name: tessera", "", "sources:", "  - files:"]
    return "\n".join(lines + [f"      - {path}" for path in files()]) + "\n"


def main():
    status = 0
    for name, text in (("tessera.core", core()), ("Bender.yml", bender())):
        path = ROOT / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                print(f"{name} is not what the sources say; python3 hw/packages.py writes it", file=sys.stderr)
                status = 1
        else:
            path.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main())

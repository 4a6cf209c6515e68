#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares a configuration for packaging. Enters: a name under hw/configs (or a .toml file) and a folder. Leaves in
that folder: tsr_kernel.v with the configuration's parameters as defaults, kernel.xml, sources.tcl, which names every
file that the FPGA tools are given, in the order in which they are compiled, and memories.xdc, which sends the memories
of machine.ULTRA to UltraRAM.

The parameters are written into the text, so that the packaged kernel has none to be set by hand."""

import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).absolute().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "synth"), str(ROOT / "isa")]
sys.dont_write_bytecode = True

import generate  # noqa: E402
import machine  # noqa: E402
from generator import kernel  # noqa: E402
from machine import Failure  # noqa: E402


def configured(text, values):
    """The wrapper with other defaults. Errors: Failure when its parameters are not those of `values`."""
    found = dict(re.findall(r"parameter integer (\w+)\s*= (\d+)", text))
    if set(found) != set(values):
        raise Failure(f"tsr_kernel.v has the parameters {', '.join(found)}; the machine has {', '.join(values)}")
    return re.sub(r"(parameter integer (\w+)\s*= )\d+", lambda m: m[1] + str(values[m[2]]), text)


def tcl_list(name, values):
    return f"set {name} {{\n" + "".join(f"  {{{value}}}\n" for value in values) + "}\n"


def write(config, folder):
    """Writes the files; returns the list of sources."""
    machine.one_core(config, "tsr_kernel")
    values = machine.parameters(config)
    name = pathlib.Path(config).stem
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wrapper = folder / "tsr_kernel.v"
    wrapper.write_text(configured((HERE / "tsr_kernel.v").read_text(), values))
    registers = generate.registers()
    (folder / "kernel.xml").write_text(kernel.kernel_xml(registers, values["AxiBytes"]))
    sources = [*machine.sources(), wrapper]
    for path in sources:
        if re.search(r"[{}\\\s]", str(path)):
            raise Failure(f"{path}: the tools take no blanks or braces in paths; build in another folder")
    ultra = machine.ULTRA.get(name, ())
    cells = "[get_cells -hierarchical -filter {NAME =~ *u_scratchpads/MEMORY/mem_reg*}]"
    (folder / "memories.xdc").write_text(
        "".join(f"set_property RAM_STYLE ULTRA {cells.replace('MEMORY', memory)}\n" for memory in ultra)
    )
    text = (
        "# SPDX-License-Identifier: Apache-2.0\n"
        f"# Written by hw/fpga/configure.py for {name}.\n"
        f"set kernel_config {name}\n"
        f"set kernel_xml {{{folder / 'kernel.xml'}}}\n"
        "set kernel_description "
        f"{{Tessera NPU, {name}: {values['Batch']} x {values['BlockIn']} x {values['BlockOut']}}}\n"
        f"set kernel_reads {values['ReadsInFlight']}\n"
        f"set kernel_writes {values['WritesInFlight']}\n"
        f"set kernel_burst {min(256, 4096 // values['AxiBytes'])}\n"
        f"set kernel_ultra {{{' '.join(ultra)}}}\n"
    )
    (folder / "sources.tcl").write_text(text + tcl_list("kernel_sources", sources))
    return sources


def main():
    parser = argparse.ArgumentParser(description="Prepares a configuration for packaging")
    parser.add_argument("--config", default="npu256", help=f"{', '.join(machine.shipped())}, or a .toml file")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder")
    options = parser.parse_args()
    write(options.config, options.output)
    print(f"{options.config}: {options.output}/sources.tcl")
    return 0


if __name__ == "__main__":
    machine.main(main)

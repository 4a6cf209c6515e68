#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes everything under isa/generated/ from isa.toml, timing.toml, registers.toml, the chapters and
hw/configs/*.toml, and the numbers beside names in the chapters.

    isa/generate.py           write the files
    isa/generate.py --check   compare with the files; exit status 1 and their names when one differs

The files are committed. A description that breaks a rule (bits or addresses claimed twice or not at all, values that do
not fit) is refused with exit status 2 and nothing is written.
"""

import argparse
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from generator import cpp, kernel, manual, pictures, python, sv, timing  # noqa: E402
from generator.model import SpecError, build_isa  # noqa: E402
from generator.registers import build_map  # noqa: E402

# Chapters of the manual after the encodings, in order; those that other rooms write may be absent.
CHAPTERS = ("semantics.md", "ports.md", "timing.md")


def load_toml(path):
    with open(path, "rb") as file:
        return tomllib.load(file)


def configurations():
    """(name, path, parameters) of every shipped configuration. Raises SpecError."""
    paths = sorted((ROOT.parent / "hw" / "configs").glob("*.toml"))
    configs = [(path.stem, path, load_toml(path)) for path in paths]
    for name, _, config in configs:
        if config.get("name") != name or set(config) != set(configs[0][2]):
            raise SpecError(
                f"configuration {name}: the name is not the file's, or its parameters are not those of {configs[0][0]}"
            )
    return configs


def registers():
    """The register map. Raises SpecError."""
    parameters = [key for key in configurations()[0][2] if key != "name"]
    return build_map(load_toml(ROOT / "registers.toml"), parameters)


def machine():
    """The instruction set and the timing. Raises SpecError."""
    isa = build_isa(load_toml(ROOT / "isa.toml"))
    numbers = timing.build_timing(
        load_toml(ROOT / "timing.toml"), isa, [(name, config) for name, _, config in configurations()]
    )
    timing.check_names(isa, numbers)
    return isa, numbers


def chapters():
    """Name -> text of every chapter, with the numbers of the timing. Raises SpecError."""
    numbers = machine()[1]
    meaning = (ROOT / "semantics.md").read_text().splitlines()
    for instruction in machine()[0].instructions:
        if instruction.operands and f"## {instruction.name.upper()}" not in meaning:
            raise SpecError(
                f"isa/semantics.md: no chapter '## {instruction.name.upper()}' says what the instruction means"
            )
    return {
        name: timing.revise((ROOT / name).read_text(), numbers, name) for name in CHAPTERS if (ROOT / name).exists()
    }


def outputs():
    """Name -> text of every generated file. Raises SpecError."""
    isa, numbers = machine()
    configs = configurations()
    named = [(name, config) for name, _, config in configs]
    register_map = registers()
    files = {
        "instructions.h": cpp.instructions_header(isa),
        "operands.h": cpp.operands_header(isa, numbers),
        "registers.h": cpp.registers_header(register_map),
        "configs.cc": cpp.configs_source([(name, path.read_text()) for name, path, _ in configs]),
        "tsr_isa_pkg.sv": sv.package(isa, register_map, timing.localparams(numbers)),
        "timing.h": timing.header(numbers),
        "tessera_isa.py": python.module(isa, register_map),
        "isa.md": manual.manual(isa, register_map, named, [*chapters().values(), timing.chapter(numbers, named)]),
        "kernel_arguments.h": kernel.header(register_map),
        "kernel_arguments.tcl": kernel.tcl(register_map),
        "xclbin.json": kernel.xclbin(register_map),
    }
    files.update(pictures.pictures(numbers))
    for name, _, config in configs:
        files[f"kernel_{name}.xml"] = kernel.kernel_xml(register_map, config["axi_bytes"])
        files[f"xclbin_{name}.xml"] = kernel.xclbin_xml(register_map, config["axi_bytes"])
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of write")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "generated", help="folder of the generated files")
    options = parser.parse_args()
    try:
        files = {options.output / name: text for name, text in outputs().items()}
        if options.output == ROOT / "generated":
            files.update({ROOT / name: text for name, text in chapters().items()})
    except SpecError as error:
        print(f"isa/generate.py: {error}", file=sys.stderr)
        return 2
    stale = []
    options.output.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if not options.check:
                path.write_text(text)
    for name in stale:
        print(f"{'stale' if options.check else 'wrote'} {name}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""A system's sources. Enters: a board, a configuration, what the system is for. Leaves a folder: tessera.v of LiteX,
tsr_kernel.v with the configuration's parameters, for a board its constraints (tessera.lpf), the map of LiteX's
registers (csr.json, and headers for C under software), and description.json.

This runs in the environment build/litex (requirements-litex.txt), which hw/litex shares with nobody."""

import hashlib
import importlib.metadata
import json
import logging
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).absolute().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "synth"), str(HERE.parent / "fpga")]
sys.dont_write_bytecode = True

import configure  # noqa: E402
import machine  # noqa: E402
import pnr  # noqa: E402, F401  for bitstream.py
from machine import Failure  # noqa: E402

FIRMWARE_BYTES = 128 << 10  # as in soc.py, which only LiteX's environment can read
PACKAGES = ("litex", "litedram", "liteeth", "litex-boards", "migen")


def known_boards():
    return sorted(path.stem for path in (HERE / "boards").glob("*.py") if path.stem != "__init__")


def versions():
    """Of the packages that write the system, as text."""
    try:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    except importlib.metadata.PackageNotFoundError as missing:
        raise Failure(f"LiteX is not installed ({missing}); ./dev setup --extras litex does it") from None


def sources():
    """Every file of the repository that a system is made of."""
    system = (
        "checked_window.py",
        "clocks.py",
        "describe.py",
        "ethernet.py",
        "npu.py",
        "registered_dfi.py",
        "soc.py",
        "widen.py",
        "simulated.cc",
    )
    own = [*(HERE / name for name in system), *(HERE / "boards").glob("*.py")]
    return [*machine.sources(), HERE.parent / "fpga" / "tsr_kernel.v", *sorted(own)]


def identity(board, values, tools, extra=()):
    """SHA-256 of the sources, the configuration's parameters and the tools' versions."""
    digest = hashlib.sha256(json.dumps([board, values, tools, *extra], sort_keys=True).encode())
    for path in sources():
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def check(board, config):
    """The configuration's parameters. Errors: Failure when board or configuration are not known."""
    if board not in known_boards():
        raise Failure(f"no board '{board}'; there are {', '.join(known_boards())}")
    machine.one_core(config, "a system of LiteX")
    return machine.parameters(config)


def words_of(firmware):
    """A file's bytes as words, in little-endian order. Errors: Failure when it cannot be read or there is no room."""
    try:
        data = pathlib.Path(firmware).read_bytes()
    except OSError as error:
        raise Failure(f"the firmware '{firmware}' cannot be read: {error.strerror}") from None
    if len(data) > FIRMWARE_BYTES:
        raise Failure(f"the firmware '{firmware}' has {len(data)} bytes; there is room for {FIRMWARE_BYTES}")
    data += bytes(-len(data) % 4)
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def write(board, config, folder, tools, simulated=False, clock_hz=None, firmware=None):
    """Writes the folder; returns the description as a dictionary. `firmware`: words for a processor. Errors:
    Failure."""
    values = check(board, config)
    tools = f"{versions()}, {tools}"
    name = machine.file_name(config)
    marks = (simulated, clock_hz, firmware)
    folder = pathlib.Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.INFO)  # LiteX tells each step
    import soc
    from litex.soc.integration import export
    from litex.soc.integration.builder import Builder

    found = identity(board, values, tools, marks)
    made = soc.TesseraSoc(soc.board(board), name, values, found, tools, simulated, clock_hz, firmware)
    builder = Builder(made, output_dir=str(folder), compile_software=False, csr_json=str(folder / "csr.json"))
    if simulated:
        made.finalize()
        builder.build_dir = str(folder)
        before = os.getcwd()
        os.chdir(folder)  # memories' contents are written beside the Verilog, by relative names
        try:
            made.platform.get_verilog(made, name="tessera").write("tessera.v")
            maps = (made.csr_regions, made.constants)
            pathlib.Path("csr.json").write_text(export.get_csr_json(*maps, made.mem_regions))
            pathlib.Path("csr.h").write_text(export.get_csr_header(*maps, with_access_functions=False))
        finally:
            os.chdir(before)
    else:
        builder.gateware_dir = str(folder)
        builder.build(run=False, build_name="tessera")
    sources = [str(path) for path, *_ in made.platform.sources if str(path).endswith(".v")]
    wrapper = configure.configured((HERE.parent / "fpga" / "tsr_kernel.v").read_text(), values)
    (folder / "tsr_kernel.v").write_text(wrapper)
    memory = made.bus.regions["main_ram"]
    description = {
        "board": board,
        "title": made.target.TITLE,
        "config": name,
        "bridge": made.target.BRIDGE,
        "device": made.platform.device,
        "clock_hz": int(made.sys_clk_freq),
        "in_phase": list(getattr(made.target, "IN_PHASE", ())),
        "memory": {"module": made.memory_module.__class__.__name__, "bytes": memory.size, "origin": memory.origin},
        "identity": found.hex(),
        "tools": tools,
        "simulated": simulated,
        "sources": [path for path in sources if pathlib.Path(path).name != "tessera.v"],
    }
    (folder / "description.json").write_text(json.dumps(description, indent=2) + "\n")
    return description

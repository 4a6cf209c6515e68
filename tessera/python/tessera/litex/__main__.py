# SPDX-License-Identifier: Apache-2.0
"""Hands the command to hw/litex, in the environment that has LiteX. That needs a checkout: a wheel has no boards."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
HELP = """usage: tessera litex --simulate [--board NAME] [--config NAME] [--port N] [--firmware FILE] [-- COMMAND]
       tessera litex --bitstream [--board NAME] [--config NAME]

The machine in a LiteX system of a board: simulated whole behind a port for device litex:HOST:PORT, or as a bitstream by
open tools. It needs a checkout of the project and LiteX (./dev setup --extras litex). Each form lists its options with
--help. Boards: ecpix5, ulx3s, versa.

Example: tessera litex --simulate --board ulx3s --config npu64 -- python hw/fpga/smoke.py --device litex --config npu64
"""
SCRIPTS = {"--simulate": "simulate.py", "--bitstream": "bitstream.py"}


def main():
    arguments = sys.argv[1:]
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    chosen = [script for flag, script in SCRIPTS.items() if flag in own]
    asks = bool({"-h", "--help"} & set(own))
    if not chosen and asks:
        print(HELP, end="")
        return 0
    python, folder = ROOT / "build" / "litex" / "bin" / "python", ROOT / "hw" / "litex"
    if not folder.exists():
        return "tessera: error (unsupported): this installation has no hw/litex; use a checkout of the project"
    if asks and not python.exists():
        python = pathlib.Path(sys.executable)  # a form's options can be read without LiteX
    if not python.exists():
        return "tessera: error (unsupported): LiteX is not installed; `./dev setup --extras litex` does it"
    if len(chosen) != 1:
        flags = ", ".join(SCRIPTS)
        return f"tessera: error (invalid_argument): tessera litex: give one of {flags}, with --help for its options"
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{ROOT / '.venv' / 'bin'}"
    os.execv(python, [str(python), "-B", str(folder / chosen[0]), *arguments])


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The command `tessera` of an installed package, and `python -m tessera`: the command line of the compiled module."""

import os
import pathlib
import signal
import sys

import _tessera


def main():
    # The quantiser, which is a process of its own, runs in this interpreter with this package.
    os.environ.setdefault("TESSERA_PYTHON", sys.executable)
    os.environ.setdefault("TESSERA_PYTHON_PACKAGES", str(pathlib.Path(__file__).resolve().parent.parent))
    # Python would note an interrupt and wait until the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _tessera.run_command_line(["tessera", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a kernel, and at which line of its source."""

import os
import sys

import tessera

HERE = os.path.dirname(os.path.abspath(__file__))


class KernelError(tessera.Error):
    """A statement that the machine cannot carry out. The message begins with the file and the line of the statement."""

    code = "invalid_argument"


class DoesNotFit(KernelError):
    """A scratchpad of this machine is too small for the tiles of a kernel; another one may do."""

    code = "does_not_fit"


def caller():
    """("file.py", line) of the innermost frame outside of this package."""
    frame = sys._getframe(1)
    while frame is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == HERE:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)


def place():
    """The same as text: "file.py:12"."""
    file, line = caller()
    return f"{os.path.basename(file)}:{line}"


def refuse(why):
    raise KernelError(f"{place()}: {why}")

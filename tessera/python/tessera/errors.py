# SPDX-License-Identifier: Apache-2.0
"""Errors of what is Python: tessera.Error with a code, as those of the compiler; and files that are written whole."""

import os
import pathlib

import _tessera


def error(code, message):
    """A tessera.Error to be raised. code: "invalid_argument", "invalid_model", "unsupported", "io"."""
    raised = _tessera.Error(message)
    raised.code = code
    return raised


def argument(message):
    return error("invalid_argument", message)


def model_error(message):
    return error("invalid_model", message)


def require_place(path):
    """Before work that takes long: refuses a file that could not be written when it ends."""
    if not pathlib.Path(path).absolute().parent.is_dir():
        raise error("io", f"cannot write '{path}': there is no such folder")
    if pathlib.Path(path).is_dir():
        raise error("io", f"cannot write '{path}': it is a folder; name a file")


def write_whole(path, write):
    """Has write() make a file beside the path, which gets the path's name when it is complete: a full disk leaves no
    part of it, and what stood there stays. What is no regular file is written to as it is."""
    path = pathlib.Path(path)
    if path.exists():
        path = path.resolve()
    if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
        write(str(path))
        return
    beside = path.with_name(f"{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        write(str(beside))
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)

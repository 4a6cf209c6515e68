# SPDX-License-Identifier: Apache-2.0
"""The folder of models: NAME/VERSION/model.onnx (or model.tflite, model.tsr), with NAME/tessera.toml where a model has
settings. Names that clients send are compared with what stands in the folder and never become paths."""

import dataclasses
import os
import pathlib
import re

import tessera

from ..errors import argument
from . import settings as settings_file

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
NAMES = "a model's name has at most 128 letters, digits, '_', '.' and '-', and begins with none of the last two"
VERSION = re.compile(r"[1-9][0-9]{0,8}")
_FILES = ("model.onnx", "model.tflite", "model.tsr")


@dataclasses.dataclass(frozen=True)
class Found:
    """A version as it stands on disk. mark: changes when one of its files or the settings change."""

    name: str
    version: int
    path: pathlib.Path
    settings: settings_file.Settings
    mark: tuple


class Repository:
    """root: the folder. defaults: settings that hold where a model says nothing. Errors: tessera.Error."""

    def __init__(self, root, defaults):
        self.root = pathlib.Path(root)
        self._defaults = defaults
        if not self.root.is_dir():
            raise argument(f"--model-repository '{root}' is not a folder; it holds NAME/VERSION/model.onnx")

    def names(self):
        """The models that have a folder."""
        with os.scandir(self.root) as entries:
            return sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir())

    def misnamed(self):
        """Folders that no client could name; hidden ones are none of the repository's."""
        with os.scandir(self.root) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
        return sorted(name for name in names if not _NAME.fullmatch(name))

    def find(self, name):
        """The versions of a model that its settings choose, lowest first. Errors: tessera.Error for a model that is not
        there, that has no versions, and for wrong settings."""
        if name not in self.names():
            raise tessera.errors.error("io", f"the repository has no model '{name}'")
        folder = self.root / name
        settings = settings_file.read(folder, self._defaults)
        numbers = sorted(int(e.name) for e in folder.iterdir() if VERSION.fullmatch(e.name) and e.is_dir())
        chosen = _chosen(numbers, settings.versions)
        if not chosen:
            raise argument(f"model '{name}' has no version to serve: its folder has {numbers or 'none'}")
        mark = _mark(folder / settings_file.FILE)
        return [self._version(name, number, settings, mark) for number in chosen]

    def _version(self, name, number, settings, mark):
        folder = self.root / name / str(number)
        files = [folder / file for file in _FILES if (folder / file).is_file()]
        if len(files) != 1:
            raise argument(
                f"model '{name}' version {number} has {len(files)} files of {', '.join(_FILES)} in its folder; "
                "one is right"
            )
        marks = tuple(_mark(path) for path in sorted(folder.rglob("*")))
        return Found(name, number, files[0], settings, (mark, *marks))


def _mark(path):
    """What shows that a file was changed or replaced."""
    try:
        status = path.stat()
    except OSError:
        return (path.name, None)
    return (path.name, status.st_ino, status.st_size, status.st_mtime_ns)


def _chosen(numbers, policy):
    if policy == "all":
        return numbers
    if isinstance(policy, dict):
        return numbers[-policy["latest"] :]
    return [number for number in numbers if number in policy]

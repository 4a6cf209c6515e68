# SPDX-License-Identifier: Apache-2.0
"""What a run of `tessera app` was asked for. It reaches the program and its children as JSON in one environment
variable, beside a folder in PYTHONPATH whose sitecustomize waits for onnxruntime to be imported."""

import dataclasses
import json
import os
import pathlib

import _tessera

VARIABLE = "TESSERA_APP"
PACKAGE = pathlib.Path(__file__).resolve().parent.parent
SITE = pathlib.Path(__file__).resolve().parent / "site"


@dataclasses.dataclass
class Settings:
    """device, config ("": as each model says), options: of each tessera.Session. folder: where processes write what
    they did, or "". capture, quantize: folders, or "". samples, megabytes: bounds of what is captured of one model.
    shapes: texts of shapes that will come, as of shapes.shapes_ahead."""

    device: str = "fsim"
    config: str = ""
    options: dict = dataclasses.field(default_factory=dict)
    compare: bool = False
    capture: str = ""
    quantize: str = ""
    samples: int = 64
    megabytes: int = 256
    report: bool = False
    quiet: bool = False
    folder: str = ""
    shapes: list = dataclasses.field(default_factory=list)

    @property
    def machine(self):
        """The machine that models are quantised for."""
        return self.config or "npu256"

    @classmethod
    def from_environment(cls):
        """None where no `tessera app` has started this process."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    def environment(self):
        """The variables that a program needs, on top of those of this process."""
        places = {"tessera": str(PACKAGE), "_tessera": os.path.abspath(_tessera.__file__)}
        own = {str(SITE), str(PACKAGE.parent), os.path.dirname(places["_tessera"])}
        # The command has put its own folders in front, which would hide the program's packages.
        paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and os.path.abspath(p) not in own]
        return {
            VARIABLE: json.dumps({**dataclasses.asdict(self), "packages": places}),
            "PYTHONPATH": os.pathsep.join([str(SITE), *paths]),
        }


def plain_environment():
    """The variables for a process of Tessera's own: without the program's, with Tessera's packages."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    own = [str(PACKAGE.parent), os.path.dirname(os.path.abspath(_tessera.__file__))]
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(SITE)]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*own, *paths]))
    return environment

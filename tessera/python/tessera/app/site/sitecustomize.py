# SPDX-License-Identifier: Apache-2.0
"""What Python runs when it starts below `tessera app`, because this folder is the first of PYTHONPATH. It waits for the
program to import onnxruntime and then puts Tessera below its sessions. Nothing is imported before that, and the
folder leaves sys.path again, so that the program sees its own modules alone. Tessera's packages are found by name and
not by a folder: the program may have an environment of its own, with another numpy."""

import importlib.machinery
import importlib.util
import json
import os
import sys

VARIABLE = "TESSERA_APP"
HERE = os.path.dirname(os.path.abspath(__file__))


def warn(text):
    sys.stderr.write(f"tessera: {text}\n")


class Packages:
    """Finds `tessera` and `_tessera` where Tessera is installed."""

    def __init__(self, places):
        self.places = places

    def find_spec(self, name, path=None, target=None):
        if name not in self.places:
            return None
        place = self.places[name]
        if os.path.isdir(place):
            inside = os.path.join(place, "__init__.py")
            return importlib.util.spec_from_file_location(name, inside, submodule_search_locations=[place])
        return importlib.util.spec_from_file_location(name, place)


class Watcher:
    """Lets the program's own onnxruntime be found and loaded, and installs Tessera when that is done."""

    def find_spec(self, name, path=None, target=None):
        if name != "onnxruntime":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                break
        else:
            return None
        if hasattr(spec.loader, "exec_module"):
            load = spec.loader.exec_module

            def exec_module(module):
                del spec.loader.exec_module
                load(module)
                install()

            spec.loader.exec_module = exec_module
        return spec


def install():
    places = json.loads(os.environ[VARIABLE])["packages"]
    built = os.path.basename(places["_tessera"])
    if built.removeprefix("_tessera") not in importlib.machinery.EXTENSION_SUFFIXES:
        version = ".".join(str(n) for n in sys.version_info[:2])
        return warn(f"app: Python {version} of this program cannot load {built}: it runs on ONNX Runtime alone")
    try:
        from tessera.onnxruntime import install_from_environment

        install_from_environment()
    except Exception as e:
        warn(f"app: Tessera cannot be loaded here ({e}): this program runs on ONNX Runtime alone")


def chain():
    """Runs the sitecustomize that this one stands before."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get(VARIABLE):
    sys.meta_path.insert(0, Packages(json.loads(os.environ[VARIABLE])["packages"]))
    sys.meta_path.insert(0, Watcher())
chain()

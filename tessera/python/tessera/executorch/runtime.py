# SPDX-License-Identifier: Apache-2.0
"""The back end of ExecuTorch's runtime in a process of Python: where its library stands, and loading it."""

import ctypes
import os
import sys

import _tessera

from ..errors import error

_loaded = []


def backend_library():
    """The path of libtessera_executorch.so, for programs that load it themselves. Errors: tessera.Error in an
    installation without it."""
    path = os.path.join(os.path.dirname(os.path.abspath(_tessera.__file__)), "libtessera_executorch.so")
    if not os.path.exists(path):
        raise error(
            "unsupported",
            f"{path} is missing: install requirements-executorch.txt, configure again and build the target "
            "tessera_executorch",
        )
    return path


def load_backend():
    """Registers `TesseraBackend` with the runtime of this process. Once is enough. Errors: tessera.Error when the
    library is missing or the runtime does not know the back end afterwards."""
    if _loaded:
        return
    from executorch.extension.pybindings import portable_lib

    # ctypes asks the loader for libexecutorch.so by its name and gets the one that the line above has loaded.
    library = ctypes.CDLL(backend_library())
    library.tessera_executorch_set_option.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.tessera_executorch_set_option.restype = None
    if "TesseraBackend" not in portable_lib._get_registered_backend_names():
        raise error(
            "unsupported",
            f"{library._name} has registered itself with another libexecutorch.so than that of {portable_lib.__file__}:"
            f" build it with the Python that runs here, {sys.executable}",
        )
    _loaded.append(library)


def set_option(name, value):
    """An option for all methods that this process loads from now on, in place of what the program says: `device`,
    `config`, `statistics` (a file that gets a line of JSON for each run), `trusted_keys`, an option of the device or of
    the compilation. None takes it back."""
    load_backend()
    text = "" if value is None else str(value)
    _loaded[0].tessera_executorch_set_option(name.encode(), text.encode())

# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.serving: the command `tessera serve`."""

import sys

try:
    from .command import main

    status = main()
except ModuleNotFoundError as missing:
    if (missing.name or "").startswith("tessera"):
        raise
    sys.exit(
        f"tessera: error (unsupported): serve needs the Python package '{missing.name}'; install what "
        "requirements-serve.txt lists, or `pip install tessera[serve]`"
    )

sys.exit(status)

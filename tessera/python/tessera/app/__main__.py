# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.app [options] -- COMMAND: the command `tessera app`."""

import sys

from .command import main

sys.exit(main())

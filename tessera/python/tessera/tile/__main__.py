# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.tile: the command `tessera kernel`."""

import sys

from .command import main

sys.exit(main())

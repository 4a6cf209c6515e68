# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.tuning MODEL: the command `tessera tune`."""

import sys

from .command import main

sys.exit(main())

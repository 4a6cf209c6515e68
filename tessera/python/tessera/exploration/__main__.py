# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.exploration SPACE --network MODEL: the command `tessera explore`."""

import sys

from .command import main

sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.quantization MODEL --calibrate DATA: the command `tessera quantize`."""

import sys

from .command import main

sys.exit(main())

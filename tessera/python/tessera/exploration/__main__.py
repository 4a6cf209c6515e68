# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.exploration SPACE --network MODEL: the command `tessera explore`."""

import signal
import sys

from .command import main

if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())

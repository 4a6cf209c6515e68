# SPDX-License-Identifier: Apache-2.0
"""python -m tessera.quantization MODEL --calibrate DATA: the command `tessera quantize`."""

import signal
import sys

try:
    from .command import main
except ImportError as missing:
    sys.exit(
        f"tessera: error (unsupported): tessera quantize needs the Python package '{missing.name}', which is not "
        "installed: pip install onnx onnxruntime (of the wheel: its extra [quantize])"
    )

if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())

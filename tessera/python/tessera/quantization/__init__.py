# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models for the NPU. See docs/quantize.md; `python -m tessera.quantization` is the command."""

import os

__all__ = ["Quantized", "quantize"]

# From 1.32 on ONNX Runtime reports its use to its makers, and writes a number for that into the home folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name):
    # What needs onnx and onnxruntime is imported when it is asked for: so the command can say that they are missing.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import quantise

    return getattr(quantise, name)

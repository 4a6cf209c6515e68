# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models for the NPU. See docs/quantize.md; `python -m tessera.quantization` is the command."""

__all__ = ["Quantized", "quantize"]


def __getattr__(name):
    # What needs onnx and onnxruntime is imported when it is asked for: so the command can say that they are missing.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import quantise

    return getattr(quantise, name)

# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models for the NPU. See docs/quantize.md; `python -m tessera.quantization` is the command."""

from .quantise import Quantized, quantize

__all__ = ["Quantized", "quantize"]

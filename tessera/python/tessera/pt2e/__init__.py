# SPDX-License-Identifier: Apache-2.0
"""Quantised PyTorch: models of torchao's PT2E flow (docs/quantised_torch.md). `TesseraQuantizer` annotates what the NPU
computes in integers, and `to_onnx` writes the converted model, or any exported program, as ONNX in QDQ form with the
integers as they were trained or calibrated. Needs torch, torchao and onnxscript: requirements-executorch.txt."""

from .export import to_onnx
from .quantizer import TesseraQuantizer

__all__ = ["TesseraQuantizer", "to_onnx"]

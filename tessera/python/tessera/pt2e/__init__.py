# SPDX-License-Identifier: Apache-2.0
"""Quantised PyTorch: models of torchao's PT2E flow (docs/quantised_torch.md). `TesseraQuantizer` annotates what the NPU
computes in integers, and `to_onnx` writes the converted model, or any exported program, as ONNX in QDQ form with the
integers as they were trained or calibrated. `spell` does the last step alone, for a quantised ONNX model that another
tool has written, as Brevitas' QCDQ files. The first two need torch, torchao and onnxscript
(requirements-executorch.txt)."""

import importlib

_WHERE = {"TesseraQuantizer": "quantizer", "spell": "spelling", "to_onnx": "export"}
__all__ = ["TesseraQuantizer", "spell", "to_onnx"]


def __getattr__(name):
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


def __dir__():
    return __all__

# SPDX-License-Identifier: Apache-2.0
"""Errors of quantisation: those of the package, and the importer's words for what ONNX Runtime refuses."""

import _tessera

from ..errors import argument, error, model_error

__all__ = ["argument", "error", "model_error", "refusal"]


def refusal(model, shapes=None):
    """What the compiler's importer says against a ModelProto with inputs of these shapes (those of the model where none
    is given): it names the node, which ONNX Runtime often does not. Nothing where the importer takes the model."""
    try:
        _tessera.PredictedModel(model.SerializeToString(), shapes or {})
    except (_tessera.Error, ValueError) as e:  # ValueError: more than two gigabytes
        return str(e) if isinstance(e, _tessera.Error) else None
    return None

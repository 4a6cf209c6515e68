# SPDX-License-Identifier: Apache-2.0
"""Models with the kernels that registry.py lists. embedding.py, which needs the package onnx, is imported only when a
model is asked for."""

from .errors import KernelError
from .registry import registered, replacements


def embedding():
    """The module that needs onnx."""
    try:
        from . import embedding as module
    except ImportError:
        raise KernelError("kernels are put into models with the package onnx; install it: pip install onnx") from None
    return module


def embed(model, config="npu256", shapes=None):
    """The model, an onnx.ModelProto, a path or bytes, with its registered nodes, also in bodies and functions, as
    kernels: any interface compiles and runs it then. shapes: {input: shape} where they are dynamic. Returns an
    onnx.ModelProto. Errors: KernelError names the node."""
    return embedding().embed(model, config, shapes)


def prepared(model, config, shapes):
    """What a Session opens in the place of `model`."""
    return embedding().prepared(model, config, shapes) if registered or replacements else model

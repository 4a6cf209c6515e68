# SPDX-License-Identifier: Apache-2.0
"""PyTorch's modules on Tessera. See docs/torch.md.

    import tessera.torch
    compiled = tessera.torch.compile(module, (image,), calibrate=images)   # a callable module; integers on the NPU
    scores = compiled(image)
    compiled.stats().cycles

or, with what cannot be exported left to PyTorch:

    compiled = torch.compile(module, backend="tessera")

A module is exported by torch.export and PyTorch's ONNX exporter, and runs in a tessera.Session. torch and onnxscript
are needed: requirements-torch.txt names the versions."""

try:
    import onnxscript as _onnxscript
    import torch as _torch
except ImportError as e:
    raise ImportError(
        f"tessera.torch needs {e.name}; install it with `./dev setup --extras torch` or `pip install tessera[torch]`"
    ) from None

from .compiled import Compiled, compile
from .dynamo import backend

__all__ = ["Compiled", "backend", "compile"]

del _onnxscript, _torch

# SPDX-License-Identifier: Apache-2.0
"""Tessera as a back end of ExecuTorch (docs/executorch.md).

Ahead of time:

    from executorch.exir import to_edge_transform_and_lower
    from tessera.executorch import TesseraPartitioner

    edge = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[TesseraPartitioner()])
    edge.to_executorch().save("model.pte")

At run time, before a program is loaded:

    import tessera.executorch
    tessera.executorch.load_backend()

Needs executorch, torch and onnxscript: requirements-executorch.txt."""

import importlib

_WHERE = {
    "TesseraBackend": "backend",
    "TesseraPartitioner": "partitioner",
    "backend_library": "runtime",
    "load_backend": "runtime",
    "set_option": "runtime",
}
__all__ = ["TesseraBackend", "TesseraPartitioner", "backend_library", "load_backend", "set_option"]


def __getattr__(name):
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


def __dir__():
    return __all__

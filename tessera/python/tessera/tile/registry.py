# SPDX-License-Identifier: Apache-2.0
"""Which operators of models are kernels. embedding.py, which needs the package onnx, puts them into models."""

import dataclasses

from .errors import KernelError
from .kernel import Kernel


@dataclasses.dataclass
class Registered:
    kernel: Kernel
    parameters: dict  # keywords of the kernel that are no attributes


registered = {}  # (domain, name) -> Registered


def register(operator, kernel, **parameters):
    """Nodes `operator`, "my.domain::Name", become that kernel. Attributes of a node are keywords of the kernel, and
    `parameters` are further ones. A Session then embeds them, and embed() does it for a file. Errors: KernelError."""
    domain, _, name = operator.rpartition("::")
    if not domain or not name or not isinstance(kernel, Kernel):
        raise KernelError(f"an operator 'my.domain::Name' and a kernel are registered, not {operator!r} and {kernel!r}")
    if domain in ("ai.onnx", "com.microsoft", "ai.tessera"):
        raise KernelError(f"'{operator}': domain {domain} has its own meaning; take a domain of your own")
    unknown = set(parameters) - set(kernel.parameters)
    if unknown:
        raise KernelError(f"kernel '{kernel.__name__}' has no parameter '{min(unknown)}'")
    registered[domain, name] = Registered(kernel, parameters)


def unregister(operator):
    """Forgets a registration."""
    domain, _, name = operator.rpartition("::")
    registered.pop((domain, name), None)


def embedding():
    """The module that needs onnx."""
    try:
        from . import embedding as module
    except ImportError:
        raise KernelError("kernels are put into models with the package onnx; install it: pip install onnx") from None
    return module


def embed(model, config="npu256", shapes=None):
    """The model, an onnx.ModelProto, a path or bytes, with registered nodes of its main graph as kernels for a machine:
    any interface compiles and runs it then. shapes: {input: shape} where they are dynamic. Returns an onnx.ModelProto.
    Errors: KernelError names the node."""
    return embedding().embed(model, config, shapes)


def prepared(model, config, shapes):
    """What a Session opens in the place of `model`."""
    return embedding().prepared(model, config, shapes) if registered else model

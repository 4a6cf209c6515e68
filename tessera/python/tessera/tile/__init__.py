# SPDX-License-Identifier: Apache-2.0
"""Kernels for the NPU in Python: a language of tiles.

A kernel is a function of a builder and of tensors in DRAM. It allocates tiles in the scratchpads, loads, computes with
products and the vector unit, and stores. Waits and signals are not written: they are found from the addresses.

    from tessera import tile

    @tile.kernel
    def add(k, x, y):
        z = k.output("int8", x.shape)
        a, b = k.out(*x.shape), ...
"""

from .builder import Builder
from .errors import KernelError
from .kernel import Kernel, Program, Spec, kernel

__all__ = ["Builder", "Kernel", "KernelError", "Program", "Spec", "kernel"]

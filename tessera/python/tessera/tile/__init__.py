# SPDX-License-Identifier: Apache-2.0
"""Kernels for the NPU in Python: a language of tiles.

A kernel is a function of a builder and of tensors in DRAM. It allocates tiles in the scratchpads, loads, computes with
products and the vector unit, and stores. Waits and signals are not written: they are found from the addresses.

    from tessera import tile

    @tile.kernel
    def matmul(k, a, b):
        y = k.output("int8", (a.shape[0], b.shape[0]))
        x, w = k.inp(*a.shape), k.wgt(*b.shape)
        k.load(x, a)
        k.load(w, b)
        s, o = k.acc(*y.shape), k.out(*y.shape)
        k.dot(s, x, w)
        k.convert(o, s, k.param(0, 0.01))
        k.store(y, o)
        return y
"""

from .builder import Builder
from .checking import Outcome, check
from .errors import DoesNotFit, KernelError
from .events import Event, KernelWarning
from .kernel import Kernel, Program, Spec, kernel
from .models import embed
from .operators import Constant, Operator, operator
from .patterns import pattern
from .registry import register, replace, unregister
from .searching import Tuned, tune

__all__ = [
    "Builder",
    "Constant",
    "DoesNotFit",
    "Event",
    "Kernel",
    "KernelError",
    "KernelWarning",
    "Operator",
    "Outcome",
    "Program",
    "Spec",
    "Tuned",
    "check",
    "embed",
    "kernel",
    "operator",
    "pattern",
    "register",
    "replace",
    "tune",
    "unregister",
]

# SPDX-License-Identifier: Apache-2.0
"""Which operators of models are kernels. models.py puts them there."""

import dataclasses

from .errors import KernelError
from .kernel import Kernel
from .operators import Operator
from .patterns import Pattern


@dataclasses.dataclass
class Registered:
    kernel: Kernel | Operator
    parameters: dict  # keywords of the kernel that are no attributes


@dataclasses.dataclass
class Replacement:
    pattern: Pattern
    kernel: Kernel | Operator
    match: object  # a function, or None
    parameters: dict


registered = {}  # (domain, name) -> Registered
replacements = []


def register(operator, kernel, **parameters):
    """Nodes `operator`, "my.domain::Name", become that kernel or operator. Attributes of a node are its keywords, and
    `parameters` are further ones. A Session then embeds them, and embed() does it for a file. Errors: KernelError.

    A node whose inputs are float and come of DequantizeLinear, and whose results go to QuantizeLinear, becomes one that
    takes and gives integers: a kernel with inputs x, y then has keywords x_scale, x_zero, y_scale, y_zero, output_scale
    and output_zero (output0_scale and so on where there are several)."""
    domain, _, name = operator.rpartition("::")
    if not domain or not name or not isinstance(kernel, Kernel | Operator):
        raise KernelError(f"an operator 'my.domain::Name' and a kernel are registered, not {operator!r} and {kernel!r}")
    if domain in ("ai.onnx", "com.microsoft", "ai.tessera"):
        raise KernelError(f"'{operator}': domain {domain} has its own meaning; take a domain of your own")
    check_parameters(kernel, parameters)
    registered[domain, name] = Registered(kernel, parameters)


def check_parameters(kernel, parameters):
    unknown = set(parameters) - set(kernel.parameters)
    if unknown:
        raise KernelError(f"kernel '{kernel.__name__}' has no parameter '{min(unknown)}'")


def replace(pattern, kernel, match=None, **parameters):
    """Operators of a model that a pattern describes become a kernel or an operator. Its tensors are the values of the
    pattern that have their names. match(**values): asked for each place, with an array for each value that is constant
    and a Spec for each other one; gives keywords of the kernel, or None where it is not to be replaced."""
    if not isinstance(pattern, Pattern) or not isinstance(kernel, Kernel | Operator):
        raise KernelError(f"a pattern and a kernel are given to replace(), not {pattern!r} and {kernel!r}")
    missing = [name for name in kernel.inputs if name not in pattern.values]
    if missing:
        raise KernelError(f"pattern '{pattern.__name__}' has no value '{missing[0]}', which '{kernel.__name__}' takes")
    check_parameters(kernel, parameters)
    replacements.append(Replacement(pattern, kernel, match, parameters))


def unregister(operator):
    """Forgets a registration, or what replaces a pattern."""
    if isinstance(operator, Pattern):
        replacements[:] = [one for one in replacements if one.pattern is not operator]
        return
    domain, _, name = operator.rpartition("::")
    registered.pop((domain, name), None)

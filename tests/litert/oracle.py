# SPDX-License-Identifier: Apache-2.0
"""LiteRT's interpreter with each of its sets of kernels.

- "reference": BUILTIN_REF, plain loops, the meaning of the operators;
- "optimised": BUILTIN_WITHOUT_DEFAULT_DELEGATES, the kernels that run where no delegate takes an operator;
- "default": what Interpreter(file) gives, with XNNPACK as its delegate."""

import contextlib
import dataclasses

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

KERNELS = {
    "reference": OpResolverType.BUILTIN_REF,
    "optimised": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "default": OpResolverType.AUTO,
}


class Refused(Exception):
    """LiteRT does not run the file; the text is its reason."""


@dataclasses.dataclass
class Run:
    outputs: list  # arrays in the order of the file
    shapes: dict  # of all tensors of the first subgraph, by number


def run(data, feeds, kernels="reference"):
    """Feeds and results are arrays in the order of the file. Errors: Refused."""
    try:
        interpreter = Interpreter(
            model_content=data,
            experimental_op_resolver_type=KERNELS[kernels],
            num_threads=1,
            experimental_preserve_all_tensors=False,
        )
        for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
            if tuple(detail["shape"]) != feed.shape:
                interpreter.resize_tensor_input(detail["index"], feed.shape)
        interpreter.allocate_tensors()
        for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
            interpreter.set_tensor(detail["index"], feed)
        interpreter.invoke()
        outputs = [np.array(interpreter.get_tensor(d["index"])) for d in interpreter.get_output_details()]
        shapes = {d["index"]: tuple(int(n) for n in d["shape"]) for d in interpreter.get_tensor_details()}
        return Run(outputs, shapes)
    except (RuntimeError, ValueError) as error:
        raise Refused(str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__) from error


def run_first(data, feeds):
    """The meaning of a file: (kernels, run) of the reference, or of the optimised kernels where an operator has no
    other, as CEIL, ROUND and ELU. Errors: Refused."""
    try:
        return "reference", run(data, feeds)
    except Refused as error:
        if "Registration failed" not in str(error):
            raise
        return "optimised", run(data, feeds, "optimised")


def run_all(data, feeds):
    """Runs by kernels, the meaning first; those that refuse are left out. Errors: Refused."""
    runs = dict([run_first(data, feeds)])
    for kernels in ("optimised", "default"):
        if kernels not in runs:
            with contextlib.suppress(Refused):
                runs[kernels] = run(data, feeds, kernels)
    return runs


def equal(a, b):
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")
        for x, y in zip(a, b)
    )


def departures(runs):
    """The kernels whose results differ from the first's in any bit of any element."""
    first = next(iter(runs.values()))
    return [k for k, r in runs.items() if not equal(r.outputs, first.outputs)]

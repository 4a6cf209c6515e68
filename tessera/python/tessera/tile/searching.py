# SPDX-License-Identifier: Apache-2.0
"""Which numbers a kernel takes: sizes of tiles, bands, lags. Enters: a kernel, tensors, lists of values by parameter.
Leaves: the fastest choice. Method: all of them are built and predicted, the best few are measured."""

import dataclasses
import itertools

import numpy as np

from .errors import DoesNotFit, KernelError
from .kernel import Spec

MOST = 4096  # points of a space


@dataclasses.dataclass
class Tuned:
    """parameters: the fastest ones; cycles: by the judge; tried: rows (parameters, predicted cycles, measured cycles or
    None), the fastest first; refused: points that do not fit the machine."""

    parameters: dict
    cycles: int
    tried: list
    refused: int

    def __str__(self):
        words = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        count = f"{len(self.tried)} tried, {self.refused} do not fit"
        return f"{self.cycles:,} cycles with {words or 'no parameters'} ({count})"


def tune(kernel, tensors, space, *, config="npu256", judge="sysc", measured=5, **fixed):
    """The values of `space`, {parameter: values}, with which the kernel takes the fewest cycles for these tensors,
    arrays or Specs. judge: the device that measures the `measured` best of the predictions; "predicted" takes the
    prediction. fixed: parameters that stay. Errors: KernelError."""
    unknown = set(space) - set(kernel.parameters)
    if unknown:
        raise KernelError(f"kernel '{kernel.__name__}' has no parameter '{min(unknown)}'")
    points = list(itertools.islice(itertools.product(*space.values()), MOST + 1))
    if not points or len(points) > MOST:
        raise KernelError(f"a space has 1 to {MOST:,} points, and this one {'none' if not points else 'more'}")
    rows, refused, last = [], 0, None
    for point in points:
        parameters = dict(zip(space, point, strict=True))
        try:
            program = kernel.build(*tensors, config=config, **fixed, **parameters)
        except DoesNotFit as error:
            refused, last = refused + 1, error
            continue
        rows.append([parameters, program.predicted_cycles, None, program])
    if not rows:
        raise KernelError(f"kernel '{kernel.__name__}': no point of the space fits {config}; the last says: {last}")
    rows.sort(key=lambda row: row[1])
    if judge != "predicted":
        for row in rows[: max(1, measured)]:
            row[2] = cycles_of(kernel, row[3], tensors, judge)
        rows[: max(1, measured)] = sorted(rows[: max(1, measured)], key=lambda row: row[2])
    best = rows[0]
    tried = [tuple(row[:3]) for row in rows]
    return Tuned(best[0], best[2] if best[2] is not None else best[1], tried, refused)


def cycles_of(kernel, program, tensors, device):
    """Cycles of a run on a device with time. They do not depend on values."""
    arrays = [np.zeros(one.shape, one.dtype) if isinstance(one, Spec) else one for one in tensors]
    session = program.session(device)
    session.run(None, kernel.feeds(tensors, arrays))
    cycles = session.stats()["cycles"]
    if cycles is None:
        raise KernelError(f"device {device} has no time; sysc and rtl have")
    return cycles

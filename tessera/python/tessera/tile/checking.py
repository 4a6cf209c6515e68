# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel computes what its reference says: random shapes and values on the interpreter and on devices, with
races, poison and bounds watched on the functional simulator."""

import dataclasses

import numpy as np

from .errors import DoesNotFit, KernelError
from .kernel import Kernel, Spec

EXTREMES = 0.25  # of the cases have no values but the largest and the smallest


@dataclasses.dataclass
class Outcome:
    """cases: how many were equal, by device; refused: draws that do not fit the machine, by message; cycles: by
    device with time, of each case that ran there; unread: what is computed in vain, by line, with the cases."""

    cases: dict
    refused: dict
    cycles: dict
    unread: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        text = ", ".join(f"{count} on {device}" for device, count in self.cases.items())
        cut = sum(self.refused.values())
        vain = "".join(f"\n{line}: in {len(numbers)} cases nobody reads it" for line, numbers in self.unread.items())
        return f"equal in all cases: {text}" + (f"; {cut} draws do not fit the machine" if cut else "") + vain


def array_of(spec, rng):
    """Random values of a Spec; an array stays what it is."""
    if not isinstance(spec, Spec):
        return np.asarray(getattr(spec, "array", spec))
    kind = np.iinfo(spec.dtype)
    if rng.random() < EXTREMES:
        return rng.choice(np.array([kind.min, kind.max], spec.dtype), spec.shape)
    return rng.integers(kind.min, kind.max, spec.shape, spec.dtype, endpoint=True)


def check(kernel, draw=None, *, cases=100, config="npu256", devices=None, seed=0):
    """Compares a kernel with its reference.

    draw(rng) gives the tensors of a case, Specs or arrays, and behind them a dict of parameters where there are any;
    default: what @kernel.cases decorates. devices: {device: cases}; default: the functional simulator for all, SystemC
    for a tenth of them, the RTL for a hundredth (at least one case each). Cases take the layouts that a kernel names in
    turn. Returns an Outcome. Errors: KernelError names the case, its seed and the first element that differs, or the
    line that races or reads what nobody wrote."""
    draw = draw or kernel.draw
    if kernel.meaning is None or draw is None:
        missing = "reference" if kernel.meaning is None else "cases"
        raise KernelError(
            f"kernel '{kernel.__name__}' has no {missing}; decorate a function with @{kernel.__name__}.{missing}"
        )
    devices = devices or {"fsim": cases, "sysc": max(1, cases // 10), "rtl": max(1, cases // 100)}
    outcome = Outcome(dict.fromkeys(["interpreter", *devices], 0), {}, {})
    number = 0
    for number in range(cases):
        rng = np.random.default_rng([seed, number])
        drawn = draw(rng)
        drawn = list(drawn) if isinstance(drawn, list | tuple) else [drawn]
        parameters = drawn.pop() if isinstance(drawn[-1], dict) else {}
        label = f"kernel '{kernel.__name__}', case {number} of seed {seed}"
        try:
            forms = kernel.forms(drawn) if isinstance(kernel, Kernel) and len(drawn) == len(kernel.inputs) else [drawn]
            program = kernel.build(*forms[number % len(forms)], config=config, **parameters)
        except DoesNotFit as error:
            outcome.refused[str(error)] = outcome.refused.get(str(error), 0) + 1
            continue
        except KernelError as error:
            raise KernelError(f"{label}: {error}") from None
        for text in program.unread:
            outcome.unread.setdefault(text.rpartition(": ")[0], []).append(number)
        arrays = [array_of(one, rng) for one in drawn]
        _compare(kernel, program, drawn, arrays, parameters, devices, number, label, outcome)
    if cases and not outcome.cases["interpreter"]:
        raise KernelError(
            f"kernel '{kernel.__name__}': no case fits {config}; the last says: {next(iter(outcome.refused))}"
        )
    return outcome


def _compare(kernel, program, drawn, arrays, parameters, devices, number, label, outcome):
    wanted = kernel.wanted(drawn, arrays, parameters)
    wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    feeds = kernel.feeds(drawn, arrays)
    _equal(program, program.interpret(*feeds.values()), wanted, f"{label}, interpreter")
    outcome.cases["interpreter"] += 1
    for device, count in devices.items():
        if number >= count:
            continue
        session = program.session(device, **({"check_races": True, "poison": number + 1} if device == "fsim" else {}))
        try:
            found = session.run(None, feeds)
        except RuntimeError as error:
            raise KernelError(f"{label}, {device}: {error}") from None
        _equal(program, found, wanted, f"{label}, {device}")
        outcome.cases[device] += 1
        if session.stats()["cycles"] is not None:
            outcome.cycles.setdefault(device, {})[number] = session.stats()["cycles"]


def _equal(program, found, wanted, label):
    for tensor, one, other in zip(program.outputs, found, wanted, strict=True):
        other = np.asarray(other)
        if one.shape != other.shape or one.dtype != other.dtype:
            raise KernelError(
                f"{label}: '{tensor.name}' is {one.dtype} {one.shape}, and the reference gives {other.dtype} "
                f"{other.shape}"
            )
        different = np.argwhere(one != other)
        if different.size:
            at = tuple(int(i) for i in different[0])
            raise KernelError(
                f"{label}: {len(different):,} of {one.size:,} elements of '{tensor.name}' differ; at {at} it is "
                f"{one[at]} and the reference says {other[at]}"
            )

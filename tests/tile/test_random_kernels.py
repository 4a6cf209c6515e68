# SPDX-License-Identifier: Apache-2.0
"""Random kernels: the interpreter of the manual's text, the functional simulator with races and poison, SystemC and the
RTL give the same bytes. Faults planted into them are found before anything runs, at their line."""

import re

import numpy as np
import pytest

from tessera import tile

from . import random_kernels

CONFIGS = ("npu64", "npu256", "npu256t", "npu1024")
COUNT, ON_SYSC, ON_RTL, FAULTS = 240, 60, 8, 120


def values(spec, rng):
    kind = np.iinfo(spec.dtype)
    return rng.integers(kind.min, kind.max, spec.shape, spec.dtype, endpoint=True)


def built(seed, config):
    lines, specs = random_kernels.draw(seed, config)
    kernel = random_kernels.kernel_of(lines, f"random_{seed}.py")
    return lines, kernel, specs, kernel.build(*specs, config=config)


@pytest.mark.parametrize("config", CONFIGS)
def test_devices_and_the_manual_agree(config):
    refused = 0
    for seed in range(COUNT // len(CONFIGS)):
        try:
            lines, kernel, specs, program = built(seed, config)
        except tile.DoesNotFit:
            refused += 1
            continue
        rng = np.random.default_rng(seed)
        arrays = [values(spec, rng) for spec in specs]
        wanted = program.interpret(*arrays)
        feeds = dict(zip(kernel.inputs, arrays, strict=True))
        for device, count in (("fsim", COUNT), ("sysc", ON_SYSC), ("rtl", ON_RTL)):
            if seed >= count // len(CONFIGS):
                continue
            options = {"check_races": True, "poison": seed} if device == "fsim" else {}
            found = program.session(device, **options).run(None, feeds)
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other, f"seed {seed} on {device}:\n" + "\n".join(lines))
    assert refused < COUNT // len(CONFIGS) // 4


def plant(lines, rng):
    """(lines, number of the line, pattern of the message) with one fault; None where there is no place for it."""
    places = lambda pattern: [i for i, line in enumerate(lines) if re.match(pattern, line.strip())]
    kind = str(rng.choice(["overflow", "unwritten", "outside", "window", "never stored"]))
    new = list(lines)
    if kind == "overflow":
        found = places(r"t\d+ = k\.(inp|wgt|acc|out)\(")
        at = int(rng.choice(found))
        new[at] = re.sub(r"\(\*\((\d+)", lambda m: f"(*({m[1]}00000", lines[at], count=1)
        return new, at, "too many"
    if kind == "unwritten":
        found = places(r"k\.(load|dot|convert)\(t\d+")
        at = int(rng.choice(found))
        name = re.search(r"\((t\d+)", lines[at])[1]
        readers = [i for i in range(at + 1, len(lines)) if re.search(rf", {name}\b", lines[i])]
        writers = [i for i in range(len(lines)) if re.match(rf"\s+k\.\w+\({name}\b", lines[i])]
        if not readers or len(writers) != 1:
            return None
        new[at] = "    pass"
        return new, readers[0], "nothing has written"
    if kind == "outside":
        found = places(r"k\.(dot|convert|pool|vector)\(t\d+\[i, j\]")
        if not found:
            return None
        at = int(rng.choice(found))
        new[at] = lines[at].replace("[i, j]", f"[i + {int(rng.integers(20, 90))}, j]", 1)
        return new, at, "is not inside of"
    if kind == "window":
        found = [i for i in places(r"k\.load\(t\d+, x\d+\[") if ":" in lines[i]]
        if not found:
            return None
        at = int(rng.choice(found))
        new[at] = re.sub(r"\[(\d+):(\d+)", lambda m: f"[{m[1]}:{int(m[2]) + 50}", lines[at], count=1)
        return new, at, "is not inside of"
    at = int(rng.choice(places(r"k\.store\(")))
    new[at] = "    pass"
    return new, None, "are never stored"


def test_planted_faults_are_found_at_their_line():
    planted = seed = 0
    while planted < FAULTS:
        seed += 1
        config = CONFIGS[seed % len(CONFIGS)]
        lines, specs = random_kernels.draw(seed, config)
        fault = plant(lines, np.random.default_rng([seed, 1]))
        if fault is None:
            continue
        try:
            built(seed, config)
        except tile.DoesNotFit:
            continue
        new, at, message = fault
        planted += 1
        name = f"faulty_{seed}.py"
        with pytest.raises(tile.KernelError) as caught:
            random_kernels.kernel_of(new, name).build(*specs, config=config)
        assert message in str(caught.value), "\n".join(new)
        assert at is None or str(caught.value).startswith(f"{name}:{at + 1}:"), f"{caught.value}\n" + "\n".join(new)

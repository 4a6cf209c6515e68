# SPDX-License-Identifier: Apache-2.0
"""Random kernels: the interpreter of the manual's text, the functional simulator with races and poison, SystemC and the
RTL give the same bytes. Faults planted into them are found before anything runs, at their line; a wait or a signal that
is taken out of a linked one is found by the race check and by the rules of programs."""

import re

import numpy as np
import pytest

import tessera
from tessera import tile

from . import random_kernels, tampering

CONFIGS = ("npu64", "npu256", "npu256t", "npu1024")
COUNT, ON_SYSC, ON_RTL, FAULTS, BROKEN = 200, 48, 8, 140, 24


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


def without(line):
    return " " * (len(line) - len(line.lstrip())) + "pass"


def plant(lines, rng):
    """(lines, number of the line, pattern of the message) with one fault; None where there is no place for it."""
    places = lambda pattern: [i for i, line in enumerate(lines) if re.match(pattern, line.strip())]
    kind = str(rng.choice(["overflow", "unwritten", "outside", "stride", "window", "padding", "never stored"]))
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
        new[at] = without(lines[at])
        return new, readers[0], "nothing has written"
    if kind == "stride":
        axes = {}  # of the line: extents
        found = []
        for at, line in enumerate(lines):
            if "k.axes(" in line:
                names, extents = line.strip().split(" = k.axes(")
                if re.fullmatch(r"[\d, ]+\)", extents):
                    axes = dict(zip(names.split(", "), map(int, extents.rstrip(")").split(", ")), strict=True))
            elif re.match(r"\s+k\.(dot|convert|vector|lookup|flip)\(t\d+\[i, j\]", line) and axes.get("i", 1) > 1:
                found.append(at)
        if not found:
            return None
        at = int(rng.choice(found))
        new[at] = lines[at].replace("[i, j]", f"[{int(rng.integers(2, 5))} * i, j]", 1)
        return new, at, "is not inside of"
    if kind == "padding":
        found = [(i, re.search(r"\.window\((\(.*?\)), (\(.*?\))\)", line)) for i, line in enumerate(lines)]
        found = [(i, m) for i, m in found if m and "-" in m[1]]
        if not found:
            return None
        at, match = found[int(rng.integers(len(found)))]
        starts, sizes = (re.findall(r"-?\d+", match[part]) for part in (1, 2))
        part = ", ".join(f"{a}:{int(a) + int(b)}" for a, b in zip(starts, sizes, strict=True))
        new[at] = lines[at].replace(match[0], f"[{part}]")
        return new, at, "use window() for what hangs over an edge"
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
    at = int(rng.choice(places(r"k\.store\(y")))
    new[at] = without(lines[at])
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


def broken(words, rng):
    """(instructions with a wait or a signal less, pattern of the message); None where there is no wait."""
    waits = [(n, k) for n, word in enumerate(words[:-1]) for k in range(3) if word["waits"][k]]
    signals = [n for n, word in enumerate(words[:-1]) if word["signal"]]
    if not waits:
        return None
    new = [word | {"waits": list(word["waits"])} for word in words]
    if rng.random() < 0.5:
        n, k = waits[int(rng.integers(len(waits)))]
        new[n]["waits"][k] = None
        return new, "race on"
    new[int(rng.choice(signals))]["signal"] = False
    return new, "never holds|stands later"


def test_broken_synchronisation_is_found_at_its_line():
    found = seed = 0
    while found < BROKEN:
        seed += 1
        config = CONFIGS[seed % len(CONFIGS)]
        try:
            _, kernel, specs, program = built(seed, config)
        except tile.DoesNotFit:
            continue
        rng = np.random.default_rng([seed, 2])
        at, words = tampering.place_of(program.artifact)
        assert tampering.with_instructions(program.artifact, at, words) == program.artifact
        fault = broken(words, rng)
        if fault is None:
            continue
        found += 1
        feeds = dict(zip(kernel.inputs, (values(spec, rng) for spec in specs), strict=True))
        with pytest.raises(tessera.Error, match=fault[1]) as caught:
            artifact = tampering.with_instructions(program.artifact, at, fault[0])
            tessera.Session(artifact, device="fsim", check_races=True).run(None, feeds)
        assert f"'random_{seed}.py:" in str(caught.value)


def test_what_is_computed_in_vain_is_told():
    @tile.kernel
    def vain(k, x):
        y, t, o = k.output("int8", x.shape), k.out(*x.shape), k.out(*x.shape)
        k.load(t, x)
        i, j = t.axes()
        k.vector(o[i, j], t[i, j])
        k.vector(o[i, j], t[i, j])
        k.store(y, o)
        return y

    program = vain.build(tile.Spec("int8", (4, 20)), config="npu256")
    assert len(program.unread) == 1 and "vector: 8 entries are never read" in program.unread[0]

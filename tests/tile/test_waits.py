# SPDX-License-Identifier: Apache-2.0
"""Waits that a kernel places itself: they are enough, one that is missing is named, and the functional simulator's race
checker, which shares no code with that check, finds it too; those that nothing needs are told."""

import numpy as np
import pytest

import tessera
from tessera import tile

pytestmark = pytest.mark.filterwarnings("ignore::tessera.tile.KernelWarning")
WAITS = ("again", "constants", "vector", "stored")


def rounds(left_out=(), more=False):
    """Three times: loads, doubles, stores through the same tiles."""

    @tile.kernel
    def twice(k, x):
        y = k.output("int8", x.shape)
        a, o = k.out(*x.shape), k.out(*x.shape)
        wait = lambda name, *events: None if name in left_out else k.wait(*events)
        added = stored = None
        for _ in range(3):
            if added:
                wait("again", added)
            k.load(a, x)
            loaded = k.signal()
            i, j = a.axes()
            second = k.second("add", a[i, j])  # loads constants, behind the load
            constants = k.signal()
            wait("constants", constants)
            if more:
                k.wait(loaded)
            if stored:
                wait("stored", stored)
            k.vector(o[i, j], a[i, j], second=second)
            added = k.signal()
            wait("vector", added)
            k.store(y, o)
            stored = k.signal()
        return y

    return twice


X = np.random.default_rng(0).integers(-60, 60, (6, 20)).astype(np.int8)


def test_placed_waits_are_enough():
    program = rounds().build(X, config="npu64")
    assert not any("is not needed" in line for line in program.needless_waits)
    for device in ("fsim", "sysc", "rtl"):
        options = {"check_races": True, "poison": 1} if device == "fsim" else {}
        (found,) = program.session(device, **options).run(None, {"x": X})
        np.testing.assert_array_equal(found, 2 * X)


@pytest.mark.parametrize("name", WAITS)
def test_a_missing_wait_is_named_and_races(name):
    program = rounds([name]).build(X, config="npu64")
    with pytest.raises(tile.KernelError, match=r"^test_waits.py:\d+: .* touches the same bytes of .* may still run"):
        program.artifact  # noqa: B018 - makes it
    session = tessera.Session(program._link(unchecked=True), "fsim", check_races=True)
    with pytest.raises(tessera.Error, match="race"):
        session.run(None, {"x": X})


def placed(program, pairs):
    """The program with these waits, whatever they are."""
    program._placed.pairs = pairs
    program._placed._lines = dict.fromkeys(pairs, ("", ""))
    try:
        program._link()
        complete = True
    except tile.KernelError as error:
        assert "may still run" in str(error)
        complete = False
    session = tessera.Session(program._link(unchecked=True), "fsim", check_races=True)
    try:
        session.run(None, {one.name: np.zeros(one.shape, one.dtype) for one in program.inputs})
        return complete, True
    except tessera.Error as error:
        assert "race" in str(error)
        return complete, False


def test_random_waits_race_where_the_check_says_so():
    seen = set()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        program = rounds(list(rng.choice(WAITS, rng.integers(0, 4)))).build(X, config="npu64")
        count = sum(len(one.instructions) for one in program.statements)
        drawn = (sorted(int(v) for v in rng.choice(count, 2, replace=False)) for _ in range(int(rng.integers(0, 6))))
        complete, quiet = placed(program, [*program._placed.pairs, *((later, earlier) for earlier, later in drawn)])
        assert complete == quiet, f"seed {seed}"
        seen.add(complete)
    assert seen == {True, False}


def test_needless_waits_are_told():
    program = rounds(more=True).build(X, config="npu64")
    with pytest.warns(tile.KernelWarning, match="is not needed"):
        told = program.needless_waits
    assert any("the wait for the event of" in line for line in told)


def test_errors():
    @tile.kernel
    def early(k, x):
        k.signal()

    @tile.kernel
    def late(k, x):
        y = k.output("int8", x.shape)
        a = k.out(*x.shape)
        k.load(a, x)
        k.wait(k.signal())
        k.store(y, a)
        k.wait(k.signal())
        return y

    @tile.kernel
    def nothing(k, x):
        k.wait(3)

    for kernel, message in (
        (early, r"signal\(\) stands behind the statement"),
        (late, "no statement stands behind this wait"),
        (nothing, r"wait\(\) takes what signal\(\) of this kernel gave, not 3"),
    ):
        with pytest.raises(tile.KernelError, match=r"test_waits.py:\d+: " + message):
            kernel.build(X, config="npu64")

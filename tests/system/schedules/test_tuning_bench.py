# SPDX-License-Identifier: Apache-2.0
"""The bench of a tuner: that its pieces, spaces, counts, bounds and proofs are true. The oracle of cycles is the timing
model, of a proof every schedule that searches meet."""

import json
import os
import pathlib
import sys
import time

import _tessera
import pytest

import tessera
from tessera import tuning

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import networks  # noqa: E402

from .tuned_digits import DIGITS, feeds, session_of, timed  # noqa: E402

LONG = bool(os.environ.get("TESSERA_LONG"))


def test_pieces_and_their_spaces():
    bench = _tessera.Tuning(str(DIGITS), "npu64", {}, {})
    pieces = bench.pieces()
    assert {piece["count"] for piece in pieces} >= {1, 2} and all(piece["size"] >= 1 for piece in pieces)
    chosen = bench.chosen()
    plain = session_of("fsim", "npu64").schedules()
    for piece, schedule in chosen:
        assert json.loads(schedule) == plain[pieces[piece]["layers"][0]]
        assert bench.obstacle(piece, schedule) == ""
        other = bench.mutate(piece, schedule, 5)
        assert other == bench.mutate(piece, schedule, 5) and bench.obstacle(piece, other) == ""
        drawn = bench.sample(piece, 6)
        assert bench.obstacle(piece, drawn) == ""
        assert bench.obstacle(piece, bench.cross(piece, schedule, drawn, 7)) == ""
        assert bench.alone(piece, drawn, "closed-form")[0] > 0 and bench.alone(piece, drawn, "replay")[0] > 0
    with pytest.raises(tessera.Error, match="closed form|no instructions"):
        bench.together(chosen, "closed-form")
    with pytest.raises(tessera.Error, match="does not follow"):
        bench.together([chosen[0], chosen[0]], "replay")
    with pytest.raises(tessera.Error, match="begin with its first operation"):
        bench.whole(chosen[1:], "replay")
    with pytest.raises(tessera.Error, match="there is none"):
        bench.sample(len(pieces), 1)


@timed
def test_the_bench_counts_what_the_device_counts():
    """Within a per cent: the addresses of the device's memory are not those of the bench."""
    session = session_of("sysc", "npu64")
    session.run(None, feeds(session))
    bench = _tessera.Tuning(str(DIGITS), "npu64", {}, {})
    cycles, moved = bench.whole(bench.chosen(), "sysc")
    assert abs(cycles - session.stats().cycles) <= 0.01 * session.stats().cycles
    bytes_of_run = session.stats().dram_read_bytes + session.stats().dram_write_bytes
    assert abs(moved - bytes_of_run) <= 0.01 * bytes_of_run  # the bench does not count the last instruction


def test_what_a_bench_has_judged_before_changes_nothing():
    """Chains that were drawn may have room for columns in pairs or not; the oracle is a bench that knows no other."""
    model, config = networks.build("vww")[0], "npu256"
    bench = _tessera.Tuning(model, config, {}, {})
    chosen = bench.chosen()
    plain = bench.whole(chosen, "replay")
    drawn = 0
    for at, (piece, _) in enumerate(chosen):
        for seed in range(2 if bench.pieces()[piece]["count"] > 1 else 0):
            state = [*chosen[:at], (piece, bench.sample(piece, seed)), *chosen[at + 1 :]]
            assert bench.whole(state, "replay") == _tessera.Tuning(model, config, {}, {}).whole(state, "replay")
            drawn += 1
    assert drawn > 10 and bench.whole(chosen, "replay") == plain


def test_no_schedule_is_below_its_bound():
    """The oracle is the timing model: whatever is drawn from the space takes at least the cycles that are said to be
    compulsory."""
    bench = _tessera.Tuning(str(DIGITS), "npu64", {}, {})
    looked = 0
    for number, piece in enumerate(bench.pieces()):
        bounds = bench.bounds(number)
        assert (piece["count"] == 1) == bool(bounds)
        if not bounds:
            continue
        drawn = [bench.sample(number, seed) for seed in range(8)] + bench.candidates(number, "exhaustive", 4)
        cycles = [bench.together([(number, schedule)], "sysc")[0] for schedule in drawn]
        assert min(bounds) <= min(cycles), piece["layers"]
        looked += 1
    assert looked > 2
    proof = tuning.prove(bench, 0, seconds=0.2)
    assert bench.obstacle(0, proof.schedule) == "" and 0 <= proof.open <= proof.tiles and 0 <= proof.gap < 1
    assert bench.together([(0, proof.schedule)], "sysc")[0] == proof.cycles >= proof.bound >= min(bench.bounds(0))
    chain = next(number for number, piece in enumerate(bench.pieces()) if piece["count"] > 1)
    with pytest.raises(ValueError, match="chain"):
        tuning.prove(bench, chain)


@timed
@pytest.mark.parametrize("name", ["vww", *["mobilenetv2"] * LONG])
def test_no_layer_of_a_network_is_below_its_bound(name):
    """On npu64, where a depthwise window takes two passes: the compiler's best schedules, and what replays made faster.
    The oracle is the timing model. In the long form there are more schedules, and MobileNetV2."""
    bench = _tessera.Tuning(networks.build(name)[0], "npu64", {}, {})
    seen = set()
    for number, piece in enumerate(bench.pieces()):
        if piece["count"] > 1 or piece["key"] in seen:
            continue
        seen.add(piece["key"])
        proof = tuning.prove(bench, number, seconds=1 if LONG else 0.1)
        least = min(bench.bounds(number))
        assert least <= proof.bound <= proof.cycles and not proof.broken, (piece["layers"], proof.schedule)
    assert len(seen) > 20


@timed
def test_a_proof_ends_and_goes_on_where_it_was_interrupted():
    """The digits' layers on npu64, the first that is proven, in the long form all. The oracle of a proof is every
    schedule that searches meet."""
    bench, proven = _tessera.Tuning(str(DIGITS), "npu64", {}, {}), 0
    singles = [number for number, piece in enumerate(bench.pieces()) if piece["count"] == 1]
    for number in singles:
        proof = tuning.prove(bench, number, seconds=0.4, exact=False)
        before = proof
        proof = proof.closer(bench, number, "sysc", 1, time.monotonic() + (20 if LONG else 1))
        assert proof.cycles <= before.cycles and proof.bound >= before.bound
        assert proof.closed + proof.open <= proof.tiles and proof.gap <= before.gap
        if not proof.proven:
            continue
        proven += 1
        assert proof.bound == proof.cycles and proof.gap == 0
        drawn = bench.candidates(number, "exhaustive", 16) + [bench.sample(number, seed) for seed in range(16)]
        for seed in range(32):
            drawn.append(bench.mutate(number, proof.schedule, seed))
        assert proof.cycles <= min(bench.together([(number, schedule)], "sysc")[0] for schedule in drawn)
        # Another run comes to the same, whatever it has met before.
        again = tuning.prove(_tessera.Tuning(str(DIGITS), "npu64", {}, {}), number, seconds=60, seed=7)
        assert again.proven and again.cycles == proof.cycles
        if not LONG:
            break
    assert proven > 0

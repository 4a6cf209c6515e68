# SPDX-License-Identifier: Apache-2.0
"""hw/litex/blocks.py: sites of block RAMs and multipliers, against plain loops and all permutations. The parts here are
made up, so that neither LiteX nor nextpnr is needed."""

import itertools
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hw" / "synth"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hw" / "litex"))
import bitstream
import blocks

RANDOM = np.random.default_rng(7)


class MadeUpPart:
    size = (40, 30)
    tables = 40 * 30 * 8

    def __init__(self, multipliers, memories):
        self.sites = {}
        for kind, count, row in (("MULT18X18D", multipliers, 5), ("DP16KD", memories, 20)):
            places = [(1 + 3 * (at % 12), row + at // 12) for at in range(count)]
            self.sites[kind] = np.array(places, float), [f"X{x}/Y{y}/{kind}" for x, y in places]


def module(cells, wires, ports=()):
    """Yosys' JSON of a module. `cells`: types. `wires`: cells of each net, of which the first drives it."""
    made = {f"c{at}": {"type": kind, "connections": {}} for at, kind in enumerate(cells)}
    for net, owners in enumerate(wires):
        for cell in owners:
            made[f"c{cell}"]["connections"][f"P{len(made[f'c{cell}']['connections'])}"] = [net + 2]
    for cell in made.values():
        cell["connections"] |= {"CLK": [1], "tied": ["0"]}
    return {"cells": made, "ports": {name: {"bits": [net + 2]} for name, net in ports}}


def groups(count):
    """Groups of a multiplier or a memory with logic around it, each wired to the next one."""
    cells, wires = [], []
    for group in range(count):
        base = len(cells)
        cells += ["MULT18X18D" if group % 2 else "DP16KD", *["LUT4"] * 30]
        wires += [(base, base + 1 + at) for at in range(30)]
        wires += [(base + 1 + at, base + 2 + at, base + 3 + at) for at in range(28)]
        wires += [(base + 30, base + 32)] * 4 if group + 1 < count else []
    return module(cells, wires, [("in", 0)])


def length(netlist, wires, place):
    total = 0
    for owners in wires:
        for axis in (0, 1):
            at = [place[cell, axis] for cell in owners]
            total += max(at) - min(at)
    return total


def test_length_and_springs_are_the_bounding_boxes():
    wires = [tuple(RANDOM.choice(50, RANDOM.integers(2, 9), replace=False)) for _ in range(80)]
    netlist = blocks.Netlist(module(["LUT4"] * 50, wires), {})
    place = RANDOM.uniform(0, 500, (50, 2))
    assert netlist.length(place) == pytest.approx(length(netlist, wires, place))
    springs = 0
    for axis in (0, 1):
        a, b, weight = netlist.springs(place[:, axis])
        springs += (weight * (place[a, axis] - place[b, axis]) ** 2).sum()
    near = sum(abs(place[a] - place[b]).min() < 0.5 for net in wires for a, b in itertools.combinations(net, 2))
    assert springs == pytest.approx(netlist.length(place), rel=1e-9 if not near else 1e-2)


def test_clocks_constants_and_single_pins_are_no_wires():
    netlist = blocks.Netlist(module(["LUT4", "LUT4", "TRELLIS_FF"], [(0, 1), (2,)]), {})
    assert netlist.net.tolist() == [0, 0] and netlist.wires.tolist() == [1, 1, 0]


def test_assignment_is_the_best_of_all():
    for count in (1, 3, 5):
        place, sites = RANDOM.uniform(0, 9, (count, 2)), RANDOM.integers(0, 9, (6, 2)).astype(float)
        wires = RANDOM.integers(1, 9, count)

        def cost(choice, place=place, sites=sites, wires=wires):
            return sum(wires[at] * np.abs(place[at] - sites[site]).sum() for at, site in enumerate(choice))

        best = min(cost(choice) for choice in itertools.permutations(range(6), count))
        assert cost(blocks.assigned(place, wires, sites)) == pytest.approx(best)


def test_spread_fills_the_box_evenly_and_keeps_the_order():
    place, area = RANDOM.normal(20, 1, (4000, 2)), RANDOM.choice([0.25, 1.0, 2.0], 4000)
    out = blocks.spread(place, area, ((4, 6), (36, 30)))
    assert out.min(0).tolist() >= [4, 6] and out.max(0).tolist() <= [36, 30]
    held = np.histogram2d(*out.T, bins=(8, 6), range=((4, 36), (6, 30)), weights=area)[0]
    assert np.abs(held / held.mean() - 1).max() < 0.25
    assert np.corrcoef(place[:, 0], out[:, 0])[0, 1] > 0.9 and np.corrcoef(place[:, 1], out[:, 1])[0, 1] > 0.9


def test_every_block_has_a_site_of_its_own_and_wires_are_short():
    netlist, part = blocks.Netlist(groups(40), {"in": (0, 10)}), MadeUpPart(24, 24)
    bound, wires = blocks.bind(netlist, part)
    assert len(set(bound.values())) == len(bound) == 40
    assert all(site in part.sites[netlist.kinds[netlist.names.index(cell)]][1] for cell, site in bound.items())
    assert bound == blocks.bind(netlist, part)[0]
    place = blocks.spread(RANDOM.uniform(0, 30, (netlist.cells, 2)), netlist.area, ((0, 0), part.size))
    for kind, (sites, _) in part.sites.items():
        cells = np.flatnonzero(netlist.kinds == kind)
        place[cells] = sites[RANDOM.permutation(len(sites))[: len(cells)]]
    assert wires < 0.4 * netlist.length(place)


def test_too_many_blocks_are_told():
    with pytest.raises(ValueError, match="20 MULT18X18D are needed and the part has 12"):
        blocks.bind(blocks.Netlist(groups(40), {}), MadeUpPart(12, 24))


def test_a_router_that_goes_round_is_found(tmp_path):
    log = tmp_path / "nextpnr_1.log"

    def found(counts, late=0):
        form = "Info:     iter={} wires=900 overused={} overuse={} tmgfail={} archfail=NA\n"
        rounds = [form.format(n, left, left, late) for n, left in enumerate(counts)]
        log.write_text("Info: Running router2...\n" + "".join(rounds))
        return bitstream.goes_round(log)

    rounds = bitstream.ROUNDS
    assert found([90, 7] + [1] * 2 * rounds)
    assert not found([1] * (2 * rounds - 1))
    assert found([2, 1] * rounds)
    assert not found([0] * 2 * rounds, late=38)
    assert not found([2] * rounds + [1] * rounds)
    assert not found([1] * 2 * rounds + [0])
    assert not found([0] * 2 * rounds)
    assert not found([])

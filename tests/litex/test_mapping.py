# SPDX-License-Identifier: Apache-2.0
"""hw/litex/mapping.py and what hw/litex/bitstream.py takes of nextpnr's report. Netlists and reports are made
up, so that neither LiteX nor Yosys nor nextpnr is needed."""

import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hw" / "synth"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hw" / "litex"))
import bitstream
import mapping


def gate(kind, y, **inputs):
    return {"type": f"$_{kind}_", "connections": {"Y": [y], **{port: [bit] for port, bit in inputs.items()}}}


def register(q, d, ce="1"):
    ports = {"CLK": [1], "DI": [d], "CE": [ce], "Q": [q]}
    inputs = dict.fromkeys(("CLK", "DI", "CE"), "input")
    return {"type": "TRELLIS_FF", "connections": ports, "port_directions": {**inputs, "Q": "output"}}


def memory(outputs):
    ports = {"CLKA": [1], "ADA0": ["0"], **{f"DOA{at}": [bit] for at, bit in enumerate(outputs)}}
    return {"type": "DP16KD", "connections": ports, "port_directions": {"CLKA": "input", "ADA0": "input"}}


def test_gates_behind_memories_and_before_wide_enables_are_groups():
    cells = {
        "ram": memory([10]),
        "first": gate("AND", 11, A=10, B=20),
        "second": gate("MUX", 12, A=11, B=21, S=22),
        "end": register(13, 12),
        "behind the end": gate("NOT", 14, A=13),
        "select": gate("OR", 30, A=23, B=24),
        "enable": gate("NOT", 31, A=30),
        "both": gate("XOR", 32, A=11, B=30),
        **{f"q{at}": register(100 + at, 14, 31) for at in range(mapping.MANY)},
        **{f"r{at}": register(200 + at, 14, 32) for at in range(mapping.MANY)},
        "few": gate("NOT", 40, A=30),
        **{f"s{at}": register(300 + at, 14, 40) for at in range(mapping.MANY - 1)},
    }
    found = mapping.groups({"cells": cells})
    assert found == {"late": {"first", "second", "both"}, "wide": {"select", "enable"}}


def test_groups_are_what_plain_walks_find():
    draw = random.Random(3)
    for _ in range(50):
        cells = {"ram": memory([2, 3])}
        bits = list(range(2, 8))
        for at in range(60):
            inputs = dict(zip("ABS", draw.sample(bits, 3), strict=True))
            cells[f"g{at}"] = gate("MUX", 100 + at, **inputs)
            bits.append(100 + at)
        wide = 100 + draw.randrange(60)
        cells |= {f"q{at}": register(500 + at, 7, wide) for at in range(mapping.MANY)}

        def reaches(name, cells=cells):
            return any(
                bit in (2, 3) or (bit >= 100 and reaches(f"g{bit - 100}"))
                for port in "ABS"
                for bit in cells[name]["connections"][port]
            )

        def needed(name, cells=cells):
            inner = {f"g{bit - 100}" for port in "ABS" for bit in cells[name]["connections"][port] if bit >= 100}
            return {name}.union(*(needed(one) for one in inner))

        late = {f"g{at}" for at in range(60) if reaches(f"g{at}")}
        found = mapping.groups({"cells": cells})
        assert found.get("late", set()) == late
        assert found.get("wide", set()) == needed(f"g{wide - 100}") - late


def test_commands_map_each_group_and_then_the_rest(tmp_path):
    lines = mapping.commands({"wide": {"b", "a"}}, tmp_path)
    assert (tmp_path / "wide.sel").read_text() == "tessera/a\ntessera/b\n"
    assert lines[:4] == ["select -read wide.sel", "select -set wide %", "abc -lut 4 @wide", "select -clear"]
    assert lines[4].startswith("abc -dress -lut 4 t:$_") and lines[5] == "clean"


def test_paths_between_clocks_in_phase_have_a_bound():
    def path(begin, end, *delays):
        return {"from": begin, "to": end, "path": [{"delay": delay} for delay in delays]}

    slow, fast, other = "$glbnet$clkout0", "$glbnet$clkout1", "eth_clk"
    report = {
        "fmax": {
            fast: {"achieved": 113.0, "constraint": 102},
            slow: {"achieved": 50.5, "constraint": 50.9996},
            other: {"achieved": 130.0, "constraint": 127.5},
        },
        "critical_paths": [
            path(f"posedge {slow}", f"posedge {slow}", 19.8),
            path(f"posedge {slow}", f"posedge {fast}", 0.5, 12.0),
            path(f"posedge {fast}", f"posedge {slow}", 8.0),
            path(f"posedge {other}", f"posedge {slow}", 30.0),
            path("<async>", f"posedge {slow}", 30.0),
        ],
    }
    alone = [(slow, 50.5, 50), (fast, 113.0, 100), (other, 130.0, 125)]
    assert bitstream.clocks(report, ["clkout0", "clkout1"]) == [
        *alone,
        (f"{slow} to {fast}", pytest.approx(80.0), 100),
        (f"{fast} to {slow}", pytest.approx(125.0), 100),
    ]
    assert bitstream.clocks(report, []) == alone


def test_clocks_are_asked_for_with_a_margin():
    text = 'LOCATE COMP "clk25" SITE "G2";\nFREQUENCY PORT "clk25" 25.0 MHz;\n'
    assert bitstream.hurried(text) == 'LOCATE COMP "clk25" SITE "G2";\nFREQUENCY PORT "clk25" 25.500000 MHz;\n'

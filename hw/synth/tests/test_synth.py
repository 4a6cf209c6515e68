#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the scripts of synthesis without Yosys: tables of the documents, counts, keys of modules, reports of sta,
wrappers. What needs Yosys is in check.py."""

import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).absolute().parent.parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import cells  # noqa: E402
import chips  # noqa: E402
import figures  # noqa: E402
import machine  # noqa: E402
import modules  # noqa: E402
import pnr  # noqa: E402
import points  # noqa: E402
import synth  # noqa: E402
import timing  # noqa: E402
import worst  # noqa: E402

CELL = "  cell {} {}\n    connect \\A \\a\n  end\n"


def module(name, cells, source="a.sv:1.1-2.2"):
    return f'attribute \\src "{source}"\nmodule {name}\n' + "".join(CELL.format(*cell) for cell in cells) + "end\n"


class Documents(unittest.TestCase):
    def test_tables_are_those_of_the_recorded_figures(self):
        text = figures.PAGE.read_text()
        self.assertEqual(figures.page(text, figures.load()), text, "./dev synth --record writes them")

    def test_a_mark_without_a_table_is_refused(self):
        with self.assertRaisesRegex(figures.Failure, "no table 'none'"):
            figures.page("<!-- table: none -->\n<!-- end -->", figures.load())


class Counting(unittest.TestCase):
    def test_counts_of_a_hierarchy_add_up(self):
        area = synth.Area(
            {
                "\\tsr_top": {"$paramod$1\\tsr_lane": 3, "LUT6": 2},
                "$paramod$1\\tsr_lane": {"LUT2": 5, "FDRE": 7, "RAM32M": 2, "RAMB18E1": 1, "DSP48E1": 1, "CARRY4": 9},
            }
        )
        self.assertEqual(
            area.total("\\tsr_top"), {"lut": 17, "lut_memory": 24, "ff": 21, "dsp": 3, "bram36": 1.5, "uram": 0}
        )
        lanes, own = area.parts("\\tsr_top")
        self.assertEqual((lanes["module"], lanes["instances"], lanes["lut"]), ("tsr_lane", 3, 15))
        self.assertEqual((own["module"], own["lut"]), ("(itself)", 2))

    def test_latches_and_unmapped_cells_are_refused(self):
        for kind in ("LDCE", "$_DLATCH_P_", "$add"):
            with self.assertRaises(figures.Failure):
                synth.classify({kind: 1})

    def test_a_chip_counts_modules_as_often_as_they_stand_in_it(self):
        lane, core = "$paramod$1\\tsr_lane", "\\tsr_top"
        texts = {
            core: module(core, [(lane, "\\u_a"), (lane, "\\u_b"), ("$add", "$1")]),
            lane: module(lane, [("$and", "$1")]),
        }
        everything = {name: modules.Module(name, text, None) for name, text in texts.items()}
        self.assertEqual(chips.instances(everything, core), {core: 1, lane: 2})
        everything[core].cells, everything[lane].cells = {lane: 2, "LUT6": 3}, {"LUT2": 5, "FDRE": 1}
        counts = chips.taken(everything, chips.instances(everything, core), synth.classify)
        self.assertEqual((counts["lut"], counts["ff"]), (13, 2))

    def test_a_part_is_full_or_has_a_quarter_to_spare(self):
        def verdict(**used):
            row = synth.fits({**dict.fromkeys(synth.KEYS, 0), **used}, "xc7")[0]
            return row["fits"], row["spare"]

        self.assertEqual(verdict(lut=39900, dsp=220), (True, True))
        self.assertEqual(verdict(lut=39900, lut_memory=1), (True, False))
        self.assertEqual(verdict(lut=53201), (False, False))
        self.assertEqual(verdict(dsp=221), (False, False))


class Modules(unittest.TestCase):
    def test_a_configuration_may_be_a_file_elsewhere(self):
        def write(commands, log, *_):
            self.assertEqual(log.name, "elaborate_npu64.log")
            (log.parent / commands[-1].split()[1]).write_text(module("\\tsr_top", []))

        config = str(HERE.parent / "configs" / "npu64.toml")
        with tempfile.TemporaryDirectory() as folder, mock.patch("machine.yosys", write):
            self.assertEqual(list(modules.elaborate(config, pathlib.Path(folder), "yosys", 1)), ["\\tsr_top"])

    def test_split_and_cells(self):
        text = "# Yosys\nautoidx 9\n" + module("\\tsr_a", [("$add", "$add$x$1")]) + module("\\tsr_b", [])
        found = modules.split(text)
        self.assertEqual(list(found), ["\\tsr_a", "\\tsr_b"])
        self.assertEqual(modules.cells_of(found["\\tsr_a"]), {"$add": 1})

    def test_invented_names_and_lines_do_not_count(self):
        one = module("\\tsr_a", [("$add", "$add$/x/a.sv:7$12"), ("$mux", "$13")])
        same = module("\\tsr_a", [("$add", "$add$/y/a.sv:9$99"), ("$mux", "$100")], "b.sv:9.1-9.9")
        other = module("\\tsr_a", [("$sub", "$add$/x/a.sv:7$12"), ("$mux", "$13")])
        swapped = module("\\tsr_a", [("$add", "\\named"), ("$mux", "$13")])
        self.assertEqual(modules.normal(one), modules.normal(same))
        self.assertNotEqual(modules.normal(one), modules.normal(other))
        self.assertNotEqual(modules.normal(one), modules.normal(swapped))

    def test_ports(self):
        text = (
            "module \\m\n  wire width 8 output 3 \\y_o\n  wire input 1 \\clk_i\n"
            "  wire width 4 signed \\x\n  wire width 16 input 2 signed \\a_i\nend\n"
        )
        ports = modules.ports(text)
        self.assertEqual(ports, {"clk_i": ("input", 1), "a_i": ("input", 16), "y_o": ("output", 8)})
        part = "module \\part\n  wire input 1 \\b_i\nend\n"  # of a module that is synthesised inside of it
        self.assertEqual(modules.ports(text + part), ports)
        wrapped = pnr.wrapper(ports)
        self.assertIn("inner u_inner (.clk_i(clk_i), .a_i(in_q[0+:16]), .y_o(out_d[0+:8]));", wrapped)


class Timing(unittest.TestCase):
    REPORT = """
45. Executing STA pass (static timing analysis).
Latest arrival time in '$paramod$7\\tsr_a' is 2398:
    2398 $slice$72 (FDRE.D)
           \\next
    1994 $lut$8 (LUT6.I0->O)
           $carry [3]
    1352 $c (CARRY4.S[0]->CO[3])
           \\left_q [7]
     303 $slice$71 (FDRE.C->Q)
       0   \\clk_i (<primary input>)

Arrival histogram:
"""

    def test_a_path(self):
        netlist = (
            "\nmodule $paramod$7\\tsr_a\n  cell FDRE $slice$72\n    connect \\D \\next\n    connect \\Q \\right_q [2]\n"
            "  end\nend\n"
        )
        (name, report), *rest = timing.reports(self.REPORT).items()
        self.assertEqual((name, rest), ("$paramod$7\\tsr_a", []))
        self.assertEqual(
            timing.path_of(report, name, netlist),
            {"ns": 2.4, "levels": 1, "start": "left_q [7]", "end": "right_q [2]", "cells": ["FDRE", "CARRY4", "LUT6"]},
        )

    def test_a_path_of_opensta(self):
        text = (
            "Startpoint: _12_ (rising edge-triggered flip-flop clocked by clk)\n"
            "Endpoint: out_o (output port clocked by clk)\n\n"
            "   0.148    0.148 ^ _12_/Q (DFFPOSX1)\n   0.203    0.351 v _9_/Y (NAND3X1)\n"
            "   0.000    0.351 v out_o (out)\n            0.351   data arrival time\n"
        )
        self.assertEqual(cells.path_of(text), (0.351, 2, "_12_", "out_o"))
        with self.assertRaisesRegex(cells.Failure, "OpenSTA reports no path: No paths found"):
            cells.path_of("No paths found.\nNo paths found")

    def test_budgets(self):
        self.assertEqual(machine.budget("tsr_anything"), {"ns": 5.0, "levels": 12})

    def test_recorded_machines_keep_their_budgets(self):
        recorded = figures.load()["timing"]
        for key, rows in recorded.items():
            over = {name: row for name, row in rows.items() if timing.over({**row, "budget": machine.budget(name)})}
            self.assertEqual(over, {}, key)
        self.assertLessEqual({"npu16", "npu256t"}, {key.split()[0] for key in recorded})

    def test_an_arc_of_a_block_ram_whose_condition_is_false_counts(self):
        # So derives Yosys the models of block RAMs; a met condition comes first.
        cell = {"type": "$specify3", "connections": {"SRC": [3], "DST": [2], "EN": ["0"]}}
        slow, fast = ({**cell, "parameters": {"FULL": "0", "T_RISE_MAX": ps}} for ps in ("1001", "0110"))
        ports = {"DO": {"direction": "output", "bits": [2]}, "CLK": {"direction": "input", "bits": [3]}}
        model = worst.Model({"ports": ports, "cells": {"a": slow, "b": fast}})
        self.assertEqual(model.launches, {("DO", 0): 9})
        met = {**fast, "connections": {**fast["connections"], "EN": ["1"]}}
        model = worst.Model({"ports": ports, "cells": {"a": slow, "b": met}})
        self.assertEqual(model.launches, {("DO", 0): 6})


class Worst(unittest.TestCase):
    """Two registers, of which one word reaches the other through a look-up table, and itself through none."""

    @staticmethod
    def models():
        def arc(kind, source, target, **parameters):
            nets = {"SRC": [source], "DST": [target], "EN": ["1"]}
            return {"type": kind, "parameters": {"FULL": "1", "TYPE": "$setup", **parameters}, "connections": nets}

        ports = {name: {"direction": way, "bits": [net]} for name, way, net in [("D", "input", 1), ("Q", "output", 2)]}
        register = {"ports": {**ports, "C": {"direction": "input", "bits": [3]}}, "cells": {}}
        register["cells"]["launch"] = arc("$specify3", 3, 2, T_RISE_MAX="100101111")  # 303
        register["cells"]["setup"] = arc("$specrule", 1, 3, T_LIMIT_MAX="110010")  # 50
        ports = {name: {"direction": way, "bits": [net]} for name, way, net in [("I0", "input", 1), ("O", "output", 2)]}
        return {"FDRE": register, "LUT1": {"ports": ports, "cells": {"way": arc("$specify2", 1, 2, T_RISE_MAX="1000")}}}

    def test_one_path_for_each_start_and_end(self):
        def cell(kind, **nets):
            return {"type": kind, "parameters": {}, "connections": {port: [net] for port, net in nets.items()}}

        top = {
            "ports": {"clk": {"direction": "input", "bits": [9]}},
            "cells": {
                "a0": cell("FDRE", D=2, Q=2, C=9),
                "a1": cell("FDRE", D=3, Q=3, C=9),
                "lut": cell("LUT1", I0=3, O=4),
                "b": cell("FDRE", D=4, Q=5, C=9),
            },
            "netnames": {"a_q": {"bits": [2, 3]}, "b_q": {"bits": [5]}, "b_d": {"bits": [4]}},
        }
        paths = worst.Netlist({**self.models(), "top": top}, "top").worst(9)
        self.assertEqual(
            [(one["ns"], one["levels"], one["start"], one["end"]) for one in paths],
            [(0.36, 1, "a_q", "b_q"), (0.35, 0, "a_q", "a_q")],
        )
        self.assertEqual(paths[0]["through"], ["a_q", "b_d"])

    def test_records_have_a_line_for_each_object_of_numbers(self):
        for value in ({}, [], {"a": 1, "b": [1, 2], "c": {"d": None, "e": {"f": "x"}}}, [[1], {}, "{"], 1.5):
            self.assertEqual(json.loads(figures.json_of(value)), value)
        self.assertEqual(figures.json_of({"a": {"b": 1, "c": 2}, "d": [3]}), '{\n "a": {"b": 1, "c": 2},\n "d": [3]\n}')
        for path in (figures.FILE, points.RECORDS):
            self.assertEqual(path.read_text(), figures.json_of(json.loads(path.read_text())) + "\n")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the generator: committed files are fresh, broken descriptions are refused with the cause, the Python encoder
agrees with bit positions written by hand, and the golden words that the C++ tests read are the Python encoder's.

    isa/tests/test_generate.py            run
    isa/tests/test_generate.py --update   write isa/tests/words.txt anew
"""

import copy
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "generated")]
sys.dont_write_bytecode = True

import generate
import tessera_isa
from generator import sv
from generator.model import SpecError, build_isa
from generator.registers import build_map
from generator.timing import build_timing, chapter, evaluate, header, localparams, revise

WORDS = ROOT / "tests" / "words.txt"


def assembly(instruction):
    """The text form, written from the manual and apart from the C++ disassembler: every field, none left out."""
    parts = [instruction["name"]]
    for key, value in instruction.items():
        if key in ("name", "signal", "waits"):
            continue
        if isinstance(value, list):
            text = ",".join(str(int(v)) if isinstance(v, bool) else str(v) for v in value)
        else:
            text = str(int(value)) if isinstance(value, bool) else str(value)
        parts.append(f"{key}={text}")
    if any(instruction["waits"]):
        parts.append("wait=" + ",".join("-" if w is None else f"{w[0]}:{w[1]}" for w in instruction["waits"]))
    if instruction["signal"]:
        parts.append("signal")
    return " ".join(parts)


def random_element(rng, field):
    _, width, _, _, kind, default = field
    if kind.startswith("enum:"):
        return rng.choice(list(tessera_isa.ENUMS[kind[5:]]))
    if kind == "bool":
        return rng.random() < 0.5
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "signed" else (0, (1 << width) - 1)
    return rng.choice([low, high, default, rng.randint(low, high), rng.randint(low, high)])


def random_instruction(rng, name):
    _, _, fields, _ = tessera_isa.INSTRUCTIONS[name]
    out = {"name": name, "signal": rng.random() < 0.5, "waits": []}
    for _ in range(3):
        engine = rng.choice(list(tessera_isa.ENUMS["engine"]))
        out["waits"].append((engine, rng.choice([0, 65535, rng.randrange(65536)])) if rng.random() < 0.5 else None)
    for key, field in fields.items():
        values = [random_element(rng, field) for _ in range(max(1, field[2]))]
        out[key] = values if field[2] else values[0]
    return out


def golden_words():
    rng = random.Random(7)
    lines = [
        "# Random instructions as assembly, each followed by its word in hexadecimal, first byte first. Written by",
        "# isa/tests/test_generate.py --update with the Python encoder; read by the C++ tests.",
    ]
    for name in tessera_isa.INSTRUCTIONS:
        for _ in range(12):
            instruction = random_instruction(rng, name)
            lines += [assembly(instruction), tessera_isa.encode(instruction).hex()]
    return "\n".join(lines) + "\n"


class Generated(unittest.TestCase):
    def test_committed_files_are_fresh(self):
        files = generate.outputs()
        committed = {p.name for p in (ROOT / "generated").iterdir() if p.is_file()}
        self.assertEqual(committed, set(files))
        for name, text in files.items():
            self.assertEqual((ROOT / "generated" / name).read_text(), text, f"{name} is stale: run isa/generate.py")

    def test_check_finds_a_stale_file(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(ROOT / "generate.py"), "--output", folder]
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
            self.assertEqual(subprocess.run(command + ["--check"], capture_output=True).returncode, 0)
            with open(pathlib.Path(folder) / "isa.md", "a") as file:
                file.write("x")
            result = subprocess.run(command + ["--check"], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout), (1, "stale isa.md\n"))

    def test_golden_words(self):
        self.assertEqual(WORDS.read_text(), golden_words(), "run isa/tests/test_generate.py --update")


class SpecTest(unittest.TestCase):
    """A copy of isa.toml to break."""

    def setUp(self):
        self.spec = copy.deepcopy(generate.load_toml(ROOT / "isa.toml"))

    def instruction(self, name):
        return next(i for i in self.spec["instruction"] if i["name"] == name)

    def field(self, instruction, name):
        return next(f for f in self.instruction(instruction)["fields"] if f["name"] == name)

    def refused(self, message):
        with self.assertRaises(SpecError) as caught:
            build_isa(self.spec)
        self.assertIn(message, str(caught.exception))


class IsaRefusals(SpecTest):
    def test_the_description_itself_is_accepted(self):
        built = build_isa(self.spec).instructions
        self.assertEqual([i.name for i in built], [i["name"] for i in self.spec["instruction"]])
        self.assertEqual(
            {i.name: i.opcode for i in built if i.opcode < 7},
            {"finish": 1, "fence": 2, "load": 3, "store": 4, "gemm": 5, "alu": 6},
        )

    def test_bit_claimed_twice(self):
        self.field("gemm", "wgt_addr")["lsb"] = 149
        self.refused("gemm: bit 149 is claimed by inp_addr and by wgt_addr")

    def test_bit_of_the_header_claimed(self):
        self.field("fence", "engine")["lsb"] = 63
        self.refused("fence: bit 63 is claimed by wait_count and by engine")

    def test_forgotten_bit(self):
        self.instruction("gemm")["reserved"] = [{"lsb": 462, "width": 50}]
        self.refused("gemm: bit 461 is neither a field nor reserved (1 such bits)")

    def test_reserved_over_a_field(self):
        self.instruction("alu")["reserved"] = [{"lsb": 506, "width": 6}]
        self.refused("alu: bit 506 is claimed by second_table and by reserved")

    def test_beyond_the_word(self):
        self.field("alu", "second_table")["width"] = 10
        self.refused("alu.second_table: beyond bit 511")

    def test_elements_overlap(self):
        self.field("gemm", "extent")["stride"] = 11
        self.refused("gemm.extent: elements overlap")

    def test_forgotten_header_bit(self):
        self.spec["header"] = [f for f in self.spec["header"] if f["name"] != "signal"]
        self.refused("header: bit 6 is neither a field nor reserved")

    def test_opcode_twice_or_zero(self):
        self.instruction("load")["opcode"] = 5
        self.refused("gemm: opcode 5 is taken by load")
        self.instruction("load")["opcode"] = 0
        self.refused("load: opcode 0 is out of range or 0")

    def test_fetch_executes_finish_alone(self):
        self.instruction("alu")["engine"] = "fetch"
        self.refused("alu: FETCH executes finish alone")

    def test_enum_wider_than_its_field(self):
        self.spec["enums"]["gemm_mode"]["values"]["sparse"] = 4
        self.refused("gemm.mode: 2 bits cannot hold enum gemm_mode")

    def test_enum_values_twice(self):
        self.spec["enums"]["space"]["values"]["wgt"] = 0
        self.refused("enum space: two names share a value")

    def test_unknown_kind_key_and_default(self):
        self.field("load", "length")["kind"] = "float"
        self.refused("load.length: unknown kind float")
        self.field("load", "length")["kind"] = "unsigned"
        self.field("load", "length")["default"] = 65536
        self.refused("load.length: default 65536 does not fit")
        self.field("load", "length")["defualt"] = 1
        self.refused("load: unknown key defualt")


class OperandRefusals(SpecTest):
    """Errors in nest, operands and work name the instruction, the operand and the cause."""

    def operand(self, instruction, name):
        return next(o for o in self.instruction(instruction)["operands"] if o["name"] == name)

    def refuse_change(self, instruction, name, key, value, message):
        operand = self.operand(instruction, name)
        before = operand.get(key)
        operand[key] = value
        self.refused(f"{instruction}, operand {name}: {message}")
        operand[key] = before
        if before is None:
            del operand[key]
        build_isa(self.spec)

    def test_fields_must_exist_and_have_the_right_kind(self):
        self.refuse_change("gemm", "weights", "address", "weight_addr", "no field weight_addr")
        self.refuse_change("gemm", "weights", "address", "wgt_stride", "wgt_stride is signed and must be unsigned")
        self.refuse_change("gemm", "weights", "stride", "wgt_addr", "wgt_addr is unsigned and must be signed")
        self.refuse_change("load", "source", "memory", "dram:bank", "no field bank")
        self.refuse_change("load", "destination", "memory", "field:fill", "fill is bool and must be enum")
        self.refuse_change(
            "alu", "source", "memory", "field:second_op", "enum second_op names add, max, mul, none, which is no memory"
        )
        self.refuse_change("load", "source", "length", "sp_stride", "sp_stride is signed and must be unsigned")
        self.refuse_change("load", "weights", "length", "config:beat", "beat is none of the sizes inp_entry_bytes")
        self.refuse_change("load", "source", "length", "config:wgt_entry_bytes", "DRAM's length does not depend")

    def test_words_must_be_known(self):
        self.refuse_change("gemm", "weights", "memory", "weights", "no memory weights")
        self.refuse_change("gemm", "weights", "access", "modify", "access is read or write, not modify")
        self.refuse_change("gemm", "weights", "unit", "words", "unit is entries or bytes, not words")
        self.refuse_change("gemm", "weights", "loops", "some", "unknown loops some")
        self.refuse_change("store", "destination", "unit", "entries", "DRAM is addressed in bytes")
        self.refuse_change("gemm", "weights", "strides", "wgt_stride", "unknown key strides")

    def test_conditions(self):
        self.refuse_change("gemm", "initial sums", "when", "accumulates", "no field accumulates")
        self.refuse_change("gemm", "initial sums", "when", "mode == sparse", "enum gemm_mode has no value sparse")
        self.refuse_change(
            "gemm", "initial sums", "when", "accumulate or lane", "cannot read the condition 'accumulate or lane'"
        )
        self.refuse_change(
            "gemm", "initial sums", "when", "lane == many", "lane is compared with 'many', which is no number"
        )
        self.refuse_change("gemm", "initial sums", "when", "lane", "lane is unsigned and must be bool")

    def test_loops_need_a_nest_that_has_them(self):
        self.refuse_change("gemm", "weights", "loops", "inside", "loops inside need the nest's padding")
        self.refuse_change("load", "destination", "loops", "outer", "outer loops need the nest's reduce")
        self.refuse_change("alu", "table", "stride", "src_stride", "a stride without loops")
        del self.instruction("store")["nest"]
        self.refused("store, operand source: the instruction has no nest")

    def test_nothing_is_forgotten(self):
        del self.instruction("finish")["operands"]
        self.refused("finish: no operands (write `operands = []` when it touches no memory)")
        self.instruction("finish")["operands"] = []
        self.instruction("gemm")["operands"].pop(1)
        self.refused("gemm: wgt_stride belongs to no operand and no nest")

    def test_one_operand_in_dram(self):
        self.instruction("store")["operands"].append(dict(self.operand("store", "destination"), name="copy"))
        self.refused("store: more than one operand in DRAM")

    def test_work(self):
        self.instruction("gemm")["work"][0]["each"] = ["batch", "block"]
        self.refused("gemm.work: each multiplies some of batch, block_in, block_out, lanes, not block")
        self.instruction("gemm")["work"][0]["counts"] = "flops"
        self.refused("gemm.work: counts is one of macs, vectors, steps, pauses, not flops")
        self.instruction("gemm")["work"] = []
        self.refused("gemm: gemm needs its steps (in work) and its latency")

    def test_latency(self):
        latency = self.instruction("alu")["latency"]
        latency[0]["when"] = "second_op == sub"
        self.refused("alu.latency: enum second_op has no value sub")
        del latency[0]["when"]
        self.refused("alu.latency: the last entry has no condition, and all others have one")
        latency[0]["when"] = "second_op != none"
        latency[0]["cycles"] = "alu.third"
        isa = build_isa(self.spec)
        with self.assertRaisesRegex(SpecError, "alu.latency: timing.toml has no alu.third"):
            generate.timing.check_names(isa, generate.machine()[1])


class RegisterRefusals(unittest.TestCase):
    def setUp(self):
        self.spec = copy.deepcopy(generate.load_toml(ROOT / "registers.toml"))
        config = generate.load_toml(ROOT.parent / "hw" / "configs" / "npu64.toml")
        self.parameters = [key for key in config if key != "name"]

    def register(self, name):
        return next(r for r in self.spec["register"] if r["name"] == name)

    def refused(self, message):
        with self.assertRaises(SpecError) as caught:
            build_map(self.spec, self.parameters)
        self.assertIn(message, str(caught.exception))

    def test_control_registers_stand_where_ap_ctrl_hs_has_them(self):
        registers = build_map(self.spec, self.parameters)
        self.assertEqual([registers.register(n).offset for n in ("ap_ctrl", "gie", "ier", "isr")], [0, 4, 8, 12])
        bits = {f.name: f.lsb for f in registers.register("ap_ctrl").fields}
        self.assertEqual(bits, {"ap_start": 0, "ap_done": 1, "ap_idle": 2, "ap_ready": 3, "auto_restart": 7})

    def test_address_claimed_twice(self):
        self.register("instruction_count")["offset"] = 0x14
        self.refused("instruction_count: address 0x14 is claimed by program_address")

    def test_arrays_that_overlap(self):
        self.register("base")["count"] = 17
        self.refused("window_first: address 0xa0 is claimed by base")

    def test_bits(self):
        self.register("fault")["fields"][1]["lsb"] = 3
        self.refused("fault: bit 3 is claimed by code and by unit")
        self.register("fault")["fields"][1]["lsb"] = 8
        self.register("fault")["reserved"] = [{"lsb": 4, "width": 4}]
        self.refused("fault: bit 11 is neither a field nor reserved")

    def test_parameter_without_a_register(self):
        self.parameters.append("clusters")
        self.refused("configuration parameter clusters has 0 registers, must have one")

    def test_outside_the_map(self):
        self.register("executed")["offset"] = 0x1000
        self.refused("executed: address 0x1000 is outside the map")

    def test_access_and_alignment(self):
        self.register("gie")["offset"] = 0x6
        self.refused("gie: offset and stride are multiples of 4")
        self.register("gie")["access"] = "maybe"
        self.register("gie")["offset"] = 0x4
        self.refused("gie: unknown access maybe")

    def test_arguments(self):
        self.register("window_first")["argument"] = "array"
        self.refused("window_first: an argument is a pointer or a scalar, not array")
        self.register("window_first")["argument"] = "scalar"
        self.register("gie")["argument"] = "scalar"
        self.refused("gie: the first 16 bytes are block control and no argument")
        del self.register("gie")["argument"]
        self.register("fault")["argument"] = "scalar"
        self.refused("fault: an argument is rw")
        del self.register("fault")["argument"]
        self.register("instruction_count")["argument"] = "pointer"
        self.refused("instruction_count: a pointer has 64 bits")
        self.register("instruction_count")["argument"] = "scalar"
        self.spec["kernel"]["memory"] = "m axi"
        self.refused("kernel.memory: 'm axi' is no name")
        del self.spec["kernel"]["memory"]
        self.refused("kernel: wants the keys")


class TimingTable(unittest.TestCase):
    def setUp(self):
        self.spec = copy.deepcopy(generate.load_toml(ROOT / "timing.toml"))
        self.isa = build_isa(generate.load_toml(ROOT / "isa.toml"))
        self.configs = [(name, config) for name, _, config in generate.configurations()]

    def build(self):
        return build_timing(self.spec, self.isa, self.configs)

    def entry(self, unit, name):
        return next(e for u in self.spec["unit"] if u["name"] == unit for e in u["entries"] if e["name"] == name)

    def place(self, pipeline, name):
        return next(
            p for line in self.spec["pipeline"] if line["name"] == pipeline for p in line["places"] if p["name"] == name
        )

    def refused(self, message):
        with self.assertRaises(SpecError) as caught:
            self.build()
        self.assertIn(message, str(caught.exception))

    def test_what_follows_moves_with_a_register(self):
        """By hand: a register more in the second operation, one less in the first stage, one in the range check
        of GEMM and ALU."""
        self.place("second_op", "clamp")["registers"] = 2
        timing = self.build()
        config = dict(self.configs)["npu64"]  # four turns

        def numbers(*names):
            return [evaluate(timing.number(f"alu.{name}"), config) for name in names]

        self.assertEqual(numbers("raw", "first", "second", "least", "second_to_first"), [4, 14, 32, 14, 19])
        self.place("requantise", "round")["registers"] = 0
        timing = self.build()
        self.assertEqual(numbers("raw", "first", "second", "first_write"), [4, 13, 31, 23])
        self.place("range", "product")["registers"] = 2
        timing = self.build()
        self.assertEqual(
            [timing.number(f"gemm.{n}") for n in ("prepare", "start", "read", "write", "apart")], [10, 11, 8, 10, 3]
        )
        self.assertEqual([timing.number(n) for n in ("transfer.prepare", "transfer.leave", "load.alone")], [9, 11, 14])

    def test_forms_of_other_languages(self):
        self.place("second_op", "clamp")["registers"] = 2
        self.place("second_op", "difference")["registers"] = 0
        timing = self.build()
        self.assertIn(
            "inline constexpr int kFirst = 14;  // alu.raw + requantise.depth + table.depth\n", header(timing)
        )
        self.assertIn(
            "inline constexpr int64_t runs_waiting(const MachineConfig& config) { return 4 * "
            "int64_t{config.reads_in_flight}; }",
            header(timing),
        )
        text = localparams(timing)
        self.assertIn(
            "  localparam logic [12:0] TimingSecondOpRegisters = 13'h1ffe;\n  localparam int unsigned "
            "TimingSecondOpDepth = 13;\n",
            text,
        )
        self.assertIn(
            "  function automatic int unsigned timing_load_runs_waiting(input int unsigned reads_in_flight);\n"
            "    timing_load_runs_waiting = 4 * reads_in_flight;\n  endfunction\n",
            text,
        )
        config = dict(self.configs)["npu64"]
        self.assertEqual(evaluate(timing.number("load.runs_waiting"), config), 4 * config["reads_in_flight"])
        self.assertIn("npu1024 128, npu256 128", chapter(timing, self.configs))

    def test_chapters_follow(self):
        self.place("requantise", "clamp")["registers"] = 2
        timing = self.build()
        self.assertEqual(
            revise("written in 31 (`alu.first`) or 3 (`alu.raw`), see `alu.second`.", timing, "x"),
            "written in 15 (`alu.first`) or 4 (`alu.raw`), see `alu.second`.",
        )
        for text, message in (
            ("3 (`alu.third`)", "x: `alu.third` is not in timing.toml"),
            ("see `gemm.nothing`", "x: `gemm.nothing` is not in"),
            ("32 (`load.runs_waiting`)", "x: `load.runs_waiting` depends on the configuration"),
        ):
            with self.assertRaises(SpecError) as caught:
                revise(text, timing, "x")
            self.assertIn(message, str(caught.exception))

    def test_every_number_of_the_chapter_that_has_a_name_is_the_tables(self):
        for name, text in generate.chapters().items():
            self.assertEqual((ROOT / name).read_text(), text, f"{name} is stale: run isa/generate.py")

    def test_registers_that_the_rtl_cannot_build(self):
        self.place("alu_vector", "read")["registers"] = 2
        self.refused("alu_vector.read: 2 registers, but the RTL builds 1 to 1")

    def test_expressions(self):
        for value, message in (
            ("gemm.start + later.entry", "queue.visible: unknown name gemm.start"),
            ("axi_bytes * bits", "unknown name bits"),
            ("1 +", "'1 +' is not an expression"),
            ("open('x')", "is not an expression of"),
            ("2 ** 3", "'2 ** 3' is not an"),
            ("5 / 2", "5 / 2 leaves a remainder"),
            ("axi_bytes / 3", "leaves a remainder"),
            ("2 - axi_bytes", "is negative"),
        ):
            self.entry_of_queue(value)
            self.refused(message)

    def entry_of_queue(self, value):
        self.spec = copy.deepcopy(generate.load_toml(ROOT / "timing.toml"))
        entry = self.entry("queue", "visible")
        entry["value"] = value
        del entry["rtl"]

    def test_names_and_kinds(self):
        self.entry("bus", "seen")["name"] = "address"
        self.refused("bus.address: the name is taken")
        self.entry("bus", "address")["rtl"] = "somewhere"
        self.refused("bus.address: rtl is one of parameter, structure")
        self.entry("bus", "address")["rtl"] = "structure"
        self.entry("bus", "address")["unlt"] = 1
        self.refused("unit bus: unknown key unlt")


class KernelDescriptions(unittest.TestCase):
    """The generated files, read back by readers that are not the generator."""

    NAMES = ["program_address", "instruction_count", *(f"base_{k}" for k in range(16)), "window_first", "window_last"]
    OFFSETS = [0x10, 0x18, *range(0x20, 0xA0, 8), 0xA0, 0xA8]

    def read(self, name):
        return (ROOT / "generated" / name).read_text()

    def test_xml(self):
        for config in ("npu64", "npu256", "npu256w", "npu256t", "npu1024", "pynq_z2", "ultra96", "kv260"):
            width = str(8 * generate.load_toml(ROOT.parent / "hw" / "configs" / f"{config}.toml")["axi_bytes"])
            for name in (f"kernel_{config}.xml", f"xclbin_{config}.xml"):
                root = ElementTree.fromstring(self.read(name).encode())
                found = list(root.iter("kernel"))
                self.assertEqual([k.get("name") for k in found], ["tsr_kernel"])
                self.assertEqual(found[0].get("hwControlProtocol"), "ap_ctrl_hs")
                ports = {p.get("name"): p.attrib for p in root.iter("port")}
                self.assertEqual(
                    {n: (p["mode"], p["dataWidth"]) for n, p in ports.items()},
                    {"s_axi_control": ("slave", "32"), "m_axi_gmem": ("master", width)},
                )
                arguments = list(root.iter("arg"))
                self.assertEqual([a.get("name") for a in arguments], self.NAMES)
                self.assertEqual([int(a.get("offset"), 0) for a in arguments], self.OFFSETS)
                self.assertEqual([int(a.get("id")) for a in arguments], list(range(20)))
                for a in arguments:
                    pointer = a.get("name") == "program_address" or a.get("name").startswith("base_")
                    self.assertEqual(
                        (a.get("addressQualifier"), a.get("port")),
                        ("1", "m_axi_gmem") if pointer else ("0", "s_axi_control"),
                    )
                    size = 4 if a.get("name") == "instruction_count" else 8
                    self.assertEqual((int(a.get("size"), 0), int(a.get("hostSize"), 0)), (size, size))

    def test_header(self):
        rows = re.findall(
            r'\{"(\w+)", (\d+), (0x\w+), (\d), 0, (\d), ([01]), (\w+), "([\w*]+)"', self.read("kernel_arguments.h")
        )
        self.assertEqual(
            [(r[0], int(r[1]), int(r[2], 0)) for r in rows], list(zip(self.NAMES, range(20), self.OFFSETS))
        )
        self.assertIn("kArgumentBase = 2;", self.read("kernel_arguments.h"))
        self.assertIn("kArgumentWindowLast = 19;", self.read("kernel_arguments.h"))

    def test_xclbin(self):
        sections = json.loads(self.read("xclbin.json"))
        self.assertEqual(sections["ip_layout"]["m_ip_data"][0]["m_name"], "tsr_kernel:tsr_kernel_1")
        self.assertEqual([int(c["arg_index"]) for c in sections["connectivity"]["m_connection"]], [0, *range(2, 18)])
        for name in ("ip_layout", "connectivity", "mem_topology"):
            lists = [value for value in sections[name].values() if isinstance(value, list)]
            self.assertEqual(int(sections[name]["m_count"]), len(lists[0]))


class PythonEncoder(unittest.TestCase):
    def test_by_hand(self):
        word = tessera_isa.encode(
            {
                "name": "gemm",
                "signal": True,
                "waits": [None, ("alu", 0xBEEF)],
                "extent": [1, 2, 3, 4, 5, 6],
                "inp_addr": 5,
                "acc_stride": [0, 0, 0, 0, 0, -1],
                "mode": "depthwise",
            }
        )
        expected = 5 | 1 << 6 | 1 << 26 | 2 << 27 | 0xBEEF << 29
        for k in range(6):
            expected |= (k + 1) << (64 + 12 * k)
        expected |= 5 << 136 | 0x3FFF << (346 + 70) | 1 << 454
        self.assertEqual(int.from_bytes(word, "little"), expected)

    def test_round_trip(self):
        rng = random.Random(3)
        for name in tessera_isa.INSTRUCTIONS:
            for _ in range(500):
                instruction = random_instruction(rng, name)
                self.assertEqual(tessera_isa.decode(tessera_isa.encode(instruction)), instruction)

    def test_refusals(self):
        with self.assertRaisesRegex(tessera_isa.EncodingError, r"gemm.inp_zero = 256 does not fit its field of 9 bits"):
            tessera_isa.encode({"name": "gemm", "inp_zero": 256})
        with self.assertRaisesRegex(tessera_isa.EncodingError, "load: no field extend"):
            tessera_isa.encode({"name": "load", "extend": [1]})
        with self.assertRaises(tessera_isa.EncodingError) as caught:
            tessera_isa.decode(bytes(64))
        self.assertEqual(caught.exception.fault, "illegal_opcode")
        with self.assertRaises(tessera_isa.EncodingError) as caught:
            tessera_isa.decode(bytes([1]) + bytes(62) + bytes([1]))
        self.assertEqual(caught.exception.fault, "illegal_operand")


class SystemVerilog(unittest.TestCase):
    PACKAGE = ROOT / "generated" / "tsr_isa_pkg.sv"

    @unittest.skipUnless(shutil.which("verilator"), "verilator is not installed")
    def test_verilator_takes_the_package_without_a_warning(self):
        result = subprocess.run(
            ["verilator", "--lint-only", "-Wall", str(self.PACKAGE)], capture_output=True, text=True
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("yosys"), "yosys is not installed")
    def test_structs_decode_what_python_encodes(self):
        """Every member of every struct and the legality function, evaluated by Yosys on random and on broken words."""
        rng = random.Random(9)
        ports, body, cases = (
            [
                "input logic [511:0] word_i",
                f"output logic [{len(tessera_isa.INSTRUCTIONS) - 1}:0] instruction_o",
                f"output logic [{len(tessera_isa.INSTRUCTIONS) - 1}:0] broken_o",
                "output logic [1:0] engine_o",
            ],
            [],
            [],
        )
        ports += [f"output logic [1:0] {engine}_o" for engine in tessera_isa.ENUMS["engine"]]
        for name, (_, _, fields, _) in tessera_isa.INSTRUCTIONS.items():
            body.append(f"  tsr_isa_pkg::{name}_t u_{name};\n  assign u_{name} = word_i;")
            for key, field in fields.items():
                bits = field[1] * max(1, field[2])
                member = key + "_" if key in sv.KEYWORDS else key
                ports.append(f"output logic [{bits - 1}:0] {name}_{key}_o")
                body.append(f"  assign {name}_{key}_o = u_{name}.{member};")
            for _ in range(3):
                instruction = random_instruction(rng, name)
                cases.append((instruction, tessera_isa.encode(instruction)))
            broken = bytearray(cases[-1][1])
            broken[63] |= 0x80  # reserved everywhere
            cases.append((None, bytes(broken)))
        cases.append((None, bytes(64)))
        module = "module isa_check (" + ", ".join(ports) + ");\n" + "\n".join(body)
        # Only gemm breaks a rule between fields: a legal encoding of it is illegal_operand, of the others none.
        rules = ", ".join("1'b1" if name == "gemm" else "1'b0" for name in tessera_isa.INSTRUCTIONS)
        module += f"\n  assign broken_o = tsr_isa_pkg::broken_by(word_i, {rules});"
        module += "\n  assign instruction_o = tsr_isa_pkg::instruction_of(word_i[5:0]);"
        module += "\n  assign engine_o = tsr_isa_pkg::engine_of(word_i);"
        for engine in tessera_isa.ENUMS["engine"]:
            module += f"\n  assign {engine}_o = tsr_isa_pkg::{engine}_instruction(word_i[5:0]);"
        module += "\nendmodule\n"
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "isa_check.sv"
            source.write_text(module)
            engines = ["engine_o"] + [f"{engine}_o" for engine in tessera_isa.ENUMS["engine"]]
            script = [f"read_verilog -sv {self.PACKAGE} {source}", "hierarchy -top isa_check", "proc", "flatten", "opt"]
            for instruction, word in cases:
                shown = (
                    [f"{instruction['name']}_{key}_o" for key in tessera_isa.INSTRUCTIONS[instruction["name"]][2]]
                    if instruction
                    else []
                )
                script.append(
                    f"eval -set word_i 512'h{int.from_bytes(word, 'little'):x} "
                    + " ".join(
                        f"-show {port}"
                        for port in shown + ["instruction_o", "broken_o"] + (engines if instruction else [])
                    )
                )
            path = pathlib.Path(folder) / "check.ys"
            path.write_text("\n".join(script) + "\n")
            result = subprocess.run(["yosys", str(path)], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("Warning", result.stdout + result.stderr)
        values = iter(re.findall(r"Eval result: \\(\w+) = \d+'([01]+)\.", result.stdout))
        for instruction, word in cases:
            number = int.from_bytes(word, "little")
            if instruction:
                for key, field in tessera_isa.INSTRUCTIONS[instruction["name"]][2].items():
                    bits = field[1] * max(1, field[2])
                    self.assertEqual(
                        next(values),
                        (f"{instruction['name']}_{key}_o", format(number >> field[0] & ((1 << bits) - 1), f"0{bits}b")),
                    )
                fault = "illegal_operand" if instruction["name"] == "gemm" else "none"
            else:
                try:
                    tessera_isa.decode(word)
                    self.fail("a broken word decodes")
                except tessera_isa.EncodingError as error:
                    fault = error.fault
            opcodes = [opcode for opcode, *_ in tessera_isa.INSTRUCTIONS.values()]
            bits = "".join(str(int(opcode == word[0] & 63)) for opcode in reversed(opcodes))
            none = "0" * len(bits)
            self.assertEqual(next(values), ("instruction_o", bits))
            self.assertEqual(fault == "illegal_opcode", bits == none)
            self.assertEqual(next(values), ("broken_o", bits if fault == "illegal_operand" else none))
            if instruction:
                queue = tessera_isa.INSTRUCTIONS[instruction["name"]][1]
                queue = instruction["engine"] if queue == "field" else queue
                shown = dict(next(values) for _ in range(1 + len(tessera_isa.ENUMS["engine"])))
                if queue != "fetch":
                    self.assertEqual(shown["engine_o"], format(tessera_isa.ENUMS["engine"][queue], "02b"))
                for engine in tessera_isa.ENUMS["engine"]:  # {its own instruction, fence}
                    self.assertEqual(shown[f"{engine}_o"], {engine: "10", "fence": "01"}.get(instruction["name"], "00"))
        self.assertIsNone(next(values, None))


if __name__ == "__main__":
    if "--update" in sys.argv:
        WORDS.write_text(golden_words())
        print(f"wrote {WORDS}")
    else:
        unittest.main()

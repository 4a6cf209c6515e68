#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the packaging for FPGA tools without such tools: the scripts run under tclsh with recorder.tcl in Vivado's
place, and what they stated is compared with the ports as Yosys elaborates them, with isa/registers.toml, with the
sources that Verilator is given, and with what the linker and make are told. Without tclsh or Yosys the tests that need
them are skipped."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import unittest.mock
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).absolute().parent.parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import configure  # noqa: E402
import machine  # noqa: E402
import sections  # noqa: E402

CONFIGS = ("npu64", "npu256", "npu256w", "npu256t", "npu1024", "pynq_z2", "ultra96", "kv260")
BOARDS = ("u250", "u50", "zcu104")
# Boards that go from Vivado to a bitstream: configuration, the processor's IP, address of the registers.
BITSTREAMS = {
    "pynq_z2": ("pynq_z2", "xilinx.com:ip:processing_system7:5.5", 0x40000000),
    "ultra96": ("ultra96", "xilinx.com:ip:zynq_ultra_ps_e:3.4", 0xA0000000),
    "kv260": ("kv260", "xilinx.com:ip:zynq_ultra_ps_e:3.4", 0xA0000000),
}
# What tsr_kernel adds to the master of tsr_top: name: bits, value.
# What tsr_top has as one of several cores.
CHIP_PORTS = {"public", "clear", "idle", "fault", "rest", "all_rest"}
CHIP_PARAMETERS = {"Cores", "MemoryAxiBytes"}
CONSTANT = {"size": (3, None), "burst": (2, 1), "cache": (4, 3), "prot": (3, 0)}
needs_yosys = unittest.skipUnless(shutil.which("yosys"), "yosys is not installed")
needs_tclsh = unittest.skipUnless(shutil.which("tclsh"), "tclsh is not installed")


def run(command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def described(config):
    """The configuration as its file has it."""
    with open(ROOT / "hw/configs" / f"{config}.toml", "rb") as file:
        return tomllib.load(file)


def axi_bytes(config):
    return described(config)["axi_bytes"]


def declared_ports(text, width):
    """{name: (direction, bits)} of the wrapper's header, read as text. `width`: AxiBytes."""
    ports = {}
    for way, bits, name in re.findall(r"^  (input|output)\s+wire\s+(?:\[(.*?):0\]\s+)?(\w+),?$", text, re.M):
        ports[name] = (way, eval(bits, {"AxiBytes": width}) + 1 if bits else 1)
    return ports


class Records:
    """What a script said to the recorder."""

    def __init__(self, path):
        self.lines = [line.split("\t") for line in path.read_text().splitlines()]
        removed = {line[1] for line in self.lines if line[0] == "removed"}
        self.removed = removed
        self.properties = {}
        for line in self.lines:
            if line[0] == "property":
                self.properties[line[1], line[2]] = line[3]

    def of(self, kind):
        return [tuple(line[1:]) for line in self.lines if line[0] == kind]


class Wrapper(unittest.TestCase):
    """tsr_kernel.v against tsr_top."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.values = machine.parameters("npu256w")
        cls.sources = configure.write("npu256w", cls.folder)
        cls.modules = None
        if shutil.which("yosys"):
            # Bodies of the modules inside tsr_top do not matter here: its ports do.
            files = " ".join(
                str(path) for path in cls.sources if path.name in ("tsr_isa_pkg.sv", "tsr_top.sv", "tsr_kernel.v")
            )
            script = (
                f"read_verilog -sv {files}; hierarchy -top tsr_kernel; proc; opt_expr; clean; write_json "
                f"{cls.folder}/kernel.json"
            )
            done = run(["yosys", "-q", "-p", script])
            assert done.returncode == 0, done.stderr
            cls.modules = json.loads((cls.folder / "kernel.json").read_text())["modules"]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @needs_yosys
    def test_every_port_of_the_machine_is_a_port_of_the_kernel(self):
        kernel = self.modules["tsr_kernel"]
        top = next(module for name, module in self.modules.items() if "tsr_top" in name)
        cell = next(cell for cell in kernel["cells"].values() if "tsr_top" in cell["type"])
        nets = {name: port["bits"] for name, port in kernel["ports"].items()}
        used = set()
        for name, port in top["ports"].items():
            stem = re.sub(r"_n?[io]$", "", name)
            outer = {"clk": "ap_clk", "interrupt": "interrupt"}.get(stem) or re.sub(
                "^s_", "s_axi_control_", re.sub("^m_", "m_axi_gmem_", stem)
            )
            if name == "rst_ni" or stem in CHIP_PORTS:
                continue
            self.assertEqual(cell["connections"][name], nets[outer], name)
            self.assertEqual(kernel["ports"][outer]["direction"], port["direction"], name)
            used.add(outer)
        constants = {f"m_axi_gmem_{channel}{name}" for channel in ("ar", "aw") for name in CONSTANT}
        self.assertEqual(set(nets), used | constants | {"ap_rst_n"})
        for channel in ("ar", "aw"):
            for name, (bits, value) in CONSTANT.items():
                found = nets[f"m_axi_gmem_{channel}{name}"]
                self.assertEqual(len(found), bits)
                value = (self.values["AxiBytes"].bit_length() - 1) if value is None else value
                self.assertEqual(found, [str(value >> k & 1) for k in range(bits)], name)
        # The reset passes two registers on the kernel's clock.
        registers = [c["connections"] for c in kernel["cells"].values() if c["type"] == "$dff"]
        steps = {q: d for c in registers for q, d in zip(c["Q"], c["D"]) if c["CLK"] == nets["ap_clk"]}
        self.assertEqual(steps[steps[cell["connections"]["rst_ni"][0]]], nets["ap_rst_n"][0])

    @needs_yosys
    def test_the_header_is_read_as_yosys_reads_it(self):
        ports = {
            name: (port["direction"], len(port["bits"])) for name, port in self.modules["tsr_kernel"]["ports"].items()
        }
        self.assertEqual(declared_ports((self.folder / "tsr_kernel.v").read_text(), self.values["AxiBytes"]), ports)

    def test_parameters(self):
        top = (ROOT / "hw/rtl/tsr_top.sv").read_text()
        names = re.findall(r"parameter int unsigned (\w+)", top)
        found = dict(re.findall(r"parameter integer (\w+)\s*= (\d+)", (self.folder / "tsr_kernel.v").read_text()))
        self.assertEqual({name: int(value) for name, value in found.items()}, self.values)
        self.assertEqual(set(names) - CHIP_PARAMETERS, set(found))
        for name in found:
            self.assertIn(f".{name}({name})", (HERE / "tsr_kernel.v").read_text())

    @unittest.skipUnless(shutil.which("verilator"), "verilator is not installed")
    def test_verilator_takes_it(self):
        done = run(
            [
                "verilator",
                "--lint-only",
                "-Wall",
                "-Wno-WIDTHCONCAT",
                "-Wno-SYMRSVDWORD",
                ROOT / "isa/generated/tsr_isa_pkg.sv",
                ROOT / "hw/rtl/tsr_alu_pkg.sv",
                "-y",
                ROOT / "hw/rtl",
                "-y",
                ROOT / "hw/prim",
                "--top-module",
                "tsr_kernel",
                self.folder / "tsr_kernel.v",
            ]
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_configuration_from_a_file(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "mine.toml"
            path.write_text((ROOT / "hw/configs/npu64.toml").read_text().replace("alu_queue = 16", "alu_queue = 5"))
            configure.write(str(path), pathlib.Path(scratch) / "out")
            self.assertIn("AluQueue       = 5,", (pathlib.Path(scratch) / "out/tsr_kernel.v").read_text())
            with self.assertRaisesRegex(machine.Failure, "no configuration 'npu7'"):
                configure.write("npu7", pathlib.Path(scratch))


@needs_tclsh
class Packaging(unittest.TestCase):
    """package_kernel.tcl and synth_ooc.tcl under the recorder."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        with open(ROOT / "isa/registers.toml", "rb") as file:
            self.map = tomllib.load(file)

    def record(self, config, mode, script="package_kernel.tcl", arguments=None):
        self.sources = configure.write(config, self.folder)
        self.ports = declared_ports((self.folder / "tsr_kernel.v").read_text(), axi_bytes(config))
        (self.folder / "ports").write_text(
            "".join(f"{name} {way} {bits}\n" for name, (way, bits) in self.ports.items())
        )
        return self.rerun(mode, script, arguments)

    def rerun(self, mode, script="package_kernel.tcl", arguments=None):
        return run(
            [
                "tclsh",
                HERE / "tests/recorder.tcl",
                self.folder / "ports",
                mode,
                self.folder / "records",
                HERE / script,
                *(arguments or [self.folder, self.folder / "out/kernel.xo"]),
            ]
        )

    def records(self, config, mode, *rest):
        done = self.record(config, mode, *rest)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return Records(self.folder / "records")

    def test_files_are_those_that_verilator_is_given(self):
        found = [pathlib.Path(line[0]) for line in self.records("npu64", "bare").of("file")]
        self.assertEqual(len(found), len(set(found)))
        design = [path for path in found if path.name != "tsr_kernel.v"]
        expected = {
            *(ROOT / "hw/rtl").glob("*.sv"),
            *(ROOT / "hw/prim").glob("*.sv"),
            ROOT / "isa/generated/tsr_isa_pkg.sv",
        }
        self.assertEqual(set(design), expected)
        self.assertEqual(design[0].name, "tsr_isa_pkg.sv")
        self.assertEqual([path.parent for path in found if path.name == "tsr_kernel.v"], [self.folder])
        given = (ROOT / "sim/verilator/CMakeLists.txt").read_text()
        self.assertIn("/hw/rtl/*.sv ${PROJECT_SOURCE_DIR}/hw/prim/*.sv)", given)

    def test_interfaces_cover_the_ports(self):
        for config in CONFIGS:
            for mode in ("bare", "infer"):
                records = self.records(config, mode)
                mapped = [line[2] for line in records.of("port_map")]
                self.assertEqual(sorted(mapped), sorted(self.ports))
                for bus, logical, name in records.of("port_map"):
                    if bus.startswith(("s_axi", "m_axi")):
                        self.assertEqual(name, f"{bus}_{logical.lower()}")
                kind = "xilinx.com:interface:aximm_rtl:1.0"
                self.assertEqual(
                    dict(records.of("type")),
                    {
                        "s_axi_control": kind,
                        "m_axi_gmem": kind,
                        "ap_clk": "xilinx.com:signal:clock_rtl:1.0",
                        "ap_rst_n": "xilinx.com:signal:reset_rtl:1.0",
                        "interrupt": "xilinx.com:signal:interrupt_rtl:1.0",
                    },
                )
                self.assertEqual(
                    set(records.of("associate")),
                    {("s_axi_control", "ap_clk"), ("m_axi_gmem", "ap_clk"), ("ap_rst_n", "ap_clk")},
                )
                values = {
                    name: value
                    for (path, what), value in records.properties.items()
                    for name in [path.split("/", 1)[-1]]
                    if what == "value" and "memory_map" not in name and name.count("/") == 1
                }
                self.assertEqual(
                    values,
                    {
                        "ap_rst_n/POLARITY": "ACTIVE_LOW",
                        "interrupt/SENSITIVITY": "LEVEL_HIGH",
                        "m_axi_gmem/SUPPORTS_NARROW_BURST": "0",
                        "m_axi_gmem/MAX_BURST_LENGTH": str(min(256, 4096 // axi_bytes(config))),
                        "m_axi_gmem/NUM_READ_OUTSTANDING": str(described(config)["reads_in_flight"]),
                        "m_axi_gmem/NUM_WRITE_OUTSTANDING": str(described(config)["writes_in_flight"]),
                    },
                )

    def test_registers_are_those_of_the_description(self):
        wanted = {"CTRL": (0, 32), "GIER": (4, 32), "IP_IER": (8, 32), "IP_ISR": (12, 32)}
        pointers = set()
        for register in self.map["register"]:
            if "argument" in register:
                for k in range(register.get("count", 1)):
                    name = register["name"] + (f"_{k}" if "count" in register else "")
                    wanted[name] = (register["offset"] + k * register.get("stride", 0), register["width"])
                    if register["argument"] == "pointer":
                        pointers.add(name)
        for mode in ("bare", "infer"):
            records = self.records("npu256", mode)
            block = "core/s_axi_control/reg0/"
            found = {
                name[len(block) :]: (
                    int(records.properties[name, "address_offset"], 0),
                    int(records.properties[name, "size"]),
                )
                for name, kind in records.of("object")
                if kind == "register"
            }
            self.assertEqual(found, wanted)
            associated = {
                name[len(block) :].split("/")[0]: value
                for (name, what), value in records.properties.items()
                if name.endswith("/ASSOCIATED_BUSIF") and what == "value"
            }
            self.assertEqual(associated, dict.fromkeys(pointers, "m_axi_gmem"))
            control = next(r for r in self.map["register"] if r["name"] == "ap_ctrl")
            fields = {
                name.rsplit("/", 1)[1]: (
                    int(records.properties[name, "bit_offset"]),
                    int(records.properties[name, "bit_width"]),
                )
                for name, kind in records.of("object")
                if kind == "field" and "/CTRL/" in name
            }
            self.assertEqual(fields, {f["name"].upper(): (f["lsb"], f["width"]) for f in control["fields"]})
            self.assertEqual(
                int(records.properties["core/s_axi_control/reg0", "range"], 0),
                1 << self.ports["s_axi_control_awaddr"][1],
            )
            self.assertEqual(records.properties["core/s_axi_control", "slave_memory_map_ref"], "s_axi_control")
            self.assertEqual(records.properties["core/m_axi_gmem", "master_address_space_ref"], "m_axi_gmem")

    def test_the_core_becomes_a_kernel(self):
        records = self.records("npu256", "infer")
        core = {what: value for (path, what), value in records.properties.items() if path == "core"}
        self.assertEqual(
            (core["name"], core["sdx_kernel"], core["sdx_kernel_type"], core["vitis_drc"]),
            ("tsr_kernel", "true", "rtl", "ctrl_protocol ap_ctrl_hs"),
        )
        self.assertEqual(records.properties["kernel/sources_1", "top"], "tsr_kernel")
        self.assertEqual(records.removed, {"core/Batch", "core/AxiBytes", "core/s_axi_control"})
        self.assertEqual(records.of("checked"), [("-kernel", "-xrt")])
        self.assertEqual(len(records.of("saved")), 1)
        xo = dict(records.of("package_xo"))
        self.assertEqual(
            (xo["-kernel_name"], pathlib.Path(xo["-xo_path"])), ("tsr_kernel", self.folder / "out/kernel.xo")
        )
        vlnv = dict(records.of("package"))
        vlnv_of_xml = ElementTree.parse(xo["-kernel_xml"]).find("kernel").get("vlnv")
        self.assertEqual(vlnv_of_xml, f"{vlnv['-vendor']}:{vlnv['-library']}:{core['name']}:{core['version']}")

    def test_a_port_outside_all_interfaces_is_refused(self):
        self.record("npu64", "bare")
        with open(self.folder / "ports", "a") as file:
            file.write("debug_led output 1\n")
        done = self.rerun("bare")
        self.assertEqual(
            (done.returncode, done.stderr), (1, "port debug_led belongs to 0 interfaces, must belong to one\n")
        )

    def test_a_missing_source_is_refused(self):
        self.record("npu64", "bare")
        os.remove(self.folder / "tsr_kernel.v")
        done = self.rerun("bare")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tsr_kernel.v does not exist; run configure.py again", done.stderr)

    def test_memories_go_to_ultraram(self):
        """The constraint names instances that the RTL has, and reaches the package and synthesis alone."""
        for config, memories in machine.ULTRA.items():
            records = self.records(config, "bare")
            self.assertEqual(records.of("constrs_1"), [(str(self.folder / "memories.xdc"),)])
            text = (self.folder / "memories.xdc").read_text()
            rtl = (ROOT / "hw/rtl/tsr_scratchpads.sv").read_text()
            for memory in memories:
                self.assertIn(f"u_scratchpads/{memory}/mem_reg*", text)
                self.assertRegex(rtl, rf"tsr_ram_1r1w #\(.*\) {memory} \(")
            self.assertEqual(len(text.splitlines()), len(memories))
            alone = self.records(config, "bare", "synth_ooc.tcl", [self.folder, "xck26-sfvc784-2LV-c", "100"])
            self.assertIn(("read_xdc", str(self.folder / "memories.xdc")), alone.of("command"))
        self.assertEqual(self.records("npu64", "bare").of("constrs_1"), [])

    def test_block_designs(self):
        for board, (config, processor, base) in BITSTREAMS.items():
            self.records(config, "bare")
            (self.folder / "ip").mkdir(exist_ok=True)
            (self.folder / "ip/component.xml").touch()
            for mode in ("bare", "infer"):
                arguments = [self.folder, HERE / f"boards/{board}.tcl", "100", self.folder / "made"]
                done = self.rerun(mode, "block_design.tcl", arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""), board)
                records = Records(self.folder / "records")
                cells = dict(records.of("cell"))
                self.assertEqual((cells["processor"], cells["kernel"]), (processor, "tessera:kernel:tsr_kernel:1.0"))
                nets = [set(net) for net in records.of("net")]
                self.assertEqual(len(nets), 8)
                (clock,) = [net for net in nets if "kernel/ap_clk" in net]
                self.assertEqual(len(clock), 7)
                (reset,) = [net for net in nets if "kernel/ap_rst_n" in net]
                self.assertIn("reset/peripheral_aresetn", reset)
                self.assertIn({"control/M00_AXI", "kernel/s_axi_control"}, nets)
                self.assertIn({"memory/S00_AXI", "kernel/m_axi_gmem"}, nets)
                address = records.of("address")[0]
                self.assertEqual((address[0], int(address[2], 0)), ("kernel/s_axi_control/reg0", base))
                self.assertEqual(
                    int(address[4], 0), 1 << self.ports["s_axi_control_awaddr"][1], "the range of the registers"
                )
                for suffix in ("bit", "hwh", "xsa"):
                    self.assertTrue((self.folder / f"made/tessera.{suffix}").exists())
                settings = {what: value for (path, what), value in records.properties.items() if path == "processor"}
                self.assertIn("100", [value for what, value in settings.items() if what.endswith("freqmhz")])
                (automation,) = records.of("automation")
                self.assertEqual("apply_board_preset" in automation[1], mode == "infer")
                width = [int(v) for what, v in settings.items() if what.endswith("data_width")]
                self.assertEqual(width, [8 * axi_bytes(config)])
            (self.folder / "made/tessera.bit").unlink()
            for late in ("STATS.WNS", "STATS.WHS"):
                with unittest.mock.patch.dict(os.environ, {"RECORDER_LATE": late}):
                    done = self.rerun("bare", "block_design.tcl", arguments)
                self.assertEqual(done.returncode, 1)
                self.assertIn("of 100 MHz: worst slack '-0.125' ns; give a lower MHZ", done.stderr)
                self.assertFalse((self.folder / "made/tessera.bit").exists())
            os.remove(self.folder / "ip/component.xml")
            done = self.rerun("bare", "block_design.tcl", arguments)
            self.assertIn("run make xo first", done.stderr)

    def test_sections_of_an_xclbin(self):
        for board, (_, _, base) in BITSTREAMS.items():
            found = sections.sections(board)
            (core,) = found["ip_layout"]["ip_layout"]["m_ip_data"]
            self.assertEqual(int(core["m_base_address"], 0), base)
            (memory,) = found["mem_topology"]["mem_topology"]["m_mem_data"]
            self.assertGreaterEqual(int(memory["m_sizeKB"], 0), 512 << 10)
        with self.assertRaisesRegex(SystemExit, "no board 'u250'; there are kv260, pynq_z2, ultra96"):
            sections.sections("u250")

    def test_out_of_context_synthesis(self):
        records = self.records("npu64", "bare", "synth_ooc.tcl", [self.folder, "xczu7ev-ffvc1156-2-e", "125"])
        commands = records.of("command")
        read = [pathlib.Path(line[-1]) for line in commands if line[0] == "read_verilog"]
        self.assertEqual(read, self.sources)
        for line in commands:
            if line[0] == "read_verilog":
                self.assertEqual(line[1:-1], ("-sv",) if line[-1].endswith(".sv") else ())
        self.assertIn(
            ("synth_design", "-top", "tsr_kernel", "-part", "xczu7ev-ffvc1156-2-e", "-mode", "out_of_context"), commands
        )
        clock = self.folder / "ooc/clock.xdc"
        self.assertEqual(clock.read_text(), "create_clock -name ap_clk -period 8.000 [get_ports ap_clk]\n")
        order = [line[0] for line in commands if line[0] == "synth_design" or line[-1] == str(clock)]
        self.assertEqual(order, ["read_xdc", "synth_design"])
        done = self.rerun("bare", "synth_ooc.tcl", [self.folder])
        self.assertEqual(done.returncode, 1)
        self.assertIn("usage: ", done.stderr)


class Description(unittest.TestCase):
    """kernel.xml: its form, and that it describes the ports of the wrapper."""

    FORM = {  # element: (required attributes, elements inside)
        "root": ({"versionMajor", "versionMinor"}, ["kernel"]),
        "kernel": (
            {
                "name",
                "language",
                "vlnv",
                "attributes",
                "preferredWorkGroupSizeMultiple",
                "workGroupSize",
                "interrupt",
                "hwControlProtocol",
            },
            ["ports", "args"],
        ),
        "ports": (set(), ["port", "port"]),
        "args": (set(), ["arg"] * 20),
        "port": ({"name", "mode", "range", "dataWidth", "portType", "base"}, []),
        "arg": ({"name", "addressQualifier", "id", "port", "size", "offset", "type", "hostOffset", "hostSize"}, []),
    }

    def follow(self, element):
        attributes, inside = self.FORM[element.tag]
        self.assertEqual(set(element.keys()), attributes, element.tag)
        self.assertEqual([child.tag for child in element], inside, element.tag)
        for child in element:
            self.follow(child)

    def test_form_and_ports(self):
        for config in CONFIGS:
            with tempfile.TemporaryDirectory() as scratch:
                configure.write(config, pathlib.Path(scratch))
                text = (pathlib.Path(scratch) / "kernel.xml").read_text()
                ports = declared_ports((pathlib.Path(scratch) / "tsr_kernel.v").read_text(), axi_bytes(config))
            self.assertEqual(text, (ROOT / f"isa/generated/kernel_{config}.xml").read_text())
            root = ElementTree.fromstring(text.encode())
            self.follow(root)
            for port in root.iter("port"):
                self.assertEqual(int(port.get("dataWidth")), ports[f"{port.get('name')}_wdata"][1])
                if port.get("mode") == "slave":
                    self.assertEqual(int(port.get("range"), 0), 1 << ports[f"{port.get('name')}_awaddr"][1])
            names = [arg.get("name") for arg in root.iter("arg")]
            self.assertEqual(len(names), len(set(names)))
            for arg in root.iter("arg"):
                mode = next(p.get("mode") for p in root.iter("port") if p.get("name") == arg.get("port"))
                self.assertEqual(
                    (mode, arg.get("type").endswith("*")),
                    (("master", True) if arg.get("addressQualifier") == "1" else ("slave", False)),
                )


class Link(unittest.TestCase):
    """The linker's options and the Makefile."""

    def test_options_name_the_kernel_and_its_ports(self):
        kernel = ElementTree.parse(ROOT / "isa/generated/kernel_npu256.xml").find("kernel")
        masters = {port.get("name") for port in kernel.iter("port") if port.get("mode") == "master"}
        clocks = {name for name in declared_ports((HERE / "tsr_kernel.v").read_text(), 8) if name == "ap_clk"}
        self.assertEqual({path.stem for path in HERE.glob("*.cfg")}, set(BOARDS))
        for board in BOARDS:
            lines, section = [], None
            for line in (HERE / f"{board}.cfg").read_text().splitlines():
                if line.startswith("[") and line.endswith("]"):
                    section = line[1:-1]
                elif line and not line.startswith("#"):
                    key, value = line.split("=", 1)
                    lines.append((section, key, value))
            self.assertLessEqual(
                {(s, k) for s, k, _ in lines},
                {
                    ("connectivity", "nk"),
                    ("connectivity", "sp"),
                    ("connectivity", "slr"),
                    ("clock", "freqHz"),
                    ("vivado", "prop"),
                },
            )
            kernels = [value.split(":") for _, key, value in lines if key == "nk"]
            self.assertEqual(kernels, [[kernel.get("name"), "1", f"{kernel.get('name')}_1"]])
            unit = kernels[0][2]
            ports = [value.split(":", 1)[0] for _, key, value in lines if key == "sp"]
            self.assertEqual(ports, [f"{unit}.{name}" for name in masters])
            for _, key, value in lines:
                if key == "sp":
                    self.assertRegex(value.split(":", 1)[1], r"^((DDR|HBM)\[\d+(:\d+)?\]|HPC?\d)$")
                if key == "slr":
                    self.assertRegex(value, rf"^{unit}:SLR\d$")
                if key == "freqHz":
                    self.assertRegex(value, rf"^\d+:{unit}\.({'|'.join(clocks)})$")

    @unittest.skipUnless(shutil.which("make"), "make is not installed")
    def test_make(self):
        for config in CONFIGS:
            for board in BOARDS:
                goals = ["xo", "ooc", "xclbin", "hw_emu", "sd", "smoke"]
                with tempfile.TemporaryDirectory() as scratch:
                    done = run(
                        [
                            "make",
                            "-n",
                            "-C",
                            HERE,
                            f"CONFIG={config}",
                            f"BOARD={board}",
                            f"BUILD={scratch}/b",
                            "ROOTFS=/r",
                            "IMAGE=/i",
                            *goals,
                        ]
                    )
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    text = re.sub(r"(?:\\\n|[ \t])+", " ", done.stdout)
                    for path in set(re.findall(rf"{re.escape(str(ROOT))}/(?:hw|isa)[\w/.]*", text)):
                        self.assertTrue(pathlib.Path(path).exists(), path)
                    self.assertIn(f"configure.py --config {config} --output {scratch}/b/{config}\n", text)
                    self.assertEqual(len(re.findall(r"-source \S+package_kernel.tcl", text)), 1)
                    self.assertRegex(
                        text,
                        rf"--link --target hw --platform xilinx_{board}_\S+ --config "
                        rf"{re.escape(str(HERE))}/{board}.cfg",
                    )
                    self.assertRegex(text, rf"--link --target hw_emu --platform xilinx_{board}_")
                    self.assertIn(
                        "--package.rootfs /r --package.kernel_image /i --package.out_dir "
                        f"{scratch}/b/{config}/{board}/sd",
                        text,
                    )
                    self.assertIn(
                        f"smoke.py --xclbin {scratch}/b/{config}/{board}/hw/tsr_kernel.xclbin --config {config}", text
                    )
        for board, (config, _, _) in BITSTREAMS.items():
            command = ["make", "-n", "-C", HERE, f"CONFIG={config}", f"BOARD={board}", "BUILD=/b"]
            done = run([*command, "xo", "ooc", "bit", "sections", "smoke"])
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            text = re.sub(r"(?:\\\n|[ \t])+", " ", done.stdout)
            self.assertIn(f"-tclargs /b/{config} {HERE}/boards/{board}.tcl 100 /b/{config}/{board}\n", text)
            self.assertIn(f"sections.py --board {board} --output /b/{config}/{board}\n", text)
            self.assertIn(f"smoke.py --xclbin /b/{config}/{board}/tessera.xclbin --config {config}", text)
            part = re.search(r"board_part_name (\S+)", (HERE / f"boards/{board}.tcl").read_text())[1]
            self.assertIn(f"synth_ooc.tcl -tclargs /b/{config} {part} 100", text)
            short = ["make", "-n", "-C", HERE, f"BOARD={board}", "BUILD=/b"]  # the configuration cut to the board
            self.assertEqual(run([*short, "bit", "sections"]).stdout, run([*command, "bit", "sections"]).stdout)
            done = run([*command, "xclbin"])
            self.assertEqual(done.returncode, 2)
            self.assertIn("has no Vitis platform here; make bit", done.stderr)
        done = run(["make", "-n", "-C", HERE, "BOARD=u250", "bit"])
        self.assertIn("is linked by Vitis; make xclbin leads there", done.stderr)
        done = run(["make", "-n", "-C", HERE, "BOARD=u1"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("no link options for board 'u1'; there are", done.stderr)

    @unittest.skipUnless(shutil.which("make") and shutil.which("tclsh"), "make or tclsh is not installed")
    def test_make_xo_with_the_recorder_as_vivado(self):
        """The whole way from `make xo` to a file, with a stand-in that takes Vivado's options."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            ports = declared_ports((HERE / "tsr_kernel.v").read_text(), 8)
            (folder / "ports").write_text("".join(f"{name} {way} {bits}\n" for name, (way, bits) in ports.items()))
            vivado = folder / "vivado"
            vivado.write_text(
                '#!/bin/sh\nset -e\nwhile [ "$1" != -source ]; do shift; done\nscript=$2; shift 3\n'
                f'exec tclsh {HERE}/tests/recorder.tcl {folder}/ports infer {folder}/records "$script" "$@"\n'
            )
            vivado.chmod(0o755)
            command = [
                "make",
                "-C",
                HERE,
                "CONFIG=npu64",
                f"BUILD={folder}/b",
                f"VIVADO={vivado}",
                f"PYTHON={sys.executable}",
                "xo",
            ]
            done = run(command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"packaged npu64: {folder}/b/npu64/tsr_kernel.xo\n", done.stdout)
            self.assertTrue((folder / "b/npu64/tsr_kernel.xo").exists())
            again = run(command)
            self.assertNotIn("packaged", again.stdout)
            run(["make", "-C", HERE, "CONFIG=npu64", f"BUILD={folder}/b", "clean"])
            self.assertFalse((folder / "b/npu64").exists())


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The system around the machine. Enters: a board (a module of `boards`), a configuration, and whether the board is
real or simulated. Leaves: a SoC of LiteX: the machine's master at LiteDRAM, its registers on the bus, a bridge for the
host behind a checked window, and a read-only memory in which the system describes itself. There is no processor unless
one is asked for: the host starts the DRAM by the description's list of writes.

The same controller runs in simulation: its PHY's settings are those of the board's PHY, and behind the DFI stands
LiteDRAM's own model of the memory.

Map of the bus, in bytes: DRAM 0x4000_0000, machine 0x9000_0000 (isa/registers.toml), description 0x9100_0000, registers
of LiteX 0xF000_0000; on the bridge's side alone the window, 0xE000_0000."""

import importlib
import pkgutil
from functools import reduce
from operator import or_

import boards
import describe
import ethernet
from checked_window import CheckedWindow
from litedram.common import GeomSettings
from litedram.phy.model import SDRAMPHYModel
from liteeth.core.udp import LiteEthUDPUserPort
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim.platform import SimPlatform
from litex.gen import Cat, ClockDomain, Constant, LiteXModule, Memory, Signal
from litex.soc.cores.uart import RS232PHY, Stream2Wishbone
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import stream, wishbone
from litex.soc.interconnect.csr import AutoCSR, CSRStatus
from npu import Npu

NPU, DESCRIPTION, CSR = 0x9000_0000, 0x9100_0000, 0xF000_0000
SIMULATED_BYTES = 64 << 20  # of DRAM; a board may have more
FIRMWARE_BYTES, FIRMWARE_RAM = 128 << 10, 32 << 10  # block RAM of the FPGA, where there is a processor
SILENCE = 0.1  # seconds after which UARTBone gives up a frame that has begun
SIMULATED_SILENCE = 0.002  # the same in simulated time, which passes a hundred times as slowly


def known():
    """Names of the boards."""
    return sorted(module.name for module in pkgutil.iter_modules(boards.__path__))


def board(name):
    """The module of a board. Errors: KeyError for a name that is not known."""
    if name not in known():
        raise KeyError(name)
    return importlib.import_module(f"boards.{name}")


NO_PROCESSOR = {"cpu_type": None, "with_uart": False, "with_timer": False, "integrated_sram_size": 0}


def processor(firmware, simulated):
    """LiteX's options for a processor with memories of the FPGA: firmware at 0, FIRMWARE_RAM bytes behind it."""
    return {
        "cpu_type": "vexriscv",
        "cpu_variant": "standard",
        "integrated_rom_size": FIRMWARE_BYTES,
        "integrated_rom_init": list(firmware),
        "integrated_sram_size": FIRMWARE_RAM,
        "uart_name": "sim" if simulated else "serial",
        "uart_baudrate": 115200,
    }


class SimulatedClock(LiteXModule):
    def __init__(self, platform):
        self.rst = Signal()
        self.cd_sys = ClockDomain()
        self.comb += self.cd_sys.clk.eq(platform.request("sys_clk"))
        self.comb += self.cd_sys.rst.eq(platform.request("sys_rst") | self.rst)


class SimulatedLink(LiteXModule):
    """A link as streams at the pins of the simulated system: bytes in the place of a serial line, or datagrams, words
    with a mark at the last, in the place of Ethernet and UDP."""

    def __init__(self, pads, datagrams):
        if datagrams:
            self.port = LiteEthUDPUserPort(32)
            source, sink = self.port.source, self.port.sink
            self.comb += [
                source.last.eq(pads.in_last),
                source.last_be.eq(Cat(Constant(0, 3), pads.in_last)),
                source.length.eq(pads.in_length),
                pads.out_last.eq(sink.last),
            ]
        else:
            self.source = source = stream.Endpoint([("data", 8)])
            self.sink = sink = stream.Endpoint([("data", 8)])
        self.comb += [
            source.valid.eq(pads.in_valid),
            source.data.eq(pads.in_data),
            pads.in_ready.eq(source.ready),
            pads.out_valid.eq(sink.valid),
            pads.out_data.eq(sink.data),
            sink.ready.eq(pads.out_ready),
        ]


def limit_rows(module, bytes_per_column):
    """Leaves a module so many rows that a simulation holds it in SIMULATED_BYTES."""
    geometry = module.geom_settings
    rows = SIMULATED_BYTES >> (geometry.bankbits + geometry.colbits)
    rowbits = min(geometry.rowbits, (rows // bytes_per_column).bit_length() - 1)
    module.geom_settings = GeomSettings(geometry.bankbits, rowbits, geometry.colbits)


def simulated_platform(datagrams):
    width = 32 if datagrams else 8
    signals = {"in_valid": 1, "in_ready": 1, "in_data": width, "out_valid": 1, "out_ready": 1, "out_data": width}
    if datagrams:
        signals |= {"in_last": 1, "in_length": 16, "out_last": 1}
    link = [Subsignal(name, Pins(bits)) for name, bits in signals.items()]
    line = {"source_valid": 1, "source_ready": 1, "source_data": 8, "sink_valid": 1, "sink_ready": 1, "sink_data": 8}
    pins = [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1)), ("busy", 0, Pins(1)), ("link", 0, *link)]
    pins.append(("serial", 0, *(Subsignal(name, Pins(bits)) for name, bits in line.items())))  # the firmware's UART
    return SimPlatform("SIM", pins)


class NpuStatus(LiteXModule, AutoCSR):
    """What of the machine LiteX's own registers show."""

    def __init__(self, npu):
        self.interrupt = CSRStatus(description="The machine's interrupt line.")
        self.comb += self.interrupt.status.eq(npu.interrupt)


class TesseraSoc(SoCCore):
    """`target`: a board's module. `config`: the parameters of tsr_top (hw/synth/machine.py) of the configuration
    `name`. `identity`: 32 bytes, what sources, configuration and tools the system is made of. `tools`: their
    versions. `firmware`: with one, words of 32 bits, there is a VexRiscv that begins with it at address 0, a UART and a
    timer of LiteX; a real board with a serial line then has no bridge, since the line is the firmware's."""

    mem_map = {**SoCCore.mem_map, "csr": CSR}

    def __init__(self, target, name, config, identity, tools, simulated=False, clock_hz=None, firmware=None):
        self.target, self.config_name, self.identity, self.tools = target, name, identity, tools
        hz = clock_hz or target.CLOCK_HZ
        board_platform = target.platform()
        platform = simulated_platform(target.BRIDGE == "etherbone") if simulated else board_platform
        SoCCore.__init__(
            self,
            platform,
            hz,
            ident="",
            **(processor(firmware, simulated) if firmware is not None else NO_PROCESSOR),
            bus_timeout=1 << 16,
        )
        self.crg = SimulatedClock(platform) if simulated else target.Clocks(platform, hz)
        self.add_memory(board_platform, simulated, hz)
        self.add_npu(config, simulated)
        if simulated or firmware is None or target.BRIDGE != "uart":
            self.add_bridge(simulated, hz)
        self.words = Memory(32, describe.WORDS, init=[0] * describe.WORDS)
        rom = wishbone.SRAM(self.words, read_only=True, bus=wishbone.Interface(data_width=32, address_width=32))
        self.description = rom
        self.bus.add_slave("description", rom.bus, SoCRegion(DESCRIPTION, 4 * describe.WORDS, cached=False, mode="r"))

    def add_memory(self, board_platform, simulated, hz):
        target = self.target
        module = target.MEMORY(hz, target.RATE)
        if simulated:
            settings = target.memory_phy(board_platform, hz).settings
            limit_rows(module, settings.databits // 8)
            self.phy = SDRAMPHYModel(module, settings, clk_freq=hz)
        else:
            self.phy = target.memory_phy(self.platform, hz)
            if hasattr(self.crg, "follow"):
                self.crg.follow(self.phy)
        self.phy_settings, self.memory_module = self.phy.settings, module
        self.add_sdram("sdram", phy=self.phy, module=module, l2_cache_size=0)

    def add_npu(self, config, simulated):
        self.npu = Npu(config["AxiBytes"])
        self.npu_status = NpuStatus(self.npu)
        self.bus.add_slave("npu", self.npu.control, SoCRegion(NPU, 0x1000, cached=False))
        self.npu.connect(self.sdram.crossbar, self.bus.regions["main_ram"].origin)
        if simulated:
            memory = self.npu.memory
            channels = (memory.ar, memory.r, memory.aw, memory.w, memory.b)
            self.comb += self.platform.request("busy").eq(reduce(or_, [channel.valid for channel in channels]))

    def add_bridge(self, simulated, hz):
        self.window = CheckedWindow()
        self.bus.add_master("window", self.window.bus)
        datagrams = self.target.BRIDGE == "etherbone"
        if simulated:
            self.link = SimulatedLink(self.platform.request("link"), datagrams)
        elif not datagrams:
            self.link = RS232PHY(self.platform.request("serial"), hz, self.target.BAUD)
        if datagrams:
            self.etherbone = ethernet.Etherbone(self.link.port if simulated else self.add_ethernet_link())
            self.comb += self.etherbone.bus.connect(self.window.bridge)
        else:
            silence = SIMULATED_SILENCE if simulated else SILENCE
            self.uartbone = Stream2Wishbone(self.link, clk_freq=hz * silence / 0.1, address_width=32)
            self.comb += self.uartbone.wishbone.connect(self.window.bridge)

    def add_ethernet_link(self):
        """The board's Ethernet up to UDP."""
        self.ethphy = self.target.ethernet_phy(self.platform)
        self.ethcore = ethernet.udp_core(self.ethphy, self.target.ADDRESS, self.sys_clk_freq)
        for domain in ("eth_rx", "eth_tx"):
            clock = getattr(self.ethphy.crg, f"cd_{domain}").clk
            self.platform.add_period_constraint(clock, 8.0)
        return ethernet.udp_port(self.ethcore)

    def do_finalize(self):
        SoCCore.do_finalize(self)
        self.words.init = describe.words(self)

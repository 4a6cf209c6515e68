# SPDX-License-Identifier: Apache-2.0
"""The Ethernet of a board (hw/litex/ethernet.py) as Verilog, with bytes in the place of the PHY, 4 KB of memory behind
Etherbone, and one more UDP port that sends back what it gets.

    python tests/litex/ethernet_system.py OUT.v      writes module `ethernet_system`"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hw" / "litex"))
sys.dont_write_bytecode = True

import ethernet  # noqa: E402
from liteeth.common import eth_phy_description, eth_udp_user_description  # noqa: E402
from litex.gen import ClockDomain, LiteXModule, Signal  # noqa: E402
from litex.soc.interconnect import stream, wishbone  # noqa: E402
from litex.soc.interconnect.packet import PacketFIFO  # noqa: E402
from migen.fhdl.verilog import convert  # noqa: E402

HZ, ADDRESS, ECHO_PORT, MEMORY = 50e6, "192.168.1.50", 7, 4096


class Phy(LiteXModule):
    """What LiteEthPHYRGMII has inside its pins: it takes no notice of `ready`, and sends whenever it gets a byte."""

    dw = 8

    def __init__(self):
        self.source = stream.Endpoint(eth_phy_description(8))
        self.sink = stream.Endpoint(eth_phy_description(8))
        self.comb += self.sink.ready.eq(1)


class System(LiteXModule):
    def __init__(self):
        names = {"sys_clk": 1, "eth_clk": 1, "rst": 1, "rx_valid": 1, "rx_data": 8, "rx_last": 1}
        names |= {"tx_valid": 1, "tx_data": 8, "tx_last": 1, "crc_errors": 32, "preamble_errors": 32}
        self.pins = {name: Signal(bits, name=name) for name, bits in names.items()}
        pins = self.pins
        for name, clock in (("sys", "sys_clk"), ("eth_rx", "eth_clk"), ("eth_tx", "eth_clk")):
            domain = ClockDomain(name)
            setattr(self, f"cd_{name}", domain)
            self.comb += [domain.clk.eq(pins[clock]), domain.rst.eq(pins["rst"])]
        self.phy = Phy()
        self.core = ethernet.udp_core(self.phy, ADDRESS, HZ)
        self.etherbone = ethernet.Etherbone(ethernet.udp_port(self.core))
        self.memory = wishbone.SRAM(MEMORY)
        self.echo = PacketFIFO(eth_udp_user_description(32), payload_depth=512, param_depth=2)
        port = self.core.udp.crossbar.get_port(ECHO_PORT, dw=32)
        received = self.core.mac.core.rx_datapath
        self.comb += [
            self.phy.source.valid.eq(pins["rx_valid"]),
            self.phy.source.data.eq(pins["rx_data"]),
            self.phy.source.last.eq(pins["rx_last"]),
            pins["tx_valid"].eq(self.phy.sink.valid),
            pins["tx_data"].eq(self.phy.sink.data),
            pins["tx_last"].eq(self.phy.sink.last),
            pins["crc_errors"].eq(received.crc_errors.status),
            pins["preamble_errors"].eq(received.preamble_errors.status),
            self.etherbone.bus.connect(self.memory.bus),
            port.source.connect(self.echo.sink),
            self.echo.source.connect(port.sink, omit={"src_port", "dst_port"}),
            port.sink.src_port.eq(self.echo.source.dst_port),
            port.sink.dst_port.eq(self.echo.source.src_port),
        ]


if __name__ == "__main__":
    system = System()
    convert(system, set(system.pins.values()), name="ethernet_system").write(sys.argv[1])

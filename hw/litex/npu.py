# SPDX-License-Identifier: Apache-2.0
"""The machine as a peripheral of LiteX. Enters: a configuration, a port of LiteDRAM as wide as the configuration's bus.
Leaves: an AXI4-Lite interface for the registers of isa/registers.toml and an interrupt. The instance is tsr_kernel of
hw/fpga, the wrapper that every FPGA flow shares."""

from litedram.frontend.axi import LiteDRAMAXI2Native
from litex.gen import ClockSignal, Instance, LiteXModule, ResetSignal, Signal
from litex.soc.interconnect import axi, stream
from widen import Widen


def axi_port(channel, name, signals, to_instance, ports):
    """Adds one channel's signals to the ports of an instance. `to_instance`: payload goes into the instance."""
    payload, valid, ready = ("i", "i", "o") if to_instance else ("o", "o", "i")
    ports[f"{valid}_{name}valid"] = channel.valid
    ports[f"{ready}_{name}ready"] = channel.ready
    for signal in signals:
        ports[f"{payload}_{name}{signal}"] = getattr(channel, signal)


class Npu(LiteXModule):
    """`axi_bytes`: bytes of the bus. `control` is the registers' slave of 4 KB, `memory` the master, `interrupt` high
    while isr and ier of the machine agree on an event."""

    def __init__(self, axi_bytes):
        self.control = axi.AXILiteInterface(data_width=32, address_width=32)
        self.memory = axi.AXIInterface(data_width=8 * axi_bytes, address_width=32, id_width=1)
        self.interrupt = Signal()

        # Registers of the slave are read by an address that the bus makes late: its channels have registers of their
        # own, at a cycle of an access.
        inner = axi.AXILiteInterface(data_width=32, address_width=32)
        for name in ("aw", "w", "ar"):
            channel = getattr(self.control, name)
            buffer = stream.Buffer(channel.description)
            setattr(self, f"{name}_buffer", buffer)
            self.comb += [channel.connect(buffer.sink), buffer.source.connect(getattr(inner, name))]
        self.comb += [inner.r.connect(self.control.r), inner.b.connect(self.control.b)]

        # The machine's addresses have 64 bits; its window of DRAM keeps them below 4 GB.
        addresses = {name: Signal(64) for name in ("ar", "aw")}
        ports = {"i_ap_clk": ClockSignal("sys"), "i_ap_rst_n": ~ResetSignal("sys"), "o_interrupt": self.interrupt}
        for name, signals, inward in (
            ("aw", (), True),
            ("w", ("data", "strb"), True),
            ("b", ("resp",), False),
            ("ar", (), True),
            ("r", ("data", "resp"), False),
        ):
            axi_port(getattr(inner, name), f"s_axi_control_{name}", signals, inward, ports)
        ports["i_s_axi_control_awaddr"] = inner.aw.addr[:12]
        ports["i_s_axi_control_araddr"] = inner.ar.addr[:12]
        for name, signals, inward in (
            ("aw", ("len",), False),
            ("w", ("data", "strb", "last"), False),
            ("b", ("resp",), True),
            ("ar", ("len",), False),
            ("r", ("data", "resp", "last"), True),
        ):
            axi_port(getattr(self.memory, name), f"m_axi_gmem_{name}", signals, inward, ports)
        for name, address in addresses.items():
            channel = getattr(self.memory, name)
            ports[f"o_m_axi_gmem_{name}addr"] = address
            self.comb += [
                channel.addr.eq(address[:32]),
                channel.size.eq((axi_bytes - 1).bit_length()),
                channel.burst.eq(axi.BURST_INCR),
            ]
        self.specials += Instance("tsr_kernel", **ports)

    def connect(self, crossbar, origin):
        """Joins the master to LiteDRAM; `origin`: where the bus has the memory. Only a narrower port is LiteDRAM's to
        convert."""
        width = crossbar.controller.data_width
        memory = self.memory
        if memory.data_width < width:
            wide = axi.AXIInterface(data_width=width, address_width=32, id_width=1)
            self.widen = Widen(memory, wide, requests=16)
            memory = wide
        port = crossbar.get_port(data_width=memory.data_width)
        self.submodules += LiteDRAMAXI2Native(self.sliced(memory), port, base_address=origin)

    def sliced(self, memory):
        """The master with its address channels behind registers of `ready`, which cost no cycle: LiteDRAM's banks
        decide about `ready`, and the machine's walks go on by it, in one path that was the system's slowest."""
        cut = axi.AXIInterface(data_width=memory.data_width, address_width=32, id_width=1)
        for name in ("ar", "aw"):
            channel = getattr(memory, name)
            slice_ = stream.PipeReady(channel.description)
            setattr(self, f"{name}_slice", slice_)
            self.comb += [channel.connect(slice_.sink), slice_.source.connect(getattr(cut, name))]
        self.comb += [memory.w.connect(cut.w), cut.r.connect(memory.r), cut.b.connect(memory.b)]
        return cut

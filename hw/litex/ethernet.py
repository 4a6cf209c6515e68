# SPDX-License-Identifier: Apache-2.0
"""The host's link over Ethernet. Enters: a PHY of LiteEth with bytes at 125 MHz. Leaves: LiteEth's MAC, ARP, IP, ICMP
and UDP with a port for Etherbone, and Etherbone as a master on the bus.

Frames pass four bytes a cycle of the system's clock, 43 MHz or more (at 33 MHz bytes of short frames that follow each
other were lost). The PHY, the conversion to its bytes, the gap between frames and one side of two asynchronous queues
are all that has Ethernet's clock."""

from liteeth.common import eth_phy_description, eth_udp_user_description, etherbone_magic
from liteeth.core import LiteEthUDPIPCore
from liteeth.core.udp import LiteEthUDPUserPort
from liteeth.frontend.etherbone import LiteEthEtherbone
from litex.gen import READ_FIRST, Cat, Constant, If, LiteXModule, Memory, Mux, Signal
from litex.soc.interconnect import stream

MAC, UDP_PORT = 0x10E2D5000000, 1234
PARAMETERS = [("ip_address", 32), ("src_port", 16), ("dst_port", 16), ("length", 16)]  # of a datagram
BYTES = 4  # a cycle of the system's clock


def udp_core(phy, address, hz):
    """LiteEth's core with the MAC address MAC and the IP address `address` behind a PHY. `hz`: of the system. Registers
    in both directions part the MAC from the layers above, which decide in one path from ICMP's echo down to the queues
    of the MAC whether a word is taken."""
    width = 8 * BYTES
    core = LiteEthUDPIPCore(phy, mac_address=MAC, ip_address=address, clk_freq=hz, dw=width, with_sys_datapath=True)
    for path, place in ((core.mac.core.rx_datapath, -1), (core.mac.core.tx_datapath, 1)):
        path.border = stream.Buffer(eth_phy_description(width), pipe_valid=True, pipe_ready=True)
        path.pipeline.insert(place, path.border)
    return core


def udp_port(core):
    """The port of the core at which hosts reach the system."""
    return core.udp.crossbar.get_port(UDP_PORT, dw=32)


class Crossbar:
    """A UDP core's way of handing out ports, with the one port that there is."""

    def __init__(self, port):
        self.port, self.dw = port, 32

    def get_port(self, *_, **__):
        return self.port


class Datagrams(LiteXModule):
    """Keeps whole datagrams for Etherbone until it takes them, and drops those that it must not see: of another shape
    than one record (PROBE_WORDS words where it is a probe), with an error on the way, or without room. So nothing ever
    waits before this; the MAC has no way to make the wire wait and would lose bytes out of frames, and Etherbone waits
    for ever for the rest of a record that was cut. `port`: of the UDP core; to others this is such a port."""

    WORDS, COUNT = 2048, 16  # at most; the driver sends 7 datagrams of 1,057 words at once
    HEADER, PROBE_WORDS = 3, 3  # words before those that the record counts; words of a probe
    MOST = 256  # words that Etherbone's receiver holds, with the one for the base address

    def __init__(self, port):
        self.sink, self.source = port.sink, stream.Endpoint(eth_udp_user_description(32))
        self.kept = stream.SyncFIFO(PARAMETERS, self.COUNT)
        bits = (self.WORDS - 1).bit_length()
        self.tail, self.end, self.head = Signal(bits), Signal(bits), Signal(bits)  # written, of whole datagrams, read
        memory = Memory(33, self.WORDS)
        self.write = memory.get_port(write_capable=True, mode=READ_FIRST)
        self.read = memory.get_port(has_re=True, mode=READ_FIRST)
        self.specials += memory, self.write, self.read
        self.keep(port.source)
        self.give(self.source)

    def keep(self, found):
        """Writes the words that come, and gives back the room of a datagram that is dropped."""
        count, wanted, counted = Signal(10), Signal(10), Signal(10)  # words so far, of it all but one, of the record
        shaped, probe, bad = Signal(), Signal(), Signal()  # of the words so far
        good, room, after = Signal(), Signal(), Signal(len(self.tail))
        magic = int.from_bytes(etherbone_magic.to_bytes(2, "big"), "little")
        writes, reads = found.data[16:24], found.data[24:32]
        self.comb += [
            found.ready.eq(1),
            counted.eq(writes + reads + (writes != 0) + (reads != 0)),
            after.eq(self.tail + 1),
            room.eq(after != self.head),
            self.write.adr.eq(self.tail),
            self.write.dat_w.eq(Cat(found.data, found.last)),
            self.write.we.eq(found.valid & room),
            good.eq(
                shaped
                & ~bad
                & room
                & (found.error == 0)
                & (count == Mux(probe, self.PROBE_WORDS - 1, wanted))
                & (found.length == (count + 1) << 2)
            ),
            self.kept.sink.valid.eq(found.valid & found.last & good),
            *(getattr(self.kept.sink, name).eq(getattr(found, name)) for name, _ in PARAMETERS),
        ]
        self.sync += If(
            found.valid,
            If(count != 2 ** len(count) - 1, count.eq(count + 1)),
            If(count == 0, shaped.eq(found.data[:16] == magic), probe.eq(found.data[16])),
            If(
                count == self.HEADER - 1,
                wanted.eq(counted + self.HEADER - 1),
                If(~probe & ((counted == 0) | (counted > self.MOST)), shaped.eq(0)),
            ),
            If(~room | (found.error != 0), bad.eq(1)),
            If(room, self.tail.eq(after)),
            If(
                found.last,
                count.eq(0),
                shaped.eq(0),
                bad.eq(0),
                wanted.eq(0),
                If(good & self.kept.sink.ready, self.end.eq(after)).Else(self.tail.eq(self.end)),
            ),
        )

    def give(self, source):
        """Reads the words of whole datagrams."""
        full = Signal()  # what the memory has read waits
        self.comb += [
            self.read.adr.eq(self.head),
            self.read.re.eq((self.head != self.end) & (~full | source.ready)),
            Cat(source.data, source.last).eq(self.read.dat_r),
            source.last_be.eq(Cat(Constant(0, 3), source.last)),
            source.valid.eq(full & self.kept.source.valid),
            *(getattr(source, name).eq(getattr(self.kept.source, name)) for name, _ in PARAMETERS),
            self.kept.source.ready.eq(source.valid & source.ready & source.last),
        ]
        self.sync += [If(self.read.re, self.head.eq(self.head + 1), full.eq(1)).Elif(source.ready, full.eq(0))]


class OneDatagram(LiteXModule):
    """Lets Etherbone have one datagram at a time: the next one waits until bus and answer have been still for a while.
    LiteEth's Etherbone loses the borders of records that come while it is at work. `port`: of the UDP core; to
    Etherbone this is a UDP core."""

    STILL = 64  # cycles

    def __init__(self, port):
        inner = LiteEthUDPUserPort(32)
        self.crossbar = Crossbar(inner)
        self.working = Signal()  # the bridge's bus is in use
        ready, still = Signal(reset=1), Signal(max=self.STILL + 1)
        self.comb += [
            inner.sink.connect(port.sink),
            port.source.connect(inner.source, omit={"valid", "ready"}),
            inner.source.valid.eq(port.source.valid & ready),
            port.source.ready.eq(inner.source.ready & ready),
        ]
        self.sync += [
            If(self.working | inner.sink.valid | ready, still.eq(0)).Else(still.eq(still + 1)),
            If(still == self.STILL, ready.eq(1)),
            If(inner.source.valid & inner.source.ready & inner.source.last, ready.eq(0)),
        ]


class Etherbone(LiteXModule):
    """A port of UDP as a master of the bus: `bus`, of Wishbone."""

    def __init__(self, port):
        self.datagrams = Datagrams(port)
        self.one_datagram = OneDatagram(self.datagrams)
        self.bridge = LiteEthEtherbone(self.one_datagram, UDP_PORT, buffer_depth=255)
        self.bus = self.bridge.wishbone.bus
        self.comb += self.one_datagram.working.eq(self.bus.cyc)

# SPDX-License-Identifier: Apache-2.0
"""A window through which a host reaches the bus of the SoC over a link that may garble, drop or repeat what it carries.
Enters: accesses of a bridge (UARTBone or Etherbone, which know no checksum of data). Leaves: accesses on the bus, each
of them once, and only of frames that came over whole.

The bridge sees a buffer of 1,024 words at WINDOW and behind it 1,024 words of registers. The host writes a frame into
the buffer and then any value to a register. The window checks the frame's number and its CRC-32, carries it out on the
bus, and leaves an answer with a CRC-32 in the buffer; accesses of the bridge wait meanwhile. A frame that is not whole
changes nothing. A frame whose number was the last one is not carried out again if it writes, so that a host sends it
again when the answer did not arrive. Writes of the bridge beside the window are dropped, because nothing says that
their address arrived as it was sent; reads pass, so that tools of LiteX may look.

    frame    number, operation, byte address, count of words, the words of a write, CRC-32 of all these
    answer   number, result, CRC-32, count, words; the CRC is over the words, the number and the result

Of the registers 0 reads the magic number, 1 the number of the last frame that was carried out, and another one its own
number (bits 31 to 24) above bits of the magic number, so that a host that has lost step with UARTBone sees which of its
commands was understood.

CRC-32 is that of IEEE 802.3, over the words' bytes in little-endian order. Latency: two cycles for a word of a frame,
and the bus."""

from functools import reduce
from operator import xor

from litex.gen import Cat, Constant, If, LiteXModule, Memory, Signal
from litex.soc.interconnect import wishbone
from migen.genlib.fsm import FSM, NextState, NextValue

WINDOW = 0xE000_0000  # byte address of the buffer, on the bridge's side alone
WORDS = 1024
HEADER = 4
MOST_WORDS = WORDS - HEADER - 1  # of one frame
MAGIC = 0x31574354  # T C W 1: what the first register reads
WRITE, READ, CHECKSUM = 1, 2, 3  # operations
DONE, BUS_ERROR = 0x8000_0001, 0x8000_0002  # results


def crc32_step(crc, word):
    """The 32 bits of a reflected CRC-32 after 32 more bits, each as the exclusive or of bits of `crc` and `word`."""
    state = [frozenset([("crc", bit)]) for bit in range(32)]
    for bit in range(32):
        feedback = state[0] ^ {("word", bit)}
        state = [*state[1:], frozenset()]
        state = [was ^ feedback if 0xEDB88320 >> place & 1 else was for place, was in enumerate(state)]
    signals = {"crc": crc, "word": word}
    return [reduce(xor, [signals[name][bit] for name, bit in sorted(terms)]) for terms in state]


class CheckedWindow(LiteXModule):
    """`bridge`: the Wishbone interface to which a bridge is joined; `bus`: the one that becomes a master of the SoC."""

    def __init__(self):
        self.bridge = wishbone.Interface(data_width=32, address_width=32, addressing="word")
        self.bus = wishbone.Interface(data_width=32, address_width=32, addressing="word")

        memory = Memory(32, WORDS)
        port = memory.get_port(write_capable=True)
        self.specials += memory, port

        bridge, bus = self.bridge, self.bus
        inside, registers = Signal(), Signal()
        number, last, result, total = Signal(32), Signal(32), Signal(32), Signal(11)
        operation, address, count, index = Signal(2), Signal(30), Signal(24), Signal(24)
        crc, crc_in, crc_next, crc_out = Signal(32), Signal(32), Signal(32), Signal(32)
        word, fresh = Signal(32), Signal()  # what the bus has read, and that it is not in the CRC yet
        self.comb += [
            inside.eq(bridge.adr[11:30] == WINDOW >> 13),
            registers.eq(bridge.adr[10]),
            crc_out.eq(~crc),
            *[crc_next[bit].eq(value) for bit, value in enumerate(crc32_step(crc, crc_in))],
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        begin = [NextValue(crc, 0xFFFFFFFF), NextValue(index, 0)]
        fsm.act(
            "IDLE",
            port.adr.eq(bridge.adr[:10]),
            port.dat_w.eq(bridge.dat_w),
            If(
                bridge.cyc & bridge.stb,
                If(
                    inside & bridge.we,
                    bridge.ack.eq(1),
                    port.we.eq(~registers),
                    If(registers, *begin, NextState("FETCH")),
                )
                .Elif(inside, NextState("ANSWER_BRIDGE"))
                .Elif(bridge.we, bridge.ack.eq(1))
                .Else(NextState("PASS")),
            ),
        )
        fsm.act(
            "ANSWER_BRIDGE",
            bridge.ack.eq(1),
            bridge.dat_r.eq(port.dat_r),
            If(
                registers,
                bridge.dat_r.eq(Cat(Constant(MAGIC & 0xFFFFFF, 24), bridge.adr[:8])),
                If(bridge.adr[:8] == 0, bridge.dat_r.eq(MAGIC)),
                If(bridge.adr[:8] == 1, bridge.dat_r.eq(last)),
            ),
            NextState("IDLE"),
        )
        fsm.act(
            "PASS",
            bus.adr.eq(bridge.adr),
            bus.cyc.eq(bridge.cyc),
            bus.stb.eq(bridge.stb),
            bus.sel.eq(0xF),
            bridge.dat_r.eq(bus.dat_r),
            bridge.ack.eq(bus.ack | bus.err),
            If(bus.ack | bus.err | ~bridge.cyc, NextState("IDLE")),
        )

        # A frame is read and its CRC made; its last word is the CRC that came with it.
        fsm.act("FETCH", port.adr.eq(index), NextState("TAKE"))
        fsm.act(
            "TAKE",
            crc_in.eq(port.dat_r),
            NextValue(index, index + 1),
            NextValue(crc, crc_next),
            NextState("FETCH"),
            If(index == 0, NextValue(number, port.dat_r)),
            If(index == 1, NextValue(operation, port.dat_r), NextValue(result, port.dat_r)),
            If(index == 2, NextValue(address, port.dat_r[2:])),
            If(
                index == 3,
                NextValue(count, port.dat_r),
                NextValue(total, HEADER),
                If(operation == WRITE, NextValue(total, HEADER + port.dat_r[:10])),
                If((operation != CHECKSUM) & (port.dat_r > MOST_WORDS), NextState("IDLE")),
            ),
            If((index >= HEADER) & (index == total), NextState("IDLE"), If(port.dat_r == crc_out, NextState("DECIDE"))),
        )
        fsm.act(
            "DECIDE",
            *begin,
            NextValue(result, DONE),
            NextState("IDLE"),
            If((result == 0) | (result > CHECKSUM))
            .Elif(number == last + 1, NextValue(last, number), NextState("EXECUTE"))
            .Elif((number == last) & (operation == WRITE), NextState("NUMBER"))
            .Elif(number == last, NextState("EXECUTE")),
        )

        # The bus, word by word.
        fsm.act(
            "EXECUTE",
            port.adr.eq(HEADER + index),
            crc_in.eq(word),
            NextValue(fresh, 0),
            If(fresh, NextValue(crc, crc_next)),
            NextState("ACCESS"),
            If(index == count, NextState("NUMBER"), If(operation == CHECKSUM, NextState("CHECKSUM"))),
        )
        fsm.act(
            "ACCESS",
            port.adr.eq(HEADER + index),
            port.dat_w.eq(bus.dat_r),
            bus.adr.eq(address + index),
            bus.dat_w.eq(port.dat_r),
            bus.sel.eq(0xF),
            bus.we.eq(operation == WRITE),
            bus.cyc.eq(1),
            bus.stb.eq(1),
            NextValue(word, bus.dat_r),
            If(
                bus.ack | bus.err,
                If(bus.err, NextValue(result, BUS_ERROR)),
                NextValue(fresh, operation != WRITE),
                port.we.eq(operation == READ),
                NextValue(index, index + 1),
                NextState("EXECUTE"),
            ),
        )
        # The checksum of memory is the one word of its answer.
        fsm.act(
            "CHECKSUM", *begin, port.adr.eq(HEADER), port.dat_w.eq(crc_out), port.we.eq(1), NextState("CHECKSUM_WORD")
        )
        fsm.act("CHECKSUM_WORD", crc_in.eq(port.dat_r), NextValue(crc, crc_next), NextState("NUMBER"))
        fsm.act("NUMBER", crc_in.eq(number), NextValue(crc, crc_next), NextState("RESULT"))
        fsm.act(
            "RESULT",
            crc_in.eq(result),
            NextValue(crc, crc_next),
            port.adr.eq(1),
            port.dat_w.eq(result),
            port.we.eq(1),
            NextState("CRC"),
        )
        fsm.act("CRC", port.adr.eq(2), port.dat_w.eq(crc_out), port.we.eq(1), NextState("IDLE"))

# SPDX-License-Identifier: Apache-2.0
"""An AXI master on a wider bus. Enters: bursts of full beats that increment, in one order. Leaves: bursts of the wider
bus that cover the same bytes, without strobes where the narrow ones had none.

LiteDRAM has a converter of its own behind its AXI port (LiteDRAMNativePortUpConverter), which stops for good when reads
and writes of two masters mix. Latency: one cycle for writes, none for reads. Throughput: one narrow beat a cycle."""

from litex.gen import Case, Cat, If, LiteXModule, Replicate, Signal
from litex.soc.interconnect import axi, stream


class Widen(LiteXModule):
    """`narrow`: the master's interface; `wide`: what the memory gets. `requests`: bursts in flight of each kind."""

    def __init__(self, narrow, wide, requests):
        self.narrow, self.wide = narrow, wide
        self.ratio = wide.data_width // narrow.data_width
        self.lane_bits = (self.ratio - 1).bit_length()
        self.reads = stream.SyncFIFO([("lane", self.lane_bits), ("len", 8)], requests)
        self.writes = stream.SyncFIFO([("lane", self.lane_bits), ("len", 8)], requests)
        self.request(narrow.ar, wide.ar, self.reads.sink)
        self.request(narrow.aw, wide.aw, self.writes.sink)
        self.read()
        self.write()
        self.comb += [narrow.b.valid.eq(wide.b.valid), narrow.b.resp.eq(wide.b.resp), wide.b.ready.eq(narrow.b.ready)]

    def request(self, narrow, wide, kept):
        """A burst of the wide bus begins at the wide word of the first byte; what is kept tells beats apart."""
        low = (self.narrow.data_width // 8 - 1).bit_length()
        high = low + self.lane_bits
        end = Signal(9)
        self.comb += [
            kept.lane.eq(narrow.addr[low:high]),
            kept.len.eq(narrow.len),
            kept.valid.eq(narrow.valid & wide.ready),
            wide.valid.eq(narrow.valid & kept.ready),
            narrow.ready.eq(wide.ready & kept.ready),
            end.eq(narrow.len + kept.lane),
            wide.addr.eq(Cat(Replicate(0, high), narrow.addr[high:])),
            wide.len.eq(end[self.lane_bits :]),
            wide.size.eq((self.wide.data_width // 8 - 1).bit_length()),
            wide.burst.eq(axi.BURST_INCR),
        ]

    def place(self, kept, fire):
        """(lane of the present beat, whether it is the burst's last); a beat passes when `fire` is high."""
        beat, lane, last = Signal(8), Signal(self.lane_bits), Signal()
        self.comb += [lane.eq(kept.lane + beat), last.eq(beat == kept.len), kept.ready.eq(fire & last)]
        self.sync += If(fire, beat.eq(beat + 1), If(last, beat.eq(0)))
        return lane, last

    def read(self):
        narrow, wide, kept, fire = self.narrow.r, self.wide.r, self.reads.source, Signal()
        lane, last = self.place(kept, fire)
        width = self.narrow.data_width
        self.comb += [
            narrow.valid.eq(wide.valid & kept.valid),
            narrow.resp.eq(wide.resp),
            narrow.last.eq(last),
            fire.eq(narrow.valid & narrow.ready),
            wide.ready.eq(fire & (last | (lane == self.ratio - 1))),
            Case(lane, {n: narrow.data.eq(wide.data[n * width : (n + 1) * width]) for n in range(self.ratio)}),
        ]

    def write(self):
        narrow, wide, kept, fire = self.narrow.w, self.wide.w, self.writes.source, Signal()
        lane, last = self.place(kept, fire)
        width = self.narrow.data_width
        full = Signal()
        self.comb += [
            narrow.ready.eq(kept.valid & (~full | wide.ready)),
            fire.eq(narrow.valid & narrow.ready),
            wide.valid.eq(full),
        ]
        places = {
            n: [
                wide.data[n * width : (n + 1) * width].eq(narrow.data),
                wide.strb[n * width // 8 : (n + 1) * width // 8].eq(narrow.strb),
            ]
            for n in range(self.ratio)
        }
        self.sync += [
            If(wide.valid & wide.ready, full.eq(0), wide.strb.eq(0)),
            If(fire, Case(lane, places), wide.last.eq(last), full.eq(last | (lane == self.ratio - 1))),
        ]

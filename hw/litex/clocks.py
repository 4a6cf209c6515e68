# SPDX-License-Identifier: Apache-2.0
"""Clocks that several boards share. Enters: pins of a platform. Leaves: clock domains."""

from litex.gen import ClockDomain, If, Instance, LiteXModule, Signal
from litex.soc.cores.clock import ECP5PLL
from migen.genlib.resetsync import AsyncResetSynchronizer


class Ddr3Clocks(LiteXModule):
    """What LiteDRAM's ECP5DDRPHY needs: the system's clock out of an edge clock of twice its frequency, which the PHY
    stops while it sets itself up. Pins: clk100, rst_n (low: reset). The reset comes late after power-up."""

    def __init__(self, board, hz):
        self.rst = Signal()
        self.stop = Signal()
        self.reset = Signal()
        for name in ("init", "por", "sys", "sys2x", "sys2x_i"):
            setattr(self, f"cd_{name}", ClockDomain(name))
        clock = board.request("clk100")
        count = Signal(16, reset=0xFFFF)
        self.comb += self.cd_por.clk.eq(clock)
        self.sync.por += If(count != 0, count.eq(count - 1))
        self.pll = pll = ECP5PLL()
        self.comb += pll.reset.eq((count != 0) | ~board.request("rst_n") | self.rst)
        pll.register_clkin(clock, 100e6)
        pll.create_clkout(self.cd_sys2x_i, 2 * hz)
        pll.create_clkout(self.cd_init, 25e6)
        self.specials += [
            Instance("ECLKSYNCB", i_ECLKI=self.cd_sys2x_i.clk, i_STOP=self.stop, o_ECLKO=self.cd_sys2x.clk),
            Instance(
                "CLKDIVF", p_DIV="2.0", i_ALIGNWD=0, i_CLKI=self.cd_sys2x.clk, i_RST=self.reset, o_CDIVX=self.cd_sys.clk
            ),
            AsyncResetSynchronizer(self.cd_sys, ~pll.locked | self.reset),
        ]

    def follow(self, phy):
        """Lets the PHY stop and reset the clocks."""
        self.comb += [self.stop.eq(phy.init.stop), self.reset.eq(phy.init.reset)]

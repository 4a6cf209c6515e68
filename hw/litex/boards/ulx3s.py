# SPDX-License-Identifier: Apache-2.0
"""Radiona ULX3S with an LFE5U-85F: 32 MB of SDR SDRAM, 16 bits wide at twice the clock of the system, the host at the
FTDI's USB-UART."""

from litedram.modules import MT48LC16M16
from litedram.phy import HalfRateGENSDRPHY
from litex.build.io import DDROutput
from litex.gen import ClockDomain, ClockSignal, LiteXModule, Signal
from litex.soc.cores.clock import ECP5PLL
from litex_boards.platforms import radiona_ulx3s
from registered_dfi import RegisteredDfi

NAME = "ulx3s"
TITLE = "Radiona ULX3S, LFE5U-85F"
CLOCK_HZ = 50_000_000
BRIDGE = "uart"
BAUD = 3_000_000  # the FT231X's most
MEMORY, RATE = MT48LC16M16, "1:2"
IN_PHASE = ("clkout0", "clkout1")  # outputs of the PLL, the system's and the SDRAM's, between which data passes


def platform():
    return radiona_ulx3s.Platform(device="LFE5U-85F", revision="2.0", toolchain="trellis")


class Clocks(LiteXModule):
    def __init__(self, board, hz):
        self.rst = Signal()
        self.cd_sys = ClockDomain()
        self.cd_sys2x = ClockDomain()
        self.cd_sys2x_ps = ClockDomain()
        self.pll = pll = ECP5PLL()
        self.comb += pll.reset.eq(board.request("rst") | self.rst)
        pll.register_clkin(board.request("clk25"), 25e6)
        pll.create_clkout(self.cd_sys, hz)
        pll.create_clkout(self.cd_sys2x, 2 * hz)
        pll.create_clkout(self.cd_sys2x_ps, 2 * hz, phase=180)
        self.specials += DDROutput(1, 0, board.request("sdram_clock"), ClockSignal("sys2x_ps"))
        self.comb += board.request("wifi_gpio0").eq(1)  # the ESP32 leaves the FPGA alone


def memory_phy(board, hz):
    return RegisteredDfi(HalfRateGENSDRPHY(board.request("sdram"), hz))

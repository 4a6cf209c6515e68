# SPDX-License-Identifier: Apache-2.0
"""Lattice ECP5 Versa with an LFE5UM5G-45F, about half of the other boards' part: 128 MB of DDR3, 16 bits wide, the host
at the FTDI's USB-UART."""

from clocks import Ddr3Clocks as Clocks  # noqa: F401
from litedram.modules import MT41K64M16
from litedram.phy import ECP5DDRPHY
from litex_boards.platforms import lattice_versa_ecp5

NAME = "versa"
TITLE = "Lattice ECP5 Versa, LFE5UM5G-45F"
CLOCK_HZ = 50_000_000
BRIDGE = "uart"
BAUD = 3_000_000
MEMORY, RATE = MT41K64M16, "1:2"


def platform():
    return lattice_versa_ecp5.Platform(device="LFE5UM5G", toolchain="trellis")


def memory_phy(board, hz):
    return ECP5DDRPHY(board.request("ddram"), sys_clk_freq=hz)

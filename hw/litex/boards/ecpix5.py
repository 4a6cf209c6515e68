# SPDX-License-Identifier: Apache-2.0
"""LambdaConcept ECPIX-5 with an LFE5UM5G-85F: 512 MB of DDR3, 16 bits wide, the host over Gigabit Ethernet."""

from clocks import Ddr3Clocks as Clocks  # noqa: F401
from litedram.modules import MT41K256M16
from litedram.phy import ECP5DDRPHY
from liteeth.phy.ecp5rgmii import LiteEthPHYRGMII
from litex_boards.platforms import lambdaconcept_ecpix5

NAME = "ecpix5"
TITLE = "LambdaConcept ECPIX-5, LFE5UM5G-85F"
CLOCK_HZ = 50_000_000
BRIDGE = "etherbone"
ADDRESS = "192.168.1.50"
MEMORY, RATE = MT41K256M16, "1:2"


def platform():
    return lambdaconcept_ecpix5.Platform(device="85F", toolchain="trellis")


def memory_phy(board, hz):
    return ECP5DDRPHY(board.request("ddram"), sys_clk_freq=hz)


def ethernet_phy(board):
    return LiteEthPHYRGMII(clock_pads=board.request("eth_clocks"), pads=board.request("eth"), rx_delay=0e-9)

# SPDX-License-Identifier: Apache-2.0
"""Registers of the system's clock on both sides of a PHY's DFI. Enters: a PHY that works at twice the system's clock.
Leaves: the same with two more cycles of read latency, one for what goes to the memory and one for what comes back.

Such a PHY takes the first phase half a cycle after the controller has made it, and gives what it read half a cycle
before the controller takes it. Behind the controller's logic that is too little time on an FPGA, and place and route
does not see it: it holds each clock's own paths to a bound, not those from one clock to another. Between registers
nothing is left of such a path but the multiplexer of the phases."""

import copy

from litedram.phy.dfi import Interface
from litex.gen import LiteXModule

BACK = ("rddata", "rddata_valid")


class RegisteredDfi(LiteXModule):
    def __init__(self, phy):
        self.phy = phy
        self.settings = copy.copy(phy.settings)
        self.settings.read_latency += 2
        first = phy.dfi.phases[0]
        self.dfi = Interface(
            len(first.address), len(first.bank), len(first.cs_n), len(first.wrdata), len(phy.dfi.phases)
        )
        for near, far in zip(self.dfi.phases, phy.dfi.phases):
            for name, *_ in near.layout:
                to, of = (near, far) if name in BACK else (far, near)
                self.sync += getattr(to, name).eq(getattr(of, name))

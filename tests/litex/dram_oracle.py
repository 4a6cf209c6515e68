# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's controller behind an AXI port, as Verilog: the oracle of sim/memory.

    python tests/litex/dram_oracle.py PRESET AXI_BYTES OUT.v      writes module `litedram_port`
    python tests/litex/dram_oracle.py --timings                   prints what LiteDRAM makes of each preset, as JSON

The controller, the AXI port and the converters are LiteDRAM's and LiteX's; the physical layer is LiteDRAM's
SDRAMPHYModel where that knows the kind of memory. Cycles do not depend on it: the controller counts the latencies that
the physical layer's settings name."""

import json
import math
import sys

from litedram import modules
from litedram.common import PhySettings, burst_lengths, get_default_cl_cwl, get_sys_latency
from litedram.core import LiteDRAMController, LiteDRAMCrossbar
from litedram.frontend.axi import LiteDRAMAXI2Native, LiteDRAMAXIPort
from litedram.phy.dfi import Interface
from litedram.phy.model import SDRAMPHYModel
from litex.soc.interconnect.axi.axi_full import AXIUpConverter
from migen import Module
from migen.fhdl.verilog import convert

ROW_BITS = 9  # fewer rows than the parts have: the model keeps them all in memory

# family: class of the parts, clock in Hz, phases, class of the physical layer, its speed grade
FAMILIES = {
    "sdr-50": (modules.MT48LC16M16, 50e6, 1, "GENSDRPHY", None),
    "sdr-100": (modules.MT48LC16M16, 50e6, 2, "HalfRateGENSDRPHY", None),
    "ddr3-300": (modules.MT41K256M16, 75e6, 2, "ECP5DDRPHY", None),
    "ddr3-800": (modules.MT41K256M16, 100e6, 4, "A7DDRPHY", "800"),
    "ddr4-2400": (modules.MT40A512M16, 300e6, 4, "USPDDRPHY", None),
    "lpddr4-1600": (modules.MT53E256M16D1, 100e6, 8, "K7LPDDR4PHY", None),
}


def phy_settings(family, module, width):
    """The settings that the physical layer of the family has, by the formulas of its class in litedram.phy."""
    _, clock, phases, kind, _ = FAMILIES[family]
    memory = module.memtype
    if memory == "SDR":
        cl, cwl = 2, None
        # At half the rate two registers of the DFI stand before the PHY (hw/litex/registered_dfi.py).
        read = cl + 1 if kind == "GENSDRPHY" else (cl + 1) // 2 + 3
        write, databits = 0, width
    elif memory == "LPDDR4":
        cl, cwl, read, write, databits = 14, 8, 7, 2, 2 * width  # litedram.phy.lpddr4.basephy, 800 MHz
    else:
        cl, cwl = get_default_cl_cwl(memory, 1 / (phases * clock))
        more = {"ECP5DDRPHY": (10, 0), "A7DDRPHY": (6, -1), "USPDDRPHY": (5, -1)}[kind]
        read = get_sys_latency(phases, cl) + more[0]
        write = get_sys_latency(phases, cwl) + more[1]
        databits = (4 if kind == "ECP5DDRPHY" else 2) * width
    return PhySettings(
        phytype="SDRAMPHYModel",
        memtype=memory,
        databits=width,
        dfi_databits=databits,
        nphases=phases,
        rdphase=0,
        wrphase=phases - 1,
        cl=cl,
        cwl=cwl,
        read_latency=read,
        write_latency=write,
    )


def described(family, width):
    module_class, clock, phases, _, grade = FAMILIES[family]
    module = module_class(clock, f"1:{phases}", speedgrade=grade)
    return module, phy_settings(family, module, width)


def timings():
    """Of each family with 16 data lines: what isa/dram.cc has as data."""
    found = {}
    for family in FAMILIES:
        module, phy = described(family, 16)
        times = {
            name: getattr(module.timing_settings, name) or 0
            for name in ("tRP", "tRCD", "tWR", "tWTR", "tREFI", "tRFC", "tFAW", "tCCD", "tRRD", "tRC", "tRAS")
        }
        found[family] = {
            **times,
            "banks": 2**module.geom_settings.bankbits,
            "columns": 2**module.geom_settings.colbits,
            "burst": phy.nphases if phy.memtype == "SDR" else burst_lengths[phy.memtype],
            "write_cas": math.ceil(phy.cwl / phy.nphases),
            "read_latency": phy.read_latency,
            "write_latency": phy.write_latency,
        }
    return found


class Port(Module):
    """An AXI port of `bytes` bytes on a controller of the preset."""

    def __init__(self, preset, bytes):
        family, width = preset.rsplit("x", 1)
        module, settings = described(family, int(width))
        module.geom_settings.rowbits = ROW_BITS
        if module.memtype == "LPDDR4":  # the model does not know it
            geometry = module.geom_settings
            self.dfi = Interface(geometry.addressbits, geometry.bankbits, 1, settings.dfi_databits, settings.nphases)
        else:
            self.submodules.phy = SDRAMPHYModel(module, settings, clk_freq=module.clk_freq)
            self.dfi = self.phy.dfi
        self.submodules.controller = LiteDRAMController(
            settings, module.geom_settings, module.timing_settings, module.clk_freq
        )
        self.comb += self.controller.dfi.connect(self.dfi)
        self.submodules.crossbar = LiteDRAMCrossbar(self.controller.interface)
        native = self.controller.interface.data_width // 8
        self.bus = LiteDRAMAXIPort(data_width=8 * bytes, address_width=32, id_width=1)
        inner = self.bus
        if bytes < native:
            inner = LiteDRAMAXIPort(data_width=8 * native, address_width=32, id_width=1)
            self.submodules += AXIUpConverter(self.bus, inner)
        port = self.crossbar.get_port(data_width=8 * max(bytes, native))
        self.submodules += LiteDRAMAXI2Native(inner, port)


def main(arguments):
    if arguments == ["--timings"]:
        print(json.dumps(timings(), indent=2))
        return
    preset, bytes, out = arguments
    port = Port(preset, int(bytes))
    channels = (port.bus.ar, port.bus.r, port.bus.aw, port.bus.w, port.bus.b)
    signals = {signal for channel in channels for signal in channel.flatten()}
    convert(port, ios=signals, name="litedram_port").write(out)


if __name__ == "__main__":
    main(sys.argv[1:])

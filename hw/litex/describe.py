# SPDX-License-Identifier: Apache-2.0
"""What a system says about itself, in a read-only memory of its bus, so that a driver needs nothing but the link.

word      meaning
0         magic: the bytes T L X 1
1         words of the description, these included
2         CRC-32 of the words from 3 on
3         clock of the system in Hz
4 5       DRAM: first byte and bytes
6         registers of the machine: first byte
7         register of LiteX that resets the system when 1 is written; 0: there is none
8 .. 15   identity: SHA-256 of sources, configuration and tools
16        writes of the DRAM's initialisation
17 ..     three words each: address, value, cycles to wait behind it
then      names, each as a count of bytes and the bytes in whole words: board, configuration, memory, tools"""

import zlib

from litedram.init import get_sdram_phy_init_sequence

WORDS = 512
MAGIC = 0x31584C54
FLAGS = {
    "DFII_COMMAND_CS": 0x01,
    "DFII_COMMAND_WE": 0x02,
    "DFII_COMMAND_CAS": 0x04,
    "DFII_COMMAND_RAS": 0x08,
    "DFII_CONTROL_SEL": 0x01,
    "DFII_CONTROL_CKE": 0x02,
    "DFII_CONTROL_ODT": 0x04,
    "DFII_CONTROL_RESET_N": 0x08,
}
# What the host needs to find a DDR3's read delays: bytes of the DRAM's width, values of the slip of bits and of the
# delay, registers of the PHY.
LEVELING = (
    "dly_sel",
    "rdly_dq_rst",
    "rdly_dq_inc",
    "rdly_dq_bitslip_rst",
    "rdly_dq_bitslip",
    "burstdet_clr",
    "burstdet_seen",
)


def register(soc, bank, name):
    """Byte address of a register of LiteX, of its most significant word."""
    region = soc.csr.regions[bank]
    address = region.origin
    for csr in region.obj:
        if csr.name == name:
            return address
        address += 4 * ((csr.size + 31) // 32)
    raise KeyError(f"{bank}.{name}")


def initialisation(soc):
    """[(address, value, cycles)]: LiteDRAM's own sequence of commands, as writes to the DFI's registers."""
    at = {
        name: register(soc, "sdram", f"dfii_{name}")
        for name in ("control", "pi0_command", "pi0_command_issue", "pi0_address", "pi0_baddress")
    }
    software = FLAGS["DFII_CONTROL_CKE"] | FLAGS["DFII_CONTROL_ODT"] | FLAGS["DFII_CONTROL_RESET_N"]
    writes = [(at["control"], software, 0)]
    sequence, _ = get_sdram_phy_init_sequence(soc.phy_settings, soc.memory_module.timing_settings)
    for _, address, bank, command, delay in sequence:
        value = sum(FLAGS[flag] for flag in command.split("|"))
        writes += [(at["pi0_address"], address, 0), (at["pi0_baddress"], bank, 0)]
        if "DFII_CONTROL" in command:
            writes.append((at["control"], value, delay))
        else:
            writes += [(at["pi0_command"], value, 0), (at["pi0_command_issue"], 1, delay)]
    return [*writes, (at["control"], FLAGS["DFII_CONTROL_SEL"], 0)]


def leveling(soc):
    """The words of the read leveling; none where the PHY has nothing to find."""
    settings = soc.phy_settings
    if "phy" not in soc.csr.regions or not getattr(settings, "read_leveling", False):
        return []
    registers = [register(soc, "phy", name) for name in LEVELING]
    return [settings.databits // 8, settings.bitslips, settings.delays, *registers]


def name(text):
    data = text.encode()
    padded = data + bytes(-len(data) % 4)
    return [len(data), *(int.from_bytes(padded[at : at + 4], "little") for at in range(0, len(padded), 4))]


def words(soc):
    """The description of a finalised system."""
    memory = soc.bus.regions["main_ram"]
    writes, levels = initialisation(soc), leveling(soc)
    identity = [int.from_bytes(soc.identity[at : at + 4], "little") for at in range(0, 32, 4)]
    body = [
        int(soc.sys_clk_freq),
        memory.origin,
        memory.size,
        soc.bus.regions["npu"].origin,
        register(soc, "ctrl", "reset"),
        *identity,
        len(writes),
        *(word for write in writes for word in write),
        len(levels),
        *levels,
        *name(soc.target.NAME),
        *name(soc.config_name),
        *name(f"{soc.memory_module.__class__.__name__}, {soc.memory_module.memtype}"),
        *name(soc.tools),
    ]
    data = b"".join(word.to_bytes(4, "little") for word in body)
    found = [MAGIC, 3 + len(body), zlib.crc32(data), *body]
    if len(found) > WORDS:
        raise ValueError(f"the description has {len(found)} words; there is room for {WORDS}")
    return found

# SPDX-License-Identifier: Apache-2.0
"""The register map as checked Python objects.

Enters: registers.toml as a dictionary and the names of the configuration parameters. Leaves: a Map in which no two
registers share an address, every bit of a register with fields has one owner, and every parameter can be read back.
"""

import re
from dataclasses import dataclass, fields

from .model import SpecError

ACCESS = ("rw", "ro", "rc", "sc", "wt")
# The block control of AP_CTRL_HS: control, global interrupt enable, interrupt enables, interrupt status.
CONTROL_BYTES = 16


@dataclass(frozen=True)
class BitField:
    name: str
    lsb: int
    width: int
    access: str
    doc: str


@dataclass(frozen=True)
class Register:
    name: str
    offset: int
    width: int
    access: str
    count: int  # 0: a single register
    stride: int
    reset: int
    parameter: str
    doc: str
    fields: tuple
    argument: str = ""  # "pointer" or "scalar": an argument of the FPGA kernel

    def addresses(self):
        """Byte offsets of every word of every element."""
        for k in range(max(1, self.count)):
            for byte in range(0, self.width // 8, 4):
                yield self.offset + k * self.stride + byte


@dataclass(frozen=True)
class Kernel:
    """Names that the FPGA tools and XRT know the machine by."""

    name: str
    vendor: str
    library: str
    version: str
    control: str
    memory: str
    clock: str
    reset: str
    interrupt: str


@dataclass(frozen=True)
class Argument:
    """One argument of the kernel: a register, or an element of an array."""

    name: str
    id: int
    offset: int
    size: int  # bytes
    pointer: bool
    doc: str


@dataclass(frozen=True)
class Chip:
    """The page of a chip of several cores: `address_bits` of its interface, in which core k is at k << core_bits and the
    page's registers are behind `page`."""

    address_bits: int
    core_bits: int
    page: int
    registers: tuple


@dataclass(frozen=True)
class Map:
    address_bits: int
    registers: tuple
    kernel: Kernel
    chip: Chip

    def arguments(self):
        """The kernel's arguments in the order of their addresses."""
        found = []
        for r in sorted((r for r in self.registers if r.argument), key=lambda r: r.offset):
            for k in range(max(1, r.count)):
                name = f"{r.name}_{k}" if r.count else r.name
                doc = f"{r.doc.rstrip('.')}: number {k}." if r.count else r.doc
                found.append(
                    Argument(name, len(found), r.offset + k * r.stride, r.width // 8, r.argument == "pointer", doc)
                )
        return tuple(found)

    def controls(self):
        """The registers of the AP_CTRL_HS handshake: the words before the first argument."""
        return tuple(r for r in self.registers if r.offset < CONTROL_BYTES)

    def register(self, name):
        return next(r for r in self.registers if r.name == name)


def _require(condition, message):
    if not condition:
        raise SpecError(message)


def _bit_fields(table, where, width):
    owners, fields = {}, []

    def claim(lsb, size, owner):
        _require(lsb >= 0 and size >= 1 and lsb + size <= width, f"{where}.{owner}: outside the register")
        for bit in range(lsb, lsb + size):
            _require(bit not in owners, f"{where}: bit {bit} is claimed by {owners.get(bit)} and by {owner}")
            owners[bit] = owner

    for entry in table.get("fields", []):
        unknown = set(entry) - {"name", "lsb", "width", "access", "doc"}
        _require(not unknown, f"{where}: unknown key {', '.join(sorted(unknown))}")
        _require(entry["access"] in ACCESS, f"{where}.{entry['name']}: unknown access {entry['access']}")
        _require(entry["name"] not in [f.name for f in fields], f"{where}.{entry['name']}: declared twice")
        claim(entry["lsb"], entry["width"], entry["name"])
        fields.append(BitField(entry["name"], entry["lsb"], entry["width"], entry["access"], entry["doc"]))
    for entry in table.get("reserved", []):
        claim(entry["lsb"], entry["width"], "reserved")
    if fields:
        free = [bit for bit in range(width) if bit not in owners]
        _require(not free, f"{where}: bit {free[0] if free else ''} is neither a field nor reserved")
    return tuple(fields)


def _kernel(table):
    names = {field.name for field in fields(Kernel)}
    _require(set(table) == names, f"kernel: wants the keys {', '.join(sorted(names))}")
    for key, value in table.items():
        _require(
            re.fullmatch(r"[0-9.]+" if key == "version" else r"[a-z][a-z0-9_]*", value),
            f"kernel.{key}: '{value}' is no name",
        )
    return Kernel(**table)


def _require_argument(register):
    where = register.name
    _require(
        register.argument in ("pointer", "scalar"),
        f"{where}: an argument is a pointer or a scalar, not {register.argument}",
    )
    _require(register.access == "rw", f"{where}: an argument is rw")
    _require(
        register.offset >= CONTROL_BYTES, f"{where}: the first {CONTROL_BYTES} bytes are block control and no argument"
    )
    _require(register.argument == "scalar" or register.width == 64, f"{where}: a pointer has 64 bits")
    _require(
        not register.count or register.stride == register.width // 8,
        f"{where}: elements of an argument are side by side",
    )


def _build_registers(tables, address_bits, parameters):
    """The registers of one map. Raises SpecError."""
    owners, names, registers = {}, set(), []
    for table in tables:
        where = table["name"]
        unknown = set(table) - {
            "name",
            "offset",
            "width",
            "access",
            "count",
            "stride",
            "reset",
            "parameter",
            "argument",
            "doc",
            "fields",
            "reserved",
        }
        _require(not unknown, f"{where}: unknown key {', '.join(sorted(unknown))}")
        _require(where not in names, f"{where}: declared twice")
        names.add(where)
        width, count = table["width"], table.get("count", 0)
        stride = table.get("stride", width // 8)
        reset = table.get("reset", 0)
        if isinstance(reset, str):
            reset = int(reset, 0)
        _require(width in (32, 64), f"{where}: width {width} is not 32 or 64")
        _require(table["offset"] % 4 == 0 and stride % 4 == 0, f"{where}: offset and stride are multiples of 4")
        _require(table["access"] in ACCESS, f"{where}: unknown access {table['access']}")
        _require(0 <= reset < 1 << width, f"{where}: the reset value does not fit")
        parameter = table.get("parameter", "")
        _require(not parameter or parameter in parameters, f"{where}: no configuration has a parameter {parameter}")
        register = Register(
            where,
            table["offset"],
            width,
            table["access"],
            count,
            stride,
            reset,
            parameter,
            table["doc"],
            _bit_fields(table, where, width),
            table.get("argument", ""),
        )
        if "argument" in table:
            _require_argument(register)
        for address in register.addresses():
            _require(address < 1 << address_bits, f"{where}: address {address:#x} is outside the map")
            _require(address not in owners, f"{where}: address {address:#x} is claimed by {owners.get(address)}")
            owners[address] = where
        registers.append(register)
    return tuple(registers)


def _build_chip(spec, map_bits):
    unknown = set(spec) - {"address_bits", "core_bits", "page", "register"}
    _require(not unknown, f"chip: unknown key {', '.join(sorted(unknown))}")
    bits, core_bits, page = spec["address_bits"], spec["core_bits"], spec["page"]
    _require(core_bits == map_bits, f"chip: core_bits are the map's address_bits, {map_bits}")
    _require(page % (1 << core_bits) == 0 and page < 1 << bits, "chip: the page is one of the interface")
    return Chip(bits, core_bits, page, _build_registers(spec["register"], core_bits, []))


def build_map(spec, parameters):
    """Builds and checks the map. Raises SpecError."""
    unknown = set(spec) - {"map", "kernel", "register", "chip"}
    _require(not unknown, f"registers.toml: unknown key {', '.join(sorted(unknown))}")
    address_bits = spec["map"]["address_bits"]
    registers = _build_registers(spec["register"], address_bits, parameters)
    reported = [r.parameter for r in registers if r.parameter]
    for parameter in parameters:
        _require(
            reported.count(parameter) == 1,
            f"configuration parameter {parameter} has {reported.count(parameter)} registers, must have one",
        )
    return Map(address_bits, registers, _kernel(spec["kernel"]), _build_chip(spec["chip"], address_bits))

# SPDX-License-Identifier: Apache-2.0
"""The register map as checked Python objects.

Enters: registers.toml as a dictionary and the names of the configuration parameters. Leaves: a Map in which no two registers
share an address, every bit of a register with fields has one owner, and every parameter can be read back.
"""
from dataclasses import dataclass

from .model import SpecError

ACCESS = ("rw", "ro", "rc", "sc", "wt")


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

    def addresses(self):
        """Byte offsets of every word of every element."""
        for k in range(max(1, self.count)):
            for byte in range(0, self.width // 8, 4):
                yield self.offset + k * self.stride + byte


@dataclass(frozen=True)
class Map:
    address_bits: int
    registers: tuple

    def register(self, name):
        return next(r for r in self.registers if r.name == name)


def _require(condition, message):
    if not condition:
        raise SpecError(message)


def _bit_fields(table, where, width):
    owners, fields = {}, []

    def claim(lsb, size, owner):
        _require(0 <= lsb and size >= 1 and lsb + size <= width, f"{where}.{owner}: outside the register")
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


def build_map(spec, parameters):
    """Builds and checks the map. Raises SpecError."""
    unknown = set(spec) - {"map", "register"}
    _require(not unknown, f"registers.toml: unknown key {', '.join(sorted(unknown))}")
    address_bits = spec["map"]["address_bits"]
    owners, names, registers = {}, set(), []
    for table in spec["register"]:
        where = table["name"]
        unknown = set(table) - {"name", "offset", "width", "access", "count", "stride", "reset", "parameter", "doc", "fields",
                                "reserved"}
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
        register = Register(where, table["offset"], width, table["access"], count, stride, reset, parameter, table["doc"],
                            _bit_fields(table, where, width))
        for address in register.addresses():
            _require(address < 1 << address_bits, f"{where}: address {address:#x} is outside the map")
            _require(address not in owners, f"{where}: address {address:#x} is claimed by {owners.get(address)}")
            owners[address] = where
        registers.append(register)
    reported = [r.parameter for r in registers if r.parameter]
    for parameter in parameters:
        _require(reported.count(parameter) == 1, f"configuration parameter {parameter} has {reported.count(parameter)} registers, must have one")
    return Map(address_bits, tuple(registers))

# SPDX-License-Identifier: Apache-2.0
"""The instruction set as checked Python objects.

Enters: isa.toml as a dictionary. Leaves: an Isa whose every bit has exactly one owner. All writers read these
objects and none reads the TOML again, so that what is refused here (overlaps, forgotten bits, unknown kinds, values that
do not fit) is refused for every language.
"""
from dataclasses import dataclass


class SpecError(Exception):
    """The description breaks a rule; the message names the instruction, the field and the bits."""


@dataclass(frozen=True)
class Enum:
    name: str
    doc: str
    values: dict  # name -> number

    @property
    def width(self):
        return max(1, max(self.values.values()).bit_length())


@dataclass(frozen=True)
class Field:
    name: str
    lsb: int
    width: int
    kind: str  # unsigned, signed, bool, enum
    enum: Enum | None
    array: int  # elements; 0 is a scalar
    stride: int  # bits from one element to the next
    default: int
    doc: str

    @property
    def count(self):
        return max(1, self.array)

    def element_lsb(self, k):
        return self.lsb + k * self.stride

    def bits(self):
        for k in range(self.count):
            yield from range(self.element_lsb(k), self.element_lsb(k) + self.width)


@dataclass(frozen=True)
class Instruction:
    name: str
    opcode: int
    engine: str  # an engine, "fetch", or "field"
    doc: str
    fields: tuple
    reserved: tuple  # (lsb, width)
    index: int


@dataclass(frozen=True)
class Isa:
    name: str
    version: int
    bits: int
    loops: int
    transfer_loops: int
    enums: dict
    header: tuple
    instructions: tuple

    def header_field(self, name):
        return next(f for f in self.header if f.name == name)


def _require(condition, message):
    if not condition:
        raise SpecError(message)


def _only(table, allowed, where):
    unknown = sorted(set(table) - set(allowed))
    _require(not unknown, f"{where}: unknown key {', '.join(unknown)}")


def _enum(name, table):
    _only(table, ("doc", "values"), f"enum {name}")
    values = table.get("values", {})
    _require(values, f"enum {name}: no values")
    _require(len(set(values.values())) == len(values), f"enum {name}: two names share a value")
    _require(all(isinstance(v, int) and v >= 0 for v in values.values()), f"enum {name}: values are natural numbers")
    return Enum(name, table.get("doc", ""), dict(values))


def _field(table, enums, where, limit):
    _only(table, ("name", "lsb", "width", "kind", "array", "stride", "default", "doc"), where)
    for key in ("name", "lsb", "width", "kind", "doc"):
        _require(key in table, f"{where}: field {table.get('name', '?')} has no {key}")
    name, width, kind = table["name"], table["width"], table["kind"]
    where = f"{where}.{name}"
    enum = None
    if kind.startswith("enum:"):
        enum = enums.get(kind[5:])
        _require(enum is not None, f"{where}: unknown enum {kind[5:]}")
        _require(enum.width <= width, f"{where}: {width} bits cannot hold enum {enum.name}")
        kind = "enum"
    _require(kind in ("unsigned", "signed", "bool", "enum"), f"{where}: unknown kind {kind}")
    _require(1 <= width <= 64, f"{where}: width {width} is not in 1..64")
    _require(kind != "bool" or width == 1, f"{where}: a bool has one bit")
    array = table.get("array", 0)
    _require(array == 0 or array >= 2, f"{where}: array counts at least two elements")
    stride = table.get("stride", width)
    _require(stride >= width, f"{where}: elements overlap (stride {stride} below width {width})")
    field = Field(name, table["lsb"], width, kind, enum, array, stride, table.get("default", 0), table["doc"])
    _require(field.lsb >= 0 and field.element_lsb(field.count - 1) + width <= limit, f"{where}: beyond bit {limit - 1}")
    low = -(1 << (width - 1)) if kind == "signed" else 0
    high = (1 << (width - (kind == "signed"))) - 1
    _require(low <= field.default <= high, f"{where}: default {field.default} does not fit")
    return field


def _claim(owners, bits, owner, where):
    for bit in bits:
        _require(bit not in owners, f"{where}: bit {bit} is claimed by {owners.get(bit)} and by {owner}")
        owners[bit] = owner


def _check_all_claimed(owners, bits, where):
    free = [bit for bit in bits if bit not in owners]
    _require(not free, f"{where}: bit {free[0] if free else ''} is neither a field nor reserved ({len(free)} such bits)")


def build_isa(spec):
    """Builds and checks the model. Raises SpecError."""
    _only(spec, ("isa", "enums", "header", "instruction"), "isa.toml")
    head = spec["isa"]
    bits = 8 * head["instruction_bytes"]
    enums = {name: _enum(name, table) for name, table in spec["enums"].items()}
    header_owners = {}
    header = []
    for table in spec["header"]:
        field = _field(table, enums, "header", 64)
        _claim(header_owners, field.bits(), field.name, "header")
        header.append(field)
    _check_all_claimed(header_owners, range(64), "header")
    names, opcodes, instructions = set(), {}, []
    opcode_field = next(f for f in header if f.name == "opcode")
    for index, table in enumerate(spec["instruction"]):
        where = table["name"]
        _only(table, ("name", "opcode", "engine", "doc", "fields", "reserved"), where)
        _require(where not in names, f"{where}: declared twice")
        names.add(where)
        opcode = table["opcode"]
        _require(1 <= opcode < 1 << opcode_field.width, f"{where}: opcode {opcode} is out of range or 0")
        _require(opcode not in opcodes, f"{where}: opcode {opcode} is taken by {opcodes.get(opcode)}")
        opcodes[opcode] = where
        engine = table["engine"]
        _require(engine in ("fetch", "field") or engine in enums["engine"].values, f"{where}: unknown engine {engine}")
        _require(engine != "fetch" or where == "finish", f"{where}: FETCH executes finish alone")
        owners = dict(header_owners)
        fields = []
        for entry in table["fields"]:
            field = _field(entry, enums, where, bits)
            _require(field.name not in [f.name for f in fields] + ["header", "wait", "signal"],
                     f"{where}.{field.name}: the name is taken")
            _claim(owners, field.bits(), field.name, where)
            fields.append(field)
        reserved = []
        for entry in table.get("reserved", []):
            _only(entry, ("lsb", "width"), f"{where}: reserved")
            span = range(entry["lsb"], entry["lsb"] + entry["width"])
            _require(0 <= span.start < span.stop <= bits, f"{where}: reserved range {span.start}..{span.stop - 1} is outside the word")
            _claim(owners, span, "reserved", where)
            reserved.append((entry["lsb"], entry["width"]))
        _check_all_claimed(owners, range(bits), where)
        _require(engine != "field" or any(f.name == "engine" for f in fields), f"{where}: no field names the engine")
        instructions.append(Instruction(where, opcode, engine, table["doc"], tuple(fields), tuple(reserved), index))
    return Isa(head["name"], head["version"], bits, head["loops"], head["transfer_loops"], enums, tuple(header),
               tuple(instructions))

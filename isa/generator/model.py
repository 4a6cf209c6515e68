# SPDX-License-Identifier: Apache-2.0
"""The instruction set as checked Python objects.

Enters: isa.toml as a dictionary. Leaves: an Isa whose every bit has exactly one owner and whose operands name fields
that exist and have the kind they need. All writers read these objects and none reads the TOML again, so that what is
refused here (overlaps, forgotten bits, unknown kinds, values that do not fit) is refused for every language.
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
class Term:
    """One part of a condition: the field's value equals `value` (`equal`), or it does not."""

    field: Field
    value: str  # "true", a value of the field's enumeration, or a number
    equal: bool


@dataclass(frozen=True)
class Nest:
    extent: Field
    reduce: Field | None
    padding: tuple  # (before, after), or empty

    @property
    def fields(self):
        return [self.extent] + ([self.reduce] if self.reduce else []) + list(self.padding)


@dataclass(frozen=True)
class Operand:
    name: str
    write: bool
    space: str | None  # a constant memory
    space_field: Field | None  # the field that names the memory
    base_field: Field | None  # DRAM
    unit: str  # entries, bytes
    address: Field
    loops: str  # all, outer, inside, none, index
    index_field: Field | None
    stride: Field | None
    length: Field | str | int | None  # str: a size of the configuration; None: a whole entry
    when: tuple  # of Term
    doc: str

    @property
    def fields(self):
        parts = [self.space_field, self.base_field, self.address, self.index_field, self.stride, self.length]
        return [f for f in parts if isinstance(f, Field)] + [t.field for t in self.when]


@dataclass(frozen=True)
class Work:
    counts: str  # macs, vectors, steps
    loops: str  # all, outer, raster
    each: tuple  # quantities of the configuration
    when: tuple  # of Term


@dataclass(frozen=True)
class Latency:
    cycles: str  # unit.name of timing.toml
    when: tuple  # of Term


@dataclass(frozen=True)
class Instruction:
    name: str
    opcode: int
    engine: str  # an engine, "fetch", or "field"
    doc: str
    fields: tuple
    reserved: tuple  # (lsb, width)
    index: int
    nest: Nest | None = None
    operands: tuple = ()
    work: tuple = ()
    latency: tuple = ()


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

    @property
    def most_operands(self):
        return max(len(i.operands) for i in self.instructions)

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
    _require(
        not free, f"{where}: bit {free[0] if free else ''} is neither a field nor reserved ({len(free)} such bits)"
    )


# What `work` may count, and the quantities of a configuration it may multiply, beside numbers of timing.toml.
COUNTS = ("macs", "vectors", "steps", "pauses")
QUANTITIES = ("batch", "block_in", "block_out", "lanes")
# Sizes of a configuration, in bytes, that an access may have.
SIZES = ("inp_entry_bytes", "wgt_entry_bytes", "acc_entry_bytes", "out_entry_bytes", "param_entry_bytes")


class _Operands:
    """Reads nest, operands and work of one instruction."""

    def __init__(self, instruction, fields, enums):
        self.instruction, self.enums = instruction, enums
        self.fields = {f.name: f for f in fields}

    def field(self, name, where, kinds, array):
        """The field of that name; `array`: 0 for a scalar, else its elements (None: any number)."""
        _require(name in self.fields, f"{where}: no field {name}")
        field = self.fields[name]
        _require(field.kind in kinds, f"{where}: {name} is {field.kind} and must be {' or '.join(kinds)}")
        _require(
            field.array > 0 if array is None else field.array == array,
            f"{where}: {name} has {field.array} elements and must have {'several' if array is None else array}",
        )
        return field

    def condition(self, text, where):
        terms = []
        for part in text.split(" and ") if text else ():
            words = part.split()
            equal = True
            if len(words) == 1 or (len(words) == 2 and words[0] == "not"):
                field, value, equal = self.field(words[-1], where, ("bool",), 0), "true", len(words) == 1
            else:
                _require(len(words) == 3 and words[1] in ("==", "!="), f"{where}: cannot read the condition '{part}'")
                field, value, equal = (
                    self.field(words[0], where, ("enum", "unsigned", "signed"), 0),
                    words[2],
                    words[1] == "==",
                )
                if field.enum:
                    _require(value in field.enum.values, f"{where}: enum {field.enum.name} has no value {value}")
                else:
                    _require(
                        value.lstrip("-").isdigit(),
                        f"{where}: {field.name} is compared with '{value}', which is no number",
                    )
            terms.append(Term(field, value, equal))
        return tuple(terms)

    def nest(self, table, where):
        if table is None:
            return None
        where = f"{where}.nest"
        _only(table, ("extent", "reduce", "padding"), where)
        _require("extent" in table, f"{where}: no extent")
        extent = self.field(table["extent"], where, ("unsigned",), None)
        reduce = self.field(table["reduce"], where, ("unsigned",), 0) if "reduce" in table else None
        padding = tuple(self.field(name, where, ("unsigned",), None) for name in table.get("padding", ()))
        _require(len(padding) in (0, 2), f"{where}: padding names two fields, before and after")
        _require(
            not padding or padding[0].array == padding[1].array <= extent.array,
            f"{where}: padding of more loops than there are",
        )
        return Nest(extent, reduce, padding)

    def operand(self, table, nest, where):
        _require("name" in table, f"{where}: an operand without a name")
        where = f"{where}, operand {table['name']}"
        _only(table, ("name", "access", "memory", "unit", "address", "loops", "stride", "length", "when", "doc"), where)
        for key in ("access", "memory", "unit", "address", "loops", "doc"):
            _require(key in table, f"{where}: no {key}")
        _require(table["access"] in ("read", "write"), f"{where}: access is read or write, not {table['access']}")
        _require(table["unit"] in ("entries", "bytes"), f"{where}: unit is entries or bytes, not {table['unit']}")
        unit, memory = table["unit"], table["memory"]
        space = space_field = base_field = None
        if memory.startswith("field:"):
            space_field = self.field(memory[6:], where, ("enum",), 0)
            unknown = sorted(set(space_field.enum.values) - set(self.enums["space"].values))
            _require(
                not unknown, f"{where}: enum {space_field.enum.name} names {', '.join(unknown)}, which is no memory"
            )
        elif memory.startswith("dram:"):
            base_field = self.field(memory[5:], where, ("unsigned",), 0)
            _require(unit == "bytes", f"{where}: DRAM is addressed in bytes")
        else:
            _require(memory in self.enums["space"].values, f"{where}: no memory {memory}")
            space = memory
        address = self.field(table["address"], where, ("unsigned",), 0)
        loops, index_field, stride = table["loops"], None, None
        if loops.startswith("index:"):
            loops, index_field = "index", self.field(loops[6:], where, ("unsigned",), 0)
            _require(unit == "entries", f"{where}: an index counts entries")
        _require(loops in ("all", "outer", "inside", "none", "index"), f"{where}: unknown loops {loops}")
        _require(loops == "none" or nest is not None, f"{where}: the instruction has no nest")
        _require(loops != "outer" or nest.reduce, f"{where}: outer loops need the nest's reduce")
        _require(loops != "inside" or nest.padding, f"{where}: loops inside need the nest's padding")
        if loops in ("all", "outer", "inside"):
            _require("stride" in table, f"{where}: no stride")
            stride = self.field(table["stride"], where, ("signed",), nest.extent.array)
        else:
            _require("stride" not in table, f"{where}: a stride without loops")
        length = table.get("length")
        if unit == "bytes":
            _require(isinstance(length, str), f"{where}: bytes need a field with the length")
            if length.startswith("config:"):
                length = length[7:]
                _require(length in SIZES, f"{where}: {length} is none of the sizes {', '.join(SIZES)}")
                _require(base_field is None, f"{where}: DRAM's length does not depend on the configuration")
            else:
                length = self.field(length, where, ("unsigned",), 0)
        else:
            _require(
                length is None or (isinstance(length, int) and length > 0),
                f"{where}: the length of an entry's part is a number",
            )
        return Operand(
            table["name"],
            table["access"] == "write",
            space,
            space_field,
            base_field,
            unit,
            address,
            loops,
            index_field,
            stride,
            length,
            self.condition(table.get("when", ""), where),
            table["doc"],
        )

    def work(self, table, nest, where):
        where = f"{where}.work"
        _only(table, ("counts", "loops", "each", "when"), where)
        _require(
            table.get("counts") in COUNTS, f"{where}: counts is one of {', '.join(COUNTS)}, not {table.get('counts')}"
        )
        unknown = sorted(name for name in set(table.get("each", ())) - set(QUANTITIES) if "." not in name)
        _require(
            "each" in table and not unknown,
            f"{where}: each multiplies some of {', '.join(QUANTITIES)}, not {', '.join(unknown) or 'nothing'}",
        )
        _require(nest is not None, f"{where}: the instruction has no nest")
        loops = table.get("loops", "all")
        _require(loops in ("all", "outer", "raster"), f"{where}: unknown loops {loops}")
        _require(loops != "outer" or nest.reduce, f"{where}: outer loops need the nest's reduce")
        _require(loops != "raster" or self.instruction == "gemm", f"{where}: the raster form is gemm's")
        _require(table["counts"] != "steps" or not table["each"], f"{where}: a step is a cycle of every configuration")
        return Work(table["counts"], loops, tuple(table["each"]), self.condition(table.get("when", ""), where))

    def latencies(self, entries, where):
        where = f"{where}.latency"
        latencies = []
        for table in entries:
            _only(table, ("cycles", "when"), where)
            _require("cycles" in table, f"{where}: no cycles")
            latencies.append(Latency(table["cycles"], self.condition(table.get("when", ""), where)))
        _require(
            all(bool(way.when) == (k + 1 < len(latencies)) for k, way in enumerate(latencies)),
            f"{where}: the last entry has no condition, and all others have one",
        )
        return tuple(latencies)

    def read(self, table):
        where = self.instruction
        _require("operands" in table, f"{where}: no operands (write `operands = []` when it touches no memory)")
        nest = self.nest(table.get("nest"), where)
        operands = tuple(self.operand(entry, nest, where) for entry in table["operands"])
        names = [o.name for o in operands]
        _require(len(set(names)) == len(names), f"{where}: two operands have one name")
        _require(sum(o.base_field is not None for o in operands) <= 1, f"{where}: more than one operand in DRAM")
        work = tuple(self.work(entry, nest, where) for entry in table.get("work", ()))
        used = {f.name for o in operands for f in o.fields} | {f.name for f in (nest.fields if nest else ())}
        idle = [f.name for f in self.fields.values() if f.array and f.name not in used]
        _require(not idle, f"{where}: {', '.join(idle)} belongs to no operand and no nest")
        latency = self.latencies(table.get("latency", ()), where)
        engine = table["engine"]
        stepped = any(w.counts == "steps" for w in work)
        _require(
            engine not in ("gemm", "alu") or (stepped and latency),
            f"{where}: {engine} needs its steps (in work) and its latency",
        )
        _require(
            engine in ("gemm", "alu") or not (stepped or latency), f"{where}: steps and latency are for gemm and alu"
        )
        return nest, operands, work, latency


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
        _only(
            table,
            ("name", "opcode", "engine", "doc", "nest", "operands", "work", "latency", "fields", "reserved"),
            where,
        )
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
            _require(
                field.name not in [f.name for f in fields] + ["header", "wait", "signal"],
                f"{where}.{field.name}: the name is taken",
            )
            _claim(owners, field.bits(), field.name, where)
            fields.append(field)
        reserved = []
        for entry in table.get("reserved", []):
            _only(entry, ("lsb", "width"), f"{where}: reserved")
            span = range(entry["lsb"], entry["lsb"] + entry["width"])
            _require(
                0 <= span.start < span.stop <= bits,
                f"{where}: reserved range {span.start}..{span.stop - 1} is outside the word",
            )
            _claim(owners, span, "reserved", where)
            reserved.append((entry["lsb"], entry["width"]))
        _check_all_claimed(owners, range(bits), where)
        _require(engine != "field" or any(f.name == "engine" for f in fields), f"{where}: no field names the engine")
        nest, operands, work, latency = _Operands(where, fields, enums).read(table)
        instructions.append(
            Instruction(
                where,
                opcode,
                engine,
                table["doc"],
                tuple(fields),
                tuple(reserved),
                index,
                nest,
                operands,
                work,
                latency,
            )
        )
    return Isa(
        head["name"],
        head["version"],
        bits,
        head["loops"],
        head["transfer_loops"],
        enums,
        tuple(header),
        tuple(instructions),
    )

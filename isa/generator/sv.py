# SPDX-License-Identifier: Apache-2.0
"""Writes the SystemVerilog package.

Enters: the Isa and the register Map. Leaves: tsr_isa_pkg.sv, in the subset that Verilator 5.006 and Yosys 0.23 both
take: enumerations, packed structs whose layout is the word's (an instruction is decoded by assigning the word to a
struct), array fields as arrays (`extent[k]`), functions without return statements. Yosys takes arrays as members of
structures only, so that every array field has a structure of its own too, for registers and ports: `gemm_extent_t`,
with the member `loop`.
"""

from .cpp import pascal
from .model import SpecError

KEYWORDS = {"table", "packed"}  # field names that are keywords of SystemVerilog; their members end in an underscore


def _member(name):
    return name + "_" if name in KEYWORDS else name


def _enum(isa, enum):
    name = pascal(enum.name)
    fields = [f for group in (isa.header, *(i.fields for i in isa.instructions)) for f in group]
    width = max([enum.width] + [f.width for f in fields if f.enum == enum])
    values = ",\n".join(f"    {name}{pascal(n)} = {width}'d{v}" for n, v in enum.values.items())
    doc = f"  // {enum.doc}\n" if enum.doc else ""
    return f"{doc}  typedef enum logic [{width - 1}:0] {{\n{values}\n  }} {enum.name}_e;\n"


def _arrays(instruction):
    """For each array field a structure that holds it alone."""
    lines = []
    for f in instruction.fields:
        if f.array:
            lines.append(
                f"  typedef struct packed {{ logic [{f.array - 1}:0][{f.width - 1}:0] loop; }} {instruction.name}_{f.name}_t;"
            )
    return "\n".join(lines) + ("\n" if lines else "")


def _shapes(isa, first, second, pairs):
    """Engines share modules: these fields of two instructions have one shape."""
    fields = {i.name: {f.name: f for f in i.fields} for i in isa.instructions}
    for a, b in pairs:
        one, other = fields[first][a], fields[second][b]
        if (one.array, one.width) != (other.array, other.width):
            raise SpecError(f"{first}.{a} and {second}.{b} go through one module of the RTL and have unlike shapes")


def _range(width):
    return "" if width == 1 else f"[{width - 1}:0] "


def _struct(name, doc, parts, bits):
    """parts: (lsb, width, member name, comment, type if it is not a vector), to be laid out from the highest bit
    down."""
    lines = [f"  // {doc}", "  typedef struct packed {"]
    expect = bits
    for lsb, width, member, comment, *kind in sorted(parts, reverse=True):
        assert lsb + width == expect, (name, member)
        expect = lsb
        lines.append(
            f"    {kind[0] if kind else f'logic {_range(width)}'.rstrip()} {member};"
            + (f"  // {comment}" if comment else "")
        )
    assert expect == 0, name
    lines.append(f"  }} {name};\n")
    return "\n".join(lines)


def _parts(isa, instruction):
    parts = [(0, 64, "header", "", "header_t")]
    for f in instruction.fields:
        assert f.stride == f.width or not f.array, f"{instruction.name}.{f.name}: elements must be side by side"
        comment = f"{f.enum.name}_e" if f.enum else "signed" if f.kind == "signed" else ""
        kind = [f"logic [{f.array - 1}:0][{f.width - 1}:0]"] if f.array else []
        parts.append((f.lsb, f.count * f.width, _member(f.name), comment, *kind))
    parts += [(lsb, width, f"reserved_{lsb}", "must be 0") for lsb, width in instruction.reserved]
    return parts


def _bits(instruction):
    """Bits of an instruction up to the end of its last field."""
    return max([64] + [f.lsb + f.width * (f.array or 1) for f in instruction.fields])


def _constants(instruction):
    lines = []
    for f in instruction.fields:
        stem = f"{pascal(instruction.name)}{pascal(f.name)}"
        lines.append(f"  localparam int unsigned {stem}Lsb = {f.lsb};")
        lines.append(f"  localparam int unsigned {stem}Width = {f.width};")
        if f.array:
            lines.append(f"  localparam int unsigned {stem}Count = {f.array};")
    return "\n".join(lines) + ("\n" if lines else "")


def _legality(isa):
    """Legality of one word, one bit for each instruction, so that a decoder finds them side by side and may keep them in
    registers. It takes one argument for each instruction, so that an instruction whose rules between fields the caller
    does not state is a call with too few arguments, which no tool accepts."""
    last = len(isa.instructions) - 1
    names = ", ".join(i.name for i in reversed(isa.instructions))
    lines = [
        f"  localparam int unsigned Instructions = {len(isa.instructions)};\n",
        "  // Which instruction a word is, one bit each, and none for an illegal opcode:",
        f"  // {{{names}}}.",
        f"  function automatic logic [{last}:0] instruction_of(input logic [5:0] opcode);",
        "    instruction_of = {" + ", ".join(f"opcode == 6'd{i.opcode}" for i in reversed(isa.instructions)) + "};",
        "  endfunction\n",
        "  // The bit of the word's own instruction, when the word is an illegal_operand: a reserved bit that is not 0, an",
        "  // undefined value of an enumeration, or a broken rule between fields. The rules come from the caller.",
        f"  function automatic logic [{last}:0] broken_by(input logic [{isa.bits - 1}:0] word,",
        "      " + ", ".join(f"input logic {i.name}_bad" for i in isa.instructions) + ");",
        f"    logic [{last}:0] bad;",
        "    bad = {" + ", ".join(f"{i.name}_bad" for i in reversed(isa.instructions)) + "};",
    ]
    for number, i in enumerate(isa.instructions):
        bad = [f"word[{lsb + width - 1}:{lsb}] != {width}'d0" for lsb, width in i.reserved]
        for f in i.fields:
            if f.enum:
                missing = [v for v in range(1 << f.width) if v not in f.enum.values.values()]
                bad += [f"word[{f.lsb + f.width - 1}:{f.lsb}] == {f.width}'d{v}" for v in missing]
        if bad:
            lines.append("    if (" + " ||\n        ".join(bad) + f") bad[{number}] = 1'b1;  // {i.name}")
    lines += ["    broken_by = bad & instruction_of(word[5:0]);", "  endfunction\n"]
    return "\n".join(lines)


def _engines(isa):
    """Where an instruction is queued, and for each engine which of its instructions a word is."""
    width = isa.enums["engine"].width
    lines = [
        "  // The engine in whose queue FETCH puts a word; without meaning for illegal words and for FINISH.",
        f"  function automatic logic [{width - 1}:0] engine_of(input logic [{isa.bits - 1}:0] word);",
        f"    logic [{width - 1}:0] engine;",
        f"    engine = {width}'d0;",
        "    case (word[5:0])",
    ]
    for i in isa.instructions:
        if i.engine == "fetch":
            continue
        if i.engine == "field":
            field = next(f for f in i.fields if f.name == "engine")
            value = f"word[{field.lsb + field.width - 1}:{field.lsb}]"
        else:
            value = f"{width}'d{isa.enums['engine'].values[i.engine]}"
        lines.append(f"      6'd{i.opcode}: engine = {value};  // {i.name}")
    lines += ["      default: ;", "    endcase", "    engine_of = engine;", "  endfunction\n"]
    for engine in isa.enums["engine"].values:
        own = [i for i in isa.instructions if i.engine in (engine, "field")]
        bits = ", ".join(f"opcode == 6'd{i.opcode}" for i in reversed(own))
        names = ", ".join(i.name for i in reversed(own))
        lines += [
            f"  localparam int unsigned {pascal(engine)}QueueBits = {max(map(_bits, own))};"
            f"  // of the words in the queue of {engine.upper()}: the others are 0\n",
            f"  // Which instruction of {engine.upper()} an opcode is, one bit each: {{{names}}}. An engine unpacks all bits, so that one more",
            "  // instruction does not fit where the engine has not been told what to do with it.",
            f"  function automatic logic [{len(own) - 1}:0] {engine}_instruction(input logic [5:0] opcode);",
            f"    {engine}_instruction = {{{bits}}};",
            "  endfunction\n",
        ]
    return "\n".join(lines)


def _registers(register_map):
    chip = register_map.chip
    lines = [
        "  // AXI4-Lite registers: byte offsets; arrays have Count elements Stride bytes apart.",
        f"  localparam int unsigned RegAddressBits = {register_map.address_bits};",
        *_register_lines("Reg", register_map.registers, register_map.address_bits),
        "  // Those of a chip of several cores, within its page.",
        f"  localparam int unsigned ChipAddressBits = {chip.address_bits};",
        f"  localparam logic [{chip.address_bits - 1}:0] ChipPage = {chip.address_bits}'h{chip.page:x};",
        *_register_lines("Chip", chip.registers, chip.core_bits),
    ]
    return "\n".join(lines) + "\n"


def _register_lines(prefix, registers, bits):
    lines = []
    for r in registers:
        stem = f"{prefix}{pascal(r.name)}"
        lines.append(f"  localparam logic [{bits - 1}:0] {stem} = {bits}'h{r.offset:03x};  // {r.doc}")
        if r.count:
            lines.append(f"  localparam int unsigned {stem}Count = {r.count};")
            lines.append(f"  localparam int unsigned {stem}Stride = {r.stride};")
        for f in r.fields:
            lines.append(f"  localparam int unsigned {stem}{pascal(f.name)}Bit = {f.lsb};")
        if r.reset:
            lines.append(f"  localparam logic [{r.width - 1}:0] {stem}Reset = {r.width}'h{r.reset:x};")
    return lines


def package(isa, register_map, timing):
    """timing: the localparams of the timing, as text."""
    opcode = isa.header_field("opcode")
    assert (opcode.lsb, opcode.width) == (0, 6)
    waits = [isa.header_field(n) for n in ("wait_enable", "wait_engine", "wait_count")]
    enable, engine, count = waits
    assert (
        all(w.stride == enable.stride for w in waits)
        and engine.lsb == enable.lsb + 1
        and count.lsb == engine.lsb + engine.width
    )
    wait_bits = enable.width + engine.width + count.width
    assert enable.stride == wait_bits
    out = [
        "// SPDX-License-Identifier: Apache-2.0\n"
        "// Generated by isa/generate.py; do not edit. The instruction set and the register map: enumerations, packed structs laid over\n"
        "// the instruction word (assign the word to a struct to decode it), positions of fields, legality of an encoding.\n"
        "/* verilator lint_off UNUSEDPARAM */\n/* verilator lint_off UNUSEDSIGNAL */\n"
        "package tsr_isa_pkg;\n",
        f"  localparam int unsigned IsaVersion = {isa.version};\n"
        f"  localparam int unsigned InstructionBits = {isa.bits};\n"
        f"  localparam int unsigned InstructionBytes = {isa.bits // 8};\n"
        f"  localparam int unsigned Loops = {isa.loops};\n"
        f"  localparam int unsigned TransferLoops = {isa.transfer_loops};\n"
        f"  localparam int unsigned Waits = {enable.array};\n"
        f"  localparam int unsigned WaitBits = {wait_bits};\n"
        f"  localparam int unsigned TimelineBits = {count.width};\n"
        f"  localparam int unsigned Engines = {len(isa.enums['engine'].values)};\n",
        "  // What a stage leaves where its valid bit is 0 is unspecified: synthesis may choose. A simulator is spared the clearing of\n"
        "  // it and keeps what was there.\n"
        "`ifdef VERILATOR\n  localparam bit Simulated = 1'b1;\n`else\n  localparam bit Simulated = 1'b0;\n`endif\n",
    ]
    values = ",\n".join(f"    Opcode{pascal(i.name)} = {opcode.width}'d{i.opcode}" for i in isa.instructions)
    out.append(f"  typedef enum logic [{opcode.width - 1}:0] {{\n{values}\n  }} opcode_e;\n")
    out += [_enum(isa, e) for e in isa.enums.values()]
    out.append(
        _struct(
            "wait_t",
            "One wait condition.",
            [
                (0, enable.width, "enable", ""),
                (enable.width, engine.width, "engine", "engine_e"),
                (enable.width + engine.width, count.width, "count", ""),
            ],
            wait_bits,
        )
    )
    out.append(
        _struct(
            "header_t",
            "The first 64 bits of every instruction; each condition is a wait_t.",
            [
                (0, 6, "opcode", "opcode_e"),
                (isa.header_field("signal").lsb, 1, "signal", ""),
                (enable.lsb, enable.array * wait_bits, "waits", "", f"logic [{enable.array - 1}:0][{wait_bits - 1}:0]"),
            ],
            64,
        )
    )
    out.append(
        f"  localparam int unsigned HeaderBits = 64;\n"
        f"  localparam int unsigned HeaderWaitsLsb = {enable.lsb};\n"
        f"  localparam int unsigned HeaderWaitsBits = {enable.array * wait_bits};\n"
        f"  localparam int unsigned HeaderSignalLsb = {isa.header_field('signal').lsb};\n"
    )
    pairs = [
        ("extent", "extent"),
        ("inp_stride", "src_stride"),
        ("wgt_stride", "dst_stride"),
        ("acc_stride", "second_stride"),
    ]
    _shapes(isa, "gemm", "alu", pairs)
    _shapes(isa, "load", "store", [(name, name) for name in ("extent", "dram_stride", "sp_stride")])
    for i in isa.instructions:
        out.append(_struct(f"{i.name}_t", i.doc, _parts(isa, i), isa.bits))
        out += [text for text in (_arrays(i), _constants(i)) if text]
    out += [_legality(isa), _engines(isa)]
    out.append(_registers(register_map))
    out.append(timing)
    out.append("endpackage\n/* verilator lint_on UNUSEDSIGNAL */\n/* verilator lint_on UNUSEDPARAM */")
    return "\n".join(out) + "\n"

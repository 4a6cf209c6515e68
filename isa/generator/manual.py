# SPDX-License-Identifier: Apache-2.0
"""Writes the manual: encoding tables and registers from the data, the meaning from the hand-written chapters.

Enters: the Isa, the register Map, the configurations and the texts of the chapters. Leaves: isa.md, one document in
which encoding, assembly, operands, meaning, faults and ports stand together.
"""

import re

SYNTAX = """## Assembly

One instruction a line: its name, then `field=value` in any order, separated by blanks. `#` begins a comment. Fields at
their default may be left out, and the disassembler leaves them out. Values are integers (`12`, `-3`, `0x1f`), names of
an enumeration, or `0` and `1` for bools, for which the bare field name means 1. Arrays are lists with commas and
without blanks; missing trailing elements have their default.

    gemm extent=1,1,14,14,9,4 inp_addr=0 wgt_addr=16 inp_stride=0,0,16,1,16,1 reduce=2 wait=load:3,alu:1 signal

`wait=engine:count,...` fills the conditions from the first; `-` leaves one empty, and `!engine:count` writes one that
is not enabled. `signal` sets the signal bit. An empty line or `name:` on a line of its own (a label, to structure
listings) makes no instruction. Errors name line and column.
"""


def _bits(lsb, width):
    return f"{lsb}" if width == 1 else f"{lsb}..{lsb + width - 1}"


def _kind(field):
    if field.enum:
        return ", ".join(f"{v} {n}" for n, v in field.enum.values.items())
    return field.kind


def _field_rows(fields, reserved=()):
    rows = ["| bits | field | kind | default | meaning |", "| --- | --- | --- | --- | --- |"]
    entries = []
    for f in fields:
        where = _bits(f.lsb, f.width)
        name = f"`{f.name}`"
        if f.array:
            name = f"`{f.name}[{f.array}]`"
            where += (
                f", then each {f.stride} bits up"
                if f.stride != f.width
                else f" to {f.element_lsb(f.array - 1)}..{f.element_lsb(f.array - 1) + f.width - 1}"
            )
        entries.append((f.lsb, f"| {where} | {name} | {_kind(f)} | {f.default} | {f.doc} |"))
    entries += [(lsb, f"| {_bits(lsb, width)} | reserved | | 0 | must be 0 |") for lsb, width in reserved]
    return rows + [row for _, row in sorted(entries)]


def _demote(text):
    """A chapter as part of the manual: no licence comment, headings one level down, links from the manual's folder."""
    text = re.sub(r"\]\((?![a-z]+:|#)", "](../", text)
    lines = [line for line in text.splitlines() if not line.startswith("<!--")]
    return "\n".join("#" + line if line.startswith("#") else line for line in lines).strip() + "\n"


def _when(terms):
    """A condition in the words of isa.toml."""
    parts = []
    for t in terms:
        name = f"`{t.field.name}`"
        if t.field.kind == "bool":
            parts.append(name if t.equal else f"not {name}")
        else:
            parts.append(f"{name} is {'' if t.equal else 'not '}{t.value}")
    return " and ".join(parts)


def _operand_row(instruction, o):
    if o.base_field:
        memory = f"DRAM, base register `{o.base_field.name}`"
    else:
        memory = f"the one that `{o.space_field.name}` names" if o.space_field else o.space.upper()
    reduce = instruction.nest.reduce if instruction.nest else None
    loops = {
        "all": "all",
        "none": "none",
        "outer": f"all but the innermost `{reduce.name if reduce else ''}`",
        "inside": "all, iterations without padding",
        "index": f"the one that `{o.index_field.name if o.index_field else ''}` names: its index is added",
    }[o.loops]
    if isinstance(o.length, str):
        unit = f"`{o.length}` of the configuration"
    elif o.unit == "bytes":
        unit = f"`{o.length.name}` bytes"
    else:
        unit = f"{o.length} bytes of an entry" if o.length else "an entry"
    address = f"`{o.address.name}`" + (f" + `{o.stride.name}`" if o.stride else "")
    note = "; ".join(part for part in (f"only when {_when(o.when)}" if o.when else "", o.doc) if part)
    return f"| {o.name} | {'written' if o.write else 'read'} | {memory} | {address} | {loops} | {unit} | {note} |"


def _operands(isa):
    """The chapter of operands: what every instruction reads and writes."""
    out = [
        "## Operands",
        "",
        "What each instruction reads and writes. The address of an access is the address field plus, for each loop "
        "that moves it,",
        "the loop's index times its element of the stride field. Addresses count entries, or bytes where an access "
        "has a length",
        "in bytes. Ranges are checked over all these addresses, operand by operand in this order.",
        "",
    ]
    for i in isa.instructions:
        if not i.operands:
            out += [f"`{i.name}` touches no memory.", ""]
            continue
        out += [
            f"### Operands of {i.name}",
            "",
            "| operand | | memory | address | loops | each access | |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        out += [_operand_row(i, o) for o in i.operands] + [""]
        for w in i.work:
            each = " x ".join(f"`{quantity}`" for quantity in w.each)
            what = f"{each} {w.counts}" if each else f"one {w.counts.removesuffix('s')}"
            loops = {
                "all": "Each iteration of all loops is",
                "outer": "Each iteration of the outer loops is",
                "raster": "Each vector of the raster, or each iteration of all loops where there is no raster, is",
            }[w.loops]
            out.append(f"- {loops} {what}{' when ' + _when(w.when) if w.when else ''}.")
        ways = [f"`{way.cycles}`" + (f" when {_when(way.when)}" if way.when else "") for way in i.latency]
        if ways:
            out.append(f"- Cycles from the last step to the completion: {', else '.join(ways)}.")
        out += [""] if i.work or i.latency else []
    return out


def _register_rows(registers):
    out = ["| offset | register | bits | access | reset | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    for r in registers:
        where, name = f"{r.offset:#05x}", f"`{r.name}`"
        if r.count:
            where += f" + {r.stride} k"
            name = f"`{r.name}[{r.count}]`"
        out.append(f"| {where} | {name} | {r.width} | {r.access} | {r.reset:#x} | {r.doc} |")
        for f in r.fields:
            out.append(f"| | `{r.name}.{f.name}` | {_bits(f.lsb, f.width)} | {f.access} | | {f.doc} |")
    return out + [""]


def _registers(register_map):
    chip = register_map.chip
    return [
        "## Registers",
        "",
        "AXI4-Lite, 32-bit words, byte offsets. A register of 64 bits is two words, low word first. Access: rw; "
        "ro; rc (reading clears); sc "
        "(writing 1 starts, hardware clears); wt (writing 1 toggles).",
        "",
        *_register_rows(register_map.registers),
        "### A chip's page",
        "",
        f"The interface of a chip of several cores has {chip.address_bits} address bits. Core k has the registers above "
        f"from k << {chip.core_bits} on. Its own registers are behind {chip.page:#x}:",
        "",
        *_register_rows(chip.registers),
    ]


def manual(isa, register_map, configs, chapters):
    """configs: list of (name, parameters). chapters: texts in order: meaning, ports, and any others."""
    out = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        "<!-- Generated by isa/generate.py; do not edit. -->",
        "# The Tessera instruction set",
        "",
        f"Version {isa.version}. An instruction has {isa.bits // 8} bytes; bit n is bit n % 8 of byte n / 8. Every "
        f"bit belongs to a field or is reserved; "
        "a non-zero reserved bit is a fault.",
        "",
        "## Instructions",
        "",
        "| opcode | instruction | engine | |",
        "| --- | --- | --- | --- |",
    ]
    for i in isa.instructions:
        engine = "its field" if i.engine == "field" else i.engine
        out.append(f"| {i.opcode} | [`{i.name}`](#{i.name}) | {engine} | {i.doc} |")
    out += ["", "### Header", "", "The first 64 bits of every instruction.", ""] + _field_rows(isa.header) + [""]
    for i in isa.instructions:
        out += [f"### {i.name}", "", f"Opcode {i.opcode}. {i.doc}", ""] + _field_rows(i.fields, i.reserved) + [""]
    out += ["## Enumerations", "", "| name | values | |", "| --- | --- | --- |"]
    for e in isa.enums.values():
        out.append(f"| `{e.name}` | {', '.join(f'{v} {n}' for n, v in e.values.items())} | {e.doc} |")
    out += ["", SYNTAX] + _operands(isa)
    for text in chapters:
        out += [_demote(text)]
    out += _registers(register_map)
    keys = [k for k in configs[0][1] if k != "name"]
    out += [
        "## Configurations",
        "",
        "| parameter | " + " | ".join(name for name, _ in configs) + " |",
        "| --- |" + " --- |" * len(configs),
    ]
    out += [f"| `{k}` | " + " | ".join(str(c[k]) for _, c in configs) + " |" for k in keys]
    return "\n".join(out) + "\n"

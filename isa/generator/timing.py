# SPDX-License-Identifier: Apache-2.0
"""The machine's timing as checked Python objects, and its forms for other languages.

Enters: timing.toml as a dictionary, the Isa, the parameters of the configurations. Leaves: a Timing whose every
number is an integer or an expression over configuration parameters; from it timing.h, the localparams of the
SystemVerilog package, a chapter of the manual, and chapters whose numbers beside names are the table's. Expressions
are Python's syntax trees cut down to + - * / min max, evaluated once for every shipped configuration: what is
negative, not whole, or unknown is refused here for all languages.
"""

import ast
import re
from dataclasses import dataclass

from .cpp import pascal
from .model import SpecError, _only, _require

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
RTL = ("parameter", "structure")


@dataclass(frozen=True)
class Place:
    """Where registers of a pipeline may stand."""

    name: str
    registers: int
    least: int
    most: int
    doc: str


@dataclass(frozen=True)
class Pipeline:
    name: str
    doc: str
    places: tuple

    @property
    def depth(self):
        return sum(p.registers for p in self.places)


@dataclass(frozen=True)
class Entry:
    """A number of a unit: an int, or a tree of ints, parameters' names and (operator, left, right)."""

    unit: str
    name: str
    value: object
    source: str  # the expression as written; empty for an integer
    rtl: str  # parameter, structure, or derived
    units: str
    doc: str

    @property
    def constant(self):
        return isinstance(self.value, int)


@dataclass(frozen=True)
class Unit:
    name: str
    doc: str
    entries: tuple


@dataclass(frozen=True)
class Timing:
    pipelines: tuple
    units: tuple

    def number(self, name):
        """The value of unit.entry, pipeline.depth or pipeline.place; KeyError when there is none."""
        return _names(self.pipelines, [e for u in self.units for e in u.entries])[name]

    def of_configuration(self, name):
        """Whether that number differs between configurations."""
        return not isinstance(self.number(name), int)


def _names(pipelines, entries):
    names = {}
    for p in pipelines:
        names[f"{p.name}.depth"] = p.depth
        names.update({f"{p.name}.{place.name}": place.registers for place in p.places})
    names.update({f"{e.unit}.{e.name}": e.value for e in entries})
    return names


def _combine(operator, left, right, where):
    if not (isinstance(left, int) and isinstance(right, int)):
        return (operator, left, right)
    if operator == "/":
        _require(right != 0 and left % right == 0, f"{where}: {left} / {right} leaves a remainder")
        return left // right
    return {"+": left + right, "-": left - right, "*": left * right, "min": min(left, right), "max": max(left, right)}[
        operator
    ]


def _expression(text, names, where):
    """An expression as a tree in which everything constant has been computed."""

    def walk(node):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            _require(name in names, f"{where}: unknown name {name}")
            return names[name]
        if isinstance(node, ast.Name):
            _require(node.id in names, f"{where}: unknown name {node.id}")
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return _combine(OPERATORS[type(node.op)], walk(node.left), walk(node.right), where)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("min", "max")
            and len(node.args) == 2
            and not node.keywords
        ):
            return _combine(node.func.id, walk(node.args[0]), walk(node.args[1]), where)
        raise SpecError(
            f"{where}: '{ast.unparse(node)}' is not an expression of + - * / min max over integers and names"
        )

    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise SpecError(f"{where}: '{text}' is not an expression") from error
    return walk(tree.body)


def evaluate(value, config, where=""):
    """The number of a tree in a configuration, a mapping of parameters."""
    if isinstance(value, tuple):
        return _combine(value[0], evaluate(value[1], config, where), evaluate(value[2], config, where), where)
    return config[value] if isinstance(value, str) else value


def parameters_of(value):
    """The configuration parameters that a tree names, in order."""
    if isinstance(value, tuple):
        return list(dict.fromkeys(parameters_of(value[1]) + parameters_of(value[2])))
    return [value] if isinstance(value, str) else []


def _name(table, taken, where):
    _require(re.fullmatch("[a-z][a-z0-9_]*", table.get("name", "")), f"{where}: wants a name in snake_case")
    _require(table["name"] not in taken, f"{where}.{table['name']}: the name is taken")
    return table["name"]


def build_timing(spec, isa, configs):
    """configs: (name, parameters) of every shipped configuration. Raises SpecError."""
    _only(spec, ("pipeline", "unit"), "timing.toml")
    pipelines, entries, units = [], [], []
    for table in spec.get("pipeline", []):
        name = _name(table, [p.name for p in pipelines], "pipeline")
        _only(table, ("name", "doc", "places"), f"pipeline {name}")
        places = []
        for row in table["places"]:
            _only(row, ("name", "registers", "least", "most", "doc"), f"pipeline {name}")
            place = Place(
                _name(row, [p.name for p in places] + ["depth"], name),
                row["registers"],
                row.get("least", 1),
                row.get("most", 1),
                row["doc"],
            )
            where = f"{name}.{place.name}"
            _require(
                all(type(n) is int for n in (place.registers, place.least, place.most)),
                f"{where}: registers are integers",
            )
            _require(0 <= place.least <= place.most, f"{where}: least and most do not fit")
            _require(
                place.least <= place.registers <= place.most,
                f"{where}: {place.registers} registers, but the RTL builds {place.least} to {place.most}",
            )
            places.append(place)
        pipelines.append(Pipeline(name, table["doc"], tuple(places)))
    words = {"loops": isa.loops, "transfer_loops": isa.transfer_loops, "instruction_bytes": isa.bits // 8}
    words.update({key: key for key, value in configs[0][1].items() if type(value) is int})
    for table in spec.get("unit", []):
        name = _name(table, [u.name for u in units] + [p.name for p in pipelines], "unit")
        _only(table, ("name", "doc", "entries"), f"unit {name}")
        own = []
        for row in table["entries"]:
            _only(row, ("name", "value", "rtl", "unit", "doc"), f"unit {name}")
            entry = _name(row, [e.name for e in own], name)
            where = f"{name}.{entry}"
            source = row["value"] if isinstance(row["value"], str) else ""
            if source:
                _require("rtl" not in row, f"{where}: an expression follows from others and has no rtl")
                value = _expression(source, {**words, **_names(pipelines, entries)}, where)
            else:
                value = row["value"]
                _require(type(value) is int, f"{where}: the value is an integer or an expression")
                _require(row.get("rtl") in RTL, f"{where}: rtl is one of {', '.join(RTL)}")
            for config, parameters in configs:
                number = evaluate(value, parameters, f"{where} in {config}")
                _require(number >= 0, f"{where}: {number} in {config} is negative")
            own.append(Entry(name, entry, value, source, row.get("rtl", "derived"), row["unit"], row["doc"]))
            entries.append(own[-1])
        units.append(Unit(name, table["doc"], tuple(own)))
    return Timing(tuple(pipelines), tuple(units))


def _cpp_tree(value):
    if isinstance(value, tuple):
        operator, left, right = value[0], _cpp_tree(value[1]), _cpp_tree(value[2])
        return (
            f"std::{operator}<int64_t>({left}, {right})"
            if operator in ("min", "max")
            else f"({left} {operator} {right})"
        )
    return f"int64_t{{config.{value}}}" if isinstance(value, str) else str(value)


def _bare(text):
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def header(timing):
    """timing.h."""
    out = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Generated by isa/generate.py from isa/timing.toml; do not edit. The machine's timing: a namespace for "
        "each unit,",
        "// in it constants and functions of the configuration, and the registers of each pipeline. What they mean:",
        "// isa/timing.md.",
        "#pragma once",
        "",
        "#include <algorithm>",
        "#include <cstdint>",
        "",
        '#include "isa/config.h"',
        "",
        "namespace tessera::isa::timing {",
        "",
    ]
    for p in timing.pipelines:
        out += [f"/// {p.doc} Registers at each place, and in all.", f"namespace {p.name} {{"]
        out += [
            f"inline constexpr int k{pascal(place.name)} = {place.registers};  // {place.doc}" for place in p.places
        ]
        out += [f"inline constexpr int kDepth = {p.depth};", f"}}  // namespace {p.name}", ""]
    for u in timing.units:
        out += [f"/// {u.doc}", f"namespace {u.name} {{"]
        for e in u.entries:
            out.append(f"/// {e.doc}" + (f" {e.units[0].upper() + e.units[1:]}." if e.units != "cycles" else ""))
            if e.constant:
                out.append(
                    f"inline constexpr int k{pascal(e.name)} = {e.value};" + (f"  // {e.source}" if e.source else "")
                )
            else:
                out.append(
                    f"inline constexpr int64_t {e.name}(const MachineConfig& config) {{ "
                    f"return {_bare(_cpp_tree(e.value))}; }}"
                )
        out += [f"}}  // namespace {u.name}", ""]
    out.append("}  // namespace tessera::isa::timing")
    return "\n".join(out) + "\n"


def _sv_tree(value):
    if isinstance(value, tuple):
        operator, left, right = value[0], _sv_tree(value[1]), _sv_tree(value[2])
        compare = {"min": "<", "max": ">"}.get(operator)
        return f"({left} {compare} {right} ? {left} : {right})" if compare else f"({left} {operator} {right})"
    return str(value)


def localparams(timing):
    """The timing's part of the SystemVerilog package."""
    out = [
        "  // The machine's timing (isa/timing.toml). Of a pipeline: registers at each place, which places have any "
        "(bit k:",
        "  // place k), and registers in all.",
    ]
    for p in timing.pipelines:
        stem, bits = f"Timing{pascal(p.name)}", len(p.places)
        mask = sum(1 << k for k, place in enumerate(p.places) if place.registers > 0)
        out += [f"  localparam int unsigned {stem}{pascal(place.name)} = {place.registers};" for place in p.places]
        out.append(f"  localparam logic [{bits - 1}:0] {stem}Registers = {bits}'h{mask:x};")
        out.append(f"  localparam int unsigned {stem}Depth = {p.depth};")
    for u in timing.units:
        for e in u.entries:
            if e.constant:
                out.append(f"  localparam int unsigned Timing{pascal(u.name)}{pascal(e.name)} = {e.value};  // {e.doc}")
                continue
            name = f"timing_{u.name}_{e.name}"
            arguments = ", ".join(f"input int unsigned {key}" for key in parameters_of(e.value))
            out += [
                f"  // {e.doc}",
                f"  function automatic int unsigned {name}({arguments});",
                f"    {name} = {_bare(_sv_tree(e.value))};",
                "  endfunction",
            ]
    return "\n".join(out) + "\n"


def chapter(timing, configs):
    """The table of the manual; numbers that differ between configurations as they are in each."""
    out = [
        "# Numbers of the timing",
        "",
        "From `isa/timing.toml`. RTL: *parameter*, the hardware takes the number from there; *structure*, its "
        "registers "
        "stand so; else the "
        "expression that it follows from.",
        "",
    ]
    for p in timing.pipelines:
        out += [
            f"**`{p.name}`** {p.doc} Registers in all: {p.depth} (`{p.name}.depth`).",
            "",
            "| place | registers | the RTL builds | behind it |",
            "| --- | --- | --- | --- |",
        ]
        for place in p.places:
            built = f"{place.least}" if place.least == place.most else f"{place.least} to {place.most}"
            out.append(f"| `{p.name}.{place.name}` | {place.registers} | {built} | {place.doc} |")
        out.append("")
    out += ["| name | value | RTL | meaning |", "| --- | --- | --- | --- |"]
    for u in timing.units:
        for e in u.entries:
            if e.constant:
                value = f"{e.value} {e.units}"
            else:
                value = ", ".join(f"{name} {evaluate(e.value, config)}" for name, config in configs) + f" {e.units}"
            out.append(f"| `{e.unit}.{e.name}` | {value} | {f'`{e.source}`' if e.source else e.rtl} | {e.doc} |")
    return "\n".join(out) + "\n"


NUMBERED = re.compile(r"(\d+)(\s+)\(`([a-z0-9_]+\.[a-z0-9_]+)`\)")
NAMED = re.compile(r"`([a-z0-9_]+)\.([a-z0-9_]+)`")


def revise(text, timing, where):
    """A chapter in which every number in front of a name, 7 (`gemm.prepare`), is the table's. Raises SpecError."""
    groups = {u.name for u in timing.units} | {p.name for p in timing.pipelines}

    def known(name):
        try:
            return timing.number(name)
        except KeyError:
            raise SpecError(f"{where}: `{name}` is not in timing.toml") from None

    for match in NAMED.finditer(text):
        if match[1] in groups:
            known(f"{match[1]}.{match[2]}")

    def number(match):
        value = known(match[3])
        _require(isinstance(value, int), f"{where}: `{match[3]}` depends on the configuration and has no one number")
        return f"{value}{match[2]}(`{match[3]}`)"

    return NUMBERED.sub(number, text)


def check_names(isa, timing):
    """Latencies and work of instructions name numbers of the timing. Raises SpecError."""
    numbers = {f"{e.unit}.{e.name}": e for unit in timing.units for e in unit.entries}
    for i in isa.instructions:
        for latency in i.latency:
            _require(latency.cycles in numbers, f"{i.name}.latency: timing.toml has no {latency.cycles}")
        for name in (name for work in i.work for name in work.each if "." in name):
            _require(name in numbers, f"{i.name}.work: timing.toml has no {name}")

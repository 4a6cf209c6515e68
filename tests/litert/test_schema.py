# SPDX-License-Identifier: Apache-2.0
"""The numbers of compiler/litert/schema.h beside the schema that ai-edge-litert ships as Python classes."""

import inspect
import pathlib
import re

import pytest

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install -r requirements-litert.txt")

from ai_edge_litert import schema_py_generated as schema

TEXT = (pathlib.Path(__file__).resolve().parent.parent.parent / "compiler" / "litert" / "schema.h").read_text()
STRUCT = re.compile(r"^struct (\w+) \{\n((?:  static constexpr Field<.*\n)+)\};", re.M)
FIELD = re.compile(r"Field<(.*)> (\w+)\{(\d+)(?:, ([^}]*))?\};")
WIDTHS = {"bool": "Bool", "int8_t": "Int8", "uint8_t": "Uint8", "uint16_t": "Uint16", "int32_t": "Int32",
          "uint32_t": "Uint32", "int64_t": "Int64", "uint64_t": "Uint64", "float": "Float32"}  # fmt: skip


def plain(name):
    return name.replace("_", "").lower()


def test_fields():
    count = 0
    for struct, body in STRUCT.findall(TEXT):
        table = getattr(schema, struct.removesuffix("Table") if struct.endswith("Table") else struct)
        methods = {plain(name): method for name, method in vars(table).items() if inspect.isfunction(method)}
        for kind, name, number, default in FIELD.findall(body):
            source = inspect.getsource(methods[plain(name)])
            assert f"Offset({4 + 2 * int(number)})" in source, f"{struct}::{name}"
            inner = re.sub(r"Vector<(.*)>", r"\1", kind)
            if inner in WIDTHS:
                assert f"number_types.{WIDTHS[inner]}Flags" in source, f"{struct}::{name}"
            if inner == kind and kind in WIDTHS:
                absent = source.rstrip().rsplit("return ", 1)[1]
                given = {"true": "1", "false": "0", "": "0"}.get(default, default.rstrip("F"))
                assert float({"True": "1", "False": "0"}.get(absent, absent)) == float(given), f"{struct}::{name}"
            count += 1
    assert count > 300


@pytest.mark.parametrize(
    "ours,theirs",
    [
        ("TensorType", "TensorType"),
        ("BuiltinOperator", "BuiltinOperator"),
        ("Padding", "Padding"),
        ("Activation", "ActivationFunctionType"),
        ("MirrorPadMode", "MirrorPadMode"),
    ],
)
def test_enumerations(ours, theirs):
    body = re.search(rf"enum class {ours} : \w+ \{{(.*?)\}};", TEXT, re.S)[1]
    found = {plain(name): int(number) for name, number in re.findall(r"k(\w+) = (-?\d+)", body)}
    wanted = {plain(n): v for n, v in vars(getattr(schema, theirs)).items() if isinstance(v, int)}
    assert found == wanted


def test_names_of_operators():
    body = re.search(r"kBuiltinNames = \{(.*?)\};", TEXT, re.S)[1]
    names = re.findall(r'"(\w*)"', body)
    assert {n: i for i, n in enumerate(names) if n} == {
        n: v for n, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)
    }

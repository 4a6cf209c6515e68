# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.litert.table [--files N]`: measures N random files of each operator and type, and writes
docs/litert_operators.md. Exit status 1 when a class does not hold."""

import argparse
import pathlib
import re
import sys

from tests.litert import builder, cases, classes, compare, oracle, worker

PATH = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "litert_operators.md"
LABELS = {"reference": "reference", "optimised": "optimised", "default": "XNNPACK"}
HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# Operators of LiteRT

`python -m tests.litert.table` writes this table. It draws random files of one operator each, runs them by LiteRT's
interpreter (ai-edge-litert 2.3.0) and by Tessera's, and compares every element. Files are drawn over types, ranks 0 to
6, broadcasting, negative axes and all options.

- **Class.** *exact*: equal in every bit to what an `Interpreter` computes that is asked for nothing. *tolerance*: real
  arithmetic, within 2e-5 of the largest magnitude, because sums have another order or functions come from another
  library. *step*: integers, of which single ones may lie one step beside; *steps*: of 16 bits, up to 12 of 32,768.
  *chance*: random numbers, whose type and shape are compared. *refused*: one line says so. *hybrid* are real operands
  by integer weights: the kernels quantise the operand when it comes.
- **Kernels.** LiteRT has up to three kernels for an operator: the reference (`BUILTIN_REF`), an optimised one, and
  XNNPACK's, which an `Interpreter` takes where it can. The column names those that the results were equal to in all
  files. An exact class without XNNPACK means that XNNPACK has no kernel or was not equal to the others.

Quantised operators are exact by the kernel's own integer formula, or by a table of all values that is filled with it.
Which of them the NPU runs, and by which proof, is in [numerics.md](numerics.md).

"""


def types_of(name, most=140):
    """How the cases of an operator name their types, in the order in which they have their turn."""
    found = {}
    for index in range(most):
        try:
            types = cases.draw_case(name, index).types
        except oracle.Refused:
            continue
        if types in found and index - found[types] > 12:
            break
        found.setdefault(types, index)
    return list(found)


def measure(name, files):
    """types -> [number of files, kernels that were equal in all, what breaks the class]"""
    rows, wanted = {}, len(types_of(name)) * files
    for index in range(wanted):
        try:
            case = cases.draw_case(name, index)
        except oracle.Refused:
            continue
        row = rows.setdefault(case.types, [0, set(LABELS), ""])
        kind = classes.class_of(name, case.types)
        row[0] += 1
        row[2] = row[2] or compare.compare(case, kind)
        if kind in ("refused", "chance"):
            row[1] = set()
            continue
        try:
            got = compare.run(case.data, case.feeds)
        except compare.tessera.Error:
            continue
        row[1] &= {k for k, run in case.runs.items() if oracle.equal(got, run.outputs)}
    return rows


def shorten(types):
    """Pairs of types as two lists where they are many."""
    pairs = [t.split(" to ") for t in types if " to " in t]
    if len(pairs) > 12:
        both = [sorted({pair[i] for pair in pairs}) for i in (0, 1)]
        return f"{', '.join(both[0])} to {', '.join(both[1])}"
    return ", ".join(t for t in types if t) or "float32"


def lines(name, rows):
    groups = {}
    for types, (count, kernels, _) in rows.items():
        kind = classes.class_of(name, types)
        shown = ", ".join(LABELS[k] for k in LABELS if k in kernels) if kind == "exact" else ""
        group = groups.setdefault((kind, shown), [[], 0])
        group[0].append(types)
        group[1] += count
    for (kind, shown), (types, count) in groups.items():
        yield f"| {name} | {shorten(types)} | {kind} | {shown} | {count} |"


def rows_of(text):
    """(operator, class) of a table's rows."""
    return [tuple(m) for m in re.findall(r"^\| (\w+) \| [^|]* \| (\w+) \|", text, re.M) if m[0] != "operator"]


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.litert.table")
    parser.add_argument("--files", type=int, default=20, help="of each operator and type")
    options = parser.parse_args()
    table, broken, total = [], [], 0
    for name in worker.NAMES:
        rows = measure(name, options.files)
        total += sum(row[0] for row in rows.values())
        table += lines(name, rows)
        broken += [f"{name} {types}: {text}" for types, (_, _, text) in rows.items() if text]
    custom = sum(name not in builder.CODES for name in worker.NAMES)
    count = f"{len(worker.NAMES) - custom} builtin operators and {custom} custom one, {total} files.\n\n"
    head = "| operator | types | class | equal to | files |\n| --- | --- | --- | --- | --- |\n"
    PATH.write_text(HEAD + count + head + "\n".join(table) + "\n")
    print("\n".join(broken) or f"{total} files, every class holds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Checks the table of rooms: which room may include which. Reads every #include "room/..." of the C++ sources and every
import of the generated ISA module, and prints each line that breaks the table. Exit status 1 if there is any."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# room -> rooms it may include besides itself
TABLE = {
    "base": set(),
    "isa": {"base"},
    "ops": {"base"},
    "hw": {"isa"},
    "sim": {"base", "isa"},
    "compiler": {"base", "isa", "ops"},
    "driver": {"base", "isa", "sim"},
    "runtime": {"base", "isa", "ops", "driver"},
    "tessera": {"base", "isa", "ops", "compiler", "driver", "runtime"},
    "bench": None,
    "tests": None,
}
# The compiler's own rooms, from below: plain C++ first, then what needs MLIR.
COMPILER = {
    "text": set(),
    "schedule": {"text"},
    "emit": set(),
    "tile": {"emit"},
    "npu": {"schedule", "emit", "text"},
    "graph": {"npu", "schedule", "text"},
    "nn": set(),
    "onnx_schema": set(),
    "litert": {"onnx_schema"},
    "onnx": {"nn", "onnx_schema", "litert"},
    "cpu": {"nn"},
    "partition": {"nn", "cpu", "graph", "npu", "schedule", "text"},
    "pipeline": {"nn", "onnx", "litert", "cpu", "partition", "graph", "npu", "schedule", "text"},
    "tools": {"nn", "onnx", "partition", "pipeline", "graph", "npu", "schedule", "text"},
}
# The generator's rooms, from below; its own folder and its tests use all of them.
NPU = {
    "graph": set(),
    "tasks": {"graph"},
    "values": {"graph"},
    "lowering": {"graph", "tasks", "values"},
    "assembly": {"graph", "values", "lowering"},
    "input": {"graph", "tasks", "lowering"},
    "planning": {"graph", "tasks", "lowering", "assembly", "input"},
    "cores": {"graph", "lowering", "assembly", "input", "planning"},
}
# Tests inside a room may use the machine to check what the room makes.
TEST_EXTRA = {"compiler": {"sim", "driver", "runtime"}}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/(?:([a-z_]+)/(?:([a-z_]+)/)?)?')


def wrong(path, included, inner, innermost=None):
    """What is wrong with an include of room `included` (and its inner room `inner`, and that one's room `innermost`) in
    a file; None if nothing is."""
    room = path.parts[0]
    is_test = path.stem.endswith("_test") or "tests" in path.parts
    if included not in TABLE:
        return None
    if included == room:
        own = path.parts[1]
        if room != "compiler":
            return None
        if inner == own:
            return wrong_within(path, innermost) if own == "npu" and not is_test else None
        if own not in COMPILER:
            return f"the compiler's room '{own}' is not in the table of tests/layering.py"
        if inner not in COMPILER[own]:
            return f"the compiler's room '{own}' may not include its room '{inner}'"
        return None
    if included not in TABLE[room] | (TEST_EXTRA.get(room, set()) if is_test else set()):
        return f"room '{room}' may not include room '{included}'"
    if room == "driver" and included == "sim" and path.name in {"device.h", "registry.h"}:
        return "only a backend's own file may include 'sim'"
    return None


def wrong_within(path, innermost):
    """The same for an include of the generator's room `innermost` in one of the generator's files."""
    own = path.parts[2]
    if own not in NPU or innermost in NPU[own] | {own}:
        return None
    return f"the generator's room '{own}' may not include its room '{innermost}'"


def violations():
    found = []
    for room, allowed in TABLE.items():
        if allowed is None:
            continue
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix not in {".cc", ".h"}:
                continue
            relative = path.relative_to(ROOT)
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                message = wrong(relative, *match.groups()) if match else None
                if message:
                    found.append(f"{relative}:{number}: {message}")
    return found


if __name__ == "__main__":
    lines = violations()
    print("\n".join(lines) if lines else "layering: every include follows the tables of rooms")
    sys.exit(1 if lines else 0)

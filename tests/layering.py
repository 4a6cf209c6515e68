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
# Tests inside a room may use the machine to check what the room makes.
TEST_EXTRA = {"compiler": {"sim", "driver", "runtime"}}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/')


def violations():
    found = []
    for room, allowed in TABLE.items():
        if allowed is None:
            continue
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix not in {".cc", ".h"}:
                continue
            extra = TEST_EXTRA.get(room, set()) if path.stem.endswith("_test") or "tests" in path.parts else set()
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match or match[1] == room or match[1] not in TABLE:
                    continue
                relative = path.relative_to(ROOT)
                if match[1] not in allowed | extra:
                    found.append(f"{relative}:{number}: room '{room}' may not include room '{match[1]}'")
                elif room == "driver" and match[1] == "sim" and path.name in {"device.h", "registry.h"}:
                    found.append(f"{relative}:{number}: only a backend's own file may include 'sim'")
    return found


if __name__ == "__main__":
    lines = violations()
    print("\n".join(lines) if lines else "layering: every include follows the table of rooms")
    sys.exit(1 if lines else 0)

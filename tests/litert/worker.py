# SPDX-License-Identifier: Apache-2.0
"""Random files `first` to `first + count`, compared in a process of its own, since LiteRT aborts on some.

    python -m tests.litert.worker FIRST COUNT

Even numbers are files of one operator, all operators in turn; odd ones are graphs. Prints a line of JSON for each:
number, name, and what differs ("" for nothing). Every fourth file also runs on the functional simulator."""

import json
import os
import sys

os.environ.setdefault("TESSERA_CACHE", "off")

from tests.litert import cases, classes, compare, graphs, oracle, product_cases  # noqa: E402, F401

NAMES = sorted(cases.CASES)
# Real arithmetic of a whole graph: errors of operators add up, and what follows a quantisation is one step of it.
GRAPH_TOLERANCE = 1e-4


def draw(number):
    """(case, class, tolerance)"""
    if number % 2:
        case, kind = graphs.draw_graph(number)
        return case, kind, GRAPH_TOLERANCE
    index, place = divmod(number // 2, len(NAMES))
    name = NAMES[place]
    case = cases.draw_case(name, index)
    return case, classes.class_of(name, case.name[len(name) + 1 :]), compare.TOLERANCE


def devices(number):
    yield "reference", {}
    if number % 4 < 2:
        yield "fsim", {"check_races": True, "poison": number + 1}


def check(number):
    """(name, what differs)"""
    try:
        case, kind, tolerance = draw(number)
    except oracle.Refused as error:
        return "", f"LiteRT takes no drawing: {error}"
    for device, options in devices(number):
        text = compare.compare(case, kind, device, tolerance, **options)
        if text:
            return case.name, f"{device}: {text}"
    return case.name, ""


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, first + count):
        print(json.dumps([number, *check(number)]), flush=True)


if __name__ == "__main__":
    main()

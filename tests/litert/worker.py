# SPDX-License-Identifier: Apache-2.0
"""Random files, compared or damaged in a process of its own, which a crash ends alone.

    python -m tests.litert.worker compare FIRST COUNT
    python -m tests.litert.worker damage FIRST COUNT

compare: even numbers are files of one operator, all operators in turn; odd ones are graphs. Half of each also runs on
the functional simulator, and a quarter with the reference kernels. damage: the same files with some bytes changed are
opened and run; each must end in results or in one line. Prints a line of JSON for each: number, name, and what is wrong
("" for nothing)."""

import json
import os
import subprocess
import sys

import numpy as np

os.environ.setdefault("TESSERA_CACHE", "off")

import tessera
from tests.litert import cases, classes, compare, graphs, movement_cases, oracle, product_cases  # noqa: F401

NAMES = sorted(cases.CASES)
# Errors of real operators add up in a graph.
GRAPH_TOLERANCE = 1e-4


def draw(number):
    """(case, class, tolerance). Errors: oracle.Refused."""
    if number % 2:
        case, kind = graphs.draw_graph(number)
        return case, kind, GRAPH_TOLERANCE
    index, place = divmod(number // 2, len(NAMES))
    name = NAMES[place]
    case = cases.draw_case(name, index)
    return case, classes.class_of(name, case.types), compare.TOLERANCE


def settings(number, case, kind):
    """(kernels to compare with, device, options): the default's for each, the reference kernels' and the functional
    simulator's for some."""
    yield None, "reference", {}
    if number % 4 < 2:
        yield None, "fsim", {"check_races": True, "poison": number + 1}
    own = (case.name.split()[0], case.types) not in classes.DEFAULT_ONLY
    if number % 4 == 0 and kind == "exact" and own and "reference" in case.runs:
        yield "reference", "reference", {"litert_kernels": "reference"}


def compared(number):
    """(name, what differs)"""
    try:
        case, kind, tolerance = draw(number)
    except oracle.Refused:
        return "", ""  # LiteRT has none of the drawn forms
    for kernels, device, options in settings(number, case, kind):
        text = compare.compare(case, kind, device, tolerance, kernels, **options)
        if text:
            return case.name, f"{device} {options}: {text}"
    return case.name, ""


def damage(data, rng):
    """The file with some words overwritten by numbers near them, at the ends of ranges, or from elsewhere."""
    words = np.frombuffer(data[: len(data) // 4 * 4], np.int32).copy()
    for at in rng.integers(0, len(words), rng.integers(1, 4)):
        ends = (0, 1, -1, 255, 65536, 2**31 - 1, -(2**31), int(words[at]) // 2, int(words[rng.integers(len(words))]))
        words[at] = rng.choice(ends) if rng.random() < 0.7 else int(words[at]) ^ (1 << int(rng.integers(31)))
    return words.tobytes()[: len(data) if rng.random() < 0.9 else int(rng.integers(len(data)))]


def damaged(number):
    """(name, what is wrong)"""
    try:
        case, _, _ = draw(number)
    except oracle.Refused:
        return "", ""
    data = damage(case.data, np.random.default_rng([number, 5]))
    try:
        compare.run(data, case.feeds)
    except tessera.Error as error:
        text = str(error)
        return case.name, "" if text and "\n" not in text and len(text) < 1000 else f"no clear line: {text!r}"
    except (ValueError, TypeError):  # other inputs than the feeds
        pass
    return case.name, ""


def findings(mode, first, count, timeout=600):
    """(number, name, text) of what is wrong, and how many files were drawn. A process that dies is one, too."""
    found, done, at = [], 0, first
    env = dict(os.environ, TESSERA_MEMORY_LIMIT="256M") if mode == "damage" else dict(os.environ)
    while at < first + count:
        words = [sys.executable, "-m", "tests.litert.worker", mode, str(at), str(first + count - at)]
        run = subprocess.run(
            words, capture_output=True, text=True, errors="replace", env=env, timeout=timeout, check=False
        )
        lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
        found += [tuple(line) for line in lines if line[2]]
        done += sum(1 for line in lines if line[1])
        at += len(lines)
        if run.returncode != 0:
            found.append((at, "", f"the process ended with {run.returncode}: {run.stderr[-300:]}"))
            at += 1
    return found, done


def main():
    check = {"compare": compared, "damage": damaged}[sys.argv[1]]
    first, count = int(sys.argv[2]), int(sys.argv[3])
    for number in range(first, first + count):
        print(json.dumps([number, *check(number)]), flush=True)


if __name__ == "__main__":
    main()

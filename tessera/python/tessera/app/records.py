# SPDX-License-Identifier: Apache-2.0
"""What the sessions of a program did. Each process appends lines of JSON to a file of its own in one folder, so that
nothing is lost when it is killed; the lines of a session are added up. Leaves: the table of `tessera app`."""

import json
import os
import pathlib
import time
import uuid

EACH = 100  # runs of a session that are written one by one; then several together, after INTERVAL
INTERVAL = 0.2  # seconds
UNNAMED = "(model in memory)"
SUMS = ("runs", "fallback_runs", "cycles", "timed_runs", "seconds", "cpu_seconds", "compared", "equal", "first_seconds")


def wider(differences):
    """One of several (largest difference, least and largest expected value)."""
    most, low, high = zip(*differences)
    return max(most), min(low), max(high)


def share_of(difference):
    """The largest difference as a share of the range of what was expected; of its size where that is one value."""
    most, low, high = difference
    return most / max(high - low or abs(high), 1e-30) if most else 0.0


class Row:
    """The sums of one model: additive, but for what is the same in each run."""

    def __init__(self):
        self.sums = dict.fromkeys(SUMS, 0)
        self.facts, self.difference, self.sessions = {}, {}, set()

    def add(self, line):
        for name in SUMS:
            self.sums[name] += line.get(name, 0)
        for output, found in line.get("difference", {}).items():
            self.difference[output] = wider([found, self.difference.get(output, found)])
        known = self.facts.get("name", UNNAMED)  # a file's name says more
        self.facts.update({name: line[name] for name in ("macs", "macs_cpu", "how", "measured") if name in line})
        self.facts["name"] = line["name"] if known == UNNAMED else known
        self.sessions.add(line["session"])


class Journal:
    """The lines of this process. folder: where to, or "" to keep them in memory."""

    def __init__(self, folder):
        self.kept, self.accounts = [], []
        self.path = pathlib.Path(folder) / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl" if folder else None

    def write(self, line):
        if self.path is None:
            self.kept.append(line)
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            pass  # the folder is gone with the `tessera app` that had made it

    def report(self, text):
        """Keeps the report of a session's first run for the page."""
        if self.path is not None:
            self.path.with_name(f"{uuid.uuid4().hex}.report.json").write_text(text, encoding="utf-8")


class Account:
    """Adds up the runs of one session and writes them now and then."""

    def __init__(self, journal, session, model, name):
        self.journal, self.head = journal, {"session": session, "model": model, "name": name}
        self.line, self.count, self.last = {}, 0, 0.0
        journal.accounts.append(self)

    def add(self, sums, facts=None, difference=None):
        for name, value in sums.items():
            self.line[name] = self.line.get(name, 0) + value
        self.line.update(facts or {})
        for output, values in (difference or {}).items():
            held = self.line.setdefault("difference", {})
            held[output] = wider([values, held.get(output, values)])
        self.count += 1
        if self.count <= EACH or time.monotonic() - self.last > INTERVAL:
            self.flush()

    def flush(self):
        if self.line:
            self.journal.write({**self.head, **self.line})
            self.line, self.last = {}, time.monotonic()


def lines_of(folder):
    for path in sorted(pathlib.Path(folder).glob("*.jsonl"), key=lambda p: p.stat().st_mtime_ns):
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(text)
            except json.JSONDecodeError:
                continue  # the last line of a process that was killed


def rows_of(lines):
    """{model: Row} in the order in which they came."""
    rows = {}
    for line in lines:
        rows.setdefault(line["model"], Row()).add(line)
    return rows


def summaries(lines):
    """The rows as dicts for JSON. key: the beginning of the hash that the folders of --capture and --quantize are named
    by; npu_percent and cycles are None where there are none."""
    out = []
    for model, row in rows_of(lines).items():
        sums, facts = row.sums, row.facts
        products = facts.get("macs", 0) + facts.get("macs_cpu", 0)
        out.append(
            {
                "model": facts["name"],
                "key": model[:12],
                "sessions": len(row.sessions),
                "runs": sums["runs"],
                "fallback_runs": sums["fallback_runs"],
                "how": facts.get("how", ""),
                "npu_percent": round(100 * facts["macs"] / products, 2) if products else None,
                "cycles": round(sums["cycles"] / sums["timed_runs"]) if sums["cycles"] else None,
                "cycles_measured": bool(facts.get("measured")),
                "cpu_seconds": round(sums["cpu_seconds"], 6),
                "seconds": round(sums["seconds"], 6),
                "first_seconds": round(sums["first_seconds"], 6),
                "compared": sums["compared"],
                "equal": sums["equal"],
                "difference": {
                    output: {"largest": found[0], "share_of_range": share_of(found)}
                    for output, found in row.difference.items()
                },
            }
        )
    return out


def _number(value):
    return f"{value:.3g}" if value else "0"


def table(lines, compare=False):
    """The table, or a sentence where there is nothing to show."""
    rows = rows_of(lines)
    if not rows:
        return "no session of ONNX Runtime was made"
    titles = ["model", "sessions", "runs", "of these on ONNX Runtime", "runs as", "products on the NPU", "cycles a run"]
    titles += ["CPU part [s]", "first runs [s]"] + (
        ["largest difference", "of the range", "at output"] if compare else []
    )
    shown = []
    for row in rows.values():
        sums, facts = row.sums, row.facts
        products = facts.get("macs", 0) + facts.get("macs_cpu", 0)
        cycles = round(sums["cycles"] / sums["timed_runs"]) if sums["timed_runs"] else None
        shown.append(
            [
                facts["name"],
                str(len(row.sessions)),
                str(sums["runs"]),
                str(sums["fallback_runs"]),
                facts.get("how", "-"),
                "-" if "macs" not in facts else f"{100 * facts['macs'] / products:.1f} %" if products else "none there",
                "-" if not cycles else f"{cycles:,}" + ("" if facts.get("measured") else " predicted"),
                f"{sums['cpu_seconds']:.3f}",
                f"{sums['first_seconds']:.2f}",
            ]
        )
        if compare:
            output, found = max(row.difference.items(), key=lambda d: share_of(d[1]), default=("-", (0, 0, 0)))
            none = "-" if not sums["compared"] else "0"
            share = f"{100 * share_of(found):.2g} %" if found[0] else none
            shown[-1] += [_number(found[0]) if found[0] else none, share, output]
    widths = [max(len(line[k]) for line in [titles, *shown]) for k in range(len(titles))]
    left = (0, 4, 11)
    align = lambda cell, k: cell.ljust(widths[k]) if k in left else cell.rjust(widths[k])
    return "\n".join("  ".join(align(cell, k) for k, cell in enumerate(line)).rstrip() for line in [titles, *shown])

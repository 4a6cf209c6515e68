# SPDX-License-Identifier: Apache-2.0
"""Pictures of the pipelines, drawn from the timing data.

Enters: a Timing. Leaves: SVG texts by name, one for each unit: rows of boxes on an axis of cycles, as wide as the
cycles they take. A box of a pipeline shows where data stand in that cycle: behind the registers of the place it
names. What has no fixed length, DRAM's latency and work of an instruction's own size, is a box with torn edges.
timing.md shows them.
"""

from dataclasses import dataclass
from xml.sax.saxutils import escape

CELL, ROW, LEFT, TOP, TORN = 34, 74, 190, 58, 96  # pixels: a cycle, a row, the labels' column, the axis, a torn box
COLOURS = {
    "wait": "#e3e6ea",
    "front": "#cfe3f6",
    "memory": "#d8efd3",
    "lanes": "#fde3c0",
    "table": "#f3d9ec",
    "write": "#f6cfcf",
    "bus": "#dcd6f2",
}


@dataclass(frozen=True)
class Box:
    """Work of so many cycles; None: of no fixed number."""

    name: str
    cycles: int | None
    colour: str


@dataclass(frozen=True)
class Row:
    name: str
    note: str
    boxes: tuple


def _places(pipeline, colour, names=None):
    """A box for each place of a pipeline that has registers."""
    return tuple(
        Box(p.name.replace("_", " "), p.registers, colour)
        for p in pipeline.places
        if p.registers and (names is None or p.name in names)
    )


def _rows(timing):
    """Name and heading of each picture, and its rows."""
    n = timing.number
    line = {p.name: p for p in timing.pipelines}

    def prepare(unit):
        return Box("ranges are checked", n(f"{unit}.prepare"), "front")

    step = Box("step", 1, "memory")
    vector, lanes = line["alu_vector"], _places(line["requantise"], "lanes")
    read, write = _places(vector, "memory", ("read", "source", "reduce")), _places(vector, "write", ("write",))
    table, second = _places(line["table"], "table"), _places(line["second_op"], "lanes")
    latency, bursts = (
        Box("latency of DRAM", None, "bus"),
        Box("arbiter, bus", n("transfer.offer") + n("bus.address"), "bus"),
    )
    walk = (prepare("transfer"), Box("step", n("transfer.step"), "front"), Box("join", n("transfer.join"), "front"))
    return {
        "gemm": (
            "GEMM, in cycles",
            (
                Row(
                    "an instruction",
                    "from its queue to its first step",
                    (
                        prepare("gemm"),
                        Box("start", n("gemm.start") - n("gemm.prepare"), "wait"),
                        Box("steps, one a cycle", None, "memory"),
                    ),
                ),
                Row(
                    "a step",
                    f"ACC is read {n('gemm.read')} and written {n('gemm.write')} cycles behind it",
                    (
                        step,
                        *_places(line["gemm_tile"], "lanes", ("inp", "operands", "load", "multiply", "pair", "tree")),
                        *(
                            Box("write sum", box.cycles, "write")
                            for box in _places(line["gemm_tile"], "write", ("sum",))
                        ),
                    ),
                ),
            ),
        ),
        "alu": (
            "ALU, in cycles",
            (
                Row(
                    "an instruction",
                    "from its queue to its first issue",
                    (
                        prepare("alu"),
                        Box("start", n("alu.start") - n("alu.prepare"), "wait"),
                        Box("issues, one a cycle", None, "memory"),
                    ),
                ),
                Row(
                    "int32 to ACC",
                    f"written {n('alu.raw')} cycles behind the last read",
                    (Box("issue", 1, "memory"), *read, *write),
                ),
                Row(
                    "one operand",
                    f"written {n('alu.first')} cycles behind the last read",
                    (Box("issue", 1, "memory"), *read, *lanes, *table, *write),
                ),
                Row(
                    "two operands",
                    f"written {n('alu.second')} cycles behind the last read",
                    (Box("issue", 1, "memory"), *read, *lanes, *table, *second, *write),
                ),
            ),
        ),
        "load": (
            "LOAD, in cycles",
            (
                Row(
                    "a run of beats",
                    f"first beat {n('load.alone')} cycles and DRAM's latency behind the take",
                    (
                        *walk,
                        bursts,
                        latency,
                        Box("seen", n("bus.seen"), "bus"),
                        Box("groups, one a cycle", None, "write"),
                        Box("complete", n("load.complete"), "wait"),
                    ),
                ),
                Row(
                    "a run of padding",
                    "needs no beats",
                    (
                        *walk,
                        Box("queue", n("load.item"), "wait"),
                        Box("take", n("load.start") - n("load.item"), "wait"),
                        Box("groups, one a cycle", None, "write"),
                        Box("complete", n("load.complete"), "wait"),
                    ),
                ),
            ),
        ),
        "store": (
            "STORE, in cycles",
            (
                Row(
                    "a run",
                    f"first beat {n('transfer.leave') + n('store.first_beat')} cycles behind the take",
                    (
                        *walk,
                        Box("offer", n("transfer.offer"), "bus"),
                        Box("read, queue", n("store.realign"), "memory"),
                        Box("to the bus", n("bus.write"), "bus"),
                        Box("beats, one a cycle", None, "write"),
                        latency,
                        Box("complete", n("store.complete"), "wait"),
                    ),
                ),
            ),
        ),
        "fetch": (
            "FETCH, in cycles",
            (
                Row(
                    "an instruction's word",
                    f"at its queue's head {n('fetch.dispatch')} cycles behind its last beat",
                    (
                        Box("arbiter, bus", 1 + n("bus.address"), "bus"),
                        latency,
                        Box("beats", None, "bus"),
                        Box("seen", n("bus.seen"), "bus"),
                        Box("assemble", n("fetch.assemble"), "front"),
                        Box("check", n("fetch.check"), "front"),
                        Box("queue", n("queue.visible"), "wait"),
                    ),
                ),
            ),
        ),
    }


def _width(box):
    return TORN if box.cycles is None else CELL * box.cycles


def _box(box, x, y):
    width, height = _width(box), ROW - 22
    out = []
    if box.cycles is None:
        edge = [" ".join(f"l{sign * 4 * (-1) ** k},{sign * height / 4:g}" for k in range(4)) for sign in (1, -1)]
        out.append(
            f'<path d="M{x},{y} h{width} {edge[0]} h{-width} {edge[1]} z" fill="{COLOURS[box.colour]}" stroke="#555"/>'
        )
    else:
        out.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{COLOURS[box.colour]}" stroke="#555"/>'
        )
    middle = x + width / 2
    lines = _lines(box.name, width)
    if lines is None:  # upright
        words = _lines(box.name, height, 5.6) or [box.name]
        for k, line in enumerate(words):
            at = middle + 4 + 11 * (k - (len(words) - 1) / 2)
            out.append(
                f'<text transform="translate({at:g},{y + height / 2:g}) rotate(-90)" text-anchor="middle" font-size="9">'
                f"{escape(line)}</text>"
            )
    else:
        for k, line in enumerate(lines):
            at = y + height / 2 + 4 + 13 * (k - (len(lines) - 1) / 2)
            out.append(f'<text x="{middle:g}" y="{at:g}" text-anchor="middle" font-size="11">{escape(line)}</text>')
    return out


def _lines(text, width, letter=6.2):
    """The words in lines of that many pixels, at so many a letter; None where one does not fit."""
    room, lines = width / letter, []
    for word in text.split():
        if len(word) > room:
            return None
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines if len(lines) <= 3 else None


def _svg(heading, rows):
    width = LEFT + max(sum(map(_width, row.boxes)) for row in rows) + 20
    height = TOP + ROW * len(rows) + 6
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" fill="#222">',
        "<!-- SPDX-License-Identifier: Apache-2.0. Generated by isa/generate.py from isa/timing.toml; do not edit. -->",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="24" font-size="15" font-weight="bold">{escape(heading)}</text>',
    ]
    for k, row in enumerate(rows):
        x, y, cycle = LEFT, TOP + ROW * k, 0
        out.append(f'<text x="12" y="{y + 18}" font-size="12" font-weight="bold">{escape(row.name)}</text>')
        for n, line in enumerate(_lines(row.note, LEFT - 24) or [row.note]):
            out.append(f'<text x="12" y="{y + 32 + 12 * n}" font-size="9" fill="#666">{escape(line)}</text>')
        for box in row.boxes:
            if cycle is not None:  # cycles are numbered up to the first torn box
                out += [
                    f'<text x="{x + CELL * c + CELL / 2:g}" y="{y - 4}" text-anchor="middle" font-size="9" fill="#888">'
                    f"{cycle + c}</text>"
                    for c in range(box.cycles or 1)
                ]
                cycle = None if box.cycles is None else cycle + box.cycles
            out += _box(box, x, y)
            x += _width(box)
    return "\n".join([*out, "</svg>"]) + "\n"


def pictures(timing):
    """Name -> SVG text."""
    return {f"pipeline_{name}.svg": _svg(heading, rows) for name, (heading, rows) in _rows(timing).items()}

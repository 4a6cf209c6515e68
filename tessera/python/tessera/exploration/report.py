# SPDX-License-Identifier: Apache-2.0
"""What an exploration found, for people and for programs: a table of the front, reasons in words, JSON. Enters: an
Explorer, its points and front, what a device confirmed. Leaves: text and a dict (docs/explore.md has the schema)."""

from . import area, energy

SCHEMA = "tessera.explore/1"
SHOWN = {
    "milliseconds": ("ms", "{:.3f}"),
    "cycles": ("cycles", "{:,.0f}"),
    "lut": ("LUT", "{:,.0f}"),
    "ff": ("FF", "{:,.0f}"),
    "dsp": ("DSP", "{:,.0f}"),
    "bram36": ("RAMB36", "{:g}"),
    "bytes": ("DRAM bytes", "{:,.0f}"),
    "microjoules": ("uJ", "{:,.1f}"),
}


def short(value):
    """8192 as 8k."""
    return f"{value // 1024}k" if isinstance(value, int) and value >= 4096 and value % 1024 == 0 else f"{value:g}"


def described(point, axes):
    return ", ".join(f"{key} {short(point.values[key])}" for key in axes)


def choices(space):
    """The axes that have a choice."""
    return [key for key, values in space.axes.items() if len(values) > 1]


def rows(explorer, front, confirmed=None):
    """[{column: text}] of the front."""
    keys = ["milliseconds", "cycles", "lut", "dsp", "bram36", "microjoules"]
    keys += [key for key in explorer.space.objectives if key not in keys]
    found = []
    for at, point in enumerate(front):
        row = {"#": str(at + 1), **{key: short(point.values[key]) for key in choices(explorer.space)}}
        row |= {SHOWN[key][0]: SHOWN[key][1].format(point.figures[key]) for key in keys}
        row["MHz"] = f"{point.megahertz:.0f}"
        if confirmed:
            row["confirmed"] = verdict(point, confirmed[at])
        found.append(row)
    return found


def cycles_of(counts):
    """Of all networks, or None where one did not run."""
    return None if any("error" in c for c in counts.values()) else sum(c["cycles"] for c in counts.values())


def verdict(point, counts):
    cycles = cycles_of(counts)
    return "did not run" if cycles is None else f"{100 * (cycles / point.figures['cycles'] - 1):+.2f} %"


def table(found):
    if not found:
        return ""
    columns = list(found[0])
    widths = [max(len(column), *(len(row[column]) for row in found)) for column in columns]
    lines = ["  ".join(column.rjust(width) for column, width in zip(columns, widths))]
    lines += ["  ".join(row[column].rjust(width) for column, width in zip(columns, widths)) for row in found]
    return "\n".join(lines)


def bound_of(point, part, spare):
    """How full the machine makes the part: [(share, resource)], fullest first."""
    used = {**point.area.counts(), "lut": point.area.lut + point.area.lut_memory}
    return sorted(((used[key] / part[key], key) for key in used if part[key]), reverse=True)


def neighbours(explorer, point):
    """[(axis, value, Point, reason or None)] of machines one step along one axis away, as other_point has it."""
    space = explorer.space
    places = [values.index(point.values[key]) for key, values in space.axes.items()]
    found = []
    for at, (key, values) in enumerate(space.axes.items()):
        for step in (-1, 1):
            if not 0 <= places[at] + step < len(values):
                continue
            number = space.number(places[:at] + [places[at] + step] + places[at + 1 :])
            found.append((key, values[places[at] + step], other_point(explorer, number)))
    return found


def other_point(explorer, number):
    """The point of a number, or why there is none; None: nobody has looked at it."""
    machine, why = explorer.space.machine(number)
    if machine is None:
        return why
    if number not in explorer.known:
        return None
    point = explorer.known[number]
    if point is None:
        counts = area.model().predict(machine.parameters)
        spare = explorer.space.constraints.get("spare", 0)
        return (explorer.part and area.obstacle(counts, explorer.part, spare)) or "a constraint"
    return point if point.judge else next((why for (n, _), why in explorer.failures.items() if n == number), None)


def reasons(explorer, front):
    """Sentences about the first machine of the front: what it is, what bounds it, what its neighbours would bring."""
    if not front:
        return []
    best, space = front[0], explorer.space
    names = ", ".join(network.name for network in explorer.networks)
    first = space.objectives[0]
    lines = [
        f"The best machine for {names} by {first} is: {described(best, choices(space)) or 'the only one'}.",
        f"It takes {best.figures['cycles']:,} cycles, which are {best.figures['milliseconds']:.3f} ms at "
        f"{best.megahertz:.0f} MHz, and about {best.figures['microjoules']:,.0f} microjoules.",
    ]
    products = best.machine.parameters["batch"] * best.machine.parameters["block_in"]
    products *= best.machine.parameters["block_out"]
    issued = sum(counts["issued_macs"] for counts in best.per_network.values())
    lines.append(
        f"The array issues products in {100 * issued / products / best.figures['cycles']:.0f} % of the cycles."
    )
    if explorer.part:
        shares = bound_of(best, explorer.part, space.constraints.get("spare", 0))
        fullest = ", ".join(f"{100 * share:.0f} % of the {SHOWN[key][0]}" for share, key in shares[:3] if key in SHOWN)
        lines.append(f"It fills {explorer.part['name']} to {fullest}.")
    for key, value, other in neighbours(explorer, best):
        if other is None:
            continue
        what = f"With {key} = {short(value)} instead of {short(best.values[key])}"
        if isinstance(other, str):
            lines.append(f"{what} there is no such machine: {other}.")
            continue
        ratio = other.figures[first] / best.figures[first] - 1
        change = f"{first} would be {'at least ' if other.judge == 'bound' else ''}{100 * ratio:+.1f} %"
        change += " (screened)" if other.judge == "screen" else ""
        area = other.figures["lut"] / best.figures["lut"] - 1
        broken = explorer.refusal(other)
        lines.append(
            f"{what} {change}, look-up tables {100 * area:+.1f} %{', and it has ' + broken if broken else ''}."
        )
    return lines


def notes(explorer, points):
    """What a reader of the figures must know."""
    judged = [point.judge for point in points]
    lines = [
        f"{explorer.space.size:,} combinations; {len(explorer.known):,} looked at, {len(points):,} kept: "
        f"{judged.count('predict')} compiled in full, {judged.count('screen')} screened."
    ]
    if explorer.spared:
        lines.append(f"{explorer.spared:,} spared: a compiled machine beats the least that they can take.")
    lines += [f"{count:,} left out: {why}" for why, count in explorer.refused.most_common(8)]
    for (number, name), why in list(explorer.failures.items())[:3]:
        lines.append(f"{name} does not run on machine {number}: {why}")
    if len(explorer.failures) > 3:
        lines.append(f"... and {len(explorer.failures) - 3:,} more that do not run")
    outside = sorted({key for point in points for key in point.area.outside})
    if outside:
        lines.append(f"The area of some machines is extrapolated: no measured machine has such {', '.join(outside)}.")
    lines.append("Area is a model fitted to synthesis, the clock and the energy are estimates (docs/explore.md).")
    return lines


def counted(networks):
    """Counts less what they cost: the same exploration makes the same object."""
    return {name: {key: of[key] for key in of if key != "cpu_seconds"} for name, of in networks.items()}


def as_json(explorer, points, front, shown, confirmed=None, device=""):
    """The versioned object. Figures of all points, the front by numbers, best first. shown: of the front, what was
    confirmed."""
    made = {
        "schema": SCHEMA,
        "space": explorer.space.content,
        "networks": [{"name": network.name, "digest": network.digest} for network in explorer.networks],
        "objectives": explorer.space.objectives,
        "compiler": explorer.compiler,
        "energy_picojoules": energy.PICOJOULE,
        "points": [
            {
                "number": point.number,
                "machine": point.machine.parameters,
                "dram_latency": point.machine.latency,
                "dram_bandwidth": point.machine.bandwidth,
                "dram": point.machine.dram,
                "megahertz": round(point.megahertz, 3),
                "judge": point.judge,
                "figures": point.figures,
                "networks": counted(point.per_network),
                "extrapolated": list(point.area.outside),
            }
            for point in points
        ],
        "front": [point.number for point in front],
        "shown": [point.number for point in shown],
        "reasons": reasons(explorer, front),
        "left_out": dict(explorer.refused),
        "spared": explorer.spared,
        "failures": [
            {"number": number, "network": name, "error": why} for (number, name), why in explorer.failures.items()
        ],
    }
    if confirmed:
        made["confirmed"] = {
            "device": device,
            "points": [
                {
                    "number": point.number,
                    "cycles": cycles_of(counts),
                    "predicted_cycles": point.figures["cycles"],
                    "networks": counted(counts),
                }
                for point, counts in zip(shown, confirmed)
            ],
        }
    return made

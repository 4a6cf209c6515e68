# SPDX-License-Identifier: Apache-2.0
"""What a chip of several cores takes beside its cores alone: `./dev synth --chip`. Enters: a configuration of several
cores, a family. Leaves: what the interconnect takes, what a core takes more as a part of the chip (to publish, to
await), both as a share of so many recorded cores alone, and on 7 series the longest path of the interconnect's logic,
between registers at its boundary.

Method: chip and core are elaborated, and only the modules in which they differ are synthesised. All others are the same
text, and so the same netlist, in both."""

import collections

import figures
import machine
import modules
import timing
from machine import Failure
from modules import short


def instances(everything, top):
    """How often each module stands in one, itself included: {name: number}."""
    kinds = {name.removeprefix("\\"): name for name in everything}
    found = collections.Counter({top: 1})
    for kind, number in modules.cells_of(everything[top].text).items():
        if kind in kinds:
            for name, inside in instances(everything, kinds[kind]).items():
                found[name] += number * inside
    return found


def named(everything, kind):
    return next(name for name in everything if short(name) == kind)


def taken(everything, numbers, classify):
    """Counts of so many modules of each name, without what they contain."""
    kinds = {name.removeprefix("\\") for name in everything}
    total = collections.Counter()
    for name, number in numbers.items():
        own = {kind: n for kind, n in everything[name].cells.items() if kind not in kinds}
        for key, value in classify(own).items():
            total[key] += number * value
    return dict(total)


def path(everything, config, folder, options):
    """The longest path of tsr_interconnect's logic: as timing.path_of."""
    top = named(everything, "tsr_interconnect")
    whole, flat = (folder / f"interconnect_{machine.file_name(config)}{end}" for end in (".il", "_flat.il"))
    whole.write_text("".join(everything[name].netlist for name in instances(everything, top)))
    commands = modules.libraries() + [
        f"read_rtlil {whole.name}",
        "flatten",
        "opt_clean",
        f"select {modules.pattern(top)}",
        "sta",
        f"write_rtlil -selected {flat.name}",
    ]
    run = machine.yosys(commands, folder / "interconnect.log", options.minutes, options.yosys)
    (name, report), *_ = timing.reports(run.log + "\n\n").items()
    return timing.path_of(report, name if name.startswith("$") else "\\" + name, flat.read_text())


def measure(config, family, folder, options, classify):
    """Errors: Failure for a machine of one core, or as of modules.mapped."""
    cores = machine.parameters(config).get("Cores", 1)
    if cores == 1:
        raise Failure(f"--chip takes chips of several cores, and '{config}' has one")
    flags = ["-nowidelut"] if options.nowidelut else []
    alone = machine.core_alone(config, folder)
    one, _ = modules.keyed(alone, family, flags, folder, options.yosys, options.minutes)
    many, _ = modules.keyed(config, family, flags, folder, options.yosys, options.minutes)
    number_alone = instances(one, named(one, "tsr_top"))
    number_inside = instances(many, named(many, "tsr_top"))
    interconnect = instances(many, named(many, "tsr_interconnect"))
    same = {
        name
        for name in number_alone
        if name in many and one[name].key == many[name].key and number_alone[name] == number_inside[name]
    }

    def mapped(name, wanted):
        return modules.mapped(
            name,
            family,
            flags,
            folder,
            options.minutes,
            options.yosys,
            options.jobs,
            options.fresh,
            lambda everything: {one for one in everything if one in wanted},
        )

    one, seconds = mapped(alone, set(number_alone) - same)
    many, more_seconds = mapped(config, (set(number_inside) - same) | set(interconnect))
    before = taken(one, {name: n for name, n in number_alone.items() if name not in same}, classify)
    after = taken(many, {name: n for name, n in number_inside.items() if name not in same}, classify)
    more = {key: after[key] - before.get(key, 0) for key in after}
    between = taken(many, interconnect, classify)
    base = machine.file_name(config).rsplit("x", 1)[0]
    key = " ".join([base, family, machine.version(options.yosys), *flags])
    recorded = figures.load()["area"].get(key, {}).get("total")
    share = {
        kind: round(1 + more[kind] / n + between[kind] / (cores * n), 4) for kind, n in (recorded or {}).items() if n
    }
    return {
        "config": config,
        "family": family,
        "yosys": machine.version(options.yosys),
        "options": flags,
        "cores": cores,
        "core_alone": base,
        "alone": recorded,
        "more": more,
        "interconnect": between,
        "share": share,
        "path": path(many, config, folder, options) if family == timing.FAMILY else None,
        "yosys_seconds": round(seconds + more_seconds),
    }


def show(result, line, numbers, keys):
    """`line` and `numbers` write a row, as for areas."""
    print(f"\n{result['config']}, {figures.FAMILIES[result['family']]}, Yosys {result['yosys']}")
    print(line(["", *keys.values()]))
    if result["alone"]:
        print(numbers(f"{result['core_alone']} alone, as recorded", result["alone"]))
    print(numbers("a core of the chip: more", result["more"]))
    print(numbers("the interconnect", result["interconnect"]))
    if result["share"]:
        shares = [f"{result['share'][key]:.3f}" if key in result["share"] else "" for key in keys]
        print(line([f"the chip, of {result['cores']} cores alone", *shares]))
    if found := result["path"]:
        ends = f"{found['start']} -> {found['end']}"
        print(f"the interconnect's longest path: {found['ns']} ns, {found['levels']} LUTs: {ends}")

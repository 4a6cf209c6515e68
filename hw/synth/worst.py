# SPDX-License-Identifier: Apache-2.0
"""The worst paths of a netlist, one for each pair of a start and an end: `./dev synth --timing --paths 20`. Enters: a
flat netlist of 7-series cells and the models of the cells, as Yosys' JSON. Leaves: paths with their delay in
nanoseconds, the look-up tables on them, the words (registers or memories) where they start and end, and the nets on
their way.

Method: as Yosys' sta, which names one path only. Every arc of a cell's model adds its delay, a setup time ends a path,
wires count nothing. Of the bits of a word the latest counts, so that a list shows different paths and not the bits of
one. An end has one path: that of its latest start."""

import re

SOURCES = re.compile(r"^(FD|DSP|RAM|SRL)")


def delay(cell, key):
    value = cell["parameters"].get(key, 0)
    if isinstance(value, str):  # a model that was not derived has unknown ones
        value = int(value, 2) - (1 << 32) * (len(value) == 32 and value[0] == "1") if set(value) <= {"0", "1"} else 0
    return value


def places(module):
    """{net: (port, bit)} of the ports of a model."""
    return {net: (name, i) for name, port in module["ports"].items() for i, net in enumerate(port["bits"])}


class Model:
    """What sta reads of a cell's model: arcs from inputs to outputs, from a clock to outputs, setup times."""

    def __init__(self, module):
        self.arcs, self.launches, self.setups = {}, {}, {}
        # Yosys derives the models of block RAMs with all conditions false, and sta counts their arcs all the same.
        unmet = {}
        at = places(module)
        for cell in module["cells"].values():
            kind, nets = cell["type"], cell["connections"]
            off = nets.get("EN", ["1"]) == ["0"]
            if kind not in ("$specify2", "$specify3", "$specrule") or (off and kind != "$specify3"):
                continue
            sources = [at[net] for net in nets["SRC"] if net in at]
            targets = [at[net] for net in nets["DST"] if net in at]
            if kind == "$specrule":
                if cell["parameters"]["TYPE"].strip() == "$setup" and nets.get("SRC_EN", ["1"]) != ["0"]:
                    for source in sources:
                        self.setups[source] = max(self.setups.get(source, 0), delay(cell, "T_LIMIT_MAX"))
            elif kind == "$specify3":
                known = unmet if off else self.launches
                for target in targets:
                    known[target] = max(known.get(target, 0), delay(cell, "T_RISE_MAX"))
            else:
                full = int(str(cell["parameters"]["FULL"]), 2)
                pairs = [(s, t) for s in sources for t in targets] if full else zip(sources, targets, strict=False)
                for source, target in pairs:
                    known = self.arcs.setdefault(source, {})
                    known[target] = max(known.get(target, 0), delay(cell, "T_RISE_MAX"))
        self.launches = {**unmet, **self.launches}


def commands(kinds, chosen, target):
    """Yosys commands that follow sta and write, as JSON, the modules `chosen` (as Yosys selects them) and the models of
    the cells."""
    models = " ".join(f"={kind}" for kind in kinds)
    return [
        "select -clear",
        "setattr -mod -unset blackbox -unset whitebox =*",  # else they are not written
        "delete */p:*",
        f"select {models} =$paramod* {' '.join(chosen)}",
        f"json -o {target}",
    ]


def models(modules):
    """The model of a cell, by its kind and parameters: a model that depends on parameters was derived by sta."""
    plain = {name: module for name, module in modules.items() if not name.startswith("$paramod")}
    derived = {}
    for name, module in modules.items():
        if name.startswith("$paramod"):
            derived.setdefault(name.split("\\")[-1] if "\\" in name else name, []).append(module)
    made = {}

    def model(cell):
        kind = cell["type"]
        key = (kind, tuple(sorted((k, str(v)) for k, v in cell["parameters"].items())) if kind in derived else ())
        if key not in made:
            best = plain.get(kind)
            for module in derived.get(kind, ()):
                values = module.get("parameter_default_values", {})
                if all(str(values.get(k, v)) == str(v) for k, v in cell["parameters"].items()):
                    best = module
            made[key] = Model(best) if best else None
        return made[key]

    return model


def names(netlist):
    """{net: the shortest public name of a word that holds it}."""
    found = {}
    for name, entry in netlist["netnames"].items():
        shown = re.sub(r"\[\d+\]$", "", name.replace("$flatten", "").replace("\\", ""))
        rank = (name.startswith("$"), "." not in name and name.count("."), len(name))
        for net in entry["bits"]:
            if isinstance(net, int) and (net not in found or rank < found[net][0]):
                found[net] = (rank, shown)
    return {net: shown for net, (_, shown) in found.items()}


class Netlist:
    """Arrival times of all nets of a flat netlist."""

    def __init__(self, modules, top):
        self.netlist = modules[top]
        self.named = names(self.netlist)
        model = models(modules)
        self.before = {}  # net: [(picoseconds, net, kind)] that it follows
        self.starts = {}  # net: (picoseconds, word)
        self.ends = []  # (setup, net, word)
        for name, cell in self.netlist["cells"].items():
            timing = model(cell)
            if timing:
                self.add(name, cell, timing)
        for name, port in self.netlist["ports"].items():
            for net in port["bits"]:
                if isinstance(net, int) and port["direction"] == "output":
                    self.ends.append((0, net, f"port {name}"))
        self.arrivals()

    def add(self, name, cell, timing):
        nets = cell["connections"]
        word = None
        if SOURCES.match(cell["type"]):
            outputs = [net for port in ("Q", "P", "DO", "O") for net in nets.get(port, ()) if isinstance(net, int)]
            word = self.named.get(outputs[0], name) if outputs and cell["type"].startswith(("FD", "SRL")) else None
            word = word or re.sub(r"(\.\d+)*$", "", name.replace("$flatten", "").replace("\\", ""))
        for (port, i), ps in timing.launches.items():
            if i < len(nets.get(port, ())) and isinstance(nets[port][i], int):
                self.starts[nets[port][i]] = (ps, word)
        for (port, i), ps in timing.setups.items():
            if i < len(nets.get(port, ())) and isinstance(nets[port][i], int):
                self.ends.append((ps, nets[port][i], f"{word}" + ("" if port == "D" else f" ({port})")))
        for (port, i), targets in timing.arcs.items():
            if i < len(nets.get(port, ())) and isinstance(nets[port][i], int):
                for (out, k), ps in targets.items():
                    if k < len(nets.get(out, ())) and isinstance(nets[out][k], int):
                        self.before.setdefault(nets[out][k], []).append((ps, nets[port][i], cell["type"]))

    def arrivals(self):
        """{net: (picoseconds, net before, kind)}, depth first without recursion."""
        self.at = {net: (ps, None, "") for net, (ps, _) in self.starts.items()}
        for first in list(self.before):
            work = [first]
            while work:
                net = work[-1]
                if net in self.at and self.at[net] is not None:
                    work.pop()
                    continue
                waits = [n for _, n, _ in self.before.get(net, ()) if n not in self.at and n in self.before]
                if waits and net not in self.at:
                    self.at[net] = None  # so that a loop ends
                    work += waits
                    continue
                best = (0, None, "")
                for ps, source, kind in self.before.get(net, ()):
                    known = self.at.get(source)
                    if (known[0] if known else 0) + ps > best[0]:
                        best = ((known[0] if known else 0) + ps, source, kind)
                self.at[net] = best
                work.pop()

    def path(self, ps, net, end):
        """{ns, levels, start, end, through} of the path that arrives at a net."""
        kinds, through = [], []
        while net is not None:
            shown = self.named.get(net, "?")
            if not through or through[-1] != shown:
                through.append(shown)
            last, (_, before, kind) = net, self.at.get(net) or (0, None, "")
            kinds.append(kind)
            net = before
        start = self.starts[last][1] if last in self.starts else f"port {self.named.get(last, '?')}"
        return {
            "ns": round(ps / 1000, 2),
            "levels": sum(kind.startswith("LUT") for kind in kinds),
            "start": start,
            "end": end,
            "through": [name for name in reversed(through) if "$" not in name],
        }

    def worst(self, count):
        """The worst paths, one for each pair of a start and an end."""
        timed = sorted(((self.at.get(net) or (0,))[0] + ps, net, end) for ps, net, end in self.ends)
        found = {}
        for ps, net, end in reversed(timed):
            one = self.path(ps, net, end)
            found.setdefault((one["start"], one["end"]), one)
            if len(found) == count:
                break
        return list(found.values())


def show(paths):
    for one in paths:
        print(f"{one['ns']:>7.2f}{one['levels']:>4}   {one['start']} -> {one['end']}")
        print(f"{'':<14}through {', '.join(one['through'][1:-1]) or 'nothing named'}")

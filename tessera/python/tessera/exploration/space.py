# SPDX-License-Identifier: Apache-2.0
"""A space of machines, from a TOML file. Enters: the file's path or its text as a dict. Leaves: a Space, which counts
its machines, names each by a number, and says which are legal.

    name = "small"
    base = "npu256"                    # what no range sets: a shipped configuration or a .toml file
    [machine]                          # parameters of a configuration
    block_in = [8, 16, 32]
    inp_bytes = "8k..128k by 2x"
    second_lanes = "block_out / 4"     # a rule: it follows from others
    [memory]                           # latency: cycles; bandwidth: bytes a cycle, 0 is the bus's width
    latency = [100]
    bandwidth = [0]
    dram = ["ideal"]                   # or presets of docs/dram.md, which have a latency and a bandwidth of their own
    [clock]
    megahertz = [75]                   # default: the estimate for the machine
    [rules]
    require = ["block_in * block_out <= 512"]
    [constraints]
    fits = "zynq7020"
    milliseconds = 2
    [objectives]
    minimise = ["milliseconds", "lut"]
"""

import dataclasses
import math
import pathlib
import tomllib

import _tessera

from ..errors import argument, error
from .rules import Rule, is_number, values_of

SECTIONS = ("name", "base", "machine", "memory", "clock", "rules", "constraints", "objectives")
MEMORY = {"latency": 100, "bandwidth": 0}
IDEAL = "ideal"
SHIPPED = _tessera.shipped_configs()  # {name: text}
PARAMETERS = tuple(key for key in tomllib.loads(SHIPPED["npu256"]) if key != "name")
# What may be left out.
ABSENT = {"row_lanes": 0, "memory_parity": 0, "packed_weights": 0, "raster_pairs": 0, "cores": 1, "memory_axi_bytes": 0}
OBJECTIVES = {
    "milliseconds": "time of the networks at the clock",
    "cycles": "cycles of the networks",
    "lut": "look-up tables, those that are memory included",
    "ff": "flip-flops",
    "dsp": "DSP slices",
    "bram36": "block RAMs of 36 Kbit",
    "bytes": "bytes of DRAM",
    "microjoules": "energy, estimated",
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """One machine of a space: configuration, memory behind it, clock (None: the estimate)."""

    parameters: dict
    latency: int = 100
    bandwidth: int = 0
    megahertz: float | None = None
    dram: str = IDEAL

    def toml(self, name="explored"):
        lines = [f'name = "{name}"'] + [f"{key} = {value}" for key, value in self.parameters.items()]
        return "\n".join(lines) + "\n"

    def options(self):
        """Of a compilation for this memory, and of a device with it."""
        if self.dram != IDEAL:
            return {"dram": self.dram}
        found = {"dram_latency": self.latency}
        return {**found, "dram_bandwidth": self.bandwidth} if self.bandwidth else found

    def refusal(self):
        """Why no such machine can be built, or None."""
        try:
            _tessera.check_config(self.toml())
        except _tessera.Error as refused:
            return str(refused).replace("configuration explored: ", "")
        return None


def base_of(given):
    if not isinstance(given, str):
        raise argument(
            f"base = {given!r}: write the name of a shipped configuration ({', '.join(SHIPPED)}) or a file's"
        )
    if given in SHIPPED:
        return tomllib.loads(SHIPPED[given])
    try:
        found = tomllib.loads(pathlib.Path(given).read_text())
        for key in PARAMETERS:
            if key in found and not is_number(found[key]):
                raise argument(f"base = '{given}': {key} = {found[key]!r} is no number")
        return found
    except (OSError, tomllib.TOMLDecodeError, ValueError) as refused:
        why = refused.strerror if isinstance(refused, OSError) else refused
        raise argument(
            f"base = '{given[:200]}' is no shipped configuration ({', '.join(SHIPPED)}) and no file to be read: {why}"
        ) from None


def table(content, key, known):
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise argument(f"[{key}] must be a table")
    for name in found:
        if name not in known:
            raise argument(f"[{key}] has no '{name}'; it takes {', '.join(known)}")
    return found


def drams_of(given):
    """The presets of [memory] dram: one name or a list."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise argument(f"[memory] dram = {given!r}: write the name of a preset, or a list of names")
    for name in names:
        if name != IDEAL:
            _tessera.dram_figures(name, 8)
    return list(dict.fromkeys(names))


class Space:
    """Numbers from 0 to `size` - 1 name the combinations of all ranges; machine(number) makes one. Those that a rule or
    the machine's own limits refuse have a refusal()."""

    def __init__(self, content):
        """Errors: invalid_argument."""
        for key in content:
            if key not in SECTIONS:
                raise argument(f"a space has no '{key}'; it has {', '.join(SECTIONS)}")
        self.name = str(content.get("name", "space"))
        self.content = {**content, "name": self.name} if "name" in content else content  # JSON has no dates
        base = {**ABSENT, **base_of(content.get("base", "npu256"))}
        machine = table(content, "machine", PARAMETERS)
        memory = dict(table(content, "memory", (*MEMORY, "dram")))
        self.drams = drams_of(memory.pop("dram", IDEAL))
        clock = table(content, "clock", ("megahertz",))
        self.axes, self.derived = {}, {}
        self.fixed = {key: base[key] for key in PARAMETERS if key in base and key not in machine}
        for section, given, fallback in (("machine", machine, {}), ("memory", memory, MEMORY), ("clock", clock, {})):
            for key, value in {**fallback, **given}.items():
                values = values_of(value, f"[{section}] {key}")
                (self.derived if isinstance(values, Rule) else self.axes)[key] = values
        if len(self.drams) > 1:
            self.axes["dram"] = list(range(len(self.drams)))
        self._order_rules()
        rules = table(content, "rules", ("require",)).get("require", [])
        if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
            raise argument("[rules] require takes a list of expressions")
        self.rules = [Rule(rule, "[rules] require") for rule in rules]
        self._check_names()
        self.constraints = self._constraints(content.get("constraints", {}))
        self.objectives = self._objectives(table(content, "objectives", ("minimise",)))
        self.size = math.prod(len(values) for values in self.axes.values())

    def _order_rules(self):
        """Rules in an order in which each knows what it needs."""
        waiting, known = dict(self.derived), set(self.axes) | set(self.fixed)
        self.derived = {}
        while waiting:
            ready = [key for key, rule in waiting.items() if not rule.names & set(waiting)]
            if not ready:
                raise argument(f"the rules of {', '.join(waiting)} need each other")
            for key in ready:
                self.derived[key] = waiting.pop(key)
                known.add(key)

    def _check_names(self):
        known = {*self.axes, *self.derived, *self.fixed}
        for rule in [*self.derived.values(), *self.rules]:
            for name in sorted(rule.names - known):
                raise argument(
                    f"{rule.where}: '{rule.text}' has name '{name}'; parameters are {', '.join(sorted(known))}"
                )

    @staticmethod
    def _constraints(given):
        if not isinstance(given, dict):
            raise argument("[constraints] must be a table")
        for key, value in given.items():
            if key in ("fits", "spare"):
                continue
            if key not in OBJECTIVES or not is_number(value) or value <= 0:
                raise argument(
                    f"[constraints] {key} = {value!r}: write fits = PART, spare = SHARE, or the most that one of "
                    f"{', '.join(OBJECTIVES)} may be"
                )
        spare = given.get("spare", 0)
        if not is_number(spare) or not 0 <= spare < 1:
            raise argument(f"[constraints] spare = {spare!r}: the share of the part that stays free, from 0 to below 1")
        return dict(given)

    @staticmethod
    def _objectives(given):
        chosen = given.get("minimise", ["milliseconds", "lut"])
        if not isinstance(chosen, list) or not chosen or any(key not in list(OBJECTIVES) for key in chosen):
            raise argument(f"[objectives] minimise = {chosen!r}: a list of {', '.join(OBJECTIVES)}")
        return list(dict.fromkeys(chosen))

    def values(self, number):
        """{axis: value} of a combination."""
        found = {}
        for key, values in reversed(self.axes.items()):
            number, at = divmod(number, len(values))
            found[key] = values[at]
        return {key: found[key] for key in self.axes}

    def number(self, places):
        """The number of a combination from the place of each axis' value."""
        number = 0
        for place, values in zip(places, self.axes.values()):
            number = number * len(values) + int(place)
        return number

    def machine(self, number):
        """(Machine, None), or (None, why it is no machine)."""
        values = {**self.fixed, **self.values(number)}
        for key, rule in self.derived.items():
            values[key] = rule(values)
        for rule in self.rules:
            if not rule(values):
                return None, f"rule '{rule.text}'"
        fraction = next((key for key in (*PARAMETERS, *MEMORY) if int(values.get(key, 0)) != values.get(key, 0)), None)
        if fraction:
            return None, f"{fraction} = {values[fraction]} is no whole number"
        machine = Machine(
            {key: int(values[key]) for key in PARAMETERS if key in values},
            int(values["latency"]),
            int(values["bandwidth"]),
            values.get("megahertz"),
            self.drams[values.get("dram", 0)],
        )
        if machine.dram != IDEAL and {key: values[key] for key in MEMORY} != MEMORY:
            return None, f"dram = '{machine.dram}' has a latency and a bandwidth of its own"
        if machine.latency < 1 or machine.bandwidth < 0:
            return None, f"latency = {machine.latency}, bandwidth = {machine.bandwidth}: at least 1 and 0"
        if machine.megahertz is not None and machine.megahertz <= 0:
            return None, f"megahertz = {machine.megahertz} must be above 0"
        refusal = machine.refusal()
        return (None, refusal) if refusal else (machine, None)


def load(path):
    """The Space of a file. Errors: io, invalid_argument with the file's name."""
    try:
        content = tomllib.loads(pathlib.Path(path).read_text())
    except OSError as refused:
        raise error("io", f"cannot read the space '{path}': {refused.strerror}") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as refused:
        raise argument(f"{path}: {refused}") from None
    try:
        return Space(content)
    except _tessera.Error as refused:
        raise error(refused.code, f"{path}: {refused}") from None

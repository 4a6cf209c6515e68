# SPDX-License-Identifier: Apache-2.0
"""Area and clock of a machine that nobody has synthesised. Enters: parameters of a configuration. Leaves: look-up
tables, flip-flops, DSP slices and block RAMs on 7 series, and an estimate of the clock.

Method: Yosys has synthesised the machines of hw/synth/points.toml part by part (area_points.json, which
hw/synth/points.py writes and names the command of). For each part and resource a linear model over few features, which
are products of parameters, is fitted by least squares; the counts of parts add up. Errors are relative to a machine's
total, so small machines weigh as much as large ones. A chip of several cores is its cores, each counted like a machine
of its own, and the interconnect, fitted to some that Yosys has synthesised alone. `leave_one_out` predicts each
machine from the others.

    python3 -m tessera.exploration.area        # the errors, machine by machine"""

import dataclasses
import functools
import importlib.resources
import json
import math

import numpy as np

from ..errors import argument

RESOURCES = ("lut", "lut_memory", "ff", "dsp", "bram36")
WIRES = 2.0  # a path takes as long in wires as in logic, as bench/silicon.py has it
# Bits and words of a RAMB36. Memories are written byte by byte, and Yosys leaves the ninth bits unused.
SHAPES = ((64, 512), (32, 1024), (16, 2048), (8, 4096), (4, 8192), (2, 16384), (1, 32768))


def blocks(bits, words, two_ports=False):
    """RAMB36 of a memory, halves included, in the best of the shapes that a block has."""
    found = []
    for wide, deep in SHAPES:
        wide = min(wide, 32) if two_ports else wide
        found.append(math.ceil(bits / wide) * math.ceil(words / deep))
        if deep > 512 and words <= deep // 2 and (wide <= 16 or not two_ports):
            found.append(math.ceil(bits / wide) / 2)
    return min(found)


def entries(p):
    """Bytes of an entry of each scratchpad."""
    return {
        "inp": p["batch"] * p["block_in"],
        "wgt": p["block_in"] * p["block_out"],
        "acc": 4 * p["batch"] * p["block_out"],
        "out": p["batch"] * p["block_out"],
        "param": 8 * p["block_out"],
    }


def memories(p):
    """Blocks of each scratchpad. A word is as wide as the bus at least; WGT and PARAM are memories of a bus' width side
    by side (docs/synthesis.md)."""
    bus, found = p["axi_bytes"], {}
    for name, size in entries(p).items():
        word = max(size, bus)
        words = math.ceil(p[f"{name}_bytes"] / word)
        if name in ("wgt", "param"):
            found[name] = word // bus * blocks(8 * bus, words)
        else:
            found[name] = blocks(8 * word, words, two_ports=name == "inp")
    return found


def taps(block_in):
    """Taps of a depthwise window that the array takes at once (tsr_gemm)."""
    return {4: 4, 8: 6, 16: 9}.get(block_in, 16)


def chosen_bits(p):
    """Bits behind choices: of words of the bus that hold several entries of a scratchpad."""
    bus = p["axi_bytes"]
    return sum(8 * bus for size in entries(p).values() if size < bus)


def features(p):
    """{part: what its counts grow with}; 1 stands in all of them."""
    bus, inside, out = p["axi_bytes"], p["batch"] * p["block_in"], p["batch"] * p["block_out"]
    products = p["batch"] * p["block_in"] * p["block_out"]
    rows, second = p["row_lanes"], p["second_lanes"]
    lanes = p["batch"] * min(p["block_in"], p["block_out"])  # of the depthwise window
    extra = max(0, taps(p["block_in"]) - p["block_in"] // 2)  # multipliers of a lane that only depthwise tiles use
    # A table is there for each lane and each of its two readers; its words have 8 bytes at most on any bus.
    word = min(8, bus)
    tables = (out + second) * blocks(8 * word, math.ceil(256 * p["table_count"] / word))
    queues = p["load_queue"] + p["gemm_queue"] + p["alu_queue"] + p["store_queue"]
    return {
        "tsr_alu": {
            "lut": [out, second, second * bus, rows, float(rows > 0)],
            "lut_memory": [out, second, rows],
            "ff": [out, second, rows, float(rows > 0)],
            "dsp": [out, second, rows],
            "bram36": [tables, rows],
        },
        "tsr_gemm": {
            "lut": [products, out, inside],
            "lut_memory": [products, out, inside],
            "ff": [products, out, lanes],
            "dsp": [products, out * extra],
            "bram36": [lanes],
        },
        "tsr_scratchpads": {"lut": [out, products, chosen_bits(p)], "ff": [], "bram36": [sum(memories(p).values())]},
        # A bus of less than 8 bytes saves nothing: entries then lie over several words.
        "tsr_load": {"*": [max(8, bus)], "lut_memory": [bus, p["reads_in_flight"]]},
        "tsr_store": {"*": [max(8, bus)]},
        "tsr_fetch": {"*": [bus, float(rows > 0)]},
        "tsr_queue": {"*": [queues], "lut_memory": [queues]},
        "tsr_axi_read": {"*": [bus, p["reads_in_flight"]]},
        "tsr_axi_write": {"*": [bus, p["writes_in_flight"]]},
        "tsr_fault": {"*": [queues]},
        **{part: {"*": []} for part in ("tsr_control", "tsr_counters", "tsr_timeline", "(itself)")},
    }


def interconnect_features(p):
    """{resource: what the interconnect of a chip grows with}: buffers of each core are as wide as the shared bus, and
    each of its words is chosen among cores."""
    cores, shared = p["cores"], p["memory_axi_bytes"] or p["axi_bytes"]
    return {
        "lut": [cores, cores * shared],
        "lut_memory": [cores],
        "ff": [cores, cores * shared],
        "bram36": [cores * shared],
    }


def of(part, key):
    return part.get(key, part.get("*", []))


def clock_features(p):
    """What the longest path of logic goes with: synthesis makes machines slower whose blocks differ, those with wider
    inputs most, and machines with rows."""
    return [float(p["block_in"] > p["block_out"]), float(p["block_in"] < p["block_out"]), float(p["row_lanes"] > 0)]


@dataclasses.dataclass(frozen=True)
class Area:
    """Counts on 7 series; `lut` without those that are memory. ns: longest path of logic without wires. outside: the
    parameters beyond those of all measured machines."""

    lut: float
    lut_memory: float
    ff: float
    dsp: float
    bram36: float
    ns: float
    outside: tuple = ()

    @property
    def megahertz(self):
        return 1000 / (WIRES * self.ns)

    def counts(self):
        return {key: getattr(self, key) for key in RESOURCES}


def fitted(matrix, counts, weight):
    """Coefficients of weighted least squares, that of 1 first. A feature that does not vary gets 0: what it would do is
    not known. matrix: [machines, features]."""
    middle = matrix.mean(axis=0)
    spread = np.where(np.ptp(matrix, axis=0) > 0, np.ptp(matrix, axis=0), 1)
    scaled = np.column_stack([np.ones(len(matrix)), (matrix - middle) / spread]) * weight[:, None]
    found = np.linalg.lstsq(scaled, counts * weight, rcond=1e-9)[0]
    slopes = found[1:] / spread
    return np.concatenate([[found[0] - slopes @ middle], slopes])


class Model:
    """Fitted to records {machine: {parameters, parts, total, ns}} and, for chips of several cores, to records of
    interconnects {name: {parameters, total}}."""

    def __init__(self, records, interconnects=None):
        self.records = records
        self.interconnect, self.chips = {}, {}
        if interconnects:
            given = [record["parameters"] for record in interconnects.values()]
            found = [interconnect_features(p) for p in given]
            for key in found[0]:
                counts = np.array([record["total"][key] for record in interconnects.values()], float)
                matrix = np.array([row[key] for row in found], float)
                self.interconnect[key] = fitted(matrix, counts, 1 / np.maximum(1, counts))
            for key in given[0]:
                self.chips[key] = min(p[key] for p in given), max(p[key] for p in given)
        self.names = list(records)
        weight = {
            key: np.array([1 / max(1.0, records[name]["total"][key]) for name in self.names]) for key in RESOURCES
        }
        self.coefficients = {}
        found = [features(records[name]["parameters"]) for name in self.names]
        for part in found[0]:
            for key in RESOURCES:
                counts = np.array([records[name]["parts"].get(part, {}).get(key, 0) for name in self.names], float)
                if not counts.any():
                    continue
                matrix = np.array([of(row[part], key) for row in found], float).reshape(len(found), -1)
                self.coefficients[part, key] = fitted(matrix, counts, weight[key])
        parameters = [record["parameters"] for record in records.values()]
        self.ranges = {}
        for key in dict.fromkeys(key for p in parameters for key in p):  # a parameter of later machines was 0 before
            values = [p.get(key, 0) for p in parameters]
            self.ranges[key] = min(values), max(values)
        paths = np.array([record["ns"] for record in records.values()])
        self.path = fitted(np.array([clock_features(p) for p in parameters]), paths, 1 / paths)

    def predict(self, parameters):
        counts = dict.fromkeys(RESOURCES, 0.0)
        found = features(parameters)
        for (part, key), coefficients in self.coefficients.items():
            counts[key] += max(0.0, float(np.dot(coefficients, [1.0, *of(found[part], key)])))
        several = parameters.get("cores", 1) > 1
        if several:
            counts = {key: parameters["cores"] * value for key, value in counts.items()}
            for key, coefficients in self.interconnect.items():
                counts[key] += max(0.0, float(np.dot(coefficients, [1.0, *interconnect_features(parameters)[key]])))
        counts = {key: round(2 * value) / 2 if key == "bram36" else round(value) for key, value in counts.items()}
        outside = tuple(key for key, (low, high) in self.ranges.items() if not low <= parameters.get(key, 0) <= high)
        if several:
            chip = {**parameters, "memory_axi_bytes": parameters["memory_axi_bytes"] or parameters["axi_bytes"]}
            outside += tuple(
                key for key, (low, high) in self.chips.items() if key not in outside and not low <= chip[key] <= high
            )
        ns = float(self.path @ [1.0, *clock_features(parameters)])
        return Area(**counts, ns=round(ns, 3), outside=outside)


def data():
    """The recorded file: command, parts of boards, machines."""
    return json.loads(importlib.resources.files(__package__).joinpath("area_points.json").read_text())


@functools.cache
def model():
    return Model(data()["machines"], data().get("interconnects"))


def parts():
    """{name in lower case without dashes: {name, lut, lut_memory, ff, dsp, bram36}} of parts of 7 series."""
    return {part["name"].lower().replace("-", ""): part for part in data()["parts"] if part["family"] == "xc7"}


def part_of(name):
    """Errors: invalid_argument when the part is unknown."""
    key = str(name).lower().replace("-", "").replace("_", "")
    if key not in parts():
        raise argument(f"the area model knows no part '{name}'; it knows {', '.join(parts())} (7 series)")
    return parts()[key]


def obstacle(area, part, spare=0.0):
    """Why a machine does not fit a part of which the share `spare` of look-up tables and flip-flops stays free, or
    None."""
    used = {**area.counts(), "lut": area.lut + area.lut_memory}
    for key in RESOURCES:
        most = part[key] * (1 - spare if key in ("lut", "ff") else 1)
        if used[key] > most:
            return f"{part['name']}: {key} {used[key]:,g} of {most:,g}"
    return None


def leave_one_out(records):
    """{machine: {resource or "ns": (measured, predicted from the others)}}; `lut` with those that are memory."""
    found = {}
    for name, record in records.items():
        area = Model({other: records[other] for other in records if other != name}).predict(record["parameters"])
        counts = {**area.counts(), "lut": area.lut + area.lut_memory}
        total = {**record["total"], "lut": record["total"]["lut"] + record["total"]["lut_memory"]}
        found[name] = {key: (total[key], counts[key]) for key in RESOURCES if key != "lut_memory"}
        found[name]["ns"] = record["ns"], area.ns
    return found


def main():
    found = leave_one_out(data()["machines"])
    keys = ["lut", "ff", "dsp", "bram36", "ns"]
    print(f"{'machine':<12}" + "".join(f"{key:>10}{'model':>9}{'%':>7}" for key in keys))
    worst = dict.fromkeys(keys, 0.0)
    for name, row in found.items():
        line = f"{name:<12}"
        for key in keys:
            measured, predicted = row[key]
            off = 100 * (predicted - measured) / measured
            worst[key] = max(worst[key], abs(off))
            line += f"{measured:>10,g}{predicted:>9,g}{off:>7.1f}"
        print(line)
    print("largest error: " + ", ".join(f"{key} {value:.1f} %" for key, value in worst.items()))


if __name__ == "__main__":
    main()

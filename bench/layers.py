# SPDX-License-Identifier: Apache-2.0
"""Single convolution layers against VTA's published figures: for each shape a one-layer model (seeded weights,
quantised per channel by ONNX Runtime) runs on npu256, VTA's default size of machine, with 8 bytes of DRAM a cycle.

VTA's figures are read from ../shared/bench/vta_layer_baseline.csv when it is there: cycles on a Pynq at 100 MHz with
the schedules its authors tuned, and the bytes its instructions move (input, weights, bias, micro-operations, output).
Without the file the same shapes run alone. VTA's bytes leave out its instructions, so `data_bytes` leaves out ours;
`compulsory_bytes` are what no schedule can avoid: input, output and weights once, and 8 bytes of bias and scale a
channel (VTA: 4, with one scale a layer). As bytes are compared too, schedules are chosen with a traffic weight of 2
(`--traffic-weight`). The rows named mobilenetG are grouped convolutions of 16 channels a group, which VTA measures in
place of depthwise ones; they are run as what they are."""

import csv
import hashlib
import sys

import networks
import numpy as np
import onnx

BASELINE = networks.ROOT.parent / "shared" / "bench" / "vta_layer_baseline.csv"
CONFIG = "npu256"
TRAFFIC_WEIGHT = 2.0

# name: input channels, height and width, output channels, kernel, stride, pad, groups, times in its network
SHAPES = {
    "resnet18.C2": (64, 56, 64, 3, 1, 1, 1, 4),
    "resnet18.C3": (64, 56, 128, 3, 2, 1, 1, 1),
    "resnet18.C4": (64, 56, 128, 1, 2, 0, 1, 1),
    "resnet18.C5": (128, 28, 128, 3, 1, 1, 1, 3),
    "resnet18.C6": (128, 28, 256, 3, 2, 1, 1, 1),
    "resnet18.C7": (128, 28, 256, 1, 2, 0, 1, 1),
    "resnet18.C8": (256, 14, 256, 3, 1, 1, 1, 3),
    "resnet18.C9": (256, 14, 512, 3, 2, 1, 1, 1),
    "resnet18.C10": (256, 14, 512, 1, 2, 0, 1, 1),
    "resnet18.C11": (512, 7, 512, 3, 1, 1, 1, 3),
    "mobilenetG.D1": (32, 112, 32, 3, 1, 1, 2, 1),
    "mobilenetG.D2": (64, 112, 64, 3, 2, 1, 4, 1),
    "mobilenetG.D3": (128, 56, 128, 3, 1, 1, 8, 1),
    "mobilenetG.D4": (128, 56, 128, 3, 2, 1, 8, 1),
    "mobilenetG.D5": (256, 28, 256, 3, 1, 1, 16, 1),
    "mobilenetG.D6": (256, 28, 256, 3, 2, 1, 16, 1),
    "mobilenetG.D7": (512, 14, 512, 3, 1, 1, 32, 1),
    "mobilenetG.D8": (512, 14, 512, 3, 2, 1, 32, 1),
    "mobilenetG.D9": (1024, 7, 1024, 3, 1, 1, 64, 1),
}


def baseline():
    """(shapes as in SHAPES, {name: (VTA's cycles, VTA's DRAM bytes)}); the latter is empty without the file."""
    if not BASELINE.exists():
        print(
            f"no {BASELINE.relative_to(networks.ROOT.parent)} beside the project: the project's own list of shapes, "
            "without VTA's figures",
            file=sys.stderr,
        )
        return SHAPES, {}
    shapes, figures = {}, {}
    with BASELINE.open() as file:
        for row in csv.DictReader(file):
            if row["H"] != row["W"]:
                raise SystemExit(f"{BASELINE.name}: row {row['name']} is not square")
            shapes[row["name"]] = tuple(
                int(row[key]) for key in ("CI", "H", "CO", "K", "stride", "pad", "groups", "mult")
            )
            figures[row["name"]] = (
                int(row["pynq_cycles"]),
                sum(int(row[key]) for key in ("inp_B", "wgt_B", "acc_B", "uop_B", "out_B")),
            )
    return shapes, figures


def model(name, shape):
    """(bytes of the quantised layer, feeds); the model is kept under build/networks by its shape."""
    from tests.oracle import oracle

    channels, side, out, kernel, stride, pad, groups, _ = shape
    input_shape = [1, channels, side, side]
    key = hashlib.sha256(repr((name, shape)).encode()).hexdigest()[:12]
    path = networks.CACHE / f"layer-{key}.onnx"
    if not path.exists():
        networks.CACHE.mkdir(parents=True, exist_ok=True)
        b = networks.Builder(name, input_shape)
        float_model = b.finish(b.conv("input", out, kernel, stride, [pad] * 4, groups))
        rng = np.random.default_rng(2)
        onnx.save(
            oracle.quantize(
                float_model, [{"input": rng.random(input_shape, np.float32)} for _ in range(2)], per_channel=True
            ),
            path,
        )
    return path.read_bytes(), {"input": np.random.default_rng(3).random(input_shape, np.float32)}


def ratio(a, b):
    return round(a / b, 3) if a is not None and b else None


def compulsory(shape):
    """Bytes that cross the bus at least once."""
    channels, side, out, kernel, stride, pad, groups, _ = shape
    result = (side + 2 * pad - kernel) // stride + 1
    rows = side if kernel >= stride else result  # a window smaller than its step skips rows and columns
    return channels * rows * rows + channels // groups * out * kernel * kernel + 8 * out + out * result * result


def measure(name, shape, devices, figures):
    """One row. `device` figures are those of the first device."""
    import tessera
    from tests.oracle import oracle

    data, feeds = model(name, shape)
    expected = list(oracle.run(data, feeds, intermediates=False).outputs.values())
    stats, equal = {}, True
    for device in devices:
        session = tessera.Session(data, device, CONFIG, profile=False, traffic_weight=TRAFFIC_WEIGHT)
        equal = all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected)) and equal
        stats[device] = session.stats()
    first = stats[devices[0]]
    cycles, dram = first.cycles, first.dram_read_bytes + first.dram_write_bytes
    row = {
        "layer": name,
        "config": CONFIG,
        "times": shape[-1],
        "rtl_cycles": stats["rtl"].cycles if "rtl" in stats else None,
        "systemc_cycles": stats["sysc"].cycles if "sysc" in stats else None,
        "predicted_cycles": sum(layer.get("predicted_cycles", 0) for layer in first.layers),
        "bound_cycles": first.roofline_cycles,
        "utilization": round(first.utilization, 3),
        "dram_read_bytes": first.dram_read_bytes,
        "dram_write_bytes": first.dram_write_bytes,
        "data_bytes": dram - first.bytes["instructions"],
        "compulsory_bytes": compulsory(shape),
    }
    if name in figures:
        vta_cycles, vta_bytes = figures[name]
        row |= {
            "vta_cycles": vta_cycles,
            "cycles_ratio": ratio(cycles, vta_cycles),
            "vta_dram_bytes": vta_bytes,
            "bytes_ratio": ratio(row["data_bytes"], vta_bytes),
        }
    row["equal_to_oracle"] = equal
    return row


def total(rows):
    """Every layer as often as its network has it."""
    names = (
        "rtl_cycles",
        "systemc_cycles",
        "predicted_cycles",
        "bound_cycles",
        "dram_read_bytes",
        "dram_write_bytes",
        "data_bytes",
        "compulsory_bytes",
        "vta_cycles",
        "vta_dram_bytes",
    )
    out = {
        name: sum(row[name] * row["times"] for row in rows)
        for name in names
        if all(row.get(name) is not None for row in rows)
    }
    if "vta_cycles" in out:
        out["cycles_ratio"] = ratio(out.get("rtl_cycles", out.get("systemc_cycles")), out["vta_cycles"])
        out["bytes_ratio"] = ratio(out["data_bytes"], out["vta_dram_bytes"])
    return out


def bench(names, device):
    """`names`: layers, or beginnings of their names. `device`: rtl (with the SystemC model beside it) or sysc alone."""
    import tessera

    devices = [name for name in ((device,) if device == "sysc" else (device, "sysc")) if name in tessera.backends()]
    if not devices or devices[0] != device:
        raise SystemExit(f"this build has no device '{device}'")
    shapes, figures = baseline()
    chosen = [name for name in shapes if not names or any(name.startswith(prefix) for prefix in names)]
    if not chosen:
        raise SystemExit(f"no layer is named like {', '.join(names)}; known: {', '.join(shapes)}")
    rows = []
    for name in chosen:
        rows.append(measure(name, shapes[name], devices, figures))
        print(f"{name}: done", file=sys.stderr)
    known = [row for row in rows if "vta_cycles" in row]
    cycles = {row["layer"]: row["rtl_cycles"] or row["systemc_cycles"] for row in known}
    result = {"layers": rows, "total": total(rows), "traffic_weight": TRAFFIC_WEIGHT}
    if figures:
        result |= {
            "more_cycles_than_vta": [row["layer"] for row in known if cycles[row["layer"]] >= row["vta_cycles"]],
            "more_bytes_than_vta": [row["layer"] for row in known if row["data_bytes"] >= row["vta_dram_bytes"]],
            "compulsory_bytes_above_vta": [
                row["layer"] for row in known if row["compulsory_bytes"] >= row["vta_dram_bytes"]
            ],
        }
    return result

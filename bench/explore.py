# SPDX-License-Identifier: Apache-2.0
"""`tessera explore` on a grid of more than two thousand machines that a part could hold, times three networks. Enters:
networks, workers. Leaves: machines and evaluations, seconds, the front with its cycles on the timing model beside the
prediction; machines a second on one worker, on two and on two of Dask, on a small part of the grid. With `chips` in
the place of networks: chips of several cores beside machines of one (examples/explore/chips.toml)."""

import pathlib
import sys
import tempfile
import time
import tomllib

import networks

ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = ["mobilenetv2", "vww", "ds_cnn"]
SPACE = {
    "name": "bench",
    "machine": {
        "block_in": [4, 8, 16, 32],
        "block_out": [4, 8, 16, 32],
        "inp_bytes": "16k..128k by 2x",
        "wgt_bytes": "32k..128k by 2x",
        "acc_bytes": "32k..128k by 2x",
        "second_lanes": "max(1, block_out / 4)",
        "axi_bytes": [4, 8, 16],
        "reads_in_flight": [8, 32],
    },
    "constraints": {"fits": "zynq7020"},
    "objectives": {"minimise": ["milliseconds", "lut"]},
}
PART = {
    "block_in": [8, 16],
    "block_out": [8, 16],
    "inp_bytes": "16k..128k by 2x",
    "wgt_bytes": "32k..128k by 2x",
    "acc_bytes": ["32k", "64k"],
    "axi_bytes": [4, 8],
}


def explored(content, names, workers, folder):
    """(Explorer, points, seconds) with an empty results file."""
    from tessera.exploration import explorer, results, space

    paths = []
    for name in names:
        paths.append(pathlib.Path(folder) / f"{name}.onnx")
        paths[-1].write_bytes(networks.build(name)[0])
    kept = results.Results(pathlib.Path(folder) / f"{time.monotonic_ns()}.db")
    found = explorer.Explorer(space.Space(content), explorer.networks_of(paths), kept, workers, quiet=False)
    start = time.monotonic()
    points = found.grid(screen=content["name"] == "bench")
    return found, points, time.monotonic() - start


def scaling(folder):
    """[{workers, seconds}] of the same units, each from nothing."""
    rows = []
    try:
        import distributed  # noqa: F401

        kinds = ["1", "2", "dask:1", "dask:2"]
    except ImportError:
        kinds = ["1", "2"]
        print("no package distributed: Dask is left out", file=sys.stderr)
    for kind in kinds:
        content = {**SPACE, "name": "part", "machine": PART}
        found, points, seconds = explored(content, ["vww"], kind, folder)
        found.close()
        rows.append({"workers": kind, "machines": len(points), "seconds": round(seconds, 2)})
    return rows


def chips(workers, folder):
    """One core or several for MLPerf Tiny's four networks in 60,000 look-up tables: the front, confirmed."""
    from tessera.exploration import report

    content = tomllib.loads((ROOT / "examples" / "explore" / "chips.toml").read_text())
    found, points, seconds = explored(content, ["resnet8", "vww", "ds_cnn", "autoencoder"], workers, folder)
    front = found.front(points)
    rows = report.rows(found, front, found.confirm(front, "sysc"))
    found.close()
    return {"machines": len(points), "seconds": round(seconds, 1), "front": rows}


def bench(names, workers="2"):
    from tessera.exploration import report

    if names == ["chips"]:
        with tempfile.TemporaryDirectory() as folder:
            return {"chips": chips(workers, folder)}

    with tempfile.TemporaryDirectory() as folder:
        found, points, seconds = explored(SPACE, names or NETWORKS, workers, folder)
        front = found.distinct(found.front(points), 0.01)
        print(f"{found.compiled} in {seconds:.0f} s", file=sys.stderr)
        confirmed = found.confirm(front, "sysc")
        found.close()
        rows = report.rows(found, front, confirmed)
        cycles = [report.cycles_of(counts) for counts in confirmed]
        return {
            "front": rows,
            "combinations": found.space.size,
            "machines": len(found.known) - sum(found.refused.values()),
            "kept": len(points),
            "spared": found.spared,
            "evaluations": dict(found.compiled),
            "workers": workers,
            "seconds": round(seconds, 1),
            "cpu_seconds": round(found.cpu_seconds, 1),
            "worst_error_of_prediction": max(
                round(abs(c / p.figures["cycles"] - 1), 4) for c, p in zip(cycles, front) if c
            ),
            "left_out": dict(found.refused),
            "scaling": scaling(folder),
        }

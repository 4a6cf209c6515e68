# SPDX-License-Identifier: Apache-2.0
"""What a worker does: predicts a network's cycles and bytes on some machines by compiling it for each, measures them on
a device, or says what they are at least. Networks come once, with the pool's shared bytes; a front end runs once a
worker and network."""

import os
import tempfile
import time
import tomllib

import _tessera

import tessera

from .results import compiler_digest

JUDGES = ("bound", "screen", "predict", "sysc", "rtl")
SCREEN = {"judge": "closed-form"}  # schedules chosen without replays: a tenth of the time, cycles some percent up
KEPT = 8  # front ends
COMPILER = compiler_digest()  # of this process, whatever is built meanwhile
OTHER_COMPILER = "other_compiler"  # code of an error
_models = {}


def front_end(name, data, shapes):
    if name not in _models:
        while len(_models) >= KEPT:
            del _models[next(iter(_models))]
        _models[name] = tessera.PredictedModel(data, shapes)
    return _models[name]


def predicted(model, toml, options):
    """Counts of a compiled network. Errors: tessera.Error."""
    info = model.predict(toml, **options)
    layers = [layer for layer in info["layers"] if layer["placement"] == "npu"] if "layers" in info else []
    return {
        "cycles": sum(layer["predicted_cycles"] for layer in layers),
        # The layers' bytes are those of LOAD and STORE; FETCH reads 64 bytes an instruction.
        "bytes": sum(layer["dram_read_bytes"] + layer["dram_write_bytes"] for layer in layers)
        + 64 * info["instructions"],
        "issued_macs": info["issued_macs"],
        "macs_cpu": info["macs_cpu"],
        "nodes_cpu": info["nodes_cpu"],
    }


def bound(model, toml, options):
    """Counts that no program is below. Cores share the work of one at best, and each has at most its own bus."""
    found, cores = model.bound(toml, **options), tomllib.loads(toml).get("cores", 1)
    return {**found, "cycles": -(-found["cycles"] // cores)}


def measured(data, shapes, toml, options, device):
    """Counts of a run of random inputs on a device with time; no cycle depends on the integers. Errors:
    tessera.Error."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "explored.toml")
        with open(path, "w") as file:
            file.write(toml)
        session = tessera.Session(data, device, path, profile=False, cpu_codegen=False, **options)
        random = np.random.default_rng(1)
        feeds = {}
        for port in session.get_inputs():
            kind = port.type[7:-1]
            shape = shapes.get(port.name) or [d if isinstance(d, int) else 1 for d in port.shape]
            values = random.random(shape, np.float32)
            feeds[port.name] = values if kind == "float" else (values * 100).astype(kind)
        session.run(None, feeds)
        stats = session.stats()
    return {
        "cycles": stats["cycles"],
        "bytes": stats["dram_read_bytes"] + stats["dram_write_bytes"],
        "issued_macs": stats["issued_macs"],
    }


def evaluate(payload, shared):
    """payload: {network (a name in shared), shapes {input: shape}, judge, compiler (a digest), machines: a list of
    (configuration text, options)}. Returns a list of counts with `cpu_seconds`, or {error, code} where a network does
    not compile for a machine."""
    name, data = payload["network"], shared[payload["network"]]
    shapes, judge = payload["shapes"], payload["judge"]
    if payload["compiler"] != COMPILER:
        return [{"error": "a worker has another compiler", "code": OTHER_COMPILER, "cpu_seconds": 0.0}]
    results = []
    for toml, options in payload["machines"]:
        start = time.process_time()
        try:
            if judge in ("sysc", "rtl"):
                found = measured(data, shapes, toml, options, judge)
            elif judge == "bound":
                found = bound(front_end(name, data, shapes), toml, options)
            else:
                chosen = {**options, **(SCREEN if judge == "screen" else {})}
                found = predicted(front_end(name, data, shapes), toml, chosen)
            if found["cycles"] < 1 and judge != "bound":
                found = {"error": "nothing of the network runs on the NPU", "code": "unsupported"}
        except _tessera.Error as refused:
            found = {"error": str(refused), "code": refused.code}
        results.append({**found, "cpu_seconds": round(time.process_time() - start, 4)})
    return results

# SPDX-License-Identifier: Apache-2.0
"""Models on the host alone, beside ONNX Runtime in the same run.

Both sides run in turns, so that a busy machine slows both. On one thread the time is that of the processor, which
other processes do not change; on all threads it is the clock's. A row's figure is the ratio of medians."""

import gc
import math
import pathlib
import statistics
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Float models: those of ../shared/models where it stands, else networks that networks.py builds.
PUBLIC = (
    "mnist-8",
    "mlperf_tiny_resnet8",
    "mlperf_tiny_vww_mobilenetv1_025",
    "mobilenetv2_035_128",
    "ultraface-RFB-320",
    "yunet_n_320_320",
    "super-resolution-10",
    "cct_cifar",
    "squeezenet_fp16",
    "yolox_nano",
    "vitTracker",
)
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


FOLDER = ROOT.parent / "shared" / "models"


def known():
    """Names that sources() takes."""
    import networks

    return sorted(path.stem for path in FOLDER.glob("*.onnx")) if FOLDER.exists() else list(networks.NETWORKS)


def sources(names):
    """(name, bytes of the model) of each."""
    if FOLDER.exists():
        for name in names or PUBLIC:
            yield name, (FOLDER / f"{name}.onnx").read_bytes()
        return
    import networks

    for name in names or networks.NETWORKS:
        yield name, networks.NETWORKS[name]().SerializeToString()


def feeds_of(session):
    """Seeded inputs of the shapes that an ONNX Runtime session takes; 1 for each dynamic dimension."""
    rng = np.random.default_rng(0)
    feeds = {}
    for port in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in port.shape]
        feeds[port.name] = rng.standard_normal(shape).astype(TYPES[port.type])
    return feeds


def medians(calls, clock, seconds):
    """Median time of each call in milliseconds; the calls take turns for about `seconds` in all. Before a turn, the
    threads of the other side get time to go to sleep, and one call that is not measured wakes one's own."""
    taken = [[] for _ in calls]
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(taken[0]) < 10:
        for call, times in zip(calls, taken):
            time.sleep(0.02)
            call()
            for _ in range(5):
                start = clock()
                call()
                times.append(1000 * (clock() - start))
    return [statistics.median(times) for times in taken]


def measure(name, data, seconds):
    import onnxruntime

    import tessera

    def reference(threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    feeds = feeds_of(reference(1))
    row = {"model": name}
    for label, threads, clock in (("one", 1, time.process_time), ("all", 0, time.perf_counter)):
        start = time.process_time()
        own = tessera.Session(data, use_npu=False, threads=threads, cpu_cache=False)
        results = own.run(None, feeds)
        compile_seconds = time.process_time() - start
        other = reference(threads)
        if label == "one":
            row["compile_seconds"] = round(compile_seconds, 2)
            error = 0.0
            for a, b in zip(results, other.run(None, feeds)):
                a, b = a.astype(np.float64), b.astype(np.float64)
                error = max(error, float(np.max(np.abs(a - b), initial=0) / max(np.max(np.abs(b), initial=0), 1e-30)))
            row["relative_error"] = f"{error:.1e}"
        calls = (lambda own=own: own.run(None, feeds), lambda other=other: other.run(None, feeds))
        mine, theirs = medians(calls, clock, seconds)
        row |= {
            f"{label}_ms": round(mine, 3),
            f"{label}_onnxruntime_ms": round(theirs, 3),
            f"{label}_ratio": round(mine / theirs, 2),
        }
        del own, other, calls
        gc.collect()
    return row


def bench(names, seconds=2.0):
    rows = [measure(name, data, seconds) for name, data in sources(names)]
    means = {
        f"geometric_mean_{label}": round(math.exp(statistics.fmean(math.log(r[f"{label}_ratio"]) for r in rows)), 2)
        for label in ("one", "all")
    }
    return {"cpu": rows} | means

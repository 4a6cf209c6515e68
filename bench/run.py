# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: `./dev bench NAME [--json]`.

functional  GEMM rate of the functional simulator on one core, and its ratio to the portable kernels in the same run
compile     time and peak memory of compiling MobileNetV2 (each in a process of its own)
systemc     the timing model against the RTL on networks: cycles, errors, speed (ten minutes: the RTL is slow)
layers      single convolutions on the RTL beside VTA's published cycles and bytes; --device sysc: on the timing model
            alone
networks    the benchmark networks on the RTL, the timing model and the functional simulator: exactness, cycles beside
            the roofline bound and the compiler's prediction, DRAM bytes; --device sysc leaves the RTL out; --config
            takes another machine
vthreads    how much of the time the array works with and without copies of operands to fetch ahead (timing model)
silicon     inferences a second at the estimated clock, per thousand look-up tables and per DSP slice, and energy as an
            estimate, from the recorded area and delay; work per look-up table beside VTA's
quantize    float networks quantised by ONNX Runtime's defaults and by `tessera quantize`: accuracy or agreement with
            float, share of the products on the NPU, cycles (timing model); --config takes another machine
tune        default beside tuned schedules: cycles of networks and of each layer by closed form, replay and timing
            model, trials a second (docs/tuning.md)
learned     the learned cost model beside the closed form and chance, on layers and machines that it has not seen
            (docs/tuning.md; needs requirements-tune.txt)
chains      cycles, bytes and memory with tensors that stay on chip between layers and without (timing model)
transformers  whole transformers on npu256 with row lanes, normalisations in integers (`--numerics close`): cycles, the
            bound, share of peak, what is left to the CPU; the timing model unless --device rtl; --config
decoding    a step of decoding beside the time in which weights and cache are read once (timing model)
cores       networks on one core and on chips of several: cycles, the share of one core's; --config takes another chip,
            --device rtl its RTL; pairs of networks at once on one chip
stream      Stream's example of several cores beside a chip: cycles and bytes (bench/stream_dse.py; TESSERA_STREAM)
products    products of few rows, as decoding has them, beside the roofline bound; --device sysc, --config
kernels     the kernels of examples/kernels beside their products alone, the compiler's operators and the host (timing
            model, docs/tile.md); --config
explore     machines of a grid times networks: evaluations and seconds, the front confirmed by the timing model, workers
            (`explore chips`: chips of several cores in 60,000 look-up tables)
scale       what a unit of work costs beside the work, on processes and on Dask, and a simulation of many workers
serve       models by REST and gRPC, and remote devices, beside the session in the process, at 1, 8 and 50 clients; an
            urgent model under the load of another one on a chip
report      the page of a report in Chromium: its size, the time until it can be used, the time of a frame
apps        programs that people install, unchanged, in float and in int8: answers, cycles, seconds (examples/apps)
torch       architectures of torchvision, timm and transformers: exported, quantised, compiled, beside ONNX Runtime on
            the exported files (needs requirements-torch.txt; docs/torch_architectures.md)
litex       networks on the simulated system of the ULX3S (hw/litex) beside the timing model; --config takes another
            machine (needs ./dev setup --extras litex)
sources     lines by room, long files, complex functions, circles, repeated blocks: now and at revisions that are named
cpu         float models on the host alone beside ONNX Runtime in the same run, on one thread and on all
"""

import argparse
import importlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def functional(build):
    done = subprocess.run([str(build / "bin" / "bench_functional")], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


# Beside every network on npu256: wider machines on the networks they are meant for.
WIDER = (("mobilenetv2", "npu256w"), ("resnet50", "npu1024"))


def networks_bench(build, names, config, device):
    import networks
    import numpy as np

    import tessera
    from tests.oracle import oracle

    pairs = [(name, config or "npu256") for name in names or networks.NETWORKS] + (
        [] if config or names else list(WIDER)
    )
    rows, expected = [], {}
    for name, machine in pairs:
        data, feeds = networks.build(name)
        if name not in expected:
            expected[name] = list(oracle.run(data, feeds, intermediates=False).outputs.values())
        session = tessera.Session(data, "fsim", machine)
        equal = all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected[name]))
        stats = session.stats()
        cycles = {"rtl": None, "sysc": None}
        for one in ["sysc"] if device == "sysc" else ["rtl", "sysc"]:
            if one not in tessera.backends():
                continue
            timed = tessera.Session(data, one, machine, profile=False)
            equal = all(np.array_equal(a, b) for a, b in zip(timed.run(None, feeds), expected[name])) and equal
            cycles[one], utilization = timed.stats().cycles, timed.stats().utilization
        measured = cycles["rtl"] or cycles["sysc"]
        rows.append(
            {
                "network": name,
                "config": machine,
                "rtl_cycles": cycles["rtl"],
                "systemc_cycles": cycles["sysc"],
                "predicted_cycles": stats.predicted_cycles,
                "bound_cycles": stats.roofline_cycles,
                "times_bound": round(measured / stats.roofline_cycles, 3)
                if measured and stats.roofline_cycles
                else None,
                "prediction_error_percent": round(100 * (stats.predicted_cycles / measured - 1), 1)
                if measured
                else None,
                "utilization": round(utilization, 3) if measured else None,
                "dram_bytes": stats.dram_read_bytes + stats.dram_write_bytes,
                "instructions": stats.instructions,
                "macs": stats.macs,
                "issued_macs": stats.issued_macs,
                "macs_cpu": stats.macs_cpu,
                "nodes_npu": stats.nodes_npu,
                "nodes_cpu": stats.nodes_cpu,
                "cpu_milliseconds": round(
                    1000 * sum(layer["seconds"] for layer in stats.layers if layer["placement"] == "cpu"), 2
                ),
                "equal_to_oracle": equal,
                "functional_seconds": round(stats.seconds, 3),
            }
        )
        print(f"{name} on {machine}: done", file=sys.stderr)
    return {"networks": rows}


def option_bench(option, names, config):
    """Rows of each network without an option of the compiler and with it, on the timing model."""
    import networks

    import tessera

    rows = []
    for name in names:
        data, feeds = networks.build(name)
        for value in (False, True):
            session = tessera.Session(data, "sysc", config or "npu256", **{option: value})
            session.run(None, feeds)
            stats = session.stats()
            rows.append(
                {
                    "network": name,
                    "config": config or "npu256",
                    option: value,
                    "systemc_cycles": stats.cycles,
                    "utilization": round(stats.utilization, 3),
                    "compute_percent": round(100 * stats.cycles_compute / stats.cycles, 1),
                    "dram_bytes": stats.dram_read_bytes + stats.dram_write_bytes,
                    "arena_bytes": stats.arena_bytes,
                    "instructions": stats.instructions,
                }
            )
    return rows


def table(rows):
    keys = list(dict.fromkeys(key for row in rows for key in row))
    widths = [max(len(k), *(len(str(r.get(k, ""))) for r in rows)) for k in keys]
    lines = ["  ".join(k.rjust(w) for k, w in zip(keys, widths))]
    return "\n".join(lines + ["  ".join(str(r.get(k, "")).rjust(w) for k, w in zip(keys, widths)) for r in rows])


def known_names(benchmark):
    """What a benchmark may be asked for by name; None of one that knows beginnings of names."""
    import networks

    if benchmark in ("functional", "scale", "serve", "stream"):
        return []
    if benchmark in ("layers", "sources"):
        return None
    if benchmark == "decoding":
        import decoding

        return [*decoding.SHAPES, decoding.TRAINED]
    if benchmark == "kernels":
        import kernels

        return sorted({row[0] for row in kernels.KERNELS.values()})
    if benchmark == "products":
        import products

        return list(products.SHAPES)
    if benchmark == "quantize":
        import quantize

        return list(quantize.networks())
    if benchmark == "cpu":
        import cpu

        return cpu.known()
    if benchmark == "torch":
        import torch_models

        return list(torch_models.ARCHITECTURES)
    if benchmark == "apps":
        import apps

        return list(apps.APPS)
    if benchmark in ("transformers", "tune", "cores"):
        import transformers

        known = [*(() if benchmark == "transformers" else networks.NETWORKS), *transformers.TRANSFORMERS]
        if benchmark == "cores":
            import cores

            known += cores.DECODERS
        return known
    return [
        *networks.NETWORKS,
        *{"systemc": ["digits"], "litex": ["digits"], "report": ["large graph"], "explore": ["chips"]}.get(
            benchmark, ()
        ),
    ]


def check_words(options):
    """Ends with one line where a name or a machine is not known, before a benchmark has run for an hour."""
    import _tessera

    known = known_names(options.name)
    for name in options.networks if known is not None else ():
        if options.name == "compile" and pathlib.Path(name).is_file():
            continue
        if name not in known:
            takes = "it takes " + ", ".join(f"'{one}'" for one in known) if known else "it takes no names"
            file = "; --json prints, and takes no file" if options.json else ""
            raise SystemExit(f"bench {options.name}: there is no '{name}'; {takes}{file}")
    if options.name == "silicon":
        return  # which has machines of its own: those whose area is recorded
    shipped = _tessera.shipped_configs()
    if options.config and options.config not in shipped and not pathlib.Path(options.config).is_file():
        raise SystemExit(
            f"bench {options.name}: there is no machine '{options.config}'; shipped are {', '.join(shipped)}, or give "
            "a .toml file"
        )


def of(module, *given, device="rtl"):
    """A benchmark that stands in a module of this folder: its `bench` takes what `given` names, in this order."""

    def run(options, build):
        values = {
            "build": build,
            "networks": options.networks,
            "config": options.config,
            "device": options.device or device,
        }
        return importlib.import_module(module).bench(*(values[name] for name in given))

    return run


def of_option(key, option, *names):
    """What an option of the compiler is worth, on these networks unless others are given."""
    return lambda options, build: {key: option_bench(option, options.networks or list(names), options.config)}


# Name -> (options, build folder) -> a result that JSON can hold.
BENCHES = {
    "functional": lambda options, build: functional(build),
    "compile": of("compile_time", "build", "networks", "config"),
    "layers": of("layers", "networks", "device"),
    "networks": lambda options, build: networks_bench(build, options.networks, options.config, options.device or "rtl"),
    "quantize": of("quantize", "networks", "config"),
    "systemc": of("systemc", "build", "networks"),
    "tune": of("tune", "networks", "config"),
    "learned": of("learned", "networks", "config"),
    "vthreads": of_option("vthreads", "virtual_threads", "resnet18"),
    "chains": of_option("chains", "chains", "mobilenetv2", "vww", "resnet18"),
    "silicon": lambda options, build: importlib.import_module("silicon").bench(
        options.networks, options.config or "npu256", options.device or "rtl"
    ),
    "cpu": of("cpu", "networks"),
    "sources": of("sources", "networks"),
    "explore": of("explore", "networks"),
    "scale": of("scale"),
    "cores": of("cores", "networks", "config", "device", device="sysc"),
    "stream": of("stream_dse", "device", device="sysc"),
    "products": of("products", "networks", "config", "device"),
    "kernels": of("kernels", "networks", "config"),
    "report": of("report", "build", "networks"),
    "transformers": of("transformers", "networks", "config", "device", device="sysc"),
    "decoding": of("decoding", "networks", "config", "device", device="sysc"),
    "serve": of("serve", "build"),
    "apps": of("apps", "networks", "config", "build"),
    "torch": of("architectures", "networks", "config", "build"),
    "litex": lambda options, build: importlib.import_module("litex").measure(build, options.networks, options.config),
}


def show(result):
    """The first list as a table, and the rest under it."""
    rows = next((v for v in result.values() if isinstance(v, list)), None)
    print(table(rows) if rows else json.dumps(result, indent=2))
    for key, value in result.items():
        if value is not rows and rows:
            listed = isinstance(value, list) and value and isinstance(value[0], dict)
            print(f"\n{key}\n{table(value)}" if listed else f"{key}: {json.dumps(value)}")


def main():
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=list(BENCHES))
    parser.add_argument("networks", nargs="*", help="networks (or layers) to take; all by default")
    parser.add_argument(
        "--device",
        choices=["rtl", "sysc"],
        help="of layers, networks, silicon and transformers: where cycles are measured; sysc: on the timing model "
        "alone, the default of transformers; rtl: the default of the others",
    )
    parser.add_argument("--config", help="of networks and vthreads: the machine (npu64, npu256, npu256t, npu1024, ...)")

    parser.add_argument("--build", default="build/release")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_intermixed_args()
    build = (ROOT / options.build).resolve()
    for path in (ROOT, ROOT / "bench", ROOT / "tessera" / "python", build / "lib"):
        sys.path.insert(0, str(path))
    check_words(options)
    result = BENCHES[options.name](options, build)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()

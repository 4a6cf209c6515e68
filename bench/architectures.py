# SPDX-License-Identifier: Apache-2.0
"""`./dev bench torch`: architectures of torchvision, timm and transformers (torch_models.py) through tessera.torch.
Each is exported, run in float and compared with ONNX Runtime on the exported file, quantised with random data,
compiled, run, and compared with ONNX Runtime on the quantised file, element by element. One process each, with a limit
of time and memory, so that one that fails takes no other with it. In: names, or none for all. Out: a row each; the rows
are kept in build/torch_architectures.json, and docs/torch_architectures.md is written when all are there."""

import argparse
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "torch_architectures.md"
SECONDS = 900  # of one architecture
MEMORY = 16 << 30  # bytes of data of one process; a session reserves 4 GiB as the device's memory
SAMPLES = 2
FLOAT_TOLERANCE = 1e-3  # of the largest value of an output, for float
ROUNDING = 1e-6  # the same, for the float operators behind the integers
STAGES = ("making", "PyTorch", "exporting", "float", "quantising", "compiling int8", "int8")


# --- in the process of one architecture -------------------------------------------------------------------------------


def distance(ours, theirs):
    """The largest difference of two lists of arrays, as a share of the largest value of each."""
    import numpy as np

    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.size == 0 or np.array_equal(a, b):
            continue
        if a.dtype.kind in "biu":
            return float("inf")
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        worst = max(
            worst, float(np.max(np.abs(a - b)[finite], initial=0) / (np.max(np.abs(b[finite]), initial=0) or 1))
        )
    return worst


def share_equal(ours, theirs):
    """The share of elements that are equal, those of float up to the rounding of the operators behind the integers."""
    import numpy as np

    equal = total = 0
    for a, b in zip(ours, theirs, strict=True):
        total += b.size
        if a.shape == b.shape and b.size:
            most = np.max(np.abs(b[np.isfinite(b)]), initial=0) if b.dtype.kind == "f" else 0
            equal += int(np.sum(np.isclose(a, b, rtol=0, atol=ROUNDING * most, equal_nan=True) if most else a == b))
    return equal / total if total else 1.0


class Work:
    """One architecture. `row` fills as the work goes on, and is printed when it ends."""

    def __init__(self, name, config):
        self.name, self.config, self.row = name, config, {"architecture": name}

    def at(self, stage):
        self.row["failed_at"] = stage
        sys.stdout.write(json.dumps(self.row) + "\n")
        sys.stdout.flush()
        self.began = time.monotonic()

    def took(self, what):
        self.row.setdefault("seconds", {})[what] = round(time.monotonic() - self.began, 1)

    def run(self):
        import torch

        import tessera
        import tessera.torch
        from bench import torch_models
        from tessera.torch import export
        from tests.oracle import oracle

        self.at("making")
        module, arguments, named = torch_models.make(self.name)
        self.at("PyTorch")
        with torch.no_grad():
            expected = module(*arguments, **named)
        self.at("exporting")
        exported = export.export(module, arguments, named)
        flat = export.leaves(exported, None, arguments, named)
        self.took("export")
        self.row["notice"] = exported.notice
        model = exported.program.model_proto.SerializeToString()
        feeds = {p.name: v.numpy() for p, v in zip(exported.inputs, flat) if p.name is not None}
        self.at("float")
        theirs = list(oracle.run_plain(model, feeds, oracle.ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED).values())
        session = tessera.Session(model, "fsim", self.config)
        self.row["float_difference"] = distance(session.run(None, feeds), theirs)
        del session
        leaves = [v for v in torch.utils._pytree.tree_leaves(expected) if isinstance(v, torch.Tensor)]
        numpy = [v.numpy() for v in leaves if v.dtype != torch.bfloat16]
        self.row["pytorch_difference"] = distance(theirs, numpy) if len(theirs) == len(numpy) else None
        self.took("float")
        self.at("quantising")
        made = tessera.quantize(model, torch_models.samples(feeds, SAMPLES), engine="onnxruntime", config=self.config)
        self.row["npu_share"] = made.macs_npu_share
        self.took("quantise")
        self.int8(made.model.SerializeToString(), feeds)
        del self.row["failed_at"]

    def int8(self, model, feeds):
        import tessera
        from tests.oracle import oracle

        self.at("compiling int8")
        session = tessera.Session(model, "fsim", self.config)
        ours = session.run(None, feeds)
        stats = session.stats()
        self.row.update(cycles=stats.predicted_cycles, macs=stats.macs, macs_cpu=stats.macs_cpu)
        self.took("compile and run")
        self.at("int8")
        theirs = list(oracle.run(model, feeds, intermediates=False).outputs.values())
        if share_equal(ours, theirs) < 1:
            # Its optimiser may move a quantisation across a reshape onto an output that the model leaves in float.
            plain = list(oracle.run_plain(model, feeds).values())
            if share_equal(ours, plain) == 1:
                theirs, self.row["unoptimised"] = plain, True
        self.row["int8_equal"] = share_equal(ours, theirs)
        self.row["int8_difference"] = distance(ours, theirs)
        if self.row["int8_equal"] < 1:
            self.row["interpreter_equal"] = share_equal(ours, tessera.Session(model, "reference").run(None, feeds))


def one(name, config):
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    import logging
    import warnings

    import torch

    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    work = Work(name, config)
    try:
        work.run()
    except Exception as e:
        if os.environ.get("TESSERA_DEBUG"):
            raise
        text = str(e).strip().splitlines()
        work.row["reason"] = f"{type(e).__name__}: {text[0][:300] if text else ''}".removeprefix("Error: ")
    print(json.dumps(work.row), flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def serve(names, config):
    """Prints the row of each architecture. The libraries, which take long to load, are loaded once: each architecture
    has a process that is forked from this one."""
    import onnxruntime  # noqa: F401
    import timm  # noqa: F401
    import torch
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    import tessera.torch  # noqa: F401

    torch.set_num_threads(1)
    for name in names:
        print(json.dumps(row_of(name, config)), flush=True)


def row_of(name, config):
    """The row of one architecture, from a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.close(reading)
        one(name, config)
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    output, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end and select.select([reading], [], [], end - time.monotonic())[0]:
        more = os.read(reading, 1 << 16)
        if not more:
            break
        output += more
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    rows = [line for line in output.decode().splitlines() if line.startswith("{")]
    row = json.loads(rows[-1]) if rows else {"architecture": name, "failed_at": "making"}
    if status == -signal.SIGKILL:
        row.setdefault("reason", f"it took more than {SECONDS} seconds, or more memory than there is")
    elif status:
        row.setdefault("reason", f"the process ended with {status}")
    return row


def rows_of(names, config, build):
    """The rows, as they come, of a process that has the libraries."""
    paths = [ROOT, ROOT / "tessera" / "python", build / "lib"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths), "OMP_NUM_THREADS": "1", "TESSERA_CACHE": "off",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    command = [sys.executable, pathlib.Path(__file__), *names, "--config", config]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise SystemExit("bench torch: the libraries cannot be loaded; ./dev setup --extras torch installs them")


def passed(row):
    """Whether an architecture went through whole."""
    return "failed_at" not in row and row["float_difference"] <= FLOAT_TOLERANCE and row["int8_equal"] == 1.0


def bench(names, config, build):
    import torch_models

    config = config or "npu256"
    kept = build.parent / "torch_architectures.json"
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for row in rows_of(names or list(torch_models.ARCHITECTURES), config, build):
        name = row["architecture"]
        rows[name] = row | {"config": config}
        print(f"{name}: {'equal' if passed(row) else row.get('reason', 'not equal')}", file=sys.stderr, flush=True)
        kept.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    known = [rows[name] for name in torch_models.ARCHITECTURES if name in rows]
    if len(known) == len(torch_models.ARCHITECTURES):
        PAGE.write_text(page(known), encoding="utf-8")
    shown = [rows[name] for name in names or torch_models.ARCHITECTURES]
    return {"architectures": [flat(row) for row in shown], "passed": sum(map(passed, shown))}


def flat(row):
    """A row as a table has it."""
    seconds = row.get("seconds", {})
    made = "failed_at" not in row
    return {
        "architecture": row["architecture"],
        "float": figure(row.get("float_difference")),
        "int8 equal": percent(row["int8_equal"]) if made else "",
        "on the NPU": percent(row["npu_share"]) if "npu_share" in row else "",
        "cycles": f"{row['cycles']:,}" if row.get("cycles") else "",
        "export s": seconds.get("export", ""),
        "quantise s": seconds.get("quantise", ""),
        "compile, run s": seconds.get("compile and run", ""),
        "reason": reason(row),
    }


def figure(value):
    return "" if value is None else "0" if value == 0 else f"{value:.0e}"


def percent(value):
    """Never rounded up to 100 %."""
    text = f"{100 * value:.2f}".rstrip("0").rstrip(".")
    return "100 %" if value == 1 else f"{min(float(text), 99.99):g} %"


def reason(row):
    if "failed_at" in row:
        return without_markup(f"{row['failed_at']}: {row.get('reason', '')}")
    notes = [row["notice"]] if row.get("notice") else []
    if row.get("unoptimised"):
        notes.append("int8 equals ONNX Runtime without its optimiser, which quantises a float output")
    if (row.get("pytorch_difference") or 0) > FLOAT_TOLERANCE:
        notes.append("ONNX Runtime on the exported file gives other results than PyTorch")
    if row["float_difference"] > FLOAT_TOLERANCE:
        notes.append(f"float differs by {row['float_difference']:.1g} of the largest value")
    if row["int8_equal"] < 1:
        same = row.get("interpreter_equal")
        notes.append(
            f"int8 differs by {row['int8_difference']:.1g} of the largest value"
            + ("; every element equals the reference interpreter's" if same == 1 else "")
        )
    return without_markup(", ".join(notes))


def without_markup(text):
    """What a cell of a table of Markdown can hold."""
    return text.translate({ord("|"): "/", ord("<"): "&lt;", ord(">"): "&gt;"})


def page(rows):
    """docs/torch_architectures.md."""
    columns = list(flat(rows[0]))
    lines = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        "<!-- Written by ./dev bench torch -->",
        "# Architectures of PyTorch",
        "",
        f"`./dev bench torch` wrote this page: {len(rows)} architectures of torchvision, timm and transformers in",
        f"small configurations with random weights, of which {sum(map(passed, rows))} went through whole. Each was",
        "exported (`tessera.torch`), run in float, quantised with random data, compiled for one machine and run. The",
        "columns:",
        "",
        "- **float**: the largest difference from ONNX Runtime on the exported file, over the output's largest value.",
        "- **int8 equal**: the share of elements of the outputs that equal ONNX Runtime's on the quantised file. Where",
        "  float operators stand behind the last integers, equal means within their rounding,",
        f"  {ROUNDING:g} of the largest value. Where they stand between integers, such as a softmax on a machine",
        "  without row lanes, a rounding of theirs may move an integer by a step.",
        "- **on the NPU**: the share of products (multiplications) that run there.",
        "- **cycles**: as the compiler predicts them.",
        "- **seconds**: on a machine that did other work beside it.",
        "",
        f"Machine: `{rows[0].get('config', 'npu256')}`.",
        "",
        "| " + " | ".join(columns) + " |",
        "| " + " | ".join("---" for _ in columns) + " |",
        *("| " + " | ".join(str(value) for value in flat(row).values()) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.pop(0)  # this folder has a transformers.py of its own
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--config", default="npu256")
    given = parser.parse_args()
    serve(given.names, given.config)

# SPDX-License-Identifier: Apache-2.0
"""The command line of `tessera kernel`."""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import traceback

import numpy as np

import tessera

from ..errors import require_place
from ..shapes import shapes_of
from .checking import array_of, check
from .errors import KernelError
from .kernel import Kernel
from .models import embedding
from .operators import Operator
from .searching import tune


def arguments(words):
    parser = argparse.ArgumentParser(
        prog="tessera kernel",
        description="Kernels that a Python file has (tessera.tile): run one on a random case, check it against its "
        "reference, or show where its cycles go, line by line.",
        epilog="Example: tessera kernel profile examples/kernels/attention.py --config npu256t",
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="run | check | profile | listing | tune | embed"
    )
    for name, text in (
        ("run", "one case, its outputs to a file"),
        ("check", "random cases on all devices"),
        ("profile", "cycles by line of the source"),
        ("listing", "the instructions by line of the source"),
        ("tune", "the fastest of given parameters"),
    ):
        one = actions.add_parser(name, help=text, description=text)
        one.add_argument("file", help="FILE.py, or FILE.py:KERNEL where it has several")
        one.add_argument("--config", default="npu256", help="machine: a name or a .toml file (npu256)")
        one.add_argument("--seed", type=int, default=0, help="of the random cases (0)")
        if name == "check":
            one.add_argument("--cases", type=int, default=100, help="random cases (100)")
        if name in ("run", "profile"):
            one.add_argument("--device", default="sysc", help="where it runs (sysc)")
        if name == "tune":
            text = "values to try; may be repeated"
            one.add_argument("--set", action="append", default=[], metavar="PARAMETER=V,V,...", help=text)
            one.add_argument("--judge", default="sysc", help="who measures: sysc, rtl or predicted (sysc)")
            one.add_argument("--trials", type=int, default=100, help="of an operator: schedules to measure (100)")
            one.add_argument("--db", help="of an operator: database of schedules, for --tuned (none)")
        if name == "run":
            one.add_argument("--output", help="file for the outputs (.npz)")
        if name == "profile":
            one.add_argument("--json", action="store_true", help="the statistics as JSON")
            one.add_argument("--html", help="page of the report to write")
    one = actions.add_parser("embed", help="kernels that a file registers, into a model")
    one.add_argument("file", help="FILE.py, which calls tile.register")
    one.add_argument("model", help="ONNX file")
    one.add_argument("-o", "--output", required=True, help="ONNX file to write, which every command takes")
    one.add_argument("--config", default="npu256", help="machine: a name or a .toml file (npu256)")
    one.add_argument("--shape", action="append", default=[], help="NAME=D0,D1,...: shape of an input")
    return parser.parse_args(words)


def module_of(path):
    """The module of a Python file. Errors: KernelError."""
    file = pathlib.Path(path)
    if not file.is_file():
        raise KernelError(f"{path}: there is no such file")
    if file.suffix != ".py":
        raise KernelError(f"{path}: kernels stand in a file of Python (.py)")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise KernelError(f"{path}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    return module


def kernels_of(text):
    """The kernels of FILE.py, or the one that FILE.py:NAME names. Errors: KernelError."""
    path, _, name = text.partition(":") if ".py:" in text else (text, "", "")
    found = {key: one for key, one in vars(module_of(path)).items() if isinstance(one, Kernel | Operator)}
    if name and name not in found:
        raise KernelError(f"{path} has no kernel '{name}'; it has {', '.join(found) or 'none'}")
    if not found:
        raise KernelError(f"{path} has no kernel; @tile.kernel or @tile.operator makes one of a function")
    return [found[name]] if name else list(found.values())


def space_of(texts):
    """{parameter: values} of texts PARAMETER=V,V,... Errors: KernelError."""
    space = {}
    for text in texts:
        name, _, values = text.partition("=")
        try:
            space[name] = [float(one) if "." in one else int(one) for one in values.split(",")]
        except ValueError:
            raise KernelError(f"--set takes PARAMETER=V,V,... with numbers, got '{text}'") from None
    return space


def drawn_of(kernel, given):
    """Tensors and parameters of the seed's first case, and its generator."""
    if kernel.draw is None:
        raise KernelError(f"kernel '{kernel.__name__}' has no cases; decorate a function with @{kernel.__name__}.cases")
    rng = np.random.default_rng([given.seed, 0])
    drawn = kernel.draw(rng)
    drawn = list(drawn) if isinstance(drawn, list | tuple) else [drawn]
    parameters = drawn.pop() if isinstance(drawn[-1], dict) else {}
    return drawn, parameters, rng


def case_of(kernel, given):
    """The Program of the seed's first case, and what it is fed."""
    drawn, parameters, rng = drawn_of(kernel, given)
    program = kernel.build(*drawn, config=given.config, **parameters)
    return program, kernel.feeds(drawn, [array_of(one, rng) for one in drawn])


def table(stats):
    """A line for each line of the source: cycles, what they were for, bytes of DRAM."""
    heads = ("line", "what", "cycles", "compute", "vector", "load", "store", "waits", "DRAM bytes")
    rows = [heads]
    for layer in stats["layers"]:
        columns = ("cycles", "cycles_compute", "cycles_alu", "cycles_load", "cycles_store", "cycles_sync")
        moved = layer["dram_read_bytes"] + layer["dram_write_bytes"]
        rows.append((layer["name"], layer["op"], *(f"{layer[one]:,}" for one in columns), f"{moved:,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = []
    for row in rows:
        left = [f"{word:<{width}}" for word, width in zip(row[:2], widths[:2], strict=True)]
        right = [f"{word:>{width}}" for word, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(left + right).rstrip())
    return "\n".join(lines)


def run(kernel, given):
    program, feeds = case_of(kernel, given)
    session = program.session(given.device)
    found = session.run(None, feeds)
    cycles = session.stats()["cycles"]
    shown = ", ".join(f"{t.name} {t.dtype.name}{list(t.shape)}" for t in program.outputs)
    print(f"{kernel.__name__}: {shown}" + (f", {cycles:,} cycles" if cycles is not None else ""))
    if given.output:
        np.savez(given.output, **{t.name: one for t, one in zip(program.outputs, found, strict=True)})


def tuned(kernel, given):
    """The best of given parameters; without these, of an operator, the best schedules of its layers."""
    drawn, parameters, _ = drawn_of(kernel, given)
    space = space_of(given.set)
    if space:
        fixed = {name: value for name, value in parameters.items() if name not in space}
        return tune(kernel, drawn, space, config=given.config, judge=given.judge, **fixed)
    if not isinstance(kernel, Operator):
        raise KernelError(f"kernel '{kernel.__name__}': --set says which values to try")
    program = kernel.build(*drawn, config=given.config, **parameters)
    outcome = program.tune(trials=given.trials, judge=given.judge, database=given.db)
    return f"{outcome.cycles:,} cycles, and {outcome.default_cycles:,} without tuning ({outcome.trials} trials)"


def profile(kernel, given):
    program, feeds = case_of(kernel, given)
    session = program.session(given.device)
    session.run(None, feeds)
    stats = session.stats()
    if stats["cycles"] is None:
        raise KernelError(f"device {given.device} has no time; profile on sysc or rtl")
    if given.html:
        session.report(given.html)
    if given.json:
        print(json.dumps(stats))
        return
    print(f"{kernel.__name__} on {given.config}: {stats['cycles']:,} cycles, bound {stats['roofline_cycles']:,}")
    print(table(stats))


def embed_in(given):
    module_of(given.file)
    embedder = embedding().Embedder(given.model, given.config, shapes_of(given.shape))
    made = embedder.run()
    if embedder.count == 0:
        raise KernelError(f"{given.model} has no node of an operator that {given.file} registers")
    pathlib.Path(given.output).write_bytes(made.SerializeToString())
    print(f"{given.output}: {embedder.count} nodes are kernels for {given.config}")


def act(given):
    for name in ("output", "html"):
        if path := getattr(given, name, None):
            require_place(path)
    if given.action == "embed":
        embed_in(given)
        return
    for kernel in kernels_of(given.file):
        if given.action == "run":
            run(kernel, given)
        elif given.action == "check":
            print(f"{kernel.__name__}: {check(kernel, cases=given.cases, config=given.config, seed=given.seed)}")
        elif given.action == "tune":
            print(f"{kernel.__name__}: {tuned(kernel, given)}")
        elif given.action == "profile":
            profile(kernel, given)
        else:
            print(case_of(kernel, given)[0].listing())


def line_of(error, text):
    """The innermost line of FILE.py that an exception came through, as "FILE.py:12"; None where it did not."""
    file = os.path.abspath(text.partition(":")[0] if ".py:" in text else text)
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if os.path.abspath(frame.f_code.co_filename) == file
    ]
    return f"{os.path.basename(file)}:{lines[-1]}" if lines else None


def main(words=None):
    given = arguments(words)
    try:
        act(given)
    except (tessera.Error, OSError) as error:
        print(f"tessera: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tessera: ended", file=sys.stderr)
        return 130
    except Exception as error:
        place = line_of(error, given.file)
        if place is None:
            raise
        print(f"tessera: {place}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0

# SPDX-License-Identifier: Apache-2.0
"""The command `tessera quantize`, which the command `tessera` starts. Progress and notes go to standard error, the
table to standard output, and an error is one line, as the other commands write it."""

import argparse
import json
import sys
import traceback
import warnings

import _tessera

from ..errors import require_place
from ..shapes import shapes_of
from .deciding import LEAST_DECIBELS
from .engines import ENGINES, METHODS
from .errors import argument
from .steps import as_error

LONGEST = 40


def parser():
    made = argparse.ArgumentParser(
        prog="tessera quantize",
        description="quantise a float ONNX model for the NPU (docs/quantize.md)",
        epilog="Example: tessera quantize model.onnx --calibrate images.npz -o model_int8.onnx",
    )
    add = made.add_argument
    add("model", help="float ONNX model")
    add("--calibrate", metavar="DATA", help=".npz file, folder of pictures or .pb tensors, or `random`")
    add("-o", "--output", metavar="FILE", help="quantised model to write; default MODEL_int8.onnx")
    add("--engine", choices=ENGINES, default="", help="library that calibrates; default nncf")
    add("--method", choices=METHODS, default="minmax", help="how ranges are chosen; entropy, percentile: onnxruntime")
    add("--fast-bias", action="store_true", help="the faster bias correction (engine nncf)")
    add("--config", default="npu256", help="machine that decides what runs on the NPU; default npu256")
    add("--numerics", choices=("exact", "close"), default="exact", help="as of `tessera run`; default exact")
    add("--preprocess", default="", metavar="HOW", help="imagenet, unit, raw or a TOML file, for pictures")
    add("--samples", type=int, default=300, help="use at most so many samples; default 300")
    add("--seed", type=int, default=0, help="of `--calibrate random`")
    add("--shape", action="append", default=[], metavar="NAME=D0,D1,...", help="shape of a dynamic input")
    add("--power-of-two", action="store_true", help="all scales are powers of two")
    add("--per-tensor", action="store_true", help="one scale for the weights of a layer, not one a channel")
    add("--weights", choices=("int8", "int4"), default="int8", help="int4: for a machine with packed_weights")
    add("--group", type=int, metavar="N", help="weights along a sum that share a scale of int4; default its block_in")
    add(
        "--mixed",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the weights of int4 that may keep 8 bits; default 0",
    )
    add("--keep-float", action="append", default=[], metavar="N|LAYER", help="layers that stay float; repeatable")
    add(
        "--least-snr",
        type=float,
        metavar="DB",
        help="keep layers that decide in float where outputs are farther from float; "
        f"default {LEAST_DECIBELS:.0f}, with --bytes none",
    )
    add(
        "--sixteen",
        type=float,
        metavar="SHARE",
        help="at most this share of the products is computed in 16 bits where outputs are not near float's; default "
        "0.1, more in small networks and where outputs are far; 0: none",
    )
    add("--labels", metavar="FILE", help="a label for each sample: .npy, .npz or text; accuracy is then measured")
    add("--test", metavar="DATA", help="data that accuracy is measured on; default the calibration data")
    add(
        "--max-drop", type=float, metavar="X", help="keep layers float until accuracy drops by at most X (0.01: one %%)"
    )
    add("--bytes", action="append", default=[], metavar="PATTERN", help="inputs and outputs that are uint8; repeatable")
    add("--report", metavar="FILE", help="measure every layer: table on standard output, JSON to FILE")
    add("--part-of-run", action="store_true", help=argparse.SUPPRESS)  # of `tessera run --calibrate`
    add("--debug", action="store_true", help="show the traceback of an error that names no cause of its own")
    add("-q", "--quiet", action="store_true", help="print nothing but errors")
    return made


def show_progress(what, share, left):
    """A line that is drawn over the one before: what is done, the share of the whole, and the time that is left."""
    time = "" if left is None else f", {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"
    sys.stderr.write(f"\r\033[Ktessera: {what} ({100 * share:.0f} %{time})")
    sys.stderr.flush()


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def how(row):
    """The type in which a layer runs."""
    if row["bits"] == 16:
        return "16 bits"
    if not row["int8"]:
        return "float"
    return "int8 x int4" if row["weight_bits"] == 4 else "int8"


def table(report):
    """The rows of a report as text."""
    titles = ["layer", "operators", "runs as", "SNR dB", "scale", "clipped %", "sensitivity dB", "cycles"]
    rows = []
    for row in report["layers"]:
        name = row["layer"] if len(row["layer"]) <= LONGEST else "..." + row["layer"][3 - LONGEST :]
        rows.append(
            [
                name,
                row["op"] if len(row["op"]) <= LONGEST else row["op"][: LONGEST - 3] + "...",
                how(row),
                number(row["snr_db"]),
                "-" if row["scale"] is None else f"{row['scale']:.5g}",
                "-" if row["clipped"] is None else f"{100 * row['clipped']:.3f}",
                number(row["sensitivity_db"], 2),
                "-" if row["predicted_cycles"] is None else str(row["predicted_cycles"]),
            ]
        )
    widths = [max(len(line[k]) for line in [titles, *rows]) for k in range(len(titles))]
    lines = []
    for line in [titles, *rows]:
        cells = [cell.ljust(w) if k < 3 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def summary(result, output, config):
    left = "" if result.macs_npu_share == 1 else f", {100 * (1 - result.macs_npu_share):.2f} % of them on the CPU"
    lines = [f"{output}: int8, {100 * result.macs_npu_share:.2f} % of the products on the NPU of {config}{left}"]
    report = result.report
    if "output_snr_db" in report:
        lines.append(
            f"outputs: {number(report['output_snr_db'])} dB from float; predicted {report['predicted_cycles']} cycles"
        )
    if "accuracy" in report:
        accuracy = report["accuracy"]
        made_up = " (synthetic data: this says nothing of real ones)" if accuracy["synthetic"] else ""
        lines.append(
            f"accuracy: float {accuracy['float']:.4f}, int8 {accuracy['int8']:.4f} on {accuracy['samples']} samples of "
            f"{accuracy['data']}{made_up}"
        )
    return "\n".join(lines)


def choose_engine(wanted, calibrate=None):
    """The engine asked for, else nncf where it is installed, else onnxruntime. It calibrates on random values too: they
    have no means for which NNCF could correct anything."""
    if wanted or calibrate == "random":
        return wanted or "onnxruntime"
    from .engines import import_nncf

    try:
        import_nncf()
        return "nncf"
    except _tessera.Error:
        return "onnxruntime"


def note(text):
    sys.stderr.write(f"tessera: {text}\n")


def run(arguments):
    from .quantise import quantize

    if arguments.samples < 1:
        raise argument(f"--samples takes a number above 0, got {arguments.samples}")
    output = arguments.output or arguments.model.removesuffix(".onnx").removesuffix(".tflite") + "_int8.onnx"
    for path in filter(None, (output, arguments.report)):
        require_place(path)
    draws = sys.stderr.isatty() and not arguments.quiet
    engine, shown = choose_engine(arguments.engine, arguments.calibrate), warnings.showwarning
    if not arguments.quiet:
        warnings.showwarning = lambda message, category, *place: (
            note(str(message)) if category is UserWarning else shown(message, category, *place)
        )
    result = quantize(
        arguments.model,
        arguments.calibrate,
        output,
        engine=engine,
        method=arguments.method,
        config=arguments.config,
        numerics=arguments.numerics,
        preprocess=arguments.preprocess,
        samples=arguments.samples,
        seed=arguments.seed,
        shapes=shapes_of(arguments.shape),
        power_of_two=arguments.power_of_two,
        per_channel=not arguments.per_tensor,
        weights=arguments.weights,
        group=arguments.group,
        mixed=arguments.mixed,
        accurate_bias=not arguments.fast_bias,
        keep_float=arguments.keep_float,
        least_snr=arguments.least_snr,
        sixteen=arguments.sixteen,
        labels=arguments.labels,
        test=arguments.test,
        max_drop=arguments.max_drop,
        bytes=arguments.bytes,
        report=arguments.report is not None,
        progress=show_progress if draws else None,
    )
    if draws:
        sys.stderr.write("\r\033[K")
    if engine != (arguments.engine or "nncf") and arguments.calibrate != "random" and not arguments.quiet:
        note("NNCF is not installed, ONNX Runtime calibrated; `pip install -r requirements-quantize.txt` installs it")
    if result.synthetic and not arguments.quiet:
        note("calibrated on random values: scales are made up, and the model is labelled as synthetic")
    if arguments.report is not None:
        with open(arguments.report, "w", encoding="utf-8") as file:
            json.dump(result.report, file, indent=2)
            file.write("\n")
    if not arguments.quiet:
        if arguments.report is not None:
            print(table(result.report))
        told = summary(result, "quantised" if arguments.part_of_run else output, arguments.config)
        print(told, file=sys.stderr if arguments.part_of_run else sys.stdout)


def main(words=None):
    """Exit status: 0, 1 for an error in the input, 2 for a wrong command line, 130 when interrupted."""
    arguments, status = parser().parse_args(words), 1
    try:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        run(arguments)
        return 0
    except KeyboardInterrupt:
        code, text, status = "cancelled", "interrupted", 130
    except Exception as e:
        told = as_error(e)
        code, text = getattr(told, "code", "internal"), str(told)
        if arguments.debug:
            traceback.print_exc()
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    sys.stderr.write(f"tessera: error ({code}): {text}\n")
    return status

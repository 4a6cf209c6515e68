# SPDX-License-Identifier: Apache-2.0
"""The command `tessera app`: starts a program with Tessera below its sessions of ONNX Runtime, waits for it, and tells
what ran where. The program keeps its standard output, its signals and its exit status; all that is told goes to
standard error."""

import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import _tessera

from ..errors import argument, require_place
from . import models, records
from .settings import Settings, plain_environment

PASSED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGCONT")


def parser():
    made = argparse.ArgumentParser(
        prog="tessera app",
        usage="tessera app [options] -- COMMAND ...",
        description="run a Python program that uses ONNX Runtime, with its sessions on Tessera (docs/app.md)",
        epilog="Example: tessera app --device sysc -- python program.py",
    )
    add = made.add_argument
    add("--device", default="fsim", help="where sessions run, as of `tessera run`; default fsim")
    add("--config", default="", help="the machine; default what a model was quantised for, or npu256")
    add("--compare", action="store_true", help="ONNX Runtime runs beside it; the table tells the largest difference")
    add("--capture", default="", metavar="DIR", help="keep inputs and answers of every model, for `tessera quantize`")
    add("--quantize", default="", metavar="DIR", help="run in int8, quantised from what DIR holds; capture what is new")
    add("--samples", type=int, default=64, help="of a model that are captured at most; default 64")
    add("--megabytes", type=int, default=256, help="of a model that are captured at most; default 256")
    add("--shapes", action="append", default=[], metavar="[MODEL:]INPUT=SIZES",
        help="shapes that will come, compiled while it runs, as 'rec*:x=1-6,3,48,320-960/64'; repeatable")  # fmt: skip
    add("--report", metavar="FILE.html", help="page with the report of every session")
    add("--json", default="", metavar="FILE", help="write the table as JSON")
    add("-q", "--quiet", action="store_true", help="print nothing but errors")
    own = {action.dest for action in made._actions}
    compiling = made.add_argument_group("options of the compilation")
    for row in _tessera.compile_options():
        if row["name"] not in own:
            flag = "--" + row["name"].replace("_", "-")
            text = f"{row['summary']}; default {row['default'] or 'none'}".replace("%", "%%")
            compiling.add_argument(flag, dest=f"option_{row['name']}", metavar="X", help=text)
    return made


def checked(settings):
    """The settings. Errors: invalid_argument for what would fail in each session."""
    device = settings.device.partition(":")[0]
    if device not in _tessera.backends():
        raise argument(f"there is no device '{settings.device}'; there are {', '.join(_tessera.backends())}")
    shipped = _tessera.shipped_configs()
    if settings.config and settings.config not in shipped:
        if not pathlib.Path(settings.config).is_file():
            raise argument(f"there is no machine '{settings.config}': {', '.join(shipped)}, or give a .toml file")
        settings.config = os.path.abspath(settings.config)
        _tessera.check_config(pathlib.Path(settings.config).read_text(encoding="utf-8"))
    known = {row["name"] for row in _tessera.compile_options()}
    unknown = sorted(set(settings.options) - known)
    if unknown:
        raise argument(f"there is no option '{unknown[0]}' of the compilation; there are {', '.join(sorted(known))}")
    if settings.capture and settings.quantize:
        raise argument("--quantize DIR captures into its own folder; leave --capture out")
    if settings.samples < 1 or settings.megabytes < 1:
        raise argument("--samples and --megabytes take a number above 0")
    if settings.shapes and device == "reference":
        raise argument("--shapes: the device 'reference' compiles nothing; leave it out, or give another device")
    _tessera.shapes_of_ranges(settings.shapes)
    for folder in (settings.capture, settings.quantize):
        if folder:
            os.makedirs(folder, exist_ok=True)
    return settings


def say(settings, text):
    if not settings.quiet:
        sys.stderr.write(f"tessera: {text}\n")
        sys.stderr.flush()


def _numerics(settings):
    return str(settings.options.get("numerics", "exact"))


def prepare(settings):
    """Before the program: models that were captured earlier are quantised."""
    if settings.quantize:
        models.quantise_all(settings.quantize, settings.machine, _numerics(settings), lambda text: say(settings, text))


def conclude(settings, page, listing=""):
    """After the program: the table, also as JSON, models that were captured now, and the page."""
    if listing:
        rows = records.summaries(records.lines_of(settings.folder))
        pathlib.Path(listing).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if not settings.quiet:
        sys.stderr.write(records.table(records.lines_of(settings.folder), settings.compare) + "\n")
    if settings.capture:
        say(
            settings,
            f"captured in '{settings.capture}': tessera quantize DIR/MODEL/model.onnx --calibrate DIR/MODEL/samples",
        )
    if settings.quantize:
        note = lambda text: say(settings, text)
        numerics = _numerics(settings)
        before = len(list(pathlib.Path(settings.quantize).glob("*/int8_*.onnx")))
        made = models.quantise_all(settings.quantize, settings.machine, numerics, note)
        if len(list(pathlib.Path(settings.quantize).glob("*/int8_*.onnx"))) > before:
            note(f"{made} models are quantised in '{settings.quantize}'; the next run takes them")
    if page:
        write_page(settings, page)


def write_page(settings, page):
    reports = sorted(pathlib.Path(settings.folder).glob("*.report.json"), key=lambda p: p.stat().st_mtime_ns)
    if not reports:
        return say(settings, f"no session ran on Tessera, and '{page}' is not written")
    with tempfile.TemporaryDirectory(prefix="tessera-page-") as folder:
        words = ["report", "--compare", *_named(reports, folder), "--html", str(page)]
        done = subprocess.run(
            [sys.executable, "-m", "tessera", *words], env=plain_environment(), capture_output=True, text=True
        )
    if done.returncode:
        sys.stderr.write(done.stderr)
    return None


def _named(reports, folder):
    """Links to the reports that bear the names of their models, which the page calls the runs by: with a number from
    the second session of a name on."""
    seen, links = collections.Counter(), []
    for report in reports:
        name = json.loads(report.read_text(encoding="utf-8"))["model"]["name"]
        name = name.encode("utf-8", "replace")[:200].decode("utf-8", "ignore").replace("/", "_")
        seen[name] += 1
        links.append(os.path.join(folder, f"{name} {seen[name]}.json" if seen[name] > 1 else f"{name}.json"))
        os.symlink(report, links[-1])
    return links


def start(settings, words):
    """Runs the program. Returns its status as subprocess has it: negative for a signal."""
    if words[0].endswith(".py") and not shutil.which(words[0]):
        words = [sys.executable, *words]
    environment = {**os.environ, **settings.environment()}
    for name in ("TESSERA_PYTHON_PACKAGES",):  # of the command, not of the program
        environment.pop(name, None)
    try:
        program = subprocess.Popen(words, env=environment)
    except OSError as e:
        raise argument(f"cannot start '{words[0]}': {e.strerror}") from None
    # Ctrl-C reaches the program from the terminal; other signals are for this process alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PASSED:
        signal.signal(getattr(signal, name), lambda number, frame: program.send_signal(number))
    return program.wait()


def run(words):
    split = words.index("--") if "--" in words else len(words)
    arguments = parser().parse_args(words[:split])
    program = words[split + 1 :]
    if not program:
        raise argument("give the program behind --: tessera app [options] -- python program.py")
    options = {
        name.removeprefix("option_"): value
        for name, value in vars(arguments).items()
        if name.startswith("option_") and value is not None
    }
    for path in filter(None, (arguments.report, arguments.json)):
        require_place(path)
    absolute = lambda path: os.path.abspath(path) if path else ""
    settings = checked(
        Settings(
            arguments.device,
            arguments.config,
            options,
            arguments.compare,
            absolute(arguments.capture),
            absolute(arguments.quantize),
            arguments.samples,
            arguments.megabytes,
            arguments.report is not None,
            arguments.quiet,
            shapes=arguments.shapes,
        )
    )
    page, listing = absolute(arguments.report), absolute(arguments.json)
    with tempfile.TemporaryDirectory(prefix="tessera-app-") as folder:
        settings.folder = folder
        prepare(settings)
        status = start(settings, program)
        conclude(settings, page, listing)
    if status < 0:  # ends as the program has ended
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        return 128 - status
    return status


def main(words=None):
    """Exit status: that of the program; 1 for an error in the input, 2 for a wrong command line."""
    try:
        return run(sys.argv[1:] if words is None else list(words))
    except _tessera.Error as e:
        sys.stderr.write(f"tessera: error ({getattr(e, 'code', 'internal')}): {e}\n")
    except OSError as e:
        sys.stderr.write(f"tessera: error (io): {e}\n")
    return 1

# SPDX-License-Identifier: Apache-2.0
"""The command `tessera explore`, which the command `tessera` starts. Progress and notes go to standard error, the table
and the reasons to standard output, and an error is one line, as the other commands write it."""

import argparse
import contextlib
import json
import pathlib
import sys
import time

import _tessera

from .. import workers
from ..errors import argument, error, require_place
from . import explorer, nsga2, picture, report, results, space

AUTOMATIC_SCREEN = 100  # machines, from which on a search screens first


def parser():
    made = argparse.ArgumentParser(
        prog="tessera explore",
        description="which machine to build: machines of a space times networks (docs/explore.md)",
        epilog="Example: tessera explore space.toml --network model_int8.onnx -o front.json",
    )
    add = made.add_argument
    add("space", help="TOML file with ranges, rules, constraints and objectives")
    add("--network", action="append", required=True, metavar="ONNX", help="quantised network; repeatable")
    add("--shape", action="append", default=[], metavar="[NETWORK:]INPUT=D0,...", help="of a dynamic input; repeatable")
    add(
        "--method",
        choices=("grid", "random", "nsga2"),
        default="grid",
        help="which machines are looked at; default grid",
    )
    add("--evaluations", type=int, default=400, metavar="N", help="machines for random and nsga2; default 400")
    add("--seed", type=int, default=1, help="of random and nsga2; default 1")
    add("--screen", choices=("auto", "yes", "no"), default="auto", help="compile in full only what may be on the front")
    add("--workers", default="1", metavar="W", help="processes here, or dask, dask:N, dask:tcp://HOST:PORT; default 1")
    add("--db", metavar="FILE", help="results that are kept, SQLite; default SPACE.db in this folder")
    add("-o", "--output", metavar="FILE", help="all points and the front as JSON")
    add("--picture", action="append", default=[], metavar="FILE", help=".png or .svg; repeatable")
    add("--confirm", choices=("sysc", "rtl"), help="run the networks on the front's machines")
    add(
        "--most",
        type=int,
        default=20,
        metavar="N",
        help="machines of the front that are shown and confirmed; default 20",
    )
    add(
        "--tolerance",
        type=float,
        default=0.01,
        metavar="X",
        help="machines that differ less are shown once; default 0.01: one per cent",
    )
    add("--json", action="store_true", help="the JSON on standard output instead of the table")
    add("-q", "--quiet", action="store_true", help="print no progress and no notes")
    return made


def checked(given):
    """Refuses what would fail late. Errors: invalid_argument, io, unsupported."""
    if given.evaluations < 1 or given.most < 1 or not 0 <= given.tolerance < 1:
        raise argument("--evaluations and --most take numbers from 1 on, --tolerance one from 0 to below 1")
    if given.seed < 0:
        raise argument(f"--seed takes a number from 0 on, not {given.seed}")
    if given.method == "nsga2" and given.screen == "yes":
        raise argument("--method nsga2 compiles in full whatever it looks at; leave --screen out")
    if wrong := workers.obstacle(given.workers):
        raise argument(wrong)
    for path in given.picture:
        picture.check(path)
    for path in [given.output, *given.picture]:
        if path:
            require_place(path)


def searched(found, given):
    size = found.space.size if given.method == "grid" else given.evaluations
    screen = given.screen == "yes" or (given.screen == "auto" and size > AUTOMATIC_SCREEN)
    if given.method == "grid":
        return found.grid(screen)
    if given.method == "random":
        return found.random(given.evaluations, given.seed, screen)
    return nsga2.search(found, given.evaluations, given.seed)


def nothing(found):
    """The error of a space of which no machine is left."""
    why = "; ".join(f"{count:,} {reason}" for reason, count in found.refused.most_common(4))
    if found.failures:
        (_, name), cause = next(iter(found.failures.items()))
        why += f"{'; ' if why else ''}{len(found.failures):,} on which a network does not run, as {name}: {cause}"
    return argument(f"no machine of the space is left: {why}; widen ranges, constraints or rules")


def write(path, content):
    """A file that stands there keeps its content until the new one, text or bytes, is written as a whole. Errors:
    io."""
    path = pathlib.Path(path)
    part = path.with_name(f"{path.name}.part")
    content = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        part.write_bytes(content)
        part.replace(path)
    except OSError as refused:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise error("io", f"cannot write '{path}': {refused.strerror}") from None


def say(text):
    """To standard output, before any file, so that a full disk hides nothing. Errors: io."""
    try:
        print(text, flush=True)
    except OSError as refused:
        raise error("io", f"cannot write to the standard output: {refused.strerror}") from None


def run(given):
    checked(given)
    start = time.monotonic()
    chosen = space.load(given.space)
    kept = results.Results(given.db or pathlib.Path(given.space).with_suffix(".db").name)
    networks = explorer.networks_of(given.network, given.shape)
    with explorer.Explorer(chosen, networks, kept, given.workers, given.quiet) as found:
        points = searched(found, given)
        front = found.front(points)
        if not front:
            raise nothing(found)
        shown = found.distinct(front, given.tolerance)[: given.most]
        confirmed = found.confirm(shown, given.confirm) if given.confirm else None
    content = report.as_json(found, points, front, shown, confirmed, given.confirm or "")
    if given.json:
        say(json.dumps(content))
    else:
        say(report.table(report.rows(found, shown, confirmed)) + "\n\n" + "\n".join(report.reasons(found, shown)))
    if given.output:
        write(given.output, json.dumps(content, indent=1) + "\n")
    for path in given.picture:
        write(path, picture.drawn(found, points, shown, path))
    if not given.quiet:
        for line in report.notes(found, points):
            print(f"tessera: {line}", file=sys.stderr)
        print(
            f"tessera: {sum(found.compiled.values()):,} evaluations in {time.monotonic() - start:.1f} s "
            f"({found.cpu_seconds:.1f} s of processors in workers), "
            f"kept in {kept.path}",
            file=sys.stderr,
        )
    return 0


def main(arguments=None):
    given = parser().parse_args(arguments)
    try:
        return run(given)
    except _tessera.Error as refused:
        code, message = refused.code, str(refused)
    except (ImportError, OSError) as refused:
        code, message = "unsupported", f"--workers {given.workers}: {refused}"
    except workers.Failure as broken:
        code, message = "internal", str(broken).strip().splitlines()[-1]
    except KeyboardInterrupt:
        print("tessera: ended; results are kept, and the same command goes on from there", file=sys.stderr)
        return 130
    print(f"tessera: error ({code}): {message}", file=sys.stderr)
    return 1

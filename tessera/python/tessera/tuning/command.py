# SPDX-License-Identifier: Apache-2.0
"""The command line of `tessera tune`."""

import argparse
import json
import sys

import tessera.errors

from ..shapes import shapes_of
from .tuner import tune


def arguments(words):
    parser = argparse.ArgumentParser(
        prog="tessera tune",
        description="Looks for schedules of a model by measuring them, and keeps the best in a database for --tuned.",
        epilog="Example: tessera tune model_int8.onnx --config npu256 --trials 200 --db tuned.db",
    )
    parser.add_argument("model", help="ONNX file")
    parser.add_argument("--config", default="", help="machine: a name or a .toml file (the model's, or npu256)")
    parser.add_argument("--trials", type=int, default=200, help="schedules of the model that the judge measures (200)")
    parser.add_argument("--judge", default="sysc", help="who measures: replay, sysc or rtl (sysc)")
    parser.add_argument(
        "--search",
        default="annealing",
        help="annealing, evolutionary, random, or optuna, which needs requirements-tune.txt (annealing)",
    )
    parser.add_argument(
        "--cost-model",
        default="closed-form",
        help="who chooses what an evolution replays: closed-form, or learned, which needs requirements-tune.txt "
        "(closed-form)",
    )
    parser.add_argument("--workers", default="1", help="processes, dask, dask:N or dask:tcp://HOST:PORT (1)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed finds the same schedules (1)")
    parser.add_argument("--db", required=True, help="database, made when missing; tunings that were ended go on")
    parser.add_argument("--shape", action="append", default=[], help="NAME=D0,D1,...: shape of an input")
    parser.add_argument("--dram-latency", type=int, help="as of compile")
    parser.add_argument("--dram-bandwidth", type=int, help="as of compile")
    parser.add_argument("--dram", help="as of compile")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(words)
    if given.trials < 1:
        parser.error(f"--trials takes a number from 1 on, not {given.trials}")
    return given


def main(words=None):
    given = arguments(words)

    def progress(line):
        if not given.quiet:
            print(f"tessera: {line}", file=sys.stderr, flush=True)

    try:
        outcome = tune(
            given.model,
            config=given.config,
            trials=given.trials,
            judge=given.judge,
            search=given.search,
            cost_model=given.cost_model,
            workers=given.workers,
            seed=given.seed,
            database=given.db,
            shapes=shapes_of(given.shape),
            progress=progress,
            dram_latency=given.dram_latency,
            dram_bandwidth=given.dram_bandwidth,
            dram=given.dram,
        )
    except tessera.Error as error:
        print(f"tessera: error ({getattr(error, 'code', 'internal')}): {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tessera: ended; the same command goes on from here", file=sys.stderr)
        return 130
    if given.json:
        print(json.dumps(outcome.as_dict()))
    elif not given.quiet:
        print(outcome.in_words())
    return 0

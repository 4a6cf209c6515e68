# SPDX-License-Identifier: Apache-2.0
"""Random float models (drawn_models.py) through `quantize`, `compile` and `run`. Each ends in a result or in one clear
error; nothing else is allowed:

- the preparation keeps the graph valid behind each of its steps, and what it computes;
- the float model on Tessera is near ONNX Runtime's results;
- the quantised model on the functional simulator equals ONNX Runtime's element by element up to where float operators
  begin to compute, and is near behind them;
- an error is a tessera.Error with a code other than "internal", in one line;
- nothing takes more than a minute of the processor.

    python tests/fuzz/models.py --count 300 --seed 1       # exit status 1 where something was found
    python tests/fuzz/models.py --seed 17 --count 1 --save model.onnx --debug

Each model has a process of its own, so that a crash or a hang is a finding like others."""

import argparse
import collections
import os
import pathlib
import pickle
import resource
import signal
import sys
import time
import traceback
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build" / "release"))
for path in (BUILD / "lib", ROOT / "tessera" / "python", ROOT):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

import numpy as np  # noqa: E402

SECONDS = 60  # of the processor, for one model
CONFIGS = ("npu64", "npu256", "npu256t", "npu1024")
SAMPLES = 3


def drawn(seed):
    """A model that ONNX Runtime runs, its samples and its results on the first one."""
    from tests.fuzz import drawn_models
    from tests.system import validity

    for turn in range(40):
        model, feeds, text = drawn_models.draw(seed * 1000 + turn)
        try:
            expected = validity.outputs(model, feeds)
        except Exception:
            continue  # no valid model
        if all(np.isfinite(value).all() for value in expected.values() if value.dtype.kind == "f"):
            return model, feeds, expected, text
    raise AssertionError(f"seed {seed}: nothing valid was drawn")


def samples_of(feeds, rng):
    """The feeds, and others like them."""
    other = lambda value: rng.standard_normal(value.shape).astype(value.dtype) if value.dtype.kind == "f" else value
    return [feeds] + [{name: other(value) for name, value in feeds.items()} for _ in range(SAMPLES - 1)]


def near(got, want, tolerance):
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    size = max(1e-3, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
    finite = np.isfinite(want)
    return got.shape == want.shape and bool((np.abs(got - want)[finite] <= tolerance * size).all())


def attempt(seed, save=None):
    """(class, text) of a model: "exact", "near" (float operators make its outputs), "refused", or a finding."""
    import onnx
    import onnxruntime

    import tessera
    from tessera.quantization import prepare
    from tests.oracle import oracle
    from tests.system import validity
    from tests.system.quantised_parts import exact_part

    onnxruntime.set_default_logger_severity(4)
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    model, feeds, expected, text = drawn(seed)
    if save:
        onnx.save(model, save)
    config, report = CONFIGS[int(rng.integers(len(CONFIGS)))], bool(rng.random() < 0.2)
    numerics = "close" if config == "npu256t" else "exact"
    source = "random" if rng.random() < 0.4 else samples_of(feeds, rng)
    text += f", {config}, {'random values' if source == 'random' else 'samples'}"

    def refused(error):
        told = str(error)
        fault = getattr(error, "code", "internal") == "internal" or "\n" in told
        return ("internal error" if fault else "refused"), f"{text}: {told}"

    half = any(value.dtype == np.float16 for value in feeds.values())
    names = [value.name for value in model.graph.output]
    try:
        session = tessera.Session(model.SerializeToString(), "reference")
        for name, got in zip(names, session.run(None, feeds), strict=True):
            want = expected[name]
            equal = near(got, want, 2e-2 if half else 1e-3) if want.dtype.kind == "f" else got.shape == want.shape
            if not equal:
                return "wrong in float", f"{text}: {name}"
    except tessera.Error as error:
        kind, told = refused(error)
        if kind != "refused":
            return kind, told
    prepare.WATCH = lambda name, changed: validity.check(changed, f"behind the step '{name}'")
    try:
        products = set(tessera._tessera.operator_names()["products"])
        prepared = prepare.prepare(model, products)
        validity.check(prepared, "prepared", named=True)
        validity.same(expected, validity.outputs(prepared, feeds), "prepared", 3e-2 if half else 2e-3)
        made = tessera.quantize(
            model, source, engine="onnxruntime", config=config, numerics=numerics, samples=4, report=report
        )
    except tessera.Error as error:
        return refused(error)
    feed = {name: value.astype(np.float32) if value.dtype.kind == "f" else value for name, value in feeds.items()}
    kind = "near"
    try:
        part = exact_part(made.model, {name: value.shape for name, value in feeds.items()})
        if part is not None:
            want = oracle.run(part, feed, intermediates=False).outputs
            session = tessera.Session(
                part.SerializeToString(), "fsim", config, check_races=True, poison=seed + 1, numerics=numerics
            )
            for value, got in zip(part.graph.output, session.run(None, feed), strict=True):
                if numerics == "exact" and not np.array_equal(got, want[value.name]):
                    return "wrong", f"{text}: {value.name}: {(got != want[value.name]).sum()} of {got.size} differ"
            kind = "exact"
        want = oracle.run(made.model, feed, intermediates=False).outputs
        session = tessera.Session(made.model.SerializeToString(), "fsim", config, numerics=numerics)
        for value, got in zip(made.model.graph.output, session.run(None, feed), strict=True):
            equal = want[value.name].dtype.kind != "f" or near(got, want[value.name], 0.06)
            if not equal or got.shape != want[value.name].shape:
                return "wrong", f"{text}: {value.name}, of the whole model"
    except tessera.Error as error:
        return "refused what was quantised", f"{text}: {error}"
    return kind, text


def in_process(seed, save=None, debug=False):
    """What `attempt` gives, from a process of its own; and the processor's seconds that it took."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 60, SECONDS + 61))
        try:
            result = attempt(seed, save)
        except BaseException as e:
            if debug:
                traceback.print_exc()
            last = traceback.extract_tb(e.__traceback__)[-1]
            told = (str(e).splitlines() or [""])[0][:300]
            result = (
                "traceback",
                f"seed {seed}: {type(e).__name__}: {told} ({pathlib.Path(last.filename).name}:{last.lineno})",
            )
        with os.fdopen(write, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        told = file.read()
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        kind = "slow" if number in (signal.SIGXCPU, signal.SIGKILL) else "crash"
        return kind, f"seed {seed}: {signal.Signals(number).name}", seconds
    kind, text = pickle.loads(told)
    return ("slow", f"{text}: {seconds:.0f} s", seconds) if seconds > SECONDS else (kind, text, seconds)


ALLOWED = ("exact", "near", "refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="FILE", help="write the drawn model")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each model")
    arguments = parser.parse_args()
    counts, longest, start = collections.Counter(), 0.0, time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        kind, text, seconds = in_process(seed, arguments.save, arguments.debug)
        counts[kind] += 1
        longest = max(longest, seconds)
        if arguments.verbose or kind not in ALLOWED:
            print(f"[{seed}] {kind}, {seconds:.1f} s: {text}", flush=True)
    findings = sum(count for kind, count in counts.items() if kind not in ALLOWED)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    print(
        f"{arguments.count} models from seed {arguments.seed}: {told}; {findings} findings; at most {longest:.0f} s of "
        f"the processor each, {time.monotonic() - start:.0f} s in all"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

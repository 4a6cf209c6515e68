# SPDX-License-Identifier: Apache-2.0
"""Runs every test of the project in four stages: layering, unit tests (CTest), pass tests (lit), system tests (pytest).

Each stage prints as it goes and all stages run even when one fails; the last line counts them together. Options that this script
does not know go to pytest (`./dev test -k conv`). --random and --seed reach the random programs and models through the
environment, --long turns on the long variants.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def stream(command, env):
    """Runs a command, shows its output as it comes, returns (status, output)."""
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    return process.wait(), "".join(lines)


def count(pattern, text):
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def main():
    parser = argparse.ArgumentParser(prog="./dev test")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--random", type=int, metavar="N", help="random programs and models to run")
    parser.add_argument("--seed", type=int, metavar="S", help="seed of the random tests")
    parser.add_argument("--long", action="store_true", help="run the long variants too")
    parser.add_argument("--only", choices=["layering", "unit", "lit", "system"], help="run one stage")
    options, extra = parser.parse_known_args()

    build = (ROOT / options.build).resolve()
    env = dict(os.environ, TESSERA_BUILD=str(build))
    if options.random is not None:
        env["TESSERA_RANDOM"] = str(options.random)
    if options.seed is not None:
        env["TESSERA_SEED"] = str(options.seed)
    if options.long:
        env["TESSERA_LONG"] = "1"
    jobs = str(os.cpu_count() or 1)

    stages = []
    if not extra:
        stages.append(("layering", [sys.executable, "tests/layering.py"]))
        stages.append(("unit", ["ctest", "--test-dir", str(build), "--output-on-failure", "-j", jobs, "-E", "^ops_python$"]
                       + (["-R", "random|functional|npu"] if options.random is not None else [])))
        if list((build).glob("compiler/**/lit.site.cfg.py")) and options.random is None:
            stages.append(("lit", [str(pathlib.Path(sys.executable).parent / "lit"), "-v", "--no-progress-bar",
                                   *{str(p.parent) for p in build.glob("compiler/**/lit.site.cfg.py")}]))
    system = [sys.executable, "-m", "pytest", "-q", "-rs", "--durations=8", *(extra or ["tests", "ops/tests", "isa"])]
    if options.random is not None and not extra:
        system += ["-k", "random"]
    stages.append(("system", system))

    passed = failed = skipped = 0
    for name, command in stages:
        if options.only and name != options.only:
            continue
        print(f"\n=== {name}: {' '.join(command)}", flush=True)
        start = time.monotonic()
        status, text = stream(command, env)
        if name == "layering":
            p, f, s = int(status == 0), int(status != 0), 0
        elif name == "unit":
            total, f = count(r"out of (\d+)", text), count(r"(\d+) tests? failed out of", text)
            p, s = total - f, 0
        elif name == "lit":
            p, f, s = count(r"Passed\s*: (\d+)", text), count(r"Failed\s*: (\d+)", text), count(r"Unsupported\s*: (\d+)", text)
        else:
            p, f, s = count(r"(\d+) passed", text), count(r"(\d+) failed", text) + count(r"(\d+) errors?", text), count(r"(\d+) skipped", text)
        if status != 0 and f == 0:
            f = 1
        print(f"=== {name}: {p} passed, {f} failed, {s} skipped, {time.monotonic() - start:.0f} s", flush=True)
        passed, failed, skipped = passed + p, failed + f, skipped + s
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`./dev fuzz`: runs the fuzzers of the build folder on libFuzzer, for some minutes or a number of inputs, and counts.

Each target gets the same share of the time, or the number of inputs, in processes of its own. Its corpus stays in the
build folder, so that the next run begins where this one ended. A finding is kept with its report below `findings`, and
the target goes on with another seed. The last lines say inputs, findings and coverage by target; exit status 1 when
there is a finding."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.fuzz import seeds  # noqa: E402

TARGETS = ("onnx", "litert", "artifact", "schedule", "assembler", "container", "board")
# What one input may take: seconds, and megabytes of the process.
SECONDS, MEGABYTES = 25, 2560
LARGEST = {"board": 2048, "assembler": 16384, "schedule": 16384}
MOST_FINDINGS = 20
LONGEST_MINUTES = 7 * 24 * 60  # of a run that a number of inputs ends
SANITIZERS = {
    # LLVM's libraries are not instrumented, and vectors cross the border.
    "ASAN_OPTIONS": "detect_container_overflow=0:detect_leaks=0:allocator_may_return_null=1:handle_abort=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


class Target:
    """One fuzzer, for `seconds`, and at most `wanted` inputs where that is not 0."""

    def __init__(self, name, build, seconds, wanted, first_seed):
        self.name, self.build, self.seconds, self.wanted, self.seed = name, build, seconds, wanted, first_seed
        folder = build / "fuzz"
        self.seeds, self.corpus = folder / "seeds" / name, folder / "corpus" / name
        self.findings = folder / "findings"
        for path in (self.corpus, self.findings):
            path.mkdir(parents=True, exist_ok=True)
        self.inputs, self.found, self.edges = 0, [], 0
        self.models = folder / "seeds" / "models"

    def once(self, seconds, seed):
        """One process; returns what it printed and its status."""
        command = [
            self.build / "bin" / f"fuzz_{self.name}",
            f"-max_total_time={max(1, int(seconds))}",
            f"-runs={self.wanted - self.inputs if self.wanted else -1}",
            f"-seed={seed}",
            f"-timeout={SECONDS}",
            f"-rss_limit_mb={MEGABYTES}",
            f"-max_len={LARGEST.get(self.name, 1 << 18)}",
            "-print_final_stats=1",
            "-reload=60",
            "-verbosity=1",
            f"-artifact_prefix={self.findings}/{self.name}-",
            self.corpus,
            self.seeds,
        ]
        env = dict(os.environ, TESSERA_FUZZ_MODELS=str(self.models), **SANITIZERS)
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, errors="replace", env=env, check=False
        )
        return done.stderr + done.stdout, done.returncode

    def count(self, text):
        final = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text)
        # A process that a finding ended has printed its count at each new input; the last one is a lower bound.
        steps = re.findall(r"^#(\d+)", text, re.M)
        self.inputs += int(final[-1]) if final else int(steps[-1]) if steps else 0
        self.edges = max([self.edges, *map(int, re.findall(r"cov: (\d+)", text))])

    def run(self):
        end = time.monotonic() + self.seconds
        while (left := end - time.monotonic()) > 1 and len(self.found) < MOST_FINDINGS:
            if self.wanted and self.inputs >= self.wanted:
                break
            text, status = self.once(left, self.seed)
            self.seed += 1000
            self.count(text)
            if status == 0:
                continue
            kept = re.findall(r"Test unit written to (\S+)", text)
            name = pathlib.Path(kept[-1]).name if kept else f"{self.name}-{self.seed}"
            report = "\n".join(
                line for line in text.splitlines() if not re.match(r"#\d+\s+(NEW|REDUCE|RELOAD|pulse)", line)
            )
            (self.findings / f"{name}.txt").write_text(report)
            self.found.append((name, self.reason(text)))
            print(f"{self.name}: {name}: {self.found[-1][1]}", flush=True)
        return self

    @staticmethod
    def reason(text):
        for pattern in (r"finding: .*", r"SUMMARY: .*", r"ERROR: .*", r".*runtime error: .*", r"terminate called.*"):
            found = re.search(pattern, text)
            if found:
                return found.group(0)[:200]
        return (text.strip().splitlines() or ["no report"])[-1][:200]


def add_to_total(path, targets):
    """Counts of all runs on this build folder."""
    total = json.loads(path.read_text()) if path.exists() else {}
    for target in targets:
        row = total.setdefault(target.name, {"inputs": 0, "findings": 0})
        row["inputs"] += target.inputs
        row["findings"] += len(target.found)
    path.write_text(json.dumps(total, indent=1) + "\n")
    return total


def main():
    parser = argparse.ArgumentParser(prog="./dev fuzz")
    parser.add_argument("--build", default="build/fuzz", type=pathlib.Path)
    parser.add_argument(
        "--minutes", type=float, help="of all targets together, on one processor (10, or without a limit with --inputs)"
    )
    parser.add_argument("--inputs", type=int, default=0, help="of each target, at most")
    parser.add_argument("--target", action="append", choices=TARGETS, help="this one alone; may be repeated")
    parser.add_argument(
        "--jobs", type=int, default=1, help="targets at the same time; each gets its minutes all the same"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    build = options.build.resolve()
    seeds.make(build / "fuzz" / "seeds", build / "bin" / "tessera")
    names = [n for n in options.target or TARGETS if (build / "bin" / f"fuzz_{n}").exists()]
    minutes = options.minutes or (LONGEST_MINUTES if options.inputs else 10)
    seconds = minutes * 60 / max(1, len(names))
    targets = [Target(name, build, seconds, options.inputs, options.seed) for name in names]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(Target.run, targets))
    total = add_to_total(build / "fuzz" / "counts.json", targets)
    for target in targets:
        print(
            f"{target.name}: {target.inputs} inputs, {len(target.found)} findings, {target.edges} edges; "
            f"{total[target.name]['inputs']} inputs in all runs"
        )
    return 1 if any(target.found for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())

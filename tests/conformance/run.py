# SPDX-License-Identifier: Apache-2.0
"""`./dev conformance`: runs the suite, prints what does not pass and a summary; --record writes docs/conformance.md, or
docs/conformance_oldest.md with --oldest."""

import argparse
import collections
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def arguments():
    parser = argparse.ArgumentParser(prog="./dev conformance")
    parser.add_argument("--build", default="build/release", help=argparse.SUPPRESS)
    parser.add_argument("--case", default="", metavar="REGEX", help="cases whose name it finds; default: all")
    parser.add_argument("--device", default="fsim", help="a device of tessera.backends(); default: fsim")
    parser.add_argument("--config", default="", help="configuration of the machine; default: npu256")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="child processes")
    parser.add_argument("--seconds", type=float, default=120, metavar="S", help="limit of one case")
    parser.add_argument("--oldest", action="store_true", help="the suite of requirements-oldest.txt's onnx package")
    parser.add_argument("--record", action="store_true", help="write the page in docs/ (whole suite on fsim)")
    options = parser.parse_args()
    if options.record and (options.case or options.device != "fsim" or options.config):
        parser.error("--record takes the whole suite on fsim, without --case, --device and --config")
    return options


def main():
    options = arguments()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tessera" / "python"), str(ROOT / options.build / "lib")]
    if options.oldest:
        import run as tests_of_all

        python = tests_of_all.oldest_environment()
        os.execv(python, [python, __file__, *(argument for argument in sys.argv[1:] if argument != "--oldest")])
    import tessera
    from tests.conformance import cases, pool, report

    if options.device not in tessera.backends():
        sys.exit(f"conformance: no device {options.device!r}; devices are {', '.join(tessera.backends())}")
    chosen = [case for case in cases.find_cases() if re.search(options.case, case.name)]
    if not chosen:
        sys.exit(f"conformance: no case has {options.case!r} in its name")

    def progress(case, verdict):
        if verdict.outcome != "passed":
            print(f"{case.kind} {case.name}: {verdict.outcome}: {verdict.detail}", flush=True)

    start = time.monotonic()
    verdicts = pool.run(
        chosen, options.device, options.config, report.is_chance, options.jobs, options.seconds, progress
    )
    counts = collections.Counter(verdict.outcome for verdict in verdicts.values())
    print("\n".join(report.table(verdicts)))
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()), f"({time.monotonic() - start:.0f} s)")
    missing = report.unexplained(verdicts)
    if missing:
        sys.exit("conformance: no reason in tests/conformance/reasons.toml: " + ", ".join(c.name for c in missing))
    if options.record:
        report.DOCUMENT.write_text(report.document(verdicts))
        print(f"written: {report.DOCUMENT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

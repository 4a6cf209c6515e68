# SPDX-License-Identifier: Apache-2.0
"""Seconds of `tessera compile`, cold, by step; of a quick program; and of one that is found in the cache. Networks of
bench/networks.py by name, or paths of ONNX files with static shapes."""

import os
import pathlib
import tempfile
import time

NETWORKS = ("mobilenetv2", "resnet50", "vww", "ds_cnn")
WORTH_A_COLUMN = 0.02  # seconds of a step in any network


def run(build, words, output):
    """(seconds, processor seconds, peak MB) of the command, whose standard output goes to a file."""
    start = time.monotonic()
    pid = os.posix_spawn(
        str(build / "bin" / "tessera"),
        ["tessera", "compile", *map(str, words)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)],
    )
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"bench compile: compiling {words[0]} failed")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def steps_of(text):
    """{step: seconds} of what --time-passes prints."""
    rows = (line.split(None, 3) for line in text.splitlines() if " %  " in line)
    return {row[3]: float(row[0]) for row in rows if row[3] != "all"}


def measure(build, source, name, config, folder):
    words = [source, "-o", folder / "program.tsr", "--config", config, "-q"]
    out = folder / "out.txt"
    seconds, processor, megabytes = run(build, [*words, "--cache", "off"], out)
    run(build, [*words, "--cache", "off", "--time-passes"], out)
    steps = steps_of(out.read_text())
    quick, _, _ = run(build, [*words, "--cache", "off", "--effort", "quick"], out)
    kept = [run(build, [*words, "--cache", folder / "cache"], out)[0] for _ in range(2)]
    row = {
        "network": name,
        "config": config,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(processor, 2),
        "peak_megabytes": round(megabytes),
        "artifact_bytes": (folder / "program.tsr").stat().st_size,
        "quick_seconds": round(quick, 2),
        "kept_seconds": round(kept[1], 2),
    }
    return row, steps


def bench(build, names, config=None):
    import networks

    rows, all_steps = [], []
    with tempfile.TemporaryDirectory() as root:
        for number, name in enumerate(names or NETWORKS):
            folder = pathlib.Path(root) / str(number)
            folder.mkdir()
            source = pathlib.Path(name)
            if not source.is_file():
                source = folder / f"{name}.onnx"
                source.write_bytes(networks.build(name)[0])
            row, steps = measure(build, source, pathlib.Path(name).stem, config or "npu256", folder)
            rows.append(row)
            all_steps.append(steps)
    names_of_steps = list(dict.fromkeys(step for steps in all_steps for step in steps))
    for step in names_of_steps:
        if max(steps.get(step, 0) for steps in all_steps) < WORTH_A_COLUMN:
            continue
        for row, steps in zip(rows, all_steps):
            row[step] = round(steps.get(step, 0), 2)
    return {"compile": rows}

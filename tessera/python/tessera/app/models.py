# SPDX-License-Identifier: Apache-2.0
"""The models of a --quantize folder: what was captured of each, and the quantised model that was made of it. A model's
folder is named by its content, so that programs share it; the quantised file by the machine and the numerics."""

import json
import os
import pathlib
import subprocess
import sys
import time

from .capture import samples_of
from .settings import plain_environment


def quantised(folder, config, numerics):
    """Where the quantised model of a model's folder stands, or will stand."""
    return pathlib.Path(folder) / f"int8_{pathlib.Path(config).stem}_{numerics}.onnx"


def refused(folder, config, numerics):
    """Why it cannot be made, as was found before; None where that is not known."""
    try:
        return quantised(folder, config, numerics).with_suffix(".refused").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def quantise(folder, config, numerics):
    """Makes it in a process of its own. Returns (seconds, "") or (seconds, one line that says why not)."""
    target = quantised(folder, config, numerics)
    part, start = target.with_suffix(f".{os.getpid()}.part"), time.monotonic()
    words = [str(folder / "model.onnx"), "--calibrate", str(folder / "samples"), "-o", str(part), "--config", config]
    python = os.environ.get("TESSERA_PYTHON") or sys.executable
    done = subprocess.run(
        [python, "-m", "tessera.quantization", *words, "--numerics", numerics],
        capture_output=True,
        text=True,
        env=plain_environment(),
    )
    seconds = time.monotonic() - start
    if done.returncode == 0 and part.is_file():
        part.replace(target)
        facts = {"seconds": round(seconds, 1), "samples": len(samples_of(folder))}
        facts |= {"model": pathlib.Path(folder).name.rpartition("-")[2], "said": done.stdout.strip()}
        target.with_suffix(".json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        return seconds, ""
    part.unlink(missing_ok=True)
    why = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
    if done.returncode == 1 and why.startswith("tessera: error"):
        why = why.partition("): ")[2] or why
        target.with_suffix(".refused").write_text(why + "\n", encoding="utf-8")
    return seconds, why


def quantise_all(root, config, numerics, say):
    """Makes what has samples and is not made yet. Returns how many there are now."""
    made = 0
    for folder in sorted(pathlib.Path(root).glob("*/")):
        target = quantised(folder, config, numerics)
        if not target.exists() and samples_of(folder) and refused(folder, config, numerics) is None:
            say(f"quantising {folder.name} from {len(samples_of(folder))} samples ...")
            seconds, why = quantise(folder, config, numerics)
            say(f"{folder.name}: quantised in {seconds:.0f} s" if not why else f"{folder.name}: stays float: {why}")
        made += target.exists()
    return made

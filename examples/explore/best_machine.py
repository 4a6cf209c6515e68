# SPDX-License-Identifier: Apache-2.0
"""The best machine for MobileNetV2 that fits a Zynq-7020: explores the space of zynq7020.toml with `tessera explore`,
confirms the front on the timing model, and says why. Enters: nothing (the network is the benchmark's, with seeded
weights: cycles do not depend on training). Leaves: on standard output the front and the reasons; in build/explore the
front as JSON and, with matplotlib, a picture.

    .venv/bin/python examples/explore/best_machine.py [--workers N] [options of tessera explore]"""

import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main(words):
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tessera" / "python"), str(ROOT / "build" / "release" / "lib")]
    import networks

    from tessera.exploration import command

    folder = ROOT / "build" / "explore"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "mobilenetv2.onnx"
    model.write_bytes(networks.build("mobilenetv2")[0])
    line = [str(HERE / "zynq7020.toml"), "--network", str(model), "--confirm", "sysc"]
    line += ["--db", str(folder / "zynq7020.db"), "-o", str(folder / "zynq7020.json")]
    if importlib.util.find_spec("matplotlib"):
        line += ["--picture", str(folder / "zynq7020.svg"), "--picture", str(folder / "zynq7020.png")]
    else:
        print("no picture: pip install -r requirements-explore.txt brings matplotlib", file=sys.stderr)
    return command.main([*line, *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

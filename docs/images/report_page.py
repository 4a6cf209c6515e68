#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the page of `tessera report --html`, taken in Debian's Chromium.

    docs/images/report_page.py [--build build/release]      writes docs/images/report_*.png

Enters: the networks named below, run on the timing model. Leaves: one picture for each line of PICTURES. Fonts are
those of the machine, so pictures of two machines differ in a few pixels. Take them again when the page looks
different."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = pathlib.Path(__file__).resolve().parent
SIZE = (1440, 1090)
# name, network, configuration, view, what is done there
PICTURES = [
    ("report_timeline", "resnet8", "npu256", "sums", ["document.querySelectorAll('.slowest button')[1].click()"]),
    ("report_memory", "mobilenetv2", "npu256", "memory", []),
    ("report_graph", "resnet8", "npu256", "graph", ["document.querySelectorAll('.slowest button')[4].click()"]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    build = parser.parse_args().build
    sys.path.insert(0, str(ROOT))
    from bench import networks
    from tests.system import browser

    page = browser.Page(FOLDER, *SIZE)
    with tempfile.TemporaryDirectory() as folder:
        for name, network, config, view, acts in PICTURES:
            model, html = pathlib.Path(folder, f"{network}.onnx"), pathlib.Path(folder, "page.html")
            model.write_bytes(networks.build(network)[0])
            command = [build / "bin" / "tessera", "report", model, "--config", config, "--html", html, "-q"]
            subprocess.run(command, check=True)
            page.open(html)
            page.show(view)
            for act in acts:
                page.js(act)
            if view == "graph":
                page.until("document.querySelector('#graph canvas').dataset.boxes > 0")
            page.show(view)
            page.settle()
            page.shot(name)
            print(f"wrote {name}.png")
    page.driver.quit()


if __name__ == "__main__":
    main()

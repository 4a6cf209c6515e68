# SPDX-License-Identifier: Apache-2.0
"""The page of `tessera report --html` in Chromium.

A row is a network: the size of the page, the instructions and nodes in it, the milliseconds from the request until the
page can be used (the median of five), and the longest frame while the timeline and the graph are zoomed out and in,
forty steps each. A row of many copies of ResNet-50's graph, one after the other, shows what a large graph costs."""

import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPENINGS = 5
MANY = 90  # copies of ResNet-50's graph: 29,610 nodes
ZOOM = """
const done = arguments[1], canvas = document.querySelector(`#${arguments[0]} canvas`);
canvas.focus();
let steps = 0, last = performance.now(), worst = 0;
const step = () => {
  const now = performance.now();
  worst = Math.max(worst, now - last);
  last = now;
  if (steps++ === 40) return done(worst);
  canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: steps < 20 ? 80 : -80, bubbles: true, cancelable: true}));
  requestAnimationFrame(step);
};
requestAnimationFrame(step);
"""


def repeated(report, times):
    """The report with its graph `times` over, each copy reading what the one before gives."""
    graph = report["graph"]
    values, nodes, count = graph["values"], graph["nodes"], len(graph["values"]["name"])
    out = {"values": {key: [] for key in values}, "nodes": {key: [] for key in nodes}}
    for copy in range(times):
        for key in values:
            out["values"][key] += values[key]
        for key in nodes:
            if key not in ("inputs", "outputs"):
                out["nodes"][key] += [-1] * len(nodes[key]) if key == "layer" else nodes[key]
        shift = count * copy
        before = shift - count + graph["outputs"][0] if copy else graph["inputs"][0]
        moved = {graph["inputs"][0]: before, -1: -1}
        for key in ("inputs", "outputs"):
            out["nodes"][key] += [[moved.get(v, v + shift) for v in row] for row in nodes[key]]
    last = graph["outputs"][0] + count * (times - 1)
    return {**report, "graph": {**out, "inputs": graph["inputs"], "outputs": [last]}}


def measure(page, path, report, name):
    times = []
    for _ in range(OPENINGS):
        page.open(path)
        times.append(int(page.js("return document.documentElement.dataset.milliseconds")))
    frames = {}
    for view in ("timeline", "graph"):
        page.show(view)
        if view == "graph":
            page.until("document.querySelector('#graph canvas').dataset.boxes > 0")
            page.settle()
        frames[view] = page.driver.execute_async_script(ZOOM, view)
    return {
        "network": name,
        "megabytes": round(path.stat().st_size / 1e6, 2),
        "instructions": report["instructions"],
        "nodes": len(report["graph"]["nodes"]["name"]),
        "open_milliseconds": round(statistics.median(times)),
        "timeline_frame_milliseconds": round(frames["timeline"], 1),
        "graph_frame_milliseconds": round(frames["graph"], 1),
    }


def bench(build, names):
    import networks

    from tests.system import browser

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        page = browser.Page(pathlib.Path(folder))
        for name in names or ["resnet8", "mobilenetv2", "resnet50", "large graph"]:
            model, saved, html = (pathlib.Path(folder, f"report.{end}") for end in ("onnx", "json", "html"))
            model.write_bytes(networks.build("resnet50" if name == "large graph" else name)[0])
            command = [build / "bin" / "tessera", "report"]
            subprocess.run([*command, model, "-q", "--json", "-o", saved], check=True)
            report = json.loads(saved.read_text())
            if name == "large graph":
                report = repeated(report, MANY)
                saved.write_text(json.dumps(report))
            subprocess.run([*command, saved, "--html", html], check=True)
            rows.append(measure(page, html, report, name))
        page.driver.quit()
    return {"report": rows}

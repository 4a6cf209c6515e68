# SPDX-License-Identifier: Apache-2.0
"""The page of `tessera report --html` in Debian's Chromium: every view renders, a click selects in all of them, runs
compare, keys work, and neither the console nor axe complains. Screenshots are kept in build/screenshots."""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tests.system.conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

WEB = ROOT / "web"
SHOTS = BUILD.parent / "screenshots"
VIEWS = ["sums", "timeline", "memory", "roofline", "graph", "layers", "sources"]
DEVICE = "sysc" if "sysc" in tessera.backends() else "fsim"

browser = pytest.importorskip("tests.system.browser", reason="selenium is not installed; ./dev setup does it")


def needs(path, what):
    return pytest.mark.skipif(not path, reason=f"{what} is missing; ./dev setup installs it")


pytestmark = [
    needs(browser.CHROMIUM and browser.DRIVER, "chromium with its driver"),
    needs((WEB / "node_modules").is_dir(), "web/node_modules"),
]


@pytest.fixture(scope="module")
def page():
    made = browser.Page(SHOTS)
    yield made
    made.driver.quit()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports by (network, configuration) as JSON files, made once."""
    folder = tmp_path_factory.mktemp("reports")

    def report(name, config="npu256"):
        path = folder / f"{name}-{config}.json"
        if not path.exists():
            data, feeds = networks.build(name)
            session = tessera.Session(data, DEVICE, config)
            session.run(None, feeds)
            session.report(path)
        return path

    return report


def html(command, path, *arguments):
    out = path.with_suffix(".html")
    done = command("report", path, "--html", out, *arguments)
    assert done.returncode == 0, done.stderr
    return out


def test_types_are_strict():
    done = subprocess.run(
        [WEB / "node_modules" / ".bin" / "tsc", "--noEmit", "-p", WEB], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert json.loads((WEB / "tsconfig.json").read_text())["compilerOptions"]["strict"]


SMALL = ["resnet8", "ds_cnn", "autoencoder", "encoder"]
LARGE = ["vww", "mobilenetv2", "resnet18", "resnet50"]


@pytest.mark.parametrize("name", SMALL + LARGE * ("TESSERA_LONG" in os.environ))
def test_every_view_renders(page, reports, command, name):
    path = reports(name)
    report = json.loads(path.read_text())
    made = html(command, path)
    text = made.read_text()
    assert "<script src" not in text and '<link rel="stylesheet' not in text
    page.open(made)
    for view in VIEWS:
        page.show(view)
        page.shot(f"{name}-{view}")
    for view, least in (("timeline", 8), ("memory", 5), ("graph", 5)):
        page.show(view)
        if view == "graph":
            page.until("document.querySelector('#graph canvas').dataset.boxes > 0")
            page.settle()
        assert page.inked(view) >= least, view
    rows = page.js("return document.querySelectorAll('#layers tbody tr').length")
    assert rows == len(report["layers"])
    products = [r for r in report["layers"] if r["placement"] == "npu" and r["macs"] and r["dram_read_bytes"]]
    assert page.js("return document.querySelectorAll('#roofline .point').length") == len(products)
    assert page.js("return document.querySelectorAll('#memory [role=tab]').length") == 7
    assert page.js("return document.querySelectorAll('#memory [role=tab][aria-selected=true]').length") == 1
    cycles = f"{report['cycles']:,}" if report["cycles"] else "–"
    assert cycles in page.js("return document.querySelector('#sums').textContent")
    assert page.complaints() == []


def test_a_click_selects_everywhere(page, reports, command):
    path = reports("resnet8")
    report = json.loads(path.read_text())
    page.open(html(command, path))
    for view in VIEWS:
        page.show(view)
    layer = max(range(len(report["layers"])), key=lambda i: report["layers"][i]["cycles"] or 0)
    name = report["layers"][layer]["key"]
    page.js("document.querySelectorAll('#layers tbody tr')[arguments[0]].click()", layer)
    page.settle()
    assert page.js("return document.querySelector('#aside h3').textContent").startswith(name)
    assert "cycles" in page.js("return document.querySelector('.why').textContent")
    chosen = "return document.querySelector('#roofline [aria-pressed=true]').dataset.layer"
    assert page.js(chosen) == str(layer)
    # From the roofline back to the table, from the table by Escape to nothing.
    other = page.js("return document.querySelector('#roofline [aria-pressed=false]').dataset.layer")
    page.js(
        "document.querySelector(`#roofline [data-layer='${arguments[0]}'] circle`).parentNode.dispatchEvent("
        "new MouseEvent('click', {bubbles: true}))",
        other,
    )
    page.settle()
    marked = "return [...document.querySelectorAll('#layers tbody tr')].findIndex(r => r.ariaSelected === 'true')"
    assert page.js(marked) == int(other)
    page.shot("resnet8-selected")
    page.driver.switch_to.active_element.send_keys("\ue00c")
    page.settle()
    assert page.js(marked) == -1
    if DEVICE == "fsim":
        return
    # In the timeline: a click on the middle of the layer's bar; bars stand on two lines in turn.
    page.show("timeline")
    canvas = page.driver.find_element("css selector", "#timeline canvas")
    row = report["layers"][layer]
    width, height = canvas.size["width"], canvas.size["height"]
    share = (row["begin_cycle"] + row["end_cycle"]) / 2 / report["timeline"]["end"]
    x, y = 58 + share * (width - 66) - width / 2, 22 + 6 + 12 * (layer % 2) - height / 2
    page.click(canvas, round(x), round(y))
    page.settle()
    assert page.js(marked) == layer
    assert page.complaints() == []


def test_sorting_filtering_and_search(page, reports, command):
    path = reports("resnet8")
    page.open(html(command, path))
    page.show("layers")
    cells = "return [...document.querySelectorAll('#layers tbody tr')].map(r => r.cells[{}].textContent)"
    heads = page.js("return [...document.querySelectorAll('#layers thead th')].map(h => h.textContent)")
    column = heads.index("predicted")
    page.js("document.querySelectorAll('#layers thead button')[arguments[0]].click()", column)
    figures = [int(text.replace(",", "")) for text in page.js(cells.format(column)) if text != "–"]
    assert figures == sorted(figures, reverse=True) and len(figures) > 8
    page.js("document.querySelectorAll('#layers thead button')[arguments[0]].click()", column)
    again = [int(text.replace(",", "")) for text in page.js(cells.format(column)) if text != "–"]
    assert again == sorted(figures)
    page.driver.find_element("css selector", "#layers input").send_keys("cpu quantize")
    assert set(page.js(cells.format(heads.index("where")))) == {"cpu"}
    page.show("graph")
    page.until("document.querySelector('#graph canvas').dataset.boxes > 0")
    folded = int(page.js("return document.querySelector('#graph canvas').dataset.boxes"))
    page.press("#graph input", *"conv9", "\ue007")
    assert page.js("return document.querySelector('#aside h3').textContent").startswith("conv9")
    scale = "Number(document.querySelector('#graph canvas').dataset.scale)"
    for _ in range(8):
        page.js("document.querySelector('#graph [aria-label=\"Zoom out\"]').click()")
    page.until(f"{scale} < 0.3")
    page.press("#graph input", "\ue007")  # what is found can be read
    page.until(f"{scale} === 1")
    page.js("[...document.querySelectorAll('#graph button')].find(b => b.textContent === 'Unfold all').click()")
    page.until("document.querySelector('#graph canvas').dataset.boxes > arguments[0]", 2 * folded)
    assert page.complaints() == []


def test_keys(page, reports, command):
    page.open(html(command, reports("resnet8")))
    view = "return document.querySelector('#timeline canvas').dataset.view.split(',').map(Number)"
    page.settle()
    whole = page.js(view)
    page.press("#timeline canvas", "+", "+", "+")
    near = page.js(view)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 8, rel=0.01)
    page.press("#timeline canvas", "\ue014")
    assert page.js(view)[0] > near[0]
    page.press("#timeline canvas", "n", "n")
    assert page.js("return document.querySelector('#aside h3') !== null")
    page.shot("resnet8-instructions")
    page.press("#timeline canvas", "0")
    assert page.js(view) == whole
    page.show("roofline")
    page.press("#roofline .point[tabindex='0']", "\ue014", "\ue014")
    assert page.js("return document.querySelectorAll('#roofline [aria-pressed=true]').length") == 1
    assert page.complaints() == []


def test_comparison(page, reports, command, tmp_path):
    first, second = reports("resnet8"), reports("resnet8", "npu64")
    out = tmp_path / "compare.html"
    done = command("report", "--compare", first, second, "--html", out)
    assert done.returncode == 0, done.stderr
    page.open(out)
    page.show("compare")
    text = page.js("return document.querySelector('#compare .sums').textContent")
    for path in (first, second):
        report = json.loads(path.read_text())
        assert f"{report['cycles'] or report['predicted_cycles']:,}" in text
    page.js("document.querySelectorAll('#compare tbody')[1].rows[2].click()")
    page.settle()
    name = page.js("return document.querySelectorAll('#compare tbody')[1].rows[2].cells[0].textContent")
    assert page.js("return document.querySelector('#aside h3').textContent").startswith(name)
    page.shot("compare")
    chips = "return document.querySelector('#chips').textContent"
    before = page.js(chips)
    page.js("const s = document.querySelector('#tools select'); s.value = 1; s.dispatchEvent(new Event('change'))")
    page.settle()
    assert "npu256" in before and "npu64" in page.js(chips)
    assert page.js("return document.querySelector('#aside h3').textContent").startswith(name)  # the same layer
    assert page.complaints() == []


# What the eye's missing cones leave of a colour (linear RGB): Machado, Oliveira, Fernandes, 2009, severity 1.
VISION = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.180437], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.950304]]


def lab(colour, vision):
    """CIELAB of "#rrggbb" as somebody sees it."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = TO_XYZ @ np.clip(np.array(vision) @ linear, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", VISION)
def test_colours_differ_for_everybody(kind):
    """Layers repeat eight colours, and neighbours must differ much; of causes, streams, placements and classes any two
    must differ."""
    text = (WEB / "src" / "look.ts").read_text()

    def colours(name, ends):
        found = re.search(rf"{name}[^=]*= \{ends[0]}(.*?)\{ends[1]}", text, re.S)
        return [lab(colour, VISION[kind]) for colour in re.findall(r'"(#[0-9a-f]{6})"', found[1])]

    layers = colours("LAYERS", "[]")
    assert len(layers) == 8
    assert min(np.linalg.norm(a - b) for a, b in zip(layers, layers[1:] + layers[:1])) > 25
    for name in ("CAUSE_COLOURS", "STREAM_COLOURS", "PLACEMENT_COLOURS", "EXACTNESS_COLOURS"):
        pairs = itertools.combinations(colours(name, "{}"), 2)
        assert min(np.linalg.norm(a - b) for a, b in pairs) > 15, name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessibility(page, reports, command, tmp_path, theme):
    out = tmp_path / "page.html"
    done = command("report", reports("resnet8"), "--compare", reports("resnet8", "npu64"), "--html", out)
    assert done.returncode == 0, done.stderr
    page.open(out)
    page.js("document.documentElement.dataset.theme = arguments[0]", theme)
    for view in [*VIEWS, "compare"]:
        page.show(view)
    page.js("document.querySelector('#layers tbody tr').click()")
    page.driver.execute_script((WEB / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.driver.execute_async_script("axe.run().then(arguments[0])")
    serious = [f for f in found["violations"] if f["impact"] in ("serious", "critical")]
    told = [(f["id"], f["nodes"][0]["html"][:120], f["nodes"][0]["failureSummary"][:200]) for f in serious]
    assert not told and len(found["passes"]) > 15
    page.show("timeline")
    page.shot(f"theme-{theme}")


def test_artifacts_and_devices_without_time(page, command, tmp_path):
    networks.build("resnet8")
    artifact, out = tmp_path / "a.tsr", tmp_path / "a.html"
    assert command("compile", networks.CACHE / "resnet8.onnx", "-q", "-o", artifact).returncode == 0
    assert command("report", artifact, "--device", "fsim", "--html", out).returncode == 0
    page.open(out)
    for view in VIEWS:
        page.show(view)
    page.until("document.querySelector('#graph canvas').dataset.boxes > 8")
    assert page.inked("timeline") >= 8
    assert page.complaints() == []


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def float_product():
    """A product of floats with a dynamic batch: nothing for the NPU."""
    weights = numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(
        nodes, "floats", [value("x", TensorProto.FLOAT, ["n", 8])], [value("z", TensorProto.FLOAT, None)], [weights]
    )
    return graph, np.ones((3, 8), np.float32)


def branches():
    """A node with graphs inside."""

    def body(op, inputs, name):
        node = helper.make_node(op, inputs, [name], name=f"inside {name}")
        return helper.make_graph([node], name, [], [value(name, TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node(
            "If",
            ["c"],
            ["r"],
            name="choice",
            then_branch=body("Add", ["x", "x"], "a"),
            else_branch=body("Neg", ["x"], "b"),
        ),
    ]
    graph = helper.make_graph(
        nodes, "branches", [value("x", TensorProto.FLOAT, [2, 3])], [value("r", TensorProto.FLOAT, None)]
    )
    return graph, np.ones((2, 3), np.float32)


@pytest.mark.parametrize("make,device", [(float_product, DEVICE), (branches, "fsim"), (branches, "reference")])
def test_models_with_nothing_for_the_npu(page, tmp_path, make, device):
    graph, x = make()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = tessera.Session(model.SerializeToString(), device)
    session.run(None, {"x": x})
    report = session.report(tmp_path / "page.html")
    nodes = report["graph"]["nodes"]
    if make is branches:
        choice = nodes["name"].index("choice")
        assert [nodes["parent"][nodes["name"].index(f"inside {name}")] for name in "ab"] == [choice] * 2
    else:
        assert nodes["exactness"][nodes["name"].index("product")] == "tolerance"
    page.open(tmp_path / "page.html")
    for view in VIEWS:
        page.show(view)
    page.until("document.querySelector('#graph canvas').dataset.boxes > 2")
    assert page.complaints() == []


def test_machines_that_an_exploration_found(page, command, tmp_path):
    networks.build("resnet8")
    space, found, out = (tmp_path / name for name in ("space.toml", "front.json", "machines.html"))
    machine = 'block_in = [8, 16]\nblock_out = [8, 16]\naxi_bytes = "8..16 by 2x"\nsecond_lanes = "block_out / 4"\n'
    space.write_text('name = "small"\nbase = "npu64"\n[machine]\n' + machine)
    done = command("explore", space, "--network", networks.CACHE / "resnet8.onnx", "-o", found, "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert command("report", "--explore", found, "--html", out).returncode == 0
    content = json.loads(found.read_text())
    page.open(out)
    page.show("explore")
    page.shot("explore")
    assert page.js("return document.querySelectorAll('#explore svg .point').length") == len(content["points"])
    assert page.js("return document.querySelectorAll('#explore svg .front').length") == len(content["front"])
    assert page.js("return document.querySelectorAll('#explore tbody tr').length") == len(content["front"])
    page.js("document.querySelector('#explore tbody tr').click()")
    assert page.js("return document.querySelectorAll('#explore .chosen').length") == 1
    assert page.complaints() == []
    done = command("report", "--explore", space, "--html", tmp_path / "x.html")
    assert done.returncode == 1 and "no exploration" in done.stderr


def test_names_of_the_model_are_only_text(page, reports, command, tmp_path):
    """A name that looks like markup does not become markup."""
    report = json.loads(reports("resnet8").read_text())
    name = "</script><img src=x onerror=document.title='broken'>"
    report["layers"][0]["key"] = report["layers"][0]["name"] = report["model"]["name"] = name
    report["graph"]["nodes"]["name"][0] = name
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(report))
    page.open(html(command, path))
    for view in VIEWS:
        page.show(view)
    assert page.js("return document.querySelector('#model').textContent") == name
    assert page.js("return document.querySelectorAll('img').length") == 0
    assert page.complaints() == []


def test_a_narrow_window_and_long_names(page, reports, command, tmp_path):
    """360 pixels: nothing is wider than the window, and the head of the page leaves with it. Long names keep their
    ends, and one without letters has a number."""
    report = json.loads(reports("resnet8").read_text())
    for i, layer in enumerate(report["layers"]):
        layer["key"] = layer["name"] = f"{'backbone_stage/' * 30}conv_{i}" if i else " \t\u2028"
    path = tmp_path / "long.json"
    path.write_text(json.dumps(report))
    made = html(command, path, "--compare", reports("resnet8"), reports("ds_cnn"))
    narrow = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        page.open(made)
        for view in [*VIEWS, "compare"]:
            page.show(view)
            page.shot(f"narrow-{view}")
        assert page.js("return document.documentElement.scrollWidth") <= 360
        assert page.js("return document.querySelector('header').getBoundingClientRect().bottom") <= 0
        names = page.js(
            "return [...document.querySelectorAll('#layers tbody tr')].map((tr) => tr.cells[1].textContent)"
        )
        assert names[0] == "layer 0" and names[1].startswith("backbone") and names[1].endswith("/conv_1")
        assert max(map(len, names)) <= 60 and page.complaints() == []
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_runs_of_one_file_name_are_told_apart(command, reports, tmp_path):
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_bytes(reports("resnet8").read_bytes())
    done = command("report", "--compare", "before/run.json", "after/run.json", "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "page.html").read_text()
    (data,) = re.findall('<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert [run["name"] for run in json.loads(data)["runs"]] == ["before/run.json", "after/run.json"]


def test_what_is_refused(command, tmp_path, reports):
    out = tmp_path / "x.html"
    old = json.loads(reports("resnet8").read_text())
    old["schema_version"] = 99
    (tmp_path / "old.json").write_text(json.dumps(old))
    (tmp_path / "stats.json").write_text(json.dumps({"layers": []}))
    for words, arguments in (
        ("is a report of version 99", (tmp_path / "old.json", "--html", out)),
        ("is no report", (tmp_path / "stats.json", "--html", out)),
        ("is no report", (reports("resnet8"), "--compare", tmp_path / "stats.json", "--html", out)),
        ("give --html FILE too", ("--compare", reports("resnet8"))),
        ("give a model", ()),
    ):
        done = command("report", *arguments)
        assert done.returncode == 1 and words in done.stderr, (words, done.stderr)
        assert not out.exists()


def test_node_data_for_model_explorer(command, reports, tmp_path):
    path, out = reports("resnet8"), tmp_path / "nodes.json"
    report = json.loads(path.read_text())
    assert command("report", path, "--model-explorer", out).returncode == 0
    data = json.loads(out.read_text())
    assert set(data) == {"name", "results", "gradient"}
    assert set(data["results"]) <= set(report["graph"]["nodes"]["name"])
    key = "cycles" if report["cycles"] else "predicted_cycles"
    assert sum(result["value"] for result in data["results"].values()) == report[key]
    assert [stop["stop"] for stop in data["gradient"]] == [0, 1]


def test_python_writes_the_page(tmp_path):
    data, feeds = networks.build("resnet8")
    session = tessera.Session(data, "fsim")
    session.run(None, feeds)
    path = pathlib.Path(tmp_path, "report.html")
    report = session.report(path)
    assert report["schema"] == "tessera-report" and path.read_text().startswith("<!doctype html>")
    session.report(os.fspath(tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == report

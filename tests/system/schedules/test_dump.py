# SPDX-License-Identifier: Apache-2.0
"""`tessera compile --dump-dir`: every file is text that tessera-opt reads, and the pass that a file is named after
makes it of the file before it, alone and in another process."""

import itertools
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import tessera as tessera_package
from tests.system.conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

OPT = BUILD / "bin" / "tessera-opt"


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", params=["resnet8", "encoder"])
def dump(request, tmp_path_factory):
    """(model, files in order) of a convolutional network and of a quantised transformer."""
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / "model.onnx"
    model.write_bytes(networks.build(request.param)[0])
    run(BUILD / "bin" / "tessera", "compile", "-q", model, "-o", folder / "model.tsr", "--dump-dir", folder / "dump")
    return model, sorted((folder / "dump").iterdir())


def step_of(path):
    return path.name.split(".", 1)[1].rsplit(".", 1)[0]


def test_each_pass_alone_makes_the_next_file(dump):
    _, files = dump
    graphs = [path for path in files if path.suffix in {".mlir", ".npu"}]
    steps = [step_of(path) for path in graphs]
    assert steps[0] == "import" and "nn-fold-qdq" in steps
    npu = [
        "partition",
        "assign-layouts",
        "transpose-factors",
        "fold-layout",
        "fuse-stages",
        "fold-layout",
        "fold-borders",
        "order-factors",
        "mark-chains",
        "place-chains",
    ]
    assert steps[-len(npu) :] == npu
    assert [path.name[:3] for path in files] == [f"{i:03}" for i in range(len(files))]
    for before, after in itertools.pairwise(graphs):
        assert run(OPT, before, f"--pass={step_of(after)}") == after.read_text(), after.name


def test_tessera_opt_reads_the_model_itself(dump):
    model, files = dump
    last = next(path for path in files if step_of(path) == "fuse-stages")
    passes = "nn-pipeline,partition,assign-layouts,transpose-factors,fold-layout,fuse-stages"
    assert run(OPT, model, f"--pass={passes}") == last.read_text()


def test_the_program_is_dumped_behind_the_graphs(dump):
    model, files = dump
    programs = [path for path in files if path.suffix == ".asm"]
    schedules = [path for path in files if path.suffix == ".json"]
    assert [path.name[3:] for path in programs] == [f".npu{i}.instructions.asm" for i in range(len(programs))]
    for path in schedules:
        assert all(json.loads(path.read_text()).values())
    listing = run(BUILD / "bin" / "tessera", "disasm", model.with_suffix(".tsr"))

    def code(text):
        return [line.split("#")[0].split() for line in text.splitlines() if line.split("#")[0].strip()]

    assert [line for path in programs for line in code(path.read_text())] == code(listing)


def test_the_way_from_the_graph_to_instructions_is_text(dump, tmp_path):
    """Tasks with their nests, schedules and instructions: tessera-opt makes each of them of the last graph."""
    _, files = dump
    graph = next(path for path in files if step_of(path) == "place-chains")
    texts = {}
    for kind, suffix in (("tasks", ".txt"), ("schedules", ".txt"), ("instructions", ".asm")):
        dumped = [path for path in files if step_of(path).endswith(f".{kind}") and path.suffix == suffix]
        texts[kind] = "".join(path.read_text() for path in dumped)
        assert texts[kind] and run(OPT, graph, f"--emit={kind}") == texts[kind], kind
    operations = re.findall(r"^  [a-z]+ (\"[^\"]+\") op=", graph.read_text(), re.M)
    assert re.findall(r"^task (\"[^\"]+\") operation=", texts["tasks"], re.M)[: len(operations)] == operations
    assert "  nest dense " in texts["tasks"] and re.search(r"^  schedule dense .*\{$", texts["schedules"], re.M)
    # Schedules are fed back, changed or not.
    (tmp_path / "same.txt").write_text(texts["schedules"])
    command = [OPT, graph, "--emit=instructions", "--schedules"]
    assert run(*command, tmp_path / "same.txt") == texts["instructions"]
    changed = re.sub(r" copies=\d+", "", texts["schedules"])
    (tmp_path / "changed.txt").write_text(changed)
    assert run(*command, tmp_path / "changed.txt") != texts["instructions"]


def test_a_changed_graph_is_obeyed(tmp_path):
    """A chain of the dumped graph is split by hand; the command and tessera-opt then make two layers of it, and the
    results are the same."""
    data, feeds = networks.build("ds_cnn")
    model = tmp_path / "model.onnx"
    model.write_bytes(data)
    tessera = [BUILD / "bin" / "tessera", "compile", "-q", model]
    run(*tessera, "-o", tmp_path / "usual.tsr", "--dump-dir", tmp_path / "dump")
    text = next((tmp_path / "dump").glob("*.place-chains.npu")).read_text()
    chains = re.findall(r"^  // chain (.*)$", text, re.M)
    assert chains and text.count("scope=chip") == sum(chain.count("->") for chain in chains)
    changed = tmp_path / "changed.npu"
    changed.write_text(text.replace("scope=chip", "scope=dram", 1))
    run(*tessera, "-o", tmp_path / "split.tsr", "--graph", changed, "--dump-dir", tmp_path / "split")
    listing = "".join(path.read_text() for path in (tmp_path / "split").glob("*.asm"))
    assert run(OPT, changed, "--emit=instructions") == listing

    def links(folder):
        return sum(path.read_text().count("chain [") for path in folder.glob("*.schedules.txt"))

    def stored(name):
        artifact = tmp_path / f"{name}.tsr"
        session = tessera_package.Session(artifact, "fsim")
        return session.run(None, feeds), sum(
            layer.bytes["output"] for layer in session.stats().layers if layer.placement == "npu"
        )

    (results, bytes_before), (split_results, bytes_after) = stored("usual"), stored("split")
    assert all(np.array_equal(a, b) for a, b in zip(results, split_results, strict=True))
    assert bytes_after > bytes_before and links(tmp_path / "split") <= links(tmp_path / "dump")
    # Graphs of another model are refused, and so are those that are missing or not yet laid out.
    other = tmp_path / "other.onnx"
    other.write_bytes(networks.build("resnet8")[0])
    early = next((tmp_path / "dump").glob("*.partition.npu"))
    for words, source, file in (
        ("takes or leaves other values", other, changed),
        ("is one of values", model, early),
        ("cannot open", model, tmp_path / "none.npu"),
    ):
        command = [BUILD / "bin" / "tessera", "compile", "-q", source, "-o", tmp_path / "x.tsr", "--graph", file]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_print_ir_after(dump, tmp_path):
    model, _ = dump
    command = [BUILD / "bin" / "tessera", "compile", "-q", model, "-o", tmp_path / "m.tsr"]
    text = run(*command, "--print-ir-after=fuse-stages")
    assert text.startswith("// ----- after fuse-stages\nnpu.graph @npu0 {") and text.count("// -----") == 1
    assert "elided" in text and len(text) < 100_000
    everything = run(*command, "--print-ir-after=all")
    assert "// ----- after import\nmodule {" in everything and "// ----- after npu0.instructions" in everything

# SPDX-License-Identifier: Apache-2.0
"""`tessera compile --dump-dir`: every file is text that tessera-opt reads, and the pass that a file is named after
makes it of the file before it, alone and in another process."""

import itertools
import json
import subprocess
import sys

import pytest

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
        "mark-chains",
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


def test_print_ir_after(dump, tmp_path):
    model, _ = dump
    command = [BUILD / "bin" / "tessera", "compile", "-q", model, "-o", tmp_path / "m.tsr"]
    text = run(*command, "--print-ir-after=fuse-stages")
    assert text.startswith("// ----- after fuse-stages\nnpu.graph @npu0 {") and text.count("// -----") == 1
    assert "elided" in text and len(text) < 100_000
    everything = run(*command, "--print-ir-after=all")
    assert "// ----- after import\nmodule {" in everything and "// ----- after npu0.instructions" in everything

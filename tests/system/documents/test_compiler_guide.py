# SPDX-License-Identifier: Apache-2.0
"""docs/compiler.md and compiler/README.md: the files of a dump have the numbers that the pages give them, and the
search of a layer has the candidates that the guide shows."""

import re

import pytest

from tests.system.conftest import ROOT

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
GUIDE = ROOT / "docs" / "compiler.md"


@pytest.fixture(scope="module")
def compiled(command, tmp_path_factory):
    """A folder with a dump, and the tables of the search on npu64."""
    folder = tmp_path_factory.mktemp("dump")
    words = ("compile", MODEL, "--shape", "image=1,1,8,8", "-q", "-o", folder / "model.tsr")
    assert command(*words, "--dump-dir", folder).returncode == 0
    return folder, command(*words, "--print-search", "--config", "npu64").stdout


@pytest.mark.parametrize("page", [GUIDE, ROOT / "compiler" / "README.md"])
def test_files_of_a_dump(compiled, page):
    named = re.findall(r"\b\d{3}\.[\w-]+\.(?:\w+\.)?(?:mlir|npu|txt|json|asm)\b", page.read_text())
    assert named
    assert [name for name in named if not (compiled[0] / name).exists()] == []


def test_numbers_alone_stand_for_files_that_the_guide_names(compiled):
    pairs = re.findall(r"--(?:pass|emit)=([\w-]+).*what (\d{3}) holds", GUIDE.read_text())
    assert pairs
    for step, number in pairs:
        (file,) = compiled[0].glob(f"{number}.*")
        assert step in file.name


def test_the_search_of_a_layer(compiled):
    (shown,) = re.findall(r"^'conv2': chosen.*?(?=^```)", GUIDE.read_text(), re.M | re.S)
    printed = compiled[1].splitlines()
    assert [line for line in shown.splitlines() if line.strip() != "..." and line not in printed] == []

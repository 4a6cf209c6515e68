# SPDX-License-Identifier: Apache-2.0
"""Dockerfile and devcontainer.json, as far as it goes without a daemon: the file parses, every stage that is copied
from exists, every shell line is one, every package is Debian's, every command of the project exists, and what is
copied into the image leaves out what a checkout has besides its sources."""

import io
import json
import re
import shutil
import subprocess

import pytest

from tests.system.conftest import ROOT

dockerfile_parse = pytest.importorskip("dockerfile_parse", reason="dockerfile-parse is not installed")

KNOWN = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD", "COMMENT"}


@pytest.fixture(scope="module")
def instructions():
    file = io.BytesIO((ROOT / "Dockerfile").read_bytes())
    return [(i["instruction"], i["value"]) for i in dockerfile_parse.DockerfileParser(fileobj=file).structure]


def commands():
    return set(re.findall(r"^  (\w+)\)", (ROOT / "dev").read_text(), re.MULTILINE))


def check_shell(line):
    checked = subprocess.run(["sh", "-n", "-c", line], capture_output=True, text=True)
    assert checked.returncode == 0, (line, checked.stderr)
    for command in re.findall(r"\./dev (\w+)", line):
        assert command in commands(), line
    for words in re.findall(r"apt-get install ([^&;]+)", line):
        for package in (word for word in words.split() if not word.startswith("-")):
            if shutil.which("apt-cache"):
                shown = subprocess.run(["apt-cache", "show", package], capture_output=True, text=True)
                assert shown.returncode == 0, package


def test_stages_and_instructions(instructions):
    stages = []
    for name, value in instructions:
        assert name in KNOWN, name
        if name == "FROM":
            assert re.match(r"debian:12(-slim)?( AS \w+)?$", value), value
            stages.append(value.partition(" AS ")[2])
        if name == "COPY" and (source := re.match(r"--from=(\w+)", value)):
            assert source[1] in stages[:-1]
        if name == "RUN":
            check_shell(value)
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(value))
    assert [name for name, _ in instructions][-1] in ("CMD", "ENTRYPOINT")


def test_the_image_answers_with_a_command_that_exists(instructions, command):
    words = [word for name, value in instructions if name in ("ENTRYPOINT", "CMD") for word in json.loads(value)]
    assert words[0] == "tessera"
    assert command(*words[1:]).returncode == 0


def test_what_is_not_a_source_stays_out():
    ignored = (ROOT / ".dockerignore").read_text().split()
    for folder in (".git", ".venv", "build", "web/node_modules"):
        assert folder in ignored


def test_devcontainer():
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert settings["image"] == "debian:12"
    for hook in ("onCreateCommand", "updateContentCommand"):
        check_shell(settings[hook])
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    folders = {preset.get("binaryDir", "").removeprefix("${sourceDir}/") for preset in presets}
    named = settings["customizations"]["vscode"]["settings"]["clangd.arguments"][0].partition("=")[2]
    assert named in folders or "build/${presetName}" in folders

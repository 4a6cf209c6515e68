# SPDX-License-Identifier: Apache-2.0
"""docs/serving.md: what a reader types there runs and prints the lines that the page shows."""

import socket
import sys

import pytest

from tests.system import serving
from tests.system.conftest import ROOT
from tests.system.documents import test_tutorials

for package in serving.PACKAGES:
    pytest.importorskip(package, reason=f"the Python package {package} is missing; ./dev setup installs it")


def free_ports(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def test_a_reader_sees_what_the_page_shows(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "serving.md").read_text()
    grpc, http = free_ports(2)  # in the place of the page's, which others may have
    monkeypatch.setenv("TESSERA_PYTHON", sys.executable)
    flags = f"--listen 127.0.0.1:{grpc} --http-listen 127.0.0.1:{http} -q &"
    other = text.replace("9190", grpc).replace("9191", http).replace("-q &", flags)
    printed = test_tutorials.type_in(other, tmp_path)
    problems = []
    assert test_tutorials.renewed_page(text, printed, problems) == text
    assert problems == []

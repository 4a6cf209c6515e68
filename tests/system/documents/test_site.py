# SPDX-License-Identifier: Apache-2.0
"""The documentation's site: Sphinx takes every page and link without a warning, the references name what the package
and the command have, and no page loads anything from elsewhere."""

import html.parser
import os
import re
import subprocess
import sys

import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

pytest.importorskip("sphinx", reason="Sphinx is not installed (requirements.txt)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs/site", ".", out],
        cwd=ROOT,
        env={**os.environ, "TESSERA": str(BUILD / "bin/tessera")},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return out


class Resources(html.parser.HTMLParser):
    """What a browser fetches with a page: scripts, style sheets, pictures. Links that a reader follows are others."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.found.append(given["src"])
        if tag == "link" and given.get("rel") != "canonical" and given.get("href"):
            self.found.append(given["href"])


def test_every_page_stands_alone(site):
    pages = list(site.rglob("*.html"))
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert {page.removesuffix(".md") + ".html" for page in listed} <= {str(p.relative_to(site)) for p in pages}
    for page in pages:
        resources = Resources()
        resources.feed(page.read_text())
        for resource in resources.found:
            assert not re.match(r"(https?:)?//", resource), (page, resource)
            if not resource.startswith(("data:", "#")):
                assert (page.parent / resource.partition("?")[0]).exists(), (page, resource)


def test_references_are_whole(site):
    package = (site / "docs/site/python.html").read_text()
    for name in ("Session", "Session.run", "Session.io_binding", "compile", "quantize", "generation.Generator.stream"):
        assert f'id="tessera.{name}"' in package, name
    commands = (site / "docs/site/commands.html").read_text()
    for name in ("run", "compile", "quantize", "tune", "explore", "report", "doctor"):
        assert f"tessera {name}" in commands
    assert "tessera_last_error" in (site / "docs/site/c.html").read_text()
    assert tessera.__version__ in (site / "docs/site/index.html").read_text()

# SPDX-License-Identifier: Apache-2.0
"""The documentation site: every Markdown page of the project where it stands, and the Python package's docstrings.

Sphinx reads this with the project's root as its source folder (`./dev docs`), so that a page's links are the same on
the site and in a checkout. A page that no table of contents of index.md names is an error, like a link to nothing."""

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

project = "Tessera"
author = "the authors of Tessera"
copyright = "the authors of Tessera, Apache-2.0"
release = re.search(r"project\(.*?VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.DOTALL)[1]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "docs/site/index"
source_suffix = {".md": "markdown"}
# Git knows which pages are the project's; an unpacked archive has all of them and nothing else.
_listed = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True
)
include_patterns = _listed.stdout.split() or ["**.md"]
exclude_patterns = ["build", ".venv", "**/node_modules"]

myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]
# Code blocks of languages that Pygments does not know are shown as text.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}

html_theme = "furo"
html_title = f"Tessera {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": "", "navigation_with_keys": True}


def docstring_of_markdown(app, what, name, obj, options, lines):
    """The package's docstrings are plain text: code in `backquotes`, examples indented."""
    text = []
    for line in lines:
        if line.startswith("    ") and text and not text[-1].strip() and not text[-2].startswith("    "):
            text += ["::", ""]
        text.append(re.sub(r"(?<![`:])`([^`\n]+)`(?!`)", r"``\1``", line))
    lines[:] = text


def help_of_commands():
    """A section for each command of `tessera`, which the environment or the build has."""
    tessera = os.environ.get("TESSERA") or shutil.which("tessera") or ROOT / "build/release/bin/tessera"

    def ask(*words):
        return subprocess.run([tessera, *words, "--help"], capture_output=True, text=True, check=True).stdout

    overview = ask()
    commands = re.findall(r"^  ([a-z]+) {2,}", overview.split("Subcommands:")[1], re.MULTILINE)
    return "\n".join(f"## tessera {name}\n\n```text\n{ask(name)}```\n" for name in commands)


def read_page(app, page, source):
    """Links to a folder lead to its README, or, where it has none, nowhere: the site has no page for them."""

    def lead(match):
        text, target = match.groups()
        folder = (ROOT / page).parent / target
        if not folder.is_dir():
            return match[0]
        return f"[{text}]({target.rstrip('/')}/README.md)" if (folder / "README.md").is_file() else text

    source[0] = re.sub(r"\[([^\]]+)\]\(([\w./-]+)\)", lead, source[0])
    if page == "docs/site/commands":
        source[0] += "\n" + help_of_commands()


def front_door(app, error):
    """index.html at the site's root, which leads to the first page."""
    if not error and app.builder.format == "html":
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html"><title>Tessera</title>'
        (pathlib.Path(app.outdir) / "index.html").write_text(f'{page}<a href="{root_doc}.html">Tessera</a>\n')


def setup(app):
    app.connect("autodoc-process-docstring", docstring_of_markdown)
    app.connect("source-read", read_page)
    app.connect("build-finished", front_door)

# SPDX-License-Identifier: Apache-2.0
"""The rules of tests/prose.py, each on a text that breaks it and on texts that only look as if they did. Every test
runs on a small project of its own in a temporary folder, with git, as the rules ask git for the files."""

import subprocess

import pytest

from tests import prose

HEAD = f"<!-- {prose.SPDX} -->\n"
# Joined here, so that this file does not break the rule that it tests.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
SOMEBODYS = "/ho" + "me/somebody/sources"
MACHINES = "/wo" + "rk/sources"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a page, a source and a folder; gives the function that adds files and returns the findings."""
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def findings(name, text):
        files = {
            "README.md": HEAD + "# The title\n\n## What it *does*, in `brief`\n",
            "engine/array.cc": f"// {prose.SPDX}\n",
            name: text,
        }
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        prose.names.cache_clear()
        return [f"{file}:{number}: {message}" for file in prose.listed() for number, message in prose.check(file)]

    yield findings
    prose.names.cache_clear()


BAD = {
    "a long line": ("word " * 25, "125 columns; prose ends at 120"),
    "a long line with a link in it": ("word " * 25 + "[page](README.md)", "142 columns; prose ends at 120"),
    "a link to nothing": ("See [page](missing.md).", "the link to missing.md leads nowhere"),
    "a picture that is missing": ("![picture](missing.svg)", "the link to missing.svg leads nowhere"),
    "an anchor of another page": ("[part](README.md#how)", "README.md has no heading #how"),
    "an anchor of this page": ("[part](#how)", "page.md has no heading #how"),
    "a heading in code": ("```\n# How\n```\n[part](#how)", "page.md has no heading #how"),
    "a file that is missing": ("The file `matrix.cc` multiplies.", "there is no matrix.cc"),
    "a file in another folder": ("The file `engine/matrix.cc` multiplies.", "there is no engine/matrix.cc"),
    "a folder that is missing": ("The folder `motor/` multiplies.", "there is no motor/"),
    "a pattern without a file": ("The files `*_test.cc` test.", "there is no *_test.cc"),
    "a path of a machine": (f"It stands in {MACHINES}.", f"'{MACHINES[:6]}' must not stand in the project"),
    "a path of a person": (f"It stands in {SOMEBODYS}.", f"'{SOMEBODYS[:7]}' must not stand in the project"),
    **{word: (f"{word}: finish this.", f"'{word}' must not stand in the project") for word in UNFINISHED},
}

GOOD = {
    "a line of 120 columns": "w" * prose.WIDTH,
    "a long table": f"| {'word ' * 30} |",
    "long fenced code": f"```\n{'word ' * 30}\n```",
    "long indented code": "    " + "word " * 30,
    "a long line that is one link": f"- [{'word ' * 30}](README.md).",
    "a link to a file": "[array](engine/array.cc)",
    "a link to a folder": "[engine](engine)",
    "a link to the world": "[RFC](https://www.rfc-editor.org/rfc/rfc2119#section-1)",
    "an anchor of another page": "[part](README.md#what-it-does-in-brief)",
    "an anchor of this page": "# How\n\n[part](#how)",
    "a link in code": "```\n[page](missing.md)\n```",
    "a file's name": "The file `array.cc` multiplies.",
    "a file's path": "The file `engine/array.cc` multiplies.",
    "a path from elsewhere": "The file `../engine/array.cc` multiplies.",
    "a path without the extension": "The unit `engine/array` multiplies.",
    "a folder": "The folder `engine/` multiplies.",
    "a pattern of files": "The files `arr*.cc` multiply.",
    "a product of a build": "It stands in `build/release/report.md`.",
    "a name that stands for any name": "Write `foo.cc` or `my_pass.cc`.",
    "a word with an unfinished one inside": f"The {UNFINISHED[0]}S and {UNFINISHED[2]}L are words.",
    "a path that ends as a machine's": f"It stands in build{MACHINES} and ../{SOMEBODYS[1:]}.",
}


def test_the_small_project_is_in_order(project):
    assert project("empty.cc", "") == []


@pytest.mark.parametrize("case", BAD)
def test_a_bad_page_gives_its_one_finding(project, case):
    text, message = BAD[case]
    line = 2 + text.count("\n")
    assert project("page.md", HEAD + text + "\n") == [f"page.md:{line}: {message}"]


@pytest.mark.parametrize("case", GOOD)
def test_a_good_page_gives_none(project, case):
    assert project("page.md", HEAD + GOOD[case] + "\n") == []


@pytest.mark.parametrize("name", ["a.cc", "a.h", "a.py", "a.sv", "a.md", "a.toml", "CMakeLists.txt", "dev"])
def test_the_licence_stands_among_the_first_three_lines(project, name):
    finding = [f"{name}:1: the SPDX line is missing among the first three"]
    assert project(name, "first\n") == finding
    assert project(name, f"first\nsecond\nthird\n{prose.SPDX}\n") == finding
    assert project(name, f"first\nsecond\n{prose.SPDX}\n") == []


def test_a_header_says_what_it_is_for(project):
    finding = ["a.h:2: the line under the licence has to say what the header is for"]
    assert project("a.h", f"// {prose.SPDX}\n#pragma once\n") == finding
    assert project("a.h", f"// {prose.SPDX}\n// Arrays.\n#pragma once\n") == []
    assert project("a.h", f"/* {prose.SPDX} */\n/* Arrays. */\n#pragma once\n") == []
    assert project("a.cc", f"// {prose.SPDX}\n#include <array>\n") == []


@pytest.mark.parametrize("name", ["data.json", "golden.txt"])
def test_formats_without_comments_need_no_licence_but_have_no_such_words(project, name):
    assert project(name, "[1]\n") == []
    assert project(name, f"[1]\n{UNFINISHED[1]}\n") == [f"{name}:2: '{UNFINISHED[1]}' must not stand in the project"]


def test_generated_pages_may_have_long_lines_and_no_dead_links(project):
    assert project("isa/generated/manual.md", HEAD + "word " * 30 + "\n") == []
    assert project("isa/generated/manual.md", HEAD + "[page](missing.md)\n") == [
        "isa/generated/manual.md:2: the link to missing.md leads nowhere"
    ]


def test_what_is_no_text_or_ignored_is_left_alone(project):
    assert project("picture.md", b"\xff\xfe" + UNFINISHED[0].encode()) == []
    assert project(".gitignore", "ignored.md\n") == []
    assert project("ignored.md", "word " * 30) == []


def test_the_exit_status_tells(project, capsys):
    assert project("page.md", HEAD) == []
    assert prose.main() == 0
    assert "in order" in capsys.readouterr().out
    project("page.md", "a page\n")
    assert prose.main() == 1
    assert capsys.readouterr().out == "page.md:1: the SPDX line is missing among the first three\n"

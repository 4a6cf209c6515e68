# SPDX-License-Identifier: Apache-2.0
"""Which files clang-tidy reads again, in a repository of three commits."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import lint

SOURCE = '#include "a.h"\n\nint f() { return 1; }\n'


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    git(tmp_path, "init", "-q")
    for name in ("moved.cc", "included.cc", "changed.cc"):
        (tmp_path / name).write_text(SOURCE)
    commit(tmp_path)
    return tmp_path


def git(folder, *words):
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "change")


def test_place_and_includes_alone_are_no_change(repository):
    (repository / "room").mkdir()
    (repository / "moved.cc").rename(repository / "room" / "moved.cc")
    (repository / "included.cc").write_text(SOURCE.replace("a.h", "room/a.h"))
    (repository / "changed.cc").write_text(SOURCE.replace("return 1", "return 2"))
    commit(repository)
    (repository / "new.cc").write_text("int g();\n")
    commit(repository)
    (repository / "untracked.cc").write_text(SOURCE)
    assert lint.changed_by_last(2) == {"changed.cc", "new.cc", "untracked.cc"}
    assert lint.changed_by_last(1) == {"new.cc", "untracked.cc"}
    assert lint.changed_by_last(9) is None  # the history is shorter

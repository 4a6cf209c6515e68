# SPDX-License-Identifier: Apache-2.0
"""What need not run again: only what passed, and only while nothing changes that it is made of."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import passed  # noqa: E402


@pytest.fixture
def project(tmp_path):
    """A project of four files, with a build of one program and of one machine."""
    for name in ("hw/rtl/top.sv", "configs/small.toml", "docs/page.md", "base/list.cc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    for name in ("bin/list_test", "lib/tessera/rtl/small.so"):
        (tmp_path / "build" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / name).write_text("before")
    (tmp_path / ".gitignore").write_text("build\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def entries(project):
    """Three tests as CTest describes them: a program, a proof by Yosys, a script about which nothing is known."""
    commands = {
        "list_test": [f"{project}/build/bin/list_test", "--count", "3"],
        "proof": ["/usr/bin/env", "python3", f"{project}/hw/synth/check.py", "forms"],
        "script": ["python3", f"{project}/tests/any.py"],
    }
    return [{"name": name, "command": command, "properties": []} for name, command in commands.items()]


def wanted(project, env=(), **options):
    return set(passed.Passed(project / "build", dict(env), project).wanted(entries(project), **options))


@pytest.fixture
def remembered(project):
    memory = passed.Passed(project / "build", {}, project)
    for key in memory.wanted(entries(project)).values():
        memory.keep(key)
    return project


def test_what_has_not_passed_runs(project):
    assert wanted(project) == {"list_test", "proof", "script"}


def test_what_passed_does_not_run_again_and_what_is_not_known_does(remembered):
    assert wanted(remembered) == {"script"}
    assert wanted(remembered, fresh=True) == {"list_test", "proof", "script"}


@pytest.mark.parametrize(
    "changed, runs",
    [
        ("build/bin/list_test", {"list_test"}),
        ("build/lib/tessera/rtl/small.so", {"list_test"}),
        ("configs/small.toml", {"list_test"}),
        ("configs/new.toml", {"list_test"}),
        ("hw/rtl/top.sv", {"proof"}),
        ("hw/configs/new.toml", {"list_test", "proof"}),
        ("base/list.cc", set()),
        ("docs/page.md", set()),
    ],
)
def test_what_changes_runs_what_is_made_of_it(remembered, changed, runs):
    (remembered / changed).parent.mkdir(parents=True, exist_ok=True)
    (remembered / changed).write_text("after")
    assert wanted(remembered) == {"script", *runs}


def test_variables_that_tests_read_count(remembered):
    assert wanted(remembered, {"TESSERA_LONG": "1"}) == {"list_test", "proof", "script"}
    assert wanted(remembered, {"EDITOR": "ed"}) == {"script"}


def test_a_command_counts(remembered):
    memory, (program, *_) = passed.Passed(remembered / "build", {}, remembered), entries(remembered)
    program["command"][-1] = "4"
    assert set(memory.wanted([program])) == {"list_test"}


def test_nothing_is_remembered_of_files_that_git_does_not_name(remembered):
    shutil.rmtree(remembered / ".git")
    memory = passed.Passed(remembered / "build", {}, remembered)
    assert wanted(remembered) == {"list_test", "proof", "script"} and memory.key_of_hardware("lint") is None


def test_only_what_ran_and_passed_counts_as_passed(tmp_path):
    report = tmp_path / "ctest.xml"
    assert passed.passes(report) == []
    report.write_text(
        """<testsuite><testcase name="good" status="run"/><testcase name="absent" status="notrun"/>
        <testcase name="bad" status="fail"><failure/></testcase></testsuite>"""
    )
    assert passed.passes(report) == ["good"]


@pytest.fixture
def tested(project):
    """The project with files of Python tests, which have passed: one reads documents, one by its helper, one by another
    file of tests, from which it takes a name."""
    for name, text in {
        "tests/test_sums.py": '"""What README.md says."""\n',
        "tests/test_pages.py": 'PAGE = "docs/page.md"\n',
        "tests/test_tables.py": "from tests import tables\n",
        "tests/test_more.py": "from tests.test_pages import PAGE\n",
        "tests/tables.py": 'PAGE = "docs/page.md"\n',
    }.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    memory = passed.Passed(project / "build", {}, project)
    for key in memory.python(["tests"])[0].values():
        memory.keep(key, 2)
    return project


COPIES = ("tests",)
FILES = {f"tests/test_{name}.py" for name in ("sums", "pages", "tables", "more")}


def python(project, env=(), **options):
    found, unchanged = passed.Passed(project / "build", dict(env), project).python(["tests"], **options)
    assert found.keys() | unchanged.keys() >= FILES and not found.keys() & unchanged.keys()
    assert set(unchanged.values()) <= {2}
    return set(found)


def test_files_of_python_tests_that_passed_do_not_run_again(tested):
    assert python(tested) == set()
    assert python(tested, fresh=True) == FILES
    assert python(tested, {"TESSERA_LONG": "1"}) == FILES


@pytest.mark.parametrize(
    "changed, runs",
    [
        ("tests/test_sums.py", {"tests/test_sums.py"}),
        ("tests/test_new.py", {"tests/test_new.py"}),
        ("tests/test_pages.py", {"tests/test_pages.py", "tests/test_more.py"}),
        ("docs/page.md", {"tests/test_pages.py", "tests/test_tables.py", "tests/test_more.py"}),
        ("tests/tables.py", FILES),
        ("base/list.cc", FILES),
        ("build/lib/tessera/rtl/small.so", FILES),
        ("build/notes.txt", set()),
    ],
)
def test_what_changes_runs_the_files_that_may_read_it(tested, changed, runs):
    (tested / changed).write_text("VALUE = 1\n")
    assert python(tested) == runs


def test_a_file_that_copies_the_sources_depends_on_all_tests(tested):
    memory = passed.Passed(tested / "build", {}, tested)
    for key in memory.python(["tests"], copies=COPIES)[0].values():
        memory.keep(key, 2)
    assert python(tested, copies=COPIES) == set()
    (tested / "tests/test_sums.py").write_text("VALUE = 1\n")
    assert python(tested, copies=COPIES) == FILES


def test_files_that_passed_are_those_without_a_failure(tmp_path):
    report = tmp_path / "pytest.xml"
    report.write_text(
        """<testsuites><testsuite>
<testcase classname="tests.a.test_one" name="x" time="1.5"/>
<testcase classname="tests.a.test_one.TestIt" name="y" time="2"/>
<testcase classname="tests.a.test_one" name="z"><skipped/></testcase>
<testcase classname="tests.a.test_two" name="x"/>
<testcase classname="tests.a.test_two" name="y"><failure/></testcase>
<testcase classname="" name="tests.a.test_three"><error/></testcase>
</testsuite></testsuites>"""
    )
    assert passed.files_that_passed(report) == {"tests/a/test_one.py": 2}
    assert passed.files_that_passed(tmp_path / "none.xml") == {}
    assert passed.seconds_of_files(report) == {"tests/a/test_one.py": 3.5}


def test_long_files_start_first(tested):
    memory = passed.Passed(tested / "build", {}, tested)
    memory.keep_seconds({"tests/test_sums.py": 1, "tests/test_pages.py": 3, "tests/test_gone.py": 9})
    memory.keep_seconds({"tests/test_tables.py": 2.5, "tests/test_sums.py": 4})
    names = list(passed.Passed(tested / "build", {}, tested).python(["tests"], fresh=True)[0])
    unknown, known = names[0], [f"tests/test_{name}.py" for name in ("sums", "pages", "tables")]
    assert unknown == "tests/test_more.py" and names[1:] == known

# SPDX-License-Identifier: Apache-2.0
"""What counts as a function with too many branches."""

import pytest

from tests import complexity


def branches(count):
    return "".join(f"  if (x == {n}) return {n};\n" for n in range(count))


def test_branches_of_a_function_are_counted():
    assert complexity.complex_functions("a.cc", f"int f(int x) {{\n{branches(24)}  return 0;\n}}\n") == []
    text = f"namespace n {{\nint f(int x) {{\n{branches(25)}  return 0;\n}}\n}}\n"
    assert complexity.complex_functions("a.cc", text) == [(2, "n::f", 26)]


def test_two_functions_with_half_of_them_each_are_fine():
    text = "".join(f"int {name}(int x) {{\n{branches(15)}  return 0;\n}}\n" for name in "fg")
    assert complexity.complex_functions("a.cc", text) == []


def test_python():
    text = "def f(x):\n" + "".join(f"    if x == {n}:\n        return {n}\n" for n in range(30))
    assert complexity.complex_functions("a.py", text) == [(1, "f", 31)]


@pytest.mark.parametrize("name", complexity.EXCEPTIONS)
def test_exceptions_are_of_files_that_are_there(name):
    assert (complexity.ROOT / name.split(": ")[0]).is_file()
    assert complexity.EXCEPTIONS[name]


def test_no_function_of_the_project_is_above(capsys):
    assert complexity.main([]) == 0, capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""What counts as a circle of files, on sources that have one and sources that have none."""

import pytest

from tests import circles


def found(**files):
    """The circles of files that are given as name_ending=text."""
    return circles.circles(circles.needs({name.replace("__", "/").replace("_", "."): files[name] for name in files}))


@pytest.mark.parametrize(
    "files",
    [
        {"a_py": "import b", "b_py": "def f():\n    import a"},
        {"p__a_py": "from . import b", "p__b_py": "from .a import f"},
        {"tests__a_py": "from tests import b", "tests__b_py": "import tests.a"},
        {"a_ts": 'import type { B } from "./b";', "b_ts": 'export { A } from "./a";'},
        {"p__a_ts": 'import {\n  B,\n} from "../q/b";', "q__b_ts": 'import "../p/a";'},
        {"p__a_h": '#include "p/b.h"', "p__b_h": '#include "a.h"'},
    ],
)
def test_two_files_that_need_each_other(files):
    assert found(**files) == [sorted(name.replace("__", "/").replace("_", ".") for name in files)]


@pytest.mark.parametrize(
    "files",
    [
        {"a_py": "import b", "b_py": "import os"},
        {"a_py": "import a"},
        {"p__a_py": "import json", "q__json_py": "from p import a"},  # another folder's json, not that one
        {"a_ts": 'import { B } from "b";', "b_ts": 'import { A } from "./a";'},  # a package, not the file beside it
        {"p__a_h": "#include <p/b.h>", "p__b_h": '#include "p/a.h"'},
    ],
)
def test_arrows_of_one_direction(files):
    assert found(**files) == []


def test_a_long_circle_is_one_and_what_hangs_on_it_is_no_part():
    files = {f"f{n}_py": f"import f{(n + 1) % 5}" for n in range(5)}
    assert found(**files, main_py="import f0", leaf_py="") == [[f"f{n}.py" for n in range(5)]]


def test_two_circles_are_told_apart():
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}, "f": {"a"}}
    assert circles.circles(graph) == [["a", "b"], ["c", "d", "e"]]


def test_a_package_gathers_its_modules_without_being_in_their_way():
    from_package = {
        "tessera/python/tessera/__init__.py": "from .a import f",
        "tessera/python/tessera/a.py": "import tessera",
    }
    assert circles.circles(circles.needs(from_package)) == []


def test_the_project_has_none():
    assert circles.main() == 0

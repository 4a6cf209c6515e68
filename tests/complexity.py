# SPDX-License-Identifier: Apache-2.0
"""Finds functions with more branches than a reader follows at once. Enters: files, or every source that git knows.
Leaves: a line for each function whose cyclomatic complexity, as lizard counts it, is above 25, and exit status 1 if
there is one that EXCEPTIONS does not name.

Such a function holds several thoughts: give each of them a name as a function of its own. lizard counts each case of a
switch, so that a switch over an enumeration with one line a case may be long without being complex; it may stand among
the exceptions, with its reason. Tests and generated files are not read.

    tests/complexity.py              every source
    tests/complexity.py FILE...      these alone"""

import pathlib
import re
import subprocess
import sys

import lizard

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 25
LEFT_OUT = re.compile(r"generated|test")
ENUMERATION = "a switch with a line or two for each element type"
RULES = "one refusal after the other, each of one rule, and nothing between them"
SHAPES = "the standard's rules of one operator: what is refused, then the shape, in its order"
STEPS = "one sequence of steps over the same state, which parts would have to pass on"

# "file: function": why it may stay as it is.
EXCEPTIONS = {
    "compiler/nn/bridge.cc: tessera::nn::to_element_type": ENUMERATION,
    "compiler/npu/input/check.cc: tessera::npu::Checker::check": RULES,
    "compiler/npu/input/check.cc: tessera::npu::Checker::check_tensor": RULES,
    "compiler/npu/planning/settle.cc: tessera::npu::Planner::pick": STEPS,
    "compiler/onnx/tensor_decode.cc: tessera::onnx::from_typed": ENUMERATION,
    "ops/onnx/family_attention.cc: tessera::ops::infer_attention": SHAPES,
    "ops/onnx/family_resize.cc: tessera::ops::plan": SHAPES,
    "ops/onnx/family_space.cc: tessera::ops::infer_pad": SHAPES,
    "ops/onnx/family_text.cc: tessera::ops::vocabulary_of": RULES,
    "ops/contrib/family_transformer.cc: tessera::ops::expand_multi_head": SHAPES,
    "ops/tensor.cc: tessera::ops::element_bytes": ENUMERATION,
    "ops/tensor.cc: tessera::ops::to_string": ENUMERATION,
    "ops/tensor.cc: tessera::ops::with_element": ENUMERATION,
    "sim/systemc/interconnect.cc: tessera::sim::systemc::Interconnect::clock_writes": STEPS,
}


def sources():
    """What git tracks, and what is new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.cc", "*.h", "*.py"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def complex_functions(name, text):
    """(line, function, complexity) of those above MOST."""
    found = lizard.analyze_file.analyze_source_code(name, text).function_list
    return [(one.start_line, one.name, one.cyclomatic_complexity) for one in found if one.cyclomatic_complexity > MOST]


def main(names):
    read = [name for name in names or sources() if not LEFT_OUT.search(name)]
    found = {}
    for name in read:
        for line, function, complexity in complex_functions(name, (ROOT / name).read_text(errors="replace")):
            found[f"{name}: {function}"] = f"{name}:{line}: {function} has a complexity of {complexity}"
    bad = [text for key, text in found.items() if key not in EXCEPTIONS]
    for text in bad:
        print(f"{text}, the most is {MOST}; name its thoughts as functions of their own")
    if not names:
        for key in EXCEPTIONS.keys() - found.keys():
            print(f"EXCEPTIONS names '{key}', which is not needed any more")
    if not bad:
        print(f"complexity: none above {MOST} in {len(read)} files, but for {len(found)} exceptions")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

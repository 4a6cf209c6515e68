# SPDX-License-Identifier: Apache-2.0
"""The conformance suite as it is imported, before any pass, through the interpreter. tests/conformance runs what the
compiler makes of the same cases."""

import onnx
import pytest

from tests.conformance import cases, judge, report


@pytest.mark.parametrize("case", [c for c in cases.find_cases() if c.kind != "light"], ids=lambda case: case.name)
def test_standard_case(nn, case):
    reason = report.reason_of(case)
    if reason:
        pytest.skip(reason["text"])
    proto = onnx.load(str(case.model))
    model = nn.Model(str(case.model))
    wanted = {name for name, _, _ in model.inputs}
    for feeds, expected in cases.data_sets(case, proto):
        actual = model.run({name: value for name, value in feeds.items() if name in wanted})
        assert judge.compare(actual, expected, case.tolerances()) == ""

# SPDX-License-Identifier: Apache-2.0
"""Variables and the states of recurrent cells go on from one run to the next, as in LiteRT's interpreter."""

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="needs requirements-litert.txt")

from ai_edge_litert.interpreter import Interpreter, OpResolverType

import tessera
from tests.litert import cases, movement_cases, oracle, product_cases  # noqa: F401

NAMES = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "RNN", "SVDF", "ASSIGN_VARIABLE")


def interpreted(data, feeds, runs):
    """What the interpreter gives in each of its runs."""
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    for detail, feed in zip(interpreter.get_input_details(), feeds):
        if tuple(detail["shape"]) != feed.shape:
            interpreter.resize_tensor_input(detail["index"], feed.shape)
    interpreter.allocate_tensors()
    results = []
    for _ in range(runs):
        for detail, feed in zip(interpreter.get_input_details(), feeds):
            interpreter.set_tensor(detail["index"], feed)
        interpreter.invoke()
        results.append([np.array(interpreter.get_tensor(d["index"])) for d in interpreter.get_output_details()])
    return results


def close(got, wanted):
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", range(4))
def test_runs_follow_each_other(name, number, tmp_path):
    try:
        case = cases.draw_case(name, number)
        wanted = interpreted(case.data, case.feeds, 3)
    except (oracle.Refused, RuntimeError, ValueError):
        pytest.skip("LiteRT has none of the drawn forms")
    session = tessera.Session(case.data, config="npu64")
    feeds = {port.name: feed for port, feed in zip(session.get_inputs(), case.feeds, strict=True)}
    for expected in wanted:
        close(session.run(None, feeds), expected)
    session.reset_state()
    close(session.run(None, feeds), wanted[0])
    session.save(tmp_path / "m.tsr")
    loaded = tessera.Session(tmp_path / "m.tsr")
    assert [port.name for port in loaded.get_inputs()] == list(feeds)
    for expected in wanted:
        close(loaded.run(None, feeds), expected)
    anew = tessera.Session(case.data, config="npu64", keep_state=False)
    for _ in range(2):
        close(anew.run(None, feeds), wanted[0])


def test_reference_device_keeps_states():
    case = cases.draw_case("ASSIGN_VARIABLE", 0)
    session = tessera.Session(case.data, "reference")
    feeds = {port.name: feed for port, feed in zip(session.get_inputs(), case.feeds, strict=True)}
    for expected in interpreted(case.data, case.feeds, 2):
        close(session.run(None, feeds), expected)

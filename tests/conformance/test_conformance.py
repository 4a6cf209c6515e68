# SPDX-License-Identifier: Apache-2.0
"""The conformance suite goes as docs/conformance.md says; the runner survives cases that die, hang or eat memory; and
tessera.backend has the interface of onnx.backend.base."""

import os
import re
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

tessera = pytest.importorskip("tessera")

import tessera.backend as backend  # noqa: E402
from tests.conformance import cases, judge, pool, report  # noqa: E402


def named(name):
    return next(case for case in cases.find_cases() if case.name == name)


def test_the_document_tells_how_the_suite_goes():
    verdicts = pool.run(cases.find_cases(), chance=report.is_chance)
    assert [case.name for case in report.unexplained(verdicts)] == []
    assert report.document(verdicts) == report.DOCUMENT.read_text(), "run ./dev conformance --record (or --oldest)"


def test_each_reason_is_of_use():
    listed = "".join(document.read_text() for document in report.DOCUMENTS)
    for entry in report.REASONS:
        assert any(re.search(entry["pattern"], name) for name in re.findall(r"`(\w+)`", listed)), entry["pattern"]


def die(case, device, config, chance):
    os._exit(3) if "relu" in case.name else time.sleep(100)


def serve_badly(connection, device, config):
    """A child that dies of one case and hangs in another."""
    judge.judge = die
    pool.serve(connection, device, config)


def test_the_pool_replaces_lost_children(monkeypatch):
    monkeypatch.setattr(pool, "serve", serve_badly)
    lost, slow = named("relu"), named("abs")
    verdicts = pool.run([lost, slow, named("leakyrelu")], jobs=1, seconds=5)
    assert verdicts[lost] == judge.Verdict("died", "the process ended with 3")
    assert verdicts[slow].outcome == "too slow"
    assert verdicts[named("leakyrelu")].outcome == "died"


def test_a_wrong_result_is_seen(tmp_path):
    """A case whose record is changed differs; one whose model is cut is refused."""
    case = named("relu")
    folder = tmp_path / "test_relu"
    (folder / "test_data_set_0").mkdir(parents=True)
    source = case.model.parent
    for path in ("model.onnx", "test_data_set_0/input_0.pb", "test_data_set_0/output_0.pb"):
        (folder / path).write_bytes((source / path).read_bytes())
    changed = cases.Case("relu", "node", folder / "model.onnx")
    assert judge.judge(changed, "fsim").outcome == "passed"
    record = folder / "test_data_set_0" / "output_0.pb"
    values = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(record.read_bytes())).copy()
    values.flat[5] += 1
    record.write_bytes(onnx.numpy_helper.from_array(values).SerializeToString())
    verdict = judge.judge(changed, "fsim")
    assert verdict.outcome == "follows" and "1 of 60 values" in verdict.detail
    (folder / "model.onnx").write_bytes((source / "model.onnx").read_bytes()[:40])
    assert judge.judge(changed, "fsim").outcome == "refused"


def test_backend():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["sum"]), helper.make_node("Relu", ["sum"], ["y"])],
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xw"],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("sum", "y")],
            [helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
    )
    x = np.array([-2, 0, 5], np.float32)
    assert backend.supports_device("CPU") and backend.supports_device("reference")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(model)
    for inputs in ([x], x, {"x": x}, [x, np.zeros(3, np.float32)]):
        outputs = backend.prepare(model).run(inputs)
        np.testing.assert_array_equal(outputs[0], [-1, 2, 8])
        np.testing.assert_array_equal(outputs["y"], [0, 2, 8])
    np.testing.assert_array_equal(backend.run_model(model, [x], device="reference").y, [0, 2, 8])
    with pytest.raises(ValueError, match="takes 2 inputs, 3 were given"):
        backend.prepare(model).run([x, x, x])
    node = helper.make_node("Split", ["a", "sizes"], ["p", "q"], axis=1)
    parts = backend.run_node(node, [np.arange(6).reshape(2, 3), np.array([1, 2])])
    assert [part.tolist() for part in parts] == [[[0], [3]], [[1, 2], [4, 5]]]
    old = helper.make_node("Dropout", ["a"], ["p"])
    np.testing.assert_array_equal(backend.run_node(old, [x], opset_version=7)[0], x)
    model.graph.node[1].op_type = "Adagrad"
    assert not backend.is_compatible(model)
    with pytest.raises(tessera.Error):
        backend.prepare(model)


def test_backend_serves_the_suites_own_runner():
    """onnx.backend.test drives the module as it drives any backend."""
    import unittest

    import onnx.backend.test

    runner = onnx.backend.test.BackendTest(backend, __name__)
    runner.include(r"^test_(relu|softmax_example|sequence_insert_at_back|loop11|string_concat|scan9_sum)_cpu$")
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(group) for group in runner.test_cases.values()
    )
    result = unittest.TestResult()
    suite.run(result)
    assert result.errors == [] and result.failures == []
    assert result.testsRun - len(result.skipped) >= 6


def test_the_suite_is_whole():
    kinds = [case.kind for case in cases.find_cases()]
    assert {kind: kinds.count(kind) for kind in cases.KINDS} == {
        "node": 1884,
        "simple": 23,
        "pytorch-operator": 35,
        "pytorch-converted": 82,
        "light": 9,
    }
    assert Path(report.DOCUMENT).exists()

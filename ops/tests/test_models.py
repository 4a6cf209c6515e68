# SPDX-License-Identifier: Apache-2.0
"""Whole networks, node by node in the operator library, beside ONNX Runtime on seeded random inputs.

The networks are looked for in ../shared/models beside the repository; where they are absent the tests are skipped.
Quantised networks may differ by a step of quantisation where a float result before it lies on a tie. Differences below
1e-6 are let pass: the oracle's sigmoid is a polynomial whose error is absolute.
"""

import glob
import os
import time

import _tessera_ops
import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import ROOT
from onnx import numpy_helper
from test_standard_cases import attribute_value

MODELS = sorted(glob.glob(os.path.join(ROOT, "..", "shared", "models", "*.onnx")))
# Seconds that a network may take in the library; larger ones are left to the machines.
LARGEST_BYTES = 30 << 20
KINDS = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
}


def random_feeds(session):
    random = np.random.default_rng(1)
    feeds = {}
    for info in session.get_inputs():
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in info.shape]
        kind = KINDS[info.type]
        feeds[info.name] = (
            random.random(shape) if np.issubdtype(kind, np.floating) else random.integers(0, 10, shape)
        ).astype(kind)
    return feeds


def run_library(model, feeds):
    values = dict(feeds)
    values.update({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in model.graph.node:
        attributes = {attribute.name: attribute_value(attribute) for attribute in node.attribute}
        inputs = [values[name] if name else None for name in node.input]
        types = _tessera_ops.infer_node(
            node.op_type, node.domain, versions.get(node.domain, 1), attributes, inputs, len(node.output), True
        )
        results = _tessera_ops.run_node(
            node.op_type, node.domain, versions.get(node.domain, 1), attributes, inputs, len(node.output)
        )
        for value, (_dtype, shape, _, _) in zip(results, types):
            if isinstance(value, np.ndarray) and shape is not None:
                assert all(have in (-1, real) for have, real in zip(shape, value.shape)), node.name
        values.update(zip(node.output, results))
    return [values[output.name] for output in model.graph.output]


@pytest.mark.parametrize("path", MODELS or [None], ids=lambda path: os.path.basename(path) if path else "none")
def test_network(path):
    if path is None:
        pytest.skip("no ../shared/models beside the repository")
    if os.path.getsize(path) > LARGEST_BYTES:
        pytest.skip("larger than this test takes")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a topology without weights, or an operator the oracle lacks
        pytest.skip(f"the oracle does not load it: {str(error)[:100]}")
    feeds = random_feeds(session)
    expected = session.run(None, feeds)
    start = time.time()
    actual = run_library(onnx.load(path), feeds)
    print(f"{os.path.basename(path)}: {time.time() - start:.2f} s")
    quantised = any(
        node.op_type.startswith(("QLinear", "Quantize", "ConvInteger")) for node in onnx.load(path).graph.node
    )
    half = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in onnx.load(path).graph.initializer)
    for left, right in zip(expected, actual):
        assert left.shape == right.shape and left.dtype == right.dtype
        if left.dtype.kind != "f":
            assert np.mean(left == right) > 0.99
            continue
        span = max(float(np.abs(left.astype(np.float64)).max()), 1e-6)
        worst = max(0.0, float(np.abs(left.astype(np.float64) - right).max()) - 1e-6) / span
        print(f"  largest difference / range: {worst:.2e}")
        assert worst < (0.05 if quantised else 5e-3 if half else 2e-4)

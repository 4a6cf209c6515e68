# SPDX-License-Identifier: Apache-2.0
"""Walks an optimised model of ONNX Runtime node by node: each node is evaluated by the operator library on ONNX
Runtime's own values, and its results are put beside ONNX Runtime's. A difference is then the operator's own, not one
inherited from its operands."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from tests.oracle import oracle
from tests.oracle.compare import differing, library

# Float operators whose sums ONNX Runtime orders otherwise or whose functions it approximates otherwise.
TOLERANCE = {
    "Conv": 1e-5,
    "com.microsoft::FusedConv": 1e-5,
    "ConvTranspose": 1e-5,
    "Gemm": 1e-5,
    "MatMul": 1e-5,
    "com.microsoft::FusedMatMul": 1e-5,
    "com.microsoft::FusedGemm": 1e-5,
    "ReduceMean": 1e-6,
    "ReduceSum": 1e-6,
    "GlobalAveragePool": 1e-6,
    "AveragePool": 1e-6,
    "Softmax": 1e-6,
    "Exp": 1e-6,
    "Sigmoid": 1e-6,
    "Tanh": 1e-6,
    "Erf": 1e-6,
    "LayerNormalization": 1e-5,
}


def attributes_of(node) -> dict:
    result = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.type == attribute.TENSOR:
            value = numpy_helper.to_array(value)
        elif attribute.type == attribute.FLOATS:
            value = [float(v) for v in value]
        elif attribute.type in (attribute.GRAPH, attribute.GRAPHS):
            raise ValueError(f"{node.op_type} has subgraphs")
        result[attribute.name] = value
    return result


def walk(result: oracle.Result) -> dict[str, list[str]]:
    """Evaluates every node of the optimised model of an oracle run. Returns operator -> differences beyond what it
    allows (lines of text)."""
    model = result.optimized
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values.update(result.feeds)
    values.update(result.values)
    wrong: dict[str, list[str]] = {}
    for node in model.graph.node:
        name = oracle.op_name(node)
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs = [values[i] if i else None for i in node.input]
        outputs = library().run_node(
            node.op_type, domain, opsets.get(domain, 1), attributes_of(node), inputs, len(node.output)
        )
        lines = wrong.setdefault(name, [])
        for output, actual in zip(node.output, outputs):
            if not output:
                continue
            expected = values[output]
            bad = differing(expected, actual)
            if bad.any() and name in TOLERANCE:
                scale = max(1e-30, float(np.abs(expected).max()))
                bad = np.abs(actual.astype(np.float64) - expected) > TOLERANCE[name] * scale
            if bad.any():
                at = tuple(int(k) for k in np.argwhere(bad)[0])
                lines.append(
                    f"{output}: {int(bad.sum())} of {bad.size}, first at {at}: oracle {expected[at]}, library "
                    f"{actual[at]}"
                )
    return wrong

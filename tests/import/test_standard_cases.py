# SPDX-License-Identifier: Apache-2.0
"""The node and operator cases that the onnx package carries (a model, inputs and outputs each), through importer,
passes and interpreter. Where the recorded output differs, ONNX Runtime's result decides: its meaning of an operator is
the project's."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
CASES = sorted(
    path.parent
    for kind in ("node", "simple", "pytorch-operator", "pytorch-converted")
    for path in (DATA / kind).glob("*/model.onnx")
)
onnxruntime.set_default_logger_severity(4)

# What is not expected to work, and why.
LEFT_OUT = {
    r"bernoulli|training_dropout": "draws random numbers",
    r"e8m0|float4e2m1": "element types that no operator here quantises to",
    r"ai_onnx_ml|adagrad|adam|momentum|gradient": "classical machine learning and training",
    r"image_decoder": "decodes image files",
    r"l2normalization_axis_0": "records 0 / 0 as NaN, where ONNX Runtime (opset 21 and below) gives 0",
    r"qlinearmatmul_.*float16": "scales of float16, which ONNX Runtime does not take either",
}


def load(path, kind):
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return [numpy_helper.to_array(t) for t in onnx.SequenceProto.FromString(data).tensor_values]
    if kind.HasField("optional_type"):
        optional = onnx.OptionalProto.FromString(data)
        if optional.elem_type == onnx.OptionalProto.TENSOR:
            return numpy_helper.to_array(optional.tensor_value)
        return [numpy_helper.to_array(t) for t in optional.sequence_value.tensor_values] or None
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def strings(array):
    return [text.decode() if isinstance(text, bytes) else str(text) for text in array.ravel()]


def close(actual, expected):
    if expected is None or actual is None:
        return actual is expected
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(close(a, e) for a, e in zip(actual, expected))
    if actual.shape != expected.shape:
        return False
    if expected.dtype.kind in "OSU":
        return strings(actual) == strings(expected)
    if actual.dtype != expected.dtype:
        return False
    if expected.dtype.kind in "biu":
        return np.array_equal(actual, expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    relative, absolute = (2e-2, 1e-3) if expected.dtype.itemsize <= 2 else (1e-3, 1e-5)
    return np.allclose(actual.astype(wide), expected.astype(wide), rtol=relative, atol=absolute, equal_nan=True)


def ort_outputs(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name.removeprefix("test_"))
def test_standard_case(nn, case):
    for pattern, reason in LEFT_OUT.items():
        if re.search(pattern, case.name):
            pytest.skip(reason)
    proto = onnx.load(str(case / "model.onnx"))
    if any(o.domain in ("", "ai.onnx") and o.version < 7 for o in proto.opset_import):
        with pytest.raises(nn.TesseraError, match="opsets 7 to 24 are supported"):
            nn.Model(str(case / "model.onnx"))
        return
    model = nn.Model(str(case / "model.onnx"))
    for optimise in (False, True):
        if optimise:
            model.optimise()
        for folder in sorted(case.glob("test_data_set_*")):
            wanted = {name for name, _, _ in model.inputs}
            feeds = {
                info.name: load(folder / f"input_{i}.pb", info.type)
                for i, info in enumerate(proto.graph.input)
                if info.name in wanted and (folder / f"input_{i}.pb").exists()
            }
            actual = model.run(feeds)
            expected = {o.name: load(folder / f"output_{i}.pb", o.type) for i, o in enumerate(proto.graph.output)}
            if not all(close(actual[name], value) for name, value in expected.items()):
                expected = ort_outputs(case / "model.onnx", feeds)
            for name, value in expected.items():
                assert close(actual[name], value), name

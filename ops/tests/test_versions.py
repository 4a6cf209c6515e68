# SPDX-License-Identifier: Apache-2.0
"""The registry beside the onnx package's schemas: every operator here is known in each of its versions from opset
7 on, takes every attribute that its schema has, and refuses one that it has not.
"""

import _tessera_ops
import numpy as np
import onnx
import pytest

NAMES = [
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "AffineGrid",
    "And",
    "ArgMax",
    "ArgMin",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "CenterCropPad",
    "Clip",
    "Col2Im",
    "Compress",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Cos",
    "Cosh",
    "CumSum",
    "DepthToSpace",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "EyeLike",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "GridSample",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "NonZero",
    "Not",
    "OneHot",
    "Or",
    "PRelu",
    "Pad",
    "Pow",
    "Range",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "Round",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shape",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "TensorScatter",
    "ThresholdedRelu",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Upsample",
    "Where",
    "Xor",
]
KINDS = onnx.defs.OpSchema.AttrType
SAMPLES = {
    KINDS.INT: 1,
    KINDS.FLOAT: 0.5,
    KINDS.STRING: "x",
    KINDS.INTS: [1],
    KINDS.FLOATS: [0.5],
    KINDS.STRINGS: ["x"],
    KINDS.TENSOR: np.zeros(1, np.float32),
    KINDS.SPARSE_TENSOR: np.zeros(1, np.float32),
}


def schemas():
    best = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in NAMES and not schema.deprecated:
            best.setdefault(schema.name, []).append(schema)
    for name in NAMES:
        history = sorted(best[name], key=lambda s: s.since_version)
        old = [s for s in history if s.since_version <= 7]
        yield from old[-1:]
        yield from (s for s in history if 7 < s.since_version <= 24)


def complaint(schema, opset, attributes):
    arguments = [("float32", None)] * max(schema.min_input, 1 if schema.max_input else 0)
    try:
        _tessera_ops.infer_node(schema.name, "", opset, attributes, arguments, schema.min_output)
    except _tessera_ops.TesseraError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("schema", list(schemas()), ids=lambda s: f"{s.name}-{s.since_version}")
def test_schema(schema):
    opset = max(7, schema.since_version)
    assert _tessera_ops.known(schema.name, "", opset)
    for name, attribute in schema.attributes.items():
        message = complaint(schema, opset, {name: SAMPLES[attribute.type]})
        assert f"attribute '{name}' is not known" not in message and f"attribute '{name}' must be" not in message, (
            message
        )
    message = complaint(schema, opset, {})
    assert "inputs where the operator takes" not in message and "outputs where the operator takes" not in message, (
        message
    )
    if schema.attributes:
        assert "attribute 'surplus' is not known" in complaint(schema, opset, {"surplus": 1})


def test_operators_added_later_are_unknown_before():
    assert not _tessera_ops.known("Mish", "", 17) and _tessera_ops.known("Mish", "", 18)
    assert not _tessera_ops.known("Where", "", 8) and _tessera_ops.known("Where", "", 9)

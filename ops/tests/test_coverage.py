# SPDX-License-Identifier: Apache-2.0
"""Every operator of the standard's main domain is registered for each opset from 1 to 28 in which the onnx package has
it, with the operand counts and attributes of its schema; the exceptions stand here with their reasons."""

import _tessera_ops
import onnx.defs
import pytest

LEFT_OUT = {
    "ImageDecoder": "decodes JPEG, PNG, TIFF and WebP files; belongs to preprocessing, not to a compiled network"
}
OPSETS = range(1, 29)


def wanted():
    for opset in OPSETS:
        for name in sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}):
            try:
                schema = onnx.defs.get_schema(name, opset, "")
            except onnx.defs.SchemaError:
                continue
            if not schema.deprecated and name not in LEFT_OUT:
                yield opset, schema


def test_operators():
    missing = sorted(
        {
            f"{schema.name} (opset {opset})"
            for opset, schema in wanted()
            if not _tessera_ops.known(schema.name, "", opset)
        }
    )
    assert missing == []
    assert len({schema.name for _, schema in wanted()}) > 190


def test_left_out_is_missing():
    for name in LEFT_OUT:
        assert not _tessera_ops.known(name), f"{name} exists: take it from the list"


@pytest.mark.parametrize("opset", OPSETS)
def test_counts_and_attributes(opset):
    wrong = []
    for at, schema in wanted():
        if at != opset:
            continue
        for names in ({}, dict.fromkeys(schema.attributes, 1)):
            try:
                _tessera_ops.infer_node(
                    schema.name, "", opset, names, [("float32", None)] * schema.min_input, max(schema.min_output, 1)
                )
            except _tessera_ops.TesseraError as error:
                if "where the operator takes" in str(error) or (
                    "attribute '" in str(error) and "is not known" in str(error)
                ):
                    wrong.append(f"opset {opset}: {error}")
    assert wrong == []

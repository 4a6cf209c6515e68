# SPDX-License-Identifier: Apache-2.0
"""The node cases that the onnx package carries: every model of one node whose operator is registered must give the
standard's own results. Cases of random generators and those listed with a reason are left out; a model whose
function body stands expanded counts as several nodes and is left out too.
"""

from pathlib import Path

import _tessera_ops
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, numpy_helper
from ort_compare import assert_same, check_inference, dtype_name

from tests.conformance.suite import node_folder

# Results that the standard leaves to chance, or where its case and ONNX Runtime part and the library follows
# ONNX Runtime.
SCALE = "the reference divides by a fractional output length, ONNX Runtime and the library by the real one"
SATURATION = "the reference wraps where ONNX Runtime and the library saturate"
NARROW = "the reference rounds to bfloat16 between the steps"
LEFT_OUT = (
    {
        "test_resize_downsample_scales_cubic_align_corners": SCALE,
        "test_resize_downsample_scales_linear_align_corners": SCALE,
        "test_l2normalization_axis_0": "0/0: the case wants NaN, ONNX Runtime and the library give 0",
        "test_maxunpool_export_with_output_shape": "ONNX Runtime and the library read the indices in the input's shape",
    }
    | {f"test_qlinearmatmul_{d}D_int8_{kind}": SATURATION for d in (2, 3) for kind in ("float16", "float32")}
    | {
        f"test_attention_{kind}_bf16": NARROW
        for kind in ("3d_causal", "4d_causal", "4d_attn_mask_causal", "4d_padded_kv", "4d_causal_padded_kv")
    }
    | {f"test_{op}linear_float4e2m1": "float4e2m1 is served by Cast only" for op in ("quantize", "dequantize")}
)
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}


def load(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(Path(path).read_bytes())
    return numpy_helper.to_array(tensor)


def attribute_value(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    if attribute.type == AttributeProto.STRING:
        return value.decode()
    if attribute.type == AttributeProto.STRINGS:
        return [v.decode() for v in value]
    return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def find_cases():
    cases = []
    for folder in sorted(node_folder().iterdir()):
        model = onnx.load(folder / "model.onnx")
        if len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        version = {o.domain: o.version for o in model.opset_import}.get(node.domain, 1)
        kinds = {info.type.WhichOneof("value") for info in list(model.graph.input) + list(model.graph.output)}
        graphs = any(a.type == AttributeProto.GRAPH for a in node.attribute)
        chance = node.op_type in RANDOM or folder.name.startswith("test_training_dropout")
        if kinds != {"tensor_type"} or graphs or chance or not _tessera_ops.known(node.op_type, node.domain, version):
            continue
        cases.append(pytest.param(folder, model, version, id=folder.name))
    return cases


@pytest.mark.parametrize("folder,model,version", find_cases())
def test_case(folder, model, version):
    if folder.name in LEFT_OUT:
        pytest.skip(LEFT_OUT[folder.name])
    node = model.graph.node[0]
    attributes = {a.name: attribute_value(a) for a in node.attribute}
    for data in sorted(folder.glob("test_data_set_*")):
        fed = [load(p) for p in sorted(data.glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))]
        given = dict(zip([i.name for i in model.graph.input], fed)) | {
            t.name: numpy_helper.to_array(t) for t in model.graph.initializer
        }
        inputs = [given[name] if name else None for name in node.input]
        expected = [load(p) for p in sorted(data.glob("output_*.pb"), key=lambda p: int(p.stem.split("_")[1]))]
        actual = _tessera_ops.run_node(node.op_type, node.domain, version, attributes, inputs, len(node.output))
        shown = [value for value, name in zip(actual, node.output) if name]
        for i, (left, right) in enumerate(zip(expected, shown, strict=True)):
            floating = left.dtype.kind == "f" or "float" in left.dtype.name
            wide = left.astype(np.float32) if left.dtype.kind == "V" and floating else left
            assert dtype_name(right) == dtype_name(left), f"{folder.name} output {i}"
            tolerance = dict(rtol=1e-3, atol=1e-5) if floating and left.dtype.itemsize > 1 else {}
            assert_same(
                wide, right.astype(np.float32) if wide is not left else right, f"{folder.name} output {i}", **tolerance
            )
        check_inference(
            node.op_type,
            inputs,
            actual,
            static=False,
            opset=version,
            domain=node.domain,
            attributes=attributes,
            outputs=len(node.output),
        )


def test_there_are_cases():
    assert len(find_cases()) > 500

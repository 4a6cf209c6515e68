# SPDX-License-Identifier: Apache-2.0
"""Fused operators of domain com.microsoft against ONNX Runtime, alone and as its optimiser writes them into a model."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_compare import check, check_rejected, run_ort, run_tessera

MS = dict(domain="com.microsoft")
FLOAT = dict(rtol=2e-5, atol=2e-5)


def floats(seed, *shape, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


ACTIVATIONS = [
    ("Relu", []),
    ("Tanh", []),
    ("Sigmoid", []),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.5, 0.75]),
    ("HardSigmoid", [0.3, 0.4]),
]


@pytest.mark.parametrize("name,parameters", ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
def test_fused_conv(name, parameters, added):
    x, w, b = floats(1, 2, 4, 7, 6), floats(2, 6, 2, 3, 3), floats(3, 6)
    attributes = dict(group=2, pads=[1, 1, 1, 1], activation=name, activation_params=parameters or None)
    check("FusedConv", [x, w, b], attributes=attributes, **MS, **FLOAT)
    if added:
        check("FusedConv", [x, w, b, floats(4, 2, 6, 7, 6)], attributes=attributes, **MS, **FLOAT)
        check_rejected("FusedConv", [x, w, b, floats(4, 2, 6, 7, 5)], attributes=attributes, match="addend", **MS)


@pytest.mark.parametrize("name,parameters", ACTIVATIONS)
def test_fused_gemm(name, parameters):
    named = dict(zip(["activation_alpha", "activation_beta"], parameters))
    if name == "Clip":  # a form of FusedConv only in the oracle
        inputs = [floats(1, 3, 5), floats(2, 5, 4)]
        expected = np.clip(run_ort("Gemm", inputs, opset=13)[0], *parameters)
        check("FusedGemm", inputs, attributes=dict(activation=name, **named), expected=[expected], **MS, **FLOAT)
        return
    check(
        "FusedGemm",
        [floats(1, 5, 3), floats(2, 4, 5), floats(3, 4)],
        **MS,
        **FLOAT,
        attributes=dict(transA=1, transB=1, alpha=0.5, beta=2.0, activation=name, **named),
    )


@pytest.mark.parametrize(
    "name,parameters",
    [
        ("Elu", {"activation_alpha": 0.7}),
        ("Selu", {"activation_alpha": 1.6, "activation_gamma": 1.1}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("ThresholdedRelu", {"activation_alpha": 0.4}),
    ],
)
def test_activations_of_gemm_alone(name, parameters):
    operands = [floats(1, 3, 5), floats(2, 5, 4), floats(3, 4)]
    check("FusedGemm", operands, attributes=dict(activation=name, **parameters), **MS, **FLOAT)


def test_unknown_activation():
    with pytest.raises(Exception, match="Softshrink"):
        run_tessera("FusedGemm", [floats(1, 2, 3), floats(2, 3, 2)], attributes=dict(activation="Softshrink"), **MS)


@pytest.mark.parametrize("dtype", [np.float32])
def test_gelu_forms(dtype):
    x, bias = (3 * floats(1, 4, 5, 16)).astype(dtype), floats(2, 16, dtype=dtype)
    check("Gelu", [x], **MS, **FLOAT)
    check("BiasGelu", [x, bias], **MS, **FLOAT)
    check("FastGelu", [x], **MS, **FLOAT)
    check("FastGelu", [x, bias], **MS, **FLOAT)
    check("QuickGelu", [x], **MS, **FLOAT)
    check("QuickGelu", [x], attributes=dict(alpha=1.2), **MS, **FLOAT)
    check_rejected("BiasGelu", [x, floats(2, 15)], match="bias", **MS)


@pytest.mark.parametrize("skip_shape", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skip_layer_norm(op, skip_shape):
    x, skip, scale, shift, bias = floats(1, 2, 3, 8), floats(2, *skip_shape), floats(3, 8), floats(4, 8), floats(5, 8)
    middle = [shift] if op == "SkipLayerNormalization" else []
    for inputs in ([x, skip, scale, *middle], [x, skip, scale, *middle, bias]):
        check(op, inputs, attributes=dict(epsilon=1e-3), **MS, **FLOAT)
        _y, _, _, total = run_tessera(op, inputs, outputs=4, **MS)
        expected = x + skip + (bias if len(inputs) > 3 + len(middle) else 0)
        np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-6)
    check_rejected(op, [x, floats(2, 2, 4, 8), scale, *middle], match="does not fit", **MS)


@pytest.mark.parametrize("segments", [True, False])
def test_embed_layer_norm(segments):
    random = np.random.default_rng(9)
    ids = random.integers(0, 11, (2, 5)).astype(np.int32)
    parts = random.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    inputs = [
        ids,
        parts if segments else None,
        floats(1, 11, 6),
        floats(2, 7, 6),
        floats(3, 2, 6) if segments else None,
        floats(4, 6),
        floats(5, 6),
        mask,
    ]
    _y, counts = check("EmbedLayerNormalization", inputs, attributes=dict(epsilon=1e-6), outputs=2, **MS, **FLOAT)
    np.testing.assert_array_equal(counts, [3, 5])
    bad = list(inputs)
    bad[0] = ids + 11
    with pytest.raises(Exception, match="outside an embedding"):
        run_tessera("EmbedLayerNormalization", bad, outputs=2, **MS)


def optimised_nodes(model, tmp_path):
    """The model as the extended optimisation level saves it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def run_model(model, feeds):
    """Evaluates the nodes of a model one after another."""
    values = dict(feeds)
    values.update({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in model.graph.node:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        attributes = {
            key: numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
            for key, value in attributes.items()
        }
        results = run_tessera(
            node.op_type,
            [values[name] if name else None for name in node.input],
            opset=versions.get(node.domain, 1),
            domain=node.domain,
            attributes=attributes,
            outputs=len(node.output),
        )
        values.update(zip(node.output, results))
    return [values[output.name] for output in model.graph.output]


def test_what_the_optimiser_writes(tmp_path):
    """Conv + Relu, MatMul of a transposed operand, skip and layer normalisation, MatMul + bias + GELU: fused by ONNX
    Runtime, run here."""
    weights = dict(
        w=floats(1, 8, 3, 3, 3),
        b=floats(2, 8),
        skip=floats(3, 1, 16, 8),
        scale=floats(4, 8),
        shift=floats(5, 8),
        m=floats(6, 8, 8),
        mb=floats(7, 8),
        half=np.array(0.5, np.float32),
        one=np.array(1.0, np.float32),
        root=np.array(np.sqrt(2), np.float32),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "rows"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "m"], ["p"]),
        helper.make_node("Add", ["p", "skip"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "scale", "shift"], ["l"], epsilon=1e-5),
        helper.make_node("MatMul", ["l", "m"], ["q"]),
        helper.make_node("Add", ["q", "mb"], ["g"]),
        helper.make_node("Div", ["g", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["g", "f"], ["h"]),
        helper.make_node("Mul", ["h", "half"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    initializers.append(numpy_helper.from_array(np.array([1, 8, 16], np.int64), "rows"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 8])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    x = floats(8, 1, 3, 4, 4)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    optimised = optimised_nodes(model, tmp_path)
    assert {"FusedConv", "FusedMatMul", "SkipLayerNormalization", "Gelu"} <= {
        node.op_type for node in optimised.graph.node
    }
    import _tessera_ops

    if not all(_tessera_ops.known(name, "", 17) for name in ("Reshape", "Add")):
        pytest.skip("the module was built without the families of Reshape and Add")
    np.testing.assert_allclose(run_model(optimised, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)

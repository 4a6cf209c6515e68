# SPDX-License-Identifier: Apache-2.0
"""Puts one operator application beside an oracle.

`check(...)` builds a model of one node, runs ONNX Runtime on the CPU without graph optimisation (or the onnx reference
evaluator, or takes expected arrays from the caller), runs the same node in the operator library and compares counts,
dtypes, shapes and values. It then checks shape inference against the real shapes four times: with contents known, with
shapes known, with ranks only, with nothing but dtypes. Integers, strings, booleans and, unless a tolerance is given,
floats must be equal to the bit (NaN equals NaN).
"""

import _tessera_ops
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

try:
    import ml_dtypes

    EXOTIC = {
        np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16,
        np.dtype(ml_dtypes.float8_e4m3fn): TensorProto.FLOAT8E4M3FN,
        np.dtype(ml_dtypes.float8_e4m3fnuz): TensorProto.FLOAT8E4M3FNUZ,
        np.dtype(ml_dtypes.float8_e5m2): TensorProto.FLOAT8E5M2,
        np.dtype(ml_dtypes.float8_e5m2fnuz): TensorProto.FLOAT8E5M2FNUZ,
        np.dtype(ml_dtypes.float8_e8m0fnu): TensorProto.FLOAT8E8M0,
        np.dtype(ml_dtypes.int4): TensorProto.INT4,
        np.dtype(ml_dtypes.uint4): TensorProto.UINT4,
        np.dtype(ml_dtypes.float4_e2m1fn): TensorProto.FLOAT4E2M1,
    }
except ImportError:
    ml_dtypes = None
    EXOTIC = {}

TesseraError = _tessera_ops.TesseraError
NAMES = {
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
    "object": "string",
}


def dtype_name(array):
    """The library's name of an array's element type."""
    if array.dtype.kind in "US":
        return "string"
    return NAMES.get(array.dtype.name, array.dtype.name)


def onnx_type(array):
    if array.dtype in EXOTIC:
        return EXOTIC[array.dtype]
    if array.dtype.kind in "USO":
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def tensor_proto(array, name):
    if array.dtype in EXOTIC:
        kind = EXOTIC[array.dtype]
        if array.dtype.name in ("int4", "uint4", "float4_e2m1fn"):
            nibbles = array.ravel().view(np.uint8) & 15
            nibbles = np.append(nibbles, 0) if nibbles.size % 2 else nibbles
            raw = (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8).tobytes()
        else:
            raw = array.tobytes()
        proto = TensorProto(data_type=kind, name=name, raw_data=raw)
        proto.dims.extend(array.shape)
        return proto
    if array.dtype.kind in "USO":
        texts = [text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()]
        return helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def value_info(name, value):
    if isinstance(value, list):
        kind = onnx_type(value[0]) if value else TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, kind, None)
    return helper.make_tensor_value_info(name, onnx_type(value), list(value.shape))


def build_model(op, inputs, *, opset=17, domain="", attributes=None, outputs=1, constants=()):
    """A model of one node; inputs named in `constants` (indices) and those of types numpy lacks become initializers.

    Returns (model, feeds, names of outputs). Absent outputs: pass `outputs` as a list of booleans.
    """
    present = [True] * outputs if isinstance(outputs, int) else list(outputs)
    feeds, infos, initializers, names = {}, [], [], []
    for i, value in enumerate(inputs):
        if value is None:
            names.append("")
            continue
        name = f"x{i}"
        names.append(name)
        if not isinstance(value, list) and (i in constants or value.dtype in EXOTIC):
            initializers.append(tensor_proto(value, name))
        else:
            infos.append(value_info(name, value))
            feeds[name] = value
    out_names = [f"y{i}" if is_present else "" for i, is_present in enumerate(present)]
    fields = {}
    for key, value in (attributes or {}).items():
        if value is not None:
            fields[key] = tensor_proto(value, key) if isinstance(value, np.ndarray) else value
    node = helper.make_node(op, names, out_names, name="n", domain=domain, **fields)
    results = [name for name in out_names if name]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=name) for name in results], initializers)
    imports = [helper.make_opsetid("", opset if domain == "" else 17)]
    if domain:
        imports.append(helper.make_opsetid(domain, opset if domain not in ("com.microsoft",) else 1))
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = min(model.ir_version, 10)
    return model, feeds, results


def make_session(model, optimise=False):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        if optimise
        else onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_ort(op, inputs, *, exotic_outputs=(), optimise=False, **keywords):
    """Results of ONNX Runtime. Outputs whose index is in `exotic_outputs` are cast to float32 inside the model."""
    model, feeds, results = build_model(op, inputs, **keywords)
    for index in exotic_outputs:
        name = results[index]
        model.graph.node.append(helper.make_node("Cast", [name], [name + "_f"], to=TensorProto.FLOAT))
        for info in model.graph.output:
            if info.name == name:
                info.name = name + "_f"
        results[index] = name + "_f"
    return make_session(model, optimise).run(results, feeds)


def run_reference(op, inputs, **keywords):
    """Results of the onnx package's reference evaluator."""
    model, feeds, results = build_model(op, inputs, **keywords)
    for tensor in model.graph.initializer:
        feeds.pop(tensor.name, None)
    return onnx.reference.ReferenceEvaluator(model).run(results, feeds)


def run_tessera(op, inputs, *, opset=17, domain="", attributes=None, outputs=1):
    """Results of the operator library."""
    count = outputs if isinstance(outputs, int) else len(outputs)
    version = 1 if domain == "com.microsoft" else opset
    return _tessera_ops.run_node(op, domain, version, attributes or {}, list(inputs), count)


def assert_same(expected, actual, what, rtol=0.0, atol=0.0, exotic=False):
    """Same kind, dtype, shape and values."""
    if isinstance(expected, list):
        assert isinstance(actual, list), f"{what}: a sequence is expected"
        assert len(expected) == len(actual), f"{what}: sequence length {len(actual)} != {len(expected)}"
        for i, (left, right) in enumerate(zip(expected, actual)):
            assert_same(left, right, f"{what}[{i}]", rtol, atol, exotic)
        return
    expected = np.asarray(expected)
    assert actual is not None, f"{what}: absent"
    assert tuple(actual.shape) == tuple(expected.shape), f"{what}: shape {actual.shape} != {expected.shape}"
    if exotic:
        actual = actual.astype(np.float32)
    if expected.dtype.kind in "USO":
        assert [str(x) for x in actual.ravel()] == [str(x) for x in expected.ravel()], f"{what}: strings differ"
        return
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype} != {expected.dtype}"
    if expected.dtype.kind in "fcV" and (rtol or atol):
        left, right = expected.astype(np.float64), actual.astype(np.float64)
        np.testing.assert_allclose(right, left, rtol=rtol, atol=atol, err_msg=what)
        return
    same = expected == actual
    if expected.dtype.kind in "fcV":
        same = same | ((expected != expected) & (actual != actual))
    if not np.all(same):
        bad = np.argwhere(~np.asarray(same))[0]
        raise AssertionError(
            f"{what}: {np.size(same) - np.count_nonzero(same)} of {np.size(same)} values differ, first at "
            f"{tuple(bad)}: {actual[tuple(bad)]!r} instead of {expected[tuple(bad)]!r}"
        )


def infer(op, inputs, *, opset=17, domain="", attributes=None, outputs=1, constants=False, fold=False):
    """Inference of the library: a list of (dtype, shape or None, constant or None, kind)."""
    count = outputs if isinstance(outputs, int) else len(outputs)
    version = 1 if domain == "com.microsoft" else opset
    return _tessera_ops.infer_node(op, domain, version, attributes or {}, list(inputs), count, constants, fold)


def check_inference(op, inputs, actual, *, static=True, constants=(), **keywords):
    """Inference agrees with the arrays in `actual` at every level of knowledge; with `static` it must be complete from
    contents."""

    def blurred(level):
        result = []
        for i, value in enumerate(inputs):
            if value is None or isinstance(value, list) or i in constants:
                result.append(value)
            elif level == "shapes":
                result.append((value.dtype.name if value.dtype.kind not in "USO" else "string", list(value.shape)))
            elif level == "ranks":
                result.append((value.dtype.name if value.dtype.kind not in "USO" else "string", [-1] * value.ndim))
            else:
                result.append((value.dtype.name if value.dtype.kind not in "USO" else "string", None))
        return result

    for level in ("contents", "shapes", "ranks", "nothing"):
        arguments = list(inputs) if level == "contents" else blurred(level)
        types = infer(op, arguments, constants=True, **keywords)
        for i, (value, (dtype, shape, constant, kind)) in enumerate(zip(actual, types)):
            what = f"{op}: inferred type of output {i} with {level} known"
            if value is None:
                continue
            if isinstance(value, list):
                assert kind in ("sequence", "optional"), f"{what}: kind {kind}"
                continue
            assert kind != "sequence", f"{what}: a sequence"
            assert dtype == dtype_name(value), f"{what}: {dtype} != {dtype_name(value)}"
            if shape is not None:
                assert len(shape) == value.ndim, f"{what}: {shape} != {value.shape}"
                for have, real in zip(shape, value.shape):
                    assert have in (-1, real), f"{what}: {shape} != {value.shape}"
            if level == "contents" and static:
                assert shape is not None and -1 not in shape, f"{what}: {shape} is not complete"
            if constant is not None:
                assert_same(value, constant, what)


def check(
    op,
    inputs,
    *,
    opset=17,
    domain="",
    attributes=None,
    outputs=1,
    rtol=0.0,
    atol=0.0,
    expected=None,
    oracle="ort",
    static=True,
    constants=(),
    optimise=False,
    infer_only_constants=(),
):
    """Runs the node in the oracle and in the library and compares; returns the library's results.

    outputs: count, or a list of booleans for absent ones. expected: arrays that replace the oracle. oracle: "ort" or
    "reference". static: inference must be complete when contents are known (False for NonZero and the like). constants:
    inputs that the model holds as initializers. infer_only_constants: inputs whose contents stay known at every level
    of the inference check.
    """
    keywords = dict(opset=opset, domain=domain, attributes=attributes, outputs=outputs)
    inputs = [value if value is None or isinstance(value, list) else np.asarray(value) for value in inputs]
    actual = run_tessera(op, inputs, **keywords)
    present = [True] * outputs if isinstance(outputs, int) else list(outputs)
    exotic = [
        i
        for i, value in enumerate(value for value, keep in zip(actual, present) if keep)
        if isinstance(value, np.ndarray) and value.dtype in EXOTIC
    ]
    if expected is None:
        if oracle == "ort":
            expected = run_ort(op, inputs, exotic_outputs=exotic, optimise=optimise, constants=constants, **keywords)
        else:
            expected, exotic = run_reference(op, inputs, constants=constants, **keywords), []
    else:
        exotic = []
    shown = [value for value, keep in zip(actual, present) if keep]
    assert len(shown) == len(expected)
    for i, (left, right) in enumerate(zip(expected, shown)):
        assert_same(left, right, f"{op}-{opset} {attributes or ''} output {i}", rtol, atol, exotic=i in exotic)
    check_inference(op, inputs, actual, static=static, constants=infer_only_constants, **keywords)
    return actual


def check_rejected(op, inputs, *, match=None, code=None, evaluate=True, **keywords):
    """Inference (and evaluation) of the node raise TesseraError naming the node."""
    with pytest.raises(TesseraError, match=match) as caught:
        infer(op, inputs, constants=True, **keywords)
    assert "node 'n'" in str(caught.value)
    if code:
        assert caught.value.code == code
    if evaluate and not any(isinstance(value, tuple) for value in inputs):
        with pytest.raises(TesseraError):
            run_tessera(op, inputs, **keywords)

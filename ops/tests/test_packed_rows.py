# SPDX-License-Identifier: Apache-2.0
"""GatherPacked, MatMulFpQ4, SparseToDenseMatMul and operators on packed batches of domain com.microsoft beside ONNX
Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_compare import assert_same, check, check_rejected, make_session, run_tessera, value_info

RNG = np.random.default_rng(48)
MS = dict(domain="com.microsoft")
NEAR = dict(rtol=1e-5, atol=1e-5)
# id: (values of a block, bytes of it, places of its scales of 16 bits)
FORMATS = {0: (1, 4, ()), 1: (1, 2, (0,)), 30: (1, 2, ()), 2: (32, 18, (0,)), 6: (32, 22, (0,)), 8: (32, 34, (0,)),
           13: (256, 176, (0, 2)), 14: (256, 210, (208,)), 20: (32, 18, (0,)),
           23: (256, 136, (0,)), 42: (64, 18, (0,))}  # fmt: skip


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_rows_of_every_format(form, dtype):
    values, size, scales = FORMATS[form]
    width, rows = 2 * max(values, 64), 5
    data = RNG.integers(0, 256, (rows, width // values, size)).astype(np.uint8)
    for at in scales:
        data[:, :, at : at + 2] = f(rows, width // values, 1, scale=0.1).astype(np.float16).view(np.uint8)
    if form == 0:
        data = f(rows, width).view(np.uint8)
    if form == 30:
        data = (f(rows, width).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    data = data.reshape(rows, -1)
    attributes = {"packed_type": form, "K": width, "output_dtype": dtype}
    check("GatherPacked", [data, np.array([[4, 0, -1], [2, 7, 2]])], attributes=attributes, **MS)
    check("GatherPacked", [data, i32(3)], attributes=attributes, **MS)
    check_rejected("GatherPacked", [data[:, 1:], i32(3)], match="bytes where", attributes=attributes, **MS)


def test_rows_that_are_refused():
    options = dict(match="'packed_type' = 16 is not served", attributes={"packed_type": 16, "K": 256})
    check_rejected("GatherPacked", [np.zeros((2, 66), np.uint8), i32(0)], **options, **MS)


@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize("depth", [64, 96, 70])
def test_products_of_four_bits(form, depth):
    values, size = ((32, 20), (32, 21), (32, 21))[form]
    columns = 5
    blob = RNG.integers(0, 256, (columns, -(-depth // values), size)).astype(np.uint8)
    blob[:, :, :4] = np.abs(f(columns, blob.shape[1], 1, scale=0.1)).view(np.uint8)
    if form > 0:
        blob[:, :, 4] = RNG.integers(0, 16, blob.shape[:2])
    operands = [f(2, 3, depth), blob.ravel(), np.array([depth, columns])]
    options = dict(attributes={"blk_quant_type": form}, **MS)
    check("MatMulFpQ4", operands, constants=(1, 2), infer_only_constants=(2,), rtol=1e-4, atol=1e-4, **options)
    check_rejected("MatMulFpQ4", [operands[0], blob.ravel()[1:], operands[2]], match="do not hold", **options)


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_of_a_sparse_matrix(turned):
    """ONNX Runtime's inference forgets transA and transB, so that only square matrices can be turned there."""
    side = 4 if any(turned) else 6
    dense, b = f(4, side) * (RNG.random((4, side)) < 0.4), f(side, 4)
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": 1.5}
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes)
    sparse = helper.make_sparse_tensor_value_info("a", TensorProto.FLOAT, dense.shape)
    graph = helper.make_graph([node], "g", [sparse, value_info("b", b)], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS["domain"], 1)])
    model.ir_version = 10
    at = np.ascontiguousarray(np.argwhere(dense))
    cpu = onnxruntime.OrtDevice.make("cpu", 0)
    a = onnxruntime.SparseTensor.sparse_coo_from_numpy(np.array(dense.shape), dense[dense != 0], at, cpu)
    feeds = {
        "a": onnxruntime.OrtValue.ort_value_from_sparse_tensor(a),
        "b": onnxruntime.OrtValue.ortvalue_from_numpy(b),
    }
    want = make_session(model).run_with_ort_values(["y"], feeds)[0].numpy()
    check("SparseToDenseMatMul", [dense, b], attributes=attributes, expected=[want], **MS, **NEAR)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("captures", [0, 3])
def test_convolution_of_a_packed_batch(activation, dilation, captures):
    operands = [f(11, 5), f(5, 1, 3), i32(0, 4, 5, 11), f(5), f(3, 5, 2 * dilation)]
    if captures:
        operands.append(i32(2, 3, 9))
    attributes = {"activation": activation, "dilation": dilation, "state_update_capacity": captures}
    options = dict(attributes=attributes, outputs=3 if captures else 2, **MS)
    check("VarlenCausalConvWithState", operands, **options, **NEAR)
    operands[3] = None
    check("VarlenCausalConvWithState", operands, **options, **NEAR)
    with pytest.raises(Exception, match="must ascend from 0 to the 11 tokens"):
        run_tessera("VarlenCausalConvWithState", [*operands[:2], i32(0, 5, 5, 11), *operands[3:]], **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("segments", ["none", "own", "past"])
@pytest.mark.parametrize("captures", [0, 4])
def test_hashes_of_a_packed_batch(dtype, ends, segments, captures):
    order, heads, borders = 4, 2, i32(0, 5, 6, 13)
    ids = RNG.integers(0, 6, 13).astype(dtype)
    columns = (order - 1) * heads
    operands = [ids, RNG.integers(1, 2**30, order).astype(dtype), RNG.integers(3, 90, columns).astype(dtype), borders]
    operands.append(RNG.integers(0, 6, (3, order - 1)).astype(dtype) if captures else None)
    operands += [RNG.integers(0, 50, columns).astype(dtype), np.array(2, dtype)] if ends else [None, None]
    operands.append(np.sort(RNG.integers(0, 4, 13)).astype(np.int32) if segments != "none" else None)
    operands.append(RNG.integers(0, 2, (3, order - 1)).astype(np.int32) if segments == "past" else None)
    if captures:
        operands.append(i32(2, 4, 3))
    while operands[-1] is None:
        operands.pop()
    attributes = {"max_ngram_size": order, "n_head_per_ngram": heads, "pad_id": 1, "reset_on_eos": int(ends)}
    plain, attributes = attributes, {**attributes, "state_update_capacity": captures}
    outputs = [True, True, segments != "none", bool(captures)]
    while not outputs[-1]:
        outputs.pop()
    results = check("VarlenNGramHashMapping", operands, attributes=attributes, outputs=outputs, **MS)
    if segments == "none" and not ends and not captures:  # each request alone has the same rows
        for first, last in zip(borders, borders[1:]):
            alone = run_tessera("NGramHashMapping", [ids[None, first:last], *operands[1:3]], attributes=plain, **MS)
            assert_same(alone[0][0], results[0][first:last], "rows")

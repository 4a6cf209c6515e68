# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models in forms that exporters write: functions, new and old opsets, double precision, outputs
without shapes or declared twice, products with several matrices. All products run on the NPU, results are ONNX
Runtime's, and stay near the float model's."""

import functools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
from tests.oracle import oracle

FLOAT = TensorProto.FLOAT
NODE, VALUE = helper.make_node, helper.make_tensor_value_info
LEAST_DECIBELS = 30


def weights(name, *shape, dtype=np.float32):
    values = np.random.default_rng(len(name)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(dtype), name)


def network(nodes, initializers, *, shape=(1, 3, 8, 8), dtype=FLOAT, opset=17, outputs=("y",), functions=()):
    ports = [VALUE(name, dtype, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", [VALUE("x", dtype, shape)], ports, initializers)
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid("own", 1)] * bool(functions)
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def norm(name, channels):
    rng = np.random.default_rng(7)
    names = [f"{name}/{part}" for part in ("scale", "bias", "mean", "variance")]
    tensors = [numpy_helper.from_array(rng.uniform(0.5, 1.5, channels).astype(np.float32), n) for n in names]
    return names, tensors


def with_functions():
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = [NODE("Conv", ["a", "k"], ["c"], pads=[1, 1, 1, 1]), NODE("Relu", ["c"], ["r"])]
    block = helper.make_function("own", "Block", ["a", "k"], ["r"], inner, imports)
    outer = [NODE("Block", ["a", "k"], ["t"], domain="own"), NODE("Block", ["t", "k"], ["r"], domain="own")]
    twice = helper.make_function("own", "Twice", ["a", "k"], ["r"], outer, imports)
    return network(
        [NODE("Twice", ["x", "w"], ["y"], domain="own")], [weights("w", 3, 3, 3, 3)], functions=[block, twice]
    )


def newest_opset():
    """ONNX Runtime leaves this batch norm where it is, and has no QuantizeLinear of the opset."""
    names, tensors = norm("bn", 4)
    nodes = [NODE("Conv", ["x", "w"], ["c"]), NODE("BatchNormalization", ["c", *names], ["y"])]
    return network(nodes, [weights("w", 4, 3, 3, 3), *tensors], opset=23)


def norm_in_front():
    names, tensors = norm("bn", 3)
    nodes = [
        NODE("Relu", ["x"], ["r"]),
        NODE("BatchNormalization", ["r", *names], ["n"]),
        NODE("Conv", ["n", "w"], ["y"]),
    ]
    return network(nodes, [weights("w", 4, 3, 3, 3), *tensors], opset=23)


def norm_of_two_readers():
    names, tensors = norm("bn", 4)
    nodes = [
        NODE("Conv", ["x", "w"], ["c"]),
        NODE("BatchNormalization", ["c", *names], ["n"]),
        NODE("Add", ["n", "c"], ["y"]),
    ]
    return network(nodes, [weights("w", 4, 3, 3, 3), *tensors], opset=23)


def loop():
    """Its output has no shape that anybody could infer."""
    ports = [VALUE("i", TensorProto.INT64, []), VALUE("go", TensorProto.BOOL, []), VALUE("s", FLOAT, None)]
    results = [VALUE("go_on", TensorProto.BOOL, []), VALUE("t", FLOAT, None)]
    body = helper.make_graph([NODE("Relu", ["s"], ["t"]), NODE("Identity", ["go"], ["go_on"])], "body", ports, results)
    nodes = [NODE("Conv", ["x", "w"], ["c"]), NODE("Loop", ["m", "", "c"], ["y"], body=body)]
    return network(nodes, [weights("w", 4, 3, 3, 3), numpy_helper.from_array(np.array(2, np.int64), "m")])


def constant_output():
    """One that the optimiser finds to be constant: the extents of an input."""
    model = network([NODE("Conv", ["x", "w"], ["y"]), NODE("Shape", ["x"], ["extents"])], [weights("w", 4, 3, 3, 3)])
    model.graph.output.append(VALUE("extents", TensorProto.INT64, [4]))
    return model


def up_beside_a_branch():
    """The end of a U-Net: the tensors that the Concat joins share the scale of what a ConvTranspose makes."""
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["c"], ["r"]),
        NODE("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("ConvTranspose", ["p", "up", "b"], ["u"], strides=[2, 2]),
        NODE("Relu", ["u"], ["v"]),
        NODE("Concat", ["v", "r"], ["beside"], axis=1),
        NODE("Conv", ["beside", "out"], ["y"]),
    ]
    return network(
        nodes, [weights("w", 8, 3, 3, 3), weights("up", 8, 4, 2, 2), weights("b", 4), weights("out", 2, 12, 1, 1)]
    )


def longer_sound():
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], pads=[2, 2]),
        NODE("LeakyRelu", ["c"], ["r"]),
        NODE("ConvTranspose", ["r", "up"], ["u"], strides=[4], pads=[2, 2]),
        NODE("Tanh", ["u"], ["t"]),
        NODE("Conv", ["t", "out"], ["y"]),
    ]
    return network(nodes, [weights("w", 8, 3, 5), weights("up", 8, 4, 8), weights("out", 1, 4, 3)], shape=(1, 3, 16))


def volume():
    """Three dimensions alone, down and up again."""
    nodes = [
        NODE("Conv", ["x", "w", "b"], ["c"], pads=[1] * 6, strides=[2, 2, 2]),
        NODE("Relu", ["c"], ["r"]),
        NODE("ConvTranspose", ["r", "up"], ["u"], strides=[2, 2, 2]),
        NODE("Conv", ["u", "out"], ["y"], dilations=[2, 1, 1]),
    ]
    tensors = [weights("w", 8, 2, 3, 3, 3), weights("b", 8), weights("up", 8, 4, 2, 2, 2)]
    tensors.append(weights("out", 2, 4, 2, 1, 3))
    return network(nodes, tensors, shape=(1, 2, 6, 8, 8))


def gemm_that_adds(shape):
    """A square, so that a column is as long as a row."""
    nodes = [NODE("Gemm", ["x", "w", "b"], ["g"], alpha=0.5, beta=2.0), NODE("MatMul", ["g", "v"], ["y"])]
    bias = numpy_helper.from_array(np.random.default_rng(5).standard_normal(shape).astype(np.float32) * 3, "b")
    return network(nodes, [weights("w", 8, 4), weights("v", 4, 6), bias], shape=(4, 8))


def convolution_and_product():
    """Two readers of one tensor, with different axes of channels."""
    nodes = [NODE("Relu", ["x"], ["r"]), NODE("Conv", ["r", "w"], ["c"]), NODE("MatMul", ["r", "v"], ["p"])]
    nodes += [NODE("Reshape", ["c", "all"], ["y"]), NODE("Reshape", ["p", "all"], ["z"])]
    flat = numpy_helper.from_array(np.array([-1]), "all")
    return network(nodes, [weights("w", 4, 6, 3), weights("v", 9, 5), flat], shape=(2, 6, 9), outputs=("y", "z"))


def window_behind_the_input():
    """The third window of the width would begin in the padding. Einsum takes the shape that follows from two."""
    pool = NODE("MaxPool", ["x"], ["m"], ceil_mode=1, kernel_shape=[2, 2], pads=[1, 0, 0, 1], strides=[3, 3])
    nodes = [pool, NODE("Conv", ["m", "w"], ["c"]), NODE("Einsum", ["c", "v"], ["y"], equation="bchw,kw->bchk")]
    return network(nodes, [weights("w", 4, 3, 1, 1), weights("v", 5, 2)], shape=(1, 3, 7, 6), opset=17)


MODELS = {
    "window_behind_the_input": window_behind_the_input,
    "up_beside_a_branch": up_beside_a_branch,
    "longer_sound": longer_sound,
    "volume": volume,
    "constant_output": constant_output,
    "functions": with_functions,
    "newest_opset": newest_opset,
    "norm_in_front": norm_in_front,
    "norm_of_two_readers": norm_of_two_readers,
    "loop": loop,
    "output_twice": lambda: network([NODE("Conv", ["x", "w"], ["y"])], [weights("w", 4, 3, 3, 3)], outputs=("y", "y")),
    "double": lambda: network(
        [NODE("MatMul", ["x", "w"], ["y"])],
        [weights("w", 8, 4, dtype=np.float64)],
        shape=(3, 8),
        dtype=TensorProto.DOUBLE,
    ),
    "several_matrices": lambda: network([NODE("MatMul", ["x", "w"], ["y"])], [weights("w", 3, 8, 4)], shape=(3, 5, 8)),
    "gemm_of_opset_6": lambda: network(
        [NODE("Gemm", ["x", "w", "b"], ["y"], broadcast=1)],
        [weights("w", 8, 4), weights("b", 4)],
        shape=(3, 8),
        opset=6,
    ),
    **{
        f"gemm_that_adds_{'x'.join(map(str, shape))}": functools.partial(gemm_that_adds, shape)
        for shape in ((4,), (1, 4), (4, 1), (4, 4), (1,), ())
    },
    "convolution_and_product": convolution_and_product,
    "defaults_written_out": lambda: network(
        [NODE("RNN", ["x", "w", "r"], ["", "h"], hidden_size=8, activations=["Tanh", "Tanh"])]
        + [NODE("MatMul", ["h", "v"], ["y"])],
        [weights("w", 1, 8, 6), weights("r", 1, 8, 8), weights("v", 8, 4)],
        shape=(5, 2, 6),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_forms(name):
    made = tessera.quantize(MODELS[name](), "random", engine="onnxruntime", samples=6, report=True)
    assert made.macs_npu_share == 1 and made.report["output_snr_db"] > LEAST_DECIBELS
    port = made.model.graph.input[0]
    shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
    feed = {port.name: np.random.default_rng(1).random(shape, np.float32)}
    got = tessera.Session(made.model.SerializeToString()).run(None, feed)
    expected = oracle.run(made.model, feed, intermediates=False).outputs
    for value, result in zip(made.model.graph.output, got, strict=True):
        np.testing.assert_array_equal(result, expected[value.name])


def test_a_normalisation_of_opset_14():
    """ONNX Runtime's optimiser writes it into models of opsets that have no such operator."""
    nodes = [NODE("MatMul", ["x", "w"], ["p"]), NODE("LayerNormalization", ["p", "g"], ["y"], axis=0)]
    model = network(nodes, [weights("w", 8, 4), weights("g", 3, 4)], shape=(3, 8), opset=14)
    made = tessera.quantize(model, "random", engine="onnxruntime", samples=6)
    feed = {"x": np.random.default_rng(1).random((3, 8), np.float32)}
    (got,) = tessera.Session(made.model.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(got, oracle.run(made.model, feed, intermediates=False).outputs["y"], atol=1e-5)
    assert made.macs_npu_share == 1


def test_a_transposed_convolution_of_large_sums_stays_float():
    """Sums of 2^24 steps and more depend on their order. What stays float costs the others no power of two."""
    nodes = [NODE("Relu", ["x"], ["r"]), NODE("ConvTranspose", ["r", "w"], ["u"], strides=[2, 2])]
    nodes.append(NODE("Conv", ["u", "out"], ["y"]))
    wide = numpy_helper.from_array(np.full((2048, 1, 2, 2), 0.01, np.float32), "w")
    model = network(nodes, [wide, weights("out", 2, 1, 3, 3)], shape=(1, 2048, 2, 2))
    made = tessera.quantize(model, "random", engine="onnxruntime", samples=4)
    assert 0 < made.macs_npu_share < 1
    scales = [t for t in made.model.graph.initializer if t.name.endswith("/scale") and not t.dims]
    assert scales and all(np.frexp(numpy_helper.to_array(t))[0] != 0.5 for t in scales)


def test_a_transposed_convolution_that_loses_much_stays_float():
    """Large weights of a channel that is always 0 make its steps coarse. In 16 bits there is no form of it; `sixteen=0`
    leaves it in bytes."""
    rng = np.random.default_rng(2)
    first, up = (rng.standard_normal(shape).astype(np.float32) / 4 for shape in ((8, 3, 3, 3), (8, 4, 2, 2)))
    up[0] *= 20
    nodes = [
        NODE("Conv", ["x", "w", "b"], ["c"]),
        NODE("Relu", ["c"], ["m"]),
        NODE("ConvTranspose", ["m", "up"], ["y"], strides=[2, 2]),
    ]
    bias = np.float32([-100, *[0] * 7])
    arrays = {"w": first, "b": bias, "up": up}
    model = network(nodes, [numpy_helper.from_array(array, name) for name, array in arrays.items()])
    samples = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(8)]
    with pytest.warns(UserWarning, match="'y' stay float"):
        made = tessera.quantize(model, samples, engine="onnxruntime", report=True)
    assert 0 < made.macs_npu_share < 1
    bytes_alone = tessera.quantize(model, samples, engine="onnxruntime", report=True, sixteen=0)
    assert bytes_alone.macs_npu_share == 1
    assert bytes_alone.report["output_snr_db"] + 3 < made.report["output_snr_db"]


def test_the_error_names_what_the_compiler_leaves_to_the_cpu():
    """Sums of 2^24 steps and more in the only product."""
    wide = numpy_helper.from_array(np.full((2048, 1, 2, 2), 0.01, np.float32), "w")
    nodes = [NODE("ConvTranspose", ["x", "w"], ["y"], name="only", strides=[2, 2])]
    model = network(nodes, [wide], shape=(1, 2048, 2, 2))
    with pytest.raises(tessera.Error, match="'only'.*the compiler leaves it to the CPU.*run it as it is"):
        tessera.quantize(model, "random", engine="onnxruntime", samples=4)


def test_constants_of_the_oldest_format_need_not_be_inputs():
    """Nor need anybody read them: ONNX Runtime runs such files."""
    constants = [weights("w", 8, 4), weights("unread", 2, 2)]
    model = network([NODE("MatMul", ["x", "w"], ["y"])], constants, shape=(3, 8), opset=9)
    model.ir_version = 3
    made = tessera.quantize(model, "random", engine="onnxruntime", samples=4)
    onnx.checker.check_model(made.model, full_check=True)
    assert made.macs_npu_share == 1


def test_operators_of_the_newest_opsets_are_named():
    nodes = [NODE("MatMul", ["x", "w"], ["m"]), NODE("TensorScatter", ["m", "m"], ["y"], name="the_update", axis=0)]
    model = network(nodes, [weights("w", 8, 4)], shape=(3, 8), opset=24)
    with pytest.raises(tessera.Error, match=r"the_update.*opset 22") as caught:
        tessera.quantize(model, "random", engine="onnxruntime")
    assert caught.value.code == "unsupported"


def test_the_float_model_stays_as_it_was():
    model = MODELS["output_twice"]()
    before = model.SerializeToString()
    tessera.quantize(model, "random", engine="onnxruntime", samples=2)
    assert model.SerializeToString() == before
    assert onnx.load_model_from_string(before).graph.output[1].name == "y"


def test_a_tensor_that_no_sample_fills():
    model = network([NODE("MatMul", ["x", "w"], ["y"])], [weights("w", 8, 4)], shape=("n", 8))
    with pytest.raises(tessera.Error, match="tensor 'x' holds nothing in any sample"):
        tessera.quantize(model, [{"x": np.zeros((0, 8), np.float32)}], engine="onnxruntime")


def test_a_product_that_no_sample_reaches_stays_float():
    """As an expert of a mixture does that no token is sent to."""
    nodes = [
        NODE("MatMul", ["x", "w"], ["m"], name="seen"),
        NODE("Compress", ["m", "chosen"], ["some"], axis=0),
        NODE("MatMul", ["some", "v"], ["y"], name="unseen"),
    ]
    constants = [weights("w", 8, 4), weights("v", 4, 4)]
    model = network(nodes, constants, outputs=("m", "y"), shape=("n", 8))
    model.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info("chosen", onnx.TensorProto.BOOL, ["n"]))
    sample = {"x": np.random.default_rng(1).random((3, 8), np.float32), "chosen": np.zeros(3, bool)}
    made = tessera.quantize(model, [sample], engine="onnxruntime", report=True)
    rows = {row["layer"]: row for row in made.report["layers"]}
    assert rows["seen"]["int8"] and not rows["unseen"]["int8"]
    assert "holds nothing" in rows["unseen"]["why_float"]

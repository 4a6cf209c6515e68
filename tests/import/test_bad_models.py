# SPDX-License-Identifier: Apache-2.0
"""Malformed models: each gives one clear error that names cause and node or tensor, and none crashes the process."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def value(name, shape=(2, 3), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs=None, outputs=None, initializers=(), opset=17, **options):
    graph = helper.make_graph(
        list(nodes),
        "g",
        inputs if inputs is not None else [value("x")],
        outputs if outputs is not None else [value("y", None)],
        list(initializers),
    )
    opsets = options.pop("opset_imports", [helper.make_opsetid("", opset)])
    model = helper.make_model(graph, opset_imports=opsets, **options)
    model.ir_version = 8
    return model


def relu(**changes):
    return helper.make_node(
        changes.pop("op", "Relu"),
        changes.pop("inputs", ["x"]),
        changes.pop("outputs", ["y"]),
        name=changes.pop("name", "the_node"),
        **changes,
    )


def attribute(node, **fields):
    proto = onnx.AttributeProto(**fields)
    node.attribute.append(proto)
    return node


def tensor(name="w", dims=(2, 3), data_type=TensorProto.FLOAT, **fields):
    return TensorProto(name=name, dims=dims, data_type=data_type, **fields)


def with_weights(weights, **options):
    return model_of([relu(op="Add", inputs=["x", "w"])], initializers=[weights], **options)


def subgraph(nodes, outputs, inputs=()):
    return helper.make_graph(nodes, "body", list(inputs), [value(o, None) for o in outputs])


def if_node(then, otherwise, **options):
    return helper.make_node("If", ["c"], ["y"], name="the_if", then_branch=then, else_branch=otherwise, **options)


def field(number, payload):
    """One length-delimited field of a protobuf message."""
    size, length = len(payload), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    tag = number << 3 | 2
    return (bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])) + length + bytes([size]) + payload


def nested_ifs(depth):
    """A model of If in If in If, written by hand because Python's protobuf refuses to nest so deeply."""
    output = field(12, field(1, b"o"))
    graph = field(1, field(1, b"x") + field(2, b"o") + field(4, b"Identity")) + output
    for _ in range(depth):
        branches = b"".join(field(5, field(1, name) + b"\xa0\x01\x05" + field(6, graph)) for name in (b"then_branch",))
        graph = field(1, field(1, b"c") + field(2, b"o") + field(4, b"If") + branches) + output
    inputs = b"".join(field(11, v.SerializeToString()) for v in (value("x"), value("c", (), TensorProto.BOOL)))
    return b"\x08\x08" + field(7, graph + inputs) + field(8, b"\x10\x11")


def function_model(body, inputs, outputs, call=None, attributes=(), opset=17):
    function = helper.make_function(
        "custom",
        "Fancy",
        inputs,
        outputs,
        body,
        [helper.make_opsetid("", opset), helper.make_opsetid("custom", 1)],
        list(attributes),
    )
    call = call or helper.make_node("Fancy", ["x"], ["y"], name="the_call", domain="custom")
    return model_of(
        [call], opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)], functions=[function]
    )


def edited(model, edit):
    edit(model)
    return model


# name -> (model, error code, what the message must contain)
CASES = {
    "no_graph": (onnx.ModelProto(ir_version=8), "invalid_model", ["no graph"]),
    "no_opset": (edited(model_of([relu()]), lambda m: m.ClearField("opset_import")), "invalid_model", ["operator set"]),
    "training": (
        model_of(
            [relu(op="Adagrad", domain="ai.onnx.preview.training")],
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.preview.training", 1)],
        ),
        "unsupported",
        ["the_node", "training", "without its training part"],
    ),
    "old_shapes_differ": (
        model_of(
            [helper.make_node("Add", ["x", "b"], ["y"], name="the_node")],
            initializers=[numpy_helper.from_array(np.ones(3, np.float32), "b")],
            opset=6,
        ),
        "invalid_model",
        ["the_node", "broadcast = 1"],
    ),
    "opset_too_new": (model_of([relu()], opset=99), "unsupported", ["opset 99"]),
    "opset_negative": (model_of([relu()], opset=-3), "invalid_model", ["-3"]),
    "opset_twice": (
        model_of([relu()], opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx", 14)]),
        "invalid_model",
        ["two versions"],
    ),
    "opset_of_onnx_missing": (
        model_of([relu()], opset_imports=[helper.make_opsetid("other", 1)]),
        "invalid_model",
        ["the_node", "operator set"],
    ),
    "no_outputs": (model_of([relu()], outputs=[]), "invalid_model", ["no outputs"]),
    "output_unknown": (model_of([relu()], outputs=[value("z")]), "invalid_model", ["'z'"]),
    "input_unknown": (model_of([relu(inputs=["xx"])]), "invalid_model", ["the_node", "'xx'", "did you mean 'x'"]),
    "input_twice": (model_of([relu()], inputs=[value("x"), value("x")]), "invalid_model", ["'x'", "twice"]),
    "input_without_name": (model_of([relu()], inputs=[value("x"), value("")]), "invalid_model", ["no name"]),
    "input_without_type": (
        model_of([relu()], inputs=[onnx.ValueInfoProto(name="x")]),
        "invalid_model",
        ["'x'", "no type"],
    ),
    "input_element_type_unknown": (model_of([relu()], inputs=[value("x", dtype=77)]), "invalid_model", ["'x'", "77"]),
    "input_element_type_undefined": (
        model_of([relu()], inputs=[value("x", dtype=0)]),
        "invalid_model",
        ["'x'", "undefined"],
    ),
    "input_dimension_negative": (model_of([relu()], inputs=[value("x", (2, -7))]), "invalid_model", ["'x'", "-7"]),
    "input_shape_absurd": (model_of([relu()], inputs=[value("x", (2**40, 2**40))]), "does_not_fit", ["'x'", "memory"]),
    "input_is_a_map": (
        model_of(
            [relu()],
            inputs=[
                helper.make_value_info(
                    "x", helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, None))
                )
            ],
        ),
        "unsupported",
        ["'x'", "map"],
    ),
    "input_is_sparse": (
        model_of([relu()], inputs=[helper.make_value_info("x", helper.make_sparse_tensor_type_proto(1, [2]))]),
        "unsupported",
        ["'x'", "sparse"],
    ),
    "operator_unknown": (model_of([relu(op="Rellu")]), "unsupported", ["the_node", "Rellu", "similar: ", "Relu"]),
    "operator_empty": (model_of([relu(op="")]), "invalid_model", ["the_node", "no operator"]),
    "operator_too_young": (model_of([relu(op="Gelu")], opset=17), "unsupported", ["the_node", "Gelu", "opset 17"]),
    "domain_unknown": (model_of([relu(op="Magic", domain="ai.acme")]), "unsupported", ["the_node", "ai.acme", "Magic"]),
    "too_few_inputs": (model_of([relu(op="Add")]), "invalid_model", ["the_node", "Add"]),
    "too_many_inputs": (model_of([relu(inputs=["x", "x"])]), "invalid_model", ["the_node", "Relu"]),
    "too_many_outputs": (model_of([relu(outputs=["y", "z"])]), "invalid_model", ["the_node", "Relu"]),
    "no_node_outputs": (model_of([relu(outputs=[""]), relu(name="b")]), "invalid_model", ["no outputs"]),
    "required_input_absent": (model_of([relu(op="Add", inputs=["", "x"])]), "invalid_model", ["the_node"]),
    "types_differ": (
        model_of([relu(op="Add", inputs=["x", "i"])], inputs=[value("x"), value("i", dtype=TensorProto.INT64)]),
        "invalid_model",
        ["the_node", "Add"],
    ),
    "shapes_do_not_broadcast": (
        model_of([relu(op="Add", inputs=["x", "i"])], inputs=[value("x"), value("i", (2, 4))]),
        "invalid_model",
        ["the_node", "[2,4]"],
    ),
    "matmul_shapes": (model_of([relu(op="MatMul", inputs=["x", "x"])]), "invalid_model", ["the_node", "MatMul"]),
    "conv_channels": (
        model_of([relu(op="Conv", inputs=["x", "w"])], inputs=[value("x", (1, 3, 8, 8)), value("w", (4, 2, 3, 3))]),
        "invalid_model",
        ["the_node", "Conv"],
    ),
    "conv_kernel_shape_differs": (
        model_of(
            [relu(op="Conv", inputs=["x", "w"], kernel_shape=[5, 5])],
            inputs=[value("x", (1, 2, 8, 8)), value("w", (4, 2, 3, 3))],
        ),
        "invalid_model",
        ["the_node", "Conv"],
    ),
    "conv_group_zero": (
        model_of(
            [relu(op="Conv", inputs=["x", "w"], group=0)], inputs=[value("x", (1, 2, 8, 8)), value("w", (4, 2, 3, 3))]
        ),
        "invalid_model",
        ["the_node", "Conv"],
    ),
    "conv_stride_zero": (
        model_of(
            [relu(op="Conv", inputs=["x", "w"], strides=[0, 1])],
            inputs=[value("x", (1, 2, 8, 8)), value("w", (4, 2, 3, 3))],
        ),
        "invalid_model",
        ["the_node", "Conv"],
    ),
    "transpose_permutation": (
        model_of([relu(op="Transpose", perm=[0, 0])]),
        "invalid_model",
        ["the_node", "Transpose"],
    ),
    "concat_axis": (model_of([relu(op="Concat", inputs=["x", "x"], axis=5)]), "invalid_model", ["the_node", "axis"]),
    "reshape_count": (
        model_of(
            [relu(op="Reshape", inputs=["x", "s"])], initializers=[numpy_helper.from_array(np.array([4, 5]), "s")]
        ),
        "invalid_model",
        ["the_node", "Reshape"],
    ),
    "reshape_two_unknowns": (
        model_of(
            [relu(op="Reshape", inputs=["x", "s"])], initializers=[numpy_helper.from_array(np.array([-1, -1]), "s")]
        ),
        "invalid_model",
        ["the_node", "Reshape"],
    ),
    "declared_type_of_output_wrong": (
        model_of([relu()], outputs=[value("y", dtype=TensorProto.INT8)]),
        "invalid_model",
        ["'y'", "int8", "float32"],
    ),
    "attribute_unknown": (model_of([relu(op="LeakyRelu", beta=1.0)]), "invalid_model", ["the_node", "beta"]),
    "attribute_of_wrong_type": (
        model_of([relu(op="Concat", inputs=["x", "x"], axis="first")]),
        "invalid_model",
        ["the_node", "axis"],
    ),
    "attribute_twice": (
        model_of([edited(relu(op="LeakyRelu", alpha=1.0), lambda n: n.attribute.append(n.attribute[0]))]),
        "invalid_model",
        ["the_node", "alpha", "twice"],
    ),
    "attribute_without_name": (
        model_of([attribute(relu(), type=onnx.AttributeProto.INT, i=1)]),
        "invalid_model",
        ["the_node", "no name"],
    ),
    "attribute_without_value": (model_of([attribute(relu(), name="alpha")]), "invalid_model", ["the_node", "alpha"]),
    "attribute_tensor_missing": (
        model_of([attribute(relu(op="ConstantOfShape"), name="value", type=onnx.AttributeProto.TENSOR)]),
        "invalid_model",
        ["the_node", "value"],
    ),
    "attribute_list_of_graphs": (
        model_of([attribute(relu(), name="g", type=onnx.AttributeProto.GRAPHS)]),
        "unsupported",
        ["the_node", "list of"],
    ),
    "attribute_reference_outside_function": (
        model_of([attribute(relu(op="LeakyRelu"), name="alpha", ref_attr_name="a", type=onnx.AttributeProto.FLOAT)]),
        "invalid_model",
        ["the_node", "alpha"],
    ),
    "constant_without_value": (
        model_of([helper.make_node("Constant", [], ["y"], name="the_node")], inputs=[]),
        "invalid_model",
        ["the_node", "attribute"],
    ),
    "constant_attribute_wrong": (
        model_of([helper.make_node("Constant", [], ["y"], name="the_node", value_ints=3.5)], inputs=[]),
        "invalid_model",
        ["the_node", "value_ints"],
    ),
    "constant_with_input": (
        model_of([helper.make_node("Constant", ["x"], ["y"], name="the_node", value_int=3)]),
        "invalid_model",
        ["the_node"],
    ),
    "cycle_of_two": (
        model_of(
            [relu(inputs=["b"], outputs=["a"], name="first"), relu(inputs=["a"], outputs=["b"], name="second"), relu()]
        ),
        "invalid_model",
        ["cycle", "first", "second"],
    ),
    "cycle_of_one": (model_of([relu(inputs=["y"])]), "invalid_model", ["cycle", "the_node"]),
    "cycle_through_subgraph": (
        model_of(
            [
                if_node(subgraph([relu(inputs=["z"], outputs=["t"])], ["t"]), subgraph([relu(outputs=["e"])], ["e"])),
                relu(inputs=["y"], outputs=["z"], name="after"),
            ],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        "invalid_model",
        ["cycle", "the_if", "after"],
    ),
    "value_produced_twice": (
        model_of([relu(), relu(op="Abs", name="again")]),
        "invalid_model",
        ["'y'", "the_node", "again"],
    ),
    "value_named_like_input": (
        model_of([relu(outputs=["x"])], outputs=[value("x")]),
        "invalid_model",
        ["the_node", "x"],
    ),
    "value_named_like_initializer": (with_weights(tensor("y", raw_data=bytes(24))), "invalid_model", ["'y'"]),
    "initializer_twice": (
        model_of([relu()], initializers=[tensor(raw_data=bytes(24)), tensor(dims=[3, 2], raw_data=bytes(24))]),
        "invalid_model",
        ["'w'", "different types or shapes"],
    ),
    "initializer_without_name": (with_weights(tensor("", raw_data=bytes(24))), "invalid_model", ["no name"]),
    "initializer_without_type": (
        with_weights(tensor(data_type=0, raw_data=bytes(24))),
        "invalid_model",
        ["'w'", "undefined"],
    ),
    "initializer_type_unknown": (
        with_weights(tensor(data_type=55, raw_data=bytes(24))),
        "invalid_model",
        ["'w'", "55"],
    ),
    "initializer_without_data": (with_weights(tensor()), "invalid_model", ["'w'", "6 elements", "there are 0"]),
    "initializer_too_short": (with_weights(tensor(raw_data=bytes(23))), "invalid_model", ["'w'", "24 bytes", "23"]),
    "initializer_too_long": (with_weights(tensor(raw_data=bytes(25))), "invalid_model", ["'w'", "25"]),
    "initializer_wrong_field": (with_weights(tensor(int64_data=range(6))), "invalid_model", ["'w'"]),
    "initializer_field_too_short": (with_weights(tensor(float_data=[1, 2, 3])), "invalid_model", ["'w'", "3"]),
    "initializer_value_out_of_range": (
        with_weights(tensor(data_type=TensorProto.INT8, int32_data=[1, 2, 3, 4, 5, 300])),
        "invalid_model",
        ["'w'", "300"],
    ),
    "initializer_bool_out_of_range": (
        with_weights(tensor(data_type=TensorProto.BOOL, raw_data=bytes([0, 1, 2, 0, 0, 0]))),
        "invalid_model",
        ["'w'", "boolean"],
    ),
    "initializer_dimension_negative": (
        with_weights(tensor(dims=(2, -3), raw_data=bytes(24))),
        "invalid_model",
        ["'w'", "negative"],
    ),
    "initializer_shape_overflows": (
        with_weights(tensor(dims=(2**40, 2**40), raw_data=bytes(24))),
        "invalid_model",
        ["'w'", "large"],
    ),
    "initializer_shape_absurd": (
        with_weights(tensor(dims=(2**45,), raw_data=bytes(24))),
        "invalid_model",
        ["'w'", "memory"],
    ),
    "initializer_strings_missing": (
        with_weights(tensor(data_type=TensorProto.STRING)),
        "invalid_model",
        ["'w'", "strings"],
    ),
    "initializer_in_segments": (
        with_weights(tensor(raw_data=bytes(24), segment=TensorProto.Segment(begin=0, end=6))),
        "unsupported",
        ["'w'", "segments"],
    ),
    "initializer_int4_too_short": (
        with_weights(tensor(data_type=TensorProto.INT4, raw_data=bytes(2))),
        "invalid_model",
        ["'w'", "3 bytes"],
    ),
    "initializer_of_no_type": (with_weights(tensor(data_type=99, raw_data=bytes(6))), "invalid_model", ["'w'", "99"]),
    "sparse_index_outside": (
        edited(
            with_weights(tensor("v", raw_data=bytes(24))),
            lambda m: m.graph.sparse_initializer.append(
                helper.make_sparse_tensor(
                    helper.make_tensor("w", 1, [1], [5.0]), helper.make_tensor("", 7, [1], [99]), [2, 3]
                )
            ),
        ),
        "invalid_model",
        ["'w'", "99"],
    ),
    "sparse_counts_differ": (
        edited(
            with_weights(tensor("v", raw_data=bytes(24))),
            lambda m: m.graph.sparse_initializer.append(
                helper.make_sparse_tensor(
                    helper.make_tensor("w", 1, [2], [5.0, 1.0]), helper.make_tensor("", 7, [1], [0]), [2, 3]
                )
            ),
        ),
        "invalid_model",
        ["'w'"],
    ),
    "external_in_memory": (
        with_weights(
            edited(
                tensor(data_location=TensorProto.EXTERNAL), lambda t: t.external_data.add(key="location", value="w.bin")
            )
        ),
        "invalid_model",
        ["'w'", "given as bytes"],
    ),
    "if_without_branch": (
        model_of(
            [helper.make_node("If", ["c"], ["y"], name="the_if", then_branch=subgraph([relu(outputs=["t"])], ["t"]))],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        "invalid_model",
        ["the_if"],
    ),
    "if_branches_differ_in_type": (
        model_of(
            [
                if_node(
                    subgraph([relu(outputs=["t"])], ["t"]), subgraph([helper.make_node("Shape", ["x"], ["e"])], ["e"])
                )
            ],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        "invalid_model",
        ["the_if"],
    ),
    "if_branches_differ_in_count": (
        model_of(
            [if_node(subgraph([relu(outputs=["t"])], ["t"]), subgraph([relu(outputs=["e"])], ["e", "e"]))],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        "invalid_model",
        ["the_if"],
    ),
    "if_body_uses_unknown_value": (
        model_of(
            [
                if_node(
                    subgraph([relu(inputs=["nowhere"], outputs=["t"])], ["t"]), subgraph([relu(outputs=["e"])], ["e"])
                )
            ],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        "invalid_model",
        ["nowhere"],
    ),
    "if_output_of_body_unknown": (
        model_of(
            [if_node(subgraph([relu(outputs=["t"])], ["tt"]), subgraph([relu(outputs=["e"])], ["e"]))],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        "invalid_model",
        ["the_if", "tt"],
    ),
    "ifs_nest_too_deeply": (nested_ifs(65), "invalid_model", ["nest"]),
    "ifs_nest_absurdly": (nested_ifs(5000), "invalid_model", ["nested too deeply"]),
    "loop_body_arguments": (
        model_of(
            [
                helper.make_node(
                    "Loop",
                    ["n", "", "x"],
                    ["y"],
                    name="the_loop",
                    body=subgraph(
                        [helper.make_node("Identity", ["k"], ["k2"])],
                        ["k2"],
                        [value("i", (), TensorProto.INT64), value("k", (), TensorProto.BOOL)],
                    ),
                )
            ],
            [value("x"), value("n", (), TensorProto.INT64)],
        ),
        "invalid_model",
        ["the_loop"],
    ),
    "function_calls_itself": (
        function_model([helper.make_node("Fancy", ["a"], ["b"], domain="custom")], ["a"], ["b"]),
        "invalid_model",
        ["Fancy", "calls itself"],
    ),
    "function_too_many_inputs": (
        function_model(
            [helper.make_node("Relu", ["a"], ["b"])],
            ["a"],
            ["b"],
            helper.make_node("Fancy", ["x", "x"], ["y"], name="the_call", domain="custom"),
        ),
        "invalid_model",
        ["the_call", "Fancy"],
    ),
    "function_output_missing": (
        function_model([helper.make_node("Relu", ["a"], ["c"])], ["a"], ["b"]),
        "invalid_model",
        ["Fancy", "'b'"],
    ),
    "function_sees_no_outer_names": (
        function_model([helper.make_node("Add", ["a", "x"], ["b"])], ["a"], ["b"]),
        "invalid_model",
        ["'x'"],
    ),
    "function_twice": (
        edited(
            function_model([helper.make_node("Relu", ["a"], ["b"])], ["a"], ["b"]),
            lambda m: m.functions.append(m.functions[0]),
        ),
        "invalid_model",
        ["Fancy", "twice"],
    ),
    "result_absurdly_large": (
        model_of(
            [relu(op="Tile", inputs=["x", "r"])], initializers=[numpy_helper.from_array(np.array([2**30, 2**31]), "r")]
        ),
        None,
        ["the_node"],
    ),
    "constant_of_shape_absurd": (
        model_of(
            [relu(op="ConstantOfShape", inputs=["r"])],
            inputs=[],
            initializers=[numpy_helper.from_array(np.array([2**40, 2**22]), "r")],
        ),
        None,
        ["the_node"],
    ),
    "constant_of_shape_negative": (
        model_of(
            [relu(op="ConstantOfShape", inputs=["r"])],
            inputs=[],
            initializers=[numpy_helper.from_array(np.array([3, -2]), "r")],
        ),
        None,
        ["the_node"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_error(nn, name):
    model, code, words = CASES[name]
    with pytest.raises(nn.TesseraError) as caught:
        nn.Model(model if isinstance(model, bytes) else model.SerializeToString())
    message = str(caught.value)
    for word in words:
        assert word in message
    if code:
        assert caught.value.code == code
    assert "\n" not in message and len(message) < 600


def small_network():
    rng = np.random.default_rng(5)
    weights = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    slope = numpy_helper.from_array(np.array([2, 36], dtype=np.int64), "shape")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Reshape", ["b", "shape"], ["y"], name="reshape"),
    ]
    return model_of(nodes, [value("x", (1, 3, 3, 6))], [value("y", (2, 36))], [weights, slope])


def test_truncation_at_every_point(nn):
    data = small_network().SerializeToString()
    assert nn.Model(data).outputs == [("y", "float32", [2, 36])]
    for cut in range(len(data)):
        with pytest.raises(nn.TesseraError) as caught:
            nn.Model(data[:cut])
        assert caught.value.code in ("invalid_model", "unsupported")


def test_damage_never_crashes(nn):
    data = bytearray(small_network().SerializeToString())
    rng = np.random.default_rng(11)
    outcomes = {"fine": 0, "error": 0}
    for _ in range(3000):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), size=int(rng.integers(1, 4))):
            damaged[at] = int(rng.integers(0, 256))
        try:
            model = nn.Model(bytes(damaged))
            model.optimise()
            outcomes["fine"] += 1
        except nn.TesseraError as error:
            assert str(error)
            outcomes["error"] += 1
    assert outcomes["fine"] > 100 and outcomes["error"] > 100


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 64, b"not a model at all, but text", b"\x08\x08" * 1000, b"PK\x03\x04" + bytes(100)]
)
def test_other_files(nn, data):
    with pytest.raises(nn.TesseraError) as caught:
        nn.Model(data)
    assert caught.value.code == "invalid_model"


def test_missing_file_and_directory(nn, tmp_path):
    for path in (tmp_path / "absent.onnx", tmp_path):
        with pytest.raises(nn.TesseraError) as caught:
            nn.Model(str(path))
        assert caught.value.code == "io" and str(path) in str(caught.value)


def external_model(path, **entries):
    weights = tensor(data_location=TensorProto.EXTERNAL)
    for key, text in entries.items():
        weights.external_data.add(key=key, value=str(text))
    path.write_bytes(with_weights(weights).SerializeToString())
    return str(path)


EXTERNAL_CASES = {
    "parent": (dict(location="../secret.bin"), "leaves the model's folder"),
    "parent_inside": (dict(location="sub/../../secret.bin"), "leaves the model's folder"),
    "absolute": (dict(location="/etc/passwd"), "leaves the model's folder"),
    "link": (dict(location="link.bin"), "symbolic link"),
    "linked_folder": (dict(location="linked/secret.bin"), "symbolic link"),
    "absent": (dict(location="absent.bin"), "does not exist"),
    "folder": (dict(location="sub"), "no regular file"),
    "no_location": (dict(offset=0), "no file name"),
    "too_short": (dict(location="short.bin"), "too few"),
    "offset_outside": (dict(location="good.bin", offset=4096), "outside"),
    "offset_negative": (dict(location="good.bin", offset=-8), "no number"),
    "offset_text": (dict(location="good.bin", offset="1e3"), "no number"),
    "offset_overflows": (dict(location="good.bin", offset=2**70), "no number"),
    "length_wrong": (dict(location="good.bin", length=23), "23"),
}


@pytest.mark.parametrize("name", EXTERNAL_CASES)
def test_external_data(nn, tmp_path, name):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    (folder / "short.bin").write_bytes(bytes(23))
    (folder / "good.bin").write_bytes(bytes(24))
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    os.symlink(tmp_path, folder / "linked")
    entries, word = EXTERNAL_CASES[name]
    with pytest.raises(nn.TesseraError) as caught:
        nn.Model(external_model(folder / "model.onnx", **entries))
    assert caught.value.code == "invalid_model" and word in str(caught.value) and "'w'" in str(caught.value)


def test_shape_options(nn):
    data = model_of([relu()], inputs=[value("x", ("batch", 3))]).SerializeToString()
    assert nn.Model(data, {"x": [5, 3]}).outputs == [("y", "float32", [5, 3])]
    assert nn.Model(data, {"batch": [7]}).outputs == [("y", "float32", [7, 3])]
    for shapes, word in [
        ({"z": [5, 3]}, "no input"),
        ({"x": [5]}, "dimensions"),
        ({"x": [5, 4]}, "fixed"),
        ({"x": [-1, 3]}, "negative"),
        ({"x": [4, 3], "batch": [5]}, "batch"),
        ({"x": [2**62, 3]}, "memory"),
    ]:
        with pytest.raises(nn.TesseraError) as caught:
            nn.Model(data, shapes)
        assert word in str(caught.value) and caught.value.code in ("invalid_argument", "does_not_fit")


def test_run_checks_its_inputs(nn):
    model = nn.Model(model_of([relu()]).SerializeToString())
    good = np.ones((2, 3), np.float32)
    assert np.array_equal(model.run({"x": good})["y"], good)
    for feeds, word in [
        ({}, "missing"),
        ({"x": good[:1]}, "shape"),
        ({"x": good.astype(np.float64)}, "type"),
        ({"x": good, "z": good}, "does not have"),
        ({"x": [good]}, "tensor"),
    ]:
        with pytest.raises(nn.TesseraError) as caught:
            model.run(feeds)
        assert word in str(caught.value) and caught.value.code == "invalid_argument"

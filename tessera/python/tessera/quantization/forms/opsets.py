# SPDX-License-Identifier: Apache-2.0
"""Models of any opset in one that quantisation works on. Enters: a model of opsets 1 to 24. Leaves: the same in opsets
13 to 22. Method: ONNX's version converter, and here what it refuses or leaves wrong."""

import copy

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper, version_converter

from ..errors import error, model_error
from ..graph import Graph, attribute, bodies, graphs_of, is_onnx, names_of, opset_of, unique

LEAST_OPSET = 13  # of scales for each channel
MEANT_ALIKE = 17  # the last opset in which operators of opset 13 are what they were
MOST_OPSET = 22  # beyond it ONNX Runtime has no kernel of QuantizeLinear
DEFINITIONS = "tessera.definitions"  # of the functions that stand for newer operators while they are put in place


class Constants:
    """New constants of a model, with names of their own."""

    def __init__(self, model):
        self.graph, self.taken = model.graph, names_of(model)

    def __call__(self, wanted, array):
        name = unique(wanted, self.taken)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def _attribute_to_input(constant, node, name, position, dtype):
    """An attribute of an old opset becomes operand `position`."""
    value = attribute(node, name)
    if value is None:
        return
    while len(node.input) < position:
        node.input.append("")
    if len(node.input) == position:
        node.input.append(constant(f"{node.output[0]}/{name}", np.array(value, dtype)))
    kept = [entry for entry in node.attribute if entry.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def mend_old(model):
    """What the version converter refuses or leaves wrong in opsets 1 to 12, in the form that opset 13 has. The
    attributes that became operands are moved; attributes that no longer mean anything go."""
    constant = Constants(model)
    for graph in graphs_of(model.graph):
        _mend_nodes(graph, constant)
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = LEAST_OPSET
    for graph in graphs_of(model.graph):
        _softmax_of_old(model, graph, constant)


def _mend_nodes(graph, constant):
    for node in graph.node:
        if not is_onnx(node, node.op_type):
            continue
        kept = [e for e in node.attribute if e.name not in ("consumed_inputs", "is_test")]
        if is_onnx(node, "BatchNormalization"):
            kept = [e for e in kept if e.name != "spatial"]
            del node.output[1:]  # statistics of training, which no inference reads
        if is_onnx(node, "Gemm"):
            kept = [e for e in kept if e.name != "broadcast"]  # its bias spreads now as it did
        if is_onnx(node, "Dropout"):
            kept = []
            node.op_type = "Identity"
            del node.input[1:]
            del node.output[1:]
        if is_onnx(node, "MaxPool", "AveragePool") and attribute(node, "storage_order", 0) == 0:
            kept = [e for e in kept if e.name != "storage_order"]
        if is_onnx(node, "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Greater", "Less", "Equal", "PRelu"):
            kept = _broadcast_of_old(graph, node, kept, constant)
        del node.attribute[:]
        node.attribute.extend(kept)
        _operands_of_old(node, constant)


def _broadcast_of_old(graph, node, kept, constant):
    """`broadcast` and `axis` of opsets below 7: the constant operand gets the axes that today's rule wants."""
    axis = attribute(node, "axis")
    if axis is not None and len(node.input) == 2:
        left = next((v for v in [*graph.value_info, *graph.input] if v.name == node.input[0]), None)
        right = next((t for t in graph.initializer if t.name == node.input[1]), None)
        if right is None or left is None:
            raise error(
                "unsupported",
                f"node '{node.name or node.output[0]}' ({node.op_type}): broadcasting along axis {axis} of an opset "
                "below 7 between tensors of unknown shape; export the model with opset 13 or later",
            )
        rank = len(left.type.tensor_type.shape.dim)
        array = numpy_helper.to_array(right)
        array = array.reshape(array.shape + (1,) * (rank - (axis % rank) - array.ndim))
        node.input[1] = constant(f"{node.output[0]}/operand", array)
    return [e for e in kept if e.name not in ("axis", "broadcast")]


def _operands_of_old(node, constant):
    moved = {
        "Reshape": [("shape", 1, np.int64)],
        "Clip": [("min", 1, np.float32), ("max", 2, np.float32)],
        "Pad": [("pads", 1, np.int64), ("value", 2, np.float32)],
        "Slice": [("starts", 1, np.int64), ("ends", 2, np.int64), ("axes", 3, np.int64)],
        "Squeeze": [("axes", 1, np.int64)],
        "Unsqueeze": [("axes", 1, np.int64)],
        "Split": [("split", 1, np.int64)],
        "ReduceSum": [("axes", 1, np.int64)],
        "Tile": [("tiles", 1, np.int64)],
    }
    if is_onnx(node, "Upsample"):
        scales = attribute(node, "scales")
        mode = attribute(node, "mode", b"nearest").decode()
        operand = node.input[1] if len(node.input) > 1 else constant(f"{node.output[0]}/scales", np.float32(scales))
        source = node.input[0]
        del node.input[:], node.attribute[:]
        node.op_type = "Resize"
        node.input.extend([source, "", operand])
        node.attribute.extend(
            [
                helper.make_attribute("mode", mode),
                helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                helper.make_attribute("nearest_mode", "floor"),
            ]
        )
    elif is_onnx(node, "Resize") and len(node.input) == 2:
        source, scales = node.input
        del node.input[:]
        node.input.extend([source, "", scales])
        node.attribute.extend(
            [
                helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                helper.make_attribute("nearest_mode", "floor"),
            ]
        )
    elif is_onnx(node, *moved):
        for name, position, dtype in moved[node.op_type]:
            _attribute_to_input(constant, node, name, position, dtype)


def _softmax_of_old(model, graph, constant):
    """Softmax below opset 13 flattens from its axis (default 1) on. On the last axis that is today's; else Flatten,
    Softmax and Reshape stand for it."""
    inferred = Graph(onnx.shape_inference.infer_shapes(model))
    nodes, name = [], lambda wanted: unique(wanted, constant.taken)
    for node in graph.node:
        nodes.append(node)
        if not is_onnx(node, "Softmax", "LogSoftmax", "Hardmax"):
            continue
        shape = inferred.shapes.get(node.input[0])
        axis = attribute(node, "axis", 1)
        del node.attribute[:]
        if shape is not None and axis % len(shape) == len(shape) - 1:
            node.attribute.append(helper.make_attribute("axis", -1))
            continue
        source, result = node.input[0], node.output[0]
        node.attribute.append(helper.make_attribute("axis", -1))
        nodes.pop()
        shape, flat, inner = (name(f"{result}/{what}") for what in ("shape", "flat", "softmax"))
        nodes.append(helper.make_node("Shape", [source], [shape], name(f"{result}/Shape")))
        nodes.append(helper.make_node("Flatten", [source], [flat], name(f"{result}/Flatten"), axis=axis))
        node.input[0], node.output[0] = flat, inner
        nodes.append(node)
        nodes.append(helper.make_node("Reshape", [inner, shape], [result], name(f"{result}/back")))
    nodes = [copy.deepcopy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)


def convert_opset(model):
    """The model in opset 13 or later."""
    model.ir_version = max(model.ir_version, 4)
    if opset_of(model) >= LEAST_OPSET:
        return drop_initialized_inputs(model)
    if opset_of(model) == 0:
        raise model_error("the model names no opset of ai.onnx; export it again with opset 13 or later")
    converted = None
    # Below 7 the converter takes broadcasting wrongly, and it leaves the bodies of If, Loop and Scan as they are.
    if opset_of(model) >= 7 and not any(bodies(node) for node in model.graph.node):
        try:
            # The converter wants initialisers among the inputs.
            converted = version_converter.convert_version(with_initialized_inputs(model), LEAST_OPSET)
            converted = drop_initialized_inputs(converted)
            onnx.checker.check_model(converted)
            onnx.shape_inference.infer_shapes(converted, strict_mode=True)
        except Exception:
            converted = None
    if converted is None:
        converted = drop_initialized_inputs(copy.deepcopy(model))
        shaped = onnx.shape_inference.infer_shapes(converted)
        converted.graph.value_info.extend(shaped.graph.value_info)
        mend_old(converted)
        del converted.graph.value_info[:]
    converted.ir_version = max(converted.ir_version, 8)
    return converted


def raise_opset(model):
    """The model in an opset that has its operators. ONNX Runtime takes LayerNormalization in any, and its optimiser
    writes it in models of earlier ones. From 13 to 17 no operator changes its meaning."""
    version = opset_of(model)
    used = {node.op_type for graph in graphs_of(model.graph) for node in graph.node if not node.domain}
    for later in range(version, MEANT_ALIKE + 1):
        if all(onnx.defs.has(name, later, "") or not onnx.defs.has(name, MEANT_ALIKE, "") for name in used):
            for entry in model.opset_import:
                if entry.domain in ("", "ai.onnx"):
                    entry.version = later
            break
    return model


def is_known(node):
    """Whether the last opset that quantisation works on has the operator; other domains count as known."""
    return node.domain not in ("", "ai.onnx") or onnx.defs.has(node.op_type, MOST_OPSET, "")


def by_definition(model):
    """The model with the standard's own definition, in simpler operators, in the place of each operator that is newer
    than quantisation works with, such as Attention and RMSNormalization. Those without a definition stay."""
    version = opset_of(model)
    if version <= MOST_OPSET:
        return model
    types = {}
    for graph in graphs_of(onnx.shape_inference.infer_shapes(model).graph):
        types |= {value.name: value.type for value in [*graph.input, *graph.output, *graph.value_info]}
        types |= {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
    for node in [node for graph in graphs_of(model.graph) for node in graph.node if not is_known(node)]:
        schema = onnx.defs.get_schema(node.op_type, version, "")
        given = {entry.name for entry in node.attribute}
        defaults = [a.default_value for a in schema.attributes.values() if a.default_value.type and a.name not in given]
        node.attribute.extend(defaults)
        if schema.has_context_dependent_function:
            operands = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
            body = schema.get_context_dependent_function(node.SerializeToString(), operands)
        elif schema.has_function:
            body = schema.function_body.SerializeToString()
        else:
            continue
        function = onnx.FunctionProto.FromString(body)
        function.domain, function.name = DEFINITIONS, f"{node.op_type}_{len(model.functions)}"
        for entry in function.opset_import:
            entry.version = version
        node.domain, node.op_type = function.domain, function.name
        model.functions.append(function)
    if not model.functions:
        return model
    model.opset_import.append(helper.make_opsetid(DEFINITIONS, 1))
    model = onnx.inliner.inline_local_functions(model)
    kept = [entry for entry in model.opset_import if entry.domain != DEFINITIONS]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return by_definition(model)


def plain_casts(model):
    """CastLike as Cast, which ONNX Runtime folds. Changes the model."""
    kinds = Graph(onnx.shape_inference.infer_shapes(model)).types
    for node in (node for graph in graphs_of(model.graph) for node in graph.node if is_onnx(node, "CastLike")):
        if node.input[1] in kinds:
            node.op_type = "Cast"
            node.attribute.append(helper.make_attribute("to", kinds[node.input.pop()]))


def lower_opset(model):
    """The model in an opset for which ONNX Runtime has QuantizeLinear: what later ones changed in operators that exist
    here too is only what types they take."""
    if opset_of(model) <= MOST_OPSET:
        return model
    for node in (node for graph in graphs_of(model.graph) for node in graph.node):
        known = is_known(node)
        attributes = onnx.defs.get_schema(node.op_type, MOST_OPSET, "").attributes if known and not node.domain else ()
        fresh = [entry.name for entry in node.attribute if not node.domain and entry.name not in attributes]
        if not known or fresh:
            raise error(
                "unsupported",
                f"node '{node.name or node.output[0]}' ({node.op_type}): this form is of opset {opset_of(model)}, "
                f"beside which ONNX Runtime cannot quantise; export the model with opset {MOST_OPSET} or below",
            )
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = MOST_OPSET
    return model


def with_initialized_inputs(model):
    model = copy.deepcopy(model)
    present = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in present:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return model


def drop_initialized_inputs(model):
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model

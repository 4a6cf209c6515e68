# SPDX-License-Identifier: Apache-2.0
"""What a network chooses by its values, as a detector the boxes that it lists: the places that TopK finds, what
NonMaxSuppression and NonZero list, the condition of Compress. In: a model that is to be measured beside the float one.
Out: a copy that takes the float model's choices as inputs. Of two boxes with nearly the same score a small error
lists the other one first, or alone. Both models' outputs then stand for other boxes, and no distance between them would
say anything."""

import copy

import numpy as np
import onnx
from onnx import TensorProto, helper

from ..graph import attribute, bodies, graphs_of, is_onnx, names_of, unique

LISTS = ("NonMaxSuppression", "NonZero")
TYPES = {np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL}


def candidates(model):
    """Names of the tensors that may hold choices: those of them that are integers or truths do. What stands in a body
    counts by the results of the node around it."""
    found = []
    for node in model.graph.node:
        inside = [inner for body in bodies(node) for graph in graphs_of(body) for inner in graph.node]
        if is_onnx(node, *LISTS) or any(is_onnx(inner, "TopK", *LISTS) for inner in inside):
            found += node.output
        elif is_onnx(node, "TopK"):
            found.append(node.output[1])
        elif is_onnx(node, "Compress"):
            found.append(node.input[1])
    made = {name for node in model.graph.node for name in node.output if name}
    return [name for name in dict.fromkeys(found) if name in made]


def chosen(values):
    """Those of the candidates' values, by name, that are choices."""
    return {name: value for name, value in values.items() if getattr(value, "dtype", None) in TYPES}


def given(model, choices):
    """The copy. choices: values by name. What TopK finds are the values at the given places."""
    model, taken, nodes = copy.deepcopy(model), names_of(model), []
    for node in model.graph.node:
        if is_onnx(node, "TopK") and node.output[1] in choices:
            operands = [node.input[0], node.output[1]]
            if node.output[0]:
                axis = attribute(node, "axis", -1)
                nodes.append(helper.make_node("GatherElements", operands, node.output[:1], axis=axis))
            continue
        for index, name in enumerate(node.output):
            if name in choices:
                node.output[index] = unique(f"{name}/unread", taken)
        nodes.append(copy.deepcopy(node))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for name, value in choices.items():
        port = onnx.ValueInfoProto(name=name)
        port.type.tensor_type.elem_type = TYPES[value.dtype]
        model.graph.input.append(port)
    return model

# SPDX-License-Identifier: Apache-2.0
"""States of Loop and Scan that no step changes, as exporters from TensorFlow write the weights of a cell. In: a model
whose names mean one tensor each. Out: the model, changed: bodies read such a value where it stands outside, so that
weights are constants of their products."""

from onnx import helper

from ..graph import attribute, bodies, graphs_of, is_onnx, names_of, rename, unique


def fixed_states_to_reads(model):
    taken = names_of(model)
    for graph in list(graphs_of(model.graph)):
        for node in [node for node in graph.node if is_onnx(node, "Loop", "Scan")]:
            made = _without_fixed_states(node, taken)
            at = next(k for k, other in enumerate(graph.node) if other is node) + 1
            for k, identity in enumerate(made):
                graph.node.insert(at + k, identity)


def _without_fixed_states(node, taken):
    """Takes the fixed states out of a Loop or Scan. Returns nodes that give its results their values."""
    (body,) = bodies(node)
    operands, own, results = _first_states(node)
    count = (
        len(node.input) - operands if is_onnx(node, "Loop") else len(node.input) - attribute(node, "num_scan_inputs")
    )
    made = []
    for k in reversed(range(count)):
        inside, outside = body.input[own + k].name, node.input[operands + k]
        if _passed_on(body, body.output[results + k].name) != inside:
            continue
        if k < len(node.output) and node.output[k]:
            name = unique(f"{node.output[k]}/fixed", taken)
            made.append(helper.make_node("Identity", [outside], [node.output[k]], name))
        del node.input[operands + k], body.input[own + k], body.output[results + k], node.output[k : k + 1]
        _read_outside(body, inside, outside, taken)
    return made


def _first_states(node):
    """Where the states begin: among the node's operands, the body's inputs, and the body's outputs."""
    return (2, 2, 1) if is_onnx(node, "Loop") else (0, 0, 0)


def _passed_on(body, name):
    """The tensor that a tensor is, behind Identity."""
    makers = {node.output[0]: node for node in body.node if is_onnx(node, "Identity")}
    while name in makers:
        name = makers[name].input[0]
    return name


def _read_outside(body, inside, outside, taken):
    """The body reads the outer tensor in place of its own input; what it gives as a result stays one of its own."""
    for value in body.output:
        if value.name == inside:
            value.name = unique(f"{inside}/given", taken)
            body.node.append(helper.make_node("Identity", [inside], [value.name], value.name))
    for value in [value for value in body.value_info if value.name == inside]:
        body.value_info.remove(value)
    rename(body, {inside: outside})

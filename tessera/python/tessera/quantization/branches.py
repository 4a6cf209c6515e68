# SPDX-License-Identifier: Apache-2.0
"""Branches of If as models of their own. In: a prepared model and its samples. Out: for each branch with products that
samples reach, a model whose inputs are what the branch reads of the graph around it, and the samples of those inputs;
and the way back of its quantised form into the branch. Everything that quantisation does to a graph it so does to a
branch, and to the branches inside of it."""

import copy
import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper

from .graph import Graph, bodies, defined, graphs_of, is_onnx, name_apart, names_of, unique
from .measure import observed
from .recurrent import is_cell

MOST_SAMPLES = 64
MOST_BYTES = 1 << 28  # of the samples of a branch


@dataclasses.dataclass
class Branch:
    node: onnx.NodeProto  # the If
    which: str  # then_branch or else_branch
    body: onnx.GraphProto
    reads: list  # tensors of the graph around it, constants aside

    @property
    def text(self):
        return f"node '{self.node.name}' (If), {self.which}"


def free_names(body):
    """What a body, or one inside of it, reads of the graphs around it."""
    names = {value.name for value in body.output}
    for node in body.node:
        names |= set(node.input)
        for inner in bodies(node):
            names |= free_names(inner)
    return {name for name in names if name} - set(defined(body))


def has_products(graph, products):
    return any(node.op_type in products or is_cell(node) for part in graphs_of(graph) for node in part.node)


def branches_of(model, products):
    """The branches of the main graph's Ifs that hold products."""
    constants, found = {tensor.name for tensor in model.graph.initializer}, []
    for node in model.graph.node:
        for entry in node.attribute if is_onnx(node, "If") else ():
            if entry.HasField("g") and has_products(entry.g, products):
                found.append(Branch(node, entry.name, entry.g, sorted(free_names(entry.g) - constants)))
    return found


def names_inside(model):
    """Names of nodes in branches."""
    inner = [body for node in model.graph.node if is_onnx(node, "If") for body in bodies(node)]
    return {node.name for body in inner for part in graphs_of(body) for node in part.node}


def samples_of(model, branch, data):
    """Feeds of the branch from the samples that take it; and whether it was any of them. Where none does, what the
    others would give it."""
    condition, taking, others, held = branch.node.input[0], [], [], 0
    run, outputs = observed(model, [condition, *branch.reads])
    wanted = [name for name in outputs if name in {condition, *branch.reads}]
    for feed in data.limited(MOST_SAMPLES if data.limit is None else min(MOST_SAMPLES, data.limit)):
        values = {**feed, **dict(zip(wanted, run.run(wanted, feed)))}
        taken = bool(np.asarray(values[condition]).reshape(-1)[0]) == (branch.which == "then_branch")
        sample = {name: np.asarray(values[name]) for name in branch.reads}
        (taking if taken else others).append(sample)
        held += sum(value.nbytes for value in sample.values())
        if held > MOST_BYTES:
            break
    return (taking, True) if taking else (others, False)


def model_of(model, branch, samples):
    """The branch as a model. Its inputs have the types of the samples, and the extents that all of them share with what
    is known of the tensors."""
    graph = Graph(model)
    inputs = []
    for name in branch.reads:
        known = graph.shapes.get(name)
        first = samples[0][name]
        if known is None or len(known) != first.ndim:
            known = [None] * first.ndim
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(first.dtype), known))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.initializer[:], made.graph.value_info[:], made.metadata_props[:]
    del made.graph.input[:], made.graph.output[:], made.graph.sparse_initializer[:]
    made.graph.node.extend(branch.body.node)
    made.graph.initializer.extend(branch.body.initializer)
    free = free_names(branch.body)
    made.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in free)
    made.graph.input.extend(inputs)
    made.graph.output.extend(branch.body.output)
    made.graph.value_info.extend(branch.body.value_info)
    for value in made.graph.output:
        if value.type.tensor_type.elem_type == TensorProto.UNDEFINED:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return made


def put_back(model, branch, quantised):
    """Writes a quantised branch into the model in which `branch` stands. Names stay apart, also those of nodes."""
    graph, body = quantised.graph, branch.body
    del body.node[:], body.initializer[:], body.value_info[:]
    body.node.extend(graph.node)
    body.initializer.extend(graph.initializer)
    domains = {entry.domain for entry in model.opset_import}
    model.opset_import.extend(copy.deepcopy(e) for e in quantised.opset_import if e.domain not in domains)
    name_apart(model)
    seen = set()
    taken = names_of(model)
    for part in graphs_of(model.graph):
        for node in part.node:
            if node.name in seen:
                node.name = unique(node.name, taken)
            seen.add(node.name)

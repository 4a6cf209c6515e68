# SPDX-License-Identifier: Apache-2.0
"""Bodies of If, Loop and Scan as models of their own. In: a prepared model and its samples. Out: for each body with
products that samples reach, a model whose inputs are those of the body and what it reads of the graph around it, and
the samples of those inputs; and the way back of its quantised form into the body. Everything that quantisation does to
a graph it so does to a body, and to the bodies inside of it."""

import copy
import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .data import ports_of
from .forms import sizes
from .forms.recurrent import is_cell, is_direction
from .graph import Graph, bodies, defined, extent_of, graphs_of, is_onnx, name_apart, names_of, unique
from .measure import observed, session

MOST_SAMPLES = 64
MOST_ITERATIONS = 8  # of a loop that a sample gives
MOST_STEPS = 64  # of a loop that is run step by step
SECONDS = 5.0  # of looking for sizes
MOST_BYTES = 1 << 28  # of the samples of a branch


@dataclasses.dataclass
class Body:
    node: onnx.NodeProto  # the If, Loop or Scan
    which: str  # then_branch, else_branch or body
    graph: onnx.GraphProto
    reads: list  # tensors of the graph around it, constants aside

    @property
    def text(self):
        return f"node '{self.node.name}' ({self.node.op_type}), {self.which}"

    @property
    def reached(self):
        """What samples do that reach it."""
        return "takes it" if self.node.op_type == "If" else "runs it"


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


def bodies_of(model, products):
    """The bodies of the main graph's nodes that hold products, those of spelled out cells aside."""
    constants, found = {tensor.name for tensor in model.graph.initializer}, []
    for node in model.graph.node:
        if not is_onnx(node, "If", "Loop", "Scan") or is_direction(node):
            continue
        for entry in node.attribute:
            if entry.HasField("g") and has_products(entry.g, products):
                found.append(Body(node, entry.name, entry.g, sorted(free_names(entry.g) - constants)))
    return found


def names_inside(model):
    """Names of nodes in bodies."""
    inner = [body for node in model.graph.node if not is_direction(node) for body in bodies(node)]
    return {node.name for body in inner for part in graphs_of(body) for node in part.node}


def samples_of(model, body, data):
    """Feeds of the body from the samples that run it; and whether any does. Where none takes a branch, what the others
    would give it."""
    data = data.limited(MOST_SAMPLES if data.limit is None else min(MOST_SAMPLES, data.limit))
    found, others, held = [], [], 0
    for taken, sample in (_of_branch if body.node.op_type == "If" else _of_iterations)(model, body, data):
        (found if taken else others).append(sample)
        held += sum(value.nbytes for value in sample.values())
        if held > MOST_BYTES:
            break
    return (found, True) if found else (others, False)


def _runs(model, names, data):
    """For each feed the arrays of the named tensors."""
    run, outputs = observed(model, names)
    wanted = [name for name in outputs if name in set(names)]
    for feed in data:
        yield {**feed, **dict(zip(wanted, run.run(wanted, feed)))}


def _of_branch(model, body, data):
    condition = body.node.input[0]
    for values in _runs(model, [condition, *body.reads], data):
        taken = bool(np.asarray(values[condition]).reshape(-1)[0]) == (body.which == "then_branch")
        yield taken, {name: np.asarray(values[name]) for name in body.reads}


def _of_iterations(model, body, data):
    """Of a Loop or Scan what its iterations take, whether its states keep their shapes or not."""
    try:
        yield from _of_loop(model, body, data)
    except Exception as e:  # ONNX Runtime stacks no states that change their shape
        if body.node.op_type != "Loop" or "Inconsistent shape" not in str(e):
            raise
        samples = list(_of_steps(model, body, data))
        ranks = [tuple(np.ndim(sample[name]) for name in sorted(sample)) for _, sample in samples]
        usual = max(ranks, key=ranks.count, default=None)  # a first state may be a stand-in of another rank
        yield from (sample for sample, rank in zip(samples, ranks) if rank == usual)


def _of_steps(model, body, data):
    """What each iteration of a Loop takes, by running its body step after step."""
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    inputs, results = [value.name for value in body.graph.input], [value.name for value in body.graph.output]
    operands, run = list(body.node.input), None
    for values in _runs(model, [*filter(None, operands), *body.reads], data):
        values = {**held, **values}
        states = [np.asarray(values[name]) for name in operands[2:]]
        outside = {name: np.asarray(values[name]) for name in body.reads}
        most = int(np.asarray(values[operands[0]]).reshape(-1)[0]) if operands[0] else MOST_STEPS
        goes_on = not operands[1] or bool(np.asarray(values[operands[1]]).reshape(-1)[0])
        taken = []
        while goes_on and len(taken) < min(most, MOST_STEPS):
            step = [np.asarray(len(taken), np.int64), np.asarray(goes_on), *states]
            taken.append({**outside, **dict(zip(inputs, step))})
            if run is None:
                run = session(_of_any_shape(model_of(model, body, taken)), optimise=False)
            made = run.run(results, taken[-1])
            goes_on, states = bool(np.asarray(made[0]).reshape(-1)[0]), made[1 : len(inputs) - 1]
        for k in np.unique(np.linspace(0, len(taken) - 1, min(len(taken), MOST_ITERATIONS)).astype(int)):
            yield True, taken[k]


def _of_any_shape(model):
    """The model, changed: its inputs take any shape."""
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    return model


def _of_loop(model, body, data):
    """What each iteration takes: the body gives its inputs as further results, which the loop stacks."""
    model, taken = copy.deepcopy(model), names_of(model)
    node = next(node for node in model.graph.node if node.name == body.node.name)
    graph = next(entry.g for entry in node.attribute if entry.name == body.which)
    results = len(graph.output) - (node.op_type == "Loop")  # the first one says whether it goes on
    while len(node.output) < results:
        node.output.append(unique(f"{node.name}/unread", taken))
    stacked = {}
    for value in graph.input:
        seen = unique(f"{value.name}/seen", taken)
        stacked[value.name] = unique(f"{value.name}/stacked", taken)
        graph.node.append(helper.make_node("Identity", [value.name], [seen], seen))
        graph.output.append(onnx.ValueInfoProto(name=seen))
        node.output.append(stacked[value.name])
        for entry in node.attribute:
            if entry.name in ("scan_output_axes", "scan_output_directions"):
                entry.ints.append(0)
    for values in _runs(model, [*stacked.values(), *body.reads], data):
        trips = min((len(values[name]) for name in stacked.values()), default=0)
        outside = {name: np.asarray(values[name]) for name in body.reads}
        for k in np.unique(np.linspace(0, trips - 1, min(trips, MOST_ITERATIONS)).astype(int)):
            yield True, {**outside, **{name: np.asarray(values[all_][k]) for name, all_ in stacked.items()}}


def model_of(model, body, samples):
    """The body as a model. Its inputs have the types of the samples, and the extents that are known of the tensors."""
    graph = Graph(model)
    own = {value.name: value.type.tensor_type for value in body.graph.input}
    inputs = []
    for name in [*own, *body.reads]:
        if name in own:
            known = [extent_of(d) for d in own[name].shape.dim] if own[name].HasField("shape") else None
        else:
            known = graph.shapes.get(name)
        first = samples[0][name]
        if known is None or len(known) != first.ndim:
            known = [None] * first.ndim
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(first.dtype), known))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.initializer[:], made.graph.value_info[:], made.metadata_props[:]
    del made.graph.input[:], made.graph.output[:], made.graph.sparse_initializer[:]
    made.graph.node.extend(body.graph.node)
    made.graph.initializer.extend(body.graph.initializer)
    free = free_names(body.graph)
    made.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in free)
    made.graph.input.extend(inputs)
    made.graph.output.extend(body.graph.output)
    made.graph.value_info.extend(body.graph.value_info)
    for value in made.graph.output:
        if value.type.tensor_type.elem_type == TensorProto.UNDEFINED:
            value.ClearField("type")
    return made


def cut_to_run(model, samples, seed=0):
    """The samples of a branch that none takes and that does not run on them, as of another sampling rate: the same
    values in order, as many as sizes with which it runs take, from the front and again. Errors: tessera.Error where no
    such sizes are found."""
    shapes = sizes.find(model, ports_of(model), seed=seed, seconds=SECONDS)
    fits = lambda name, value: list(value.shape) == list(shapes.get(name, value.shape)) or not value.size
    return [
        {name: value if fits(name, value) else np.resize(value, shapes[name]) for name, value in sample.items()}
        for sample in samples
    ]


def put_back(model, body, quantised):
    """Writes a quantised body into the model in which `body` stands. Names stay apart, also those of nodes."""
    graph, target = quantised.graph, body.graph
    del target.node[:], target.initializer[:], target.value_info[:]
    target.node.extend(graph.node)
    target.initializer.extend(graph.initializer)
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

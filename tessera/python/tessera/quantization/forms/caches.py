# SPDX-License-Identifier: Apache-2.0
"""Caches of a fixed length: one buffer for past and present. In: a float model with GroupQueryAttention whose past and
present are as long as the longest sequence, and samples for it. Out: the same model with pasts that grow, and the
samples cut to what their sequences hold. Device memory then keeps keys and values in place, for any length up to the
one that the model is compiled for (docs/decoding.md).

What a buffer holds behind its sequence is never looked at, so both models compute the same; the first sample is run
through both, and where they differ the buffers stay."""

import copy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .. import measure
from ..data import Data, Port
from ..errors import argument
from ..graph import Graph
from .contrib import GroupQueryAttention, Writer, is_contrib, spell_out

PAST, TOTAL = "past_sequence_length", "total_sequence_length"  # names of the dimensions that grow
TOLERANCE = 1e-3  # of the largest value, between both models


def _buffered(node, graph, attention):
    """Whether a node's caches have a fixed length and could grow: they come from the caller and go to him alone."""
    pasts, presents = list(node.input[3:5]), list(node.output[1:3])
    if len(pasts) != 2 or len(presents) != 2 or not all(pasts + presents):
        return False
    ours = all(name in graph.inputs and graph.only_reader(name) is node for name in pasts)
    theirs = all(name in graph.outputs and name not in graph.readers for name in presents)
    return ours and theirs and attention.fixed_length(node) is not None and attention.other_obstacle(node) is None


def _symbol(model, name, axis):
    """The name of a tensor's dynamic dimension; empty where it has none."""
    for value in [*model.graph.value_info, *model.graph.input]:
        dims = value.type.tensor_type.shape.dim
        if value.name == name and len(dims) > axis:
            return dims[axis].dim_param
    return ""


def _tokens(model, node):
    """How many tokens a run adds: a number, an input and its axis that says so, or None."""
    graph = Graph(model)
    count = (graph.shapes.get(node.input[0]) or [None] * 3)[1]
    if count is not None:
        return count
    symbol = _symbol(model, node.input[0], 1)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if symbol and dim.dim_param == symbol:
                return value.name, axis
    return None


class Caches:
    """The buffers of a model. length: of all of them; mask: the input whose sum is a sequence's length, or None."""

    def __init__(self, model, nodes, mask):
        self.nodes, self.mask = [node.name or node.output[0] for node in nodes], mask
        self.pasts = [name for node in nodes for name in node.input[3:5]]
        self.presents = [name for node in nodes for name in node.output[1:3]]
        self.lengths, self.tokens = nodes[0].input[5], _tokens(model, nodes[0])
        graph = Graph(model)
        self.length = graph.shapes[self.pasts[0]][2]
        self.cuts_mask = mask is not None and graph.shapes[mask][1] == self.length
        self.last = _last_positions(model, self.lengths)

    def opened(self, model):
        """The model with pasts that grow."""
        model = copy.deepcopy(model)
        grows = dict.fromkeys(self.pasts, (2, PAST)) | dict.fromkeys(self.presents, (2, TOTAL))
        if self.mask is not None:
            grows[self.mask] = (1, TOTAL)
        for value in [*model.graph.input, *model.graph.output]:
            if value.name in grows:
                axis, name = grows[value.name]
                value.type.tensor_type.shape.dim[axis].dim_param = name
        self._count_total(model)
        stale = {*self.presents, *self._behind_mask(model)}
        kept = [value for value in model.graph.value_info if value.name not in stale]
        del model.graph.value_info[:]
        model.graph.value_info.extend(kept)
        return model

    def _count_total(self, model):
        """A total length that is a constant, the buffers' own, becomes the number of past and new tokens."""
        constants = {tensor.name for tensor in model.graph.initializer}
        for node in [node for node in model.graph.node if (node.name or node.output[0]) in self.nodes]:
            if node.input[6] not in constants:
                continue
            total, counted = f"{node.output[0]}/total", [] if isinstance(self.tokens, int) else [self.tokens]
            made, terms = [], []
            for k, (tensor, axis) in enumerate([(node.input[3], 2), *counted]):
                shape, place, length = (f"{total}/{what}{k}" for what in ("shape", "axis", "length"))
                model.graph.initializer.append(numpy_helper.from_array(np.array(axis, np.int64), place))
                made += [
                    helper.make_node("Shape", [tensor], [shape]),
                    helper.make_node("Gather", [shape, place], [length]),
                ]
                terms.append(length)
            if isinstance(self.tokens, int):
                model.graph.initializer.append(numpy_helper.from_array(np.array(self.tokens, np.int64), f"{total}/new"))
                terms.append(f"{total}/new")
            made += [
                helper.make_node("Add", terms, [f"{total}/sum"]),
                helper.make_node("Cast", [f"{total}/sum"], [total], to=TensorProto.INT32),
            ]
            at = list(model.graph.node).index(node)
            node.input[6] = total
            for k, new in enumerate(made):
                model.graph.node.insert(at + k, new)

    def _behind_mask(self, model):
        """Tensors in front of attentions whose shapes may follow from the mask's."""
        found = {self.mask}
        for node in model.graph.node:
            if found & set(node.input) and not is_contrib(node, "GroupQueryAttention"):
                found |= set(node.output)
        return found

    def ports(self, ports):
        """The inputs as samples have them, of those of the opened model."""
        axes = dict.fromkeys(self.pasts, 2) | ({self.mask: 1} if self.cuts_mask else {})
        fixed = lambda port: [self.length if k == axes.get(port.name) else d for k, d in enumerate(port.dims)]
        return [Port(port.name, fixed(port), port.dtype, port.choices) for port in ports]

    def cut_data(self, data):
        """The samples with what their sequences hold alone."""
        feeds = lambda: (self.cut(self.filled(feed) if data.synthetic else feed) for feed in data)
        return Data(feeds, data.text, synthetic=data.synthetic, labels=data.labels, limit=data.limit)

    def filled(self, feed):
        """A sample of made-up values with sequences that fill the buffers."""
        given = {self.mask: 1, self.lengths: self.length - 1}
        return {name: np.full_like(value, given[name]) if name in given else value for name, value in feed.items()}

    def cut(self, feed):
        """A sample with pasts as long as its sequence was."""
        feed = dict(feed)
        tokens = self.tokens if isinstance(self.tokens, int) else feed[self.tokens[0]].shape[self.tokens[1]]
        held = {int(last) + 1 for last in np.asarray(self._run_last(feed)).reshape(-1)}
        if len(held) != 1:
            raise argument(
                f"a sample holds sequences of {sorted(held)} tokens, and pasts that grow have one length; give a batch "
                "of sequences of one length, or one sequence a sample"
            )
        total = held.pop()
        if not tokens <= total <= self.length:
            raise argument(
                f"a sample holds a sequence of {total} tokens by '{self.mask or self.lengths}', with {tokens} of them "
                f"new, and the buffers have {self.length}; the sequence must reach from the first new token to that"
            )
        if self.cuts_mask:
            mask = feed[self.mask]
            if not (mask[:, :total] != 0).all():
                raise argument(f"input '{self.mask}' of a sample is not ones in front of zeros; fill buffers from 0 on")
            feed[self.mask] = np.ascontiguousarray(mask[:, :total])
        for name in self.pasts:
            feed[name] = np.ascontiguousarray(feed[name][:, :, : total - tokens])
        return feed

    def _run_last(self, feed):
        if self.last is None:
            return feed[self.lengths]
        return self.last.run(None, {port.name: feed[port.name] for port in self.last.get_inputs()})[0]

    def obstacle(self, model, opened, feed):
        """Why the opened model does not stand for the model; None where both give the same for the sample."""
        cut = self.cut(feed)
        try:
            want, got = (_results(m, f) for m, f in ((model, feed), (opened, cut)))
        except Exception as e:
            return f"with a past that grows ONNX Runtime does not run it: {str(e).splitlines()[0]}"
        for name, value in want.items():
            if name in self.presents:
                value = value[:, :, : got[name].shape[2]]
            if value.shape != got[name].shape:
                return f"with a past that grows '{name}' has the shape {list(got[name].shape)}, not {list(value.shape)}"
            if value.size and np.abs(value - got[name]).max() > TOLERANCE * max(np.abs(value).max(), 1e-6):
                return f"with a past that grows '{name}' is another"
        return None

    def notice(self, why=None):
        """A sentence for people. why: what is against pasts that grow."""
        count = f"{len(self.nodes)} GroupQueryAttention" if len(self.nodes) > 1 else f"node '{self.nodes[0]}'"
        if why is not None:
            return f"the caches of {count} keep their fixed length, and stay in float: {why}"
        return (
            f"the caches of {count} have a fixed length of {self.length}; the quantised model takes pasts that grow "
            f"instead, which stay in the device's memory: compile it with --max-length {self.length}"
        )


def _results(model, feed):
    session = measure.session(model, optimise=False)
    return dict(zip((port.name for port in session.get_outputs()), session.run(None, feed)))


def _last_positions(model, name):
    """A session that computes each sequence's last position from inputs of the model; None where it is an input."""
    graph = Graph(model)
    if name in graph.inputs:
        return None
    wanted, nodes = {name}, []
    for node in reversed(graph.nodes):
        if wanted & set(node.output):
            nodes.insert(0, node)
            wanted |= set(node.input)
    part = helper.make_graph(
        nodes,
        "lengths",
        [value for value in model.graph.input if value.name in wanted and value.name not in graph.constants],
        [onnx.ValueInfoProto(name=name)],
        [tensor for tensor in model.graph.initializer if tensor.name in wanted],
    )
    made = helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    return measure.session(made, optimise=False)


def find(model):
    """The Caches of a model, if all attentions with buffers can have pasts that grow; else None."""
    if not _fixed(model):
        return None
    model = copy.deepcopy(model)
    spell_out(model)  # the standard's shape inference sees through nothing else
    model = onnx.shape_inference.infer_shapes(model)
    graph, fixed = Graph(model), _fixed(model)
    attention = GroupQueryAttention(model, graph, Writer(model), None)
    if not all(_buffered(node, graph, attention) for node in fixed):
        return None
    alike = {(attention.fixed_length(n), n.input[5], attention.mask_input(n)) for n in fixed}
    if len(alike) != 1 or fixed[0].input[5] in graph.constants or _tokens(model, fixed[0]) is None:
        return None
    return Caches(model, fixed, attention.mask_input(fixed[0]))


def _fixed(model):
    """Attentions with caches of a fixed length."""
    attention = GroupQueryAttention(model, Graph(model), Writer(model), None)
    nodes = [node for node in model.graph.node if is_contrib(node, "GroupQueryAttention")]
    return [node for node in nodes if attention.fixed_length(node) is not None]

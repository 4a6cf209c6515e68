# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN as products between elementwise operators. In: a float model. Out: the same model, in which a cell
is one product of the inputs of all steps and directions, and for each direction a Scan over the steps, whose body is
the recurrent product and the gates. A cell of one step needs no Scan. The equations are those of the standard, with
peepholes, clip, coupled gates, sequence lengths, and every activation that it names.

The sums of these products stay float (`FLOAT_SUMS`): gates and states are computed in float on the CPU, as an error of
a state lives on from step to step. Only the operands of the products are quantised. So the number of steps may be
known at run time only, and a thousand of them cost no more to compile than two.

A cell whose form is not served stays as it is, in float on the CPU, and a sentence names it and says why."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..graph import Graph, attribute, graphs_of, is_onnx, names_of, unique

FLOAT_SUMS = "the sums stay float"  # doc string of products whose results nothing quantises
BODY = "recurrent_cell"  # name of the body of a Scan that is a direction of a cell
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
PARAMETERS = {  # of activations: alpha and beta where they are not given; None: there is none
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
SHARES = ("sigmoid", "hardsigmoid")  # activations with results from 0 to 1


def is_cell(node):
    return is_onnx(node, *GATES)


# --- layouts
# -----------------------------------------------------------------------------------------------------------


def steps_first(model):
    """Cells with the batch in front (layout 1), which ONNX Runtime has no kernel for, between transpositions."""
    taken = names_of(model)
    for graph in graphs_of(model.graph):
        nodes = []
        for node in graph.node:
            if not is_cell(node) or not attribute(node, "layout", 0):
                nodes.append(node)
                continue
            kept = [entry for entry in node.attribute if entry.name != "layout"]
            del node.attribute[:]
            node.attribute.extend(kept)
            behind = []
            for index in (0, 5, 6):
                if len(node.input) > index and node.input[index]:
                    turned = unique(f"{node.input[index]}/steps_first", taken)
                    nodes.append(helper.make_node("Transpose", [node.input[index]], [turned], turned, perm=[1, 0, 2]))
                    node.input[index] = turned
            for index, name in enumerate(node.output):
                if name:
                    made = unique(f"{name}/steps_first", taken)
                    order = [2, 0, 1, 3] if index == 0 else [1, 0, 2]
                    behind.append(helper.make_node("Transpose", [made], [name], f"{made}/turned", perm=order))
                    node.output[index] = made
            nodes += [node, *behind]
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(nodes)


# --- the cell
# ----------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """Why a cell stays as it is."""


class _Block:
    """Nodes and constants of a graph, or of a body, that is being written."""

    def __init__(self, prefix, taken):
        self.prefix, self.taken, self.nodes, self.constants = prefix, taken, [], []

    def name(self, what):
        return unique(f"{self.prefix}/{what}", self.taken)

    def constant(self, what, array):
        name = self.name(what)
        self.constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def node(self, op, inputs, what, outputs=None, **attributes):
        """The result's name; the list of names where `outputs` is a number or a list."""
        if isinstance(outputs, int):
            outputs = [self.name(f"{what}{k}") for k in range(outputs)]
        made = outputs or [self.name(what)]
        self.nodes.append(helper.make_node(op, inputs, made, self.name(f"{what}/{op}"), **attributes))
        return made if outputs else made[0]

    def product(self, x, weights, what):
        """x times constant weights [columns, results], whose sums stay float."""
        made = self.node("MatMul", [x, self.constant(f"{what}_weights", weights)], what)
        self.nodes[-1].doc_string = FLOAT_SUMS
        return made

    def beside(self, product, other, what):
        """The sum of a product and something else. An Add would be taken for the product's bias, and make a Gemm of it
        that ONNX Runtime does not compute in integers."""
        return self.node("Sum", [product, other], what)

    def split(self, x, parts, size, what, axis=-1):
        sizes = self.constant(f"{what}_sizes", np.full(parts, size, np.int64))
        return self.node("Split", [x, sizes], what, outputs=parts, axis=axis)

    def squeeze(self, x, axis, what, outputs=None):
        made = self.node("Squeeze", [x, self.constant(f"{what}_axes", np.int64([axis]))], what, outputs)
        return made

    def unsqueeze(self, x, axis, what, outputs=None):
        return self.node("Unsqueeze", [x, self.constant(f"{what}_axes", np.int64([axis]))], what, outputs)


class _Cell:
    """A node of a recurrent cell: its constants by direction and its activations. Errors: _Refused."""

    def __init__(self, node, graph):
        self.node, self.kind = node, node.op_type
        direction = attribute(node, "direction", b"forward").decode()
        self.backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
        if self.backward is None:
            raise _Refused(f"direction '{direction}' is not known")
        self.directions = len(self.backward)
        operands = [node.input[k] if k < len(node.input) else "" for k in range(8)]
        self.x, _, _, _, self.lengths, self.initial_h, self.initial_c, _ = operands
        if not graph.is_float(self.x):
            raise _Refused("its operands are not float32")
        self.w, self.r = (self._constant(graph, operands[k], what) for k, what in ((1, "W"), (2, "R")))
        self.hidden = self.r.shape[2]
        rows = GATES[self.kind] * self.hidden
        bias = self._constant(graph, operands[3], "B") if operands[3] else np.zeros((self.directions, 2 * rows))
        self.input_bias, self.recurrent_bias = bias.astype(np.float32).reshape(self.directions, 2, rows).swapaxes(0, 1)
        self.peepholes = self._constant(graph, operands[7], "P") if self.kind == "LSTM" and operands[7] else None
        self.clip = attribute(node, "clip")
        self.couples = bool(attribute(node, "input_forget", 0))
        self.reset_behind = bool(attribute(node, "linear_before_reset", 0))
        self._activations()
        shape = graph.shapes.get(self.x) or [None, None, None]
        self.steps, self.batch = shape[0], shape[1]

    @staticmethod
    def _constant(graph, name, what):
        array = graph.array(name)
        if array is None or array.dtype != np.float32:
            raise _Refused(f"its operand {what} is no float32 constant")
        return array

    def _activations(self):
        names = [n.decode() for n in attribute(self.node, "activations", [])] or DEFAULTS[self.kind] * self.directions
        alphas, betas = (list(attribute(self.node, f"activation_{n}", [])) for n in ("alpha", "beta"))
        count, self.functions = len(DEFAULTS[self.kind]), []
        if self.kind == "RNN":  # optimisers write out its default, which is a list for both directions
            names = names[: count * self.directions] or names
        if len(names) != count * self.directions:
            raise _Refused(f"it has {len(names)} activations where {count * self.directions} are needed")
        for name in names:
            if name.lower() not in PARAMETERS:
                raise _Refused(f"activation '{name}' is not known")
            given = [
                None if fallback is None else values.pop(0) if values else fallback
                for fallback, values in zip(PARAMETERS[name.lower()], (alphas, betas))
            ]
            self.functions.append((name.lower(), *given))
        reset = [self.functions[count * d][0] for d in range(self.directions)]
        if self.kind == "GRU" and not self.reset_behind and any(name not in SHARES for name in reset):
            raise _Refused("the activation of its reset gate has no bounds")

    def function(self, block, d, k, x, what):
        """Activation k of direction d; 0 and 1 are those of gates, which `clip` limits."""
        name, alpha, beta = self.functions[d * len(DEFAULTS[self.kind]) + k]
        if self.clip is not None and k < 2:
            ends = [
                block.constant(f"{what}_{end}", np.float32(v)) for end, v in (("low", -self.clip), ("high", self.clip))
            ]
            x = block.node("Clip", [x, *ends], f"{what}_clipped")
        scalar = lambda end, value: block.constant(f"{what}_{end}", np.float32(value))
        if name == "affine":
            x = block.node("Mul", [x, scalar("alpha", alpha)], f"{what}_scaled")
            return block.node("Add", [x, scalar("beta", beta)], what)
        if name == "scaledtanh":
            x = block.node("Mul", [x, scalar("beta", beta)], f"{what}_scaled")
            return block.node("Mul", [block.node("Tanh", [x], f"{what}_tanh"), scalar("alpha", alpha)], what)
        operators = {
            "relu": "Relu",
            "tanh": "Tanh",
            "sigmoid": "Sigmoid",
            "softsign": "Softsign",
            "softplus": "Softplus",
            "leakyrelu": "LeakyRelu",
            "thresholdedrelu": "ThresholdedRelu",
            "hardsigmoid": "HardSigmoid",
            "elu": "Elu",
        }
        more = {key: float(v) for key, v in (("alpha", alpha), ("beta", beta)) if v is not None}
        return block.node(operators[name], [x], what, **more)

    # --- one step

    def step(self, block, d, x, h, c, source):
        """Nodes of one step of direction d: x [batch, gates] is the input's part of the gates, with biases; h and c the
        states; `source` what the recurrent product takes for h. The new states."""
        return {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.kind](block, d, x, h, c, source)

    def _rnn(self, block, d, x, h, c, source):
        total = block.beside(block.product(source, self.r[d].T, "recurrent"), x, "sum")
        return self.function(block, d, 0, total, "hidden"), c

    def _gru(self, block, d, x, h, c, source):
        n, r = self.hidden, self.r[d]
        if self.reset_behind:
            zr_x, new_x = self._two(block, x, "x")
            zr_h, new_h = self._two(block, block.product(source, r.T, "recurrent"), "h")
            new_h = block.node("Add", [new_h, block.constant("bias", self.recurrent_bias[d, 2 * n :])], "biased")
        else:
            zr_x, new_x = self._two(block, x, "x")
            zr_h = block.product(source, r[: 2 * n].T, "recurrent")
        gates = self.function(block, d, 0, block.beside(zr_h, zr_x, "sum"), "gates")
        z, reset = block.split(gates, 2, n, "gate")
        if self.reset_behind:
            new_h = block.node("Mul", [new_h, reset], "reset")
        else:
            new_h = block.product(block.node("Mul", [h, reset], "reset"), r[2 * n :].T, "recurrent_new")
        new = self.function(block, d, 1, block.beside(new_h, new_x, "new_sum"), "new")
        other = block.node("Sub", [block.constant("one", np.float32(1)), z], "other")
        made = block.node("Mul", [other, new], "fresh"), block.node("Mul", [z, h], "kept")
        return block.node("Add", [*made], "hidden"), c

    def _two(self, block, x, what):
        """The part of the gates z and r, and that of the candidate."""
        sizes = block.constant(f"{what}_parts", np.int64([2 * self.hidden, self.hidden]))
        return block.node("Split", [x, sizes], f"{what}_part", outputs=2, axis=-1)

    def _lstm(self, block, d, x, h, c, source):
        total = block.beside(block.product(source, self.r[d].T, "recurrent"), x, "sum")
        i, o, f, new = block.split(total, 4, self.hidden, "gate")

        def peeped(gate, k, state, what):
            if self.peepholes is None:
                return gate
            weights = block.constant(f"{what}_peephole", self.peepholes[d, k * self.hidden : (k + 1) * self.hidden])
            return block.node("Add", [gate, block.node("Mul", [state, weights], f"{what}_seen")], f"{what}_sum")

        i = self.function(block, d, 0, peeped(i, 0, c, "input"), "input")
        if self.couples:
            f = block.node("Sub", [block.constant("one", np.float32(1)), i], "forget")
        else:
            f = self.function(block, d, 0, peeped(f, 2, c, "forget"), "forget")
        new = self.function(block, d, 1, new, "new")
        c = block.node("Add", [block.node("Mul", [f, c], "kept"), block.node("Mul", [i, new], "fresh")], "cell")
        o = self.function(block, d, 0, peeped(o, 1, c, "output"), "output")
        return block.node("Mul", [o, self.function(block, d, 2, c, "state")], "hidden"), c


class _Speller:
    """Writes one cell into the main graph."""

    def __init__(self, cell, graph, taken):
        self.cell, self.graph, self.taken = cell, graph, taken
        self.block = _Block(cell.node.name or cell.node.output[0] or next(o for o in cell.node.output if o), taken)

    def run(self):
        """The nodes and constants that stand for the cell."""
        cell, block = self.cell, self.block
        projected = self._projected()
        mask = self._mask() if cell.lengths else None
        results = [self._direction(d, projected[d], mask) for d in range(cell.directions)]
        for index, axis in ((0, 1), (1, 0), (2, 0)):
            if index < len(cell.node.output) and cell.node.output[index]:
                self._join([found[index] for found in results], axis, cell.node.output[index], f"result{index}")
        return block.nodes, block.constants

    def _join(self, parts, axis, result, what):
        block = self.block
        if len(parts) == 1:
            block.unsqueeze(parts[0], axis, what, [result])
            return
        parts = [block.unsqueeze(part, axis, what) for part in parts]
        block.node("Concat", parts, what, [result], axis=axis)

    def _projected(self):
        """For each direction the input's part of the gates of all steps, with their biases: [steps, batch, gates]."""
        cell, block = self.cell, self.block
        weights = cell.w.reshape(-1, cell.w.shape[2]).T
        bias = cell.input_bias + cell.recurrent_bias
        if cell.kind == "GRU" and cell.reset_behind:  # that of the candidate belongs to the product that is reset
            bias[:, 2 * cell.hidden :] = cell.input_bias[:, 2 * cell.hidden :]
        made = block.product(cell.x, weights, "input")
        if np.any(bias):
            made = block.beside(made, block.constant("input_bias", bias.reshape(-1)), "input_biased")
        return [made] if cell.directions == 1 else block.split(made, 2, cell.w.shape[1], "direction")

    def _mask(self):
        """Whether a step is one of its sequence: [steps, batch, 1]."""
        block, cell = self.block, self.cell
        self.counts = block.node("Cast", [cell.lengths], "lengths", to=TensorProto.INT64)
        ends = [block.constant("zero", np.int64(0)), self._extent(0, "steps", True), block.constant("one", np.int64(1))]
        steps = block.unsqueeze(block.node("Range", ends, "numbers"), 1, "number")
        row = block.unsqueeze(self.counts, 0, "row")
        return block.unsqueeze(block.node("Less", [steps, row], "within"), 2, "mask")

    def _extent(self, axis, what, scalar=False):
        block = self.block
        shape = block.node("Shape", [self.cell.x], f"{what}_shape")
        return block.node("Gather", [shape, block.constant(what, np.int64(axis) if scalar else np.int64([axis]))], what)

    def _initial(self, name, d, what):
        """The initial state of a direction: [batch, hidden]."""
        block, cell = self.block, self.cell
        if not name:
            if cell.batch is not None:
                return block.constant(what, np.zeros((cell.batch, cell.hidden), np.float32))
            hidden = block.constant(f"{what}_hidden", np.int64([cell.hidden]))
            extents = block.node("Concat", [self._extent(1, f"{what}_batch"), hidden], f"{what}_extents", axis=0)
            return block.node("ConstantOfShape", [extents], what)
        array = self.graph.array(name)
        if array is not None:
            return block.constant(what, array[d])
        if cell.directions == 1:
            return block.squeeze(name, 0, what)
        return block.squeeze(block.split(name, 2, 1, f"{what}_both", axis=0)[d], 0, what)

    def _direction(self, d, x, mask):
        """Results of all steps [steps, batch, hidden], and the last states [batch, hidden]."""
        cell, block = self.cell, self.block
        h = self._initial(cell.initial_h, d, f"h{d}")
        c = self._initial(cell.initial_c, d, f"c{d}") if cell.kind == "LSTM" else None
        turned = cell.backward[d] and mask is not None
        if turned:  # each sequence from its own end on
            x = self._reversed(x, "turned")
        if cell.steps == 1 and mask is None:
            # The product has a copy of the state of its own, which is quantised; the gates take the float one.
            source = self._initial(cell.initial_h, d, f"source{d}")
            h, c = cell.step(block, d, block.squeeze(x, 0, "step"), h, c, source)
            return block.unsqueeze(h, 0, "only"), h, c
        y, h, c = self._scan(d, x, h, c, mask, cell.backward[d] and not turned)
        if turned:
            y = self._reversed(y, "back")
        if mask is not None:
            some = block.unsqueeze(
                block.node("Greater", [self.counts, block.constant("none", np.int64(0))], "some"), 1, "any"
            )
            zero = block.constant("nothing", np.float32(0))
            h, c = (s and block.node("Where", [some, s, zero], what) for s, what in ((h, "last_h"), (c, "last_c")))
        return y, h, c

    def _reversed(self, x, what):
        block = self.block
        least = block.node("Max", [self.counts, block.constant("least", np.int64([1]))], f"{what}_lengths")
        return block.node("ReverseSequence", [x, least], what, time_axis=0, batch_axis=1)

    def _scan(self, d, x, h, c, mask, backward):
        cell, block = self.cell, self.block
        body = _Block(f"{block.prefix}/direction{d}", self.taken)
        states = [body.name("h")] + [body.name("c")] * (c is not None)
        own_h, own_c = states[0], states[1] if c is not None else None
        inputs = [body.name("x")] + [body.name("mask")] * (mask is not None)
        made, cell_state = cell.step(body, d, inputs[0], own_h, own_c, own_h)
        result = body.node("Identity", [made], "y")
        if mask is not None:
            result = body.node("Where", [inputs[1], made, body.constant("nothing", np.float32(0))], "y")
            made = body.node("Where", [inputs[1], made, own_h], "next_h")
            cell_state = cell_state and body.node("Where", [inputs[1], cell_state, own_c], "next_c")
        results = [made] + [cell_state] * (c is not None)
        shape = [cell.batch if cell.batch is not None else None, cell.hidden]
        gates = [shape[0], GATES[cell.kind] * cell.hidden]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            body.nodes,
            BODY,
            [value(name, TensorProto.FLOAT, shape) for name in states]
            + [value(inputs[0], TensorProto.FLOAT, gates)]
            + [value(name, TensorProto.BOOL, [shape[0], 1]) for name in inputs[1:]],
            [value(name, TensorProto.FLOAT, shape) for name in [*results, result]],
            body.constants,
        )
        more = {"scan_input_directions": [1] * len(inputs), "scan_output_directions": [1]} if backward else {}
        operands = [h, *([c] if c is not None else []), x, *([mask] if mask is not None else [])]
        outputs = [
            block.name(f"last_h{d}"),
            *([block.name(f"last_c{d}")] if c is not None else []),
            block.name(f"y{d}"),
        ]
        block.node("Scan", operands, f"direction{d}", outputs, body=graph, num_scan_inputs=len(inputs), **more)
        return outputs[-1], outputs[0], outputs[1] if c is not None else None


def cells_to_products(model):
    """Spells out the cells of the main graph. Returns a sentence for each that stays as it is."""
    graph, taken, nodes, left = Graph(model), names_of(model), [], []
    for node in model.graph.node:
        if not is_cell(node):
            nodes.append(node)
            continue
        try:
            made, constants = _Speller(_Cell(node, graph), graph, taken).run()
        except _Refused as why:
            left.append(f"node '{node.name or node.output[0]}' ({node.op_type}) stays in float on the CPU: {why}")
            nodes.append(node)
            continue
        nodes += made
        model.graph.initializer.extend(constants)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return left


# --- of a Scan that is a direction


def is_direction(node):
    return is_onnx(node, "Scan") and attribute(node, "body").name == BODY


def is_part_of_cell(node):
    """Whether it is a product of a cell that was spelled out, or holds some."""
    return node.doc_string == FLOAT_SUMS or is_direction(node)


def products_of(node):
    """The products in the body of a direction: nodes of that body."""
    return [inner for inner in attribute(node, "body").node if inner.doc_string == FLOAT_SUMS]


def hidden_tensors(node):
    """The tensors of the main graph that hold every value of the hidden state."""
    return [node.input[0], node.output[0], node.output[-1]]

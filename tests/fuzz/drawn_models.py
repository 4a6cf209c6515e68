# SPDX-License-Identifier: Apache-2.0
"""Float models drawn at random, as exporters of all kinds may write them. In: a seed. Out: a valid ModelProto of opset
7 to 24 and feeds for it. The idioms of tests/system/graphs.py are joined by recurrent layers, transformer blocks with
masks, tokens, bodies of If, Loop and Scan with products inside, functions and shapes that are computed. A disguise
follows: half or double precision, dynamic dimensions, constants as nodes or as inputs, optional operands that are left
out, names that are missing, doubled, or such as quantisation itself gives, outputs that are inputs or constants."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.system.graphs import Network

FLOAT = TensorProto.FLOAT
OPSETS = (7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23, 24)
SUFFIXES = (
    "folded",
    "quantised",
    "weights",
    "value",
    "scale",
    "bias",
    "part0",
    "mask",
    "shape",
    "rounded",
    "zero_point",
)
FREE = ["shape", "recurrent", "encoder", "branch", "loop", "scan", "function", "einsum", "unit_rows", "sums", "choice"]


class Drawn(Network):
    """The network under construction; tensors are [n, c, spatial...]."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed + 77)
        super().__init__(seed, OPSETS[int(rng.integers(len(OPSETS)))])
        self.functions, self.count = [], 0

    def name(self, kind):
        self.count += 1
        return f"{kind}_{self.count}"

    def array(self, *shape, size=None):
        return (self.rng.standard_normal(shape) / np.sqrt(size or shape[0])).astype(np.float32)

    # --- tokens

    def tokens(self, x):
        """[n, c, spatial...] as [n, tokens, c], with what turns them back."""
        n, c, *space = self.shape[x]
        count = int(np.prod(space))
        back = lambda y: self.reshape(self.transpose(y, [0, 2, 1]), [n, self.shape[y][2], *space])
        return self.transpose(self.reshape(x, [n, c, count]), [0, 2, 1]), back

    def small(self, x):
        while int(np.prod(self.shape[x][2:])) > 64:
            before = self.shape[x]
            x = self.conv(x, min(16, before[1]), 3, stride=2, norm=False)
        return x

    def linear(self, x, width, bias=True):
        shape = self.shape[x]
        y = self.node("MatMul", [x, self.constant(self.array(shape[-1], width))], shape[:-1] + [width])
        return self.node("Add", [y, self.constant(self.array(width, size=9))], self.shape[y]) if bias else y

    def recurrent(self, x):
        x, back = self.tokens(self.small(x))
        n, t, c = self.shape[x]
        op, hidden = self.pick("LSTM", "LSTM", "GRU", "RNN"), self.pick(4, 8, 13)
        gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], self.pick(1, 1, 2)
        y = self.transpose(x, [1, 0, 2])
        operands = [y, self.constant(self.array(ways, gates * hidden, c, size=c))]
        operands.append(self.constant(self.array(ways, gates * hidden, hidden, size=hidden)))
        operands.append(self.constant(self.array(ways, 2 * gates * hidden, size=16)) if self.chance(0.7) else "")
        if self.chance(0.3) and not self.dynamic:
            operands += ["", self.constant(np.zeros((ways, n, hidden), np.float32))]
        while operands[-1] == "":
            operands.pop()
        attributes = {"hidden_size": hidden} | ({"direction": "bidirectional"} if ways == 2 else {})
        if ways == 1 and self.chance(0.3):
            attributes["direction"] = "reverse"
        if op == "GRU" and self.chance(0.5):
            attributes["linear_before_reset"] = 1
        names = [self.name("y") if self.chance(0.8) else "", self.name("h")] + [self.name("c")] * (op == "LSTM")
        self.nodes.append(helper.make_node(op, operands, names, **attributes))
        if names[0] and self.chance(0.7):
            self.shape[names[0]] = [t, ways, n, hidden]
            y = self.transpose(names[0], [2, 0, 1, 3])
            return back(self.reshape(y, [n, t, ways * hidden]))
        self.shape[names[1]] = [ways, n, hidden]
        y = self.reshape(self.transpose(names[1], [1, 0, 2]), [n, ways * hidden])
        return self.unsqueeze(self.linear(y, 8), [2])

    def encoder(self, x):
        x, back = self.tokens(self.small(x))
        n, t, c = self.shape[x]
        x = self.linear(x, 16)
        y = self.layer_norm(x) if self.chance(0.5) else x
        heads = [self.transpose(self.reshape(self.linear(y, 16), [n, t, 2, 8]), [0, 2, 1, 3]) for _ in range(3)]
        shape = [n, 2, t, t]
        scores = self.node("MatMul", [heads[0], self.transpose(heads[1], [0, 1, 3, 2])], shape)
        if self.chance(0.7):
            scores = self.node(self.pick("Mul", "Div"), [scores, self.constant(np.float32(2.8))], shape)
        mask = np.triu(np.ones((t, t), bool), 1)
        kind = self.pick("none", "add", "where")
        if kind == "add":
            lowest = self.pick(-1e4, float(np.finfo(np.float32).min))
            scores = self.node("Add", [scores, self.constant(np.where(mask, lowest, 0).astype(np.float32))], shape)
        if kind == "where" and self.opset >= 9:
            scores = self.node("Where", [self.constant(mask), self.constant(np.float32(-1e9)), scores], shape)
        scores = self.node("Softmax", [scores], shape, axis=3)
        y = self.reshape(
            self.transpose(self.node("MatMul", [scores, heads[2]], [n, 2, t, 8]), [0, 2, 1, 3]), [n, t, 16]
        )
        y = self.node("Add", [self.linear(y, 16), x], [n, t, 16])
        if self.chance(0.6):
            z = self.activation(
                self.linear(self.layer_norm(y), 32), self.pick("Gelu", "Relu") if self.opset > 8 else "Relu"
            )
            y = self.node("Add", [y, self.linear(z, 16)], [n, t, 16])
        return back(y)

    # --- bodies and functions

    def _inner(self, x):
        """Nodes that keep a tensor's shape, with a product among them, reading `x`; (nodes, constants, result). Names
        are the same in each body."""
        c, space = self.shape[x][1], len(self.shape[x]) - 2
        weights = numpy_helper.from_array(self.array(c, c, *[3] * space, size=c * 3**space), "body_weights")
        nodes = [helper.make_node("Conv", [x, "body_weights"], ["a"], pads=[1] * 2 * space)]
        nodes.append(helper.make_node(self.pick("Relu", "Sigmoid", "Tanh"), ["a"], ["b"], self.pick("", "n1")))
        constants = [weights]
        if self.chance(0.4):
            nodes[:0] = [helper.make_node("Constant", [], ["body_weights"], value=weights)]
            constants = []
        return nodes, constants, "b"

    def _body(self, name, nodes, results, constants, ports=()):
        outputs = [helper.make_tensor_value_info(result, FLOAT, None) for result in results]
        return helper.make_graph(nodes, name, list(ports), outputs, constants)

    def branch(self, x, depth=0):
        """An If; its condition comes from the data, a constant, or an input."""
        total = self.name("total")
        kind = self.pick("data", "data", "constant", "input")
        if kind == "data":
            self.nodes.append(helper.make_node("ReduceMax", [x], [total], keepdims=0))
            condition = self.name("condition")
            self.nodes.append(
                helper.make_node("Greater", [total, self.constant(np.float32(self.pick(0, 100)))], [condition])
            )
        elif kind == "constant":
            condition = self.constant(np.array(self.chance(0.5)))
        else:
            condition = self.name("flag")
            self.inputs.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))
            self.feeds[condition] = np.array(self.chance(0.5))
        bodies = []
        for _ in range(2):
            if self.chance(0.3):
                out = self.name("same")
                bodies.append(self._body("b", [helper.make_node("Identity", [x], [out])], [out], []))
            else:
                nodes, constants, result = self._inner(x)
                bodies.append(self._body("b", nodes, [result], constants))
        y = self.name("chosen")
        self.nodes.append(helper.make_node("If", [condition], [y], then_branch=bodies[0], else_branch=bodies[1]))
        self.shape[y] = list(self.shape[x])
        return self.conv(y, 8, 1)

    def loop(self, x):
        self.shape["carried"] = self.shape[x]
        nodes, constants, result = self._inner("carried")
        del self.shape["carried"]
        go = helper.make_node("Identity", ["go"], ["go_on"])
        ports = [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", FLOAT, None),
        ]
        results = [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info(result, FLOAT, None),
        ]
        body = helper.make_graph([*nodes, go], "turns", ports, results, constants)
        y = self.name("looped")
        trips = self.constant(np.array(self.pick(1, 2, 3), np.int64))
        condition = "" if self.opset >= 11 and self.chance(0.5) else self.constant(np.array(True))
        self.nodes.append(helper.make_node("Loop", [trips, condition, x], [y], body=body))
        self.shape[y] = list(self.shape[x])
        return self.conv(y, 8, 1)

    def scan(self, x):
        x, back = self.tokens(self.small(x))
        n, t, c = self.shape[x]
        if self.opset < 9:
            return back(self.linear(x, c))
        y = self.transpose(x, [1, 0, 2])
        outer = self.constant(self.array(c, c)) if self.chance(0.5) else None
        weights = numpy_helper.from_array(self.array(c, c), "body_weights")
        nodes = [
            helper.make_node("MatMul", ["row", outer or "body_weights"], ["product"]),
            helper.make_node("Add", ["product", "state"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Identity", ["next"], ["out"]),
        ]
        ports = [helper.make_tensor_value_info(k, FLOAT, None) for k in ("state", "row")]
        body = self._body("rows", nodes, ["next", "out"], [] if outer else [weights], ports)
        state, rows = self.name("state"), self.name("rows")
        start = self.slice(y, [0], [1], [0])
        start = self.squeeze(start, [0])
        self.nodes.append(helper.make_node("Scan", [start, y], [state, rows], body=body, num_scan_inputs=1))
        self.shape[state], self.shape[rows] = [n, c], [t, n, c]
        return back(self.linear(self.transpose(rows, [1, 0, 2]), c))

    def function(self, x):
        if self.opset < 15:
            return self.residual(x)
        c, space = self.shape[x][1], len(self.shape[x]) - 2
        if not self.functions:
            slope = helper.make_node("LeakyRelu", ["c"], ["r"])
            slope.attribute.append(
                onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
            )
            nodes = [helper.make_node("Conv", ["a", "k"], ["c"], auto_pad="SAME_UPPER"), slope]
            imports = [helper.make_opsetid("", self.opset)]
            self.functions.append(helper.make_function("own", "Block", ["a", "k"], ["r"], nodes, imports, ["slope"]))
        for _ in range(self.pick(1, 2)):
            weights = self.constant(self.array(c, c, *[3] * space, size=c * 3**space))
            x = self.node("Block", [x, weights], self.shape[x], domain="own", slope=0.1)
        return x

    # --- shapes and others

    def shape_of(self, x):
        shape = self.name("extents")
        self.nodes.append(helper.make_node("Shape", [x], [shape]))
        return shape

    def reshaped(self, x):
        """A Reshape to what Shape, Gather and Concat make."""
        n, c, *space = self.shape[x]
        first = self.name("first")
        self.nodes.append(helper.make_node("Gather", [self.shape_of(x), self.ints(0)], [first], axis=0))
        target = self.name("target")
        self.nodes.append(helper.make_node("Concat", [first, self.ints(c * space[0], *space[1:])], [target], axis=0))
        y = self.node("Reshape", [x, target], [n, c * space[0], *space[1:]])
        back = self.node("Reshape", [y, self.shape_of(x)], self.shape[x])
        return self.conv(back, 8, 1)

    def einsum(self, x):
        if self.opset < 12:
            return self.reshaped(x)
        x, back = self.tokens(self.small(x))
        n, t, c = self.shape[x]
        equation, shape = self.pick(("ntc,cd->ntd", [c, 8]), ("ntc,dc->ntd", [8, c]))
        return back(self.node("Einsum", [x, self.constant(self.array(*shape, size=c))], [n, t, 8], equation=equation))

    def unit_rows(self, x):
        x, back = self.tokens(self.small(x))
        if self.opset >= 18 or self.chance(0.5):
            y = self.node("LpNormalization", [x], self.shape[x], axis=-1, p=2)
        else:
            length = self.node("ReduceL2", [x], [*self.shape[x][:2], 1], axes=[-1], keepdims=1)
            y = self.node("Div", [x, length], self.shape[x])
        return back(self.linear(y, 8))

    def sums(self, x):
        parts = [self.conv(x, 8, 1, norm=False) for _ in range(self.pick(1, 2, 3))]
        return self.node("Sum", parts, self.shape[parts[0]])

    def choice(self, x):
        if self.opset < 9:
            return self.plain(x)
        test = self.name("test")
        self.nodes.append(helper.make_node("Greater", [x, self.constant(np.float32(0.1))], [test]))
        y = self.node("Where", [test, x, self.conv(x, self.shape[x][1], 1, norm=False)], self.shape[x])
        return self.conv(y, 8, 3)

    def shape_block(self, x):
        return self.reshaped(x)

    def finish_all(self, outputs):
        infos = []
        for name in dict.fromkeys(outputs):
            infos.append(helper.make_tensor_value_info(name, TensorProto.INT64 if name in self.extra else FLOAT, None))
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, infos, self.initializers)
        imports = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid("own", 1)] * bool(self.functions)
        ir = min(10, 3 + max(0, self.opset - 8)) if not self.functions else 10
        return helper.make_model(graph, opset_imports=imports, functions=self.functions, ir_version=ir)


# --- disguises
# ------------------------------------------------------------------------------------------------------------------


def graphs_of(graph):
    yield graph
    for node in graph.node:
        for entry in node.attribute:
            for body in [entry.g] if entry.HasField("g") else entry.graphs:
                yield from graphs_of(body)


def other_precision(model, feeds, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def turned(tensor):
        if tensor.data_type == FLOAT:
            array = numpy_helper.to_array(tensor)
            limit = np.finfo(dtype).max
            tensor.CopyFrom(numpy_helper.from_array(np.clip(array, -limit, limit).astype(dtype), tensor.name))

    scales = {
        n.input[k] for n in model.graph.node if n.op_type in ("Resize", "Upsample") for k in range(1, len(n.input))
    }
    for graph in [*graphs_of(model.graph), *model.functions]:
        if isinstance(graph, onnx.GraphProto):
            for tensor in graph.initializer:
                if tensor.name not in scales:
                    turned(tensor)
            for value in [*graph.input, *graph.output]:
                if value.type.tensor_type.elem_type == FLOAT:
                    value.type.tensor_type.elem_type = kind
        for node in graph.node:
            for entry in node.attribute:
                if entry.HasField("t") and node.output[0] not in scales:
                    turned(entry.t)
    for name, value in feeds.items():
        if value.dtype == np.float32:
            feeds[name] = value.astype(dtype)


def hostile_names(model, rng):
    """Names such as the steps of quantisation give, one name for several nodes, none for others."""
    names = [name for node in model.graph.node for name in node.output if name]
    names += [tensor.name for tensor in model.graph.initializer]
    keep = {value.name for value in [*model.graph.input, *model.graph.output]}
    new = {}
    for name in names:
        if name not in keep and rng.random() < 0.4:
            wanted = f"{names[int(rng.integers(len(names)))]}/{SUFFIXES[int(rng.integers(len(SUFFIXES)))]}"
            if wanted not in new.values() and wanted not in names:
                new[name] = wanted

    def rename(graph, top):
        own = set() if top else {v.name for v in graph.input} | {t.name for t in graph.initializer}
        own |= set() if top else {n for node in graph.node for n in node.output}
        given = {old: wanted for old, wanted in new.items() if old not in own}
        for tensor in graph.initializer if top else ():
            tensor.name = given.get(tensor.name, tensor.name)
        for value in graph.output:
            value.name = given.get(value.name, value.name)
        for node in graph.node:
            for names in (node.input, node.output):
                for k, name in enumerate(names):
                    names[k] = given.get(name, name)
            for entry in node.attribute:
                for body in [entry.g] if entry.HasField("g") else entry.graphs:
                    rename(body, False)

    rename(model.graph, True)
    for node in model.graph.node:
        draw = rng.random()
        node.name = "" if draw < 0.3 else "node" if draw < 0.5 else node.name


def disguise(model, feeds, rng):
    """Changes the model and its feeds; returns words for what was done."""
    told = []
    graph = model.graph
    if rng.random() < 0.2:
        dtype = np.float16 if rng.random() < 0.6 else np.float64
        other_precision(model, feeds, dtype)
        told.append(dtype.__name__)
    if rng.random() < 0.4:
        hostile_names(model, rng)
        told.append("names")
    if rng.random() < 0.2:  # constants as nodes
        for tensor in list(graph.initializer):
            if rng.random() < 0.5:
                graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
                graph.initializer.remove(tensor)
        told.append("nodes of constants")
    if rng.random() < 0.3:  # as old files have them, all as inputs; newer ones may have some
        for tensor in graph.initializer:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        told.append("constants as inputs")
    elif model.ir_version < 4:
        model.ir_version = 4
    if rng.random() < 0.15:
        graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "nobody_reads_this"))
        graph.output.append(helper.make_tensor_value_info("nobody_reads_this", FLOAT, [3]))
        told.append("constant output")
    if rng.random() < 0.15:
        graph.output.append(graph.output[0])
        told.append("output twice")
    if rng.random() < 0.4:  # dynamic dimensions, with names or without
        fed = [value for value in graph.input if value.name in feeds]
        which = rng.random()
        for k, value in enumerate(fed):
            dims = value.type.tensor_type.shape.dim
            for axis, dim in enumerate(dims):
                if axis == 0 or (axis > 1 and which < 0.6):
                    name = "" if which < 0.2 else "N" if axis == 0 else f"d{axis}" if which < 0.4 else f"s{k}_{axis}"
                    dim.Clear()
                    if name:
                        dim.dim_param = name
        told.append("dynamic")
    return told


def draw(seed):
    """(model, feeds, text). The model may be one that ONNX Runtime refuses: see `valid`."""
    g = Drawn(seed)
    one = g.chance(0.25)
    extents = [g.pick(16, 31, 50)] if one else [g.pick(7, 8, 12, 16), g.pick(7, 8, 12, 16, 19)]
    x = g.input([g.batch, g.pick(1, 3, 4, 16), *extents])
    words, tails = [], []
    for _ in range(g.pick(1, 2, 2, 3, 4)):
        old = [idiom for idiom in g.IDIOMS if g.opset >= 9 or idiom not in ("resize",)]
        choices = FREE if g.chance(0.6) else old
        idiom = choices[int(g.rng.integers(len(choices)))]
        if int(np.prod(g.shape[x])) > 20000 or g.shape[x][1] > 64:
            x = g.conv(x, 8, 1, stride=2)
        words.append(idiom)
        x = getattr(g, "shape_block" if idiom == "shape" else idiom)(x)
        if g.chance(0.15):
            tails.append(x)
    if g.chance(0.5):
        x = g.head(x)
        words.append("head")
    if not g.nodes:
        x = g.plain(x)
    produced = [name for name in [*tails, x, *g.extra] if name not in g.feeds] or [g.conv(x, 4, 1)]
    model = g.finish_all(produced)
    words += disguise(model, g.feeds, np.random.default_rng(seed + 10**7))
    return model, g.feeds, f"seed {seed}: opset {g.opset}, batch {g.batch}, {' '.join(words)}"

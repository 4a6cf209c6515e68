# SPDX-License-Identifier: Apache-2.0
"""Random graphs of several LiteRT operators, in one type of activations: float32, or int8, uint8 or int16 with a scale
for each tensor. Shapes are those that the reference kernels find."""

import dataclasses

import numpy as np

from tests.litert import oracle
from tests.litert.draw import Draw
from tests.litert.product_cases import product_operands, window


@dataclasses.dataclass
class Value:
    tensor: int
    shape: tuple
    quantised: dict


class Network:
    """Draws operators onto values that it has; every operator takes at least one of the last ones."""

    def __init__(self, d, dtype):
        self.d, self.dtype, self.values, self.names = d, dtype, [], []
        shape = (1, d.between(5, 10), d.between(5, 10), d.between(1, 6))
        quantised = d.quantisation(dtype)
        self.values.append(Value(d.input(shape, dtype, **quantised), shape, quantised))

    def pick(self, condition=lambda v: True):
        found = [v for v in self.values[-4:] if condition(v)]
        if not found:
            raise LookupError
        return found[self.d.below(len(found))]

    def new(self, *low_high):
        return self.d.quantisation(self.dtype, *low_high)

    def add(self, name, operands, quantised, **options):
        """Adds an operator with one result, if LiteRT takes it."""
        graph, d = self.d.graph, self.d
        tensor = d.op(name, operands, (self.dtype, quantised), **options)
        graph.table.outputs = [tensor]
        try:
            shape = oracle.run(d.model.bytes(), d.feeds).outputs[0].shape
        except oracle.Refused:
            graph.table.operators.pop()
            return
        finally:
            graph.table.outputs = []
        graph.table.tensors[tensor].shape = np.array(shape, np.int32)
        if int(np.prod(shape)) == 0:
            graph.table.operators.pop()
            return
        self.values.append(Value(tensor, shape, quantised))
        self.names.append(name)

    # Operators

    def product(self):
        d, image = self.d, self.d.chance(0.7)
        v = self.pick(lambda v: len(v.shape) == (4 if image else 2))
        kinds = {"float32": ("float32",), "int8": ("int8", "int8 per channel"), "uint8": ("uint8",)}
        kind = d.pick(*kinds.get(self.dtype, ("int16",)))
        depth = v.shape[-1]
        if not image:
            units = d.between(1, 8)
            operands = self.operands(kind, v, (units, depth), 0, units)
            return self.add("FULLY_CONNECTED", *operands, fusedActivationFunction=d.pick(0, 0, 1, 3))
        size = (d.between(1, 3), d.between(1, 3))
        options = window(d, 2) | {"fusedActivationFunction": d.pick(0, 1, 3)}
        if self.dtype != "uint8" and d.chance(0.4):  # of uint8 single elements lie one step beside
            options |= {"depthMultiplier": 1, "strideW": options["strideH"]}
            return self.add("DEPTHWISE_CONV_2D", *self.operands(kind, v, (1, *size, depth), 3, depth), **options)
        filters = d.between(1, 8)
        return self.add("CONV_2D", *self.operands(kind, v, (filters, *size, depth), 0, filters), **options)

    def operands(self, kind, v, shape, axis, channels):
        """Operands of a product on a value that there is, and the quantisation of the result."""
        x, weights, bias, (_, out) = product_operands(
            self.d, kind, v.shape, shape, axis, channels, (v.tensor, v.quantised)
        )
        if "scale" in out:  # sums of sums: beyond ratios of 256 between scales LiteRT's ADD overflows
            out["scale"] = min(out["scale"], 0.5)
        return [x, weights, bias], out

    def unary(self):
        v = self.pick()
        names = ["RELU", "LOGISTIC", "TANH", "LEAKY_RELU"]
        if self.dtype == "float32":
            names += ["ABS", "NEG", "SQUARE", "HARD_SWISH", "ELU", "GELU", "EXP"]
        name = self.d.pick(*names)
        out = self.new()
        fixed = {"LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
                 "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}}  # fmt: skip
        if self.dtype in fixed.get(name, {}):
            out = dict(zip(("scale", "zero"), fixed[name][self.dtype]))
        options = {"alpha": 0.25} if name == "LEAKY_RELU" else {}
        return self.add(name, [v.tensor], out, **options)

    def binary(self):
        d, v = self.d, self.pick()
        other = [w for w in self.values if w.shape == v.shape]
        if d.chance(0.5) or len(other) < 2:
            quantised = self.new()
            second = d.constant(d.values(d.broadcast(v.shape), self.dtype), **quantised)
        else:
            second = other[d.below(len(other))].tensor
        name = d.pick("ADD", "SUB", "MUL")
        options = {} if name == "MUL" else {"potScaleInt16": False}
        return self.add(
            name, [v.tensor, second], self.new(0.02, 0.2), fusedActivationFunction=d.pick(0, 0, 1), **options
        )

    def extremum(self):
        v = self.pick()
        other = [w for w in self.values if w.shape == v.shape and w.quantised == v.quantised]
        return self.add(self.d.pick("MAXIMUM", "MINIMUM"), [v.tensor, self.d.pick(*other).tensor], v.quantised)

    def pool(self):
        d, v = self.d, self.pick(lambda v: len(v.shape) == 4)
        options = window(d, 2) | {"filterHeight": d.between(1, 3), "filterWidth": d.between(1, 3)}
        return self.add(d.pick("AVERAGE_POOL_2D", "MAX_POOL_2D"), [v.tensor], v.quantised, **options)

    def mean(self):
        d, v = self.d, self.pick(lambda v: len(v.shape) == 4)
        axes = d.constant(np.array(d.pick([1, 2], [1, 2], [3], [1]), np.int32))
        return self.add("MEAN", [v.tensor, axes], v.quantised if d.chance() else self.new(), keepDims=d.chance())

    def movement(self):
        d, v = self.d, self.pick()
        name = d.pick(
            "RESHAPE", "TRANSPOSE", "PAD", "SLICE", "EXPAND_DIMS", "REVERSE_V2", "CONCATENATION", "PACK", "TILE"
        )
        rank, operands, options = len(v.shape), [v.tensor], {}
        if name == "RESHAPE":
            flat = int(np.prod(v.shape))
            target = d.pick([v.shape[0], -1], [flat], [1, -1, v.shape[-1]], [*v.shape[:-1], 1, v.shape[-1]])
            operands.append(d.constant(np.array(target, np.int32)))
        elif name == "TRANSPOSE":
            operands.append(d.constant(d.rng.permutation(rank).astype(np.int32)))
        elif name == "PAD":
            operands.append(d.constant(d.rng.integers(0, 2, (rank, 2)).astype(np.int32)))
        elif name == "SLICE":
            begin = [d.below(n) for n in v.shape]
            operands += [d.constant(np.array(begin, np.int32)), d.constant(np.full(rank, -1, np.int32))]
        elif name in ("EXPAND_DIMS", "REVERSE_V2"):
            at = d.below(rank)
            operands.append(d.constant(np.array(at if name == "EXPAND_DIMS" else [at], np.int32)))
        elif name == "TILE":
            operands.append(d.constant(np.array([d.between(1, 2) if n < 8 else 1 for n in v.shape], np.int32)))
        else:
            other = [w for w in self.values if w.shape == v.shape and w.quantised == v.quantised]
            operands.append(d.pick(*other).tensor)
            options = {"axis": d.below(rank)} | ({"valuesCount": 2} if name == "PACK" else {})
        return self.add(name, operands, v.quantised, **options)

    def softmax(self):
        v = self.pick(lambda v: len(v.shape) in (2, 4))
        out = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}.get(self.dtype)
        return self.add("SOFTMAX", [v.tensor], dict(zip(("scale", "zero"), out)) if out else {}, beta=1.0)

    STEPS = (product, product, product, unary, binary, binary, extremum, pool, mean, movement, movement, softmax)


def draw_graph(seed, dtypes=("float32", "int8", "int8", "uint8")):
    """Graph number `seed`. Its class is "exact" for integers and "tolerance" for float32."""
    d = Draw(np.random.default_rng([seed, 77]), seed)
    dtype = d.pick(*dtypes)
    network = Network(d, dtype)
    for _ in range(d.between(3, 9)):
        try:
            d.pick(*Network.STEPS)(network)
        except LookupError:
            continue
    read = {int(t) for op in d.graph.table.operators for t in op.inputs}
    ends = [v.tensor for v in network.values[1:] if v.tensor not in read] or [
        network.unary() or network.values[-1].tensor
    ]
    return d.done(f"graph {dtype} {'+'.join(network.names)}", *ends), "tolerance" if dtype == "float32" else "exact"

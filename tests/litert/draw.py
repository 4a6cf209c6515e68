# SPDX-License-Identifier: Apache-2.0
"""What random files are drawn with: one graph, its feeds, and chances."""

import dataclasses

import numpy as np

from tests.litert import builder, oracle

QUANTISED = ("int8", "uint8", "int16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


@dataclasses.dataclass
class Case:
    name: str  # of the operators
    types: str  # as the drawing names them: "int8", "int8 per channel", "float32 to int8"
    data: bytes
    feeds: list
    runs: dict = None  # by kernels


class Draw:
    """`index` numbers the file among those of its operator, so that each type of an operator has its turn."""

    def __init__(self, rng, index=0):
        self.rng, self.index, self.model = rng, index, builder.Model()
        self.graph, self.feeds, self.words = self.model.graph("main"), [], []

    # Chances
    def below(self, n):
        return int(self.rng.integers(n))

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def chance(self, p=0.5):
        return bool(self.rng.random() < p)

    def pick(self, *options):
        return options[self.below(len(options))]

    def turn(self, options):
        """The types of an operator in turn, named in the case."""
        found = options[self.index % len(options)]
        self.words.append(str(found))
        return found

    def shape(self, low=0, high=5, most=5):
        return tuple(self.between(1, most) for _ in range(self.between(low, high)))

    def axis(self, rank):
        return self.between(-rank, rank - 1)

    def axes(self, rank, low=0):
        """Some axes, in any order, of either sign."""
        count = self.between(min(low, rank), rank)
        chosen = self.rng.permutation(rank)[:count]
        return [int(a) - (rank if self.chance(0.3) else 0) for a in chosen]

    def broadcast(self, shape):
        """A shape that broadcasts with `shape` to it."""
        kept = [1 if self.chance(0.3) else d for d in shape]
        return tuple(kept[self.below(len(kept) + 1) if self.chance(0.3) and kept else 0 :])

    def scale(self, low=0.005, high=0.1):
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def quantisation(self, dtype, low=0.005, high=0.1):
        """Keyword arguments of a tensor; empty for a type that is not quantised."""
        if dtype not in QUANTISED:
            return {}
        zero = {"int8": lambda: self.between(-128, 127), "uint8": lambda: self.between(0, 255), "int16": lambda: 0}
        return {"scale": self.scale(low, high) / (128 if dtype == "int16" else 1), "zero": zero[dtype]()}

    # Values
    def values(self, shape, dtype, low=None, high=None):
        kind = np.dtype(dtype).kind
        if kind == "b":
            return self.rng.random(shape) < 0.5
        if kind == "c":
            return (self.rng.normal(size=shape) + 1j * self.rng.normal(size=shape)).astype(dtype)
        if kind == "f":
            low, high = (-4.0 if low is None else low), (4.0 if high is None else high)
            values = self.rng.uniform(low, high, shape)
            if self.chance(0.1):
                values = np.round(values * 2) / 2  # ties, and values that are equal
            return np.asarray(values).astype(dtype)
        limits = np.iinfo(dtype)
        wide = dtype in ("int32", "uint32", "int64", "uint64")
        low = (max(limits.min, -100) if wide else limits.min) if low is None else low
        high = (100 if wide else limits.max) if high is None else high
        return self.rng.integers(low, high, shape, endpoint=True).astype(dtype)

    def input(self, shape, dtype, low=None, high=None, **quantisation):
        index = self.graph.input(f"input{len(self.feeds)}", shape, dtype, **quantisation)
        self.feeds.append(self.values(shape, dtype, low, high))
        return index

    def constant(self, values, dtype=None, **quantisation):
        return self.graph.constant(np.asarray(values, dtype), **quantisation)

    def either(self, shape, dtype, low=None, high=None, p=0.3, **quantisation):
        """An input, or a constant with chance `p`."""
        if self.feeds and self.chance(p):
            return self.constant(self.values(shape, dtype, low, high), **quantisation)
        return self.input(shape, dtype, low, high, **quantisation)

    def parameter(self, values, dtype="int32", p=0.1):
        """A constant operand such as axes or a shape, or an input that is fed with it."""
        values = np.asarray(values, dtype)
        if not self.chance(p):
            return self.constant(values)
        index = self.graph.input(f"input{len(self.feeds)}", values.shape, dtype)
        self.feeds.append(values)
        return index

    def out(self, dtype, **quantisation):
        return self.graph.tensor(f"output{len(self.graph.table.tensors)}", None, dtype, **quantisation)

    def op(self, operator, inputs, *types, **options):
        """The operator with outputs of these types: names, or (name, quantisation)."""
        outs = [self.out(t) if isinstance(t, str) else self.out(t[0], **t[1]) for t in types]
        self.graph.op(operator, inputs, outs, **options)
        return outs[0] if len(outs) == 1 else outs

    def done(self, name, *outputs):
        """The case; shapes that are open are those of the reference's run. Errors: oracle.Refused."""
        self.graph.outputs(*outputs)
        tensors = self.graph.table.tensors
        if any(t.shape is None for t in tensors):
            shapes = oracle.run_first(self.model.bytes(), self.feeds)[1].shapes
            for index, t in enumerate(tensors):
                if t.shape is None:
                    t.shape = np.array(shapes[index], np.int32)
            # An output whose shape is known at run time only has it from the results.
            results = oracle.run_first(self.model.bytes(), self.feeds)[1].outputs
            for index, result in zip(self.graph.table.outputs, results):
                tensors[index].shape = np.array(result.shape, np.int32)
        data = self.model.bytes()
        return Case(
            " ".join([name, *self.words]), " ".join(self.words), data, self.feeds, oracle.run_all(data, self.feeds)
        )

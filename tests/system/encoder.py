# SPDX-License-Identifier: Apache-2.0
"""A small encoder of transformers, written as exporters write BERT: projections, masked attention, normalisations of
sums, and GELU by the error function."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Encoder:
    """Collects the nodes of an encoder of `heads` heads of `size` channels over `length` tokens."""

    def __init__(self, heads=2, size=8, length=6, seed=1):
        self.rng = np.random.default_rng(seed)
        self.heads, self.size, self.length, self.width = heads, size, length, heads * size
        self.nodes, self.constants = [], []

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def weights(self, *shape):
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def node(self, op, inputs, **attributes):
        count = len(self.nodes)
        self.nodes.append(helper.make_node(op, inputs, [f"v{count}"], f"{op}_{count}", **attributes))
        return f"v{count}"

    def linear(self, x, inputs, outputs):
        return self.node("Add", [self.node("MatMul", [x, self.weights(inputs, outputs)]), self.weights(outputs)])

    def norm(self, x):
        scale = self.constant(self.rng.uniform(0.5, 1.5, self.width).astype(np.float32))
        return self.node("LayerNormalization", [x, scale, self.weights(self.width)], axis=-1, epsilon=1e-5)

    def mask(self):
        """0 for tokens to be seen, -10000 for others, as [batch, 1, 1, length]."""
        wide = self.node("Unsqueeze", ["mask", self.constant(np.array([1]))])
        wide = self.node("Unsqueeze", [wide, self.constant(np.array([2]))])
        hidden = self.node("Sub", [self.constant(np.float32(1)), self.node("Cast", [wide], to=TensorProto.FLOAT)])
        return self.node("Mul", [hidden, self.constant(np.float32(-10000))])

    def attention(self, x, mask):
        split = self.constant(np.array([0, 0, self.heads, self.size]))
        parts = [self.node("Reshape", [self.linear(x, self.width, self.width), split]) for _ in range(3)]
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (self.node("Transpose", [part], perm=order) for part, order in zip(parts, orders))
        root = self.constant(np.float32(np.sqrt(self.size)))
        scores = self.node("Add", [self.node("Div", [self.node("MatMul", [q, k]), root]), mask])
        mixed = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), v])
        mixed = self.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        joined = self.node("Reshape", [mixed, self.constant(np.array([0, 0, self.width]))])
        return self.linear(joined, self.width, self.width)

    def gelu(self, x):
        error = self.node("Erf", [self.node("Div", [x, self.constant(np.float32(np.sqrt(2)))])])
        product = self.node("Mul", [x, self.node("Add", [error, self.constant(np.float32(1))])])
        return self.node("Mul", [product, self.constant(np.float32(0.5))])

    def model(self, layers=2, words=11):
        mask = self.mask()
        embedded = self.node("Gather", [self.weights(words, self.width), "ids"])
        x = self.norm(self.node("Add", [embedded, self.weights(self.length, self.width)]))
        for _ in range(layers):
            x = self.norm(self.node("Add", [self.attention(x, mask), x]))
            inner = self.gelu(self.linear(x, self.width, 4 * self.width))
            x = self.norm(self.node("Add", [self.linear(inner, 4 * self.width, self.width), x]))
        tokens = ["batch", self.length]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [helper.make_tensor_value_info(name, TensorProto.INT64, tokens) for name in ("ids", "mask")],
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

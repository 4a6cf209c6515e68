# SPDX-License-Identifier: Apache-2.0
"""Small decoders of the LLaMA kind with past and present, quantised as QDQ, with seeded weights: embedding, grouped
queries with rotary positions, a gated MLP, logits. Keys and values of the past are int8 inputs, and Concat extends them
into outputs.

`cache`: "bytes" (a Concat of int8), "dequantised" (the same between a DequantizeLinear and a QuantizeLinear), or
"float". `tokens_first`: a cache is [batch, length, groups, size], not [batch, groups, length, size]. `tokens`: how many
a run takes; None leaves it dynamic. With more than one a causal mask comes from the inputs `attention_mask` and
`position_ids`. `normalise`: RMSNorm before each block; without it every operator is of an exact
class, so that results equal ONNX Runtime's."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"


class Decoder:
    def __init__(
        self,
        layers=1,
        heads=2,
        groups=None,
        size=16,
        words=40,
        seed=1,
        normalise=False,
        longest=64,
        inner=None,
        cache="bytes",
        tokens_first=False,
        four_bits=0,
    ):
        self.rng = np.random.default_rng(seed)
        self.layers, self.heads, self.groups, self.size, self.words = layers, heads, groups or heads, size, words
        self.width, self.longest, self.normalise = heads * size, longest, normalise
        self.inner = inner or 2 * self.width
        self.cache, self.tokens_first = cache, tokens_first
        self.four_bits = four_bits  # weights along a sum that share a scale; 0: weights of 8 bits
        self.nodes, self.constants = [], []

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, inputs, name=None, **attributes):
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{len(self.nodes)}", **attributes))
        return name

    def parameters(self, scale):
        return [self.constant(np.float32(scale)), self.constant(np.int8(0))]

    def quantised(self, x, scale, name=None):
        return self.node("QuantizeLinear", [x, *self.parameters(scale)], name)

    def dequantised(self, x, scale):
        return self.node("DequantizeLinear", [x, *self.parameters(scale)])

    def through(self, x, scale):
        """The value after it has been a byte."""
        return self.dequantised(self.quantised(x, scale), scale)

    def weights(self, inputs, outputs):
        """Bytes, drawn from all or from those that a machine with packed_weights stores in 4 bits."""
        if not self.four_bits:
            return self.constant(self.rng.integers(-127, 128, (inputs, outputs)).astype(np.int8))
        scales = self.rng.integers(1, 17, (-(-inputs // self.four_bits), outputs)).repeat(self.four_bits, 0)[:inputs]
        return self.constant((self.rng.integers(-8, 8, (inputs, outputs)) * scales).astype(np.int8))

    def linear(self, x, inputs, outputs, scale):
        weights = self.weights(inputs, outputs)
        step = 1.0 / 64 / np.sqrt(inputs)
        return self.through(self.node("MatMul", [x, self.dequantised(weights, step)]), scale)

    def norm(self, x):
        if not self.normalise:
            return x
        scale = self.constant(self.rng.uniform(0.5, 1.5, self.width).astype(np.float32))
        return self.through(self.node("SimplifiedLayerNormalization", [x, scale], axis=-1, epsilon=1e-5), 1 / 32)

    def heads_of(self, x, count):
        apart = self.node("Reshape", [x, self.constant(np.array([0, 0, count, self.size]))])
        return self.node("Transpose", [apart], perm=[0, 2, 1, 3])

    def rotary_tables(self):
        angle = np.arange(self.longest)[:, None] / 100 ** (np.arange(self.size // 2) / (self.size // 2))
        tables = []
        for function in (np.cos, np.sin):
            table = self.constant(np.concatenate([function(angle)] * 2, -1).astype(np.float32))
            rows = self.node("Gather", [table, "position_ids"])
            tables.append(self.node("Unsqueeze", [rows, self.constant(np.array([1]))]))
        return tables

    def turned(self, x, tables):
        """Rotary positions."""
        low = self.node("Slice", [x, *(self.constant(np.array([n])) for n in (0, self.size // 2, 3))])
        high = self.node("Slice", [x, *(self.constant(np.array([n])) for n in (self.size // 2, self.size, 3))])
        crossed = self.node("Concat", [self.node("Neg", [high]), low], axis=-1)
        parts = [self.node("Mul", [a, b]) for a, b in ((x, tables[0]), (crossed, tables[1]))]
        return self.node("Add", parts)

    def mask(self):
        """0 where a token may look, -1e4 elsewhere, as [batch, 1, heads of a group * tokens, length]."""
        at = self.node("CumSum", ["attention_mask", self.constant(np.int64(1))])
        at = self.node("Sub", [at, self.constant(np.int64(1))])
        at = self.node("Unsqueeze", [at, self.constant(np.array([1, 2]))])
        own = self.node("Unsqueeze", ["position_ids", self.constant(np.array([1, 3]))])
        seen = self.node("LessOrEqual", [at, own])
        hidden = self.node("Where", [seen, self.constant(np.float32(0)), self.constant(np.float32(-1e4))])
        # The queries of the heads that share a key stand below each other.
        times = self.heads // self.groups
        return self.node("Concat", [hidden] * times, axis=2) if times > 1 else hidden

    def by_heads(self, x):
        """From the order of heads to that of the cache, or back."""
        return self.node("Transpose", [x], perm=[0, 2, 1, 3]) if self.tokens_first else x

    def extended(self, names, new):
        """The past of the first name with the new tokens, which is the output of the second; dequantised."""
        axis = 1 if self.tokens_first else 2
        if self.cache == "float":
            whole = self.node("Concat", [names[0], self.through(new, 1 / 32)], names[1], axis=axis)
            return self.through(whole, 1 / 32)
        if self.cache == "bytes":
            whole = self.node("Concat", [names[0], self.quantised(new, 1 / 32)], names[1], axis=axis)
            return self.dequantised(whole, 1 / 32)
        parts = [self.dequantised(names[0], 1 / 32), self.through(new, 1 / 32)]
        whole = self.node("Concat", parts, axis=axis)
        return self.dequantised(self.quantised(whole, 1 / 32, names[1]), 1 / 32)

    def attention(self, x, layer, tables, mask):
        q = self.heads_of(self.linear(x, self.width, self.width, 1 / 32), self.heads)
        narrow = self.groups * self.size
        k = self.heads_of(self.linear(x, self.width, narrow, 1 / 32), self.groups)
        v = self.heads_of(self.linear(x, self.width, narrow, 1 / 32), self.groups)
        q, k = self.through(self.turned(q, tables), 1 / 32), self.turned(k, tables)
        past = []
        for kind, new in (("key", k), ("value", v)):
            names = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            past.append(self.by_heads(self.extended(names, self.by_heads(new))))
        turned = self.node("Transpose", [past[0]], perm=[0, 1, 3, 2])
        root = self.constant(np.float32(1 / np.sqrt(self.size)))
        q = self.node("Reshape", [q, self.constant(np.array([0, self.groups, -1, self.size]))])
        q = self.through(self.node("Mul", [q, root]), 1 / 64)
        scores = self.through(self.node("MatMul", [q, turned]), 1 / 16)
        if mask:
            scores = self.node("Add", [scores, mask])
        shares = self.through_unsigned(self.node("Softmax", [scores], axis=-1))
        mixed = self.through(self.node("MatMul", [shares, past[1]]), 1 / 48)
        mixed = self.node("Reshape", [mixed, self.constant(np.array([0, self.heads, -1, self.size]))])
        mixed = self.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        joined = self.node("Reshape", [mixed, self.constant(np.array([0, 0, self.width]))])
        return self.linear(joined, self.width, self.width, 1 / 48)

    def through_unsigned(self, x):
        parameters = [self.constant(np.float32(1 / 256)), self.constant(np.int8(-128))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, *parameters]), *parameters])

    def gated(self, x):
        inner = self.inner
        gate, up = (self.linear(x, self.width, inner, 1 / 32) for _ in range(2))
        gate = self.through(self.node("Mul", [gate, self.through_unsigned(self.node("Sigmoid", [gate]))]), 1 / 32)
        return self.linear(self.through(self.node("Mul", [gate, up]), 1 / 16), inner, self.width, 1 / 48)

    def model(self, batch=1, tokens=1):
        words = self.constant(self.rng.integers(-127, 128, (self.words, self.width)).astype(np.int8))
        x = self.dequantised(self.node("Gather", [words, "input_ids"]), 1 / 64)
        tables = self.rotary_tables()
        mask = self.mask() if tokens != 1 else None
        for layer in range(self.layers):
            mixed = self.attention(self.norm(x), layer, tables, mask)
            x = self.through(self.node("Add", [x, mixed]), 1 / 32)
            x = self.through(self.node("Add", [x, self.gated(self.norm(x))]), 1 / 32)
        head = self.weights(self.width, self.words)
        product = self.node("MatMul", [self.norm(x), self.dequantised(head, 1 / 64 / np.sqrt(self.width))])
        self.dequantised(self.quantised(product, 1 / 16), 1 / 16)
        self.nodes[-1].output[0] = "logits"
        return self.finish(batch, tokens if tokens is not None else "tokens")

    def cache_shape(self, batch, length):
        if self.tokens_first:
            return [batch, length, self.groups, self.size]
        return [batch, self.groups, length, self.size]

    def finish(self, batch, tokens):
        value = helper.make_tensor_value_info
        past, present = (self.cache_shape(batch, length) for length in ("past", "past_and_tokens"))
        kinds = [f"{layer}.{kind}" for layer in range(self.layers) for kind in ("key", "value")]
        inputs = [value(name, TensorProto.INT64, [batch, tokens]) for name in ("input_ids", "position_ids")]
        if tokens != 1:
            inputs.append(value("attention_mask", TensorProto.INT64, [batch, "past_and_tokens"]))
        element = TensorProto.FLOAT if self.cache == "float" else TensorProto.INT8
        inputs += [value(f"past_key_values.{kind}", element, past) for kind in kinds]
        outputs = [value("logits", TensorProto.FLOAT, [batch, tokens, self.words])]
        outputs += [value(f"present.{kind}", element, present) for kind in kinds]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def empty_past(decoder, batch=1):
    """Feeds of a past of length 0."""
    element = np.float32 if decoder.cache == "float" else np.int8
    return {
        f"past_key_values.{layer}.{kind}": np.zeros(decoder.cache_shape(batch, 0), element)
        for layer in range(decoder.layers)
        for kind in ("key", "value")
    }

# SPDX-License-Identifier: Apache-2.0
"""Small decoders as exporters for generation write them, with seeded weights: GroupQueryAttention with a growing cache,
its lengths summed from `attention_mask`, weights of 4 or 8 bits in blocks (MatMulNBits), normalisations of sums
(SkipSimplifiedLayerNormalization). In float, with float caches."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"


class ExportedDecoder:
    def __init__(
        self,
        layers=2,
        heads=4,
        groups=2,
        size=16,
        words=48,
        bits=4,
        block=16,
        packed=True,
        seed=1,
        opset=21,
        accuracy=None,
        **attention,
    ):
        self.rng = np.random.default_rng(seed)
        self.layers, self.heads, self.groups, self.size, self.words = layers, heads, groups, size, words
        self.bits, self.block, self.packed, self.opset, self.attributes = bits, block, packed, opset, attention
        self.accuracy = {} if accuracy is None else {"accuracy_level": accuracy}
        self.width = heads * size
        self.nodes, self.constants = [], []

    def constant(self, value, name=None):
        self.constants.append(numpy_helper.from_array(np.asarray(value), name or f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return names[0] if len(names) == 1 else names

    def linear(self, x, depth, rows, bias=False):
        """x by [depth, rows] weights of `bits` in blocks; every other one with zero points."""
        blocks, per_byte = -(-depth // self.block), 8 // self.bits
        packed = self.rng.integers(0, 256, (rows, blocks, self.block // per_byte)).astype(np.uint8)
        scales = self.rng.uniform(0.5, 1.5, rows * blocks) / np.sqrt(depth) / (1 << (self.bits - 2))
        operands = [x, self.constant(packed), self.constant(scales.astype(np.float32))]
        if len(self.constants) % 2 or bias:
            zeros = self.rng.integers(100, 156, (rows, -(-blocks // per_byte))) if self.bits == 8 else None
            zeros = np.full((rows, -(-blocks // per_byte)), 0x78) if zeros is None else zeros
            operands.append(self.constant(zeros.reshape(-1).astype(np.uint8)))
        if bias:
            operands += ["", self.constant(self.rng.standard_normal(rows).astype(np.float32) / 8)]
        attributes = {"K": depth, "N": rows, "bits": self.bits, "block_size": self.block, **self.accuracy}
        return self.node("MatMulNBits", operands, domain=MS, **attributes)

    def gain(self):
        return self.constant(self.rng.uniform(0.5, 1.5, self.width).astype(np.float32))

    def lengths(self):
        one = self.constant(np.array([1], np.int64))
        total = self.node("ReduceSum", ["attention_mask", one])
        last = self.node("Cast", [self.node("Sub", [total, one])], to=TensorProto.INT32)
        shape = self.node("Shape", ["attention_mask"])
        length = self.node("Gather", [shape, self.constant(np.array(1, np.int64))], axis=0)
        return last, self.node("Cast", [length], to=TensorProto.INT32)

    def attention(self, x, layer, lengths):
        narrow = self.groups * self.size
        if self.packed:
            operands = [self.linear(x, self.width, self.width + 2 * narrow, bias=True), "", ""]
        else:
            operands = [self.linear(x, self.width, rows) for rows in (self.width, narrow, narrow)]
        operands += [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")] + list(lengths)
        if self.attributes.get("do_rotary"):
            operands += ["cos", "sin"]
        results = [f"mixed.{layer}", *(f"present.{layer}.{kind}" for kind in ("key", "value"))]
        heads = {"num_heads": self.heads, "kv_num_heads": self.groups}
        self.node("GroupQueryAttention", operands, results, MS, **heads, **self.attributes)
        return self.linear(results[0], self.width, self.width)

    def skip_norm(self, x, added):
        """(normalised, the sum)."""
        results = self.node("SkipSimplifiedLayerNormalization", [x, added, self.gain()], 4, MS, epsilon=1e-5)
        self.nodes[-1].output[1] = self.nodes[-1].output[2] = ""
        return results[0], results[3]

    def model(self):
        """With a dynamic batch and number of tokens."""
        if self.attributes.get("do_rotary"):
            angle = np.outer(np.arange(64), 100.0 ** (-np.arange(self.size // 2) / (self.size // 2)))
            for name, function in (("cos", np.cos), ("sin", np.sin)):
                self.constant(function(angle).astype(np.float32), name)
        table = self.rng.standard_normal((self.words, self.width)).astype(np.float32)
        x, lengths = self.node("Gather", [self.constant(table), "input_ids"]), self.lengths()
        normal = self.node("SimplifiedLayerNormalization", [x, self.gain()], axis=-1, epsilon=1e-5)
        inner = 2 * self.width
        for layer in range(self.layers):
            normal, x = self.skip_norm(x, self.attention(normal, layer, lengths))
            gate = self.linear(normal, self.width, inner)
            gate = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
            both = self.node("Mul", [gate, self.linear(normal, self.width, inner)])
            normal, x = self.skip_norm(x, self.linear(both, inner, self.width))
        self.linear(normal, self.width, self.words)
        self.nodes[-1].output[0] = "logits"
        return self.finish().SerializeToString()

    def finish(self):
        value = helper.make_tensor_value_info
        inputs = [value("input_ids", TensorProto.INT64, ["batch", "tokens"])]
        inputs.append(value("attention_mask", TensorProto.INT64, ["batch", "total"]))
        outputs = [value("logits", TensorProto.FLOAT, ["batch", "tokens", self.words])]
        for layer in range(self.layers):
            for kind in ("key", "value"):
                cache = lambda length: ["batch", self.groups, length, self.size]
                inputs.append(value(f"past_key_values.{layer}.{kind}", TensorProto.FLOAT, cache("past")))
                outputs.append(value(f"present.{layer}.{kind}", TensorProto.FLOAT, cache("total")))
        graph = helper.make_graph(self.nodes, "exported", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, ids, past=None, kind=np.float32):
        """ids [batch, tokens] behind the results of an earlier run by name."""
        batch, tokens = ids.shape
        names = [f"{layer}.{which}" for layer in range(self.layers) for which in ("key", "value")]
        empty = np.zeros((batch, self.groups, 0, self.size), kind)
        caches = {f"past_key_values.{n}": past[f"present.{n}"] if past else empty for n in names}
        before = next(iter(caches.values())).shape[2]
        return {"input_ids": ids, "attention_mask": np.ones((batch, before + tokens), np.int64), **caches}

# SPDX-License-Identifier: Apache-2.0
"""Attention in random shapes: odd lengths, heads of 24 and others, up to three sequences, attention to another one,
groups of heads that share a key, masks of bytes that hide some keys, or all of a row. Integers equal ONNX Runtime's and
the reference interpreter's on machines with row lanes, where all of it runs on the NPU, and on the others."""

import numpy as np
import pytest

from tests.system.builders import MS
from tests.system.operators.test_activation_products import Products
from tests.system.operators.test_npu_operators import COUNT, SEED, check, seeds


class Attention(Products):
    def __init__(self, seed):
        super().__init__(seed)
        self.dtype = self.pick(np.uint8, np.int8)
        self.batch, self.heads, self.size = self.pick(1, 2, 3), self.pick(1, 2, 3), self.pick(7, 8, 16, 24, 24)
        self.groups = self.heads if self.chance(0.6) else 1
        self.tokens = self.pick(1, 5, 13, 17, 31)
        self.crosses = self.chance(0.4)
        self.keys = self.pick(3, 9, 15, 16, 29, 49) if self.crosses else self.tokens
        self.middle = np.array(np.iinfo(self.dtype).min + 128, self.dtype)

    def quantised(self, scale, zero=None):
        return [self.constant(np.float32(scale)), self.constant(self.middle if zero is None else zero)]

    def projected(self, x, rows, width):
        """Weights times x [batch, rows, features], in a step of 1/16."""
        weights = self.constant(self.rng.integers(-127, 128, (self.shape[x][-1], width)).astype(np.int8))
        factor = [weights, self.constant(np.float32(1 / 64)), self.constant(np.int8(0))]
        shape = [self.batch, rows, width]
        return self.op("QLinearMatMul", [x, *self.quantised(1 / 32), *factor, *self.quantised(1 / 16)], shape)

    def by_heads(self, x, rows, heads):
        apart = self.reshape(x, [self.batch, rows, heads, self.size])
        return self.op("Transpose", [apart], [self.batch, heads, rows, self.size], perm=[0, 2, 1, 3])

    def masked(self, scores, shape):
        """The scores plus a mask that is 0 or far below every score."""
        kind = self.pick("none", "padding", "causal", "a row")
        self.text.append(f"mask: {kind}")
        if kind == "none":
            return scores
        hidden = np.zeros([self.batch, 1, *shape[2:]], bool)
        if kind == "padding":
            for sequence in hidden:
                sequence[..., self.rng.integers(0, shape[3]) :] = True
        elif kind == "causal":
            hidden[:] = np.arange(shape[3]) > (np.arange(shape[2]) % self.tokens)[:, None]
        else:
            hidden[:, :, self.rng.integers(0, shape[2])] = True
        low = np.iinfo(self.dtype).min
        mask = self.bytes(hidden.shape, self.dtype, "mask")
        self.feeds[mask] = np.where(hidden, low, self.middle).astype(self.dtype)
        return self.op(
            "QLinearAdd", [scores, *self.quantised(1 / 16), mask, *self.quantised(1), *self.quantised(1 / 8)], shape, MS
        )

    def build(self):
        features = self.pick(24, 33, 48)
        x = self.bytes([self.batch, self.tokens, features], self.dtype, "x")
        other = self.bytes([self.batch, self.keys, self.pick(24, 40)], self.dtype, "other") if self.crosses else x
        narrow, width = self.groups * self.size, self.heads * self.size
        q = self.by_heads(self.projected(x, self.tokens, width), self.tokens, self.heads)
        k, v = (self.by_heads(self.projected(other, self.keys, narrow), self.keys, self.groups) for _ in range(2))
        rows = self.tokens * self.heads // self.groups
        if self.groups != self.heads:  # the queries of all heads below each other
            q = self.reshape(q, [self.batch, 1, rows, self.size])
        turned = self.op("Transpose", [k], [self.batch, self.groups, self.size, self.keys], perm=[0, 1, 3, 2])
        shape = [self.batch, self.groups, rows, self.keys]
        step = self.quantised(1 / 16)
        scores = self.op("QLinearMatMul", [q, *step, turned, *step, *step], shape)
        behind = self.masked(scores, shape)
        share = self.quantised(1 / 256, np.array(np.iinfo(self.dtype).min, self.dtype))
        step_of_scores = step if behind == scores else self.quantised(1 / 8)
        shares = self.op("QLinearSoftmax", [behind, *step_of_scores, *share], shape, MS, axis=-1, opset=13)
        shape = [self.batch, self.groups, rows, self.size]
        mixed = self.op("QLinearMatMul", [shares, *share, v, *step, *self.quantised(1 / 32)], shape)
        mixed = self.reshape(mixed, [self.batch, self.heads, self.tokens, self.size])
        mixed = self.op("Transpose", [mixed], [self.batch, self.tokens, self.heads, self.size], perm=[0, 2, 1, 3])
        joined = self.reshape(mixed, [self.batch, self.tokens, width])
        y = self.projected(joined, self.tokens, features)
        if self.chance(0.5):
            operands = [y, *step, x, *self.quantised(1 / 32), *self.quantised(1 / 16)]
            y = self.op("QLinearAdd", operands, [self.batch, self.tokens, features], MS)
        text = (
            f"{np.dtype(self.dtype).name} batch {self.batch}, {self.heads} heads of {self.size} in {self.groups} "
            f"groups, {self.tokens} tokens, {self.keys} keys {self.text}"
        )
        return self.finish(y), self.feeds, text


@pytest.mark.parametrize("chunk", seeds(max(12, COUNT // 6), SEED * 100000 + 90000), ids=lambda c: str(c[0]))
def test_random_attention(chunk, row_configs, configs):
    for seed in chunk:
        model, feeds, text = Attention(seed).build()
        _, on_cpu = check(model, feeds, f"seed {seed}: {text}", row_configs)
        assert on_cpu == 0, f"seed {seed}: {on_cpu} nodes on the CPU; {text}"
        check(model, feeds, f"seed {seed}: {text}", configs[1:2] if seed % 3 else configs)

# SPDX-License-Identifier: Apache-2.0
"""Operators of whole rows on a machine with row lanes: softmax. Random shapes, axes, types and lengths, alone and
between products; functional simulator = reference interpreter = ONNX Runtime in every element, races checked, memories
poisoned. Class: exact."""

import numpy as np
import pytest

import tessera
from tests.system import attention, builders
from tests.system.builders import MS
from tests.system.conftest import ROOT
from tests.system.test_activation_products import Products
from tests.system.test_npu_operators import COUNT, SEED, check, seeds


def random_softmax(seed):
    """A softmax, alone, behind something the NPU has made, or between two products."""
    g = Products(seed)
    dtype = g.dtype
    rank = g.pick(1, 2, 3, 3, 4)
    shape = [g.pick(1, 2, 3, 5) for _ in range(rank - 1)] + [
        g.pick(1, 2, 7, 15, 16, 17, 31, 33, 49, 100, 197, 256, 300)
    ]
    axis = rank - 1
    if rank > 1 and g.chance(0.25):
        axis = int(g.rng.integers(0, rank))
        shape[axis], shape[-1] = shape[-1], shape[axis]
    opset = 13
    if rank > 1 and g.chance(0.2):
        opset, axis = 12, int(g.rng.integers(0, rank))
    x = g.operand(shape, dtype, "x")
    scale = g.pick(0.001, 0.02, 0.1, 0.3, 1.7)
    result = [g.constant(np.float32(g.pick(1 / 256, 1 / 256, 1 / 255, 0.01, 0.3, 3.0))), None]
    result[1] = g.constant(builders.zero_point(g.rng, dtype) if g.chance(0.3) else np.array(np.iinfo(dtype).min, dtype))
    source = [g.constant(np.float32(scale)), g.constant(builders.zero_point(g.rng, dtype))]
    y = g.op("QLinearSoftmax", [x, *source, *result], shape, MS, axis=axis - (rank if g.chance(0.3) else 0), opset=opset)
    if g.chance(0.3) and rank > 1:
        b = g.operand([shape[-1], g.pick(3, 16, 40)], dtype, "b")
        out = shape[:-1] + [g.shape[b][-1]]
        y = g.op("QLinearMatMul", [y, *result, b, *g.parameters(dtype), *g.parameters(dtype, -3, 0)], out)
    length = int(np.prod(shape[axis:])) if opset < 13 else shape[axis]
    text = f"seed {seed}: {np.dtype(dtype).name} {shape} axis {axis} opset {opset} {g.text}"
    return g.finish(y), g.feeds, text, length


@pytest.mark.parametrize("chunk", seeds(COUNT, SEED * 100000), ids=lambda c: str(c[0]))
def test_random_softmax(chunk, row_configs):
    for seed in chunk:
        model, feeds, text, length = random_softmax(seed)
        on_npu, on_cpu = check(model, feeds, text, row_configs)
        # One element alone may exceed binary32 where ONNX Runtime scales it, and long rows a small scratchpad.
        assert on_cpu == 0 or length == 1 or length > 2048, f"{on_cpu} nodes on the CPU; {text}"

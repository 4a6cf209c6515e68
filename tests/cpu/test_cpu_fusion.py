# SPDX-License-Identifier: Apache-2.0
"""Operators whose loops or buffers are shared in compiled code (compiler/cpu/loops/joins.cc and places.cc), and
short windows: bit for bit the library's results, and near ONNX Runtime's."""

import numpy as np
import pytest

import tessera
from tests.cpu.cases import Model, check, floats, same_bits


def conv(m, x, filters, channels, kernel, bias=True, seed=0, groups=1, dtype=np.float32, **attributes):
    shape = (filters, channels // groups, *kernel)
    operands = [x, m.constant(floats(*shape, seed=seed + 1, scale=0.3, dtype=dtype))]
    if bias:
        operands.append(m.constant(floats(filters, seed=seed + 2, dtype=dtype)))
    return m.node("Conv", operands, group=groups, **attributes)


def silu(m, x):
    return m.node("Mul", [x, m.node("Sigmoid", [x])])


def blocks(m, x, channels, stride=1, dtype=np.float32):
    """Padded, depthwise and 1x1 convolutions with activations, a residual and a pool."""
    a = m.node("Relu", [conv(m, x, channels, channels, (3, 3), pads=[1] * 4, dtype=dtype)])
    b = silu(m, conv(m, a, channels, channels, (3, 3), groups=channels, pads=[1] * 4, seed=3, dtype=dtype))
    c = m.node("Add", [conv(m, b, channels, channels, (1, 1), seed=6, dtype=dtype), a])
    d = conv(m, c, channels, channels, (1, 1), bias=False, seed=9, strides=[stride] * 2, dtype=dtype)
    return m.node("MaxPool", [d], kernel_shape=[3, 3], pads=[1] * 4)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(3, 3), (5, 13), (20, 20), (9, 40), (7, 70)])
def test_blocks(size, stride):
    m = Model()
    check(m, blocks(m, m.input(floats(2, 8, *size)), 8, stride), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", [(5, 13), (9, 40)])
@pytest.mark.parametrize("vector_bytes", ["16", "32"])
def test_shorter_vectors(monkeypatch, vector_bytes, size):
    monkeypatch.setenv("TESSERA_CPU_VECTOR_BYTES", vector_bytes)
    m = Model()
    check(m, blocks(m, m.input(floats(1, 8, *size)), 8), rtol=1e-4, atol=1e-3)


PLACED = {  # operators whose results depend on where an element stands
    "edge": lambda m, x: m.node("Pad", [x, m.constant(np.array([0, 1, 2, 0, 2, 1]))], mode="edge"),
    "reflect": lambda m, x: m.node("Pad", [x, m.constant(np.array([0, 1, 2, 0, 2, 1]))], mode="reflect"),
    "triangle": lambda m, x: m.node("Trilu", [x], upper=0),
    "gather": lambda m, x: m.node("Gather", [x, m.constant(np.array([2, -1, 0, 2]))], axis=1),
}


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize(("axis", "step"), [(1, -1), (2, -2), (2, -1)])
def test_places_that_a_reader_walks_backwards(name, axis, step):
    m = Model()
    placed = PLACED[name](m, m.input(floats(2, 5, 7)))
    check(m, m.node("Slice", [placed, *(m.constant(np.array([v])) for v in (-1, -(1 << 40), axis, step))]))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_blocks_of_other_types(dtype):
    m = Model()
    check(m, blocks(m, m.input(floats(1, 8, 11, 18, dtype=dtype)), 8, dtype=dtype), oracle=False)


def test_threads_change_no_bit():
    m = Model()
    y = blocks(m, m.input(floats(1, 48, 60, 52)), 48)
    data = m.bytes([y])
    runs = [tessera.Session(data, use_npu=False, threads=n).run(None, m.inputs)[0] for n in (1, 2, 3, 0)]
    assert all(same_bits(runs[0], run) for run in runs[1:])


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_parts_of_a_concatenation(axis):
    m = Model()
    x = m.input(floats(1, 6, 17, 19))
    a = m.node("Relu", [conv(m, x, 6, 6, (3, 3), pads=[1] * 4)])
    b = m.node("Neg", [x])
    joined = m.node("Concat", [a, b, a], axis=axis)
    channels = 18 if axis == 1 else 6
    check(m, [conv(m, joined, 5, channels, (3, 3), pads=[1] * 4, seed=5), a, m.node("Abs", [b])], rtol=1e-4, atol=1e-3)


def test_one_result_in_several_borders():
    m = Model()
    x = m.input(floats(1, 4, 21, 33))
    a = m.node("Relu", [conv(m, x, 4, 4, (1, 1))])
    b = conv(m, a, 4, 4, (3, 3), pads=[1] * 4, seed=3)
    c = conv(m, a, 4, 4, (5, 5), pads=[2] * 4, seed=5)
    d = conv(m, a, 4, 4, (2, 2), pads=[0, 0, 1, 1], seed=7)
    p = m.node("MaxPool", [a], kernel_shape=[3, 3], pads=[1] * 4)
    check(m, [m.node("Add", [m.node("Add", [b, c]), m.node("Add", [d, p])]), a], rtol=1e-4, atol=1e-3)


def test_other_ranks():
    m = Model()
    x = m.input(floats(2, 6, 50))
    y = m.node("Relu", [conv(m, x, 6, 6, (5,), pads=[2, 2])])
    check(m, conv(m, y, 6, 6, (3,), groups=6, pads=[1, 1], seed=4), rtol=1e-4, atol=1e-4)
    m = Model()
    x = m.input(floats(1, 4, 6, 7, 20))
    y = m.node("Relu", [conv(m, x, 4, 4, (3, 3, 3), pads=[1] * 6)])
    check(m, conv(m, y, 4, 4, (3, 3, 3), groups=4, pads=[1] * 6, seed=4), rtol=1e-4, atol=1e-3)


def test_prelu_as_keras_spells_it():
    """LLVM needs two rounds to combine the instructions of this chain."""
    m = Model()
    c = conv(m, m.input(floats(1, 4, 9, 9)), 4, 4, (3, 3), groups=4)
    slope = m.constant(floats(4, 7, 7, seed=5))
    check(m, m.node("Mul", [m.node("Relu", [m.node("Neg", [c])]), slope]), rtol=1e-4, atol=1e-4)


def test_products_with_readers():
    m = Model()
    x = m.input(floats(3, 20, 32))
    y = m.node("Add", [m.node("MatMul", [x, m.constant(floats(32, 48, seed=1, scale=0.2))]), m.constant(floats(48))])
    gelu = m.node("Mul", [y, m.node("Add", [m.node("Erf", [y]), m.constant(np.float32(1))])])
    back = m.node("MatMul", [gelu, m.constant(floats(48, 32, seed=2, scale=0.2))])
    check(m, [m.node("Add", [back, x]), m.node("Tanh", [back])], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (1, 4), (2, 1)])
@pytest.mark.parametrize("step", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_short_windows(kernel, step, dilation):
    m = Model()
    x = m.input(floats(1, 5, 30, 41))
    a = conv(m, x, 5, 5, kernel, groups=5, strides=step, dilations=[dilation] * 2)
    b = m.node("MaxPool", [x], kernel_shape=kernel, strides=step)
    c = m.node("AveragePool", [x], kernel_shape=kernel, strides=step)
    check(m, [a, b, c])


@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 3, 1), (1, 2, 1, 4), (1, 1, 1.5, 2)])
def test_resize_by_repetition(scales):
    for attributes in ({}, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}):
        m = Model()
        x = m.node("Relu", [m.input(floats(1, 4, 8, 10))])
        y = m.node("Resize", [x, None, m.constant(np.array(scales, np.float32))], mode="nearest", **attributes)
        check(m, m.node("Neg", [y]))

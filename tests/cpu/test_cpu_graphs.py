# SPDX-License-Identifier: Apache-2.0
"""Graphs of several operators as compiled CPU code: the bits of the operator library, on any number of threads, in
vectors of any shape, and out of the cache."""

import concurrent.futures

import numpy as np
import pytest

import tessera
from tests.cpu.cases import Model, check, floats, one, same_bits


def random_graph(rng):
    """Up to 40 operators on a pool of tensors [a, b, c], with values used several times, views of views, and
    intermediate outputs."""
    m = Model()
    shape = tuple(int(v) for v in rng.choice([1, 2, 3, 5, 8, 17, 33], 3))
    pool = [(m.input(floats(*shape, seed=int(rng.integers(1000)))), shape) for _ in range(2)]
    for _ in range(int(rng.integers(3, 40))):
        x, s = pool[int(rng.integers(len(pool)))]
        same = [v for v, t in pool if t == s]
        other = same[int(rng.integers(len(same)))]
        kind = int(rng.integers(12))
        if kind == 0:
            y, t = m.node(str(rng.choice(["Add", "Sub", "Mul", "Max"])), [x, other]), s
        elif kind == 1:
            y, t = m.node(str(rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs"])), [x]), s
        elif kind == 2:
            perm = [int(v) for v in rng.permutation(3)]
            y, t = m.node("Transpose", [x], perm=perm), tuple(s[p] for p in perm)
        elif kind == 3:
            axis = int(rng.integers(3))
            y, t = m.node("Concat", [x, other], axis=axis), tuple(2 * d if i == axis else d for i, d in enumerate(s))
        elif kind == 4 and max(s) > 1:
            axis = int(np.argmax(s))
            cut = int(rng.integers(1, s[axis]))
            parts = m.node("Split", [x, m.constant(np.array([cut, s[axis] - cut]))], 2, axis=axis)
            for part, size in zip(parts, (cut, s[axis] - cut)):
                pool.append((part, tuple(size if i == axis else d for i, d in enumerate(s))))
            continue
        elif kind == 5:
            axis, step = int(rng.integers(3)), int(rng.choice([1, 2, -1]))
            first, last = (0, 1 << 40) if step > 0 else (-1, -(1 << 40))
            y = m.node("Slice", [x, *(m.constant(np.array([v])) for v in (first, last, axis, step))])
            t = tuple(-(-d // abs(step)) if i == axis else d for i, d in enumerate(s))
        elif kind == 6:
            y, t = m.node("Pad", [x, m.constant(np.array([0, 1, 0, 1, 0, 2]))]), (s[0] + 1, s[1] + 1, s[2] + 2)
        elif kind == 7:
            y, t = m.node("Softmax", [x], axis=int(rng.integers(3))), s
        elif kind == 8:
            axis = int(rng.integers(3))
            r = m.node("ReduceSum", [x, m.constant(np.array([axis]))], keepdims=1)
            y, t = m.node("Sub", [x, r]), s
        elif kind == 9:
            y, t = m.node("Reshape", [x, m.constant(np.array([s[2], s[0], s[1]]))]), (s[2], s[0], s[1])
        elif kind == 10:
            y, t = m.node("MatMul", [x, m.node("Transpose", [other], perm=[0, 2, 1])]), (s[0], s[1], s[1])
        else:
            y, t = m.node("Add", [x, m.constant(floats(s[2], seed=3))]), s
        if np.prod(t) < 100_000:
            pool.append((y, t))
    made = [v for v, _ in pool[2:]]
    if not made:
        return random_graph(rng)
    chosen = {made[-1], *(made[int(i)] for i in rng.integers(len(made), size=2))}
    return m, [v for v in made if v in chosen]


@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed):
    m, outputs = random_graph(np.random.default_rng(seed))
    check(m, outputs, oracle=False)


def assert_same_on_any_number_of_threads(m, output):
    data = m.bytes([output])
    want = tessera.Session(data, use_npu=False, cpu_codegen=False).run(None, m.inputs)[0]
    for threads in (0, 1, 2, 3, 8):
        session = tessera.Session(data, use_npu=False, threads=threads)
        for _ in range(3):
            assert same_bits(session.run(None, m.inputs)[0], want), f"{threads} threads"


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("width", [7, 13, 16, 27, 33, 56])
def test_rows_of_any_width_on_any_number_of_threads(width, stride):
    m = Model()
    x = m.input(floats(1, 9, width, width))
    w, b = m.constant(floats(21, 9, 3, 3, seed=1)), m.constant(floats(21, seed=2))
    y = m.node("Conv", [x, w, b], pads=[1, 1, 1, 1], strides=[stride, stride])
    assert_same_on_any_number_of_threads(m, m.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2]))


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 300.0])
def test_products_of_float16_have_the_bits_of_two_roundings(scale):
    half = [(scale * floats(*shape, seed=i)).astype(np.float16) for i, shape in enumerate([(5, 300), (300, 40)])]
    half[0][0, :3] = np.inf, -np.inf, np.nan
    half[0][1, :4] = 0.0, -0.0, 6e-8, -65504
    one("MatMul", half, oracle=False)
    one("Gemm", [*half, np.zeros(40, np.float16)], oracle=False)
    x, w = half[0][2:].reshape(1, 9, 10, 10), half[1][:3, :27].reshape(9, 1, 3, 3)
    one("Conv", [x, w], oracle=False, group=9)
    one("Conv", [x, w.reshape(1, 9, 3, 3)], oracle=False)


def test_products_functions_and_sums_on_any_number_of_threads():
    m = Model()
    x, w = m.input(floats(3, 77, 61)), m.constant(floats(61, 131, seed=1))
    y = m.node("Erf", [m.node("MatMul", [x, w])])
    y = m.node("Softmax", [m.node("Mul", [y, m.node("Sigmoid", [y])])], axis=-1)
    assert_same_on_any_number_of_threads(m, m.node("ReduceMean", [y], axes=[1], keepdims=0))


def test_sessions_that_run_at_the_same_time_share_the_threads():
    m = Model()
    y = m.node("Conv", [m.input(floats(1, 16, 40, 40)), m.constant(floats(32, 16, 3, 3, seed=1))])
    data = m.bytes([y])
    want = tessera.Session(data, use_npu=False, threads=1).run(None, m.inputs)[0]
    sessions = [tessera.Session(data, use_npu=False, threads=threads) for threads in (0, 2, 3, 8)]

    def work(session):
        return all(same_bits(session.run(None, m.inputs)[0], want) for _ in range(50))

    with concurrent.futures.ThreadPoolExecutor(len(sessions)) as pool:
        assert all(pool.map(work, sessions))


def test_machine_code_of_the_cache_is_the_code_that_was_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    m = Model()
    data = m.bytes([m.node("Relu", [m.node("MatMul", [m.input(floats(5, 9)), m.constant(floats(9, 7, seed=1))])])])
    want = tessera.Session(data, use_npu=False, cpu_cache=False).run(None, m.inputs)[0]
    assert not list(tmp_path.rglob("*.code"))
    for _ in range(2):
        session = tessera.Session(data, use_npu=False)
        assert same_bits(session.run(None, m.inputs)[0], want)
        assert len(list(tmp_path.rglob("*.code"))) == 1
    next(tmp_path.rglob("*.code")).write_bytes(b"damaged")
    assert same_bits(tessera.Session(data, use_npu=False).run(None, m.inputs)[0], want)

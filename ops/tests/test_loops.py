# SPDX-License-Identifier: Apache-2.0
"""The integer operators of domain ai.tessera against NumPy: Requantise, Pairs, WindowSum, AxisSum."""

import _tessera_ops
import numpy as np
import pytest

DOMAIN = "ai.tessera"


def run(name, attributes, *arrays):
    (result,) = _tessera_ops.run_node(name, DOMAIN, 1, attributes, list(arrays), 1)
    return result


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_requantise(axis):
    rng = np.random.default_rng(1)
    x = rng.integers(-(2**20), 2**20, (5, 6, 7)).astype(np.int32)
    channels = x.shape[axis]
    scale, bias = (rng.random(channels) / 4096).astype(np.float32), rng.integers(-999, 999, channels).astype(np.int32)
    shape = [1, 1, 1]
    shape[axis] = channels
    scaled = (x + bias.reshape(shape)).astype(np.float32) * scale.reshape(shape)
    for unsigned, low, high, zero in ((0, -100, 90, 7), (1, 0, 200, 20)):
        found = run(
            "Requantise", {"axis": axis, "low": low, "high": high, "zero": zero, "unsigned": unsigned}, x, scale, bias
        )
        wanted = np.rint(np.clip(scaled, low, high)) + zero
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == (np.uint8 if unsigned else np.int8)


def test_pairs_broadcast():
    rng = np.random.default_rng(2)
    x, y = rng.integers(-128, 128, (4, 1, 5)).astype(np.int8), rng.integers(0, 256, (3, 1)).astype(np.uint8)
    table = rng.integers(-128, 128, 65536).astype(np.int8)
    found = run("Pairs", {"table": table}, x, y)
    np.testing.assert_array_equal(found, table[256 * x.view(np.uint8).astype(int) + y])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_window_sums(dtype):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 100, (2, 3, 9, 8)).astype(dtype)
    window = {"kernel_shape": [3, 2], "strides": [2, 3], "dilations": [2, 1], "pads": [1, 0, 2, 1], "pad_value": 5}
    padded = np.pad(x.astype(np.int32), ((0, 0), (0, 0), (1, 2), (0, 1)), constant_values=5)
    rows, columns = (9 + 3 - 5) // 2 + 1, (8 + 1 - 2) // 3 + 1
    wanted = sum(
        padded[:, :, 2 * dy : 2 * dy + 2 * rows - 1 : 2, dx : dx + 3 * columns - 2 : 3]
        for dy in range(3)
        for dx in range(2)
    )
    np.testing.assert_array_equal(run("WindowSum", window, x), wanted)


def test_axis_sums():
    x = np.random.default_rng(4).integers(-128, 128, (3, 4, 5)).astype(np.int8)
    np.testing.assert_array_equal(run("AxisSum", {"axes": [0, -1]}, x), x.sum((0, 2), np.int32, keepdims=True))


@pytest.mark.parametrize(
    "name, attributes, arrays, message",
    [
        ("Requantise", {}, [np.ones((2, 3), np.int32), np.ones(2, np.float32)], "one for each channel"),
        ("Requantise", {"low": 3, "high": 2}, [np.ones(3, np.int32), np.ones(1, np.float32)], "low is at most high"),
        ("Requantise", {}, [np.ones(3, np.float32), np.ones(1, np.float32)], "X has element type float"),
        ("Pairs", {"table": np.zeros(256, np.int8)}, [np.ones(3, np.int8)] * 2, "has 65,536 bytes"),
        ("WindowSum", {"kernel_shape": [9]}, [np.ones((1, 1, 4), np.int8)], "WindowSum"),
        ("WindowSum", {"kernel_shape": [2]}, [np.ones((1, 4), np.int8)], "must have at least rank 3"),
        ("AxisSum", {"axes": [2]}, [np.ones((1, 4), np.int8)], "axis"),
    ],
)
def test_errors(name, attributes, arrays, message):
    with pytest.raises(Exception, match=message) as caught:
        run(name, attributes, *arrays)
    assert "Tessera" in type(caught.value).__name__

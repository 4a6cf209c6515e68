# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM beside ONNX Runtime on one thread, to the bit where the activations are sigmoid, tanh or relu.
ONNX Runtime splits a batch between its threads and quantises the state of each part by itself; on one thread, as in
ort_compare, the batch is one part."""

import numpy as np
import pytest
from ort_compare import check, check_rejected

OPTIONAL = ("B", "sequence_lens", "initial_h", "initial_c", "P")


def operands(directions=1, steps=5, batch=3, size=4, hidden=6, seed=0, weights=np.int8, channels=False, spread=1.0):
    random = np.random.default_rng([seed, directions, hidden])
    draw = lambda *shape: (random.uniform(-1, 1, shape) * spread).astype(np.float32)
    wide, range_ = 4 * hidden, np.iinfo(weights)
    values = {
        "X": draw(steps, batch, size) * 3,
        "W": random.integers(range_.min, range_.max + 1, (directions, size, wide)).astype(weights),
        "R": random.integers(range_.min, range_.max + 1, (directions, hidden, wide)).astype(weights),
        "B": draw(directions, 2 * wide),
        "sequence_lens": random.integers(1, steps + 1, batch).astype(np.int32),
        "initial_h": draw(directions, batch, hidden),
        "initial_c": draw(directions, batch, hidden) * 2,
        "P": draw(directions, 3 * hidden),
    }
    shape = (directions, wide) if channels else (directions,)
    for name in ("W", "R"):
        values[f"{name}_scale"] = random.uniform(0.001, 0.02, shape).astype(np.float32)
        # Zero points of columns must be one value, and 0 where the weights are signed.
        zero = random.integers(range_.min // 4, range_.max // 4 + 128 * (range_.min == 0), (directions,))
        if channels:
            zero = np.full(shape, 0 if range_.min < 0 else zero[0])
        values[f"{name}_zero_point"] = zero.astype(weights)
    return values


def pick(values, *names):
    return [None if name in OPTIONAL and name not in names else value for name, value in values.items()]


def compare(values, names, direction="forward", outputs=3, **attributes):
    hidden = values["R"].shape[1]
    weights = [1, 2, 8, 9, 10, 11]
    check(
        "DynamicQuantizeLSTM",
        pick(values, *names),
        domain="com.microsoft",
        opset=1,
        attributes={"hidden_size": hidden, "direction": direction} | attributes,
        outputs=outputs,
        constants=weights,
    )


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize("channels", [False, True])
def test_operands(direction, weights, channels):
    values = operands(2 if direction == "bidirectional" else 1, weights=weights, channels=channels)
    for names in [(), ("B",), ("P",), ("sequence_lens",), ("initial_h",), ("initial_c", "B"), OPTIONAL]:
        compare(values, names, direction)


@pytest.mark.parametrize("steps, batch, size, hidden", [(1, 1, 1, 1), (7, 1, 33, 17), (3, 9, 5, 31), (2, 2, 130, 70)])
def test_sizes(steps, batch, size, hidden):
    for seed in range(4):
        compare(operands(1, steps, batch, size, hidden, seed, channels=seed % 2 == 1), OPTIONAL)
        compare(operands(2, steps, batch, size, hidden, seed), ("B",), "bidirectional")


def test_long_sequence():
    """Errors of a step would pile up."""
    compare(operands(1, 200, 2, 8, 16, spread=2.0), ("B", "initial_h"))


def test_activations_and_clip():
    values = operands(1, seed=3)
    compare(values, OPTIONAL, clip=0.4)
    compare(values, ("P",), clip=0.4, input_forget=1)
    compare(values, ("B",), activations=["Sigmoid", "Relu", "Tanh"])
    compare(values, ("B",), activations=["tanh", "SIGMOID", "relu"])
    compare(values, ("B",), activations=["HardSigmoid", "Tanh", "LeakyRelu"], activation_alpha=[0.25, 0.125])


def test_lengths_of_zero_and_shorter_than_x():
    values = operands(2, steps=6, batch=4, seed=5)
    for lengths in ([0, 3, 2, 1], [4, 4, 4, 4], [1, 0, 1, 1]):
        values["sequence_lens"] = np.array(lengths, np.int32)
        compare(values, ("sequence_lens", "initial_h", "initial_c"), "bidirectional")


def test_some_results():
    values = operands(seed=6)
    compare(values, ("B",), outputs=[True, False, False])
    compare(values, ("B",), outputs=[False, True, True])


def test_inference_and_errors():
    values = operands(hidden=6)
    attributes = {"hidden_size": 6}

    def rejected(pattern, **changes):
        check_rejected(
            "DynamicQuantizeLSTM",
            pick(values | changes),
            match=pattern,
            domain="com.microsoft",
            opset=1,
            attributes=attributes,
            outputs=3,
        )

    rejected("W_scale has shape", W_scale=np.ones((1, 5), np.float32))
    rejected("R_zero_point has shape", R_zero_point=np.zeros(3, np.int8))
    rejected("one type", W_zero_point=np.zeros(1, np.uint8))
    rejected("input size in W", W=np.zeros((1, 5, 24), np.int8))
    rejected("hidden size in R", R=np.zeros((1, 5, 24), np.int8))
    rejected("element type", W=np.zeros((1, 4, 24), np.float32))

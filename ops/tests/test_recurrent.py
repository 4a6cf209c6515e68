# SPDX-License-Identifier: Apache-2.0
"""RNN, GRU and LSTM beside ONNX Runtime, which serves layout 0 and float32; layout 1 and other element types are the
same numbers transposed, widened or narrowed."""

import numpy as np
import pytest
from ort_compare import check, check_rejected, infer, run_tessera

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TOLERANCE = dict(rtol=2e-5, atol=2e-6)


def operands(op, directions=1, steps=5, batch=3, size=4, hidden=6, seed=0, dtype=np.float32, scale=1.0):
    random = np.random.default_rng([seed, GATES[op], directions])
    draw = lambda *shape: (random.uniform(-1, 1, shape) * scale).astype(dtype)
    gates = GATES[op] * hidden
    inputs = {
        "X": draw(steps, batch, size),
        "W": draw(directions, gates, size),
        "R": draw(directions, gates, hidden),
        "B": draw(directions, 2 * gates),
        "sequence_lens": random.integers(1, steps + 1, batch).astype(np.int32),
        "initial_h": draw(directions, batch, hidden),
    }
    if op == "LSTM":
        inputs |= {"initial_c": draw(directions, batch, hidden), "P": draw(directions, 3 * hidden)}
    return inputs


def pick(inputs, *names):
    values = [value if name in ("X", "W", "R") or name in names else None for name, value in inputs.items()]
    while values[-1] is None:
        values.pop()
    return values


def results(op):
    return 3 if op == "LSTM" else 2


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("opset", [7, 14, 22])
def test_operands(op, direction, opset):
    inputs = operands(op, 2 if direction == "bidirectional" else 1)
    attributes = {"hidden_size": 6, "direction": direction}
    sets = [(), ("B",), ("B", "sequence_lens"), ("initial_h",), tuple(inputs)]
    if op == "LSTM":
        sets += [("initial_c",), ("P",), ("B", "initial_h", "initial_c")]
    for names in sets:
        check(op, pick(inputs, *names), opset=opset, attributes=attributes, outputs=results(op), **TOLERANCE)
    check(op, pick(inputs, "B"), opset=opset, attributes=attributes, outputs=[False, True], **TOLERANCE)


@pytest.mark.parametrize("reset", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru_linear_before_reset(reset, direction):
    inputs = operands("GRU", 2 if direction == "bidirectional" else 1, seed=1)
    for names in [(), tuple(inputs)]:
        check(
            "GRU",
            pick(inputs, *names),
            attributes={"hidden_size": 6, "direction": direction, "linear_before_reset": reset},
            outputs=2,
            **TOLERANCE,
        )


def test_lstm_input_forget():
    inputs = operands("LSTM", seed=2)
    check("LSTM", pick(inputs, *inputs), attributes={"hidden_size": 6, "input_forget": 1}, outputs=3, **TOLERANCE)


@pytest.mark.parametrize("op", GATES)
def test_clip(op):
    inputs = operands(op, seed=3, scale=2.0)
    check(
        op, pick(inputs, "B", "initial_h"), attributes={"hidden_size": 6, "clip": 0.7}, outputs=results(op), **TOLERANCE
    )


@pytest.mark.parametrize(
    "names,alphas,betas",
    [
        (["Relu"], [], []),
        (["Tanh"], [], []),
        (["Sigmoid"], [], []),
        (["Affine"], [0.5], [0.1]),
        (["LeakyRelu"], [0.2], []),
        (["ThresholdedRelu"], [0.3], []),
        (["ScaledTanh"], [0.7], [0.9]),
        (["HardSigmoid"], [0.3], [0.4]),
        (["Elu"], [0.6], []),
        (["Softsign"], [], []),
        (["Softplus"], [], []),
        (["Relu", "Tanh"], [], []),  # of one direction the first one counts
    ],
)
def test_activations(names, alphas, betas):
    inputs = operands("RNN", seed=4)
    given = {
        "activations": names,
        "activation_alpha": alphas or None,
        "activation_beta": betas or None,
        "hidden_size": 6,
    }
    check("RNN", pick(inputs, "B", "initial_h"), attributes=given, outputs=2, **TOLERANCE)


@pytest.mark.parametrize(
    "name,alpha,beta",
    [("HardSigmoid", 0.2, 0.5), ("LeakyRelu", 0.01, 0.0), ("Elu", 1.0, 0.0), ("ThresholdedRelu", 1.0, 0.0)],
)
def test_default_parameters(name, alpha, beta):
    """Those of the operators of the same name; ONNX Runtime's RNN takes 0 instead."""
    inputs = pick(operands("RNN", seed=4), "B", "initial_h")
    given = {"activations": [name], "activation_alpha": [alpha], "activation_beta": [beta]}
    check(
        "RNN",
        inputs,
        attributes={"activations": [name], "hidden_size": 6},
        outputs=2,
        expected=run_tessera("RNN", inputs, attributes=given, outputs=2),
    )


def test_activations_of_gates():
    lstm = operands("LSTM", 2, seed=5)
    given = {
        "activations": ["HardSigmoid", "Tanh", "Affine", "Sigmoid", "LeakyRelu", "Softsign"],
        "activation_alpha": [0.3, 0.5, 0.1],
        "activation_beta": [0.4, 0.2],
        "direction": "bidirectional",
        "hidden_size": 6,
    }
    check("LSTM", pick(lstm, *lstm), attributes=given, outputs=3, **TOLERANCE)
    gru = operands("GRU", seed=6)
    for f in (["HardSigmoid", "Relu"], ["Sigmoid", "Softsign"]):
        check("GRU", pick(gru, *gru), attributes={"activations": f, "hidden_size": 6}, outputs=2, **TOLERANCE)


@pytest.mark.parametrize("op", GATES)
def test_layout(op):
    inputs = operands(op, 2, seed=7)
    attributes = {"hidden_size": 6, "direction": "bidirectional"}
    swapped = [v.swapaxes(0, 1) if name in ("X", "initial_h", "initial_c") else v for name, v in inputs.items()]
    y, *last = run_tessera(op, list(inputs.values()), attributes=attributes, outputs=results(op))
    check(
        op,
        swapped,
        attributes=attributes | {"layout": 1},
        outputs=results(op),
        expected=[y.transpose(2, 0, 1, 3), *[v.swapaxes(0, 1) for v in last]],
    )


@pytest.mark.parametrize("op", GATES)
def test_element_types(op):
    wide = operands(op, dtype=np.float64, seed=8)
    narrow = [v if v.dtype == np.int32 else v.astype(np.float32) for v in wide.values()]
    fine = run_tessera(op, list(wide.values()), outputs=results(op))
    for left, right in zip(run_tessera(op, narrow, outputs=results(op)), fine):
        assert right.dtype == np.float64
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
    half = [v if v.dtype == np.int32 else v.astype(np.float16) for v in wide.values()]
    whole = [v if v.dtype == np.int32 else v.astype(np.float32) for v in half]
    for left, right in zip(run_tessera(op, half, outputs=results(op)), run_tessera(op, whole, outputs=results(op))):
        np.testing.assert_array_equal(left, right.astype(np.float16))


@pytest.mark.parametrize("op", GATES)
def test_zero_length(op):
    inputs = operands(op, seed=9)
    inputs["sequence_lens"] = np.array([0, 5, 2], np.int32)
    given = dict(attributes={"hidden_size": 6}, outputs=results(op))
    y, *last = run_tessera(op, pick(inputs, "sequence_lens", "B"), **given)
    assert not y[:, :, 0].any() and not any(v[:, 0].any() for v in last)
    if op != "RNN":  # ONNX Runtime's RNN leaves the last state unset
        check(op, pick(inputs, "sequence_lens", "B"), **given, **TOLERANCE)


def test_bad_operands():
    inputs = operands("LSTM")
    x, w, r = inputs["X"], inputs["W"], inputs["R"]
    check_rejected("LSTM", [x, w[:, :-1], r], match="multiple")
    check_rejected("LSTM", [x, w, r[..., :-1]], match="hidden size")
    check_rejected("LSTM", [x, w[..., :-1], r], match="input size")
    check_rejected("LSTM", [x, w, r], attributes={"direction": "bidirectional"}, match="directions")
    check_rejected("LSTM", [x, w, r], attributes={"direction": "sideways"}, match="sideways")
    check_rejected("LSTM", [x, w, r], attributes={"activations": ["Tanh"]}, match="activations")
    check_rejected("LSTM", [x, w, r], attributes={"activations": ["Tanh", "Tanh", "Wave"]}, match="wave")
    check_rejected("LSTM", [x, w, r], attributes={"hidden_size": 5}, match="hidden size")
    check_rejected("LSTM", [x[0], w, r], match="rank")
    with pytest.raises(Exception, match="sequence length"):
        run_tessera("LSTM", [x, w, r, None, np.array([6, 1, 1], np.int32)])
    assert infer("LSTM", [("float32", [-1, 2, 4]), ("float32", [1, 24, 4]), ("float32", None)], outputs=3)[0][1] == [
        -1,
        1,
        2,
        6,
    ]

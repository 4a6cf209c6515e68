# SPDX-License-Identifier: Apache-2.0
"""Random graphs of quantised image operators, from a seed, with what quantisers leave behind."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.oracle.model_builder import F32, Builder, Case, Quantized


def random_graph(seed, steps=8, form="qdq", dtype=None, opset=None, disorder=True) -> Case:
    """A graph of image operators over a pool of tensors that later steps read again. With `disorder` (QDQ form) it also
    holds what quantisers leave behind: shared DQ, float operators between DQ and Q, activations that a Q does not
    imply, pairs of Q and DQ in a row, transposes between DQ and Conv, tensors that are outputs as well, float weights,
    weights given as Q of a constant."""
    rng = np.random.default_rng([115, seed])
    opset = opset or int(rng.choice([13, 13, 17, 19, 21]))
    b = Builder(
        [116, seed],
        form=form,
        dtype=dtype or str(rng.choice(["u8", "u8", "s8"])),
        opset=opset,
        zero_points=form == "qop" or not disorder or rng.random() < 0.8,
        vector_parameters=False,
    )
    weight = "s8"
    size = int(rng.choice([6, 8, 9]))
    pool = [b.activation((1, int(rng.choice([1, 3, 4, 8])), size, size)) for _ in range(2)]
    disorder = disorder and form == "qdq"

    def pick():
        return pool[int(rng.integers(max(0, len(pool) - 3), len(pool)))]

    for _step in range(steps):
        x = pick()
        n, c, h, w = x.shape
        kind = str(
            rng.choice(
                [
                    "conv",
                    "conv",
                    "conv",
                    "depthwise",
                    "add",
                    "mul",
                    "concat",
                    "average",
                    "max",
                    "leaky",
                    "sigmoid",
                    "slice",
                    "resize",
                    "transpose",
                    "global",
                    "relu_float",
                    "sub",
                    "double",
                    "transposed_conv",
                    "float_chain",
                    "pad",
                    "split",
                    "conv_float_weights",
                    "conv_quantised_constant",
                    "conv_shared",
                    "clip_loose",
                    "conv_max",
                    "also_output",
                    "conv_two_q",
                    "pad_conv",
                    "resize_linear",
                ]
            )
        )
        if kind == "conv":
            k = int(rng.choice([1, 3]))
            pool.append(
                b.conv(
                    x,
                    int(rng.choice([1, 3, 4, 8])),
                    [k, k],
                    pads=[k // 2] * 4,
                    weight=weight,
                    per_channel=bool(rng.integers(2)),
                    bias=str(rng.choice(["none", "float", "dq"])),
                    activation=[None, "relu", "clip6"][int(rng.integers(3))],
                )
            )
        elif kind == "depthwise":
            pool.append(
                b.conv(
                    x,
                    c,
                    [3, 3],
                    group=c,
                    pads=[1] * 4,
                    weight=weight,
                    per_channel=bool(rng.integers(2)),
                    activation="relu",
                )
            )
        elif kind in ("add", "mul"):
            y = next((p for p in reversed(pool) if p.shape == x.shape and p.name != x.name), x)
            pool.append(b.binary(kind.capitalize(), x, y))
        elif kind == "concat":
            y = next((p for p in reversed(pool) if p.shape[2:] == x.shape[2:] and p.name != x.name), x)
            pool.append(b.concat([x, y], 1, dataclasses.replace(x, name="") if rng.random() < 0.3 else None))
        elif kind == "average" and h > 2 and w > 2:
            pool.append(b.unary("AveragePool", x, (n, c, h - 1, w - 1), kernel_shape=[2, 2]))
        elif kind == "max" and h > 2 and w > 2:
            pool.append(b.mover("MaxPool", x, [], (n, c, h - 1, w - 1), kernel_shape=[2, 2]))
        elif kind == "leaky":
            pool.append(b.unary("LeakyRelu", x, alpha=0.1))
        elif kind == "sigmoid":
            pool.append(b.unary("Sigmoid", x))
        elif kind == "slice" and h > 3:
            pool.append(
                b.mover(
                    "Slice",
                    x,
                    [b.constant(np.array([1])), b.constant(np.array([h])), b.constant(np.array([2]))],
                    (n, c, h - 1, w),
                )
            )
        elif kind == "resize" and h * w < 100:
            pool.append(
                b.mover(
                    "Resize", x, ["", b.constant(np.array([1, 1, 2, 2], F32))], (n, c, 2 * h, 2 * w), mode="nearest"
                )
            )
        elif kind == "transpose" and h == w:
            pool.append(b.mover("Transpose", x, [], (n, c, w, h), perm=[0, 1, 3, 2]))
        elif kind == "global":
            pool.append(b.binary("Mul", x, b.unary("GlobalAveragePool", x, (n, c, 1, 1))))
        elif not disorder:
            continue
        elif kind == "relu_float":  # a Relu that the Q does not imply: the convolution stays float
            out = b.choose(x.shape, span=x.highest - x.lowest)
            pool.append(b.quantize(b.node("Relu", [b.dequantize(x)]), dataclasses.replace(out, shape=x.shape)))
        elif kind == "sub":
            pool.append(
                b.quantize(
                    b.node("Sub", [b.dequantize(x), b.constant(F32(0.5))]), b.choose(x.shape, span=x.highest - x.lowest)
                )
            )
        elif kind == "double":  # two pairs of Q and DQ in a row
            y = b.quantize(b.dequantize(x), b.choose(x.shape, span=x.highest - x.lowest))
            pool.append(dataclasses.replace(y, shape=x.shape))
        elif kind == "transposed_conv":  # a transpose between DQ and Conv, as converters from channels-last leave it
            t = b.node("Transpose", [b.node("Transpose", [b.dequantize(x)], perm=[0, 2, 3, 1])], perm=[0, 3, 1, 2])
            parts = b.int_weights((3, 3, c, 4), np.int8)
            weights = b.node("Transpose", [b.weights_dq(parts, 0)], perm=[3, 2, 0, 1])
            out = b.choose((n, 4, h, w), span=3 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(9 * c))
            pool.append(b.quantize(b.node("Conv", [t, weights], pads=[1] * 4), out))
        elif kind == "float_chain":
            y = b.node("HardSigmoid", [b.dequantize(x)])
            pool.append(b.quantize(y, dataclasses.replace(b.choose(x.shape, span=1.0), shape=x.shape)))
        elif kind == "pad":
            pool.append(
                b.quantize(
                    b.node("Pad", [b.dequantize(x), b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1]))]),
                    dataclasses.replace(x, shape=(n, c, h + 1, w + 1)),
                )
            )
        elif kind == "split" and c % 2 == 0:
            first, second = b.node(
                "Split", [b.dequantize(x), b.constant(np.array([c // 2, c // 2]))], outputs=2, axis=1
            )
            half = dataclasses.replace(x, shape=(n, c // 2, h, w))
            pool += [b.quantize(first, half), b.quantize(second, half)]
        elif kind == "conv_float_weights":
            weights = b.constant(rng.normal(0, 0.3, (3, c, 3, 3)).astype(F32))
            bias = [b.constant(rng.normal(0, 1, 3).astype(F32))] if rng.random() < 0.5 else []
            out = b.choose((n, 3, h, w), span=(x.highest - x.lowest) * np.sqrt(9 * c))
            pool.append(b.quantize(b.node("Conv", [b.dequantize(x), weights, *bias], pads=[1] * 4), out))
        elif kind == "conv_quantised_constant":
            q = Quantized("", 0.01, 0, np.int8, (4, c, 1, 1))
            weights = b.dequantize(b.quantize(b.constant(rng.normal(0, 0.5, q.shape).astype(F32)), q))
            out = b.choose((n, 4, h, w), span=(x.highest - x.lowest) * np.sqrt(c))
            pool.append(b.quantize(b.node("Conv", [b.dequantize(x), weights]), out))
        elif kind == "conv_shared":  # one DQ for two consumers
            d = b.dequantize(x)
            parts = b.int_weights((4, c, 1, 1), np.int8)
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            pool.append(b.quantize(b.node("Conv", [d, b.weights_dq(parts, 0)]), out))
            pool.append(
                b.quantize(
                    b.node("LeakyRelu", [d], alpha=0.2),
                    dataclasses.replace(b.choose(x.shape, span=x.highest - x.lowest), shape=x.shape),
                )
            )
        elif kind == "clip_loose":  # a Clip inside the range of the Q
            parts = b.int_weights((4, c, 1, 1), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)])
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            pool.append(
                b.quantize(b.node("Clip", [y, b.constant(F32(out.lowest / 2)), b.constant(F32(out.highest / 2))]), out)
            )
        elif kind == "conv_max" and h > 2 and w > 2:  # Q behind the pool
            parts = b.int_weights((4, c, 3, 3), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)], pads=[1] * 4)
            out = b.choose(
                (n, 4, h - 1, w - 1), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(9 * c)
            )
            pool.append(b.quantize(b.node("MaxPool", [y], kernel_shape=[2, 2]), out))
        elif kind == "conv_two_q":  # two Q of one value: with the same parameters or with equal ones
            parts = b.int_weights((4, c, 1, 1), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)])
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            names = b.parameters(out, optional=False)
            pool.append(dataclasses.replace(out, name=b.node("QuantizeLinear", [y, *names])))
            if rng.random() < 0.5:
                names = b.parameters(out, optional=False)
            pool.append(dataclasses.replace(out, name=b.node("QuantizeLinear", [y, *names])))
        elif kind == "resize_linear" and h * w < 100:
            pool.append(
                b.mover(
                    "Resize",
                    x,
                    ["", b.constant(np.array([1, 1, 1.5, 2], F32))],
                    (n, c, int(h * 1.5), 2 * w),
                    mode="linear",
                )
            )
        elif kind == "pad_conv":  # a Pad between DQ and Conv, as converters leave it
            parts = b.int_weights((4, c, 3, 3), np.int8)
            padded = b.node("Pad", [b.dequantize(x), b.constant(np.array([0, 0, 1, 0, 0, 0, 1, 2]))])
            y = b.node("Conv", [padded, b.weights_dq(parts, 0)], pads=[0, 1, 0, 0])
            pool.append(
                b.quantize(
                    y,
                    b.choose((n, 4, h, w + 1), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(9 * c)),
                )
            )
        elif kind == "also_output":  # the float result of a convolution is an output: no fusion
            parts = b.int_weights((4, c, 1, 1), np.int8)
            y = b.node("Conv", [b.dequantize(x), b.weights_dq(parts, 0)])
            if rng.random() < 0.5:
                b.output(y, (n, 4, h, w))
            out = b.choose((n, 4, h, w), span=2 * (x.highest - x.lowest) * float(parts[3]) * 74 * np.sqrt(c))
            pool.append(b.quantize(y, out))
    read = {name for node in b.nodes for name in node.input}
    for q in pool:
        if q.name not in read:
            b.result(q)
    return b.build(f"graph_{form}_{seed}")

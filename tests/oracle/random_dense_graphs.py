# SPDX-License-Identifier: Apache-2.0
"""Random graphs of quantised matrix operators, from a seed."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from tests.oracle.model_builder import F32, Builder, Case


def random_dense_graph(seed, steps=7, dtype=None, opset=None) -> Case:
    """A QDQ graph of matrix operators: products with constants and with each other, biases as Add behind MatMul (as
    vectors, rows, matrices, float or int32), Gemm with every kind of bias, softmax, Where, reshapes and transposes,
    products without a Q."""
    rng = np.random.default_rng([117, seed])
    b = Builder(
        [118, seed], dtype=dtype or str(rng.choice(["u8", "u8", "s8"])), opset=opset or int(rng.choice([13, 17, 21]))
    )
    rows, width = int(rng.choice([1, 3, 4])), int(rng.choice([4, 6, 8]))
    pool = [b.activation((rows, width)) if rng.random() < 0.5 else b.activation((2, rows, width)) for _ in range(2)]
    results = []

    def span(x, step, depth):
        return 3 * (x.highest - x.lowest) * step * 74 * np.sqrt(depth)

    for _ in range(steps):
        x = pool[int(rng.integers(max(0, len(pool) - 3), len(pool)))]
        *lead, k = x.shape
        kind = str(
            rng.choice(
                [
                    "matmul",
                    "matmul_add",
                    "matmul_add",
                    "matmul_float",
                    "gemm",
                    "gemm",
                    "gemm_float",
                    "add",
                    "softmax",
                    "where",
                    "where_constant",
                    "transpose",
                    "reshape",
                    "dynamic",
                    "relu_matmul",
                    "gather",
                    "reduce_max",
                    "add_constant",
                    "arg_max",
                ]
            )
        )
        n = int(rng.choice([4, 6, 8]))
        if kind == "matmul":
            pool.append(b.matmul(x, (k, n), per_channel=bool(rng.integers(2))))
        elif kind in ("matmul_add", "matmul_float", "relu_matmul"):
            w = b.int_weights((k, n), np.int8, per_channel_axis=1 if rng.random() < 0.4 else None)
            y = b.node("MatMul", [b.dequantize(x), b.weights_dq(w, 1)])
            out = b.choose((*lead, n), span=span(x, float(np.mean(w[3])), k))
            if kind == "matmul_add":
                shape = (
                    [(n,), (1, n), (), (lead[0], n), (lead[0], 1), (1,)][int(rng.integers(6))]
                    if len(lead) == 1
                    else [(n,), (1, n), ()][int(rng.integers(3))]
                )
                if rng.random() < 0.7:
                    bias = b.constant(rng.normal(0, out.scale * 20, shape).astype(F32))
                else:
                    bias = b.node(
                        "DequantizeLinear",
                        [
                            b.constant(rng.integers(-3000, 3000, shape).astype(np.int32)),
                            b.constant(F32(out.scale / 100)),
                        ],
                    )
                y = b.node("Add", [y, bias] if rng.random() < 0.7 else [bias, y])
            if kind == "relu_matmul":
                y = b.node("Relu", [y])
                out = dataclasses.replace(out, zero=int(np.iinfo(out.dtype).min) if rng.random() < 0.6 else out.zero)
            if kind == "matmul_float" and rng.random() < 0.6:
                results.append((y, (*lead, n)))
            else:
                pool.append(b.quantize(y, out))
        elif kind == "gemm" and len(lead) == 1:
            pool.append(
                b.gemm(
                    x,
                    n,
                    per_channel=bool(rng.integers(2)),
                    bias=str(rng.choice(["none", "float", "dq"])),
                    trans_b=int(rng.integers(2)),
                    alpha=float(rng.choice([1.0, 0.5])),
                    activation="relu" if rng.random() < 0.3 else None,
                )
            )
        elif kind == "gemm_float" and len(lead) == 1:
            w = b.int_weights((k, n), np.int8)
            bias, _ = b.bias(n, x.scale, w[3], "dq")
            y = b.node("Gemm", [b.dequantize(x), b.weights_dq(w, 1), bias], beta=float(rng.choice([1.0, 0.5])))
            results.append((y, (lead[0], n)))
        elif kind == "add":
            y = next((p for p in reversed(pool) if p.shape == x.shape and p.name != x.name), x)
            pool.append(b.binary(str(rng.choice(["Add", "Mul"])), x, y))
        elif kind == "softmax":
            pool.append(b.unary("Softmax", x, axis=-1))
        elif kind in ("where", "where_constant"):
            condition = b.input(rng.random(x.shape) < 0.5, "mask")
            y = next((p for p in reversed(pool) if p.shape == x.shape and p.name != x.name), x)
            other = b.dequantize(y) if kind == "where" else b.constant(F32(x.lowest))
            out = dataclasses.replace(
                b.choose(x.shape, span=x.highest - x.lowest) if rng.random() < 0.6 else x, shape=x.shape, name=""
            )
            pool.append(b.quantize(b.node("Where", [condition, b.dequantize(x), other]), out))
        elif kind == "transpose":
            order = list(range(len(x.shape)))
            order[-2:] = order[:-3:-1]
            pool.append(b.mover("Transpose", x, [], tuple(x.shape[i] for i in order), perm=order))
        elif kind == "reshape":
            shape = (int(np.prod(lead)), k)
            pool.append(b.mover("Reshape", x, [b.constant(np.array(shape))], shape))
        elif kind == "dynamic":  # a product of two activations
            y = b.mover(
                "Transpose", x, [], (*lead[:-1], k, lead[-1]), perm=[*range(len(lead) - 1), len(lead), len(lead) - 1]
            )
            pool.append(b.matmul(x, y.shape, b=y))
        elif kind == "gather" and k > 1:
            pool.append(b.mover("Gather", x, [b.constant(np.array([k - 1, 0, 1]))], (*lead, 3), axis=-1))
        elif kind == "reduce_max" and b.opset < 18:
            pool.append(b.mover("ReduceMax", x, [], (*lead, 1), axes=[-1], keepdims=1))
        elif kind == "add_constant":
            out = dataclasses.replace(b.choose(x.shape, span=x.highest - x.lowest), shape=x.shape)
            pool.append(b.quantize(b.node("Add", [b.dequantize(x), b.constant(rng.normal(0, 1, k).astype(F32))]), out))
        elif kind == "arg_max":
            y = b.node("ArgMax", [b.dequantize(x)], axis=-1, keepdims=0)
            results.append((b.node("Cast", [y], to=onnx.TensorProto.FLOAT), tuple(lead)))
    for name, shape in results:
        b.output(name, shape)
    read = {name for node in b.nodes for name in node.input}
    for q in pool:
        if q.name not in read:
            b.result(q)
    return b.build(f"dense_graph_{seed}")

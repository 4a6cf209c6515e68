# SPDX-License-Identifier: Apache-2.0
"""Random models of one quantised operator each, from a seed: `OPERATORS` names them."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.oracle.model_builder import Builder, Case

CHANNELS = [1, 3, 17, 31, 257]


def random_conv(seed, form="qdq", dtype=None, weight=None) -> Case:
    """Channels of {1, 3, 17, 31, 257}, prime sizes, kernels larger than the input with pads, asymmetric pads, strides
    beyond the kernel, groups, depthwise, batch 3, per tensor and per channel."""
    rng = np.random.default_rng([101, seed])
    dtype = dtype or str(rng.choice(["u8", "u8", "s8"]))
    weight = weight or ("s8" if dtype == "s8" else str(rng.choice(["u8", "s8"])))
    b = Builder([102, seed], form=form, dtype=dtype)
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    while True:
        kernel = [int(v) for v in rng.choice([1, 2, 3, 5, 7], axes)]
        extents = [int(v) for v in rng.choice([1, 2, 5, 7, 11, 13], axes)]
        pads = [int(v) for v in rng.integers(0, 4, 2 * axes)]
        dilations = [int(v) for v in rng.choice([1, 1, 1, 2], axes)]
        if all(e + pads[i] + pads[i + axes] >= dilations[i] * (kernel[i] - 1) + 1 for i, e in enumerate(extents)):
            break
    channels = int(rng.choice(CHANNELS if axes < 3 else CHANNELS[:3]))
    group = int(rng.choice([1, 1, channels])) if channels < 257 else int(rng.choice([1, 257]))
    filters = (
        channels if group == channels and group > 1 else int(rng.choice([1, 3, 8, 17, 33])) if group == 1 else group * 2
    )
    x = b.activation((int(rng.choice([1, 1, 3])), channels, *extents))
    auto_pad = None if rng.random() < 0.7 else str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
    y = b.conv(
        x,
        filters,
        kernel,
        group=group,
        strides=[int(v) for v in rng.choice([1, 1, 2, 3, 8], axes)],
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
        weight=weight,
        w_zero=0 if weight == "s8" else int(rng.choice([0, 128, 255])),
        per_channel=bool(rng.integers(2)),
        bias=str(rng.choice(["none", "float", "dq"])),
        activation=[None, "relu", "clip6"][int(rng.integers(3))],
    )
    b.result(y)
    return b.build(f"conv_{form}_{seed}")


def random_matmul(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([103, seed])
    b = Builder([104, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    shapes = [
        ((3, 4), (4, 5)),
        ((1, 257), (257, 33)),
        ((2, 3, 17), (17, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 31), (1, 3, 31, 5)),
        ((7, 1024), (1024, 10)),
    ]
    a_shape, b_shape = shapes[int(rng.integers(len(shapes)))]
    a = b.activation(a_shape)
    if rng.random() < 0.4:
        y = b.matmul(a, b_shape, b=b.activation(b_shape))
    else:
        y = b.matmul(
            a,
            b_shape,
            weight="s8" if b.dtype == np.int8 else str(rng.choice(["u8", "s8"])),
            per_channel=len(b_shape) == 2 and bool(rng.integers(2)),
        )
    b.result(y)
    return b.build(f"matmul_{form}_{seed}")


def random_gemm(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([105, seed])
    b = Builder([106, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    a = b.activation((int(rng.choice([1, 3, 8])), int(rng.choice(CHANNELS))))
    y = b.gemm(
        a,
        int(rng.choice([1, 10, 33])),
        weight="s8" if b.dtype == np.int8 else str(rng.choice(["u8", "s8"])),
        per_channel=bool(rng.integers(2)),
        bias=str(rng.choice(["none", "float", "dq"])),
        trans_b=int(rng.integers(2)),
        activation="relu" if form == "qdq" and rng.random() < 0.3 else None,
    )
    b.result(y)
    return b.build(f"gemm_{form}_{seed}")


def random_binary(seed, op_type="Add", form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([107, seed])
    b = Builder([108, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    shapes = [
        ((2, 3, 7, 5), (2, 3, 7, 5)),
        ((2, 3, 7, 5), (1, 3, 1, 1)),
        ((3, 1, 1), (2, 3, 7, 5)),
        ((5, 70), (70,)),
        ((4, 1), (1, 9)),
        ((6, 33), (1, 1)),
    ]
    a_shape, b_shape = shapes[int(rng.integers(len(shapes)))]
    b.result(b.binary(op_type, b.activation(a_shape), b.activation(b_shape)))
    return b.build(f"{op_type.lower()}_{form}_{seed}")


def pooled(extents, kernel, strides, pads) -> list[int]:
    axes = len(extents)
    return [(e + pads[i] + pads[i + axes] - kernel[i]) // strides[i] + 1 for i, e in enumerate(extents)]


def random_pool(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([109, seed])
    b = Builder([110, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    extents = [int(v) for v in rng.choice([5, 7, 11, 13], 2)]
    x = b.activation((int(rng.choice([1, 3])), int(rng.choice([1, 3, 17, 31])), *extents))
    kind = int(rng.integers(3))
    kernel, strides = [int(v) for v in rng.integers(1, 5, 2)], [int(v) for v in rng.integers(1, 4, 2)]
    pads = [int(rng.integers(0, k)) for k in kernel + kernel]
    shape = (*x.shape[:2], *pooled(extents, kernel, strides, pads))
    if kind == 0:
        y = b.unary("GlobalAveragePool", x, (*x.shape[:2], 1, 1))
    elif kind == 1:
        y = b.unary(
            "AveragePool",
            x,
            shape,
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            count_include_pad=int(rng.integers(2)),
        )
    else:
        y = b.mover("MaxPool", x, [], shape, kernel_shape=kernel, strides=strides, pads=pads)
    b.result(y)
    return b.build(f"pool_{form}_{seed}")


def random_table(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([111, seed])
    b = Builder([112, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    x = b.activation((2, 5, 7))
    op = str(rng.choice(["LeakyRelu", "Sigmoid", "Softmax"]))
    attributes = {
        "LeakyRelu": {"alpha": float(rng.choice([0.01, 0.1, 0.25]))},
        "Softmax": {"axis": int(rng.integers(-3, 3))},
    }.get(op, {})
    b.result(b.unary(op, x, **attributes))
    return b.build(f"{op.lower()}_{form}_{seed}")


def random_concat(seed, form="qdq", dtype=None) -> Case:
    rng = np.random.default_rng([113, seed])
    b = Builder([114, seed], form=form, dtype=dtype or str(rng.choice(["u8", "s8"])))
    axis = int(rng.integers(-3, 3))
    parts = []
    for _ in range(int(rng.integers(1, 5))):
        shape = [2, 3, 4]
        shape[axis] = int(rng.integers(1, 6))
        parts.append(
            b.activation(
                tuple(shape), like=dataclasses.replace(parts[0], name="") if parts and rng.random() < 0.4 else None
            )
        )
        parts[-1] = dataclasses.replace(parts[-1], shape=tuple(shape))
    b.result(b.concat(parts, axis, dataclasses.replace(parts[0], name="") if rng.random() < 0.4 else None))
    return b.build(f"concat_{form}_{seed}")


OPERATORS = {
    "conv": random_conv,
    "matmul": random_matmul,
    "gemm": random_gemm,
    "add": lambda seed, form="qdq", dtype=None: random_binary(seed, "Add", form, dtype),
    "mul": lambda seed, form="qdq", dtype=None: random_binary(seed, "Mul", form, dtype),
    "pool": random_pool,
    "table": random_table,
    "concat": random_concat,
}

# SPDX-License-Identifier: Apache-2.0
"""Random files of one operator each, over types, ranks, shapes, options and constant or fed operands.

CASES maps an operator to what draws it: elements and reductions here, the others in movement_cases and product_cases. A
drawing function gets a Draw and returns the outputs; what LiteRT refuses is drawn again by `draw_case`."""

import numpy as np

from tests.litert import oracle
from tests.litert.draw import Draw

CASES = {}
F = ("float32",)
Q8 = ("int8", "uint8")
Q = ("int8", "uint8", "int16")
I = ("int32", "int64")  # noqa: E741


def case(*names):
    def add(function):
        for name in names:
            CASES[name] = function
        return function

    return add


def define(name):
    """case() with the name as the second argument."""

    def add(function):
        CASES[name] = lambda d: function(d, name)
        return function

    return add


def each(*names):
    def add(function):
        for name in names:
            define(name)(function)
        return function

    return add


MAY_BE_EMPTY = ("STRIDED_SLICE", "CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "L2_POOL_2D")


def draw_case(name, seed, attempts=60):
    """Case number `seed` of an operator. Errors: oracle.Refused when LiteRT takes none of the drawings."""
    reason = None
    for attempt in range(attempts):
        d = Draw(np.random.default_rng([seed, attempt, *name.encode()]), seed)
        try:
            outputs = CASES[name](d)
            case = d.done(name, *(outputs if isinstance(outputs, (list, tuple)) else [outputs]))
            # XNNPACK takes an empty slice for a whole one; windows that do not fit are refused here.
            if name in MAY_BE_EMPTY and not next(iter(case.runs.values())).outputs[0].size:
                raise oracle.Refused("an empty result")
            return case
        except oracle.Refused as error:
            reason = error
    raise oracle.Refused(f"{name}: {reason}")


def activation(d, dtype="float32", among=(0, 1, 2, 3)):
    """A fused activation: none, RELU, RELU_N1_TO_1, RELU6."""
    return d.pick(*among) if d.chance(0.5) else 0


# Elements of one tensor

UNARY = {
    "ABS": ("float32", "int8", "int16", "int32"),
    "CEIL": F,
    "FLOOR": F,
    "ROUND": F,
    "EXP": ("float32", "int8", "int16"),
    "LOG": ("float32", "int8", "int16"),
    "SIN": F,
    "COS": F,
    "SQRT": F,
    "RSQRT": ("float32", "int8", "int16"),
    "SQUARE": F,
    "NEG": ("float32", "int8", "int16", "int32", "int64"),
    "SIGN": ("float32", "float64", "int32"),
    "RELU": ("float32", *Q),
    "RELU6": ("float32", *Q),
    "RELU_N1_TO_1": ("float32", "int8", "uint8"),
    "RELU_0_TO_1": ("float32", "int8", "uint8"),
    "ELU": ("float32", "int8"),
    "HARD_SWISH": ("float32", *Q8),
    "LOGISTIC": ("float32", *Q),
    "TANH": ("float32", *Q),
    "ZEROS_LIKE": ("float32", "int32", "int64"),
}
FIXED_OUTPUT = {
    ("LOGISTIC", "int8"): (1 / 256, -128),
    ("LOGISTIC", "uint8"): (1 / 256, 0),
    ("LOGISTIC", "int16"): (1 / 32768, 0),
    ("TANH", "int8"): (1 / 128, 0),
    ("TANH", "uint8"): (1 / 128, 128),
    ("TANH", "int16"): (1 / 32768, 0),
}


def fixed(name, dtype):
    scale, zero = FIXED_OUTPUT[name, dtype]
    return {"scale": scale, "zero": zero}


@each(*UNARY)
def unary(d, name):
    dtype = d.turn(UNARY[name])
    positive = name in ("LOG", "SQRT", "RSQRT")
    shape = d.shape()
    quantisation = d.quantisation(dtype)
    positive = positive and not (name == "LOG" and dtype in Q and d.chance(0.3))
    if dtype in Q and positive:
        quantisation["zero"] = {"int8": -128, "int16": 0}[dtype]
    low = 0.01 if positive and dtype == "float32" else 0 if positive and dtype == "int16" else None
    x = d.input(shape, dtype, low, **quantisation)
    out = d.quantisation(dtype)
    if (name, dtype) in FIXED_OUTPUT:
        out = fixed(name, dtype)
    elif name in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1") and d.chance(0.5):
        out = quantisation
    elif name == "ZEROS_LIKE":
        out = {}
    return d.op(name, [x], (dtype, out))


@case("GELU")
def gelu(d):
    dtype = d.turn(("float32", *Q8))
    x = d.input(d.shape(), dtype, **d.quantisation(dtype))
    return d.op("GELU", [x], (dtype, d.quantisation(dtype)), approximate=d.chance())


@case("LEAKY_RELU")
def leaky_relu(d):
    dtype = d.turn(("float32", *Q))
    x = d.input(d.shape(), dtype, **d.quantisation(dtype))
    return d.op("LEAKY_RELU", [x], (dtype, d.quantisation(dtype)), alpha=float(np.float32(d.rng.uniform(-0.5, 1.5))))


@case("PRELU")
def prelu(d):
    dtype = d.turn(("float32", *Q8))
    shape = d.shape(1, 4)
    x = d.input(shape, dtype, **d.quantisation(dtype))
    alpha = d.either(d.broadcast(shape), dtype, p=0.8, **d.quantisation(dtype))
    return d.op("PRELU", [x, alpha], (dtype, d.quantisation(dtype)))


@case("LOGICAL_NOT")
def logical_not(d):
    return d.op("LOGICAL_NOT", [d.input(d.shape(), "bool")], "bool")


@case("SOFTMAX")
def softmax(d):
    dtype = d.turn(("float32", *Q))
    x = d.input(d.shape(1, 4), dtype, **d.quantisation(dtype, 0.01, 0.3))
    out = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}.get(dtype)
    out = dict(zip(("scale", "zero"), out)) if out else {}
    return d.op("SOFTMAX", [x], (dtype, out), beta=1.0 if d.chance(0.7) else float(np.float32(d.rng.uniform(0.3, 2))))


@case("LOG_SOFTMAX")
def log_softmax(d):
    dtype = d.turn(("float32", *Q8))
    x = d.input(d.shape(1, 4), dtype, **d.quantisation(dtype, 0.01, 0.3))
    out = {"int8": (16 / 256, 127), "uint8": (16 / 256, 255)}.get(dtype)
    return d.op("LOG_SOFTMAX", [x], (dtype, dict(zip(("scale", "zero"), out)) if out else {}))


@case("L2_NORMALIZATION")
def l2_normalization(d):
    dtype = d.turn(("float32", *Q8))
    x = d.input(d.shape(1, 4), dtype, **d.quantisation(dtype))
    out = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}.get(dtype)
    return d.op("L2_NORMALIZATION", [x], (dtype, dict(zip(("scale", "zero"), out)) if out else {}))


@case("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(d):
    x = d.input(d.shape(4, 4), "float32")
    return d.op(
        "LOCAL_RESPONSE_NORMALIZATION",
        [x],
        "float32",
        radius=d.between(0, 3),
        bias=float(np.float32(d.rng.uniform(0.5, 2))),
        alpha=float(np.float32(d.rng.uniform(0, 1))),
        beta=d.pick(0.5, 1.0, 0.75),
    )


@case("FAKE_QUANT")
def fake_quant(d):
    low, high = float(np.float32(-d.rng.uniform(0.1, 3))), float(np.float32(d.rng.uniform(0.1, 3)))
    bits = d.pick(8, 8, 4, 2, 16)
    return d.op(
        "FAKE_QUANT",
        [d.input(d.shape(1), "float32")],
        "float32",
        min=low,
        max=high,
        numBits=bits,
        narrowRange=d.chance(),
    )


CAST_TYPES = (
    "float32",
    "int32",
    "int64",
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "uint32",
    "float16",
    "float64",
    "complex64",
)


@case("CAST")
def cast(d):
    source, target = CAST_TYPES[d.index % len(CAST_TYPES)], CAST_TYPES[d.index // len(CAST_TYPES) % len(CAST_TYPES)]
    d.words.append(f"{source} to {target}")
    low = 0 if np.dtype(target).kind in "u" else None
    high = 100 if np.dtype(source).kind in "fui" else None
    x = d.input(d.shape(), source, low, high)
    if source == "complex64" and low == 0:
        d.feeds[-1] = np.abs(d.feeds[-1]) * np.complex64(1 + 1j)
    return d.op("CAST", [x], target)


@case("BITCAST")
def bitcast(d):
    pairs = [
        ("float32", "int32"),
        ("int32", "float32"),
        ("int16", "uint16"),
        ("int32", "uint8"),
        ("int16", "int32"),
        ("uint8", "int8"),
        ("float64", "int64"),
        ("float32", "uint8"),
        ("int8", "int32"),
        ("float16", "int16"),
    ]
    source, target = d.turn(pairs)
    d.words = [f"{source} to {target}"]
    shape, a, b = d.shape(0, 4), np.dtype(source).itemsize, np.dtype(target).itemsize
    if b > a:
        shape = (*shape, b // a)
    return d.op("BITCAST", [d.input(shape, source)], target)


@case("QUANTIZE")
def quantize(d):
    pairs = [("float32", t) for t in Q] + [(a, b) for a in Q for b in Q if (a, b) != ("int16", "uint8")]
    pairs += [("int32", "int8"), ("int32", "int16"), ("int16", "int32")]
    source, target = d.turn(pairs)
    d.words = [f"{source} to {target}"]
    quantised = {"scale": d.scale(), "zero": 0} if source == "int32" else d.quantisation(source)
    x = d.input(
        d.shape(), source, -20 if source == "float32" else None, 20 if source == "float32" else None, **quantised
    )
    out = {"scale": d.scale(), "zero": 0} if target == "int32" else d.quantisation(target)
    return d.op("QUANTIZE", [x], (target, out))


@case("DEQUANTIZE")
def dequantize(d):
    source = d.turn((*Q, "float16"))
    shape = d.shape(1)
    quantised = d.quantisation(source)
    if source == "int8" and d.chance(0.3):
        axis = d.below(len(shape))
        quantised = {"scale": [d.scale() for _ in range(shape[axis])], "zero": [0] * shape[axis], "axis": axis}
    x = d.either(shape, source, **quantised)
    return d.op("DEQUANTIZE", [x], "float32")


# Elements of two tensors


def pair(d, dtype, most_rank=5, low=None, high=None):
    """Two operands that broadcast with each other; the output's shape is open."""
    shape = d.shape(0, most_rank)
    other = shape if d.chance(0.4) else d.broadcast(shape)
    first = shape if d.chance(0.6) else tuple(1 if d.chance(0.3) else n for n in shape)
    shapes = [first, other]
    if d.chance():
        shapes.reverse()
    a = d.input(shapes[0], dtype, low, high, **d.quantisation(dtype))
    b = d.either(shapes[1], dtype, low, high, **d.quantisation(dtype))
    return [a, b] if d.chance() else [b, a]


ARITHMETIC = {
    "ADD": ("float32", *Q, "int32", "int64"),
    "SUB": ("float32", *Q, "int32", "int64"),
    "MUL": ("float32", *Q, "int32", "int64", "complex64"),
}


@each(*ARITHMETIC)
def arithmetic(d, name):
    dtype = d.turn(ARITHMETIC[name])
    rank = 5 if name == "ADD" or dtype not in Q else 4
    operands = pair(d, dtype, rank)
    out = d.quantisation(dtype, 0.02, 0.5 if name == "MUL" else 0.1)
    options = {} if name == "MUL" else {"potScaleInt16": False}
    fused = activation(d) if dtype in ("float32", *Q) else 0
    return d.op(name, operands, (dtype, out), fusedActivationFunction=fused, **options)


@case("DIV")
def div(d):
    dtype = d.turn(("float32", "int32", "uint8"))
    shape = d.shape(0, 5)
    a = d.input(shape, dtype, **d.quantisation(dtype))
    quantised = d.quantisation(dtype)
    if dtype == "uint8":
        quantised["zero"] = 0
    b = d.either(d.broadcast(shape), dtype, 1, 100 if dtype != "float32" else 4.0, **quantised)
    fused = activation(d) if dtype != "int32" else 0
    return d.op("DIV", [a, b], (dtype, d.quantisation(dtype)), fusedActivationFunction=fused)


@each("FLOOR_DIV", "FLOOR_MOD")
def floor_div(d, name):
    dtype = d.turn(("float32", "int32", "int8", "int16") if name == "FLOOR_DIV" else ("float32", "int32", "int64"))
    shape = d.shape(0, 5)
    a = d.input(shape, dtype)
    low, high = (0.5, 4.0) if dtype == "float32" else (1, 20)
    if d.chance():
        low, high = -high, -low
    b = d.either(d.broadcast(shape), dtype, low, high)
    return d.op(name, [a, b], dtype)


@case("POW")
def power(d):
    dtype = d.turn(("float32", "int32"))
    shape = d.shape(0, 5)
    whole = dtype == "int32"
    a = d.input(shape, dtype, -5 if whole else 0.1, 5 if whole else 4)
    b = d.either(d.broadcast(shape), dtype, 0 if whole else -2, 5 if whole else 2)
    return d.op("POW", [a, b], dtype)


@each("MAXIMUM", "MINIMUM")
def extremum(d, name):
    dtype = d.turn(("float32", *Q, "int32", "int64"))
    shape = d.shape(0, 5)
    same = d.quantisation(dtype)
    a = d.input(shape, dtype, **same)
    b = d.either(d.broadcast(shape), dtype, **same)
    return d.op(name, [a, b] if d.chance() else [b, a], (dtype, same))


@case("SQUARED_DIFFERENCE")
def squared_difference(d):
    dtype = d.turn(("float32", "int32", "int8"))
    return d.op("SQUARED_DIFFERENCE", pair(d, dtype, 4), (dtype, d.quantisation(dtype, 0.05, 0.5)))


@case("ATAN2")
def atan2(d):
    shape = d.shape()
    dtype = d.turn(("float32", "float64"))
    return d.op("ATAN2", [d.input(shape, dtype), d.either(shape, dtype)], dtype)


@each("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def comparison(d, name):
    types = ("float32", "int32", "int64", *Q8, "int16", "bool")
    dtype = d.turn(types if name in ("EQUAL", "NOT_EQUAL") else types[:-1])
    return d.op(name, pair(d, dtype, 5, *((-4, 4) if dtype in ("int32", "int64") else ())), "bool")


@each("LOGICAL_AND", "LOGICAL_OR")
def logical(d, name):
    return d.op(name, pair(d, "bool", 4), "bool")


@case("BITWISE_XOR")
def bitwise_xor(d):
    return d.op("BITWISE_XOR", pair(d, d.turn(("int8", "uint8", "int16", "uint16", "int32", "uint32")), 4), d.words[-1])


@case("RIGHT_SHIFT")
def right_shift(d):
    dtype = d.turn(("int8", "uint8", "int16", "uint16", "int32", "uint32"))
    shape = d.shape(0, 4)
    bits = 8 * np.dtype(dtype).itemsize
    return d.op("RIGHT_SHIFT", [d.input(shape, dtype), d.either(d.broadcast(shape), dtype, 0, bits + 2)], dtype)


@case("ADD_N")
def add_n(d):
    dtype = d.turn(("float32", "int32"))
    shape = d.shape()
    return d.op("ADD_N", [d.input(shape, dtype) for _ in range(d.between(2, 4))], dtype)


# Reductions


REDUCTIONS = {
    "MEAN": ("float32", *Q, "int32", "int64"),
    "SUM": ("float32", *Q, "int32", "int64"),
    "REDUCE_PROD": ("float32", "int32", "int64", "int8", "int16"),
    "REDUCE_MAX": ("float32", *Q, "int32", "int64"),
    "REDUCE_MIN": ("float32", *Q, "int32", "int64"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
}


@each(*REDUCTIONS)
def reduction(d, name):
    dtype = d.turn(REDUCTIONS[name])
    shape = d.shape(1, 5 if dtype not in Q else 4)
    small = name == "REDUCE_PROD" and dtype not in Q
    same = d.quantisation(dtype)
    x = d.input(shape, dtype, *((-2, 2) if small else ()), **same)
    axes = d.parameter(d.axes(len(shape), 1), p=0)
    out = d.quantisation(dtype) if name in ("MEAN", "SUM", "REDUCE_PROD") and d.chance(0.7) else same
    return d.op(name, [x, axes], (dtype, out), keepDims=d.chance())


@each("ARG_MAX", "ARG_MIN")
def arg_extremum(d, name):
    dtype = d.turn(("float32", *Q8, "int32", "bool") if name == "ARG_MAX" else ("float32", *Q8, "int32"))
    shape = d.shape(1)
    x = d.input(shape, dtype, *((-3, 3) if dtype == "int32" else ()), **d.quantisation(dtype))
    wide = d.chance()
    axis = d.parameter(d.axis(len(shape)), d.pick("int32", "int64"), p=0)
    return d.op(name, [x, axis], "int64" if wide else "int32", outputType=4 if wide else 2)


@case("CUMSUM")
def cumsum(d):
    dtype = d.turn(("float32", "int32", "int64"))
    shape = d.shape(1)
    x = d.input(shape, dtype)
    return d.op("CUMSUM", [x, d.parameter(d.axis(len(shape)))], dtype, exclusive=d.chance(), reverse=d.chance())


@case("TOPK_V2")
def topk(d):
    dtype = d.turn(("float32", "int32", "int64", *Q8, "int16"))
    shape = d.shape(1)
    same = d.quantisation(dtype)
    x = d.input(shape, dtype, *((-3, 3) if dtype == "int32" else ()), **same)
    return d.op("TOPK_V2", [x, d.parameter(d.between(0 if d.chance(0.1) else 1, shape[-1]))], (dtype, same), "int32")


@case("UNIQUE")
def unique(d):
    dtype = d.turn(("float32", "int32", "int64", *Q8))
    x = (
        d.input((d.between(1, 9),), dtype, -2, 2)
        if dtype not in ("uint8",)
        else d.input((d.between(1, 9),), dtype, 0, 3)
    )
    if dtype == "float32":
        d.feeds[-1] = np.round(d.feeds[-1]).astype(dtype)
    wide = d.chance()
    return d.op("UNIQUE", [x], dtype, "int64" if wide else "int32", idxOutType=4 if wide else 2)


@case("BUCKETIZE")
def bucketize(d):
    dtype = d.turn(("float32", "int32", "int64", "float64"))
    edges = sorted(float(np.float32(v)) for v in d.rng.uniform(-3, 3, d.between(0, 6)))
    return d.op("BUCKETIZE", [d.input(d.shape(), dtype, -5, 5)], "int32", boundaries=edges)


@case("SEGMENT_SUM")
def segment_sum(d):
    dtype = d.turn(("float32", "int32"))
    shape = d.shape(1)
    ids = np.sort(d.rng.integers(0, 4, shape[0]))
    ids[0] = 0
    return d.op("SEGMENT_SUM", [d.input(shape, dtype), d.parameter(np.unique(ids, return_inverse=True)[1])], dtype)


@each("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
def unsorted_segment(d, name):
    dtype = d.turn(("float32", "int32"))
    shape = d.shape(1)
    count = d.between(1, 4)
    rank = d.between(1, len(shape))
    ids = d.parameter(d.rng.integers(-1, count, shape[:rank]))
    return d.op(name, [d.input(shape, dtype, -3, 3), ids, d.parameter(count)], dtype)

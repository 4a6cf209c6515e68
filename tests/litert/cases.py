# SPDX-License-Identifier: Apache-2.0
"""Random files of one operator each, over types, ranks, shapes, options and constant or fed operands.

CASES maps an operator to what draws it. A drawing function gets a Draw and returns the outputs; what LiteRT refuses is
drawn again by `draw_case`."""

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


# Movements: values keep their type and scale

MOVED = ("float32", *Q, "int32", "int64", "bool")


def moved(d, types=MOVED, shape=None, **quantised):
    dtype = d.turn(types)
    shape = d.shape(1) if shape is None else shape
    same = d.quantisation(dtype)
    return d.input(shape, dtype, **same), shape, (dtype, same)


@case("RESHAPE")
def reshape(d):
    x, shape, out = moved(d, shape=d.shape(0))
    flat = int(np.prod(shape))
    target, rest = [], flat
    for _ in range(d.between(0, 3)):
        divisors = [n for n in range(1, rest + 1) if rest % n == 0]
        target.append(d.pick(*divisors))
        rest //= target[-1]
    if rest != 1 or not shape:
        target.append(rest)
    elif not target and flat != 1:
        target = [flat]
    if target and d.chance(0.3):
        target[d.below(len(target))] = -1
    if d.chance(0.4):
        return d.op("RESHAPE", [x], out, newShape=np.array(target, np.int32))
    return d.op("RESHAPE", [x, d.parameter(np.array(target, np.int32))], out)


@case("SQUEEZE")
def squeeze(d):
    shape = tuple(1 if d.chance() else n for n in d.shape(1))
    x, shape, out = moved(d, shape=shape)
    ones = [i - (len(shape) if d.chance(0.3) else 0) for i, n in enumerate(shape) if n == 1 and d.chance(0.7)]
    return d.op("SQUEEZE", [x], out, squeezeDims=ones)


@case("EXPAND_DIMS")
def expand_dims(d):
    x, shape, out = moved(d, shape=d.shape(0, 4))
    return d.op(
        "EXPAND_DIMS", [x, d.parameter(d.between(-len(shape) - 1, len(shape)), d.pick("int32", "int64"), p=0.05)], out
    )


@case("TRANSPOSE")
def transpose(d):
    x, shape, out = moved(d, shape=d.shape(1, 6, 4))
    order = [int(a) - (len(shape) if d.chance(0.2) else 0) for a in d.rng.permutation(len(shape))]
    return d.op("TRANSPOSE", [x, d.parameter(order, p=0)], out)


@case("CONCATENATION")
def concatenation(d):
    dtype = d.turn(("float32", *Q, "int32", "int64", "bool"))
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    same = d.quantisation(dtype)
    parts = []
    for _ in range(d.between(1, 4)):
        shape[axis] = d.between(1, 4)
        other = d.quantisation(dtype) if dtype == "uint8" and d.chance(0.5) else same
        parts.append(d.either(tuple(shape), dtype, p=0.2, **other))
    fused = activation(d) if dtype == "float32" and d.chance(0.2) else 0
    return d.op("CONCATENATION", parts, (dtype, same), axis=axis, fusedActivationFunction=fused)


@case("PACK")
def pack(d):
    dtype = d.turn(("float32", *Q, "int32", "int64"))
    shape = d.shape(0, 4)
    same = d.quantisation(dtype)
    count = d.between(1, 4)
    parts = [d.either(shape, dtype, p=0.2, **same) for _ in range(count)]
    return d.op("PACK", parts, (dtype, same), valuesCount=count, axis=d.between(-len(shape) - 1, len(shape)))


@case("UNPACK")
def unpack(d):
    x, shape, out = moved(d, ("float32", *Q, "int32", "bool"))
    axis = d.axis(len(shape))
    outs = d.op("UNPACK", [x], *[out] * shape[axis], num=shape[axis], axis=axis)
    return outs


@case("SPLIT")
def split(d):
    dtype = d.turn(("float32", *Q, "int32"))
    shape = list(d.shape(1))
    axis, parts = d.axis(len(shape)), d.between(1, 4)
    shape[axis] = parts * d.between(1, 3)
    same = d.quantisation(dtype)
    x = d.input(tuple(shape), dtype, **same)
    return d.op("SPLIT", [d.parameter(axis, p=0), x], *[(dtype, same)] * parts, numSplits=parts)


@case("SPLIT_V")
def split_v(d):
    dtype = d.turn(("float32", *Q, "int32", "int64"))
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    sizes = [d.between(1, 3) for _ in range(d.between(1, 4))]
    shape[axis] = sum(sizes)
    if d.chance(0.3):
        sizes[d.below(len(sizes))] = -1
    same = d.quantisation(dtype)
    x = d.input(tuple(shape), dtype, **same)
    sizes_operand = d.parameter(sizes, d.pick("int32", "int64"), p=0)
    return d.op(
        "SPLIT_V", [x, sizes_operand, d.parameter(axis, p=0)], *[(dtype, same)] * len(sizes), numSplits=len(sizes)
    )


@case("SLICE")
def slice_(d):
    x, shape, out = moved(d)
    begin = [d.below(n) for n in shape]
    size = [-1 if d.chance(0.3) else d.between(1, n - b) for n, b in zip(shape, begin)]
    kind = d.pick("int32", "int64")
    return d.op("SLICE", [x, d.parameter(begin, kind), d.parameter(size, kind)], out)


@case("STRIDED_SLICE")
def strided_slice(d):
    x, shape, out = moved(d, shape=d.shape(1, 4))
    begin, end, step = [], [], []
    masks = dict.fromkeys(("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask"), 0)
    dims, position = list(shape), 0
    if d.chance(0.3):
        dims = dims[: d.between(1, len(dims))]
    for n in dims:
        if d.chance(0.1):  # a new axis
            masks["newAxisMask"] |= 1 << position
            begin.append(0), end.append(0), step.append(1)
            position += 1
        b, stride = d.between(-n, n - 1), d.pick(1, 1, 1, 2, 3, -1, -2)
        e = d.between(-n - 2, n + 2)
        if d.chance(0.2):
            masks["shrinkAxisMask"] |= 1 << position
            stride = 1
            e = b + 1
        else:
            masks["beginMask"] |= d.chance(0.3) << position
            masks["endMask"] |= d.chance(0.5) << position
        begin.append(b), end.append(e), step.append(stride)
        position += 1
    if d.chance(0.15):  # an ellipsis instead of an entry, or behind
        masks = dict.fromkeys(masks, 0)
        count = d.between(0, min(len(shape), 3))
        at = d.between(0, count)
        entries = [[d.between(0, n - 1), n, 1] for n in [*shape[:at], *shape[len(shape) - count + at :]]]
        entries.insert(at, [0, 0, 1])
        begin, end, step = (list(column) for column in zip(*entries))
        masks["ellipsisMask"] = 1 << at
    plain = not any(masks[m] for m in ("ellipsisMask", "newAxisMask", "shrinkAxisMask"))
    operands = [d.parameter(v, p=0.1 if plain else 0) for v in (begin, end)] + [d.parameter(step, p=0)]
    return d.op("STRIDED_SLICE", [x, *operands], out, **masks, offset=False)


def pads(d, shape, most=3, limits=None):
    return [[d.between(0, min(most, n)), d.between(0, min(most, n))] for n in (limits or [most] * len(shape))]


@each("PAD", "PADV2")
def pad(d, name):
    x, shape, out = moved(
        d, ("float32", *Q, "int32", "int64") if name == "PAD" else ("float32", "uint8", "int8", "int32", "int64")
    )
    amounts = d.parameter(pads(d, shape), d.pick("int32", "int64"))
    if name == "PAD":
        return d.op("PAD", [x, amounts], out)
    dtype, same = out
    value = d.either((), dtype, p=0.8, **same)
    return d.op("PADV2", [x, amounts, value], out)


@case("MIRROR_PAD")
def mirror_pad(d):
    x, shape, out = moved(d, ("float32", *Q8, "int16", "int32", "int64"))
    mode = d.below(2)
    amounts = pads(d, shape, 3, [n - 1 + mode for n in shape])
    return d.op("MIRROR_PAD", [x, d.parameter(amounts, d.pick("int32", "int64"), p=0)], out, mode=mode)


@case("GATHER")
def gather(d):
    x, shape, out = moved(d, ("float32", *Q, "int32", "int64", "bool"))
    axis = d.below(len(shape))
    batch = d.between(0, axis) if d.chance(0.3) else 0
    kind = d.pick("int32", "int64", "int32", "int16")
    if kind == "int16" and d.words[-1] not in ("int8", "uint8", "int16", "float32"):
        kind = "int32"
    indices_shape = (*shape[:batch], *d.shape(0, 2))
    indices = d.parameter(d.rng.integers(0, shape[axis], indices_shape), kind, p=0.4)
    return d.op("GATHER", [x, indices], out, axis=axis - (len(shape) if d.chance(0.3) else 0), batchDims=batch)


@case("GATHER_ND")
def gather_nd(d):
    x, shape, out = moved(d, ("float32", *Q, "int32", "int64", "bool"))
    depth = d.between(1, len(shape))
    outer = d.shape(0, 2)
    indices = np.stack([d.rng.integers(0, shape[k], outer) for k in range(depth)], -1)
    return d.op("GATHER_ND", [x, d.parameter(indices, d.pick("int32", "int64"), p=0.4)], out)


@case("SCATTER_ND")
def scatter_nd(d):
    dtype = d.turn(("float32", *Q8, "int32", "int64", "bool"))
    shape = d.shape(1, 4)
    depth = d.between(1, len(shape))
    outer = d.shape(1, 2)
    indices = np.stack([d.rng.integers(0, shape[k], outer) for k in range(depth)], -1)
    updates = d.input(
        (*outer, *shape[depth:]), dtype, *((-20, 20) if dtype == "int8" else (0, 20) if dtype == "uint8" else ())
    )
    return d.op("SCATTER_ND", [d.parameter(indices), updates, d.parameter(shape)], dtype)


@case("TILE")
def tile(d):
    x, shape, out = moved(d, ("float32", *Q8, "int32", "int64", "bool"), d.shape(1, 4, 4))
    return d.op("TILE", [x, d.parameter([d.between(1, 3) for _ in shape], d.pick("int32", "int64"))], out)


@case("BROADCAST_TO")
def broadcast_to(d):
    dtype = d.turn(MOVED)
    shape = d.shape(0)
    same = d.quantisation(dtype)
    x = d.input(d.broadcast(shape), dtype, **same)
    return d.op("BROADCAST_TO", [x, d.parameter(shape, d.pick("int32", "int64"))], (dtype, same))


@case("BROADCAST_ARGS")
def broadcast_args(d):
    shape = d.shape(0)
    kind = d.turn(("int32", "int64"))
    return d.op("BROADCAST_ARGS", [d.parameter(shape, kind, 0.7), d.parameter(d.broadcast(shape), kind, 1)], kind)


@case("REVERSE_V2")
def reverse(d):
    x, shape, out = moved(d, ("float32", "uint8", "int8", "int16", "int32", "int64", "bool"))
    first = d.below(len(shape))
    axes = list(range(first, d.between(first, len(shape) - 1) + 1))
    return d.op("REVERSE_V2", [x, d.parameter([a - (len(shape) if d.chance(0.2) else 0) for a in axes], p=0)], out)


@case("REVERSE_SEQUENCE")
def reverse_sequence(d):
    x, shape, out = moved(d, ("float32", "uint8", "int16", "int32", "int64"), d.shape(2, 4))
    sequence, batch = (int(a) for a in d.rng.permutation(len(shape))[:2])
    lengths = d.rng.integers(0 if d.chance(0.2) else 1, shape[sequence], shape[batch], endpoint=True)
    return d.op(
        "REVERSE_SEQUENCE", [x, d.parameter(lengths, d.pick("int32", "int64"))], out, seqDim=sequence, batchDim=batch
    )


@case("SPACE_TO_DEPTH")
def space_to_depth(d):
    block = d.between(1, 3)
    shape = (d.between(1, 2), block * d.between(1, 3), block * d.between(1, 3), d.between(1, 4))
    x, shape, out = moved(d, ("float32", *Q8, "int32", "int64"), shape)
    return d.op("SPACE_TO_DEPTH", [x], out, blockSize=block)


@case("DEPTH_TO_SPACE")
def depth_to_space(d):
    block = d.between(1, 3)
    shape = (d.between(1, 2), d.between(1, 3), d.between(1, 3), block * block * d.between(1, 3))
    x, shape, out = moved(d, ("float32", *Q8, "int32", "int64"), shape)
    return d.op("DEPTH_TO_SPACE", [x], out, blockSize=block)


@case("SPACE_TO_BATCH_ND")
def space_to_batch(d):
    spatial = d.between(1, 2)
    blocks = [d.between(1, 3) for _ in range(spatial)]
    padding, dims = [], []
    for block in blocks:
        n, front = d.between(1, 5), d.between(0, 2)
        padding.append([front, -(n + front) % block + block * d.below(2)])
        dims.append(n)
    x, shape, out = moved(d, ("float32", *Q, "int32", "int64"), (d.between(1, 2), *dims, d.between(1, 3)))
    return d.op("SPACE_TO_BATCH_ND", [x, d.parameter(blocks, p=0), d.parameter(padding, p=0)], out)


@case("BATCH_TO_SPACE_ND")
def batch_to_space(d):
    spatial = d.between(1, 2)
    blocks = [d.between(1, 3) for _ in range(spatial)]
    dims = [d.between(1, 3) for _ in blocks]
    crops = [[d.between(0, (n * b - 1) // 2), d.between(0, (n * b - 1) // 2)] for n, b in zip(dims, blocks)]
    x, shape, out = moved(
        d, ("float32", *Q, "int32", "int64"), (int(np.prod(blocks)) * d.between(1, 2), *dims, d.between(1, 3))
    )
    return d.op("BATCH_TO_SPACE_ND", [x, d.parameter(blocks, p=0), d.parameter(crops, p=0)], out)


@case("FILL")
def fill(d):
    dtype = d.turn(("float32", "int32", "int64", "bool", "int8", "int16"))
    same = d.quantisation(dtype)
    value = d.input((), dtype, **same)
    return d.op("FILL", [d.parameter(d.shape(0), d.pick("int32", "int64"), 0.3), value], (dtype, same))


@case("RANGE")
def range_(d):
    dtype = d.turn(("float32", "int32", "int64"))
    step = d.pick(1, 2, 3, -1, -2) if dtype != "float32" else d.pick(0.5, 0.25, 0.3, -0.7)
    start = d.between(-5, 5)
    values = [start, start + d.between(1, 9) * (1 if step > 0 else -1), step]
    p = 1 if d.chance() else 0
    operands = [d.parameter(v, dtype, p) for v in values]
    if not d.feeds:
        operands[0] = d.parameter(values[0], dtype, 1)
    return d.op("RANGE", operands, dtype)


@case("SHAPE")
def shape_(d):
    x, _, _ = moved(d, shape=d.shape(0))
    kind = d.pick("int32", "int64")
    return d.op("SHAPE", [x], kind, outType=2 if kind == "int32" else 4)


@case("RANK")
def rank(d):
    x, _, _ = moved(d, shape=d.shape(0))
    return d.op("RANK", [x], "int32")


@case("ONE_HOT")
def one_hot(d):
    dtype = d.turn(("float32", "int32", "int64", "int8", "uint8", "bool"))
    shape, depth = d.shape(0, 3), d.between(1, 5)
    kind = d.pick("int32", "int64")
    indices = d.input(shape, kind, -1, depth)
    on, off = d.either((), dtype, p=0.8), d.either((), dtype, p=0.8)
    axis = d.pick(-1, d.between(0, len(shape)))
    return d.op("ONE_HOT", [indices, d.parameter(depth), on, off], dtype, axis=axis)


@each("SELECT", "SELECT_V2")
def select(d, name):
    dtype = d.turn(("float32", *Q, "int32", "int64", "bool"))
    shape = d.shape(0 if name == "SELECT_V2" else 1, 4)
    same = d.quantisation(dtype)
    if name == "SELECT":
        condition = d.pick(shape, (), (shape[0],))
        shapes = [shape, shape]
    else:
        condition = d.broadcast(shape)
        shapes = [d.broadcast(shape), shape]
    c = d.input(condition, "bool")
    a, b = d.either(shapes[0], dtype, **same), d.either(shapes[1], dtype, **same)
    return d.op(name, [c, a, b], (dtype, same))


@case("WHERE")
def where(d):
    dtype = d.turn(("bool", "float32", "int32", "int64", "int8", "uint8", "uint32"))
    x = d.input(d.shape(1), dtype)
    if dtype != "bool":
        d.feeds[-1] = np.asarray(d.feeds[-1] * (d.rng.random(d.feeds[-1].shape) < 0.5)).astype(dtype)
    return d.op("WHERE", [x], "int64")


@case("SPARSE_TO_DENSE")
def sparse_to_dense(d):
    dtype = d.turn(("float32", "int32", "int64", "int8", "uint8"))
    shape = d.shape(1, 4)
    count = min(d.between(1, 5), int(np.prod(shape)))
    flat = d.rng.permutation(int(np.prod(shape)))[:count]
    indices = np.stack(np.unravel_index(flat, shape), -1)
    kind = d.pick("int32", "int64")
    if len(shape) == 1 and d.chance():
        indices = indices[:, 0]
    values = d.input(() if d.chance(0.3) else (count,), dtype)
    return d.op(
        "SPARSE_TO_DENSE", [d.parameter(indices, kind), d.parameter(shape, kind), values, d.constant(0, dtype)], dtype
    )


@case("MATRIX_DIAG")
def matrix_diag(d):
    x, _, out = moved(d, ("float32", *Q8, "int16", "int32", "int64"), d.shape(1, 4))
    return d.op("MATRIX_DIAG", [x], out)


@case("MATRIX_SET_DIAG")
def matrix_set_diag(d):
    x, shape, out = moved(d, ("float32", *Q8, "int16", "int32", "int64"), d.shape(2, 4))
    diagonal = d.either((*shape[:-2], min(shape[-2:])), out[0], **out[1])
    return d.op("MATRIX_SET_DIAG", [x, diagonal], out)


@case("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(d):
    dtype = d.turn(("float32", "int8", "int32", "int64", "bool"))
    shape = d.shape(1, 4)
    same = d.quantisation(dtype)
    x = d.input(shape, dtype, **same)
    update = d.either(tuple(d.between(1, n) for n in shape), dtype, **same)
    start = d.parameter([d.between(-1, n) for n in shape], d.pick("int32", "int64"), p=0.5)
    return d.op("DYNAMIC_UPDATE_SLICE", [x, update, start], (dtype, same))


@case("EMBEDDING_LOOKUP")
def embedding_lookup(d):
    dtype = d.turn(("float32", "int8", "uint8"))
    shape = d.shape(2, 3)
    ids = d.input((d.between(1, 5),), "int32", 0, shape[0] - 1)
    same = {} if dtype == "float32" else {"scale": d.scale(), "zero": 0}
    table = d.either(shape, dtype, p=1, **same)
    out = ("float32", {}) if dtype != "float32" and d.chance() else (dtype, same)
    return d.op("EMBEDDING_LOOKUP", [ids, table], out)


@case("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(d):
    rows, width = d.between(2, 6), d.between(1, 4)
    count, groups = d.between(1, 6), d.between(1, 3)
    ids = d.input((count,), "int32", 0, rows - 1)
    where_ = np.sort(d.rng.integers(0, groups, count))
    where_ = np.stack([where_, np.arange(count)], -1)
    operands = [
        ids, d.parameter(where_), d.parameter([groups, count], p=0), d.either((count,), "float32", 0.1, 1),
        d.either((rows, width), "float32"),
    ]  # fmt: skip
    return d.op("EMBEDDING_LOOKUP_SPARSE", operands, "float32", combiner=d.below(3))


@case("HASHTABLE_LOOKUP")
def hashtable_lookup(d):
    dtype = d.turn(("float32", "int32"))
    count = d.between(1, 5)
    keys = np.sort(d.rng.permutation(20)[:count])
    lookup = d.input((d.between(1, 5),), "int32", 0, 20)
    if d.chance(0.7):
        d.feeds[-1] = d.rng.choice(keys, d.feeds[-1].shape).astype(np.int32)
    value = d.either((count, *d.shape(0, 2)), dtype)
    return d.op("HASHTABLE_LOOKUP", [lookup, d.parameter(keys), value], dtype, "uint8")


@case("DILATE")
def dilate(d):
    dtype = d.turn(("float32", "int8", "int16", "int32", "int64", "uint8"))
    shape = d.shape(1, 4)
    x = d.input(shape, dtype)
    factors = d.parameter([d.between(1, 3) for _ in shape], "int32", p=0)
    return d.op("DILATE", [x, factors, d.constant(d.values((), dtype))], dtype)


@case("REDUCE_WINDOW")
def reduce_window(d):
    dtype = d.turn(("float32", "int32", "int64", "int8", "int16", "uint8"))
    shape = d.shape(1, 4)
    window = [d.between(1, min(3, n)) for n in shape]
    kind = d.between(1, 4)
    operands = [
        d.input(shape, dtype, *((-3, 3) if dtype != "uint8" else (0, 3))),
        d.constant(0 if kind == 1 else d.values((), dtype, 0, 2), dtype),
        *(d.constant(np.array(v, np.int64)) for v in (window, [d.between(1, 2) for _ in shape], [1 for _ in shape])),
    ]
    return d.op("REDUCE_WINDOW", operands, dtype, reduceFunction=kind)

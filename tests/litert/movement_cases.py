# SPDX-License-Identifier: Apache-2.0
"""Random files of the operators that move, choose or look up elements, whose values keep their type and scale."""

import numpy as np

from tests.litert.cases import Q8, Q, activation, case, each

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

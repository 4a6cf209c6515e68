# SPDX-License-Identifier: Apache-2.0
"""Writes a quantised model so that its groups are the ones that ONNX Runtime computes in integers, and Tessera on the
NPU (docs/numerics.md, "What is fused"). Every step keeps what the model means: the integers of weights and activations,
and the place of each rounding. In and out: onnx.ModelProto; the model is changed in place.

Why: trained networks quantise a result once, behind its activation, and share parameters across sums and
concatenations. Then zero is inside of the range, a Relu is not implied by it, and ONNX Runtime computes the
convolution before it in float."""

import numpy as np
import onnx
from onnx import helper

from .graph import Graph, along, attribute

PRODUCTS = {"Conv", "Gemm", "MatMul"}
# What ONNX Runtime computes in integers where a quantisation follows directly.
FUSED = PRODUCTS | {"Add", "Mul", "GlobalAveragePool", "AveragePool", "Concat"}
CLAMPS = {"Relu", "Clip"}
# What moves elements, or chooses among them.
MOVES = {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Concat", "Gather",
         "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "GlobalMaxPool"}  # fmt: skip


def spell(model):
    graph = Graph(model)
    steps = (
        scalars,
        constants,
        clips,
        constants,
        norms,
        single_quantisers,
        pairs,
        means,
        dynamic_products,
        matrices,
        moves,
        types,
        floats,
        wide_products,
        clamps,
        biases,
    )
    for step in steps:
        step(graph)
        graph.tidy()
    return model


def scalars(graph):
    """Parameters of one element are scalars: ONNX Runtime's sums and products refuse vectors of one."""
    for node in graph.nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or attribute(node, "block_size", 0):
            continue
        for i in range(1, len(node.input)):
            array = graph.array(node.input[i]) if node.input[i] else None
            if array is not None and array.shape == (1,):
                node.input[i] = graph.constant(f"{node.input[i]}_scalar", array.reshape(()))


def constants(graph):
    """Constants that the graph quantises become integers, and movements of them are done."""
    for node in graph.nodes:
        if node.op_type == "QuantizeLinear" and graph.array(node.input[0]) is not None:
            given = graph.parameters(node)
            x = graph.array(node.input[0])
            if given is None or x.dtype != np.float32 or attribute(node, "block_size", 0):
                continue
            scale, zero = (along(v, attribute(node, "axis", 1) % max(x.ndim, 1), x.ndim) for v in given)
            limits = np.iinfo(zero.dtype)
            values = np.clip(np.rint(x / scale) + zero, limits.min, limits.max).astype(zero.dtype)
            graph.replace(node.output[0], graph.constant(f"{node.input[0]}_quantised", values))
        elif node.op_type == "Transpose":
            turned(graph, node)
        elif node.op_type == "Clip" and (x := graph.array(node.input[0])) is not None and x.dtype.kind in "iu":
            limits = limits_of(graph, node)
            if limits is not None:
                limited = np.clip(x.astype(np.float64), *limits).astype(x.dtype)
                graph.replace(node.output[0], graph.constant(f"{node.input[0]}_limited", limited))


def turned(graph, node):
    """The transpose of dequantised constants: the transposed constants, dequantised along the axis that moved."""
    source = graph.made_by(node.input[0], "DequantizeLinear")
    values = graph.array(source.input[0]) if source is not None else None
    if values is None:
        return
    order = attribute(node, "perm", list(reversed(range(values.ndim))))
    moved = graph.constant(f"{source.input[0]}_transposed", values.transpose(order))
    axis = attribute(source, "axis", 1)
    more = {"axis": list(order).index(axis % values.ndim)} if np.size(graph.array(source.input[1])) > 1 else {}
    result = graph.fresh(f"{node.output[0]}_value")
    graph.add("DequantizeLinear", [moved, *source.input[1:]], result, **more)
    graph.replace(node.output[0], result)


def clips(graph):
    """Limits of a narrow width stand behind the quantiser, on integers, in the files of Brevitas. They move in front of
    it, as real numbers: the integers are the same, and the limits can move on."""
    for node in graph.nodes:
        source = graph.made_by(node.input[0], "QuantizeLinear") if node.op_type == "Clip" else None
        given = graph.parameters(source) if source is not None else None
        limits = limits_of(graph, node)
        if given is None or given[0].size != 1 or limits is None or graph.only_reader(node.input[0]) is not node:
            continue
        ends = np.iinfo(given[1].dtype)
        scale, zero = np.float64(given[0].reshape(())), int(given[1].reshape(()))
        bounds = [np.float32((min(max(limit, ends.min), ends.max) - zero) * scale) for limit in limits]
        limited = graph.fresh(f"{source.input[0]}_limited")
        names = [graph.constant(f"{limited}_{end}", bound) for end, bound in zip(("low", "high"), bounds)]
        graph.add("Clip", [source.input[0], *names], limited)
        source.input[0] = limited
        graph.replace(node.output[0], source.output[0])


def norms(graph):
    """The normalisation behind a convolution goes into the scales of its weights and into its bias."""
    for node in graph.nodes:
        conv = graph.made_by(node.input[0], "Conv") if node.op_type == "BatchNormalization" else None
        if conv is None or graph.only_reader(conv.output[0]) is not node:
            continue
        source = graph.made_by(conv.input[1], "DequantizeLinear")
        weights = graph.array(source.input[0]) if source is not None else None
        given = graph.parameters(source) if weights is not None else None
        moments = [graph.array(name) for name in node.input[1:5]]
        bias = constant_value(graph, conv.input[2]) if len(conv.input) > 2 and conv.input[2] else 0.0
        if given is None or bias is None or any(m is None for m in moments) or np.any(given[1] != 0):
            continue
        gamma, beta, mean, variance = (m.astype(np.float64) for m in moments)
        factor = gamma / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
        if np.any(factor == 0) or np.any(
            (weights == np.iinfo(weights.dtype).min) & (along(factor, 0, weights.ndim) < 0)
        ):
            continue
        if given[0].size > 1 and attribute(source, "axis", 1) % weights.ndim != 0:
            continue
        name, count = source.input[0], len(factor)
        turned_weights = np.where(along(factor, 0, weights.ndim) < 0, -weights, weights).astype(weights.dtype)
        scale = (np.broadcast_to(given[0].reshape(-1), count).astype(np.float64) * np.abs(factor)).astype(np.float32)
        operands = [
            graph.constant(f"{name}_normalised", turned_weights),
            graph.constant(f"{name}_scale", scale),
            graph.constant(f"{name}_zero_point", np.zeros(count, weights.dtype)),
        ]
        value = graph.fresh(f"{name}_value")
        graph.add("DequantizeLinear", operands, value, axis=0)
        shift = ((np.asarray(bias, np.float64) - mean) * factor + beta).astype(np.float32)
        inputs = [conv.input[0], value, graph.constant(f"{node.output[0]}_bias", shift)]
        del conv.input[:], conv.output[:]
        conv.input.extend(inputs)
        conv.output.append(node.output[0])
        node.output[0] = graph.fresh(f"{node.output[0]}_gone")  # nobody reads it


def constant_value(graph, name):
    """The real number that a constant stands for, dequantised where it is stored so; None for what a run computes."""
    if graph.array(name) is not None:
        return graph.array(name)
    source = graph.made_by(name, "DequantizeLinear")
    values = graph.array(source.input[0]) if source is not None else None
    given = graph.parameters(source) if values is not None else None
    if given is None:
        return None
    scale, zero = (along(v.astype(np.float64), attribute(source, "axis", 1), values.ndim) for v in given)
    return ((values - zero) * scale).astype(np.float32)


def moves(graph):
    """Between a dequantisation and an operator of integers that only movements part from it, the moved integers are
    quantised as they were."""
    for node in graph.nodes:
        if node.op_type not in MOVES or node.domain or len(node.output) != 1 or node.output[0] in graph.outputs:
            continue
        operands = node.input if node.op_type == "Concat" else node.input[:1]
        sources = [graph.made_by(name, "DequantizeLinear") for name in operands]
        if None in sources or any(graph.parameters(source) is None for source in sources):
            continue
        if graph.parameters(sources[0])[0].size != 1 or not all(graph.same(sources[0], source) for source in sources):
            continue
        readers = graph.readers.get(node.output[0], [])
        if any(reader.op_type == "QuantizeLinear" for reader in readers):
            continue
        if not any(reader.op_type in FUSED | MOVES for reader in readers):
            continue
        parameters = list(sources[0].input[1:])
        moved, value = graph.fresh(f"{node.output[0]}_quantised"), graph.fresh(f"{node.output[0]}_value")
        graph.replace(node.output[0], value)
        graph.add("QuantizeLinear", [node.output[0], *parameters], moved)
        graph.add("DequantizeLinear", [moved, *parameters], value)
        graph.maker[value] = graph.graph.node[-1]


def types(graph):
    """Where signed and unsigned activations meet, all become unsigned: integers and zero points 128 higher. ONNX
    Runtime's integer operators take one type."""
    quantisers = [node for node in graph.nodes if node.op_type == "QuantizeLinear"]
    kinds = {graph.parameters(node)[1].dtype for node in quantisers if graph.parameters(node) is not None}
    if kinds != {np.dtype(np.int8), np.dtype(np.uint8)}:
        return
    for node in quantisers:
        given = graph.parameters(node)
        readers = graph.readers.get(node.output[0], [])
        if given is None or given[1].dtype != np.int8 or node.output[0] in graph.outputs:
            continue
        if all(reader.op_type == "DequantizeLinear" and graph.same(reader, node) for reader in readers):
            for reader in (node, *readers):
                raise_zero(graph, reader, given[1])
    for node in graph.nodes:
        if node.op_type not in ("Add", "Mul", "Concat"):
            continue
        for name in node.input:
            source = graph.made_by(name, "DequantizeLinear")
            values = graph.array(source.input[0]) if source is not None else None
            given = graph.parameters(source) if values is not None else None
            if given is not None and values.dtype == np.int8:
                raise_zero(graph, source, given[1])
                higher = (values.astype(np.int16) + 128).astype(np.uint8)
                source.input[0] = graph.constant(f"{source.input[0]}_unsigned", higher)


def raise_zero(graph, node, zero):
    higher = (zero.astype(np.int16) + 128).astype(np.uint8)
    name = node.input[2] if len(node.input) > 2 and node.input[2] else node.input[1]
    inputs = [*node.input[:2], graph.constant(f"{name}_unsigned", higher)]
    del node.input[:]
    node.input.extend(inputs)


def single_quantisers(graph):
    """Quantisers of one tensor with equal parameters are one."""
    seen = {}
    for node in graph.nodes:
        if node.op_type != "QuantizeLinear":
            continue
        for other in seen.setdefault(node.input[0], []):
            if graph.same(node, other) and graph.replace(node.output[0], other.output[0]):
                break
        else:
            seen[node.input[0]].append(node)


def pairs(graph):
    """What is dequantised and quantised again with the same parameters stays as it is. With other parameters a Clip
    that limits nothing stands between: ONNX Runtime would merge the two quantisations into one that rounds once."""
    for node in graph.nodes:
        source = graph.made_by(node.input[0], "DequantizeLinear") if node.op_type == "QuantizeLinear" else None
        if source is None:
            continue
        if graph.same(node, source) and graph.replace(node.output[0], source.input[0]):
            continue
        part(graph, node)


def part(graph, node):
    """A Clip that limits nothing in front of the first operand."""
    apart = graph.fresh(f"{node.input[0]}_apart")
    lowest = graph.constant(f"{apart}_lowest", np.float32(np.finfo(np.float32).min))
    node.input[0] = graph.add("Clip", [node.input[0], lowest], apart)


def floats(graph):
    """Products whose weights were left in float stay float: between a dequantisation and a quantisation ONNX Runtime
    would quantise the weights by itself."""
    for node in graph.nodes:
        if node.op_type not in PRODUCTS | {"ConvTranspose"} or graph.array(node.input[1]) is None:
            continue
        if graph.array(node.input[1]).dtype == np.float32 and graph.made_by(node.input[0], "DequantizeLinear"):
            part(graph, node)


def means(graph):
    """A mean over all positions of an image becomes GlobalAveragePool, which has an integer form."""
    for node in graph.nodes:
        if node.op_type != "ReduceMean" or graph.made_by(node.input[0], "DequantizeLinear") is None:
            continue
        axes = graph.array(node.input[1]) if len(node.input) > 1 else attribute(node, "axes")
        dims = graph.shapes.get(node.input[0])
        if axes is None or dims is None or len(dims) < 3:
            continue
        if sorted(int(a) % len(dims) for a in axes) != list(range(2, len(dims))):
            continue
        if attribute(node, "keepdims", 1):
            pooled = node.output[0]
        else:
            pooled = graph.fresh(f"{node.output[0]}_pooled")
            axes = graph.constant(f"{node.output[0]}_axes", np.arange(2, len(dims), dtype=np.int64))
            graph.add("Squeeze", [pooled, axes], node.output[0])
        source = node.input[0]
        del node.input[:], node.attribute[:], node.output[:]
        node.op_type = "GlobalAveragePool"
        node.input.append(source)
        node.output.append(pooled)


def matrices(graph):
    """A product of a tensor of more than two axes with a quantised matrix, and the bias behind it, become a Gemm of
    rows: ONNX Runtime's integer product of such tensors takes neither a bias nor scales of columns."""
    for node in graph.nodes:
        if node.op_type != "MatMul":
            continue
        operands = [graph.made_by(name, "DequantizeLinear") for name in node.input]
        weights = graph.array(operands[1].input[0]) if operands[1] is not None else None
        if operands[0] is None or weights is None or weights.ndim != 2:
            continue
        dims = graph.shapes.get(node.input[0])
        end, bias = node, None
        behind = graph.only_reader(node.output[0])
        if behind is not None and behind.op_type == "Add":
            other = behind.input[1] if behind.input[0] == node.output[0] else behind.input[0]
            if graph.array(other) is not None and graph.array(other).shape == (weights.shape[1],):
                end, bias = behind, other
        if dims is None or len(dims) < 2 or sum(d is None for d in dims[:-1]) > 1 or (len(dims) == 2 and bias is None):
            continue
        rows, product = node.input[0], end.output[0]
        if len(dims) > 2:
            rows, product = graph.fresh(f"{node.input[0]}_rows"), graph.fresh(f"{end.output[0]}_rows")
            flat = graph.constant(f"{rows}_shape", np.array([-1, weights.shape[0]], np.int64))
            back = [-1 if d is None else d for d in dims[:-1]] + [weights.shape[1]]
            graph.add("Reshape", [node.input[0], flat], rows)
            folded = graph.constant(f"{product}_shape", np.array(back, np.int64))
            graph.add("Reshape", [product, folded], end.output[0])
        matrix = node.input[1]
        gone = end.output[0] if end is not node else None
        del node.input[:], node.output[:], node.attribute[:]
        node.op_type = "Gemm"
        node.input.extend([rows, matrix, *([bias] if bias is not None else [])])
        node.output.append(product)
        if gone is not None:
            end.output[0] = graph.fresh(f"{gone}_gone")  # nobody reads it


def clamps(graph):
    """Relu and Clip between an operator that can be computed in integers and a quantiser: the operator is quantised
    with the same parameters before it is limited. Limits and rounding are monotone, so the integers are the same."""
    for node in graph.nodes:
        if node.op_type not in FUSED or node.domain or not quantised_operands(graph, node):
            continue
        first, behind, implied = None, graph.only_reader(node.output[0]), True
        chain = []
        while behind is not None and behind.op_type in CLAMPS and limits_of(graph, behind) is not None:
            first = first or behind
            chain.append(behind)
            behind = graph.only_reader(behind.output[0])
        if first is None or behind is None or behind.op_type != "QuantizeLinear":
            continue
        given = graph.parameters(behind)
        if given is None or given[0].size != 1 or given[1].dtype.itemsize != 1:
            continue
        scale, zero = np.float64(given[0].reshape(())), int(given[1].reshape(()))
        ends = np.iinfo(given[1].dtype)
        for clamp in chain:
            low, high = limits_of(graph, clamp)
            implied &= low <= (ends.min - zero) * scale and high >= (ends.max - zero) * scale
            if not (low <= 0 <= high) and low > high:
                implied = None  # no range at all: left as it stands
        if implied or implied is None:
            continue
        parameters = list(behind.input[1:])
        whole, value = graph.fresh(f"{node.output[0]}_quantised"), graph.fresh(f"{node.output[0]}_value")
        graph.add("QuantizeLinear", [node.output[0], *parameters], whole)
        graph.add("DequantizeLinear", [whole, *parameters], value)
        first.input[0] = value


def limits_of(graph, node):
    """Low and high of a Relu or Clip; None where a run computes them."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    found = []
    for index, missing in ((1, -np.inf), (2, np.inf)):
        if len(node.input) <= index or not node.input[index]:
            found.append(missing)
            continue
        array = graph.array(node.input[index])
        if array is None or array.size != 1:
            return None
        found.append(float(array.reshape(())))
    return tuple(found)


def quantised_operands(graph, node):
    """Whether all operands that a run computes, and the weights of a product, are dequantised."""
    operands = node.input[:2] if node.op_type in PRODUCTS else node.input
    return all(graph.made_by(name, "DequantizeLinear") is not None for name in operands)


def dynamic_products(graph):
    """Activations whose parameters each run chooses: what DynamicQuantizeLinear makes goes into MatMulInteger, and the
    sums are scaled behind it."""
    for node in graph.nodes:
        if node.op_type not in ("MatMul", "Gemm") or not quantised_operands(graph, node):
            continue
        x, w = (graph.maker[name] for name in node.input[:2])
        chosen, weights, given = chosen_by_run(graph, x), graph.array(w.input[0]), graph.parameters(w)
        if chosen is None or weights is None or weights.ndim != 2 or given is None or np.any(given[1] != 0):
            continue
        columns = 0 if attribute(node, "transB", 0) else 1
        unscaled = all(attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if not unscaled or attribute(node, "transA", 0) or weights.dtype != np.int8:
            continue
        if given[0].size > 1 and attribute(w, "axis", 1) % 2 != columns:
            continue
        result = node.output[0]
        name = lambda what, of=result: graph.fresh(f"{of}_{what}")
        matrix = graph.constant(f"{result}_weights", weights.T if columns == 0 else weights)
        sums = graph.add("MatMulInteger", [chosen.output[0], matrix, chosen.output[2]], name("sums"))
        value = graph.add("Cast", [sums], name("value"), to=onnx.TensorProto.FLOAT)
        scale = graph.add("Mul", [chosen.output[1], graph.constant(f"{result}_scale", given[0])], name("unit"))
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
        node.output[0] = name("gone")  # nobody reads it
        if bias is None:
            graph.add("Mul", [value, scale], result)
        else:
            graph.add("Add", [graph.add("Mul", [value, scale], name("scaled")), bias], result)


def chosen_by_run(graph, node):
    """The DynamicQuantizeLinear whose parameters a DQ has, of the tensor that the Q before it reads; else None."""
    source = graph.made_by(node.input[0], "QuantizeLinear")
    if source is None or list(source.input[1:]) != list(node.input[1:]):
        return None
    maker = node
    for _ in range(4):  # conversions of the scale between the types that PyTorch and ONNX have
        maker = graph.maker.get(maker.input[1] if maker is node else maker.input[0])
        if maker is None or maker.op_type not in ("Cast", "Squeeze", "Reshape", "Identity"):
            break
    known = maker is not None and maker.op_type == "DynamicQuantizeLinear" and maker.input[0] == source.input[0]
    return maker if known else None


def wide_products(graph):
    """A product of 16-bit activations with 8-bit weights becomes two products of bytes, of the upper and the lower
    half: x = 256 * h + l. Their sums are exact integers, which are scaled and added in float. ONNX Runtime has no
    16-bit product and would add in float."""
    halves = {}
    for node in graph.nodes:
        if node.op_type not in PRODUCTS or not quantised_operands(graph, node):
            continue
        x, w = (graph.maker[name] for name in node.input[:2])
        weights, given = graph.array(w.input[0]), (graph.parameters(x), graph.parameters(w))
        if weights is None or None in given or given[0][1].dtype != np.int16 or weights.dtype != np.int8:
            continue
        if given[0][0].size != 1 or any(np.any(zero != 0) for _, zero in given):
            continue
        axis = 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else 1
        if given[1][0].size > 1 and attribute(w, "axis", 1) % weights.ndim != axis:
            continue
        unscaled = all(attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if node.op_type != "Conv" and (weights.ndim != 2 or not unscaled or attribute(node, "transA", 0)):
            continue
        if x.input[0] not in halves:
            halves[x.input[0]] = split_halves(graph, x.input[0])
        replace_wide(graph, node, halves[x.input[0]], weights, given[0][0] * given[1][0])


def split_halves(graph, name):
    """The upper bytes of int16, 128 higher, and the lower ones, both as uint8."""
    fresh = lambda what: graph.fresh(f"{name}_{what}")
    constant = lambda value: graph.constant(f"{name}_{value}", np.float32(value))
    whole = graph.add("Cast", [name], fresh("whole"), to=onnx.TensorProto.FLOAT)
    high = graph.add("Floor", [graph.add("Mul", [whole, constant(1 / 256)], fresh("scaled"))], fresh("high"))
    low = graph.add("Sub", [whole, graph.add("Mul", [high, constant(256)], fresh("rest"))], fresh("low"))
    raised = graph.add("Add", [high, constant(128)], fresh("raised"))
    return tuple(
        graph.add("Cast", [half], fresh(f"{what}_byte"), to=onnx.TensorProto.UINT8)
        for half, what in ((raised, "high"), (low, "low"))
    )


def replace_wide(graph, node, halves, weights, scale):
    """The node's result from the integer products of both halves."""
    result, conv = node.output[0], node.op_type == "Conv"
    axis, rank = (1, weights.ndim) if conv else (0, 1)
    kept = {a.name: helper.get_attribute_value(a) for a in node.attribute} if conv else {}
    weights = weights.T if not conv and attribute(node, "transB", 0) else weights
    # ONNX Runtime's ConvInteger has a kernel for unsigned weights alone.
    held = (weights.astype(np.int16) + 128).astype(np.uint8) if conv else weights
    matrix, parts = graph.constant(f"{result}_weights", held), []
    for half, zero, unit in zip(halves, (128, 0), (256, 1)):
        sums, value, scaled = (graph.fresh(f"{result}_{what}_{unit}") for what in ("sums", "value", "scaled"))
        operands = [half, matrix, graph.constant(f"{result}_zero", np.uint8(zero))]
        operands += [graph.constant(f"{result}_weights_zero", np.uint8(128))] if conv else []
        graph.add("ConvInteger" if conv else "MatMulInteger", operands, sums, **kept)
        graph.add("Cast", [sums], value, to=onnx.TensorProto.FLOAT)
        factor = along((scale * np.float32(unit)).astype(np.float32), axis, rank)
        parts.append(graph.add("Mul", [value, graph.constant(f"{result}_scale", factor)], scaled))
    if len(node.input) > 2 and node.input[2]:
        shift = constant_value(graph, node.input[2])
        known = shift is not None and shift.ndim == 1
        bias = graph.constant(f"{result}_bias", along(shift.astype(np.float32), axis, rank)) if known else node.input[2]
        parts[1] = graph.add("Add", [parts[1], bias], graph.fresh(f"{result}_shifted"))
    node.output[0] = graph.fresh(f"{result}_gone")  # nobody reads it
    graph.add("Add", parts, result)


def finer(graph, node, source):
    """Weights of less than eight bits times the largest powers of two that fit, their scales divided by them: the same
    real numbers. Returns scale and zero point."""
    values, (scale, zero) = graph.array(source.input[0]), graph.parameters(source)
    if values is None or values.dtype != np.int8 or np.any(zero != 0) or not values.size:
        return scale, zero
    axis = attribute(source, "axis", 1) % values.ndim
    rest = None if scale.size == 1 else tuple(d for d in range(values.ndim) if d != axis)
    peak = np.maximum(np.abs(values.astype(np.int32)).max(axis=rest), 1)
    factor = np.exp2(np.floor(np.log2(127 / peak))).astype(np.float32)
    if np.all(factor == 1):
        return scale, zero
    larger = (values * along(factor, axis, values.ndim)).astype(np.int8)
    name, finer_scale = source.input[0], (scale / factor.reshape(scale.shape)).astype(np.float32)
    operands = [graph.constant(f"{name}_wide", larger), graph.constant(f"{name}_wide_scale", finer_scale)]
    value = graph.fresh(f"{name}_wide_value")
    more = {"axis": axis} if scale.size > 1 else {}
    graph.add("DequantizeLinear", [*operands, *source.input[2:]], value, **more)
    graph.maker[value] = graph.graph.node[-1]
    node.input[1] = value
    return finer_scale, zero


def biases(graph):
    """Biases of quantised products become int32 with the scale of their sums, whatever they are stored with: ONNX
    Runtime ignores the scale of a bias. Weights of few bits would make that scale coarse, so they are written in larger
    integers of a smaller scale first."""
    for node in graph.nodes:
        if node.op_type not in ("Conv", "Gemm") or len(node.input) < 3 or not quantised_operands(graph, node):
            continue
        bias = constant_value(graph, node.input[2])
        x, w = (graph.maker[name] for name in node.input[:2])
        given = graph.parameters(x), graph.parameters(w)
        if bias is None or bias.ndim != 1 or None in given or given[0][0].size != 1:
            continue
        if any(zero.dtype.itemsize != 1 for _, zero in given) or attribute(node, "beta", 1.0) != 1.0:
            continue
        behind = graph.only_reader(node.output[0])
        while behind is not None and behind.op_type in CLAMPS:
            behind = graph.only_reader(behind.output[0])
        if node.op_type == "Conv" and (behind is None or behind.op_type != "QuantizeLinear"):
            continue
        given = given[0], finer(graph, node, graph.maker[node.input[1]])
        scale = (given[0][0].reshape(()) * given[1][0]).astype(np.float32)
        scale = scale.reshape(()) if scale.size == 1 else scale
        if scale.ndim and scale.size != bias.size or not np.all(scale > 0):
            continue
        values = np.rint(bias.astype(np.float64) / scale)
        if np.abs(values).max(initial=0) >= 2**31:
            continue  # the float bias stays, and the product with it
        name = node.input[2]
        value = graph.fresh(f"{name}_value")
        more = {"axis": 0} if scale.ndim else {}
        operands = [
            graph.constant(f"{name}_quantised", values.astype(np.int32)),
            graph.constant(f"{name}_scale", scale),
        ]
        graph.add("DequantizeLinear", operands, value, **more)
        node.input[2] = value

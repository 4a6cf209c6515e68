# SPDX-License-Identifier: Apache-2.0
"""Random files of the operators with weights and windows, of recurrent cells, of control flow, and of detection."""

import numpy as np

from tests.litert.cases import activation, case, each
from tests.litert.draw import QUANTISED

SAME, VALID = 0, 1


def window(d, most=3):
    """Options of a sliding window: padding, strides."""
    return {"padding": d.below(2), "strideH": d.pick(1, 1, 2, 3), "strideW": d.pick(1, 1, 2, most)}


def image(d, channels=None, low=4, high=9):
    return (d.between(1, 2), d.between(low, high), d.between(low, high), channels or d.between(1, 8))


PRODUCT_TYPES = (
    "float32",
    "int8",
    "uint8",
    "int16",
    "int8 per channel",
    "int16 per channel",
    "hybrid",
    "hybrid int4",
    "float16 weights",
)


def product_operands(d, kind, x_shape, weight_shape, channel_axis, channels, given=None):
    """Input, weights and bias, and the type of the output. `given`: tensor and quantisation, instead of an input."""
    name = kind.split()[0]
    dtype = "float32" if kind in ("float32", "hybrid", "hybrid int4", "float16 weights") else name
    if given:
        x, quantised = given
    else:
        quantised = d.quantisation(dtype)
        x = d.input(x_shape, dtype, **quantised)
    if dtype == "float32":
        if name == "hybrid":
            per_channel = d.chance()
            scales = [d.scale() for _ in range(channels)] if per_channel else d.scale()
            how = {"scale": scales, "zero": 0, "axis": channel_axis}
            if kind == "hybrid int4":
                pairs = np.resize(d.values(weight_shape, "int8", -7, 7), (int(np.prod(weight_shape)) + 1) // 2 * 2)
                packed = (pairs[0::2] & 15 | pairs[1::2] << 4).astype(np.int8)
                weights = d.graph.tensor("weights", weight_shape, "int4", data=packed, **how)
            else:
                weights = d.constant(d.values(weight_shape, "int8", -127), **how)
        elif kind == "float16 weights":
            half = d.constant(d.values(weight_shape, "float16", -1, 1))
            weights = d.op("DEQUANTIZE", [half], "float32")
        else:
            weights = d.constant(d.values(weight_shape, "float32", -1, 1))
        bias = d.constant(d.values((channels,), "float32")) if d.chance(0.8) else -1
        return x, weights, bias, ("float32", {})
    per_channel = kind.endswith("channel")
    if dtype == "uint8":
        scales, zero = d.scale(), d.between(0, 255)
        weights = d.constant(d.values(weight_shape, "uint8"), scale=scales, zero=zero)
    else:
        scales = [d.scale() for _ in range(channels)] if per_channel else d.scale()
        weights = d.constant(d.values(weight_shape, "int8", -127), scale=scales, zero=0, axis=channel_axis)
    # Sums of 16 bits have a bias of 64; LiteRT's convolutions read one of 32 bits beyond its end.
    wide = dtype == "int16" and (len(weight_shape) > 2 or d.chance(0.7))
    bias_scale = np.float32(quantised["scale"]) * np.asarray(scales, np.float32)
    bias = -1
    if d.chance(0.8):
        bias = d.constant(
            d.values((channels,), "int64" if wide else "int32", -3000, 3000), scale=bias_scale, zero=0, axis=0
        )
    # The scale of the output covers the sums or cuts them.
    products = int(np.prod(weight_shape)) // channels
    spread = 74 * 74 * np.sqrt(products) * float(np.max(bias_scale)) * (256 if dtype == "int16" else 1)
    steps = 20000 if dtype == "int16" else 60
    out = d.quantisation(dtype) | {"scale": float(np.float32(spread / steps * d.rng.uniform(0.5, 2)))}
    return x, weights, bias, (dtype, out)


@case("CONV_2D")
def conv_2d(d):
    kind = d.turn(PRODUCT_TYPES)
    groups = d.pick(1, 1, 1, 2) if kind in ("float32", "int8 per channel", "hybrid", "hybrid int4") else 1
    shape = image(d, d.between(1, 6) * groups)
    filters = d.between(1, 4) * groups
    weights = (filters, d.between(1, 3), d.between(1, 3), shape[3] // groups)
    options = window(d)
    if d.chance(0.2):
        options |= {"strideH": 1, "strideW": 1, "dilationHFactor": d.between(1, 2), "dilationWFactor": d.between(1, 2)}
    x, w, b, out = product_operands(d, kind, shape, weights, 0, filters)
    return d.op("CONV_2D", [x, w, b], out, fusedActivationFunction=activation(d), **options)


@case("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(d):
    kind = d.turn([kind for kind in PRODUCT_TYPES if kind != "hybrid int4"])
    shape, multiplier = image(d), d.pick(1, 1, 1, 2, 3)
    channels = shape[3] * multiplier
    options = window(d) | {"depthMultiplier": multiplier}
    if d.chance(0.2):
        options |= {"strideH": 1, "strideW": 1, "dilationHFactor": d.between(1, 2), "dilationWFactor": d.between(1, 2)}
    else:
        options["strideW"] = options["strideH"]
    x, w, b, out = product_operands(d, kind, shape, (1, d.between(1, 3), d.between(1, 3), channels), 3, channels)
    return d.op("DEPTHWISE_CONV_2D", [x, w, b], out, fusedActivationFunction=activation(d), **options)


@case("TRANSPOSE_CONV")
def transpose_conv(d):
    kind = d.turn(("float32", "int8", "uint8", "int16", "int8 per channel", "int16 per channel"))
    shape, filters = image(d, None, 2, 5), d.between(1, 5)
    weights = (filters, d.between(1, 4), d.between(1, 4), shape[3])
    options = {"padding": d.below(2), "strideH": d.between(1, 3), "strideW": d.between(1, 3)}
    size = []
    for n, k, stride in zip(shape[1:3], weights[1:3], (options["strideH"], options["strideW"])):
        if options["padding"] == SAME:
            size.append(n * stride - d.below(stride))
        else:
            size.append((n - 1) * stride + max(k, 1) + d.below(stride))
    x, w, b, out = product_operands(d, kind, shape, weights, 0, filters)
    operands = [d.constant(np.array([shape[0], *size, filters], np.int32)), w, x]
    if b >= 0:
        operands.append(b)
    return d.op("TRANSPOSE_CONV", operands, out, fusedActivationFunction=activation(d), **options)


@case("CONV_3D")
def conv_3d(d):
    shape = (d.between(1, 2), *(d.between(3, 5) for _ in range(3)), d.between(1, 3))
    filters = d.between(1, 4)
    weights = (*(d.between(1, 3) for _ in range(3)), shape[4], filters)
    operands = [d.input(shape, "float32"), d.constant(d.values(weights, "float32"))]
    if d.chance():
        operands.append(d.constant(d.values((filters,), "float32")))
    options = window(d) | {"strideD": d.between(1, 2)}
    if d.chance(0.2):
        options |= {"dilationDFactor": 2, "strideD": 1}
    return d.op("CONV_3D", operands, "float32", fusedActivationFunction=activation(d), **options)


@case("CONV_3D_TRANSPOSE")
def conv_3d_transpose(d):
    shape = (d.between(1, 2), *(d.between(2, 3) for _ in range(3)), d.between(1, 3))
    filters = d.between(1, 3)
    weights = (*(d.between(1, 3) for _ in range(3)), filters, shape[4])
    padding, strides = d.below(2), [d.between(1, 2) for _ in range(3)]
    size = [n * s if padding == SAME else (n - 1) * s + k for n, s, k in zip(shape[1:4], strides, weights)]
    operands = [
        d.constant(np.array([shape[0], *size, filters], np.int32)),
        d.constant(d.values(weights, "float32")),
        d.input(shape, "float32"),
    ]
    if d.chance():
        operands.append(d.constant(d.values((filters,), "float32")))
    options = dict(zip(("strideD", "strideH", "strideW"), strides), padding=padding)
    return d.op("CONV_3D_TRANSPOSE", operands, "float32", fusedActivationFunction=activation(d), **options)


@case("FULLY_CONNECTED")
def fully_connected(d):
    kind = d.turn(PRODUCT_TYPES)
    depth, units = d.between(1, 12), d.between(1, 8)
    shape = (*d.shape(1, 3, 4), depth)
    x, w, b, out = product_operands(d, kind, shape, (units, depth), 0, units)
    return d.op(
        "FULLY_CONNECTED", [x, w, b], out, fusedActivationFunction=activation(d), keepNumDims=d.chance(),
        asymmetricQuantizeInputs=kind.startswith("hybrid") and d.chance(),
    )  # fmt: skip


@case("BATCH_MATMUL")
def batch_matmul(d):
    dtype = d.turn(("float32", "int8", "int16"))
    batch, m, k, n = d.shape(0, 3, 3), d.between(1, 6), d.between(1, 8), d.between(1, 6)
    adj_x, adj_y = d.chance(0.4), d.chance(0.4)
    x_batch, y_batch = (batch, d.broadcast(batch)) if d.chance() else (batch, batch)
    x = d.input((*x_batch, *((k, m) if adj_x else (m, k))), dtype, **d.quantisation(dtype))
    y = d.either((*y_batch, *((n, k) if adj_y else (k, n))), dtype, **d.quantisation(dtype))
    return d.op("BATCH_MATMUL", [x, y], (dtype, d.quantisation(dtype, 0.1, 1)), adjX=adj_x, adjY=adj_y)


@each("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pool(d, name):
    dtype = d.turn(("float32",) if name == "L2_POOL_2D" else ("float32", *QUANTISED))
    same = d.quantisation(dtype)
    x = d.input(image(d), dtype, **same)
    options = window(d) | {"filterHeight": d.between(1, 4), "filterWidth": d.between(1, 4)}
    return d.op(name, [x], (dtype, same), fusedActivationFunction=activation(d, among=(0, 1, 3)), **options)


@each("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(d, name):
    dtype = d.turn(("float32", *QUANTISED))
    same = d.quantisation(dtype)
    x = d.input(image(d, None, 1, 6), dtype, **same)
    size = d.parameter([d.between(1, 9), d.between(1, 9)], p=0)
    align = d.chance(0.3)
    return d.op(name, [x, size], (dtype, same), alignCorners=align, halfPixelCenters=not align and d.chance())


# Recurrent cells


def weights(d, *shape):
    return d.constant(d.values(shape, "float32", -0.7, 0.7))


def state(d, *shape):
    return d.graph.tensor(f"state{len(d.graph.table.tensors)}", shape, "float32", variable=True)


@case("RNN")
def rnn(d):
    batch, width, units = d.between(1, 3), d.between(1, 5), d.between(1, 5)
    operands = [
        d.input((batch, width), "float32"), weights(d, units, width), weights(d, units, units), weights(d, units),
        state(d, batch, units),
    ]  # fmt: skip
    return d.op("RNN", operands, "float32", fusedActivationFunction=d.pick(0, 1, 4))


@case("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(d):
    batch, steps, width, units = d.between(1, 3), d.between(1, 4), d.between(1, 5), d.between(1, 5)
    major = d.chance()
    operands = [
        d.input((steps, batch, width) if major else (batch, steps, width), "float32"),
        weights(d, units, width), weights(d, units, units), weights(d, units), state(d, batch, units),
    ]  # fmt: skip
    return d.op(
        "UNIDIRECTIONAL_SEQUENCE_RNN", operands, "float32", timeMajor=major, fusedActivationFunction=d.pick(0, 1, 4)
    )


@case("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(d):
    batch, steps, width = d.between(1, 3), d.between(1, 4), d.between(1, 5)
    major, merge = d.chance(), d.chance()
    operands = [d.input((steps, batch, width) if major else (batch, steps, width), "float32")]
    for units in (d.between(1, 5), d.between(1, 5)):
        operands += [weights(d, units, width), weights(d, units, units), weights(d, units), state(d, batch, units)]
    operands += [-1] * 3
    return d.op(
        "BIDIRECTIONAL_SEQUENCE_RNN", operands, *["float32"] * (1 if merge else 2), timeMajor=major,
        mergeOutputs=merge, fusedActivationFunction=d.pick(0, 1, 4),
    )  # fmt: skip


def lstm_weights(d, width, units, outputs, *, coupled, peephole, projection, normalised):
    """Operands 1 to 17 of an LSTM, and its layer normalisation's."""
    gates = [-1 if coupled else weights(d, units, width), *(weights(d, units, width) for _ in range(3))]
    recurrent = [-1 if coupled else weights(d, units, outputs), *(weights(d, units, outputs) for _ in range(3))]
    peepholes = [-1] * 3
    if peephole:
        peepholes = [-1 if coupled else weights(d, units), weights(d, units), weights(d, units)]
    biases = [-1 if coupled else weights(d, units), *(weights(d, units) for _ in range(3))]
    projections = [weights(d, outputs, units), weights(d, outputs) if d.chance() else -1] if projection else [-1, -1]
    norms = [-1 if coupled else weights(d, units), *(weights(d, units) for _ in range(3))] if normalised else [-1] * 4
    return [*gates, *recurrent, *peepholes, *biases, *projections], norms


def lstm_operands(d, sequence):
    batch, steps, width, units = d.between(1, 3), d.between(1, 4), d.between(1, 5), d.between(1, 5)
    projection = d.chance(0.3)
    outputs = d.between(1, 4) if projection else units
    major = d.chance()
    shape = ((steps, batch, width) if major else (batch, steps, width)) if sequence else (batch, width)
    x = d.input(shape, "float32")
    parts, norms = lstm_weights(
        d, width, units, outputs, coupled=d.chance(0.3), peephole=d.chance(0.3), projection=projection,
        normalised=d.chance(0.3),
    )  # fmt: skip
    operands = [x, *parts, state(d, batch, outputs), state(d, batch, units)]
    if norms != [-1] * 4 or d.chance():
        operands += norms
    clips = {"cellClip": d.pick(0.0, 0.0, 0.5), "projClip": d.pick(0.0, 0.3) if projection else 0.0}
    return operands, major, clips | {"fusedActivationFunction": d.pick(4, 4, 4, 1, 3)}


@case("LSTM")
def lstm(d):
    operands, _, options = lstm_operands(d, False)
    return d.op("LSTM", operands, "float32", **options)


@case("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(d):
    operands, major, options = lstm_operands(d, True)
    return d.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, "float32", timeMajor=major, **options)


@case("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(d):
    batch, steps, width = d.between(1, 3), d.between(1, 4), d.between(1, 5)
    major, merge, coupled, peephole = d.chance(), d.chance(), d.chance(0.3), d.chance(0.3)
    operands, states = [d.input((steps, batch, width) if major else (batch, steps, width), "float32")], []
    units = d.between(1, 5)
    for _ in range(2):
        operands += lstm_weights(
            d, width, units, units, coupled=coupled, peephole=peephole, projection=False, normalised=False
        )[0]  # fmt: skip
        states += [state(d, batch, units), state(d, batch, units)]
    operands += [*states, *[-1] * 9]
    return d.op(
        "BIDIRECTIONAL_SEQUENCE_LSTM", operands, *["float32"] * (1 if merge else 2), timeMajor=major,
        mergeOutputs=merge, cellClip=d.pick(0.0, 0.5), projClip=0.0, fusedActivationFunction=4,
    )  # fmt: skip


@case("SVDF")
def svdf(d):
    batch, width, units, rank, memory = (d.between(1, 4) for _ in range(5))
    operands = [
        d.input((batch, width), "float32"), weights(d, units * rank, width), weights(d, units * rank, memory),
        weights(d, units) if d.chance() else -1, state(d, batch, memory * units * rank),
    ]  # fmt: skip
    return d.op("SVDF", operands, "float32", rank=rank, fusedActivationFunction=d.pick(0, 1))


# Control flow


def body(d, name, shapes, dtype="float32"):
    """A subgraph with these inputs: (graph, inputs)."""
    graph = d.model.graph(name)
    return graph, [graph.input(f"{name}{i}", shape, dtype) for i, shape in enumerate(shapes)]


@case("IF")
def if_(d):
    shape = d.shape(1, 3)
    c, x, y = d.input((), "bool"), d.input(shape, "float32"), d.input(shape, "float32")
    for name, operator in (("then", d.pick("ADD", "MAXIMUM")), ("else", d.pick("MUL", "MINIMUM"))):
        graph, ports = body(d, name, [shape, shape])
        graph.outputs(graph.op(operator, ports, [graph.tensor("result", shape, "float32")]))
    return d.op("IF", [c, x, y], "float32", thenSubgraphIndex=1, elseSubgraphIndex=2)


@case("WHILE")
def while_(d):
    shape, steps = d.shape(1, 3), d.between(0, 5)
    count, x = d.input((), "int32", 0, 1), d.input(shape, "float32")
    graph = d.model.graph("condition")
    i, _ = graph.input("i", (), "int32"), graph.input("x", shape, "float32")
    graph.outputs(graph.op("LESS", [i, graph.constant(np.int32(steps))], [graph.tensor("more", (), "bool")]))
    graph = d.model.graph("body")
    i, v = graph.input("i", (), "int32"), graph.input("x", shape, "float32")
    half = graph.constant(np.float32(d.rng.uniform(-1, 1)))
    graph.outputs(
        graph.op("ADD", [i, graph.constant(np.int32(1))], [graph.tensor("next", (), "int32")]),
        graph.op(d.pick("MUL", "ADD", "SUB"), [v, half], [graph.tensor("y", shape, "float32")]),
    )
    return d.op("WHILE", [count, x], "int32", "float32", condSubgraphIndex=1, bodySubgraphIndex=2)


@case("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
def variables(d):
    """A variable that CALL_ONCE sets, that is read, perhaps changed, and read again."""
    dtype = d.turn(("float32", "int32"))
    shape = d.shape(1, 3)

    def handle(graph):
        return graph.op("VAR_HANDLE", [], [graph.tensor("handle", (), "resource")], sharedName="v", container="")

    graph = d.model.graph("initialise")
    graph.op("ASSIGN_VARIABLE", [handle(graph), graph.constant(d.values(shape, dtype))], [])
    x = d.input(shape, dtype)
    d.graph.op("CALL_ONCE", [], [], initSubgraphIndex=1)
    v = handle(d.graph)
    results = [d.op("ADD", [x, d.op("READ_VARIABLE", [v], dtype)], dtype)]
    if d.chance():
        d.graph.op("ASSIGN_VARIABLE", [v, results[0]], [])
        results.append(d.op("MUL", [x, d.op("READ_VARIABLE", [v], dtype)], dtype))
    return results


# Signals and complex numbers


@case("RFFT2D")
def rfft2d(d):
    shape = (*d.shape(0, 1), 2 ** d.between(0, 3), 2 ** d.between(1, 4))
    length = d.constant(np.array(shape[-2:], np.int32))
    return d.op("RFFT2D", [d.input(shape, "float32"), length], "complex64")


@each("REAL", "IMAG", "COMPLEX_ABS")
def complex_part(d, name):
    x = d.input((*d.shape(0, 1), 4, 8), "float32")
    spectrum = d.op("RFFT2D", [x, d.constant(np.array([4, 8], np.int32))], "complex64")
    return d.op(name, [spectrum], "float32")


# Detection


def boxes_and_scores(d):
    count = d.between(1, 12)
    corners = d.rng.uniform(0, 1, (count, 4)).astype(np.float32)
    boxes = d.input((count, 4), "float32")
    d.feeds[-1] = corners
    return boxes, d.input((count,), "float32", 0, 1), count


@case("NON_MAX_SUPPRESSION_V4")
def nms_v4(d):
    boxes, scores, _ = boxes_and_scores(d)
    operands = [boxes, scores, d.constant(np.int32(d.between(1, 8))), d.constant(np.float32(d.rng.uniform(0.1, 0.9))),
                d.constant(np.float32(d.pick(0.0, 0.3)))]  # fmt: skip
    return d.op("NON_MAX_SUPPRESSION_V4", operands, "int32", "int32")


@case("NON_MAX_SUPPRESSION_V5")
def nms_v5(d):
    boxes, scores, _ = boxes_and_scores(d)
    operands = [boxes, scores, d.constant(np.int32(d.between(1, 8))), d.constant(np.float32(d.rng.uniform(0.1, 0.9))),
                d.constant(np.float32(d.pick(0.0, 0.3))), d.constant(np.float32(d.pick(0.0, 0.5)))]  # fmt: skip
    return d.op("NON_MAX_SUPPRESSION_V5", operands, "int32", "float32", "int32")


# Custom operators


def flexbuffer(**values):
    from flatbuffers import flexbuffers

    return bytes(flexbuffers.Dumps(values))


@case("TFLite_Detection_PostProcess")
def detection_post_process(d):
    anchors, classes = d.between(2, 20), d.between(1, 4)
    encodings = d.input((1, anchors, 4), "float32", -1, 1)
    scores = d.input((1, anchors, classes + 1), "float32", 0, 1)
    centres = np.concatenate([d.rng.uniform(0.2, 0.8, (anchors, 2)), d.rng.uniform(0.05, 0.5, (anchors, 2))], -1)
    options = {
        "max_detections": d.between(1, 8), "max_classes_per_detection": d.between(1, min(2, classes)),
        "detections_per_class": d.between(1, 10), "use_regular_nms": d.chance(),
        "nms_score_threshold": d.pick(0.05, 0.3), "nms_iou_threshold": d.pick(0.3, 0.6), "num_classes": classes,
        "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
    }  # fmt: skip
    # All results are used: LiteRT leaves the others unwritten.
    if options["use_regular_nms"]:
        options["max_classes_per_detection"] = 1
    else:
        options |= {"nms_score_threshold": 0.0, "max_detections": min(options["max_detections"], anchors)}
        options |= {"nms_iou_threshold": 1.0} if d.chance() else {"max_detections": 1}
    outs = [d.out("float32") for _ in range(4)]
    d.graph.op(
        "TFLite_Detection_PostProcess", [encodings, scores, d.constant(centres.astype(np.float32))], outs,
        custom=flexbuffer(**options),
    )  # fmt: skip
    return outs


# StableHLO's operators that have kernels


@each("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")
def stablehlo_binary(d, name):
    dtype = d.turn(("float32", "int32", "int64"))
    shape = d.shape()
    return d.op(name, [d.input(shape, dtype), d.either(shape, dtype)], dtype)


@case("STABLEHLO_PAD")
def stablehlo_pad(d):
    dtype = d.turn(("float32", "int32", "int8"))
    shape = d.shape(1, 4)
    x, value = d.input(shape, dtype), d.constant(d.values((), dtype))
    low, high = ([d.between(-1 if n > 2 else 0, 2) for n in shape] for _ in range(2))
    inner = [d.pick(0, 0, 1, 2) for _ in shape]
    return d.op(
        "STABLEHLO_PAD", [x, value], dtype, edgePaddingLow=np.array(low, np.int64),
        edgePaddingHigh=np.array(high, np.int64), interiorPadding=np.array(inner, np.int64),
    )  # fmt: skip


@case("STABLEHLO_COMPOSITE")
def composite(d):
    shape = d.shape(1, 3)
    x, y = d.input(shape, "float32"), d.input(shape, "float32")
    graph, ports = body(d, "decomposition", [shape, shape])
    product = graph.op("MUL", ports, [graph.tensor("product", shape, "float32")])
    graph.outputs(graph.op("SUB", [product, ports[0]], [graph.tensor("result", shape, "float32")]))
    options = {"name": "drawn.composite", "compositeAttributes": np.frombuffer(flexbuffer(a=1), np.uint8)}
    return d.op("STABLEHLO_COMPOSITE", [x, y], "float32", decompositionSubgraphIndex=1, **options)


# Numbers of chance: only type and shape are compared


@case("MULTINOMIAL")
def multinomial(d):
    logits = d.input((d.between(1, 3), d.between(1, 5)), "float32")
    return d.op(
        "MULTINOMIAL", [logits, d.constant(np.int32(d.between(1, 6)))], d.pick("int32", "int64"), seed=3, seed2=5
    )


@each("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random_numbers(d, name):
    x = d.input((1,), "float32")
    drawn = d.op(name, [d.parameter(d.shape(1, 3), p=0)], "float32", seed=3, seed2=7)
    return d.op("ADD", [x, d.op("ZEROS_LIKE", [drawn], "float32")], "float32"), drawn

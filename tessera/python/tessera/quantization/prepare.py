# SPDX-License-Identifier: Apache-2.0
"""From any float ONNX model to the form that quantisation works on. In: a path, bytes or a ModelProto of opsets 1 to
24. Out: a float32 model of opset 13 or later with constants folded, batch norms gone, shapes inferred, and a name for
each node. Method: ONNX's version converter, ONNX Runtime's basic optimiser (which folds constants, batch norms, scales
and pads into convolutions), and here what those leave: other precisions, old attributes, batch norms, factors of
Gemm. Each step leaves a valid graph: names mean one tensor each, nodes stand behind those whose results they read."""

import copy
import os
import pathlib
import tempfile
import warnings

import _tessera
import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper

from .attention import masks_to_sums
from .errors import argument, error, model_error, refusal
from .forms.contrib import spell_out, weights_to_float
from .forms.fused import PRODUCTS as FUSED_PRODUCTS
from .forms.loop_states import fixed_states_to_reads
from .forms.opsets import Constants, by_definition, convert_opset, lower_opset, plain_casts, raise_opset
from .forms.recurrent import cells_to_products, is_cell, steps_first
from .forms.scores import scores_in_one_form
from .forms.spellings import (
    constants_to_weights,
    einsums_to_products,
    lengths_to_normalisations,
    means_to_rows,
    without_empty_windows,
    without_guards,
)
from .graph import Graph, attribute, drop_unread, graphs_of, is_onnx, name_apart, names_of, rename, sort_nodes, unique
from .steps import step

QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


def load(model):
    """A ModelProto of a path, bytes or a ModelProto, checked to be one with a graph."""
    name = "the model"
    try:
        if isinstance(model, onnx.ModelProto):
            loaded = copy.deepcopy(model)
        elif isinstance(model, (bytes, bytearray)):
            loaded = onnx.load_model_from_string(_tessera.as_onnx(bytes(model)))
        else:
            name = f"'{os.fspath(model)}'"
            if not pathlib.Path(model).is_file():
                raise error("io", f"cannot open {name} for reading")
            loaded = _from_litert(model) or onnx.load(os.fspath(model))
    except (onnx.checker.ValidationError, FileNotFoundError) as e:
        raise error("io", f"{name}: data outside the file cannot be read: {e}") from None
    except Exception as e:
        if hasattr(e, "code"):
            raise
        raise model_error(f"{name} is no ONNX model: {type(e).__name__}; give a file that onnx.load reads") from None
    if not loaded.graph.node:
        raise model_error(f"{name} is no ONNX model with a graph; give a float model in ONNX format")
    loaded.ir_version = max(loaded.ir_version, 4)  # from which on constants need not be inputs, too
    return loaded


def _from_litert(path):
    """The ONNX model of a LiteRT file; None for another file."""
    with open(path, "rb") as file:
        start = file.read(8)
        return onnx.load_model_from_string(_tessera.as_onnx(start + file.read())) if start[4:] == b"TFL3" else None


def inlined(model):
    """The model without functions of its own: their bodies stand where they were called."""
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def refuse_unfit(model, products):
    """Errors for what cannot be quantised: a model that is quantised already, one without products."""
    for node in (node for graph in graphs_of(model.graph) for node in graph.node):
        if node.op_type in QUANTISED or node.op_type.startswith("QLinear") or node.op_type == "DynamicQuantizeLinear":
            raise argument(
                f"node '{node.name or node.output[0]}' ({node.op_type}): the model is quantised already; compile it as "
                "it is, or give the float model that it was made of"
            )
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    if not any(node.op_type in (*products, *FUSED_PRODUCTS) or is_cell(node) for node in nodes):
        raise argument(
            "the model has no Conv, MatMul, Gemm or other product, so nothing of it gains from the NPU; run it as it is"
        )


# --- other precisions
# ---------------------------------------------------------------------------------------------------


def _as_single(tensor):
    array, most = numpy_helper.to_array(tensor).astype(np.float64), np.finfo(np.float32).max
    array = np.where(np.isfinite(array), np.clip(array, -most, most), array)  # the lowest double is no infinity
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32).reshape(tuple(tensor.dims)), tensor.name))


def single_precision(model):
    """float16, bfloat16 and float64 become float32 everywhere. Inputs and outputs change their type too; Casts of the
    model to these types become Casts to float32."""
    others = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)

    def change_graph(graph):
        for tensor in graph.initializer:
            if tensor.data_type in others:
                _as_single(tensor)
        for tensor in graph.sparse_initializer:
            if tensor.values.data_type in others:
                _as_single(tensor.values)
        for value in [*graph.input, *graph.output, *graph.value_info]:
            change_type(value.type)
        for node in graph.node:
            for entry in node.attribute:
                if entry.name in ("to", "dtype", "output_datatype", "stash_type") and entry.i in others:
                    entry.i = TensorProto.FLOAT
                for tensor in [entry.t] if entry.HasField("t") else list(entry.tensors):
                    if tensor.data_type in others:
                        _as_single(tensor)
                if entry.HasField("sparse_tensor") and entry.sparse_tensor.values.data_type in others:
                    _as_single(entry.sparse_tensor.values)

    def change_type(kind):
        """Of a tensor, or of what a sequence or an optional value holds."""
        which = kind.WhichOneof("value")
        if which == "tensor_type" and kind.tensor_type.elem_type in others:
            kind.tensor_type.elem_type = TensorProto.FLOAT
        elif which in ("sequence_type", "optional_type"):
            change_type(getattr(kind, which).elem_type)

    for graph in graphs_of(model.graph):
        change_graph(graph)


def without_repeated_outputs(model):
    """An output that is declared twice is one."""
    outputs = {value.name: value for value in reversed(model.graph.output)}
    kept = [outputs.pop(value.name) for value in model.graph.output if value.name in outputs]
    del model.graph.output[:]
    model.graph.output.extend(copy.deepcopy(kept))
    return model


# --- folding
# ------------------------------------------------------------------------------------------------------------


def own_operator(model):
    """The first operator of a LiteRT file that has no likeness in ONNX, as a cause; None where there is none."""
    for graph in graphs_of(model.graph):
        for node in graph.node:
            if node.domain == "litert":
                name = node.name or node.output[0]
                return (
                    f"node '{name}' ({node.op_type}): only LiteRT has this operator, and ONNX Runtime calibrates; "
                    "cut the model before or behind it"
                )
    return None


def fold(model):
    """ONNX Runtime's basic optimisation: constants, identities, batch norms behind convolutions."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "folded.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = path
        options.log_severity_level = 4
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as e:
            cause = refusal(model) or own_operator(model)
            raise model_error(cause or f"ONNX Runtime does not take the model: {str(e).splitlines()[0]}") from None
        folded = onnx.load(path)
    # The optimiser adds domains that nothing uses.
    used = {node.domain for node in folded.graph.node} | {""}
    entries = [entry for entry in folded.opset_import if entry.domain in used]
    del folded.opset_import[:]
    folded.opset_import.extend(entries)
    rename_made_constants(folded, {tensor.name for tensor in model.graph.initializer})
    # It writes nodes of bodies in an order of its own, and may give a body's constants a name that exists.
    name_apart(folded)
    sort_nodes(folded.graph)
    return folded


def rename_made_constants(model, known):
    """Constants of ONNX Runtime's own get other names: some of its fusions give each the same one, and then refuse a
    model that holds it already."""
    kept = {*known, *(value.name for value in model.graph.output)}  # an output may be a constant
    taken = names_of(model)
    rename(
        model.graph, {t.name: unique(f"{t.name}/folded", taken) for t in model.graph.initializer if t.name not in kept}
    )


def _into_convolution(constant, graph, node, factor, offset):
    """Takes a batch norm into the convolution in front of it: true if there is one with constant operands that nothing
    else reads."""
    source = node.input[0]
    made = graph.producer.get(source)
    if made is None or not is_onnx(made, "Conv") or source in graph.held or len(graph.readers[source]) != 1:
        return False
    weights = graph.array(made.input[1])
    biased = len(made.input) > 2 and made.input[2]
    bias = graph.array(made.input[2]) if biased else np.zeros(len(factor))
    if weights is None or bias is None or len(weights) != len(factor):
        return False
    scaled = weights * factor.reshape((-1,) + (1,) * (weights.ndim - 1))
    operands = [("folded_weights", scaled), ("folded_bias", bias * factor + offset)]
    names = [constant(f"{node.output[0]}/{n}", v.astype(np.float32)) for n, v in operands]
    del made.input[1:]
    made.input.extend(names)
    made.output[0] = node.output[0]
    return True


def batch_norms_to_convolutions(model):
    """A batch norm goes into the convolution in front of it where ONNX Runtime has left it (it knows the newest opsets
    late). One that stands alone becomes a depthwise 1x1 convolution, whose products the NPU computes exactly.
    Only where the rank is known to be 2, 3 or 4; rows of channels get an axis of 1 for it."""
    graph, constant = Graph(model), Constants(model)
    taken, around = [], []
    for node in model.graph.node:
        if not is_onnx(node, "BatchNormalization") or len(node.output) > 1:
            continue
        shape = graph.shapes.get(node.input[0])
        parameters = [graph.array(name) for name in node.input[1:5]]
        if shape is None or len(shape) not in (2, 3, 4) or any(p is None for p in parameters):
            continue
        scale, bias, mean, variance = (p.astype(np.float64) for p in parameters)
        factor = scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
        weights = factor.astype(np.float32).reshape((-1, 1) + (1,) * max(1, len(shape) - 2))
        offset = (bias - mean * factor).astype(np.float32)
        if _into_convolution(constant, graph, node, factor, offset):
            taken.append(node)
            continue
        name = node.output[0]
        del node.input[1:], node.attribute[:]
        node.op_type = "Conv"
        node.input.extend([constant(f"{name}/weights", weights), constant(f"{name}/bias", offset)])
        node.attribute.append(helper.make_attribute("group", len(scale)))
        if len(shape) == 2:
            axes = constant(f"{name}/axes", np.int64([2]))
            before, behind = (unique(f"{name}/{what}", constant.taken) for what in ("column", "scaled"))
            around.append(helper.make_node("Unsqueeze", [node.input[0], axes], [before], f"{name}/Unsqueeze"))
            around.append(helper.make_node("Squeeze", [behind, axes], [name], f"{name}/Squeeze"))
            node.input[0], node.output[0] = before, behind
    for node in taken:
        model.graph.node.remove(node)
    model.graph.node.extend(around)
    sort_nodes(model.graph)


def _sum_behind(constant, node):
    """A Gemm that adds a tensor known at run time, as ONNX Runtime makes of a product and a sum, or a constant that
    differs between rows: the Add behind it."""
    product = unique(f"{node.output[0]}/product", constant.taken)
    named = unique(f"{node.name or node.output[0]}/Add", constant.taken)
    add = helper.make_node("Add", [product, node.input[2]], [node.output[0]], named)
    node.output[0] = product
    del node.input[2]
    return add


def _without_factor(graph, constant, node, index, name):
    """A factor of a constant operand goes into it."""
    factor = attribute(node, name, 1.0)
    if factor == 1.0 or len(node.input) <= index or not node.input[index]:
        return
    array = graph.array(node.input[index])
    if array is None:
        return
    node.input[index] = constant(f"{node.output[0]}/{name}", (array * np.float32(factor)))
    kept = [entry for entry in node.attribute if entry.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def plain_gemms(model):
    """alpha, beta and a transposed constant of Gemm go into its constants; what is no vector of one value for each
    column is added behind it."""
    graph, constant = Graph(model), Constants(model)
    sums = []
    for node in model.graph.node:
        if not is_onnx(node, "Gemm"):
            continue
        biased = len(node.input) > 2 and node.input[2]
        bias, beta = graph.array(node.input[2]) if biased else None, np.float32(attribute(node, "beta", 1.0))
        _without_factor(graph, constant, node, 1, "alpha")
        _without_factor(graph, constant, node, 2, "beta")
        if bias is None:
            if biased and node.input[2] not in graph.constants and beta == 1:
                sums.append(_sum_behind(constant, node))
            continue
        weights = graph.shapes.get(node.input[1])
        width = weights[0 if attribute(node, "transB", 0) else 1] if weights is not None else None
        vector = bias.size == 1 or (bias.size == bias.shape[-1] and width in (None, bias.size))
        if not vector:
            sums.append(_sum_behind(constant, node))
        elif width is not None and bias.shape != (width,):
            wide = np.broadcast_to((bias * beta).reshape(-1), (width,)).copy()
            node.input[2] = constant(f"{node.output[0]}/bias", wide)
    model.graph.node.extend(sums)
    sort_nodes(model.graph)


def sums_to_adds(model):
    nodes, taken = [], names_of(model)
    for node in model.graph.node:
        if is_onnx(node, "Sum") and len(node.input) > 1:
            left, result = node.input[0], node.output[0]
            for k, right in enumerate(node.input[1:], 1):
                out = result if k == len(node.input) - 1 else unique(f"{result}/sum{k}", taken)
                named = unique(f"{node.name or result}/add{k}", taken)
                nodes.append(helper.make_node("Add", [left, right], [out], named))
                left = out
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def name_nodes(model):
    seen = set()
    for graph in graphs_of(model.graph):
        for node in graph.node:
            name = node.name or next((o for o in node.output if o), node.op_type)
            named, k = name, 1
            while named in seen:
                k += 1
                named = f"{name}#{k}"
            seen.add(named)
            node.name = named


WATCH = None  # a function of (step's name, model) that tests set: it sees the model behind each step


def _through(model, steps):
    """The model behind all steps: pairs of a name and a function that changes a model, or gives another one."""
    for name, change in steps:
        with step(f"preparing ({name})"):
            changed = change(model)
            model = model if changed is None else changed
            if WATCH is not None:
                WATCH(name, model)
    return model


def ordered(model):
    """The model, changed: names mean one tensor each, and nodes stand behind those whose results they read."""
    name_apart(model)
    if not sort_nodes(model.graph):
        raise model_error("nodes of the model wait for each other's results; export it again")
    return model


def shaped(model):
    """The model with the shapes of its tensors, as far as they follow from its inputs'."""
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def standard(model, products):
    """The model in float32, without functions of its own, of an opset that the rest works on. products: names of the
    operators whose products the NPU computes."""
    steps = (
        ("functions, names and order", lambda model: ordered(without_repeated_outputs(inlined(model)))),
        ("weights in blocks", weights_to_float),
        ("operators", lambda model: refuse_unfit(model, products)),
        ("precision", single_precision),
        ("opset", convert_opset),
        ("operators of later opsets", raise_opset),
        ("newest operators", by_definition),
        ("casts", plain_casts),
        ("newest opsets", lower_opset),
    )
    return _through(load(model), steps)


def _spell_out(model):
    steps_first(model)
    for sentence in spell_out(model):
        warnings.warn(sentence, stacklevel=4)


def _spell_cells(model):
    for sentence in cells_to_products(model):
        warnings.warn(sentence, stacklevel=4)


def spelled(model, products):
    """The rest of `prepare`, of a model that is `standard`. Changes it."""
    steps = (
        ("states of loops", fixed_states_to_reads),
        ("operators of exporters", _spell_out),
        ("folding", fold),
        ("sums", sums_to_adds),
        ("Gemm", plain_gemms),
        ("windows of pools", lambda model: without_empty_windows(model, shaped)),
        ("shapes", shaped),
        ("batch norms", batch_norms_to_convolutions),
        ("Einsum", einsums_to_products),
        ("constants in front", constants_to_weights),
        ("means of columns", means_to_rows),
        ("lengths of rows", lengths_to_normalisations),
        ("guards", without_guards),
        ("masks", lambda model: masks_to_sums(model, Graph(model), Constants(model))),
        ("scores", lambda model: scores_in_one_form(shaped(model), shaped)),
        ("recurrent cells", _spell_cells),
        ("unused constants", drop_unread),
        ("names of nodes", name_nodes),
        ("operators", lambda model: refuse_unfit(model, products)),
        ("shapes", shaped),
    )
    return _through(model, steps)


def prepare(model, products):
    """See the module's text."""
    return spelled(standard(model, products), products)

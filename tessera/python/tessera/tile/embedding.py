# SPDX-License-Identifier: Apache-2.0
"""Operators of a model that are kernels. Enters: an ONNX model with nodes of custom domains, and the kernels that were
registered for them. Leaves: the same model, with each such node holding the program of its kernel for the shapes that
it gets (domain ai.tessera, operator Kernel), which every interface of Tessera compiles and runs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tessera import _tessera

from .errors import KernelError
from .kernel import Spec
from .registry import registered

DOMAIN, OPERATOR = "ai.tessera", "Kernel"
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}
NAMES = {number: name for name, number in TYPES.items()}


def graphs_of(graph):
    """A graph and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for one in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from graphs_of(one)


def loaded(model):
    """An onnx.ModelProto of itself, a path or bytes."""
    if isinstance(model, onnx.ModelProto):
        return model
    return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)


def count(model):
    """Nodes of a model that are registered."""
    nodes = (node for graph in graphs_of(loaded(model).graph) for node in graph.node)
    return sum((node.domain, node.op_type) in registered for node in nodes)


def with_shapes(model, shapes):
    """Inputs of these shapes: {name: shape}."""
    for value in model.graph.input:
        if value.name not in shapes:
            continue
        dims = value.type.tensor_type.shape.dim
        del dims[:]
        for extent in shapes[value.name]:
            dims.add().dim_value = int(extent)


def known_types(model):
    """{value: (element type, shape)} of what shape inference finds whole."""
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    found = {}
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        tensor = value.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        if tensor.elem_type and tensor.HasField("shape") and None not in dims:
            found[value.name] = (tensor.elem_type, tuple(dims))
    for tensor in inferred.graph.initializer:
        found[tensor.name] = (tensor.data_type, tuple(tensor.dims))
    return found


def attributes_of(node):
    found = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return found


def program_of(node, types, config):
    """The Program of a node's kernel."""
    entry = registered[node.domain, node.op_type]
    label = f"node '{node.name}' ({node.domain}::{node.op_type})"
    attributes = attributes_of(node)
    unknown = set(attributes) - set(entry.kernel.parameters)
    if unknown:
        raise KernelError(f"{label}: its attribute '{min(unknown)}' is no parameter of '{entry.kernel.__name__}'")
    specs = []
    for name in node.input:
        if name not in types:
            raise KernelError(
                f"{label}: the shape of its input '{name}' is not known; give --shape, or write it to value_info"
            )
        kind, shape = types[name]
        if kind not in NAMES:
            raise KernelError(
                f"{label}: its input '{name}' is {helper.tensor_dtype_to_string(kind)}; kernels take int8, uint8, int32"
            )
        specs.append(Spec(NAMES[kind], shape))
    try:
        program = entry.kernel.build(*specs, config=config, **entry.parameters, **attributes)
    except KernelError as error:
        raise KernelError(f"{label}: {error}") from None
    if len(program.outputs) != len(node.output):
        raise KernelError(f"{label}: the kernel gives {len(program.outputs)} outputs, the node has {len(node.output)}")
    return program


def held_by(node, program):
    """The node that holds a program."""
    listed = lambda side, tensors: {
        f"{side}_types": [TYPES[one.dtype.name] for one in tensors],
        f"{side}_ranks": [len(one.shape) for one in tensors],
        f"{side}_extents": [extent for one in tensors for extent in one.shape],
    }
    artifact = numpy_helper.from_array(np.frombuffer(program.artifact, np.uint8), "artifact")
    return helper.make_node(
        OPERATOR,
        list(node.input),
        list(node.output),
        name=node.name or node.output[0],
        domain=DOMAIN,
        artifact=artifact,
        **listed("input", program.inputs),
        **listed("output", program.outputs),
    )


def embed(model, config="npu256", shapes=None):
    """The model, an onnx.ModelProto, a path or bytes, with registered nodes of its main graph as kernels for a machine.
    shapes: {input: shape} where they are dynamic. Returns a ModelProto. Errors: KernelError names the node."""
    made = onnx.ModelProto()
    made.CopyFrom(loaded(model))
    if DOMAIN not in {entry.domain for entry in made.opset_import}:
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    with_shapes(made, shapes or {})
    for graph in list(graphs_of(made.graph))[1:]:
        for node in graph.node:
            if (node.domain, node.op_type) in registered:
                raise KernelError(
                    f"node '{node.name}' ({node.op_type}) is in the body of another; kernels stand outside"
                )
    for index, node in enumerate(made.graph.node):
        if (node.domain, node.op_type) not in registered:
            continue
        program = program_of(node, known_types(made), config)
        for name, tensor in zip(node.output, program.outputs, strict=True):
            if name not in {value.name for value in made.graph.output}:
                kind = TYPES[tensor.dtype.name]
                made.graph.value_info.append(helper.make_tensor_value_info(name, kind, tensor.shape))
        made.graph.node[index].CopyFrom(held_by(node, program))
    return made


def prepared(model, config, shapes):
    """What a Session opens in the place of `model`, a path or bytes: the same, or the bytes of it with its kernels."""
    try:
        proto = loaded(model)
    except Exception:  # no ONNX model: the session says what it is
        return model
    if count(proto) == 0:
        return model
    config = config or _tessera.machine_of(proto.SerializeToString())
    return embed(proto, config, shapes).SerializeToString()

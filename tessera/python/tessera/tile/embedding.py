# SPDX-License-Identifier: Apache-2.0
"""Operators of a model that are kernels. Enters: an ONNX model with nodes of custom domains or patterns of nodes, and
what was registered for them. Leaves: the same model, which every interface of Tessera compiles and runs: a kernel is a
node that holds its program for the shapes that it gets (domain ai.tessera, operator Kernel), an operator a function of
integer operators, which the compiler places, lays out and fuses with their neighbours as its own."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tessera import _tessera

from .errors import DoesNotFit, KernelError
from .graphs import OPSETS
from .kernel import Spec
from .operators import Constant, Operator
from .patterns import Finder
from .registry import Registered, registered, replacements

DOMAIN, OPERATOR = "ai.tessera", "Kernel"
FUNCTIONS = "ai.tessera.functions"
IR_VERSION = 8  # the first with functions
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


def constants_of(graph):
    """{value: array} of initializers and of Constant nodes."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def attributes_of(node):
    found = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return found


def programs_of(node, entry, types, constants, config):
    """The Programs of a node's kernel: one, or one for each of the layouts that the kernel names and that fit."""
    label = f"node '{node.name}' ({node.domain}::{node.op_type})"
    attributes = attributes_of(node)
    unknown = set(attributes) - set(entry.kernel.parameters)
    if unknown:
        raise KernelError(f"{label}: its attribute '{min(unknown)}' is no parameter of '{entry.kernel.__name__}'")
    specs = []
    for name in node.input:
        if name in constants and isinstance(entry.kernel, Operator):
            specs.append(Constant(constants[name]))
            continue
        if name not in types:
            raise KernelError(
                f"{label}: the shape of its input '{name}' is not known; give --shape, or write it to value_info"
            )
        kind, shape = types[name]
        if kind not in NAMES:
            raise KernelError(
                f"{label}: its input '{name}' is {helper.tensor_dtype_to_string(kind)}; kernels take int8, uint8, "
                "int32, or float between DequantizeLinear and QuantizeLinear"
            )
        specs.append(Spec(NAMES[kind], shape))
    parameters = entry.parameters | attributes
    try:
        if isinstance(entry.kernel, Operator):
            programs = [entry.kernel.build(*specs, config=config, host=True, **parameters)]
        else:
            programs = built_in_forms(entry.kernel, specs, config, parameters)
    except KernelError as error:
        raise type(error)(f"{label}: {error}") from None
    for program in programs:
        if len(program.outputs) != len(node.output):
            raise KernelError(
                f"{label}: the kernel gives {len(program.outputs)} outputs, the node has {len(node.output)}"
            )
    return programs


def built_in_forms(kernel, specs, config, parameters):
    """A Program for each way in which the tensors may lie. Errors: those of the first one where none fits."""
    if len(specs) != len(kernel.inputs):
        return [kernel.build(*specs, config=config, **parameters)]  # says what is missing
    programs, refused = [], []
    for form in kernel.forms(specs):
        try:
            programs.append(kernel.build(*form, config=config, **parameters))
        except DoesNotFit as error:
            refused.append(error)
    if not programs:
        raise refused[0]
    return programs


# --- between DequantizeLinear and QuantizeLinear


class Quantised:
    """Takes nodes whose inputs are dequantised integers and whose results are quantised to these integers."""

    def __init__(self, graph, types):
        self.graph, self.types, self.constants = graph, types, constants_of(graph)
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.results = {value.name for value in graph.output}

    def readers(self, name):
        return [node for node in self.graph.node if name in node.input]

    def parameters(self, node):
        """(scale, zero point, type) of a DequantizeLinear or a QuantizeLinear of one scale; else None."""
        if any(name and name not in self.constants for name in node.input[1:]):
            return None
        scale = self.constants[node.input[1]]
        zero = self.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.array(0, np.uint8)
        return (float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), zero.dtype.name) if scale.size == 1 else None

    def take(self, node, entry):
        """Keywords of the kernel; the node is changed where its inputs are float."""
        names = entry.kernel.inputs
        floats = [
            place
            for place, name in enumerate(node.input)
            if self.types.get(name, (None,))[0] == TensorProto.FLOAT and place < len(names)
        ]
        if not floats:
            return {}
        label = f"node '{node.name}' ({node.domain}::{node.op_type})"
        found = {}
        for place in floats:
            maker = self.makers.get(node.input[place])
            own = self.parameters(maker) if maker is not None and maker.op_type == "DequantizeLinear" else None
            if own is None:
                raise KernelError(
                    f"{label}: its input '{node.input[place]}' is float and comes of no DequantizeLinear with one "
                    "scale; kernels take integers: quantise the model around it"
                )
            found |= {f"{names[place]}_scale": own[0], f"{names[place]}_zero": own[1]}
            node.input[place] = maker.input[0]
        for place, name in enumerate(node.output):
            readers = self.readers(name)
            own = self.parameters(readers[0]) if len(readers) == 1 and readers[0].op_type == "QuantizeLinear" else None
            if own is None or name in self.results:
                raise KernelError(
                    f"{label}: its result '{name}' is read by something else than one QuantizeLinear with one scale; "
                    "kernels give integers: quantise the model around it"
                )
            prefix = "output" if len(node.output) == 1 else f"output{place}"
            found |= {f"{prefix}_scale": own[0], f"{prefix}_zero": own[1]}
            node.output[place] = readers[0].output[0]
            self.graph.node.remove(readers[0])
        missing = sorted(set(found) - set(entry.kernel.parameters))
        if missing:
            raise KernelError(
                f"{label}: it stands between DequantizeLinear and QuantizeLinear, and '{entry.kernel.__name__}' has no "
                f"parameter '{missing[0]}'"
            )
        return found


# --- what stands in the place of a node


def function_of(node, program, number):
    """(the call, the function) of an operator."""
    graph = program.model.graph
    constants = [
        helper.make_node("Constant", [], [tensor.name], value=tensor, name=tensor.name) for tensor in graph.initializer
    ]
    name = f"{program.name}_{number}"
    inputs = [value.name for value in graph.input]
    outputs = [value.name for value in graph.output]
    opsets = [helper.make_opsetid(*one) for one in OPSETS.items()]
    function = helper.make_function(FUNCTIONS, name, inputs, outputs, [*constants, *graph.node], opsets)
    given = [one for one, known in zip(node.input, program.known, strict=True) if not known]
    label = node.name or node.output[0]
    return helper.make_node(name, given, list(node.output), name=label, domain=FUNCTIONS), function


def held_by(node, programs):
    """The node that holds a kernel: the compiler takes the program whose layouts suit the neighbours."""
    program, artifacts = programs[0], [one.artifact for one in programs]
    listed = lambda side, tensors: {
        f"{side}_types": [TYPES[one.dtype.name] for one in tensors],
        f"{side}_ranks": [len(one.shape) for one in tensors],
        f"{side}_extents": [extent for one in tensors for extent in one.shape],
    }
    artifact = numpy_helper.from_array(np.frombuffer(b"".join(artifacts), np.uint8), "artifact")
    return helper.make_node(
        OPERATOR,
        list(node.input),
        list(node.output),
        name=node.name or node.output[0],
        domain=DOMAIN,
        artifact=artifact,
        artifact_bytes=[len(one) for one in artifacts],
        alone=int(any(one.by_hand for one in programs)),
        **listed("input", program.inputs),
        **listed("output", program.outputs),
    )


def without_unread(graph):
    """Removes DequantizeLinear that nothing reads any more."""
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for node in [one for one in graph.node if one.op_type == "DequantizeLinear" and one.output[0] not in read]:
        graph.node.remove(node)


class Embedder:
    """One model. count: nodes and patterns that became kernels."""

    def __init__(self, model, config, shapes):
        self.model, self.config = onnx.ModelProto(), config
        self.model.CopyFrom(loaded(model))
        self.graph = self.model.graph
        self.count = 0
        with_shapes(self.model, shapes or {})

    def run(self):
        for graph in list(graphs_of(self.graph))[1:]:
            for node in graph.node:
                if (node.domain, node.op_type) in registered:
                    raise KernelError(
                        f"node '{node.name}' ({node.op_type}) is in the body of another; kernels stand outside"
                    )
        for replacement in replacements:
            self.replace(replacement)
        while node := next((one for one in self.graph.node if (one.domain, one.op_type) in registered), None):
            entry = registered[node.domain, node.op_type]
            more = Quantised(self.graph, known_types(self.model)).take(node, entry)
            self.put(node, Registered(entry.kernel, entry.parameters | more))
        without_unread(self.graph)
        return self.model

    def built(self, node, entry):
        return programs_of(node, entry, known_types(self.model), constants_of(self.graph), self.config)

    def imports(self, domain):
        if domain not in {entry.domain for entry in self.model.opset_import}:
            self.model.opset_import.append(helper.make_opsetid(domain, 1))

    def put(self, node, entry, programs=None):
        """The kernel of an entry in the place of a node."""
        programs = programs or self.built(node, entry)
        program = programs[0]
        place = list(self.graph.node).index(node)
        if isinstance(entry.kernel, Operator):
            made, function = function_of(node, program, self.count)
            self.model.functions.append(function)
            self.model.ir_version = max(self.model.ir_version, IR_VERSION)
            self.imports(FUNCTIONS)
        else:
            made = held_by(node, programs)
            self.imports(DOMAIN)
        for name, tensor in zip(node.output, program.outputs, strict=True):
            self.tell(name, TYPES[tensor.dtype.name], tensor.shape, node)
        self.graph.node[place].CopyFrom(made)
        self.count += 1

    def tell(self, name, kind, shape, node):
        """Writes down what a value is. Errors: where the model says something else."""
        for value in (*self.graph.output, *self.graph.value_info):
            if value.name == name:
                known = value.type.tensor_type.elem_type
                if known not in (0, kind):
                    raise KernelError(
                        f"node '{node.name}' ({node.op_type}): its kernel gives {helper.tensor_dtype_to_string(kind)}, "
                        f"and '{name}' is {helper.tensor_dtype_to_string(known)} in the model"
                    )
                return
        self.graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))

    def replace(self, replacement):
        """Every place of a pattern."""
        refused = set()
        while True:
            types, constants = known_types(self.model), constants_of(self.graph)
            finder = Finder(self.graph, constants)
            found = None
            for node in self.graph.node:
                if node.output and node.output[0] not in refused and (match := finder.at(replacement.pattern, node)):
                    found = self.accepted(replacement, match, types, constants)
                    if found is not None and self.stand_in(replacement, match, found):
                        break
                    found = None
                    refused.add(node.output[0])
            if found is None:
                return

    @staticmethod
    def accepted(replacement, match, types, constants):
        """Keywords of the kernel at a match, or None."""
        values = {}
        for name, tensor in match.bound.items():
            if tensor in constants:
                values[name] = constants[tensor]
            elif tensor in types and types[tensor][0] in NAMES:
                values[name] = Spec(NAMES[types[tensor][0]], types[tensor][1])
            else:
                return None
        return {} if replacement.match is None else replacement.match(**values)

    def stand_in(self, replacement, match, parameters):
        """The kernel in the place of a match; False where it does not fit the machine, and the operators stay."""
        last = match.nodes[0]
        inputs = [match.bound[name] for name in replacement.kernel.inputs]
        node = helper.make_node(
            replacement.pattern.__name__,
            inputs,
            list(last.output),
            name=last.name or last.output[0],
            domain="ai.tessera.patterns",
        )
        entry = Registered(replacement.kernel, replacement.parameters | parameters)
        try:
            programs = self.built(node, entry)
        except DoesNotFit:
            return False
        self.imports(node.domain)
        place = list(self.graph.node).index(last)
        self.graph.node[place].CopyFrom(node)
        for one in match.nodes[1:]:
            self.graph.node.remove(one)
        self.put(self.graph.node[list(self.graph.node).index(node)], entry, programs)
        return True


def embed(model, config="npu256", shapes=None):
    """The model, an onnx.ModelProto, a path or bytes, with registered nodes of its main graph as kernels for a machine.
    shapes: {input: shape} where they are dynamic. Returns a ModelProto. Errors: KernelError names the node."""
    return Embedder(model, config, shapes).run()


def prepared(model, config, shapes):
    """What a Session opens in the place of `model`, a path or bytes: the same, or the bytes of it with its kernels."""
    try:
        proto = loaded(model)
    except Exception:  # no ONNX model: the session says what it is
        return model
    if count(proto) == 0 and not replacements:
        return model
    config = config or _tessera.machine_of(proto.SerializeToString())
    embedder = Embedder(proto, config, shapes)
    made = embedder.run()
    return made.SerializeToString() if embedder.count else model

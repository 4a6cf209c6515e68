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
from .kernel import Spec
from .nodes.graphs import OPSETS
from .operators import Constant, Operator
from .patterns import Finder
from .registry import Registered, registered, replacements

DOMAIN, OPERATOR = "ai.tessera", "Kernel"
FUNCTIONS = "ai.tessera.functions"
IR_VERSION = 8  # the first with functions
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}
NAMES = {number: name for name, number in TYPES.items()}


def bodies_of(graph):
    """The graphs inside of its nodes."""
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def graphs_of(graph):
    """A graph and those inside of its nodes."""
    yield graph
    for body in bodies_of(graph):
        yield from graphs_of(body)


def loaded(model):
    """An onnx.ModelProto of itself, a path or bytes."""
    if isinstance(model, onnx.ModelProto):
        return model
    return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)


def is_registered(node):
    return (node.domain, node.op_type) in registered


def count(model):
    """Nodes of a model that are registered, also in bodies and in its functions."""
    model = loaded(model)
    return sum(is_registered(node) for holder in holders_of(model) for node in holder.node)


def holders_of(model):
    """All that has nodes."""
    yield from graphs_of(model.graph)
    for function in model.functions:
        yield from graphs_of(function)


def without_functions(model):
    """The model with its functions in the place of their calls, where one of them has a registered node."""
    if not any(is_registered(node) for function in model.functions for one in graphs_of(function) for node in one.node):
        return model
    try:
        from onnx import inliner
    except ImportError:
        raise KernelError("a function of the model calls a kernel, which needs onnx 1.15 or newer") from None
    return inliner.inline_local_functions(model)


def with_shapes(model, shapes):
    """Inputs of these shapes: {name: shape}."""
    for value in model.graph.input:
        if value.name not in shapes:
            continue
        dims = value.type.tensor_type.shape.dim
        del dims[:]
        for extent in shapes[value.name]:
            dims.add().dim_value = int(extent)


def types_in(graph):
    """{value: (element type, shape)} of one graph, as far as they are written down whole."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        if tensor.elem_type and tensor.HasField("shape") and None not in dims:
            found[value.name] = (tensor.elem_type, tuple(dims))
    for tensor in graph.initializer:
        found[tensor.name] = (tensor.data_type, tuple(tensor.dims))
    return found


def carry(graph, outer):
    """Gives values that a Loop carries the type and the shape that they begin with; whether one had none. They have it
    in every iteration, or the compiler refuses the kernel that was built for it."""
    types, changed = outer | types_in(graph), False
    for node in graph.node:
        for body in [one.g for one in node.attribute if one.HasField("g")]:
            for value, name in zip(body.input[2:], node.input[2:], strict=False) if node.op_type == "Loop" else ():
                if name in types and value.name not in types_in(body):
                    value.CopyFrom(helper.make_tensor_value_info(value.name, *types[name]))
                    changed = True
            changed = carry(body, types) or changed
    return changed


def known_types(model):
    """What shape inference finds whole: {value: (element type, shape)} for each of graphs_of(model.graph), with what
    the graphs around it have."""
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    while carry(inferred.graph, {}):
        inferred = shape_inference.infer_shapes(inferred, data_prop=True)
    found = []

    def visit(graph, outer):
        found.append(outer | types_in(graph))
        types = found[-1]
        for body in bodies_of(graph):
            visit(body, types)

    visit(inferred.graph, {})
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
                f"{label}: the shape of its input '{name}' is not known; give it (--shape, in Python shapes=), or "
                "write it to value_info"
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

    def __init__(self, scope):
        self.graph, self.types, self.constants = scope.graph, scope.types, scope.constants
        self.makers = {name: node for graph in scope.around for node in graph.node for name in node.output if name}
        self.results = {value.name for graph in graphs_of(scope.graph) for value in graph.output}

    def readers(self, name):
        return [node for graph in graphs_of(self.graph) for node in graph.node if name in node.input]

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
            alone = len(readers) == 1 and readers[0].op_type == "QuantizeLinear" and readers[0] in self.graph.node
            own = self.parameters(readers[0]) if alone else None
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
    read = {name for one in graphs_of(graph) for node in one.node for name in node.input}
    read |= {value.name for one in graphs_of(graph) for value in one.output}
    for one in graphs_of(graph):
        for node in [n for n in one.node if n.op_type == "DequantizeLinear" and n.output[0] not in read]:
            one.node.remove(node)


class Scope:
    """A graph of a model, the main one or a body. types, constants: of what its nodes can read. around: the graphs
    whose values these are, the outermost first."""

    def __init__(self, graph, types, around, constants):
        self.graph, self.types, self.around = graph, types, (*around, graph)
        self.constants = constants | constants_of(graph)

    def knows(self, node):
        """Whether the types of all that a node reads are known."""
        return all(name in self.types for name in node.input)


class Embedder:
    """One model. count: nodes and patterns that became kernels."""

    def __init__(self, model, config, shapes):
        self.model, self.config = onnx.ModelProto(), config
        self.model.CopyFrom(without_functions(loaded(model)))
        self.count = 0
        with_shapes(self.model, shapes or {})

    def run(self):
        for replacement in replacements:
            self.replace(replacement)
        before = self.count
        while places := [(s, n) for s in self.scopes() for n in s.graph.node if is_registered(n)]:
            scope, node = next((one for one in places if one[0].knows(one[1])), places[0])
            entry = registered[node.domain, node.op_type]
            more = Quantised(scope).take(node, entry)
            self.put(scope, node, Registered(entry.kernel, entry.parameters | more))
        for replacement in replacements if self.count > before else ():
            self.replace(replacement)  # shapes behind kernels are known now
        without_unread(self.model.graph)
        return self.model

    def scopes(self):
        """A Scope for each graph, as types are known now."""
        types = iter(known_types(self.model))
        found = []

        def visit(graph, around, constants):
            scope = Scope(graph, next(types), around, constants)
            found.append(scope)
            for body in bodies_of(graph):
                visit(body, scope.around, scope.constants)

        visit(self.model.graph, (), {})
        return found

    def built(self, scope, node, entry):
        return programs_of(node, entry, scope.types, scope.constants, self.config)

    def imports(self, domain):
        if domain not in {entry.domain for entry in self.model.opset_import}:
            self.model.opset_import.append(helper.make_opsetid(domain, 1))

    def put(self, scope, node, entry, programs=None):
        """The kernel of an entry in the place of a node."""
        programs = programs or self.built(scope, node, entry)
        program, graph = programs[0], scope.graph
        place = list(graph.node).index(node)
        if isinstance(entry.kernel, Operator):
            made, function = function_of(node, program, self.count)
            self.model.functions.append(function)
            self.model.ir_version = max(self.model.ir_version, IR_VERSION)
            self.imports(FUNCTIONS)
        else:
            made = held_by(node, programs)
            self.imports(DOMAIN)
        for name, tensor in zip(node.output, program.outputs, strict=True):
            self.tell(graph, name, TYPES[tensor.dtype.name], tensor.shape, node)
        graph.node[place].CopyFrom(made)
        self.count += 1

    @staticmethod
    def tell(graph, name, kind, shape, node):
        """Writes down what a value is. Errors: where the model says something else."""
        for value in (*graph.output, *graph.value_info):
            if value.name == name:
                known = value.type.tensor_type.elem_type
                if known not in (0, kind):
                    raise KernelError(
                        f"node '{node.name}' ({node.op_type}): its kernel gives {helper.tensor_dtype_to_string(kind)}, "
                        f"and '{name}' is {helper.tensor_dtype_to_string(known)} in the model"
                    )
                if not value.type.tensor_type.HasField("shape"):
                    value.CopyFrom(helper.make_tensor_value_info(name, kind, shape))
                return
        graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))

    def replace(self, replacement):
        """Every place of a pattern."""
        refused = set()
        while any(self.replace_in(*one, replacement, refused) for one in enumerate(self.scopes())):
            pass

    def replace_in(self, number, scope, replacement, refused):
        """One place of a graph, unless nothing is left there. refused: outputs of places that stay as they are."""
        finder = Finder(scope.graph, scope.constants)
        for node in scope.graph.node:
            key = (number, node.output[0]) if node.output else None
            if key is None or key in refused:
                continue
            if match := finder.at(replacement.pattern, node):
                found = self.accepted(replacement, match, scope.types, scope.constants)
                if found is not None and self.stand_in(scope, replacement, match, found):
                    return True
                refused.add(key)
        return False

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

    def stand_in(self, scope, replacement, match, parameters):
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
            programs = self.built(scope, node, entry)
        except DoesNotFit:
            return False
        self.imports(node.domain)
        place = list(scope.graph.node).index(last)
        scope.graph.node[place].CopyFrom(node)
        for one in {id(one): one for one in match.nodes[1:]}.values():  # a node may stand for two of the pattern
            scope.graph.node.remove(one)
        self.put(scope, scope.graph.node[list(scope.graph.node).index(node)], entry, programs)
        return True


def embed(model, config="npu256", shapes=None):
    """The model, an onnx.ModelProto, a path or bytes, with its registered nodes, also in bodies and functions, as
    kernels for a machine. shapes: {input: shape} where they are dynamic. Returns a ModelProto. Errors: KernelError
    names the node."""
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

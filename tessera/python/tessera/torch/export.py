# SPDX-License-Identifier: Apache-2.0
"""From a module of PyTorch to an ONNX model. In: a module or an ExportedProgram, example arguments, dynamic shapes.
Out: an Exported: the graph in ONNX, the weights as arrays that share PyTorch's memory, and how the arguments and
results of a call become inputs and outputs. Method: torch.export, then PyTorch's ONNX exporter."""

import contextlib
import dataclasses
import inspect
import io
import logging
import re
import threading
import warnings

import numpy as np
import onnx_ir
import torch
from torch._dynamo import convert_frame
from torch.export import graph_signature as signatures
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from ..errors import argument, error
from .equivalents import TRANSLATIONS, with_equivalents
from .exportable import forms_without_branches, helps_for, in_known_forms
from .repairs import repair

RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
    "Dropout",
)
NUMBERS = ((torch.SymBool, bool), (torch.SymFloat, float), (bool, bool), (float, float))
EXTERNAL = 1024  # bytes from which on a weight stands beside the graph
# PyTorch's exporters change what the process shares, such as kernels of operators, and torch.compile reads it.
ALONE = getattr(convert_frame, "compile_lock", None) or threading.RLock()
WAY_OUT = "torch.compile(module, backend='tessera') runs the rest of the module and leaves this to PyTorch"


@dataclasses.dataclass
class Port:
    """An argument or result of a call, flattened. name: in the ONNX model, or None for a constant, `value`. dtype: of
    the tensor; None for an integer. dims: integers, and None for dynamic ones."""

    name: str | None
    dtype: torch.dtype | None = None
    dims: tuple = ()
    value: object = None
    number: type = int

    def takes(self, tensor):
        """Whether a tensor has the dimensions."""
        return len(tensor.shape) == len(self.dims) and all(d in (None, n) for d, n in zip(self.dims, tensor.shape))

    @property
    def text(self):
        dims = ", ".join("?" if d is None else str(d) for d in self.dims)
        return f"'{self.name}' [{dims}] of {str(self.dtype).removeprefix('torch.')}"


@dataclasses.dataclass
class Exported:
    """program: PyTorch's ONNXProgram. inputs, outputs: a Port for each leaf of the arguments and of the results;
    in_spec, out_spec: their trees. mutated: names of arguments that the module changes in place, whose new values stand
    in front of the outputs. notice: what the model assumes of values, as a sentence, or None."""

    program: object
    inputs: list
    outputs: list
    in_spec: object
    out_spec: object
    mutated: list
    notice: str | None = None

    def model(self):
        """The model as bytes without its large weights, and these: location -> array."""
        arrays, kept = {}, {}
        graph = self.program.model.graph
        try:
            for number, value in enumerate(graph.initializers.values()):
                tensor = value.const_value
                if tensor is None or tensor.nbytes < EXTERNAL or tensor.dtype.bitwidth < 8 or tensor.dtype.is_string():
                    continue
                array = np.ascontiguousarray(tensor.numpy())  # a copy where the order of elements is another
                location = f"{number}:{value.name}"
                kept[value.name], arrays[location] = tensor, array
                value.const_value = onnx_ir.ExternalTensor(
                    location, 0, array.nbytes, tensor.dtype, shape=tensor.shape, name=value.name
                )
            return onnx_ir.serde.serialize_model(self.program.model).SerializeToString(), arrays
        finally:
            for name, tensor in kept.items():
                graph.initializers[name].const_value = tensor

    def save(self, path):
        """Writes the model; weights of more than 1.5 GiB beside it."""
        self.program.save(path)


# --- errors of the exporter -------------------------------------------------------------------------------------------


def _causes(exception):
    seen = []
    while exception is not None and exception not in seen:
        seen.append(exception)
        behind = None if exception.__suppress_context__ else exception.__context__
        exception = exception.__cause__ or behind
    return seen


def one_line(exception):
    """What an exception of the exporter says, in one line: the node where it names one, and the innermost cause."""
    causes = _causes(exception)
    texts = [re.sub(r"\x1b\[[0-9;]*m", "", str(e)) for e in causes]
    node = next((m for text in texts for m in re.findall(r"%(\w+) : .*?target ?= ?([\w.:]+)", text)), None)
    cause = causes[-1]
    if isinstance(cause, (AssertionError, KeyError, IndexError)) and len(causes) > 1 and not str(cause).strip():
        cause = causes[-2]
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(cause)).splitlines() if line.strip()]
    # What comes behind the first sentence is advice, a graph or a trace.
    text = lines[0] if lines else ""
    text = text if len(text) <= 300 else text[:297] + "..."
    where = f"node '{node[0]}' ({node[1]}): " if node else ""
    return f"{where}{type(cause).__name__}: {text}".rstrip(": ").rstrip(".")


@contextlib.contextmanager
def quiet():
    """The exporter's progress and warnings are left out: what matters of them is told in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        told = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# --- the interface ----------------------------------------------------------------------------------------------------


def _dims(shape):
    return tuple(int(d) if isinstance(d, int) else None for d in shape)


def _port(arg, values):
    """The Port of an argument of a graph signature. values: name of a node -> what it stands for in the trace."""
    if isinstance(arg, signatures.ConstantArgument):
        return Port(None, value=arg.value)
    value = values.get(arg.name)
    if isinstance(value, torch.Tensor):
        return Port(arg.name, value.dtype, _dims(value.shape))
    number = next((n for kind, n in NUMBERS if isinstance(value, kind)), int)
    return Port(arg.name, number=number)


def _interface(program):
    """(inputs, outputs) of an ExportedProgram, with the ONNX model's names."""
    exported = program.exported_program
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    found = []
    for specs, kinds, onnx_values in (
        (exported.graph_signature.input_specs, signatures.InputKind, program.model.graph.inputs),
        (exported.graph_signature.output_specs, signatures.OutputKind, program.model.graph.outputs),
    ):
        wanted = getattr(kinds, "USER_INPUT", None) or kinds.USER_OUTPUT
        ports = [_port(spec.arg, values) for spec in specs if spec.kind == wanted]
        tensors = [port for port in ports if port.name is not None]
        if len(tensors) != len(onnx_values):
            raise error("unsupported", f"the exporter gave {len(onnx_values)} ports for {len(tensors)} tensors")
        for port, value in zip(tensors, onnx_values):
            port.name = value.name
        found.append(ports)
    return found


def _learns(node):
    """Whether a normalisation takes the statistics of its batch and keeps the running ones; its schema is silent."""
    normal = (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default)
    return node.target in normal and node.args[3] is not None and bool(node.args[5])


def _changes_in_place(captured):
    """Whether an operator of the captured graph, or of a body in it, writes into its argument."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and (node.target._schema.is_mutable or _learns(node))
        for part in captured.graph_module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
    )


def random_node(program):
    """The first node of an ONNXProgram that draws random numbers, or None."""
    for node in onnx_ir.traversal.RecursiveGraphIterator(program.model.graph):
        if node.op_type in RANDOM and not (node.op_type == "Dropout" and len(node.inputs) < 3):
            return node
    return None


def _mutations(exported):
    """Names of arguments that are changed in place, and of buffers."""
    kinds, arguments, buffers = signatures.OutputKind, [], []
    for spec in exported.graph_signature.output_specs:
        if spec.kind == kinds.USER_INPUT_MUTATION:
            arguments.append(spec.target)
        elif spec.kind in (kinds.BUFFER_MUTATION, getattr(kinds, "PARAMETER_MUTATION", None)):
            buffers.append(spec.target)
    return arguments, buffers


def _distinct(program):
    """Each output of the graph becomes a value of its own that no input is."""
    graph, seen = program.model.graph, {id(value) for value in program.model.graph.inputs}
    seen |= {id(value) for value in graph.initializers.values()}
    for place, value in enumerate(list(graph.outputs)):
        if id(value) in seen:
            node = onnx_ir.node("Identity", [value])
            fresh = node.outputs[0]
            fresh.name, fresh.type, fresh.shape = f"{value.name}_output_{place}", value.type, value.shape
            graph.append(node)
            graph.outputs[place] = fresh
        seen.add(id(graph.outputs[place]))


# --- exporting --------------------------------------------------------------------------------------------------------


def _capture(module, arguments, named, dynamic_shapes, may_assume):
    """(an ExportedProgram, what it assumes of values as a sentence or None). torch.export runs the module, or reads its
    bytecode where that fails. Where the module branches on values, and `may_assume`, the branches that the example
    arguments take are taken."""
    given = (module, arguments, named or None)
    with _loops_of_cells(dynamic_shapes), forms_without_branches():
        try:
            return torch.export.export(*given, dynamic_shapes=dynamic_shapes, strict=False), None
        except Exception as e:
            first = e
        try:
            return torch.export.export(*given, dynamic_shapes=dynamic_shapes, strict=True), None
        except Exception:
            if not may_assume or not any(isinstance(e, GuardOnDataDependentSymNode) for e in _causes(first)):
                raise first from None
        try:
            captured = torch.export.draft_export(*given, dynamic_shapes=dynamic_shapes)
        except Exception:
            raise first from None
    report = getattr(captured, "_report", None)
    conditions = [
        str(failure.data.get("expr")) for failure in getattr(report, "failures", ()) if "expr" in failure.data
    ]
    known = ", ".join(dict.fromkeys(conditions)) or "a condition"
    return captured, f"the module branches on values ({known}); the branches that the examples take were exported"


@contextlib.contextmanager
def _loops_of_cells(dynamic_shapes):
    """Recurrent cells are loops where the number of steps may be dynamic; else they are unrolled."""
    with contextlib.ExitStack() as stack:
        if dynamic_shapes:
            from torch.export import _patches

            for name in ("register_lstm_while_loop_decomposition", "register_gru_while_loop_decomposition"):
                if hasattr(_patches, name):
                    stack.enter_context(getattr(_patches, name)())
        yield


def _is_computed_wider(value):
    """Whether the exporter may compute a value as float32: then it takes the wide value where the graph returns it."""
    known = value.meta.get("val") if value.op == "call_function" else None
    return isinstance(known, torch.Tensor) and known.dtype in (torch.float16, torch.bfloat16)


def _copied(graph, value):
    """A node that copies a value."""
    copy = graph.create_node("call_function", torch.ops.aten.clone.default, (value,), name=f"{value.name}_returned")
    copy.meta.update(value.meta)
    return copy


def _returning(captured):
    """(the program with new values of arguments as its first results and without results that are constants; those as
    (place, value)). The exporter knows neither. Changes the program."""
    kinds, specs, kept, constants = signatures.OutputKind, [], [], []
    output = captured.graph.output_node()
    for value, spec in zip(output.args[0], captured.graph_signature.output_specs):
        if isinstance(spec.arg, signatures.ConstantArgument):
            constants.append((len(specs) + len(constants), spec.arg.value))
            continue
        if spec.kind == kinds.USER_INPUT_MUTATION:
            spec = dataclasses.replace(spec, kind=kinds.USER_OUTPUT, target=None)
        if _is_computed_wider(value):
            with captured.graph.inserting_before(output):
                value = _copied(captured.graph, value)
            spec = dataclasses.replace(spec, arg=signatures.TensorArgument(value.name))
        specs.append(spec)
        kept.append(value)
    output.args = (tuple(kept),)
    captured.graph_module.recompile()
    captured._graph_signature = signatures.ExportGraphSignature(captured.graph_signature.input_specs, specs)
    captured.module_call_graph[0].signature.out_spec = pytree.tree_structure((0,) * len(kept))
    return captured, constants


def export(module, arguments, named=None, dynamic_shapes=None, *, changes_arguments=False):
    """An Exported. module: nn.Module in evaluation mode, or an ExportedProgram. changes_arguments: whether arguments
    may be changed in place; then their new values are outputs. Errors: tessera.Error `unsupported` that names the node
    where the exporter does, and the cause; BuffersChange where the module changes its own buffers."""
    first = None
    for helps in helps_for(module):
        try:
            with ALONE, quiet(), torch.no_grad(), helps.forms():
                return _exported(module, arguments, named, dynamic_shapes, changes_arguments, helps)
        except BuffersChange:
            raise
        except Exception as e:
            if hasattr(e, "code"):
                raise
            first = first or e
    raise error("unsupported", f"PyTorch's ONNX exporter refuses the module: {one_line(first)}; {WAY_OUT}") from first


def _exported(module, arguments, named, dynamic_shapes, changes_arguments, helps):
    captured, notice = module, None
    if not isinstance(module, torch.export.ExportedProgram):
        captured, notice = _capture(module, arguments, named, dynamic_shapes, not changes_arguments)
    if _changes_in_place(captured):
        captured = captured.run_decompositions({})  # then what is changed stands in the signature
    in_spec, out_spec = captured.call_spec.in_spec, captured.call_spec.out_spec
    changed, buffers = _mutations(captured)
    if buffers:
        raise BuffersChange(buffers)
    if changed and not changes_arguments:
        raise error("unsupported", f"the module changes its argument '{changed[0]}' in place; return the new value")
    captured = with_equivalents(captured)
    helps.fix(captured.graph_module)
    in_known_forms(captured)
    captured, constants = _returning(captured)
    program = torch.onnx.export(
        captured, dynamo=True, verbose=False, custom_translation_table=TRANSLATIONS | helps.table
    )
    inputs, outputs = _interface(program)
    _distinct(program)
    repair(program)
    for port, value in zip([p for p in outputs if p.name is not None], program.model.graph.outputs):
        port.name = value.name
    for place, value in constants:
        outputs.insert(place, Port(None, value=value))
    return Exported(program, inputs, outputs, in_spec, out_spec, changed, notice)


class BuffersChange(Exception):
    """The module changes buffers of its own, whose names are the arguments."""

    def __init__(self, names):
        super().__init__(", ".join(names))
        self.names = list(names)


# --- calls ------------------------------------------------------------------------------------------------------------


def arguments_of(sample):
    """(positional, named) of example arguments: a tensor, a tuple or list of positional ones, or a dict of named
    ones."""
    if isinstance(sample, dict):
        return (), dict(sample)
    return (tuple(sample), {}) if isinstance(sample, (tuple, list)) else ((sample,), {})


def leaves(exported, signature, arguments, named):
    """The leaves of a call's arguments in the order of `exported.inputs`. signature: of the module's forward, or None;
    through it arguments may be given by position or by name, whatever the examples were. Errors: invalid_argument."""
    spec = exported.in_spec
    wanted = list(spec.child(1).context or [])
    count = spec.child(0).num_children
    if signature is not None and (len(arguments) != count or set(named) != set(wanted)):
        arguments, named = _as_examples(signature, arguments, named, count, wanted)
    named = {name: named[name] for name in wanted if name in named} | named
    flat, found = pytree.tree_flatten((tuple(arguments), named))
    if found != spec:
        raise argument(
            f"the call has other arguments than the examples: {count} by position and "
            f"{', '.join(repr(n) for n in wanted) or 'none'} by name are wanted, in containers as the examples had"
        )
    return flat


def _as_examples(signature, arguments, named, count, wanted):
    """The same arguments with as many by position, and those by name, as the examples had; what a call leaves out has
    its default."""
    try:
        given = signature.bind(*arguments, **named).arguments
    except TypeError as e:
        raise argument(f"the call does not fit the module's forward: {e}") from None
    parameters = signature.parameters
    if any(
        parameters[name].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for name in given
    ):
        return arguments, named
    positions = [n for n, p in parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY][:count]
    values = {n: p.default for n, p in parameters.items() if p.default is not inspect.Parameter.empty} | given
    known = {*positions, *wanted}
    if not known <= values.keys() or any(values[n] is not parameters[n].default for n in given if n not in known):
        return arguments, named
    return tuple(values[name] for name in positions), {name: values[name] for name in wanted}

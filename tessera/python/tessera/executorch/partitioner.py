# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a program Tessera takes. A list of operators would take nodes whose types or parameters the exporter
or the compiler refuses, and a program with such a delegate cannot be made. So the whole is tried first; where that
fails every node is tried, and what is taken is grouped and tried again. In and out: ExecuTorch's partitioner interface.
"""

import functools
import logging
import operator

import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.export import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._pytree import tree_flatten

from ..pt2e.export import BY_ATEN, is_edge, translations
from .backend import TesseraBackend, check, compile_program, specs_of

log = logging.getLogger("tessera.executorch")
QUANTISATION = ("quantized_decomposed::", "torchao::")
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
MOVEMENTS = {
    f"aten::{name}"
    for name in (
        *("view_copy", "permute_copy", "squeeze_copy", "unsqueeze_copy", "expand_copy", "slice_copy", "select_copy"),
        *("clone", "alias_copy", "t_copy", "transpose_copy", "view", "reshape", "permute", "transpose", "_to_copy"),
        *("split_copy", "split_with_sizes_copy", "full", "full_like", "empty", "arange"),
    )
} | {"dim_order_ops::_clone_dim_order", "dim_order_ops::_to_dim_order_copy", "dim_order_ops::_empty_dim_order"}


class TesseraPartitioner(Partitioner):
    """Delegates what Tessera compiles.

    device: `fsim`, `sysc`, `rtl`, `xrt`, `remote:HOST:PORT` or `reference`, unless the process that runs the program
    says otherwise. config: the machine that is compiled for; npu256 without a word. The other options are those of a
    compilation (tessera.compile_options()) and of the device. A warning of the logger "tessera.executorch" tells how
    many operators stay with ExecuTorch and why the first one does; its level info has all reasons. Errors:
    tessera.Error for a machine or an option that does not exist."""

    def __init__(self, *, device="fsim", config=None, **options):
        super().__init__()
        self.settings = {"device": device, "config": config, **options}
        check(self.settings)
        self.delegation = DelegationSpec(TesseraBackend.__name__, specs_of(self.settings))
        self.values, self.refused = {}, {}

    def ops_to_not_decompose(self, ep):
        """What is taken as it stands keeps its form: a linear layer, a normalisation or an activation is one operator
        of ONNX, and its parts would be several. The others are taken apart."""
        self.values.update(ep.state_dict)
        self.values.update((k, v) for k, v in ep.constants.items() if isinstance(v, torch.Tensor))
        table = decompositions()
        found = {node.target for node in ep.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
        found = {op for op in found if op in table or op.has_kernel_for_dispatch_key(COMPOSITE)}
        chosen = functools.cache(lambda: {node for group in self._groups(ep, calls(ep), final=False) for node in group})
        # The node's kind is asked first: of what is delegated already nothing is left to decide.
        return sorted(filter(whole, found), key=str), lambda node: node.target in found and node in chosen()

    def partition(self, exported_program):
        program = exported_program
        groups, tags = self._groups(program, calls(program)), {}
        for group in groups:
            tag = f"tessera{len(tags)}"
            tags[tag] = self.delegation
            for node in group:
                node.meta["delegation_tag"] = tag
        tag_constant_data(program)
        for node in program.graph.nodes:
            # A constant that ExecuTorch reads too, or that the program returns, stays with the program.
            if node.op == "placeholder" and any("delegation_tag" not in user.meta for user in node.users):
                node.meta.pop("delegation_tag", None)
        return PartitionResult(tagged_exported_program=program, partition_tags=tags)

    # --- what is taken

    def _takes(self, program, nodes, about=None, **options):
        """Whether these nodes compile together; else the reason is kept, where it is `about` a node."""
        if not any(is_work(node) for node in nodes) or any(name_of(node) == "" for node in nodes):
            return False
        if (dimension := crossing(nodes)) is not None:
            if about is not None:
                self.refused[about] = f"{name_of(about)}: '{dimension.name}' is a dimension, and no tensor"
            return False
        try:
            compile_program(extract(program, nodes, self.values), self.delegation.compile_specs, **options)
        except Exception as refusal:  # the exporter and its libraries raise errors of many classes
            if about is not None:
                self.refused[about] = f"{name_of(about)}: {(str(refusal).strip() or repr(refusal)).splitlines()[0]}"
            return False
        return True

    def _groups(self, program, nodes, final=True):
        """What is delegated, as lists of nodes. The dear question, which nodes compile each for itself, is asked for
        those groups alone that do not compile. Before operators have been taken apart, `final` is false."""
        self.refused = {}
        unknown = [node for node in nodes if not translated(node, parts=final)]
        for node in unknown:
            self.refused[node] = f"{name_of(node)}: PyTorch's ONNX exporter has no translation of it"
        if not unknown and self._takes(program, nodes):
            return [nodes]
        taken = set(nodes) - set(unknown)
        groups = self._proposed(program, nodes, taken)
        failing = [group for group in groups if not self._takes(program, group)]
        if failing:
            self._try_each(program, [node for group in failing for node in group], taken)
            groups = self._proposed(program, nodes, taken)
            groups = [part for group in groups for part in self._compiling(program, group)]
        if final:
            self._tell(sum(map(is_work, nodes)))
        return groups

    def _try_each(self, program, nodes, taken):
        """Takes out of `taken` what does not compile for itself. What only moves or quantises goes with its
        neighbours."""
        known = {}
        for node in filter(is_work, nodes):
            key = signature(node)
            if key not in known:
                known[key] = None if self._takes(program, with_operands(node), node, effort="quick") else self.refused
            if known[key] is not None:
                taken.discard(node)
                self.refused.setdefault(node, f"{name_of(node)}: as another one of its kind")

    def _proposed(self, program, nodes, taken):
        """As few groups of the taken nodes as the others allow, in the order of the program."""

        class Support(OperatorSupportBase):
            def is_node_supported(self, modules, node):
                return node in taken

        partitioner = CapabilityBasedPartitioner(program.graph_module, Support(), allows_single_node_partition=True)
        order = {node: i for i, node in enumerate(nodes)}
        groups = [sorted(p.nodes, key=order.get) for p in partitioner.propose_partitions()]
        groups = [group for group in map(without_loose_ends, groups) if any(map(is_work, group))]
        return sorted(groups, key=lambda group: order[group[0]])

    def _compiling(self, program, nodes):
        """The group, or what of it compiles: halves in the order of the nodes depend in one direction only."""
        nodes = without_loose_ends(nodes)
        if not any(is_work(node) for node in nodes):
            return []
        if self._takes(program, nodes, nodes[0] if len(nodes) == 1 else None):
            return [nodes]
        if len(nodes) == 1:
            return []
        middle = len(nodes) // 2
        return self._compiling(program, nodes[:middle]) + self._compiling(program, nodes[middle:])

    def _tell(self, total):
        if not self.refused:
            return
        reasons = list(self.refused.values())
        log.warning("%d of %d operators stay with ExecuTorch; the first: %s", len(reasons), total, reasons[0])
        for reason in reasons:
            log.info("%s", reason)


def calls(program):
    return [node for node in program.graph.nodes if node.op == "call_function"]


@functools.cache
def registry():
    """The exporter's functions by operator."""
    from torch.onnx._internal.exporter import _registration

    return _registration.ONNXRegistry.from_torchlib()


@functools.cache
def decompositions():
    """What PyTorch takes apart on the way to its core operators."""
    return dict(torch.export.default_decompositions())


def translated(node, parts):
    """Whether PyTorch's exporter has a function for the operator, or where `parts` may do, takes it apart."""
    if node.target is operator.getitem or is_dimension(node):
        return True
    op = node.target._op if is_edge(node.target) else node.target
    if not isinstance(op, torch._ops.OpOverload):
        return False
    op = BY_ATEN.get(op._schema.name, op)
    return op in translations() or registry().is_registered(op) or (parts and op in decompositions())


def whole(op):
    """Whether an operator may stay as it is in the Edge dialect: a function without views and changes in place."""
    schema = op._schema
    return not schema.is_mutable and all(result.alias_info is None for result in schema.returns)


def name_of(node):
    """The operator's name with its namespace; empty for what is no operator."""
    if node.target is operator.getitem:
        return "getitem"
    op = node.target._op if is_edge(node.target) else node.target
    if isinstance(op, torch._ops.OpOverload):
        return op._schema.name
    return f"{op.__module__}::{op.__name__}" if is_dimension(node) else ""


def is_work(node):
    """Whether an operator computes: what only quantises or moves elements is no reason for a delegate."""
    name = name_of(node)
    return name != "getitem" and not is_dimension(node) and name not in MOVEMENTS and not name.startswith(QUANTISATION)


def is_dimension(node):
    """Whether a node computes with dimensions that a run decides."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def crossing(nodes):
    """The first dimension that goes into these nodes or out of them. ExecuTorch's delegates take tensors."""
    inside = set(nodes)
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in inside and is_dimension(operand):
                return operand
        if is_dimension(node) and any(user not in inside for user in node.users):
            return node
    return None


def with_operands(node):
    """The node with what dequantises its operands and what takes its result apart: as the compiler will see it."""
    before = [n for n in node.all_input_nodes if n.op == "call_function" and "::dequantize" in name_of(n)]
    after = [user for user in node.users if user.target is operator.getitem]
    return [*before, node, *after]


def without_loose_ends(nodes):
    """Less what only moves or quantises constants or results for others: it costs nothing where it is needed."""
    kept = list(nodes)
    while True:
        inside = set(kept)
        loose = {
            node
            for node in kept
            if not is_work(node)
            and name_of(node) != "getitem"
            and (not any(user in inside for user in node.users) or not node.all_input_nodes)
            and not name_of(node).startswith("quantized_decomposed::quantize")
            and not ("::dequantize" in name_of(node) and any(n in inside for n in node.all_input_nodes))
            and not any(n in inside for n in node.all_input_nodes)
        }
        if not loose:
            return kept
        kept = [node for node in kept if node not in loose]


def signature(node):
    """Nodes of equal signature are taken or refused together: operator, arguments, types and shapes."""

    def of(value):
        if isinstance(value, torch.fx.Node):
            held = value.meta.get("val")
            kind = "constant" if value.op in ("placeholder", "get_attr") else name_of(value).endswith("dequantize")
            return (kind, str(getattr(held, "dtype", type(held))), str(getattr(held, "shape", "")))
        if isinstance(value, (list, tuple)):
            return tuple(of(item) for item in value)
        return repr(value)

    return name_of(node), of(node.args), tuple((name, of(value)) for name, value in sorted(node.kwargs.items()))


def real(name, tensor, values):
    """A tensor with elements in place of one that has none: ExecuTorch asks a partitioner about a program whose
    parameters are shapes alone. The elements are those of `values`, where they were seen, or ones."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    known = values.get(name)
    if known is not None and known.shape == tensor.shape and known.dtype == tensor.dtype:
        return known
    with unset_fake_temporarily():
        return torch.ones(tuple(tensor.shape), dtype=tensor.dtype)


def extract(program, nodes, values):
    """A program of these nodes alone. Parameters, buffers and constants that they read come along; other values that
    they read are inputs, and what others read of them are outputs."""
    inside = set(nodes)
    given = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
    reads, written = {}, []
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in inside:
                reads[operand] = given.get(operand.name) if operand.op == "placeholder" else None
        if any(user not in inside for user in node.users):
            written.append(node)
    lifted = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    is_held = lambda spec: spec is not None and spec.kind in lifted and spec.target not in mutated
    order = sorted(reads, key=lambda operand: not is_held(reads[operand]))
    graph, made, inputs = torch.fx.Graph(), {}, []
    for operand in order:
        made[operand] = graph.placeholder(operand.name)
        made[operand].name = operand.name
        made[operand].meta = dict(operand.meta)
        spec = reads[operand]
        if is_held(spec):
            inputs.append(spec)
        else:
            inputs.append(InputSpec(InputKind.USER_INPUT, argument_of(operand), None))
    for node in nodes:
        made[node] = graph.node_copy(node, lambda old: made[old])
        made[node].name = node.name
    graph.output(tuple(made[node] for node in written))
    user_inputs = tuple(spec.arg.name for spec in inputs if spec.kind == InputKind.USER_INPUT)
    called = ModuleCallSignature(
        [], [], tree_flatten((user_inputs, {}))[1], tree_flatten(tuple(node.name for node in written))[1]
    )
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, argument_of(node), None) for node in written]
    return torch.export.ExportedProgram(
        root=torch.fx.GraphModule(program.graph_module, graph),
        graph=graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={name: real(name, tensor, values) for name, tensor in program.state_dict.items()},
        range_constraints=program.range_constraints,
        module_call_graph=[ModuleCallEntry("", called)],
        constants={name: real(name, value, values) for name, value in program.constants.items()},
        verifiers=program.verifiers,
    )


def argument_of(node):
    value = node.meta.get("val")
    for kind, of in (
        (torch.SymInt, SymIntArgument),
        (torch.SymFloat, SymFloatArgument),
        (torch.SymBool, SymBoolArgument),
    ):
        if isinstance(value, kind):
            return of(name=node.name)
    return TensorArgument(name=node.name)

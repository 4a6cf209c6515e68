# SPDX-License-Identifier: Apache-2.0
"""From an exported program of PyTorch to ONNX. In: a program of the ATen or the Edge dialect, with or without the
quantisation operators of PT2E. Out: a model whose quantised operators stand between DequantizeLinear and
QuantizeLinear in the groups that ONNX Runtime computes in integers. PyTorch's exporter translates; what it does not
know of quantisation stands here."""

import contextlib
import functools
import io
import logging
import re

import torch
from torch._export.verifier import Verifier
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ..errors import error
from ..torch.equivalents import TRANSLATIONS, with_equivalents
from ..torch.repairs import repair
from .spelling import spell

QUANTISED = torch.ops.quantized_decomposed
# Operators of ExecuTorch that keep an order of dimensions, and what they compute.
BY_ATEN = {
    "dim_order_ops::_to_dim_order_copy": torch.ops.aten._to_copy.default,
    "dim_order_ops::_clone_dim_order": torch.ops.aten.clone.default,
}


def to_onnx(model, example_inputs=None, *, dynamic_shapes=None, opset=None):
    """The model as onnx.ModelProto.

    model: an ExportedProgram, or a module (as convert_pt2e returns it) together with example_inputs, a tuple of
    tensors, and dynamic_shapes as torch.export.export takes them. opset: 20, or 21 where 16-bit quantisation needs it.
    Errors: tessera.Error (unsupported) that names the node that has no translation."""
    program = model
    if not isinstance(model, torch.export.ExportedProgram):
        if example_inputs is None:
            raise error("invalid_argument", "to_onnx of a module needs example_inputs, a tuple of its inputs")
        program = torch.export.export(model, tuple(example_inputs), dynamic_shapes=dynamic_shapes)
    program = as_aten(program)
    with quiet(), unset_fake_temporarily():
        try:
            program = with_equivalents(program)
            exported = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                opset_version=opset or (21 if wide(program) else 20),
                custom_translation_table=TRANSLATIONS | translations(),
            )
            repair(exported)
        except Exception as failure:  # its libraries raise errors of many classes
            raise error("unsupported", f"PyTorch's ONNX exporter: {cause(failure)}") from failure
    return spell(exported.model_proto)


def as_aten(program):
    """The program with operators of ATen in place of those of the Edge dialect; itself where there are none."""
    if not any(is_edge(node.target) for node in program.graph.nodes):
        return program
    module = torch.fx.GraphModule(program.graph_module, _copied(program.graph))
    for node in module.graph.nodes:
        if is_edge(node.target):
            target = node.target._op
            node.target = BY_ATEN.get(target._schema.name, target)
            if node.target is not target:
                node.kwargs = {name: value for name, value in node.kwargs.items() if name != "dim_order"}
    module.recompile()
    return torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=[Verifier],
    )


def is_edge(target):
    """Whether a node's target is an operator of the Edge dialect, which ExecuTorch wraps around one of ATen."""
    return type(target).__name__ == "EdgeOpOverload"


def _copied(graph):
    """A copy whose nodes have the names of the original, which the signature refers to."""
    copy, made = torch.fx.Graph(), {}
    for node in graph.nodes:
        made[node] = copy.node_copy(node, lambda old: made[old])
        made[node].name = node.name
    return copy


def wide(program):
    """Whether 16-bit integers are quantised, which ONNX has from opset 21 on."""
    kinds = (torch.int16, torch.uint16)
    return any(kind in node.args for node in program.graph.nodes for kind in kinds if node.op == "call_function")


def cause(failure):
    """One line of an exporter's error: the operator without a translation, or what the innermost error says first."""
    texts = [str(failure)]
    while failure.__cause__ is not None:
        failure = failure.__cause__
        texts.append(str(failure))
    unknown = re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", "\n".join(texts))
    if unknown:
        return f"'{unknown[1]}' has no translation"
    node = re.search(r"Error when translating node (%\w+)", "\n".join(texts))
    reason = (texts[-1].strip() or type(failure).__name__).splitlines()[0]
    return f"node '{node[1]}': {reason}" if node else reason


@contextlib.contextmanager
def quiet():
    """The exporter reports steps on standard output and through loggers; what is wrong comes as an exception."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


@functools.cache
def translations():
    """Translations of PT2E's operators whose range is narrower than their type, or whose parameters are tensors; the
    exporter's own ignore the range."""
    from onnxscript import opset18 as op

    limits = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767)}

    def narrowed(x, scale, zero, low, high, kind):
        if (low, high) == limits.get(kind, (low, high)):
            return x
        bounds = [op.Constant(value_float=float((bound - zero) * scale)) for bound in (low, high)]
        return op.Clip(x, *bounds)

    def zero_point(value, kind):
        return op.Cast(op.Constant(value_int=int(value)), to=kind)

    def quantize(input, scale: float, zero_point_: int, quant_min: int, quant_max: int, dtype: int):
        x = narrowed(input, scale, zero_point_, quant_min, quant_max, dtype)
        return op.QuantizeLinear(x, op.Constant(value_float=scale), zero_point(zero_point_, dtype))

    def as_scalar(tensor, kind):
        return op.Squeeze(op.Cast(tensor, to=kind))

    def quantize_by_tensor(input, scale, zero_point_, quant_min: int, quant_max: int, dtype: int):
        return op.QuantizeLinear(input, as_scalar(scale, 1), as_scalar(zero_point_, dtype))

    def dequantize_by_tensor(
        input, scale, zero_point_, quant_min: int, quant_max: int, dtype: int, out_dtype: int = -1
    ):
        return op.DequantizeLinear(input, as_scalar(scale, 1), as_scalar(zero_point_, dtype))

    def choose(input, quant_min: int, quant_max: int, eps: float, dtype: int):
        """The parameters of a run: those of uint8, with the zero point counted from the lowest integer."""
        _, scale, zero = op.DynamicQuantizeLinear(input)
        low = op.Constant(value_int=quant_min)
        return op.Cast(scale, to=11), op.Add(op.Cast(zero, to=7), low)

    return {
        QUANTISED.quantize_per_tensor.default: quantize,
        QUANTISED.quantize_per_tensor.tensor: quantize_by_tensor,
        QUANTISED.dequantize_per_tensor.tensor: dequantize_by_tensor,
        QUANTISED.choose_qparams.tensor: choose,
    }

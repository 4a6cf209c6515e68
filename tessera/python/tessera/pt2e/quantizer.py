# SPDX-License-Identifier: Apache-2.0
"""Where a network of PyTorch is quantised for the NPU: a quantizer of torchao's PT2E flow. In: the graph that
torch.export gives. Out: the same graph with annotations, for prepare_pt2e or prepare_qat_pt2e. The rules are those of
ONNX Runtime's integer operators (docs/numerics.md): one quantisation behind each operator, or behind the activation
that follows it; weights with a symmetric scale for each channel; shared parameters where elements only move. Biases
stay float here: `to_onnx` makes them int32 with the scale of their sums."""

import torch
from torchao.quantization.pt2e.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.observer import (
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

from ..errors import argument

aten = torch.ops.aten
KEY = "quantization_annotation"


def overloads(*names):
    """All overloads of operators of ATen that this version of PyTorch has."""
    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    return {getattr(packet, overload) for packet in packets for overload in packet.overloads()}


CONVOLUTIONS = overloads("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
TRANSPOSED = overloads("conv_transpose1d", "conv_transpose2d")
LINEAR = overloads("linear")
PRODUCTS = overloads("matmul", "bmm", "mm")
SUMS = overloads("add", "add_", "sub", "sub_", "mul", "mul_", "maximum", "minimum")
NORMS = overloads("batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training")
CLAMPS = overloads("relu", "relu_", "relu6", "relu6_", "hardtanh", "hardtanh_", "clamp", "clamp_")
TABLES = overloads(
    *("hardswish", "hardswish_", "hardsigmoid", "hardsigmoid_", "silu", "silu_", "gelu", "gelu_", "elu", "elu_"),
    *("leaky_relu", "leaky_relu_", "tanh", "tanh_", "sigmoid", "sigmoid_", "softplus", "mish", "mish_", "celu", "selu"),
)  # fmt: skip
AVERAGES = overloads("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean")
ROWS = overloads("softmax", "layer_norm", "rms_norm")
JOINS = overloads("cat", "concat", "stack")
MOVES = overloads(
    *("max_pool1d", "max_pool2d", "view", "reshape", "flatten", "unflatten", "permute", "transpose", "squeeze"),
    *("unsqueeze", "slice", "select", "expand", "contiguous", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *("dropout", "dropout_", "alias", "repeat", "upsample_nearest2d", "chunk", "split", "split_with_sizes", "pad"),
)  # fmt: skip
# Results in 0..1, whose scale is known.
UNIT = overloads("sigmoid", "sigmoid_", "hardsigmoid", "hardsigmoid_", "softmax")


class TesseraQuantizer(Quantizer):
    """Annotates what the NPU computes on integers.

    activation_bits: 8, or 16 for products of 16-bit activations with 8-bit weights. weight_bits: 2 to 8; below 8 the
    weights stand in int8 with fewer values. per_channel: a scale for each channel of the results. qat: fake
    quantisation for prepare_qat_pt2e in place of observers. rows: softmax and normalisations too, for a machine with
    row lanes (docs/operators.md). keep_float: names of modules, or prefixes of them up to a dot, whose operators stay
    float. observer: the class that finds the ranges of activations, of torchao.quantization.pt2e.observer."""

    def __init__(
        self,
        *,
        activation_bits=8,
        weight_bits=8,
        per_channel=True,
        qat=False,
        rows=False,
        keep_float=(),
        observer=HistogramObserver,
    ):
        super().__init__()
        if activation_bits not in (8, 16):
            raise argument(f"activation_bits is 8 or 16, got {activation_bits}")
        if not 2 <= weight_bits <= 8:
            raise argument(f"weight_bits is 2 to 8, got {weight_bits}")
        self.rows, self.keep_float, self.bits, self.qat = rows, tuple(keep_float), activation_bits, qat
        self.activation = self._activation(activation_bits, qat, observer)
        self.weight = {axis: self._weight(weight_bits, axis if per_channel else None, qat) for axis in (0, 1)}
        unit = 2.0**-8 if activation_bits == 8 else 2.0**-15
        kind = torch.int8 if activation_bits == 8 else torch.int16
        ends = torch.iinfo(kind)
        self.unit = FixedQParamsQuantizationSpec(
            kind, unit, ends.min if activation_bits == 8 else 0, ends.min, ends.max, torch.per_tensor_affine
        )

    @staticmethod
    def _activation(bits, qat, observer):
        kind, scheme = (torch.int8, torch.per_tensor_affine) if bits == 8 else (torch.int16, torch.per_tensor_symmetric)
        ends = torch.iinfo(kind)
        if qat:
            maker = FusedMovingAvgObsFakeQuantize if bits == 8 else FakeQuantize
            maker = maker.with_args(observer=MovingAverageMinMaxObserver, eps=2**-12)
        else:
            maker = observer.with_args(eps=2**-12)
        return QuantizationSpec(kind, maker, ends.min, ends.max, scheme, is_dynamic=False)

    @staticmethod
    def _weight(bits, axis, qat):
        top = 2 ** (bits - 1) - 1
        if axis is None:
            maker, scheme = MovingAverageMinMaxObserver, torch.per_tensor_symmetric
        else:
            maker = MovingAveragePerChannelMinMaxObserver if qat else PerChannelMinMaxObserver
            scheme = torch.per_channel_symmetric
        maker = FakeQuantize.with_args(observer=maker, eps=2**-12) if qat else maker.with_args(eps=2**-12)
        return QuantizationSpec(torch.int8, maker, -top, top, scheme, ch_axis=axis, is_dynamic=False)

    # --- annotation

    def annotate(self, model):
        # ATen's in-place forms leave results that nobody reads
        model.graph.eliminate_dead_code()
        for node in model.graph.nodes:
            if node.op != "call_function" or KEY in node.meta or not is_float(node) or self._kept_float(node):
                continue
            if node.target in CONVOLUTIONS | LINEAR:
                self._weighted(node)
            elif node.target in PRODUCTS | SUMS:
                self._operator(node, [a for a in node.args[:2] if isinstance(a, torch.fx.Node)])
            elif node.target in TABLES | CLAMPS | AVERAGES or (self.rows and node.target in ROWS):
                self._operator(node, [node.args[0]])
            elif node.target in JOINS:
                self._join(node)
            elif node.target in MOVES:
                self._move(node)
        for node in model.graph.nodes:
            if node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem":
                self._part(node)
        return model

    def validate(self, model):
        pass

    def _kept_float(self, node):
        stack = node.meta.get("nn_module_stack") or {}
        paths = [path.replace("L['self'].", "").replace("['", ".").replace("']", "") for path, _ in stack.values()]
        return any(path == name or path.startswith(f"{name}.") for path in paths for name in self.keep_float)

    def _weighted(self, node):
        """A convolution or linear layer, the normalisation that training keeps behind it, and its activation."""
        axis = 1 if node.target in TRANSPOSED else 0
        if axis == 1 and len(node.args) > 6 and node.args[6] != 1:
            axis = None  # groups of a transposed convolution share the channels of their weights
        weight = self.weight[axis or 0] if axis is not None else self._weight(8, None, self.qat)
        if not self._bytes(node.args[1]):
            return
        inputs = {node.args[0]: self._spec(node.args[0]), node.args[1]: weight}
        end = self._behind(node, NORMS) if node.target in CONVOLUTIONS else node
        self._close(node, inputs, end)

    def _bytes(self, weight):
        """Whether the second operand is a parameter and not an activation."""
        while isinstance(weight, torch.fx.Node) and weight.op == "call_function" and weight.target in MOVES:
            weight = weight.args[0]
        return isinstance(weight, torch.fx.Node) and weight.op in ("get_attr", "placeholder")

    def _operator(self, node, operands):
        operands = [operand for operand in operands if is_float(operand)]
        if not operands or (node.target in PRODUCTS and len(operands) < 2):
            return
        self._close(node, {operand: self._spec(operand) for operand in operands}, node)

    def _close(self, node, inputs, end):
        """Annotates operands of `node`, and the result of `end` or of the activation that alone reads it."""
        last = self._behind(end, CLAMPS) if node.target not in CLAMPS | TABLES else end
        spec = self.unit if last.target in UNIT else self.activation
        chain, step = [], last
        while step is not node:
            chain.append(step)
            step = step.args[0]
            if getattr(step.target, "__name__", "") == "getitem":
                chain.append(step)
                step = step.args[0]
        for step in chain:
            step.meta[KEY] = QuantizationAnnotation(_annotated=True)
        node.meta[KEY] = QuantizationAnnotation(input_qspec_map=inputs, _annotated=True)
        last.meta[KEY].output_qspec = spec

    def _spec(self, operand):
        """How an operand is quantised: as its maker quantises it, where that is known beforehand."""
        maker = operand
        while isinstance(maker, torch.fx.Node) and KEY in maker.meta:
            spec = maker.meta[KEY].output_qspec
            if spec is self.unit:
                return self.unit
            if not isinstance(spec, SharedQuantizationSpec) or maker.target in JOINS:
                break
            maker = maker.args[0]
        return self.activation

    def _behind(self, node, kinds):
        """The operator of these kinds that is the only one to read the node's result; else the node itself."""
        users = list(node.users)
        if len(users) != 1 or users[0].target not in kinds or users[0].args[0] is not node or KEY in users[0].meta:
            return node
        found = users[0]
        if isinstance(found.meta.get("val"), (tuple, list)):
            parts = [user for user in found.users if user.args[1] == 0]
            return parts[0] if len(parts) == 1 else node
        return found

    def _join(self, node):
        """The parts and the whole share their parameters."""
        parts = [part for part in node.args[0] if is_float(part)]
        if not parts:
            return
        shared = SharedQuantizationSpec((parts[0], node))
        inputs = dict.fromkeys(parts[1:], shared)
        inputs[parts[0]] = self.activation  # a range for all of them, also where the scale of one is known
        node.meta[KEY] = QuantizationAnnotation(input_qspec_map=inputs, output_qspec=shared, _annotated=True)

    def _move(self, node):
        """What moves elements, or chooses among them, keeps their parameters."""
        source = node.args[0]
        if not is_float(source) or not self._quantised(source):
            return
        if node.target in overloads("pad") and not self._zero_pad(node):
            return
        several = isinstance(node.meta.get("val"), (tuple, list))
        shared = SharedQuantizationSpec((source, node))
        node.meta[KEY] = QuantizationAnnotation(
            input_qspec_map={source: self._spec(source)}, output_qspec=None if several else shared, _annotated=True
        )

    def _zero_pad(self, node):
        mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("mode", "constant")
        value = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
        return mode != "constant" or value in (None, 0, 0.0)

    def _part(self, node):
        """A part of what was split shares the parameters of the whole."""
        source = node.args[0]
        if isinstance(source, torch.fx.Node) and source.target in MOVES and KEY in source.meta and KEY not in node.meta:
            shared = SharedQuantizationSpec((source.args[0], source))
            node.meta[KEY] = QuantizationAnnotation(output_qspec=shared, _annotated=True)

    @staticmethod
    def _quantised(node):
        """Whether somebody else quantises the tensor: movements alone are no reason to."""
        seen = node
        return seen.op == "placeholder" or (KEY in seen.meta and seen.meta[KEY].output_qspec is not None)


def is_float(node):
    """Whether a node's result, or its first one, is a tensor of float32."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    value = value[0] if isinstance(value, (tuple, list)) and value else value
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32

# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's ONNX exporter writes wrongly, put right in the model that it gives."""

import ml_dtypes
import numpy as np
import onnx_ir


def repair(program):
    """Changes an ONNXProgram."""
    graph = program.model.graph
    _safe_softmax(graph)
    _one_type(graph)


def _constant(graph, value, array, what):
    """A new constant of the graph beside `value`, or the one of before."""
    name = f"{value.name}_{what}"
    if name not in graph.initializers:
        tensor = onnx_ir.tensor(array, name=name)
        graph.register_initializer(
            onnx_ir.Value(name=name, type=onnx_ir.TensorType(tensor.dtype), shape=value.shape, const_value=tensor)
        )
    return graph.initializers[name]


def _safe_softmax(graph):
    """Rows of attention whose mask leaves nothing are zeros in PyTorch. The exporter means to write that: it replaces
    what is no number behind the softmax. But its masks add the lowest number, which gives no such value; here they add
    minus infinity."""
    for node in onnx_ir.traversal.RecursiveGraphIterator(graph):
        value, chain = node.inputs[0] if node.op_type == "IsNaN" else None, []
        for kind, place in (("Softmax", 0), ("Add", 1), ("Where", 2)):
            found = value.producer() if value is not None else None
            if found is None or found.op_type != kind:
                break
            chain.append(found)
            value = found.inputs[place]
        tensor = value.const_value if len(chain) == 3 and value is not None else None
        if tensor is None or tensor.size != 1 or tensor.numpy().item() != _lowest(tensor):
            continue
        chain[-1].replace_input_with(2, _constant(graph, value, np.full_like(tensor.numpy(), -np.inf), "masked"))


def _lowest(tensor):
    dtype = tensor.numpy().dtype
    return float(ml_dtypes.finfo(dtype).min) if dtype.kind not in "iub" else None


def _one_type(graph):
    """The exporter folds a normalisation of bfloat16 into weights of float32. All operands have the input's type."""
    for node in onnx_ir.traversal.RecursiveGraphIterator(graph):
        wanted = node.inputs[0].dtype if node.op_type in ("Conv", "ConvTranspose", "Gemm") else None
        for place, value in enumerate(node.inputs if wanted is not None else ()):
            tensor = value.const_value if value is not None and value.dtype != wanted else None
            if tensor is not None:
                array = tensor.numpy().astype(wanted.numpy())
                node.replace_input_with(place, _constant(graph, value, array, str(wanted).lower()))

# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs that are bytes. In: a quantised model and patterns of names. Out: the same model without the
QuantizeLinear behind those inputs and the DequantizeLinear in front of those outputs. Their scale and zero point stand
in the model's metadata."""

import fnmatch
import json

from onnx import TensorProto, numpy_helper

from .errors import argument
from .graph import is_onnx

METADATA = "tessera.bytes"  # JSON: name -> {"scale": real, "zero_point": integer}


def convert(model, patterns):
    """Changes `model`. patterns: of file names' kind (`past_*`); each must fit an input or output that is quantised."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    ports = {value.name: value for value in [*graph.input, *graph.output]}
    grids = {}
    for pattern in patterns:
        names = [name for name in ports if name not in constants and fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise argument(f"--bytes: the model has no input or output '{pattern}'; it has {', '.join(ports)}")
        for name in names:
            if name not in grids:
                grids[name] = _convert(graph, constants, ports[name])
    if grids:
        model.metadata_props.add(key=METADATA, value=json.dumps(grids, sort_keys=True))
    return model


def _convert(graph, constants, port):
    is_output = any(port is value for value in graph.output)
    node = _producer(graph, port.name) if is_output else _only_quantiser(graph, port.name)
    if node is None or not is_onnx(node, "DequantizeLinear" if is_output else "QuantizeLinear"):
        kind = "output" if is_output else "input"
        raise argument(
            f"--bytes: the {kind} '{port.name}' is not quantised, as a float operator "
            f"{'makes' if is_output else 'reads'} it; leave it out of --bytes"
        )
    scale, zero = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
    inner = node.input[0] if is_output else node.output[0]
    graph.node.remove(node)
    if is_output:
        _dequantise_for_others(graph, node, inner)
    _rename(graph, inner, port.name)
    port.type.tensor_type.elem_type = TensorProto.UINT8
    return {"scale": float(scale), "zero_point": int(zero)}


def _producer(graph, name):
    return next((node for node in graph.node if name in node.output), None)


def _only_quantiser(graph, name):
    readers = [node for node in graph.node if name in node.input]
    return readers[0] if len(readers) == 1 else None


def _dequantise_for_others(graph, node, inner):
    """Nodes that read the float output get a DequantizeLinear of their own."""
    result = f"{node.output[0]}/float_value"
    readers = [reader for reader in graph.node if node.output[0] in reader.input]
    for reader in readers:
        for index, name in enumerate(reader.input):
            if name == node.output[0]:
                reader.input[index] = result
    if readers:
        node.output[0] = result
        first = min(index for index, other in enumerate(graph.node) if any(other is reader for reader in readers))
        graph.node.insert(first, node)


def _rename(graph, old, new):
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new

# SPDX-License-Identifier: Apache-2.0
"""Parts of quantised models that the tests compare exactly. In: a model as tessera.quantize makes it. Out: the part of
it whose operators are integers."""

import onnx

from tessera.quantization import place


def exact_part(model, shapes=None):
    """The model up to where float operators begin to compute: its outputs are the dequantised tensors that they read,
    and those outputs of the model that no float operator has touched. None if there are none. shapes: of inputs with
    dynamic dimensions."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    on_cpu = place.place(model, shapes=shapes).cpu
    touched, ends = set(), []
    made = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        pairs = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        if not pairs and node.name in on_cpu:
            ends += [name for name in node.input if name in made and name not in touched]
            touched |= set(node.output)
        elif touched & set(node.input):
            touched |= set(node.output)
    ends += [value.name for value in model.graph.output if value.name not in touched]
    ends = [name for name in dict.fromkeys(ends) if name in made and made[name].op_type == "DequantizeLinear"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in ends)
    return model if ends else None

# SPDX-License-Identifier: Apache-2.0
"""Asks the compiler where a quantised model runs. In: a quantised model. Out: the names of the nodes on the NPU and on
the CPU, and predicted cycles by layer."""

import dataclasses


@dataclasses.dataclass
class Placement:
    npu: set
    cpu: set
    info: dict

    @property
    def macs_share(self):
        return self.info["macs_npu_share"]


def static_shapes(model, fixed=None):
    """Shapes for inputs with dynamic dimensions: those of `fixed` (input -> shape), else 1 in front."""
    shapes = {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in constants:
            continue
        dims = value.type.tensor_type.shape.dim
        if any(not d.HasField("dim_value") for d in dims):
            given = (fixed or {}).get(value.name)
            shapes[value.name] = [
                d.dim_value if d.HasField("dim_value") else int(given[k]) if given is not None else 1
                for k, d in enumerate(dims)
            ]
    return shapes


def place(model, config="npu256", shapes=None, numerics="exact"):
    from .. import Session

    fixed = static_shapes(model, shapes)
    info = Session(model.SerializeToString(), "fsim", config, shapes=fixed, numerics=numerics).info()
    nodes = {"npu": set(), "cpu": set()}
    for layer in info.get("layers", []):
        nodes[layer["placement"]] |= set(layer["nodes"])
    return Placement(nodes["npu"], nodes["cpu"] - nodes["npu"], info)

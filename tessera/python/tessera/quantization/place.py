# SPDX-License-Identifier: Apache-2.0
"""Asks the compiler where a quantised model runs. In: a quantised model. Out: the names of the nodes on the NPU and on
the CPU, which is an instant's work as no schedule is looked for; or predicted cycles by layer, which is a whole
compilation."""

import dataclasses
import pathlib

import _tessera


@dataclasses.dataclass
class Placement:
    npu: set
    cpu: set
    macs_npu: int
    macs_cpu: int

    @property
    def macs_share(self):
        total = self.macs_npu + self.macs_cpu
        return self.macs_npu / total if total else 1.0


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


def text_of_machine(config):
    """A machine as another computer knows it: the name of a shipped one, or the text of the file."""
    return config if config in _tessera.shipped_configs() else pathlib.Path(config).read_text(encoding="utf-8")


def place(model, config="npu256", shapes=None, numerics="exact"):
    """Errors: tessera.Error where the model is not valid."""
    from .. import PredictedModel

    asked = PredictedModel(model.SerializeToString(), static_shapes(model, shapes))
    found = asked.placement(config, numerics=numerics)
    return Placement(found["npu"], found["cpu"], found["macs_npu"], found["macs_cpu"])


def describe(model, config="npu256", shapes=None, numerics="exact"):
    """What the compiler makes of the model, as Session.info() tells it: the layers with their predicted cycles."""
    from .. import Session

    fixed = static_shapes(model, shapes)
    return Session(model.SerializeToString(), "fsim", config, shapes=fixed, numerics=numerics, cpu_codegen=False).info()

# SPDX-License-Identifier: Apache-2.0
"""Tessera as a backend of ONNX: the interface of onnx.backend.base, so that tools that are written for it, the
standard's own test runner among them, run models on a Tessera device.

    import onnx
    import tessera.backend
    rep = tessera.backend.prepare(onnx.load("model.onnx"), device="fsim")
    outputs = rep.run([x])

A device is a name of tessera.backends(); "CPU", which ONNX's tools ask for, means "fsim". Errors are tessera.Error.
"""

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.defs import onnx_opset_version

import tessera

__all__ = ["TesseraBackend", "TesseraBackendRep"] + [
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

_NEWEST_OPSET = 28


def _session(model, device, options):
    content = model.SerializeToString() if isinstance(model, ModelProto) else model
    return tessera.Session(content, device="fsim" if device == "CPU" else device, **options)


class TesseraBackendRep(BackendRep):
    """A compiled model. `session` is its tessera.Session."""

    def __init__(self, session, declared):
        self.session = session
        self._declared = declared

    def run(self, inputs, **kwargs):
        """Results as a tuple whose elements are also found by the names of outputs. inputs: a dict by name; or a list
        in the order of the model's inputs, with or without those that have an initializer (such inputs are constants);
        or one array. Keywords are accepted and not used."""
        names = [port.name for port in self.session.get_inputs()]
        if isinstance(inputs, dict):
            feeds = {name: inputs[name] for name in names if name in inputs}
        else:
            values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            given = self._declared if len(values) > len(names) else names
            if len(values) > len(given):
                raise ValueError(f"the model takes {len(given)} inputs, {len(values)} were given")
            feeds = {name: value for name, value in zip(given, values) if name in names}
        outputs = [port.name for port in self.session.get_outputs()]
        return namedtupledict("Outputs", outputs)(*self.session.run(None, feeds))


class TesseraBackend(Backend):
    """ONNX's Backend on tessera.Session. Keywords of its methods are options of the Session, for example `config`."""

    @classmethod
    def supports_device(cls, device):
        """Whether `device` is "CPU" or one of tessera.backends()."""
        return device == "CPU" or device in tessera.backends()

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        """Whether the model compiles for the device."""
        try:
            _session(model, device, kwargs)
        except tessera.Error:
            return False
        return True

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        """Compiles a ModelProto, the bytes of one, or the file of a path. Raises tessera.Error."""
        declared = [value.name for value in model.graph.input] if isinstance(model, ModelProto) else []
        return TesseraBackendRep(_session(model, device, kwargs), declared)

    @classmethod
    def run_model(cls, model, inputs, device="CPU", **kwargs):
        """Compiles and runs a model once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, opset_version=None, **kwargs):
        """Runs one NodeProto on arrays: a list in the order of the node's inputs that are not "", or a dict by name.
        opset_version: of the node's operator set; default: the newest that Tessera and the onnx package know."""
        if not isinstance(node, NodeProto):
            raise TypeError("run_node takes a NodeProto")
        names = list(dict.fromkeys(name for name in node.input if name))
        values = inputs if isinstance(inputs, dict) else dict(zip(names, inputs))
        version = opset_version or min(onnx_opset_version(), _NEWEST_OPSET)
        imports = [helper.make_opsetid("", version if node.domain in ("", "ai.onnx") else _NEWEST_OPSET)]
        if node.domain not in ("", "ai.onnx"):
            imports.append(helper.make_opsetid(node.domain, opset_version or 1))
        graph = helper.make_graph(
            [node],
            "node",
            [_value_info(name, values[name]) for name in names],
            [ValueInfoProto(name=name) for name in node.output if name],
        )
        return cls.run_model(helper.make_model(graph, opset_imports=imports), values, device, **kwargs)


def _value_info(name, value):
    if isinstance(value, list):
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(value[0]).dtype) if value else TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, kind, None)
    value = np.asarray(value)
    kind = TensorProto.STRING if value.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


is_compatible = TesseraBackend.is_compatible
prepare = TesseraBackend.prepare
run_model = TesseraBackend.run_model
run_node = TesseraBackend.run_node
supports_device = TesseraBackend.supports_device

# SPDX-License-Identifier: Apache-2.0
"""Ahead of time: a delegated part of a program becomes an artifact of the compiler, or, where dimensions are open, the
ONNX model that is compiled for the shapes that come. In: an ExportedProgram of the Edge dialect. Out: bytes."""

import functools
import os
import tempfile

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from onnx import TensorProto, helper

from .. import Session, backends, compile_options
from ..errors import argument
from ..pt2e import to_onnx

DEVICE, CONFIG, STATISTICS = "device", "config", "statistics"


def specs_of(settings):
    """Compile specs of a mapping from names to values; what is None is left out."""
    return [CompileSpec(name, str(value).encode()) for name, value in settings.items() if value is not None]


def settings_of(specs):
    return {spec.key: bytes(spec.value).decode() for spec in specs}


def check(settings):
    """Refuses here, where it is one line, what would make every delegate fail: a device or a machine that does not
    exist, values that an option of the compilation does not take, and, of a device that every build can open, options
    that it does not have."""
    device, known = settings.get(DEVICE) or "fsim", {row["name"] for row in compile_options()}
    if device.split(":")[0] not in backends():
        raise argument(f"unknown device '{device}'; known: {', '.join(backends())}")
    given = {name: value for name, value in settings.items() if value is not None and name not in (DEVICE, CONFIG)}
    chosen = {name: value for name, value in given.items() if name in known}
    others = {name: value for name, value in given.items() if name not in known and name != STATISTICS}
    nothing = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "nothing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(nothing, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    opened = device if device in ("fsim", "sysc") else "fsim"
    others = others if device == opened else {}
    Session(model.SerializeToString(), opened, settings.get(CONFIG) or "", device_options=others, **chosen)


def compile_program(program, specs, **options):
    """The bytes of a delegate. specs: device, config, options of the compilation, of the device and of the back end, as
    compile specs; options: of the compilation, over them. Errors: tessera.Error of the exporter and the compiler."""
    model = to_onnx(program)
    settings = settings_of(specs)
    known = {row["name"] for row in compile_options()}
    chosen = {name: value for name, value in settings.items() if name in known} | options
    open_dims = any(
        not dim.HasField("dim_value") for value in model.graph.input for dim in value.type.tensor_type.shape.dim
    )
    device = "reference" if open_dims or settings.get(DEVICE) == "reference" else "fsim"
    return _compiled(
        model.SerializeToString(deterministic=True), device, settings.get(CONFIG, ""), tuple(sorted(chosen.items()))
    )


@functools.lru_cache(maxsize=8)
def _compiled(data, device, config, options):
    """A partitioner compiles to know whether it may take something, and the same follows as the delegate. What the
    reference interpreter takes, or what has no shapes yet, is imported and left as it is."""
    session = Session(data, device, config, **dict(options))
    if device == "reference":
        return data
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "delegate.tsr")
        session.save(path)
        with open(path, "rb") as file:
            return file.read()


class TesseraBackend(BackendDetails):
    """Its name is the one under which the library registers itself (tessera/executorch/backend.cc)."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=compile_program(edge_program, compile_specs))

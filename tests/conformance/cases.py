# SPDX-License-Identifier: Apache-2.0
"""The conformance suite that the onnx package carries: its cases, their inputs and recorded outputs, the comparison.

A case is a folder with a model and sets of inputs and outputs as protobufs. Those of kind "light" are networks whose
weights are made by the model; their input is a ramp, as the suite's own runner makes it. Kind "real" is left out: its
models are downloaded. Tolerances are those of the suite's runner, and those of a case where it brings its own.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tests.conformance.suite import DATA, node_folder

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")


@dataclasses.dataclass(frozen=True)
class Case:
    """One case: `name` without "test_", one of KINDS, the file of its model."""

    name: str
    kind: str
    model: Path

    def tolerances(self):
        """(relative, absolute)."""
        own = self.model.parent / "data.json"
        given = json.loads(own.read_text()) if self.kind != "light" and own.exists() else {}
        return given.get("rtol", 1e-3), given.get("atol", 1e-7)


def find_cases():
    """Every case of the package, in a fixed order."""
    cases = []
    for kind in KINDS:
        if kind == "light":
            cases += [Case(path.stem, kind, path) for path in sorted((DATA / kind).glob("*.onnx"))]
        else:
            paths = sorted((node_folder() if kind == "node" else DATA / kind).glob("*/model.onnx"))
            cases += [Case(path.parent.name.removeprefix("test_"), kind, path) for path in paths]
    return cases


def load(path, kind):
    """Array, list of arrays, or None for an optional that is empty; `kind` is the declared TypeProto."""
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return load_sequence(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        optional = onnx.OptionalProto.FromString(data)
        if optional.elem_type == onnx.OptionalProto.TENSOR:
            return numpy_helper.to_array(optional.tensor_value)
        return load_sequence(optional.sequence_value) or None
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def load_sequence(proto):
    """A list of arrays, or of dicts for a sequence of maps."""
    if proto.elem_type == onnx.SequenceProto.MAP:
        return [numpy_helper.to_dict(m) for m in proto.map_values]
    return [numpy_helper.to_array(t) for t in proto.tensor_values]


def ramp(info):
    """The input that the suite's runner gives networks of kind "light"."""
    shape = tuple(d.dim_value if d.HasField("dim_value") else 1 for d in info.type.tensor_type.shape.dim)
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def data_sets(case, proto):
    """Yields (feeds, expected) by names; `proto` is the case's model."""
    constants = {t.name for t in proto.graph.initializer}
    inputs = [i for i in proto.graph.input if case.kind != "light" or i.name not in constants]
    if case.kind == "light":
        outputs = {
            o.name: load(case.model.with_name(f"{case.model.stem}_output_{i}.pb"), o.type)
            for i, o in enumerate(proto.graph.output)
        }
        yield {info.name: ramp(info) for info in inputs}, outputs
        return
    for folder in sorted(case.model.parent.glob("test_data_set_*")):
        feeds = {
            info.name: load(folder / f"input_{i}.pb", info.type)
            for i, info in enumerate(inputs)
            if (folder / f"input_{i}.pb").exists()
        }
        yield feeds, {o.name: load(folder / f"output_{i}.pb", o.type) for i, o in enumerate(proto.graph.output)}


def strings(array):
    return [text.decode() if isinstance(text, bytes) else str(text) for text in array.ravel()]


def difference(actual, expected, relative, absolute):
    """ "" when a value is the expected one, else where and how it differs, with both values."""
    if expected is None or actual is None:
        return "" if actual is expected else f"{shown(actual)} instead of {shown(expected)}"
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{shown(actual)} instead of {shown(expected)}"
        texts = (difference(a, e, relative, absolute) for a, e in zip(actual, expected))
        return next((f"element {i}: {text}" for i, text in enumerate(texts) if text), "")
    expected = np.asarray(expected)
    if not isinstance(actual, np.ndarray) or actual.shape != expected.shape:
        return f"{shown(actual)} instead of {shown(expected)}"
    if expected.dtype.kind in "OSU":
        same = np.array([a == e for a, e in zip(strings(actual), strings(expected))], bool).reshape(expected.shape)
    elif actual.dtype != expected.dtype:
        return f"{shown(actual)} instead of {shown(expected)}"
    elif expected.dtype.kind in "biu":
        same = actual == expected
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        same = np.isclose(actual.astype(wide), expected.astype(wide), relative, absolute, equal_nan=True)
    if np.all(same):
        return ""
    worst = tuple(int(i) for i in np.argwhere(~same)[0])
    count = f"{np.count_nonzero(~same)} of {same.size} values"
    return f"{count}, at {list(worst)} {actual[worst]} instead of {expected[worst]}"


def shown(value):
    """Kind, type and shape of a value, short."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"a sequence of {len(value)}" if isinstance(value, list) else str(value)

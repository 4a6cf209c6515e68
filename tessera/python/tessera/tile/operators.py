# SPDX-License-Identifier: Apache-2.0
"""Operators: a Python function that says what one element of a result is. It is traced for shapes, becomes integer
operators of ONNX, and the compiler's searcher, cost models and tuner find its schedule."""

import dataclasses
import inspect
import os
import pathlib
import tempfile

import numpy as np

import tessera

from . import errors
from .expressions import Source
from .kernel import Described, spec_of
from .meaning import Meaning
from .nest import Nest


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that is known when an operator is built, such as weights."""

    array: np.ndarray

    @property
    def dtype(self):
        return np.asarray(self.array).dtype.name

    @property
    def shape(self):
        return np.asarray(self.array).shape


def traced(value):
    """What build() takes, as (dtype, shape, array or None)."""
    if isinstance(value, Constant):
        return value.dtype, value.shape, np.asarray(value.array)
    spec = spec_of(value)
    return spec.dtype, tuple(int(extent) for extent in spec.shape), None


class Operator(Described):
    """What @operator makes of a function. Positional parameters behind the first one are tensors, keyword-only ones are
    numbers. The function returns what compute() gave it.

    operator(x, y, config="npu256", stride=2) runs it on arrays and returns arrays; build() gives the program."""

    FIRST = "nest"

    def __init__(self, function):
        super().__init__(function)
        self.meaning = self._derived  # reference() puts another one in its place

    def trace(self, *tensors, **parameters):
        """The Traced nest for tensors of these shapes: arrays, Specs, or Constants. Errors: KernelError."""
        name = self.function.__name__
        if len(tensors) != len(self.inputs):
            raise errors.KernelError(f"operator '{name}' takes {', '.join(self.inputs)}; {len(tensors)} are given")
        unknown = set(parameters) - set(self.parameters)
        if unknown:
            raise errors.KernelError(f"operator '{name}' has no parameter '{min(unknown)}'")
        nest = Nest()
        sources = [self._source(nest, label, value) for label, value in zip(self.inputs, tensors, strict=True)]
        found = self.function(nest, *sources, **parameters)
        outputs = list(found) if isinstance(found, list | tuple) else [found]
        if not outputs or not all(isinstance(one, Source) and one.made is not None for one in outputs):
            raise errors.KernelError(f"operator '{name}' returns what compute() gave it, one tensor or several")
        return Traced(name, nest, sources, outputs)

    @staticmethod
    def _source(nest, label, value):
        dtype, shape, array = traced(value)
        if array is not None:
            return nest.constant(array, label)
        if dtype not in ("int8", "uint8", "int32"):
            raise errors.KernelError(f"tensor '{label}' is {dtype}; an operator takes int8, uint8 and int32")
        if not shape or min(shape) < 1:
            raise errors.KernelError(f"tensor '{label}' has shape {shape}; it has at least one axis and one element")
        return Source(label, dtype, shape)

    def build(self, *tensors, config="npu256", host=False, **parameters):
        """The OperatorProgram. host: whether parts that the NPU has no form for may run on the host's processor; else
        they are refused. Errors: KernelError."""
        return OperatorProgram(self.trace(*tensors, **parameters), config, host)

    def _derived(self, *tensors, **parameters):
        return self.trace(*tensors, **parameters).evaluate(tensors)

    def wanted(self, tensors, arrays, parameters):
        """What the reference gives for these arrays."""
        if self.meaning == self._derived:
            pairs = zip(tensors, arrays, strict=True)
            return self._derived(*(t if isinstance(t, Constant) else a for t, a in pairs), **parameters)
        names = set(inspect.signature(self.meaning).parameters)
        return self.meaning(*arrays, **{name: value for name, value in parameters.items() if name in names})

    def feeds(self, tensors, arrays):
        """{name: array} of the tensors that come when it runs."""
        return {
            name: array
            for name, tensor, array in zip(self.inputs, tensors, arrays, strict=True)
            if not isinstance(tensor, Constant)
        }

    def __call__(self, *tensors, config="npu256", device="fsim", **parameters):
        key = (config, device, tuple(self._key(one) for one in tensors), tuple(sorted(parameters.items())))
        if key not in self._kept:
            self._kept[key] = self.build(*tensors, config=config, **parameters).session(device)
        arrays = [one.array if isinstance(one, Constant) else np.asarray(one) for one in tensors]
        results = self._kept[key].run(None, self.feeds(tensors, arrays))
        return results[0] if len(results) == 1 else results

    @staticmethod
    def _key(value):
        dtype, shape, array = traced(value)
        return (dtype, shape, None if array is None else array.tobytes())


def operator(function):
    """Decorator: a function of a Nest and tensors becomes an Operator."""
    return Operator(function)


@dataclasses.dataclass
class Port:
    """An input or an output."""

    name: str
    dtype: np.dtype
    shape: tuple


class Traced:
    """The results of an operator for certain shapes, in the order in which they are computed."""

    def __init__(self, name, nest, sources, outputs):
        self.name, self.computes, self.sources, self.outputs = name, nest.computes, sources, outputs

    def evaluate(self, tensors):
        """The results in NumPy, by what compute() says of each element."""
        arrays = {}
        for source, value in zip(self.sources, tensors, strict=True):
            if source.array is None:
                arrays[source] = np.asarray(value)
        for made in self.computes:
            values = Meaning(arrays).values(made.body, list(made.loops))
            arrays[made.source] = np.broadcast_to(values, made.source.shape).astype(made.dtype)
        found = [arrays[one.root] for one in self.outputs]
        return found[0] if len(found) == 1 else found

    def lowered(self, host=False):
        """(the ONNX model, {name of a node: what it computes})."""
        try:
            from .lowering import Lowering
        except ImportError:
            raise errors.KernelError("operators need the package onnx; install it: pip install onnx") from None
        inputs = {source: source.name for source in self.sources if source.array is None}
        lowering = Lowering(inputs, host)
        lowering.run(self.computes)
        outputs = [(f"output{number}", lowering.values[one.root]) for number, one in enumerate(self.outputs)]
        given = [(name, lowering.values[source]) for source, name in inputs.items()]
        return lowering.graph.model(self.name, given, outputs), lowering.graph.terms


class OperatorProgram:
    """An operator for one machine and shapes. inputs and outputs: Ports. model: the ONNX model that it became, which
    `tessera tune` and every other command take. host: lines that the host's processor computes."""

    unread = ()  # of a kernel: what it computes in vain

    def __init__(self, traced_, config, host):
        self.name, self.config = traced_.name, config
        self.model, self.terms = traced_.lowered(host)
        self.inputs = [Port(s.name, np.dtype(s.dtype), s.shape) for s in traced_.sources if s.array is None]
        self.known = [s.array is not None for s in traced_.sources]
        self.outputs = [Port(f"output{n}", np.dtype(one.dtype), one.shape) for n, one in enumerate(traced_.outputs)]
        self._sessions, self._tuned = {}, None
        self.host = self._on_host()
        if self.host and not host:
            where = self.host[0]
            raise errors.KernelError(
                f"{where}: {self.terms.get(where, where)}: the NPU has no form for it, so it would run on the host's "
                "processor; build(..., host=True) allows that"
            )

    def _on_host(self):
        """Lines of which a part that computes runs on the host."""
        moves = {"Reshape", "Transpose", "Slice", "Gather", "Pad", "Expand", "Concat", "Identity"}
        found = []
        for layer in self.session("fsim").info().get("layers", []):
            if layer["placement"] == "cpu" and set(layer["op"].split("+")) - moves:
                found.append(layer["name"])
        return found

    @property
    def artifact(self):
        """The bytes of a .tsr file."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "operator.tsr"
            self.save(path)
            return path.read_bytes()

    @property
    def predicted_cycles(self):
        """What the compiler's replay says of the layers on the NPU."""
        return sum(layer["predicted_cycles"] for layer in self.session("fsim").info().get("layers", []))

    def save(self, path):
        self.session("fsim").save(path)

    def session(self, device="fsim", **options):
        """A tessera.Session of it; options are those of the session."""
        if self._tuned:
            options.setdefault("tuned", self._tuned)
        key = (device, tuple(sorted(options.items())))
        if key not in self._sessions:
            self._sessions[key] = tessera.Session(self.model.SerializeToString(), device, self.config, **options)
        return self._sessions[key]

    def tune(self, trials=100, judge="sysc", database=None, **options):
        """Looks for schedules of its layers by measuring, and keeps the best ones: in `database`, a path, and in the
        sessions that are opened from now on. options: those of tessera.tuning.tune. Returns its Outcome."""
        from tessera import tuning

        if database is None:
            self._folder = tempfile.TemporaryDirectory()
            database = os.path.join(self._folder.name, "tuned.db")
        outcome = tuning.tune(
            self.model.SerializeToString(), self.config, trials=trials, judge=judge, database=database, **options
        )
        self._tuned, self._sessions = os.fspath(database), {}
        return outcome

    def interpret(self, *arrays):
        """What the reference interpreter makes of the integer operators: the outputs as a list."""
        feeds = dict(zip((one.name for one in self.inputs), arrays, strict=True))
        return self.session("reference").run(None, feeds)

    def listing(self):
        """The integer operators that it became, under the lines that they come from."""
        lines = []
        for node in self.model.graph.node:
            lines.append(f"# {node.name} {self.terms.get(node.name, '')}".rstrip())
            lines.append(f"{node.op_type}({', '.join(node.input)}) -> {', '.join(node.output)}")
        return "\n".join(lines)

# SPDX-License-Identifier: Apache-2.0
"""Kernels: a Python function of a builder and tensors in DRAM. It is traced for shapes and a machine, checked byte by
byte, and becomes an artifact that every device runs."""

import collections
import dataclasses
import functools
import inspect
import os

import numpy as np

import tessera
from tessera import _tessera

from . import errors
from .builder import Builder, Output
from .events import Placed
from .interpreter import Interpreter, Memory
from .machine import machine as machine_of
from .tensors import ARENA, CONSTANTS, LAYOUTS, order_of


@dataclasses.dataclass(frozen=True)
class Spec:
    """A tensor that a kernel takes: dtype "int8", "uint8" or "int32", its shape, and the byte that fills its rows.
    layout: "rows" or "channels_last", without gaps; default: the first one that the kernel names."""

    dtype: str
    shape: tuple
    fill: int = 0
    layout: str | None = None


def spec_of(value):
    if isinstance(value, Spec):
        return value
    value = np.asarray(value)
    return Spec(value.dtype.name, value.shape)


def hashed(value):
    """A parameter as a key: arrays and lists by what they hold."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(hashed(one) for one in value) if isinstance(value, list | tuple) else value


class Described:
    """A function whose first parameter is what it describes a computation with; positional parameters behind that one
    are tensors, and keyword-only ones are numbers."""

    FIRST = ""  # what the first parameter is

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
            raise errors.KernelError(
                f"{type(self).__name__.lower()} '{function.__name__}': its parameters are a {self.FIRST}, tensors and "
                "keywords"
            )
        for one in parameters[1:]:
            if one.kind is one.POSITIONAL_OR_KEYWORD and one.default not in (one.empty, None):
                raise errors.KernelError(
                    f"{type(self).__name__.lower()} '{function.__name__}': '{one.name}' has a default and stands among "
                    "the tensors; numbers are keywords, behind a *: "
                    f"def {function.__name__}({parameters[0].name}, ..., *, {one.name}={one.default!r})"
                )
        self.inputs = [one.name for one in parameters[1:] if one.kind is one.POSITIONAL_OR_KEYWORD]
        self.parameters = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
        self.meaning = self.draw = None
        self._kept = {}

    def reference(self, function):
        """Decorator of the NumPy function that says what is computed, of arrays and the same keywords."""
        self.meaning = function
        return function

    def cases(self, function):
        """Decorator of draw(rng), which gives the tensors of a random case, Specs or arrays (of an operator Constants,
        too), and behind them a dict of keywords where there are any. check() and the command take it."""
        self.draw = function
        return function


class Kernel(Described):
    """What @kernel makes of a function. Positional parameters behind the builder are tensors in DRAM, keyword-only ones
    are numbers such as sizes of tiles. The function returns what output() gave it.

    kernel(x, y, config="npu256", rows=8) runs it on arrays and returns arrays; build() gives the program.

    layouts: how its tensors may lie, best first. Each is "rows" or "channels_last" for all tensors, or a dict
    {tensor: layout}. Empty: in rows that are filled up to whole blocks."""

    FIRST = "builder"

    def __init__(self, function, layouts=()):
        super().__init__(function)
        layouts = [layouts] if isinstance(layouts, str | dict) else list(layouts)
        self.layouts = [one if isinstance(one, dict) else dict.fromkeys(self.inputs, one) for one in layouts]
        for one in self.layouts:
            for name, layout in one.items():
                if name not in self.inputs or layout not in LAYOUTS:
                    raise errors.KernelError(
                        f"kernel '{self.__name__}' has no layout {layout!r} of '{name}'; layouts are "
                        f"{' and '.join(LAYOUTS)}, and its tensors {', '.join(self.inputs)}"
                    )

    def forms(self, specs):
        """The Specs with each of the layouts that the kernel names, those that are the same once."""
        found = {}
        for form in self.layouts or [{}]:
            laid = [
                dataclasses.replace(spec, layout=spec.layout or form.get(name, "rows" if self.layouts else None))
                for name, spec in zip(self.inputs, map(spec_of, specs), strict=True)
            ]
            found.setdefault(tuple(spec.layout and order_of(spec.layout, len(spec.shape)) for spec in laid), laid)
        return list(found.values())

    def build(self, *tensors, config="npu256", **parameters):
        """The Program for tensors of these shapes: arrays or Specs. Errors: KernelError."""
        name = self.function.__name__
        if len(tensors) != len(self.inputs):
            raise errors.KernelError(f"kernel '{name}' takes {', '.join(self.inputs)}; {len(tensors)} are given")
        unknown = set(parameters) - set(self.parameters)
        if unknown:
            raise errors.KernelError(f"kernel '{name}' has no parameter '{min(unknown)}'")
        builder = Builder(machine_of(config))
        specs = self.forms(tensors)[0]
        given = [
            builder._place(label, spec.dtype, spec.shape, spec.fill, spec.layout)
            for label, spec in zip(self.inputs, specs, strict=True)
        ]
        found = self.function(builder, *given, **parameters)
        outputs = list(found) if isinstance(found, list | tuple) else [found]
        if not outputs or not all(isinstance(one, Output) for one in outputs):
            raise errors.KernelError(f"kernel '{name}' returns what output() gave it, one tensor or several")
        program = Program(name, builder, given, outputs)
        program.check()
        return program

    def feeds(self, tensors, arrays):
        """{name: array} of what a session takes."""
        return dict(zip(self.inputs, arrays, strict=True))

    def wanted(self, tensors, arrays, parameters):
        """What the reference gives for these arrays."""
        names = set(inspect.signature(self.meaning).parameters)
        return self.meaning(*arrays, **{name: value for name, value in parameters.items() if name in names})

    def __call__(self, *arrays, config="npu256", device="fsim", **parameters):
        arrays = [np.asarray(one) for one in arrays]
        key = (config, device, tuple(spec_of(one) for one in arrays))
        key += tuple((name, hashed(parameters[name])) for name in sorted(parameters))
        if key not in self._kept:
            self._kept[key] = self.build(*arrays, config=config, **parameters).session(device)
        results = self._kept[key].run(None, dict(zip(self.inputs, arrays, strict=True)))
        return results[0] if len(results) == 1 else results


def kernel(function=None, *, layouts=()):
    """Decorator: a function of a builder and tensors becomes a Kernel. layouts: how its tensors may lie (Kernel)."""
    return Kernel(function, layouts) if function is not None else functools.partial(Kernel, layouts=layouts)


class Program:
    """A kernel for one machine and shapes. statements: in order; inputs and outputs: Tensors of DRAM."""

    def __init__(self, name, builder, inputs, outputs):
        self.name, self.machine = name, builder.machine
        self.statements, self.inputs, self.outputs = builder.statements, inputs, outputs
        self._constants, self._arena = bytes(builder.constants), builder.arena
        self._artifact = None
        self.unread = []  # texts "FILE.py:7: load: 3 entries are never read", by check()
        self._placed = Placed(builder)
        self.needless = None

    @property
    def artifact(self):
        """The bytes of a .tsr file."""
        if self._artifact is None:
            self._artifact = self._link()
        return self._artifact

    @property
    def by_hand(self):
        """Whether the kernel places its own waits."""
        return self._placed.pairs is not None

    @property
    def needless_waits(self):
        """Lines of text about waits and events that nothing needs, where the kernel places its own."""
        self.artifact  # noqa: B018 - makes it
        return self.needless

    @property
    def predicted_cycles(self):
        """What the compiler's replay says of the whole program."""
        return sum(layer["predicted_cycles"] for layer in self.session("fsim").info()["layers"])

    def save(self, path):
        with open(path, "wb") as file:
            file.write(self.artifact)

    def session(self, device="fsim", **options):
        """A tessera.Session of it; options are those of the session, such as check_races=True and poison=1."""
        return tessera.Session(self.artifact, device=device, **options)

    def listing(self):
        """Its instructions as assembly under the lines that they come from."""
        return "\n".join(
            f"# {one.where} {one.what}\n" + "\n".join(instruction.assembly() for instruction in one.instructions)
            for one in self.statements
        )

    def _link(self, unchecked=False):
        lines, numbers, rows = [], {}, []
        for one in self.statements:
            if (one.file, one.line) not in numbers:
                numbers[one.file, one.line] = len(lines)
                lines.append([one.where, one.what])
            number = numbers[one.file, one.line]
            if one.what not in lines[number][1].split(" + "):
                lines[number][1] += f" + {one.what}"
            rows.append((number, "\n".join(instruction.assembly() for instruction in one.instructions)))
        self._tell_apart(lines, list(numbers))
        argument = lambda t: (t.name, t.dtype.name, list(t.shape), t.padded, t.fill, t.offset, list(t.order))
        try:
            artifact, needless = _tessera.link_kernel(
                self.name,
                self.machine.toml,
                [tuple(line) for line in lines],
                rows,
                [argument(tensor) for tensor in self.inputs],
                [argument(tensor) for tensor in self.outputs],
                self._constants,
                max(self._arena, 64),
                self._placed.pairs,
                unchecked,
            )
        except tessera.Error as error:
            raise errors.KernelError(str(error)) from None
        self.needless = self._placed.tell(needless)
        return artifact

    @staticmethod
    def _tell_apart(lines, places):
        """Files of the same name in several folders."""
        seen = {}
        for row, (file, _) in zip(lines, places, strict=True):
            if seen.setdefault(row[0], file) != file:
                row[0] = os.path.join(os.path.basename(os.path.dirname(file)), row[0])

    # --- its meaning

    def _interpreter(self, arrays):
        dram = {CONSTANTS: Memory(len(self._constants)), ARENA: Memory(max(self._arena, 64))}
        dram[CONSTANTS].bytes[:] = np.frombuffer(self._constants, np.uint8)
        dram[CONSTANTS].written[:] = True
        for tensor, array in zip(self.inputs, arrays, strict=True):
            rows = np.full((array.size // tensor.row, tensor.padded), 0, tensor.dtype)
            rows.view(np.uint8)[...] = tensor.fill
            rows[:, : tensor.row] = array.transpose(tensor.order).reshape(rows.shape[0], -1)
            span = slice(tensor.offset, tensor.offset + tensor.bytes)
            dram[ARENA].bytes[span] = rows.view(np.uint8).ravel()
            dram[ARENA].written[span] = True
        return Interpreter(self.machine, dram)

    def _results(self, interpreter):
        found = []
        for tensor in self.outputs:
            memory = interpreter.dram[ARENA]
            span = slice(tensor.offset, tensor.offset + tensor.bytes)
            shape = (-1, tensor.padded)
            written = memory.written[span].reshape(-1, tensor.padded, tensor.dtype.itemsize)[:, : tensor.row]
            if not written.all():
                missing = int((~written).any(-1).sum())
                raise errors.KernelError(
                    f"kernel '{self.name}': {missing:,} elements of '{tensor.name}' are never stored"
                )
            rows = memory.bytes[span].view(tensor.dtype).reshape(shape)[:, : tensor.row]
            laid = rows.reshape([tensor.shape[axis] for axis in tensor.order])
            found.append(laid.transpose(np.argsort(tensor.order)).copy())
        return found

    def check(self):
        """Refuses what reads bytes that nothing has written, and outputs of which a part is never stored. Addresses do
        not depend on data, so that one run of the interpreter is a proof. What is computed in vain is no error; it is
        in `unread`."""
        interpreter = self._run([np.zeros(tensor.shape, tensor.dtype) for tensor in self.inputs])
        self._results(interpreter)
        lines = collections.Counter()
        for number, entries in interpreter.unread().items():
            lines[f"{self.statements[number].where}: {self.statements[number].what}"] += entries
        self.unread = [f"{line}: {count:,} entries are never read" for line, count in sorted(lines.items())]

    def interpret(self, *arrays, step=None):
        """What the manual says that the program computes, in NumPy: the outputs as a list. step(statement, interpreter)
        is called behind each statement; interpreter.tile(t) gives what stands in a tile."""
        return self._results(self._run([np.asarray(one) for one in arrays], step))

    def _run(self, arrays, step=None):
        interpreter = self._interpreter(arrays)
        for statement in self.statements:
            interpreter.step(statement)
            if step is not None:
                step(statement, interpreter)
        return interpreter

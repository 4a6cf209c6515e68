# SPDX-License-Identifier: Apache-2.0
"""torch.compile(module, backend="tessera"). In: a graph that torch.compile has captured, and its inputs. Out: a
function of the same inputs. Parameters and buffers, which come as inputs too, become constants of the model; when they
have been changed since, the model is made anew. What cannot be exported runs in PyTorch, and one line says why."""

import operator
import sys
import threading

import torch
from torch._dynamo.utils import get_static_address_type

from ..errors import argument, error
from . import export as exporting
from .compiled import Program, without_gradients

KEPT = 8  # exports for inputs of different shapes
_told = set()


def _say(text):
    """One line on standard error, once for each text."""
    if text not in _told:
        _told.add(text)
        sys.stderr.write(f"tessera: {text}\n")
        sys.stderr.flush()


def _is_static(value):
    """Whether an input of the graph is a parameter or buffer of the module."""
    if not isinstance(value, torch.Tensor):
        return False
    return isinstance(value, torch.nn.Parameter) or get_static_address_type(value) is not None


def _version(tensor):
    return (tensor.data_ptr(), None if tensor.is_inference() else tensor._version)


def _is_number(node):
    """Whether an input of the graph is a number of the program that comes as a tensor: with dynamic shapes such as the
    share of a dropout do. The graph asks it for the number alone."""
    comes = getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    return comes and all((user.op, user.target) == ("call_method", "item") for user in node.users)


class _Frozen:
    """A graph with the static ones of its inputs as constants, and integers that are a size of a tensor taken from it.
    What asks a constant for its number has the number.

    graph: torch.fx.GraphModule. static: which inputs are constants; numbers: which of these are numbers of the program.
    left: the places of the others."""

    def __init__(self, graph, inputs, static, numbers):
        self.module = torch.fx.GraphModule(graph, torch.fx.Graph())
        self.left, values, copied = [], {}, self.module.graph
        holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        sizes = _sizes(holders, inputs)
        for place, (node, value) in enumerate(zip(holders, inputs)):
            if static[place]:
                self._keep(f"frozen_{place}", value.detach())
                values[node] = copied.get_attr(f"frozen_{place}")
            elif place not in sizes:
                self.left.append(place)
                values[node] = copied.placeholder(node.name)
                values[node].meta.update(node.meta)
        for place, (holder, axis) in sizes.items():
            values[holders[place]] = copied.call_method("size", (values[holders[holder]], axis))
        numbers = {node: float(value) for node, value, number in zip(holders, inputs, numbers) if number}
        for node in graph.graph.nodes:
            if (node.op, node.target) == ("call_method", "item") and node.args[0] in numbers:
                values[node] = numbers[node.args[0]]
            elif node.op != "placeholder":
                values[node] = copied.node_copy(node, lambda n: values[n])
        self.module.recompile()
        self.symbolic = [_symbols(holders[place]) for place in self.left]

    def _keep(self, name, value):
        """A parameter or buffer that shares the tensor's memory."""
        if value.dtype.is_floating_point:
            self.module.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
        else:
            self.module.register_buffer(name, value)


def _example(node):
    return node.meta.get("example_value", node.meta.get("val"))


def _symbols(node):
    """Axes of a placeholder whose size is symbolic."""
    value = _example(node)
    if not isinstance(value, torch.Tensor):
        return ()
    return tuple(axis for axis, size in enumerate(value.shape) if isinstance(size, torch.SymInt))


def _sizes(holders, inputs):
    """Place of an integer that is a tensor's size -> (place of the tensor, axis)."""
    found = {}
    for place, node in enumerate(holders):
        wanted = _example(node)
        if not isinstance(inputs[place], (int, torch.SymInt)) or not isinstance(wanted, torch.SymInt):
            continue
        for other, tensor in enumerate(holders):
            shape = _example(tensor).shape if isinstance(_example(tensor), torch.Tensor) else ()
            same = [a for a, s in enumerate(shape) if isinstance(s, torch.SymInt) and s.node.expr == wanted.node.expr]
            if same:
                found[place] = (other, same[0])
                break
    return found


class Graph:
    """A captured graph as a function: exports it for the inputs that come, and keeps the last exports."""

    def __init__(self, graph, settings):
        self.graph, self.settings = graph, settings
        self.programs, self.static, self.versions, self.refused = [], None, None, False
        self.numbers = [_is_number(node) for node in graph.graph.nodes if node.op == "placeholder"]
        self.samples, self.wanted = [], int(settings["calibrate"])
        self.lock = threading.RLock()  # threads share the exports and samples; runs go beside each other
        places = [n for n in graph.graph.nodes if n.op not in ("placeholder", "output")]
        self.name = f"the graph of {len(places)} operations from '{places[0].name}' on" if places else "an empty graph"
        self.empty = all(n.target is operator.getitem for n in places)

    def __call__(self, *inputs):
        if self.refused or self.empty or self._observes(inputs):
            return self.graph(*inputs)
        try:
            with self.lock:
                if self.refused:  # by the call of another thread
                    return self.graph(*inputs)
                frozen, program = self._current(inputs)
            flat = [inputs[place] for place in frozen.left]
            results = program.run(flat)
        except Exception as e:  # whatever it is: PyTorch runs the graph
            self.refused, self.programs, self.samples = True, [], []
            _say(f"{self.name} runs in PyTorch: {_cause(e)}")
            return self.graph(*inputs)
        for place, value in zip(self._changed(frozen, program), results):
            with torch.no_grad():
                inputs[place].copy_(value)
        results = results[len(program.exported.mutated) :]
        return tuple(without_gradients(results, inputs))

    def _observes(self, inputs):
        """Whether a call runs in PyTorch for its inputs, which are kept to quantise with."""
        with self.lock:
            observes = len(self.samples) < self.wanted
            if observes:
                self.samples.append([v.detach().clone() if isinstance(v, torch.Tensor) else v for v in inputs])
        return observes

    def _current(self, inputs):
        """(frozen graph, program) for the inputs, with the weights as they are now."""
        if self.static is None:
            self.static = [number or _is_static(value) for number, value in zip(self.numbers, inputs)]
        marks = zip(inputs, self.static, self.numbers)
        versions = [float(value) if number else _version(value) for value, static, number in marks if static]
        if versions != self.versions:
            self.programs, self.versions = [], versions
        return self._program(inputs)

    def _changed(self, frozen, program):
        """Places of the inputs that the graph changes in place."""
        names = [n.name for n in frozen.module.graph.nodes if n.op == "placeholder"]
        return [frozen.left[names.index(name)] for name in program.exported.mutated]

    def _program(self, inputs):
        for frozen, program in self.programs:
            given = [inputs[place] for place in frozen.left]
            pairs = list(zip(program.exported.inputs, given))
            if all(_fits(port, value) for port, value in pairs):
                return frozen, program
        with exporting.ALONE:
            made = self._made(inputs)
        self.programs = [made, *self.programs][:KEPT]
        return made

    def _made(self, inputs):
        while True:
            frozen = _Frozen(self.graph, inputs, self.static, self.numbers)
            given = tuple(inputs[place] for place in frozen.left)
            try:
                exported = self._exported(frozen, given)
                break
            except exporting.BuffersChange as e:  # such a buffer is an input, and its new value an output
                places = [int(name.removeprefix("frozen_")) for name in e.names]
                self.static = [static and place not in places for place, static in enumerate(self.static)]
                self.versions = None
        drawn = exporting.random_node(exported.program)
        if drawn is not None:  # PyTorch's seed and state decide what is drawn
            raise error("unsupported", f"node '{drawn.name}' ({drawn.op_type}) draws random numbers")
        settings = self.settings
        samples = [_feed(exported, [one[place] for place in frozen.left]) for one in self.samples] or None
        program = Program(
            exported, samples, settings["device"], settings["config"], settings["quantization"], settings["options"]
        )
        return frozen, program

    def _exported(self, frozen, given):
        """For any size of the symbolic axes where the exporter can, else for these shapes."""
        if any(frozen.symbolic):
            dims = [dict.fromkeys(axes, torch.export.Dim.AUTO) or None for axes in frozen.symbolic]
            try:
                return exporting.export(frozen.module, given, dynamic_shapes=tuple(dims), changes_arguments=True)
            except exporting.BuffersChange:
                raise
            except Exception:  # the shapes of this call are exported
                pass
        return exporting.export(frozen.module, given, changes_arguments=True)


def _feed(exported, given):
    from .values import to_array

    return {p.name: to_array(v) for p, v in zip(exported.inputs, given) if p.name is not None and p.dtype is not None}


def _fits(port, value):
    if port.name is None:
        return type(port.value) is type(value) and port.value == value
    return port.takes(value) if isinstance(value, torch.Tensor) else port.dtype is None


def _cause(exception):
    text = (
        str(exception).split(f"; {exporting.WAY_OUT}")[0].removeprefix("PyTorch's ONNX exporter refuses the module: ")
    )
    return text if hasattr(exception, "code") else exporting.one_line(exception)


def backend(graph, inputs, *, options=None, mode=None):
    """The back end that torch.compile calls. options: a dict of `device`, `config`, `calibrate` (how many calls run in
    PyTorch first and give the samples to quantise to int8 with; 0: float), `quantization` (of tessera.quantize), and
    options of tessera.Session. Returns a function of the graph's inputs."""
    given = dict(options or {})
    settings = {
        "device": given.pop("device", "fsim"),
        "config": str(given.pop("config", "")),
        "calibrate": given.pop("calibrate", 0),
        "quantization": given.pop("quantization", None),
    }
    if not isinstance(settings["calibrate"], int):
        raise argument(
            "torch.compile's option calibrate is a number of calls; tessera.torch.compile takes samples themselves"
        )
    settings["options"] = given
    return Graph(graph, settings)


def register():
    """Makes `backend="tessera"` known to torch.compile; an installed package is known by its entry point."""
    if "tessera" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(compiler_fn=backend, name="tessera")


register()

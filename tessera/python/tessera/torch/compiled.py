# SPDX-License-Identifier: Apache-2.0
"""tessera.torch.compile: a module of PyTorch as a callable module whose forward runs in a tessera.Session."""

import contextlib
import inspect
import itertools
import os
import warnings

import torch
from torch.utils import _pytree as pytree

from .. import Session
from ..errors import argument, error
from . import export as exporting
from .values import to_array, to_tensor

SAMPLES = 300


class _Refuse(torch.autograd.Function):
    """The identity, whose gradient is refused."""

    @staticmethod
    def forward(ctx, anchor, value):
        return value.view_as(value)

    @staticmethod
    def backward(ctx, *gradients):
        raise error(
            "unsupported",
            "Tessera computes no gradients; train the module in PyTorch, and call the compiled one under "
            "torch.no_grad()",
        )


def without_gradients(results, sources):
    """The results; where gradients are recorded and a source wants them, asking for one is an error of one line."""
    anchor = next((t for t in sources if isinstance(t, torch.Tensor) and t.requires_grad), None)
    if anchor is None or not torch.is_grad_enabled():
        return results
    wrap = lambda t: _Refuse.apply(anchor, t) if isinstance(t, torch.Tensor) and t.dtype.is_floating_point else t
    return [wrap(value) for value in results]


@contextlib.contextmanager
def evaluating(module):
    """The module in evaluation mode; then each of its parts has the mode of before again."""
    modes = [(part, part.training) for part in module.modules()] if isinstance(module, torch.nn.Module) else []
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


# --- runs -------------------------------------------------------------------------------------------------------------


class Program:
    """An exported model in a session, on flat lists of tensors and numbers.

    exported: an export.Exported. samples: feeds to quantise with (or "random"), or None. The weights of a float model
    stay in PyTorch's memory until the session compiles it."""

    def __init__(self, exported, samples, device, config, quantization, options):
        self.exported, self.quantised = exported, None
        if samples is None:
            data, arrays = exported.model()
            self.session = Session(data, device, config, external=arrays, **options)
            return
        from ..quantization import quantize
        from ..quantization.command import choose_engine

        known = inspect.signature(quantize).parameters
        unknown = sorted(set(quantization or ()) - set(known))
        if unknown:
            options = ", ".join(name for name, p in known.items() if p.kind is inspect.Parameter.KEYWORD_ONLY)
            raise argument(f"quantization has no option {unknown[0]!r}; its options are {options}")
        keys = {"config": config, "numerics": options.get("numerics")}
        chosen = {name: value for name, value in keys.items() if value} | dict(quantization or {})
        chosen["engine"] = choose_engine(chosen.get("engine"))
        self.quantised = quantize(exported.program.model_proto, samples, **chosen)
        self.session = Session(self.quantised.model.SerializeToString(), device, config, **options)

    def feeds(self, flat):
        """{input: array} of the leaves of a call. Errors: invalid_argument for shapes, types and other constants."""
        found = {}
        for port, value in zip(self.exported.inputs, flat):
            if port.name is not None:
                found[port.name] = self._feed(port, value)
            elif not _same(port.value, value):
                raise argument(
                    f"the module was exported with the constant {port.value!r} where the call gives {value!r}; compile "
                    "it again with that"
                )
        return found

    def _feed(self, port, value):
        if port.dtype is None:
            return torch.tensor(value).numpy()
        if not isinstance(value, torch.Tensor):
            raise argument(f"input {port.text} is a tensor; the call gives {type(value).__name__}")
        if value.dtype != port.dtype:
            raise argument(f"input {port.text} is given a tensor of {str(value.dtype).removeprefix('torch.')}")
        if not port.takes(value):
            raise argument(
                f"input {port.text} is given a tensor of shape {list(value.shape)}; compile with dynamic_shapes "
                "(torch.export.Dim) for others"
            )
        array = to_array(value, f"input '{port.name}'")
        # A quantised model takes float32 where the module takes another float.
        narrow = self.quantised is not None and value.dtype.is_floating_point
        return array.astype("float32", copy=False) if narrow else array

    def run(self, flat):
        """The leaves of the results."""
        with torch.no_grad():
            results = iter(self.session.run(None, self.feeds(flat)))
        return [port.value if port.name is None else _result(port, next(results)) for port in self.exported.outputs]


def _same(wanted, given):
    return type(wanted) is type(given) and (wanted == given or wanted is given)


def _result(port, array):
    return port.number(array) if port.dtype is None else to_tensor(array, port.dtype)


def split_batch(exported, flat):
    """The leaves as samples of the batch that was exported: a batch of many where the module takes one at a time
    becomes as many samples."""
    tensors = [(p, v) for p, v in zip(exported.inputs, flat) if p.name is not None and isinstance(v, torch.Tensor)]
    counts = {v.shape[0] if v.ndim else 0 for _, v in tensors}
    if len(counts) != 1 or any(not port.dims or port.dims[0] != 1 for port, _ in tensors):
        return [flat]
    (count,) = counts
    if count < 2:
        return [flat]
    cut = lambda port, value, k: (
        value[k : k + 1] if port.name is not None and isinstance(value, torch.Tensor) else value
    )
    return [[cut(port, value, k) for port, value in zip(exported.inputs, flat)] for k in range(count)]


class Compiled(torch.nn.Module):
    """A module that runs on Tessera: called as the module it was made of, with the same containers of arguments and
    results. It holds no parameters: the weights are those of the time when it was made.

    session: the tessera.Session. quantised: what tessera.quantize gave, or None. Made by compile()."""

    def __init__(self, program, signature, name):
        super().__init__()
        self._program, self._signature, self._name = program, signature, name
        self.training = False

    @property
    def session(self):
        return self._program.session

    @property
    def quantised(self):
        return self._program.quantised

    def forward(self, *arguments, **named):
        """Errors: tessera.Error for arguments that differ from the examples in shape, type or containers."""
        exported = self._program.exported
        flat = exporting.leaves(exported, self._signature, arguments, named)
        results = without_gradients(self._program.run(flat), flat)
        return pytree.tree_unflatten(results, exported.out_spec)

    def train(self, mode=True):
        """Refuses training mode."""
        if mode:
            raise argument(
                "a compiled module is not trained; train the one that it was made of, and compile that again"
            )
        return super().train(False)

    def __reduce_ex__(self, protocol):
        raise error(
            "unsupported",
            "a compiled module is neither copied nor pickled: its session belongs to this process; save('model.tsr') "
            "writes the program, which tessera.Session loads",
        )

    def stats(self):
        """tessera.Stats of the last call: cycles, macs, layers, ..."""
        return self.session.stats()

    def report(self, path=None):
        """The report of the last call as a dict; path: also as a file, a page for the browser where it ends in
        .html."""
        return self.session.report(path)

    def save(self, path):
        """Writes the model: as ONNX where the path ends in .onnx, as a compiled program where it ends in .tsr."""
        suffix = os.path.splitext(os.fspath(path))[1]
        if suffix == ".tsr":
            self.session.save(os.fspath(path))
        elif suffix == ".onnx" and self.quantised is not None:
            self.quantised.save(path)
        elif suffix == ".onnx":
            self._program.exported.save(os.fspath(path))
        else:
            raise argument(f"'{os.fspath(path)}': a path ends in .onnx (the model) or .tsr (the compiled program)")

    def extra_repr(self):
        return f"{self._name}, {'int8' if self.quantised is not None else 'float'}"


# --- compile ----------------------------------------------------------------------------------------------------------


def compile(
    module,
    example_inputs,
    *,
    calibrate=None,
    device="fsim",
    config="",
    dynamic_shapes=None,
    quantization=None,
    **options,
):
    """Compiles a module of PyTorch, as it is in evaluation mode, and returns a Compiled.

    module: a torch.nn.Module, or a torch.export.ExportedProgram (then example_inputs may be None). example_inputs: a
    tensor, a tuple of positional arguments, or a dict of named ones. calibrate: None to run in float; or an iterable
    of inputs in the same form, to quantise to int8 with (at most quantization["samples"], 300, are used); a batch of
    many serves a module that was exported for a batch of one. "random" takes random values: good for cycles alone.
    device, config, options: of tessera.Session; what runs where is decided for them. dynamic_shapes: as
    torch.export.export takes it. quantization: a dict of further options of tessera.quantize.

    Errors: tessera.Error: `unsupported` for what the exporter refuses, with the node and the cause; those of
    tessera.quantize and of tessera.Session."""
    if isinstance(module, torch.export.ExportedProgram):
        arguments, named = module.example_inputs or ((), {})
        signature, name = None, "ExportedProgram"
    elif isinstance(module, torch.jit.ScriptModule):
        raise argument("tessera.torch.compile takes the torch.nn.Module that a TorchScript module was made of")
    elif isinstance(module, torch.nn.Module):
        arguments, named = exporting.arguments_of(example_inputs)
        signature, name = inspect.signature(module.forward), type(module).__name__
    else:
        raise argument(f"tessera.torch.compile takes a torch.nn.Module, not {type(module).__name__}")
    with evaluating(module):
        try:
            exported = exporting.export(module, arguments, named, dynamic_shapes)
        except exporting.BuffersChange as e:
            raise error(
                "unsupported",
                f"the module changes its buffer '{e.names[0]}' in each call; take it as an argument and return its new "
                "value, or use torch.compile(module, backend='tessera')",
            ) from None
    if exported.notice is not None:
        warnings.warn(exported.notice, stacklevel=2)
    samples, quantization = _samples(calibrate, exported, signature, arguments, named, dict(quantization or {}))
    program = Program(exported, samples, device, os.fspath(config), quantization, options)
    return Compiled(program, signature, name)


def _samples(calibrate, exported, signature, arguments, named, quantization):
    """(feeds to quantise with, options of the quantiser)."""
    if calibrate is None:
        if quantization:
            raise argument("quantization is given without calibrate; give example inputs to quantise with")
        return None, quantization
    if isinstance(calibrate, str):
        flat = exporting.leaves(exported, signature, arguments, named)
        shapes = {p.name: list(v.shape) for p, v in zip(exported.inputs, flat) if p.name is not None and p.dtype}
        return calibrate, {"shapes": shapes, **quantization}
    if isinstance(calibrate, (torch.Tensor, dict)):
        raise argument("calibrate takes an iterable of example inputs, such as [image, image] or a DataLoader")
    plain = lambda value: to_array(value) if isinstance(value, torch.Tensor) else value
    fixed = {name: value for name, value in named.items() if not _has_tensors(value)}
    feeds = []
    for number, sample in enumerate(calibrate):
        given, by_name = _sample_arguments(sample, number, signature)
        flat = exporting.leaves(exported, signature, given, fixed | by_name)
        for one in split_batch(exported, flat):
            pairs = zip(exported.inputs, one)
            feeds.append({port.name: plain(value) for port, value in pairs if port.name is not None})
        if len(feeds) >= int(quantization.get("samples", SAMPLES)):
            break
    return list(itertools.islice(feeds, int(quantization.get("samples", SAMPLES)))), quantization


def _has_tensors(value):
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def _sample_arguments(sample, number, signature):
    """(positional, named) of a sample for calibration. A pair of input and label, as a loader of data gives it, is
    refused with the way out."""
    arguments, named = exporting.arguments_of(sample)
    if signature is not None:
        try:
            signature.bind(*arguments, **named)
        except TypeError as e:
            raise argument(
                f"sample {number} of calibrate does not fit the module's forward: {e}; give the inputs alone, such as "
                "(image for image, label in loader)"
            ) from None
    return arguments, named

# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's Python interface with the runs of its sessions on Tessera.

    import tessera.onnxruntime as ort              # in place of `import onnxruntime as ort`
    session = ort.InferenceSession("model.onnx")

or, for a program that imports onnxruntime itself, before or after this:

    import tessera.onnxruntime
    tessera.onnxruntime.install(device="sysc", config="npu256")

Each session is still made by ONNX Runtime, which gives metadata, options, profiling and errors. Of the session's
methods those that run the model are replaced. What Tessera does not serve ONNX Runtime runs, and a line on standard
error says so once for each session and cause. Names that are not defined here are those of onnxruntime. install()
changes the classes of onnxruntime in place: so isinstance, subclasses, pickling by reference and names that were
imported before hold."""

import atexit
import ctypes
import functools
import os
import shutil
import sys
import tempfile
import threading
import weakref

import _tessera
import numpy as np
import onnxruntime as _real
from onnxruntime.capi import _pybind_state as _state
from onnxruntime.capi import onnxruntime_inference_collection as _collection

from . import errors as _errors
from .app import capture as _capture
from .app import records as _records
from .app.served import TENSORS
from .app.served import Context as _Context
from .app.served import Refused as _Refused
from .app.served import Served as _Served
from .app.served import marked as _marked
from .app.settings import Settings

ONNX_TYPES = {number: np.dtype(name) for name, number in _capture.TYPES.items()}
_served = weakref.WeakKeyDictionary()  # onnxruntime's session in C -> Served
_bindings = weakref.WeakKeyDictionary()  # its binding in C -> _Bound
_context = _Context(Settings.from_environment() or Settings())


# --- the methods of InferenceSession


def _part_of(session):
    return _served.get(getattr(session, "_sess", None)) if getattr(session, "_sess", None) is not None else None


def _own():
    """Whether Tessera's own quantiser asks, which needs the float model's values on the host."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("tessera.quantization"):
            return True
        frame = frame.f_back
    return False


def _create_inference_session(self, *args, **kwargs):
    _original["_create_inference_session"](self, *args, **kwargs)
    if getattr(self, "_model_path", None) is None and getattr(self, "_model_bytes", None) is None or _own():
        return
    if self._sess not in _served:
        _served[self._sess] = _Served(self, _context)


def _run(self, output_names, input_feed, run_options=None):
    there = lambda names: _original["run"](self, names, input_feed, run_options)
    served = _part_of(self)
    return there(output_names) if served is None else served.call(output_names, input_feed, run_options, there)


def _run_async(self, output_names, input_feed, callback, user_data, run_options=None):
    there = lambda: _original["run_async"](self, output_names, input_feed, callback, user_data, run_options)
    served = _part_of(self)
    if served is None:
        return there()
    try:
        served.refuse(output_names, input_feed, run_options)
    except _Refused as refusal:
        return served.fall(refusal, output_names, lambda names: there())
    feeds = dict(input_feed)

    def work():
        try:
            results, error = _run(self, output_names, feeds, run_options), ""
        except Exception as e:
            results, error = [], str(e)
        callback(results, user_data, error)

    threading.Thread(target=work, name="tessera-run-async").start()
    return None


def _value(array):
    """An OrtValue that owns its memory."""
    if not isinstance(array, np.ndarray) or array.dtype == object:
        return _collection.OrtValue.ortvalue_from_numpy(array)
    value = _collection.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype.type)
    if array.size:
        value.update_inplace(np.ascontiguousarray(array).reshape(array.shape))
    return value


def _run_with_ort_values(self, output_names, input_dict_ort_values, run_options=None):
    there = lambda names: _original["run_with_ort_values"](self, names, input_dict_ort_values, run_options)
    served = _part_of(self)
    if served is None:
        return there(output_names)
    wanted = list(output_names) if output_names else list(served.outputs)
    plain = lambda names: [_plain(value) for value in there(names)]
    if any(served.outputs.get(name, ("",))[0] not in TENSORS for name in wanted):
        return served.fall(_Refused("an output is no tensor", quiet=True), output_names, there)
    results = served.call(output_names, input_dict_ort_values, run_options, plain)
    return [_value(result) for result in results]


def _plain(value):
    return value.numpy() if value.is_tensor() else value


# --- bindings


class _Bound:
    """What a program has bound: onnxruntime does not tell."""

    def __init__(self):
        self.inputs, self.outputs = {}, {}


def _bound(binding):
    return _bindings.setdefault(binding._iobinding, _Bound())


def _at(pointer, element_type, shape):
    """The memory at an address as an array."""
    dtype = ONNX_TYPES[element_type] if isinstance(element_type, int) else np.dtype(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype).reshape(shape)


def _note_cpu_input(binding, name, arr_on_cpu):
    held = arr_on_cpu
    if isinstance(held, np.ndarray) and (not held.flags.c_contiguous or held.dtype == object):
        held = held.copy()
    _bound(binding).inputs[name] = lambda: held


def _note_input(binding, name, device_type, device_id, element_type, shape, buffer_ptr):
    def read():
        if device_type != "cpu":
            raise _Refused(f"input '{name}' is bound to device '{device_type}'")
        return _at(buffer_ptr, element_type, shape)

    _bound(binding).inputs[name] = read


def _note_ortvalue_input(binding, name, ortvalue):
    _bound(binding).inputs[name] = lambda: ortvalue


def _note_output(binding, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None):
    again = functools.partial(
        _original_binding["bind_output"], binding, name, device_type, device_id, element_type, shape, buffer_ptr
    )

    def write(array):
        if device_type != "cpu":
            raise _Refused(f"output '{name}' is bound to device '{device_type}'")
        if not buffer_ptr:
            value = _value(array)
            binding._iobinding.bind_ortvalue_output(name, value._ortvalue)
            return
        there = _at(buffer_ptr, element_type, shape)
        if there.shape != array.shape or there.dtype != array.dtype:
            raise _Refused(f"output '{name}' does not fit the memory it is bound to", quiet=True)
        there[...] = array

    _bound(binding).outputs[name] = (write, again)


def _note_ortvalue_output(binding, name, ortvalue):
    def write(array):
        if ortvalue.device_name() != "cpu" or not ortvalue.is_tensor():
            raise _Refused(f"output '{name}' is bound to no tensor in the host's memory")
        there = ortvalue.numpy()
        if there.shape != array.shape or there.dtype != array.dtype:
            raise _Refused(f"output '{name}' does not fit the OrtValue it is bound to", quiet=True)
        ortvalue.update_inplace(array)

    _bound(binding).outputs[name] = (
        write,
        functools.partial(_original_binding["bind_ortvalue_output"], binding, name, ortvalue),
    )


def _forget_inputs(binding):
    _bound(binding).inputs.clear()


def _forget_outputs(binding):
    _bound(binding).outputs.clear()


_noted = {
    "bind_cpu_input": _note_cpu_input,
    "bind_input": _note_input,
    "bind_ortvalue_input": _note_ortvalue_input,
    "bind_output": _note_output,
    "bind_ortvalue_output": _note_ortvalue_output,
    "clear_binding_inputs": _forget_inputs,
    "clear_binding_outputs": _forget_outputs,
}
_original_binding = {name: getattr(_collection.IOBinding, name) for name in _noted}


def _run_with_iobinding(self, iobinding, run_options=None):
    served = _part_of(self)
    bound = _bindings.get(iobinding._iobinding)
    if served is None or bound is None:
        return _original["run_with_iobinding"](self, iobinding, run_options)

    def there(names=None):
        for _, again in bound.outputs.values():  # an output of an earlier run may have had another shape
            again()
        return _original["run_with_iobinding"](self, iobinding, run_options)

    try:
        if not bound.outputs or any(served.outputs.get(name, ("",))[0] not in TENSORS for name in bound.outputs):
            raise _Refused("no output is bound, or one that is no tensor", quiet=True)
        feeds = {name: read() for name, read in bound.inputs.items()}
        beside = lambda names: _original["run"](self, names, feeds, run_options)
        results = served.call(list(bound.outputs), feeds, run_options, beside)
        for (write, _), result in zip(list(bound.outputs.values()), results):
            write(result)
    except _Refused as refusal:
        served.fall(refusal, None, there)
    return None


def _run_with_ortvaluevector(self, run_options, feed_names, feeds, fetch_names, fetches, fetch_devices):
    there = lambda names=None: _original["run_with_ortvaluevector"](
        self, run_options, feed_names, feeds, fetch_names, fetches, fetch_devices
    )
    served = _part_of(self)
    if served is None:
        return there()
    if len(fetches) or any(device.device_type() != _state.OrtDevice.cpu() for device in fetch_devices):
        return served.fall(_Refused("results are wanted in given OrtValues"), None, there)
    values = dict(zip(feed_names, map(_collection.OrtValue, feeds)))
    for value in _run_with_ort_values(self, fetch_names, values, run_options):
        fetches.push_back(value._ortvalue)
    return None


_replaced = {
    "_create_inference_session": _create_inference_session,
    "run": _run,
    "run_async": _run_async,
    "run_with_ort_values": _run_with_ort_values,
    "run_with_iobinding": _run_with_iobinding,
    "run_with_ortvaluevector": _run_with_ortvaluevector,
}
_original = {name: getattr(_collection.InferenceSession, name) for name in _replaced}
for _name, _function in _replaced.items():
    functools.update_wrapper(_function, _original[_name])


class InferenceSession(_collection.InferenceSession):
    """onnxruntime.InferenceSession with its runs on Tessera."""

    _create_inference_session = _create_inference_session
    run, run_async, run_with_ort_values = _run, _run_async, _run_with_ort_values
    run_with_iobinding, run_with_ortvaluevector = _run_with_iobinding, _run_with_ortvaluevector


def __getattr__(name):
    return getattr(_real, name)


def __dir__():
    return sorted({*globals(), *dir(_real)})


def _noting(method, note):
    """The method, after which `note` is called with the same arguments."""

    @functools.wraps(method)
    def both(*args, **kwargs):
        result = method(*args, **kwargs)
        note(*args, **kwargs)
        return result

    return both


for _name, _note in _noted.items():
    setattr(_collection.IOBinding, _name, _noting(_original_binding[_name], _note))
for _class, _names, _what in (
    (_state.SessionOptions, ("add_initializer", "add_external_initializers"), "initializers that its options hold"),
    (_state.SessionOptions, ("add_external_initializers_from_files_in_memory",), "initializers that its options hold"),
    (_state.RunOptions, ("add_active_adapter",), "an adapter that the run options hold"),
):
    for _name in _names:
        if hasattr(_class, _name):
            _mark = lambda options, *args, _what=_what, **kwargs: _marked.__setitem__(options, f"it takes {_what}")
            setattr(_class, _name, _noting(getattr(_class, _name), _mark))


# --- installing


def install(
    device="fsim",
    config="",
    *,
    compare=False,
    capture=None,
    quantize=None,
    report=None,
    samples=64,
    megabytes=256,
    quiet=False,
    **options,
):
    """Lets every session of onnxruntime in this process and in its children run on Tessera, those that are open in
    floating point as they are from now on made. compare: ONNX Runtime runs beside it. capture, quantize: folders, and
    report: a page to write, as of `tessera app` (docs/app.md). samples, megabytes: bounds of what is captured of a
    model. quiet: no table at the end and no notes. Every other keyword is an option of the compilation. Errors:
    invalid_argument for a device, machine or option that does not exist, and for a second call."""
    from .app import command

    if _context.settings.folder:
        raise command.argument("Tessera is installed in this process already")
    settings = command.checked(
        Settings(
            device,
            config,
            {name: value for name, value in options.items() if value is not None},
            compare,
            os.path.abspath(capture) if capture else "",
            os.path.abspath(quantize) if quantize else "",
            samples,
            megabytes,
            bool(report),
            quiet,
            tempfile.mkdtemp(prefix="tessera-app-"),
        )
    )
    command.prepare(settings)
    os.environ.update(settings.environment())
    owner = os.getpid()

    def conclude():
        if os.getpid() == owner:
            _flush()
            command.conclude(settings, report)
            shutil.rmtree(settings.folder, ignore_errors=True)

    atexit.register(conclude)
    _install(settings)


def execution_provider_library():
    """The path of the library with TesseraExecutionProvider, for onnxruntime.register_execution_provider_library and
    its like in other languages (docs/execution_provider.md). In a wheel it is the module itself, which only processes
    of Python can load. Errors: tessera.Error in a build without it."""
    beside = os.path.join(os.path.dirname(os.path.abspath(_tessera.__file__)), "libtessera_onnxruntime_ep.so")
    if os.path.exists(beside):
        return beside
    if hasattr(ctypes.CDLL(_tessera.__file__), "CreateEpFactories"):
        return os.path.abspath(_tessera.__file__)
    raise _errors.error("unsupported", f"{beside} is missing: build the target tessera_onnxruntime_ep")


def install_from_environment():
    """What `tessera app` does in the program and its children."""
    settings = Settings.from_environment()
    if settings is not None and not _installed():
        atexit.register(_flush)
        _install(settings)


def _installed():
    return _collection.InferenceSession.run is _run


def _install(settings):
    global _context
    from multiprocessing import util

    _context = _Context(settings)
    # A child that multiprocessing has forked ends without what atexit holds.
    util.register_after_fork(_context, lambda context: util.Finalize(None, _flush, exitpriority=0))
    for name, function in _replaced.items():
        setattr(_collection.InferenceSession, name, function)


def table():
    """The table of what the sessions of this process did so far, as text."""
    _flush()
    journal = _context.journal
    lines = journal.kept if journal.path is None else _records.lines_of(journal.path.parent)
    return _records.table(lines, _context.settings.compare)


def _flush():
    for account in list(_context.journal.accounts):
        account.flush()


_left = []  # sessions of a parent: a forked child cannot end them, as their threads are not there


def _forked():
    _context.journal = _records.Journal(_context.settings.folder)
    for served in list(_served.values()):
        _left.append(served.session)
        served.reset()


os.register_at_fork(after_in_child=_forked)

# SPDX-License-Identifier: Apache-2.0
"""One version of a model in memory: its sessions, the queue in front of them, and a thread for each session that takes
batches and runs them."""

import contextlib
import math
import pathlib
import tempfile
import threading
import time

import numpy as np

import tessera

from ..errors import error, model_error
from ..shapes import shapes_ahead
from .batching import Job, Queue
from .chips import chip_of
from .refusals import Kind, Refusal, invalid, of_run
from .tensors import OF_ELEMENT, dtype_of

INSTRUCTION_BYTES = 64


class Port:
    """An input or output as the protocol names it. shape: integers, -1 where any extent fits, or None when not even
    the rank is known."""

    def __init__(self, port):
        self.name, self.datatype = port["name"], OF_ELEMENT[port["dtype"]]
        shape = port["shape"]
        self.shape = None if shape is None else [dim if isinstance(dim, int) else -1 for dim in shape]

    def takes(self, shape):
        return self.shape is None or (
            len(shape) == len(self.shape) and all(own in (-1, dim) for own, dim in zip(self.shape, shape))
        )

    def metadata(self):
        return {"name": self.name, "datatype": self.datatype, "shape": [-1] if self.shape is None else self.shape}


def _is_tensor(port):
    return port["kind"] == "tensor" and "keys" not in port and port["dtype"] in OF_ELEMENT


class Served:
    """label: how errors name the model. path: an ONNX file or an artifact. settings: a Settings. observe: called with
    (waits in the queue in seconds, rows that were asked for, rows that ran) after each run. Errors of construction:
    tessera.Error when the model does not compile, or has inputs that the protocol does not know."""

    def __init__(self, label, path, settings, trusted_keys=None, observe=lambda waits, rows, ran: None):
        self.label, self.settings = label, settings
        self._path, self._trusted_keys, self._observe = str(path), trusted_keys, observe
        self._model_bytes = sum(f.stat().st_size for f in pathlib.Path(path).parent.iterdir() if f.is_file())
        self._shape_bytes = {}
        self._lock = threading.Lock()
        self._warmed = set()
        self._quantised = self._quantise()
        self._chip = chip_of(settings)
        first = self._open()
        self._read_ports(first)
        sessions = [first] + [self._open() for _ in range(settings.instances - 1)]
        if settings.warm_up:
            for session in sessions:
                self._warm_up(session)
        self._compile_ahead(first)
        self.queue = Queue(label, settings.batching)
        self._threads = [threading.Thread(target=self._work, args=(s,), name=label, daemon=True) for s in sessions]
        for thread in self._threads:
            thread.start()

    # --- opening ---

    def _quantise(self):
        """The bytes of the quantised model where the settings have calibration data, else None."""
        options = dict(self.settings.calibration)
        if not options:
            return None
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "model.onnx"
            try:
                tessera.quantize(self._path, options.pop("data"), output, **options)
            except (ImportError, TypeError) as problem:
                raise error("unsupported", f"{self.label} cannot be quantised: {problem}") from None
            return output.read_bytes()

    def _open(self):
        settings = self.settings
        if self._chip is None:
            machine = dict(device=settings.device, config=settings.config, device_options=settings.device_options)
        else:
            machine = dict(chip=self._chip, cores=settings.cores, priority=settings.priority)
        return tessera.Session(
            self._quantised or self._path,
            **machine,
            shapes=settings.shapes,
            profile=False,
            trusted_keys=self._trusted_keys,
            keep_state=False,  # requests of all clients come to one session
            **settings.compile,
        )

    def _read_ports(self, session):
        inputs, outputs = session._session.inputs(), session._session.outputs()
        for port in inputs:
            if not _is_tensor(port):
                raise model_error(
                    f"{self.label}: input '{port['name']}' is a {port['kind']} of {port['dtype']}, which the Open "
                    "Inference "
                    "Protocol has no form for"
                )
        self.inputs = {port["name"]: Port(port) for port in inputs}
        # Sequences and maps stay behind; what can be said in the protocol is served.
        self.outputs = {port["name"]: Port(port) for port in outputs if _is_tensor(port)}
        if not self.outputs:
            raise model_error(f"{self.label} has no output that the Open Inference Protocol has a form for")
        if self.is_batched:
            self._check_rows()

    @property
    def is_batched(self):
        return self.settings.batching.max_batch > 0

    def _check_rows(self):
        """Every input and output has rows along its first dimension: any number, or max_batch of them."""
        most = self.settings.batching.max_batch
        fixed = set()
        for port in (*self.inputs.values(), *self.outputs.values()):
            if not port.shape or port.shape[0] not in (-1, most):
                raise model_error(
                    f"{self.label}: '{port.name}' has the shape {port.shape}, whose first dimension is not open and "
                    "not "
                    f"max_batch ({most}); batching needs rows there, or max_batch = 0"
                )
            fixed.add(port.shape[0])
        self._sizes = self.settings.batching.sizes if most not in fixed else (most,)
        for port in (*self.inputs.values(), *self.outputs.values()):
            port.shape[0] = -1

    def _warm_up(self, session):
        """Runs of zeros, so that shapes are compiled and the model is known to run."""
        shapes = list(self.settings.warm) or [{p.name: p.shape for p in self.inputs.values()}]
        for wanted in shapes:
            missing = sorted(set(self.inputs) - set(wanted))
            if missing or set(wanted) - set(self.inputs):
                raise error(
                    "invalid_argument", f"{self.label}: 'warm' names the inputs {sorted(wanted)}, the model has others"
                )
            for rows in self._sizes if self.is_batched else (None,):
                sized = {n: [rows, *shape[1:]] if rows else shape for n, shape in wanted.items()}
                if any(shape is None or -1 in shape for shape in sized.values()):
                    continue
                self._run_session(session, {n: _zeros(self.inputs[n].datatype, shape) for n, shape in sized.items()})
                self._warmed.add(_beyond_rows(sized, self.is_batched))

    def _compile_ahead(self, session):
        """Compiles for shapes that will come, while requests are served; other instances find them in the cache."""
        name = pathlib.Path(self._path).parent.parent.name
        found = shapes_ahead(self.settings.prepare, name, {p.name: p.shape for p in self.inputs.values()}, others=True)
        if found and self.settings.device != "reference" and not self._path.endswith(".tsr"):  # nothing to compile
            session.prepare(found)

    # --- requests ---

    @property
    def bytes(self):
        """Memory that the version takes: of the model's files, and of each compiled shape its constants, arena and
        instructions."""
        return self._model_bytes + self.settings.instances * sum(self._shape_bytes.values())

    def job(self, feeds, deadline):
        """A job of checked feeds. Errors: a Refusal for rows that do not agree or are too many."""
        key = _beyond_rows({name: array.shape for name, array in feeds.items()}, self.is_batched)
        if self.settings.only_warm and key not in self._warmed:
            raise invalid(f"{self.label} takes the shapes of its settings alone ('only_warm'), not {dict(key)}")
        if not self.is_batched:
            return Job(feeds, deadline=deadline)
        rows = {len(array) for array in feeds.values()}
        most = self.settings.batching.max_batch
        if len(rows) != 1 or not 1 <= min(rows) <= most:
            raise invalid(f"{self.label} takes from 1 to {most} rows, as many in every input, not {sorted(rows)}")
        return Job(feeds, rows.pop(), key, deadline)

    def retire(self):
        """No more jobs; those that wait still run. The sessions are freed after the last."""
        self.queue.close()

    def join(self, seconds):
        """Whether all jobs have run within the time."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # --- runs ---

    def _work(self, session):
        while (batch := self.queue.take()) is not None:
            session = self._answer(session, batch)
            del batch  # nothing of a request outlives it here

    def _answer(self, session, batch):
        """Runs a batch. When it fails every request runs alone, so that one that cannot run takes no other with it.
        Returns the session to go on with: a device that has failed is opened anew."""
        try:
            results = self._run_batch(session, batch)
        except Exception as problem:
            if getattr(problem, "code", "") == "device_fault":
                with contextlib.suppress(tessera.Error):
                    session = self._open()
            if len(batch) > 1:
                for job in batch:
                    session = self._answer(session, [job])
                return session
            batch[0].future.set_exception(self._refusal_of(problem))
            return session
        for job, result in zip(batch, results):
            job.future.set_result(result)
        return session

    def _refusal_of(self, problem):
        if isinstance(problem, Refusal):
            return problem
        if isinstance(problem, tessera.Error):
            refusal = of_run(problem)
            return Refusal(refusal.kind, f"{self.label}: {refusal}")
        return Refusal(Kind.FAULT, f"{self.label}: the run failed: {type(problem).__name__}: {problem}")

    def _run_batch(self, session, batch):
        """Results of each job: arrays by output."""
        rows = sum(job.rows for job in batch)
        if not self.is_batched:
            results = [self._run_session(session, batch[0].feeds)]
            self._observe([batch[0].waited], rows, rows)
            return results
        ran = next(size for size in self._sizes if size >= rows)
        feeds = {}
        for name in self.inputs:
            parts = [job.feeds[name] for job in batch]
            if ran > rows:  # filled with what is known to be an input
                parts.append(np.repeat(parts[-1][-1:], ran - rows, axis=0))
            feeds[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        outputs = self._run_session(session, feeds)
        for name, array in outputs.items():
            if array.ndim == 0 or len(array) != ran:
                raise Refusal(
                    Kind.FAULT,
                    f"{self.label}: output '{name}' has the shape {list(array.shape)} for {ran} rows, so that the "
                    "model cannot "
                    "be batched; its settings want max_batch = 0",
                )
        results, at = [], 0
        for job in batch:
            results.append({name: array[at : at + job.rows] for name, array in outputs.items()})
            at += job.rows
        self._observe([job.waited for job in batch], rows, ran)
        return results

    def _run_session(self, session, feeds):
        names = list(self.outputs)
        arrays = dict(zip(names, session.run(names, feeds)))
        self._note_memory(session, feeds)
        return arrays

    def _note_memory(self, session, feeds):
        key = tuple((name, np.shape(array)) for name, array in feeds.items())
        with self._lock:
            if key in self._shape_bytes:
                return
            needed = 0
            if self.settings.device != "reference":
                info = session.info()
                needed = info.device_constant_bytes + info.constant_bytes + info.arena_bytes + info.cpu_code_bytes
                needed += info.instructions * INSTRUCTION_BYTES
            while len(self._shape_bytes) >= 8:  # as many as a session keeps
                self._shape_bytes.pop(next(iter(self._shape_bytes)))
            self._shape_bytes[key] = needed


def _zeros(datatype, shape):
    if datatype == "BYTES":
        array = np.empty(math.prod(shape), object)
        array[:] = ""
        return array.reshape(shape)
    return np.zeros(shape, dtype_of(datatype))


def _beyond_rows(shapes, is_batched):
    """What requests that can run together have in common."""
    return tuple((name, tuple(shape[1:] if is_batched else shape)) for name, shape in sorted(shapes.items()))

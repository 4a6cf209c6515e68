# SPDX-License-Identifier: Apache-2.0
"""The sessions of ONNX Runtime that Tessera serves. Enters: calls of such a session. Leaves: their results, by Tessera,
or by ONNX Runtime where a call is not Tessera's to run, and what happened, in the records of the process."""

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
import uuid
import weakref

import _tessera
import numpy as np

from .. import Session, compile_options
from ..shapes import shapes_ahead
from . import capture, models, records
from .given import Given

TENSORS = {
    f"tensor({name})": np.dtype(of)
    for name, of in {
        "float": "float32", "double": "float64", "float16": "float16", "bool": "bool", "string": "object",
        **{n: n for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    }.items()
}  # fmt: skip
marked = weakref.WeakKeyDictionary()  # options that cannot be read -> what they hold


class Context:
    """What all sessions of a process share."""

    def __init__(self, settings):
        self.settings = settings
        self.journal = records.Journal(settings.folder)
        known = {row["name"] for row in compile_options()}
        self.options = {name: value for name, value in settings.options.items() if name in known}
        self.numerics = str(self.options.get("numerics", "exact"))

    def say(self, text):
        if not self.settings.quiet:
            sys.stderr.write(f"tessera: {text}\n")
            sys.stderr.flush()


def _signature(feeds):
    return tuple(sorted((name, _kind(value)) for name, value in feeds.items()))


def _kind(value):
    return str(value.dtype) + str(value.shape) if isinstance(value, np.ndarray) else repr(type(value))


class Refused(Exception):
    """A call that ONNX Runtime has to run; `quiet` where it is expected to raise an error of its own."""

    def __init__(self, why, quiet=False):
        super().__init__(why)
        self.quiet = quiet


class Served:
    """The part of one session of ONNX Runtime that runs on Tessera. It holds nothing of that session, which may go."""

    def __init__(self, session, context):
        self.context, self.given = context, Given(session._model_path, session._model_bytes)
        of = lambda ports: {p.name: (p.type, list(p.shape or [])) for p in ports}
        meta = session._sess
        self.inputs, self.outputs = of(meta.inputs_meta), of(meta.outputs_meta)
        self.overridable = of(meta.overridable_initializers)
        options = session._sess_options_initial
        self.why_not = marked.get(options) if options is not None else None
        self.threads = options.intra_op_num_threads if options is not None else 0
        self.name = os.path.basename(self.given.path) if self.given.path else records.UNNAMED
        self.reset()

    def reset(self):
        """As it is before its first run; a process that was forked starts here again."""
        self.lock, self.session, self.refused, self.told, self.timing = threading.RLock(), None, {}, set(), {}
        self.account = self.capture = self.how = None

    # --- opening

    def open(self):
        """The Tessera session, which the first run makes."""
        if self.session is not None:
            return
        settings, context = self.context.settings, self.context
        model, data = self.given.source()
        self.key = hashlib.sha256(data).hexdigest()
        self.account = records.Account(context.journal, uuid.uuid4().hex, self.key, self.name)
        self.how = "as given"
        root = settings.quantize or settings.capture
        if root:
            folder = capture.folder_of(root, self.name if self.given.path else "model", self.key)
            if settings.quantize:
                made = models.quantised(folder, settings.machine, context.numerics)
                if made.exists():
                    model, self.how, root = str(made), "int8", ""
                elif (why := models.refused(folder, settings.machine, context.numerics)) is not None:
                    self.tell(f"stays float: {why}", "quantised")
                    root = ""
            if root:
                self.capture = capture.Capture(folder, settings.samples, settings.megabytes, lambda: data)
        options = dict(context.options)
        if self.threads and self.threads > 0:
            options.setdefault("threads", self.threads)
        options.setdefault("profile", bool(settings.report))  # figures of single instructions are for the report alone
        self.session = Session(model, settings.device, settings.config, **options)
        self.compile_ahead()

    def compile_ahead(self):
        """Compiles for shapes that will come, behind the runs."""
        try:
            found = shapes_ahead(self.context.settings.shapes, self.name, {n: d for n, (_, d) in self.inputs.items()})
            if found:
                self.session.prepare(found)
        except _tessera.Error as e:
            self.tell(f"nothing is compiled ahead: {e}", "ahead")

    # --- running

    def refuse(self, names, feeds, run_options):
        """The inputs as arrays and the outputs' names; raises Refused for what is not Tessera's to run. What ONNX
        Runtime refuses is left to it, so that the error is its own."""
        if self.why_not:
            raise Refused(self.why_not)
        if run_options is not None:
            if run_options.terminate:
                raise Refused("the run options end the run", quiet=True)
            if run_options in marked:
                raise Refused(marked[run_options])
        wanted = list(names) if names else list(self.outputs)
        if any(name not in self.outputs for name in wanted):
            raise Refused("an output is not known", quiet=True)
        for name in wanted:
            kind = self.outputs[name][0]
            if kind.startswith("tensor(") and kind not in TENSORS or kind.startswith("sparse"):
                raise Refused(f"output '{name}' is a {kind}")
        arrays = {name: self.array(name, value) for name, value in feeds.items()}
        for name, (kind, _) in self.inputs.items():
            if name not in arrays and not kind.startswith("optional"):
                raise Refused("an input is missing", quiet=True)
        return wanted, arrays

    def array(self, name, value):
        kind, shape = self.inputs.get(name) or self.overridable.get(name) or (None, None)
        if kind is None:
            raise Refused("an input is not known", quiet=True)
        if hasattr(value, "_get_c_value"):  # an OrtValue
            if not value.is_tensor() or value.device_name() != "cpu":
                raise Refused(f"input '{name}' is no tensor in the host's memory")
            value = value.numpy()
        if kind in TENSORS:
            return self.tensor(name, kind, shape, value)
        if kind.startswith("seq(tensor(") and isinstance(value, (list, tuple)):
            return [np.asarray(part) for part in value]
        if not isinstance(value, np.ndarray):
            raise Refused(f"input '{name}' is a {kind}")
        return value

    def tensor(self, name, kind, shape, value):
        """A tensor of the model's type and shape, from an array or from lists."""
        if isinstance(value, (list, tuple)):
            try:
                value = np.asarray(value, TENSORS[kind])
            except (TypeError, ValueError):
                raise Refused("an input does not fit", quiet=True) from None
        if not isinstance(value, np.ndarray):
            raise Refused(f"input '{name}' is a {type(value).__name__}")
        text = kind == "tensor(string)"
        fits = value.dtype.kind in "OUS" if text else value.dtype == TENSORS[kind]
        if not fits or len(shape) != value.ndim and (shape or name in self.overridable or value.ndim):
            raise Refused("an input does not fit", quiet=True)
        if any(isinstance(want, int) and want >= 0 and want != got for want, got in zip(shape, value.shape)):
            raise Refused("an input does not fit", quiet=True)
        return np.asarray(value.astype(object) if text else value, order="C")

    def call(self, names, feeds, run_options, on_onnxruntime):
        """The outputs. on_onnxruntime: the same call there, which takes output names, too."""
        try:
            wanted, arrays = self.refuse(names, feeds, run_options)
        except Refused as refusal:
            return self.fall(refusal, names, on_onnxruntime)
        signature = _signature(arrays)
        if signature in self.refused:
            return self.fall(self.refused[signature], names, on_onnxruntime)
        try:
            results = self.run(wanted, arrays, signature)
        except Exception as e:
            refusal = Refused(str(e) or type(e).__name__)
            results = self.fall(refusal, names, on_onnxruntime)  # raises where ONNX Runtime raises, too
            if getattr(e, "code", "") not in ("io", "device_fault"):
                self.refused[signature] = refusal
            return results
        self.watch(wanted, arrays, results, on_onnxruntime)
        return results

    def fall(self, refusal, names, on_onnxruntime):
        start = time.perf_counter()
        results = on_onnxruntime(names)
        seconds = time.perf_counter() - start
        if not refusal.quiet:
            self.tell(f"{refusal}; ONNX Runtime runs it", str(refusal))
        with self.lock:
            if self.account is None:
                with contextlib.suppress(Exception):
                    self.open()
            if self.account is not None:
                self.account.add({"runs": 1, "fallback_runs": 1, "seconds": seconds})
        return results

    def tell(self, text, cause):
        if cause not in self.told:
            self.told.add(cause)
            self.context.say(f"app: session '{self.name}': {' '.join(text.split())}")

    def run(self, wanted, arrays, signature):
        with self.lock:
            self.open()
            start = time.perf_counter()
            unique = list(dict.fromkeys(wanted))
            results = dict(zip(unique, self.session.run(unique, arrays)))
            seconds = time.perf_counter() - start
            first = signature not in self.timing
            self.note(signature, seconds, first)
        return [self.as_there(name, results[name]) for name in wanted]

    def as_there(self, name, value):
        """A result as ONNX Runtime hands it out."""
        kind = TENSORS.get(self.outputs[name][0])
        if isinstance(value, np.ndarray) and kind is not None and value.dtype != kind:
            return value.astype(kind)
        return value

    def note(self, signature, seconds, first):
        """Adds a run to the account. Statistics are asked for at the first runs of a shape, whose cycles stay the
        same."""
        known = self.timing.get(signature)
        count = known[0] + 1 if known else 1
        if known is None or count & (count - 1) == 0:
            stats = self.session.stats()
            measured = stats.get("cycles")
            cpu = sum(layer.get("seconds") or 0 for layer in stats.layers if layer.get("placement") == "cpu")
            cycles = measured if measured is not None else stats.get("predicted_cycles") or 0
            facts = {"macs": stats.get("macs") or 0, "macs_cpu": stats.get("macs_cpu") or 0, "how": self.how}
            known = (count, cycles, cpu, {**facts, "measured": measured is not None})
            if self.context.settings.report and len(self.timing) == 0:
                self.report()
        self.timing[signature] = (count, *known[1:])
        sums = {"runs": 1, "cycles": known[1], "timed_runs": 1, "cpu_seconds": known[2], "seconds": seconds}
        self.account.add({**sums, **({"first_seconds": seconds} if first else {})}, known[3])

    def report(self):
        with contextlib.suppress(_tessera.Error):
            report = self.session.report()
            report["model"]["name"] = self.name
            self.context.journal.report(json.dumps(report))

    # --- comparing and capturing

    def watch(self, wanted, arrays, results, on_onnxruntime):
        if self.capture is not None:
            answers = lambda: dict(zip(self.outputs, on_onnxruntime(list(self.outputs))))
            given = dict(zip(wanted, results))
            given = {name: given.get(name) for name in self.outputs}
            self.capture.add({name: arrays[name] for name in self.inputs if name in arrays}, given, answers)
        if self.context.settings.compare:
            expected = on_onnxruntime(wanted)
            found = [difference(a, b) for a, b in zip(results, expected)]
            equal = all(difference == 0 for difference, _, _ in found)
            with self.lock:
                self.account.add({"compared": 1, "equal": int(equal)}, None, dict(zip(wanted, found)))


def difference(ours, theirs):
    """(largest absolute difference, least and largest expected value)."""
    differs = float("inf"), 0.0, 0.0
    if isinstance(theirs, np.ndarray):
        if not isinstance(ours, np.ndarray) or ours.shape != theirs.shape:
            return differs
        if theirs.dtype == object or theirs.dtype == bool:
            return float(np.any(ours != theirs)), 0.0, 1.0
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        finite = b[np.isfinite(b)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if same.all():
            return 0.0, low, high
        with np.errstate(invalid="ignore"):
            return float(np.nan_to_num(np.abs(a - b)[~same], nan=np.inf).max()), low, high
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return differs
        pairs = [difference(a, b) for a, b in zip(ours, theirs)]
    elif isinstance(theirs, dict):
        pairs = [difference(np.asarray(ours.get(k, np.nan)), np.asarray(v)) for k, v in theirs.items()]
    else:
        pairs = [(0.0 if ours is theirs or ours == theirs else 1.0, 0.0, 1.0)]
    return records.wider(pairs) if pairs else (0.0, 0.0, 0.0)

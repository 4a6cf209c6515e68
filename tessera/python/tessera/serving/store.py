# SPDX-License-Identifier: Apache-2.0
"""The models of a repository, by name and version. A version that is replaced or sent out of memory ends its waiting
requests first; one that was sent out comes back with the next request for it."""

import contextlib
import ctypes
import threading
import time

import tessera

from .batching import Closed
from .refusals import Kind, Refusal
from .repository import VERSION
from .served import Served


class Version:
    """found: what stands on disk. served: the version in memory, or None. reason: why it is not as the folder says."""

    def __init__(self, found, served, reason=""):
        self.found, self.served, self.reason = found, served, reason
        self.used = time.monotonic()
        self.bytes = served.bytes if served else 0


class Store:
    """repository: a Repository. memory_limit: most bytes of all versions in memory, or None. Thread-safe."""

    def __init__(self, repository, metrics, memory_limit=None, trusted_keys=None):
        self._repository, self._metrics = repository, metrics
        self._memory_limit, self._trusted_keys = memory_limit, trusted_keys
        self._models = {}  # name: {version: Version}
        self._failures = {}  # name: why it could not be loaded
        self._lock = threading.Lock()  # of the tables; held for moments
        self._loading = threading.Lock()  # of what takes long: one load at a time
        self._retired = []
        self.is_draining = False

    # --- asking ---

    def find(self, name, version=""):
        """The Version that a request means; without a version the highest. Errors: a Refusal."""
        with self._lock:
            versions = self._models.get(name)
            if not versions:
                reason = self._failures.get(name)
                text = f"there is no model '{name[:200]}' to ask" + (
                    f": {reason}" if reason else "; /v2/repository/index lists them"
                )
                raise Refusal(Kind.UNAVAILABLE if reason else Kind.NOT_FOUND, text)
            if version == "":
                return versions[max(versions)]
            found = versions.get(int(version)) if VERSION.fullmatch(version) else None
            if found is None:
                raise Refusal(
                    Kind.NOT_FOUND, f"model '{name}' has no version {version[:20]!r} to ask, it has {sorted(versions)}"
                )
            return found

    def is_ready(self, name=None, version=""):
        """Whether a model can be asked; without a name, whether the server can."""
        if name is None:
            return not self.is_draining
        try:
            self.find(name, version)
            return not self.is_draining
        except Refusal:
            return False

    def versions_of(self, name):
        with self._lock:
            return [str(number) for number in sorted(self._models.get(name, ()))]

    def index(self):
        """Rows of name, version, state and reason."""
        try:
            names = set(self._repository.names())
        except OSError:
            names = set()
        with self._lock:
            rows = []
            for name in sorted(names | set(self._models) | set(self._failures)):
                for number, version in sorted(self._models.get(name, {}).items()):
                    rows.append(dict(name=name, version=str(number), state="READY", reason=version.reason))
                if not self._models.get(name):
                    reason = self._failures.get(name, "not loaded")
                    rows.append(dict(name=name, version="", state="UNAVAILABLE", reason=reason))
            return rows

    def misnamed(self):
        """Folders of the repository that are no models for their names."""
        try:
            return self._repository.misnamed()
        except OSError:
            return []

    def served(self, version):
        """The version in memory, brought there if it is not. Errors: a Refusal."""
        with self._lock:
            version.used = time.monotonic()
            if version.served is not None:
                return version.served
        with self._loading:
            with self._lock:
                if version.served is not None:
                    return version.served
            try:
                made = self._make(version.found, version.bytes)
            except tessera.Error as problem:
                raise Refusal(Kind.UNAVAILABLE, str(problem)) from None
            with self._lock:
                version.served, version.bytes, version.reason = made, made.bytes, ""
            self._make_room(keep=version)
            return made

    def submit(self, name, version, feeds_of, deadline):
        """Puts a request into the queue of the model that it means. feeds_of: makes the checked feeds for a Served.
        Returns (version number as text, Served, Job). A version that retires at this moment is asked for again, so that
        its successor answers. Errors: a Refusal."""
        while True:
            if self.is_draining:
                raise Refusal(Kind.UNAVAILABLE, "the server ends; ask another one")
            found = self.find(name, version)
            served = self.served(found)
            job = served.job(feeds_of(served), deadline)
            try:
                served.queue.put(job)
            except Closed:
                with self._lock:
                    if found.served is served:
                        found.served = None
                continue
            return str(found.found.version), served, job

    def is_resident(self, name, version=""):
        """Whether a request for the model finds it in memory."""
        try:
            return self.find(name, version).served is not None
        except Refusal:
            return True  # the answer is known at once

    def metadata(self, name, version=""):
        """Name, versions, platform, inputs and outputs as the protocol has them. Errors: a Refusal."""
        served = self.served(self.find(name, version))
        return dict(
            name=name,
            versions=self.versions_of(name),
            platform="tessera",
            inputs=[port.metadata() for port in served.inputs.values()],
            outputs=[port.metadata() for port in served.outputs.values()],
        )

    # --- loading ---

    def load(self, name):
        """Brings a model to what the repository says of it: versions that are new or changed are loaded, then stand in
        the place of the old ones, which end what waits for them. Errors: tessera.Error; what was served stays."""
        with self._loading:
            try:
                wanted = self._repository.find(name)
                with self._lock:
                    old = dict(self._models.get(name, {}))
                new = {}
                for found in wanted:
                    there = old.get(found.version)
                    same = (
                        there is not None and there.found.mark == found.mark and there.found.settings == found.settings
                    )
                    new[found.version] = there if same else Version(found, self._make(found))
            except tessera.Error as problem:
                self._metrics.loads.labels(name if name in self._repository.names() else "", "failed").inc()
                self._note_failure(name, str(problem))
                raise
            with self._lock:
                self._models[name] = new
                self._failures.pop(name, None)
                for version in new.values():
                    version.reason = "" if version.served else version.reason
            for number, version in old.items():
                if new.get(number) is not version:
                    self._retire(version)
                if number not in new:
                    self._metrics.forget(name, str(number))
            for version in new.values():
                self._make_room(keep=version)

    def load_or_refuse(self, name):
        """load() for a client. Errors: a Refusal."""
        try:
            self.load(name)
        except tessera.Error as problem:
            kind = Kind.INVALID if name in self._repository.names() else Kind.NOT_FOUND
            raise Refusal(kind, str(problem)) from None

    def unload(self, name):
        """Takes a model out of service; what waits is answered. Errors: a Refusal for one that is not there."""
        with self._loading:
            with self._lock:
                old = self._models.pop(name, None)
                failed = self._failures.pop(name, None)
                if old is None and failed is None:
                    raise Refusal(Kind.NOT_FOUND, f"there is no model '{name[:200]}' to unload")
                if old is not None:
                    self._failures[name] = "unloaded"
            for number, version in (old or {}).items():
                self._retire(version)
                self._metrics.forget(name, str(number))

    def load_all(self, names=None):
        """Loads these models, or all of the repository. One that fails leaves the others alone; index() says why."""
        for name in self._repository.names() if names is None else names:
            with contextlib.suppress(tessera.Error):
                self.load(name)

    def poll(self):
        """Looks for what has changed in the folder since, and follows it."""
        present = set(self._repository.names())
        with self._lock:
            known = set(self._models) | set(self._failures)
        for name in sorted(known - present):
            with contextlib.suppress(Refusal):
                self.unload(name)
            with self._lock:
                self._failures.pop(name, None)
        self.load_all(sorted(present))

    def _note_failure(self, name, text):
        with self._lock:
            if name in self._models:
                for version in self._models[name].values():
                    version.reason = f"the files have changed, and the new ones cannot be loaded: {text}"
            elif name in self._repository.names():
                self._failures[name] = text

    def _make(self, found, expected=0):
        self._make_room(needed=expected)
        label = f"model '{found.name}' version {found.version}"
        observe = self._metrics.observer(found.name, str(found.version))
        try:
            made = Served(label, found.path, found.settings, self._trusted_keys, observe)
        except tessera.Error as problem:
            raise tessera.errors.error(problem.code, f"{label} cannot be loaded: {problem}") from None
        if self._memory_limit is not None and made.bytes > self._memory_limit:
            made.retire()
            raise tessera.errors.error(
                "does_not_fit",
                f"{label} takes {made.bytes} bytes, --model-memory allows {self._memory_limit} for all models together",
            )
        queued = self._metrics.queued.labels(found.name, str(found.version))
        queued.set_function(lambda queue=made.queue: len(queue))
        self._metrics.bytes.labels(found.name, str(found.version)).set(made.bytes)
        self._metrics.loads.labels(found.name, "loaded").inc()
        return made

    # --- memory ---

    def _make_room(self, keep=None, needed=0):
        """Sends out what was not used for longest until the rest fits."""
        if self._memory_limit is None:
            return
        while True:
            with self._lock:
                here = [v for versions in self._models.values() for v in versions.values() if v.served is not None]
                for version in here:
                    version.bytes = version.served.bytes
                total = sum(version.bytes for version in here) + needed
                others = [version for version in here if version is not keep]
                if total <= self._memory_limit or not others:
                    return
                victim = min(others, key=lambda version: version.used)
            self._retire(victim)
            victim.reason = "not in memory, to make room for others; the next request loads it"
            self._metrics.evictions.labels(victim.found.name).inc()
            self._metrics.bytes.labels(victim.found.name, str(victim.found.version)).set(0)

    def _retire(self, version):
        with self._lock:
            served, version.served = version.served, None
            if served is None:
                return
            self._retired = [(s) for s in self._retired if not s.join(0)]
            self._retired.append(served)
        served.retire()
        _return_memory()

    def drain(self, seconds):
        """Nothing new is taken; whether all that waited was answered in time."""
        self.is_draining = True
        with self._lock:
            all_served = [v.served for versions in self._models.values() for v in versions.values() if v.served]
            all_served += self._retired
        end = time.monotonic() + seconds
        for served in all_served:
            served.retire()
        return all(served.join(max(0.0, end - time.monotonic())) for served in all_served)


def _return_memory():
    """What was freed goes back to the system, where the C library can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

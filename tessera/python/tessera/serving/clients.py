# SPDX-License-Identifier: Apache-2.0
"""Devices for clients elsewhere: `--device remote:HOST:PORT` of the command, of Session and of the C interface.

A client is one stream of gRPC, and has a worker process of its own that holds its device (driver/remote/worker.h). This
process passes messages between the two without looking into them, and gives turns: of all clients of a device as many
run at one moment as it has slots, in the order in which they asked, and a client asks again when its run has ended. So
a crash, an endless program or a fault of one client ends at its worker."""

import contextlib
import os
import queue
import shutil
import tempfile
import threading
import time

import _tessera
import grpc

from ..errors import argument
from .turns import Turns
from .workers import DONE, END, GO, MEMORY, MESSAGE, REPLY, TURN, Workers

SERVICE = "tessera.remote.Devices"
MIB = 1 << 20
LET_GO = "the server was told to end; connect again when it runs"


def _options(texts):
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise argument(f"--device-option takes NAME=VALUE, not '{text}'")
        given[name] = value
    return given


# Of an option, the least that makes sense.
LEAST = {"slots": 1, "client_memory": 1, "memory": 0, "cache_size": 0, "run_seconds": 0, "idle_seconds": 0}


class Plugin:
    """The devices of a server. Errors: tessera.Error for a device that this build does not have."""

    def __init__(self, arguments, access):
        self._arguments = arguments
        known = [name for name in _tessera.backends() if name not in ("reference", "remote")]
        for name in arguments.device:
            if name.partition(":")[0] not in known:
                raise argument(f"no device '{name}' to serve; there are {', '.join(known)}")
        for name, least in LEAST.items():
            value = getattr(arguments, name)
            if not value >= least:
                raise argument(f"--{name.replace('_', '-')} takes a number from {least} on, not {value}")
        self._options = _options(arguments.device_option)
        self._turns = {name: Turns(arguments.slots) for name in arguments.device}
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._memory = arguments.memory * MIB if arguments.memory else whole // 2
        self._lock = threading.Lock()
        self._clients = set()
        self._reserved = 0
        self._draining = threading.Event()
        self._closed = threading.Event()
        self._own_cache = arguments.cache is None
        self._cache = tempfile.mkdtemp(prefix="tessera-cache-") if self._own_cache else arguments.cache
        os.makedirs(self._cache, mode=0o700, exist_ok=True)
        self._workers = Workers()

    def lines(self):
        return [f"serving device {name}" for name in self._arguments.device]

    def failures(self):
        return []

    def grpc_handlers(self):
        method = grpc.stream_stream_rpc_method_handler(self._use)
        return [grpc.method_handlers_generic_handler(SERVICE, {"Use": method})]

    def begin(self):
        self._workers.start()
        threading.Thread(target=self._let_idle_go, name="idle clients", daemon=True).start()

    def drain(self, seconds):
        """Answers what has been asked, within these seconds, and lets all clients go."""
        self._draining.set()
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                clients = list(self._clients)
            for client in clients:
                if not client.busy or time.monotonic() >= until:
                    client.end()
            if not clients:
                return
            self._closed.wait(0.05)

    def close(self):
        self._closed.set()
        self._workers.stop()
        if self._own_cache:
            shutil.rmtree(self._cache, ignore_errors=True)

    def _let_idle_go(self):
        while not self._closed.wait(1):
            now = time.monotonic()
            with self._lock:
                clients = list(self._clients)
            for client in clients:
                if not client.busy and now - client.since > self._arguments.idle_seconds:
                    client.end()

    def _settings(self, device):
        given = self._arguments
        lines = {
            "device": device,
            "memory": given.client_memory * MIB,
            "cache": self._cache,
            "cache_bytes": given.cache_size * MIB,
            "builds": int(given.allow_builds),
        }
        lines |= {f"option.{name}": value for name, value in self._options.items()}
        return lines

    def _admit(self, context):
        """The client of a new stream, with its worker."""
        asked = [value for key, value in context.invocation_metadata() if key == "tessera-device"]
        device = asked[0] if asked else self._arguments.device[0]
        if device not in self._turns:
            served = ", ".join(self._turns)
            context.abort(grpc.StatusCode.NOT_FOUND, f"no device '{device[:80]}' is served here; there are {served}")
        if self._draining.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, LET_GO)
        client = _Client(self, context, self._turns[device])
        with self._lock:
            full = len(self._clients) >= self._arguments.max_clients
            if not full:
                self._clients.add(client)
        if full:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the server has its {self._arguments.max_clients} clients (--max-clients); try again later",
            )
        try:
            client.begin(self._workers.new(self._settings(device)))
        except OSError as problem:
            self.forget(client)
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"no worker can be started: {problem.strerror}")
        return client

    def _use(self, requests, context):
        client = self._admit(context)
        try:
            for message in requests:
                yield from client.answer(message)
                if self._draining.is_set():
                    context.abort(grpc.StatusCode.UNAVAILABLE, LET_GO)
        finally:
            client.close()
            self.forget(client)

    def reserve(self, client, bytes_asked):
        """Whether a client may have so many bytes of device memory in place of what it had."""
        with self._lock:
            if self._reserved - client.reserved + bytes_asked > self._memory:
                return False
            self._reserved += bytes_asked - client.reserved
            client.reserved = bytes_asked
            return True

    def forget(self, client):
        self.reserve(client, 0)
        with self._lock:
            self._clients.discard(client)

    @property
    def run_seconds(self):
        return self._arguments.run_seconds or None


class _Client:
    """A stream and its worker. `answer` runs in the stream's thread; a thread of its own listens to the worker, so that
    a client that reads slowly holds no turn."""

    WAITING = 4  # replies that a client may leave unread before its worker waits

    def __init__(self, plugin, context, turns):
        self._plugin, self._context, self._turns = plugin, context, turns
        self._replies = queue.Queue(self.WAITING)
        self._gone = threading.Event()
        self._worker = None
        self.busy, self.since, self.reserved = False, time.monotonic(), 0

    def begin(self, worker):
        self._worker = worker
        if not self._context.add_callback(self._vanish):
            self._vanish()
        threading.Thread(target=self._listen, name="worker", daemon=True).start()

    def _vanish(self):
        """The stream has ended, however: the worker ends, and who waits for it."""
        self._gone.set()
        with contextlib.suppress(queue.Full):
            self._replies.put_nowait(None)
        self._turns.wake()
        self._worker.end()

    def end(self):
        self._context.cancel()

    def close(self):
        self._vanish()

    def answer(self, message):
        """The replies to one message. Errors: ends the stream when the worker has ended."""
        self.busy = True
        with contextlib.suppress(OSError):  # the listener says why
            self._worker.send(MESSAGE, message)
        while not self._gone.is_set():
            try:
                reply = self._replies.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(reply, bytes):
                yield reply
            elif reply is None:
                break
            else:
                self._context.abort(*reply)
        self.busy, self.since = False, time.monotonic()

    def _put(self, reply):
        while not self._gone.is_set():
            try:
                return self._replies.put(reply, timeout=0.5)
            except queue.Full:
                pass
        return None

    def _gone_while_waiting(self):
        """Whether the client has gone; what its worker says meanwhile, which is that it waits, goes to the client."""
        if self._worker.has_frame() and self._replies.empty():
            self._put(self._worker.receive()[1])
        return self._gone.is_set()

    def _listen(self):
        """Passes what the worker says on, until it or the client has ended."""
        turn_ends = None  # while the client has a turn: when it is over; infinite without a limit
        try:
            while not self._gone.is_set():
                kind, payload = self._worker.receive(turn_ends)
                if kind == REPLY:
                    if turn_ends is None:
                        self._put(payload)
                    elif self._replies.empty():
                        self._put(payload)  # progress: who does not read it misses it
                elif kind == DONE:
                    self._put(None)
                elif kind == TURN:
                    other = self._turns.take(self, self._gone_while_waiting)
                    if other is None:
                        return
                    limit = self._plugin.run_seconds
                    turn_ends = float("inf") if limit is None else time.monotonic() + limit
                    self._worker.send(GO, bytes([other]))
                elif kind == END:
                    self._turns.give()
                    turn_ends = None
                elif kind == MEMORY:
                    granted = self._plugin.reserve(self, int.from_bytes(payload, "little"))
                    self._worker.send(GO, bytes([granted]))
        except TimeoutError:
            self._put(
                (
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"the program has not ended in {self._plugin.run_seconds:g} seconds (--run-seconds of the server)",
                )
            )
        except (OSError, EOFError):
            self._put((grpc.StatusCode.ABORTED, "the worker of this client has ended; its device memory is lost"))
        finally:
            if turn_ends is not None:
                self._turns.give()
            self._worker.end()
            self._worker.close()

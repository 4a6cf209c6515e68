# SPDX-License-Identifier: Apache-2.0
"""Models of a repository by REST and gRPC, as a part of the server (server.py)."""

import asyncio
import contextlib
import dataclasses
import logging
import socket
import threading

import _tessera
import uvicorn

from ..errors import argument
from . import http_guard, rest
from .grpc_service import Service
from .metrics import Metrics
from .repository import NAMES, Repository
from .server import listener, split_address
from .store import Store


@dataclasses.dataclass(frozen=True)
class Limits:
    max_body: int
    max_held: int
    request_seconds: float
    read_seconds: float
    write_seconds: float


class Plugin:
    """Errors of construction: tessera.Error for a folder that is not there, and for an address that others reach and
    nothing guards."""

    def __init__(self, arguments, access):
        self._arguments = arguments
        for name in ("poll_seconds", "request_seconds", "read_seconds", "write_seconds", "max_held"):
            if not getattr(arguments, name) > 0:
                raise argument(f"--{name.replace('_', '-')} takes a number above 0, not {getattr(arguments, name)}")
        _tessera.shapes_of_ranges(arguments.shapes)  # errors of the command line before those of models
        defaults = {"device": arguments.model_device, "config": arguments.model_config, "prepare": arguments.shapes}
        repository = Repository(arguments.model_repository, defaults)
        self._metrics = Metrics()
        memory = None if arguments.model_memory is None else arguments.model_memory << 20
        self._store = Store(repository, self._metrics, memory, arguments.trusted_keys)
        self._host, self._port = split_address(arguments.http_listen)
        access.check_address(self._host)
        seconds = (arguments.request_seconds, arguments.read_seconds, arguments.write_seconds)
        limits = Limits(arguments.max_message << 20, arguments.max_held << 20, *seconds)
        controls = arguments.model_control == "explicit"
        application = rest.application(self._store, access, self._metrics, limits, controls)
        self._service = Service(self._store, self._metrics, limits, controls)
        self._uvicorn = uvicorn.Server(self._http_config(application, access))
        self._ended = threading.Event()
        self._threads = []

    def _http_config(self, application, access):
        given = self._arguments
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # clients' mistakes are answered, not written down
        return uvicorn.Config(
            application,
            http=http_guard.protocol(given.read_seconds, given.write_seconds, 4 * given.max_clients),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, round(given.read_seconds)),
            limit_concurrency=4 * given.max_clients,
            ssl_certfile=access.tls_cert,
            ssl_keyfile=access.tls_key,
        )

    def lines(self):
        models = sorted({row["name"] for row in self._store.index() if row["state"] == "READY"})
        return [f"models {', '.join(models) or '(none)'} with REST on {self._host}:{self._port}, with gRPC"]

    def failures(self):
        rows = [row for row in self._store.index() if row["state"] != "READY"]
        failed = [f"model {row['name']} is not served: {row['reason']}" for row in rows]
        return failed + [f"folder {name!r} is not served: {NAMES}" for name in self._store.misnamed()]

    def grpc_handlers(self):
        return [self._service]

    def begin(self):
        """Loads the models and listens. Errors: tessera.Error for an address that is taken."""
        listening = listener(self._host, self._port)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # of what it accepts, too
        self._port = listening.getsockname()[1]
        self._store.load_all(self._arguments.load_model)
        self._threads = [threading.Thread(target=self._serve_http, args=(listening,), name="http", daemon=True)]
        if self._arguments.model_control == "poll":
            self._threads.append(threading.Thread(target=self._poll, name="poll", daemon=True))
        for thread in self._threads:
            thread.start()

    def _serve_http(self, listening):
        asyncio.run(self._uvicorn.serve(sockets=[listening]))

    def _poll(self):
        while not self._ended.wait(self._arguments.poll_seconds):
            with contextlib.suppress(OSError):  # a folder that is away for a moment
                self._store.poll()

    def drain(self, seconds):
        self._ended.set()
        self._store.drain(seconds)
        self._uvicorn.should_exit = True
        self._uvicorn.config.timeout_graceful_shutdown = 1  # the answers are there; they have to be taken
        for thread in self._threads:
            thread.join(seconds)

    def close(self):
        self._ended.set()
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        self._service.close()

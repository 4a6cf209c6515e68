# SPDX-License-Identifier: Apache-2.0
"""One gRPC server for everything that a process serves.

A part of it (devices.py) is a module with `add_arguments(parser)`, `wanted(arguments)`, the text WAY for who asked for
nothing, and plugin(arguments, access), whose `lines()` say what it serves, `grpc_handlers()`, `begin()` before the
first call, `drain(seconds)`, in which what runs ends and nothing new begins, and `close()`."""

import concurrent.futures
import socket
import threading

import grpc

from ..errors import argument, error
from .access import Access

SPARE_THREADS = 16  # for calls that only find out that they are refused


def split_address(text):
    """HOST and PORT of "127.0.0.1:9190" or "[::1]:9190"."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise argument(f"--listen takes HOST:PORT, for example 127.0.0.1:9190 or [::1]:9190, not '{text}'")
    return host, int(port)


def listener(host, port):
    """A socket that listens there. Errors: tessera.Error for an address that cannot be taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=128)
    except OSError as problem:
        why = (problem.strerror or str(problem)).partition(" (while")[0]
        raise error("io", f"cannot listen on {host}:{port}: {why}; is another server there?") from None


class Server:
    """arguments: those of command.py. Errors: tessera.Error for an address that cannot be taken or must not be, and for
    files of TLS and tokens that cannot be read."""

    def __init__(self, arguments, parts):
        self.access = Access(arguments.tls_cert, arguments.tls_key, arguments.token_file)
        self._host, port = split_address(arguments.listen)
        self.access.check_address(self._host)
        self._parts = [part.plugin(arguments, self.access) for part in parts]
        bytes_of_message = arguments.max_message << 20
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(arguments.max_clients + SPARE_THREADS, "tessera-serve"),
            interceptors=[self.access.grpc_interceptor()],
            maximum_concurrent_rpcs=arguments.max_clients + SPARE_THREADS,
            options=[
                ("grpc.max_receive_message_length", bytes_of_message),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.so_reuseport", 0),
                # A peer that is gone without a word is noticed.
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ],
        )
        for part in self._parts:
            self._server.add_generic_rpc_handlers(tuple(part.grpc_handlers()))
        credentials = self.access.grpc_credentials()
        address = f"{self._host}:{port}"
        listener(self._host, port).close()  # gRPC would say on lines of its own why it cannot
        try:
            self.port = (
                self._server.add_secure_port(address, credentials)
                if credentials
                else self._server.add_insecure_port(address)
            )
        except RuntimeError:
            raise error("io", f"cannot listen on {address}; is another server there?") from None

    @property
    def address(self):
        return f"{self._host}:{self.port}"

    def lines(self):
        """What the server says of itself when it listens."""
        how = "TLS and tokens" if self.access.has_tls and self.access.has_tokens else "this machine alone"
        served = [f"{line} on {self.address} ({how})" for part in self._parts for line in part.lines()]
        return [line for part in self._parts for line in part.failures()] + served

    def start(self):
        for part in self._parts:
            part.begin()
        self._server.start()

    def stop(self, seconds):
        """What runs has so long to end; then it is ended."""
        stopped = self._server.stop(seconds)  # new calls are refused from here on
        drains = [threading.Thread(target=part.drain, args=(seconds,)) for part in self._parts]
        for thread in drains:
            thread.start()
        for thread in drains:
            thread.join()
        stopped.wait()
        for part in self._parts:
            part.close()

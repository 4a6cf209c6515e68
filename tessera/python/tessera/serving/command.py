# SPDX-License-Identifier: Apache-2.0
"""The command line of `tessera serve`."""

import argparse
import signal
import socket
import sys

import tessera.errors

from . import devices, models

PARTS = (devices, models)


def arguments(words):
    parser = argparse.ArgumentParser(
        prog="tessera serve",
        description="Serves devices to `--device remote:HOST:PORT` of other processes and machines, and models by "
        "the Open Inference Protocol.",
        epilog="Example: tessera serve --device sysc --listen 127.0.0.1:9190; tessera serve --model-repository models",
    )
    parser.add_argument("--listen", default="127.0.0.1:9190", help="HOST:PORT of gRPC; port 0 takes a free one")
    parser.add_argument("--tls-cert", help="certificate chain (PEM); needed where others can reach the address")
    parser.add_argument("--tls-key", help="private key of --tls-cert (PEM)")
    parser.add_argument("--token-file", help="bearer tokens, one a line, in a file that only its owner reads")
    parser.add_argument("--max-message", type=int, default=64, help="MiB of one message (64)")
    parser.add_argument("--max-clients", type=int, default=64, help="streams and calls at one moment (64)")
    parser.add_argument("--drain-seconds", type=float, default=30, help="for what runs when SIGTERM comes (30)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    for part in PARTS:
        part.add_arguments(parser)
    given = parser.parse_args(words)
    for name in ("max_message", "max_clients"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} takes a number from 1 on, not {getattr(given, name)}")
    if not given.drain_seconds >= 0:
        parser.error(f"--drain-seconds takes a number from 0 on, not {given.drain_seconds}")
    if not any(part.wanted(given) for part in PARTS):
        parser.error("nothing to serve: " + " or ".join(part.WAY for part in PARTS))
    return given


def ending():
    """A socket to read from when SIGTERM or SIGINT has come. A thread of gRPC may take the signal; a handler in
    Python would run only when the main thread wakes, so the interpreter itself writes to this socket."""
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reading


def main(words=None):
    given = arguments(words)
    from .server import Server  # needs gRPC, --help does not

    ended = ending()
    try:
        server = Server(given, [part for part in PARTS if part.wanted(given)])
        server.start()
    except tessera.Error as error:
        print(f"tessera: error ({error.code}): {error}", file=sys.stderr)
        return 1
    if not given.quiet:
        for line in server.lines():
            print(f"tessera: {line}", flush=True)
    ended.recv(1)
    server.stop(given.drain_seconds)
    return 0

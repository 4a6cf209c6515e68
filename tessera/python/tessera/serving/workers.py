# SPDX-License-Identifier: Apache-2.0
"""Worker processes, and the words between them and the server.

They are forked from a process that has one thread and has loaded nothing but _tessera, the nursery, so that a new one
is there in milliseconds. A worker ends when its socket is closed, in the midst of whatever it does."""

import array
import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

# Frames (driver/remote/frames.h): length and kind, then the payload.
HEADER = struct.Struct("<IB")
MESSAGE, GO = b"MG"  # to the worker: what the client says; yes (1) or no (0)
REPLY, DONE, TURN, END, MEMORY = b"RDTEB"  # from it: to the client; all replies; may I run; I have; may I reserve


class Worker:
    """The server's end of one worker. One thread receives, any sends."""

    def __init__(self, connection):
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, kind, payload):
        """Errors: OSError when the worker has ended."""
        with self._lock:
            self._socket.sendall(HEADER.pack(len(payload), kind))
            self._socket.sendall(payload)

    def receive(self, until=None):
        """The next frame: (kind, payload). Errors: EOFError when the worker has ended, TimeoutError when none comes
        before time.monotonic() is `until`."""
        length, kind = HEADER.unpack(self._exactly(HEADER.size, until))
        return kind, self._exactly(length, until)

    def _exactly(self, count, until):
        data = bytearray(count)
        view, have = memoryview(data), 0
        while have < count:
            left = None if until in (None, float("inf")) else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._wait(left)
            got = self._socket.recv_into(view[have:], 0, socket.MSG_DONTWAIT)
            if got == 0:
                raise EOFError
            have += got
        return bytes(data)

    def _wait(self, seconds):
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(None if seconds is None else seconds * 1000):
            raise TimeoutError

    def has_frame(self):
        """Whether receive() finds something."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def end(self):
        """The worker ends; receive() on another thread gets EOFError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._socket.close()


class Workers:
    """The nursery."""

    def __init__(self):
        self._lock = threading.Lock()
        self._process = self._socket = None

    def start(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import _tessera; _tessera.run_workers({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)),
                start_new_session=True,  # Ctrl-C in a terminal is for the server
            )
        self._socket = ours

    def new(self, settings):
        """A worker with these settings, a dict of texts and numbers. Errors: OSError when there is none."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        text = "\n".join(f"{name}={value}" for name, value in settings.items()).encode()
        with theirs, self._lock:
            descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
            try:
                self._socket.sendmsg([text], descriptors)
            except (OSError, AttributeError):  # it was killed: another one
                self.stop()
                self.start()
                self._socket.sendmsg([text], descriptors)
        return Worker(ours)

    def stop(self):
        """New ones cannot be had; those that are there end with their sockets."""
        if self._socket is not None:
            self._socket.close()
            self._process.wait(10)
            self._socket = None

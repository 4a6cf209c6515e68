# SPDX-License-Identifier: Apache-2.0
"""HTTP connections with limits: a request has to be whole in time, an answer has to be taken in time, and a header has
an end. A connection that does not keep them is dropped, so that a client that stalls holds nothing."""

import contextlib
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 64 << 10


def protocol(read_seconds, write_seconds, most_connections):
    """A protocol class for uvicorn. read_seconds: from the connection, or a request's first byte, to its last byte.
    write_seconds: for the client to take what is sent."""

    class Guarded(HttpToolsProtocol):
        _reading = _writing = _socket = None
        _header_bytes = 0
        _in_header = True

        def connection_made(self, transport):
            super().connection_made(transport)
            if len(self.connections) > most_connections:
                transport.abort()
                return
            self._socket = transport.get_extra_info("socket")
            # pause_writing tells of every byte that stays; a transport of TLS pauses at the limit, others above it.
            transport.set_write_buffer_limits(high=1 if self.scheme == "https" else 0)
            self._reading = self.loop.call_later(read_seconds, transport.abort)

        def connection_lost(self, exc):
            self._stop("_reading")
            self._stop("_writing")
            super().connection_lost(exc)

        def _stop(self, name):
            timer = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

        def data_received(self, data):
            if self._in_header:
                self._header_bytes += len(data)
            super().data_received(data)
            if self._in_header and self._header_bytes > MOST_HEADER_BYTES:
                self.transport.abort()
            if self._reading is not None:
                self._acknowledge()

        def _acknowledge(self):
            """At once, for clients that send a header and wait for it to arrive before they send the body."""
            with contextlib.suppress(OSError, AttributeError):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

        def on_message_begin(self):
            self._stop("_reading")
            self._reading = self.loop.call_later(read_seconds, self.transport.abort)
            self._in_header, self._header_bytes = True, 0
            super().on_message_begin()

        def on_headers_complete(self):
            self._in_header = False
            super().on_headers_complete()

        def on_message_complete(self):
            self._stop("_reading")
            self._in_header, self._header_bytes = True, 0
            super().on_message_complete()

        def pause_writing(self):
            self._stop("_writing")
            self._writing = self.loop.call_later(write_seconds, self.transport.abort)
            super().pause_writing()

        def resume_writing(self):
            self._stop("_writing")
            super().resume_writing()

    return Guarded

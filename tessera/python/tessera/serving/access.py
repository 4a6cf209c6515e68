# SPDX-License-Identifier: Apache-2.0
"""Who may speak to the server: TLS, bearer tokens, and the rule that a server without both listens on the loopback
interface alone."""

import hmac
import ipaddress
import os
import pathlib
import stat

import grpc

from ..errors import argument

SHORTEST_TOKEN = 16


def _read(path, what):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as problem:
        raise argument(f"cannot read the {what} '{path}': {problem.strerror}") from None


def _read_tokens(path):
    """The tokens of a file: one a line; lines that begin with # are comments."""
    tokens = [line.strip() for line in _read(path, "token file").splitlines()]
    tokens = [token for token in tokens if token and not token.startswith(b"#")]
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise argument(f"the token file '{path}' may be read by others than its owner; chmod 600 it")
    if not tokens:
        raise argument(
            f"the token file '{path}' holds no token; write one a line, for example of `openssl rand -hex 32`"
        )
    for token in tokens:
        if len(token) < SHORTEST_TOKEN or not all(33 <= byte <= 126 for byte in token):
            raise argument(
                f"the token file '{path}' has a token that is shorter than {SHORTEST_TOKEN} characters or has "
                "others than visible ASCII; `openssl rand -hex 32` makes a good one"
            )
    return tokens


class Access:
    """The rules of one server, from the files of the command line. Errors: tessera.Error for files that cannot be read,
    for a certificate without a key, and for tokens that are too short or open to others."""

    def __init__(self, tls_cert=None, tls_key=None, token_file=None):
        if (tls_cert is None) != (tls_key is None):
            raise argument(
                "--tls-cert and --tls-key go together: a certificate chain and its private key, as PEM files"
            )
        self.tls_cert, self.tls_key = tls_cert, tls_key
        self._chain = None if tls_cert is None else _read(tls_cert, "certificate")
        self._key = None if tls_key is None else _read(tls_key, "private key")
        self._tokens = [] if token_file is None else _read_tokens(token_file)

    @property
    def has_tls(self):
        return self._chain is not None

    @property
    def has_tokens(self):
        return bool(self._tokens)

    def grpc_credentials(self):
        """Credentials of a gRPC server, or None where it speaks in clear."""
        return grpc.ssl_server_credentials([(self._key, self._chain)]) if self.has_tls else None

    def permits(self, authorization):
        """Whether a request with this header `authorization` (text or None) may pass. Every token is compared, each in
        a time that does not depend on where it differs."""
        if not self._tokens:
            return True
        scheme, _, given = (authorization or "").strip().partition(" ")
        given = given.strip().encode("utf-8", "surrogateescape")
        found = False
        for token in self._tokens:
            found |= hmac.compare_digest(token, given)
        return found and scheme.lower() == "bearer"

    def check_address(self, host):
        """Errors: tessera.Error for an address that others reach, unless TLS and tokens guard it."""
        if self.has_tls and self.has_tokens:
            return
        try:
            loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            loopback = host == "localhost"
        if not loopback:
            raise argument(
                f"'{host}' can be reached by others, so the server needs --tls-cert, --tls-key and --token-file; "
                "without them it listens on 127.0.0.1 alone"
            )

    def grpc_interceptor(self):
        """Refuses calls without a token before any of their message is read."""
        return _Interceptor(self)


class _Interceptor(grpc.ServerInterceptor):
    def __init__(self, access):
        self._access = access

        def refuse(_requests, context):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, REFUSAL)

        # Of a stream, so that no message is taken from the wire.
        self._refusal = grpc.stream_stream_rpc_method_handler(refuse)

    def intercept_service(self, continuation, details):
        given = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        if self._access.permits(given[0] if given and isinstance(given[0], str) else None):
            return continuation(details)
        return self._refusal


REFUSAL = "no token of this server came with the request; send the header 'authorization: Bearer TOKEN'"

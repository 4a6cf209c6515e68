# SPDX-License-Identifier: Apache-2.0
"""Who may speak to `tessera serve`: token files, the loopback rule, the interceptor of gRPC."""

from concurrent import futures

import pytest

import tessera

grpc = pytest.importorskip("grpc", reason="the Python package grpcio is missing; ./dev setup installs it")
from tessera.serving.access import Access  # noqa: E402

TOKEN = "f" * 32


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# the first client's\n{TOKEN}\n\nsecond-0123456789\n")
    path.chmod(0o600)
    return path


def test_tokens(token_file):
    access = Access(token_file=token_file)
    assert access.permits(f"Bearer {TOKEN}") and access.permits("bearer second-0123456789")
    for wrong in (None, "", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}f", f"Bearer {TOKEN[:-1]}", "Bearer #", TOKEN):
        assert not access.permits(wrong), wrong
    assert not access.permits("Bearer \udcff\u00e4")
    assert Access().permits(None)


@pytest.mark.parametrize(
    "text, mode, cause",
    [("", 0o600, "holds no token"), ("short\n", 0o600, "shorter than 16"), (TOKEN, 0o644, "chmod 600"),
     ("a token with blanks in it\n", 0o600, "visible ASCII")],
)  # fmt: skip
def test_bad_token_files(tmp_path, text, mode, cause):
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(tessera.Error, match=cause):
        Access(token_file=path)


def test_files_that_are_missing(tmp_path):
    with pytest.raises(tessera.Error, match="cannot read the token file"):
        Access(token_file=tmp_path / "none")
    with pytest.raises(tessera.Error, match="go together"):
        Access(tls_cert=tmp_path / "none")


def test_without_guards_the_server_stays_on_loopback(token_file):
    for host in ("127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost"):
        Access().check_address(host)
    for access in (Access(), Access(token_file=token_file)):
        for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
            with pytest.raises(tessera.Error, match="--tls-cert"):
                access.check_address(host)


def test_the_interceptor_refuses_before_it_reads(token_file):
    seen = []

    class Echo(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: seen.append(request) or request)

    server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=[Access(token_file=token_file).grpc_interceptor()])
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.B/C")
        assert call(b"x", metadata=(("authorization", f"Bearer {TOKEN}"),)) == b"x"
        for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization-bin", TOKEN.encode()),)):
            with pytest.raises(grpc.RpcError) as refused:
                call(b"y", metadata=metadata)
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    server.stop(0)
    assert seen == [b"x"]

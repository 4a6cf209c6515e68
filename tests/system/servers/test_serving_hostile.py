# SPDX-License-Identifier: Apache-2.0
"""Clients of `tessera serve --model-repository` that mean harm or are broken: nothing is lost for the others, nothing
is let in, and memory and descriptors stay what they were."""

import concurrent.futures
import contextlib
import json
import os
import socket
import struct
import threading
import time

import numpy as np
import pytest
from onnx import TensorProto

from tests.system import serving

for package in serving.PACKAGES:
    pytest.importorskip(package, reason=f"the Python package {package} is missing; ./dev setup installs it")
import grpc  # noqa: E402

from tessera.serving import wire  # noqa: E402

LONG = os.environ.get("TESSERA_LONG") == "1"
INFER = "/inference.GRPCInferenceService/ModelInfer"
READ_SECONDS = 1


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    serving.put(root, "digits", serving.digits(), settings="[batching]\nmax_batch = 8\n")
    serving.put(root, "echo", serving.echo(TensorProto.UINT8, ["n"]))
    serving.put(root, "counting", serving.counting())
    return root


@pytest.fixture(scope="module")
def server(repository):
    limits = ("--max-message", 16, "--read-seconds", READ_SECONDS, "--write-seconds", 1, "--request-seconds", 30)
    with serving.Server(repository, *limits) as running:
        yield running


@pytest.fixture
def patient(repository):
    """A server that keeps a connection for as long as a busy machine may leave it alone."""
    with serving.Server(repository, "--read-seconds", 60) as running:
        yield running


@pytest.fixture(scope="module")
def expected():
    return serving.in_process(serving.digits(), {"image": serving.images()[:16]})["logits"]


def connected(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def body_of(array, name, datatype):
    """JSON and binary data of a request whose answer is binary, and its headers."""
    tensor = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    tensor["parameters"] = {"binary_data_size": array.nbytes}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + array.tobytes(), {"Inference-Header-Content-Length": len(head)}


def request_of(model, body, headers=(), length=None):
    """The bytes of a request."""
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: server", f"Content-Length: {length or len(body)}"]
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer_of(connection):
    """Status and body of what comes back; status 0 when the server has hung up."""
    got = b""
    while b"\r\n\r\n" not in got:
        some = connection.recv(65536)
        if not some:
            return 0, got
        got += some
    head, _, body = got.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", 0)):
        some = connection.recv(65536)
        if not some:
            break
        body += some
    return int(head.split()[1]), body


def classify(server, at):
    body, headers = body_of(serving.images()[at : at + 1], "image", "FP32")
    with connected(server.http) as connection:
        connection.sendall(request_of("digits", body, headers))
        status, answer = answer_of(connection)
    assert status == 200, answer
    return np.frombuffer(answer[-40:], np.float32)


def message_of(model, name, array, datatype):
    message = wire.message("ModelInferRequest")(model_name=model)
    message.inputs.add(name=name, datatype=datatype, shape=array.shape)
    message.raw_input_contents.append(array.tobytes())
    return message.SerializeToString()


@contextlib.contextmanager
def calling(server, method=INFER):
    """A call of gRPC with bytes in and out."""
    with grpc.insecure_channel(server.grpc, options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield channel.unary_unary(method)


def classify_by_grpc(server, at):
    with calling(server) as call:
        answer = call(message_of("digits", "image", serving.images()[at : at + 1], "FP32"), timeout=30)
    return np.frombuffer(wire.message("ModelInferResponse").FromString(answer).raw_output_contents[0], np.float32)


@contextlib.contextmanager
def undisturbed(server, expected):
    """While the block runs others get their answers; after it the server holds no more than before."""
    before, stop, wrong = server.descriptors, threading.Event(), []

    def ask(function):
        at = 0
        while not stop.is_set():
            at = (at + 1) % 16
            try:
                if not np.array_equal(function(server, at), expected[at]):
                    wrong.append("a wrong answer")
            except Exception as problem:
                wrong.append(problem)
            time.sleep(0.01)

    threads = [threading.Thread(target=ask, args=(function,)) for function in (classify, classify_by_grpc)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]
    serving.eventually(lambda: server.descriptors <= before + 1, 20)


def test_truncated_requests(server, expected):
    body, headers = body_of(serving.images()[:1], "image", "FP32")
    whole = request_of("digits", body, headers)
    message = message_of("digits", "image", serving.images()[:1], "FP32")
    with undisturbed(server, expected):
        for end in range(1, len(whole), len(whole) // 40):
            with connected(server.http) as connection:
                connection.sendall(whole[:end])
                connection.shutdown(socket.SHUT_WR)
                assert answer_of(connection)[0] in (0, 400)
        with calling(server) as call:
            for end in range(1, len(message), len(message) // 20):
                with pytest.raises(grpc.RpcError) as problem:
                    call(message[:end], timeout=10)
                assert problem.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


def test_requests_that_are_too_large(server, expected):
    with undisturbed(server, expected):
        with connected(server.http) as connection:  # refused by its header, before the body
            connection.sendall(request_of("echo", b"", length=17 << 20))
            status, answer = answer_of(connection)
            assert status == 413 and b"--max-message" in answer
        with connected(server.http) as connection:  # a length that no integer of a machine holds
            connection.sendall(request_of("echo", b"", length=10**30))
            assert answer_of(connection)[0] in (0, 400, 413)
        with connected(server.http) as connection:  # without a length, until it is too much
            connection.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
            with contextlib.suppress(OSError):
                for _ in range(18):
                    connection.sendall(chunk)
            with contextlib.suppress(ConnectionError):
                assert answer_of(connection)[0] == 413
        with connected(server.http) as connection:  # a header without an end
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /v2 HTTP/1.1\r\n")
                for at in range(20_000):
                    connection.sendall(b"X-%d: %s\r\n" % (at, b"a" * 100))
            with contextlib.suppress(ConnectionError):
                assert answer_of(connection)[0] in (0, 400, 431)
        with calling(server) as call:
            with pytest.raises(grpc.RpcError) as problem:
                call(message_of("echo", "x", np.zeros(17 << 20, np.uint8), "UINT8"), timeout=30)
            assert problem.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_slow_senders_are_dropped(server, expected):
    """A byte now and then, in the header and in the body, and connections that say nothing."""
    body, headers = body_of(serving.images()[:1], "image", "FP32")
    whole = request_of("digits", body, headers)
    with undisturbed(server, expected), contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(server.http)) for _ in range(30)]
        begun = time.monotonic()
        alive = set(slow)
        while alive and time.monotonic() < begun + 10 * READ_SECONDS:
            for at, connection in enumerate(slow):
                with contextlib.suppress(OSError):
                    connection.send(whole[:1] if at % 3 else b"")
            for connection in list(alive):
                connection.settimeout(0.01)
                try:
                    if connection.recv(1000) == b"":
                        alive.discard(connection)
                except TimeoutError:
                    pass
                except OSError:
                    alive.discard(connection)
        assert not alive


def test_slow_senders_of_grpc_are_ended(server, expected):
    """More calls than the server has threads, of which none sends its message."""
    with undisturbed(server, expected), contextlib.ExitStack() as stack:
        release, calls = threading.Event(), []
        for _ in range(6):
            channel = stack.enter_context(grpc.insecure_channel(server.grpc))
            call = channel.stream_unary(INFER)

            def nothing():
                release.wait(20)
                yield from ()

            calls += [call.future(nothing()) for _ in range(10)]
        codes = [call.code() for call in calls]
        release.set()
        assert set(codes) <= {grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_slow_readers_are_dropped(server, expected):
    """Answers of 8 MB that nobody takes."""
    array = np.zeros(8 << 20, np.uint8)
    body, headers = body_of(array, "x", "UINT8")
    with undisturbed(server, expected), contextlib.ExitStack() as stack:
        slow = []
        for _ in range(4):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(30)
            host, _, port = server.http.rpartition(":")
            connection.connect((host, int(port)))
            slow.append(stack.enter_context(connection))
            connection.sendall(request_of("echo", body, headers))
        time.sleep(2.5)
        for connection in slow:
            got = 0
            with contextlib.suppress(OSError):
                while some := connection.recv(1 << 20):
                    got += len(some)
            assert got < len(array)


def test_what_is_not_http_and_not_grpc(server, expected):
    rng = np.random.default_rng(7)
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with undisturbed(server, expected):
        for address in (server.http, server.grpc):
            for at in range(60):
                with connected(address) as connection, contextlib.suppress(OSError):
                    noise = rng.bytes(int(rng.integers(1, 3000)))
                    frame = struct.pack(">I", int(rng.integers(1, 1 << 24)))[1:] + bytes([at % 12, at % 7])
                    connection.sendall(greeting + frame + noise if at % 2 else noise)


def test_clients_that_vanish(server, expected):
    """Some while their request waits, some while it runs; the model goes on with the next."""
    times = np.array([20_000], np.int64)
    body, headers = body_of(times, "times", "INT64")
    with undisturbed(server, expected):
        for _ in range(30):
            with connected(server.http) as connection:
                connection.sendall(request_of("counting", body, headers))
        with calling(server) as call:
            for _ in range(10):
                call.future(message_of("counting", "times", times, "INT64")).cancel()
        with calling(server) as call:
            answer = call(message_of("counting", "times", times, "INT64"), timeout=30)
        (counted,) = wire.message("ModelInferResponse").FromString(answer).raw_output_contents
        assert counted == times.tobytes()


def test_fifty_at_once(server, expected):
    with undisturbed(server, expected), concurrent.futures.ThreadPoolExecutor(50) as pool:
        for function in (classify, classify_by_grpc):
            answers = list(pool.map(lambda at, ask=function: ask(server, at % 16), range(150)))
            assert all(np.array_equal(answer, expected[at % 16]) for at, answer in enumerate(answers))


@pytest.mark.parametrize("where", ["name", "id", "output"])
def test_half_a_character_in_a_name(server, expected, where):
    """JSON may escape a surrogate alone, which no UTF-8 has."""
    image = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}
    request = {"inputs": [image]}
    if where == "name":
        image["name"] = "\ud800"
    elif where == "output":
        request["outputs"] = [{"name": "\ud800"}]
    else:
        request["id"] = "\ud800"
    with undisturbed(server, expected), connected(server.http) as connection:
        connection.sendall(request_of("digits", json.dumps(request).encode(), {}))
        status, answer = answer_of(connection)
        assert status == (200 if where == "id" else 400), answer


def test_altered_requests_are_answered_or_refused(server, expected):
    """Bytes of good requests changed, taken away and doubled: there is an answer or a refusal, never a failure."""
    rng = np.random.default_rng(11)

    def altered(data):
        data = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(len(data)))
            kind = int(rng.integers(3))
            if kind == 0:
                data[at] = int(rng.integers(256))
            elif kind == 1:
                del data[at : at + int(rng.integers(1, 9))]
            else:
                data[at:at] = data[at : at + int(rng.integers(1, 9))]
        return bytes(data)

    body, headers = body_of(serving.images()[:1], "image", "FP32")
    message = message_of("digits", "image", serving.images()[:1], "FP32")
    allowed = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED}
    with undisturbed(server, expected), calling(server) as call:
        for _ in range(3000 if LONG else 300):
            with connected(server.http) as connection:
                connection.sendall(request_of("digits", altered(body), headers))
                status, answer = answer_of(connection)
                assert status in (200, 400, 404), answer
            try:
                call(altered(message), timeout=10)
            except grpc.RpcError as problem:
                assert problem.code() in allowed, problem


def test_memory_and_descriptors_stay_flat(patient, expected):
    """2,000 requests (100,000 with --long), good and bad, on new connections and on old ones."""
    bad = request_of("digits", b'{"inputs": [{"name": "image", "datatype": "FP32", "shape": [1], "data": ["x"]}]}')
    body, headers = body_of(serving.images()[:1], "image", "FP32")
    good = request_of("digits", body, headers)
    message = message_of("digits", "image", serving.images()[:1], "FP32")

    def some(count):
        with calling(patient) as call, connected(patient.http) as kept:
            for at in range(count):
                if at % 4 == 0:
                    assert np.array_equal(classify(patient, at % 16), expected[at % 16])
                elif at % 4 == 1:
                    kept.sendall(bad)
                    assert answer_of(kept)[0] == 400
                elif at % 4 == 2:
                    kept.sendall(good)
                    assert answer_of(kept)[0] == 200
                else:
                    call(message, timeout=10)

    some(600)
    descriptors, memory = patient.descriptors, patient.resident_bytes
    some(100_000 if LONG else 2000)
    serving.eventually(lambda: patient.descriptors <= descriptors + 1)
    assert patient.resident_bytes < memory + (6 << 20)

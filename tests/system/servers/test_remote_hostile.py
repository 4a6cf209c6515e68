# SPDX-License-Identifier: Apache-2.0
"""Clients that are wrong, slow, gone, many or evil: whoever else uses the server loses nothing, nobody gets in who must
not, nobody reads what others have, and the server does not grow."""

import os
import random
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

import tessera
from tests.system import remote_server as serving
from tests.system.servers.test_remote import SIMULATED_BOARD, convolutions, message_of

grpc = serving.needs_grpc()
LONG = bool(os.environ.get("TESSERA_LONG"))
ENDLESS = "gemm extent=4000,4000,4000,4000,4000,4000 signal\nfinish wait=gemm:1\n"
KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(scope="module")
def network():
    data, feeds = convolutions(2)
    return data, feeds, tessera.Session(data, "fsim", "npu64").run(None, feeds)[0]


@pytest.fixture(scope="module")
def server():
    with serving.Server("--device", "fsim", "--max-message", 4) as server:
        yield server


@pytest.fixture
def others(server, network):
    """A client that was there before, and goes on when the test has done its worst."""
    data, feeds, want = network
    session = tessera.Session(data, server.device, "npu64")
    assert np.array_equal(session.run(None, feeds)[0], want)
    yield session
    assert np.array_equal(session.run(None, feeds)[0], want)
    assert np.array_equal(tessera.Session(data, server.device, "npu64").run(None, feeds)[0], want)


def until(condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "this does not come"
        time.sleep(0.02)


def came(server, before):
    """The workers that were not there before, once there are any. Of earlier clients some may be about to end."""
    until(lambda: set(server.workers()) - before)
    return set(server.workers()) - before


def went(server, workers):
    until(lambda: not workers & set(server.workers()))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key, tokens) of a server, and a certificate of somebody else."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "other"):
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tessera"]
        words += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        words += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run(words, check=True, capture_output=True)
    (folder / "tokens").write_text("# of the test\nfirst-token-0123456789\nsecond-token-0123456789\n")
    (folder / "tokens").chmod(0o600)
    (folder / "wrong").write_text("wrong-token-0123456789\n")
    return folder


def test_tls_and_tokens(certificate, network, monkeypatch):
    data, feeds, want = network
    words = ["--tls-cert", certificate / "server.pem", "--tls-key", certificate / "server.key"]
    words += ["--token-file", certificate / "tokens", "--device", "fsim"]
    with serving.Server(*words, listen="0.0.0.0:0") as server:
        device = "remote:127.0.0.1:" + server.address.rpartition(":")[2]

        def refused(pattern, **options):
            with pytest.raises(tessera.Error, match=pattern):
                tessera.Session(data, device, "npu64", device_options=options)
            assert not server.workers()

        trusted = {"ca": certificate / "server.pem"}
        refused("cannot be reached: .*with this certificate", ca=certificate / "other.pem")
        refused("cannot be reached|is lost|has ended")  # in clear
        refused("refuses this client: .*token-file=FILE or TESSERA_REMOTE_TOKEN", **trusted)
        refused("refuses this client", **trusted, **{"token-file": certificate / "wrong"})
        credentials = grpc.ssl_channel_credentials((certificate / "server.pem").read_bytes())
        address = device.removeprefix("remote:")
        for value in (
            "Bearer",
            "Bearer ",
            "first-token-0123456789",
            "Basic first-token-0123456789",
            "Bearer first-token-01",
        ):
            with serving.Client(address, [("authorization", value)], credentials) as client:
                with pytest.raises(grpc.RpcError) as caught:
                    client.open()
                assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert not server.workers()
        options = {**trusted, "token-file": certificate / "tokens"}
        session = tessera.Session(data, device, "npu64", device_options=options)
        assert np.array_equal(session.run(None, feeds)[0], want)
        monkeypatch.setenv("TESSERA_REMOTE_CA", str(certificate / "server.pem"))
        monkeypatch.setenv("TESSERA_REMOTE_TOKEN", "second-token-0123456789")
        assert np.array_equal(tessera.Session(data, device, "npu64").run(None, feeds)[0], want)


def test_bytes_that_are_no_protocol(server, others):
    host, port = server.address.split(":")
    random.seed(1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for garbage in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        random.randbytes(70_000),
        preface + random.randbytes(5_000),
        preface[:9],
        preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x00",  # a frame of 16 MiB that never comes
        b"",
    ):
        with socket.create_connection((host, int(port))) as wire:
            try:
                wire.sendall(garbage)
                wire.settimeout(0.05)
                wire.recv(100)
            except OSError:
                pass


def test_messages_that_are_wrong(server, others):
    random.seed(2)
    request = serving.message("Request")
    whole = request(open={"protocol": 2, "machine": serving.machine()}).SerializeToString()
    with serving.Client(server.address) as client:
        for length in range(1, len(whole), 7):
            assert client.ask(whole[:length]).WhichOneof("kind") == "failure"
        for _ in range(40):
            reply = client.ask(random.randbytes(random.randrange(1, 300)))
            assert reply.WhichOneof("kind") in ("failure", "opened")
        assert "a request that this server does not know" in client.ask(b"").failure.text


def test_requests_that_are_wrong(server, others, tmp_path):
    huge = (1 << 63) + 5
    with serving.Client(server.address) as client:
        assert "the first request opens the device" in client.ask(read={"address": 0, "bytes": 1}).failure.text
        client.open()
        assert "the device is open" in client.open().failure.text
        a = client.allocate(4096)
        for wrong in (
            {"read": {"address": a, "bytes": huge}},
            {"read": {"address": a + 1, "bytes": 4096}},
            {"read": {"address": huge, "bytes": 16}},
            {"allocate": {"bytes": huge, "alignment": 64}},
            {"allocate": {"bytes": 64, "alignment": 3}},
            {"offer": {"address": a, "bytes": huge, "digest": b"x" * 32}},
            {"run": {"program_address": a, "instruction_count": (1 << 32) - 1, "bases": [a] * 16}},
            {"run": {"program_address": a, "instruction_count": 1, "bases": [a] * 3}},
            {"run": {"program_address": a + 4, "instruction_count": 1, "bases": [a] * 16}},
            {"run": {"program_address": huge, "instruction_count": 1, "bases": [a] * 16}},
        ):
            assert client.ask(**wrong).WhichOneof("kind") == "failure", wrong
        for late in (  # told with the next reply
            {"write": {"address": a + 4000, "data": b"x" * 200}},
            {"copy": {"to": a, "from": a, "bytes": huge}},
            {"copy": {"to": huge, "from": a, "bytes": 1}},
            {"free": a + 64},
            {"keep": {"address": a, "bytes": huge, "digest": b"x" * 32}},
        ):
            client.send(**late)
            assert client.ask(read={"address": a, "bytes": 16}).WhichOneof("kind") == "failure", late
        # And still it works.
        assert message_of(client.ask(run=client.load(serving.assemble("finish\n", tmp_path))).report).fault_code == 0
        # More than --max-message ends the stream that says it.
        client.send(write={"address": a, "data": bytes(5 * MIB)})
        with pytest.raises(grpc.RpcError) as caught:
            client.ask(read={"address": a, "bytes": 16})
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def all_of(client, address, count):
    data = b""
    client.send(read={"address": address, "bytes": count})
    while True:
        piece = client.reply().data
        data += piece.data
        if piece.last:
            return data


def peek(client, folder):
    """A program that copies what lies in the scratchpad and far around its memory to its own memory, where it may."""
    to = client.allocate(64 * KIB)
    found = b""
    for offset in (0, 1 << 20, 1 << 30, (1 << 36) - 4096):
        words = serving.assemble(f"load base=1 dram_offset={offset} length=1024 signal\nfinish wait=load:1\n", folder)
        place = client.load(words)
        place["bases"] = [to, 0x1_0000_0000, *place["bases"][2:]]
        client.ask(run=place)
    store = "store space=out length=1024 signal\nfinish wait=store:1\n"
    place = client.load(serving.assemble(store, folder))
    place["bases"] = [to] * 16
    client.ask(run=place)
    found += all_of(client, to, 64 * KIB)
    return found


def test_nobody_reads_what_others_have(server, others, tmp_path):
    secret = b"do not tell anybody!" * 3000
    with serving.Client(server.address) as owner, serving.Client(server.address) as thief:
        owner.open()
        at = owner.allocate(len(secret))
        owner.send(write={"address": at, "data": secret})
        key = serving.message("Content")(address=at, bytes=len(secret), digest=blake2b(secret))
        assert owner.ask(offer=key).offered.challenge == b""
        owner.send(keep=key)
        assert all_of(owner, at, len(secret)) == secret
        thief.open()
        mine = thief.allocate(len(secret))
        assert mine == at  # the same number, and other memory
        assert secret[:20] not in all_of(thief, mine, len(secret)) + peek(thief, tmp_path)
        # Who knows only the digest of bytes does not get them.
        for proof in (b"", blake2b(secret), b"x" * 32):
            assert len(thief.ask(offer=key).offered.challenge) == 32
            assert not thief.ask(proof=proof).offered.placed
        assert not thief.ask(proof=b"").offered.placed  # nothing is offered
        assert secret[:20] not in all_of(thief, mine, len(secret))
        # Who has them need not send them.
        challenge = thief.ask(offer=key).offered.challenge
        assert thief.ask(proof=blake2b(secret, challenge)).offered.placed
        assert all_of(thief, mine, len(secret)) == secret
        # What is kept under a digest has it.
        lie = serving.message("Content")(address=mine, bytes=len(secret), digest=b"l" * 32)
        thief.send(keep=lie)
        assert thief.ask(offer=lie).offered.challenge == b""


def blake2b(data, key=b""):
    import hashlib

    return hashlib.blake2b(data, digest_size=32, key=key).digest()


@pytest.mark.skipif(not SIMULATED_BOARD, reason="this build has no simulated board")
def test_nobody_reads_what_others_had_on_a_card(tmp_path):
    words = [serving.BUILD / "bin" / "tessera", "board", "--config", "npu64", "--"]
    secret = b"do not tell anybody!" * 2000
    with serving.Server("--device", "xrt", wrapper=words) as server:
        for _ in range(2):
            with serving.Client(server.address) as client:
                client.open(memory_bytes=MIB)
                at = client.allocate(len(secret))
                assert set(all_of(client, at, len(secret))) == {0}
                client.send(write={"address": at, "data": secret})
                # Scratchpads are clear for who comes new, and then hold what the client's own programs have left.
                left = client.allocate(4096)
                for text, want in (("store space=out base=1", bytes(4096)), ("load space=out", None),
                                   ("store space=out base=1", secret[:4000] + bytes(96))):  # fmt: skip
                    place = client.load(serving.assemble(f"{text} length=4000\nfinish\n", tmp_path))
                    place["bases"] = [at, left, *[0] * 14]
                    assert message_of(client.ask(run=place).report).fault_code == 0
                    assert want is None or all_of(client, left, 4096) == want
                # Below and above its part of the card's memory is nothing for its programs.
                for base in (at - 4096, at + MIB + 4096):
                    place = client.load(serving.assemble("load length=1024 signal\nfinish wait=load:1\n", tmp_path))
                    place["bases"] = [base] * 16
                    assert message_of(client.ask(run=place).report).fault_code != 0


def test_who_reads_slowly_holds_nobody_up(server, others, network, tmp_path):
    data, feeds, want = network
    before = server.resident_kib()
    with serving.Client(server.address) as slow:
        slow.open()
        at = slow.allocate(64 * MIB)
        place = slow.load(serving.assemble("finish\n", tmp_path))
        for _ in range(8):  # half a gigabyte of replies, and nobody takes them
            slow.send(read={"address": at, "bytes": 64 * MIB})
            slow.send(run=place)
        session = tessera.Session(data, server.device, "npu64")
        for _ in range(5):
            assert np.array_equal(session.run(None, feeds)[0], want)
        assert server.resident_kib() - before < 64 * KIB
        assert len(all_of(slow, at, 64 * MIB)) == 64 * MIB  # and it gets what it asked for


def test_who_vanishes_leaves_nothing(server, others, network, tmp_path):
    words = serving.assemble(ENDLESS, tmp_path)
    for way in ("cancel", "kill"):
        before = set(server.workers())
        line = serving.Line(server.address)
        client = serving.Client(line.address if way == "kill" else server.address)
        try:
            client.open()
            client.send(run=client.load(words))
            mine = came(server, before)
            time.sleep(0.2)  # it computes
            if way == "kill":
                line.__exit__()
        finally:
            client.close()  # else its program would have the turn for ever
            line.__exit__()
        went(server, mine)
        data, feeds, want = network
        assert np.array_equal(tessera.Session(data, server.device, "npu64").run(None, feeds)[0], want)


def test_a_worker_that_dies_and_a_nursery(server, others, network):
    data, feeds, want = network
    before = set(server.workers())
    session = tessera.Session(data, server.device, "npu64")
    (worker,) = set(server.workers()) - before
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(tessera.Error, match="the worker of this client has ended; its device memory is lost; open"):
        session.run(None, feeds)
    (nursery,) = serving.children(server.process.pid)
    os.kill(nursery, signal.SIGKILL)
    time.sleep(0.1)
    assert np.array_equal(tessera.Session(data, server.device, "npu64").run(None, feeds)[0], want)


def test_fifty_at_once(server, others):
    """Each with a network of its own; half of them run into a fault or leave in the midst of it."""
    models = [convolutions(1 + n % 3, channels=8, extent=4 + n) for n in range(10)]
    wants = [tessera.Session(data, "fsim", "npu64").run(None, feeds)[0] for data, feeds in models]
    workers, failures = len(server.workers()), []
    start = threading.Barrier(50)

    def honest(number):
        data, feeds = models[number % 10]
        start.wait()
        session = tessera.Session(data, server.device, "npu64", device_options={"silence": 120})
        for _ in range(4):
            assert np.array_equal(session.run(None, feeds)[0], wants[number % 10])

    def wrong(number):
        start.wait()
        with serving.Client(server.address) as client:
            client.open()
            at = client.allocate(4096)
            for _ in range(1 + number % 3):  # zeros are no program
                run = {"program_address": at, "instruction_count": 2, "bases": [at] * 16}
                assert message_of(client.ask(run=run).report).fault_code != 0
            client.send(run=run)  # and it leaves before the answer

    def guarded(number):
        try:
            (wrong if number % 2 else honest)(number)
        except BaseException as problem:
            failures.append(f"{number}: {problem!r}")

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    until(lambda: len(server.workers()) == workers)


def test_limits_on_clients_and_memory(network):
    data, _, _ = network
    with serving.Server("--device", "fsim", "--max-clients", 2, "--memory", 200, "--client-memory", 150) as server:

        def refused(pattern, **options):
            with pytest.raises(tessera.Error, match=pattern) as caught:
                tessera.Session(data, server.device, "npu64", device_options=options)
            assert caught.value.code == "does_not_fit"

        def opened(**options):
            """A session, as soon as who was there before has gone."""
            end = time.monotonic() + 15
            while True:
                try:
                    return tessera.Session(data, server.device, "npu64", device_options=options)
                except tessera.Error as error:
                    assert error.code == "does_not_fit" and time.monotonic() < end
                    time.sleep(0.05)

        refused("this server gives a client from 1 to 157286400", memory="151M")
        first = opened()
        refused("the server's clients have its memory|the server has its 2 clients")
        second = opened(memory="64M")
        refused("the server has its 2 clients")
        del first, second
        opened()
        until(lambda: not server.workers())


def test_idle_clients_are_let_go(network):
    data, feeds, _ = network
    with serving.Server("--device", "fsim", "--idle-seconds", 1) as server:
        session = tessera.Session(data, server.device, "npu64")
        until(lambda: not server.workers())
        with pytest.raises(tessera.Error, match="has ended the connection"):
            session.run(None, feeds)


def test_the_server_does_not_grow(network):
    """2,000 requests, or 100,000 with --long: runs of clients that stay, and clients that come and go."""
    data, feeds, want = network
    runs, clients = (60_000, 2_000) if LONG else (1_200, 60)
    with serving.Server("--device", "fsim") as server:

        def some(runs, clients):
            session = tessera.Session(data, server.device, "npu64")
            for _ in range(runs):
                assert np.array_equal(session.run(None, feeds)[0], want)
            for number in range(clients):
                with serving.Client(server.address) as client:
                    client.open()
                    at = client.allocate(4096)
                    for _ in range(10 if number % 2 else 20):
                        client.send(write={"address": at, "data": b"x" * 4096})
                        client.ask(read={"address": at, "bytes": 4096})
            del session
            until(lambda: not server.workers())

        def settled():
            until(lambda: server.threads() == threads, 30) if threads else time.sleep(1)
            return server.descriptors(), server.resident_kib()

        threads = 0
        some(runs // 4, clients // 4)
        descriptors, memory = settled()
        some(runs, clients)
        after, grown = settled()
        assert after <= descriptors + 2, (descriptors, after)
        assert grown - memory < 8 * KIB, (memory, grown)

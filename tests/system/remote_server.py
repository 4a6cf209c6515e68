# SPDX-License-Identifier: Apache-2.0
"""A server of devices in a process of its own, as a user starts it, and a client that speaks its protocol by hand, so
that it can say what the client of the project never says."""

import contextlib
import functools
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

from tests.system.conftest import BUILD, ROOT

HAS_PLUGIN = (BUILD / "lib/tessera/libtessera_grpc.so").exists()


def needs_grpc():
    """Skips a test module where gRPC is missing, on either side."""
    grpc = pytest.importorskip("grpc", reason="no gRPC for Python here (requirements-serve.txt)")
    if not HAS_PLUGIN:
        pytest.skip("this build has no gRPC (libgrpc++-dev is missing)", allow_module_level=True)
    return grpc


def environment(**more):
    paths = [str(ROOT), str(ROOT / "tessera" / "python"), str(BUILD / "lib")]
    keep = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_REMOTE")}
    return {**keep, "PYTHONPATH": os.pathsep.join(paths), **more}


class Server:
    """`tessera serve` with these words, on a free port."""

    def __init__(self, *words, listen="127.0.0.1:0", env=None, wrapper=()):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        self.process = subprocess.Popen(
            [*map(str, wrapper), sys.executable, "-m", "tessera.serving", "--listen", listen, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=env or environment(),
        )
        line = self.process.stdout.readline()
        assert " on " in line, f"the server does not start: {line}{self.errors()}"
        self.address = line.split(" on ")[1].split()[0]
        self.device = f"remote:{self.address}"

    def errors(self):
        self._errors.seek(0)
        return self._errors.read()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process.poll() is None:
            self.terminate()
        self.process.wait(60)
        self.process.stdout.close()
        text = self.errors()
        self._errors.close()
        return text

    def workers(self):
        """Numbers of the worker processes."""
        return [pid for child in children(self.process.pid) for pid in children(child)]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Line:
    """A wire to a server that counts bytes, holds them back, or breaks."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._target, self._held, self._sockets = (host, int(port)), threading.Event(), []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            other = socket.create_connection(self._target)
            self._sockets += [one, other]
            for pair in ((one, other, True), (other, one, False)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source, sink, outgoing):
        try:
            while data := source.recv(65536):
                if self._held.is_set():
                    continue
                self.sent += len(data) * outgoing
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hold(self):
        """From now on everything is lost on the way."""
        self._held.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in task.read_text().split()]
    return found


@functools.cache
def messages():
    """The message classes of driver/remote/messages.proto, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        proto = "driver/remote/messages.proto"
        subprocess.run(["protoc", f"--descriptor_set_out={out}", f"-I{ROOT}", str(ROOT / proto)], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClassesForFiles([files.file[0].name], pool)


def message(name):
    return messages()[f"tessera.remote.{name}"]


def machine(name="npu64"):
    """The parameters of a shipped configuration."""
    import tomllib

    table = tomllib.loads((ROOT / "hw" / "configs" / f"{name}.toml").read_text())
    del table["name"]
    return table


def assemble(text, folder):
    """The words of a program."""
    source, program = pathlib.Path(folder, "p.asm"), pathlib.Path(folder, "p.bin")
    source.write_text(text)
    subprocess.run([BUILD / "bin" / "tessera", "asm", source, "-o", program, "-q"], check=True)
    return program.read_bytes()


class Client:
    """One stream. What is sent is a Request of the given fields, or bytes that are none."""

    def __init__(self, address, metadata=(), credentials=None, options=()):
        import grpc

        self._channel = (
            grpc.secure_channel(address, credentials, options)
            if credentials
            else grpc.insecure_channel(address, options)
        )
        self._outgoing = queue.SimpleQueue()
        use = self._channel.stream_stream("/tessera.remote.Devices/Use")
        self.call = use(iter(self._outgoing.get, None), metadata=list(metadata))

    def send(self, raw=None, **fields):
        self._outgoing.put(raw if raw is not None else message("Request")(**fields).SerializeToString())

    def reply(self):
        """The next reply that is no progress. Errors: grpc.RpcError when the stream has ended."""
        while True:
            reply = message("Reply").FromString(next(self.call))
            if reply.WhichOneof("kind") != "progress":
                return reply

    def ask(self, raw=None, **fields):
        self.send(raw, **fields)
        return self.reply()

    def open(self, config="npu64", **fields):
        return self.ask(open={"protocol": 2, "version": "test", "name": config, "machine": machine(config), **fields})

    def allocate(self, count):
        reply = self.ask(allocate={"bytes": count, "alignment": 4096})
        assert reply.WhichOneof("kind") == "allocated", reply
        return reply.allocated

    def load(self, words):
        """Where a program lies that has been written to a place of its own."""
        address = self.allocate(len(words))
        self.send(write={"address": address, "data": words})
        return {"program_address": address, "instruction_count": len(words) // 64, "bases": [address] * 16}

    def close(self):
        self._outgoing.put(None)
        self.call.cancel()
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

# SPDX-License-Identifier: Apache-2.0
"""Devices of another process (docs/remote.md) do what the same devices do in one's own: results in every element,
cycles, profiles, reports, tensors that stay on the device. Clients take turns, and what they have sent is not sent
again."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tessera
from tests.system import builders
from tests.system import remote_server as serving
from tests.system.conftest import BUILD
from tests.system.decoder import Decoder, empty_past
from tests.system.interfaces.test_binding import decode

grpc = serving.needs_grpc()
SIMULATED_BOARD = (BUILD / "lib/tessera/xrt/lib/libxrt_hwemu.so.2").exists()


def convolutions(layers, channels=16, extent=12):
    """(model, feeds): convolutions of bytes, one behind the other."""
    g = builders.Graph()
    rng = np.random.default_rng(layers)
    x = g.input(rng.integers(0, 256, (1, channels, extent, extent)).astype(np.uint8), "x")
    scale, zero = g.constant(np.float32(0.02)), g.constant(np.uint8(7))
    for layer in range(layers):
        weights = g.constant(rng.integers(-20, 21, (channels, channels, 3, 3)).astype(np.int8))
        more = [weights, g.constant(np.float32(0.01)), g.constant(np.int8(0)), scale, zero]
        x = g.node("QLinearConv", [x, scale, zero, *more], f"y{layer}", pads=[1, 1, 1, 1])
    return g.finish(x).SerializeToString(), g.feeds


@pytest.fixture(scope="module")
def network():
    return convolutions(3)


@pytest.fixture(scope="module")
def server():
    with serving.Server("--device", "fsim", "--device", "sysc", "--device", "rtl") as server:
        yield server


def without_host(statistics):
    """Statistics without what depends on the host."""
    return {k: v for k, v in statistics.items() if "seconds" not in k and k != "device"}


@pytest.mark.parametrize("name", ["fsim", "sysc", "rtl"])
def test_results_and_figures_are_those_of_the_device(server, network, name):
    if name not in tessera.backends():
        pytest.skip(f"this build has no device {name}")
    data, feeds = network
    local = tessera.Session(data, name, "npu64", dram_latency=70)
    remote = tessera.Session(data, server.device, "npu64", dram_latency=70, device_options={"serves": name})
    for _ in range(2):
        (want,), (got,) = local.run(None, feeds), remote.run(None, feeds)
        assert np.array_equal(want, got)
    assert json.dumps(without_host(local.stats())) == json.dumps(without_host(remote.stats()))
    mine, theirs = local.report(), remote.report()
    assert theirs["provenance"] == mine["provenance"]
    assert theirs["timeline"] == mine["timeline"] and theirs["layers"] == mine["layers"]
    assert remote.trace()["traceEvents"] == local.trace()["traceEvents"]


@pytest.mark.skipif(
    not SIMULATED_BOARD, reason="this build has no simulated board (libxrt-dev or verilator is missing)"
)
def test_a_card_is_served(network):
    data, feeds = network
    words = [BUILD / "bin" / "tessera", "board", "--config", "npu64", "--"]
    with serving.Server("--device", "xrt:0", wrapper=words) as server:
        session = tessera.Session(data, server.device, "npu64", device_options={"memory": "8M"})
        local = tessera.Session(data, "rtl", "npu64")
        assert np.array_equal(session.run(None, feeds)[0], local.run(None, feeds)[0])
        assert session.stats().cycles == local.stats().cycles
        assert session.report()["provenance"]["cycles"] == "simulated_board"
        with pytest.raises(tessera.Error, match="device xrt: the card does not take the xclbin"):
            tessera.Session(convolutions(1)[0], server.device, "npu256", device_options={"memory": "8M"})


def test_tensors_stay_on_a_remote_device(server):
    decoder = Decoder(layers=2, heads=4, groups=2, size=8)
    data = decoder.model()
    make = lambda device: tessera.Session(data, device, "npu64", max_length=12)
    want, _ = decode(make("fsim"), decoder, 5, empty_past(decoder))
    got, pasts = decode(make(server.device), decoder, 5, empty_past(decoder))
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))
    array = np.arange(5000, dtype=np.int32)
    session = make(server.device)
    assert np.array_equal(session.to_device(array).copy_to_host(), array)


def test_what_a_simulator_checks_and_where_memory_begins(server, network):
    data, feeds = network
    (want,) = tessera.Session(data, "fsim", "npu64").run(None, feeds)
    for options in ({"check_races": True}, {"poison": 7}, {"base_address": 1 << 40}):
        assert np.array_equal(tessera.Session(data, server.device, "npu64", **options).run(None, feeds)[0], want)


def test_the_command_and_the_c_interface(server, network, tmp_path, command):
    data, feeds = network
    (tmp_path / "m.onnx").write_bytes(data)
    np.save(tmp_path / "x.npy", feeds["x"])
    run = command(
        "run", tmp_path / "m.onnx", "--config", "npu64", "--device", server.device, "--input", tmp_path / "x.npy",
        "-o", tmp_path / "y.npy",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (want,) = tessera.Session(data, "fsim", "npu64").run(None, feeds)
    assert np.array_equal(np.load(tmp_path / "y.npy"), want)
    report = command(
        "report", tmp_path / "m.onnx", "--config", "npu64", "--device", server.device, "--device-option", "serves=sysc",
        "--random-inputs", 1, "--json",
    )  # fmt: skip
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["provenance"]["cycles"] == "systemc"
    import ctypes

    library = ctypes.CDLL(str(BUILD / "lib" / "libtessera.so"))
    library.tessera_last_error.restype = ctypes.c_char_p
    opened = ctypes.c_void_p()
    status = library.tessera_session_open(
        str(tmp_path / "m.onnx").encode(), server.device.encode(), b"npu64", ctypes.byref(opened)
    )
    assert status == 0, library.tessera_last_error()
    library.tessera_session_close(opened)


def test_bytes_are_not_sent_twice(tmp_path):
    data, feeds = convolutions(1, channels=128, extent=4)  # 147 KB of weights
    folder = tmp_path / "cache"
    with serving.Server("--device", "fsim", "--cache", folder, "--cache-size", 1) as server:
        sent = []
        for _ in range(2):
            with serving.Line(server.address) as line:
                session = tessera.Session(data, f"remote:{line.address}", "npu64")
                (got,) = session.run(None, feeds)
                sent.append(line.sent)
        assert sent[1] < sent[0] / 10 and sent[0] > 140_000
        assert np.array_equal(got, tessera.Session(data, "fsim", "npu64").run(None, feeds)[0])
        # The folder stays below its limit, and what has left it is sent again.
        for seed in range(9):
            model, _ = convolutions(1, channels=128 + 8 * seed, extent=4)
            tessera.Session(model, server.device, "npu64")
            assert sum(file.stat().st_size for file in folder.iterdir()) <= 1 << 20
        assert np.array_equal(tessera.Session(data, server.device, "npu64").run(None, feeds)[0], got)
        # A file that something else has changed is no constant any more.
        for file in folder.iterdir():
            file.write_bytes(bytes(file.stat().st_size))
        assert np.array_equal(tessera.Session(data, server.device, "npu64").run(None, feeds)[0], got)


def test_programs_of_two_clients_alternate(tmp_path):
    """Long programs of one client and short ones of another: while both have something to run, neither runs twice."""
    words = {
        which: serving.assemble(f"gemm extent=1,1,{rounds},400,8,2 signal\nfinish wait=gemm:1\n", tmp_path)
        for which, rounds in (("long", 120), ("short", 50))
    }
    order, start = [], threading.Barrier(2)

    def run(which, address):
        with serving.Client(address) as client:
            client.open()
            place = client.load(words[which])
            client.ask(run=place)
            start.wait()
            for _ in range(7):
                client.send(run=place)
            for _ in range(7):
                assert message_of(client.reply().report).fault_code == 0
                order.append(which)

    with serving.Server("--device", "fsim") as server:
        threads = [threading.Thread(target=run, args=(which, server.address)) for which in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(order) == 14
    last = {which: max(i for i, name in enumerate(order) if name == which) for which in words}
    both = order[1 : min(last.values())]  # while both had something to run
    twice = [a == b for a, b in zip(both, both[1:])]
    assert sum(twice) <= 1, order  # a busy machine may bring a request late


def test_turns():
    from tessera.serving.turns import Turns

    turns, order = Turns(1), []
    assert turns.take("first", lambda: False) is True

    def wait(name, gone):
        if turns.take(name, gone) is not None:
            order.append(name)
            turns.give()

    threads = []
    for number in range(5):
        gone = (lambda: True) if number == 2 else (lambda: False)
        threads.append(threading.Thread(target=wait, args=(number, gone)))
        threads[-1].start()
        while len(turns._waiting) < number and number != 2 and threads[-1].is_alive():
            time.sleep(0.001)
        time.sleep(0.01)
    turns.give()
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 3, 4]
    assert turns.take(4, lambda: False) is False  # nobody else since
    assert Turns(2).take(4, lambda: False) is True
    assert turns.take("late", lambda: True) is None  # one slot, and it is taken


def test_a_faulty_program_ends_alone(server, network, tmp_path):
    data, feeds = network
    session = tessera.Session(data, server.device, "npu64")
    (want,) = session.run(None, feeds)
    with serving.Client(server.address) as other:
        other.open()
        place = other.load(serving.assemble("load base=3 dram_offset=0x700000000 length=64\nfinish\n", tmp_path))
        report = other.ask(run=place).report
        assert message_of(report).fault_code != 0
        # The same client goes on, and so do others.
        place = other.load(serving.assemble("finish\n", tmp_path))
        assert message_of(other.ask(run=place).report).fault_code == 0
    assert np.array_equal(session.run(None, feeds)[0], want)


def message_of(piece):
    assert piece.last
    return serving.message("RunReport").FromString(piece.data)


def test_errors_name_the_server_the_cause_and_the_way_out(server, network):
    data, _ = network

    def refused(device, pattern, code, **options):
        with pytest.raises(tessera.Error, match=pattern) as caught:
            tessera.Session(data, device, "npu64", device_options=options)
        assert caught.value.code == code, caught.value
        assert "\n" not in str(caught.value)

    refused("remote:127.0.0.1:1", r"remote:127\.0\.0\.1:1 cannot be reached: .*tessera serve", "io")
    refused("remote:nowhere", "remote:HOST:PORT, for example", "invalid_argument")
    refused("remote", "remote:HOST:PORT, for example", "invalid_argument")
    refused("remote:192.0.2.1:9190", "TLS alone: give the server's certificate", "invalid_argument")
    refused(
        server.device,
        "no device 'rtl:9' is served here; there are fsim, sysc, rtl; the device option serves=",
        "invalid_argument",
        serves="rtl:9",
    )
    refused(server.device, "option 'waves' concerns the server's machine", "invalid_argument", waves="/tmp/x.fst")
    refused(server.device, "bandwidth is a number from 1 to 8", "invalid_argument", serves="sysc", bandwidth="99")
    refused(server.device, "asked for; this server gives a client from 1 to", "does_not_fit", memory="3000G")
    refused(server.device, "memory is bytes, or a number with K, M or G", "invalid_argument", memory="much")
    refused(server.device, "silence is seconds", "invalid_argument", silence="never")
    refused(server.device, "do not fit; free are", "does_not_fit", memory="4K")
    refused(server.device, "cannot read the certificate '/nowhere'", "io", ca="/nowhere")


def test_other_versions_are_refused(server):
    with serving.Client(server.address) as client:
        failure = client.open(protocol=77).failure
        assert "speaks version 77 of the protocol" in failure.text and "install the same Tessera" in failure.text
        wrong = dict(serving.machine(), flux=3)
        failure = client.open(machine=wrong).failure
        assert "the server knows no parameter 'flux'" in failure.text
        wrong.pop("flux"), wrong.pop("batch")
        assert "the client knows no parameter 'batch'" in client.open(machine=wrong).failure.text
        assert client.open(machine=dict(serving.machine(), batch=1 << 40)).failure.text.startswith("machine: batch")
        assert client.open(name="../../etc").opened.device == "fsim"


def test_machines_that_the_server_does_not_have(server, odd_config, network):
    if "rtl" not in tessera.backends():
        pytest.skip("this build has no RTL")
    with pytest.raises(
        tessera.Error, match="the server makes no machine 'odd' in RTL for clients; start it with --allow"
    ):
        tessera.Session(network[0], server.device, odd_config, device_options={"serves": "rtl"})


def test_a_lost_server(network):
    data, feeds = network
    server = serving.Server("--device", "fsim")
    session = tessera.Session(data, server.device, "npu64")
    session.run(None, feeds)
    server.process.kill()
    server.stop()
    for _ in range(2):
        with pytest.raises(tessera.Error, match=r"device remote:127.* is lost: .*; open the session again") as caught:
            session.run(None, feeds)
        assert caught.value.code == "io"


def test_deadlines(tmp_path):
    data, feeds = convolutions(6, extent=192)
    passed = r"the deadline of 0\.005 seconds has passed; the device option"
    with serving.Server("--device", "sysc") as server, pytest.raises(tessera.Error, match=passed) as caught:
        session = tessera.Session(data, server.device, "npu64", device_options={"deadline": "0.005"})
        for _ in range(50):
            session.run(None, feeds)
    assert caught.value.code == "io"


@pytest.mark.skipif(sys.platform != "linux", reason="names a thread by its number")
def test_an_address_that_is_taken(server, tmp_path):
    """One line, whichever of the two protocols it is for."""
    (tmp_path / "models").mkdir()
    models = ("--model-repository", tmp_path / "models", "--listen", "127.0.0.1:0")
    for words in (("--device", "fsim", "--listen", server.address), (*models, "--http-listen", server.address)):
        command = [sys.executable, "-m", "tessera.serving", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, env=serving.environment(), timeout=60)
        said = (
            f"tessera: error (io): cannot listen on {server.address}: Address already in use; is another server there?"
        )
        assert (done.returncode, done.stderr.splitlines()) == (1, [said])


@pytest.mark.parametrize(
    "words, said",
    [
        (("--slots", "0"), "--slots takes a number from 1 on, not 0"),
        (("--client-memory", "0"), "--client-memory takes a number from 1 on, not 0"),
        (("--run-seconds", "-1"), "--run-seconds takes a number from 0 on, not -1.0"),
        (("--idle-seconds", "nan"), "--idle-seconds takes a number from 0 on, not nan"),
        (("--drain-seconds", "-5"), "--drain-seconds takes a number from 0 on, not -5.0"),
    ],
)
def test_amounts_that_make_no_sense(words, said):
    command = [sys.executable, "-m", "tessera.serving", "--device", "fsim", "--listen", "127.0.0.1:0", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=serving.environment(), timeout=60)
    assert done.returncode in (1, 2) and said in done.stderr and done.stdout == ""


def test_a_signal_that_another_thread_takes():
    with serving.Server("--device", "fsim") as server:
        pid = server.process.pid
        thread = min({int(number) for number in os.listdir(f"/proc/{pid}/task")} - {pid})
        assert ctypes.CDLL(None).tgkill(pid, thread, signal.SIGTERM) == 0
        server.process.wait(20)


def test_a_line_that_breaks_and_one_that_is_silent(network):
    data, feeds = network
    with serving.Server("--device", "fsim") as server, serving.Line(server.address) as line:
        options = {"silence": 1}
        session = tessera.Session(data, f"remote:{line.address}", "npu64", device_options=options)
        line.hold()
        with pytest.raises(tessera.Error, match="has said nothing for 1 seconds; the server or the network is down"):
            session.run(None, feeds)
    with serving.Server("--device", "fsim") as server:
        with serving.Line(server.address) as line:
            session = tessera.Session(data, f"remote:{line.address}", "npu64")
        with pytest.raises(tessera.Error, match="is lost|has ended the connection"):
            session.run(None, feeds)
        until = time.monotonic() + 10
        while server.workers() and time.monotonic() < until:
            time.sleep(0.05)
        assert not server.workers()


def test_a_server_that_ends_answers_what_runs(tmp_path):
    data, feeds = convolutions(6, extent=32)
    with serving.Server("--device", "sysc") as server:
        session = tessera.Session(data, server.device, "npu64")
        (want,) = session.run(None, feeds)
        got = []
        thread = threading.Thread(target=lambda: got.append(session.run(None, feeds)[0]))
        with serving.Client(server.address) as idle:
            idle.open()
            thread.start()
            time.sleep(0.1)
            server.terminate()
            assert server.process.wait(30) == 0
            with pytest.raises(grpc.RpcError):
                idle.reply()
        thread.join(30)
        assert not thread.is_alive()
        assert all(np.array_equal(want, result) for result in got)


def test_progress_of_a_long_program(network, tmp_path):
    """The client hears from a server every second while its program waits and runs."""
    with serving.Server("--device", "fsim", "--run-seconds", 3) as server:
        endless = "gemm extent=4000,4000,4000,4000,4000,4000 signal\nfinish wait=gemm:1\n"
        with serving.Client(server.address) as first, serving.Client(server.address) as second:
            for client in (first, second):
                client.open()
            place = first.load(serving.assemble(endless, tmp_path))
            first.send(run=place)
            time.sleep(0.3)
            second.send(run=second.load(serving.assemble("finish\n", tmp_path)))
            seen = serving.message("Reply").FromString(next(first.call))
            assert seen.WhichOneof("kind") == "progress" and not seen.progress.waiting
            seen = serving.message("Reply").FromString(next(second.call))
            assert seen.WhichOneof("kind") == "progress" and seen.progress.waiting
            with pytest.raises(grpc.RpcError) as caught:
                first.reply()
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert "has not ended in 3 seconds" in caught.value.details()
            assert message_of(second.reply().report).fault_code == 0


def test_progress_of_a_session(server):
    data, feeds = convolutions(6, extent=224)
    for device in ("fsim", server.device):
        seen = []
        slow = {"serves": "sysc"} if device != "fsim" else {}
        session = tessera.Session(
            data, device, "npu64", device_options=slow, progress=lambda *what, seen=seen: seen.append(what)
        )
        until = time.monotonic() + 20
        while not seen and time.monotonic() < until:
            session.run(None, feeds)
        assert seen and all(waiting in (True, False) and count >= 0 for waiting, count in seen)


def test_an_installation_without_grpc(network, tmp_path):
    """Everything else works; remote: says what is missing."""
    copy = tmp_path / "bin"
    copy.mkdir()
    shutil.copy(BUILD / "bin" / "tessera", copy / "tessera")
    (tmp_path / "m.onnx").write_bytes(network[0])
    words = [copy / "tessera", "run", tmp_path / "m.onnx", "--random-inputs", "1"]
    assert subprocess.run(words, capture_output=True).returncode == 0
    run = subprocess.run([*words, "--device", "remote:127.0.0.1:9190"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "'libtessera_grpc.so' is not part of this installation; install the package libgrpc++-dev" in run.stderr

# SPDX-License-Identifier: Apache-2.0
"""Ethernet of a board (hw/litex/ethernet.py), verilated, frame by frame at the bytes of its PHY: what it answers equals
frames that are built here. Needs LiteX and Verilator; skips without them."""

import os
import pathlib
import random
import shutil
import struct
import subprocess
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "litex"
LITEX = ROOT / "build" / "litex" / "bin" / "python"

BOARD, HOST = bytes.fromhex("10e2d5000000"), bytes.fromhex("021122334455")
BOARD_IP, HOST_IP = bytes([192, 168, 1, 50]), bytes([192, 168, 1, 7])
EVERYBODY = b"\xff" * 6
ARP, IP, ICMP, UDP = 0x0806, 0x0800, 1, 17
ECHO, ETHERBONE, OWN_PORT = 7, 1234, 4000
WORDS = 1024  # of the memory behind Etherbone
BYTES = bytes((7 * n + 3) % 251 + 1 for n in range(4000))
PERIODS = [20000, 16000, 23000]  # of the system's clock, in ps: the boards', a shorter one, the longest allowed


def ones(data):
    """The Internet's checksum."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def frame(target, sender, kind, payload):
    """All bytes on the wire, from the preamble to the checksum."""
    data = (target + sender + struct.pack(">H", kind) + payload).ljust(60, b"\0")
    return b"\x55" * 7 + b"\xd5" + data + struct.pack("<I", zlib.crc32(data))


def arp(operation, sender, sender_ip, target, target_ip):
    return struct.pack(">HHBBH6s4s6s4s", 1, IP, 6, 4, operation, sender, sender_ip, target, target_ip)


def ip(source, target, protocol, payload, flags=0):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, flags, 0x80, protocol, 0, source, target)
    return head[:10] + struct.pack(">H", ones(head)) + head[12:] + payload


def ping(kind, payload):
    data = struct.pack(">BBHI", kind, 0, 0, 0x12345678) + payload
    return data[:2] + struct.pack(">H", ones(data)) + data[4:]


def udp(source, target, payload):
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0) + payload


def to_board(protocol, payload, **options):
    return frame(BOARD, HOST, IP, ip(HOST_IP, BOARD_IP, protocol, payload, **options))


def from_board(protocol, payload):
    return frame(HOST, BOARD, IP, ip(BOARD_IP, HOST_IP, protocol, payload))


def packet(flags, writes, reads, words):
    """Of Etherbone, with one record."""
    head = struct.pack(">HBBIBBBB", 0x4E6F, 0x10 | flags, 0x44, 0, 0, 15, writes, reads)
    return udp(ETHERBONE, ETHERBONE, head + b"".join(struct.pack(">I", word) for word in words))


def write(word, values):
    return to_board(UDP, packet(0, len(values), 0, [4 * word, *values]))


def read(word, count, mark=0x1230):
    """`mark`: comes back as the address of the answer."""
    return to_board(UDP, packet(0, 0, count, [mark, *(4 * (word + n) for n in range(count))]))


def answer(values, mark=0x1230):
    return from_board(UDP, packet(0, len(values), 0, [mark, *values]))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    python = os.environ.get("TESSERA_LITEX_PYTHON", str(LITEX))
    if not pathlib.Path(python).exists():
        pytest.skip("LiteX is not installed (./dev setup --extras litex)")
    if not shutil.which("verilator"):
        pytest.skip("Verilator is not installed")
    folder = tmp_path_factory.mktemp("ethernet")
    subprocess.run([python, HERE / "ethernet_system.py", folder / "system.v"], check=True, capture_output=True)
    build = ["verilator", "--cc", "--exe", "--build", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--x-initial", "0"]
    build += ["--top-module", "ethernet_system", folder / "system.v", HERE / "ethernet_bench.cc"]
    build += ["-CFLAGS", "-std=c++20 -O1", "-Mdir", folder / "obj", "-o", "bench"]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return folder / "obj" / "bench"


class Board:
    """The simulated board, and a host on its wire that answers requests for its own address."""

    ASKED = frame(EVERYBODY, BOARD, ARP, arp(1, BOARD, BOARD_IP, EVERYBODY, HOST_IP))
    TOLD = frame(BOARD, HOST, ARP, arp(2, HOST, HOST_IP, BOARD, BOARD_IP))

    def __init__(self, program, period=PERIODS[0]):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([program, str(period)], text=True, **pipes)
        self.errors = (0, 0)  # frames with a wrong checksum, frames without a preamble

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def exchange(self, frames, gap, still):
        print("send", gap, still, *(one.hex() for one in frames), file=self.process.stdin, flush=True)
        found = []
        while True:
            kind, *rest = self.process.stdout.readline().split()
            if kind == "still":
                self.errors = tuple(map(int, rest))
                return found
            assert kind == "frame", f"bytes that do not follow each other: {rest}"
            found.append(bytes.fromhex(rest[0]))

    def send(self, *frames, gap=12, still=2000):
        """What the board sends when it gets the frames, each with `gap` idle bytes behind it, until it has been still
        for so many bytes."""
        found = self.exchange(frames, gap, still)
        while self.ASKED in found:
            found.remove(self.ASKED)
            found += self.exchange([self.TOLD], gap, still)
        return found


@pytest.fixture(params=PERIODS)
def board(program, request):
    with Board(program, request.param) as board:
        yield board


def test_arp_is_answered(board):
    asked = frame(EVERYBODY, HOST, ARP, arp(1, HOST, HOST_IP, bytes(6), BOARD_IP))
    assert board.send(asked) == [frame(HOST, BOARD, ARP, arp(2, BOARD, BOARD_IP, HOST, HOST_IP))]
    other = frame(EVERYBODY, HOST, ARP, arp(1, HOST, HOST_IP, bytes(6), bytes([192, 168, 1, 51])))
    assert board.send(other) == []


def test_pings_of_all_lengths_come_back(board):
    for length in range(129):  # the core drops longer ones
        payload = BYTES[length : 2 * length]
        assert board.send(to_board(ICMP, ping(8, payload))) == [from_board(ICMP, ping(0, payload))], length
    assert board.errors == (0, 0)


def test_datagrams_of_all_lengths_come_back(board):
    """Without 15 and 16 bytes: behind a frame of 57 or 58 bytes LiteEth pads the next short one wrongly. The system
    sends no such frames: an answer of Etherbone has 62 bytes or more, a probe's 54, and a ping comes back with the
    padding that it came with."""
    for length in [*range(1, 15), *range(17, 120), 255, 256, 257, 1023, 1469, 1470, 1471, 1472]:
        payload = BYTES[length : 2 * length]
        wanted = from_board(UDP, udp(ECHO, OWN_PORT, payload))
        assert board.send(to_board(UDP, udp(OWN_PORT, ECHO, payload))) == [wanted], length
    assert board.errors == (0, 0)


def test_etherbone_writes_and_reads(board):
    draw = random.Random(1)
    memory = [0] * WORDS
    for count in [1, 2, 3, 4, 5, 8, 31, 32, 33, 100, 254, 255]:
        at = draw.randrange(WORDS - count + 1)
        memory[at : at + count] = [draw.getrandbits(32) for _ in range(count)]
        assert board.send(write(at, memory[at : at + count])) == []
        assert board.send(read(at, count), still=8000) == [answer(memory[at : at + count])]
        at = draw.randrange(WORDS - count + 1)
        assert board.send(read(at, count), still=8000) == [answer(memory[at : at + count])]


def test_a_probe_is_answered(board):
    (found,) = board.send(to_board(UDP, packet(1, 0, 0, [])))
    assert found[8 + 42 : 8 + 46] == bytes([0x4E, 0x6F, 0x12, 0x44])


def test_what_the_driver_sends_at_once_is_carried_out(board):
    """A frame of the window at the speed of the wire: more than Etherbone takes meanwhile."""
    draw = random.Random(2)
    memory = [draw.getrandbits(32) for _ in range(WORDS)]
    parts = [write(at, memory[at : at + 255]) for at in range(0, WORDS, 255)]
    wanted = [answer(memory[1000:1004])]
    assert board.send(*parts, write(1000, memory[1000:1001]), read(1000, 4), still=40000) == wanted
    for at in range(0, WORDS, 128):
        assert board.send(read(at, 128), still=8000) == [answer(memory[at : at + 128])]
    pings = [to_board(ICMP, ping(8, BYTES[:20]))] * 6
    assert board.send(*pings) == [from_board(ICMP, ping(0, BYTES[:20]))] * 6
    assert board.errors == (0, 0)


def test_more_than_there_is_room_for_is_lost_in_whole_datagrams(board):
    """Sixty reads at once, then reads as ever."""
    board.send(write(0, list(range(100, 200))))
    reads = [read(n, 1, mark=16 * n) for n in range(60)]
    found = board.send(*reads, still=8000)
    wanted = [answer([100 + n], mark=16 * n) for n in range(60)]
    assert 16 <= len(found) <= 60 and [one for one in wanted if one in found] == found
    assert board.send(read(5, 9)) == [answer(list(range(105, 114)))]


def broken(wire, byte):
    return wire[:byte] + bytes([wire[byte] ^ 4]) + wire[byte + 1 :]


def test_a_frame_with_a_wrong_checksum_is_not_carried_out(board):
    for length in (1, 2, 3, 4, 50):
        board.send(write(0, [1] * length))
        wire = write(0, [2] * length)
        for byte in (8 + 42 + 16, len(wire) - 5, len(wire) - 4, len(wire) - 1):
            before = board.errors[0]
            assert board.send(broken(wire, byte)) == [] and board.errors[0] == before + 1
            assert board.send(read(0, length), still=8000) == [answer([1] * length)], (length, byte)


STRANGE = {
    "nothing at the port": to_board(UDP, udp(9, ETHERBONE, b"")),
    "nothing at another port": to_board(UDP, udp(9, 99, b"")),
    "one byte": to_board(UDP, udp(9, ETHERBONE, b"x")),
    "not in words": to_board(UDP, udp(9, ETHERBONE, packet(0, 1, 0, [0, 5])[8:] + b"x")),
    "another magic": to_board(UDP, udp(9, ETHERBONE, bytes(40))),
    "a header alone": to_board(UDP, packet(0, 0, 0, [])),
    "a record that is cut": to_board(UDP, packet(0, 9, 0, [0, 1, 2])),
    "a record that is too long": to_board(UDP, packet(0, 2, 0, [0, 1, 2, 3, 4])),
    "a record that has no room": to_board(UDP, packet(0, 100, 200, [0] * 302)),
    "a short probe": to_board(UDP, udp(9, ETHERBONE, bytes.fromhex("4e6f114400000000"))),
    "a long probe": to_board(UDP, packet(1, 1, 0, [0, 1])),
    "a long datagram": to_board(UDP, udp(9, ETHERBONE, bytes(3000))),
    "a fragment": to_board(UDP, udp(9, ETHERBONE, bytes(1400)), flags=0x2000),
    "a later fragment": to_board(UDP, bytes(700), flags=185),
    "a wrong length of UDP": to_board(UDP, struct.pack(">HHHH", 9, ETHERBONE, 4, 0) + bytes(30)),
    "a length beyond the frame": to_board(UDP, struct.pack(">HHHH", 9, ETHERBONE, 900, 0) + bytes(30)),
    "options of IP": frame(BOARD, HOST, IP, b"\x46" + ip(HOST_IP, BOARD_IP, UDP, udp(1, ETHERBONE, bytes(30)))[1:]),
    "a long ping": to_board(ICMP, ping(8, bytes(1400))),
    "TCP": to_board(6, bytes(20)),
    "IGMP": frame(bytes.fromhex("01005e000001"), HOST, IP, ip(HOST_IP, bytes([224, 0, 0, 1]), 2, bytes(8))),
    "IPv6": frame(bytes.fromhex("333300000001"), HOST, 0x86DD, bytes(range(80))),
    "LLDP": frame(bytes.fromhex("0180c200000e"), HOST, 0x88CC, bytes(range(46))),
    "no preamble": bytes(80),
    "a preamble alone": b"\x55" * 7 + b"\xd5",
    "one byte on the wire": b"\x55",
    "a runt": frame(BOARD, HOST, IP, b"\x45")[:27],
    "a frame that is cut": write(0, [7] * 60)[:90],
}


@pytest.mark.parametrize("what", STRANGE)
def test_after_something_strange_all_works(program, what):
    """A frame that ends in its headers may take the next one with it."""
    with Board(program) as board:
        board.send(write(0, [3, 4, 5]))
        board.send(STRANGE[what])
        found = board.send(read(0, 3)) or board.send(read(0, 3))
        assert found == [answer([3, 4, 5])]
        assert board.send(write(1, [6])) == [] and board.send(read(0, 3)) == [answer([3, 6, 5])]

# SPDX-License-Identifier: Apache-2.0
"""Talks to the firmware of `tessera export --bare-metal` over its serial line: `tessera console`, or `Firmware` from
Python. Enters: arrays. Leaves: arrays, bit for bit those of the firmware, and its text. Frames carry a CRC-32 and are
sent again when they came garbled. `Qemu` runs firmware of the target qemu-virt: the machine `virt` with its RAM in a
file that this process shares, and on it the functional simulator of the NPU."""

import argparse
import contextlib
import ctypes
import mmap
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import zlib
from pathlib import Path

import _tessera
import numpy as np

from .errors import error, require_place

Error = _tessera.Error
MOST_INPUT, MOST_OUTPUT, ATTEMPTS = 1024, 256, 4
AGAIN = ("9", "10")  # codes that sending again may cure: frame and command
SPEEDS = {name[1:]: getattr(termios, name) for name in dir(termios) if re.fullmatch(r"B\d+", name)}
ORIGIN, PAGE = 0x8000_0000, 4096
DTYPES = {"bool": np.bool_, "bfloat16": np.uint16}


def refuse(code, message):
    raise error(code, message)


class Line:
    """Lines of text over two file descriptors. Errors: io, when nothing comes for `patience` seconds or the other side
    has gone."""

    def __init__(self, reading, writing, name, patience=30.0):
        self.reading, self.writing, self.name, self.patience = reading, writing, name, patience
        self.pending = b""

    def send(self, data):
        while data:
            try:
                data = data[os.write(self.writing, data) :]
            except OSError as failure:
                refuse("io", f"{self.name}: the line is closed ({failure.strerror})")

    def receive(self):
        """The next line without its end."""
        limit = time.monotonic() + self.patience
        while b"\n" not in self.pending:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self.reading], [], [], left)[0]:
                refuse("io", f"{self.name}: no answer within {self.patience:.0f} seconds; is the firmware running?")
            data = os.read(self.reading, 4096)
            if not data:
                refuse("io", f"{self.name}: the line is closed")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode("ascii", "replace").rstrip("\r")

    def drain(self):
        """Throws away what has come."""
        while select.select([self.reading], [], [], 0.05)[0] and os.read(self.reading, 4096):
            pass
        self.pending = b""

    def close(self):
        for descriptor in {self.reading, self.writing}:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def serial_line(path, baud=115200):
    """A serial port. Errors: io; invalid_argument for a speed that the system does not know."""
    if str(baud) not in SPEEDS:
        refuse("invalid_argument", f"a serial line has no speed of {baud} baud")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        attributes = termios.tcgetattr(descriptor)
    except (OSError, termios.error) as failure:
        refuse("io", f"'{path}' cannot be opened as a serial line: {failure.args[-1]}")
    attributes[0] = attributes[1] = attributes[3] = 0
    attributes[2] = termios.CS8 | termios.CREAD | termios.CLOCAL
    attributes[4] = attributes[5] = SPEEDS[str(baud)]
    attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
    termios.tcflush(descriptor, termios.TCIOFLUSH)
    return Line(descriptor, descriptor, path)


def tcp_line(host, port):
    """A serial line behind a TCP port, as simulators have it."""
    try:
        connected = socket.create_connection((host, port), timeout=10)
    except OSError as failure:
        refuse("io", f"{host}:{port} does not answer: {failure}")
    connected.setblocking(True)
    descriptor = connected.detach()
    return Line(descriptor, descriptor, f"{host}:{port}")


class Port:
    """An input or output: `name`, `dtype` of NumPy (bfloat16 as its bits), `shape`."""

    def __init__(self, text):
        found = re.fullmatch(r"(.*) (\w+) \[([\d,]*)\]", text)
        if not found:
            refuse("io", f"the firmware describes a tensor as '{text}'")
        self.name = found[1]
        self.dtype = np.dtype(DTYPES.get(found[2], found[2]))
        self.shape = tuple(int(extent) for extent in found[3].split(",") if extent)
        self.bytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Firmware:
    """A firmware at the other end of a line. `name`, `machine`, `identity`, `inputs` and `outputs` are what it says of
    itself. Errors of its own are tessera.Error with its line; a line that stays silent is io."""

    def __init__(self, line):
        self.line = line
        self.text = []
        lines = self.ask("info", greeting=True)
        self.name, self.machine, self.identity = (self.field(lines, key) for key in ("model", "machine", "identity"))
        self.inputs = [Port(line[6:]) for line in lines if line.startswith("input ")]
        self.outputs = [Port(line[7:]) for line in lines if line.startswith("output ")]

    @staticmethod
    def field(lines, key):
        return next((line[len(key) + 1 :] for line in lines if line.startswith(key + " ")), "")

    def ask(self, command, data=b"", greeting=False, attempts=ATTEMPTS):
        """Sends a command and returns the lines of its answer, sent again when a frame came garbled."""
        for attempt in range(attempts):
            self.line.send(command.encode() + b"\n" + data)
            lines = []
            while True:
                line = self.line.receive()
                if line == "ok" or line.startswith("error "):
                    if greeting and not any(known.startswith("identity ") for known in lines):
                        lines = []  # of the greeting before
                        continue
                    break
                lines.append(line)
            if line == "ok":
                return lines
            _, code, text = (line.split(" ", 2) + ["", ""])[:3]
            if code not in AGAIN or attempt + 1 == attempts:
                failure = error("device_fault", f"the firmware says: {text} (status {code})")
                failure.status = code
                raise failure
        return []

    def put(self, number, data):
        for offset in range(0, len(data), MOST_INPUT):
            part = data[offset : offset + MOST_INPUT]
            crc = zlib.crc32(part, zlib.crc32(struct.pack("<III", number, offset, len(part))))
            self.ask(f"input {number} {offset} {len(part)} {crc}", part)

    def get(self, number, inputs):
        """An output of the run whose inputs have this CRC."""
        port, data = self.outputs[number], b""
        while len(data) < port.bytes:
            data += self.part(number, len(data), min(MOST_OUTPUT, port.bytes - len(data)), inputs)
        return np.frombuffer(data, port.dtype).reshape(port.shape)

    def part(self, number, offset, count, inputs):
        header = zlib.crc32(struct.pack("<IIII", number, offset, count, inputs))
        for _ in range(ATTEMPTS):
            words = next((line for line in self.ask(f"output {number} {offset} {count}") if line[:6] == "bytes "), "")
            with contextlib.suppress(ValueError):
                _, text, crc = words.split(" ")
                data = bytes.fromhex(text)
                if len(data) == count and zlib.crc32(data, header) == int(crc):
                    return data
        return refuse("io", f"{self.line.name}: output {number} came garbled {ATTEMPTS} times")

    def run(self, feeds):
        """Results by name for arrays by name. `text` holds what the firmware printed. Errors: invalid_argument for
        inputs that it does not take."""
        missing = {port.name for port in self.inputs} ^ set(feeds)
        if missing:
            refuse("invalid_argument", f"input '{sorted(missing)[0]}' is missing or not one of the firmware's")
        for port in self.inputs:
            array = np.asarray(feeds[port.name])
            if array.dtype != port.dtype or array.shape != port.shape:
                refuse(
                    "invalid_argument",
                    f"input '{port.name}': the firmware takes {port.dtype} {list(port.shape)}, "
                    f"got {array.dtype} {list(array.shape)}",
                )
        crc = 0
        for port in self.inputs:
            crc = zlib.crc32(np.asarray(feeds[port.name]).tobytes(), crc)
        self.text = self.ask_run(feeds, crc)
        return {port.name: self.get(number, crc) for number, port in enumerate(self.outputs)}

    def ask_run(self, feeds, crc):
        """Sends the inputs and runs, from the inputs on again where the firmware holds others: a run of its own, from a
        garbled line, may have written over them."""
        for attempt in range(ATTEMPTS):
            for number, port in enumerate(self.inputs):
                self.put(number, np.asarray(feeds[port.name]).tobytes())
            try:
                return self.ask(f"run {crc}", attempts=1)
            except Error as failure:
                if getattr(failure, "status", None) not in AGAIN or attempt + 1 == ATTEMPTS:
                    raise
        return []


class Qemu:
    """Runs `folder`/firmware.elf of the target qemu-virt until it is closed; `line` is its serial line. `config`: of
    the NPU, where it is not the model's machine. Errors: io when QEMU or the firmware is missing."""

    def __init__(self, folder, config=None):
        program = shutil.which("qemu-system-riscv32")
        if program is None:
            refuse("io", "qemu-system-riscv32 is missing; install it with ./dev setup --extras bare-metal")
        elf = Path(folder) / "firmware.elf"
        if not elf.exists():
            refuse("io", f"'{elf}' is missing; build it with make -C {folder}")
        found = re.search(r"LENGTH = (0x[0-9a-f]+)", (Path(folder) / "firmware.ld").read_text())
        size = int(found[1], 16) + PAGE
        self.file = tempfile.NamedTemporaryFile(prefix="tessera-ram-")  # noqa: SIM115 (as long as the machine)
        self.file.truncate(size)
        self.memory = mmap.mmap(self.file.fileno(), size)
        self.words = (ctypes.c_uint32 * 5).from_buffer(self.memory, size - PAGE)
        self.first = ctypes.c_uint8.from_buffer(self.memory)
        self.machine = _tessera.RegisterMachine(
            config or str(Path(folder) / "machine.toml"), [(ORIGIN, ctypes.addressof(self.first), size)]
        )
        self.stop = threading.Event()
        self.process = subprocess.Popen(
            [program, "-M", "virt,memory-backend=ram", "-m", f"{size >> 10}K", "-bios", "none", "-kernel", str(elf)]
            + ["-object", f"memory-backend-file,id=ram,size={size},mem-path={self.file.name},share=on"]
            + ["-display", "none", "-monitor", "none", "-serial", "stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        self.line = Line(self.process.stdout.fileno(), self.process.stdin.fileno(), "qemu-system-riscv32")

    def serve(self):
        """The NPU's registers: asked, answered, writes, offset, value."""
        words, idle = self.words, 0
        while not self.stop.is_set():
            asked = words[0]
            if asked == words[1]:
                idle += 1
                time.sleep(0 if idle < 2000 else 0.001)
                continue
            idle = 0
            if words[2]:
                self.machine.write(words[3], words[4])
            else:
                words[4] = self.machine.read(words[3])
            words[1] = asked

    def close(self):
        self.stop.set()
        self.thread.join()
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


def feeds_of(firmware, paths):
    """Arrays by name from FILE or NAME=FILE (.npy, .npz)."""
    feeds = {}
    for text in paths:
        name, _, path = text.rpartition("=")
        try:
            content = np.load(path)
        except (OSError, ValueError) as failure:
            refuse("io", f"'{path}' cannot be read: {failure}")
        if isinstance(content, np.ndarray):
            feeds[name or (firmware.inputs[0].name if firmware.inputs else "")] = content
        else:
            feeds.update({key: content[key] for key in content.files})
    return feeds


def arguments(words):
    parser = argparse.ArgumentParser(
        prog="tessera console",
        description="talk to exported firmware over its line",
        epilog="Example: tessera console --port /dev/ttyUSB0 --input image.npy",
    )
    known = os.environ.get("TESSERA_LITEX_CONSOLE")  # of tessera litex --simulate
    where = parser.add_mutually_exclusive_group(required=not known)
    where.add_argument("--port", default=f"tcp:{known}" if known else None, help="serial port, or tcp:HOST:PORT")
    where.add_argument("--qemu", metavar="FOLDER", help="run this folder's firmware in QEMU, the NPU simulated")
    parser.add_argument("--baud", type=int, default=115200, help="of a serial port; default 115200")
    parser.add_argument("--config", help="of --qemu: an NPU other than the model's machine")
    parser.add_argument("--input", action="append", default=[], help="FILE or NAME=FILE (.npy, .npz); else only asks")
    parser.add_argument("-o", "--output", help="results (.npz)")
    return parser.parse_args(words)


def main(words=None):
    given = arguments(words)
    try:
        if given.output:
            if not given.input:
                refuse("invalid_argument", "-o keeps what a run gives; add --input FILE")
            require_place(given.output)
        with contextlib.ExitStack() as stack:
            if given.qemu:
                line = stack.enter_context(Qemu(given.qemu, given.config)).line
            elif given.port.startswith("tcp:"):
                _, host, port = (given.port.split(":") + ["", ""])[:3]
                if not port.isdigit():
                    refuse("invalid_argument", f"--port takes a path or tcp:HOST:PORT, not '{given.port}'")
                line = tcp_line(host, int(port))
            else:
                line = serial_line(given.port, given.baud)
            firmware = Firmware(line)
            print(f"{firmware.name} for {firmware.machine}, {firmware.identity}")
            if given.input:
                results = firmware.run(feeds_of(firmware, given.input))
                print("\n".join(firmware.text))
                if given.output:
                    np.savez(given.output, **results)
    except Error as failure:
        print(f"tessera: error ({getattr(failure, 'code', 'io')}): {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

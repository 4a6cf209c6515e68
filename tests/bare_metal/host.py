# SPDX-License-Identifier: Apache-2.0
"""Exports models and runs them in this process: the generic library for x86-64, compiled by the host's compiler, with
the functional simulator behind the registers."""

import ctypes
import itertools
import platform
import shutil
import subprocess
from pathlib import Path

import _tessera
import numpy as np
import pytest

from tests.system.conftest import BUILD

HERE = Path(__file__).resolve().parent
COMMAND = BUILD / "bin" / "tessera"
needs_host = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="the host is no x86-64 with gcc"
)
NUMPY = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}


def export(model, folder, *words, status=0):
    """Runs `tessera export --bare-metal` and returns what it printed; with another status, its line of error."""
    line = [str(COMMAND), "export", str(model), "--bare-metal", "-o", str(folder), *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


class Status(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("have", ctypes.c_uint64),
        ("want", ctypes.c_uint64),
        ("program", ctypes.c_uint32),
        ("instruction", ctypes.c_uint32),
        ("fault", ctypes.c_uint8),
        ("unit", ctypes.c_uint8),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint32),
        ("type", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("shape", ctypes.POINTER(ctypes.c_uint32)),
    ]

    def array(self):
        """A view of its memory."""
        raw = (ctypes.c_uint8 * self.bytes).from_address(self.data)
        return np.frombuffer(raw, NUMPY[self.type]).reshape([self.shape[k] for k in range(self.rank)])


class Model(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("machine", ctypes.c_char_p),
        ("identity", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(Tensor)),
        ("outputs", ctypes.POINTER(Tensor)),
        ("steps", ctypes.c_void_p),
        ("requirements", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("instructions", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_uint32),
        ("instruction_bytes", ctypes.c_uint32),
        ("constant_bytes", ctypes.c_uint32),
        ("input_count", ctypes.c_uint16),
        ("output_count", ctypes.c_uint16),
    ]


NUMBERS = itertools.count()
READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)


class HostFirmware:
    """The library of `folder` in this process. `registers` may be replaced by another pair of functions (read, write)
    after construction, to be an NPU that fails."""

    def __init__(self, folder, config, *flags):
        folder = Path(folder)
        port = folder / "host_port.c"
        shutil.copy(HERE / "host_port.c", port)
        objects = ["host_port.o", "tessera_console.o"]
        subprocess.run(
            ["make", "-s", "-C", str(folder), "EXTRA=-fPIC -DTESSERA_PATIENCE=200 " + " ".join(flags)]
            + ["libtessera_model.a", *objects],
            check=True,
        )
        # A name of its own: the loader gives a library that is open under the same name again, with its variables.
        library = folder / f"library{next(NUMBERS)}.so"
        subprocess.run(
            ["gcc", "-shared", "-o", str(library), "-Wl,--whole-archive", str(folder / "libtessera_model.a")]
            + ["-Wl,--no-whole-archive", *(str(folder / name) for name in objects)],
            check=True,
        )
        self.library = ctypes.CDLL(str(library))
        self.model = Model.in_dll(self.library, "tessera_model")
        self.inputs = [self.model.inputs[k] for k in range(self.model.input_count)]
        self.outputs = [self.model.outputs[k] for k in range(self.model.output_count)]
        blocks = [
            (self.model.arena, self.model.arena_bytes),
            (self.model.instructions, self.model.instruction_bytes),
            (self.model.constants, self.model.constant_bytes),
        ]
        machine = _tessera.RegisterMachine(config, [(at, at, size) for at, size in blocks if at])
        self.registers = machine.read, machine.write
        self.read = READ(lambda offset: self.registers[0](offset))
        self.write = WRITE(lambda offset, value: self.registers[1](offset, value))
        ctypes.c_void_p.in_dll(self.library, "host_read").value = ctypes.cast(self.read, ctypes.c_void_p).value
        ctypes.c_void_p.in_dll(self.library, "host_write").value = ctypes.cast(self.write, ctypes.c_void_p).value
        self.status = Status()

    def set(self, name, kind, value):
        """A variable of the port."""
        kind.in_dll(self.library, name).value = value

    def describe(self):
        line = ctypes.create_string_buffer(256)
        self.library.tessera_describe(ctypes.byref(self.status), line, ctypes.c_size_t(256))
        return line.value.decode()

    def open(self):
        return self.library.tessera_open(ctypes.byref(self.model), ctypes.byref(self.status))

    def try_run(self):
        return self.library.tessera_run(ctypes.byref(self.model), ctypes.byref(self.status))

    def run(self, feeds):
        """Arrays of the outputs for arrays of the inputs, by name."""
        for tensor in self.inputs:
            tensor.array()[...] = feeds[tensor.name.decode()]
        assert self.try_run() == 0, self.describe()
        return {tensor.name.decode(): tensor.array().copy() for tensor in self.outputs}

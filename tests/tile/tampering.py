# SPDX-License-Identifier: Apache-2.0
"""Linked kernels whose synchronisation is broken. Enters: the bytes of an artifact. Leaves: its instructions, and
artifacts in which other ones stand."""

import importlib.util
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORD, PREAMBLE = 64, 64


def _isa():
    spec = importlib.util.spec_from_file_location("tessera_isa", ROOT / "isa" / "generated" / "tessera_isa.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


isa = _isa()


def checksum(content):
    """That of isa/program/container.cc."""
    mask = (1 << 64) - 1
    value = 0x9AE16A3B2F90404F ^ len(content)
    content += bytes(-len(content) % 8)
    for (word,) in struct.iter_unpack("<Q", content):
        value = (value ^ word) * 0xC2B2AE3D27D4EB4F & mask
        value ^= value >> 29
    return value


def place_of(artifact):
    """(offset, instructions): the vector of the metadata that is one instruction after another up to a finish."""
    end = PREAMBLE + struct.unpack_from("<Q", artifact, 16)[0]
    for at in range(PREAMBLE, end - 4, 4):
        size = struct.unpack_from("<I", artifact, at)[0]
        if size == 0 or size % WORD or at + 4 + size > end:
            continue
        try:
            words = [isa.decode(artifact[at + 4 + k : at + 4 + k + WORD]) for k in range(0, size, WORD)]
        except isa.EncodingError:
            continue
        if words[-1]["name"] == "finish":
            return at + 4, words
    raise AssertionError("no instructions are found")


def with_instructions(artifact, at, words):
    """The artifact with these in the place of as many."""
    made = bytearray(artifact)
    content = b"".join(isa.encode(word) for word in words)
    made[at : at + len(content)] = content
    struct.pack_into("<Q", made, 40, checksum(bytes(made[PREAMBLE:])))
    struct.pack_into("<Q", made, 56, checksum(bytes(made[:56])))
    return bytes(made)

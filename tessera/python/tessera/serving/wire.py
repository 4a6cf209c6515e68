# SPDX-License-Identifier: Apache-2.0
"""The messages of oip.proto, from the descriptor that the build makes of it. They live in a pool of their own, so that
a process may hold another package's messages of the same names."""

import pathlib

import _tessera
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ..errors import error

_DESCRIPTOR = pathlib.Path(_tessera.__file__).resolve().parent / "tessera" / "oip.desc"


def _read():
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR.read_bytes())
    except OSError:
        raise error("io", f"'{_DESCRIPTOR}' is missing, which the build makes of oip.proto; build it again") from None
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool, message_factory.GetMessageClassesForFiles([file.name for file in files.file], pool)


_pool, _messages = _read()
SERVICE = _pool.FindServiceByName("inference.GRPCInferenceService")


def message(name):
    """A message class of the protocol by its name, for example "ModelInferRequest"."""
    return _messages[f"inference.{name}"]

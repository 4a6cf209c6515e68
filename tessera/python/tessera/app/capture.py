# SPDX-License-Identifier: Apache-2.0
"""Inputs and answers of a session, kept as `tessera quantize --calibrate` reads them: a folder for each sample with
serialised ONNX tensors, input_0.pb and output_0.pb and so on, so that shapes may differ from sample to sample. Of all
different inputs that come those with the smallest hashes stay. That is a uniform sample of them, without repetition,
whatever their order, and several processes that write to one folder agree on it."""

import hashlib
import os
import pathlib
import shutil

import numpy as np

TYPES = {  # numpy's name -> TensorProto.DataType
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "object": 8, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
}  # fmt: skip


def _varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _field(number, payload):
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def tensor_bytes(name, array):
    """A TensorProto: the program's environment need not have the package onnx."""
    out = b"".join(_varint(1 << 3) + _varint(extent) for extent in array.shape)
    out += _varint(2 << 3) + _varint(TYPES[array.dtype.name])
    if array.dtype == object:
        out += b"".join(_field(6, str(text).encode()) for text in array.ravel())
    else:
        out += _field(9, array.astype(array.dtype.newbyteorder("<"), order="C").tobytes())
    return out + _field(8, name.encode())


def folder_of(root, name, key):
    """The folder of a model in a --capture or --quantize folder."""
    stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in pathlib.Path(name).stem)[:40]
    return pathlib.Path(root) / f"{stem}-{key[:12]}"


def samples_of(folder):
    return sorted(p for p in (pathlib.Path(folder) / "samples").glob("*") if len(p.name) == 32)


class Capture:
    """Samples of one model. folder: the model's own. write_model: a function that gives its bytes."""

    def __init__(self, folder, samples, megabytes, write_model):
        self.folder, self.most = pathlib.Path(folder) / "samples", samples
        self.bytes_left = megabytes << 20
        self.folder.mkdir(parents=True, exist_ok=True)
        model = pathlib.Path(folder) / "model.onnx"
        if not model.exists():
            part = model.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(write_model())
            part.replace(model)

    def add(self, feeds, answers):
        """feeds: {name: array} in the model's order. answers: a function that gives the outputs by name in the model's
        order; it is called for what is kept."""
        arrays = {name: np.asarray(value) for name, value in feeds.items()}
        if any(array.dtype.name not in TYPES for array in arrays.values()):
            return
        digest = hashlib.blake2b(digest_size=16)
        for name, array in arrays.items():
            content = array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
            digest.update(f"{name}{array.dtype}{array.shape}".encode() + content)
        name = digest.hexdigest()
        kept = samples_of(self.folder.parent)
        size = sum(array.nbytes for array in arrays.values())
        fewer = min(self.most, self.bytes_left // max(1, size))
        if (len(kept) >= fewer and (not kept or kept[-1].name <= name)) or (self.folder / name).exists():
            return
        part = self.folder / f"{name}.{os.getpid()}.part"
        try:
            part.mkdir()
            for k, (port, array) in enumerate(arrays.items()):
                (part / f"input_{k}.pb").write_bytes(tensor_bytes(port, array))
            for k, (port, array) in enumerate(answers().items()):
                if isinstance(array, np.ndarray) and array.dtype.name in TYPES:
                    (part / f"output_{k}.pb").write_bytes(tensor_bytes(port, array))
            part.rename(self.folder / name)
        except OSError:  # another process was first
            shutil.rmtree(part, ignore_errors=True)
        for extra in samples_of(self.folder.parent)[max(1, fewer) :]:
            shutil.rmtree(extra, ignore_errors=True)

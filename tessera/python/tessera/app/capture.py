# SPDX-License-Identifier: Apache-2.0
"""Inputs and answers of a session, kept as `tessera quantize --calibrate` reads them: a folder for each sample with
serialised ONNX tensors, input_0.pb and output_0.pb and so on, so that shapes may differ from sample to sample.

There is room for a number of samples, and equal inputs count once. Half of the room is a uniform sample of all that
came: the inputs with the smallest ranks, which follow from their hashes. The other half holds what is rare: a sample
leaves it whose answer is nearest to another one that is kept. So the answers that a program seldom gives stay, such as
a wake word among hours without one. Several processes may write to one folder: each looks at what is there."""

import hashlib
import os
import pathlib
import shutil

import numpy as np

TYPES = {  # numpy's name -> TensorProto.DataType
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "object": 8, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
}  # fmt: skip
SKETCH = "answer.npy"  # of a sample, beside its tensors
BINS = 32  # of an output in a sketch, for its means and for its extremes
PORTS = 8  # outputs that a sketch tells of


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


def rank_of(name):
    """What the uniform half is chosen by. It is no prefix of the name, which orders the samples: so both halves stand
    mixed, and the first few samples are some of each."""
    return name[::-1]


def sketch(outputs):
    """An answer in a few numbers, so that answers of any shapes can be compared: of each output the mean and the
    largest value along its last axis, folded to BINS places. outputs: arrays, or None for those that were not asked
    for. Returns an array [outputs, 2 * BINS] of float32."""
    made = np.zeros((min(len(outputs), PORTS), 2 * BINS), np.float32)
    for row, array in zip(made, outputs):
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or array.size == 0:
            continue
        last = array.shape[-1] if array.ndim else 1
        rows = np.nan_to_num(array.reshape(-1, last).astype(np.float32))
        folded = np.zeros((2, -(-last // BINS) * BINS), np.float32)
        folded[0, :last], folded[1, :last] = rows.mean(0), rows.max(0)
        mean, most = folded.reshape(2, -1, BINS)
        row[:BINS], row[BINS:] = mean.sum(0), most.max(0)
    return made


def commonest(sketches, free):
    """The index among those that are `free` to leave whose answer is nearest to another one's; of two that are equally
    near the later one. sketches: [samples, outputs, numbers]. Outputs count alike, however large their values are."""
    apart = np.square(sketches - sketches.mean(0)).mean((0, 2))
    rows = (sketches / np.sqrt(np.maximum(apart, 1e-30))[None, :, None]).reshape(len(sketches), -1).astype(np.float64)
    sums = np.square(rows).sum(1)
    distances = sums[free, None] + sums - 2 * rows[free] @ rows.T
    distances[np.arange(len(free)), free] = np.inf
    nearest = np.maximum(distances.min(1), 0)
    return free[len(free) - 1 - int(nearest[::-1].argmin())]


class Capture:
    """Samples of one model. folder: the model's own. write_model: a function that gives its bytes."""

    def __init__(self, folder, samples, megabytes, write_model):
        self.folder, self.most = pathlib.Path(folder) / "samples", samples
        self.bytes_left, self.sketches = megabytes << 20, {}
        self.folder.mkdir(parents=True, exist_ok=True)
        model = pathlib.Path(folder) / "model.onnx"
        if not model.exists():
            part = model.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(write_model())
            part.replace(model)

    def add(self, feeds, results, answers):
        """feeds: {name: array} in the model's order. results: what the run gave, {name: array}, None where it was not
        asked for. answers: a function that gives the outputs by name in the model's order; it is called for what is
        kept."""
        arrays = {name: np.asarray(value) for name, value in feeds.items()}
        if any(array.dtype.name not in TYPES for array in arrays.values()):
            return
        name = self._name_of(arrays)
        if (self.folder / name).exists():
            return
        size = sum(array.nbytes for array in arrays.values())
        room = max(1, min(self.most, self.bytes_left // max(1, size)))
        names = [path.name for path in samples_of(self.folder.parent)]
        own = sketch(list(results.values()))
        leaving = self._leaving([*names, name], own, room) if len(names) >= room else []
        if name not in leaving:
            self._write(name, arrays, own, answers)
        for other in leaving:
            shutil.rmtree(self.folder / other, ignore_errors=True)
            self.sketches.pop(other, None)

    @staticmethod
    def _name_of(arrays):
        digest = hashlib.blake2b(digest_size=16)
        for name, array in arrays.items():
            content = array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
            digest.update(f"{name}{array.dtype}{array.shape}".encode() + content)
        return digest.hexdigest()

    def _leaving(self, names, own, room):
        """Which of the samples leave, so that `room` stay. own: the sketch of the last one, which is new."""
        held = set(sorted(names, key=rank_of)[: (room + 1) // 2])
        sketches = [self._sketch_of(name, own.shape) for name in names[:-1]] + [own]
        gone = []
        while len(names) > room:
            free = [k for k, name in enumerate(names) if name not in held]
            k = commonest(np.stack(sketches), free)
            gone.append(names.pop(k))
            sketches.pop(k)
        return gone

    def _sketch_of(self, name, shape):
        """The sketch of a sample that is kept; zeros where there is none of this shape."""
        if name not in self.sketches:
            try:
                self.sketches[name] = np.load(self.folder / name / SKETCH)
            except (OSError, ValueError):  # another process has removed it
                self.sketches[name] = np.zeros(shape, np.float32)
        found = self.sketches[name]
        return found if found.shape == shape else np.zeros(shape, np.float32)

    def _write(self, name, arrays, own, answers):
        part = self.folder / f"{name}.{os.getpid()}.part"
        try:
            part.mkdir()
            for k, (port, array) in enumerate(arrays.items()):
                (part / f"input_{k}.pb").write_bytes(tensor_bytes(port, array))
            for k, (port, array) in enumerate(answers().items()):
                if isinstance(array, np.ndarray) and array.dtype.name in TYPES:
                    (part / f"output_{k}.pb").write_bytes(tensor_bytes(port, array))
            np.save(part / SKETCH, own)
            part.rename(self.folder / name)
        except OSError:  # another process was first
            shutil.rmtree(part, ignore_errors=True)

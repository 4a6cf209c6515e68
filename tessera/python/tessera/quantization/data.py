# SPDX-License-Identifier: Apache-2.0
"""Calibration data. In: an .npz file, a folder of pictures, a folder of .pb tensors, the word `random`, or in Python
arrays, dicts, an iterable or a function that gives an iterator. Out: a Data, which can be run through again and again
and gives one feed (input name -> array with a batch of one) at a time. Files are read as they are needed: memory does
not grow with their number, and an .npz array is read row by row."""

import dataclasses
import itertools
import os
import pathlib
import tomllib
import zipfile

import numpy as np
from onnx import TensorProto, helper

from .errors import argument, error
from .graph import Graph, extent_of, is_onnx

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".webp")
CARRY = ("Reshape", "Gather", "Squeeze", "Unsqueeze", "Cast", "Identity", "Flatten")  # one number as it is
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


@dataclasses.dataclass
class Port:
    """An input of the model: dims are ints, or None where they are dynamic."""

    name: str
    dims: list
    dtype: np.dtype
    choices: tuple = ()  # numbers that the model compares it with, as a sampling rate
    index: bool = False  # of rows of a table, whatever its type

    @property
    def whole(self):
        return self.index or self.dtype.kind in "iu"

    @property
    def text(self):
        return "[" + ",".join("?" if d is None else str(d) for d in self.dims) + "]"


def _carried(graph, name):
    """The tensor whose numbers a tensor holds, moved at most."""
    while name in graph.producer and is_onnx(graph.producer[name], *CARRY):
        name = graph.producer[name].input[0]
    return name


def _indices(model):
    """Inputs by which the model takes rows of a table, tokens for example."""
    graph = Graph(model)
    return {_carried(graph, node.input[1]) for node in graph.nodes if is_onnx(node, "Gather", "GatherND")}


def _compared(model):
    """input -> the numbers with which the model compares it whole, itself or behind movements."""
    graph, found = Graph(model), {}
    for node in graph.nodes:
        if not is_onnx(node, "Equal"):
            continue
        for side in (0, 1):
            number, name = graph.array(node.input[side]), _carried(graph, node.input[1 - side])
            if number is not None and number.size == 1 and number.dtype.kind in "iu" and name in graph.inputs:
                found.setdefault(name, []).append(int(number.reshape(-1)[0]))
    return found


def ports_of(model):
    constants, compared = {tensor.name for tensor in model.graph.initializer}, _compared(model)
    indices = _indices(model)
    ports = []
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        dims = [extent_of(d) for d in kind.shape.dim]
        single = all(d == 1 for d in dims)
        choices = tuple(dict.fromkeys(compared.get(value.name, ()))) if single else ()
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        ports.append(Port(value.name, dims, dtype, choices, value.name in indices))
    return ports


def port_names(ports):
    return ", ".join(f"'{port.name}' {port.text}" for port in ports)


# --- preprocessing of pictures
# -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Preprocess:
    """value = (pixel * scale - mean) / std, pixel from 0 to 255. resize: None, "exact" (to the input's size) or "short"
    (the shorter side to `short`, or to the input's size over `crop_share`), then a crop of the middle. channels: RGB,
    BGR or GRAY. layout: NCHW, NHWC, or None to take it from the input's shape."""

    resize: str = "exact"
    short: int = 0
    crop_share: float = 1.0
    scale: float = 1.0
    mean: tuple = (0.0,)
    std: tuple = (1.0,)
    channels: str = ""
    layout: str = ""

    KEYS = ("resize", "short", "crop_share", "scale", "mean", "std", "channels", "layout")

    @classmethod
    def named(cls, name):
        """`imagenet`, `unit`, `raw` or a TOML file with the fields above."""
        if not name or name == "raw":
            return cls()
        if name == "unit":
            return cls(scale=1 / 255)
        if name == "imagenet":
            return cls("short", 0, 0.875, 1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        try:
            with open(name, "rb") as file:
                table = tomllib.load(file)
        except OSError:
            raise error("io", f"--preprocess takes imagenet, unit, raw or a TOML file; cannot open '{name}'") from None
        except tomllib.TOMLDecodeError as e:
            raise argument(f"'{name}' is no TOML: {e}") from None
        unknown = sorted(set(table) - set(cls.KEYS))
        if unknown:
            raise argument(f"'{name}': unknown key '{unknown[0]}'; known are {', '.join(cls.KEYS)}")
        for key in ("mean", "std"):
            if key in table:
                table[key] = tuple(np.atleast_1d(table[key]).tolist())
        made = cls(**table)
        if made.resize not in ("exact", "short"):
            raise argument(f"'{name}': resize takes \"exact\" or \"short\", not '{made.resize}'")
        if made.channels not in ("", "RGB", "BGR", "GRAY") or made.layout not in ("", "NCHW", "NHWC"):
            raise argument(f"'{name}': channels are RGB, BGR or GRAY, layout is NCHW or NHWC")
        return made

    def values(self, pixels):
        """float32 [h, w, c] of uint8 [h, w, c]."""
        if self.channels == "BGR":
            pixels = pixels[..., ::-1]
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        return (pixels.astype(np.float32) * np.float32(self.scale) - mean) / std

    def picture(self, path, port):
        """One feed's array of a picture file."""
        layout, height, width, channels = picture_shape(port, self.layout)
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError:
            raise error(
                "unsupported",
                "reading pictures needs Pillow; install it with `pip install -r requirements-quantize.txt`, or give an "
                ".npz file",
            ) from None
        try:
            with Image.open(path) as image:
                image = image.convert("L" if channels == 1 or self.channels == "GRAY" else "RGB")
                image = self._fit(image, height, width)
                pixels = np.asarray(image)
        except (UnidentifiedImageError, OSError) as e:
            raise argument(f"'{path}' is no picture that can be read: {e}") from None
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        values = self.values(pixels)
        return (values.transpose(2, 0, 1) if layout == "NCHW" else values)[None]

    def _fit(self, image, height, width):
        from PIL import Image

        if self.resize == "exact":
            return image.resize((width, height), Image.Resampling.BILINEAR)
        w, h = image.size
        factor = self.short / min(w, h) if self.short else max(height / h, width / w) / self.crop_share
        w, h = max(width, round(w * factor)), max(height, round(h * factor))
        image = image.resize((w, h), Image.Resampling.BILINEAR)
        left, top = (w - width) // 2, (h - height) // 2
        return image.crop((left, top, left + width, top + height))


def picture_shape(port, layout=""):
    """Layout, height, width and channels of an input that takes one picture."""
    dims = port.dims
    if len(dims) == 4:
        found = layout or ("NCHW" if dims[1] in (1, 3) else "NHWC" if dims[3] in (1, 3) else "")
        if found:
            height, width, channels = (dims[2], dims[3], dims[1]) if found == "NCHW" else (dims[1], dims[2], dims[3])
            if None in (height, width):
                raise argument(
                    f"input '{port.name}' {port.text} has a dynamic height or width; fix them with --shape "
                    f"{port.name}=1,{channels},HEIGHT,WIDTH"
                )
            return found, height, width, channels
    raise argument(
        f"input '{port.name}' {port.text} takes no pictures of 1 or 3 channels; give an .npz file with an array for it"
    )


# --- one sample for one input
# --------------------------------------------------------------------------------------------


def fit(array, port, origin):
    """`array` as one feed of the input: with a batch axis, in the input's layout and type. Errors name both shapes."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise argument(f"{origin}: values of type {array.dtype} are no numbers")
    for candidate in _arrangements(array, len(port.dims)):
        fits = all(want in (None, got) for want, got in zip(port.dims, candidate.shape))
        if candidate.ndim == len(port.dims) and fits:
            with np.errstate(over="ignore"):  # an infinite value is told of later
                return np.ascontiguousarray(candidate.astype(port.dtype)).reshape(candidate.shape)  # a scalar stays one
    raise argument(f"{origin} has the shape {list(array.shape)}, and input '{port.name}' takes {port.text}")


def _arrangements(array, rank):
    yield array
    if array.ndim == rank - 1:
        yield array[None]
        array = array[None]
    if rank == 4 and array.ndim == 4:
        yield array.transpose(0, 3, 1, 2)
        yield array.transpose(0, 2, 3, 1)
    if rank == 4 and array.ndim == 3:
        yield array[:, None]
        yield array[..., None]
        yield array[None]
    if array.ndim == 2 and rank == 4:
        yield array[None, None]
        yield array[None, ..., None]
    if array.shape and array.shape[0] == 1 and rank in (1, 2):
        yield array.reshape((1, -1) if rank == 2 else (-1,))


# --- sources
# ------------------------------------------------------------------------------------------------------------


class Data:
    """feeds: a function that gives a new iterator of feeds. text: what it is, for people. synthetic: made up. size: how
    many samples there are, where that is known without reading them."""

    def __init__(self, feeds, text, *, synthetic=False, labels=None, limit=None, size=None):
        self._feeds, self.text, self.synthetic, self.labels, self.limit = feeds, text, synthetic, labels, limit
        self.size = size

    def __iter__(self):
        return itertools.islice(self._feeds(), self.limit)

    def first(self):
        for feed in self:
            return feed
        raise argument(f"{self.text} holds no sample")

    def limited(self, limit):
        return Data(self._feeds, self.text, synthetic=self.synthetic, labels=self.labels, limit=limit, size=self.size)

    def behind(self, count):
        """The samples behind the first `count`, without their labels."""
        feeds = lambda: itertools.islice(self._feeds(), count, None)
        limit = None if self.limit is None else max(0, self.limit - count)
        return Data(feeds, self.text, synthetic=self.synthetic, limit=limit)


def _npz_header(archive, member):
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(file)


def _npz_rows(path, member):
    """The rows of an array along its first axis, read one by one."""
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read(file)
        if dtype.hasobject:
            raise argument(f"'{path}': the array '{member[:-4]}' holds Python objects, not numbers")
        if by_column or not shape:
            with np.load(path) as whole:
                yield from np.atleast_1d(whole[member[:-4]])
            return
        size = int(np.prod(shape[1:])) * dtype.itemsize
        for _ in range(shape[0]):
            block = b""
            while len(block) < size:
                more = file.read(size - len(block))
                if not more:
                    raise error("io", f"'{path}': the array '{member[:-4]}' ends early")
                block += more
            yield np.frombuffer(block, dtype).reshape(shape[1:])


def from_npz(path, ports, preprocess=None):
    try:
        with zipfile.ZipFile(path) as archive:
            headers = {m[:-4]: _npz_header(archive, m) for m in archive.namelist() if m.endswith(".npy")}
    except (OSError, zipfile.BadZipFile, ValueError) as e:
        raise error("io", f"'{path}' is no .npz file that can be read: {e}") from None
    named = {port.name: port.name for port in ports if port.name in headers}
    if len(named) != len(ports):
        # One input: the only array that is no list of labels serves it, whatever its name.
        data = [name for name, (shape, _, _) in headers.items() if len(shape) > 1]
        if len(ports) == 1 and len(data) == 1:
            named = {ports[0].name: data[0]}
        else:
            missing = next(port for port in ports if port.name not in headers)
            raise argument(
                f"'{path}' has no array for input '{missing.name}' {missing.text}; it holds "
                + ", ".join(f"'{n}' {list(s)}" for n, (s, _, _) in headers.items())
            )
    counts = {headers[array][0][0] if headers[array][0] else 1 for array in named.values()}
    if len(counts) != 1 or 0 in counts:
        raise argument(f"'{path}': the arrays of the inputs hold different numbers of samples, or none")
    labels = next((n for n in ("labels", "label", "y") if n in headers and len(headers[n][0]) == 1), None)

    def feeds():
        rows = [_npz_rows(path, f"{named[port.name]}.npy") for port in ports]
        for k, row in enumerate(zip(*rows)):
            feed = {}
            for port, value in zip(ports, row):
                if preprocess is not None and value.dtype == np.uint8:
                    value = preprocess.values(
                        value if value.ndim == 3 and value.shape[-1] in (1, 3) else value[..., None]
                    )
                feed[port.name] = fit(value, port, f"'{path}': sample {k} of '{named[port.name]}'")
            yield feed

    known = None
    if labels:
        with np.load(path) as arrays:
            known = arrays[labels]
    return Data(feeds, f"'{path}'", labels=known, size=counts.pop())


def from_pictures(folder, ports, preprocess):
    files = sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix.lower() in PICTURES)
    if len(ports) != 1:
        raise argument(
            f"a folder of pictures serves one input, and the model takes {port_names(ports)}; give an .npz file"
        )
    picture_shape(ports[0], preprocess.layout)
    return Data(
        lambda: ({ports[0].name: preprocess.picture(path, ports[0]).astype(ports[0].dtype)} for path in files),
        f"{len(files)} pictures of '{folder}'",
        size=len(files),
    )


def from_tensors(folder, ports):
    """Serialised TensorProto: for one input each file is a sample. For several, each folder below (as
    test_data_set_0) is one, with input_0.pb and so on."""
    from onnx import load_tensor, numpy_helper

    def load(path, port):
        try:
            array = numpy_helper.to_array(load_tensor(str(path)))
        except Exception as e:
            raise argument(f"'{path}' holds no ONNX tensor that can be read: {type(e).__name__}") from None
        return fit(array, port, f"'{path}'")

    folder = pathlib.Path(folder)
    groups = sorted({path.parent for path in folder.rglob("*.pb")})
    samples = []
    for group in groups:
        files = sorted(group.glob("*.pb"), key=lambda p: (len(p.name), p.name))
        numbered = [group / f"input_{k}.pb" for k in range(len(ports))]
        if all(path.is_file() for path in numbered):
            samples.append(numbered)
        elif len(ports) == 1:
            samples += [[path] for path in files if not path.name.startswith("output_")]
        else:
            missing = next(p for p in numbered if not p.is_file())
            raise argument(f"'{missing}' is missing; the model takes {port_names(ports)}")
    return Data(
        lambda: ({port.name: load(path, port) for port, path in zip(ports, sample)} for sample in samples),
        f"{len(samples)} samples of '{folder}'",
        size=len(samples),
    )


def random_values(rng, port, shape):
    """Values from 0 to 1; whole numbers and truths are 0 or 1, or one of the port's choices."""
    if port.choices:
        return np.full(shape, rng.choice(port.choices), port.dtype)
    two = port.whole or port.dtype.kind == "b"
    return np.asarray(rng.integers(0, 2, shape) if two else rng.random(shape)).astype(port.dtype)


def from_random(ports, seed, samples):
    """Uniform values from 0 to 1, the same for the same seed. Synthetic: an accuracy on them says nothing."""

    def feeds():
        rng = np.random.default_rng(seed)
        for _ in range(samples):
            yield {port.name: random_values(rng, port, [1 if d is None else d for d in port.dims]) for port in ports}

    return Data(feeds, f"random values (seed {seed})", synthetic=True, size=samples)


def from_python(source, ports, samples):
    """Arrays, dicts of arrays, a sequence of them, a function that gives an iterator, or an iterator (kept in memory
    up to `samples`)."""

    def feed_of(sample, k):
        if not isinstance(sample, dict):
            if len(ports) != 1:
                raise argument(f"sample {k} is one array, and the model takes {port_names(ports)}; give dicts")
            sample = {ports[0].name: sample}
        missing = next((p for p in ports if p.name not in sample), None)
        if missing is not None:
            raise argument(f"sample {k} has no array for input '{missing.name}'; it holds {sorted(sample)}")
        return {port.name: fit(sample[port.name], port, f"sample {k}") for port in ports}

    if isinstance(source, dict):
        arrays = {name: np.asarray(value) for name, value in source.items()}
        lengths = {len(value) for value in arrays.values() if value.ndim}
        if len(lengths) != 1:
            raise argument("the arrays of the inputs hold different numbers of samples")
        again = lambda: ({n: v[k] for n, v in arrays.items()} for k in range(lengths.copy().pop()))
    elif callable(source):
        again = source
    elif iter(source) is source:
        kept = list(itertools.islice(source, samples))
        again = lambda: iter(kept)
    else:
        again = lambda: iter(source)
    size = len(source) if hasattr(source, "__len__") and not isinstance(source, dict) else None
    return Data(lambda: (feed_of(sample, k) for k, sample in enumerate(again())), "the caller's data", size=size)


def take(data, count):
    """The first samples of the data, `count` at most, as a list."""
    return list(data.limited(count if data.limit is None else min(count, data.limit)))


def open_data(source, ports, *, preprocess="", seed=0, samples=300):
    """Data of whatever `source` is, checked on its first sample. See the module's text."""
    if source is None:
        raise argument(
            "no calibration data; give --calibrate an .npz file, a folder of pictures or tensors, or `random`"
        )
    Preprocess.named(preprocess)  # a wrong one is told of any data
    if isinstance(source, (str, os.PathLike)):
        data = _open_path(os.fspath(source), ports, preprocess, seed, samples)
    else:
        data = from_python(source, ports, samples)
    data = data.limited(samples)
    data.first()
    return data


def _open_path(source, ports, preprocess, seed, samples):
    if source == "random":
        return from_random(ports, seed, min(samples, 32))
    path = pathlib.Path(source)
    if path.is_dir():
        if any(path.rglob("*.pb")):
            return from_tensors(path, ports)
        if any(p.suffix.lower() in PICTURES for p in path.rglob("*")):
            return from_pictures(path, ports, Preprocess.named(preprocess))
        raise argument(
            f"the folder '{source}' holds no pictures ({', '.join(PICTURES)}) and no .pb tensors; name one that does"
        )
    if not path.is_file():
        raise error("io", f"cannot open the calibration data '{source}': no such file or folder")
    if path.suffix != ".npz":
        raise argument(f"'{source}' is no calibration data: give an .npz file, a folder, or `random`")
    return from_npz(source, ports, Preprocess.named(preprocess) if preprocess else None)

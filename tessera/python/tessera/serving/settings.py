# SPDX-License-Identifier: Apache-2.0
"""The settings of one model: the file tessera.toml in its folder. Every key has a default, so that the file may be
missing; a key that nobody knows is an error."""

import dataclasses
import pathlib
import tomllib

from ..errors import argument

FILE = "tessera.toml"


@dataclasses.dataclass(frozen=True)
class Batching:
    """Requests that come together run together, along the first dimension. max_batch: rows of a run; 0 leaves requests
    as they come. sizes: the numbers of rows that are compiled; a run is filled up to the next one. max_queue_delay:
    seconds that a request waits for others. max_queue: requests that wait; more are refused."""

    max_batch: int = 0
    sizes: tuple = ()
    max_queue_delay: float = 0.0
    max_queue: int = 128


@dataclasses.dataclass(frozen=True)
class Settings:
    """device, config, device_options and compile: as Session takes them. instances: sessions that run side by side.
    versions: {"latest": N}, "all" or a list of numbers. shapes: {input: shape} that fix dynamic dimensions. warm: runs
    before the model counts as ready, each {input: shape}. warm_up: whether there are such runs. only_warm: refuse
    shapes that were not warmed. calibration: {"data": file, and the keywords of tessera.quantize} for a float model.
    cores, priority: of a chip that models of the same device, config and device_options share (docs/serving.md).
    prepare: texts of shapes that will come, as of shapes.shapes_ahead, which are compiled while requests are served."""

    device: str = "fsim"
    config: str = ""
    device_options: dict = dataclasses.field(default_factory=dict)
    compile: dict = dataclasses.field(default_factory=dict)
    instances: int = 1
    cores: tuple = ()
    priority: int = 0
    versions: object = dataclasses.field(default_factory=lambda: {"latest": 1})
    batching: Batching = Batching()
    shapes: dict = dataclasses.field(default_factory=dict)
    warm: tuple = ()
    warm_up: bool = True
    only_warm: bool = False
    calibration: dict = dataclasses.field(default_factory=dict)
    prepare: tuple = ()


def _is_count(value, least=1):
    return type(value) is int and value >= least


def _are_shapes(value):
    return isinstance(value, dict) and all(
        isinstance(shape, list) and all(_is_count(d, 0) for d in shape) for shape in value.values()
    )


def _are_versions(value):
    if isinstance(value, dict):
        return set(value) == {"latest"} and _is_count(value["latest"])
    return value == "all" or (isinstance(value, list) and value != [] and all(map(_is_count, value)))


_TEXT = (lambda v: isinstance(v, str), "a text")
_TABLE = (lambda v: isinstance(v, dict), "a table")
_FLAG = (lambda v: isinstance(v, bool), "true or false")
_COUNT = (_is_count, "a whole number of 1 or more")
_RULES = {
    "device": _TEXT,
    "config": _TEXT,
    "device_options": _TABLE,
    "compile": _TABLE,
    "instances": _COUNT,
    "cores": (
        lambda v: isinstance(v, list) and v != [] and all(_is_count(core, 0) for core in v),
        "a list of numbers of cores of a chip",
    ),
    "priority": (lambda v: type(v) is int, "a whole number"),
    "versions": (_are_versions, '{latest = N}, "all" or a list of version numbers'),
    "batching": _TABLE,
    "shapes": (_are_shapes, "a table from inputs to lists of dimensions"),
    "warm": (lambda v: isinstance(v, list) and all(map(_are_shapes, v)), "a list of tables from inputs to dimensions"),
    "warm_up": _FLAG,
    "only_warm": _FLAG,
    "calibration": (lambda v: isinstance(v, dict) and isinstance(v.get("data"), str), "a table with the key data"),
    "prepare": (lambda v: isinstance(v, list) and all(isinstance(t, str) for t in v), "a list of texts INPUT=SIZES"),
}
_BATCHING_RULES = {
    "max_batch": (lambda v: _is_count(v, 0), "a whole number"),
    "sizes": (lambda v: isinstance(v, list) and v != [] and all(map(_is_count, v)), "a list of whole numbers"),
    "max_queue_delay": (lambda v: isinstance(v, (int, float)) and 0 <= v <= 60, "seconds from 0 to 60"),
    "max_queue": _COUNT,
}


def _checked(path, table, rules, prefix=""):
    for key, value in table.items():
        if key not in rules:
            raise argument(f"{path}: there is no key '{prefix}{key}'; the keys are {', '.join(rules)}")
        fits, what = rules[key]
        if not fits(value):
            raise argument(f"{path}: '{prefix}{key}' is {what}, not {value!r}")


def _batching(path, table):
    _checked(path, table, _BATCHING_RULES, "batching.")
    most = table.get("max_batch", 0)
    sizes = sorted(set(table.get("sizes", [])))
    if sizes and (most == 0 or sizes[-1] != most):
        raise argument(f"{path}: the largest of 'batching.sizes' is max_batch, which is {most}")
    if most and not sizes:
        sizes = sorted({1 << n for n in range(most.bit_length()) if 1 << n < most} | {most})[-8:]
    if len(sizes) > 8:  # a session keeps eight compiled shapes
        raise argument(f"{path}: 'batching.sizes' holds {len(sizes)} numbers; eight are the most")
    return Batching(**{**table, "sizes": tuple(sizes), "max_batch": most})


def parse(path, text, defaults):
    """Settings from the text of a file. defaults: keys that hold where the file is silent. Errors: tessera.Error that
    names the file and the key."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise argument(f"{path}: not TOML: {problem}") from None
    _checked(path, given, _RULES)
    table = {**defaults, **given}
    table["batching"] = _batching(path, table.get("batching", {}))
    table["cores"] = tuple(table.get("cores", ()))
    table["warm"], table["prepare"] = tuple(table.get("warm", ())), tuple(table.get("prepare", ()))
    if "prepare" in given:  # of this model, whatever its name
        table["prepare"] = tuple(f"*:{text}" for text in given["prepare"])
    return Settings(**table)


def read(folder, defaults):
    """Settings of the model in a folder. A machine's file and calibration data are named relative to the folder and
    stand in it."""
    path = pathlib.Path(folder) / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as problem:
        raise argument(f"cannot read {path}: {problem}") from None
    settings = parse(path, text, defaults)
    changes = {}
    is_file = settings.config.endswith(".toml") or ("/" in settings.config and "\n" not in settings.config)
    if is_file and settings.config != defaults.get("config"):
        changes["config"] = inside(folder, settings.config)
    if settings.calibration:
        changes["calibration"] = {**settings.calibration, "data": inside(folder, settings.calibration["data"])}
    return dataclasses.replace(settings, **changes)


def inside(folder, name):
    """The path of a file that stands in the folder, links resolved. Errors: tessera.Error."""
    root = pathlib.Path(folder).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise argument(f"'{name}' leaves the model's folder {root}; what belongs to a model stands in its folder")
    return str(path)

# SPDX-License-Identifier: Apache-2.0
# Types of the package tessera; the meaning of every parameter stands in the docstrings of __init__.py.
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .quantization import Quantized

__version__: str

class Error(RuntimeError):
    code: str

class NodeArg:
    name: str
    type: str
    shape: list[int | str | None] | None
    def __init__(self, port: Mapping[str, Any]) -> None: ...

class Layer(dict[str, Any]):
    def __getattr__(self, key: str) -> Any: ...

class Stats(Layer):
    layers: list[Layer]
    def __init__(self, values: Mapping[str, Any]) -> None: ...

class Session:
    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        device: str = ...,
        config: str | os.PathLike[str] = ...,
        *,
        shapes: Mapping[str, Sequence[int]] | None = ...,
        device_options: Mapping[str, Any] | None = ...,
        schedules: Mapping[str, Any] | None = ...,
        check_races: bool = ...,
        poison: int | None = ...,
        base_address: int | None = ...,
        wave: str | None = ...,
        profile: bool = ...,
        trusted_keys: str | os.PathLike[str] | None = ...,
        **options: Any,
    ) -> None: ...
    def run(
        self, output_names: Iterable[str] | None, input_feed: Mapping[str, ArrayLike], run_options: Any = ...
    ) -> list[np.ndarray | list[np.ndarray] | list[dict[str | int, float]] | None]: ...
    def get_inputs(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...
    def stats(self) -> Stats: ...
    def trace(self) -> dict[str, Any]: ...
    def schedules(self) -> dict[str, Any]: ...
    def info(self) -> Layer: ...
    def report(self, path: str | os.PathLike[str] | None = ...) -> dict[str, Any]: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...

class PredictedModel:
    def __init__(
        self, model: str | os.PathLike[str] | bytes, shapes: Mapping[str, Sequence[int]] | None = ...
    ) -> None: ...
    def predict(self, config: str, **options: Any) -> Layer: ...

def backends() -> list[str]: ...
def compile_options() -> list[dict[str, str]]: ...
def compile(
    model: str | os.PathLike[str] | bytes,
    output: str | os.PathLike[str],
    config: str = ...,
    *,
    shapes: Mapping[str, Sequence[int]] | None = ...,
    **options: Any,
) -> Layer: ...
def quantize(
    model: Any,
    calibrate: Any,
    output: str | os.PathLike[str] | None = ...,
    *,
    engine: str = ...,
    method: str = ...,
    config: str = ...,
    preprocess: str = ...,
    samples: int = ...,
    seed: int = ...,
    shapes: Mapping[str, Sequence[int]] | None = ...,
    power_of_two: bool = ...,
    per_channel: bool = ...,
    accurate_bias: bool = ...,
    keep_float: int | str | Iterable[int | str] = ...,
    labels: Any = ...,
    test: Any = ...,
    metric: Callable[[Any], float] | None = ...,
    max_drop: float | None = ...,
    report: bool = ...,
    progress: Callable[..., None] | None = ...,
) -> Quantized: ...

# SPDX-License-Identifier: Apache-2.0
"""A request of the protocol, as REST and gRPC both have it, checked against the model that it asks."""

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np

from .refusals import Kind, Refusal, invalid
from .tensors import check_datatype


@dataclasses.dataclass
class Input:
    """read: makes the array once name, datatype and shape are known to fit."""

    name: str
    datatype: str
    shape: list
    read: Callable[[], np.ndarray]


@dataclasses.dataclass
class Output:
    name: str
    parameters: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Request:
    model: str
    version: str = ""
    id: str = ""
    parameters: dict = dataclasses.field(default_factory=dict)
    inputs: list = dataclasses.field(default_factory=list)
    outputs: list = dataclasses.field(default_factory=list)


def feeds_of(request, served):
    """Arrays by input. Errors: a Refusal that names the input and both sides."""
    feeds = {}
    for given in request.inputs:
        port = served.inputs.get(given.name)
        if port is None:
            raise invalid(f"{served.label} has no input '{given.name[:200]}', it has {_names(served.inputs)}")
        if given.name in feeds:
            raise invalid(f"input '{given.name}' is there twice")
        check_datatype(given.name, given.datatype)
        if given.datatype != port.datatype:
            raise invalid(f"input '{given.name}' is {given.datatype}, {served.label} takes {port.datatype}")
        if not port.takes(given.shape):
            raise invalid(f"input '{given.name}' has the shape {given.shape}, {served.label} takes {port.shape}")
        feeds[given.name] = given.read()
    missing = sorted(set(served.inputs) - set(feeds))
    if missing:
        raise invalid(f"{served.label} needs the inputs {_names(served.inputs)}; the request lacks {_names(missing)}")
    for output in request.outputs:
        if output.name not in served.outputs:
            raise invalid(f"{served.label} has no output '{output.name[:200]}', it has {_names(served.outputs)}")
        if output.parameters.get("classification"):
            raise invalid(f"output '{output.name}': the extension 'classification' is not offered")
    if len({output.name for output in request.outputs}) != len(request.outputs):
        raise invalid("an output is asked for twice")
    for extension in ("sequence_id", "shared_memory_region"):
        everywhere = [request.parameters, *(output.parameters for output in request.outputs)]
        if any(parameters.get(extension) for parameters in everywhere):
            raise invalid(f"the parameter '{extension}' belongs to an extension that is not offered")
    return feeds


def _names(names):
    return ", ".join(f"'{name}'" for name in names) or "none"


def deadline_of(request, most):
    """When nobody waits for the answer any more, as time.monotonic(): the parameter `timeout` (microseconds) or `most`
    seconds, whichever is sooner."""
    timeout = request.parameters.get("timeout")
    if timeout is None:
        return time.monotonic() + most
    try:
        seconds = int(timeout) / 1e6
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds > 0 or not math.isfinite(seconds):
        raise invalid("the parameter 'timeout' is a number of microseconds above 0")
    return time.monotonic() + min(seconds, most)


def wanted_outputs(request, served):
    """The outputs that the request asks for, all where it names none."""
    return request.outputs or [Output(name) for name in served.outputs]


def late():
    return Refusal(Kind.DEADLINE, "the deadline passed before the model had answered")

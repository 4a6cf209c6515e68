# SPDX-License-Identifier: Apache-2.0
"""What quantisation is at, for errors. In: steps, which name themselves by `with step("...")` or `begin("...")`, and an
exception that nobody has foreseen. Out: one tessera.Error that names the step and the node or layer.

The node is found in the traceback: functions of this package that work on one hold it in a variable, so that nothing
has to be noted while all goes well."""

import contextlib
import contextvars
import functools
import re

import _tessera
import onnx

from .errors import error

TAKEN = ("unit", "node", "product", "made", "target")  # names of variables that hold a node, or a unit of nodes


_now = contextvars.ContextVar("step", default="quantising")


def begin(name):
    """The step `name` begins; it ends with the next one, or with the `step` around it."""
    _now.set(name)


@contextlib.contextmanager
def step(name):
    """Names the step that the body is. Where an exception leaves it, the innermost name stays for `one_line`."""
    before = _now.get()
    _now.set(name)
    yield
    _now.set(before)


def one_line(function):
    """A function of which every exception is one tessera.Error; its cause has the traceback."""

    @functools.wraps(function)
    def wrapped(*arguments, **options):
        _now.set("quantising")
        try:
            return function(*arguments, **options)
        except _tessera.Error:
            raise
        except Exception as e:
            raise as_error(e) from e

    return wrapped


def _node_of(value):
    value = getattr(value, "node", value)
    return value if isinstance(value, onnx.NodeProto) else None


def place_of(exception):
    """The node that the innermost function of this package was at; None where none was."""
    found, trace = None, exception.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__name__", "").startswith(__package__):
            nodes = [_node_of(frame.f_locals.get(name)) for name in TAKEN]
            found = next((node for node in nodes if node is not None), found)
        trace = trace.tb_next
    return found


def first_line(exception):
    """What an exception says, without what runtimes put around it."""
    # Runtimes put the file and line of their own source, or the status, in front.
    text = str(exception).split("Status Message: ")[-1].strip()
    return re.sub(r"^/\S+:\d+ ", "", text.splitlines()[0]) if text else ""


def as_error(exception):
    """The tessera.Error that an exception becomes; one that is such an error stays."""
    if isinstance(exception, _tessera.Error):
        return exception
    if isinstance(exception, MemoryError):
        return error("does_not_fit", "the host has not enough memory for this model")
    if isinstance(exception, OSError):
        return error("io", str(exception))
    node = place_of(exception)
    where = f", node '{node.name or next(iter(node.output), '')}' ({node.op_type})" if node is not None else ""
    cause = f"{type(exception).__name__}: {first_line(exception)}".removesuffix(": ")
    out = "--debug shows where"
    if node is not None and node.name:
        out = f"--keep-float '{node.name}' may leave it out, --debug shows where"
    return error("internal", f"{_now.get()}{where}: {cause}; {out}")

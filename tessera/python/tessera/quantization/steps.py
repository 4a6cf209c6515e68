# SPDX-License-Identifier: Apache-2.0
"""What quantisation is at, for errors. In: steps, which name themselves by `with step("...")` or `@step("...")`, and an
exception that nobody has foreseen. Out: one tessera.Error that names the step and the node or layer.

The node is found in the traceback: functions of this package that work on one hold it in a variable, so that nothing
has to be noted while all goes well."""

import contextlib
import re

import _tessera
import onnx

from .errors import error

TAKEN = ("unit", "node", "product", "made", "target")  # names of variables that hold a node, or a unit of nodes


@contextlib.contextmanager
def step(name):
    """Names the step in which an exception is raised: the innermost one counts."""
    try:
        yield
    except Exception as e:
        if not hasattr(e, "tessera_step"):
            with contextlib.suppress(AttributeError):
                e.tessera_step = name
        raise


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


def _first_line(exception):
    # Runtimes put the file and line of their own source, or the status, in front.
    text = str(exception).split("Status Message: ")[-1].strip()
    return re.sub(r"^/\S+:\d+ ", "", text.splitlines()[0]) if text else ""


def as_error(exception, step_name="quantising"):
    """The tessera.Error that an exception becomes; one that is such an error already stays."""
    if isinstance(exception, _tessera.Error):
        return exception
    if isinstance(exception, MemoryError):
        return error("does_not_fit", "the host has not enough memory for this model")
    if isinstance(exception, OSError) and exception.filename is not None:
        return error("io", str(exception))
    node, name = place_of(exception), getattr(exception, "tessera_step", step_name)
    where = f", node '{node.name or next(iter(node.output), '')}' ({node.op_type})" if node is not None else ""
    cause = f"{type(exception).__name__}: {_first_line(exception)}".removesuffix(": ")
    out = "--debug shows where"
    if node is not None and node.name:
        out = f"--keep-float '{node.name}' may leave it out, --debug shows where"
    return error("internal", f"{name}{where}: {cause}; {out}")

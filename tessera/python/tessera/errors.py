# SPDX-License-Identifier: Apache-2.0
"""Errors of what is Python: tessera.Error with a code, as those of the compiler."""

import _tessera


def error(code, message):
    """A tessera.Error to be raised. code: "invalid_argument", "invalid_model", "unsupported", "io"."""
    raised = _tessera.Error(message)
    raised.code = code
    return raised


def argument(message):
    return error("invalid_argument", message)


def model_error(message):
    return error("invalid_model", message)

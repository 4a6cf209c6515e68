# SPDX-License-Identifier: Apache-2.0
"""Errors of quantisation: those of the package."""

from ..errors import argument, error, model_error

__all__ = ["argument", "error", "model_error"]

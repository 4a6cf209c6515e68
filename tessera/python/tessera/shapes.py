# SPDX-License-Identifier: Apache-2.0
"""Shapes as the commands take them."""

from .errors import argument


def shapes_of(texts):
    """{input: [sizes]} of texts NAME=D0,D1,... with sizes from 1 on. Errors: invalid_argument."""
    shapes = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        try:
            sizes = [int(d) for d in dims.split(",")]
        except ValueError:
            sizes = []
        if not name or not sizes or min(sizes) < 1:
            raise argument(f"--shape takes NAME=D0,D1,..., got '{text}'")
        shapes[name] = sizes
    return shapes

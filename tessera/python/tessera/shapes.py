# SPDX-License-Identifier: Apache-2.0
"""Shapes as the commands take them."""

import fnmatch

import _tessera

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


def shapes_ahead(texts, model, inputs, others=False):
    """Shapes of a model that will come, as Session.prepare takes them: a list of {input: sizes}.

    texts: [MODEL:]INPUT=SIZES, where SIZES are those of `tessera compile --shapes` and MODEL is a pattern as of file
    names; texts of other models, and those without MODEL whose input this one does not have, are left out. model: its
    name. inputs: {input: dimensions}, where a dimension that is open is no integer (-1 too), and None is any shape.
    others: there are other models, so that texts without MODEL whose sizes do not fit are left out, too.
    Errors: invalid_argument for texts that are not so, and for sizes that an input does not take."""
    made_of, own = _tessera.shapes_of_ranges, {}
    for text in texts:
        name = next((name for name in _inputs_of(text, model) if name in inputs), None)
        of_all = others and text.startswith(f"{name}=")
        if name is not None and not (of_all and any(not _fits(s[name], inputs[name]) for s in made_of([text]))):
            own[text] = name
    made = made_of([f"{name}={text.rpartition('=')[2]}" for text, name in own.items()])
    for text, name in own.items():
        if not all(_fits(sizes[name], inputs[name]) for sizes in made):
            raise argument(f"--shapes '{text}': input '{name}' of '{model}' is {_text_of(inputs[name])}")
    return made if own else []


def _inputs_of(text, model):
    """The names of inputs that may be meant: names hold colons as well."""
    left = text.rpartition("=")[0]
    yield left
    parts = left.split(":")
    for k in range(1, len(parts)):
        if fnmatch.fnmatchcase(model, ":".join(parts[:k])):
            yield ":".join(parts[k:])


def _fits(sizes, dims):
    fixed = lambda d: isinstance(d, int) and d >= 0
    return dims is None or len(sizes) == len(dims) and all(not fixed(d) or d == n for d, n in zip(dims, sizes))


def _text_of(dims):
    return ",".join(str(d) if isinstance(d, int) and d >= 0 else "?" for d in dims)

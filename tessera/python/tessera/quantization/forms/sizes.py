# SPDX-License-Identifier: Apache-2.0
"""Sizes of dynamic dimensions that nobody has given. In: a float model and its inputs. Out: a size for each dynamic
dimension, with which the float model runs. Method: candidates are tried, cheap ones that people use first, by running
the model once in ONNX Runtime, within a limit of time. Dimensions of one name get one size; a name that is a sum or
product of names (`past + tokens`) gets what follows from theirs. Batches are 1. The others are tried alike, as heights
and widths of pictures and of lines of text, then one by one; and behind the usual sizes come those that stand in the
model's own constants, such as the tokens of a table of positions."""

import ast
import collections
import copy
import itertools
import math
import operator
import time

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ..data import random_values
from ..errors import argument
from ..graph import graphs_of
from ..measure import session
from ..steps import first_line

BATCH = ("n", "b", "bs", "num_images")  # names of a first dimension, whatever else it could be
PICTURES = ((224, 224), (320, 320), (48, 320), (640, 640), (32, 320), (32, 128), (64, 64), (96, 96), (256, 256))
PICTURES += ((416, 416), (512, 512), (800, 608), (112, 112), (28, 28), (128, 128), (299, 299), (1024, 1024), (8, 8))
LENGTHS = (128, 16, 64, 32, 512, 256, 96, 1, 2, 8, 100, 80, 76, 160, 400, 480, 576, 1024, 1280, 3, 4, 20, 48, 300)
SOUNDS = (16000, 512, 576, 1280, 8000, 24000, 32000, 48000, 43844, 1600, 4096, 1024, 128, 256, 64, 1536, 2048)
CHANNELS = 2  # of a sound, at most: more beside a length are features of tokens, atoms, steps ...
SHARED = 2  # inputs, at most, of which one is a sound and the other its mask: more count what is no sound
FRAMES = 64  # of a first dimension that counts steps of time
MOST = 4096  # of a dimension that nothing says to be a sound
OWN = 24  # sizes out of the model's constants
ELEMENTS = 1 << 24  # of an input
SECONDS = 40.0  # of trying
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
OPERATORS[ast.Div] = operator.floordiv


class _Symbols:
    """The dynamic dimensions of the inputs: `free` ones, in order, and those that follow from them."""

    def __init__(self, model, ports):
        values = {value.name: value for value in model.graph.input}
        self.dims, self.free, self.follow = {}, {}, {}
        self.whole = {port.name for port in ports if port.whole}
        self.types = {port.name: port.dtype for port in ports}
        for port in ports:
            names = []
            for axis, extent in enumerate(port.dims):
                symbol = values[port.name].type.tensor_type.shape.dim[axis].dim_param if extent is None else None
                if extent is None and not symbol.strip("?"):
                    symbol = f"{port.name}.{axis}"  # nobody has named it
                names.append(extent if extent is not None else symbol)
                if extent is None:
                    self.free.setdefault(symbol, []).append((port, axis))
            self.dims[port.name] = names
        for symbol in list(self.free):
            formula = self._formula(symbol)
            if formula is not None:
                self.follow[symbol] = formula
                del self.free[symbol]

    def _formula(self, symbol):
        """The names that a name is made of, as a tree; None for a plain name, and where one of them is not known."""
        try:
            tree = ast.parse(symbol, mode="eval").body
        except SyntaxError:
            return None
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        served = all(
            isinstance(node, (ast.Name, ast.BinOp, ast.Constant, ast.operator, ast.expr_context))
            for node in ast.walk(tree)
        )
        return tree if served and isinstance(tree, ast.BinOp) and names <= set(self.free) else None

    def shapes(self, sizes):
        """{input: shape} of {symbol: size}."""

        def value(tree):
            if isinstance(tree, ast.BinOp):
                return OPERATORS[type(tree.op)](value(tree.left), value(tree.right))
            return known[tree.id] if isinstance(tree, ast.Name) else int(tree.value)

        known = dict(sizes)
        for symbol, tree in self.follow.items():
            known[symbol] = max(0, value(tree))
        return {name: [known.get(d, d) for d in dims] for name, dims in self.dims.items()}

    def batches(self):
        """The dimensions that count samples: the first ones of inputs with more than one axis, unless all that is
        dynamic are first ones."""
        first = [s for s, uses in self.free.items() if all(axis == 0 and len(p.dims) > 1 for p, axis in uses)]
        named = [s for s in self.free if s.lower().startswith("batch")]
        named += [s for s, uses in self.free.items() if s.lower() in BATCH and all(axis == 0 for _, axis in uses)]
        return dict.fromkeys(first + named, 1)


def _own_sizes(model):
    """Sizes that stand in the model: extents and integers of its constants, the most frequent first; and the sides of
    squares whose patches they may count."""
    counts = collections.Counter()
    for graph in graphs_of(model.graph):
        for tensor in graph.initializer:
            counts.update(d for d in tensor.dims if 1 < d <= MOST)
            if tensor.data_type == TensorProto.INT64 and 0 < math.prod(tensor.dims) <= 8:
                counts.update(int(v) for v in numpy_helper.to_array(tensor).reshape(-1) if 1 < v <= MOST)
    found = [size for size, _ in counts.most_common(OWN)]
    found += [
        side * patch for size in found for side in [math.isqrt(size)] for patch in (16, 14, 32) if side**2 == size
    ]
    return found + [size - 1 for size in found]


class _Kinds:
    """What the dynamic dimensions may be: sides of pictures, lengths of sounds, or others, such as tokens."""

    def __init__(self, symbols, rest):
        self.sides, self.sounds = {}, []  # sides: symbol -> 0 for a height, 1 for a width
        fixed = []  # sides that are known: (0 or 1, size)
        for name, dims in symbols.dims.items():
            number = symbols.types[name].kind == "f" and name not in symbols.whole
            if number and len(dims) == 4:
                first = 1 if dims[3] in (1, 3, 4) and dims[1] not in (1, 3) else 2
                for side, extent in enumerate(dims[first : first + 2]):
                    if extent in rest:
                        self.sides.setdefault(extent, side)
                    elif isinstance(extent, int):
                        fixed.append((side, extent))
            elif number and len(dims) <= 2 and not any(isinstance(d, int) and d > CHANNELS for d in dims):
                self.sounds += [d for d in dims if d in rest and len(symbols.free[d]) <= SHARED]
        self.sounds = [s for s in dict.fromkeys(self.sounds) if s not in self.sides]
        self.others = [s for s in rest if s not in self.sides and s not in self.sounds]
        # Beside a known height first those pictures that have it.
        self.pictures = sorted(PICTURES, key=lambda size: -sum(size[side] == extent for side, extent in fixed))

    def usual(self, k):
        """The k-th guess of all of them."""
        picture = self.pictures[k % len(PICTURES)]
        return {
            **{s: picture[side] for s, side in self.sides.items()},
            **dict.fromkeys(self.sounds, SOUNDS[k % len(SOUNDS)]),
            **dict.fromkeys(self.others, LENGTHS[k % len(LENGTHS)]),
        }


def _candidates(model, symbols):
    """Assignments {symbol: size}, the likely ones first."""
    base = symbols.batches()
    rest = [s for s in symbols.free if s not in base]
    kinds, own = _Kinds(symbols, rest), _own_sizes(model)
    for k in range(max(len(PICTURES), len(SOUNDS), len(LENGTHS))):
        yield kinds.usual(k) | base
    for size in (*own, *LENGTHS, *(size for size in SOUNDS if size <= MOST)):
        yield dict.fromkeys(rest, size) | base
    # One by one: what runs may need different sizes.
    choices = list(dict.fromkeys((*LENGTHS[:8], *own, 224, 16000)))
    for start in (16, 128, 1):
        for symbol, size in itertools.product(rest, choices):
            yield dict.fromkeys(rest, start) | {symbol: size} | base
    for pair in itertools.combinations(rest, 2):
        for chosen in itertools.product(choices[:12], repeat=2):
            yield dict.fromkeys(rest, 16) | dict(zip(pair, chosen)) | base
    for size in (1, 2, 4, 8, 16, FRAMES):  # a first dimension that counts no samples
        yield dict.fromkeys(symbols.free, size)
        yield dict.fromkeys(rest, 16) | dict.fromkeys(base, size)
    for size in own:
        yield dict.fromkeys(rest, size) | dict.fromkeys(base, FRAMES)
    for pair in itertools.combinations(rest, 2):
        for chosen in itertools.product(own[:12], repeat=2):
            yield dict(zip(pair, chosen)) | dict.fromkeys(base, FRAMES)


def find(model, ports, *, seed=0, seconds=SECONDS, clock=time.monotonic):
    """{input: shape} with which the model runs, of all its inputs. Errors: tessera.Error where none of the sizes that
    are tried does."""
    symbols, rng = _Symbols(model, ports), np.random.default_rng(seed)
    run, end, tried, causes = session(model, optimise=False), clock() + seconds, set(), collections.Counter()
    for sizes in _candidates(model, symbols):
        shapes = symbols.shapes(sizes)
        key = tuple((name, *shape) for name, shape in shapes.items())
        if key in tried or any(math.prod(shape) > ELEMENTS for shape in shapes.values()):
            continue
        if tried and clock() > end:
            break
        tried.add(key)
        try:
            results = run.run(None, {port.name: random_values(rng, port, shapes[port.name]) for port in ports})
        except Exception as e:  # whatever the runtime says: these sizes do not serve
            causes[first_line(e)] += 1
            continue
        if all(getattr(value, "size", 1) for value in results) or len(tried) > len(LENGTHS):
            return shapes
        causes["an output holds nothing"] += 1
    names = ", ".join(symbols.free)
    cause = causes.most_common(1)[0][0] if causes else "they are too large"
    raise argument(
        f"the float model ran with none of {len(tried)} sizes that were tried for its dynamic dimensions ({names}): "
        f"{cause}; give --shape INPUT=D0,D1,..., or samples"
    )


def text_of(shapes):
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())


def fix_shapes(model, shapes):
    """Gives dynamic dimensions of inputs the given extents."""
    known = {value.name: value for value in model.graph.input}
    symbols = {d.dim_param for value in known.values() for d in value.type.tensor_type.shape.dim if d.dim_param}
    for name, shape in shapes.items():
        if name in symbols and name not in known and len(shape) == 1:
            for value in known.values():
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param == name:
                        dim.Clear()
                        dim.dim_value = int(shape[0])
            continue
        if name not in known:
            raise argument(f"--shape: the model has no input '{name}'; it takes {', '.join(known)}")
        dims = known[name].type.tensor_type.shape.dim
        if len(dims) != len(shape):
            raise argument(f"--shape: input '{name}' has {len(dims)} dimensions, got {len(shape)}")
        for dim, extent in zip(dims, shape):
            dim.Clear()
            dim.dim_value = int(extent)
    if shapes:
        del model.graph.value_info[:]
        for value in model.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                if not dim.HasField("dim_value"):
                    dim.Clear()
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return model


def with_shapes(model, shapes):
    """fix_shapes, unless a branch that will not be taken has no sense for the shapes: ONNX Runtime then refuses the
    model, and takes it with dynamic dimensions."""
    if not shapes or not any(node.op_type == "If" for node in model.graph.node):
        return fix_shapes(model, shapes)
    fixed = fix_shapes(copy.deepcopy(model), shapes)
    try:
        session(fixed, optimise=False)
    except Exception:  # whatever the runtime says: the dimensions stay as they are
        return model
    return fixed

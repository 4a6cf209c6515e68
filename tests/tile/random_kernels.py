# SPDX-License-Identifier: Apache-2.0
"""Random kernels as Python sources: statements of every kind over tiles that hold something, so that each of them is
legal, and faults that are planted into a line of one. Enters: a seed and a machine. Leaves: sources."""

import dataclasses
import linecache

import numpy as np

from tessera import tile
from tessera.tile.machine import machine as machine_of


@dataclasses.dataclass
class Held:
    """A tile of the source that holds something, with its shape in elements."""

    name: str
    space: str
    shape: tuple
    dtype: str


class Source:
    """A kernel in the making. lines: of its body; line numbers of the file are those of the list, plus 5."""

    FIRST = 5  # of the file: the body's first line

    def __init__(self, rng, machine):
        self.rng, self.machine = rng, machine
        self.lines, self.tiles, self.outputs = [], [], []
        self.inputs = []  # (name, dtype, shape)
        self.count = 0

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def add(self, line):
        self.lines.append(line)

    def pick(self, *spaces):
        found = [one for one in self.tiles if one.space in spaces]
        return found[int(self.rng.integers(len(found)))] if found else None

    def number(self, low, high):
        return int(self.rng.integers(low, high, endpoint=True))

    def unit(self, one):
        """Elements of an entry along the last two axes."""
        machine = self.machine
        lanes = machine.block_in if one.space in ("inp", "wgt") else machine.block_out
        return (machine.block_out if one.space == "wgt" else machine.batch), lanes

    def dims(self, one):
        rows, lanes = self.unit(one)
        return (*one.shape[:-2], -(-one.shape[-2] // rows), -(-one.shape[-1] // lanes))

    # --- statements

    def load(self):
        space = str(self.rng.choice(["inp", "inp", "wgt", "out", "acc"]))
        dtype = "int32" if space == "acc" else str(self.rng.choice(["int8", "uint8"]))
        rank = self.number(2, 3)
        shape = tuple(self.number(1, 9) for _ in range(rank - 2)) + (self.number(1, 12), self.number(1, 40))
        name, source = self.name("t"), self.name("x")
        kind = "" if space == "acc" else f', dtype="{dtype}"'
        zero = self.number(0, 20) if space in ("inp", "wgt") else 0
        kind += f", zero={zero}" if zero and space != "wgt" else ""
        form = self.number(0, 5)
        if form == 4 and rank == 2:  # an axis of one element, which is read again and again
            axis = self.number(0, 1)
            given = (1, shape[1]) if axis == 0 else (shape[0], 1)
            view = f"{source}.expand(*{shape})"
        elif form == 5 and rank == 2:  # frames, which overlap where the step is short
            step = self.number(1, shape[1] + 2)
            given = (1, (shape[0] - 1) * step + shape[1] + self.number(0, step - 1))
            view = f"{source}.unfold(1, {shape[1]}, {step})[0]"
        elif form == 0:  # a window that may hang over the edges
            given = tuple(self.number(1, 10) for _ in shape[:-1]) + (shape[-1],)
            starts = [self.number(-2, 3) for _ in shape[:-2]] + [self.number(-2, 3) if space not in ("wgt",) else 0, 0]
            if space == "wgt" or self.machine.batch > 1:
                starts[-2], given = 0, (*given[:-2], shape[-2], given[-1])
            view = f"{source}.window({tuple(starts)}, {shape})"
        elif form == 1 and rank == 2:
            given, view = (shape[1], shape[0]), f"{source}.permute(1, 0)"
        elif form == 2:
            more = tuple(self.number(0, 3) for _ in shape)
            given = tuple(a + b for a, b in zip(shape, more, strict=True))
            starts = [self.number(0, b) for b in more]
            view = f"{source}[{', '.join(f'{a}:{a + b}' for a, b in zip(starts, shape, strict=True))}]"
        else:
            given, view = shape, source
        self.inputs.append((source, dtype, given))
        self.add(f"{name} = k.{space}(*{shape}{kind})")
        self.add(f"k.load({name}, {view})")
        self.tiles.append(Held(name, space, shape, dtype))

    def constant(self):
        space = str(self.rng.choice(["inp", "wgt", "out"]))
        shape = (self.number(1, 10), self.number(1, 40))
        held = Held(self.name("t"), space, shape, "int8")
        self.add(f"{held.name} = k.{space}(*{shape})")
        values = f"np.arange({shape[0] * shape[1]}).reshape({shape}) * {self.number(1, 9)} % 251 - 125"
        self.add(f"k.load({held.name}, k.constant(({values}).astype(np.int8)))")
        self.tiles.append(held)

    def through_dram(self):
        """Scratch memory of DRAM between two tiles, as it is, transposed, or joined to rows."""
        source = self.pick("out")
        if source is None or len(source.shape) > 2:
            return
        name, held = (
            self.name("d"),
            Held(self.name("t"), str(self.rng.choice(["inp", "wgt", "out"])), source.shape, source.dtype),
        )
        turn = self.rng.random() < 0.4
        self.add(f'{name} = k.scratch("{source.dtype}", {source.shape})')
        self.add(f"k.store({name}, {source.name})")
        held.shape = held.shape[::-1] if turn else held.shape
        self.add(f'{held.name} = k.{held.space}(*{held.shape}, dtype="{held.dtype}")')
        self.add(f"k.load({held.name}, {name}{'.permute(1, 0)' if turn else ''})")
        self.tiles.append(held)

    def convolve(self):
        """A window over two axes of an image of its own, with strides and dilations."""
        taps, strides = [self.number(1, 3) for _ in range(2)], [self.number(1, 2) for _ in range(2)]
        apart, results = [self.number(1, 2) for _ in range(2)], [self.number(1, 4) for _ in range(2)]
        extents = [(n - 1) * s + (t - 1) * d + 1 for n, s, t, d in zip(results, strides, taps, apart, strict=True)]
        c, o = self.number(1, 20), self.number(1, 20)
        image, weights, sums = self.name("t"), self.name("t"), self.name("t")
        before = [self.number(0, 1) for _ in range(2)]
        for name, space, shape, given in (
            (image, "inp", (*extents, c), tuple(max(1, e - b) for e, b in zip(extents, before, strict=True)) + (c,)),
            (weights, "wgt", (*taps, o, c), (*taps, o, c)),
        ):
            source = self.name("x")
            self.inputs.append((source, "int8", given))
            self.add(f"{name} = k.{space}(*{shape})")
            place = "" if space == "wgt" else f".window({(-before[0], -before[1], 0)}, {shape})"
            self.add(f"k.load({name}, {source}{place})")
        blocks = [-(-c // self.machine.block_in), -(-o // self.machine.block_out)]
        held = Held(sums, "acc", (*results, blocks[1] * self.machine.block_out), "int32")
        self.add(f"{sums} = k.acc(*{held.shape})")
        self.add(
            f"r, i, j, dy, dx, n = k.axes({results[0]}, {results[1]}, {blocks[1]}, {taps[0]}, {taps[1]}, {blocks[0]})"
        )
        at = f"{strides[0]} * r + {apart[0]} * dy, {strides[1]} * i + {apart[1]} * dx"
        order = str(self.rng.choice(["", ", order=[j, r, i]", ", order=[i, j, r]"]))
        self.add(f"k.dot({sums}[r, i, j], {image}[{at}, n], {weights}[dy, dx, j, n], over=[dy, dx, n]{order})")
        self.tiles.append(held)

    def depthwise(self):
        source = self.pick("inp")
        if source is None or len(source.shape) != 2 or self.machine.block_in != self.machine.block_out:
            return
        rows, blocks = self.dims(source)
        taps = self.number(1, min(rows, self.machine.depthwise_taps))
        step = self.number(1, 2)
        results, channels = (rows - taps) // step + 1, blocks * self.machine.block_in
        weights, held = self.name("w"), Held(self.name("t"), "acc", (results, channels), "int32")
        if self.rng.random() < 0.5:
            given = self.name("x")
            self.inputs.append((given, "int8", (taps, channels)))
        else:
            values = f"np.arange({taps * channels}).reshape({taps}, {channels}) * {self.number(1, 9)} % 251 - 125"
            given = f"({values}).astype(np.int8)"
        self.add(f"{weights} = k.depthwise_weights({given})")
        self.add(f"{held.name} = k.acc(*{held.shape})")
        self.add(f"i, j, n = k.axes({results}, {blocks}, {taps})")
        first = f"{held.name}[i, j], {source.name}[{step} * i + n, j], {weights}[j, 0], [n]"
        order = ", order=[j, i]" if self.rng.random() < 0.5 else ""
        self.add(f"k.depthwise({first}{order})")
        if self.rng.random() < 0.3:
            self.add(f"k.depthwise({first}, add=True)")
        self.tiles.append(held)

    def flip(self):
        """Entries in the opposite order, by an index that falls."""
        source = self.pick(*self.sources())
        if source is None:
            return
        held, dims = self.result(source)
        self.add(f"i, j = k.axes({dims[-2]}, {dims[-1]})")
        lead = "".join(f"{self.number(0, extent - 1)}, " for extent in dims[:-2])
        self.add(f"k.vector({held.name}[i, j], {source.name}[{lead}{dims[-2] - 1} - i, j])")
        self.tiles.append(held)

    def lookup(self):
        source = self.pick("out", "inp") if self.machine.block_in == self.machine.block_out else self.pick("out")
        if source is None:
            return
        held, dims = self.result(source)
        self.add(f"i, j = k.axes({dims[-2]}, {dims[-1]})")
        lead = "".join(f"{self.number(0, extent - 1)}, " for extent in dims[:-2])
        self.add(f"v = k.table(np.arange(256) * {self.number(1, 7)} % 251)")
        self.add(f"k.lookup({held.name}[i, j], {source.name}[{lead}i, j], v)")
        self.tiles.append(held)

    def scoped(self):
        """Tiles that are gone behind their use; the next ones take their place."""
        shape = (self.number(1, 8), self.number(1, 30))
        held = Held(self.name("t"), "out", shape, "int8")
        source, inner = self.name("x"), self.name("t")
        self.inputs.append((source, "int8", shape))
        self.add(f"{held.name} = k.out(*{shape})")
        self.add("with k.scope():")
        self.add(f"    {inner} = k.out(*{shape})")
        self.add(f"    k.load({inner}, {source})")
        self.add(f"    i, j = {inner}.axes()")
        second = f"k.second('add', {inner}[i, j], rx=0.5, ry=0.25, table=k.table(np.arange(256) % 97))"
        self.add(f"    k.vector({held.name}[i, j], {inner}[i, j], second={second})")
        self.tiles.append(held)

    def scan(self):
        """Each row from the one before: an instruction reads what it has just written."""
        source = self.pick("out")
        if source is None or source.dtype != "int8":
            return
        rows, blocks = self.dims(source)[-2:]
        lead = "".join("0, " for _ in source.shape[:-2])
        held = Held(self.name("t"), "out", (rows + 1, blocks * self.machine.block_out), "int8")
        self.add(f"{held.name} = k.out(*{held.shape})")
        self.add(f"k.fill({held.name}[0:1], {self.number(-9, 9)})")
        self.add(f"i, j = k.axes({rows}, {blocks})")
        second = f'k.second("add", {held.name}[i, j], rx=0.75, ry=0.5)'
        self.add(f"k.vector({held.name}[i + 1, j], {source.name}[{lead}i, j], second={second})")
        self.tiles.append(held)

    def fill(self):
        name = self.name("t")
        shape = (self.number(1, 8), self.number(1, 40))
        self.add(f"{name} = k.out(*{shape})")
        self.add(f"k.fill({name}, {self.number(-128, 127)})")
        self.tiles.append(Held(name, "out", shape, "int8"))

    def dot(self):
        inp, wgt = self.pick("inp"), self.pick("wgt")
        if inp is None or wgt is None:
            return
        a, b = self.dims(inp), self.dims(wgt)
        step = self.number(1, 2)
        rows, outs, deep = -(-a[-2] // step), b[-2], min(a[-1], b[-1])
        name = self.name("t")
        shape = (rows * self.machine.batch, outs * self.machine.block_out)
        self.add(f"{name} = k.acc(*{shape})")
        self.add(f"i, j, n = k.axes({rows}, {outs}, {deep})")
        lead_a = "".join(f"{self.number(0, extent - 1)}, " for extent in a[:-2])
        lead_b = "".join(f"{self.number(0, extent - 1)}, " for extent in b[:-2])
        first = f"{name}[i, j], {inp.name}[{lead_a}{step} * i, n], {wgt.name}[{lead_b}j, n]"
        self.add(f"k.dot({first}, over=[n])")
        if self.rng.random() < 0.3:
            self.add(f"k.dot({first}, over=[n], add=True)")
        self.tiles.append(Held(name, "acc", shape, "int32"))

    def result(self, source):
        """A new tile for what is made of `source`: (tile, extents of rows and blocks)."""
        dims = self.dims(source)
        lanes = self.machine.block_out
        square = self.machine.block_in == lanes
        space = str(self.rng.choice(["out", "inp"])) if square else "out"
        held = Held(
            self.name("t"),
            space,
            (dims[-2] * self.machine.batch, dims[-1] * lanes),
            str(self.rng.choice(["int8", "uint8"])),
        )
        self.add(f'{held.name} = k.{space}(*{held.shape}, dtype="{held.dtype}")')
        return held, dims

    def sources(self):
        return ("acc", "out", "inp") if self.machine.block_in == self.machine.block_out else ("acc", "out")

    def convert(self):
        source = self.pick(*self.sources())
        if source is None:
            return
        held, dims = self.result(source)
        channels = held.shape[-1]
        self.add(
            f"p = k.param(np.arange({channels}) * {self.number(-50, 50)}, {self.rng.choice([0.5, 0.013, 0.0007])})"
        )
        self.add(f"i, j = k.axes({dims[-2]}, {dims[-1]})")
        lead = "".join(f"{self.number(0, extent - 1)}, " for extent in dims[:-2])
        more = f", zero={self.number(0, 9)}" if self.rng.random() < 0.5 else ""
        if self.rng.random() < 0.3:
            self.add(f"v = k.table((np.arange(256) * {self.number(1, 7)} % 251) - 120)")
            more += ", table=v"
        self.add(f"k.convert({held.name}[i, j], {source.name}[{lead}i, j], p[j]{more})")
        self.tiles.append(held)

    def pool(self):
        source = self.pick(*self.sources())
        if source is None:
            return
        held, dims = self.result(source)
        size = self.number(1, dims[-2])
        reduce = str(self.rng.choice(["max", "sum"]))
        self.add(f"i, j, n = k.axes({dims[-2] - size + 1}, {dims[-1]}, {size})")
        lead = "".join(f"{self.number(0, extent - 1)}, " for extent in dims[:-2])
        self.add(f'k.pool({held.name}[i, j], {source.name}[{lead}i + n, j], [n], "{reduce}")')
        if size > 1:
            rest = size - 1
            self.add(f"k.fill({held.name}[{dims[-2] - rest}:], 1)")
        self.tiles.append(held)

    def second(self):
        one, other = self.pick("out"), self.pick("out")
        if one is None:
            return
        a, b = self.dims(one), self.dims(other)
        rows, blocks = min(a[-2], b[-2]), min(a[-1], b[-1])
        held = Held(self.name("t"), "out", (rows * self.machine.batch, blocks * self.machine.block_out), "int8")
        self.add(f"{held.name} = k.out(*{held.shape})")
        self.add(f"i, j = k.axes({rows}, {blocks})")
        lead_a = "".join(f"{self.number(0, extent - 1)}, " for extent in a[:-2])
        lead_b = "".join(f"{self.number(0, extent - 1)}, " for extent in b[:-2])
        form = str(self.rng.choice(["add", "mul", "max", "min"]))
        numbers = {"add": "rx=0.5, ry=0.75, f=0.25", "mul": "rx=0.01, zx=3, zy=-2"}.get(form, "zero=0")
        bounds = {"int8": "(-128, 127)", "uint8": "(0, 255)"}
        x, y = (bounds["int8"], bounds[other.dtype])
        swap = self.rng.random() < 0.5
        x, y = (y, x) if swap else (x, y)
        self.add(
            f'k.vector({held.name}[i, j], {one.name}[{lead_a}i, j], low=-128, high=127, second=k.second("{form}", '
            f"{other.name}[{lead_b}i, j], x={x}, y={y}, swap={swap}, {numbers}))"
        )
        self.tiles.append(held)

    def raw(self):
        source = self.pick("acc")
        if source is None:
            return
        dims = self.dims(source)
        held = Held(self.name("t"), "acc", (self.machine.batch, dims[-1] * self.machine.block_out), "int32")
        self.add(f"{held.name} = k.acc(*{held.shape})")
        self.add(f"j, n = k.axes({dims[-1]}, {dims[-2]})")
        lead = "".join("0, " for _ in dims[:-2])
        self.add(f'k.vector({held.name}[0, j], {source.name}[{lead}n, j], reduce="sum", over=[n])')
        self.tiles.append(held)

    def rows(self):
        source = self.pick(*self.sources())
        if source is None or not self.machine.row_lanes or len(source.shape) > 2:
            return
        dims = self.dims(source)
        length = self.number(
            dims[-1] * self.machine.block_out - self.machine.block_out + 1, dims[-1] * self.machine.block_out
        )
        space = str(self.rng.choice(["out", "inp"])) if self.machine.block_in == self.machine.block_out else "out"
        scalars, held = (
            self.name("s"),
            Held(self.name("t"), space, (dims[-2], dims[-1] * self.machine.block_out), "uint8"),
        )
        self.add(f"{scalars} = k.acc({dims[-2]}, 1)")
        self.add(f'{held.name} = k.{space}(*{held.shape}, dtype="uint8")')
        self.add(f"i, j = k.axes({dims[-2]}, {dims[-1]})")
        place = f"{scalars}[i, 0], {source.name}[i, j], [j], {length}"
        sums = source.space == "acc"  # which one pass alone reads
        if sums or self.rng.random() < 0.5:
            self.add("e = np.exp(-0.03 * np.arange(256))")
            self.add("one, many = k.numbers(e), k.numbers(e * 256)")
            self.add(f"k.fill({scalars}, {self.number(0, 127)})" if sums else f"k.row_max({place})")
            if sums or (source.space != held.space and self.rng.random() < 0.7):
                params = f", params=k.param({self.number(-50, 50)}, 0.013)[0]" if sums else ""
                references = f"{held.name}[i, j], {source.name}[i, j], {scalars}[i, 0]"
                self.add(f"k.sum_softmax({references}, [j], {length}, one, many{params})")
            else:
                self.add(f"k.row_sum_exp({place}, one)")
                self.add(f"k.softmax({held.name}[i, j], {source.name}[i, j], {scalars}[i, 0], [j], many)")
        else:
            self.add(f"f = k.factors({self.number(-1000, 1000)}, {self.number(1000, 30000)})")
            self.add(f"k.row_moments({place}, epsilon={self.number(0, 900)}, zero={self.number(0, 100)})")
            self.add(
                f"k.normalise({held.name}[i, j], {source.name}[i, j], {scalars}[i, 0], [j], f[0], low=0, high=255)"
            )
        self.tiles.append(held)

    def store(self):
        source = self.pick("out", "acc")
        if source is None:
            return
        name, shape = self.name("y"), source.shape
        form = self.number(0, 3)
        if form == 0 and len(shape) == 2:  # transposed, byte by byte
            self.add(f'{name} = k.output("{source.dtype}", {shape[::-1]})')
            self.add(f"k.store({name}.permute(1, 0), {source.name})")
        elif form == 1 and shape[-2] > 1 and self.machine.batch == 1:  # in two parts
            cut, lead = self.number(1, shape[-2] - 1), ":, " * (len(shape) - 2)
            self.add(f'{name} = k.output("{source.dtype}", {shape})')
            for part in (f"[{lead}:{cut}]", f"[{lead}{cut}:]"):
                self.add(f"k.store({name}{part}, {source.name}{part})")
        else:
            self.add(f'{name} = k.output("{source.dtype}", {shape})')
            self.add(f"k.store({name}, {source.name})")
        self.outputs.append(name)


def draw(seed, config):
    """(lines of a file, specs of its inputs) of a random kernel `drawn` that fits the machine."""
    rng = np.random.default_rng(seed)
    source = Source(rng, machine_of(config))
    source.load()
    steps = {
        source.load: 3,
        source.fill: 0.5,
        source.constant: 0.5,
        source.dot: 3,
        source.convolve: 1.2,
        source.depthwise: 1.5,
        source.convert: 3,
        source.pool: 1.5,
        source.flip: 0.7,
        source.lookup: 0.7,
        source.second: 1.5,
        source.scan: 0.7,
        source.raw: 0.7,
        source.scoped: 0.7,
        source.through_dram: 1,
        source.rows: 1.5,
    }
    weights = np.array(list(steps.values()))
    steps = list(steps)
    for _ in range(int(rng.integers(4, 16))):
        steps[int(rng.choice(len(steps), p=weights / weights.sum()))]()
        if rng.random() < 0.25:
            source.store()
    if source.pick("out", "acc") is None:
        source.fill()
    source.store()
    names = ", ".join(name for name, _, _ in source.inputs)
    head = ["import numpy as np", "from tessera import tile", "@tile.kernel", f"def drawn(k, {names}):"]
    body = [f"    {line}" for line in source.lines] + [f"    return {', '.join(source.outputs)}"]
    return head + body, [tile.Spec(dtype, shape) for _, dtype, shape in source.inputs]


def kernel_of(lines, name):
    """The kernel that a source defines; errors name its lines as those of the file `name`."""
    text = "\n".join(lines) + "\n"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {}
    exec(compile(text, name, "exec"), space)
    return space["drawn"]

# SPDX-License-Identifier: Apache-2.0
"""From an operator's loop nests to operators that the compiler takes to the NPU. Enters: what one element of each
result is. Leaves: an ONNX graph of integer operators. Method: an expression is cut at bytes. What one byte decides is a
table, what two bytes decide a function of pairs; sums of products become convolutions and products of matrices by which
loops their factors have, and other reductions windows. What the machine has no form for is refused with its line."""

import functools
import math
import operator

import numpy as np

from .contractions import Contractions, Sums
from .errors import KernelError
from .expressions import LIMITS, Apply, Expression, Load, Number, Reduce, Requantise, byte_of, identity, replaced, walk
from .forms import fits_machine
from .gathering import Gathering
from .graphs import GraphMaker, Value
from .lattices import Lattices, is_bit, number_beside
from .meaning import values_of
from .plain import Plain
from .views import Views
from .windows import Windows


class Lowering(Views, Contractions, Gathering, Lattices, Windows, Plain):
    """One operator. inputs: {Source: its name} of those that come when it runs. host: whether what the NPU has no form
    for is left to the host's processor."""

    def __init__(self, inputs, host=False):
        self.host = host
        self.graph = GraphMaker()
        self.values = {source: Value(name, source.dtype, source.shape) for source, name in inputs.items()}
        self.order = {}  # Loop -> axis of the result at hand
        self._kept = {}  # (id of an expression, loops, type) -> (the expression, Value)
        self._lattices, self._conversions = {}, {}  # id of an expression -> (it, what it becomes)

    def run(self, computes):
        for made in computes:
            self.values[made.source] = self.compute(made)

    def at(self, expression):
        """Nodes that follow are of this expression's line."""
        self.graph.where = expression.where
        self.graph.terms[expression.where] = str(expression)

    # --- results

    def compute(self, made):
        """The Value of a result, in the order of its loops."""
        body, loops, shape = made.body, list(made.loops), made.source.shape
        self.graph.where = made.where
        self.order = {loop: axis for axis, loop in enumerate(loops)}
        try:
            value = self.wide(body, loops) if made.dtype == "int32" else self.bytes(body, loops, made.dtype)
        except KernelError:
            if not self.host:
                raise
            value = self.plain(body, loops)
            value = value if made.dtype == "int32" else self.cast(value, made.dtype)
        return self.graph.expand(value, shape)

    def wide(self, body, loops):
        """int32: a sum and a constant for each channel."""
        sums = self.sums(body)
        if sums is None:
            body.fail(
                "is an int32 that the machine has no form for; int32 results are sums and constants added to them"
            )
        found, bias = sums
        vector = self.channel_vector(found, bias, body)
        value = found.value
        self.at(body)
        if vector is not None:
            constant = self.graph.constant(vector.astype(np.int32).reshape(found.channel_shape(vector)))
            value = self.graph.node("Add", [value, constant], "int32", value.shape)
        return self.unfolded(found, value, loops)

    def unfolded(self, found, value, loops):
        """What was made of sums, over `loops`."""
        return self.view(self.graph.reshape(value, found.shape), found.loops, loops)

    def sums(self, expression, scale=None):
        """(Sums, constant expression or None) where an expression is int32 tensors and constants, added; else None.
        scale: the expression that they will be multiplied by, or a number."""
        terms = list(self.terms(expression, 1))
        tensors = self.merged([(factor, one) for factor, one in terms if not one.constant])
        if not any(self.is_wide(one) for _, one in tensors):
            return None
        bias = None
        for factor, one in terms:
            if one.constant:
                part = one if factor == 1 else one * factor
                bias = part if bias is None else bias + part
        channels = [loop for one in (bias, scale) if isinstance(one, Expression) for loop in one.loops]
        found = self.reduced(tensors[0][1], tensors[0][0]) if len(tensors) == 1 else self.joined(expression, tensors)
        apart = found is not None and any(loop not in found.channels for loop in channels)
        if found is None or (apart and not any(isinstance(one, Load) for _, one in tensors)):
            found, rest = self.gathered(expression, tensors, channels)
            if rest is not None:
                bias = rest if bias is None else bias + rest
        return found, bias

    def terms(self, expression, sign):
        """(factor, expression) whose sum it is."""
        if isinstance(expression, Apply) and expression.name in ("add", "sub"):
            yield from self.terms(expression.children[0], sign)
            yield from self.terms(expression.children[1], sign if expression.name == "add" else -sign)
        elif isinstance(expression, Apply) and expression.name == "mul":
            numbers = [one.value for one in expression.children if isinstance(one, Number)]
            others = [one for one in expression.children if not isinstance(one, Number)]
            if len(numbers) == 1:
                yield from self.terms(others[0], sign * numbers[0])
            else:
                yield sign, expression
        elif isinstance(expression, Reduce) and expression.kind == "sum":
            yield from self.multiplied_out(expression, sign)
        else:
            yield sign, expression

    def multiplied_out(self, expression, sign):
        """(factor, sum) of a sum: itself where its factors are bytes, else one for each product of their terms."""
        if all(one.constant or self.is_factor(one) for one in self.factors(expression.body)):
            yield sign, expression
            return
        parts = self.products_of(expression.body)
        if not parts or (len(parts) == 1 and identity(parts[0][1]) == identity(expression.body)):
            yield sign, expression
            return
        for number, body in parts:
            part = Reduce("sum", body, expression.over)
            part.where = body.where = expression.where
            yield sign * number, part

    def products_of(self, expression):
        """[(number, product of factors)] whose sum it is."""
        numbers, bodies = {}, {}
        for number, factors in self.flattened(expression):
            key = tuple(sorted(identity(one) for one in factors))
            numbers[key] = numbers.get(key, 0) + number
            bodies[key] = functools.reduce(operator.mul, factors) if factors else Number(1)
            bodies[key].where = expression.where
        return [(numbers[key], body) for key, body in bodies.items() if numbers[key] != 0]

    def flattened(self, expression):
        """[(number, [factors])] whose sum it is, where no factor is a sum itself, if it can be."""
        products = [(1, [])]
        for one in self.factors(expression):
            apart = [(1, [one])]
            if isinstance(one, Number):
                apart = [(one.value, [])]
            elif not one.constant and not self.is_factor(one):
                terms = list(self.terms(one, 1))
                if len(terms) > 1 or terms[0][1] is not one:
                    apart = [(a * b, some) for a, term in terms for b, some in self.flattened(term)]
            products = [(a * b, [*some, *more]) for a, some in products for b, more in apart]
        return products

    def is_factor(self, expression):
        """Whether GEMM takes it: a byte, or one minus a zero point."""
        return byte_of(expression.range) is not None or self.read_with_zero(expression) is not None

    def merged(self, tensors):
        """(factor, expression) of which those that sum the same data times constants are one."""
        found = {}
        for factor, one in tensors:
            key, constant = identity(one), Number(factor)
            if isinstance(one, Reduce) and one.kind == "sum":
                moving = [part for part in self.factors(one.body) if not part.constant]
                for part in self.factors(one.body):
                    if part.constant:
                        constant = constant * part
                if len(moving) == 1:
                    key = (identity(moving[0]), *sorted(map(id, one.over)))
            found.setdefault(key, []).append((factor, one, constant))
        return [self.one_sum(same) if len(same) > 1 else same[0][:2] for same in found.values()]

    def one_sum(self, same):
        _, first, total = same[0]
        if not isinstance(first, Reduce):
            return sum(factor for factor, *_ in same), first
        moving = [part for part in self.factors(first.body) if not part.constant]
        if len(moving) > 1:
            return sum(factor for factor, *_ in same), first
        for _, _, constant in same[1:]:
            total = total + constant
        whole = Reduce("sum", moving[0] * total, first.over)
        whole.where = whole.body.where = first.where
        return 1, whole

    @staticmethod
    def is_wide(expression):
        return (isinstance(expression, Reduce) and expression.kind == "sum") or (
            isinstance(expression, Load) and expression.source.dtype == "int32" and not expression.constant
        )

    # --- bytes

    def bytes(self, expression, loops, dtype=None):
        """The Value of an expression that a byte holds, over `loops`, of extent 1 where it does not depend on one."""
        key = (id(expression), tuple(loops), dtype)
        if key not in self._kept:
            self._kept[key] = (expression, self._bytes(expression, loops, dtype))
        return self._kept[key][1]

    def _bytes(self, expression, loops, dtype):
        dtype = dtype or byte_of(expression.range)
        if dtype is None:
            expression.fail(
                f"is {expression.range[0]:,} to {expression.range[1]:,} and no byte holds that; clip or requantise it"
            )
        if expression.constant:
            values = values_of(expression, loops)
            return self.graph.constant(values.astype(dtype))
        value = self.leaf(expression, loops)
        if value is None:
            try:
                value = self.joined_bytes(expression, loops, dtype)
            except KernelError:
                value = self.blended(expression, loops, products=True)
                if value is None:
                    raise
        return self.as_type(value, dtype)

    def joined_bytes(self, expression, loops, dtype):
        """The Value of a function of bytes."""
        leaves = self.leaves(expression)
        if len(leaves) > 2:
            value = self.blended(expression, loops)
            if value is not None:
                return value
            expression = self.without_choices(expression)
            leaves = self.leaves(expression)
            expression = self.with_fewer(expression, leaves)
            leaves = self.leaves(expression)
        if len(leaves) == 1:
            return self.table_of(expression, leaves[0], loops, dtype)
        return self.pairs_of(expression, leaves, loops, dtype)

    def as_type(self, value, dtype):
        """Of a value that both byte types hold."""
        if value.dtype == dtype:
            return value
        return self.graph.lookup(value, np.arange(256, dtype=np.uint8).view(dtype), dtype)

    def leaf(self, expression, loops):
        """A byte that is read, reduced or requantised from sums; None for others."""
        if isinstance(expression, Alias):
            return self.view(expression.value, expression.loops, loops)
        if isinstance(expression, Load) and expression.source.dtype != "int32":
            self.at(expression)
            return self.loaded(expression, loops)
        if isinstance(expression, Reduce) and expression.kind != "sum":
            self.at(expression)
            found = self.extreme(expression)
            return self.unfolded(found, found.value, loops)
        if (found := self.latticed(expression)) is not None:
            return self.bytes(found, loops)
        bounds = self.converted(expression)
        return None if bounds is None else self.requantised(expression, bounds, loops)

    def is_leaf(self, expression):
        return (
            isinstance(expression, Alias)
            or (isinstance(expression, Load) and expression.source.dtype != "int32" and not expression.constant)
            or (isinstance(expression, Reduce) and expression.kind != "sum")
            or self.latticed(expression) is not None
            or self.converted(expression) is not None
        )

    def converted(self, expression):
        """(sum, scale, zero, low, high) where an expression makes a byte of int32 sums: by requantise(), or by bounds
        alone. Else None."""
        if id(expression) not in self._conversions:
            self._conversions[id(expression)] = (expression, self._converted(expression))
        return self._conversions[id(expression)][1]

    def _converted(self, expression):
        if isinstance(expression, Requantise):
            inner, scale = expression.children[0], expression.scale
            bounds = (expression.zero, expression.low, expression.high)
        elif byte_of(expression.range) and not (isinstance(expression, Load) or expression.constant):
            inner, low, high = self.clipped(expression)
            scale, bounds = 1.0, (0, max(low, expression.range[0]), min(high, expression.range[1]))
        else:
            return None
        divided = quotient(inner) if scale == 1.0 else None
        whole = divided[0] if divided else inner
        if not any(self.is_wide(one) for _, one in self.terms(whole, 1)):
            return None
        if divided is None:
            return (inner, scale, *bounds)
        whole, divisor, addend = divided
        low, high = bounds[1] - addend, bounds[2] - addend
        found = self.divided(whole, divisor, low, high)
        if found is None:
            expression.fail(f"the machine's rounding gives no such quotient by {divisor:,}; requantise it instead")
        return (*found, addend, low, high)

    @staticmethod
    def clipped(expression):
        """Without the bounds around it."""
        low, high = -512, 511
        while isinstance(expression, Apply) and expression.name in ("min", "max"):
            number = next((one for one in expression.children if isinstance(one, Number)), None)
            other = next((one for one in expression.children if not isinstance(one, Number)), None)
            if number is None or other is None:
                break
            if expression.name == "min":
                low, high = min(low, number.value), min(high, number.value)
            else:
                low, high = max(low, number.value), max(high, number.value)
            expression = other
        return expression, low, high

    def requantised(self, expression, bounds, loops):
        inner, scale, zero, low, high = bounds
        terms = [term for term in self.terms(inner, 1) if not term[1].constant]
        if len(terms) == 1 and terms[0][0] == -1:  # halves round to even on both sides of 0
            inner, scale = Number(0) - inner, Number(0) - scale if isinstance(scale, Expression) else -scale
            bounds = (inner, scale, zero, low, high)
        found, bias = self.sums(inner, scale)
        return self.finished(expression, found, bias, bounds, loops)

    def finished(self, expression, found, bias, bounds, loops):
        """Sums with a constant of their channels, as bytes."""
        inner, scale, zero, low, high = bounds
        if inner.range[0] < -(2**31) or inner.range[1] >= 2**31:
            inner.fail(f"may be {inner.range[0]:,} to {inner.range[1]:,}, which no int32 holds")
        vector = self.channel_vector(found, bias, inner)
        if isinstance(scale, Expression):
            scales = self.channel_vector(found, scale, expression, "scale").astype(np.float32)
        else:
            scales = np.array([scale], np.float32)
        dtype = byte_of((low + zero, high + zero))
        inputs = [found.value, self.graph.constant(scales)]
        if vector is not None and vector.any():
            inputs.append(self.graph.constant(vector.astype(np.int32)))
        self.at(expression)
        value = self.graph.node(
            "Requantise",
            inputs,
            dtype,
            found.value.shape,
            "ai.tessera",
            axis=found.channel_axis,
            zero=zero,
            low=low,
            high=high,
            unsigned=int(dtype == "uint8"),
        )
        return self.unfolded(found, value, loops)

    # --- bytes times constants, added

    def blended(self, expression, loops, products=False):
        """A byte of a sum of bytes times constants, as a convolution along the operands side by side; None for others.
        It rounds as requantise() says, which the vector unit's second operation does for some scales only. products: of
        products of two bytes, too."""
        if isinstance(expression, Requantise):
            inner, scale = expression.children[0], expression.scale
            bounds = (expression.zero, expression.low, expression.high)
        else:
            inner, low, high = self.clipped(expression)
            scale, bounds = 1.0, (0, max(low, expression.range[0]), min(high, expression.range[1]))
            if (divided := quotient(inner)) is not None:
                low, high = (one - divided[2] for one in bounds[1:])
                found = self.divided(*divided[:2], low, high)
                if found is None:
                    return None
                (inner, scale), bounds = found, (divided[2], low, high)
        parts, bias = [], None
        for factor, one in self.products_of(inner) if products else self.terms(inner, 1):
            if one.constant:
                one = one if factor == 1 else one * factor
                bias = one if bias is None else bias + one
                continue
            fixed = Number(factor)
            for part in self.factors(one):
                if part.constant:
                    fixed = fixed * part
            leaves = [part for part in self.factors(one) if not part.constant]
            if any(leaf is expression or not self.is_factor(leaf) for leaf in leaves) or not leaves:
                return None
            if len(leaves) > 1 and not products:
                return None
            if len(leaves) > 1:
                return self.products_added(expression, inner, (inner, scale, *bounds), loops)
            if not byte_of(leaves[0].range):
                return None
            parts.append((fixed, leaves[0]))
        scales = [scale] if isinstance(scale, Expression) else []
        varying = {loop for one in (*scales, *(fixed for fixed, _ in parts)) for loop in one.loops}
        varying |= set(bias.loops) if bias is not None else set()
        values = [self.bytes(leaf, loops) for _, leaf in parts]
        if len({value.dtype for value in values}) != 1:
            return None
        found = self.weighed(expression, parts, values, loops, varying)
        return self.finished(expression, found, bias, (inner, scale, *bounds), loops)

    def products_added(self, expression, inner, bounds, loops):
        """A byte of products of two bytes, added: element by element a product of two matrices."""
        terms = self.products_of(inner)
        fixed = [bounds[1], *(one for _, one in terms if one.constant)]
        channels = [loop for one in fixed if isinstance(one, Expression) for loop in one.loops]
        found, bias = self.gathered(inner, [term for term in terms if not term[1].constant], channels)
        for factor, one in terms:
            if one.constant:
                one = one * factor
                bias = one if bias is None else bias + one
        return self.finished(expression, found, bias, bounds, loops)

    def weighed(self, expression, parts, values, loops, varying):
        """Sums of bytes times constants: channels are the loops along which constants change, or the last one."""
        wide = [loop for loop in loops if loop.extent > 1] or list(loops[-1:])
        channels = [loop for loop in wide if loop in varying] or wide[-1:]
        pixels = [loop for loop in loops if loop not in channels]
        shape = [loop.extent for loop in loops]
        count = lambda some: math.prod(loop.extent for loop in some)
        order = [loops.index(loop) for loop in (*pixels, *channels)]
        lines = [
            self.graph.reshape(
                self.graph.transpose(self.graph.expand(value, shape), order), [1, 1, count(pixels), count(channels)]
            )
            for value in values
        ]
        data = self.graph.concat(lines, 1) if len(lines) > 1 else lines[0]
        data = self.graph.transpose(data, [0, 3, 1, 2])
        weights = np.stack([values_of(fixed, channels).reshape(-1) for fixed, _ in parts], 1)
        array, zero, dtype, times = self.as_weights(expression, weights)
        data = self.graph.concat([data] * times, 2) if times > 1 else data
        array = np.concatenate(array, 1) if times > 1 else array
        kernel = self.graph.constant(array.reshape(count(channels), 1, -1, 1).astype(dtype))
        zeros = [self.graph.constant(np.array(0, data.dtype)), self.graph.constant(np.array(zero, dtype))]
        self.at(expression)
        result = self.graph.node(
            "ConvInteger",
            [data, kernel, *zeros],
            "int32",
            [1, count(channels), 1, count(pixels)],
            group=count(channels),
            kernel_shape=[len(parts) * times, 1],
        )
        left = [*channels, *pixels]
        return Sums(result, left, channels, 1, tuple(loop.extent for loop in left))

    def channel_vector(self, found, expression, whole, what="constant"):
        """A constant expression over the channels of a sum; None where there is none."""
        if expression is None:
            return None
        other = [loop.name for loop in expression.loops if loop not in found.channels]
        if other:
            channels = ", ".join(loop.name for loop in found.channels) or "none"
            whole.fail(
                f"its {what} {expression} changes along {', '.join(other)}; one for each output channel (here: "
                f"{channels}) can be added or multiplied"
            )
        if not expression.loops:
            return values_of(expression, []).reshape(1)
        return values_of(expression, found.channels).reshape(-1)

    # --- functions of one and of two bytes

    def leaves(self, expression):
        """The different bytes that decide it."""
        found = {}

        def visit(one):
            if one.constant and one.loops and (byte_of(one.range) or not one.children):
                found.setdefault(("constant", str(one)), one)
            elif one.constant and not one.loops:
                return
            elif self.is_leaf(one):
                found.setdefault(one.key() if isinstance(one, Load) else id(one), one)
            elif self.is_wide(one):
                one.fail("is an int32 among bytes; requantise it first")
            else:
                for child in one.children:
                    visit(child)

        visit(expression)
        return list(found.values())

    def same(self, one, leaf):
        return one is leaf or (isinstance(one, Load) and isinstance(leaf, Load) and one.key() == leaf.key())

    def given(self, expression, leaves, arrays):
        """{id: values} for a Meaning, of all places in which the leaves stand."""
        found = {}
        for one in walk(expression):
            for leaf, array in zip(leaves, arrays, strict=True):
                if self.same(one, leaf) or (one.constant and leaf.constant and str(one) == str(leaf)):
                    found[id(one)] = array
        return found

    def bits(self, value):
        """What each of the 256 bit patterns of a byte means."""
        return np.arange(256, dtype=np.uint8).view(value.dtype).astype(np.int64)

    def table_of(self, expression, leaf, loops, dtype):
        value = self.bytes(leaf, loops)
        self.at(expression)
        entries = values_of(expression, [], given=self.given(expression, [leaf], [self.bits(value)]))
        entries = np.broadcast_to(entries, (256,))
        return self.graph.lookup(value, self.as_bytes(entries, dtype), dtype)

    @staticmethod
    def as_bytes(entries, dtype):
        """Where an operand is what it never is, an entry has no meaning."""
        return np.clip(entries, *LIMITS[dtype]).astype(np.uint8).view(dtype)

    def without_choices(self, expression):
        """The same with where(bit, a, b) of bytes as where(bit, a, 0) + where(bit, 0, b)."""
        while (one := next(filter(self.is_choice, walk(expression)), None)) is not None:
            bit, *sides = one.children
            bit = bit if bit.constant or self.is_leaf(bit) else self.alias(bit)
            parts = [Apply("where", [bit, sides[0], Number(0)]), Apply("where", [bit, Number(0), sides[1]])]
            for part in parts:
                part.where = one.where
            whole = Apply("add", [self.alias(part) for part in parts])
            whole.where, whole.range = one.where, one.range
            expression = replaced(expression, one, whole)
        return expression

    @staticmethod
    def is_choice(expression):
        """Whether it is where(bit, a, b) of two bytes, of which none is a number."""
        if not isinstance(expression, Apply) or expression.name != "where" or expression.constant:
            return False
        bit, *sides = expression.children
        bytes_ = all(byte_of(one.range) and not isinstance(one, Number) for one in sides)
        return is_bit(bit) and bytes_ and byte_of(expression.range) is not None

    def with_fewer(self, expression, leaves):
        """The same with parts in the place of which tensors stand, so that two are left."""
        while len(leaves) > 2:
            parts = [
                (one, len(self.leaves(one)))
                for one in walk(expression)
                if one is not expression and not self.is_leaf(one) and byte_of(one.range)
            ]
            part = min((one for one in parts if 1 < one[1] < len(leaves)), key=lambda one: one[1], default=(None, 0))[0]
            if part is None:
                texts = ", ".join(str(one) for one in leaves[:3])
                expression.fail(
                    f"joins {len(leaves)} tensors ({texts}{', ...' if len(leaves) > 3 else ''}) and no part of it that "
                    "joins two is a byte; the vector unit joins two bytes at a time: clip or requantise in between"
                )
            expression = replaced(expression, part, self.alias(part))
            leaves = self.leaves(expression)
        return expression

    def alias(self, part):
        loops = list(part.loops)
        return Alias(part, self.bytes(part, loops), loops)

    def path_to_join(self, expression):
        """From an expression down to the innermost part that two bytes decide."""
        path = [expression]
        while inside := [one for one in path[-1].children if len(self.leaves(one)) == 2]:
            path.append(inside[0])
        return path

    def pairs_of(self, expression, leaves, loops, dtype):
        """The join as small as a byte holds, and what is around it as a table."""
        path = self.path_to_join(expression)
        if (found := self.distance(path) or self.equality(path)) is not None:
            return self.bytes(replaced(expression, *found), loops, dtype)
        at = next((one for one in reversed(path) if byte_of(one.range)), expression)
        if at is not expression and len(self.leaves(replaced(expression, at, Alias(at, None, at.loops)))) == 1:
            part = self.alias(at)
            return self.table_of(replaced(expression, at, part), part, loops, dtype)
        sides = []
        for leaf in leaves:
            side = self.side_of(path[-1], leaf)
            if self.line_of(side, leaf) is None:  # a table first
                bytes_ = [one for one in walk(side) if byte_of(one.range) and self.decides(leaf, one)]
                if bytes_ and not self.is_leaf(bytes_[-1]):
                    table = Alias(bytes_[-1], None, bytes_[-1].loops)
                    if len(self.leaves(replaced(expression, bytes_[-1], table))) == 2:  # it stands nowhere else
                        leaf = self.alias(bytes_[-1])
                        expression = replaced(expression, bytes_[-1], leaf)
            sides.append(leaf)
        try:
            return self.pairs(expression, sides, loops, dtype)
        except KernelError:
            path = self.path_to_join(expression)
            inner = next((one for one in reversed(path) if byte_of(one.range)), expression)
            if inner is expression or self.is_leaf(inner):
                raise
            return self.bytes(replaced(expression, inner, self.alias(inner)), loops, dtype)

    def decides(self, leaf, expression):
        return any(self.same(part, leaf) for part in walk(expression))

    def side_of(self, join, leaf):
        """The operand of a join that a leaf decides."""
        return next((one for one in join.children if self.decides(leaf, one)), leaf)

    def pairs(self, expression, leaves, loops, dtype):
        values = [self.bytes(leaf, loops) for leaf in leaves]
        x, y = (self.bits(value) for value in values)
        given = self.given(expression, leaves, [x[:, None], y[None, :]])
        entries = np.broadcast_to(values_of(expression, [], given=given), (256, 256))
        wanted = np.clip(entries, *LIMITS[dtype])
        inside = [(one >= leaf.range[0]) & (one <= leaf.range[1]) for one, leaf in zip((x, y), leaves, strict=True)]
        found = fits_machine(self.form_of(expression, leaves, dtype), wanted, x, y, *inside)
        if found is None:
            value = self.blended(expression, loops)
            if value is None:
                expression.fail(
                    "the vector unit has no such function of two bytes: it has x * a + y * b + c, (x - a) * (y - b) * "
                    "c and the larger or smaller of two tables, rounded and clamped; clip or requantise in between"
                )
            return value
        form, wanted = found
        shape = np.broadcast_shapes(values[0].shape, values[1].shape)
        held = self.graph.table(self.as_bytes(wanted.reshape(-1), dtype))
        self.at(expression)
        return self.graph.node("Pairs", values, dtype, shape, "ai.tessera", table=held, **form)

    def line_of(self, expression, leaf):
        """(factor, addend) where an expression is a line of the leaf; else None."""
        places = np.arange(leaf.range[0], max(leaf.range[1], leaf.range[0] + 1) + 1)
        given = self.given(expression, [leaf], [places])
        values = np.broadcast_to(values_of(expression, [], given=given), places.shape)
        factor = int(values[1] - values[0])
        addend = int(values[0] - factor * places[0])
        return (factor, addend) if np.array_equal(values, places * factor + addend) else None

    def form_of(self, expression, leaves, dtype):
        """Which second operation of the vector unit it may be: kind, factors, bounds."""
        low, high = (-128, 127) if dtype == "int8" else (0, 255)
        scale, zero = 1.0, 0
        *around, join = self.path_to_join(expression)
        offset = 0.0
        for one in around:
            if isinstance(one, Requantise):
                zero, low, high = one.zero, max(low - one.zero, one.low), min(high - one.zero, one.high)
                scale = one.scale if not isinstance(one.scale, Expression) else 1.0
            elif isinstance(one, Apply) and one.name in ("min", "max"):
                _, least, most = self.clipped(one)
                low, high = max(low, least), min(high, most)
            elif isinstance(one, Apply) and one.name in ("shift", "floordiv"):  # half to even never meets a half
                divisor = one.children[1].value if one.name == "floordiv" else 2 ** one.children[1].value
                offset -= scale * (divisor - 1) / (2 * divisor)
                scale /= divisor
            elif (found := number_beside(one)) and one.name in ("add", "sub", "mul"):
                number, _, first = found
                if one.name == "mul":
                    scale *= number.value
                else:
                    offset += scale * number.value * (-1 if one.name == "sub" and not first else 1)
                    scale = -scale if one.name == "sub" and first else scale
        kind = getattr(join, "name", "add")
        if kind in ("max", "min"):
            return {"kind": kind}
        if kind == "less":
            low, high = max(low, 0), min(high, 1)
        lines = [self.line_of(self.side_of(join, leaf), leaf) or (1, 0) for leaf in leaves]
        if kind == "where" and is_bit(join.children[0]):  # bit * (value - other) + other
            number = next((one for one in join.children[:0:-1] if isinstance(one, Number)), None)
            if number is not None:
                kind = "mul"
                condition = 0 if self.decides(leaves[0], join.children[0]) else 1
                if number is join.children[1]:
                    lines[condition] = (-lines[condition][0], 1 - lines[condition][1])
                lines[1 - condition] = (lines[1 - condition][0], lines[1 - condition][1] - number.value)
                offset += scale * number.value
        (a, c), (b, d) = lines
        bounds = {"low": max(low, -512), "high": min(high, 511), "zero": zero}
        if kind == "mul" and a and b and c % a == 0 and d % b == 0:
            return {
                "kind": "mul",
                "rx": float(scale * a * b),
                "zx": -c // a,
                "zy": -d // b,
                "f": float(offset),
            } | bounds
        signs = [1, 1]
        if kind in ("sub", "less"):
            signs = [1, -1] if self.decides(leaves[0], join.children[0]) == (kind == "sub") else [-1, 1]
        addend = scale * (c * signs[0] + d * signs[1]) + offset
        factors = {"rx": scale * a * signs[0], "ry": scale * b * signs[1], "f": addend}
        return {"kind": "add"} | {name: float(value) for name, value in factors.items()} | bounds


def quotient(expression):
    """(value, divisor, addend) of an expression that is floor(value / divisor) + addend; None for others."""
    addend, found = 0, number_beside(expression)
    if found and expression.name in ("add", "sub") and not (found[2] and expression.name == "sub"):
        addend = found[0].value if expression.name == "add" else -found[0].value
        expression = found[1]
        found = number_beside(expression)
    if found is None or expression.name not in ("shift", "floordiv"):
        return None
    return found[1], 2 ** found[0].value if expression.name == "shift" else found[0].value, addend


class Alias(Expression):
    """A tensor that stands for a part of an expression."""

    def __init__(self, part, value, loops):
        super().__init__((), part.range)
        self.part, self.value, self.loops, self.constant = part, value, list(loops), False
        self.where = part.where

    def __str__(self):
        return str(self.part)

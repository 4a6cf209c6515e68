# SPDX-License-Identifier: Apache-2.0
"""From an operator's loop nests to operators that the compiler takes to the NPU. Enters: what one element of each
result is. Leaves: an ONNX graph of integer operators. Method: an expression is cut at bytes. What one byte decides is a
table, what two bytes decide a function of pairs; sums of products become convolutions and products of matrices by which
loops their factors have, and other reductions windows. What the machine has no form for is refused with its line."""

import functools
import operator

import numpy as np

from .errors import KernelError
from .expressions import Apply, Expression, Load, Number, Reduce, Requantise, added, byte_of, identity
from .loops import count
from .meaning import values_of
from .nodes.contractions import Contractions, Sums
from .nodes.gathering import Gathering
from .nodes.graphs import GraphMaker, Value
from .nodes.lattices import Lattices, number_beside
from .nodes.pairs import Alias, Pairs
from .nodes.plain import Plain
from .nodes.views import Views
from .nodes.windows import Windows


class Lowering(Views, Contractions, Gathering, Lattices, Windows, Pairs, Plain):
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
                bias = added(bias, one if factor == 1 else one * factor)
        channels = [loop for one in (bias, scale) if isinstance(one, Expression) for loop in one.loops]
        found = self.reduced(tensors[0][1], tensors[0][0]) if len(tensors) == 1 else self.joined(expression, tensors)
        apart = found is not None and any(loop not in found.channels for loop in channels)
        if found is None or (apart and not any(isinstance(one, Load) for _, one in tensors)):
            found, rest = self.gathered(expression, tensors, channels)
            bias = added(bias, rest)
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
        return not expression.constant and (
            (isinstance(expression, Reduce) and expression.kind == "sum")
            or (isinstance(expression, Load) and expression.source.dtype == "int32")
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
        is_plain = isinstance(expression, Load) or expression.constant or not byte_of(expression.range)
        if is_plain and not isinstance(expression, Requantise):
            return None
        inner, scale, zero, low, high = self.rounding_of(expression)
        divided = quotient(inner) if scale == 1.0 else None
        whole = divided[0] if divided else inner
        if not any(self.is_wide(one) for _, one in self.terms(whole, 1)):
            return None
        if divided is None:
            return inner, scale, zero, low, high
        whole, divisor, addend = divided
        low, high = low - addend, high - addend
        found = self.divided(whole, divisor, low, high)
        if found is None:
            expression.fail(f"the machine's rounding gives no such quotient by {divisor:,}; requantise it instead")
        return (*found, addend, low, high)

    def rounding_of(self, expression):
        """(what is inside, scale, zero, low, high) of a requantise(), or of bounds around an expression."""
        if isinstance(expression, Requantise):
            return expression.children[0], expression.scale, expression.zero, expression.low, expression.high
        inner, low, high = self.clipped(expression)
        return inner, 1.0, 0, max(low, expression.range[0]), min(high, expression.range[1])

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
        bounds = self.undivided(expression)
        if bounds is None:
            return None
        inner, scale = bounds[:2]
        parts, bias = [], None
        for factor, one in self.products_of(inner) if products else self.terms(inner, 1):
            if one.constant:
                bias = added(bias, one if factor == 1 else one * factor)
                continue
            fixed = Number(factor)
            for part in self.factors(one):
                if part.constant:
                    fixed = fixed * part
            leaves = [part for part in self.factors(one) if not part.constant]
            if any(leaf is expression or not self.is_factor(leaf) for leaf in leaves) or not leaves:
                return None
            if len(leaves) > 1:
                return self.products_added(expression, inner, bounds, loops) if products else None
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
        return self.finished(expression, found, bias, bounds, loops)

    def undivided(self, expression):
        """As rounding_of(), with a division by a number as part of the scale; None where the machine's rounding gives
        no such quotient."""
        bounds = self.rounding_of(expression)
        divided = None if isinstance(expression, Requantise) else quotient(bounds[0])
        if divided is None:
            return bounds
        whole, divisor, addend = divided
        low, high = (one - addend for one in bounds[3:])
        found = self.divided(whole, divisor, low, high)
        return None if found is None else (*found, addend, low, high)

    def products_added(self, expression, inner, bounds, loops):
        """A byte of products of two bytes, added: element by element a product of two matrices."""
        terms = self.products_of(inner)
        fixed = [bounds[1], *(one for _, one in terms if one.constant)]
        channels = [loop for one in fixed if isinstance(one, Expression) for loop in one.loops]
        found, bias = self.gathered(inner, [term for term in terms if not term[1].constant], channels)
        for factor, one in terms:
            if one.constant:
                bias = added(bias, one * factor)
        return self.finished(expression, found, bias, bounds, loops)

    def weighed(self, expression, parts, values, loops, varying):
        """Sums of bytes times constants: channels are the loops along which constants change, or the last one."""
        wide = [loop for loop in loops if loop.extent > 1] or list(loops[-1:])
        channels = [loop for loop in wide if loop in varying] or wide[-1:]
        pixels = [loop for loop in loops if loop not in channels]
        shape = [loop.extent for loop in loops]
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

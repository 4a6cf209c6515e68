# SPDX-License-Identifier: Apache-2.0
"""The largest and the smallest of int32 sums, absolute values among them, and sums of those. Enters: an expression that
makes a byte of them by rising functions alone, requantise(), bounds and shifts. Leaves: the same as the largest and the
smallest of bytes, each made of one sum. Method: abs(a) is max(a, -a), max(a, b) + c is max(a + c, b + c), and a rising
function of the larger one is the larger one of its values. The vector unit has maxima of bytes and none of sums."""

import dataclasses

import numpy as np

from ..expressions import Apply, Number, Reduce, Requantise, byte_of, replaced

MOST_SUMS = 16


@dataclasses.dataclass
class Linear:
    """Expressions times numbers, added. terms: [(number, Expression)]"""

    terms: list

    def count(self):
        return 1


@dataclasses.dataclass
class Extreme:
    """The largest or the smallest of Linears and Extremes, or one of two. over: loops, where it is that of one part's
    iterations; condition: 0 or 1, of "where"."""

    kind: str
    parts: list
    over: tuple = ()
    condition: object = None

    def count(self):
        return sum(part.count() for part in self.parts)


def added(one, other):
    if isinstance(one, Linear) and isinstance(other, Linear):
        return Linear([*one.terms, *other.terms])
    node, rest = (one, other) if isinstance(one, Extreme) else (other, one)
    return dataclasses.replace(node, parts=[added(part, rest) for part in node.parts])


def number_beside(expression):
    """(Number, the other operand, whether the number comes first) of a function of two; None for others."""
    if not isinstance(expression, Apply) or len(expression.children) != 2:
        return None
    one, other = expression.children
    if isinstance(other, Number):
        return other, one, False
    return (one, other, True) if isinstance(one, Number) else None


def named(expression, name):
    return isinstance(expression, Apply) and expression.name == name


def is_bit(expression):
    return expression.range in ((0, 0), (0, 1), (1, 1))


class Lattices:
    """Mixed into Lowering."""

    def latticed(self, expression):
        """The same as extremes of bytes; None where it is none of int32 sums."""
        if id(expression) not in self._lattices:
            self._lattices[id(expression)] = (expression, self._latticed(expression))
        return self._lattices[id(expression)][1]

    def _latticed(self, expression):
        if byte_of(expression.range) is None or expression.constant:
            return None
        inner = self.inside(expression)
        if not self.has_sums(inner, whole=True):
            return None
        tree = self.tree(inner, 1)
        if isinstance(tree, Linear):
            return None
        if tree.count() > MOST_SUMS:
            expression.fail(
                f"is made of {tree.count()} sums, of which the largest or smallest count; {MOST_SUMS} at most are "
                "computed: requantise parts of it"
            )
        return self.built(tree, expression, inner)

    @staticmethod
    def inside(expression):
        """What stands inside of rising functions."""
        while True:
            if isinstance(expression, Requantise):
                return expression.children[0]
            found = number_beside(expression)
            rising = ("min", "max", "add", "shift", "floordiv", "sub")
            if found is None or expression.name not in rising or (found[2] and expression.name == "sub"):
                return expression
            expression = found[1]

    def has_sums(self, expression, whole=False):
        """Whether int32 sums decide it, of which no part is a byte. whole: it may be one itself."""
        if self.is_wide(expression):
            return True
        if expression.constant or (byte_of(expression.range) and not whole):
            return False
        if isinstance(expression, Apply) and expression.name in ("add", "sub", "abs", "max", "min"):
            return any(self.has_sums(child) for child in expression.children)
        if isinstance(expression, Apply) and expression.name == "mul":
            found = number_beside(expression)
            return found is not None and self.has_sums(found[1])
        if named(expression, "where") and is_bit(expression.children[0]):
            return byte_of(expression.range) is None or any(self.has_sums(child) for child in expression.children[1:])
        return isinstance(expression, Reduce) and expression.kind != "sum" and self.has_sums(expression.body)

    def tree(self, expression, factor):
        """`factor` times the expression, extremes outside."""
        if self.is_wide(expression) or not self.has_sums(expression, whole=True):
            return Linear([(factor, expression)])
        if isinstance(expression, Reduce):
            return Extreme(self.turned(expression.kind, factor), [self.tree(expression.body, factor)], expression.over)
        one, *others = expression.children
        if expression.name == "where":
            return Extreme("where", [self.tree(part, factor) for part in others], condition=one)
        if expression.name == "abs":
            return Extreme(self.turned("max", factor), [self.tree(one, factor), self.tree(one, -factor)])
        if expression.name == "mul":
            number, other, _ = number_beside(expression)
            return self.tree(other, factor * number.value)
        if expression.name in ("max", "min"):
            return Extreme(self.turned(expression.name, factor), [self.tree(part, factor) for part in (one, *others)])
        return added(self.tree(one, factor), self.tree(others[0], factor if expression.name == "add" else -factor))

    @staticmethod
    def turned(kind, factor):
        return kind if factor >= 0 else {"max": "min", "min": "max"}[kind]

    def built(self, tree, expression, inner):
        if isinstance(tree, Linear):
            total = None
            for factor, one in tree.terms:
                part = one if factor == 1 else Apply("mul", [Number(factor), one])
                total = part if total is None else Apply("add", [total, part])
                part.where = total.where = expression.where
            low, high = (Number(one) for one in expression.range)
            whole = replaced(expression, inner, total)
            if not isinstance(whole, Requantise):
                whole = Apply("min", [Apply("max", [whole, low]), high])
            whole.where = expression.where
            return whole
        parts = [self.built(part, expression, inner) for part in tree.parts]
        if tree.over:
            whole = Reduce(tree.kind, parts[0], tree.over)
        elif tree.condition is not None:
            whole = Apply("where", [tree.condition, *parts])
        else:
            whole = parts[0]
            for part in parts[1:]:
                whole = Apply(tree.kind, [whole, part])
                whole.where = expression.where
        whole.where = expression.where
        return whole

    # --- differences of two bytes

    def distance(self, path):
        """(abs() of a function of two bytes, or its bound, and the larger one of its two sides as bytes) on the way to
        a join; None where there is none: |a - b| is the larger one of a - b and b - a, both at least 0."""
        for place, one in enumerate(path):
            if not named(one, "abs"):
                continue
            whole, most = one, one.range[1]
            bound = number_beside(path[place - 1]) if place and named(path[place - 1], "min") else None
            if bound is not None:
                whole, most = path[place - 1], min(most, bound[0].value)
            if not 0 <= most <= 255:
                return None
            sides = []
            for inner in (one.children[0], Apply("sub", [Number(0), one.children[0]])):
                side = Apply("min", [Apply("max", [inner, Number(0)]), Number(most)])
                side.where = one.where
                sides.append(self.alias(side))
            larger = Apply("max", sides)
            larger.where = one.where
            return whole, larger
        return None

    def equality(self, path):
        """(== of two bytes on the way to a join, whether the sign of their difference is 0); None where there is
        none."""
        for one in path:
            if named(one, "equal"):
                sign = Apply("min", [Apply("max", [Apply("sub", one.children), Number(-1)]), Number(1)])
                sign.where = one.where
                whole = Apply("equal", [self.alias(sign), Number(0)])
                whole.where = one.where
                return one, whole
        return None

    # --- shifts and divisions of sums

    @staticmethod
    def divided(inner, divisor, low, high):
        """(inner', scale) so that requantise(inner', scale) is floor(inner / divisor) between low and high, as the
        machine rounds; None where there is none. Both rise, so that the places where the quotient changes decide."""
        places = np.arange(low - 1, high + 2, dtype=np.int64) * divisor
        places = np.concatenate([places, places - 1, inner.range])
        places = places[(places >= inner.range[0]) & (places <= inner.range[1])]
        wanted = np.clip(places // divisor, low, high)
        for factor, bias in ((1, -(divisor // 2)), (1, -((divisor - 1) // 2)), (2, 1 - divisor)):
            for towards in (None, np.inf, -np.inf):
                scale = np.float32(1 / (factor * divisor))
                scale = scale if towards is None else np.nextafter(scale, np.float32(towards))
                sums = (places * factor + bias).astype(np.float32)
                if (np.rint(np.clip(sums * scale, low, high)) == wanted).all():
                    whole = inner if factor == 1 else Apply("mul", [Number(factor), inner])
                    whole = Apply("add", [whole, Number(bias)])
                    whole.where = inner.where
                    return whole, float(scale)
        return None

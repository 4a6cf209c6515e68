# SPDX-License-Identifier: Apache-2.0
"""Ranges and rules of a space of machines. A range is a list, one value, or text: "8k..128k by 2x" (each twice the one
before), "4..16 by 4" (each 4 more). A rule is an expression over parameters: "block_out / 4", "wgt_bytes >= 64k"."""

import ast
import itertools
import math
import operator
import re

from ..errors import argument

MOST_VALUES = 10000  # of one range
MOST = 1 << 53  # of a number: up to here each whole one has a float
SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20}
NUMBER = r"(\d+(?:\.\d+)?)([kKmM]?)"

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS = {"min": min, "max": max}


def number(text, where):
    """The number of a text such as "8k". Errors: invalid_argument."""
    found = re.fullmatch(NUMBER, text.strip())
    if not found:
        raise argument(f"{where}: '{text.strip()}' is no number; write 4096, 4k or 1M")
    value = float(found[1]) * SUFFIXES[found[2].lower()]
    if value > MOST:
        raise argument(f"{where}: '{text.strip()[:40]}' is too large; numbers go up to 2^53")
    return int(value) if value == int(value) else value


def span(text, where):
    """The values of "FIRST..LAST by STEP" or "... by FACTORx". Errors: invalid_argument."""
    found = re.fullmatch(r"(.+?)\.\.(.+?)\s+by\s+(.+?)(x?)", text.strip())
    if not found:
        raise argument(f'{where}: \'{text}\' is no range; write "8k..128k by 2x" or "4..16 by 4"')
    first, last, step = (number(part, where) for part in found.groups()[:3])
    if (step <= 1 if found[4] else step <= 0) or last < first or (found[4] and first <= 0):
        raise argument(f"{where}: '{text}' never ends or is empty")
    values, value = [], first
    while value <= last and len(values) <= MOST_VALUES:
        values.append(value)
        value = value * step if found[4] else value + step
    if len(values) > MOST_VALUES:
        raise argument(f"{where}: '{text}' has more than {MOST_VALUES} values")
    return values


class Rule:
    """An expression over names. Errors of parsing and evaluating: invalid_argument with the rule's text."""

    def __init__(self, text, where):
        self.text, self.where = text, where
        plain = re.sub(r"\b(\d+)([kKmM])\b", lambda m: str(int(m[1]) * SUFFIXES[m[2].lower()]), text)
        try:
            self.tree = ast.parse(plain.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise argument(f"{where}: '{text[:60]}' is no expression; write for example \"block_out / 4\"") from None
        self.names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)} - set(FUNCTIONS)

    def __call__(self, values):
        try:
            found = self._value(self.tree, values)
        except ZeroDivisionError:
            raise argument(f"{self.where}: '{self.text}' divides by zero") from None
        except RecursionError:
            raise argument(f"{self.where}: '{self.text[:40]}...' is too deep; cut it into several rules") from None
        except OverflowError:
            found = math.inf
        if not -MOST <= found <= MOST:
            raise argument(f"{self.where}: '{self.text}' is beyond 2^53 for {self._given(values)}")
        return found

    def _given(self, values):
        return ", ".join(f"{name} = {values[name]}" for name in sorted(self.names)) or "any machine"

    @staticmethod
    def _applied(operator, left, right):
        """A quotient that is whole is an integer."""
        if not isinstance(operator, ast.Div):
            return OPERATORS[type(operator)](left, right)
        quotient = left / right
        return int(quotient) if math.isfinite(quotient) and quotient == int(quotient) else quotient

    def _value(self, node, values):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in (ast.Div, *OPERATORS):
            return self._applied(node.op, self._value(node.left, values), self._value(node.right, values))
        if isinstance(node, ast.Compare) and all(type(step) in OPERATORS for step in node.ops):
            found = [self._value(one, values) for one in (node.left, *node.comparators)]
            return all(OPERATORS[type(step)](*two) for step, two in zip(node.ops, itertools.pairwise(found)))
        if isinstance(node, ast.BoolOp):
            # What follows counts only where it decides: "b == 0 or a % b == 0" divides by no zero.
            found = (self._value(value, values) for value in node.values)
            return all(found) if isinstance(node.op, ast.And) else any(found)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            value = self._value(node.operand, values)
            return not value if isinstance(node.op, ast.Not) else -value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            if len(node.args) < 2 or node.keywords:
                raise argument(f"{self.where}: '{self.text}': {node.func.id} takes two values or more")
            return FUNCTIONS[node.func.id](*(self._value(value, values) for value in node.args))
        what = f"name '{node.id}'" if isinstance(node, ast.Name) else f"'{ast.unparse(node)}'"
        raise argument(
            f"{self.where}: '{self.text}' has {what}, which a rule cannot have; names are {', '.join(sorted(values))}"
        )


def is_number(value):
    """Of a space file: finite, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def values_of(given, where):
    """A list of values, or a Rule. given: list, number or text of a space file. Errors: invalid_argument."""
    if isinstance(given, list):
        if not given:
            raise argument(f"{where} is an empty list")
        found = [number(value, where) if isinstance(value, str) else value for value in given]
        if not all(is_number(value) for value in found):
            raise argument(f"{where} takes numbers, not {given!r}")
        return list(dict.fromkeys(found))
    if not isinstance(given, str):
        if not is_number(given):
            raise argument(f"{where} takes a number, a list, a range or a rule, not {given!r}")
        return [given]
    if ".." in given:
        return span(given, where)
    if re.fullmatch(NUMBER, given.strip()):
        return [number(given, where)]
    return Rule(given, where)

"""Splits a boolean expression at its own ``||`` and ``&&``, to say which parts of it made it true."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def true_leaves(expression: str, holds: Callable[[str], bool]) -> Iterator[str]:
    """The smallest parts that hold and do not merely negate: of alternatives those that hold, of conjunctions all."""
    expression = _unwrapped(expression.strip())
    alternatives = _split(expression, "||")
    if len(alternatives) > 1:
        for part in alternatives:
            if holds(part):
                yield from true_leaves(part, holds)
        return
    parts = _split(expression, "&&")
    if len(parts) > 1:
        for part in parts:
            yield from true_leaves(part, holds)
    elif not expression.startswith("!"):
        yield expression


def _split(expression: str, operator: str) -> list[str]:
    """At the operator outside parentheses, brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, letter in enumerate(expression):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and expression.startswith(operator, i):
            parts.append(expression[start:i])
            start = i + len(operator)
    return [*parts, expression[start:]]


def _unwrapped(expression: str) -> str:
    """Without parentheses around the whole."""
    while expression.startswith("(") and expression.endswith(")"):
        depth = 0
        for i, letter in enumerate(expression):
            depth += (letter == "(") - (letter == ")")
            if depth == 0 and i < len(expression) - 1:
                return expression
        expression = expression[1:-1].strip()
    return expression

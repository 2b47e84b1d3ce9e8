"""Functions that expressions of the records may call besides those of CEL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any


def increasing(values: Sequence[Any]) -> bool:
    """Each value is greater than the one before."""
    return all(a < b for a, b in pairwise(values))


def falling(values: Sequence[Any]) -> bool:
    """No value is greater than the one before."""
    return all(a >= b for a, b in pairwise(values))


def ranges_disjoint(entries: Sequence[Sequence[Any]]) -> bool:
    """Each ``[first, last, ...]`` starts after the one before it ends."""
    return all(b[0] > a[1] for a, b in pairwise(entries))


def ranges_contiguous(entries: Sequence[Sequence[Any]]) -> bool:
    """Each ``[first, last, ...]`` starts right after the one before it ends."""
    return all(b[0] == a[1] + 1 for a, b in pairwise(entries))


# name -> (parameter types, result type, function)
FUNCTIONS: dict[str, tuple[tuple[str, ...], str, Callable[..., Any]]] = {
    "increasing": (("list<any>",), "boolean", increasing),
    "falling": (("list<any>",), "boolean", falling),
    "ranges_disjoint": (("list<any>",), "boolean", ranges_disjoint),
    "ranges_contiguous": (("list<any>",), "boolean", ranges_contiguous),
    "min": (("integer", "integer"), "integer", min),
    "max": (("integer", "integer"), "integer", max),
}

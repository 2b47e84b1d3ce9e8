"""Functions that expressions of the records may call besides those of CEL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

# bytes of one number
BYTES = {
    "float64": 8,
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "fp8": 1,
    "int8": 1,
    "uint8": 1,
}


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


def element_bytes(dtype: str) -> int:
    """Bytes of one number of this type; 2 for a type that is not known here."""
    return BYTES.get(dtype, 2)


# name -> (parameter types, result type, function)
FUNCTIONS: dict[str, tuple[tuple[str, ...], str, Callable[..., Any]]] = {
    "increasing": (("list<any>",), "boolean", increasing),
    "falling": (("list<any>",), "boolean", falling),
    "ranges_disjoint": (("list<any>",), "boolean", ranges_disjoint),
    "ranges_contiguous": (("list<any>",), "boolean", ranges_contiguous),
    "element_bytes": (("string",), "integer", element_bytes),
    "min": (("integer", "integer"), "integer", min),
    "max": (("integer", "integer"), "integer", max),
}

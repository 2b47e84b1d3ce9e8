"""Functions that expressions of the records may call besides those of CEL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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


Shapes = Mapping[str, Sequence[int]]
_shapes: ContextVar[Shapes | None] = ContextVar("shapes", default=None)


@contextmanager
def tensors(shapes: Shapes | None) -> Iterator[None]:
    """Within it, the functions about tensors see these: normalised name -> shape; None when they are not known."""
    token = _shapes.set(shapes)
    try:
        yield
    finally:
        _shapes.reset(token)


def _known() -> Shapes:
    shapes = _shapes.get()
    if shapes is None:
        raise KeyError("no tensors are known")
    return shapes


def has_tensor(name: str) -> bool:
    """The checkpoint stores a tensor of this name; not decided where its tensors are not known."""
    return name in _known()


def tensor_dim(name: str, axis: int) -> int:
    """The length of an axis of a tensor; not decided where the tensor or the axis is not there."""
    shape = _known().get(name, ())
    if not 0 <= axis < len(shape):
        raise KeyError(f"no tensor {name} with axis {axis}")
    return shape[axis]


def tensor_count(pattern: str) -> int:
    """How many different first groups a regular expression finds in tensor names, or different names without a group."""
    found = re.compile(pattern)
    return len({match[1] if found.groups else match.string for match in map(found.search, _known()) if match})


def tensor_last(pattern: str) -> int:
    """The largest number that the first group of a regular expression finds in tensor names; -1 where nothing matches."""
    return max((int(match[1]) for match in map(re.compile(pattern).search, _known()) if match), default=-1)


# name -> (parameter types, result type, function)
FUNCTIONS: dict[str, tuple[tuple[str, ...], str, Callable[..., Any]]] = {
    "increasing": (("list<any>",), "boolean", increasing),
    "falling": (("list<any>",), "boolean", falling),
    "ranges_disjoint": (("list<any>",), "boolean", ranges_disjoint),
    "ranges_contiguous": (("list<any>",), "boolean", ranges_contiguous),
    "element_bytes": (("string",), "integer", element_bytes),
    "has_tensor": (("string",), "boolean", has_tensor),
    "tensor_dim": (("string", "integer"), "integer", tensor_dim),
    "tensor_count": (("string",), "integer", tensor_count),
    "tensor_last": (("string",), "integer", tensor_last),
    "min": (("integer", "integer"), "integer", min),
    "max": (("integer", "integer"), "integer", max),
}

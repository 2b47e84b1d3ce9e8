"""Fields of numbers that stay on the host until someone asks for a tensor, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch


class _Column:
    """A tensor field of a dataclass with ``Columns``; of an object made from lists, the tensor is made on first use.

    With ``fill`` lists are rows of any length; their tensor [R, K] is padded with it. K is the object's ``width`` where
    it has one, else the longest row.
    """

    def __init__(self, dtype: torch.dtype, *, fill: float | None = None, optional: bool = False) -> None:
        self.dtype, self.fill, self.optional = dtype, fill, optional

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, held: Any, owner: type | None = None) -> Any:
        # only reached while the object itself holds no tensor of this name
        numbers = None if held is None else held.lists.get(self.name)
        if numbers is None:
            if self.optional:
                return None  # also the default that the dataclass reads
            raise AttributeError(self.name)
        if self.fill is None:
            tensor = torch.tensor(numbers, dtype=self.dtype, device=held.device)
        else:
            tensor = padded(numbers, self.fill, self.dtype, held.device, getattr(held, "width", None))
        held.__dict__[self.name] = tensor
        return tensor


# a field's own annotation says what it gives
Column: Any = _Column


class Columns:
    """What dataclasses with ``Column`` fields inherit."""

    device: torch.device | None = None  # of tensors made from lists; None = the CPU
    lists: Mapping[str, Any] = {}

    @classmethod
    def of_lists(cls, lists: Mapping[str, Any], **fields: Any) -> Self:
        """An object from its columns as lists and its other fields."""
        made = cls.__new__(cls)
        made.__dict__.update(fields, lists=lists)
        return made

    def host(self, name: str) -> Any:
        """The numbers of a column as lists: as they were given, or a tensor's ``tolist()``."""
        numbers = self.lists.get(name)
        if numbers is None:
            tensor = getattr(self, name)
            numbers = None if tensor is None else tensor.tolist()
            self.__dict__["lists"] = {**self.lists, name: numbers}
        return numbers


def padded(
    rows: Sequence[Sequence[float]], fill: float, dtype: torch.dtype, device: Any = None, width: int | None = None
) -> torch.Tensor:
    """Rows of any length as a tensor [R, width or the longest], ``fill`` after each row's end."""
    if width is None:
        width = max(map(len, rows), default=0)
    full = [[*row, *[fill] * (width - len(row))] for row in rows]
    return torch.tensor(full, dtype=dtype, device=device).view(len(rows), width)

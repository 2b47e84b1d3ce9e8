"""Fields of numbers that stay on the host until someone asks for a tensor, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Column:
    """A dataclass field that takes a tensor or host numbers; as an attribute it is the tensor, made on first use.

    With ``fill`` it takes rows of any length; their tensor [R, K] is padded with it. K is the owner's ``width`` where it
    has one, else the longest row. The tensor is made on the owner's ``device`` (default: the CPU).
    """

    def __init__(self, dtype: torch.dtype, *, fill: float | None = None, optional: bool = False) -> None:
        self.dtype, self.fill, self.optional = dtype, fill, optional

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.on_host = name, f"{name} on the host"

    def __set__(self, held: Any, value: Any) -> None:
        # a descriptor that sets comes before the instance's own attributes, so the name is free to hold the tensor
        names = (self.name, self.on_host)
        given, other = names if value is None or isinstance(value, torch.Tensor) else reversed(names)
        held.__dict__[given] = value
        held.__dict__.pop(other, None)

    def __get__(self, held: Any, owner: type | None = None) -> Any:
        if held is None:
            if self.optional:
                return None  # the default that the dataclass reads
            raise AttributeError(self.name)
        values = held.__dict__
        if self.name not in values:
            values[self.name] = self._tensor(held, values[self.on_host])
        return values[self.name]

    def _tensor(self, held: Any, numbers: Any) -> torch.Tensor:
        if self.fill is not None:
            return padded(numbers, self.fill, self.dtype, held.device, getattr(held, "width", None))
        return torch.tensor(numbers, dtype=self.dtype, device=held.device)

    def host(self, held: Any) -> Any:
        """The numbers as lists, as they were given; of a tensor its ``tolist()``."""
        values = held.__dict__
        if self.on_host not in values:
            tensor = values[self.name]
            values[self.on_host] = None if tensor is None else tensor.tolist()
        return values[self.on_host]


class Columns:
    """What classes with ``Column`` fields inherit."""

    device: torch.device | None = None

    def host(self, name: str) -> Any:
        """The numbers of a column as lists, without a tensor where they were given as lists."""
        return vars(type(self))[name].host(self)


def padded(
    rows: Sequence[Sequence[float]], fill: float, dtype: torch.dtype, device: Any = None, width: int | None = None
) -> torch.Tensor:
    """Rows of any length as a tensor [R, width or the longest], ``fill`` after each row's end."""
    if width is None:
        width = max(map(len, rows), default=0)
    full = [[*row, *[fill] * (width - len(row))] for row in rows]
    return torch.tensor(full, dtype=dtype, device=device).view(len(rows), width)

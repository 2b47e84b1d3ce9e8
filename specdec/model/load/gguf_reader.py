"""The conversion of GGUF files by transformers, without reading the same header again and again, value by value."""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
from gguf import GGUFReader, GGUFValueType

_PATCH = threading.Lock()  # the names of the module ``gguf`` are shared by all threads


class HeaderReader(GGUFReader):
    """The reader of the package ``gguf``, several times faster.

    Values of lists are parts of plain Python: bytes for a text, a tuple of one for a number. They index and iterate
    like the small arrays that stand there otherwise; the lengths of texts are left out.
    """

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY or self.byte_order != "I":
            return super()._get_field_parts(orig_offs, raw_type)
        kind, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        item, count, start = GGUFValueType(kind[0]), int(length[0]), orig_offs + 12
        if item == GGUFValueType.STRING:
            values, end = _texts(self.data, start, count)
        elif item in self.gguf_scalar_to_np:
            number = self.gguf_scalar_to_np[item]
            end = start + count * np.dtype(number).itemsize
            if end > len(self.data):
                raise ValueError(f"the file ends inside a list of {count} numbers")
            values = [(value,) for value in self._get(start, number, count).tolist()]
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        types = [GGUFValueType.ARRAY, *([item] if count else [])]
        return end - orig_offs, [kind, length, *values], list(range(2, 2 + count)), types


def _texts(data: np.ndarray, start: int, count: int) -> tuple[list[Any], int]:
    """``count`` texts that begin at ``start``, each behind its length of 8 bytes, and where they end."""
    file, length_at, values = memoryview(data), struct.Struct("<Q" if _IS_LITTLE else ">Q").unpack_from, []
    for _ in range(count):
        if start + 8 > len(file):
            raise ValueError(f"the file ends inside a list of {count} texts")
        (length,) = length_at(file, start)
        start += 8
        if start + length > len(file):
            raise ValueError(f"the file ends inside a list of {count} texts")
        values.append(bytes(file[start : start + length]))
        start += length
    return values, start


_IS_LITTLE = np.little_endian


@contextlib.contextmanager
def fast_gguf() -> Iterator[None]:
    """While it lasts, whoever asks the package ``gguf`` for a reader or a name map gets a fast one, made once."""
    with _PATCH:
        stock = gguf.GGUFReader, gguf.get_tensor_name_map
        gguf.GGUFReader = functools.cache(HeaderReader)  # type: ignore[misc]
        gguf.get_tensor_name_map = functools.cache(stock[1])  # made anew for every module of a model
        try:
            yield
        finally:
            gguf.GGUFReader, gguf.get_tensor_name_map = stock  # type: ignore[misc]

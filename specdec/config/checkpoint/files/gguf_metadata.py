"""Reads the metadata and tensor table of a GGUF file (versions 2 and 3) without reading weights.

Lists of texts (a vocabulary and its merges: most of the head) are stepped over and read when they are asked for.
Source: the GGUF specification in the ggml repository (docs/gguf.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, overload

from specdec.config.checkpoint.files.bounds import regular_file
from specdec.config.checkpoint.files.errors import CheckpointFault

MAGIC = b"GGUF"
MAX_ITEMS = 20_000_000  # far above any vocabulary; stops a damaged count from filling memory
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CHUNK = 1 << 20  # bytes read at once while stepping over texts


@dataclass(frozen=True)
class GgufContents:
    """``metadata`` as written; ``tensors`` name -> shape in row-major order (GGUF stores the reverse)."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    tensor_types: dict[str, int]
    size: int


def read_gguf(path: Path) -> GgufContents:
    """The contents of the file's head. Raises CheckpointFault for a damaged file."""
    regular_file(path)
    try:
        with path.open("rb") as file:
            return _Reader(file, path).contents()
    except OSError as error:
        raise CheckpointFault(f"{path.name} cannot be read: {error.strerror or error}") from error


class TextList(Sequence[str]):
    """A list of texts that is read from the file on first use; that raises CheckpointFault when the file has changed."""

    def __init__(self, path: Path, position: int, count: int) -> None:
        self.path, self.position, self.length = path, position, count

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._texts[index]

    @cached_property
    def _texts(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                reader = _Reader(file, self.path)
                return [reader.string() for _ in range(self.length)]
        except OSError as error:
            raise CheckpointFault(f"{self.path.name} cannot be read: {error.strerror or error}") from error


class _Reader:
    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.size, self.name = file, path, path.stat().st_size, path.name

    def contents(self) -> GgufContents:
        if self.take(4) != MAGIC:
            raise CheckpointFault(f"{self.name} does not start with the GGUF magic bytes")
        version = self.scalar("I")
        if version not in (2, 3):
            raise CheckpointFault(f"{self.name} is GGUF version {version}; versions 2 and 3 are read")
        tensor_count, item_count = self.count(self.scalar("Q")), self.count(self.scalar("Q"))
        metadata = {}
        for _ in range(item_count):
            key = self.string()
            metadata[key] = self.value(self.scalar("I"))
        tensors, types = {}, {}
        for _ in range(tensor_count):
            name = self.string()
            rank = self.scalar("I")
            if rank > 8:
                raise CheckpointFault(f"{self.name}: tensor {name!r} claims {rank} dimensions; the file is damaged")
            dims = [self.scalar("Q") for _ in range(rank)]
            types[name], _offset = self.scalar("I"), self.scalar("Q")
            tensors[name] = tuple(reversed(dims))
        return GgufContents(version, metadata, tensors, types, self.size)

    def take(self, length: int) -> bytes:
        data = self.file.read(length) if length <= self.size else b""
        if len(data) != length:
            self.truncated()
        return data

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))
        return value

    def count(self, value: int) -> int:
        if value > min(MAX_ITEMS, self.size):
            raise CheckpointFault(f"{self.name} claims {value} items in {self.size} bytes; the file is damaged")
        return value

    def string(self) -> str:
        return self.take(self.count(self.scalar("Q"))).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth > 4:
            raise CheckpointFault(f"{self.name} holds a metadata value of unknown type {kind}; the file is damaged")
        item_kind, length = self.scalar("I"), self.count(self.scalar("Q"))
        if item_kind in _SCALARS:
            code = f"<{length}{_SCALARS[item_kind]}"
            return list(struct.unpack(code, self.take(struct.calcsize(code))))
        if item_kind == _STRING:
            texts = TextList(self.path, self.file.tell(), length)
            self.skip_texts(length)
            return texts
        return [self.value(item_kind, depth + 1) for _ in range(length)]

    def skip_texts(self, count: int) -> None:
        """Move past ``count`` texts; only their lengths are looked at."""
        length_at = struct.Struct("<Q").unpack_from
        chunk, start, at = b"", self.file.tell(), 0
        while count:
            try:
                for _ in range(count):
                    at += 8 + length_at(chunk, at)[0]
                    count -= 1
            except (struct.error, OverflowError):  # the next length is past the chunk, or past any file
                start, at = start + at, 0
                self.file.seek(min(start, self.size))
                chunk = self.file.read(_CHUNK)
                if len(chunk) < 8:
                    self.truncated()
        self.file.seek(min(start + at, self.size))
        if start + at > self.size:
            self.truncated()

    def truncated(self) -> NoReturn:
        raise CheckpointFault(f"{self.name} ends inside its header; the file is truncated or damaged")

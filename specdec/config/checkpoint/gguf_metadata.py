"""Reads the metadata and tensor table of a GGUF file (versions 2 and 3) without reading weights.

Source: the GGUF specification in the ggml repository (docs/gguf.md).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from specdec.config.checkpoint.errors import CheckpointFault

MAGIC = b"GGUF"
MAX_ITEMS = 20_000_000  # far above any vocabulary; stops a damaged count from filling memory
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


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
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size, path.name).contents()
    except OSError as error:
        raise CheckpointFault(f"{path.name} cannot be read: {error.strerror or error}") from error


class _Reader:
    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self.file, self.size, self.name = file, size, name

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
            raise CheckpointFault(f"{self.name} ends inside its header; the file is truncated or damaged")
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
        return [self.value(item_kind, depth + 1) for _ in range(length)]

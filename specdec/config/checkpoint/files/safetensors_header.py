"""Reads names, shapes and small tensors from a safetensors file without loading weights."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.config.checkpoint.files.bounds import (
    INT64,
    MAX_DIMS,
    MAX_NAME,
    MAX_TENSORS,
    is_broken,
    regular_file,
    short,
)
from specdec.config.checkpoint.files.errors import CheckpointFault, lfs_pointer

MAX_HEADER_BYTES = 100_000_000  # the limit of the format's own reference reader
DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
_INTEGER_FORMAT = {
    "BOOL": "B",
    "U8": "B",
    "I8": "b",
    "I16": "h",
    "U16": "H",
    "I32": "i",
    "U32": "I",
    "I64": "q",
    "U64": "Q",
}


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies in its file: ``begin`` and ``end`` are byte offsets from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    file: Path


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Tensor name -> entry. Raises CheckpointFault for a file that is truncated, garbled or inconsistent."""
    regular_file(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if fault := lfs_pointer(path.name, prefix + file.read(100)):
                raise fault
            file.seek(8)
            if len(prefix) < 8:
                raise CheckpointFault(f"{path.name} is {size} bytes long, too short for a safetensors file")
            (length,) = struct.unpack("<Q", prefix)
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise CheckpointFault(
                    f"{path.name} announces a header of {length} bytes but has {max(size - 8, 0)} bytes after the length"
                )
            raw = file.read(length)
    except OSError as error:
        raise CheckpointFault(f"{path.name} cannot be read: {error.strerror or error}") from error
    try:
        header = json.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise CheckpointFault(f"the header of {path.name} is not valid JSON ({_short(error)})") from error
    if not isinstance(header, dict):
        raise CheckpointFault(f"the header of {path.name} is not a JSON object")
    if len(header) > MAX_TENSORS:
        raise CheckpointFault(f"{path.name} lists {len(header)} tensors; no checkpoint has so many")
    return dict(_entries(header, path, data_start=8 + length, size=size))


def _entries(header: dict[str, Any], path: Path, data_start: int, size: int) -> Iterator[tuple[str, TensorEntry]]:
    for name, info in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, offsets = (
            (info.get(k) for k in ("dtype", "shape", "data_offsets")) if isinstance(info, dict) else (None,) * 3
        )
        if (
            not isinstance(dtype, str)
            or shape is None
            or offsets is None
            or not _naturals(shape)
            or not _naturals(offsets)
            or len(offsets) != 2
        ):
            raise CheckpointFault(
                f"{path.name}: the entry of tensor {name!r} lacks a valid dtype, shape or data_offsets"
            )
        begin, end = offsets
        if len(name) > MAX_NAME or len(shape) > MAX_DIMS or is_broken(name):
            raise CheckpointFault(f"{path.name}: tensor {short(name)} has a name or a shape that no checkpoint has")
        if begin > end or data_start + end > size:
            last = short(data_start + end)
            raise CheckpointFault(
                f"{path.name}: tensor {name!r} ends at byte {last} but the file has {size}; the file is truncated"
            )
        if any(dim >= INT64 for dim in shape):
            raise CheckpointFault(f"{path.name}: tensor {name!r} has a side of {short(max(shape))}")
        count = math.prod(shape)
        if dtype in DTYPE_BYTES and count * DTYPE_BYTES[dtype] != end - begin:
            raise CheckpointFault(f"{path.name}: tensor {name!r} {dtype} {shape} does not fill its {end - begin} bytes")
        yield name, TensorEntry(dtype, tuple(shape), data_start + begin, data_start + end, path)


def read_integers(entry: TensorEntry) -> tuple[int, ...] | None:
    """The values of an integer or boolean tensor; None when its dtype is neither."""
    code = _INTEGER_FORMAT.get(entry.dtype)
    if code is None:
        return None
    try:
        with entry.file.open("rb") as file:
            file.seek(entry.begin)
            data = file.read(entry.end - entry.begin)
    except OSError as error:
        raise CheckpointFault(f"{entry.file.name} cannot be read: {error.strerror or error}") from error
    if len(data) != entry.end - entry.begin:
        raise CheckpointFault(f"{entry.file.name} ends inside a tensor; the file is truncated")
    return struct.unpack(f"<{len(data) // struct.calcsize('<' + code)}{code}", data)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:120]

"""Data files of the distribution: inside the wheel, or at the root of the repository."""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path


def data_file(name: str) -> Path:
    """The path of ``speculators.yaml`` or of a file under ``schemas/``."""
    here = Path(__file__).resolve()
    packaged = here.parents[2] / "data" / name
    return packaged if packaged.exists() else here.parents[3] / name


def schema_path(name: str) -> Path:
    """The path of a shipped JSON Schema."""
    return data_file(f"schemas/{name}")


@lru_cache(maxsize=1)
def made_from() -> str:
    """What generated files say they were made from: a checksum of the records and of ``sections.yaml``."""
    checksum = 0
    for file in (data_file("speculators.yaml"), Path(__file__).with_name("sections.yaml")):
        checksum = zlib.crc32(file.read_bytes().replace(b"\r\n", b"\n"), checksum)
    return f"{checksum:08x}"

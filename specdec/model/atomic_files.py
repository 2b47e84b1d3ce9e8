"""Files that appear whole or not at all, also when the process or the machine dies."""

from __future__ import annotations

import os
from pathlib import Path

_PART = ".part"


def publish(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds all of it or what it held before; on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}{_PART}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Add a line; a reader sees it whole, or cut off where the process died in between."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def remove_parts(folder: Path) -> None:
    """Remove what processes that died left below ``folder``."""
    for part in folder.rglob(f".*{_PART}"):
        part.unlink()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

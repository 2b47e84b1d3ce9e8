"""A folder with a list of its files: whether it still holds what was put there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from specdec_kernels.cache.places import is_ours

NAME, FORMAT, MOST = "manifest.json", 1, 1 << 20  # bytes of the list
CHANGED = 3  # where the time of the last change stands in what ``_stat`` gives
CLOCK = 2 * 10**9  # nanoseconds within which two writes may bear the same time


def seal(folder: Path) -> None:
    """Write the list of all files of ``folder``, subfolders included, once they are on the disk."""
    files = {}
    for path in _files(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files[str(path.relative_to(folder))] = {"sha256": checksum(path), "stat": _stat(path)}
    _write(folder, files)


def intact(folder: Path) -> bool:
    """Whether ``folder`` is ours and holds exactly the listed files, unchanged.

    A file is not read again when the system says that it was not written to since it was last read.
    """
    listed = _read(folder / NAME)
    if not is_ours(folder) or listed is None:
        return False
    files, read_at, read = listed["files"], listed["read_at"], False
    found = {str(path.relative_to(folder)): path for path in _files(folder)}
    if set(found) != set(files):
        return False
    for name, path in found.items():
        if not is_ours(path):
            return False
        now = _stat(path)
        if files[name]["stat"] == now and now[CHANGED] < read_at - CLOCK:
            continue
        if files[name]["sha256"] != checksum(path):
            return False
        files[name]["stat"], read = now, True
    if read:
        with contextlib.suppress(OSError):
            _write(folder, files)
    return True


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*")) if (p.is_symlink() or not p.is_dir()) and p != folder / NAME]


def _stat(path: Path) -> list[int]:
    found = path.lstat()
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def _write(folder: Path, files: dict[str, Any]) -> None:
    partial = folder / f"{NAME}.{os.getpid()}"
    partial.write_text(json.dumps({"format": FORMAT, "read_at": time.time_ns(), "files": files}), encoding="utf-8")
    os.replace(partial, folder / NAME)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if path.is_symlink() or path.stat().st_size > MOST:
            return None
        listed = json.loads(path.read_text(encoding="utf-8"))
        entries = listed["files"].values()
        known = listed["format"] == FORMAT and all(len(e["stat"]) == 4 and e["sha256"] for e in entries)
        return dict(listed) if known and isinstance(listed["read_at"], int) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None

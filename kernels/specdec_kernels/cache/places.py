"""Where kept things live, and whether a file there may be believed to be ours."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

ADVICE = "set SPECDEC_CACHE to a folder that can be written"


class CacheError(RuntimeError):
    """The cache cannot be used; the message names the place, the reason and a way out."""


def cache_root() -> Path:
    """``$SPECDEC_CACHE``, else ``$XDG_CACHE_HOME/specdec``, else ``~/.cache/specdec``; ``~`` is the home. Raises ``CacheError``."""
    try:
        if given := os.environ.get("SPECDEC_CACHE"):
            return Path(os.path.abspath(Path(given).expanduser()))
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base).expanduser() if base else Path.home() / ".cache") / "specdec"
    except RuntimeError as error:  # no such user, or no home at all
        raise CacheError(f"there is no cache folder: {error}; {ADVICE}") from None


def ready(folder: Path) -> Path:
    """Create ``folder`` for this user alone; where it is somebody else's, a folder of our own inside it.

    Raises ``CacheError``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_ours(folder):
            folder = folder / f"user-{os.geteuid()}"
            folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise cannot_write(folder, error) from error
    if not is_ours(folder):
        raise CacheError(f"the cache {folder} belongs to another user, or others may write there; {ADVICE}")
    return folder


def cannot_write(folder: Path, error: OSError) -> CacheError:
    """A failure to write below ``folder`` in words; a full disk is said as that."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CacheError(f"no space is left for {folder}: {reason}; free some, or {ADVICE}")
    return CacheError(f"cannot write the cache {folder}: {reason}; {ADVICE}")


def is_ours(path: Path) -> bool:
    """Whether ``path`` is a plain file or folder, no link, of this user or root, that nobody else may write."""
    try:
        found = path.lstat()
    except OSError:
        return False
    plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return plain and found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022

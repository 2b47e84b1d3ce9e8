"""One maker at a time per folder: a lock that the system takes back when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from specdec_kernels.cache.places import CacheError, cannot_write

try:
    import fcntl
except ImportError:  # not a POSIX system: files are still put in place atomically
    fcntl = None  # type: ignore[assignment]

PAUSE = 0.05  # seconds between two looks


@contextlib.contextmanager
def locked(folder: Path, timeout: float, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold ``folder`` (which exists). ``waiting`` is called once if another process holds it.

    Gives False where the file system knows no locks. Raises ``CacheError`` after ``timeout`` seconds; 0 only tries.
    """
    if fcntl is None:
        yield False
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield _acquire(handle, folder, timeout, waiting)
    finally:
        os.close(handle)


def _acquire(handle: int, folder: Path, timeout: float, waiting: Callable[[], None] | None) -> bool:
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return False
        if time.monotonic() >= end:
            raise CacheError(f"another process has held {folder} for more than {timeout:g} s; end it, or wait")
        if waiting is not None:
            waiting()
            waiting = None
        time.sleep(PAUSE)

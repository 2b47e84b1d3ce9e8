"""Folders for work in progress, named after their process, so that the next run can remove what a killed one left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from specdec_kernels.cache.locks import locked
from specdec_kernels.cache.places import CacheError, cannot_write

PREFIX = ".scratch-"
NAMELESS_AGE = 3600.0  # seconds after which work whose process is not known was given up


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A new folder inside ``folder``, removed at the end; raises ``CacheError``."""
    pid = os.getpid()
    try:
        made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-{_started(pid)}-", dir=folder))
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what dead processes left in ``folder``, and end the programs that still write there; raises ``CacheError``."""
    try:
        left = [path for path in folder.iterdir() if _is_left(path)]
    except OSError as error:
        raise cannot_write(folder, error) from error
    if not left:
        return
    with contextlib.suppress(CacheError), locked(folder, 0.0):  # whoever holds it may be at work unseen by us
        for path in left:
            _end_writers(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_left(path: Path) -> bool:
    """Scratch of a process that is gone, or old work of nobody known (``tempfile`` names)."""
    if path.name.startswith(PREFIX):
        pid, _, started = path.name.removeprefix(PREFIX).partition("-")
        return not pid.isdecimal() or _started(int(pid)) != started.partition("-")[0]
    if not path.name.startswith((".", "tmp")):
        return False
    try:
        return time.time() - path.lstat().st_mtime > NAMELESS_AGE
    except OSError:
        return False


def _started(pid: int) -> str:
    """When a process began, in the system's ticks: a pid alone may be another's by now. Empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "0"


def _end_writers(path: Path) -> None:
    """Kill this user's processes whose command line names ``path``: compilers that outlived who started them."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            mine = entry.stat().st_uid == os.geteuid() and int(entry.name) != os.getpid()
            if mine and os.fsencode(path) in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)

"""Build the CPU kernels once per machine and load them. Nothing here imports torch before ``load``."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from specdec_kernels.cache.locks import locked
from specdec_kernels.cache.manifest import checksum
from specdec_kernels.cache.places import CacheError, cache_root, cannot_write, is_ours, ready
from specdec_kernels.cache.scratch import scratch, sweep

SOURCE = Path(__file__).with_name("kernels.cpp")
HEADERS = (
    "attention.h",
    "causal.h",
    "dots.h",
    "draft.h",
    "draft_head.h",
    "draft_lists.h",
    "layer.h",
    "panels.h",
    "rows.h",
    "rowwise.h",
    "stack.h",
    "vectors.h",
)
# No -ffast-math: reassociated sums would differ between tile shapes, and a row's result would depend on its batch.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-fPIC",
    "-shared",
)

LIMIT = 300.0  # seconds for a compilation, and for waiting for another process's
_one_build = threading.Lock()
_compilation: subprocess.Popen[str] | None = None


class NativeUnavailable(RuntimeError):
    """The kernels cannot be built or loaded here; the message says why."""


def cache_dir() -> Path:
    """Where built kernels are kept; raises ``CacheError``."""
    return cache_root() / "cpu"


def find_compiler() -> str:
    """The C++ compiler: ``$CXX``, else the first of c++, g++, clang++ on the path."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise NativeUnavailable("no C++ compiler found; install g++ or set CXX")


def _machine() -> str:
    """Identifies the instruction set that ``-march=native`` stands for."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def build_in_background() -> None:
    """Start compiling, if need be, while the caller goes on; ``build`` waits for it. Failures show in ``build`` only."""

    def run() -> None:
        with contextlib.suppress(NativeUnavailable):
            build()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    atexit.register(_abandon, thread)


def _abandon(thread: threading.Thread) -> None:
    """Stop a compilation that nobody waits for any more, and let its thread tidy up."""
    if thread.is_alive() and (running := _compilation) is not None:
        _stop(running)
        thread.join(timeout=1.0)


def _stop(compiler: subprocess.Popen[str]) -> None:
    """End a compiler and the processes it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(compiler.pid, signal.SIGTERM)


def build() -> Path:
    """Compile the kernels, or return the kept library of the same source, flags, compiler and CPU if it is intact."""
    with _one_build:
        try:
            return _build()
        except CacheError as error:
            raise NativeUnavailable(str(error)) from error


def _build() -> Path:
    compiler = find_compiler()
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, errors="replace", check=False).stdout
    except OSError as error:
        raise NativeUnavailable(f"{compiler} cannot be started: {error}") from error
    native = "-mcpu=native" if platform.machine().lower() in {"aarch64", "arm64"} else "-march=native"
    sources = [path.read_text(encoding="utf-8") for path in (SOURCE, *map(SOURCE.with_name, HEADERS))]
    key = hashlib.sha256("\0".join([*sources, *FLAGS, native, version, _machine()]).encode()).hexdigest()[:16]
    folder = ready(cache_dir())
    sweep(folder)
    if kept := _kept(folder, key):
        return kept
    with locked(folder, LIMIT):
        if kept := _kept(folder, key):  # another process was faster
            return kept
        with scratch(folder) as work:
            made = work / "kernels.so"
            code, errors = _compile([compiler, *FLAGS, native, str(SOURCE), "-o", str(made)], work)
            if code != 0:
                raise NativeUnavailable(f"{compiler} failed: {_reason(errors)}")
            try:
                made.chmod(0o700)
                final = folder / f"kernels-{key}-{checksum(made)}.so"
                os.replace(made, final)
            except OSError as error:
                raise cannot_write(folder, error) from error
        return final


def _kept(folder: Path, key: str) -> Path | None:
    """The library of this build whose content is what its name says; others under its name are removed."""
    for path in sorted(folder.glob(f"kernels-{key}*.so")):
        try:
            if path.is_file() and is_ours(path) and path.name == f"kernels-{key}-{checksum(path)}.so":
                return path
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError:  # not ours to remove, or gone by now
            continue
    return None


def _reason(errors: str) -> str:
    """The line of a compiler's messages that says why."""
    lines = errors.strip().splitlines() or ["no message"]
    return next((line for line in lines if "No space left" in line), lines[0])


def _compile(command: list[str], work: Path) -> tuple[int, str]:
    """(exit code, messages) of the compiler, whose own temporary files go to ``work``."""
    global _compilation
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    own = {"env": {**os.environ, "TMPDIR": str(work)}, "start_new_session": True}
    try:
        with subprocess.Popen(command, **pipes, **own, text=True, errors="replace") as _compilation:
            try:
                _, errors = _compilation.communicate(timeout=LIMIT)
            except BaseException:
                _stop(_compilation)
                raise
            return _compilation.returncode, errors
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{command[0]} failed: {error}") from error


@functools.lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """The loaded kernels. Raises ``NativeUnavailable``."""
    if sys.byteorder != "little":
        raise NativeUnavailable("the kernels need a little-endian CPU")
    import torch  # noqa: F401 - loads the OpenMP runtime that the kernels share with it

    try:
        return ctypes.CDLL(str(build()))
    except OSError as error:
        raise NativeUnavailable(f"cannot load the kernels: {error}") from error


def loaded() -> ctypes.CDLL | None:
    """The kernels where they were loaded before; never compiles."""
    return load() if load.cache_info().currsize else None


def available() -> bool:
    """Whether the kernels are, or can be, built and loaded here."""
    try:
        load()
    except NativeUnavailable:
        return False
    return True

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
import tempfile
import threading
from pathlib import Path

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


_one_build = threading.Lock()
_compilation: subprocess.Popen[str] | None = None


class NativeUnavailable(RuntimeError):
    """The kernels cannot be built or loaded here; the message says why."""


def cache_dir() -> Path:
    """Where built kernels are kept: ``$SPECDEC_CACHE/cpu``, else ``$XDG_CACHE_HOME/specdec/cpu`` or ``~/.cache/specdec/cpu``."""
    root = os.environ.get("SPECDEC_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec"
    return base / "cpu"


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
    """Compile the kernels, or return the cached library when source, flags, compiler and CPU are the same."""
    with _one_build:
        return _build()


def _build() -> Path:
    compiler = find_compiler()
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    native = "-mcpu=native" if platform.machine().lower() in {"aarch64", "arm64"} else "-march=native"
    sources = [path.read_text(encoding="utf-8") for path in (SOURCE, *map(SOURCE.with_name, HEADERS))]
    key = "\0".join([*sources, *FLAGS, native, version, _machine()])
    target = cache_dir() / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, partial = tempfile.mkstemp(suffix=".so", dir=target.parent)
    except OSError as error:
        raise NativeUnavailable(f"cannot write {target.parent}: {error}") from error
    os.close(handle)
    try:
        code, errors = _compile([compiler, *FLAGS, native, str(SOURCE), "-o", partial])
        if code != 0:
            raise NativeUnavailable(f"{compiler} failed: {(errors.strip().splitlines() or ['no message'])[0]}")
        os.replace(partial, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{compiler} failed: {error}") from error
    finally:
        Path(partial).unlink(missing_ok=True)
    return target


def _compile(command: list[str]) -> tuple[int, str]:
    """(exit code, messages) of the compiler."""
    global _compilation
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as _compilation:
        try:
            _, errors = _compilation.communicate(timeout=300)
        except BaseException:
            _stop(_compilation)
            raise
        return _compilation.returncode, errors


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

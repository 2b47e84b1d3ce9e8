"""Build the CPU kernels once per machine and load them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch  # loads the OpenMP runtime that the kernels share with it

SOURCE = Path(__file__).with_name("kernels.cpp")
HEADERS = ("attention.h", "dots.h", "layer.h", "panels.h", "stack.h", "vectors.h")
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


def build() -> Path:
    """Compile the kernels, or return the cached library when source, flags, compiler and CPU are the same."""
    compiler = find_compiler()
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    native = "-mcpu=native" if platform.machine().lower() in {"aarch64", "arm64"} else "-march=native"
    sources = [path.read_text(encoding="utf-8") for path in (SOURCE, *map(SOURCE.with_name, HEADERS))]
    key = "\0".join([*sources, *FLAGS, native, version, _machine(), torch.__version__])
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
        command = [compiler, *FLAGS, native, str(SOURCE), "-o", partial]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise NativeUnavailable(f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
        os.replace(partial, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{compiler} failed: {error}") from error
    finally:
        Path(partial).unlink(missing_ok=True)
    return target


@functools.lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """The loaded kernels. Raises ``NativeUnavailable``."""
    if sys.byteorder != "little":
        raise NativeUnavailable("the kernels need a little-endian CPU")
    try:
        return ctypes.CDLL(str(build()))
    except OSError as error:
        raise NativeUnavailable(f"cannot load the kernels: {error}") from error

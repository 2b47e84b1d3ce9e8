"""Time from starting the command to its first token, with warm and with empty caches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence


class StartupError(RuntimeError):
    """The command that is timed failed; the message holds its last line."""


def measure_startup(arguments: Sequence[str], cold: bool = True) -> dict[str, float]:
    """Seconds of ``specdec generate`` for one token: ``warm`` (second run), and ``cold`` with an empty cache folder.

    Cold means nothing converted or compiled before; the system's file cache stays as it is.
    """
    seconds = {}
    if cold:
        with tempfile.TemporaryDirectory() as folder:
            seconds["cold"] = _once(arguments, {"SPECDEC_CACHE": folder})
    _once(arguments, {})
    seconds["warm"] = _once(arguments, {})
    return seconds


def _once(arguments: Sequence[str], environment: dict[str, str]) -> float:
    command = [sys.executable, "-m", "specdec", "generate", *arguments, "sampling.max_tokens=1", "--prompt", "Hello"]
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise StartupError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return seconds

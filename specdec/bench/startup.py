"""Time from starting the command to its first token, with warm and with empty caches.

``python -m specdec.bench.startup [FILE|KEY=VALUE ...]`` also says where the time goes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

REQUEST = ("sampling.max_tokens=1", "--prompt", "Hello", "--quiet")


class StartupError(RuntimeError):
    """The command that is timed failed; the message holds its last line."""


def measure_startup(arguments: Sequence[str], cold: bool = True) -> dict[str, float]:
    """Seconds of ``specdec generate`` to its first token: ``warm`` (second run), and ``cold`` with an empty cache folder.

    Cold means nothing converted or compiled before; the system's file cache stays as it is.
    """
    return {name: seconds for name, (seconds, _) in _measure(["specdec", "generate"], arguments, cold).items()}


def measure_phases(arguments: Sequence[str], cold: bool = True) -> dict[str, dict[str, float]]:
    """The same runs, each as phase -> seconds in order; the last entry is the time to the first token."""
    runs = _measure(["specdec.bench.phases"], arguments, cold)
    return {name: json.loads(errors.splitlines()[-1]) | {"first token": s} for name, (s, errors) in runs.items()}


def _measure(module: Sequence[str], arguments: Sequence[str], cold: bool) -> dict[str, tuple[float, str]]:
    runs = {}
    if cold:
        with tempfile.TemporaryDirectory() as folder:
            runs["cold"] = _once(module, arguments, {"SPECDEC_CACHE": folder})
    _once(module, arguments, {})
    runs["warm"] = _once(module, arguments, {})
    return runs


def _once(module: Sequence[str], arguments: Sequence[str], environment: dict[str, str]) -> tuple[float, str]:
    """(seconds to the first character of the output, what went to standard error)."""
    command = [sys.executable, "-m", *module, *arguments, *REQUEST]
    with tempfile.TemporaryFile("w+") as errors:  # no pipe, which could fill while nobody reads it
        start = time.perf_counter()
        with subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=errors
        ) as running:
            assert running.stdout is not None
            running.stdout.read(1)
            seconds = time.perf_counter() - start
            running.stdout.read()
        errors.seek(0)
        said = errors.read()
    if running.returncode != 0:
        raise StartupError((said.strip().splitlines() or ["no message"])[-1])
    return seconds, said


def main() -> None:
    for name, phases in measure_phases(sys.argv[1:]).items():
        print(f"{name} caches, seconds")
        for phase, seconds in phases.items():
            print(f"  {phase:<28}{seconds:6.2f}")


if __name__ == "__main__":
    main()

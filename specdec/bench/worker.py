"""A process of another interpreter that answers in JSON lines, and sleeps while it is not asked."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from specdec.bench.samples import ModeFailed

# the worker must not outlive us, even when we are killed while it is stopped: 1 is PR_SET_PDEATHSIG
LAUNCH = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
SHOWN = 160  # characters of an answer that is not understood
LONGEST = 400  # characters of an error
PATIENCE = 5.0  # seconds to end by itself


class Worker:
    """One question, one answer. Between them its processes are stopped: a pool that spins would disturb others.

    Raises ``ModeFailed`` when it cannot be started, ends, does not answer in ``timeout`` seconds, or answers nonsense.
    """

    def __init__(self, name: str, python: str, script: Path, log: Path, timeout: float) -> None:
        self.name, self.log, self.timeout = name, log, timeout
        found = shutil.which(python)
        if found is None:
            raise ModeFailed(f"{name}: '{python}' is no program that can be run; name the Python that has it installed")
        if not script.is_file():
            raise ModeFailed(f"{name}: no script '{script}'")
        command = [os.path.abspath(found), str(script)]
        if sys.platform == "linux":
            command = [sys.executable, "-c", LAUNCH, *command]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self.unread = b""

    def ask(self, **question: Any) -> dict[str, Any]:
        """The answer to one question."""
        self._signal(signal.SIGCONT)
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._failed(self._ended()) from None
        line = self._line(time.monotonic() + self.timeout)
        self._signal(signal.SIGSTOP)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._failed(f"answered {line[:SHOWN].decode(errors='replace')!r}, not a JSON object")
        if "error" in answer:
            raise self._failed(" ".join(str(answer["error"]).split())[:LONGEST])
        return answer

    def cpu_seconds(self) -> float:
        """Processor time of all its processes so far; 0 where there is no /proc."""
        ticks = 0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == self.process.pid:  # its process group
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it: kindly, then by force, children included."""
        self._signal(signal.SIGCONT)
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise self._failed(f"no answer within {self.timeout:g} s (--peer-timeout)")
            more = os.read(pipe, 1 << 16)
            if not more:
                raise self._failed(self._ended())
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def _ended(self) -> str:
        try:
            return f"its process ended with code {self.process.wait(PATIENCE)}"
        except subprocess.TimeoutExpired:
            return "it closed its output"

    def _failed(self, what: str) -> ModeFailed:
        """The failure with the last line the worker wrote; the worker is ended."""
        self.close()
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        last = f"; it last wrote: {lines[-1].strip()[:SHOWN]}" if lines and lines[-1].strip() not in what else ""
        return ModeFailed(f"{self.name}: {what}{last} (all of it: {self.log})")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

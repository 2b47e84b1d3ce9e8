"""Progress of ``specdec generate`` on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

BAR = 24  # characters
REDRAW = 0.1  # seconds between two states of the bar
EVERY = 10.0  # seconds between lines when nobody watches


class GenerationProgress:
    """Called after every engine step: finished requests, tokens a second, acceptance and the time left."""

    def __init__(self, total: int, label: str = "", stream: TextIO | None = None) -> None:
        self.total, self.label, self.stream = total, label, stream or sys.stderr
        self.done = self.tokens = self.drafted = self.accepted = 0  # of finished requests
        self.on_terminal = self.stream.isatty()
        self.pause = REDRAW if self.on_terminal else EVERY
        self.start = time.monotonic()
        self.next = self.start + self.pause

    def __call__(self, engine: Any, moved: Sequence[Any]) -> None:
        for request in moved:
            if request.finished:
                self.done += 1
                self._count(request)
        if time.monotonic() >= self.next:
            self.show(engine.running)

    def show(self, running: Sequence[Any]) -> None:
        """Write the state now; requests that still run count with what they have."""
        finished = (self.tokens, self.drafted, self.accepted)
        for request in running:
            if not request.finished:
                self._count(request)
        text = self._text(time.monotonic() - self.start)
        self.tokens, self.drafted, self.accepted = finished
        if self.on_terminal:
            text = f"\r{text[: _columns(self.stream) - 1]}\033[K"
        self.stream.write(text if self.on_terminal else text + "\n")
        self.stream.flush()
        self.next = time.monotonic() + self.pause

    def close(self) -> None:
        """Take the bar away; lines stay."""
        if self.on_terminal:
            self.stream.write("\r\033[K")
            self.stream.flush()

    def _count(self, request: Any) -> None:
        counts = request.metrics.counts
        self.tokens += request.num_output
        self.drafted += counts.drafted
        self.accepted += counts.verifier_accepted

    def _text(self, seconds: float) -> str:
        parts = [f"{self.done}/{self.total} requests", f"{self.tokens / max(seconds, 1e-9):.1f} tokens/s"]
        if self.drafted:
            parts.append(f"acceptance {self.accepted / self.drafted:.2f}")
        if 0 < self.done < self.total:
            left = seconds / self.done * (self.total - self.done)
            parts.append(f"{left // 60:.0f}:{left % 60:02.0f} left")
        name = f"{self.label}: " if self.label else ""
        if not self.on_terminal:
            return name + ", ".join(parts)
        filled = BAR * self.done // self.total if self.total else 0
        return f"{name}[{'#' * filled}{'.' * (BAR - filled)}] " + ", ".join(parts)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80

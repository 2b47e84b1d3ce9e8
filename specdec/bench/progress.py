"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from specdec.bench.samples import Sample

EVERY = 20.0  # seconds between lines when nobody watches


class Progress:
    """Counts samples and shows the latest speed and acceptance."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.done, self.stream = total, 0, stream or sys.stderr
        self.last = self.started = time.monotonic()
        self.bar: Any = None
        self.task: Any = None
        if self.stream.isatty():
            self._open_bar()

    def _open_bar(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError:
            return
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self.bar = Bar(*columns, console=Console(file=self.stream), transient=True)
        self.task = self.bar.add_task("", total=self.total)
        self.bar.start()

    def step(self, sample: Sample) -> None:
        """One more sample is there."""
        self.advance(describe(sample))

    def advance(self, text: str) -> None:
        """One more piece of work is done; ``text`` says what it brought."""
        self.done += 1
        if self.bar is not None:
            self.bar.update(self.task, advance=1, description=text)
        elif time.monotonic() - self.last >= EVERY or self.done == self.total:
            self.last = time.monotonic()
            print(
                f"{self.done}/{self.total} after {self.last - self.started:.0f} s: {text}", file=self.stream, flush=True
            )

    def say(self, text: str) -> None:
        """A message that stays."""
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def describe(sample: Sample) -> str:
    """A sample in a few words."""
    accepted = "" if sample.acceptance is None else f", acceptance {sample.acceptance:.2f}"
    return f"{sample.mode}, {sample.kind}: {sample.tokens_per_second:.1f} tokens/s{accepted}"

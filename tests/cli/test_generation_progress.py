"""The progress of generate: a bar with speed and acceptance on a terminal, seldom lines elsewhere, silent on stdout."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from specdec.cli import progress
from specdec.cli.progress import GenerationProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    return now


def request(tokens: int, drafted: int = 0, accepted: int = 0, finished: bool = False) -> SimpleNamespace:
    counts = SimpleNamespace(drafted=drafted, verifier_accepted=accepted)
    return SimpleNamespace(num_output=tokens, finished=finished, metrics=SimpleNamespace(counts=counts))


def test_a_bar_with_speed_acceptance_and_time_left(clock):
    stream = Terminal()
    shown = GenerationProgress(4, "ngram", stream)
    done, runs = request(30, 10, 8, finished=True), request(10, 10, 2)
    clock.seconds += 2.0
    shown(SimpleNamespace(running=[runs]), [done, runs])
    assert stream.getvalue() == (
        "\rngram: [######..................] 1/4 requests, 20.0 tokens/s, acceptance 0.50, 0:06 left"[:80] + "\033[K"
    )
    clock.seconds += 0.01
    shown(SimpleNamespace(running=[runs]), [runs])  # too soon
    assert stream.getvalue().count("\r") == 1
    runs.num_output, runs.finished = 40, True
    clock.seconds += 5.0
    shown(SimpleNamespace(running=[]), [runs])
    assert "2/4 requests, 10.0 tokens/s" in stream.getvalue()  # 70 tokens in 7.01 s: nothing counts twice
    shown.close()
    assert stream.getvalue().endswith("\r\033[K")


def test_without_a_terminal_a_line_every_ten_seconds(clock):
    stream = io.StringIO()
    shown = GenerationProgress(100, "", stream)
    for _ in range(50):
        clock.seconds += 0.5
        shown(SimpleNamespace(running=[]), [request(5, finished=True)])
    shown.close()
    assert stream.getvalue().splitlines() == [
        "20/100 requests, 10.0 tokens/s, 0:40 left",
        "40/100 requests, 10.0 tokens/s, 0:30 left",
    ]

"""What one measured generation is, and what a mode of decoding must offer to be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt with the kind of text it asks for."""

    id: str
    kind: str
    token_ids: tuple[int, ...]


@dataclass
class Sample:
    """One generation: ``seconds`` from the call to the last token, prompt processing included."""

    token_ids: list[int]
    seconds: float
    forwards: int  # target forwards, prompt processing included
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    overhead: float | None = None  # share of the time outside target forwards and drafting
    drafting: float | None = None  # share of the time spent drafting
    first_token_seconds: float | None = None
    # filled in by the session
    mode: str = ""
    prompt: str = ""
    kind: str = ""
    temperature: float = 0.0
    repeat: int = 0
    disturbed: bool = False  # other processes used the CPU meanwhile

    @property
    def tokens_per_second(self) -> float:
        return len(self.token_ids) / self.seconds if self.seconds > 0 else 0.0

    @property
    def tau(self) -> float:
        """New tokens per target forward."""
        return len(self.token_ids) / self.forwards if self.forwards else 0.0

    @property
    def acceptance(self) -> float | None:
        """Accepted drafts over drafts, None when nothing was drafted."""
        drafted = sum(self.drafted_per_position)
        return sum(self.accepted_per_position) / drafted if drafted else None


class ModeFailed(RuntimeError):
    """A mode cannot go on; the others can. The message says which, what happened, and where to look."""


class Mode(Protocol):
    """A way to decode: plain or speculative, ours or a peer's.

    A mode in another process also has ``cpu_seconds()``: what it used must not count as a disturbance.
    """

    name: str
    num_drafts: int | None  # k of a speculative mode, None when plain
    peer: bool  # another engine's: it runs beside our modes, never between them

    def generate(self, token_ids: Sequence[int], temperature: float, seed: int, max_tokens: int) -> Sample:
        """Generate exactly ``max_tokens`` tokens (end-of-text is an ordinary token here)."""
        ...

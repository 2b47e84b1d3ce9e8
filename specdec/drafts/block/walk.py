"""Drafts of a block, one after the other: what each is chosen from, given the one before it."""

from __future__ import annotations

from typing import Protocol

import torch


class Walk(Protocol):
    """The draft laws of R blocks; asked in order, as a law may depend on the drafts before it."""

    def row(self, step: int, tokens: torch.Tensor, choices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scores [R, M] of draft ``step`` before temperature, and the target's ids of the columns: [R, M], [M] where they never change.

        ``tokens`` [R] and ``choices`` [R] are the draft before it (the anchor at step 0) and the column it came from.
        No ids: column i is the target's token i.
        """

    def confidence(self, step: int, tokens: torch.Tensor) -> torch.Tensor | None:
        """Probability [R] that draft ``step`` is accepted given those before; depends on ``tokens`` before it only."""


class Rows:
    """Rows that do not depend on one another (DFlash)."""

    def __init__(self, logits: torch.Tensor, to_target: torch.Tensor | None) -> None:
        self.logits = logits  # [R, S, M]
        self.ids = to_target

    def row(self, step: int, tokens: torch.Tensor, choices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.logits[:, step], self.ids

    def confidence(self, step: int, tokens: torch.Tensor) -> torch.Tensor | None:
        return None

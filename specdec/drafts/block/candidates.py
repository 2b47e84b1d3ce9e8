"""Walks over the best candidates of each row: transitions between neighbours are scored, tokens are chosen left to right."""

from __future__ import annotations

from collections.abc import Callable

import torch


class CandidateWalk:
    """Rows of K candidates whose scores depend on the candidate chosen before.

    ``pair(step, tokens, choices)`` gives scores [R, K] of the candidates of a row, after the tokens [R] before it that
    were candidates ``choices`` [R]; what candidates score on their own stands in ``alone`` [R, S, K].
    """

    def __init__(
        self,
        ids: torch.Tensor,  # [R, S, K] the target's ids
        pair: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor],
        alone: torch.Tensor | None = None,
    ) -> None:
        self.ids, self.pair, self.alone = ids, pair, alone

    def row(self, step: int, tokens: torch.Tensor, choices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        scores = self.pair(step, tokens, choices).float()
        return scores if self.alone is None else self.alone[:, step] + scores, self.ids[:, step]

    def confidence(self, step: int, tokens: torch.Tensor) -> torch.Tensor | None:
        return None
